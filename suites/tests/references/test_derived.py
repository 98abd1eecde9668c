"""A paper's statement about a curve becomes a number that is computed from measured figures, so it can fail."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references import derived, registry
from gradgate.references.derived import begins
from gradgate.references.errors import UsageError
from gradgate.references.published import Published, at_most, upheld
from gradgate.suites.measuring import paper_results

BELOW = upheld(at_most('the paper says: "always below 0.9"'))
SEVERAL = {"B": [2, 4, 8], "106M": [1.0, 2.0, 4.0], "278M": [3.0, 3.0, 3.0], "587M": [1.0, 1.0, 5.0]}
STEADY = {"step": [0, 10, 20], "full": [4.0, 2.0, 1.0], "slim": [4.0, 2.0, 1.5], "distance": 0.25, "note": "a"}


def curve(series: str, values: dict[Any, Any]) -> list[tuple[Published, Any]]:
    return [(Published("Fig. 1", series, x, "B", "m:f"), y) for x, y in values.items()]


LISTED = (
    *curve("iter.", {1: 2.0, 10: 20.0, 100: 200.0}),
    *curve("PS", {10: 40.0, 100: 200.0, 1000: 1.0}),
    *curve("PS_long", {10: 1.0}),
    *curve("flat", {1: 5.0, 2: 5.5}),
    *curve("missing", {1: None}),
    *curve("zero", {1: 0.0}),
    (Published("Fig. 3", "copying", "L = 32", "nats", "m:f"), STEADY),
    (Published("Fig. 5", "gain", "over B", "", "m:f"), SEVERAL),
    *((Published("Fig. 2", series, 1, "B", "m:f"), 3.0) for series in "ab"),
)


def row_of(function: str, printed: float | None = 1.0, **arguments: Any) -> dict[str, Any]:
    """The row of a number that is computed from the figures above."""
    expects = BELOW if printed is not None else None
    row = Published(
        "Fig. 1", "said", "", "times", f"{derived.__name__}:{function}", arguments, printed, expects=expects
    )
    results = [
        paper_results.blank(one) | {"ours": ours, "date": f"2026-01-{day:02}", "problem": "" if ours else "no compiler"}
        for day, (one, ours) in enumerate(LISTED, 1)
    ]
    return paper_results.complete([*(one for one, _ in LISTED), row], results)[-1]


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        ("value", {"of": "Fig. 1 / iter.", "take": "largest"}, 200.0),
        ("value", {"of": "Fig. 1 / iter.", "take": "least", "between": [5, 1000]}, 20.0),
        ("value", {"of": "Fig. 1 / iter.", "take": "mean"}, 74.0),
        ("value", {"of": "Fig. 3 / copying / L = 32 / full", "take": "last"}, 1.0),
        ("value", {"of": "Fig. 3 / copying / L = 32 / distance", "take": "first"}, 0.25),
        ("quotient", {"over": "Fig. 1 / iter.", "under": "Fig. 1 / PS", "take": "largest"}, 1.0),
        ("quotient", {"over": "Fig. 1 / iter.", "under": "Fig. 1 / PS", "take": "least"}, 0.5),
        ("quotient", {"over": "Fig. 1 / iter. / 1", "under": "Fig. 1 / PS / 10", "take": "first"}, 0.05),
        (
            "quotient",
            {
                "over": "Fig. 3 / copying / L = 32 / slim",
                "under": "Fig. 3 / copying / L = 32 / full",
                "take": "largest",
            },
            1.5,
        ),
        ("span", {"of": "Fig. 1 / flat"}, 1.1),
        ("growth", {"of": "Fig. 1 / iter."}, 1.0),
        ("spans", {"of": "Fig. 5 / gain / over B", "take": "middle"}, 4.0),
        ("spans", {"of": "Fig. 5 / gain / over B", "take": "least"}, 1.0),
        ("growths", {"of": "Fig. 5 / gain / over B", "take": "least"}, 0.0),
        ("growth", {"of": "Fig. 5 / gain / over B / 106M"}, 1.0),
        ("value", {"of": "Fig. 5 / gain / over B", "take": "largest"}, 5.0),
    ],
)
def test_a_number_is_taken_of_curves(function: str, arguments: dict[str, Any], expected: float) -> None:
    assert row_of(function, **arguments)["ours"] == pytest.approx(expected, rel=1e-12)


def test_words_about_a_curve_are_upheld_or_not_as_declared() -> None:
    asked: dict[str, Any] = {"over": "Fig. 1 / iter.", "under": "Fig. 1 / PS"}
    assert row_of("quotient", 1.0, take="largest", **asked)["outcome"] == "upheld"
    assert row_of("quotient", 0.9, take="largest", **asked)["outcome"] == "not as declared"


def test_the_date_is_that_of_the_latest_figure_that_was_used() -> None:
    assert row_of("span", of="Fig. 1 / iter.")["date"] == "2026-01-03"


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("span", {"of": "Fig. 1 / missing"}, "Fig. 1 / missing / 1: no compiler"),
        ("quotient", {"over": "Fig. 1 / flat", "under": "Fig. 1 / PS", "take": "least"}, "no x in common"),
        ("growth", {"of": "Fig. 1 / flat", "between": [2, 9]}, "two points or more"),
        ("growth", {"of": "Fig. 1 / zero"}, "two points or more"),
        ("span", {"of": "Fig. 1 / zero"}, "below the line of a quotient is 0"),
        ("span", {"of": "Fig. 1 / flat", "between": [7, 9]}, "of: Fig. 1 / flat: no point has a number"),
        ("value", {"of": "Fig. 3 / copying / L = 32 / note", "take": "first"}, "no point has a number"),
    ],
)
def test_what_cannot_be_derived_is_not_measured_and_says_why(
    function: str, arguments: dict[str, Any], said: str
) -> None:
    row = row_of(function, **arguments)
    assert row["outcome"] == "not measured here"
    assert said in row["sentence"]


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        ("spam", {}, "nearest: span"),
        ("span", {"of": "Fig. 1 / itr."}, "nearest: Fig. 1 / iter."),
        ("span", {"of": "Fig. 3 / copying / L = 32 / ful"}, "nearest: Fig. 3 / copying / L = 32 / full"),
        ("value", {"of": "Fig. 1 / flat", "take": "most"}, "unknown number to take 'most'"),
        ("value", {"of": "Fig. 1 / flat"}, "missing 1 required positional argument: 'take'"),
        ("growth", {"of": "Fig. 2"}, "several curves are named"),
        ("growth", {"of": "Fig. 5 / gain / over B"}, "several curves are named"),
    ],
)
def test_a_wrong_name_is_refused_with_what_is_legal(function: str, arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as error:
        row_of(function, **arguments)
    assert said in str(error.value)


def test_a_beginning_ends_with_a_word() -> None:
    assert begins("Fig. 1 / PS / 10", "Fig. 1 / PS")
    assert not begins("Fig. 1 / PS_long / 10", "Fig. 1 / PS")
    assert not begins("Fig. 1 / a / 1.5", "Fig. 1 / a / 1")
    assert begins("Fig. 1, left", "Fig. 1")


def test_every_function_can_be_named_by_a_row() -> None:
    assert all(registry.load(f"{derived.__name__}:{name}") is one for name, one in derived.FUNCTIONS.items())
