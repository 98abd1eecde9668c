"""What a program did with its tensors, so that it can be computed for other numbers without calling it again.

The search for sides of decisions evaluates one program at many inputs of the same shapes. A call runs autograd,
PyTorch's dispatcher and every operation on floats, which takes several times as long as the balls. So the first call
records which rule was applied to which tensors, and later ones apply the same rules to new balls. JAX traces a program
for the same purpose.

That is right only where a program does the same at all inputs. So it is not recorded, and is called each time, if it
reads a number or a boolean out of a tensor, draws random numbers, uses a floating tensor from outside, or has an
operation that is not known to depend on balls, shapes, integers and booleans alone. Where the search finds something,
the program is called to judge it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import Rule, as_array, shown
from gradgate.suites.exact.on_torch.shadows import COMPLEX, INEXACT, all_numbers, as_numpy
from gradgate.suites.exact.on_torch.structure import MOVING, whole_numbers
from gradgate.suites.exact.on_torch.ways import Known, known

LONGEST = 20_000
"""Most operations of a recording, which keeps the tensors of all of them."""
WAYS = frozenset(
    (
        "view",
        "make",
        "compute",
        "copy",
        "decompose",
        "take_apart",
        "take_apart_in_place",
        "run_prim",
        "run_foreach",
        "unknown",
    )
)
"""Ways to evaluate an operation (`ways.way_of`) that are recorded, or whose parts are."""
SYSTEMS = ("linalg_inv_ex", "linalg_lu_factor_ex", "_linalg_solve_ex", "_linalg_det", "_linalg_slogdet")
"""Operations whose rules take the order of the rows from floats. For other numbers it is right, too, unless a pivot is
zero; then the rule cannot decide."""
CALLS = frozenset((*MOVING, *SYSTEMS, "copy", "fill", "arange", "linspace"))
"""Operations whose rules take a `mode.Call` and read no other float that the operation itself returned."""
VALUED = frozenset(
    (
        "_is_all_true",
        "_is_any_true",
        "_assert_async",
        "_functional_assert_async",
    )
)
"""Operations that count as views, and whose results depend on numbers."""
DYNAMIC = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
Watch = Callable[[str, str, Any], Any]


class NotRecorded(Exception):
    """A program does something that cannot be computed again without calling it."""


class Place:
    """The balls of a floating tensor: a part of the row of its storage.

    Attributes:
        strides: None if the part is contiguous.
        whole: whether it is the whole row, in any order.
    """

    __slots__ = ("row", "shape", "start", "stop", "strides", "whole")

    def __init__(self, row: int, tensor: Any) -> None:
        self.row, self.shape, self.start = row, tuple(tensor.shape), tensor.storage_offset()
        self.stop = self.start + tensor.numel()
        self.strides = None if tensor.is_contiguous() else tuple(tensor.stride())
        self.whole = tensor.untyped_storage().nbytes() == tensor.nbytes and _is_dense(tensor)

    def read(self, rows: list[Any]) -> Any:
        """The balls, as a view."""
        flat = rows[self.row]
        if self.strides is None:
            return (flat if self.whole else flat[self.start : self.stop]).reshape(self.shape)
        if 0 in self.shape:
            return np.empty(self.shape, object)
        return as_strided(flat[self.start :], self.shape, tuple(flat.itemsize * step for step in self.strides))

    def write(self, rows: list[Any], array: Any) -> None:
        """Put balls there."""
        made = array if array.dtype == object else balls.exact(array)
        if self.whole and self.strides is None:
            fresh = made.base is None and made.flags.c_contiguous
            rows[self.row] = made.reshape(-1) if fresh else made.reshape(-1).copy()
        elif self.whole:
            rows[self.row] = np.empty(made.size, object)
            self.read(rows)[...] = made
        else:
            self.read(rows)[...] = made


class Plain:
    """The integers or booleans of a tensor, in its own memory."""

    __slots__ = ("array", "boolean", "shape")

    def __init__(self, tensor: Any) -> None:
        self.array, self.shape = as_numpy(tensor.detach()), tuple(tensor.shape)
        self.boolean = tensor.dtype == torch.bool

    def read(self, rows: list[Any]) -> Any:
        """The numbers as balls."""
        return balls.exact(self.array)

    def write(self, rows: list[Any], array: Any) -> None:
        """Put numbers there."""
        self.array[...] = plainly(array, self.boolean)


class Many:
    """A list of arguments, some of which are read."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def read(self, rows: list[Any]) -> Any:
        """The list."""
        return [part.read(rows) if type(part) in READ else part for part in self.parts]


READ = frozenset((Place, Plain, Many))


def plainly(array: Any, boolean: bool) -> Any:
    """What a rule gave for a tensor of booleans or integers, as such."""
    if array.dtype != object:
        return array
    return balls.compare("ne", array, balls.exact(0)) if boolean else whole_numbers(array)


def name_of(text: str, result: Any) -> str:
    """The operation as a watch is told of it: to make booleans of numbers is to ask whether they are zero."""
    casts = text.startswith("aten._to_copy") and isinstance(result, torch.Tensor) and result.dtype == torch.bool
    return "ne" if casts else text


class Step:
    """An operation that a rule computes.

    Attributes:
        text, line: of the operation, as errors and the watch are told.
        stores: where each result is put; None for one without numbers.
        several: whether the rule gives a sequence of results.
    """

    __slots__ = ("args", "function", "line", "named", "several", "stores", "text")

    def __init__(self, function: Callable[..., Any], args: list[Any], named: dict[str, Any]) -> None:
        self.function, self.args, self.named = function, args, named
        self.text = self.line = ""
        self.stores: list[Any] = []
        self.several = False

    def run(self, rows: list[Any], watch: Watch | None) -> None:
        """Compute it from what the rows hold now."""
        given = [each.read(rows) if type(each) in READ else each for each in self.args]
        if self.named:
            named = {name: each.read(rows) if type(each) in READ else each for name, each in self.named.items()}
            value = self.function(*given, **named)
        else:
            value = self.function(*given)
        many = value if self.several else [value]
        for place, each in zip(self.stores, many, strict=True):
            self._put(rows, place, each)
        if watch is None:
            return
        arrays, first = shown(value)
        if first is None:
            return
        instead = watch(self.text, "" if balls.compares_nothing() else self.line, first)
        if instead is not None:
            self._put(rows, next(at for at, each in zip(self.stores, arrays, strict=True) if each is first), instead)

    def _put(self, rows: list[Any], place: Place | Plain | None, value: Any) -> None:
        """Put one result into its place; it has none if it is a tensor without numbers."""
        if place is None:
            return
        array = value if type(value) is np.ndarray else as_array(value)
        if array.shape != place.shape:
            raise balls.Undecided(f"{self.text} has the shape {place.shape} in floats and {array.shape} in balls")
        place.write(rows, array)


class Reader:
    """What a `mode.Call` asks of `Shadows`, from a recording."""

    __slots__ = ("places", "rows", "truths")

    def __init__(self, rows: list[Any], places: dict[int, Place]) -> None:
        self.rows, self.places, self.truths = rows, places, ()

    def read(self, tensor: Any) -> Any:
        """The balls of a tensor."""
        return self.places[id(tensor)].read(self.rows)


class Made:
    """A tensor that was made with these numbers."""

    __slots__ = ("numbers", "target")

    def __init__(self, target: Any, numbers: Any) -> None:
        self.target, self.numbers = target, numbers

    def run(self, rows: list[Any], watch: Watch | None) -> None:
        """Make it again."""
        if isinstance(self.target, Place):
            rows[self.target.row] = self.numbers.copy()
        else:
            self.target.array[...] = self.numbers


class Again:
    """An operation on integers and booleans, which PyTorch runs again."""

    __slots__ = ("args", "func", "kwargs", "result")

    def __init__(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        self.func, self.args, self.kwargs, self.result = func, args, kwargs, result

    def run(self, rows: list[Any], watch: Watch | None) -> None:
        """Run it, and put the result where the first one was."""
        found = self.func(*self.args, **self.kwargs)
        if found is not self.result:
            self.result.copy_(found)


class Recording:
    """One call of a program; while it lasts, `mode.BallMode` tells what it does.

    Attributes:
        narrowed: as `Evaluated.narrowed`.

    Raises:
        NotRecorded: an input is of a kind that is not recorded.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.narrowed: dict[str, str] = {}
        self._thread = threading.get_ident()
        self._steps: list[Any] = []
        self._outputs: list[Any] = []
        self._rows: list[Any] = []
        self._row_of: dict[int, int] = {}
        self._plain: set[int] = set()
        self._kept: list[Any] = []  # so that no id and no address is used twice
        self._inputs = [(tensor, self._new(tensor)) for tensor in inputs]

    # While the program is called ------------------------------------------------------------------------------------

    def _new(self, tensor: Any) -> Place | Plain:
        """The place of a tensor whose storage may be new; then it has to be all of it."""
        fresh = tensor.untyped_storage()._cdata not in self._row_of
        place = self._part(tensor)
        if fresh and isinstance(place, Place) and not place.whole:
            raise NotRecorded
        return place

    def _part(self, tensor: Any) -> Place | Plain:
        """The place of a tensor whose storage may be new, and longer than the tensor."""
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.device.type != "cpu":
            raise NotRecorded
        self._kept.append(tensor)
        address = tensor.untyped_storage()._cdata
        if tensor.dtype not in INEXACT:
            self._plain.add(address)
            return Plain(tensor)
        if address not in self._row_of:
            self._row_of[address] = len(self._rows)
            self._rows.append(None)
        return self._place(tensor)

    def _place(self, tensor: Any) -> Place:
        """The place of a floating tensor whose storage is known."""
        row = self._row_of.get(tensor.untyped_storage()._cdata)
        if row is None or tensor.dtype in COMPLEX or tensor.is_neg():
            raise NotRecorded
        self._kept.append(tensor)
        return Place(row, tensor)

    def _argument(self, value: Any, numbers: bool) -> Any:
        """An argument of a rule, as it is, or as something to read."""
        if isinstance(value, torch.Tensor):
            if value.dtype in INEXACT:
                return _zeros(value) if value._is_zerotensor() else self._place(value)
            if value.device.type != "cpu" or value.layout is not torch.strided:
                raise NotRecorded
            self._kept.append(value)
            plain = Plain(value)
            return plain if numbers else plain.array
        if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
            return Many([self._argument(item, numbers) for item in value])
        return value

    def _mutates_unknown(self, func: Any, result: Any) -> bool:
        """Whether an operation writes into a tensor from outside."""
        many = result if isinstance(result, (list, tuple)) else [result]
        addresses = [each.untyped_storage()._cdata for each in many if isinstance(each, torch.Tensor)]
        return func._schema.is_mutable and not all(one in self._row_of or one in self._plain for one in addresses)

    def _step(self, step: Any) -> None:
        self._steps.append(step)
        if len(self._steps) > LONGEST or threading.get_ident() != self._thread:
            raise NotRecorded

    def made(self, func: Any, args: Any, result: Any) -> None:
        """A tensor whose numbers are data."""
        if not isinstance(result, torch.Tensor) or torch.Tag.nondeterministic_seeded in func.tags:
            raise NotRecorded
        if result._is_zerotensor():  # it has no memory; who reads it reads zeros
            return
        place = self._part(result)
        numbers = balls.exact(all_numbers(result)) if isinstance(place, Place) else place.array.copy()
        self._step(Made(place, numbers))

    def computed(
        self, rule: Rule, known: Known, args: Any, named: Any, result: Any, value: Any, line: str, call: Any = None
    ) -> None:
        """An operation that a rule has computed: from these arguments, or from a `mode.Call`."""
        func, name = known.func, known.name
        several = isinstance(result, (list, tuple))
        if value is None or isinstance(result, bool) or self._mutates_unknown(func, result):
            raise NotRecorded
        if _dynamic(func, name, args):
            raise NotRecorded
        if call is not None:
            if name not in CALLS or any(_without_memory(each) for each in [*args, *named.values()]):
                raise NotRecorded
            call.shadows = Reader(self._rows, dict(self._tensors([*args, *named.values()])))
            step = Step(rule.function, [call], {})
        else:
            numbers = rule.kind == "numbers"
            given = {name: self._argument(each, numbers) for name, each in named.items()}
            step = Step(rule.function, [self._argument(each, numbers) for each in args], given)
        step.text, step.line, step.several = name_of(known.text, result), line, several
        step.stores = [
            self._new(tensor) if isinstance(tensor, torch.Tensor) and each is not None and not tensor.is_meta else None
            for tensor, each in zip(result if several else (result,), value if several else (value,), strict=True)
        ]
        self._step(step)

    def _tensors(self, values: Sequence[Any]) -> Iterator[tuple[int, Place]]:
        """The floating tensors among some values, by their ids, and their places."""
        for value in values:
            if isinstance(value, (list, tuple)):
                yield from self._tensors(value)
            elif isinstance(value, torch.Tensor):
                place = self._argument(value, True)
                if isinstance(place, Place):
                    yield id(value), place

    def plain(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """An operation on integers and booleans, or on tensors without numbers."""
        if isinstance(result, torch.Tensor) and result.is_meta:
            return
        if not isinstance(result, torch.Tensor) or result.dtype in INEXACT or self._mutates_unknown(func, result):
            raise NotRecorded
        if torch.Tag.nondeterministic_seeded in func.tags or _dynamic(func, known(func).name, args):
            raise NotRecorded
        self._new(result)
        self._kept.append((args, kwargs))
        self._step(Again(func, args, kwargs, result))

    def ended(self, outputs: Sequence[Any], narrowed: dict[str, str]) -> None:
        """The program has returned these leaves: tensors, or what numbers are as `Evaluated.outputs`."""
        self.narrowed = narrowed
        self._outputs = [self._argument(each, False) for each in outputs]

    # Afterwards -----------------------------------------------------------------------------------------------------

    def play(self, inputs: Sequence[Any], watch: Watch | None) -> list[Any]:
        """The outputs for other inputs, as `Evaluated.outputs`.

        Args:
            watch: as for `evaluate`.

        Raises:
            NotRecorded: the inputs have other shapes or dtypes.
            Undecided: as `evaluate`.
        """
        if [(each.shape, each.dtype) for each in inputs] != [(each.shape, each.dtype) for each, _ in self._inputs]:
            raise NotRecorded
        for (_, place), tensor in zip(self._inputs, inputs, strict=True):
            if isinstance(place, Place):
                place.write(self._rows, balls.exact(as_numpy(tensor.detach().double())))
            else:
                place.array[...] = as_numpy(tensor.detach())
        for step in self._steps:
            try:
                step.run(self._rows, watch)
            except balls.Undecided as error:
                told = str(error)
                raise error if told.startswith("aten") else balls.Undecided(f"{step.text}: {told}") from None
        return [each.read(self._rows) if type(each) in READ else np.array(each) for each in self._outputs]


def _zeros(tensor: Any) -> Any:
    """The balls of a zero tensor, which has no memory: forward mode makes them."""
    if tensor.dtype in COMPLEX:
        raise NotRecorded
    return balls.exact(np.zeros(tuple(tensor.shape))).view()  # a view is copied where it is put into a row


def _without_memory(value: Any) -> bool:
    """Whether an argument is such a tensor, or a list with one."""
    if isinstance(value, (list, tuple)):
        return any(map(_without_memory, value))
    return isinstance(value, torch.Tensor) and value._is_zerotensor()


def _is_dense(tensor: Any) -> bool:
    """Whether no two elements share memory, and no memory lies between them."""
    if tensor.is_contiguous():
        return True
    return bool(tensor.permute(sorted(range(tensor.ndim), key=lambda d: -tensor.stride(d))).is_contiguous())


def _dynamic(func: Any, name: str, args: Any) -> bool:
    """Whether the result's shape depends on numbers."""
    return bool(DYNAMIC & set(func.tags)) and (name != "index" or any(_boolean(each) for each in args[1]))


def _boolean(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bool, torch.uint8)
