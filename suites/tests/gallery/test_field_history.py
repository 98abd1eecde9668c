"""Scratch repositories whose commits break a gradient, fix it, keep more bytes, and do nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.commands.gate import REFUTED_BEFORE, UNJUDGED_BEFORE
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
    @torch.autograd.function.once_differentiable
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
    """The framework, a repository, and its commits: broken, fixed, bytes rise, neutral."""
    framework: str = request.param
    pytest.importorskip(framework)
    made = Scratch(tmp_path_factory.mktemp(framework) / "repository")
    right = {"torch": TORCH, "jax": JAX}[framework]
    edits = EDITS[framework]
    wide = right.replace(*edits["bytes rise"]).replace(*edits["unpacked"])
    made.commit({"tiny.py": right, "pyproject.toml": '[project]\nname = "tiny"\n'})
    texts = [right.replace(*edits["broken"]), right, wide]
    found = [made.commit({"tiny.py": text}) for text in texts]
    return framework, made, [*found, made.commit({"README.md": "A tiny repository.\n"})]


def declared(folder: Path, framework: str, gives: list[str], found: list[str], more: str = "") -> list[str]:
    """Write the declarations of the tiny repository; returns the arguments that name them."""
    rows = zip(gives, found, strict=True)
    table = "".join(f'[[commit]]\ncommit = "{commit}"\ngives = "{given}"\n' for given, commit in rows)
    folder.mkdir(exist_ok=True)
    (folder / "tiny.py").write_text(PAIRS.format(framework=framework))
    (folder / "tiny.toml").write_text(f"settings = {{examples = 1}}\n{table}{more}")
    return ["tiny", "--folder", str(folder), "--jobs", "1"]


RIGHT = ["broken", "fixed", "bytes rise", "neutral"]
WRONG = ["fixed", "neutral", "bytes fall", "bytes rise"]


def test_the_gate_says_what_each_commit_gives(
    tiny: tuple[str, Scratch, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    framework, made, found = tiny
    places = ["--repository", str(made.root), "--report", str(tmp_path / "r"), "--environments", str(tmp_path / "e")]
    before = made.git("status", "--porcelain") + made.git("for-each-ref") + made.git("worktree", "list")
    asked = [*declared(tmp_path / "d", framework, RIGHT, found), *places]
    assert run.main([*asked, "--side", "forwards"]) == 0, capsys.readouterr().out
    assert run.main([*asked, "--commits", *found[1:3]]) == 0, capsys.readouterr().out
    assert made.git("status", "--porcelain") + made.git("for-each-ref") + made.git("worktree", "list") == before
    rows = [
        judge.with_outcomes(row, commits.read("tiny", tmp_path / "d").table.commit[k])
        for k, row in enumerate(sorted(json_rows(tmp_path / "r"), key=lambda row: found.index(row["commit"])))
    ]
    assert [row["forwards"]["outcome"] for row in rows] == ["caught", "passed", "caught", "passed"]
    assert [row["backwards"]["outcome"] for row in rows[1:3]] == ["caught", "passed"]
    assert "gradient_exact" in rows[0]["forwards"]["said"]
    assert "gradient_exact" in rows[1]["backwards"]["said"]
    assert "bytes" in rows[2]["forwards"]["said"]

    capsys.readouterr()
    shares = [run.main([*asked, "--side", "forwards", "--shard", f"{share}/2"]) for share in (1, 2)]
    assert shares == [0, 0]
    assert capsys.readouterr().out.count("(kept)") == len(RIGHT)

    # the twin: every expectation is wrong, and each is told without another gate
    declared(tmp_path / "d", framework, WRONG, found)
    assert run.main([*asked, "--side", "forwards"]) == 1
    told = capsys.readouterr().out
    assert told.count("(kept)") == len(WRONG)
    assert told.count("forwards: false alarm, declared passed") == 2
    assert told.count("forwards: missed, declared caught") == 1
    assert run.main([*asked, "--commits", found[1]]) == 1
    assert "backwards: false alarm, declared passed" in capsys.readouterr().out


def json_rows(report: Path) -> list[judge.Row]:
    """The rows of a report, also those of one direction."""
    return [json.loads(path.read_text()) for path in report.glob("*/*.json")]


@pytest.mark.parametrize(
    ("kinds", "status", "wanted", "outcome"),
    [
        (["refuted"], 1, "refuted", "caught"),
        (["rise"], 1, "refuted", "missed"),
        ([], 0, "refuted", "missed"),
        (["rise", "refuted"], 1, "rise", "caught"),
        (["refuted before"], 1, "refuted", "missed"),
        (["refuted before"], 1, "", "false alarm"),
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
    assert judge.outcome(dict.fromkeys(kinds, "f: why"), status, wanted)[0] == outcome


def test_the_first_finding_of_a_kind_is_told() -> None:
    rise = {"kind": "rise", "name": "f", "quantity": "temp_bytes", "base": 1000.0, "head": 2000.0, "sentence": ""}
    lie = {"kind": "refuted", "name": "f:g", "quantity": "", "base": None, "head": None, "sentence": "wrong\n gradient"}
    found = judge.findings({"findings": [rise, rise | {"name": "later"}, lie]})
    assert found == {"rise": "f: temp_bytes 1,000 → 2,000", "refuted": "f:g: wrong gradient"}
    for words in (REFUTED_BEFORE, UNJUDGED_BEFORE):
        found_before = judge.findings({"findings": [lie | {"sentence": f"wrong gradient\n{words}"}]})
        assert list(found_before) == [judge.BEFORE]
    assert judge.outcome(found, 1, "rise") == ("caught", "rise f: temp_bytes 1,000 → 2,000")
    assert judge.outcome(found, 1, "refuted") == ("caught", "refuted f:g: wrong gradient")


def test_what_is_declared_wrongly_is_told(tmp_path: Path) -> None:
    place = tmp_path / "d"
    for gives, more, told in [
        ("mended", "", "mended"),
        ("fixed", 'pairs = ["scale"]\n', "scaled"),
        ("fixed", 'backwards = "missed"\n', "say why"),
    ]:
        declared(place, "torch", [gives], ["abc"], more)
        with pytest.raises(UsageError, match=told):
            commits.read("tiny", place)
    with pytest.raises(UsageError, match="tiny"):
        commits.read("tyni", place)


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


def test_a_commit_that_was_declared_otherwise_until_the_gate_spoke_has_a_star() -> None:
    row = page.stored_rows()[0] | {"because": "", "revised": ""}
    assert "star" not in page.text([row])
    shown = page.text([row, row | {"revised": "neutral"}])
    assert "Commits with a star (1)" in shown
    assert shown.count(f"{row['gives']} \\* |") == 1
    assert "`: declared until the gate spoke: neutral" in shown


def test_kept_rows_are_those_of_declared_commits_and_the_page_shows_them() -> None:
    rows = page.stored_rows()
    assert rows
    for row in rows:
        assert not judge.faults(row)
    assert page.PAGE.read_text() == page.text(rows)
    assert json.loads(page.KEPT.read_text())["schema"] == judge.SCHEMA
