"""The table of a run in the terminal, and the numbers of a verdict in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.suites import test_methods
from gradgate.suites.console import terminal
from gradgate.suites.judging.explain import EXACT, measured
from gradgate.suites.judging.verdict import Task, Verdict


def verdict(claim: str, outcome: str = "upheld", method: str = "meth", **rest: Any) -> Verdict:
    return Verdict(Task("fam", method, "jax", claim, "", f"statement of {claim}", "Prop. 1"), outcome, **rest)


def shown(capsys: pytest.CaptureFixture[str], *verdicts: Verdict) -> list[str]:
    """The lines of the table: two lines of the head, and one line for each method."""
    terminal.table(verdicts)
    lines = capsys.readouterr().out.splitlines()
    return lines[: 2 + len({v.task.owner for v in verdicts})]


def test_a_row_shows_the_fewest_digits_of_the_exact_claims(capsys: pytest.CaptureFixture[str]) -> None:
    *_, row = shown(capsys, verdict("gradient_exact", digits=58), verdict("second_order_exact", digits=51))
    assert re.search(r" 51 digits +– +– +–$", row)


def test_a_row_shows_the_digits_lost_in_each_dtype(capsys: pytest.CaptureFixture[str]) -> None:
    _, head, row = shown(capsys, verdict("gradient_float32", lost=1.25), verdict("gradient_float64", lost=0.0))
    assert head.endswith("f64 f32 bf16")
    assert row.endswith("0.0 1.2    –")


def test_a_formula_that_is_refuted_is_equal_to_no_digits(capsys: pytest.CaptureFixture[str]) -> None:
    *_, row = shown(capsys, verdict("gradient_exact", "refuted", error=1.2, noise=1e-58))
    assert "digits" not in row


def test_the_table_fits_the_longest_names_of_the_references(capsys: pytest.CaptureFixture[str]) -> None:
    wide: dict[str, Any] = {"digits": 58, "lost": 10.25, "examples": 10_000}
    longest = max((m.method for m in _references()), key=len)
    lines = shown(capsys, *(verdict(claim, method=longest, **wide) for claim in (*EXACT, *terminal.LOST)))
    assert longest in lines[2]
    assert lines[2].endswith("10.2 10.2 10.2")
    assert max(map(len, lines)) <= terminal.WIDTH


def test_a_long_name_is_wrapped_and_not_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.table([verdict("gradient_exact", method="m" * 60, digits=58)])
    assert capsys.readouterr().out.count("m" * 20) >= 2


def _references() -> list[Task]:
    return [Task.of(method, method.claims[0]) for method in registry.methods()]


def test_every_claim_judged_in_sixty_digits_is_known_as_exact() -> None:
    claims = [claim for method in registry.methods() for claim in method.claims if claim.check in EXACT]
    assert {claim.name for claim in claims} == set(EXACT)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (verdict("gradient_exact", digits=58, error=1e-59), "equal to 58 digits"),
        (
            verdict("gradient_exact", "refuted", error=1.25, noise=3e-58, leaf="w"),
            "relative error 1.2 in w, known to within 3e-58",
        ),
        (verdict("gradient_exact", error=1e-59), "relative error 1e-59"),
        (verdict("gradient_float64", error=1e-15, noise=2e-15), "error 1e-15, noise 2e-15, 0.5 times the noise"),
        (verdict("gradient_float64", "refuted", error=float("nan"), noise=2e-15), "error not finite, noise 2e-15"),
        (
            verdict("stability", error=1e-15, noise=2e-15, leaf="w", lost=0.25),
            "error 1e-15 in w, noise 2e-15, 0.5 times the noise; 0.2 digits lost beyond plain backprop",
        ),
        (verdict("gradient_exact", "refuted", noise=3e-58), "relative error not finite, known to within 3e-58"),
        (verdict("tree"), ""),
    ],
)
def test_numbers_in_words(found: Verdict, words: str) -> None:
    assert measured(found) == words


@pytest.mark.parametrize("noise", [None, 3e-58])
def test_the_pytest_failure_of_an_exact_claim_reads_without_a_noise(noise: float | None) -> None:
    wrong = verdict("gradient_exact", "refuted", error=1.25, noise=noise, leaf="w", reason="another formula")

    class Judge:
        def judge(self, task: Task) -> Verdict:
            return wrong

    with pytest.raises(pytest.fail.Exception, match=r"reason: another formula\nmeasured: relative error 1\.2 in w"):
        test_methods.test_claim(wrong.task, Judge(), lambda name, value: None)  # type: ignore[arg-type]
