"""The entry points of handwritten derivatives in PyTorch: `torch.autograd.Function` and ``register_autograd``.

Every subclass of Function is applied through `_SingleLevelFunction`, even where a program kept ``Rule.apply`` before
the recording began. Within torch.func it is called through ``custom_function_call``. An operator of `torch.library`
with ``register_autograd`` is such a subclass, which PyTorch generates.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from gradgate.suites.pairs.device_names import INTERPRETER
from gradgate.suites.watching.portable import PARAMETERS, Checkpointed, Hook, ModuleHook, Operator, importable
from gradgate.suites.watching.recorder import MOST_NUMBERS as MOST
from gradgate.suites.watching.recorder import Array, Call, Recorder, Rule, location, of_framework, option, shown

GENERATED = "torch._library.autograd"
"""The module in which PyTorch generates a Function for an operator with ``register_autograd``."""


def wrap(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record what is applied from now on; returns what undoes this."""
    single: Any = module._SingleLevelFunction
    plain: Any = single.__mro__[1].__dict__["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.look(_look, cls, args, kwargs)
        return plain.__get__(None, cls)(*args, **kwargs)

    single.apply = classmethod(apply)
    return lambda: delattr(single, "apply")


def wrap_transforms(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record what is applied within torch.func from now on; returns what undoes this."""
    operator = module.CustomFunctionHigherOrderOperator
    plain = operator.__call__

    def call(self: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.look(_look, cls, args, kwargs)
        return plain(self, cls, *args, **kwargs)

    operator.__call__ = call

    def undo() -> None:
        operator.__call__ = plain

    return undo


def wrap_checkpoints(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record the functions that are checkpointed from now on; returns what undoes this."""
    place: Any = module
    generator = place._checkpoint_without_reentrant_generator
    older = place.CheckpointFunction
    applied = older.apply

    def generated(function: Any, preserve: bool, contexts: Any, *given: Any, **kwargs: Any) -> Any:
        usual = contexts is place.noop_context_fn
        recorder.look(_look_checkpoint, Checkpointed(function, False, None if usual else contexts), given[3:], kwargs)
        return generator(function, preserve, contexts, *given, **kwargs)

    def apply(cls: Any, function: Any, preserve: bool, *args: Any) -> Any:
        recorder.look(_look_checkpoint, Checkpointed(function, True), args, {})
        return applied(function, preserve, *args)

    place._checkpoint_without_reentrant_generator = generated
    older.apply = classmethod(apply)

    def undo() -> None:
        place._checkpoint_without_reentrant_generator = generator
        del older.apply

    return undo


def wrap_hooks(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record the hooks of tensors that change gradients from now on; returns what undoes this."""
    tensor: Any = module.Tensor
    plain = tensor.register_hook

    @functools.wraps(plain)
    def register_hook(self: Any, hook: Any) -> Any:
        file, _ = location(hook)
        return plain(self, hook if not file or of_framework(file) else _watched(hook, recorder))

    tensor.register_hook = register_hook

    def undo() -> None:
        tensor.register_hook = plain

    return undo


MODULE_HOOKS = ("register_full_backward_hook", "register_full_backward_pre_hook")


def wrap_module_hooks(module: types.ModuleType, recorder: Recorder) -> Callable[[], None]:
    """Record the hooks of modules that change gradients from now on; returns what undoes this."""
    kind: Any = module.Module
    plain = {name: getattr(kind, name) for name in MODULE_HOOKS}

    def wrapped(name: str) -> Callable[..., Any]:
        registered = plain[name]

        @functools.wraps(registered)
        def register(self: Any, hook: Any, *args: Any, **kwargs: Any) -> Any:
            file, _ = location(hook)
            watched = hook if not file or of_framework(file) else _watched_of_module(hook, recorder)
            return registered(self, watched, *args, **kwargs)

        return register

    for name in MODULE_HOOKS:
        setattr(kind, name, wrapped(name))

    def undo() -> None:
        for name, registered in plain.items():
            setattr(kind, name, registered)

    return undo


def _watched_of_module(hook: Any, recorder: Recorder) -> Any:
    """A hook of a module whose changes are recorded."""

    @functools.wraps(hook)
    def watched(module: Any, gradients: Any, *others: Any) -> Any:
        found = hook(module, gradients, *others)
        if found is not None and any(a is not b for a, b in zip(found, gradients, strict=False)):
            recorder.look(_look_module_hook, hook, module, (gradients, *others))
        return found

    return watched


def _look_module_hook(recorder: Recorder, hook: Any, module: Any, given: tuple[Any, ...]) -> None:
    """Record a hook of a module at the gradients that it changes, and at what it gets besides."""

    def call() -> Call:
        made = _call(ModuleHook(hook, module), given, {})
        first, *others = made.arguments or ((),)
        first = tuple(one and dataclasses.replace(one, differentiated=True) for one in first)
        held = sum(one.numel() for one in module.parameters())
        why = f"its module has {held:,} parameters" if held > MOST else made.unreachable
        return dataclasses.replace(made, arguments=(first, *others), unreachable=why)

    recorder.saw(_named(hook, "hook of a module", *location(hook)), tuple(map(_mark, given)), call)


def _watched(hook: Any, recorder: Recorder) -> Any:
    """A hook whose changes are recorded."""

    @functools.wraps(hook)
    def watched(gradient: Any) -> Any:
        found = hook(gradient)
        if found is not None and found is not gradient:
            recorder.look(_look_hook, hook, gradient)
        return found

    return watched


def _look_hook(recorder: Recorder, hook: Any, gradient: Any) -> None:
    """Record a hook at the gradient that it changes, of which it is a function."""
    rule = _named(hook, "hook", *location(hook))
    copy = dataclasses.replace(_copied(gradient), differentiated=True)
    why = f"its gradient has {gradient.numel():,} numbers" if gradient.numel() > MOST else ""
    call = Call(Hook(hook), (copy,), {}, [shown(copy)], copy.values is None, why)
    recorder.saw(rule, _mark(gradient), lambda: call)


def _look_checkpoint(recorder: Recorder, made: Checkpointed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record a function that is checkpointed, with the parameters of the module to which it belongs."""
    import torch

    function = made.fun
    owner = function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
    parameters = dict(owner.named_parameters()) if isinstance(owner, torch.nn.Module) else {}
    asked = [*args, *([] if made.reentrant else parameters.values())]
    if not torch.is_grad_enabled() or not any(isinstance(a, torch.Tensor) and _is_differentiated(a) for a in asked):
        return
    file, line = location(type(owner).forward if function is owner else function)
    if not file or of_framework(file):  # such as a Sequential: where it is checkpointed
        file, line = _caller()
    rule = _named(type(owner) if function is owner else function, "checkpoint", file, line)
    key = made.reentrant, tuple(map(_mark, args)), tuple((name, _mark(value)) for name, value in kwargs.items())
    recorder.saw(rule, key, lambda: _call(made, args, {**kwargs, **({PARAMETERS: parameters} if parameters else {})}))


def _named(function: Any, kind: str, file: str, line: int) -> Rule:
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    return Rule("torch", kind, f"{module or 'unknown'}:{name or kind}", file, line)


def _caller() -> tuple[str, int]:
    """File and line of the innermost call that is neither of PyTorch nor of this package."""
    frame = sys._getframe()
    here = os.path.dirname(__file__)
    while frame.f_back is not None and (
        of_framework(frame.f_code.co_filename) or frame.f_code.co_filename.startswith(here)
    ):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_RULES: weakref.WeakKeyDictionary[Any, tuple[Rule, Any] | None] = weakref.WeakKeyDictionary()


def _look(recorder: Recorder, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Record a call, if somebody outside of PyTorch wrote its rule and a gradient may be asked for."""
    import torch

    if not torch.is_grad_enabled():
        return
    marks = tuple([_mark(a) for a in args])
    if not any(mark[-1] is True for mark in marks):
        return
    if cls not in _RULES:
        _RULES[cls] = _rule(cls)
    known = _RULES[cls]
    if known is None:
        return
    rule, reached = known
    if rule.kind == "torch.library":
        *given, metadata = args
        args, kwargs = tuple(given), metadata.keyword_only_args
        marks = tuple(map(_mark, args))
    key = (marks, tuple((name, _mark(value)) for name, value in kwargs.items())) if kwargs else marks
    recorder.saw(rule, key, lambda: _call(reached, args, kwargs))


def _mark(value: Any) -> Any:
    """What distinguishes an argument, hashable. Of a tensor, the last part says whether it is differentiated."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype, _is_differentiated(value)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(map(_mark, value)), ""
    return *option(value), ""


def _rule(cls: Any) -> tuple[Rule, Any] | None:
    """A Function as a rule, and what reaches it; None for PyTorch's own."""
    import torch

    if not issubclass(cls, torch.autograd.Function):  # generated by torch.func for a single level
        return None
    if cls.__module__ == GENERATED:
        parts = _captured(cls.forward)
        op: Any = next((part for part in parts if isinstance(part, torch._ops.OpOverload)), None)
        backward: Any = next((b for part in parts if (b := getattr(part, "_backward_fn", None))), None)
        if op is None or backward is None:
            return None
        file, line = location(backward)
        name = f"{backward.__module__}:{op._schema.name}"
        reached = Operator(backward.__module__, op._schema.name, op._overloadname)
        return (Rule("torch", "torch.library", name, file, line), reached) if file else None
    backward = cls.backward if cls.backward is not torch.autograd.Function.backward else cls.vjp
    file, line = location(backward, cls.forward)
    if not file or of_framework(file):
        return None
    return Rule("torch", "autograd.Function", f"{cls.__module__}:{cls.__qualname__}", file, line), cls


def _captured(function: Any, deep: int = 3) -> list[Any]:
    """What a function captures, and what the functions that it captures do."""
    inside = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    return inside + [one for each in inside if deep and callable(each) for one in _captured(each, deep - 1)]


def _call(reached: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    import torch

    named = dict(kwargs)
    parameters = named.pop(PARAMETERS, {})
    every = [a for a in _flat((args, [*named.values(), *parameters.values()])) if isinstance(a, torch.Tensor)]
    numbers = sum(a.numel() for a in every)
    why = f"its arrays have {numbers:,} numbers" if numbers > MOST else ""
    if isinstance(reached, Operator) and not importable(reached.module):
        why = f"{reached.module} registers its operator, and cannot be imported elsewhere"
    copied: tuple[Any, ...] = () if why else tuple(_copied(a) for a in args)
    named = {} if why else {name: _copied(value) for name, value in named.items()}
    held = {} if why else {name: _copied(value) for name, value in parameters.items()}
    arrays = [a for a in (*copied, *named.values(), *held.values()) if isinstance(a, Array)]
    traced = any(a.values is None for a in arrays)
    seen = [shown(a) for a in copied] or [shown(_unread(a)) for a in every]
    given = (*args, *(value for name, value in kwargs.items() if name != PARAMETERS), *parameters.values())
    pairs = zip(given, (*copied, *named.values(), *held.values()), strict=False)
    originals = tuple((original, copy) for original, copy in pairs if isinstance(copy, Array))
    keywords = {**named, PARAMETERS: held} if held else named
    written = isinstance(reached, type) and issubclass(reached, torch.autograd.Function)
    devices = (INTERPRETER,) if written and _launches(reached.forward) else ()
    return Call(reached, copied, keywords, seen, traced, why, originals, devices)


def _unread(tensor: Any) -> Array:
    """A tensor without its values."""
    return Array(None, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), _is_differentiated(tensor))


def _flat(values: Any) -> list[Any]:
    """What lists and tuples hold."""
    if not isinstance(values, (list, tuple)):
        return [values]
    return [leaf for value in values for leaf in _flat(value)]


def _launches(function: Any, deep: int = 3) -> bool:
    """Whether a function names a kernel of Triton, or a function that does."""
    code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    triton: Any = sys.modules.get("triton.runtime.jit")
    if triton is None or code is None or of_framework(code.co_filename):
        return False
    used = [names[name] for name in code.co_names if name in names]
    used += [cell.cell_contents for cell in function.__closure__ or ()]
    return any(isinstance(one, triton.KernelInterface) for one in used) or any(
        deep and isinstance(one, types.FunctionType) and _launches(one, deep - 1) for one in used
    )


def _copied(value: Any) -> Any:
    import torch
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
    from torch.utils._python_dispatch import _disable_current_modes

    if isinstance(value, (list, tuple)) and any(isinstance(one, torch.Tensor) for one in value):
        return type(value)(map(_copied, value))
    if not isinstance(value, torch.Tensor):
        return value
    unread, lanes = _unread(value), []
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        lanes += [torch._C._functorch.maybe_get_bdim(value)] if torch._C._functorch.is_batchedtensor(value) else []
        value = torch._C._functorch.get_unwrapped(value)
    usual = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_meta
    if not usual:
        return unread
    # No transformation and no mode of the program may see the copy, such as one that counts operations.
    with temporarily_clear_interpreter_stack(), _disable_current_modes(), torch._C.DisableTorchFunction():
        whole = value.detach()
        for axis in reversed(lanes):  # the first lane of every vmap; the outermost is unwrapped last
            whole = whole.select(axis, 0)
        narrow = whole.is_floating_point() and whole.dtype not in (torch.float32, torch.float64)
        numbers = (whole.float() if narrow else whole).numpy(force=True).copy()
    return dataclasses.replace(unread, values=numbers)


def _is_differentiated(tensor: Any) -> bool:
    """Whether the gradient of a tensor may be asked for, by autograd or by a transformation of torch.func."""
    import torch

    while not tensor.requires_grad and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return bool(tensor.requires_grad)
