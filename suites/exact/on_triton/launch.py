"""A launch in balls: Triton's interpreter with a builder of balls, on the shadows of the evaluation that is running."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch import exits
from gradgate.suites.exact.on_torch.mode import State
from gradgate.suites.exact.on_triton import reductions
from gradgate.suites.exact.on_triton.builder import BallBuilder, Handle, interpreter, language
from gradgate.suites.exact.on_triton.memory import Memory, Traces

_TRACES: list[Traces] = [Traces()]
"""The innermost scope of `traced` is the last."""


@contextlib.contextmanager
def traced(order: str = "forwards") -> Iterator[Traces]:
    """The scope in which what launches do is noted, and in which the programs of a grid have an order.

    Args:
        order: "forwards", "backwards" or "shuffled".
    """
    _TRACES.append(Traces(order))
    try:
        yield _TRACES[-1]
    finally:
        _TRACES.pop()


def run(state: State, launch: Callable[..., Any], kernel: str, args: tuple[Any, ...], how: Mapping[str, Any]) -> Any:
    """Launch a kernel on balls.

    Args:
        state: the evaluation.
        launch: the interpreter's own launch, of `args` and `how`.
        kernel: the kernel's name.

    Raises:
        Unknown: the kernel has an operation without a rule; says which. Undecided: a comparison is a tie.
    """
    tensors = [each for each in _tensors([*args, *how.values()]) if each.device.type == "cpu"]
    with torch.utils._python_dispatch._disable_current_modes(), exits.unwatched():
        memory = Memory(state.shadows, [each.detach() for each in tensors], kernel, _TRACES[-1])
        try:
            with _in_balls(BallBuilder(memory, state.narrowed)):
                result = launch(*args, **how)
        except Exception as error:
            known = _cause(error, (balls.Unknown, balls.Undecided))
            if known is not None:
                raise known from None
            if type(error).__name__ == "InterpreterError":
                raise balls.Unknown(f"the Triton kernel {kernel}: {' '.join(str(error).split())[:300]}") from error
            raise
        for region in memory.regions:
            region.put_back()
    return result


def _cause(error: BaseException | None, kinds: tuple[type[Exception], ...]) -> Exception | None:
    """The first error of these kinds among an error and its causes."""
    while error is not None:
        if isinstance(error, kinds):
            return error
        error = error.__cause__
    return None


def _tensors(values: Any) -> list[torch.Tensor]:
    """The tensors among the arguments of a launch, also those in tuples, descriptors and wrappers."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            found += _tensors(value)
        elif hasattr(value, "base"):
            found += _tensors([value.base])
    return found


@contextlib.contextmanager
def _in_balls(builder: BallBuilder) -> Iterator[None]:
    """The scope in which the interpreter works on balls."""
    convert, semantic = interpreter._implicit_cvt, interpreter.interpreter_semantic
    sized = interpreter._validate_np_data_size

    def converted(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        return language.tensor(Handle(balls.exact(np.array([argument])), language.float32), language.float32)

    changes = (
        (interpreter, "_validate_np_data_size", lambda data, kind: balls.is_balls(data) or sized(data, kind)),
        (interpreter, "_implicit_cvt", converted),
        (interpreter, "ReduceOps", reductions.Reductions),
        (interpreter, "ScanOps", reductions.Scans),
        (interpreter, "interpreter_builder", builder),
        (semantic, "builder", builder),
    )
    before = [getattr(owner, name) for owner, name, _ in changes]
    written = interpreter.InterpretedFunction.rewritten_fn
    functions = {getattr(reductions.standard, each.__name__): each for each in (reductions.flip,)}
    functions[reductions.standard.sort_impl] = reductions.sort
    own = {kernel.fn: written.get(kernel.fn) for kernel in functions}
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        written.update({kernel.fn: function for kernel, function in functions.items()})
        yield
    finally:
        for (owner, name, _), value in zip(changes, before, strict=True):
            setattr(owner, name, value)
        for function, value in own.items():
            if value is None:
                written.pop(function, None)
            else:
                written[function] = value
