"""Triton's interpreter on CPU tensors, and what it lacks: scalars, libdevice, and tuning without a device.

What is added to it is exact. A Python float becomes the float32 scalar that the compiler makes of it, and a loop
counter becomes the integer scalar that it is in a compiled kernel. A function of libdevice is computed in float64 and
rounded once; CUDA's own is within two units in the last place of that. Tuning takes the first legal configuration,
because every one of them must give the same gradient. A launch that the interpreter cannot run raises `Inapplicable`
with the interpreter's own words.
"""

from __future__ import annotations

import ast
import functools
import importlib
import math
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata
from typing import Any

import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.judging.subject import Inapplicable, first_line
from gradgate.suites.measuring.launches import STATE

VARIABLE = "TRITON_INTERPRET"
"""The environment variable that Triton reads when a kernel is declared."""
LIBRARIES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice")
"""Modules of functions without a body, which the interpreter would call as they are."""
COUNTED = "_gradgate_range"
"""What ``range`` is called in a kernel that is interpreted."""


class NoDriver(Inapplicable, RuntimeError):
    """A program needs a device that this machine lacks. A RuntimeError, as Triton's own, because libraries catch it."""


_PREPARED: list[bool] = []
"""Holds True once Triton has been given what it lacks."""


def interpreting() -> bool:
    """Whether kernels that are declared in this process are interpreted."""
    return os.environ.get(VARIABLE, "").lower() in ("1", "true", "on", "y", "yes")


def version() -> str:
    """The installed version of Triton.

    Raises:
        PackageNotFoundError: there is none.
    """
    return metadata.version("triton")


def prepare() -> None:
    """Give Triton what it lacks, before a module that declares kernels is imported. A second call changes nothing.

    Raises:
        ImportError: Triton is not installed.
    """
    if _PREPARED:
        return
    jit: Any = importlib.import_module("triton.runtime.jit")
    tuner: Any = importlib.import_module("triton.runtime.autotuner").Autotuner
    tuner.run = _tuned(tuner.run)
    tuner._bench = lambda self, *args, **how: [1.0, 1.0, 1.0]  # all alike: the first legal configuration is taken
    jit.JITFunction.run = _launched(jit.JITFunction.run)
    driver: Any = importlib.import_module("triton.runtime.driver")
    driver._create_driver = _driver(driver._create_driver)
    if interpreting():
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        interpreter.InterpretedFunction.run = _launched(interpreter.InterpretedFunction.run)
        interpreter._implicit_cvt = _with_floats(interpreter, jit, interpreter._implicit_cvt)
        setattr(interpreter, COUNTED, _counted(interpreter))
        interpreter.ASTTransformer.visit_Call = _renamed
        _refuse_bfloat16(interpreter)
        filled: dict[int, tuple[Any, Any]] = {}
        for name in LIBRARIES:
            filled |= _fill(importlib.import_module(name), interpreter)
        _rebind(filled)
    _PREPARED.append(True)


def _launched(run: Callable[..., Any]) -> Callable[..., Any]:
    """A launch that is run, refused, or skipped."""

    def launch(self: Any, *args: Any, **how: Any) -> Any:
        if STATE.skipped:
            return STATE.skip(args, how)
        name = getattr(self, "__name__", "a kernel")
        state = _evaluation()
        if state is not None:
            return _in_balls(state, functools.partial(run, self), name, args, how)
        try:
            return run(self, *args, **how)
        except Inapplicable:
            raise
        except Exception as error:
            if type(error).__name__ != "InterpreterError":
                raise
            raise Inapplicable(
                f"the interpreter of Triton {version()} cannot run the kernel {name}: {first_line(error)}"
            ) from error

    return launch


def _tuned(run: Callable[..., Any]) -> Callable[..., Any]:
    """Tuning that needs no device if launches are skipped."""

    def tune(self: Any, *args: Any, **how: Any) -> Any:
        if STATE.skipped:
            return STATE.skip(args, how)
        return run(self, *args, **how)

    return tune


def _driver(create: Callable[[], Any]) -> Callable[[], Any]:
    def created() -> Any:
        try:
            return create()
        except RuntimeError as error:
            raise NoDriver(f"the program asks Triton for a device, and there is none: {first_line(error)}") from error

    return created


def _evaluation() -> Any:
    """The state of the evaluation in sixty digits that this thread is in, operation by operation; or None."""
    found = sys.modules.get("gradgate.suites.exact.on_torch.mode")
    if found is None:
        return None
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    modes = (mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, found.BallMode))
    return next((mode.state for mode in modes), None)


def _in_balls(state: Any, run: Callable[..., Any], name: str, args: tuple[Any, ...], how: Mapping[str, Any]) -> Any:
    """A launch in an evaluation in sixty digits; what ends it ends the evaluation, even if the program catches it."""
    try:
        if not interpreting():
            raise balls.Unknown(f"the Triton kernel {name}, which is compiled: the interpreter alone runs on balls")
        from gradgate.suites.exact.on_triton import launch

        return launch.run(state, run, name, args, how)
    except (balls.Unknown, balls.Undecided) as error:
        state.failure = state.failure or error
        raise


def _with_floats(interpreter: Any, jit: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The value that a kernel gets for an argument; for a float, the scalar that a compiled kernel gets."""
    language: Any = importlib.import_module("triton.language")

    def converted(argument: Any) -> Any:
        if not isinstance(argument, float):
            return convert(argument)
        kind = language.str_to_ty(jit.mangle_type(argument), None)
        return language.tensor(interpreter.TensorHandle(np.array([argument], np.float32), kind), kind)

    return converted


def _renamed(self: ast.NodeTransformer, node: ast.Call) -> ast.AST:
    """A call in a kernel's source, of `COUNTED` in place of ``range``."""
    found = self.generic_visit(node)
    if isinstance(node.func, ast.Name) and node.func.id == "range":
        node.func = ast.copy_location(ast.Name(COUNTED, ast.Load()), node.func)
    return found


def _counted(interpreter: Any) -> Callable[..., Iterator[Any]]:
    """``range`` of a kernel: its counter is a scalar of Triton, as wide as the widest bound."""
    language: Any = importlib.import_module("triton.language")

    def counted(*bounds: Any, **_: Any) -> Iterator[Any]:
        wide = any(str(getattr(bound, "dtype", "")) in ("int64", "uint64") for bound in bounds)
        kind, dtype = (language.int64, np.int64) if wide else (language.int32, np.int32)
        for number in range(*(int(bound) for bound in bounds)):
            yield language.tensor(interpreter.TensorHandle(np.array([number], dtype), kind), kind)

    return counted


def _fill(library: types.ModuleType, interpreter: Any) -> dict[int, tuple[Any, Any]]:
    """Give the functions of libdevice bodies; those without one here say so when they are called.

    Returns:
        The id of a function without a body -> that function, and the one that takes its place.
    """
    found = {}
    for name, value in list(vars(library).items()):
        if name.startswith("_") or not callable(value) or isinstance(value, type):
            continue
        if getattr(value, "__module__", "").startswith("triton.language.extra") or name in FUNCTIONS:
            made = _elementwise(name, FUNCTIONS.get(name), interpreter)
            setattr(library, name, made)
            found[id(value)] = value, made
    return found


def _rebind(filled: Mapping[int, tuple[Any, Any]]) -> None:
    """Put functions with bodies into every module that was imported before and has the old ones under its own names.

    So it does not matter whether a file imports its kernels before or after gradgate.
    """
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if filled.get(id(value), (None, None))[0] is value and value is not None:
                setattr(module, name, filled[id(value)][1])


def _refuse_bfloat16(interpreter: Any) -> None:
    """Refuse arithmetic in bfloat16: the interpreter keeps such numbers as their bits, and computes with the bits.

    Loads, stores, selections, and conversions from and to float32 and float16 are right.
    """
    builder = interpreter.InterpreterBuilder
    language: Any = importlib.import_module("triton.language")

    def narrow(value: Any) -> bool:
        dtype = getattr(value, "dtype", None)
        return getattr(dtype, "scalar", dtype) == language.bfloat16

    def refusing(run: Callable[..., Any]) -> Callable[..., Any]:
        def refused(self: Any, *given: Any, **how: Any) -> Any:
            if any(map(narrow, given)):
                raise NotImplementedError("arithmetic in bfloat16, whose bits it would compute with")
            return run(self, *given, **how)

        return refused

    for name in ("binary_op", "unary_op", "create_fma", "create_dot", "create_erf", "create_rsqrt"):
        if hasattr(builder, name):
            setattr(builder, name, refusing(getattr(builder, name)))
    cast = builder.cast_impl

    def converted(self: Any, source: Any, target: Any) -> Any:
        ends = {source.dtype.scalar, target.scalar}
        if language.bfloat16 in ends and not ends <= {language.bfloat16, language.float32}:
            raise NotImplementedError(f"a conversion of {source.dtype.scalar} to {target.scalar}")
        return cast(self, source, target)

    builder.cast_impl = converted
    reduce: Any = interpreter.ReduceOps
    for name in ("sum", "min_max"):
        setattr(reduce, name, refusing(getattr(reduce, name)))


def _elementwise(name: str, function: Callable[..., Any] | None, interpreter: Any) -> Callable[..., Any]:
    """A function of arrays as one of interpreted tensors, rounded to the dtype of the first."""
    language: Any = importlib.import_module("triton.language")

    def computed(*arguments: Any, **_: Any) -> Any:
        given = [interpreter.interpreter_semantic.to_tensor(argument, False) for argument in arguments]
        if given and balls.is_balls(given[0].handle.data):
            from gradgate.suites.exact.on_triton.reductions import library

            found = library(name, [tensor.handle.data for tensor in given])
            return language.tensor(interpreter.TensorHandle(found, given[0].handle.dtype), given[0].type)
        if function is None:
            raise NotImplementedError(f"libdevice.{name} has no counterpart on a CPU")
        kind = given[0].handle.data.dtype
        if kind.kind != "f":
            raise NotImplementedError(f"libdevice.{name} of {given[0].dtype}, where float32 or float64 is legal")
        with np.errstate(all="ignore"):
            found = function(*(tensor.handle.data.astype(np.float64) for tensor in given))
        handle = interpreter.TensorHandle(np.asarray(found).astype(kind), given[0].handle.dtype)
        return language.tensor(handle, given[0].type)

    computed.__name__ = name
    return computed


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return np.vectorize(function, otypes=[np.float64])


def _gamma(x: float) -> float:
    return math.lgamma(x) if math.isfinite(x) and not (x <= 0 and x == int(x)) else math.inf


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "tanh", "sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh",
        "floor", "ceil", "trunc", "rint", "cbrt", "hypot", "copysign",
    )},
    "rsqrt": lambda x: 1 / np.sqrt(x), "pow": np.power, "abs": np.abs, "fabs": np.abs, "fmod": np.fmod,
    "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "fma": lambda x, y, z: x * y + z, "erf": _each(math.erf), "erfc": _each(math.erfc), "lgamma": _each(_gamma),
}  # fmt: skip
"""Name in libdevice -> the function of float64 arrays. Those called ``fast_…`` are left out: they are inexact on
purpose, and only the device shows how inexact."""
