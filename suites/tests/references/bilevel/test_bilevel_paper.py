"""The list of the paper's figures, and the results that were recorded for them."""

from __future__ import annotations

import inspect
from collections import Counter
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.bilevel.inner.transformer import SIZES
from gradgate.references.bilevel.paper import reasons as paper_reasons
from gradgate.references.bilevel.paper import rows as paper
from gradgate.references.bilevel.paper import scale as paper_scale
from gradgate.references.bilevel.paper import times as paper_times
from gradgate.suites.measuring import paper_results

RESULTS = paper_results.read(paper_results.results_path("bilevel"))["results"]


def recorded(place: str, series: str, x: Any) -> float:
    """The figure that we measured, in a recorded result."""
    (row,) = [row for row in RESULTS if (row["place"], row["series"], row["x"]) == (place, series, x)]
    return float(row["ours"])


def test_every_figure_is_listed_once_and_names_what_measures_it() -> None:
    assert max(Counter(item.key for item in paper.PUBLISHED).values()) == 1
    for item in paper.PUBLISHED:
        told = {key: value for key, value in item.arguments.items() if key != "between"}  # `derive` reads it itself
        inspect.signature(registry.load(item.measured)).bind(**told)


def test_every_setting_is_a_legal_problem() -> None:
    for item in paper.PUBLISHED:
        other = (
            "profile",
            "optimisations",
            "default",
            "ours",
            "variable",
            "values",
            "device",
            "statistic",
            "rate",
            "name",
            "static",
            "how",
            "signs",
        )
        told = {key: value for key, value in item.arguments.items() if key not in other}
        if "millions" in told:
            assert paper_scale.configuration(**told).model == "transformer"


def test_the_ablations_are_whole() -> None:
    for place, printed in (("Table 2, 489M", paper.TABLE_2), ("Table 3, 44M", paper.TABLE_3)):
        rows = {(i.series, i.x): i.printed for i in paper.PUBLISHED if i.place == place and i.series.startswith("HBM")}
        for column, device in enumerate(("GPU", "TPU")):
            for signs, figures in printed.items():
                assert rows[f"HBM, {device}", signs] == figures[column]
        assert len(rows) == 16


def test_what_is_recorded_is_what_is_listed() -> None:
    listed = {item.key: item for item in paper.PUBLISHED}
    assert RESULTS
    for row in RESULTS:
        item = listed[row["key"]]
        assert (row["printed"], row["reason"]) == (item.printed, item.reason)
        assert row["fingerprint"]["jax"]


@pytest.mark.parametrize("place", ["Table 2, 489M", "Table 3, 44M"])
@pytest.mark.parametrize("device", ["GPU", "TPU"])
def test_a_printed_gain_in_bytes_stands_beside_bytes_in_all(place: str, device: str) -> None:
    """The tables print total HBM, so their quotient is no figure for dynamic bytes, whose gain is larger."""
    [total] = [i for i in paper.PUBLISHED if (i.place, i.series, i.x) == (place, f"-++ over +++, {device}", "HBM")]
    assert total.measured.endswith(":gain_total")
    assert total.printed is None, "the tables print no quotient"
    dynamic = [i for i in paper.PUBLISHED if i.measured.endswith(":gain") and i.place == place]
    assert dynamic
    assert all(i.printed is None for i in dynamic)
    series = f"-++ over +++, {device}"
    assert recorded(place, series, "dynamic (Eq. 10)") > recorded(place, series, "HBM") > 2


def test_quotients_of_step_times_can_fail_and_rooflines_have_no_verdict(jax: Any) -> None:
    judged = [i for i in paper.PUBLISHED if "step time" in i.place and i.place.startswith("Table ") and i.expects]
    assert len(judged) == 11
    for item in judged:
        assert item.expects is not None
        assert item.expects.agreement.how == "equal"
        assert not item.expects.agreement.holds(1.3 * float(item.printed or 0), float(item.printed or 0))
    assert all(i.printed is None for i in paper.PUBLISHED if i.series.startswith("roofline, "))
    fitting = paper_scale.FITTING
    assert paper_times.times_flops(44, "+++", **fitting) == 1.0 < paper_times.times_flops(44, "-+-", **fitting)


def test_one_batch_and_context_explain_ten_of_the_32_figures_of_tables_2_and_3() -> None:
    """The rest is declared unexplained; a figure that comes out is in `FIT` and has no reason."""
    tables = [i for i in paper.PUBLISHED if i.place in ("Table 2, 489M", "Table 3, 44M") and i.printed is not None]
    assert len(tables) == 32
    assert all({"batch": 3, "sequence": 4096}.items() <= i.arguments.items() for i in tables)
    near = [i for i in tables if abs(recorded(i.place, i.series, i.x) / float(i.printed or 0) - 1) <= 0.05]
    assert len(near) == sum(map(len, paper.FIT.values())) == 10
    assert {i.expects.verdict for i in near if i.expects} == {"upheld"}


def test_reasons_of_bytes_quote_what_is_recorded() -> None:
    place = "Table 3, tested: 44M, B = 3, S = 4096, "
    told = paper_reasons.SIZE
    assert f"unrolled: {recorded(place + 'GPU', 'unrolled', '---'):.1f} GiB" in told["GPU"]
    scan, library = recorded("Table 3, 44M", "HBM, GPU", "---"), recorded(place + "GPU", "library", "---")
    assert library == pytest.approx(scan, rel=1e-3), "jax.nn.softmax: the same bytes"
    without, saved = (
        recorded("Table 3, tested: Listings 1 and 3, 44M, B = 3, S = 4096, GPU", "layers unrolled", signs)
        for signs in ("++-", "+++")
    )
    assert f"{without:.1f} GiB without at 44M and {saved:.1f} with" in told["GPU", "++-"]
    looped = {signs: recorded("Table 3, 44M", "HBM, TPU", signs) for signs in ("-++", "-+-", "+--", "+-+")}
    assert f"{looped['-++']:.1f} GiB" in told["TPU"]
    off = {signs: round(100 * (ours / paper.TABLE_3[signs][1] - 1)) for signs, ours in looped.items()}
    assert f"-+- is {off['-+-']}% above the printed, +-- {off['+--']}% above, +-+ {-off['+-+']}% below" in told["TPU"]
    assert f"({recorded('Table 3, 44M', 'HBM, GPU', '+++'):.2f} GiB" in told["GPU", "+++"]
    missing = paper.TABLE_2["+++"][0] - recorded("Table 2, 489M", "HBM, GPU", "+++")
    assert f"{missing:.1f} GiB are missing" in told["GPU", "+++"]


def test_static_memory_is_inputs_results_and_what_every_step_keeps(jax: Any) -> None:
    spec = paper_scale.configuration(44, layers=1, width=8, ffw=8, heads=1, key_size=2, vocabulary=16, steps=3)
    theta = 4 * (16 * 8 + 4 * 16 + 2 * 64 + 3 * 8)
    tokens = 4 * 2 * (3 + 1) * 4 * 2048
    scalars = 4 * 6 + 4 * 3  # upstream, learning rate and four hyperparameters; one number per step
    inputs_and_results = theta + tokens + scalars + theta
    assert paper_scale.static(spec, "++-") == inputs_and_results + 3 * 3 * theta
    assert paper_scale.static(spec, "+++") == inputs_and_results + 3 * 4 * theta


def test_signs_choose_the_method_and_its_options(jax: Any) -> None:
    for signs, name in (("-+-", "truncated_bptt"), ("+-+", "mixflow")):
        chosen: Any = paper_scale.program(signs)
        assert chosen.func.__name__ == name
        assert chosen.keywords == {"remat": signs[1] == "+", "save_inner_grads": signs[2] == "+"}


def test_mixed_mode_counts_fewer_operations(jax: Any) -> None:
    spec = paper_scale.configuration(44, layers=2, width=8, ffw=8, heads=1, key_size=2, vocabulary=16, sequence=16)
    assert paper_scale.flops(spec, "+++") < paper_scale.flops(spec, "++-")
    assert SIZES[44].layers == 8
