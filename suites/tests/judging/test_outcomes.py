"""Outcomes, the exit status and the last line of a run; and the reason that a claim is declared false."""

from __future__ import annotations

import pytest

from gradgate.suites.judging.outcomes import (
    FAILED,
    NO_PEAK,
    OUTCOMES,
    VERDICTS,
    exit_status,
    last_line,
    not_judged,
    outcome_of,
)
from gradgate.suites.judging.verdict import Task, Verdict


def verdict(
    said: str,
    expected: str = "upheld",
    *,
    claim: str = "claim",
    method: str = "meth",
    reason: str = "",
    source: str = "",
) -> Verdict:
    task = Task("fam", method, "jax", claim, source=source, expected=expected, declared_reason="a sign")
    return Verdict(task, said, reason=reason)


@pytest.mark.parametrize(
    ("said", "expected", "outcome", "status"),
    [
        ("upheld", "upheld", "upheld", 0),
        ("refuted", "refuted", "finding", 0),
        ("refuted", "upheld", "failure", 1),
        ("upheld", "refuted", "unexpected", 1),
        ("error", "upheld", "error", 2),
        ("error", "refuted", "error", 2),
        ("inapplicable", "upheld", "inapplicable", 2),  # alone in its run: nothing was judged
        ("inapplicable", "refuted", "inapplicable", 2),
    ],
)
def test_an_outcome_is_the_verdict_beside_what_is_declared(said: str, expected: str, outcome: str, status: int) -> None:
    found = verdict(said, expected)
    assert (found.outcome, outcome_of(said, expected)) == (outcome, outcome)
    assert exit_status([found]) == status
    assert found.as_expected == (status == 0 or said == "inapplicable")
    assert (outcome in FAILED) == (not found.as_expected)


def test_every_verdict_has_an_outcome_and_every_outcome_a_verdict() -> None:
    found = {outcome_of(said, expected) for said in VERDICTS for expected in ("upheld", "refuted")}
    assert found == set(OUTCOMES)


def test_a_refutation_outweighs_an_error_and_a_missing_verdict() -> None:
    assert exit_status([verdict("error"), verdict("refuted")], missing=1) == 1
    assert exit_status([verdict("upheld")], missing=1) == 2
    assert exit_status([]) == 0


def test_the_last_line_counts_what_is_as_declared_among_all_claims() -> None:
    found = [verdict("upheld"), verdict("refuted", "refuted"), verdict("inapplicable")]
    assert last_line(found[:2]) == "2 of 2 claims as declared: as claimed"
    assert last_line(found) == "2 of 3 claims as declared, 1 inapplicable: as claimed"
    said = "2 of 5 claims as declared, 1 inapplicable: not everything could be measured"
    assert last_line(found, missing=2) == said
    assert last_line([verdict("inapplicable")] * 2) == "none of 2 claims was judged: all are inapplicable"
    assert last_line([verdict("inapplicable")], missing=1).startswith("0 of 2 claims")
    assert last_line([*found, verdict("refuted")]) == "2 of 4 claims as declared, 1 inapplicable: NOT as claimed"


def test_a_gradient_that_was_not_judged_is_never_green() -> None:
    rest = [verdict("upheld", claim="tree"), verdict("upheld", claim="pure")]
    absent = [verdict("inapplicable", claim=claim) for claim in ("gradient_exact", "gradient_float32")]
    told = ["meth (jax): its gradient was not judged: gradient_exact and gradient_float32 are inapplicable"]
    assert not_judged([*rest, *absent]) == told
    assert exit_status([*rest, *absent]) == 2
    judged = [*rest, absent[0], verdict("upheld", claim="gradient_float32")]
    assert (not_judged(judged), exit_status(judged)) == ([], 0)
    assert exit_status([*rest, *absent, verdict("refuted", claim="upstream")]) == 1
    assert not_judged([*judged, verdict("inapplicable", claim="gradient_float64", method="other")])


def test_a_promise_about_peak_bytes_that_no_profile_knows_is_never_green() -> None:
    def promise(said: str, reason: str = "") -> Verdict:
        return verdict(said, claim="peak_bytes_of_reference", reason=reason, source="declared")

    gradient, unknown = verdict("upheld"), promise("inapplicable", f"cpu: {NO_PEAK}; temp_bytes are judged there")
    assert exit_status([gradient, unknown]) == 2
    assert not_judged([gradient, unknown])[0].startswith("meth (jax): peak_bytes_of_reference was not judged: cpu: ")
    assert exit_status([gradient, unknown, promise("upheld")]) == 0, "another profile knows it"
    assert exit_status([gradient, promise("inapplicable", "cpu: XLA for CPUs drops the barriers")]) == 0


def test_methods_of_a_framework_that_is_not_installed_are_not_expected_to_be_judged() -> None:
    why = "jax is not installed: pip install 'gradgate[jax]'"
    missing = verdict("inapplicable", claim="gradient_exact", method="other", reason=why)
    assert exit_status([verdict("upheld"), missing]) == 0


def test_a_document_has_the_declared_reason_and_an_older_one_is_still_read() -> None:
    row = verdict("refuted", "refuted").to_dict()
    assert (row["declared_reason"], row["reason"]) == ("a sign", "")
    assert "why" not in row
    older = {name: value for name, value in row.items() if name != "declared_reason"} | {"why": "a sign"}
    assert Verdict.from_dict(older) == Verdict.from_dict(row) == Verdict.from_dict(row | {"why": "another"})
