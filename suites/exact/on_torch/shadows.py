"""The balls of every tensor: each storage has a shadow, and a tensor's balls are a view of its storage's.

A shadow is a flat object array with one real ball per floating element of the storage; a complex element is two. So a
view of a tensor needs no rule, and what is written in place is seen through every view.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from flint import acb
from numpy.lib.stride_tricks import as_strided
from torch.multiprocessing.reductions import StorageWeakRef

from gradgate.suites.exact import balls

FLOATS = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    }
)
COMPLEX = frozenset({torch.complex128, torch.complex64, torch.complex32})
INEXACT = FLOATS | COMPLEX
NARROW = INEXACT - {torch.float64, torch.complex128}

as_numpy: Callable[[Any], Any] = torch._C.TensorBase.numpy
"""`Tensor.numpy` as PyTorch has it, also while `exits` watches the method of the programs."""


class Record:
    """What is known of one storage.

    Attributes:
        alive: a weak reference, which also keeps the storage's address from being used again.
        shadow: the balls, or None while they are the floats themselves.
        element: bytes of one ball's number.
        data: a copy of the storage's bytes, to detect changes from outside; None if these are not looked for.
        unwritten: whether the storage was made empty, and no number of it has been evaluated since.
    """

    __slots__ = ("alive", "data", "element", "shadow", "unwritten")

    def __init__(self, alive: Any, element: int) -> None:
        self.alive, self.element = alive, element
        self.shadow: Any = None
        self.data: bytes | None = None
        self.unwritten = False


class Shadows:
    """The records of all storages that the evaluation has seen."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.truths: dict[int, tuple[StorageWeakRef, Any]] = {}
        self._sweep_at = 256

    def record(self, tensor: Any) -> Record:
        """The record of a tensor's storage, a new one if it has none."""
        if tensor.layout is not torch.strided:
            raise balls.Unknown(f"a tensor of the layout {tensor.layout}")
        storage = tensor.untyped_storage()
        found = self.records.get(storage._cdata)
        if found is None:
            if len(self.records) >= self._sweep_at:
                self._sweep()
            size = tensor.element_size()
            found = Record(StorageWeakRef(storage), size // 2 if tensor.dtype in COMPLEX else size)
            self.records[storage._cdata] = found
        return found

    def known(self, tensor: Any) -> bool:
        """Whether the evaluation has made, read or written the tensor's storage."""
        return tensor.untyped_storage()._cdata in self.records

    def truth(self, tensor: Any) -> Any:
        """What wide balls say of a tensor of booleans, as an array of `balls.Truth`; None if its booleans hold."""
        found = self.truths.get(tensor.untyped_storage()._cdata) if tensor.dtype == torch.bool else None
        return None if found is None else _window(found[1], tensor)

    def write_truth(self, tensor: Any, value: Any) -> None:
        """Let a tensor of booleans, which is all of its storage, say what wide balls do."""
        storage = tensor.untyped_storage()
        if not tensor.is_contiguous() or storage.nbytes() != tensor.nbytes:
            raise balls.Undecided("a comparison, for all inputs, in a part of a tensor")
        self.truths[storage._cdata] = StorageWeakRef(storage), value.reshape(-1)

    def _sweep(self) -> None:
        self.records = {key: record for key, record in self.records.items() if not record.alive.expired()}
        self._sweep_at = 2 * len(self.records) + 256

    def read(self, tensor: Any) -> Any:
        """The balls of a floating tensor, as a view of its storage's shadow where that is possible."""
        if tensor._is_zerotensor():
            return balls.full(tuple(tensor.shape), 0j if tensor.dtype in COMPLEX else 0)
        found = self._filled(tensor)
        if tensor.dtype in COMPLEX:
            parts = _window(found.shadow, tensor, pairs=True)
            value = balls.elementwise(acb, parts[..., 0], parts[..., 1])
            if tensor.is_conj():
                value = balls.elementwise(acb.conjugate, value)
        else:
            value = _window(found.shadow, tensor)
        return balls.whole(-value) if tensor.is_neg() else value

    def write(self, tensor: Any, value: Any, fresh: bool = False) -> None:
        """Give a floating tensor these balls; other views of its storage have them, too.

        Args:
            tensor: a tensor of the same shape as `value`.
            value: an object array.
            fresh: nobody else holds `value`, so that it may become the shadow itself.
        """
        found = self.record(tensor)
        flat = tensor.dtype in FLOATS
        whole = flat and tensor.is_contiguous() and tensor.untyped_storage().nbytes() == tensor.nbytes
        if whole and not tensor.is_neg():
            found.shadow = value.reshape(-1) if fresh else value.reshape(-1).copy()
            found.element, found.data = tensor.element_size(), None
            return
        found = self._filled(tensor, overwritten=True)
        if tensor.is_neg():
            value = balls.whole(-value)
        if flat:
            _window(found.shadow, tensor)[...] = value
        else:
            if tensor.is_conj():
                value = balls.elementwise(acb.conjugate, balls.as_complex(value))
            parts = _window(found.shadow, tensor, pairs=True)
            parts[..., 0] = balls.elementwise(_real, value)
            parts[..., 1] = balls.elementwise(_imaginary, value)
        if found.data is not None:
            found.data = bytes_of(tensor)

    def _filled(self, tensor: Any, overwritten: bool = False) -> Record:
        """The record, with a shadow that includes whatever was written without the dispatcher.

        Args:
            overwritten: the floats of the tensor are results, which the caller replaces by balls; they are no data.
        """
        found = self.record(tensor)
        element = tensor.element_size()
        if tensor.dtype in COMPLEX:
            element //= 2
        if found.shadow is None:
            found.element = element
            found.data = bytes_of(tensor)
            found.shadow = balls.exact(all_numbers(tensor, overwritten))
        elif found.element != element:
            raise balls.Unknown("aten.view.dtype: floats read as floats of another size")
        elif found.data is not None:
            now = bytes_of(tensor)
            if now != found.data:
                self._renew(found, found.data, all_numbers(tensor, overwritten), now)
        return found

    def _renew(self, found: Record, known: bytes, numbers: Any, now: bytes) -> None:
        """What foreign code wrote into the memory is data from now on; the rest keeps its balls."""
        if len(now) != len(known):
            raise balls.Unknown("a storage that was resized outside of PyTorch's dispatcher")
        before, after = (np.frombuffer(each, np.uint8).reshape(-1, found.element) for each in (known, now))
        changed = (before != after).any(axis=1)
        found.shadow = found.shadow.copy()
        found.shadow[changed] = balls.exact(numbers[changed])
        found.data = now

    def for_kernel(self, tensor: Any, undefined: Any) -> Record:
        """The record of an argument of a kernel, with a shadow; what nobody wrote is `undefined` in it."""
        found = self.record(tensor)
        if found.shadow is None and found.unwritten:
            size = tensor.element_size()
            found.shadow, found.element = balls.full((tensor.untyped_storage().nbytes() // size,), 0), size
            found.shadow[:] = undefined
        return self._filled(tensor)

    def guard(self, tensor: Any) -> None:
        """From now on, check at every read whether foreign code has written into this storage."""
        found = self._filled(tensor)
        found.data = bytes_of(tensor)

    def copy_storage(self, target: Any, source: Any) -> None:
        """Copy the shadow of a storage to another storage, which took all of its bytes."""
        found, other = self.records.get(source.untyped_storage()._cdata), self.record(target)
        if found is not None and found.shadow is not None:
            other.shadow, other.element, other.data = found.shadow.copy(), found.element, None


def _window(flat: Any, tensor: Any, pairs: bool = False) -> Any:
    """The elements of a flat shadow that a tensor shows; for complex ones with an axis of real and imaginary part."""
    shape, start = tuple(tensor.shape), tensor.storage_offset()
    if not pairs and tensor.is_contiguous():
        return flat[start : start + math.prod(shape)].reshape(shape)
    strides = tuple(tensor.stride())
    if 0 in shape:
        return np.empty((*shape, 2) if pairs else shape, object)
    if pairs:
        shape, strides, start = (*shape, 2), (*(2 * step for step in strides), 1), 2 * start
    return as_strided(flat[start:], shape, tuple(flat.itemsize * step for step in strides))


def bytes_of(tensor: Any) -> bytes:
    """A copy of all bytes of a tensor's storage; zeros for a meta tensor, which has none."""
    storage = tensor.untyped_storage()
    if storage.device.type == "meta":
        return bytes(storage.nbytes())
    if storage.device.type != "cpu":
        storage = storage.cpu()
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


def all_numbers(tensor: Any, without: bool = False) -> Any:
    """All numbers of a tensor's storage as float64, two for each complex one; zeros of a meta tensor, which has none.

    Args:
        without: zeros in place of the tensor's own.
    """
    storage = tensor.untyped_storage()
    dtype = tensor.dtype.to_real() if tensor.dtype in COMPLEX else tensor.dtype
    size = storage.nbytes() // dtype.itemsize
    if tensor.is_meta:
        return np.zeros(size)
    flat: Any = torch.empty(0, dtype=dtype, device=storage.device)
    flat.set_(storage, 0, (size,))
    numbers = as_numpy(flat.cpu().double())
    if without:
        numbers = numbers.copy()
        _window(numbers, tensor, pairs=tensor.dtype in COMPLEX)[...] = 0
    return numbers


def _real(ball: Any) -> Any:
    return ball.real if isinstance(ball, acb) else ball


def _imaginary(ball: Any) -> Any:
    return ball.imag if isinstance(ball, acb) else _ZERO


_ZERO = balls.exact(0.0)[()]
