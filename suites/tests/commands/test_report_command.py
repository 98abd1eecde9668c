"""``gradgate report``: its status is that of what it shows, and it overwrites nothing but its own pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.suites.tests.commands.test_hostile_inputs import ALARMS, DOCUMENTS, OTHERS, VERDICTS, all_files

PAGE = {"index.html", "junit.xml", "failures.sarif", "verdicts.json", "plotly.min.js"}


@pytest.mark.parametrize("status", DOCUMENTS)
def test_the_status_is_that_of_the_verdicts(status: int, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(json.dumps(DOCUMENTS[status]))
    for more in ([], ["--json", tmp_path / "all.json"]):
        assert gradgate("report", tmp_path / "v.json", *more).status == status


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (OTHERS[1], 0),
        (OTHERS[1] | {"flakes": [DOCUMENTS[1]["verdicts"][0] | {"seed": 1}]}, 1),
        (OTHERS[2], 0),
        (OTHERS[2] | {"families": {"chain": {"alarms:jax:0": ALARMS | {"alarms": [{"leaf": "w"}]}}}}, 1),
        (OTHERS[0] | {"laws": []}, 0),
        (OTHERS[0] | {"laws": [], "cells": [OTHERS[0]["cells"][0] | {"status": "failed"}]}, 2),
    ],
)
def test_the_status_of_the_other_documents(
    document: dict[str, Any], status: int, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "d.json").write_text(json.dumps(document))
    ran = gradgate("report", tmp_path / "d.json", "--json", tmp_path / "all.json")
    assert ran.status == status, ran


def test_a_page_goes_beside_verdicts_json_and_otherwise_into_a_folder_of_its_own(
    gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    text = json.dumps(VERDICTS)  # not indented as gradgate would: it is not written again
    for name in ("verdicts.json", "x.json"):
        (tmp_path / name).write_text(text)
        assert gradgate("report", tmp_path / name).status == 0
    assert {path.name for path in tmp_path.iterdir()} == {*PAGE, "x.json", "x"}
    assert {path.name for path in (tmp_path / "x").iterdir()} == PAGE
    assert (tmp_path / "verdicts.json").read_text() == (tmp_path / "x.json").read_text() == text


def test_the_report_of_another_run_is_not_overwritten(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "verdicts.json").write_text(json.dumps(DOCUMENTS[1]))
    assert gradgate("report", tmp_path / "verdicts.json").status == 1
    before = all_files(tmp_path)
    (tmp_path / "other.json").write_text(json.dumps(VERDICTS))
    assert gradgate("report", tmp_path / "other.json").status == 0
    assert before.items() <= all_files(tmp_path).items()


@pytest.mark.parametrize("name", sorted(PAGE))
def test_a_file_of_the_user_is_not_overwritten(name: str, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(json.dumps(VERDICTS))
    (tmp_path / name).write_text("mine")
    before = all_files(tmp_path)
    ran = gradgate("report", tmp_path / "v.json", "--report", tmp_path)
    assert ran.status == 3
    assert f"{name} is there and gradgate did not write it" in ran.err
    ran = gradgate("report", tmp_path / "v.json", "--json", tmp_path / name)
    assert ran.status == 3
    assert all_files(tmp_path) == before


@pytest.mark.parametrize("command", [["verify", "--family", "chain", "--method", "backprop"], ["memory", "x.py"]])
def test_a_long_run_does_not_begin_if_its_file_would_overwrite_something(
    command: list[str], gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "mine.json").write_text('{"name": "package"}')
    (tmp_path / "kept.json").write_text(json.dumps({"schema": 2, "mutants": []}))
    (tmp_path / "index.html").write_text("mine")
    (tmp_path / "memory.html").write_text("mine")
    before = all_files(tmp_path)
    for more, said in (
        (["--json", tmp_path / "mine.json"], "gradgate did not write it"),
        (["--json", tmp_path / "kept.json"], "holds mutants, which would be lost"),
        (["--report", tmp_path], "gradgate did not write it"),
    ):
        ran = gradgate(*command, *more)
        assert (ran.status, said in ran.err) == (3, True), ran
    assert all_files(tmp_path) == before


def test_a_relative_folder_of_the_cache_is_one_folder_for_every_process(
    gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRADGATE_CACHE", ".gradgate")
    from gradgate.suites.gate.overlay import Overlay

    assert f"in {tmp_path / '.gradgate' / 'measurements'}" in gradgate("cache").out
    assert Overlay(tmp_path, ()).environment()["GRADGATE_CACHE"] == str(tmp_path / ".gradgate")


def _domain(**different: Any) -> dict[str, Any]:
    """What ``gradgate domain --json`` writes of one input: a loss of two digits, and an overflow."""
    rows = [(0, 0.5, ""), (1, 2.0, ""), (2, None, "overflow")]
    points = [
        {"leaf": "x", "power": power, "dtype": "float32", "role": "function", "lost": lost, "state": state}
        for power, lost, state in rows
    ]
    document = {"schema": 1, "target": 'ops.py:<"softplus">', "spec": {"T": 4}, "options": {}, "points": points}
    return document | different


def test_what_domain_measured_is_a_figure_of_the_page(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    """With its target and its crosses; without the option there is none."""
    (tmp_path / "v.json").write_text(json.dumps(VERDICTS))
    (tmp_path / "d.json").write_text(json.dumps(_domain()))
    figures = ["--domain", tmp_path / "d.json", "--domain", tmp_path / "d.json"]
    assert gradgate("report", tmp_path / "v.json", "--report", tmp_path / "with", *figures).status == 0
    assert gradgate("report", tmp_path / "v.json", "--report", tmp_path / "without").status == 0
    shown, plain = ((tmp_path / name / "index.html").read_text(encoding="utf-8") for name in ("with", "without"))
    section = shown.partition('<section id="domains">')[2].partition("</section>")[0]
    assert section.count('ops.py:&lt;"softplus"&gt;: digits lost in the gradient') == 2
    assert section.count('aria-label="ops.py:&lt;&quot;softplus&quot;&gt;: digits') == 2
    assert section.count("function, float32: overflow") == 2
    assert "digits lost in the gradient" not in plain


@pytest.mark.parametrize(
    ("verdicts", "domain", "said"),
    [
        (OTHERS[0], _domain(), "a page of cells has no such figure"),
        (VERDICTS, VERDICTS, "does not fit gradgate schema domain"),
        (VERDICTS, _domain(points=[]), "does not fit gradgate schema domain"),
        (VERDICTS, _domain(points=[_domain()["points"][0] | {"dtype": "int8"}]), "does not fit gradgate schema domain"),
    ],
)
def test_a_figure_that_cannot_be_shown_is_wrong_usage(
    verdicts: dict[str, Any], domain: dict[str, Any], said: str, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "v.json").write_text(json.dumps(verdicts))
    (tmp_path / "d.json").write_text(json.dumps(domain))
    ran = gradgate("report", tmp_path / "v.json", "--domain", tmp_path / "d.json")
    assert (ran.status, ran.err.count("\n")) == (3, 1), ran
    assert said in ran.err
    assert not (tmp_path / "v").exists()
