"""A launch in balls: Triton's interpreter with a builder of balls, on the shadows of the evaluation that is running."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch import exits
from gradgate.suites.exact.on_torch.mode import State
from gradgate.suites.exact.on_triton import reductions
from gradgate.suites.exact.on_triton.builder import BallBuilder, Handle, interpreter, language
from gradgate.suites.exact.on_triton.memory import Memory, Traces
from gradgate.suites.exact.parting import KERNEL

_TRACES: list[Traces] = []
"""The innermost scope of `traced` is the last."""


@contextlib.contextmanager
def traced(order: str = "forwards", choice: int = 0, tried: bool = False) -> Iterator[Traces]:
    """The scope in which what launches do is noted, and in which the programs of a grid have an order.

    Args:
        order: "forwards", "backwards" or "shuffled".
        choice: the number of the configuration that tuners choose, counted again from 0 where they have fewer.
        tried: whether tuners launch every configuration before, as they do on a device.
    """
    _TRACES.append(Traces(order, choice, tried))
    try:
        yield _TRACES[-1]
    finally:
        _TRACES.pop()


def run(state: State, launch: Callable[..., Any], function: Any, args: tuple[Any, ...], how: Mapping[str, Any]) -> Any:
    """Launch a kernel on balls.

    Args:
        state: the evaluation.
        launch: the interpreter's own launch, of `args` and `how`.
        function: the kernel, as the interpreter has it.

    Raises:
        Unknown: the kernel has an operation without a rule; says which. Undecided: a comparison is a tie.
    """
    kernel = function.__name__
    state.recording = None
    tensors = [each for each in _tensors([*args, *how.values()]) if each.device.type == "cpu"]
    with torch.utils._python_dispatch._disable_current_modes(), exits.unwatched():
        traces = _TRACES[-1] if _TRACES else Traces()
        memory = Memory(state.shadows, [each.detach() for each in tensors], kernel, traces)
        memory.declared = declared(function.fn)
        try:
            with _in_balls(BallBuilder(memory, state)):
                result = launch(*args, **how)
        except Exception as error:
            known = _cause(error, (balls.Unknown, balls.Undecided))
            if known is not None:
                raise known from None
            if type(error).__name__ == "InterpreterError":
                raise balls.Unknown(f"the Triton kernel {kernel}: {' '.join(str(error).split())[:300]}") from error
            raise
        state.notes += memory.close()
        if state.watch is not None:
            for tensor in tensors:
                region = memory.of(tensor)
                if region is not None and region.changed.any():
                    instead = state.watch(KERNEL + kernel, region.line, state.shadows.read(tensor.detach()))
                    if instead is not None:
                        state.shadows.write(tensor.detach(), instead)
    return result


def tuned(run: Callable[..., Any], bench: Callable[..., Any], tuner: Any, args: Any, how: Mapping[str, Any]) -> Any:
    """A tuner's launch, with the configuration that the scope of `traced` chooses.

    Args:
        run, bench: the tuner's own launch, and its own trial of one configuration.
    """
    traces = _TRACES[-1] if _TRACES else Traces()
    prune = tuner.prune_configs

    def pruned(given: Any) -> list[Any]:
        found = list(prune(given))
        traces.trials = max(traces.trials, len(found))
        found = found if traces.tried else unlike(tuner, found)
        traces.choices = max(traces.choices, len(found))
        first = traces.choice % len(found)
        return found[first:] + found[:first]  # the first of those that are equally fast is chosen

    def tried(*given: Any, **meta: Any) -> list[float]:
        bench(tuner, *given, **meta)
        return [1.0, 1.0, 1.0]

    changes: dict[str, Any] = {"cache": {}, "prune_configs": pruned}
    if traces.tried:
        changes |= {"_bench": tried, "do_bench": lambda call, quantiles: call()}
    before = {name: vars(tuner)[name] for name in changes if name in vars(tuner)}
    try:
        vars(tuner).update(changes)
        result = run(tuner, *args, **how)
    finally:
        for name in changes:
            del vars(tuner)[name]
        vars(tuner).update(before)
    place = f"{tuner.base_fn.__name__}, {declared(tuner.base_fn)}"
    traces.tuned[f"{place} with {tuner.best_config}"] = None
    return result


def unlike(tuner: Any, configurations: Sequence[Any]) -> list[Any]:
    """The configurations of a tuner that differ in the interpreter, the first of each kind.

    It knows neither warps nor stages. They make a difference only if the kernel has arguments of these names, or if a
    heuristic between the tuner and the kernel may read them.
    """
    if tuner.fn.fn is not tuner.base_fn:
        return list(configurations)
    found: dict[Any, Any] = {}
    for one in configurations:
        seen = {name: value for name, value in one.all_kwargs().items() if name in tuner.arg_names}
        found.setdefault((repr(sorted(seen.items())), one.pre_hook), one)
    return list(found.values())


def declared(function: Any) -> str:
    """``file.py:123`` of a function's first line."""
    return f"{Path(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"


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
    sized, signs = interpreter._validate_np_data_size, semantic._signbit

    def converted(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        return language.tensor(Handle(balls.exact(np.array([argument])), language.float32), language.float32)

    def negative(tensor: Any) -> Any:
        """The sign, of which the language makes the maximum of floats: it would read their bits."""
        if not balls.is_balls(tensor.handle.data):
            return signs(tensor)
        truths = balls.compare("lt", tensor.handle.data, balls.exact(0))
        builder.decided("lt")
        kind = language.block_type(language.int1, tensor.shape) if tensor.shape else language.int1
        return language.tensor(Handle(truths, language.int1), kind)

    changes = (
        (interpreter, "_validate_np_data_size", lambda data, kind: balls.is_balls(data) or sized(data, kind)),
        (interpreter, "_implicit_cvt", converted),
        (interpreter, "ReduceOps", reductions.Reductions),
        (interpreter, "ScanOps", reductions.Scans),
        (interpreter, "interpreter_builder", builder),
        (semantic, "builder", builder),
        (semantic, "_signbit", negative),
    )
    before = [getattr(owner, name) for owner, name, _ in changes]
    written = interpreter.InterpretedFunction.rewritten_fn
    functions: dict[Any, Any] = {getattr(reductions.standard, each.__name__): each for each in (reductions.flip,)}
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
