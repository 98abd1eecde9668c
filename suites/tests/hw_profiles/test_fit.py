import dataclasses
import json

import numpy as np
import pytest

from gradgate.hw_profiles.fit import FitError, FittedLaw, does_not_depend, fit, surely_faster

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
    values = 1 + 0.1 * SIZES
    assert fit(SIZES, values, quantity).exponent == pytest.approx(1, abs=1e-6)
    assert fit(SIZES, values, "temp_bytes").exponent == 0
