"""Bytes of PyTorch programs without their memory: tensors have shapes and no numbers, and kernels do nothing.

A program is run on fake tensors if its arguments are large, or if it launches Triton kernels, because the tensors made
around kernels account for all bytes. A program that reads a number out of a tensor cannot be run on fake tensors. If it
has kernels, it is then run on real tensors with launches that do nothing, as long as it reads no number that a kernel
would have written.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from gradgate.hw_profiles.torch_memory import Refusal
from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Problem, Spec
from gradgate.references.draws import Integers
from gradgate.suites.measuring import launches

if TYPE_CHECKING:
    from gradgate.suites.measuring.written import Written

LARGE = 2**28
"""A program whose arguments take at least this many bytes is run on fake tensors."""


def wanted(function: Any, spec: Spec) -> bool:
    """Whether a method is run on fake tensors at a Spec: its kernels need a device, or its arguments are large."""
    return bool(getattr(function, "devices", ())) or argument_bytes(spec) >= LARGE


def argument_bytes(spec: Spec) -> int:
    """Bytes of a Problem's arrays in its dtype; 0 if the Spec has no shapes before numbers are drawn."""
    pair = getattr(spec, "pair", None)
    if pair is not None:
        return int(pair.numbers(spec.fields)) * _width(spec.dtype)  # type: ignore[attr-defined]
    laid_out = spec.layout()
    if laid_out is None:
        return 0
    return sum(math.prod(leaf.shape) * _width(getattr(leaf, "dtype", spec.dtype)) for leaf in leaves(laid_out[1:]))


def _width(dtype: str) -> int:
    return {"float64": 8, "int64": 8, "bfloat16": 2, "float16": 2, "bool": 1}.get(dtype, 4)


@contextlib.contextmanager
def scope(mode: Any = None) -> Iterator[None]:
    """A scope in which new tensors are fake and kernels are not launched.

    Args:
        mode: the FakeTensorMode of tensors that exist already; None makes a new one.

    Raises:
        Refusal: the program reads a number out of a tensor.
    """
    from torch._subclasses import fake_tensor

    try:
        with launches.skipping(), mode or fake_tensor.FakeTensorMode():
            yield
    except reads() as error:
        said = "it reads a number out of a tensor, and tensors hold no numbers while only bytes are counted"
        raise Refusal(f"{said}: {str(error).strip()[:300]}") from error


def reads() -> tuple[type[Exception], ...]:
    """The exceptions that PyTorch raises when a program reads a number out of a fake tensor."""
    from torch._subclasses import fake_tensor
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return (
        fake_tensor.DataDependentOutputException,
        fake_tensor.DynamicOutputShapeException,
        GuardOnDataDependentSymNode,
    )


def problem(spec: Spec) -> Problem:
    """The Problem of a Spec with fake tensors; called within `scope`.

    Raises:
        Refusal: the Spec has no shapes before numbers are drawn.
    """
    import torch

    def tensor(leaf: Any) -> Any:
        if isinstance(leaf, Integers):
            return torch.empty(leaf.shape, dtype=torch.int32)
        return torch.empty(leaf.shape, dtype=getattr(torch, getattr(leaf, "dtype", spec.dtype)))

    if getattr(spec, "pair", None) is not None:
        made: Problem = spec.of_shapes(lambda shape, dtype: torch.empty(shape, dtype=getattr(torch, dtype)))  # type: ignore[attr-defined]
        return made
    laid_out = spec.layout()
    if laid_out is None:
        raise Refusal("the shapes of its problem are known only once its numbers are drawn")
    cls, params, data = laid_out
    return cls(spec, "torch", tree_map(tensor, params), tree_map(tensor, data))


@contextlib.contextmanager
def launches_skipped(watch: Written | None = None) -> Iterator[None]:
    """A scope in which tensors are real and kernels are not launched. What a kernel was given must not be read after.

    Integers and masks that the program did not make are assumed to be only read by kernels, not written.

    Raises:
        Refusal: the program reads a number that a kernel may have written.
    """
    from gradgate.suites.measuring import written

    watch = watch or written.Written()
    with launches.skipping() as skipped, watch:
        skipped.listener = watch.launched
        try:
            yield
        finally:
            skipped.listener = None


def around(
    function: Any, run: Callable[..., Any], spec: Spec
) -> tuple[AbstractContextManager[None], Callable[..., Any], Problem]:
    """The scope in which a program is run for its bytes, any number of times; the program; and its Problem.

    Args:
        function: the method.
        run: the method with its options, a function of the Problem. It is run once here if it has kernels.

    Raises:
        Refusal: the Spec has no shapes before numbers are drawn, or the program reads numbers and is too large to have
            any.
    """
    if not wanted(function, spec):
        return contextlib.nullcontext(), run, spec.build("torch")
    try:
        with scope():
            made = problem(spec)
            if getattr(function, "devices", ()):
                run(made)
        return scope(leaves(made.params)[0].fake_mode), run, made
    except Refusal:
        if argument_bytes(spec) >= LARGE:
            raise
    from gradgate.suites.measuring import written

    watch = written.Written()

    def again(given: Problem) -> Any:
        watch.forget()
        return run(given)

    return launches_skipped(watch), again, spec.build("torch")
