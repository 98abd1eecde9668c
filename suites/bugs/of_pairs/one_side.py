"""A generic operator: a pair whose gradient is 1 % off on one side of one decision, and right everywhere else.

A decision is an operation that chooses by comparing numbers: `where`, an extreme, a clamp, `abs`, `sign`, `relu` and
its gradient, a product with booleans, `cond`, and Python's `if`. The operator counts the decisions of the program that
computes the gradient, and changes what one of them gives on one side (`one_side_in_torch`, `one_side_in_jax`). The
outputs stay those of the unbroken function, so the bug is in the backward pass alone.

Which mutants there are is found by running each pair once (`found`), and kept in ``one_side.json``, because their
names must be known without a framework. ``python -m gradgate.suites.calibration.pairs --one-side`` writes that file.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gradgate.references.backends import precision
from gradgate.references.contract import Claim
from gradgate.references.oracle import in_widest
from gradgate.suites.bugs.of_pairs.mutant import PACKAGE, judged, unbroken
from gradgate.suites.judging.verdict import Task
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem

TABLE = Path(__file__).with_name("one_side.json")
FAMILY = "pairs"
"""What the selftest calls the class of these mutants, which have one class each."""
CLAIM = "gradient_exact"
AT_TIES = "its gradient differs at ties at most, and is an element of the generalised gradient there"
UNUSED = "this side is taken, and no gradient depends on what it gives: a change by 100 % changes none"
REASONS: dict[str, str] = {
    "pairs.jax.sequences_attending_abs0_below": "the sum of exponentials in jax.nn.logsumexp is never negative",
    "pairs.jax.tables_entropy_max0_above": "jax.nn.softmax compares -inf with the largest number; it is never above",
    "pairs.torch.norms_masked_clamp_min0_below": "a row without kept entries is zero, whatever it is divided by",
}
"""Name of a mutant -> why it is equivalent, where that is not found by judging it in other ways."""
TIE = "generalised gradient"
"""Part of what a verdict says of a difference at a tie."""
SHARE = 0.01
"""By how much one side is changed, relative to what it gives; if it gives zero, to what the other side gives."""


@dataclass(frozen=True)
class Side:
    """One side of a decision, where it is taken and what it gives.

    Attributes:
        taken: returns where it is taken, as booleans of the shape of the result.
        own: what it gives.
        other: what the other side gives.
    """

    name: str
    taken: Callable[[], Any]
    result: Any
    other: Any


@dataclass(frozen=True)
class Site:
    """One side of one decision of a program.

    Attributes:
        operation: the operation's short name.
        number: how many decisions of the same operation come before it.
        side: such as ``true`` or ``above``.
    """

    operation: str
    number: int
    side: str

    def __str__(self) -> str:
        """Such as ``where0_true``."""
        return f"{self.operation}{self.number}_{self.side}"


def choice(which: Any, yes: Any, no: Any) -> tuple[Side, ...]:
    """The sides of a choice by booleans."""
    return Side("true", lambda: which, yes, no), Side("false", lambda: ~which, no, yes)


def compared(left: Any, right: Any, above: Any, below: Any) -> tuple[Side, ...]:
    """The sides of a comparison of two numbers, and what each gives."""
    return Side("above", lambda: left > right, above, below), Side("below", lambda: left < right, below, above)


def altered(xp: Any, result: Any, side: Side, zero: Callable[[Any], bool], share: float) -> Any:
    """The result, changed by a share on one side.

    Args:
        xp: has `where`.
        zero: whether a value is zero everywhere in this program.
    """
    change = share * (side.other if zero(side.result) else side.result)
    return xp.where(side.taken(), result + change, result)


@dataclass(frozen=True)
class OneSide:
    """A mutant of a pair; the selftest judges it as it judges a `gradgate.suites.bugs.mutant.Mutant`.

    Attributes:
        pair: ``module:name`` of the pair, in this package.
        equivalent: why no gradient can differ; "" for a bug.
    """

    pair: str
    site: Site
    equivalent: str = ""

    source: str = "the generic operator one_side"
    family: str = FAMILY
    kill: tuple[str, ...] = (CLAIM,)
    also: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    verdict: str = "refuted"
    profile: str = "cpu"
    planted: float = 0.0

    @property
    def name(self) -> str:
        """``pairs.framework.module_pair_site``, unique."""
        return f"{FAMILY}.{self.pair.replace('_', '.', 1).replace(':', '_')}_{self.site}"

    @property
    def story(self) -> str:
        """The mechanism in a sentence."""
        where = f"number {self.site.number + 1} of {self.site.operation} gives in the backward pass"
        return f"what {where} is {SHARE:.0%} off where it goes {self.site.side}"

    @property
    def framework(self) -> str:
        """``jax`` or ``torch``."""
        return self.pair.partition("_")[0]

    @property
    def method(self) -> str:
        """The pair's name."""
        return self.pair.partition(":")[2]

    @property
    def formula(self) -> bool:
        """Always: sixty digits must refute it."""
        return True

    @property
    def target(self) -> str:
        """The name by which `gradgate verify` judges it."""
        return f"{PACKAGE}.corpus:{self.name}"

    def task(self, claim: str) -> Task:
        """The claim, as a worker judges it."""
        called = self.name.replace(".", "_")
        return Task(called, self.name, self.framework, claim, self.target, check=claim, origin=self.target)

    def broken(self, share: float = SHARE) -> Pair:
        """The pair with the bug; its reference is unchanged."""
        function = unbroken(self.pair).loaded["function"]
        return self.of(_operator(self.framework).broken(function, self.site, share))

    def of(self, function: Any) -> Pair:
        """The pair with another function, under the mutant's name."""
        made = dataclasses.replace(unbroken(self.pair), function=function, name=self.name.replace(".", "_"))
        return dataclasses.replace(made, framework=self.framework).found_at(self.target)


def sites(pair: str) -> list[Site]:
    """The sides of all decisions on which the gradient of a pair depends, at its usual sizes."""
    plain = unbroken(pair)
    operator = _operator(plain.where)
    seen: list[Site] = []
    _run(plain, operator.recording(plain.loaded["function"], seen))
    return [site for site in seen if _matters(plain, operator, site)]


def equivalence(mutant: OneSide) -> str:
    """Why no gradient can differ; "" for a bug, and for a mutant of which this cannot be shown.

    Cost: up to three verdicts on one claim of the pair, half a second each.
    """
    verdict = judged(mutant.broken(), CLAIM)
    if verdict.verdict != "upheld":
        return ""
    if mutant.name in REASONS:
        return REASONS[mutant.name]
    if any(TIE in one for one in verdict.decisions.get("apart", ())):
        return AT_TIES
    plain = unbroken(mutant.pair)
    reaching = _operator(mutant.framework).reaching(plain.loaded["function"], mutant.site)
    if judged(mutant.of(reaching), CLAIM).verdict != "refuted":
        return ""
    if judged(mutant.broken(1.0), CLAIM).verdict == "upheld":
        return UNUSED
    return ""


def _run(pair: Pair, function: Any) -> Mapping[str, Any]:
    made = dataclasses.replace(pair, function=function, framework=pair.where)
    problem = in_widest(pair.spec(), pair.where, "float64")
    with precision(pair.where, pair.spec.widest):
        grads: Mapping[str, Any] = made(cast(PairProblem, problem))[1]
    return grads


def _matters(pair: Pair, operator: Any, site: Site) -> bool:
    """Whether a gradient is NaN if the whole result of the decision is: else it only moves other decisions."""
    if site.operation == "item":
        return True
    grads = _run(pair, operator.poisoned(pair.loaded["function"], site))
    return any(bool((leaf != leaf).any()) for leaf in grads.values())


OPERATORS = {"jax": "one_side_in_jax", "torch": "one_side_in_torch"}
"""Framework -> the module that changes what an operation gives."""


def _operator(framework: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{OPERATORS[framework]}")


@functools.cache
def mutants() -> Mapping[str, OneSide]:
    """Name -> mutant, as the table has them; no framework is imported."""
    listed = [
        OneSide(pair, Site(operation, number, side), reason)
        for pair, sites in table().items()
        for operation, number, side, reason in sites
    ]
    made = {mutant.name: mutant for mutant in listed}
    assert len(made) == len(listed), "two mutants have one name"
    return made


def table() -> dict[str, list[Any]]:
    """Pair -> [operation, number, side, why it is equivalent] of its mutants."""
    rows: dict[str, list[Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
    return rows


def written(rows: Mapping[str, Sequence[Any]]) -> str:
    """The table as JSON, a line for each mutant."""
    parts = []
    for pair, sites in rows.items():
        lines = ",\n  ".join(json.dumps(site) for site in sites)
        parts.append(f" {json.dumps(pair)}: [\n  {lines}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"
