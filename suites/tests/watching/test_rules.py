"""Rules of two frameworks, seen in a program: the right ones are upheld, and every mutant is refuted."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.watching import recorder, results
from gradgate.suites.watching.judging import judge


def written(framework: str, folder: Path) -> list[tuple[str, str]]:
    """Write a module of the right rules, and one for each mutant; returns the callers as (module, function)."""
    rules = importlib.import_module(f"gradgate.suites.tests.watching.rules_in_{framework}")
    text = inspect.getsource(rules)
    (folder / f"right_{framework}.py").write_text(text)
    found = [(f"right_{framework}", caller.__name__) for caller in rules.CALLERS]
    body = text.partition("MUTANTS = (")[0]
    for number, (caller, old, new) in enumerate(rules.MUTANTS):
        assert body.count(old) == 1, (caller.__name__, old)
        (folder / f"broken_{framework}_{number}.py").write_text(body.replace(old, new))
        found.append((f"broken_{framework}_{number}", caller.__name__))
    return found


def test_right_rules_are_upheld_and_every_mutant_is_refuted(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, calls = tmp_path / "source", tmp_path / "calls"
    source.mkdir()
    calls.mkdir()
    callers = written(framework, source)
    monkeypatch.syspath_prepend(str(source))
    recorder.start(str(calls))
    try:
        for module, caller in callers:
            getattr(importlib.import_module(module), caller)()
    finally:
        recorder.stop()
        for module in {module for module, _ in callers}:
            sys.modules.pop(module, None)
    seen, notes = results.read(calls)
    assert not notes
    judged = judge(calls, seen, acknowledged={}, jobs=2, seconds=60)
    found = {(Path(one.rule.file).stem, one.rule.name): one for one in judged}
    right = {name: one for (module, name), one in found.items() if module.startswith("right")}
    assert len(right) == sum(module.startswith("right") for module, _ in callers)
    assert {name: (one.state, one.reason) for name, one in right.items() if one.state != "upheld"} == {}
    broken = {module: one for (module, _), one in found.items() if module.startswith("broken")}
    assert broken.keys() == {module for module, _ in callers if module.startswith("broken")}
    assert {module: one.rule.name for module, one in broken.items() if one.state != "refuted"} == {}


def test_there_are_twenty_rules_and_forty_mutants() -> None:
    found: list[Any] = []
    for framework in ("torch", "jax"):
        pytest.importorskip(framework)
        found.append(importlib.import_module(f"gradgate.suites.tests.watching.rules_in_{framework}"))
    assert sum(len(rules.CALLERS) for rules in found) >= 20
    assert sum(len(rules.MUTANTS) for rules in found) >= 40
