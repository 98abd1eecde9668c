"""Triton's interpreter on CPU tensors, and what it lacks: scalars, libdevice, and tuning without a device.

What is added to it is exact. A Python float becomes the float32 scalar that the compiler makes of it, and a loop
counter becomes the integer scalar that it is in a compiled kernel. A function of libdevice is computed in float64 and
rounded once; CUDA's own is within two units in the last place of that. Tuning takes the first legal configuration,
because every one of them must give the same gradient. The context of a device, which libraries enter around a launch,
does nothing on the CPU. A launch that the interpreter cannot run raises `Inapplicable` with the interpreter's message.
"""

from __future__ import annotations

import ast
import contextlib
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
from gradgate.suites.pairs.device_names import VARIABLE

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
    tuner.run = _tuned(tuner.run, tuner._bench)
    tuner._bench = lambda self, *args, **how: [1.0, 1.0, 1.0]  # all alike: the first legal configuration is taken
    jit.JITFunction.run = _launched(jit.JITFunction.run)
    driver: Any = importlib.import_module("triton.runtime.driver")
    driver._create_driver = _driver(driver._create_driver)
    cpu: Any = importlib.import_module("torch.cpu")
    if not hasattr(cpu, "device"):  # torch.cuda and torch.xpu have it, and libraries choose among the three
        cpu.device = contextlib.nullcontext
    if interpreting():
        interpreter: Any = importlib.import_module("triton.runtime.interpreter")
        interpreter.InterpretedFunction.run = _launched(interpreter.InterpretedFunction.run)
        interpreter._implicit_cvt = _with_floats(interpreter, jit, interpreter._implicit_cvt)
        interpreter._patch_lang = _once(interpreter, interpreter._patch_lang)
        _launch_in_place(interpreter.GridExecutor)
        setattr(interpreter, COUNTED, _counted(interpreter))
        interpreter.ASTTransformer.visit_Call = _renamed
        _compute_narrow(interpreter)
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
        state = _evaluation()
        if state is not None:
            return _in_balls(state, functools.partial(run, self), self, args, how)
        try:
            return run(self, *args, **how)
        except Inapplicable:
            raise
        except Exception as error:
            if type(error).__name__ != "InterpreterError":
                raise
            raise Inapplicable(
                f"the interpreter of Triton {version()} cannot run the kernel {self.__name__}: {first_line(error)}"
            ) from error

    return launch


def _tuned(run: Callable[..., Any], bench: Callable[..., Any]) -> Callable[..., Any]:
    """Tuning that needs no device if launches are skipped, or in sixty digits."""

    def tune(self: Any, *args: Any, **how: Any) -> Any:
        if STATE.skipped:
            return STATE.skip(args, how)
        if _evaluation() is None or not interpreting():
            return run(self, *args, **how)
        from gradgate.suites.exact.on_triton import launch

        return launch.tuned(run, bench, self, args, how)

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


def _in_balls(state: Any, run: Callable[..., Any], kernel: Any, args: tuple[Any, ...], how: Mapping[str, Any]) -> Any:
    """A launch in an evaluation in sixty digits; what ends it ends the evaluation, even if the program catches it."""
    try:
        if not interpreting():
            raise balls.Unknown(
                f"the Triton kernel {kernel.__name__}, which is compiled: the interpreter alone runs on balls"
            )
        from gradgate.suites.exact.on_triton import launch

        return launch.run(state, run, kernel, args, how)
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


def _launch_in_place(executor: Any) -> None:
    """Let kernels work on arguments in the memory of the CPU as they are.

    The interpreter copies arguments to the CPU and back. A tensor there is its own copy, so nothing is gained, and the
    two functions that copy refer to themselves and to every argument: a reference cycle, which would keep the graph
    of a right kernel alive until the garbage collector runs.
    """
    copied, restored = executor._init_args_hst, executor._restore_args_dev

    def arguments(self: Any, args: Any, options: Mapping[str, Any]) -> Any:
        return (list(args), dict(options)) if _on_cpu((*args, *options.values())) else copied(self, args, options)

    def back(self: Any, args: Any, host: Any, options: Mapping[str, Any], options_host: Any) -> None:
        if not _on_cpu((*args, *options.values())):
            restored(self, args, host, options, options_host)

    executor._init_args_hst, executor._restore_args_dev = arguments, back


def _on_cpu(argument: Any) -> bool:
    """Whether every tensor is in the memory of the CPU: of a tuple, a tensor descriptor or a single argument."""
    if isinstance(argument, tuple):
        return all(map(_on_cpu, argument))
    device = getattr(getattr(argument, "base", argument), "device", None)
    return device is None or str(device) == "cpu"


def _once(interpreter: Any, patch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The interpreter's change of the language, once in a launch: it does so at each call of a function by a kernel."""
    language: Any = importlib.import_module("triton.language")

    def changed(function: Any) -> Any:
        used = [value for value in function.__globals__.values() if value is language or value is language.core]
        if not used or any(language.core.is_builtin(module.load) for module in used):
            scope = patch(function)
            _watch_kernels(interpreter, language, scope)
            return scope
        return interpreter._LangPatchScope()

    return changed


def _watch_kernels(interpreter: Any, language: Any, scope: Any) -> None:
    """Let the builder of an evaluation in sixty digits see the conditions and the loops of the language's own range."""
    builder = interpreter.interpreter_builder
    if not hasattr(builder, "looped") or language.core.is_builtin(language.load):
        return
    ranges, truth = language.range, language.tensor.__bool__

    def counted(*bounds: Any, **how: Any) -> Any:
        found = ranges(*bounds, **how)
        builder.looped(len(found))
        return found

    def branched(tensor: Any) -> bool:
        taken = bool(truth(tensor))
        builder.branched(taken)
        return taken

    scope.set_attr(language, "range", counted)
    scope.set_attr(language.tensor, "__bool__", branched)


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
        numbers = range(*(int(bound) for bound in bounds))
        if hasattr(interpreter.interpreter_builder, "looped"):
            interpreter.interpreter_builder.looped(len(numbers))
        for number in numbers:
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


def _compute_narrow(interpreter: Any) -> None:
    """Compute in bfloat16 and float8: the interpreter keeps these numbers as bits, and would compute with the bits.

    Every operation is computed in float32 and rounded once, to nearest even; sums and scans are rounded at their end.
    So is every conversion, which the interpreter cuts off; float8 takes its largest number for all that is beyond.
    """
    language: Any = importlib.import_module("triton.language")
    kinds = {getattr(language, name): dtype for name, dtype in NARROW.items()}

    def narrow(value: Any) -> bool:
        """Whether a handle holds the bits of such numbers, and neither balls nor the result of a comparison."""
        data = getattr(value, "data", None)
        if not isinstance(data, np.ndarray) or data.dtype.kind != "u":
            return False
        if value.dtype.scalar == language.float8e4b15:
            raise NotImplementedError("arithmetic in float8e4b15, whose bits it would compute with")
        return value.dtype.scalar in kinds

    def widened(value: Any) -> Any:
        if not narrow(value):
            return value
        return interpreter.TensorHandle(_decoded(value.data, kinds[value.dtype.scalar]), language.float32)

    def rounded(value: Any, kind: Any) -> Any:
        if value.data.dtype.kind != "f":
            return interpreter.TensorHandle(value.data, language.int1)
        return interpreter.TensorHandle(_encoded(value.data, kinds[kind]), kind)

    def computing(run: Callable[..., Any]) -> Callable[..., Any]:
        def computed(self: Any, *given: Any, **how: Any) -> Any:
            if not any(map(narrow, given)) or np.where in given:
                return run(self, *given, **how)
            found = run(self, *map(widened, given), **how)
            last = [each for each in given if isinstance(each, interpreter.TensorHandle)][-1]  # has the result's dtype
            return rounded(found, last.dtype.scalar) if narrow(last) else found

        return computed

    builder = interpreter.InterpreterBuilder
    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot", "create_erf", "create_rsqrt"):
        if hasattr(builder, name):
            setattr(builder, name, computing(getattr(builder, name)))

    def converting(run: Callable[..., Any]) -> Callable[..., Any]:
        def converted(self: Any, source: Any, target: Any, *rounding: Any) -> Any:
            nearest = rounding in ((), (None,)) or "RTNE" in str(rounding[0])
            kind = target.scalar
            if balls.is_balls(source.data) or not nearest or not (narrow(source) or kind in kinds):
                return run(self, source, target, *rounding)
            wide = widened(source)
            if kind in kinds:
                return interpreter.TensorHandle(_encoded(wide.data.astype(np.float32), kinds[kind]), kind)
            return cast(self, wide, target)

        return converted

    cast = builder.cast_impl
    builder.cast_impl = converting(cast)
    builder.create_fp_to_fp = converting(builder.create_fp_to_fp)

    def of_tensors(run: Callable[..., Any]) -> Callable[..., Any]:
        def computed(self: Any, given: Any, *more: Any, **how: Any) -> Any:
            tensor = given[0] if isinstance(given, tuple) else given
            if not narrow(tensor.handle):
                return run(self, given, *more, **how)
            found = run(self, of(tensor, widened(tensor.handle), language.float32), *more, **how)
            kind = tensor.handle.dtype.scalar
            many = found if isinstance(found, (list, tuple)) else [found]
            floats = [each.handle.data.dtype.kind == "f" for each in many]
            back = [
                of(each, rounded(each.handle, kind), kind) if floating else each
                for each, floating in zip(many, floats, strict=True)
            ]
            return type(found)(back) if isinstance(found, (list, tuple)) else back[0]

        return computed

    def of(tensor: Any, handle: Any, kind: Any) -> Any:
        """The tensor with other numbers, of the same shape."""
        block = isinstance(tensor.type, language.block_type)
        return language.tensor(handle, language.block_type(kind, list(tensor.shape)) if block else kind)

    for owner, names in ((interpreter.ReduceOps, ("sum", "min_max")), (interpreter.ScanOps, ("cumsum", "cumprod"))):
        for name in names:
            setattr(owner, name, of_tensors(getattr(owner, name)))


NARROW = {
    "bfloat16": "bfloat16",
    "float8e4nv": "float8_e4m3fn",
    "float8e5": "float8_e5m2",
    "float8e4b8": "float8_e4m3fnuz",
    "float8e5b16": "float8_e5m2fnuz",
}
"""Triton's name -> PyTorch's, of the dtypes that the interpreter keeps as bits."""


def _decoded(bits: Any, dtype: str) -> Any:
    """The float32 numbers with these bits, uint16 or uint8, of a dtype of PyTorch."""
    import torch

    signed = np.ascontiguousarray(bits).view(f"i{bits.itemsize}")
    return torch.from_numpy(signed.copy()).view(getattr(torch, dtype)).float().numpy().reshape(bits.shape)


def _encoded(numbers: Any, dtype: str) -> Any:
    """The bits of float32 numbers rounded to a dtype of PyTorch, to nearest even."""
    import torch

    kind = getattr(torch, dtype)
    wide = torch.from_numpy(np.array(numbers, np.float32))
    if kind.itemsize == 1:
        most = torch.finfo(kind).max
        wide = wide.clamp(-most, most)
    signed = torch.int16 if kind.itemsize == 2 else torch.int8
    return wide.to(kind).view(signed).numpy().view(f"u{kind.itemsize}").reshape(np.shape(numbers))


def _elementwise(name: str, function: Callable[..., Any] | None, interpreter: Any) -> Callable[..., Any]:
    """A function of arrays as one of interpreted tensors, rounded to the dtype of the first."""
    language: Any = importlib.import_module("triton.language")

    def computed(*arguments: Any, **_: Any) -> Any:
        given = [interpreter.interpreter_semantic.to_tensor(argument, False) for argument in arguments]
        if given and balls.is_balls(given[0].handle.data):
            from gradgate.suites.exact.on_triton.reductions import library

            found = library(name, [tensor.handle.data for tensor in given])
            kind = given[0].handle.dtype if balls.is_balls(found) else language.int32
            shaped = language.block_type(kind, given[0].shape) if given[0].shape else kind
            return language.tensor(interpreter.TensorHandle(found, kind), shaped)
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
    **{
        name: getattr(np, name)
        for name in (
            "tanh",
            "sqrt",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "floor",
            "ceil",
            "trunc",
            "rint",
            "cbrt",
            "hypot",
            "copysign",
        )
    },
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "abs": np.abs,
    "fabs": np.abs,
    "fmod": np.fmod,
    "atan": np.arctan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "fma": lambda x, y, z: x * y + z,
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "lgamma": _each(_gamma),
}
"""Name in libdevice -> the function of float64 arrays. Those called ``fast_…`` are left out: they are inexact on
purpose, and only the device shows how inexact."""
