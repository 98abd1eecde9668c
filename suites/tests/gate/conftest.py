"""Scratch repositories, one of them laid out like gradgate's own, with a class of problems of a few lines."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gradgate.suites.tests.scratch import Scratch

ROOT = Path(__file__).resolve().parents[3]
DECLARATION = '''"""A chain of elementwise layers, for tests."""

from gradgate.references.claims import contract_claims
from gradgate.references.contract import Family, Method

HERE = "gradgate.references.cubic"
SHAPES = ({"width": 1, "depth": 1}, {"width": 3, "depth": 2})
CLAIMS = [c for c in contract_claims() if c.name in ("tree", "value", "gradient_float64")]
FAMILY = Family(
    "cubic", "none", f"{HERE}.problem:CubicSpec",
    (Method("cubic", "by_hand", "torch", f"{HERE}.by_hand:by_hand", tuple(CLAIMS)),),
    SHAPES, {}, SHAPES, letters={"N": "width"}, measured={"width": 4096, "depth": 6}, eager={"width": 512},
)
'''
PROBLEM = '''"""Loss Σ y², y = tanh(w_k · y) over k."""

from dataclasses import dataclass, field
from typing import Any

from gradgate.references.contract import Problem, Spec
from gradgate.references.draws import Constant, Normal, draw


@dataclass(frozen=True)
class CubicSpec(Spec):
    width: int = 3
    depth: int = 2

    def layout(self):
        params = {"w": Normal((self.depth, self.width))}
        return CubicProblem, params, {"x": Normal((self.width,)), "upstream": Constant(self.upstream)}

    def build(self, backend):
        cls, params, data = self.layout()
        params, data = draw([params, data], self, backend)
        return cls(self, backend, params, data)


@dataclass(frozen=True)
class CubicProblem(Problem):
    spec: CubicSpec
    backend: str
    params: Any
    data: dict[str, Any] = field(default_factory=dict)

    def loss(self, params):
        y = self.data["x"]
        for k in range(self.spec.depth):
            y = self.xp.tanh(params["w"][k, ...] * y)
        return self.xp.sum(y * y) * self.data["upstream"]
'''
BY_HAND = '''"""Backprop by hand, keeping each layer's output."""

import torch


def by_hand(problem):
    w, kept = problem.params["w"], [problem.data["x"]]
    for k in range(problem.spec.depth):
        kept.append(torch.tanh(w[k] * kept[-1]))
    g = 2 * kept[-1] * problem.data["upstream"]
    loss = torch.sum(kept[-1] * kept[-1]) * problem.data["upstream"]
    grads = torch.zeros_like(w)
    for k in reversed(range(problem.spec.depth)):
        y = kept.pop()
        d = g * (1 - y * y)
        grads[k] = d * kept[-1]
        g = d * w[k]
    return loss, {"w": grads}
'''
BENCHMARK = """class Figures:
    def track_bytes(self):
        return 1

    def helper(self):
        return 2
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for the runs of one test file only."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def small_checkout(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """A repository like gradgate's own, with only the family tiny, one example per claim and one profile."""
    pytest.importorskip("torch")
    made = Scratch(tmp_path_factory.mktemp("own") / "repository")
    ignored = shutil.ignore_patterns("__pycache__", "tests")
    for name in ("suites", "hw_profiles"):
        shutil.copytree(ROOT / name, made.root / name, ignore=ignored)
    (made.root / "references").mkdir()
    for path in (ROOT / "references").glob("*.py"):
        shutil.copy(path, made.root / "references")
    settings = '[project]\nname = "gradgate"\n[tool.gradgate]\nprofiles = ["nvidia-h100"]\nexamples = 2\n'
    made.commit(
        {
            "pyproject.toml": settings,
            ".gitignore": "__pycache__/\n",
            "README.md": "hello\n",
            "references/cubic/__init__.py": DECLARATION,
            "references/cubic/problem.py": PROBLEM,
            "references/cubic/by_hand.py": BY_HAND,
            "asv_bench/benchmarks/figures.py": BENCHMARK,
        }
    )
    return made


@pytest.fixture
def change(small_checkout: Scratch) -> Scratch:
    """The repository `small_checkout`, on a new branch from its base."""
    small_checkout.branch()
    return small_checkout


@pytest.fixture
def gate(cache: Path, gradgate: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """A function that runs the gate in a repository, with the module's cache."""
    monkeypatch.setenv("GRADGATE_CACHE", str(cache))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)

    def run(repository: Scratch, *arguments: object, base: str = "main") -> object:
        monkeypatch.chdir(repository.root)
        return gradgate("gate", "--base", base, *arguments)

    return run
