"""A browser opens pages and reports what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.site import browser

HEAD = '<link rel="icon" href="data:,"><meta name="viewport" content="width=device-width">'


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "good.html").write_text(f'{HEAD}<p>all is well</p><a href="good.html">x</a>')
    (tmp_path / "bad.html").write_text(
        f'{HEAD}<script>nowhere()</script><script src="missing.js"></script><div style="width: 3000px">x</div>'
    )
    return tmp_path


def test_a_good_page_has_no_complaints_and_a_bad_one_names_each(pages: Path) -> None:
    pytest.importorskip("tornado")
    if browser.chromium() is None:
        pytest.skip("chromium is not installed")
    good, bad = browser.open_all(pages, ["good.html", "bad.html"], shots=pages / "shots")
    assert good.complaints == ()
    assert (good.width, good.reachable) == (browser.NARROW, 1)
    told = "\n".join(bad.complaints)
    assert "nowhere is not defined" in told
    assert "missing.js" in told
    assert bad.width >= 3000
    assert (pages / "shots" / "good_html.png").stat().st_size > 500


def test_what_cannot_be_seen_or_reached_is_named_in_each_scheme(tmp_path: Path) -> None:
    pytest.importorskip("tornado")
    if browser.chromium() is None:
        pytest.skip("chromium is not installed")
    styles = "@media (prefers-color-scheme: dark) { body { background: #111; color: %s; } a { color: #8bf; } }"
    inside = 'style="overflow: auto; width: 9px"><div style="width: 300px">wide</div>'
    (tmp_path / "bad.html").write_text(
        f"{HEAD}<style>{styles % '#333'} a:focus {{ outline: none; }}</style>words<a href='bad.html'>link</a>"
        f'<p style="color: #999; background: white">pale</p><div class="box" {inside}'
    )
    (tmp_path / "good.html").write_text(
        f"{HEAD}<style>{styles % '#eee'}</style>words<a href='bad.html'>link</a>"
        f'<p style="color: #555; background: white">grey</p><div class="box" tabindex="0" {inside}</div>'
        '<p style="color: #888; background: white; font-size: 24px">large</p>'
    )
    bad, good = browser.open_all(tmp_path, ["bad.html", "good.html"])
    assert set(bad.complaints) == {
        "light: contrast 2.8 in place of 4.5: rgb(153, 153, 153) on 255,255,255",
        "dark: contrast 2.8 in place of 4.5: rgb(153, 153, 153) on 255,255,255",
        "dark: contrast 1.5 in place of 4.5: rgb(51, 51, 51) on 17,17,17",
        "light: div.box scrolls sideways, and the keyboard does not reach it",
        "dark: div.box scrolls sideways, and the keyboard does not reach it",
        "light: nothing shows that the keyboard is at a",
        "dark: nothing shows that the keyboard is at a",
    }
    assert good.complaints == ()


def test_words_of_a_search_are_marked_in_the_text_and_not_in_a_drawing(tmp_path: Path) -> None:
    pytest.importorskip("tornado")
    sphinx = pytest.importorskip("sphinx")
    if browser.chromium() is None:
        pytest.skip("chromium is not installed")
    marking = Path(sphinx.__file__).parent / "themes" / "basic" / "static"
    scripts = {path.name: path.read_text() for path in (marking / "doctools.js", marking / "sphinx_highlight.js")}
    scripts["site.js"] = (Path(browser.__file__).parent / "site.js").read_text()
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    for name, used in (("with", list(scripts)), ("without", list(scripts)[:2])):
        (tmp_path / f"{name}.html").write_text(
            f"{HEAD}<script>DOCUMENTATION_OPTIONS = {{}}</script><p>a word</p>"
            "<svg><g><title>a word</title><text y='9'>a word</text></g></svg>"
            + "".join(f'<script src="{one}"></script>' for one in used)
        )
    wait, marked = "new Promise((go) => setTimeout(go, 50))", 'document.querySelectorAll(".highlighted").length'
    _, found, complaints = browser.on_page(tmp_path, "with.html?highlight=word", [wait, marked])
    assert (found, complaints) == (1, [])
    assert "getBBox" in str(browser.on_page(tmp_path, "without.html?highlight=word", [wait, marked])[-1])


def test_an_option_of_a_command_does_not_wrap_at_its_hyphens(tmp_path: Path) -> None:
    pytest.importorskip("tornado")
    if browser.chromium() is None:
        pytest.skip("chromium is not installed")
    (tmp_path / "site.js").write_text((Path(browser.__file__).parent / "site.js").read_text())
    (tmp_path / "site.css").write_text((Path(browser.__file__).parent / "site.css").read_text())
    words = "gradgate verify kernels.py<span> </span>--claim-of-many-words"
    for name, script in (("with", '<script src="site.js"></script>'), ("without", "")):
        (tmp_path / f"{name}.html").write_text(
            f'{HEAD}<link rel="stylesheet" href="site.css">{script}'
            f'<article><div class="highlight" style="width: 17.5em; font-size: 16px"><pre>{words}</pre></div></article>'
        )
    lines = """(() => {
      const pre = document.querySelector("pre"), range = document.createRange();
      const text = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
      let last = null;
      while (text.nextNode()) last = text.currentNode;
      range.selectNodeContents(last);
      return [pre.textContent, new Set([...range.getClientRects()].map((box) => box.top)).size];
    })()"""
    plain = words.replace("<span>", "").replace("</span>", "")
    assert browser.on_page(tmp_path, "with.html", [lines]) == [[plain, 1], []]
    assert browser.on_page(tmp_path, "without.html", [lines])[0][1] == 2, "else it wraps"


def test_without_a_browser_it_says_what_to_do(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser, "chromium", lambda: None)
    with pytest.raises(UsageError, match="install chromium, or name its program in the variable CHROMIUM"):
        browser.open_all(pages, ["good.html"])


def test_a_site_is_opened_at_every_width_and_its_search_must_find_something(
    pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tornado")
    if browser.chromium() is None:
        pytest.skip("chromium is not installed")
    (pages / "bad.html").unlink()
    (pages / "good.html").write_text(f'{HEAD}<div style="width: 700px">x</div>')
    (pages / "search.html").write_text(f'{HEAD}<ul class="search"></ul>')
    assert browser.main(["--site", str(pages)]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "good.html is 708 pixels wide, not 400",
        f"{browser.SEARCH} finds nothing",
    ]
    (pages / "good.html").write_text(f"{HEAD}<p>x</p>")
    (pages / "search.html").write_text(f'{HEAD}<ul class="search"><li>x</li></ul>')
    assert browser.main(["--site", str(pages)]) == 0
    assert "3 pages opened at 400,800,1200 pixels" in capsys.readouterr().out


def test_a_width_that_is_no_number_is_wrong_usage(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert browser.main(["--site", str(pages), "--width", "wide"]) == 3
    assert "invalid literal" in capsys.readouterr().err
