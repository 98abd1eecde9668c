"""A planted rise is named with its release, method and figures; without one, nothing is named."""

from __future__ import annotations

import pytest

from gradgate.suites.releases import rises
from gradgate.suites.tests.releases.recorded import NAME, step


def test_a_planted_rise_is_named() -> None:
    [found] = rises.changes([step("0.9.2", 1000), step("0.10.2", 1001)])
    assert found.rise
    assert (found.release.version, found.before.version) == ("0.10.2", "0.9.2")
    assert (found.name, found.profile, found.quantity, found.old, found.new) == (
        NAME,
        "nvidia-h100",
        "required_bytes",
        1000,
        1001,
    )


def test_equal_figures_are_no_change() -> None:
    assert rises.changes([step("0.9.2", 1000), step("0.10.2", 1000)]) == []


def test_the_release_that_raised_is_named_whatever_the_order_of_the_files() -> None:
    steps = [step("0.10.2", 2000), step("0.8.3", 1000), step("0.9.2", 1000)]
    [found] = rises.changes(steps)
    assert (found.before.version, found.release.version) == ("0.9.2", "0.10.2")


def test_more_work_is_a_rise_of_its_own() -> None:
    [found] = rises.changes([step("0.9.2", 1000, flops=5), step("0.10.2", 1000, flops=6)])
    assert (found.quantity, found.rise) == ("flops", True)


def test_a_method_that_only_one_release_has_is_not_compared() -> None:
    assert rises.changes([step("0.9.2", 1000), step("0.10.2", 9000, name="chain:other:jax~0000")]) == []


@pytest.mark.parametrize(
    ("again", "confirmed"), [((1000, 2000), True), ((1000, 1999), False), ((None, 2000), False), ((None, None), False)]
)
def test_a_rise_is_confirmed_by_the_same_two_figures_only(again: tuple[int | None, ...], confirmed: bool) -> None:
    [found] = rises.changes([step("0.9.2", 1000, again=again[0]), step("0.10.2", 2000, again=again[1])])
    assert found.confirmed is confirmed


def test_a_failed_cell_is_listed_with_its_reason() -> None:
    [(failed, name, reason)] = rises.gone([step("0.9.2", 1000), step("0.10.2", None)])
    assert (failed.release.version, name) == ("0.10.2", NAME)
    assert reason.startswith("refused")
