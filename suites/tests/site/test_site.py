"""The site builds without a warning, and its checks find planted mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradgate.suites.site import checking, guide, navigation, reference
from gradgate.suites.trial import counts


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built once."""
    for name in ("sphinx", "myst_parser", "furo", "jax", "torch"):
        pytest.importorskip(name, reason="the site is built in the shared environment")
    from gradgate.suites.site import build

    out = tmp_path_factory.mktemp("site")
    (out / "history").mkdir()
    (out / "history" / "index.html").write_text("asv")
    (out / "old.html").write_text("of an earlier build")
    assert build.build(out) == [], "Sphinx warns"
    return out


def test_no_link_is_broken_no_page_too_large_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    assert checking.faults(site) == []


def test_hyphens_in_a_row_are_no_dash(site: Path) -> None:
    page = (site / "atlas" / "bilevel_figures.html").read_text()
    table = page[page.index("<table") :]
    assert '<span class="pre">--+</span>' in table, "a setting of three switches, of which two are off"
    assert "–+" not in table


def test_what_was_published_stays_and_is_linked_to(site: Path) -> None:
    assert (site / "history" / "index.html").read_text() == "asv"
    assert not (site / "old.html").exists()
    page = (site / "published.html").read_text()
    assert 'href="history/index.html"' in page
    assert "not published with this copy" in page


def test_the_reference_has_docstrings_and_help_and_methods(site: Path) -> None:
    assert "gradgate.check" in (site / "reference" / "index.html").read_text()
    assert "--examples" in (site / "reference" / "commands.html").read_text()
    assert "backprop" in (site / "reference" / "chain.html").read_text()
    assert "gradient_exact" in (site / "reference" / "chain.backprop.html").read_text()
    assert "cotangent" in (site / "reference" / "gradgate.check.html").read_text()


def test_the_counts_of_the_trial_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        counts.Row("seeds jax chain:revolve", "a", 1, 6, date="2026-01-01", each=200),
        counts.Row("seeds jax chain:sqrt_n", "b", 1, 6, {"3 one": "refuted"}, date="2026-01-03", each=100),
    ]
    monkeypatch.setattr(counts, "read", lambda: rows)
    assert (
        reference.right()[-2] == f"| {reference.RIGHT['seeds']} | jax | 1,500 | 1 | 2026-01-01 to 2026-01-03 | 0.0032 |"
    )


def test_the_first_page_leads_to_installation_tutorial_libraries_and_atlas(site: Path) -> None:
    text = (site / "index.html").read_text()
    article = text[text.index("<article") : text.index("</article>")]
    above = article[: article.index("<h2")]
    for link in ("tutorial.html", "tutorial_jax.html", "libraries.html", "atlas/index.html"):
        assert f'href="{link}"' in above, "it stands above the first heading"
    assert "pip install" in above


def test_the_page_that_finds_has_a_title_and_a_field(site: Path) -> None:
    text = (site / "search.html").read_text()
    assert "<h1>Search</h1>" in text
    assert 'aria-label="words to look for"' in text
    assert 'id="search-results"' in text, "Sphinx writes what it finds there"


def test_every_page_of_the_guide_is_in_the_navigation() -> None:
    assert navigation.missing([page.stem.lower() for page in guide.FOLDER.glob("*.md")]) == []
    assert navigation.missing(["tutorial", "stray", "atlas/chain"]) == ["stray"]


def test_faults_are_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1>x</h1><a href="nowhere.html">x</a><a href="two.html#there">x</a><a href="two.html#here">x</a>'
        '<script src="https://example.org/x.js"></script><img src="big.png"><a href="https://example.org">x</a>'
    )
    (tmp_path / "two.html").write_text('<p id="here">' + "x" * checking.PAGE)
    (tmp_path / "big.png").write_bytes(b"x" * checking.FIRST)
    wrong = "\n".join(checking.faults(tmp_path))
    assert wrong.count("\n") == 5
    assert "two.html has 0 titles; h1 is one" in wrong
    assert "broken link nowhere.html" in wrong
    assert "two.html#there leads to a page that has no such place" in wrong
    assert "loads https://example.org/x.js from another server" in wrong
    assert "index.html takes 200," in wrong
    assert "two.html has 1,000," in wrong


def test_a_page_with_too_many_words_is_a_fault(tmp_path: Path) -> None:
    drawn = f"<svg>{'word ' * checking.WORDS}</svg><script>{'word ' * checking.WORDS}</script>"
    text = f"<p>{'word ' * checking.WORDS}</p> · ¶ {drawn}"
    for name, article in (("index", text), ("long", f"{text} more")):
        (tmp_path / f"{name}.html").write_text(f'<nav>{text}</nav><h1>x</h1><article role="main">{article}</article>')
    (tmp_path / "cards.html").write_text(f"<h1>x</h1><article>{text} more</article>")
    assert checking.faults(tmp_path) == ["long.html has 3,001 words; legal are 3,000: split it"]


def test_a_file_block_gets_a_caption_and_a_link_out_of_the_guide_is_a_path() -> None:
    told = guide.readable("```python mine.py\nx = 1\n```\n\n[the rule](../judging/tolerance.py), [here](pairs.md)\n")
    assert "```{code-block} python\n:caption: mine.py\n\nx = 1\n```" in told
    assert "the rule (`suites/judging/tolerance.py`), [here](pairs.md)" in told
