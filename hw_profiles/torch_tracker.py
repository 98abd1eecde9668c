"""The bytes of tensors that are alive while a PyTorch program runs, operation by operation.

PyTorch's ``MemTracker`` takes five times as long for each operation, because it also keeps statistics of modules. Its
totals are the same, except where forward-mode differentiation makes tensors on the device ``meta`` to compute shapes:
``MemTracker`` counts them, although they have no memory.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

HELD, ACTIVATION, TEMPORARY = range(3)
"""What a storage is: given before the run, made outside a backward pass, made during one."""
BEFORE = -1
"""What a storage is that an operation did not make: it is counted already, or existed before and was not given."""
MADE_OUTSIDE = ("aten::lift_fresh", "aten::set_")
"""Operations whose result may have a new storage that no operation has made: numbers from Python, copies of storages.
"""


class _Storage:
    """A storage that is counted: its bytes now, and what its first tensor was."""

    __slots__ = ("dtype", "kind", "operation", "shape", "size")

    def __init__(self, kind: int, operation: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self.size, self.kind, self.operation, self.dtype, self.shape = 0, kind, operation, dtype, shape

    @property
    def what(self) -> str:
        """Its dtype and shape, as ``float32[64,128]``."""
        return f"{str(self.dtype).removeprefix('torch.')}[{','.join(map(str, self.shape))}]"


class Tracker(TorchDispatchMode):
    """A context in which the storages that operations make are counted while they are alive.

    A view of a tensor that existed before, and was not given to `hold`, is not counted: a function may keep a table
    from an earlier call, as long as the largest call needs it. Nor is the state of a random generator, which no
    operation makes: it is the device's (5,056 bytes on a CPU, 16 on a GPU) and not the program's.

    Attributes:
        now: bytes that are alive, by kind (`HELD`, `ACTIVATION`, `TEMPORARY`).
        peak: `now` at the end of the operation after which its sum was largest.

    What was made and dropped is written down, so that the tensors of the peak can be named afterwards. A list of all
    that are alive, at every operation that makes the peak larger, would take time quadratic in the operations.

    Cost: about 15 microseconds for each operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = [0, 0, 0]
        self.peak = [0, 0, 0]
        self._sum = self._largest = 0
        self._alive: dict[int, tuple[weakref.ref[Any], _Storage]] = {}
        self._written: list[tuple[_Storage, int]] = []
        self._at_peak = 0
        self._depth = 0
        self._on_meta = False

    def hold(self, value: Any) -> None:
        """Count a tensor, the parameters and buffers of a module, or the state of an optimizer, as given before."""
        if isinstance(value, torch.nn.Module):
            for tensor in (*value.parameters(), *value.buffers()):
                self._add(tensor, HELD)
                if tensor.grad is not None:
                    self._add(tensor.grad, TEMPORARY)
        elif isinstance(value, torch.optim.Optimizer):
            for tensor in _pytree.tree_leaves([dict(state) for state in value.state.values()]):
                if isinstance(tensor, torch.Tensor):
                    self._add(tensor, HELD)
        else:
            self._on_meta |= value.is_meta
            self._add(value, HELD)
            if value.is_leaf and value.grad is not None:
                self._add(value.grad, TEMPORARY)

    def alive(self, left_out: Iterable[torch.Tensor] = ()) -> int:
        """Bytes of all counted storages that are alive, without those of some tensors."""
        without = {storage._cdata for tensor in left_out for storage in _storages(tensor)}
        return sum(storage.size for place, (_, storage) in self._alive.items() if place not in without)

    def largest(self, most: int = 3) -> tuple[str, ...]:
        """The largest tensors that are alive at the peak and were made in the program, with the operations.

        Each is a text such as ``float32[64,128] 32,768 bytes (aten::mm)``; the shape is that of the first tensor in the
        storage.
        """
        sizes: dict[_Storage, int] = {}
        for storage, change in self._written[: self._at_peak]:
            sizes[storage] = sizes.get(storage, 0) + change
        made = [(size, storage) for storage, size in sizes.items() if size > 0 and storage.kind != HELD]
        made.sort(key=lambda one: -one[0])  # stable: of equal ones, the earlier is first
        return tuple(f"{storage.what} {size:,} bytes ({storage.operation or 'given'})" for size, storage in made[:most])

    def __enter__(self) -> Tracker:
        if not self._depth:
            self._resize = torch.UntypedStorage.resize_
            torch.UntypedStorage.resize_ = self._resized()  # type: ignore[method-assign]  # no operation: not dispatched
            self._settle()
        self._depth += 1
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._depth -= 1
        if not self._depth:
            torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(kind.__name__ == "DTensor" for kind in types):
            return NotImplemented  # its operations on local tensors are counted in its place
        results = func(*args, **(kwargs or {}))
        kind = TEMPORARY if torch._C._current_graph_task_id() != -1 else ACTIVATION
        if _returns_its_argument(func):
            kind = BEFORE
        operation = _name(func)
        for result in results if isinstance(results, (tuple, list)) else (results,):
            if isinstance(result, torch.Tensor):
                self._add(result, kind, operation)
            elif isinstance(result, (tuple, list)):
                for tensor in _pytree.tree_leaves(result):
                    if isinstance(tensor, torch.Tensor):
                        self._add(tensor, kind, operation)
        if self._sum > self._largest:
            self._settle()
        return results

    def _settle(self) -> None:
        self._largest, self.peak, self._at_peak = self._sum, list(self.now), len(self._written)

    def _add(self, tensor: torch.Tensor, kind: int, operation: str = "") -> None:
        """Count the storages of a tensor that are not counted, and the changed size of those that are.

        Tensors on the device ``meta`` are counted if a given one is there, as the whole program runs there then. A
        zero tensor, which forward-mode differentiation uses for a tangent that is known to be 0, has a storage with a
        size and without memory; it is not counted.
        """
        if tensor.is_meta and not self._on_meta:
            return
        for storage in _storages(tensor):
            key, size = storage._cdata, storage.nbytes()
            known = self._alive.get(key)
            if known is None:
                if kind == BEFORE or torch._is_zerotensor(tensor):
                    continue
                made = _Storage(kind, operation, tensor.dtype, tuple(tensor.shape))
                self._alive[key] = weakref.ref(storage, functools.partial(self._drop, key, made)), made
                self._resize_to(made, size)
            elif known[1].size != size:
                self._resize_to(known[1], size)

    def _drop(self, key: int, storage: _Storage, _: Any) -> None:
        del self._alive[key]
        self._resize_to(storage, 0)

    def _resize_to(self, storage: _Storage, size: int) -> None:
        change = size - storage.size
        storage.size = size
        self._written.append((storage, change))
        self.now[storage.kind] += change
        self._sum += change

    def _resized(self) -> Any:
        """``UntypedStorage.resize_``, with which libraries free memory early, and the new size counted."""

        def resize_(storage: torch.UntypedStorage, size: int) -> None:
            self._resize(storage, size)
            known = self._alive.get(storage._cdata)
            if known is not None:
                self._resize_to(known[1], storage.nbytes())

        return resize_


@functools.cache
def _name(func: Any) -> str:
    """The name of an operation, as ``aten::mm``."""
    schema = getattr(func, "_schema", None)
    return str(func) if schema is None else str(schema.name)


@functools.cache
def _returns_its_argument(func: Any) -> bool:
    """Whether an operation returns views of its arguments, or changed arguments, and makes no storage."""
    schema = getattr(func, "_schema", None)
    if schema is None or schema.name in MADE_OUTSIDE:
        return False
    return any(returned.alias_info is not None for returned in schema.returns)


def _storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The storages of a tensor, or those of the tensors that a wrapper keeps."""
    if type(tensor) is not torch.Tensor and is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, name)
            if isinstance(inner, torch.Tensor):
                yield from _storages(inner)
    elif tensor.layout is torch.strided:
        yield tensor.untyped_storage()
