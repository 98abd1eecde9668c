"""Outcomes, the exit status and the last line of a run; and the reason that a claim is declared false."""

from __future__ import annotations

import pytest

from gradgate.suites.judging.outcomes import FAILED, OUTCOMES, VERDICTS, exit_status, last_line, outcome_of
from gradgate.suites.judging.verdict import Task, Verdict


def verdict(said: str, expected: str = "upheld") -> Verdict:
    return Verdict(Task("fam", "meth", "jax", "claim", expected=expected, declared_reason="a sign"), said)


@pytest.mark.parametrize(
    ("said", "expected", "outcome", "status"),
    [
        ("upheld", "upheld", "upheld", 0),
        ("refuted", "refuted", "finding", 0),
        ("refuted", "upheld", "failure", 1),
        ("upheld", "refuted", "unexpected", 1),
        ("error", "upheld", "error", 2),
        ("error", "refuted", "error", 2),
        ("inapplicable", "upheld", "inapplicable", 0),
        ("inapplicable", "refuted", "inapplicable", 0),
    ],
)
def test_an_outcome_is_the_verdict_beside_what_is_declared(said: str, expected: str, outcome: str, status: int) -> None:
    found = verdict(said, expected)
    assert (found.outcome, outcome_of(said, expected)) == (outcome, outcome)
    assert exit_status([found]) == status
    assert found.as_expected == (status == 0)
    assert (outcome in FAILED) == (status != 0)


def test_every_verdict_has_an_outcome_and_every_outcome_a_verdict() -> None:
    found = {outcome_of(said, expected) for said in VERDICTS for expected in ("upheld", "refuted")}
    assert found == set(OUTCOMES)


def test_a_refutation_outweighs_an_error_and_a_missing_verdict() -> None:
    assert exit_status([verdict("error"), verdict("refuted")], missing=1) == 1
    assert exit_status([verdict("upheld")], missing=1) == 2
    assert exit_status([]) == 0


def test_the_last_line_counts_what_is_as_declared_among_all_claims() -> None:
    found = [verdict("upheld"), verdict("refuted", "refuted"), verdict("inapplicable")]
    assert last_line(found) == "3 of 3 claims as declared: as claimed"
    assert last_line(found, missing=2) == "3 of 5 claims as declared: not everything could be measured"
    assert last_line([verdict("inapplicable")] * 2) == "none of 2 claims was judged: all are inapplicable"
    assert last_line([verdict("inapplicable")], missing=1).startswith("1 of 2 claims")
    assert last_line([*found, verdict("refuted")]) == "3 of 4 claims as declared: NOT as claimed"


def test_a_document_has_the_declared_reason_and_an_older_one_is_still_read() -> None:
    row = verdict("refuted", "refuted").to_dict()
    assert (row["declared_reason"], row["reason"]) == ("a sign", "")
    assert "why" not in row
    older = {name: value for name, value in row.items() if name != "declared_reason"} | {"why": "a sign"}
    assert Verdict.from_dict(older) == Verdict.from_dict(row) == Verdict.from_dict(row | {"why": "another"})
