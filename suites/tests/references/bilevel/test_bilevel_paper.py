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
    table = paper.TABLE_2 if "489M" in place else paper.TABLE_3
    [total] = [i for i in paper.PUBLISHED if (i.place, i.series, i.x) == (place, f"-++ over +++, {device}", "HBM")]
    column = ("GPU", "TPU").index(device)
    assert total.measured.endswith(":gain_total")
    assert total.printed == table["-++"][column] / table["+++"][column]
    dynamic = [i for i in paper.PUBLISHED if i.measured.endswith(":gain") and i.place == place]
    assert dynamic
    assert all(i.printed is None for i in dynamic)
    series = f"-++ over +++, {device}"
    assert recorded(place, series, "dynamic (Eq. 10)") > recorded(place, series, "HBM") > 2


@pytest.mark.parametrize("device", ["GPU", "TPU"])
def test_reasons_of_step_times_quote_what_is_recorded(device: str) -> None:
    tested = "Tables 2 and 3, step time, tested: printed over ours"
    mean = recorded(tested, f"44M, roofline, {device}", "mean")
    spread = recorded(tested, f"44M, roofline, {device}", "spread")
    assert f"printed over ours is {mean:.2f}, spread {spread:.1f}%" in paper_times.REASONS[device]
    larger = recorded(tested, f"489M, roofline, {device}", "mean")
    assert f"printed over ours is {larger:.2f}, of the 44M model {mean:.2f}" in paper_times.LARGER[device]


def test_reasons_of_bytes_on_tpu_quote_what_is_recorded() -> None:
    place = "Table 2, tested: Listings 1 and 3, 44M with 4 layers, TPU, temporaries"
    scan, loop = recorded(place, "layers in a scan", "---"), recorded(place, "layers unrolled", "---")
    longer = recorded("Table 3, tested: 44M, TPU", "context 3072", "-++")
    shorter = recorded("Table 3, 44M", "HBM, TPU", "-++")
    told = paper_reasons.SIZE["TPU"]
    assert f"takes {longer:.1f} GiB, at 2048 {shorter:.1f}, printed are 34.1" in told
    assert f"take {loop:.1f} GiB of temporaries for --- with 4 layers, in a scan {scan:.1f}" in told
    without, saved = (recorded(place, "2 layers unrolled", signs) for signs in ("---", "--+"))
    told = paper_reasons.SIZE["TPU", "--+"]
    assert f"{1 - saved / without:.0%} of 2 layers ({without:.2f} and {saved:.2f} GiB)" in told
    deeper = recorded(place, "layers unrolled", "--+")
    assert f"{1 - deeper / loop:.0%} of 4 ({loop:.2f} and {deeper:.2f})" in told
    assert f"{1 - (deeper - saved) / (loop - without):.0%} of each further layer" in told


def test_the_reason_of_saved_gradients_on_gpu_quotes_what_is_recorded() -> None:
    place = "Table 2, tested: Listings 1 and 3, 44M with 4 layers, GPU, temporaries"
    without, saved = (recorded(place, "layers unrolled", signs) for signs in ("---", "--+"))
    assert f"{1 - saved / without:.0%} ({without:.2f} and {saved:.2f} GiB" in paper_reasons.SIZE["GPU", "--+"]


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
