"""The pages of a report in a browser: no error, no sideways scrolling from a phone to a desk, plots that are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")
pytest.importorskip("tornado", reason="the browser is controlled with tornado")

from gradgate.suites.report import frame, memory_page, write
from gradgate.suites.site import browser
from gradgate.suites.tests.report import test_memory_page as memory
from gradgate.suites.tests.report.test_report import ENOUGH, EVERY_OUTCOME, verdict
from gradgate.suites.tests.report.test_report import document as verdicts

LONG = verdict("a_claim_" * 9, "refuted", reason=f"{'x' * 300}; {'wrong ' * 90}", leaf="layer." * 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if browser.chromium() is None:
        pytest.skip("chromium is not installed")
    made = tmp_path_factory.mktemp("report")
    write(verdicts(*EVERY_OUTCOME, *ENOUGH, LONG), made)
    both = memory.document(("jax", "cpu"), ("torch", "cpu"), ("torch", "nvidia-h100"), temp=0)
    frame.write(made, memory_page.pages(both | {"choice": memory.choice()}))
    return made


@pytest.mark.parametrize("width", browser.WIDTHS)
def test_every_page_fits_the_screen_and_has_no_error(width: int, folder: Path) -> None:
    for page in browser.open_all(folder, ["index.html", "memory.html", "choice.html"], width):
        assert page.complaints == (), page.path
        assert page.width <= width, page.path
        assert page.reachable > 1, "the keyboard reaches what can be opened"


def test_a_page_without_its_library_says_so_and_has_no_error(folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "memory.html").write_bytes((folder / "memory.html").read_bytes())
    [page] = browser.open_all(alone, ["memory.html"])
    assert [one for one in page.complaints if frame.SCRIPT not in one] == []
    assert page.width <= browser.NARROW
