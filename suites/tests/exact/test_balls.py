"""Operations of balls whose library function says too little."""

from __future__ import annotations

import pytest
from flint import arb

from gradgate.suites.exact import balls


@pytest.mark.parametrize("power", [1, 2, 3, 7])
@pytest.mark.parametrize("radius", ["1e-230", "0.125", "3"])
def test_a_power_of_a_ball_around_zero_holds_every_power_and_little_more(radius: str, power: int) -> None:
    found = balls.power(arb(0, arb(radius)), arb(power))
    assert found.contains(arb(radius).mid() ** power)
    assert found.contains(0)
    assert found.abs_upper() < 1.001 * arb(radius) ** power


def test_a_negative_power_of_a_ball_around_zero_is_no_number() -> None:
    assert not balls.power(arb(0, 1), arb(-1)).is_finite()
