"""Further problems of a pair, whose inputs take sides of decisions that none of its problems took.

The search changes the inputs of one problem (`pairs.unseen`). First come changes that are tried for every pair; then,
for each decision that still went one way only, changes on which its margin, left − right, changes its sign: the secant
method finds them, because sixty digits give the margin at every input. What is found is judged by `checks.exact`, which
says when a difference there is no fault.

A side that was not found may be one that no input has. One evaluation with wide balls as inputs proves that for some
(`exact.wide`), at the shapes of a few problems, within a range.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from gradgate.references import oracle
from gradgate.references.contract import Claim, Problem, Spec
from gradgate.suites.exact import balls, decisions, tiles, truth, wide
from gradgate.suites.exact.decisions import ABOVE, BELOW, TIED, Decision, Decisions, Place
from gradgate.suites.exact.programs import Evaluator, Recordings
from gradgate.suites.exact.tiles import Tiles
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import finite
from gradgate.suites.pairs import expressions, unseen
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairSpec

BASES = 4
"""Problems, of the smallest that were judged, whose sides count as seen, and one of which is changed."""
FEWEST = 4
"""The first of these with so many numbers is changed, else the last."""
TRIES = 60
"""Most changed inputs at which the two programs are evaluated for one pair."""
GUIDED = 24
"""How many of these the search for single sides may use."""
SMOOTH_SIDES = ("abs", "sign")
"""Operations whose sides are searched for, and not listed: most are of numbers that are never negative."""
EVERY = 64
"""Up to so many changes of two inputs at once, all are tried; last, and for decisions that still went one way only."""
SAMPLE = 24
"""How many of them are tried if there are more: those of two of three inputs are three times as many."""
STEPS = 4
"""Steps of the secant method towards one side."""
OPERATIONS = 20
"""How many times the operations of the unchanged problem a program may take at changed inputs: a loop may not end."""
SHAPES = 2
"""At the shapes of so many of these problems a side is proved to be out of reach, if it can be."""
RADIUS = 1e8
"""Largest absolute numbers of the inputs for which a side is proved to be out of reach: the largest scale tried. For
smaller ones, `x > 300` would be out of reach."""
Tried = Sequence[tuple[Spec, Mapping[str, Any]]]
"""Problems, with the options of the function."""


@dataclass
class Search:
    """The decisions of a pair's function and of its reference, and what was tried for sides that no problem took.

    Attributes:
        found: the decisions on problems that were judged.
        tries: number of changed inputs at which the programs were evaluated.
        of_two: how many of these had two inputs changed at once, and how many such changes there are.
        apart: regime -> why the problem could not be judged, or in which way the programs differ there.
        tiles: how the masks, branches, loops and blocks of the function's kernels went on all problems.
        bases: the problems at whose shapes a side may be proved to be out of reach.
    """

    pair: Pair
    base: PairSpec
    options: Mapping[str, Any]
    programs: tuple[Evaluator, ...]
    tiles: Callable[[], Tiles]
    found: Decisions = field(default_factory=dict)
    tries: int = 0
    of_two: tuple[int, int] = (0, 0)
    apart: dict[str, str] = field(default_factory=dict)
    bases: Sequence[PairSpec] = ()
    _everywhere: wide.Sides | None = None
    _operations: int = 0
    _recordings: dict[PairSpec, tuple[Recordings, ...]] = field(default_factory=dict)
    _unchanged: Decisions = field(default_factory=dict)
    _latest: Decisions = field(default_factory=dict)
    _regime: str = ""
    _unjudged: dict[tuple[Place, int], str] = field(default_factory=dict)

    def problems(self) -> Iterator[PairSpec]:
        """Specs to judge, one at a time: call `judged` after each that was judged.

        Cost: two evaluations in sixty digits for each of at most TRIES + EVERY inputs.
        """
        for leaf in unseen.indices(self.pair):  # integers are compared without balls, so no decision shows these
            spec = self._taken(unseen.regime("equal", leaf=leaf))
            if self._regime not in self.apart:
                yield spec
        for name in self.pair.further_regimes:
            if self.tries >= TRIES - GUIDED:
                break
            if self.found or " 0" in name:  # a program without decisions may divide by zero
                spec = self._taken(name)
                tiny = name == unseen.PREFIX + unseen.TINY and name not in self.apart  # zeros are on the same sides
                if tiny or self._news():
                    yield spec
        for place, decision in list(self.found.items()):
            choice = decisions.short_name(place[0]) in decisions.CHOICES  # it has no margin
            for _, sides in () if choice else decisions.missing(place, decision):
                if sides != {TIED}:
                    yield from self._towards(place, sides)
            constant = place[2] or decision.left
            if constant and TIED not in decision.sides:
                yield from self._first_at(place, constant)
        names = unseen.of_two(self.pair)
        for name in names if len(names) <= EVERY else names[:SAMPLE]:
            if not self._gaps():
                return
            self.of_two = self.of_two[0] + 1, len(names)
            spec = self._taken(name)
            if self._news():
                yield spec

    def _news(self) -> bool:
        """Whether a decision of the latest Spec took a side that it took on no problem."""
        return any(side not in self._seen(place) for place, one in self._latest.items() for side in one.sides)

    def _gaps(self) -> bool:
        """Whether a decision has gone one way only that other inputs may change, as far as is known.

        Choices are included, because their booleans may join two comparisons. Where the program compares no values,
        they come from shapes and from indices, which no input changes.
        """
        names = {place: decisions.short_name(place[0]) for place in self.found}
        compared = any(name not in (*decisions.CHOICES, *SMOOTH_SIDES) for name in names.values())
        return compared and any(
            (never := decisions.missing(place, decision)) and not self._proved(place, never)
            for place, decision in self.found.items()
            if place[1] and names[place] not in SMOOTH_SIDES
        )

    def judged(self, apart: str = "") -> None:
        """Count the sides of the latest Spec as seen.

        Args:
            apart: in which way the programs differ there without a fault.
        """
        if apart:
            self.apart[self._regime] = apart
        for place, decision in self._latest.items():
            self.found.setdefault(place, Decision()).merge(decision)

    def rejected(self, why: str) -> None:
        """Note why nothing can be said about the latest Spec."""
        self.apart[self._regime] = why
        for place, decision in self._latest.items():
            for side in decision.sides:
                self._unjudged.setdefault((place, side), self._regime)

    def summary(self) -> dict[str, Any]:
        """How many decisions went both ways, and which did not, in words; {} if there are none.

        Those of kernels that depend on shapes are among them. No search is made for their other ways.
        """
        own = {
            place: one
            for place, one in self.found.items()
            if place[1] and decisions.short_name(place[0]) not in decisions.CHOICES
        }
        gaps, proved, lines = 0, 0, dict[str, str]()
        counts: dict[str, tuple[int, int]] = {}
        for place, one in own.items():
            never = decisions.missing(place, one)
            line = place[1]
            half = bool(never) and decisions.short_name(place[0]) not in SMOOTH_SIDES
            both, every = counts.get(line, (0, 0))
            counts[line] = both + (not half), every + 1
            if half:
                gaps += 1
                out = self._proved(place, never)
                proved += out
                why = f"cannot be reached: {self._within()}" if out else self._why(place, never)
                lines.setdefault(line, f"{decisions.worded(place, never)} at {line} ({why})")
        sides = [_sides(place, one) for place, one in own.items()]
        shapes = self.tiles()
        for (kind, line), ways in shapes.items():
            if unseen_ways := tiles.missing(kind, ways):
                gaps += 1
                lines[f"{kind} {line}"] = tiles.worded(kind, line, unseen_ways)
        if not own and not shapes:
            return {}
        return {
            "decisions": len(own) + len(shapes),
            "both": len(own) + len(shapes) - gaps,
            **({"proved": proved} if proved else {}),
            "never": list(lines.values()),
            "lines": {line: list(pair) for line, pair in counts.items()},
            **({"sides": sides} if sides else {}),
            **({"kernels": [tiles.counted(*place, ways) for place, ways in shapes.items()]} if shapes else {}),
            "tries": self.tries,
            "apart": [f"{name.removeprefix(unseen.PREFIX)}: {why}" for name, why in self.apart.items()],
        }

    def _why(self, place: Place, never: decisions.Missing) -> str:
        """Why a decision never went one way, and how near it came."""
        for _, sides in never:
            for side in sides:
                if (place, side) in self._unjudged:
                    name = self._unjudged[place, side]
                    return f"not judged at {name.removeprefix(unseen.PREFIX)}: {self.apart[name]}"
        nearest = min(self.found[place].nearest.values())
        tried, every = self.of_two
        two = f"; {tried} of {every} changes of two inputs among them" if tried else ""
        return f"not found in {self.tries} tries; nearest {nearest:.3g}{two}"

    def _proved(self, place: Place, never: decisions.Missing) -> bool:
        """Whether it is proved that a decision takes none of these sides, for inputs up to RADIUS."""
        if self._everywhere is None:
            self._everywhere = self._sides_everywhere()
        taken = wide.reachable(self._everywhere, place)
        return taken is not None and not any(taken & sides for _, sides in never)

    def _sides_everywhere(self) -> wide.Sides:
        """The sides that decisions may take for all inputs of some of the bases' shapes; {} if nothing is known."""
        made: wide.Sides = {}
        pair = self.pair
        if pair.random or pair.against_itself or any(draw.kind == "given" for draw in pair.leaves.values()):
            return {}
        try:
            for spec, program in itertools.product(self.bases[-SHAPES:], self.programs):
                wide.add(made, wide.sides(program, _problem(spec, pair), functools.partial(_range, spec)))
        except Exception:  # whatever it is, nothing is proved
            return {}
        return made

    def _within(self) -> str:
        """For which inputs something is proved."""
        sizes = [", ".join(f"{name}={size}" for name, size in spec.fields.items()) for spec in self.bases[-SHAPES:]]
        shapes = " and ".join(dict.fromkeys(sizes)) or "its one shape"
        data = "" if all(draw.floating for draw in self.pair.leaves.values()) else ", and the integers drawn"
        return f"proved for all inputs that the draws allow, up to {RADIUS:g}, at {shapes}{data}"

    def start(self, specs: Sequence[PairSpec]) -> None:
        """Enter the sides of problems that were judged, among them the base."""
        for spec in specs:
            try:
                self._latest, count = self._decided(spec, 0)
            except (balls.Undecided, balls.Unknown):  # so is none of its decisions
                continue
            self._operations = max(self._operations, count)
            self.judged()
            if spec == self.base:
                self._unchanged = self._latest

    def _seen(self, place: Place) -> set[int]:
        return self.found[place].sides if place in self.found else set()

    def _taken(self, name: str) -> PairSpec:
        """The Spec under a regime. Its decisions are then the latest ones: none if the programs cannot be evaluated."""
        spec, self._regime = dataclasses.replace(self.base, regime=name), name
        self.tries += 1
        try:
            self._latest, _ = self._decided(spec, OPERATIONS * self._operations)
        except Exception as error:  # foreign code, at inputs that nobody has promised
            self._latest = {}
            first = next(iter(str(error).splitlines()), "")
            self.apart[name] = f"{type(error).__name__}: {first[:200]}"
        return spec

    def _decided(self, spec: PairSpec, most: int) -> tuple[Decisions, int]:
        found: Decisions = {}
        count = 0
        alike = dataclasses.replace(cast("PairSpec", spec.static()), cotangents=spec.cotangents)  # but for the numbers
        every = self._recordings.setdefault(alike, tuple({} for _ in self.programs))
        problem = None
        for program, recordings in zip(self.programs, every, strict=True):
            problem = problem or _problem(spec, self.pair)
            run = functools.partial(_run, program, problem, recordings)
            called = not recordings.get(60)  # then it may write over the numbers
            count = max(count, decisions.recorded(run, found, most))
            problem = None if called else problem
        return decisions.folded(found, self.found), count

    def _towards(self, place: Place, sides: frozenset[int]) -> Iterator[PairSpec]:
        """The Spec at which a decision takes one of some sides, by the secant method on its margin; none if not found.

        Let m(t) be the largest left − right that occurs if the side above is sought, else the smallest, and t a number
        that is added to an input, or a factor. The line through two points of m meets zero at the next t, which is
        moved on by a tenth, so that it ends beyond zero.
        """
        sign = ABOVE if ABOVE in sides else BELOW
        for leaf in self._leaves():
            for change, first, second in (("plus", 0.0, 1.0), ("times", 1.0, 2.0)):
                one = (first, _margin(self._unchanged.get(place, self.found[place]), sign))
                t = second
                for _ in range(STEPS):
                    if self.tries >= TRIES:
                        return
                    spec = self._taken(unseen.regime(change, t, leaf))
                    decision = self._latest.get(place)
                    if decision is None:
                        break
                    if decision.sides & sides:
                        yield spec
                        return
                    two = (t, _margin(decision, sign))
                    if one[1] == two[1]:
                        break
                    t = two[0] - 1.1 * two[1] * (two[0] - one[0]) / (two[1] - one[1])
                    one = two
                    if not abs(t) < 1e12:
                        break

    def _first_at(self, place: Place, value: float) -> Iterator[PairSpec]:
        """The Spec at which a number of an input is exactly what the program compares with."""
        for leaf in self._leaves():
            if self.tries < TRIES and abs(value) < 1e12:
                spec = self._taken(unseen.regime("first", value, leaf))
                if TIED in self._latest.get(place, Decision()).sides:
                    yield spec
                    return

    def _leaves(self) -> tuple[str, ...]:
        leaves = unseen.free(self.pair)
        return leaves if len(leaves) > 1 else ("",) * len(leaves)


def search(subject: Subject, claim: Claim, tried: Tried) -> Search | None:
    """The search for one claim; None for claims other than ``gradient_exact`` of a pair, and where there is no base.

    Nothing is searched for a pair that declares an error, because an error is declared for inputs as they are drawn.
    """
    pair = subject.function
    if claim.name != "gradient_exact" or not isinstance(pair, Pair) or pair.approximates is not None:
        return None
    given = [(spec, options) for spec, options in tried if isinstance(spec, PairSpec)]
    exact = [one for one in given if one[0].work() <= truth.AFFORDABLE and pair.numbers(one[0].fields) > 1]
    exact.sort(key=lambda one: one[0].work())
    plain = [one for one in exact if not one[0].regime][:BASES]
    if not plain:
        return None
    base, options = next((one for one in plain if _enough(pair, one[0])), plain[-1])
    own = subject.program("exact", options, lambda: Evaluator(lambda problem: pair(problem, **options)))
    programs = own, truth.evaluator("loss", (), pair.where)

    def tiles_of() -> Tiles:
        return tiles.united(each.tiles for each in subject.programs("exact"))

    made = Search(pair, base, options, programs, tiles_of, bases=[spec for spec, given in plain if given == options])
    special = {one[0].regime: one[0] for one in reversed(exact) if one[0].regime and one[1] == options}
    made.start([*made.bases, *special.values()])
    return made


def _range(spec: PairSpec, tree: str, path: str) -> wide.Range | None:
    """The least and the largest number of an input or cotangent, up to RADIUS where its draw declares nothing."""
    draw = spec.pair.leaves.get(path) if tree != "cotangents" else None
    if draw is None:  # a cotangent, or a parameter of a module
        return -RADIUS, RADIUS
    if draw.kind == "constant":
        return None
    if draw.kind in ("uniform", "between"):
        low, high = (float(expressions.evaluate(end, spec.sizes)) for end in (draw.low, draw.high))
        return low, high
    return {"simplex": (0.0, 1.0), "positive": (0.0, RADIUS)}.get(draw.kind, (-RADIUS, RADIUS))


def _sides(place: Place, decision: Decision) -> dict[str, Any]:
    """Which sides a decision took, and the smallest |left − right| of each; None for a side that it never took."""
    nearest = {side: finite(apart) for side, apart in decision.nearest.items()}
    return {
        "at": place[1],
        "what": decisions.named(place),
        "below": nearest.get(BELOW),
        "tied": TIED in decision.sides,
        "above": nearest.get(ABOVE),
    }


def _enough(pair: Pair, spec: PairSpec) -> bool:
    """Whether enough numbers may be changed, and each input of integers that has a dim has two to be made equal."""
    numbers = sum(pair.leaves[path].count(spec.sizes) for path in unseen.free(pair))
    integers = [pair.leaves[path] for path in unseen.indices(pair)]
    return numbers >= FEWEST and all(
        draw.count(spec.sizes) > 1 for draw in integers if not all(map(str.isdigit, draw.dims.split()))
    )


def _run(program: Evaluator, problem: Problem, recordings: Recordings | None, watch: Any) -> None:
    with balls.digits(60):
        program(problem, 60, watch=watch, recordings=recordings)


def _problem(spec: PairSpec, pair: Pair) -> Problem:
    return oracle.in_widest(spec, pair.where, "float64")


def _margin(decision: Decision, sign: int) -> float:
    """The left − right that is nearest to changing its sign to `sign`."""
    known = decision.nearest.get(-sign, decision.nearest.get(TIED, 0.0))
    return -sign * known
