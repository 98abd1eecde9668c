"""Random pairs of functions that choose: right ones are upheld, at ties too, and an error on one side is refuted."""

from __future__ import annotations

import pytest

from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.bugs.of_pairs import choices
from gradgate.suites.calibration import drawn_pairs


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_pair_is_upheld_and_the_same_with_an_error_is_refuted(framework: str, seed: int) -> None:
    pytest.importorskip(framework)
    right = drawn_pairs.judged(framework, seed)
    assert right.verdict == "upheld", (drawn_pairs.draw(framework, seed)[0], right.reason)
    assert right.decisions["tries"] > 0
    assert drawn_pairs.judged(framework, seed, error=0.01).verdict == "refuted"


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", [19779, 21293])
def test_no_right_pair_has_plain_rules_at_a_tie_within_a_row_over_a_flat_function(framework: str, seed: int) -> None:
    pytest.importorskip(framework)
    outer = drawn_pairs.draw(framework, seed)[0]
    assert outer.split()[0] in drawn_pairs.AMONG_A_ROW
    assert "the function by hand" in outer
    right = drawn_pairs.judged(framework, seed)
    assert right.verdict == "upheld", (outer, right.reason)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_right_pair_has_plain_rules_at_a_tie_within_a_tie(framework: str) -> None:
    """Seed 26995 draws the shift 1: min(1.32·|x| + 1, 1) is constant, and plain rules give it the slope 0.75 at 0."""
    pytest.importorskip(framework)
    assert drawn_pairs.draw(framework, 26995)[0].startswith("weighed of 1.32·absolute +1, the function by hand")
    assert drawn_pairs.judged(framework, 26995).verdict == "upheld"


def test_there_are_twenty_unlike_kinds_and_a_seed_names_its_pair() -> None:
    pytest.importorskip("torch")
    assert len(choices.KINDS) >= 20
    assert drawn_pairs.draw("torch", 7)[0] == drawn_pairs.draw("torch", 7)[0] != drawn_pairs.draw("torch", 8)[0]


@pytest.mark.parametrize("wrong", [False, True])
def test_false_alarms_are_named_by_their_seeds(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted error that is taken for a right pair is an alarm; so the count can be other than zero."""
    pytest.importorskip("torch")
    right = drawn_pairs.judged
    if wrong:
        monkeypatch.setattr(drawn_pairs, "judged", lambda framework, seed: right(framework, seed, 0.01))
    found, silent = drawn_pairs.alarms("torch", 0, 2)
    assert silent == 0
    assert list(found) == (["0", "1"] if wrong else [])
    assert all(": refuted: " in words for words in found.values())
