"""The pages of decisions have their sections, are listed, and name files and links that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DESIGN = ROOT / "suites" / "design"
SECTIONS = ["Decision", "Why", "What was tried or considered instead", "Cost", "Where", "Revisit when"]
OTHERS = ("README", "rooms", "review")
"""Pages that are no decisions."""
PAGES = sorted(DESIGN.glob("*.md"))
LONGEST = 60
"""Lines of a page: about one printed page."""

pytestmark = pytest.mark.skipif(not DESIGN.exists(), reason="not a checkout: the wheel has no pages of design")


def faults(text: str, folder: Path, root: Path) -> list[str]:
    """Links that lead nowhere from `folder`, and files in backticks that are not in `root`."""
    links = re.findall(r"\]\(([^)#]+)", text)
    found = [link for link in links if not link.startswith("https://") and not (folder / link).exists()]
    named = re.findall(r"`((?:suites|references|hw_profiles|asv_bench)/[^`<*]*)`", text)
    return found + [name for name in named if not (root / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_and_every_file_that_a_page_names_is_there(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8"), DESIGN, ROOT) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem not in OTHERS], ids=lambda page: page.stem)
def test_a_decision_is_a_question_with_these_sections_on_one_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.match(r"# .*\?\n", text), "the title is no question"
    assert re.findall(r"^## (.*)$", text, re.M) == SECTIONS
    assert text.count("\n") <= LONGEST


def test_every_page_is_in_the_list_and_contributing_leads_to_it() -> None:
    listed = (DESIGN / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.stem != "README" and f"]({page.name})" not in listed] == []
    assert "](suites/design/README.md)" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_a_planted_link_and_a_planted_file_are_found(tmp_path: Path) -> None:
    (tmp_path / "suites").mkdir()
    (tmp_path / "here.md").touch()
    text = "[here](here.md) [gone](gone.md) [web](https://example.org) in `suites/` and `suites/gone.py`"
    assert faults(text, tmp_path, tmp_path) == ["gone.md", "suites/gone.py"]
