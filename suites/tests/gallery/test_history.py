"""Scratch repositories whose commits break a gradient, fix it, keep more bytes, and do nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.gallery.history import commits, judge, page, run, scratch
from gradgate.suites.tests.scratch import Scratch

PAIRS = '''# /// script
# dependencies = []
#
# [tool.gradgate]
# home = "https://example.org/tiny"
# framework = "{framework}"
# judges = "{framework}"
# ///
"""A tiny repository."""

import gradgate
import tiny
from gradgate import normal

scaled = gradgate.Pair(tiny.scaled, reference=tiny.plain, inputs={{"x": normal("N")}}, dims={{"N": (64, 3)}})
'''
TORCH = """import torch


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return 2 * y

    @staticmethod
    def backward(ctx, upstream):
        (y,) = ctx.saved_tensors
        return 2 * y * upstream


def scaled(x):
    return Scaled.apply(x)


def plain(x):
    return 2 * torch.exp(x)
"""
JAX = """import jax
import jax.numpy as jnp


@jax.custom_vjp
def scaled(x):
    return 2 * jnp.exp(x)


def forward(x):
    y = jnp.exp(x)
    return 2 * y, (y,)


def backward(kept, upstream):
    (y,) = kept
    return (2 * y * upstream,)


scaled.defvjp(forward, backward)


def plain(x):
    return 2 * jnp.exp(x)
"""
EDITS = {
    "torch": {
        "broken": ("return 2 * y * upstream", "return y * upstream"),
        "bytes rise": ("ctx.save_for_backward(y)", "ctx.save_for_backward(y, torch.sin(y))"),
        "unpacked": ("(y,) = ctx.saved_tensors", "y, _ = ctx.saved_tensors"),
    },
    "jax": {
        "broken": ("return (2 * y * upstream,)", "return (y * upstream,)"),
        "bytes rise": ("return 2 * y, (y,)", "return 2 * y, (y, jnp.sin(y))"),
        "unpacked": ("(y,) = kept", "y, _ = kept"),
    },
}


@pytest.fixture(scope="module", params=["torch", "jax"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Scratch, list[str]]:
    """The framework, a repository, and its commits: broken, fixed, bytes rise, bytes fall, neutral."""
    framework: str = request.param
    pytest.importorskip(framework)
    made = Scratch(tmp_path_factory.mktemp(framework) / "repository")
    right = {"torch": TORCH, "jax": JAX}[framework]
    edits = EDITS[framework]
    broken = right.replace(*edits["broken"])
    wide = right.replace(*edits["bytes rise"]).replace(*edits["unpacked"])
    made.commit({"tiny.py": right, "pyproject.toml": '[project]\nname = "tiny"\n'})
    texts = [broken, right, wide, right]
    found = [made.commit({"tiny.py": text}) for text in texts]
    return framework, made, [*found, made.commit({"README.md": "A tiny repository.\n"})]


def declared(folder: Path, framework: str, table: str) -> list[str]:
    """Write the declarations of the tiny repository; returns the arguments that name them."""
    folder.mkdir(exist_ok=True)
    (folder / "tiny.py").write_text(PAIRS.format(framework=framework))
    (folder / "tiny.toml").write_text(f"settings = {{examples = 3}}\n{table}")
    return ["tiny", "--folder", str(folder), "--jobs", "1"]


def of(gives: list[str], found: list[str]) -> str:
    """A table of commits."""
    rows = zip(gives, found, strict=True)
    return "".join(f'[[commit]]\ncommit = "{commit}"\ngives = "{given}"\n' for given, commit in rows)


RIGHT = ["broken", "fixed", "bytes rise", "bytes fall", "neutral"]


def test_the_gate_says_what_each_commit_gives(
    tiny: tuple[str, Scratch, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    framework, made, found = tiny
    places = ["--repository", str(made.root), "--report", str(tmp_path / "r"), "--environments", str(tmp_path / "e")]
    before = made.git("status", "--porcelain") + made.git("for-each-ref") + made.git("worktree", "list")
    asked = [*declared(tmp_path / "d", framework, of(RIGHT, found)), *places]
    assert run.main(asked) == 0, capsys.readouterr().out
    assert made.git("status", "--porcelain") + made.git("for-each-ref") + made.git("worktree", "list") == before
    rows = {row["gives"]: row for row in judge.read(tmp_path / "r")}
    assert [rows[name]["forwards"]["outcome"] for name in RIGHT] == ["caught", "passed", "caught", "passed", "passed"]
    assert [rows[name]["backwards"]["outcome"] for name in RIGHT] == ["passed", "caught", "passed", "caught", "passed"]
    assert "gradient_exact" in rows["fixed"]["backwards"]["said"]
    assert "bytes" in rows["bytes rise"]["forwards"]["said"]

    capsys.readouterr()
    assert run.main(asked) == 0
    assert capsys.readouterr().out.count("(kept)") == len(RIGHT)
    shares = [run.main([*asked, "--shard", f"{share}/2"]) for share in (1, 2)]
    assert shares == [0, 0]
    assert capsys.readouterr().out.count("(kept)") == len(RIGHT)

    # the twin: every expectation is wrong, and each is told
    wrong = ["fixed", "broken", "bytes fall", "neutral", "bytes rise"]
    declared(tmp_path / "d", framework, of(wrong, found))
    assert run.main(asked) == 1
    told = capsys.readouterr().out
    assert told.count("  ! tiny") >= len(wrong)
    assert "false alarm, declared passed" in told
    assert "missed, declared caught" in told


FINDING = {"name": "f", "quantity": "", "base": None, "head": None, "sentence": "why"}


@pytest.mark.parametrize(
    ("kinds", "status", "wanted", "outcome"),
    [
        (["refuted"], 1, "refuted", "caught"),
        (["rise"], 1, "refuted", "missed"),
        ([], 0, "refuted", "missed"),
        (["rise", "refuted"], 1, "rise", "caught"),
        (["fixed"], 0, "fixed", "passed"),
        ([], 0, "fixed", "missed"),
        (["fixed", "rise"], 1, "fixed", "false alarm"),
        (["fall"], 0, "", "passed"),
        (["rise"], 1, "", "false alarm"),
        (["unmeasured"], 2, "", "not measured"),
        ([], None, "rise", "not measured"),
    ],
)
def test_outcomes(kinds: list[str], status: int | None, wanted: str, outcome: str) -> None:
    document = {"findings": [FINDING | {"kind": kind} for kind in kinds]}
    assert judge.judged(document, status, wanted)["outcome"] == outcome


def test_what_is_declared_wrongly_is_told(tmp_path: Path) -> None:
    declared(tmp_path / "d", "torch", of(["mended"], ["abc"]))
    with pytest.raises(UsageError, match="mended"):
        commits.read("tiny", tmp_path / "d")
    declared(tmp_path / "d", "torch", of(["fixed"], ["abc"]) + 'pairs = ["scale"]\n')
    with pytest.raises(UsageError, match="scaled"):
        commits.read("tiny", tmp_path / "d")
    declared(tmp_path / "d", "torch", of(["fixed"], ["abc"]) + 'backwards = "missed"\n')
    with pytest.raises(UsageError, match="say why"):
        commits.read("tiny", tmp_path / "d")
    with pytest.raises(UsageError, match="tiny"):
        commits.read("tyni", tmp_path / "d")


def test_a_commit_that_the_clone_lacks_and_a_table_that_is_there_are_told(tmp_path: Path) -> None:
    made = Scratch(tmp_path / "repository")
    first = made.commit({"pyproject.toml": "[tool.gradgate]\npairs = []\n"})
    found = scratch.Scratch(made.root, tmp_path / "clone")
    with pytest.raises(UsageError, match="failed"):
        found.commit("0" * 40)
    with pytest.raises(UsageError, match="already"):
        found.with_ours(first, "", {})


def test_files_whose_content_the_clone_lacks_are_left_out(tmp_path: Path) -> None:
    made = Scratch(tmp_path / "repository")
    first = made.commit({"large.bin": "large\n", "small.py": "small = 1\n"})
    blob = made.git("rev-parse", f"{first}:large.bin")
    (made.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    found = scratch.Scratch(made.root, tmp_path / "clone")
    found.check_out(found.with_ours(first, "pairs = 1\n", {"pairs": ["a"]}))
    there = sorted(path.name for path in (tmp_path / "clone").iterdir() if path.name != ".git")
    assert there == ["gradgate_pairs.py", "pyproject.toml", "small.py"]


def test_declarations_of_every_repository_are_short_and_right() -> None:
    known = {path.stem for path in commits.FOLDER.glob("*.toml")}
    assert known
    for name in known:
        repository = commits.read(name)
        assert repository.table.commit
        assert commits.lines(repository.library.path) <= commits.MOST_LINES, name


def test_kept_rows_are_those_of_declared_commits_and_the_page_shows_them() -> None:
    rows = page.stored_rows()
    assert rows
    for row in rows:
        assert not judge.faults(row)
    assert page.PAGE.read_text() == page.text(rows)
    assert json.loads(page.KEPT.read_text())["schema"] == judge.SCHEMA
