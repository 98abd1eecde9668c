"""Every decision of every reference method goes both ways on a problem that is judged, or is listed with the reason.

A method and plain backprop are evaluated on problems of `gradient_exact`. As long as a decision went one way only, the
parameters are changed as for a pair (`pairs.unseen`): all of them, then each alone. There, too, the values must agree.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.backends import named_leaves, precision, to_backend, to_numpy, tree_map
from gradgate.references.contract import Method, Problem, Spec, installed
from gradgate.references.oracle import in_widest
from gradgate.suites.checks import Case
from gradgate.suites.engine import sides, strategies
from gradgate.suites.exact import balls, decisions, truth
from gradgate.suites.exact.agreement import NotFinite, compare
from gradgate.suites.exact.decisions import Decision, Decisions
from gradgate.suites.exact.programs import Evaluator
from gradgate.suites.judging.subject import Subject
from gradgate.suites.pairs import unseen

CELLS = 4
"""Problems of one method, spread from the smallest to the largest, with different options."""
POWER = (
    "the rule of b ** e asks for b ≥ 0 and e = 0: here b = 2 + sin y is at least 1, and e = cos y is never 0 exactly"
)
DECAY = (
    "the rule of b ** t asks for b ≥ 0 and t = 0: b is Adam's momentum or decay, between 0 and 1, and t counts from 1"
)
POSITIONS = "whole numbers over two, from the width alone: no parameter enters"
ROUNDED = "it compares what rounding to the grid leaves, which is nothing in exact arithmetic"
SOUND = "whether a step can be taken back; the grid is chosen for the numbers of this run, so it can"
SATURATED = "the derivative of tanh is 0 in floats far out, and never in exact arithmetic"
UNREACHED: dict[tuple[str, str], dict[str, str]] = {
    ("bilevel", "jax"): {
        "models.py: `… == 0` true": POWER,
        "buffered.py: `max with …` below": ROUNDED,
        "buffered.py: `… ≤ …` false": SOUND,
    },
    ("bilevel", "torch"): {
        "methods.py: `… ≥ 0` false": POWER,
        "methods.py: `… == 0` true": POWER,
        "gradient.py: `… ≥ 0` false": POWER,
        "gradient.py: `… == 0` true": POWER,
        "models.py: `… ≥ 0` false": POWER,
        "models.py: `… == 0` true": POWER,
        "autograd.py: `… ≥ 0` false": POWER,
        "autograd.py: `… == 0` true": POWER,
        "remat.py: `… ≥ 0` false": POWER,
        "remat.py: `… == 0` true": POWER,
        "buffered.py: `maximum with …` below": ROUNDED,
        "buffered.py: `… ≤ …` false": SOUND,
        "optimisers.py: `… ≥ 0` false": DECAY,
        "optimisers.py: `… == 0` true": DECAY,
    },
    ("invertible", "jax"): {"layers.py: `… == 0` true": SATURATED},
    ("performer", "jax"): {"rowwise.py: `floor with …` above": POSITIONS},
    ("performer", "torch"): {"rowwise.py: `floor with …` above": POSITIONS},
}
"""Class and framework -> ``file: what never happened`` -> why. In PyTorch,
a backward pass of the framework has the line of its call."""
UNJUDGED = {
    "invertible:projected_forward": "an estimate: it equals the gradient only on average, so its formula is not judged",
}
"""Method -> why nothing is said of its decisions."""


Cell = tuple[Spec, dict[str, Any]]
"""A problem, and the options of the method."""


class Reached:
    """The decisions of one method and of plain backprop, on problems where the two agree."""

    def __init__(self, method: Method) -> None:
        self.method, self.claim = method, method.claim("gradient_exact")
        self.subject = Subject.load(method)
        self.taken: Decisions = {}
        self.apart: list[str] = []

    def gaps(self) -> dict[str, str]:
        """``file: what never happened`` -> the line."""
        gaps = {}
        for place, decision in self._folded().items():
            line, name = place[1], decisions.short_name(place[0])
            if (
                line
                and not line.startswith(Path(__file__).name)
                and name not in (*decisions.CHOICES, *sides.SMOOTH_SIDES)
            ):
                never = decisions.missing(place, decision)
                if never:
                    gaps[f"{line.rpartition(':')[0] or line}: {decisions.worded(place, never)}"] = line
        return gaps

    def _folded(self) -> Decisions:
        """The decisions; a comparison at one line with many right operands has no constant there."""
        rights = collections.Counter(place[:2] for place in self.taken)
        folded: Decisions = {}
        for place, decision in self.taken.items():
            operation, line, right = place
            folded.setdefault((operation, line, right if rights[place[:2]] < 3 else None), Decision()).merge(decision)
        return folded

    def search(self, helpful: list[tuple[str, int]]) -> None:
        """Judge some problems; then all others, and then changed ones, while there are gaps that the table lacks.

        Args:
            helpful: what closed a gap of another method of the class is tried first, and new ones are added.
        """
        cells = list(self.cells())
        usual = sorted({round(n * (len(cells) - 1) / (CELLS - 1)) for n in range(CELLS)})
        for at in usual:
            self.judge("", *cells[at])
        for name, at in dict.fromkeys([*(one for one in helpful if one[1] < len(cells)), *self._further(cells, usual)]):
            before = self.gaps().keys() - UNREACHED.get((self.method.family, self.method.framework), {}).keys()
            if not before:
                return
            self.judge(name, *cells[at])
            if before - self.gaps().keys() and (name, at) not in helpful:
                helpful.append((name, at))

    def _further(self, cells: list[Cell], usual: list[int]) -> Iterator[tuple[str, int]]:
        """Change and place of a problem: first the others as they are, then the smallest and the largest, changed."""
        yield from (("", at) for at in range(len(cells)) if at not in usual)
        for at in (0, len(cells) - 1):
            leaves = named_leaves(in_widest(cells[at][0], self.method.framework, "float64").params)
            yield from (
                (f"{change} in {leaf}" if leaf else change, at) for leaf in ("", *leaves) for change in unseen.USUAL
            )

    def cells(self) -> Iterator[Cell]:
        """Problems and options of the claim."""
        for spec, picked in strategies.cells(registry.family(self.method.family), self.method, self.claim.where, 0):
            yield spec, picked | dict(self.claim.settings.get("options", {}))

    def judge(self, name: str, spec: Spec, options: Mapping[str, Any]) -> None:
        """Evaluate both programs; their decisions count if the values agree, or where none are claimed to."""
        case = Case(self.subject, self.claim, spec, dict(options))
        loss, of_loss = case.claimed
        framework = self.method.framework
        plain = truth.evaluator(loss, tuple(sorted(of_loss.items())), framework)
        own = self.subject.program(
            "exact", options, lambda: Evaluator(lambda problem: self.subject.function(problem, **options))
        )
        now: Decisions = {}
        values = []
        for program in (own, plain):

            def run(watch: Any, program: Evaluator = program) -> None:
                with balls.digits(60):
                    problem = in_widest(spec, framework, "float64")
                    values.append(program(changed(problem, name) if name else problem, 60, watch=watch).values)

            try:
                decisions.recorded(run, now)
            except (balls.Undecided, balls.Unknown):  # such a problem is not judged
                return
            except Exception:  # nobody promised anything at changed parameters
                if not name:
                    raise
                return
        if self.claim.expected == "upheld":
            try:
                with balls.digits(60):
                    agreement = compare(*values)
            except NotFinite:
                return
            if agreement.open:
                return
            if agreement.wrong:
                self.apart.append(f"{name}: {agreement.leaf}")
                return
        for place, decision in decisions.folded(now, self.taken).items():
            self.taken.setdefault(place, Decision()).merge(decision)


def changed(problem: Problem, name: str) -> Problem:
    """The Problem with changed parameters, as the name of a regime says (`pairs.unseen`)."""
    change, value, only = unseen._parts(name)
    places = {id(leaf): path for path, leaf in named_leaves(problem.params).items()}

    def one(leaf: Any) -> Any:
        if only not in ("", places[id(leaf)]):
            return leaf
        array = to_numpy(leaf)
        return to_backend(problem.backend, unseen.CHANGES[change](array, value).astype(array.dtype), problem.dtype)

    with precision(problem.backend, problem.dtype):
        return problem.with_params(tree_map(one, problem.params))


def decided(family: str, framework: str) -> dict[str, Reached]:
    """The methods of a class, searched."""
    methods: dict[str, Reached] = {}
    helpful: list[tuple[str, int]] = []
    for method in registry.methods(family, None, framework):
        if f"{family}:{method.name}" not in UNJUDGED:
            one = methods[method.name] = Reached(method)
            one.search(helpful)
    return methods


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("family", registry.families())
def test_every_decision_goes_both_ways_or_is_listed(family: str, framework: str) -> None:
    """A decision of the methods that never went one way stands in the table, and every line of the table is needed."""
    if not installed(framework):
        pytest.skip(f"{framework} is not installed")
    methods = decided(family, framework)
    gaps = {gap: line for one in methods.values() for gap, line in one.gaps().items()}
    assert {name: one.apart for name, one in methods.items() if one.apart} == {}
    listed = UNREACHED.get((family, framework), {})
    assert gaps.keys() - listed.keys() == set(), gaps
    assert listed.keys() - gaps.keys() == set(), "these go both ways now: take them out of the table"


GATED = {
    "torch": """
def gated(problem):
    loss, grads = good(problem)
    right = loss * loss > -1
    return torch.where(right, loss, 2 * loss), grads
""",
    "jax": """
def gated(problem):
    loss, grads = good(problem)
    right = loss * loss > -1
    return jax.numpy.where(right, loss, 2 * loss), grads
""",
}


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_decision_with_one_way_is_a_gap(framework: str, plugin: Callable[..., str]) -> None:
    """A square is above −1: the other side is a gap, as it stands in no table. Without the comparison there is none."""
    file = plugin(GATED[framework], framework)
    for name, gaps in (("gated", ["mine.py: `… > -1` false"]), ("good", [])):
        one = Reached(registry.plugged_in(f"{file}:{name}", "chain", framework))
        one.judge("", *next(one.cells()))
        assert [list(one.gaps()), one.apart] == [gaps, []]


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_wrong_gradient_counts_for_nothing(framework: str, plugin: Callable[..., str]) -> None:
    """Where the values differ, the sides are not judged, and the test above fails with the problem."""
    scaled = GATED[framework].replace("return", "loss = 1.01 * loss\n    return")
    one = Reached(registry.plugged_in(f"{plugin(scaled, framework)}:gated", "chain", framework))
    one.judge("", *next(one.cells()))
    assert one.apart
    assert not one.taken
