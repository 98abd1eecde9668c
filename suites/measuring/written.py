"""Which tensors hold what a kernel would have written, and whether a program reads a number from one of them."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from gradgate.hw_profiles.torch_memory import Refusal

READING = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
"""Tags of operations that give numbers, or shapes that depend on numbers, to the program."""


class Written(TorchDispatchMode):
    """Follows, operation by operation, which storages depend on what skipped launches would have written."""

    def __init__(self) -> None:
        super().__init__()
        self._unknown: dict[int, StorageWeakRef] = {}
        self._made: dict[int, StorageWeakRef] = {}

    def forget(self) -> None:
        """Begin a run: what earlier runs made and wrote does not count."""
        self._unknown, self._made = {}, {}

    def launched(self, arguments: Any) -> None:
        """A kernel was given these arguments. It may write floating tensors, and any tensor that the program made."""
        for leaf in _tensors(arguments):
            if leaf.is_floating_point() or _key(leaf) in self._made:
                self._mark(leaf)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and remember whether its results depend on what a kernel would have written."""
        given = _tensors([args, kwargs or {}])
        unknown = any(_key(leaf) in self._unknown for leaf in given)
        if unknown and any(tag in function.tags for tag in READING):
            raise Refusal(
                f"it reads a number out of what a kernel has computed ({function}): kernels are not run while only "
                "bytes are counted, so what it does next is not known"
            )
        answer = function(*args, **(kwargs or {}))
        taken = {_key(leaf) for leaf in given}
        for leaf in _tensors(answer):
            if _key(leaf) not in taken:  # a view of a label is still the user's label
                self._made[_key(leaf)] = StorageWeakRef(leaf.untyped_storage())
            if unknown:
                self._mark(leaf)
        return answer

    def _mark(self, leaf: torch.Tensor) -> None:
        self._unknown[_key(leaf)] = StorageWeakRef(leaf.untyped_storage())


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _key(leaf: torch.Tensor) -> int:
    """A number that identifies a storage for as long as a StorageWeakRef of it is held."""
    return int(leaf.untyped_storage()._cdata)
