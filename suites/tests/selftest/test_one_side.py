"""Mutants behind one decision: there are many, all of them are refuted, and the operator changes nothing else."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.bugs.of_pairs import mutant, one_side
from gradgate.suites.bugs.of_pairs.one_side import OneSide
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.selftest import judging, table

BUGS = [one for one in one_side.mutants().values() if not one.equivalent]
EQUIVALENT = [one for one in one_side.mutants().values() if one.equivalent]


def sample(framework: str, listed: list[OneSide], count: int) -> list[OneSide]:
    """Some mutants, the same in every run; ``gradgate selftest --family pairs`` judges all."""
    return random.Random(20264).sample([one for one in listed if one.framework == framework], count)


def judged(one: OneSide) -> str:
    pytest.importorskip(one.framework)
    return mutant.judged(one.broken(), one_side.CLAIM).verdict


def test_there_are_two_hundred_in_twenty_pairs_of_both_frameworks() -> None:
    assert len(BUGS) >= 200
    for framework in FRAMEWORKS:
        assert len({one.pair for one in BUGS if one.framework == framework}) >= 20
    assert {one.equivalent for one in EQUIVALENT} <= {one_side.AT_TIES, one_side.UNUSED, *one_side.REASONS.values()}


@pytest.mark.parametrize("one", [one for name in FRAMEWORKS for one in sample(name, BUGS, 6)], ids=lambda one: one.name)
def test_a_bug_behind_one_decision_is_refuted_and_the_pair_is_not(one: OneSide) -> None:
    assert judged(one) == "refuted"
    assert mutant.judged(mutant.unbroken(one.pair), one_side.CLAIM).verdict == "upheld"


@pytest.mark.parametrize(
    "one", [one for name in FRAMEWORKS for one in sample(name, EQUIVALENT, 2)], ids=lambda one: one.name
)
def test_an_equivalent_one_is_upheld(one: OneSide) -> None:
    assert judged(one) == "upheld"


@pytest.mark.parametrize("pair", ["torch_choices:branching", "torch_choices:looping", "jax_choices:looping"])
def test_the_table_is_what_the_pairs_have(pair: str) -> None:
    """In Python's `if`, in a loop and in the body of a scan, too; after a change, CONTRIBUTING says how to write it."""
    pytest.importorskip(pair.partition("_")[0])
    assert [[*row[:3]] for row in one_side.table()[pair]] == [
        [site.operation, site.number, site.side] for site in one_side.sites(pair)
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_operator_changes_one_side_by_a_hundredth_and_no_output(framework: str) -> None:
    pytest.importorskip(framework)
    name = {"torch": "where", "jax": "select_n"}[framework]
    pair = mutant.unbroken(f"{framework}_choices:leaky")
    one = OneSide(f"{framework}_choices:leaky", next(s for s in one_side.sites(f"{framework}_choices:leaky")))
    assert (one.site.operation, one.site.side) == (name, "true")
    problem = pair.spec(dtype="float32", T=3, H=4).build(framework)  # type: ignore[arg-type]
    (loss, right), (same, wrong) = pair(problem), one.broken()(problem)
    ratio = np.asarray(wrong["x"]) / np.asarray(right["x"])
    assert float(loss) == float(same)
    assert ratio == pytest.approx(np.where(np.asarray(problem.params["x"]) > 0, 1.01, 1.0), rel=1e-6)


def test_a_side_that_no_problem_takes_is_no_reason_for_equivalence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A survivor is listed as a survivor, unless the side is taken and seen to change nothing."""
    pytest.importorskip("torch")
    one = next(one for one in BUGS if one.pair == "torch_choices:leaky")
    monkeypatch.setattr(one_side, "judged", lambda pair, claim: Verdict(one.task(claim), "upheld"))
    assert one_side.equivalence(one) == ""
    assert one_side.equivalence(next(one for one in EQUIVALENT if one.framework == "torch")) == ""


def test_the_selftest_judges_it_by_its_target() -> None:
    one = BUGS[0]
    assert judging.everything()[one.name] is one
    verdict = Verdict(one.task(one_side.CLAIM), "refuted")
    outcome = judging.outcome(one, {one_side.CLAIM: verdict})
    assert (outcome["status"], outcome["rivals"]) == ("killed", {})
    upheld = judging.outcome(one, {one_side.CLAIM: Verdict(one.task(one_side.CLAIM), "upheld", 1)})
    assert upheld["status"] == "survived"
    assert table.command(outcome) == f"gradgate verify {one.target} --claim gradient_exact"
