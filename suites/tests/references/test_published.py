"""A figure of a paper can fail: its verdict is computed from the measured value and the declaration."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from gradgate.references import published
from gradgate.references.errors import UsageError
from gradgate.references.published import (
    Agreement,
    Expectation,
    Published,
    at_least,
    at_most,
    equal,
    judge,
    less_than,
    more_than,
    refuted,
    unexplained,
    upheld,
)

CLOSE = equal(0.05, "two digits are printed")
OVER = at_least('the paper says: "over 10 times"')
UNDER = at_most('the paper says: "at most 10 times"')


def row(expects: Expectation | None = None, printed: float | None = 10.0, **more: Any) -> Published:
    given: dict[str, Any] = {"reason": "" if expects is None or expects.verdict == "upheld" else "tested: the context"}
    return Published("Table 1", "HBM", "44M", "GiB", "m:f", {"n": 1}, printed, expects=expects, **given | more)


def outcome(expects: Expectation | None, ours: Any) -> str:
    judged = judge(row(expects), ours)
    assert judged is not None
    return judged.outcome


@pytest.mark.parametrize(
    ("agreement", "inside", "outside"),
    [
        (CLOSE, 10.5, 10.6),
        (CLOSE, 9.5, 9.4),
        (equal(0.0, "counts"), 10.0, math.nextafter(10.0, 11)),
        (OVER, 10.0, 9.99),
        (OVER, 1e9, 0.0),
        (at_least('"about 10"', 0.1), 9.0, 8.9),
        (UNDER, 10.0, 10.01),
        (UNDER, -5.0, 11.0),
        (more_than('"more than 10"'), math.nextafter(10.0, 11), 10.0),
        (less_than('"less than 10"'), math.nextafter(10.0, 9), 10.0),
        (at_most('"about 10"', 0.1), 11.0, 11.1),
    ],
)
def test_what_agrees_is_upheld_and_what_does_not_is_not_as_declared(
    agreement: Agreement, inside: float, outside: float
) -> None:
    assert outcome(upheld(agreement), inside) == "upheld"
    assert outcome(upheld(agreement), outside) == "not as declared"


def test_an_agreement_is_told_in_words() -> None:
    agreements = (CLOSE, equal(0.0, "counts"), OVER, at_most("about 10", 0.1))
    assert [one.words() for one in agreements] == [
        "equal within 5%",
        "exactly equal",
        "at least",
        "at most, within 10%",
    ]


def test_the_tolerance_of_a_negative_figure_is_relative_to_its_size() -> None:
    assert CLOSE.holds(-10.4, -10.0)
    assert not CLOSE.holds(-10.6, -10.0)
    assert not CLOSE.holds(10.0, -10.0)


@pytest.mark.parametrize(("declare", "said"), [(refuted, "refuted as declared"), (unexplained, "unexplained")])
def test_a_figure_out_of_reach_is_as_declared_until_it_agrees_or_its_reason_is_about_another_value(
    declare: Any, said: str
) -> None:
    expects = declare(CLOSE, instead=5.0, spread=0.1)
    assert outcome(expects, 5.2) == said
    assert outcome(expects, 9.9) == "not as declared"
    assert outcome(expects, 7.0) == "not as declared"


def test_an_unexplained_figure_needs_no_value_of_its_own() -> None:
    assert outcome(unexplained(CLOSE), 7.0) == "unexplained"
    assert outcome(unexplained(CLOSE), 10.2) == "not as declared"


def test_without_an_expectation_a_figure_is_undeclared_even_where_it_agrees() -> None:
    assert outcome(None, 10.0) == outcome(None, 3.0) == "undeclared"


@pytest.mark.parametrize("ours", [None, math.nan, math.inf, {"x": [1, 2]}, "drawn", True])
@pytest.mark.parametrize("expects", [None, upheld(CLOSE), refuted(CLOSE, instead=5.0), unexplained(CLOSE)])
def test_what_is_no_finite_number_has_no_verdict(expects: Expectation | None, ours: Any) -> None:
    assert outcome(expects, ours) == "not measured here"


def test_a_row_without_a_printed_number_has_no_verdict() -> None:
    assert judge(row(printed=None), 3.0) is None
    assert judge(row(printed=None, drawn=True), {"x": [1]}) is None
    assert [row(printed=None).kind, row(printed=None, drawn=True).kind, row().kind] == ["ours", "drawn", "printed"]


def test_a_failure_says_row_printed_measured_tolerance_declaration_and_what_to_do() -> None:
    judged = judge(row(upheld(CLOSE)), 5.0)
    assert judged is not None
    for part in (
        "Table 1 / HBM / 44M",
        "printed 10 GiB",
        "measured 5 GiB",
        "ratio 0.5",
        "equal within 5%",
        "declared upheld, but it does not agree",
        "declare it refuted or unexplained",
    ):
        assert part in judged.sentence
    agreed = judge(row(refuted(CLOSE, instead=5.0)), 10.0)
    assert agreed is not None
    assert "declared refuted, but it agrees: declare it upheld" in agreed.sentence
    drifted = judge(row(refuted(CLOSE, instead=5.0)), 6.0)
    assert drifted is not None
    assert "its reason is about 5 within 5%: test the reason again" in drifted.sentence


def test_what_was_not_measured_says_why() -> None:
    judged = judge(row(upheld(CLOSE)), None, "there is no compiler for this device")
    assert judged is not None
    assert judged.sentence.endswith("there is no compiler for this device")
    curve = judge(row(upheld(CLOSE)), {"x": [1]})
    assert curve is not None
    assert "a number is printed, and m:f returns a dict; let it return a finite number" in curve.sentence


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: row(refuted(CLOSE, instead=5.0), reason=" "), "say in reason why it differs, as tested"),
        (lambda: row(unexplained(CLOSE), reason=""), "say in reason what was tried and ruled out"),
        (lambda: row(upheld(CLOSE), printed=None), "nothing is printed, so nothing can be expected"),
        (lambda: row(printed=math.nan), "a printed figure is a finite number"),
        (lambda: row(drawn=True), "leave out drawn, or printed"),
        (lambda: row(refuted(CLOSE, instead=9.8)), "9.8 agrees with the printed 10"),
        (lambda: row(unexplained(OVER, instead=12.0)), "12 agrees with the printed 10"),
        (lambda: row(refuted(CLOSE, instead=5.0), unlike="seconds, and FLOPs"), "unlike quantities refute nothing"),
        (lambda: equal(0.6, "wide"), "between 0 and 0.5, not 0.6"),
        (lambda: equal(-0.1, "narrow"), "between 0 and 0.5, not -0.1"),
        (lambda: equal(math.nan, "none"), "between 0 and 0.5, not nan"),
        (lambda: equal(0.1, " "), "say in a sentence why this is agreement"),
        (lambda: Agreement("eqal", 0.1, "b"), "nearest: equal"),
        (lambda: Agreement("more than", 0.1, "b"), "more than has no tolerance: say at_least or at_most"),
        (lambda: Expectation("uphold", CLOSE), "nearest: upheld"),
        (lambda: Expectation("refuted", CLOSE), "says which value was found instead"),
        (lambda: refuted(CLOSE, instead=5.0, spread=2.0), "between 0 and 0.5, not 2.0"),
    ],
)
def test_a_declaration_that_cannot_be_meant_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        wrong()
    assert said in str(error.value)


def test_unlike_quantities_can_be_upheld_or_unexplained_and_say_so() -> None:
    judged = judge(row(upheld(CLOSE), unlike="printed are seconds, ours is a roofline"), 10.0)
    assert judged is not None
    assert judged.outcome == "upheld"
    assert "(unlike: printed are seconds, ours is a roofline)" in judged.sentence
    assert row(unexplained(CLOSE), unlike="seconds, and FLOPs").unlike
    with pytest.raises(UsageError, match="unlike quantities uphold nothing at most"):
        row(upheld(UNDER), unlike="printed are seconds, ours is a roofline")


def test_a_bound_that_the_paper_does_not_name_refutes_nothing() -> None:
    assert row(refuted(OVER, instead=5.0)).expects
    with pytest.raises(UsageError, match="a bound that was chosen here refutes nothing"):
        row(refuted(at_least("ours, of 10"), instead=5.0))
    with pytest.raises(UsageError, match="a bound that was chosen here refutes nothing"):
        row(refuted(at_least('"over 100 times"'), instead=5.0))
    with pytest.raises(UsageError, match="a bound that was chosen here refutes nothing"):
        dataclasses.replace(row(refuted(at_most('"never"'), instead=5.0), printed=1.0), unit="%")


def test_a_bound_that_the_paper_does_not_name_upholds_nothing() -> None:
    for said in (at_least("ours, of 10"), more_than('"much more": 10 times'), at_most('"several"'), less_than('"two"')):
        with pytest.raises(UsageError, match="a bound that was chosen here upholds nothing"):
            row(upheld(said))
    with pytest.raises(UsageError, match="a bound that was chosen here upholds nothing"):
        dataclasses.replace(row(upheld(more_than('"most"')), printed=50.0), unit="%", printed=40.0)


@pytest.mark.parametrize(
    ("printed", "unit", "words"),
    [
        (10.0, "times", "'ten times as large'"),
        (10.0, "times", '"by more than one order"'),
        (10.0, "times", '"more than an order of magnitude"'),
        (100.0, "times", '"orders of magnitude"'),
        (100.0, "slots", "'could be in the hundreds'"),
        (1000.0, "times", '"thousands of times faster"'),
        (3.0, "times", '"by several folds"'),
        (1e-5, "relative", '"of order 1e-6–1e-5"'),
        (100 / 35, "times", '"from 35K tokens to above 100K"'),
        (50.0, "%", '"most of the budget"'),
        (0.5, "", '"mostly"'),
        (1.0, "times", "slower"),
        (0.0, "", "it grows"),
        (100.0, "%", "less than the whole"),
    ],
)
def test_a_bound_that_the_words_name_or_that_compares_two_things_upholds(printed: float, unit: str, words: str) -> None:
    told = Published("§1", "a", "b", unit, "m:f", {}, printed, expects=upheld(more_than(words)))
    judged = judge(told, printed + 1.0)
    assert judged is not None
    assert judged.outcome == "upheld"
    if printed not in (0.0, 1.0) and (printed, unit) != (100.0, "%"):
        with pytest.raises(UsageError, match="chosen here upholds nothing"):
            dataclasses.replace(told, expects=upheld(more_than(words.replace('"', "").replace("'", ""))))


def test_the_tolerance_around_a_printed_zero_is_absolute() -> None:
    rounding = upheld(equal(1e-12, "equal but for rounding in float64"))
    outcomes = [one.outcome for ours in (3e-16, -3e-16, 2e-12) if (one := judge(row(rounding, 0.0), ours))]
    assert outcomes == ["upheld", "upheld", "not as declared"]


def test_the_key_of_a_row_depends_on_what_is_measured_and_not_on_what_is_declared() -> None:
    key = '["Table 1", "HBM", "44M", "GiB", "m:f", {"n": 1}]'
    assert row().key == row(upheld(CLOSE)).key == row(refuted(OVER, instead=5.0), unlike="").key == key
    assert Published("Table 1", "HBM", "44M", "GiB", "m:f", {"n": 2}).key != key


def test_outcomes_are_counted_in_their_order_and_those_that_occur_are_told() -> None:
    found = [judge(row(upheld(CLOSE)), 10.0), judge(row(), 1.0), judge(row(upheld(CLOSE)), 10.1)]
    counted = published.counts(one for one in found if one)
    assert list(counted) == list(published.OUTCOMES)
    assert published.summary(counted) == "2 upheld, 1 undeclared"
    assert published.summary(published.counts([])) == "no printed figures"
    assert [one.status for one in found if one] == [0, 2, 0]
