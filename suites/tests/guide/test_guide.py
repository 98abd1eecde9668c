"""The pages of the guide: every block of code runs, and prints what the page shows."""

from __future__ import annotations

import doctest
import itertools
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import gradgate.suites.guide
from gradgate.references import registry
from gradgate.references.errors import UsageError
from gradgate.suites.cli import _parser
from gradgate.suites.gate import allow
from gradgate.suites.tests.guide.test_worked_pages import FRAMEWORK, PASTED

FOLDER = Path(gradgate.suites.guide.__file__).parent
HERE = Path(__file__).parent
GENERATED = ("atlas/", "reference/", "libraries", "memory_by_release")
"""Folders and pages that the build of the site makes; `site/test_site.py` checks the links into them."""


def has_a_test_of_its_own(page: Path) -> bool:
    """Whether ``test_<page>.py``, or ``test_<page>_page.py``, runs the blocks of a page."""
    return any((HERE / f"test_{page.stem.lower()}{more}.py").exists() for more in ("", "_page"))


WORKED = {*FRAMEWORK, *PASTED}
PAGES = [page for page in sorted(FOLDER.glob("*.md")) if page.stem not in WORKED and not has_a_test_of_its_own(page)]
"""Pages whose blocks do not need each other; `test_worked_pages` runs pages whose blocks build on each other."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each block."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands() -> list[tuple[str, str]]:
    """Each command with the output that is shown after it."""
    found = [block for page in PAGES for block in blocks(page)]
    return [(text, shown) for (kind, text), (_, shown) in itertools.pairwise(found) if kind == "sh"]


def words(text: str) -> str:
    """The text with every line break and run of spaces as one space."""
    return " ".join(text.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_a_command_with_its_output_or_python(page: Path) -> None:
    kinds = [kind for kind, _ in blocks(page) if kind not in ("console", "yaml", "toml")]
    assert set(kinds) <= {"sh", "text", "python"}
    assert all(kinds[i + 1] == "text" for i, kind in enumerate(kinds) if kind == "sh")
    assert kinds.count("text") == kinds.count("sh")


@pytest.mark.parametrize(("command", "shown"), commands(), ids=lambda text: words(text)[:60])
def test_a_command_prints_what_the_page_shows(
    command: str, shown: str, gradgate: Callable[..., Any], torch: Any
) -> None:
    program, *arguments = shlex.split(command)
    assert program == "gradgate"
    ran = gradgate(*arguments)
    assert ran.status == ("failures" in shown)
    assert words(shown) in words(ran.out)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_prints_what_the_page_shows(page: Path, torch: Any) -> None:
    lines = "".join(text for kind, text in blocks(page) if kind == "python")
    test = doctest.DocTestParser().get_doctest(lines, {}, page.stem, str(page), 0)
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert not failed, "".join(told)


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)", prose):
        there = target.startswith(("https://", *GENERATED)) or (FOLDER / target).exists()
        assert there, target


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_every_command_that_is_only_shown_can_be_read_by_the_command_line(page: Path) -> None:
    for kind, text in blocks(page):
        for line in text.splitlines() if kind == "console" else ():
            if match := re.match(r"\$ (?:\w+=\S+ )*(?:\.venv/bin/)?gradgate (.*)", line):
                words_of_it = shlex.split(match[1])
                _parser(words_of_it).parse_args(words_of_it)


def test_a_command_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="invalid choice"):
        _parser(["verfy"]).parse_args(["verfy"])


@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_settings_can_be_read(page: Path, tmp_path: Path) -> None:
    for kind, text in re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
        if kind == "toml":
            found = tomllib.loads(text)
            if "allow" in found:
                (tmp_path / "allow.toml").write_text(text)
                assert allow.read(tmp_path / "allow.toml", "allow.toml")
        elif kind == "yaml":
            assert pytest.importorskip("yaml").safe_load(text)


def test_the_picture_is_drawn_by_its_script_and_shows_what_the_page_says() -> None:
    from gradgate.suites.guide import draw_sixty_digits as script

    errors = {"float32": 3e-7, "float64": 3e-16, script.SIXTY: 1e-52}
    lines = [script.Line(name, errors, False) for name in script.METHODS]
    lines.append(script.Line("10⁻³⁰ added", errors | {script.SIXTY: 1e-30}, True))
    drawn = ElementTree.fromstring(script.drawing(lines, {"float32": 1e-5, "float64": 1e-14, script.SIXTY: 1e-40}))
    kept = ElementTree.fromstring(script.PLACE.read_text(encoding="utf-8"))
    full = [mark.get("fill") != "none" for mark in drawn.findall(".//{*}circle")]
    assert full == [False] * 14 + [True]
    marks = [mark.get("fill") != "none" for mark in kept.findall(".//{*}circle")]
    assert len(marks) == 3 * (len(script.METHODS) + len(script.PLANTED))
    assert not any(marks[: 3 * len(script.METHODS)]), "right methods pass"
    assert all(marks[3 * len(script.METHODS) + 2 :: 3]), "in sixty digits every error is refuted"


def test_the_claims_that_are_quoted_exist_with_these_words() -> None:
    text = words((FOLDER / "claims.md").read_text(encoding="utf-8").replace("\n> ", " "))
    quoted = re.findall(r"`(\w+)`, of the (?:same )?method(?: `\w+`)?: (.*?) Source: (.*?) Expected: (\w+)", text)
    assert len(quoted) == 2
    declared = {claim.name: claim for claim in registry.methods("bilevel", "mixflow", "jax")[0].claims}
    for name, said, source, expected in quoted:
        claim = declared[name]
        assert (said, source, expected) == (f"{claim.statement}.", f"{claim.source}.", claim.expected)
