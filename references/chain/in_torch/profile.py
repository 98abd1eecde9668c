"""Measures what the stages of a chain cost in PyTorch: bytes exactly, compute as time or as FLOPs."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gradgate.hw_profiles.torch_work import flop_counter
from gradgate.references.chain.in_torch.guard import CheckValues
from gradgate.references.chain.in_torch.replay import RandomState, Surroundings, statistics_kept
from gradgate.references.chain.in_torch.stages import Stage, Value, each, nbytes, parts, plain, record
from gradgate.references.chain.schedules.costs import Costs, Sharing

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


def graded(stages: Sequence[Stage], x: Value, device: torch.device | None = None) -> tuple[bool, ...]:
    """Of each stage, whether it gives other bits where no gradient is recorded (`Stage.graded`).

    A backend may have a kernel of its own for inference, as oneDNN has for `nn.LSTM`. On accelerators outputs are
    compared as `guard.CheckValue` says. Runs every stage two or three times, and leaves no trace.
    """
    device = device or parts(x)[0].device
    surroundings, kept = Surroundings.now(device), snapshot(stages)
    modules = [m for stage in stages for m in stage.modules]
    state, value, found = RandomState.now(device, modules), each(torch.Tensor.detach, x), list[bool]()
    needed = any(t.requires_grad for t in parts(x))
    try:
        for number, stage in enumerate(stages, 1):
            with surroundings.again(), statistics_kept(stage.modules):
                before = RandomState.now(device, stage.modules)
                with before.again():
                    y = CheckValues.of(plain(stage, value), value)
                result, recording = record(stage, value, number > 1 or needed)
                del recording
                found.append(bool(y.differs(CheckValues.of(result, value))))
            value = result
    finally:
        state.put_back()
        restore(kept)
    return tuple(found)


@dataclass(frozen=True)
class _Forward:
    """What one stage's forwards take and leave behind.

    Attributes:
        forward_peak: new bytes at once in a forward, at most.
        save_peak: the same of a recorded forward.
        kept: numbers of the storages of its input and output that the recording keeps alive.
        left: bytes that the recording keeps alive, those storages among them.
    """

    forward_peak: int
    save_peak: int
    retained: tuple[int, ...]
    left: int


def profile(
    stages: Sequence[Stage],
    x: Value,
    compute: Literal["time", "flops"] = "time",
    repeats: int = 5,
    device: torch.device | None = None,
) -> Costs:
    """The costs of a chain: each stage is run on its own, on the values that reach it from `x`.

    The backwards are measured in their order, each on the cotangents that the one before gives. For what a cotangent
    costs depends on where it comes from: those of two tensors that were concatenated are two views of one storage, and
    it stays in memory until both are used up.

    Args:
        stages: of the chain. Gradients of their parameters, buffers and random state are left as they are. On the
            ``meta`` device bytes and FLOPs are the same, and nothing is computed.
        x: x_0, with `requires_grad` as it will be; one tensor or a tuple.
        compute: ``time``, seconds, the least of `repeats` runs; or ``flops``, of products of matrices and
            convolutions, the same each time.
        repeats: how often each stage is timed.
        device: where the stages compute; None: where x_0 is.

    Returns:
        Costs of as many stages: bytes as measured, compute in seconds or FLOPs; with `Costs.sharing` where a stage
        hands a tensor on.

    Stores:
        One recording at a time, and about 2 √N values.

    Computes:
        A few runs forward and backward of every stage.
    """
    device = device or parts(x)[0].device
    surroundings, kept = Surroundings.now(device), snapshot(stages)
    state = RandomState.now(device, [m for stage in stages for m in stage.modules])
    needed = any(t.requires_grad for t in parts(x))
    numbers = _Numbers()
    value = each(torch.Tensor.detach, x)
    values, step = [numbers.of(value)], max(1, math.isqrt(len(stages)))
    waypoints = {0: value}
    sizes, forwards, random = [nbytes(value)], list[_Forward](), 0
    for number, stage in enumerate(stages, 1):
        with surroundings.again(), statistics_kept(stage.modules):
            before = RandomState.now(device, stage.modules)
            y = plain(stage, value)
            random += before.moved(RandomState.now(device, stage.modules)).nbytes
            forwards.append(_forward(stage, value, number > 1 or needed, numbers, y))
        value = y
        del y
        values.append(numbers.of(value))
        sizes.append(nbytes(value))
        if number % step == 0 and number < len(stages):
            waypoints[number] = value
    # A loss and the 1 that its backward pass starts from are held by the caller to the end.
    loss = sum(2 * t.untyped_storage().nbytes() for t in parts(value) if t.numel() == 1)
    cotangents: Sequence[torch.Tensor | None] = ones(stages[-1], value)
    gradient, backward_peak = [_bytes_of(cotangents)], list[int]()
    work, waiting = list[tuple[float, float]](), _Waiting(stages)
    del value
    for start in sorted(waypoints, reverse=True):
        inputs, end = [waypoints.pop(start)], min(start + step, len(stages))
        with surroundings.again():
            for stage in stages[start : end - 1]:
                with statistics_kept(stage.modules):
                    inputs.append(plain(stage, inputs[-1]))
            for number in reversed(range(start + 1, end + 1)):
                stage, needs, value = stages[number - 1], number > 1 or needed, inputs.pop()
                with statistics_kept(stage.modules):
                    seconds = compute == "time"
                    work.append(
                        _seconds(stage, value, needs, cotangents, repeats, device)
                        if seconds
                        else _flops(stage, value, needs, cotangents)
                    )
                    peak, cotangents = _backward(stage, value, needs, cotangents, number == len(stages), waiting)
                backward_peak.append(peak)
                waiting.passed(number)
                gradient.append(_bytes_of(cotangents) + waiting.nbytes)
        del value
    state.put_back()
    restore(kept)
    forward, backward = zip(*work[::-1], strict=True)
    return _costs(
        forward,
        backward,
        sizes,
        gradient[::-1],
        backward_peak[::-1],
        forwards,
        values,
        numbers.sizes,
        PLACEHOLDER + random + loss,
    )


def _costs(
    forward: tuple[float, ...],
    backward: tuple[float, ...],
    output: Sequence[int],
    gradient: Sequence[int],
    backward_peak: Sequence[int],
    forwards: Sequence[_Forward],
    values: Sequence[tuple[int, ...]],
    sizes: Sequence[int],
    fixed: int,
) -> Costs:
    """The costs from what was measured, with each storage counted in every value that it is part of."""
    own = tuple(f.left - sum(sizes[n] for n in f.retained) for f in forwards)
    sharing = Sharing(
        tuple(sizes),
        tuple(values),
        tuple(f.retained for f in forwards),
        own,
        tuple(f.forward_peak for f in forwards),
        tuple(f.save_peak for f in forwards),
    )
    saved, saves_input, saves_output = list[int](), list[bool](), list[bool]()
    for number, f in enumerate(forwards, 1):
        into, out, kept = {*values[number - 1]}, {*values[number]}, {*f.retained}
        # A part of a tuple may be kept. That part counts as `saved`, so it counts twice while the tuple is held.
        saves_output.append(bool(out) and out <= kept and not out & into)
        rest = kept - out if saves_output[-1] else kept
        saves_input.append(output[number - 1] > 0 and into <= rest)
        rest = rest - into if saves_input[-1] else rest
        saved.append(own[number - 1] + sum(sizes[n] for n in rest))
    leaves_behind = (a - b - s for a, b, s in zip(gradient, gradient[1:], saved, strict=False))
    return Costs(
        forward,
        backward,
        tuple(output),
        tuple(gradient),
        tuple(saved),
        tuple(saves_input),
        tuple(saves_output),
        # A tensor that is handed on takes no new bytes, but is counted as if it did.
        tuple(max(f.forward_peak, size) for f, size in zip(forwards, output[1:], strict=True)),
        tuple(max(f.save_peak, size + s) for f, size, s in zip(forwards, output[1:], saved, strict=True)),
        tuple(map(max, backward_peak, leaves_behind)),
        fixed,
        sharing=sharing if sharing.hands_on else None,
    )


class _Numbers:
    """A number for every storage, in the order in which they are first seen.

    Attributes:
        sizes: bytes of each storage.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def of(self, value: Value) -> tuple[int, ...]:
        """The numbers of a value's storages, each once."""
        return tuple(dict.fromkeys(self.each(value)))

    def each(self, value: Value) -> list[int]:
        """The number of each tensor's storage."""
        found = []
        for t in parts(value):
            storage = t.untyped_storage()
            if storage not in self._known:
                self._known[storage] = len(self.sizes)
                self.sizes.append(storage.nbytes())
            found.append(self._known[storage])
        return found


class _Waiting:
    """Gradients that wait in the engine until every stage has given its part: those of parameters that stages share."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        uses: dict[int, list[int]] = {}
        for number, stage in enumerate(stages, 1):
            for p in stage.parameters:
                uses.setdefault(id(p), []).append(number)
        leaves = {id(p): p.is_leaf for stage in stages for p in stage.parameters}
        # Gradients of what is no leaf go on to where it came from, which is outside of the chain, after all stages.
        self._first = {key: numbers[0] if leaves[key] else 0 for key, numbers in uses.items()}
        self._waits = {key for key, numbers in uses.items() if len(numbers) > 1 or not leaves[key]}
        self._held: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of those that wait now."""
        return sum(self._held.values())

    def at_once(self, stage: Stage) -> bool:
        """Whether the gradients of a stage are freed one by one, as they come."""
        return not any(id(p) in self._waits for p in stage.parameters)

    def arrived(self, gradients: dict[int, torch.Tensor]) -> None:
        """A stage has given these."""
        self._held |= {key: g.untyped_storage().nbytes() for key, g in gradients.items() if key in self._waits}

    def passed(self, number: int) -> None:
        """A stage has been run backward: what no earlier stage adds to is freed."""
        self._held = {key: size for key, size in self._held.items() if self._first[key] < number}


def _forward(stage: Stage, value: Value, needs: bool, numbers: _Numbers, result: Value) -> _Forward:
    """Run a stage forward, not recorded and recorded, on a copy of its input; `result` is its output."""
    came, gives = numbers.each(value), numbers.each(result)
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
        # Drop output and input: the storages that stay are those that the recording keeps.
        storages = {
            n: weakref.ref(t.untyped_storage()) for n, t in zip((*came, *gives), (*parts(x), *parts(y)), strict=True)
        }
        del y, x
        kept = tuple(n for n, storage in storages.items() if storage() is not None)
        left = meter.live
        del recording
    return _Forward(forward_peak, save_peak, kept, left)


def _backward(
    stage: Stage,
    value: Value,
    needs: bool,
    cotangents: Sequence[torch.Tensor | None],
    last: bool,
    waiting: _Waiting,
) -> tuple[int, tuple[torch.Tensor | None, ...]]:
    """The most new bytes while a stage is run backward, and the cotangents of its input.

    Gradients of parameters are freed as soon as they exist, as in the executor, unless they wait for those of other
    stages. The output of the `last` stage is the caller's, who holds it meanwhile.
    """
    at_once = waiting.at_once(stage)
    with LiveBytes() as meter:
        y, recording = record(stage, value, needs)
        if not last:
            del y
        meter.restart()
        at_start = meter.live
        into, gradients = recording.backward(cotangents, _let_go if at_once else None)
        peak = meter.peak - at_start
        waiting.arrived(gradients)
        del gradients
    return peak, into


def _bytes_of(tensors: Sequence[torch.Tensor | None]) -> int:
    """Bytes of the storages of those that are there, each counted once."""
    return nbytes(tuple(t for t in tensors if t is not None))


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


def ones(stage: Stage, y: Value) -> list[torch.Tensor | None]:
    """A cotangent for every tensor of an output that has one."""
    gives = stage.gives or (True,) * len(parts(y))
    return [torch.ones_like(t) if needs else None for t, needs in zip(parts(y), gives, strict=True)]


def _seconds(
    stage: Stage,
    value: Value,
    needs: bool,
    cotangents: Sequence[torch.Tensor | None],
    repeats: int,
    device: torch.device,
) -> tuple[float, float]:
    def timed(function: Callable[[], Any]) -> tuple[float, Any]:
        wait(device)
        start = time.perf_counter()
        result = function()
        wait(device)
        return time.perf_counter() - start, result

    forwards, backwards = [], []
    for _ in range(repeats):
        seconds, (y, recording) = timed(lambda: record(stage, value, needs))
        del y
        forwards.append(seconds)
        backwards.append(timed(lambda: recording.backward(cotangents))[0])  # noqa: B023 - called at once
    return min(forwards), min(backwards)  # a busy machine only adds to them


def _flops(stage: Stage, value: Value, needs: bool, cotangents: Sequence[torch.Tensor | None]) -> tuple[float, float]:
    with flop_counter() as forward:
        _, recording = record(stage, value, needs)
    with flop_counter() as backward:
        recording.backward(cotangents)
    return float(forward.get_total_flops()), float(backward.get_total_flops())


def wait(device: torch.device) -> None:
    """Wait until a device has done what it was asked to do, so that a clock can be read."""
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
