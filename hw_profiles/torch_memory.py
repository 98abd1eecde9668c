"""Bytes of a PyTorch program: its peak by category, tracked while it runs on real tensors."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.profile import Profile, load


class ProgramError(RuntimeError):
    """The program raised an exception while it was measured. The message says which one."""


class Refusal(ProgramError):
    """The program cannot be measured with these arguments or options. The message says why."""


@dataclass(frozen=True)
class TorchMemory:
    """Bytes that are alive at the moment when the sum is largest.

    Attributes:
        held_bytes: tensors that were passed in; parameters, buffers and optimizer state that existed before the run.
        activation_bytes: tensors made outside a backward pass.
        temporary_bytes: tensors made during a backward pass, including recomputed ones, and gradients.
        total_bytes: their sum.
        alive: the largest tensors among them that were not passed in (`Tracker.largest`).
    """

    held_bytes: int
    activation_bytes: int
    temporary_bytes: int
    total_bytes: int
    alive: tuple[str, ...] = ()


def peak(program: Callable[..., Any], arguments: Sequence[Any], track: Sequence[Any] = ()) -> TorchMemory:
    """Peak bytes of ``program(*arguments)``, which is run twice; the second run is counted.

    The first run imports what is imported late, and fills what the program keeps from one call to the next. So the
    bytes do not depend on what has run in this process. PyTorch makes this necessary: the first gradient of
    `torch.func` imports ``torch._dynamo`` (``torch/_functorch/eager_transforms.py``, ``_autograd_grad``), and the
    modules imported then call ``torch.fx.wrap`` (``torch/fx/_symbolic_trace.py``), whose local variable
    ``currentframe`` is its own frame. This cycle keeps the frames of all callers, and every tensor in them, until the
    garbage collector runs.

    Args:
        program: a PyTorch program; it computes its gradient itself.
        arguments: trees of tensors, modules and anything else.
        track: further tensors, modules and optimizers that the program uses and that are not arguments. A tensor that
            existed before the second run, is no argument and is not in `track` is not counted, nor is a view of it.

    Returns:
        The sizes of the tensors, without the rounding of an allocator; they are the same on every machine. The
        garbage collector does not run: tensors in a cycle of dead objects count until the end.

    Raises:
        Whatever the program raises.
    """
    from gradgate.hw_profiles.torch_tracker import Tracker

    program(*arguments)
    tracker = Tracker()
    for value in _trackable((*arguments, *track)):
        tracker.hold(value)
    collects = gc.isenabled()
    gc.disable()  # a cycle of dead tensors would be freed at a moment that differs from process to process
    try:
        with tracker:
            program(*arguments)
    finally:
        if collects:
            gc.enable()
    held, activation, temporary = tracker.peak
    return TorchMemory(held, activation, temporary, held + activation + temporary, tracker.largest())


def measure(
    program: Callable[..., Any], arguments: Sequence[Any], profile: Profile | str = "cpu", track: Sequence[Any] = ()
) -> Measurement:
    """The result of ``peak`` and the FLOPs of one run, as a measurement.

    Eager PyTorch makes the same tensors on every device, so the bytes hold for any profile; ``fits`` compares them
    with the profile's memory. ``argument_bytes`` are ``held_bytes``; ``temp_bytes`` is the rest of the peak,
    including results. If the program raises, the status is ``failed``. The program is run three times: without
    counting, for bytes and for FLOPs.

    Raises:
        ProfileError: the name of the profile is unknown.
    """
    if isinstance(profile, str):
        profile = load(profile)
    try:
        return on_profile(run(program, arguments, track), profile)
    except ProgramError as error:
        return Measurement(profile.name, "failed", str(error), fingerprint=fingerprint(profile))


def run(
    program: Callable[..., Any], arguments: Sequence[Any], track: Sequence[Any] = ()
) -> tuple[TorchMemory, int | None]:
    """The result of ``peak`` of a program, and the FLOPs of a further run.

    Raises:
        ProgramError: the program raised; the message has its exception.
    """
    from gradgate.hw_profiles.work import torch_flops

    memory, _ = bytes_alone(program, arguments, track)
    return memory, _with_program_error(lambda: torch_flops(program, *arguments))


def bytes_alone(
    program: Callable[..., Any], arguments: Sequence[Any], track: Sequence[Any] = ()
) -> tuple[TorchMemory, None]:
    """The same without the FLOPs.

    Raises:
        ProgramError: the program raised; the message has its exception.
    """
    return _with_program_error(lambda: peak(program, arguments, track)), None


def _with_program_error(run: Callable[[], Any]) -> Any:
    """The result of a run; what it raises becomes a ProgramError."""
    try:
        return run()
    except Refusal:
        raise
    except (Exception, SystemExit) as error:
        raise ProgramError(f"the program failed: {type(error).__name__}: {error}") from error


def on_profile(figures: tuple[TorchMemory, int | None], profile: Profile | str) -> Measurement:
    """The figures that `run` returned, as a measurement on a profile.

    Raises:
        ProfileError: the name of the profile is unknown.
    """
    if isinstance(profile, str):
        profile = load(profile)
    memory, flops = figures
    available = profile.device_memory_bytes
    return Measurement(
        profile=profile.name,
        status="measured",
        temp_bytes=memory.total_bytes - memory.held_bytes,
        argument_bytes=memory.held_bytes,
        peak_bytes=memory.total_bytes,
        required_bytes=memory.total_bytes,
        fits=None if available is None else memory.total_bytes <= available,
        flops=flops,
        alive=memory.alive,
        fingerprint=fingerprint(profile),
    )


def _trackable(values: Sequence[Any]) -> list[Any]:
    import torch
    from torch.utils import _pytree

    kinds = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
    return [leaf for leaf in _pytree.tree_leaves(list(values)) if isinstance(leaf, kinds)]
