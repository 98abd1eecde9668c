"""The dispatch mode: every ATen operation runs on floats, and also on the balls of its tensors.

`ways.known` says which method of `BallMode` evaluates an operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch import constants, exits, foreach
from gradgate.suites.exact.on_torch.recording import VALUED, WAYS, NotRecorded, Recording, name_of, plainly
from gradgate.suites.exact.on_torch.rules import RULES, Rule, as_array, shown
from gradgate.suites.exact.on_torch.shadows import INEXACT, NARROW, Shadows, as_numpy
from gradgate.suites.exact.on_torch.ways import functional_of, known
from gradgate.suites.exact.tiles import Tiles


class State:
    """The state of one evaluation; the modes of all its threads share it."""

    def __init__(self, nudge: float, watch: Callable[[str, str, Any], Any] | None) -> None:
        self.shadows = Shadows()
        self.narrowed: dict[str, str] = {}  # dtype -> line of the first cast to it
        self.exits: list[str] = []
        self.notes: list[str] = []
        self.tiles: Tiles = {}
        self.nudge, self.watch = nudge, watch
        self.constants: dict[float, Any] = {}
        self.zeros = False
        self.failure: Exception | None = None
        self.recording: Recording | None = None

    def record(self, what: str, *given: Any) -> None:
        """Tell the recording, if there is one, what the program does; it ends where it does not know how."""
        if self.recording is not None:
            try:
                getattr(self.recording, what)(*given)
            except NotRecorded:
                self.recording = None


class Call:
    """One call of an operation, for rules that need more than arrays.

    Attributes:
        transposed: whether PyTorch factored the transpose of a matrix; None if it is not known yet.
    """

    def __init__(self, state: State, func: Any, args: Any, kwargs: Any) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.name = known(func).name
        self.shadows = state.shadows
        self.transposed: bool | None = None
        self._result: Any = _NOT_RUN

    def run(self) -> Any:
        """What the operation returns for floats; it runs once."""
        if self._result is _NOT_RUN:
            self._result = self.func(*self.args, **self.kwargs)
        return self._result

    def read(self, value: Any) -> Any:
        """A tensor as an array: of balls, or of integers and booleans. Anything else as it is."""
        return _array(self.shadows, value, False)

    def named(self) -> dict[str, Any]:
        """The arguments by the names of the schema, without those for output."""
        found = {arg.name: value for arg, value in zip(self.func._schema.arguments, self.args, strict=False)}
        outputs = known(self.func).outputs
        return {**found, **{name: value for name, value in self.kwargs.items() if name not in outputs}}

    def functional(self) -> Any:
        """The operation itself, or the operation that returns what this one writes in place or into ``out=``."""
        return functional_of(self.func)


LOGIC: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("bitwise_and", "logical_and"), np.bitwise_and),
    **dict.fromkeys(("bitwise_or", "logical_or"), np.bitwise_or),
    **dict.fromkeys(("bitwise_xor", "logical_xor"), np.bitwise_xor),
    **dict.fromkeys(("bitwise_not", "logical_not"), np.invert),
}
"""Operation on booleans -> function of arrays."""
_NOT_RUN = object()
_EMPTY = frozenset(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"))
"""Operations whose results hold no numbers yet: a kernel that reads these reads what nobody wrote."""


def _array(shadows: Shadows, value: Any, numbers: bool) -> Any:
    """An argument for a rule."""
    if isinstance(value, torch.Tensor):
        if value.dtype in INEXACT:
            return shadows.read(value)
        truth = shadows.truth(value) if shadows.truths else None
        plain = as_numpy(value.detach().cpu()) if truth is None else truth
        return balls.exact(plain) if numbers else plain
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return [_array(shadows, item, numbers) for item in value]
    return value


def _kind(values: Any) -> int:
    """0 if there is no floating tensor among the values, 2 if one has no numbers ("meta"), else 1."""
    kind = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.is_meta:
                return 2
            if value.dtype in INEXACT:
                kind = 1
        elif isinstance(value, (list, tuple)):
            kind = max(kind, _kind(value))
    return kind


def _inexact(*values: Any) -> bool:
    """Whether there is a floating tensor with numbers, and none without."""
    return _kind(values) == 1


class BallMode(TorchDispatchMode):
    """One thread's part in an evaluation."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        self._apart: list[Any] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: no program is compiled here, and the wrapper that skips costs a tenth of an operation, and an import."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation on floats and on balls."""
        kwargs = kwargs or {}
        if types and any(each.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for each in types):
            raise self._failed(balls.Unknown(f"{func} of a tensor that dispatches itself, such as {types[0].__name__}"))
        try:
            if self.state.shadows.truths and self._undecided(args, kwargs):
                return self._of_truths(func, args, kwargs)
            way = known(func).way
            result = getattr(self, way)(func, args, kwargs)
            if self.state.recording is not None:
                self._record(way, func, args, result)
            return result
        except balls.Undecided as error:
            told = str(error)
            raise self._failed(error if told.startswith("aten") else balls.Undecided(f"{func}: {told}")) from None
        except balls.Unknown as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> Exception:
        """The error, which ends the evaluation even if the program catches it."""
        self.state.failure = self.state.failure or error
        return error

    def _record(self, way: str, func: Any, args: Any, result: Any) -> None:
        """Record an operation that no rule has computed, or end the recording."""
        if way not in WAYS or (way == "view" and (func._schema.is_mutable or known(func).name in VALUED)):
            self.state.recording = None
        elif way == "make":
            self.state.record("made", func, args, result)

    def _undecided(self, *values: Any) -> bool:
        """Whether there is a tensor of booleans that wide balls do not decide."""
        for value in values:
            many = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
            tensor = isinstance(value, torch.Tensor) and not value.is_meta and value.layout == torch.strided
            if self._undecided(*many) if many else tensor and self.state.shadows.truth(value) is not None:
                return True
        return False

    def _of_truths(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation on such tensors: a view, logic, or what makes floats of them; their own numbers mean nothing.

        Raises:
            Undecided: any other operation.
        """
        way, name = known(func).way, known(func).name
        if way == "view":
            result = self.view(func, args, kwargs)
            if isinstance(result, torch.Tensor) and self._undecided(result):
                return result
        if name in LOGIC and not func._schema.is_mutable:
            result = func(*args, **kwargs)
            self.state.shadows.write_truth(
                result, LOGIC[name](*(_array(self.state.shadows, one, False) for one in args))
            )
            return result
        if way == "compute" and RULES[name].kind != "call":
            result = self.compute(func, args, kwargs)
            if _inexact(result):
                return result
        raise balls.Undecided(f"{func} of comparisons, for all inputs")

    def view(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The same storage, so the same shadow."""
        return func(*args, **kwargs)

    def make(self, func: Any, args: Any, kwargs: Any) -> Any:
        """New tensors whose floats are data."""
        self._not_random(func)
        result = func(*args, **kwargs)
        self._seen(result)
        name = known(func).name
        if name == "_efficientzerotensor":
            self.state.zeros = True
        elif name in _EMPTY and _inexact(result):
            self.state.shadows.record(result).unwritten = True
        return result

    def draw(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation in place that writes data."""
        self._not_random(func)
        result = func(*args, **kwargs)
        if _inexact(result):
            plain = as_numpy(result.detach().cpu().resolve_conj().resolve_neg())
            self.state.shadows.write(result, balls.exact(plain), fresh=True)
        return result

    def _not_random(self, func: Any) -> None:
        if balls.is_wide() and torch.Tag.nondeterministic_seeded in func.tags:
            raise balls.Undecided(f"{func}, for all random numbers")

    def leave(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A number that leaves the evaluation."""
        number = exits.scalar(self.state, func, args[0])
        if self.state.watch is not None and isinstance(number, bool):  # Python's `if` on a tensor
            balls.selected(number)
            _tell(self.state, func, np.asarray(number))
        return number

    def reinterpret(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Bits of floats read as something else."""
        tensor, dtype = args[0], args[1]
        if tensor.dtype in INEXACT and dtype != tensor.dtype and not exits.plain(self.state, tensor):
            exits.bits(self.state, str(func), tensor)
        return func(*args, **kwargs)

    def copy(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Copies numbers into a tensor; or, as `copy.deepcopy`, all bytes of a storage, and with them its shadow."""
        target, source = args[0], args[1]
        if not source.dtype == target.dtype == torch.uint8:
            return self.compute(func, args, kwargs)
        self.state.recording = None
        result = func(*args, **kwargs)
        if all(each.nbytes == each.untyped_storage().nbytes() for each in (target, source)):
            self.state.shadows.copy_storage(target, source)
        return result

    def adopt(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A tensor takes over a storage; a storage that no operation made may come from a file."""
        result = func(*args, **kwargs)
        if _inexact(result) and not self.state.shadows.known(result):
            exits.arrived(self.state, str(func), result)
        return result

    def compute(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation that has a rule."""
        rule, state = RULES[known(func).name], self.state
        floats, call = _inexact(args, *kwargs.values()), None
        given = constants.meant(state.constants, known(func).name, args) if float in map(type, args) else args
        if state.zeros:
            args = _with_memory(args)
        named = _named(func, kwargs) if kwargs else kwargs
        if rule.kind == "call":
            call = Call(state, func, args, kwargs)
            if not floats and not _inexact(call.run()):
                state.record("plain", func, args, kwargs, call.run())
                return call.run()
            value = rule.function(call)
            result = call.run()
        elif floats:
            value = self._value(rule, given, named)
            result = func(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
            if not _inexact(result):
                state.record("plain", func, args, kwargs, result)
                return result
            value = self._value(rule, given, named)
        if isinstance(result, bool):
            state.recording = None
            if state.watch is not None:
                _tell(state, func, np.asarray(value))
            return value
        self._store(func, result, value)
        if state.recording is not None:
            state.record("computed", rule, known(func), given, named, result, value, exits.caller(), call)
        if state.watch is not None:
            instead = _tell(state, func, value, result)
            if instead is not None:
                self._store(func, result, instead)
        return result

    def _value(self, rule: Rule, args: Any, named: Any) -> Any:
        numbers, shadows = rule.kind == "numbers", self.state.shadows
        given = [_array(shadows, each, numbers) for each in args]
        if not named:
            return rule.function(*given)
        return rule.function(*given, **{name: _array(shadows, each, numbers) for name, each in named.items()})

    def decompose(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation that PyTorch itself defines by other operations."""
        with self:
            return func.decompose(*args, **kwargs)

    def take_apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation by its decomposition in Python."""
        if not _inexact(args, *kwargs.values()):
            result = self.make(func, args, kwargs)
            self.state.record("plain", func, args, kwargs, result)
            return result
        if func in self._apart:  # the decomposition of a primitive may be the primitive
            raise balls.Unknown(f"{func} has no rule")
        self._apart.append(func)
        try:
            with self:
                return decomposition_table[func](*args, **kwargs)
        finally:
            self._apart.pop()

    def take_apart_in_place(self, func: Any, args: Any, kwargs: Any) -> Any:
        """As `take_apart`, and the result is written where the operation writes."""
        if not _inexact(args, *kwargs.values()):
            result = func(*args, **kwargs)
            self.state.record("plain", func, args, kwargs, result)
            return result
        given = Call(self.state, func, args, kwargs).named()
        targets = [kwargs[name] for name in kwargs if name in known(func).outputs] or [args[0]]
        with self:
            found = functional_of(func)(**given)
            for target, each in zip(targets, found if isinstance(found, (tuple, list)) else [found], strict=True):
                target.copy_(each)
        return targets[0] if len(targets) == 1 else tuple(targets)

    def run_prim(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A primitive of PyTorch's decompositions, by the ATen operations that implement it."""
        with self:
            return func.prim_impl(*args, **kwargs)

    def run_foreach(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation on lists, one tensor after the other."""
        with self:
            return foreach.run(func, args, kwargs)

    def unknown(self, func: Any, args: Any, kwargs: Any) -> Any:
        """No rule and no decomposition: fine for whole numbers only."""
        if not _inexact(args, *kwargs.values()):
            result = func(*args, **kwargs)
            if not _inexact(result):
                self.state.record("plain", func, args, kwargs, result)
                return result
        raise balls.Unknown(f"{func}: PyTorch's operation has no rule in gradgate.suites.exact.on_torch")

    def _seen(self, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            if result.dtype in INEXACT and not result.is_meta:
                self.state.shadows.record(result).unwritten = False
        elif isinstance(result, (list, tuple)):
            for each in result:
                self._seen(each)

    def _store(self, func: Any, result: Any, value: Any) -> None:
        """Store what a rule returned: as balls for a tensor of floats, or into a tensor of booleans or integers."""
        if isinstance(result, torch.Tensor):
            self._store_one(func, result, value)
        elif isinstance(result, (list, tuple)):
            if value is None:
                value = [None] * len(result)
            for tensor, each in zip(result, value, strict=True):
                if isinstance(tensor, torch.Tensor):
                    self._store_one(func, tensor, each)

    def _store_one(self, func: Any, tensor: Any, value: Any) -> None:
        if value is None:
            self._seen(tensor)
            return
        array = as_array(value)
        if array.shape != tuple(tensor.shape):
            raise balls.Undecided(f"{func} has the shape {tuple(tensor.shape)} in floats and {array.shape} in balls")
        if tensor.dtype in INEXACT:
            if tensor.dtype in NARROW:
                narrow = str(tensor.dtype).removeprefix("torch.")
                if narrow not in self.state.narrowed:
                    self.state.narrowed[narrow] = exits.caller()
            exact = balls.exact(array)
            self.state.shadows.write(tensor, exact, exact.base is None and exact.flags.c_contiguous)
            return
        if balls.is_truth(array):
            self.state.shadows.write_truth(tensor, array)
            return
        tensor.copy_(torch.from_numpy(np.array(plainly(array, tensor.dtype == torch.bool), order="C")))


def _named(func: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a rule by name."""
    outputs = known(func).outputs
    return {name: each for name, each in kwargs.items() if name not in outputs and name not in _MEMORY}


def _with_memory(value: Any) -> Any:
    """Arguments with zeros in memory in place of zero tensors without memory, on which kernels crash."""
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype) if value._is_zerotensor() else value
    return type(value)(_with_memory(each) for each in value) if isinstance(value, (list, tuple)) else value


_MEMORY = frozenset(("layout", "device", "pin_memory", "memory_format", "non_blocking", "out_dtype"))


def _tell(state: State, func: Any, value: Any, result: Any = None) -> Any:
    """Show a result to the watch of the evaluation; returns what takes its place, or None."""
    arrays, first = shown(value)
    if first is not None and state.watch is not None:  # a comparison has no balls, but was decided by some
        line = "" if balls.compares_nothing() else exits.caller()
        instead = state.watch(name_of(known(func).text, result), line, first)
        if instead is not None:
            several = isinstance(value, (list, tuple))
            return [instead if each is first else each for each in arrays] if several else instead
    return None
