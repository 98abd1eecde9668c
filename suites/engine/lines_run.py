"""What of a pair's functions no judged problem reached: lines, second turns of loops, and conditions that are false.

After its formula is upheld, both functions run again on the judged problems, until every line has run, and then in the
narrower dtypes that the pair declares: a line of theirs is judged by the claims in floats. Their files are the
author's: none of a framework, of another installed package or of gradgate. Of a file, the functions that were called
count, with all functions inside them; a function that nobody calls is seen by the line that would call it. Lines that
end in a `raise` are left out: they compute nothing. Of an `if` without `else`, no line shows that it was false, so it
is watched. One that asks `ctx.needs_input_grad` is left out: the claim `each_leaf_alone` calls it both ways.

A line of a JAX function ran if tracing ran it: the sides of `cond` and `while` are decisions (`exact.decisions`).
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from gradgate.references import loading, oracle
from gradgate.references.backends import precision
from gradgate.references.contract import Problem, Spec
from gradgate.suites.checks.base import build
from gradgate.suites.exact import programs, truth
from gradgate.suites.judging import frames
from gradgate.suites.judging.lines import Lines, Ranges
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted, Subject
from gradgate.suites.pairs import devices
from gradgate.suites.pairs.device_names import CUDA
from gradgate.suites.pairs.pair import Pair

Tried = Sequence[tuple[Spec, Mapping[str, Any]]]
"""Problems, with the options of the function."""


def of_pair(subject: Subject, tried: Tried, turns: Mapping[str, int]) -> tuple[Lines, ...]:
    """What of a pair's two functions ran on the problems of a claim.

    Args:
        turns: ``file.py:12`` -> the most turns of the loop of JAX at that line (`exact.decisions.turning`).

    Returns:
        A Lines for each of the author's files; none on a CUDA device, whose backward passes run in threads that Python
        does not trace, or if a function fails in floats.

    Cost: both functions once in floats, or one tracing for each shape and options in JAX; about twice that in Python,
    as every line is traced. It ends with the problem after which no line is missing, so with the first one if no
    function is in an author's file. In each narrower dtype, one problem for each choice of options.
    """
    pair = subject.function
    assert isinstance(pair, Pair)
    if devices.device_of(pair.devices) == CUDA:
        return ()
    watch = _Watch(_packages(pair))
    try:
        with _traced_anew(pair.where):
            for spec, options in _unlike(pair, tried):
                _run(subject, pair, oracle.in_widest(spec, pair.where, "float64"), options, watch)
                if not watch.missing():
                    break
            for problem, options in _narrower(subject, tried) if watch.missing() else ():
                with contextlib.suppress(Fault, Refuted, Inapplicable):  # the claims in floats say it
                    _run(subject, pair, problem, options, watch)
    except (Fault, Refuted, Inapplicable):
        return ()
    return tuple(one.summary(turns) for one in watch.files.values() if one.wanted)


def _packages(pair: Pair) -> frozenset[str]:
    """The packages that hold the two functions."""
    modules = [str(getattr(function, "__module__", "")) for function in pair.loaded.values()]
    return frozenset(name.partition(".")[0] for name in modules) - frames.FRAMEWORKS - {"gradgate"}


def _unlike(pair: Pair, tried: Tried) -> Iterator[tuple[Spec, Mapping[str, Any]]]:
    """The problems; one for each shape and options in JAX, where the numbers do not matter."""
    seen = set()
    for spec, options in tried:
        key = (spec.static() if pair.where == "jax" else spec).to_json() + repr(sorted(options.items()))
        if key not in seen:
            seen.add(key)
            yield spec, options


def _narrower(subject: Subject, tried: Tried) -> Iterator[tuple[Problem, Mapping[str, Any]]]:
    """A problem for each choice of options, in each dtype but the widest."""
    choices = {repr(sorted(options.items())): (spec, options) for spec, options in reversed(tried)}
    for dtype in subject.declared.dtypes:
        for spec, options in choices.values():
            if dtype != spec.widest:
                yield build(subject, dataclasses.replace(spec, dtype=dtype)), options


def _run(subject: Subject, pair: Pair, problem: Problem, options: Mapping[str, Any], watch: _Watch) -> None:
    """Run the function and the reference once."""
    plain = truth.evaluator("loss", (), pair.where).function
    for function in (functools.partial(pair, **options), plain):
        run = _in_jax if pair.where == "jax" else _in_torch
        with precision(pair.where, problem.dtype):
            subject.guard(problem, options, run, watch, function, problem)


def _in_jax(watch: _Watch, function: Callable[..., Any], problem: Any) -> None:
    with watch.watching():
        programs.traced(function, problem)


def _in_torch(watch: _Watch, function: Callable[..., Any], problem: Any) -> None:
    import torch

    with torch.compiler.set_stance("force_eager"), watch.watching():
        function(problem)


_ANEW = itertools.count(1)


@contextlib.contextmanager
def _traced_anew(framework: str) -> Iterator[None]:
    """The scope in which JAX traces every function again, once: what it has traced already, it would not run.

    The setting is one of those by which JAX tells its traces apart. It changes random numbers, which nobody sees here.
    """
    if framework != "jax":
        yield
        return
    import jax

    before = jax.config.values["jax_random_seed_offset"]
    jax.config.update("jax_random_seed_offset", before + next(_ANEW))
    try:
        yield
    finally:
        jax.config.update("jax_random_seed_offset", before)


@dataclass(frozen=True)
class _Compound:
    """A loop or an `if` of Python's, by the lines of its head and of its body."""

    head: range
    body: range


@dataclass(frozen=True)
class _Watched:
    """The statements of one function that are watched."""

    loops: tuple[_Compound, ...]
    branches: tuple[_Compound, ...]


@dataclass
class _File:
    """One of the author's files.

    Attributes:
        wanted: lines of the functions that were called.
        ran: those that ran.
        turns: the most turns of each loop that was reached.
        chosen: the ways in which each `if` without `else` went.
    """

    path: str
    text: bytes
    wanted: set[int] = field(default_factory=set)
    ran: set[int] = field(default_factory=set)
    turns: dict[_Compound, int] = field(default_factory=dict)
    chosen: dict[_Compound, set[bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree = ast.parse(self.text)
        self.loops = [_compound(node) for node in ast.walk(tree) if isinstance(node, (ast.For, ast.While))]
        self.branches = [
            _compound(node)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and not node.orelse and not _asks_what_is_needed(node.test)
        ]
        self._fruitless = {line for block in _blocks(tree) for line in block}

    def enter(self, code: CodeType) -> _Watched:
        """Count a function that is called; returns its loops and branches, without those on one line."""
        lines = _lines(code) - self._fruitless
        self.wanted |= lines

        def inside(every: Iterable[_Compound]) -> tuple[_Compound, ...]:
            return tuple(one for one in every if one.head and one.head[0] in lines)

        return _Watched(inside(self.loops), tuple(one for one in inside(self.branches) if one.body[0] in lines))

    @property
    def never_false(self) -> tuple[int, ...]:
        """First line of each `if` without `else` that was true every time."""
        return tuple(sorted(one.head[0] for one, ways in self.chosen.items() if ways == {True}))

    def summary(self, turns: Mapping[str, int]) -> Lines:
        """What ran, with the loops of JAX."""
        name = os.path.basename(self.path)
        loops = {loop.head[0]: most for loop, most in self.turns.items()}
        for place, most in turns.items():
            file, _, line = place.rpartition(":")
            if file == name and int(line) in self.wanted:
                loops[int(line)] = max(most, loops.get(int(line), 0))
        ran = self.wanted & self.ran
        few = tuple(sorted((line, most) for line, most in loops.items() if most < 2))
        digest = hashlib.sha256(self.text).hexdigest()
        ranges = _ranges(self.wanted, ran), _ranges(self.wanted, self.wanted - ran)
        return Lines(loading.shortest(Path(self.path)), digest, ranges[0], ranges[1], few, self.never_false)


class _Watch:
    """Notes which lines of the author's files run."""

    def __init__(self, packages: Collection[str]) -> None:
        self.files: dict[str, _File] = {}
        self._packages = frozenset(packages)
        self._foreign = set[str]()
        self._watched: dict[CodeType, _Watched | None] = {}

    def missing(self) -> bool:
        """Whether a line has not run, a loop has not turned twice, or a condition was never false."""
        return any(
            one.wanted - one.ran or any(most < 2 for most in one.turns.values()) or one.never_false
            for one in self.files.values()
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """The scope in which lines are noted. A debugger or a coverage tool of the same thread waits meanwhile."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename in self._foreign:  # nearly all calls: a code object takes longer to be found by
            return None
        try:
            watched = self._watched[code]
        except KeyError:
            watched = self._watched[code] = self._entered(frame)
        if watched is None:
            return None
        if isinstance(frame.f_trace, _Call):  # a generator goes on
            return frame.f_trace
        return _Call(self.files[code.co_filename], watched, code.co_firstlineno)

    def _entered(self, frame: FrameType) -> _Watched | None:
        """The loops and branches of a function that is called; None if it is none of the author's."""
        path = frame.f_code.co_filename
        if not frames.is_authors(frame, self._packages):
            self._foreign.add(path)
            return None
        if frame.f_code.co_name == "<module>":
            return None
        if path not in self.files:
            try:
                self.files[path] = _File(path, Path(path).read_bytes())
            except (OSError, SyntaxError, ValueError):  # it was made in place
                return None
        return self.files[path].enter(frame.f_code)


class _Call:
    """One call of a function, as Python's trace function of its frame."""

    __slots__ = ("_before", "_file", "_turns", "_watched")

    def __init__(self, file: _File, watched: _Watched, line: int) -> None:
        self._file, self._watched, self._before = file, watched, line
        self._turns = dict.fromkeys(watched.loops, 0)
        file.ran.add(line)

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":  # a condition that raises is neither true nor false
            self._before = 0
        if event == "return":
            self._left_head(0)
        if event != "line":
            return self
        line = frame.f_lineno
        self._file.ran.add(line)
        self._left_head(line)
        for loop in self._watched.loops:
            if line in loop.body:
                if self._before in loop.head:
                    self._turns[loop] += 1
                    self._file.turns[loop] = max(self._turns[loop], self._file.turns.get(loop, 0))
            elif line not in loop.head:
                self._turns[loop] = 0
        self._before = line
        return self

    def _left_head(self, line: int) -> None:
        """Note how each `if` went whose head ran last, by the line that follows; 0 for the end of the function."""
        for branch in self._watched.branches:
            again = len(branch.head) == 1 and line == self._before  # the next turn of a loop begins with it
            if self._before in branch.head and (again or line not in branch.head):
                self._file.chosen.setdefault(branch, set()).add(line in branch.body)


def _compound(node: ast.For | ast.While | ast.If) -> _Compound:
    return _Compound(
        range(node.lineno, node.body[0].lineno), range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    )


def _asks_what_is_needed(test: ast.expr) -> bool:
    """Whether a condition reads ``ctx.needs_input_grad``."""
    return any(isinstance(node, ast.Attribute) and node.attr == "needs_input_grad" for node in ast.walk(test))


def _lines(code: CodeType) -> set[int]:
    """The lines of a function and of the functions in it, without those that only begin one."""
    lines = {line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno}
    return lines.union(*(_lines(one) for one in code.co_consts if isinstance(one, CodeType)))


def _blocks(tree: ast.AST) -> Iterable[range]:
    """The blocks that end in a `raise`."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[-1], ast.Raise):
                yield range(block[0].lineno, (block[-1].end_lineno or 0) + 1)


def _ranges(every: Iterable[int], some: Collection[int]) -> Ranges:
    """Some of the lines as stretches; lines without code do not end one.

    >>> _ranges([1, 2, 4, 5], {1, 2, 4})
    ((1, 4),)
    """
    stretches = ((inside, list(lines)) for inside, lines in itertools.groupby(sorted(every), some.__contains__))
    return tuple((lines[0], lines[-1]) for inside, lines in stretches if inside)
