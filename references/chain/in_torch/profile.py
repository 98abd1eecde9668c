"""Measures what the stages of a chain cost in PyTorch: bytes exactly, compute as time or as FLOPs."""

from __future__ import annotations

import statistics
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gradgate.hw_profiles.torch_work import flop_counter
from gradgate.references.chain.in_torch.replay import RandomState, Surroundings, statistics_kept
from gradgate.references.chain.in_torch.stages import Stage, Value, each, nbytes, parts, plain, record
from gradgate.references.chain.schedules.costs import Costs

PLACEHOLDER = 16
"""Bytes of the placeholder that links the stages' nodes (`executor`)."""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that are made in its scope and still alive, and the most there were at once.

    Every storage counts once, whatever views there are of it. Scratch space that an operator allocates and frees
    internally is not seen; on a GPU, `torch.cuda.max_memory_allocated` sees that too.

    Attributes:
        live: bytes now.
        peak: the most bytes since `restart`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def restart(self) -> None:
        """Forget the peak so far."""
        self.peak = self.live

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        torch.utils._pytree.tree_map_only(torch.Tensor, self._known, (args, kwargs))
        result = func(*args, **(kwargs or {}))
        torch.utils._pytree.tree_map_only(torch.Tensor, self._count, result)
        return result

    def _known(self, tensor: torch.Tensor) -> None:
        """What an operator reads and no operator here has made existed before the scope: it is not counted."""
        storage = tensor.untyped_storage()
        if storage not in self._seen:
            self._seen[storage] = 0

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._seen:
            return
        size = storage.nbytes()
        self._seen[storage] = size
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.live -= size


def profile(
    stages: Sequence[Stage],
    x: Value,
    compute: Literal["time", "flops"] = "time",
    repeats: int = 5,
    device: torch.device | None = None,
) -> Costs:
    """The costs of a chain: each stage is run on its own, on the values that reach it from `x`.

    Args:
        stages: of the chain. Gradients of their parameters, buffers and random state are left as they are. On the
            ``meta`` device bytes and FLOPs are the same, and nothing is computed.
        x: x_0, with `requires_grad` as it will be; one tensor or a tuple.
        compute: ``time``, seconds, the median of `repeats` runs; or ``flops``, of products of matrices and
            convolutions, the same each time.
        repeats: how often each stage is timed.
        device: where the stages compute; None: where x_0 is.

    Returns:
        Costs of as many stages: bytes as measured, compute in seconds or FLOPs.

    Stores:
        One recording and a few values at a time.

    Computes:
        A few runs forward and backward of every stage.
    """
    shapes: list[tuple[Any, ...]] = []
    shared = {p for p, count in Counter(id(p) for stage in stages for p in stage.parameters).items() if count > 1}
    device = device or parts(x)[0].device
    surroundings, kept = Surroundings.now(device), snapshot(stages)
    state = RandomState.now(device, [m for stage in stages for m in stage.modules])
    random = 0
    value = each(torch.Tensor.detach, x)
    sizes = [nbytes(value)]
    needed = any(t.requires_grad for t in parts(x))
    for number, stage in enumerate(stages, 1):
        needs = number > 1 or needed
        with surroundings.again(), statistics_kept(stage.modules):
            before = RandomState.now(device, stage.modules)
            measured = _memory(stage, value, needs, shared)
            random += before.moved(RandomState.now(device, stage.modules)).nbytes
            work = _flops(stage, value, needs) if compute == "flops" else _seconds(stage, value, needs, repeats, device)
            value = plain(stage, value)
        sizes.append(nbytes(value))
        shapes.append((*work, *measured))
    state.put_back()
    restore(kept)
    # A loss and the 1 that its backward pass starts from are held by the caller to the end.
    loss = sum(2 * t.untyped_storage().nbytes() for t in parts(value) if t.numel() == 1)
    forward, backward, saved, saves_input, saves_output, gradients, forward_peak, save_peak, backward_peak = zip(
        *shapes, strict=True
    )
    gradients = (*gradients, sizes[-1])
    leaves_behind = (a - b - s for a, b, s in zip(gradients, gradients[1:], saved, strict=False))
    return Costs(
        forward, backward, tuple(sizes), gradients, saved, saves_input, saves_output,
        forward_peak, save_peak, tuple(map(max, backward_peak, leaves_behind)), PLACEHOLDER + random + loss,
    )  # fmt: skip


def _memory(
    stage: Stage, value: Value, needs: bool, shared: Collection[int]
) -> tuple[int, bool, bool, int, int, int, int]:
    """Saved, saves_input, saves_output, bytes of the input's cotangent, and the three peaks.

    Gradients of parameters are freed as soon as they exist, as in the executor. They are kept if the stage has a
    parameter whose id is in `shared`, because then they wait for those of the other stages.
    """
    at_once = not any(id(p) in shared for p in stage.parameters)
    with LiveBytes() as meter:
        x = _copied(value)
        meter.restart()
        at_start = meter.live
        y = plain(stage, x)
        forward_peak = meter.peak - at_start
        del y
        meter.restart()
        y, recording = record(stage, x, needs)
        save_peak = meter.peak - at_start
        # Drop the output, then the input: the bytes that are freed are those that the recording does not keep.
        with_both = meter.live
        size_in, size_out = nbytes(x), nbytes(y)
        hands_on = isinstance(y, tuple) and nbytes((*parts(x), *y)) < size_in + size_out
        del y
        without_output = meter.live
        del x
        # A part of a tuple may be kept. That part counts as `saved`, so it counts twice while the tuple is held.
        saves_output = without_output == with_both and not hands_on
        saves_input = meter.live == without_output and size_in > 0
        saved = max(meter.live - saves_output * size_out - saves_input * size_in, 0)
        del recording
        x = _copied(value)  # again, with the input held as an earlier recording may hold it
        y, recording = record(stage, x, needs)
        cotangents = _ones(stage, y)
        del y
        meter.restart()
        at_start = meter.live
        into, gradients = recording.backward(cotangents, _let_go if at_once else None)
        backward_peak = meter.peak - at_start
        size = sum(t.untyped_storage().nbytes() for t in into if t is not None)  # not shared where one is added to
        del gradients
    # A tensor that is handed on takes no new bytes, but is counted as if it did.
    forward_peak, save_peak = max(forward_peak, size_out), max(save_peak, size_out + saved)
    return saved, saves_input, saves_output, size, forward_peak, save_peak, backward_peak


def _copied(value: Value) -> Any:
    """The same numbers in storages of the same sizes, shared as they were."""
    if not isinstance(value, tuple):
        return value.clone()
    storages: dict[int, torch.Tensor] = {}
    found = []
    for t in value:
        storage = t.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = t.as_strided((storage.nbytes() // t.element_size(),), (1,), 0).clone()
        whole = storages[storage._cdata]
        alike = whole.dtype == t.dtype
        found.append(whole.as_strided(t.shape, t.stride(), t.storage_offset()) if alike else t.clone())
    return tuple(found)


def _let_go(gradient: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=gradient.dtype, device=gradient.device).expand(gradient.shape)


def _ones(stage: Stage, y: Value) -> list[torch.Tensor | None]:
    """A cotangent for every tensor of an output that has one."""
    gives = stage.gives or (True,) * len(parts(y))
    return [torch.ones_like(t) if needs else None for t, needs in zip(parts(y), gives, strict=True)]


def _seconds(stage: Stage, value: Value, needs: bool, repeats: int, device: torch.device) -> tuple[float, float]:
    def timed(function: Callable[[], Any]) -> tuple[float, Any]:
        _wait(device)
        start = time.perf_counter()
        result = function()
        _wait(device)
        return time.perf_counter() - start, result

    forwards, backwards = [], []
    for _ in range(repeats):
        seconds, (y, recording) = timed(lambda: record(stage, value, needs))
        forwards.append(seconds)
        cotangents = _ones(stage, y)
        backwards.append(timed(lambda: recording.backward(cotangents))[0])  # noqa: B023 - called at once
    return statistics.median(forwards), statistics.median(backwards)


def _flops(stage: Stage, value: Value, needs: bool) -> tuple[float, float]:
    with flop_counter() as forward:
        y, recording = record(stage, value, needs)
    with flop_counter() as backward:
        recording.backward(_ones(stage, y))
    return float(forward.get_total_flops()), float(backward.get_total_flops())


def _wait(device: torch.device) -> None:
    if device.type not in ("cpu", "meta"):
        torch.get_device_module(device).synchronize(device)


def snapshot(stages: Sequence[Stage]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Every buffer within, and a copy of it."""
    buffers = {id(b): b for stage in stages for m in stage.modules for b in m.buffers(recurse=False)}
    return [(b, b.clone()) for b in buffers.values()]


def restore(kept: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Buffers back to their copies."""
    with torch.no_grad():
        for buffer, copy in kept:
            buffer.copy_(copy)
