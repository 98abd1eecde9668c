"""Pages of bytes and work: one design, whose bytes they are, zeros drawn, tables beside plots, columns explained."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.suites.console import memory_table
from gradgate.suites.measuring.series import Series
from gradgate.suites.report import columns, frame, memory_page
from gradgate.suites.tests.report.test_report import section, text

SIZES = (64, 128, 256, 512)


def document(*owners: tuple[str, str], temp: int = 928) -> dict[str, Any]:
    """What ``gradgate memory --json`` writes of a sweep; `owners`: framework and profile of each method."""
    cells: list[dict[str, Any]] = []
    laws: list[dict[str, Any]] = []
    for framework, profile in owners:
        owner = {"family": "fam", "method": "meth", "framework": framework, "profile": profile}
        for size in SIZES:
            figures = {"temp_bytes": temp * size, "argument_bytes": 8, "output_bytes": 8, "flops": 12 * size}
            cells.append(
                owner
                | figures
                | {"options": {}, "spec": {"length": size}, "required_bytes": temp * size + 16, "fits": size < 512}
                | {"status": "measured", "reason": "", "roofline_seconds": 0.0, "memory_bytes": 2**30}
            )
        for quantity in ("temp_bytes", "required_bytes", "flops"):
            found = [(cell["spec"]["length"], cell[quantity]) for cell in cells[-len(SIZES) :]]
            limits = {"memory_bytes": 2**30, "largest_measured": 256, "smallest_unfit": 512, "largest_foretold": 400.0}
            series = Series.of(quantity, "length", "T", found).to_dict()
            laws.append(owner | series | (limits if quantity == "required_bytes" else {}))
    return {"schema": 1, "fingerprint": {"python": "3.11.7"}, "cells": cells, "laws": laws}


def choice() -> dict[str, Any]:
    row = {
        "profile": "cpu",
        "verdict": "right",
        "reason": "",
        "note": "",
        "size": 512,
        "temp_bytes": 0,
        "flops": 1,
        "fits": True,
        "roofline_seconds": 1e-3,
    }
    rows = [
        row | {"method": "good", "right": True, "required_bytes": 0},
        row | {"method": "bad", "right": False, "required_bytes": 5, "reason": "value: wrong"},
    ]
    return {"problem": "mine.py:Model", "class": "chain", "letter": "T", "rows": rows, "left_out": {"other": "a <b>"}}


def figures(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, flags=re.DOTALL)
    assert found
    return dict(json.loads(found.group(1)))


@pytest.mark.parametrize("name", ["memory.html", "choice.html"])
def test_every_page_has_the_same_frame_and_says_last_how_it_was_made(name: str) -> None:
    shown = memory_page.pages(document(("jax", "cpu")) | {"choice": choice()})[name]
    style = frame.environment().get_template("style.css").render()
    assert style in shown
    assert f'<script src="{frame.SCRIPT}">' in shown
    assert len(shown) < 100_000
    assert text(shown).endswith("python 3.11.7")
    assert '<b>"' not in shown


def test_bytes_of_pytorch_are_those_of_every_device_and_bytes_of_jax_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    both = document(("jax", "cpu"), ("jax", "tpu-v5p"), ("torch", "cpu"), ("torch", "tpu-v5p"))
    memory_table.show(both, "T")
    console = " ".join(capsys.readouterr().out.split())
    page = section(memory_page.pages(both)["memory.html"], "cells")
    for shown in (console, page):
        assert shown.count("every device") >= len(SIZES)
        assert shown.count("tpu-v5p") >= len(SIZES)
    whole = text(memory_page.pages(both)["memory.html"])
    for sentence in memory_table.WHOSE.values():
        assert sentence in console
        assert sentence in whole
    alone = memory_page.pages(document(("jax", "cpu")))["memory.html"]
    assert memory_table.WHOSE["torch"] not in text(alone), "no sentence about what is not there"
    one = memory_page.pages(document(("torch", "nvidia-h100")))["memory.html"]
    assert "every device" in section(one, "cells"), "one device is no reason to call the bytes its own"


def test_a_zero_is_drawn_hollow_below_everything_and_stands_in_the_table() -> None:
    drawn = figures(memory_page.pages(document(("torch", "cpu"), temp=0))["memory.html"])
    points = next(trace for trace in drawn["temp_bytes"]["data"] if trace["mode"] == "markers")
    assert points["y"] == [1.0] * len(SIZES)
    assert set(points["marker"]["symbol"]) == {"circle-open"}
    assert set(points["text"]) == {"0 B"}
    assert drawn["temp_bytes"]["layout"]["annotations"][0]["text"] == "0, drawn here"
    assert "annotations" not in drawn["flops"]["layout"], "nothing is 0 there"
    table = section(memory_page.pages(document(("torch", "cpu"), temp=0))["memory.html"], "of-temp_bytes")
    assert "meth torch" + "0 B" * len(SIZES) in table
    [points] = figures(memory_page.pages(document() | {"choice": choice()})["choice.html"])["choice"]["data"]
    assert points["marker"]["symbol"] == ["circle-open", "x"]


def test_every_number_of_a_plot_is_in_the_table_beside_it_and_every_column_is_explained() -> None:
    shown = memory_page.pages(document(("jax", "cpu")))["memory.html"]
    table = section(shown, "of-temp_bytes")
    for size, words in zip(SIZES, ("59.4 kB", "119 kB", "238 kB", "475 kB"), strict=True):
        assert str(size) in table
        assert words in table
    cells = html.unescape(shown.partition('<section id="cells">')[2])
    heads = [text(head) for head in re.findall(r"<th.*?</th>", cells.partition("</thead>")[0])]
    explained = [text(head) for head in re.findall(r"<dt>(.*?)</dt>", cells.partition("</dl>")[0])]
    assert heads == explained
    assert "T" in heads
    assert all(columns.MEMORY[head] in cells for head in heads if head != "T")


def test_a_column_in_which_no_row_says_anything_is_left_out_of_both(capsys: pytest.CaptureFixture[str]) -> None:
    bare = document(("torch", "cpu"))
    for cell in bare["cells"]:
        cell |= {"output_bytes": None, "fits": None, "roofline_seconds": None}
    named = document(("torch", "cpu"))
    named["cells"][0]["setting"] = "chunk 4"
    for made, there, gone in (
        (bare, ["temp", "arguments", "work"], ["options", "outputs", "fits", "roofline"]),
        (named, ["options", "temp", "arguments", "outputs", "fits", "work", "roofline"], []),
    ):
        memory_table.show(made, "T")
        console = capsys.readouterr().out.splitlines()[0].split()
        cells = memory_page.pages(made)["memory.html"].partition('<section id="cells">')[2]
        page = [text(head) for head in re.findall(r"<th.*?</th>", cells.partition("</thead>")[0])]
        assert [head for head in page if head in there + gone] == there
        assert [head for head in console if head in there + gone] == there


def test_a_page_without_a_sweep_says_how_to_ask_for_one() -> None:
    shown = memory_page.pages(document(("jax", "cpu")) | {"laws": []})["memory.html"]
    assert "--sweep T=64:4096" in text(shown)
    assert frame.SCRIPT not in shown, "nothing is plotted"
