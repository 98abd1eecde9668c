"""Hostile inputs of the command line: documents, settings, cache entries, arguments, environments and streams.

All are generated from seeds. Whatever comes in, the exit status is 1 only for what is refuted, there is no traceback on
the terminal, an error is one line, and no file changes but those that the command has to write.
"""

from __future__ import annotations

import copy
import errno
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles.cache import Cache
from gradgate.suites import cli
from gradgate.suites.commands.union import LISTS
from gradgate.suites.judging.lines import Lines
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.tests.scratch import SQUARE

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

Json = Any
VALUES: tuple[Json, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    2**63,
    10**30,
    10**400,
    -0.0,
    1e-320,
    1.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800",
    "\x00",
    "\x1b[31mred\x1b[0m",
    "</script><script>alert(1)</script>",
    "../../x",
    "index",
    "{{ 7 * 7 }}",
    "[red]",
    ":leaves:",
    "x" * 5000,
    "refuted",
    "upheld",
    [],
    {},
    [[]],
    [None],
    {"": None},
    [[[[[[[[1]]]]]]]],
    {"a": {"b": []}},
)
"""What is put in the place of a part of a document or of the settings."""
TEXTS = (
    b"",
    b"{",
    b"[]",
    b"{}",
    b"3",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b"\x00",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"NaN",
    b'{"verdicts": []}',
    b'{"verdicts": [1]}',
    b'{"schema": 1, "verdicts": {"a": 1}}',
    b'{"cells": [{}]}',
    b"1" * 5000,
    b'{"mutants": [{}], "formulas": 3}',
    b'{"families": []}',
    b'{"judged": []}',
    b'{"results": [{}]}',
    b"\xef\xbb\xbf{}",
)
"""Files that are no document at all."""


def verdict(claim: str, outcome: str = "upheld", expected: str = "upheld", **rest: Any) -> dict[str, Any]:
    task = Task("fam", "meth", "jax", claim, "", f"statement of {claim}", "Prop. 1", expected, "a sign")
    return Verdict(task, outcome, **rest).to_dict()


LAW = {
    "quantity": "temp_bytes",
    "variable": "length",
    "letter": "T",
    "sizes": [1, 2, 4],
    "values": [8, 16, 32],
    "law": None,
    "problem": "no law: too few",
    "exponents": None,
    "name": "temp",
    "words": "no law: too few",
}
VERDICTS: dict[str, Any] = {
    "schema": 1,
    "fingerprint": {"python": "3.11.7"},
    "claims": 5,
    "shard": {"index": 1, "of": 1, "total": 5},
    "asked": {"examples": 100, "seed": 0},
    "verdicts": [
        verdict("a", error=1e-16, noise=1e-16, leaf="w", spec={"T": 3}, options={"chunk": 1}, lost=0.5, bound=1e-15),
        verdict("b", "inapplicable", reason="no bfloat16"),
        verdict("c", digits=58, informative=3, examples=4),
        verdict(
            "d",
            coverage={"tried": 1, "possible": 2, "missing": ["T=1 with B=1"]},
            decisions={
                "decisions": 3,
                "both": 2,
                "never": ["`… > 20` true at ops.py:12"],
                "lines": {"ops.py:12": [2, 3]},
                "sides": [{"at": "ops.py:12", "what": "… > 20", "below": 17.5, "tied": False, "above": None}],
                "tries": 60,
                "apart": ["equal: a tie"],
            },
            lines=(Lines("ops.py", "0", ((1, 3),), ((4, 4),), ((2, 1),), (3,)),),
        ),
        verdict("e", laws=[LAW], run={"examples": 3, "seed": 1}),
    ],
}
CELL = {
    "family": "chain",
    "method": "backprop",
    "framework": "jax",
    "profile": "cpu",
    "options": {},
    "spec": {"length": 3},
    "status": "measured",
    "reason": "",
    "temp_bytes": 8,
    "argument_bytes": 8,
    "output_bytes": 8,
    "flops": 1,
    "fits": True,
}
ALARMS: dict[str, Any] = {"problems": 10, "judged": {}, "alarms": [], "digits": [], "ratios": {}, "worst": {}}
OTHERS: tuple[dict[str, Any], ...] = (
    {
        "schema": 1,
        "fingerprint": {},
        "cells": [CELL],
        "laws": [LAW | {"family": "chain", "method": "backprop", "framework": "jax", "profile": "cpu"}],
    },
    {"schema": 1, "fingerprint": {}, "examples": 12, "flakes": [], "judged": {"fam:meth:jax:a": [1, 2]}},
    {
        "seed": 1,
        "problems": 10,
        "fingerprint": {},
        "families": {"chain": {"alarms:jax:0": ALARMS}},
    },
    {
        "schema": 1,
        "results": [{"key": "a", "date": "2026-01-01", "ours": 1.0}],
        "shard": {"index": 1, "of": 2, "total": 2},
    },
)
"""Documents of the other commands."""


def places(document: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every part of a document."""
    if path:
        yield path
    inside = document if isinstance(document, dict) else dict(enumerate(document)) if isinstance(document, list) else {}
    for name, item in inside.items():
        yield from places(item, (*path, name))


def mutated(document: Json, draw: random.Random) -> Json:
    """A document with one or two parts replaced, removed or renamed."""
    made = copy.deepcopy(document)
    for _ in range(draw.choice((1, 1, 2))):
        path = draw.choice(list(places(made)) or [()])
        if not path:
            return made
        *above, last = path
        holder = made
        for name in above:
            holder = holder[name]
        match draw.choice(("replace", "replace", "replace", "remove", "rename")):
            case "replace":
                holder[last] = copy.deepcopy(draw.choice(VALUES))
            case "remove":
                del holder[last]
            case "rename" if isinstance(holder, dict):
                holder[str(draw.choice(VALUES))[:50]] = holder.pop(last)
    return made


def is_refuted(document: Json) -> bool:
    """Whether a document holds something for which the exit status may be 1."""
    if not isinstance(document, dict):
        return False
    listed = document.get("verdicts")
    rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    pairs = [(row.get("verdict"), row.get("expected", "upheld")) for row in rows]
    wrong = ("refuted", "upheld") in pairs or ("upheld", "refuted") in pairs
    return wrong or not document.keys().isdisjoint(("families", "flakes", "mutants"))


class Ran:
    """A command that was run in this process: its status and what it printed."""

    def __init__(self, *arguments: object) -> None:
        out, err = io.StringIO(), io.StringIO()
        before = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = out, err
        try:
            self.status = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # --help
            self.status = int(stop.code or 0)
        finally:
            sys.stdout, sys.stderr = before
        self.out, self.err = out.getvalue(), err.getvalue()

    def fault(self, *legal: int) -> str:
        """What is wrong with it besides its files; "" if nothing is."""
        if self.status not in legal:
            return f"status {self.status}: {self.err[-300:]!r}"
        if "Traceback" in self.out + self.err:
            return "a traceback"
        if set(self.out + self.err) & set("\x1b\x9b\x00"):
            return "characters that steer a terminal"
        if self.status == 3 and (self.err.count("\n") != 1 or not self.err.startswith("gradgate: ")):
            return f"not one line: {self.err!r:.300}"
        return ""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a user's, with a file in it that no command may touch."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "thesis.html").write_text("mine")
    monkeypatch.chdir(made)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return made


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def judged_report(place: Path, content: bytes, refuted: bool, more: list[str]) -> str:
    """What is wrong with the outcome of ``gradgate report`` of a file."""
    file = place / "doc.json"
    file.write_bytes(content)
    before = all_files(place)
    ran = Ran("report", file, *more)
    after = all_files(place)
    lost = [name for name, text in before.items() if after.get(name) != text]
    added = {Path(name).parts[0] for name in after.keys() - before.keys()}
    for name in after.keys() - before.keys():
        (place / name).unlink()
    if lost or added - {"doc", "page", "all.json"}:
        return f"changed {lost}, added {added}"
    if ran.status == 3 and added:
        return f"wrong usage, and yet it wrote {added}"
    return ran.fault(0, 2, 3, *([1] if refuted else []))


SEEDS = range(8)
EACH = 22
"""So many documents of verdicts for each seed, and half as many of the other kinds."""


@pytest.mark.parametrize("seed", SEEDS)
def test_documents_that_were_edited_by_hand(place: Path, seed: int) -> None:
    draw, faults = random.Random(seed), []
    for number in range(EACH + EACH // 2):
        document = mutated(VERDICTS if number < EACH else draw.choice(OTHERS), draw)
        more = draw.choice(
            ([], ["--report", "page"], ["--json", "all.json"], ["--report", "page", "--json", "all.json"])
        )
        fault = judged_report(place, json.dumps(document).encode(), is_refuted(document), more)
        faults += [f"{number}: {fault}: {json.dumps(document)[:2000]}"] if fault else []
    assert faults == []


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_files_that_are_no_document(place: Path, number: int) -> None:
    assert judged_report(place, TEXTS[number], False, []) == ""


@pytest.mark.parametrize("kind", LISTS)
def test_a_list_of_every_hostile_value(place: Path, kind: str) -> None:
    faults = []
    for value in VALUES:
        for document in ({kind: value}, {"schema": 1, kind: [value]}, {"schema": 1, kind: {"a": value}}):
            fault = judged_report(place, json.dumps(document).encode(), is_refuted(document), ["--json", "all.json"])
            faults += [f"{fault}: {json.dumps(document)[:300]}"] if fault else []
    assert faults == []


KEYS = ("profiles", "methods", "pairs", "path", "allow", "examples", "seed", "depends", "nothing_such", "")
WHOLE = (
    "tool = 3",
    "tool = []",
    "[tool]\ngradgate = 3",
    "[[tool.gradgate]]",
    "[tool.gradgate",
    "\x00",
    "[tool.gradgate]\n= 3",
    '[tool.gradgate]\ndepends = ["/etc/host*"]',
    '[tool.gradgate]\ndepends = ["../*"]',
    '[tool.gradgate]\ndepends = [""]',
    '[tool.gradgate]\ndepends = ["**/../**"]',
    '[tool.gradgate]\npath = ["\\u0000"]',
    "[tool.gradgate]\nx = " + "[" * 5000,
    '[tool.gradgate]\ndepends = ["***"]',
    '[tool.gradgate]\ndepends = ["a**"]',
    "x = " + "9" * 5000,
    "[tool.gradgate]\nseed = 1e99",
)


def toml(value: Json) -> str:
    """A value as TOML; what TOML lacks is written as JSON writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


@pytest.mark.parametrize("seed", SEEDS)
def test_settings(place: Path, seed: int) -> None:
    draw, faults = random.Random(seed), []
    drawn = [f"[tool.gradgate]\n{draw.choice(KEYS)} = {toml(draw.choice(VALUES))}\n" for _ in range(10)]
    for text in [*drawn, *WHOLE[seed :: len(SEEDS)]]:
        (place / "pyproject.toml").write_text(text, encoding="utf-8", errors="backslashreplace")
        fault = Ran("verify", "--family", "chain", "--method", "nothing_such").fault(2, 3)
        faults += [f"{fault}: {text[:200]!r}"] if fault else []
    assert faults == []
    assert (place / "thesis.html").read_text() == "mine"


@pytest.mark.parametrize("seed", SEEDS)
def test_entries_of_the_cache(seed: int, tmp_path: Path) -> None:
    draw, cache, key = random.Random(seed), Cache(tmp_path), "ab" * 32
    value = {"verdict": "upheld", "numbers": [1, 2.5], "nested": {"a": None}}
    for _ in range(20):
        cache.put(key, value)
        [path] = cache.folder.rglob("*.json")
        whole = path.read_bytes()
        match draw.choice(("json", "cut", "flip", "text")):
            case "json":
                made = json.dumps(mutated(json.loads(whole), draw)).encode()
            case "cut":
                made = whole[: draw.randrange(len(whole))]
            case "flip":
                at = draw.randrange(len(whole))
                made = whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :]
            case _:
                made = draw.choice(TEXTS)
        path.write_bytes(made)
        assert cache.get(key) in (None, value), made[:300]
        assert Ran("cache").fault(0) == ""


ARGUMENTS = (
    "",
    " ",
    "-",
    "--",
    "---",
    "\x00",
    "\x1b[31m",
    "a\nb",
    "\ud800",
    "x" * 5000,
    "9" * 5000,
    "-1",
    "0",
    "nan",
    "1/0",
    "0/0",
    "2/1",
    "[",
    "{",
    "{}",
    "[]",
    "null",
    "/",
    "/dev/null",
    "/dev/null/x",
    ".",
    "..",
    "nothing.py",
    "nothing.py:x",
    ":",
    "a:b",
    "::",
    "https://evil.example",
    "../../x",
    "@file",
    "--help=3",
    "é",
    ":leaves:",
    "[red]",
    "--json",
    "--claim",
)
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "list": ("--family", "--method", "--framework", "--paper"),
    "report": ("--json", "--report"),
    "cache": (),
    "profiles": (),
    "verify": (
        "--family",
        "--spec",
        "--options",
        "--profile",
        "--shard",
        "--examples",
        "--seed",
        "--timeout",
        "--jobs",
    ),
    "memory": ("--family", "--sweep", "--spec", "--options", "--profile", "--shard", "--timeout"),
    "paper": ("--family", "--place", "--shard"),
    "selftest": ("--family", "--framework", "--shard", "--examples"),
    "repeat": ("--family", "--shard", "--examples"),
    "calibrate": ("--family", "--shard", "--problems"),
    "domain": ("--spec", "--options", "--svg", "--json"),
    "gate": ("--base", "--json", "--jobs", "--timeout"),
    "init": ("--framework", "--pairs"),
    "judge": ("--function", "--wall", "--lines", "--json", "--jobs", "--timeout"),
    "schema": (),
    "watch": ("--write", "--junit", "--json"),
    "": ("--version", "--help", "--nothing"),
}
SURELY_WRONG = ("--method", "nothing_such"), ("--nothing-such",)
"""Added to commands that would otherwise work for minutes if an argument happened to be right."""
FURTHER = {"init": ("--framework", "nothing"), "judge": ("nothing.py",)}
"""What these commands need besides, or what keeps them from writing."""
HARMLESS = ("list", "report", "cache", "profiles", "domain", "gate", "schema", "watch", "")
"""Commands that find nothing to do in this folder."""


@pytest.mark.parametrize("seed", SEEDS)
def test_arguments(place: Path, seed: int) -> None:
    draw, faults = random.Random(seed), []
    for _ in range(24):
        name = draw.choice(list(COMMANDS))
        chosen = [name] if name else []
        for _ in range(draw.choice((1, 2, 3))):
            chosen += [draw.choice(COMMANDS[name])] if COMMANDS[name] and draw.random() < 0.8 else []
            chosen += [draw.choice(ARGUMENTS)]
        if name in FURTHER:
            chosen += FURTHER[name]
        elif name not in HARMLESS:
            chosen += SURELY_WRONG[name not in ("verify", "memory")]
        before = all_files(place)
        ran = Ran(*chosen)
        crashed = "a crash" if "the traceback is in" in ran.err else ""
        fault = ran.fault(0, 2, 3) or crashed or ("" if all_files(place) == before else "it wrote files")
        faults += [f"{fault}: {chosen!r:.300}"] if fault else []
    assert faults == []


ENVIRONMENTS: tuple[Mapping[str, str | None], ...] = (
    {"HOME": None},
    {"HOME": ""},
    {"HOME": "/nowhere"},
    {"HOME": "/dev/null"},
    {"HOME": None, "GRADGATE_CACHE": None},
    {"GRADGATE_CACHE": ""},
    {"GRADGATE_CACHE": "/dev/null"},
    {"GRADGATE_CACHE": "relative"},
    {"GRADGATE_CACHE": "x" * 5000},
    {"GRADGATE_CACHE": "\udcff"},
    {"GRADGATE_CACHE": "a\nb"},
    {"GRADGATE_CACHE": "thesis.html"},
    {"TMPDIR": "/nowhere"},
    {"GRADGATE_CACHE": None, "XDG_CACHE_HOME": "/dev/null"},
    {"COLUMNS": "x"},
    {"COLUMNS": "0"},
    {"COLUMNS": "-5"},
    {"COLUMNS": "1"},
    {"LINES": "x"},
    {"TERM": "dumb"},
    {"TERM": ""},
    {"FORCE_COLOR": "1"},
    {"NO_COLOR": "1"},
    {"PATH": ""},
    {"LANG": "x"},
    {"LC_ALL": "C"},
    {"PYTHONPATH": "/dev/null"},
    {"TTY_COMPATIBLE": "1"},
)


COLOURED = {"FORCE_COLOR", "TTY_COMPATIBLE"}
"""With these, the user asks for codes of colours."""


@pytest.mark.parametrize("command", ["list", "cache", "profiles", "report"])
def test_environments(place: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "doc.json").write_text(json.dumps(VERDICTS))
    more = {"report": ["doc.json", "--report", "page"], "list": ["--method", "backprop", "--framework", "jax"]}
    wanted = [command, *more.get(command, [])]
    faults = []
    for changes in ENVIRONMENTS:
        with monkeypatch.context() as patch:
            for name, value in changes.items():
                patch.delenv(name, raising=False) if value is None else patch.setenv(name, value)
            fault = Ran(*wanted).fault(0)
        faults += [f"{changes!r:.200}: {fault}"] if fault and not changes.keys() & COLOURED else []
    assert faults == []
    assert (place / "thesis.html").read_text() == "mine"


class Failing(io.StringIO):
    """A stream whose writes fail from a number on."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__()
        self.left, self.error = number, error

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().write(text)


WRONG = verdict("a", "refuted", error=1.0, noise=1e-16, reason="w is off")
REFUTED = VERDICTS | {"verdicts": [WRONG, *VERDICTS["verdicts"][1:]]}
CUT_OFF = VERDICTS | {"verdicts": VERDICTS["verdicts"][1:]}
DOCUMENTS: dict[int, dict[str, Any]] = {0: VERDICTS, 1: REFUTED, 2: CUT_OFF}
"""Exit status -> a document that has it."""
PIPE, FULL, BAD = BrokenPipeError(errno.EPIPE, "x"), OSError(errno.ENOSPC, "full"), OSError(errno.EBADF, "bad")


@pytest.mark.parametrize("status", DOCUMENTS)
@pytest.mark.parametrize("which", ["stdout", "stderr"])
def test_streams_change_neither_status_nor_report(
    place: Path, status: int, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "doc.json").write_text(json.dumps(DOCUMENTS[status]))
    assert Ran("report", "doc.json", "--report", "page").status == status
    whole = all_files(place / "page")
    closed = io.StringIO()
    closed.close()
    broken = [(Failing(number, error), error) for number in (0, 1, 2) for error in (PIPE, FULL, BAD)]
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    for stream, error in [*broken, (None, PIPE), (closed, PIPE), (ascii_only, PIPE)]:
        for name in whole:
            (place / "page" / name).unlink()
        with monkeypatch.context() as patch:
            patch.setattr(sys, which, stream)
            found = cli.main(["report", "doc.json", "--report", "page"])
        lost = which == "stdout" and error is not PIPE and stream.left < 0  # type: ignore[union-attr]
        assert found == (status or (2 if lost else 0)), (which, error)
        assert all_files(place / "page") == whole, (which, error)


# What follows runs the console script in processes of its own.
RUN = (sys.executable, "-m", "gradgate.suites.cli")


def shell(line: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which ``$G`` is gradgate."""
    return subprocess.run(
        ["bash", "-c", f"G='{' '.join(RUN)}'; {line}"],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("$G report doc.json --report page | true; exit ${PIPESTATUS[0]}", 1),
        ("$G report good.json --report page | true; exit ${PIPESTATUS[0]}", 0),
        ("$G report doc.json --report page 2>&1 | true; exit ${PIPESTATUS[0]}", 1),
        ("$G report doc.json --report page >&-", 1),
        ("$G report good.json --report page >&- 2>&-", 0),
        ("$G report good.json --report page <&- >&- 2>&-", 0),
        ("$G report doc.json --report page >/dev/full", 1),
        ("$G report good.json --report page >/dev/full", 2),
        ("PYTHONIOENCODING=ascii $G report good.json --report page", 0),
        ("PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=C $G report good.json --report page", 0),
        ("mkdir -p gone; cd gone; rmdir ../gone; $G report $OLDPWD/good.json --report $OLDPWD/page", 2),
        ("mkdir -p gone; cd gone; rmdir ../gone; $G verify x.py", 2),
        ("mkdir -p gone; cd gone; rmdir ../gone; $G list --method nothing_such", 2),
        ("env -u HOME -u GRADGATE_CACHE $G report good.json --report page", 0),
    ],
)
def test_a_real_process(place: Path, line: str, status: int) -> None:
    (place / "doc.json").write_text(json.dumps(REFUTED))
    (place / "good.json").write_text(json.dumps(VERDICTS))
    ran = shell(line, place)
    assert ran.returncode == status, ran
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "Exception ignored" not in ran.stderr
    assert (place / "page" / "index.html").exists() == ("gone" not in line)
    assert "gone" not in line or ran.stderr.count("\n") == 1
    assert (place / "thesis.html").read_text() == "mine"


PAIR = (
    SQUARE.replace("2 *", "FACTOR *")
    + """
import gradgate

def applied(x):
    return Square.apply(x)

def plain(x):
    return x * x

square = gradgate.Pair(
    applied, reference=plain, inputs={"x": gradgate.normal("T")}, dims={"T": (1, 3)}, dtypes=("float64",)
)
"""
)


@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize(("factor", "status"), [(2, 0), (3, 1)])
def test_a_reader_that_leaves_changes_neither_the_verdict_nor_the_report_of_verify(
    place: Path, torch: Any, factor: int, status: int
) -> None:
    (place / "pairs.py").write_text(PAIR.replace("FACTOR", str(factor)))
    asked = "verify pairs.py --claim gradient_float64 --examples 4 --jobs 1 --report page"
    ran = shell(f"$G {asked} 2>&1 | true; exit ${{PIPESTATUS[0]}}", place)
    assert ran.returncode == status, ran
    assert {path.name for path in (place / "page").iterdir()} == {
        "index.html",
        "junit.xml",
        "failures.sarif",
        "verdicts.json",
    }


def test_a_crash_is_status_two_with_one_line_and_a_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, gradgate: Callable[..., Any]
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("\x1b[31mno such\nluck\ud800")

    monkeypatch.setattr("gradgate.hw_profiles.cache.Cache.size", crash)
    ran = gradgate("cache")
    assert ran.status == 2
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("gradgate: RuntimeError: no such luck; the traceback is in ")
    file = Path(ran.err.partition("the traceback is in ")[2].partition(",")[0])
    assert "in crash" in file.read_text()
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: os.open("/nowhere/x", os.O_RDONLY))
    ran = gradgate("cache")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "its traceback could not be written" in ran.err


@pytest.mark.parametrize("code", [0, 1, None, "bye"])
def test_an_exit_of_foreign_code_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, gradgate: Callable[..., Any], place: Path, code: object
) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(code)

    monkeypatch.setattr("gradgate.hw_profiles.cache.Cache.size", leave)
    ran = gradgate("cache")
    assert ran.status == 2
    assert f"something called sys.exit({code!r})" in ran.err
