"""Jaxprs compiled into lists of Python steps over numbered slots, and run on one device or on several in lockstep.

Calls (jit, remat, custom derivatives and the like) are inlined; what no output needs is left out; constants are made
into balls once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from gradgate.suites.exact import balls
from gradgate.suites.exact.lines import judges, line_at
from gradgate.suites.exact.on_jax import rules
from gradgate.suites.exact.tiles import Tiles

Watch = Callable[[str, str, list[Any]], Sequence[Any] | None]


@dataclass
class Run:
    """The settings of one evaluation.

    Attributes:
        watch: called after every equation with its primitive, source line and outputs; it may return other outputs.
        brief: whether it is called only after equations that compare, and without outputs: within kernels.
        places: for each device that runs in lockstep, mesh axis -> its coordinate.
        sizes: mesh axis -> its length.
        notes: what kernels computed from memory that nobody wrote, for a refutation to say.
        tiles: how the blocks of kernels lay in their arrays.
    """

    watch: Watch | None = None
    brief: bool = False
    places: list[dict[str, int]] = field(default_factory=lambda: [{}])
    sizes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tiles: Tiles = field(default_factory=dict)


Entry = tuple[Any, list[int], list[int], tuple[Any, ...]]
"""An equation, the slots that it reads and writes, and the calls that contain it, the outermost first."""


class Step:
    """One equation, with the slots that it reads, writes and empties."""

    __slots__ = ("_line", "callers", "drops", "equation", "inputs", "many", "name", "outputs", "run", "together")

    def __init__(self, entry: Entry, run: Any, together: bool) -> None:
        self.equation, self.inputs, self.outputs, self.callers = entry
        self.run, self.together = run, together
        self.many = self.equation.primitive.multiple_results
        self.drops: list[int] = []
        self._line = ""
        self.name = self.equation.primitive.name
        if self.name == "convert_element_type" and self.equation.outvars[0].aval.dtype == bool:
            self.name = "ne"  # to make booleans of numbers is to ask whether they are zero

    @property
    def line(self) -> str:
        """The equation's source line, as ``file.py:123``; within a call of JAX's own, the line that makes that call."""
        if not self._line:  # JAX looks through all frames, and a loop performs the step often
            self._line = self._found_line()
        return self._line

    def _found_line(self) -> str:
        if self.equation.primitive.name == "pallas_call":
            return kernel_line(self.equation)
        lines = (source_line(equation) for equation in (self.equation, *reversed(self.callers)))
        return next(filter(None, lines), "")

    def perform(self, lanes: list[list[Any]], run: Run) -> None:
        """Read the slots of every device, run, and write."""
        if self.together:
            results = self.run([[slots[i] for i in self.inputs] for slots in lanes], run)
        else:
            results = [self.run(*[slots[i] for i in self.inputs]) for slots in lanes]
        for slots, result in zip(lanes, results, strict=True):
            for place, value in zip(self.outputs, result if self.many else (result,), strict=True):
                slots[place] = value if type(value) is np.ndarray else boxed(value)
            for place in self.drops:
                slots[place] = None
        if run.watch is not None:
            if run.brief:
                self.tell(run)
                return
            line = "" if balls.compares_nothing() else self.line
            for slots in lanes:
                instead = run.watch(self.name, line, [slots[i] for i in self.outputs])
                if instead is not None:
                    for place, value in zip(self.outputs, instead, strict=True):
                        slots[place] = value

    def tell(self, run: Run) -> None:
        """Tell who watches briefly that this step compares, if it does."""
        if run.watch is not None and balls.compared():
            run.watch(self.name, self.line, [])

    def written(self, name: str) -> str:
        """`perform` for one device that nobody watches, as a line of Python in which `name` is the step's function."""
        given = ", ".join(f"s{place}" for place in self.inputs)
        call = f"{name}([[{given}]], run)[0]" if self.together else f"{name}({given})"
        outputs = [f"s{place}" for place in self.outputs]
        parts = [f"{', '.join(outputs)}{',' if self.many else ''} = {call}"] if outputs else [call]
        for output, variable in zip(outputs, self.equation.outvars, strict=True):
            if not getattr(variable.aval, "shape", ()):  # NumPy returns bare elements for this shape alone
                parts.append(f"{output} = {output} if type({output}) is array else boxed({output})")
        parts.extend(f"s{place} = None" for place in self.drops)
        return "; ".join(parts)


def boxed(value: Any) -> Any:
    """A bare ball or number of Python, as an array; a NumPy scalar has all that rules use of one, and is cheaper."""
    if isinstance(value, np.generic):
        return value
    return np.asarray(value) if isinstance(value, (bool, int)) else balls.whole(value)


def source_line(equation: Any) -> str:
    """The innermost line that made the equation, outside of JAX and of what judges, as ``file.py:123``; "" if none."""
    from jax._src import source_info_util  # the public API has no way from an equation to a line

    for frame in source_info_util.user_frames(equation.source_info.traceback):
        if not judges(frame.file_name):
            return line_at(frame.file_name, frame.start_line)
    return ""


def kernel_line(equation: Any) -> str:
    """The function of a Pallas kernel and the line that declares it, as ``name, file.py:12``."""
    name, _, path = str(equation.params["jaxpr"].debug_info.func_src_info).partition(" at ")
    return ", ".join(filter(None, (name, path.rpartition("/")[2])))


class Block:
    """A jaxpr as steps, for those of its outputs that are needed.

    A block that runs often, such as the body of a loop, becomes one Python function. A line of it costs less than a
    step of the list, but has to be compiled.
    """

    OFTEN = 16
    """Runs after which a block becomes a function."""

    def __init__(self, template: list[Any], inputs: list[int], steps: list[Step], outputs: list[int]) -> None:
        self.template, self.inputs, self.steps, self.outputs = template, inputs, steps, outputs
        self._runs = 0
        self._functions: dict[bool, Callable[..., list[Any]]] = {}

    def __call__(self, arguments: list[Sequence[Any]], run: Run) -> list[list[Any]]:
        """Compute the outputs of every device from the arguments of every device."""
        if len(arguments) == 1 and (run.watch is None or run.brief):
            self._runs += 1
            if self._runs > self.OFTEN:
                return [self._in_one_function(arguments[0], run)]
        lanes = []
        for given in arguments:
            slots = self.template.copy()
            for place, value in zip(self.inputs, given, strict=True):
                slots[place] = value
            lanes.append(slots)
        step = None
        try:
            for step in self.steps:
                step.perform(lanes, run)
        except (balls.Undecided, balls.Unknown) as error:
            raise _located(error, step) from error
        return [[slots[i] for i in self.outputs] for slots in lanes]

    def _in_one_function(self, given: Sequence[Any], run: Run) -> list[Any]:
        if run.brief not in self._functions:
            self._functions[run.brief] = self._compiled(run.brief)
        try:
            return self._functions[run.brief](run, *given)
        except (balls.Undecided, balls.Unknown) as error:
            raise _located(error, self._failed(error)) from error

    def _failed(self, error: Exception) -> Step | None:
        """The step in whose line of the function the error was raised."""
        traceback = error.__traceback__
        codes = [function.__code__ for function in self._functions.values()]
        while traceback is not None:
            if traceback.tb_frame.f_code in codes:
                return self.steps[traceback.tb_lineno - 2]  # the first line is the function's head
            traceback = traceback.tb_next
        return None

    def _compiled(self, brief: bool) -> Callable[..., list[Any]]:
        """The steps as one function of the run and the inputs, a line for each step; `brief` as in `Run`."""
        names: dict[str, Any] = {"array": np.ndarray, "boxed": boxed}
        names |= {f"s{place}": value for place, value in enumerate(self.template) if value is not None}
        head = f"def block(run, {', '.join(f's{place}' for place in self.inputs)}):"
        lines = [step.written(f"r{number}") for number, step in enumerate(self.steps)]
        if brief:
            lines = [f"{line}; tell{number}(run)" for number, line in enumerate(lines)]
            names |= {f"tell{number}": step.tell for number, step in enumerate(self.steps)}
        names |= {f"r{number}": step.run for number, step in enumerate(self.steps)}
        tail = f"return [{', '.join(f's{place}' for place in self.outputs)}]"
        exec("\n ".join((head, *lines, tail)), names)
        function: Callable[..., list[Any]] = names["block"]
        return function


def _located(error: Exception, step: Step | None) -> Exception:
    """The error with primitive and line; an error of an inner block has them already, if its line is known."""
    if step is None or getattr(error, "located", False) or not step.line:
        return error
    found = type(error)(f"{error} ({step.equation.primitive.name}, {step.line})")
    found.located = True  # type: ignore[attr-defined]
    return found


INLINED: dict[str, str] = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vmap_call": "call",
    "composite": "jaxpr",
    "custom_linear_solve": "",
    "linear_call": "callee",
}
"""Calls that are replaced by their body -> the parameter that holds the body; since JAX 0.11 that of a composite is
``call_jaxpr``, and a closed call is ``eval_jaxpr``."""
SILENT = {"DebugEffect", "OrderedDebugEffect", "NamedAxisEffect"}
"""Effects that change no value: an equation with no others is left out when its outputs are not needed."""


class Flat:
    """A jaxpr without calls: equations over numbered slots."""

    def __init__(self, jaxpr: Any, consts: Sequence[Any], narrowed: dict[str, str], cache: dict[Any, Any]) -> None:
        self.narrowed, self.cache = narrowed, cache
        self.template: list[Any] = []
        self.equations: list[Entry] = []
        known: dict[Any, int] = {}
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = self._slot(rules.data(const, variable.aval.dtype))
        self.inputs = [self._slot() for _ in jaxpr.invars]
        known.update(zip(jaxpr.invars, self.inputs, strict=True))
        self.outputs = self._inline(jaxpr, known)
        self.blocks: dict[Any, tuple[Block, list[bool]]] = {}

    def _slot(self, value: Any = None) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def _read(self, atom: Any, known: dict[Any, int]) -> int:
        if isinstance(atom, Literal):
            aval: Any = atom.aval
            return self._slot(rules.data(atom.val, aval.dtype))
        return known[atom]

    def _inline(self, jaxpr: Any, known: dict[Any, int], callers: tuple[Any, ...] = ()) -> list[int]:
        """Append the equations of a jaxpr whose inputs have slots already; returns the slots of its outputs."""
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            inputs = [self._read(atom, known) for atom in equation.invars]
            if name in INLINED:
                outputs = self._called(equation, inputs, (*callers, equation))
            elif _changes_nothing(equation):
                self._note(equation)
                outputs = inputs
            elif (body := _written(equation)) is not None:
                outputs = self._inline(body.jaxpr, self._known(body.jaxpr, body.consts, inputs), (*callers, equation))
            else:
                outputs = [self._slot() for _ in equation.outvars]
                self.equations.append((equation, inputs, outputs, callers))
            known.update(zip(equation.outvars, outputs, strict=True))
        return [self._read(atom, known) for atom in jaxpr.outvars]

    def _called(self, equation: Any, inputs: list[int], callers: tuple[Any, ...]) -> list[int]:
        """Inline the body of a call."""
        params = equation.params
        if equation.primitive.name == "custom_linear_solve":
            lengths, body = params["const_lengths"], params["jaxprs"].solve
            start, right = lengths.matvec + lengths.vecmat, sum(lengths)
            inputs = inputs[start : start + lengths.solve] + inputs[right:]
        else:
            body = params.get(INLINED[equation.primitive.name], params.get("call_jaxpr"))
        jaxpr, consts = (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, ())
        return self._inline(jaxpr, self._known(jaxpr, consts, inputs), callers)

    def _known(self, jaxpr: Any, consts: Sequence[Any], inputs: list[int]) -> dict[Any, int]:
        """The slots of a body's constants and inputs."""
        known = {v: self._slot(rules.data(c, v.aval.dtype)) for v, c in zip(jaxpr.constvars, consts, strict=True)}
        return known | dict(zip(jaxpr.invars, inputs, strict=True))

    def block(self, needed: Sequence[bool] | None = None) -> tuple[Block, list[bool]]:
        """The steps for the needed outputs, and which inputs they use."""
        mask = tuple(needed) if needed is not None else (True,) * len(self.outputs)
        if mask not in self.blocks:
            self.blocks[mask] = self._steps(mask)
        return self.blocks[mask]

    def used_inputs(self, needed: Sequence[bool]) -> list[bool]:
        """Which inputs the needed outputs depend on."""
        live = {slot for slot, use in zip(self.outputs, needed, strict=True) if use}
        self._live_equations(live)
        return [slot in live for slot in self.inputs]

    def _live_equations(self, live: set[int]) -> list[Entry]:
        """The equations that some live slot or an effect needs, in order; what they read becomes live."""
        kept = []
        for entry in reversed(self.equations):
            equation, inputs, outputs, _ = entry
            if not live.isdisjoint(outputs) or any(type(e).__name__ not in SILENT for e in equation.effects):
                live.update(inputs)
                kept.append(entry)
        return kept[::-1]

    def _steps(self, mask: tuple[bool, ...]) -> tuple[Block, list[bool]]:
        outputs = [slot for slot, use in zip(self.outputs, mask, strict=True) if use]
        live = set(outputs)
        steps = [self._step(entry, live) for entry in self._live_equations(live)]
        seen = {*outputs, *(place for place, value in enumerate(self.template) if value is not None)}
        for step in reversed(steps):
            step.drops = [slot for slot in {*step.inputs, *step.outputs} if slot not in seen]
            seen.update(step.inputs, step.outputs)
        return Block(self.template, self.inputs, steps, outputs), [slot in live for slot in self.inputs]

    def _step(self, entry: Entry, live: set[int]) -> Step:
        equation, _, outputs, _ = entry
        name = equation.primitive.name
        self._note(equation)
        try:
            if name in rules.LOCKSTEP:
                run = rules.LOCKSTEP[name](equation, self.flat, [slot in live for slot in outputs])
                return Step(entry, run, True)
            build = rules.RULES.get(name) or _of_data(equation)
            return Step(entry, build(equation), False)
        except balls.Unknown as error:
            return Step(entry, _raise(error), False)

    def flat(self, body: Any) -> Flat:
        """The body of a control structure, without calls; compiled once, however often it occurs."""
        jaxpr, consts = (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, ())
        key = (id(jaxpr), tuple(map(id, consts)))
        if key not in self.cache:
            self.cache[key] = body, Flat(jaxpr, consts, self.narrowed, self.cache)  # kept, or its id could be reused
        found: Flat = self.cache[key][1]
        return found

    def _note(self, equation: Any) -> None:
        """Remember a cast to fewer bits."""
        name = equation.primitive.name
        if name == "reduce_precision":
            bits = equation.params["exponent_bits"], equation.params["mantissa_bits"]
            if bits[1] < _digits(equation.invars[0].aval.dtype):
                self._narrow(_FORMATS.get(bits, f"float of {bits[0]} and {bits[1]} bits"), equation)
        elif equation.invars and rules.inexact(equation.invars[0]) and equation.outvars:
            wide, narrow = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
            if wide != narrow and rules.kind_of(narrow) in "fc" and _digits(narrow) < _digits(wide):
                self._narrow(str(narrow), equation)

    def _narrow(self, dtype: str, equation: Any) -> None:
        if dtype not in self.narrowed:
            self.narrowed[dtype] = source_line(equation)


_FORMATS = {(8, 23): "float32", (5, 10): "float16", (8, 7): "bfloat16"}


def _digits(dtype: Any) -> int:
    return int(jax.numpy.finfo(dtype).nmant)


def _changes_nothing(equation: Any) -> bool:
    """Whether the outputs are the inputs, as after a cast between floats."""
    if equation.primitive.name == "convert_element_type":
        return rules.kind(equation.invars[0]) == rules.kind(equation.outvars[0]) in ("f", "c")
    return rules.RULES.get(equation.primitive.name) is _identity


def _written(equation: Any) -> Any:
    """The jaxpr of a library's own primitive, from its `impl` in Python; None for JAX's, which are compiled."""
    primitive = equation.primitive
    impl = primitive.impl
    where = str(getattr(getattr(impl, "func", impl), "__module__", None) or "jax")
    if where.partition(".")[0] in ("jax", "jaxlib", "functools") or primitive.name in {**rules.RULES, **rules.LOCKSTEP}:
        return None
    with jax.enable_x64(True):
        return jax.make_jaxpr(lambda *given: impl(*given, **equation.params))(*(a.aval for a in equation.invars))


def _identity(equation: Any) -> rules.Run:
    return rules.passed


def identities(*names: str) -> None:
    """Enter primitives that return their inputs: they take no step."""
    for name in names:
        rules.RULES[name] = _identity


def _raise(error: Exception) -> rules.Run:
    def run(*_: Any) -> Any:
        raise type(error)(*error.args)

    return run


def _of_data(equation: Any) -> Callable[[Any], rules.Run]:
    """A primitive without a rule, of integers and booleans only, as JAX computes it.

    Raises:
        Unknown: it has floats, keys or effects.
    """
    atoms = [*equation.invars, *equation.outvars]
    kinds = {rules.kind(atom) for atom in atoms if hasattr(atom.aval, "dtype")}
    if not kinds <= set("iub") or equation.effects or "callback" in equation.primitive.name:
        raise balls.Unknown(f"there is no rule for the primitive {equation.primitive.name}")

    def run(*values: Any) -> Any:
        wide = any(atom.aval.dtype.itemsize == 8 for atom in atoms)
        with jax.enable_x64(wide):
            try:
                found = equation.primitive.bind(*map(jax.numpy.asarray, values), **equation.params)
            except NotImplementedError as error:  # it is only lowered for a device
                raise balls.Unknown(f"there is no rule for the primitive {equation.primitive.name}") from error
        return [np.asarray(each) for each in found] if equation.primitive.multiple_results else np.asarray(found)

    return lambda _: run
