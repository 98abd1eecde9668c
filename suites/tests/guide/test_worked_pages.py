"""The pages whose blocks build on each other: files are written, changes applied and commands run, in order."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gradgate.suites.guide
from gradgate.suites.tests.scratch import Scratch

FOLDER = Path(gradgate.suites.guide.__file__).parent
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    "python": (),
    "pytest": ("-m", "pytest", "-p", "no:cacheprovider"),
    "gradgate": ("-m", "gradgate.suites.cli"),
}

FRAMEWORK = {
    "pairs": "torch",
    "jax_op": "jax",
    "torch_module": "torch",
    "index": "torch",
    "own_method": "torch",
    "watch": "torch",
    "strangers": "torch",
    "own_model": "jax",
    "own_profile": "jax",
    "pallas": "jax",
}
"""Page -> the framework that it needs."""
PASTED = {"tutorial": "torch", "tutorial_jax": "jax"}
"""Page -> the one framework that it needs; `test_tutorials` pastes it into an empty folder."""
NOT_RUN = ("console", "yaml")
"""Kinds of blocks that need a network or another machine, so they are not run; `test_guide` parses them."""


def words(text: str) -> str:
    """The text with every line break and run of spaces as one space."""
    return " ".join(text.split())


def check_shown(shown: str, told: str) -> None:
    """Fail unless every part between lines of ``…`` is in the printed text, in order."""
    rest = words(told)
    for part in filter(str.strip, re.split(r"^…$", shown, flags=re.MULTILINE)):
        assert words(part) in rest, f"not printed: {part}\nprinted: {told}"
        rest = rest.partition(words(part))[2]


@pytest.mark.parametrize("page", FRAMEWORK)
def test_a_page_does_what_it_says(
    page: str, tmp_path: Path, process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(FRAMEWORK[page])
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))
    made = Scratch(tmp_path / "page")
    made.commit({".gitignore": "__pycache__/\n"})
    found = BLOCK.findall((FOLDER / f"{page}.md").read_text(encoding="utf-8"))
    found = [block for block in found if block[0] not in NOT_RUN and block[:2] != ("toml", "")]
    assert {"sh", "text"} <= {kind for kind, _, _ in found} <= {"python", "toml", "diff", "sh", "text"}
    told: str | None = None
    assert all(name or kind != "python" for kind, name, _ in found), "every block of Python must have a file name"
    for kind, name, text in found:
        assert (kind == "text") == (told is not None), f"an output must follow every command: {text}"
        if name:
            made.write({name: text})
        elif kind == "diff":
            if (made.root / "pyproject.toml").exists():  # the gate compares with this commit
                made.commit()
            (tmp_path / "change.diff").write_text(text)
            made.git("apply", str(tmp_path / "change.diff"))
        elif kind == "sh":
            told = ran(made, process, text)
        else:
            check_shown(text, told or "")
            told = None


def ran(made: Scratch, process: Callable[..., Any], command: str) -> str:
    """What a command prints on both streams."""
    program, *arguments = shlex.split(command)
    if "gate" in arguments:  # the last change goes to a branch
        made.git("switch", "--quiet", "--create", "faster")
        made.commit()
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(made.root), os.environ.get("PYTHONPATH")]))}
    found = process(*PROGRAMS[program], *arguments, cwd=made.root, env=env)
    return str(found.out + found.err)


def test_a_line_that_is_not_printed_is_found() -> None:
    check_shown("one\n…\nthree\n", "one two\nthree")
    with pytest.raises(AssertionError, match="not printed"):
        check_shown("three\n…\none\n", "one two\nthree")


@pytest.mark.parametrize("name", ["cross_entropy", "rms_norm", "attention"])
def test_an_example_is_declared_in_at_most_25_lines_and_has_its_pairs(name: str) -> None:
    from gradgate.references import registry

    pytest.importorskip("jax")
    pytest.importorskip("torch")
    path = FOLDER / "examples" / f"{name}.py"
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"\w+ = .*(gradgate\.Pair|functools\.partial)\(", line))
    assert len(lines) - start <= 25
    assert registry.offered(str(path))


def test_the_function_on_the_first_page_is_refuted_as_shown(
    tmp_path: Path, torch: Any, process: Callable[..., Any]
) -> None:
    readme = FOLDER.parents[1] / "README.md"
    if not readme.exists():
        pytest.skip("not a checkout")
    section = readme.read_text(encoding="utf-8").partition("## A function of yours")[2].partition("\n## ")[0]
    (_, _, code), (_, _, shown) = BLOCK.findall(section)
    (tmp_path / "mine.py").write_text(code)
    found = process("mine.py", cwd=tmp_path)
    assert found.status == 1
    for part in shown.split("…"):
        assert words(part) in words(found.err)
