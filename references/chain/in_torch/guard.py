"""Detects that a stage, run again, would not do what it did first.

Three things are compared, and a difference raises RuntimeError, as autograd raises when a saved tensor has changed:

* `Held`: the tensors that a stage reads besides its input. Their version counters, their storages, and which tensors
  they are, must be those of the first run.
* `CheckValue`: a few bytes that are computed from a stage's output. They must be those of the first run. This finds
  every other cause: a flag that has been turned, a generator of the model's own, an attribute such as ``dropout.p``.
* `check_version`: the version counter of a value that is kept.

A backend may also give other bits where no gradient is recorded. That is no change, and is not refused: the profiler
finds such stages (`Stage.graded`), and all their runs build a graph.

One change cannot be seen: one that leaves the output of every stage as it was and changes only which gradients flow,
such as a ``detach`` that a flag turns on.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gradgate.references.chain.in_torch.replay import Norm
from gradgate.references.chain.in_torch.stages import Value, parts
from gradgate.references.contract import UsageError

SAMPLES = 30
_ORDINARY = (torch.Tensor, torch.nn.Parameter)
ROUNDING = 64
"""How many times the dtype's epsilon outputs may differ by, where operators may give other bits each time."""
_KEPT = (
    "a checkpointed chain runs its stages again in the backward pass, and they have to read what they read in the "
    "forward pass; change it after backward()"
)


def versions_of(value: Value) -> tuple[int, ...]:
    """The version counter of every tensor of a value."""
    return tuple(t._version for t in parts(value))


def check_version(what: str, value: Value, expected: int | tuple[int, ...]) -> None:
    """Raise RuntimeError, in autograd's words, unless every tensor still has this version."""
    for tensor, version in zip(parts(value), (expected,) if isinstance(expected, int) else expected, strict=True):
        _check_one(what, tensor, version)


def _check_one(what: str, tensor: torch.Tensor, expected: int) -> None:
    if tensor._version != expected:
        kind = f"{tensor.type().replace('torch.', '')} {list(tensor.shape)}"
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[torch.{kind}], which is {what}, is at version {tensor._version}; expected version {expected} instead: "
            f"{_KEPT}"
        )


def _refuse(stage: str, what: str) -> None:
    raise RuntimeError(f"{stage} cannot be run again for its gradient: {what} since the forward pass: {_KEPT}")


def _storage(tensor: torch.Tensor) -> int:
    """Which storage a tensor has; it changes where ``tensor.data`` is assigned, and the version does not."""
    return int(tensor.untyped_storage()._cdata) if type(tensor) in _ORDINARY else 0


@dataclass(frozen=True)
class Held:
    """The tensors that a stage reads besides its input, as they were at one moment.

    Attributes:
        rows: of each tensor: its name, itself, its version and its storage.
    """

    rows: tuple[tuple[str, torch.Tensor, int, int], ...]

    @classmethod
    def now(cls, parameters: Sequence[torch.Tensor], modules: Sequence[torch.nn.Module] = ()) -> Held:
        """Parameters and buffers, each once; without the running statistics that norms in training do not read."""
        named: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in _named(parameters, modules):
            named.setdefault(id(tensor), (name, tensor))
        return cls(tuple((name, t, t._version, _storage(t)) for name, t in named.values()))

    def check(self, stage: str, parameters: Sequence[torch.Tensor], modules: Sequence[torch.nn.Module]) -> None:
        """Raise RuntimeError unless the stage still reads these tensors, unchanged."""
        now = Held.now(parameters, modules)
        for (name, tensor, version, _), (_, found, _, _) in zip(self.rows, now.rows, strict=False):
            if found is not tensor:
                _refuse(stage, f"its {name} has been replaced by another tensor")
            check_version(f"the {name} of {stage}", tensor, version)
        if len(now.rows) != len(self.rows):
            _refuse(stage, "parameters or buffers have been added or removed")
        self.check_storages(stage)

    def check_storages(self, stage: str) -> None:
        """Raise RuntimeError if the data of a tensor has been exchanged."""
        for name, tensor, _, storage in self.rows:
            if _storage(tensor) != storage:
                _refuse(stage, f"the data of its {name} has been exchanged (.data = …, .to, .half or the like)")

    def refuse_own_changes(self, stage: str) -> None:
        """Raise UsageError if one of the tensors has changed: then the stage itself has changed it."""
        for name, tensor, version, _ in self.rows:
            if tensor._version != version:
                kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "buffer"
                raise UsageError(
                    f"{stage} changes its {kind} {name} in its forward, so it cannot be run again with the same "
                    "result; only the running statistics of norms are replayed. Leave it out of the sequence."
                )


def _named(
    parameters: Sequence[torch.Tensor], modules: Sequence[torch.nn.Module]
) -> Iterator[tuple[str, torch.Tensor]]:
    for module in modules:
        trains = isinstance(module, Norm) and module.training
        for name, tensor in [*module._parameters.items(), *([] if trains else module._buffers.items())]:
            if tensor is not None:
                yield f"{type(module).__name__}.{name}", tensor
    for number, p in enumerate(parameters):
        yield f"{'parameter' if isinstance(p, torch.nn.Parameter) else 'argument'} {number}", p


@dataclass(frozen=True)
class CheckValue:
    """A few bytes computed from a stage's output, by which a second run is compared with the first.

    On the CPU an operator gives the same bits again. The check value is then a sum over the bits of all elements, and
    the bits of some elements. On an accelerator an operator may give other bits. The check value is then the root mean
    square and some elements. It stays on the device, so that nothing waits for it, and it is compared up to rounding.

    Attributes:
        kind: shape, dtype and device.
        total: the sum of all bits; None on an accelerator.
        sample: the bits of some elements; on an accelerator a tensor of some elements and the root mean square; None
            where the bits cannot be read.
        threads: of PyTorch. With another number, sums are rounded differently.
    """

    kind: tuple[torch.Size, torch.dtype, torch.device]
    total: int | None
    sample: bytes | torch.Tensor | None
    threads: int

    @classmethod
    def of(cls, y: torch.Tensor) -> CheckValue:
        """The check value of an output without a graph. Cost: one pass over it."""
        kind, threads = (y.shape, y.dtype, y.device), torch.get_num_threads()
        opaque = type(y) is not torch.Tensor or y.layout != torch.strided or y.is_quantized or not y.numel()
        if opaque or y.device.type == "meta":
            return cls(kind, None, None, threads)
        if y.device.type != "cpu":
            return cls(kind, None, _norm_and_sample(y), threads)
        bits = _bits(y)
        total = int(np.add.reduce(bits, axis=None, dtype=bits.dtype))  # modulo a power of 2: in any order the same
        return cls(kind, total, bits.flat[_places(bits.size)].tobytes(), threads)

    def differs(self, again: CheckValue) -> bool | torch.Tensor:
        """Whether the output of a second run differs; on an accelerator, a tensor that holds the answer."""
        if self.kind != again.kind:
            return True
        if self.sample is None or again.sample is None:
            return False
        if isinstance(self.sample, torch.Tensor) and isinstance(again.sample, torch.Tensor):
            exact = torch.are_deterministic_algorithms_enabled()
            return _apart(self.sample, again.sample, 0.0 if exact else ROUNDING * _epsilon(self.kind[1]))
        if (self.total, self.sample) == (again.total, again.sample):
            return False
        if self.threads == again.threads:
            return True
        one, two = (torch.frombuffer(bytearray(v.sample), dtype=self.kind[1].to_real()) for v in (self, again))  # type: ignore[arg-type]
        return bool(_apart(one.double(), two.double(), ROUNDING * _epsilon(self.kind[1])))


@dataclass(frozen=True)
class CheckValues:
    """The check values of all tensors that a stage gives, except those that it hands on unchanged.

    Attributes:
        parts: one per tensor.
    """

    parts: tuple[CheckValue, ...]

    @classmethod
    def of(cls, y: Value, x: Value) -> CheckValues:
        """The check values for a stage's output and input. Cost: one pass over what is new."""
        came = {t.untyped_storage()._cdata for t in parts(x)} if isinstance(y, tuple) else set()
        return cls(tuple(CheckValue.of(t) for t in parts(y) if t.untyped_storage()._cdata not in came))

    def differs(self, again: CheckValues) -> bool | torch.Tensor:
        """Whether any tensor differs."""
        found: bool | torch.Tensor = len(self.parts) != len(again.parts)
        for one, other in zip(self.parts, again.parts, strict=False):
            found = found | one.differs(other)
        return found

    def kinds(self, again: CheckValues) -> tuple[CheckValue, CheckValue]:
        """The first two that differ in shape or dtype, or else the first two."""
        pairs = list(zip(self.parts, again.parts, strict=False))
        return next((pair for pair in pairs if pair[0].kind != pair[1].kind), pairs[0])


def _bits(y: torch.Tensor) -> np.ndarray:
    """The elements of a tensor on the CPU as unsigned integers, read from its memory: no operator is called."""
    size, storage = y.element_size(), y.untyped_storage()
    dtype = np.dtype(f"u{size if size <= 8 else 8}")  # a complex128 is two integers of 8 bytes
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr()))
    memory = memory[y.storage_offset() * size :]
    shape, strides = (*y.shape, size // dtype.itemsize), (*(size * step for step in y.stride()), dtype.itemsize)
    return np.lib.stride_tricks.as_strided(memory[: memory.size // size * size].view(dtype), shape, strides)


@functools.lru_cache(maxsize=256)
def _places(count: int) -> np.ndarray:
    """Indices of the elements that are sampled, spread over all of them; the last element is among them."""
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLES)).astype(np.int64))


def _norm_and_sample(y: torch.Tensor) -> torch.Tensor:
    if y.is_complex():
        y = torch.view_as_real(y.resolve_conj())
    flat = y.as_strided((y.numel(),), (1,)) if _dense(y) else y.reshape(-1)
    places = torch.from_numpy(_places(flat.numel())).to(y.device, non_blocking=True)
    sample = flat[places].float()
    if not y.is_floating_point():
        return sample
    usual = torch.linalg.vector_norm(flat, dtype=torch.float32) / flat.numel() ** 0.5
    return torch.cat([sample, usual[None]])


def _dense(y: torch.Tensor) -> bool:
    """Whether the elements lie side by side in memory, in whatever order of dimensions."""
    order = sorted(range(y.dim()), key=y.stride, reverse=True)
    return y.permute(order).is_contiguous()


def _epsilon(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0


def _apart(one: torch.Tensor, two: torch.Tensor, tolerance: float) -> torch.Tensor:
    """Whether two samples differ by more than the tolerance, in proportion to their elements or their usual size."""
    usual = one.nan_to_num(0, 0, 0).square().mean().sqrt()
    size = torch.maximum(one.abs(), usual)
    equal = ((one - two).abs() <= tolerance * size) | (one == two) | (one.isnan() & two.isnan())
    return (~equal).any()


def refuse_course(stage: str, first: CheckValues, again: CheckValues) -> None:
    """Raise RuntimeError: the stage gave another output when it was run again."""
    (shape, dtype, _), (shape_again, dtype_again, _) = (value.kind for value in first.kinds(again))
    told = "another output"
    if (shape, dtype) != (shape_again, dtype_again):
        told = f"a {dtype_again} of shape {tuple(shape_again)} and not a {dtype} of shape {tuple(shape)}"
    raise RuntimeError(
        f"{stage}, run again for its gradient, gave {told}: something that it depends on has changed since the forward "
        "pass. Python's, NumPy's and PyTorch's global generators, autocast and training modes are replayed; a "
        "generator, flag or attribute of the model's own is not. Leave it as it is until backward() is done"
    )


class Doubts:
    """Comparisons whose outcomes are still on a device; they are read once, when the backward pass ends."""

    def __init__(self) -> None:
        self._open: list[tuple[torch.Tensor, Callable[[], None]]] = []
        self._pass = -1

    def add(self, outcome: bool | torch.Tensor, refuse: Callable[[], None]) -> None:
        """Call `refuse` if the outcome is true, now or when the backward pass that is under way has ended."""
        if not isinstance(outcome, torch.Tensor):
            return refuse() if outcome else None
        if self._pass != torch._C._current_graph_task_id():
            self._pass = torch._C._current_graph_task_id()
            torch.autograd.Variable._execution_engine.queue_callback(self.settle)
        self._open.append((outcome, refuse))

    def settle(self) -> None:
        """Read all outcomes, and refuse where one is true."""
        asked, self._open = self._open, []
        for outcome, refuse in asked:
            if outcome:
                refuse()
