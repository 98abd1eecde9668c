"""Small packages of two frameworks under `gradgate watch pytest`: right rules are upheld, every mutant is refuted."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NUMBERS = {"torch": (21, 41), "jax": (19, 35)}
"""Framework -> its packages and their mutants."""
WITHIN = {
    "torch": ("torch.vmap(", "torch.func.grad(", "checkpoint("),
    "jax": ("jax.jit(", "jax.vmap(", "jax.lax.scan(", "jax.pmap(", "jax.shard_map("),
}
"""Framework -> transformations within which a package's test calls its rule."""
TEST = """
from {package} import {caller}


def test_{caller}():
    {caller}()
"""


def rules_of(framework: str) -> Any:
    return importlib.import_module(f"gradgate.suites.tests.watching.rules_in_{framework}")


def written(framework: str, folder: Path) -> list[str]:
    """Write a package for every right rule and one for every mutant, each with a test; returns their names."""
    rules = rules_of(framework)
    body = inspect.getsource(rules).partition("MUTANTS = (")[0]
    packages = {f"right_{caller.__name__}": (caller, body) for caller in rules.CALLERS}
    for number, (caller, old, new) in enumerate(rules.MUTANTS):
        assert body.count(old) == 1, (caller.__name__, old)
        packages[f"broken_{number}_{caller.__name__}"] = caller, body.replace(old, new)
    for name, (caller, text) in packages.items():
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text)
        (folder / f"test_{name}.py").write_text(TEST.format(package=name, caller=caller.__name__))
    return list(packages)


def test_right_rules_are_upheld_and_every_mutant_is_refuted(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gradgate: Callable[..., Any]
) -> None:
    packages = written(framework, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    ran = gradgate("watch", "--json", "rules.json", "pytest", "-q", "-p", "no:cacheprovider")
    assert f"{len(packages)} passed" in ran.out, ran.out
    document = json.loads((tmp_path / "rules.json").read_text())
    assert document["notes"] == []
    found = {Path(one["file"]).parent.name: one for one in document["rules"]}
    assert sorted(found) == sorted(packages)
    assert len(document["rules"]) == len(packages)
    right = {name: (one["state"], one["reason"]) for name, one in found.items() if name.startswith("right")}
    assert {name: one for name, one in right.items() if one[0] != "upheld"} == {}
    broken = {name: one["name"] for name, one in found.items() if name.startswith("broken")}
    assert {name: rule for name, rule in broken.items() if found[name]["state"] != "refuted"} == {}


def test_there_are_more_than_twenty_packages_and_forty_mutants() -> None:
    found = {}
    for framework, ways in WITHIN.items():
        pytest.importorskip(framework)
        rules = rules_of(framework)
        found[framework] = len(rules.CALLERS), len(rules.MUTANTS)
        callers = "".join(map(inspect.getsource, rules.CALLERS))
        assert [way for way in ways if way not in callers] == []
    assert found == NUMBERS
    assert sum(packages for packages, _ in found.values()) >= 20
    assert sum(mutants for _, mutants in found.values()) >= 40
