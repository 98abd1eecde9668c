import dataclasses
import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from gradgate.hw_profiles.fit import (
    GRAIN,
    TOLERANCE,
    FitError,
    FittedLaw,
    does_not_depend,
    fit,
    negligible,
    surely_faster,
)

SIZES = 2.0 ** np.arange(4, 12)


def bytes_of(exponent, constant, coefficient=4096.0):
    return constant + coefficient * SIZES**exponent


@pytest.mark.parametrize("exponent", [0, 0.5, 1, 1.5, 2])
@pytest.mark.parametrize("constant", [0.0, 1e6, 1e9])
def test_data_that_follow_the_law_are_recovered(exponent, constant):
    law = fit(SIZES, bytes_of(exponent, constant), "flops")
    assert law.exponent == pytest.approx(exponent, abs=1e-6)
    assert law.predict(4096) == pytest.approx(constant + 4096 * 4096.0**exponent, rel=1e-6)
    assert law.residual < 1e-9
    if exponent:
        assert law.constant == pytest.approx(constant, abs=1e-4 * (constant + 4096))
        assert law.coefficient == pytest.approx(4096, rel=1e-6)


@pytest.mark.parametrize("exponent", [0, 0.5, 1, 2])
@pytest.mark.parametrize("place", range(8))
def test_one_outlier_moves_nothing(exponent, place):
    values = bytes_of(exponent, 1e5)
    values[place] *= 1.6
    law = fit(SIZES, values, "flops")
    assert law.exponent == pytest.approx(exponent, abs=1e-5)
    assert law.outliers == (SIZES[place],)


@pytest.mark.parametrize("exponent", [0.5, 1, 2])
def test_padding_to_whole_tiles_moves_the_exponent_little(exponent):
    values = np.ceil(bytes_of(exponent, 1e5) / 512) * 512
    assert fit(SIZES, values, "flops").exponent == pytest.approx(exponent, abs=0.02)


def test_a_large_constant_does_not_hide_slow_growth():
    assert fit(SIZES, bytes_of(1, 1e12, 8.0), "flops").exponent == pytest.approx(1, abs=1e-3)


def test_a_rise_within_the_grain_is_no_growth():
    values = np.full(8, 1e6) + np.arange(8) * 100
    assert fit(SIZES, values, "flops").exponent > 0
    assert fit(SIZES, values, "temp_bytes").exponent == 0


def test_sizes_that_straddle_two_regimes_are_no_reliable_law():
    assert fit(SIZES, bytes_of(1, 1e5), "flops").reliable
    # Bytes that are needed only after an on-chip memory overflows.
    overflow = np.maximum(0, 4096 * (SIZES - 700))
    assert np.count_nonzero(overflow) == 2
    assert not fit(SIZES, overflow, "flops").reliable
    assert not fit(SIZES, np.where(SIZES < 200, 1e5 + 4096 * SIZES, 3e7), "flops").reliable


def test_a_count_that_starts_at_zero_has_a_negative_constant():
    law = fit(SIZES, 4096 * (SIZES - 1), "flops")
    assert (law.exponent, law.constant) == (pytest.approx(1), pytest.approx(-4096))


def test_nothing_at_all_is_a_law_too():
    assert fit(SIZES, np.zeros(8), "flops").exponent == 0
    assert does_not_depend(SIZES, np.zeros(8)).holds
    assert not does_not_depend(SIZES, SIZES - 16).holds


def test_the_largest_size_inverts_the_law():
    law = fit(SIZES, bytes_of(2, 1e6), "flops")
    assert law.predict(law.largest_size(16e9)) == pytest.approx(16e9)
    assert law.largest_size(1e5) == 0
    assert fit(SIZES, bytes_of(0, 1e6), "flops").largest_size(16e9) is None


def test_no_size_is_foretold_far_beyond_what_was_measured():
    law = fit(SIZES, bytes_of(0.5, 1e6), "flops")
    assert law.largest_size(law.predict(1000 * SIZES[-1])) == pytest.approx(1000 * SIZES[-1])
    assert law.largest_size(law.predict(1100 * SIZES[-1])) is None


def test_what_shrinks_does_not_grow():
    law = fit(SIZES, 118e6 - 1e4 * np.log2(SIZES), "flops")
    assert (law.exponent, law.coefficient) == (0, 0)
    assert law.constant == pytest.approx(118e6, rel=1e-3)


def test_logarithmic_growth_is_no_tiny_power_of_a_huge_negative_constant():
    law = fit(SIZES, 1e6 * (4 + np.log2(SIZES)), "flops")
    assert law.constant >= -0.25 * 8e6
    assert not law.reliable or law.exponent < 0.3


def test_the_order_of_the_sizes_does_not_matter():
    values = bytes_of(0.5, 1e5)
    assert fit(SIZES[::-1], values[::-1], "flops") == fit(SIZES, values, "flops")


def test_independence_forgives_one_outlier_and_sees_growth():
    flat = np.full(8, 1e6)
    assert does_not_depend(SIZES, flat).holds
    flat[3] *= 2
    assert does_not_depend(SIZES, flat).holds
    grown = does_not_depend(SIZES, bytes_of(0.5, 1e5))
    assert not grown.holds
    assert "depend on the size" in grown.sentence
    assert not does_not_depend(SIZES, 1e6 - 100 * SIZES).holds


@pytest.mark.parametrize(
    ("sizes", "values", "message"),
    [
        ([1, 2, 4, 8], [1, 2, 3, 4], "4 different sizes are too few"),
        ([1, 1, 2, 2, 4, 4], [1] * 6, "3 different sizes are too few"),
        ([10, 11, 12, 13, 14], [1] * 5, "too close"),
        ([1, 2, 4, 8, 16], [1] * 4, "one value per size"),
        ([1, 2, 4, 8, 16], [1, 2, 3, 4, -1], "must not be negative"),
        ([0, 2, 4, 8, 16], [1, 2, 3, 4, 5], "sizes must be positive"),
        ([1, 2, 4, 8, 16], [1, 2, 3, 4, float("nan")], "finite"),
    ],
)
def test_a_sweep_that_cannot_show_a_law_is_refused_in_words(sizes, values, message):
    with pytest.raises(FitError, match=message):
        fit(sizes, values, "flops")
    with pytest.raises(FitError, match=message):
        does_not_depend(sizes, values)


def test_a_law_survives_json():
    law = fit(SIZES, bytes_of(1, 1e6), "temp_bytes")
    assert FittedLaw.from_dict(json.loads(json.dumps(dataclasses.asdict(law)))) == law


def test_an_unreliable_law_says_why_and_a_reliable_one_has_no_doubt():
    assert fit(SIZES, bytes_of(1, 1e6), "temp_bytes").doubt == ""
    straddles = fit(SIZES, np.where(SIZES < 200, 1e5 + 4096 * SIZES, 3e7), "temp_bytes")
    assert straddles.doubt.startswith("no single law: the exponent is ")
    assert "straddle a change of regime" in straddles.doubt


@pytest.mark.parametrize(("exponent", "linear"), [(0.5, False), (0.84, False), (0.9, True), (1.1, True), (1.16, False)])
def test_a_law_near_enough_to_a_line_is_linear(exponent, linear):
    assert fit(SIZES, bytes_of(exponent, 1e6), "temp_bytes").linear == linear


def test_growth_is_surely_faster_only_if_every_fit_with_a_size_left_out_is():
    assert surely_faster((1.31, 2.5), claimed=1)
    assert not surely_faster((1.29, 2.5), claimed=1)
    assert surely_faster((1.29, 2.5), claimed=1, tolerance=0.05)


@pytest.mark.parametrize("quantity", ["times", "residual_bytes", "compiled_residual_bytes"])
def test_a_quantity_that_is_counted_exactly_has_no_grain(quantity):
    values = 1e6 + np.array([0, 300, 100, 500, 400, 900, 800, 1200])
    assert fit(SIZES, values, "temp_bytes").exponent == 0
    assert fit(SIZES, values, quantity).exponent > 0
    assert negligible(values, "temp_bytes")
    assert not negligible(values, quantity)


@pytest.mark.parametrize("coefficient", [3, 8])
@pytest.mark.parametrize("quantity", ["temp_bytes", "residual_bytes", "flops"])
def test_a_few_bytes_per_token_are_linear(coefficient, quantity):
    tokens = [256, 512, 1024, 2048, 4096]
    law = fit(tokens, [coefficient * T for T in tokens], quantity)
    assert (law.exponent, law.constant, law.coefficient) == (1, 0, coefficient)
    assert law.exponent_range == (1, 1)
    assert law.reliable


def test_the_larger_of_two_phases_is_no_single_law():
    """The peak bytes of `moonwalk_mixed` in PyTorch; the first four points are on one line, the last on another."""
    law = fit([2, 4, 8, 16, 32], [19776, 20096, 20736, 22016, 29696], "temp_bytes")
    assert not law.reliable
    assert "no size" not in law.doubt


EXPONENTS = (0.5, 1.0, 1.5, 2.0)
SMALL = hypothesis.settings(max_examples=80, derandomize=True, database=None, deadline=None)
"""A fit takes some ten milliseconds."""


@st.composite
def sweeps(draw):
    """Sizes of sweeps: 5 to 9 points from 1 … 256 on, each 1.5, 2 or 4 times the one before, and at least 4 times."""
    factor = draw(st.sampled_from((2.0, 1.5, 4.0)))
    points = draw(st.integers(5, 9))
    return draw(st.sampled_from((16.0, 1.0, 2.0, 64.0, 256.0))) * factor ** np.arange(points)


@st.composite
def exact_data(draw):
    """Sizes, exponent, constant, coefficient and values of a law; its growth is above what floats round away."""
    sizes, exponent = draw(sweeps()), draw(st.sampled_from((0.0, *EXPONENTS)))
    coefficient = draw(st.sampled_from((1.0, 3.0, 8.0, 0.1, 4096.0, 1e6)))
    constant = draw(st.sampled_from((0.0, 1.0, 48.0, 4096.0, 1e6, 1e9)))
    if exponent and draw(st.booleans()):
        constant = -0.9 * coefficient * sizes[0] ** exponent
    if not exponent:
        return sizes, 0.0, constant, 0.0, np.full(len(sizes), constant)
    values = constant + coefficient * sizes**exponent
    hypothesis.assume(np.ptp(values) > 1e-9 * values.max())
    return sizes, exponent, constant, coefficient, values


@SMALL
@hypothesis.given(exact_data(), st.sampled_from(("temp_bytes", "flops", "times")))
def test_exact_data_give_exactly_their_law(data, quantity):
    sizes, exponent, constant, coefficient, values = data
    law = fit(sizes, values, quantity)
    assert law.exponent == exponent
    assert law.exponent_range == (exponent, exponent)
    assert law.reliable
    assert not law.outliers
    assert law.constant == pytest.approx(constant, abs=1e-6 * np.ptp(values) + 1e-9 * values.max())
    assert law.coefficient == pytest.approx(coefficient, rel=1e-6)
    assert [law.predict(size) for size in sizes] == pytest.approx(values.tolist(), rel=1e-6, abs=1e-9 * values.max())


@SMALL
@hypothesis.given(exact_data(), st.sampled_from(("temp_bytes", "flops")))
def test_exact_data_are_not_taken_for_those_of_another_law(data, quantity):
    """The twin of the test above: a second term, half as large as the first at the largest size, is not overlooked."""
    sizes, exponent, _, coefficient, values = data
    hypothesis.assume(exponent)
    for other in {0.5, 1.0, 1.5, 2.0} - {exponent}:
        second = 0.5 * coefficient * sizes[-1] ** exponent * (sizes / sizes[-1]) ** other
        law = fit(sizes, values + second, quantity)
        if negligible(values + second, quantity):
            continue
        assert law.exponent > 0
        assert law.exponent_range != (exponent, exponent)
        assert min(exponent, other) - 1e-9 <= law.exponent <= max(exponent, other) + 1e-9 or not law.reliable


@st.composite
def rounded_data(draw):
    """Sizes, exponent, grain, rise in grains and values of a law that is rounded up to the grain."""
    sizes, exponent = draw(sweeps()), draw(st.sampled_from(EXPONENTS))
    grain = draw(st.sampled_from((1, 16, 64, 256, 512, 4096)))
    grains = 2.0 ** draw(st.floats(0, 18))
    constant = draw(st.sampled_from((0.0, 0.3, 7.0, 1000.5))) * grain
    law = constant + grains * grain * sizes**exponent / np.ptp(sizes**exponent)
    return sizes, exponent, grain, grains, np.ceil(law / grain) * grain


@SMALL
@hypothesis.given(rounded_data())
def test_rounding_up_to_a_grain_hides_no_law_and_makes_none_up(data):
    sizes, exponent, _, grains, values = data
    law = fit(sizes, values, "temp_bytes")
    low, high = law.exponent_range
    if negligible(values, "temp_bytes"):
        return
    if law.reliable:  # exponents are tried in steps of 0.02
        assert low - 0.02 <= exponent <= high + 0.02, (law, values)
        assert law.exponent > 0
    if grains >= 4096:
        assert law.reliable, (law, values)
        assert law.exponent == pytest.approx(exponent, abs=TOLERANCE)


@SMALL
@hypothesis.given(rounded_data(), st.sampled_from(EXPONENTS))
def test_a_law_that_was_rounded_up_is_not_taken_for_another(data, claimed):
    """The twin of the test above: whatever the grain, data of one exponent do not uphold a claim of another."""
    sizes, exponent, _, _, values = data
    hypothesis.assume(abs(claimed - exponent) > 0.4)
    law = fit(sizes, values, "temp_bytes")
    assert not law.reliable or abs(law.exponent - claimed) > TOLERANCE


@pytest.mark.parametrize("grain", [1, 16, 64, 512, 4096])
def test_a_rise_of_few_grains_says_so(grain):
    """A true law T² that rises by nine grains, all of them between the last two sizes."""
    law = fit([2, 8, 32, 128, 512, 2048], [grain] * 5 + [9 * grain], "temp_bytes")
    assert not law.reliable
    assert law.grain == grain
    assert f"multiples of {grain} bytes and grow by few of them" in law.doubt


def test_the_largest_grain_is_that_of_a_tpu_tile():
    assert GRAIN == 8 * 128 * 4


@pytest.mark.parametrize(
    ("values", "small"),
    [([1e6, 1e6 + 4096], True), ([1e6, 1e6 + 4097], False), ([1e4, 1e4 + 500], True), ([1e4, 1e4 + 501], False)],
)
def test_what_is_negligible_is_small_in_bytes_and_in_percent(values, small):
    assert negligible(values, "temp_bytes") == small
    assert not negligible(values, "flops")


def test_padding_ignores_one_size_and_no_second():
    sizes, irregular = SIZES[:5], np.array([0, 128, 64, 256, 192])
    odd = np.array([0, 0, 1e6, 0, 0])
    assert fit(sizes, 1e6 + irregular + odd, "temp_bytes").exponent_range == (0, 0)
    assert not fit(sizes, 1e6 + irregular + odd + odd[::-1] / 2 + np.array([0, 4e5, 0, 0, 0]), "temp_bytes").reliable
