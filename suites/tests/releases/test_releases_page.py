"""The page and the feed name a confirmed rise, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from gradgate.suites.releases import history, page, plots, rises
from gradgate.suites.releases.history import Step
from gradgate.suites.tests.releases.recorded import step

ATOM = "{http://www.w3.org/2005/Atom}"


def written(tmp_path: Path, *steps: Step) -> tuple[str, list[str], dict[str, object]]:
    """The page, the titles of the feed and the JSON of these steps."""
    for each in steps:
        history.write(tmp_path / "history", each)
    assert page.write(tmp_path, tmp_path / "history") == [page.NAME]
    feed = ElementTree.fromstring((tmp_path / "extra" / page.FEED).read_text())
    titles = [str(title.text) for title in feed.iter(f"{ATOM}title")][1:]
    return (tmp_path / f"{page.NAME}.md").read_text(), titles, json.loads((tmp_path / "extra" / page.DATA).read_text())


def test_a_confirmed_rise_is_on_the_page_in_the_feed_and_in_the_json(tmp_path: Path) -> None:
    text, titles, document = written(tmp_path, step("0.9.2", 1000, again=1000), step("0.10.2", 1500, again=1500))
    assert "| `chain:sqrt_n` | bytes | 1,000 | 1,500 | +50.0% |" in text
    assert '<span class="whole">nvidia-h100</span>' in text, "no name wraps at its hyphen"
    assert titles == ["jax-0.10.2 raises a figure on nvidia-h100"]
    assert document["changes"] == [
        {
            "release": "jax-0.10.2",
            "before": "jax-0.9.2",
            "profile": "nvidia-h100",
            "name": "chain:sqrt_n:jax~ab12",
            "quantity": "required_bytes",
            "old": 1000,
            "new": 1500,
            "confirmed": True,
        }
    ]


def test_a_rise_that_is_not_confirmed_is_only_counted(tmp_path: Path) -> None:
    text, titles, _ = written(tmp_path, step("0.9.2", 1000, again=1000), step("0.10.2", 1500, again=1400))
    assert "1,500" not in text
    assert "1 rises are not shown" in text
    assert titles == []


def test_without_a_rise_nothing_is_named(tmp_path: Path) -> None:
    text, titles, document = written(tmp_path, step("0.9.2", 1000), step("0.10.2", 1000))
    assert "No release raised a figure" in text
    assert "<svg" not in text
    assert titles == document["changes"] == []


def test_a_fall_is_no_rise(tmp_path: Path) -> None:
    text, titles, _ = written(tmp_path, step("0.9.2", 1500), step("0.10.2", 1000))
    assert "## Falls" in text
    assert "-33.3%" in text
    assert titles == []


def test_a_failed_cell_is_a_row_with_its_reason(tmp_path: Path) -> None:
    text, _, _ = written(tmp_path, step("0.9.2", 1000), step("0.10.2", None))
    assert "| jax-0.10.2 | nvidia-h100 | refused: the compiler refused the program | `chain:sqrt_n` |" in text


def test_a_site_without_measurements_says_how_to_make_them(tmp_path: Path) -> None:
    text, titles, _ = written(tmp_path)
    assert "nox -s releases" in text
    assert titles == []


def test_a_line_that_moves_is_drawn_and_named_and_a_flat_one_is_grey() -> None:
    drawn = plots.over_releases({"up": [100, 120], "flat": [7, 7], "unknown": [None, 3]}, ["0.9.2", "0.10.2"], "bytes")
    svg = ElementTree.fromstring(drawn)
    assert [line.get("class") for line in svg.iter("polyline")] == ["line inapplicable", "line upheld"]
    assert "up" in [text.text for text in svg.iter("text")]
    assert plots.over_releases({"flat": [7, 7]}, ["0.9.2", "0.10.2"], "bytes") == ""


def test_the_page_of_the_committed_history_shows_confirmed_rises_only(tmp_path: Path) -> None:
    confirmed = [c for c in rises.changes(history.steps(history.FOLDER)) if c.rise and c.confirmed]
    page.write(tmp_path)
    text = (tmp_path / f"{page.NAME}.md").read_text()
    table = text[text.index("## Rises") : text.index("## Falls")]
    shown = [line for line in table.splitlines() if line.startswith("| <span")]
    assert len(shown) == sum(change.ratio > 1 + page.SMALL for change in confirmed)
    assert shown, "the committed history has no confirmed rise"
