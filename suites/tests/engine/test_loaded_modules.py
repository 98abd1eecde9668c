"""What one call of `gradgate.check` imports of gradgate: no paper's class of problems, and at most MOST modules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.suites.tests.scratch import SQUARE

MOST = {"torch": 110, "jax": 106}
"""Framework -> the most modules of gradgate. Sixty digits are 40 of them: the rules of a framework's operations."""
ARRAYS = {
    "torch": "import torch\nx = torch.eye(3) + 0.5\n",
    "jax": "import jax.numpy as jnp\nx = jnp.eye(3) + 0.5\n",
}
CALL = """
import json, sys
import gradgate
gradgate.check(lambda x: (x * x).sum(-1), lambda x: (x**2).sum(-1), (x,))
print(json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] == "gradgate")))
"""


def of_papers(modules: Iterable[str]) -> list[str]:
    """The modules of gradgate's own classes of problems."""
    classes = tuple(f"gradgate.references.{name}" for name in registry.names())
    return [name for name in modules if name in classes or name.startswith(tuple(f"{one}." for one in classes))]


def loaded(process: Callable[..., Any], folder: Path, framework: str, before: str = "") -> list[str]:
    """The modules of gradgate after one call in a new process."""
    (folder / "call.py").write_text(before + ARRAYS[framework] + CALL)
    ran = process("call.py", cwd=folder)
    assert ran.status == 0, ran.out + ran.err
    names: list[str] = json.loads(ran.out.splitlines()[-1])
    return names


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_call_of_check_imports_no_paper_and_few_modules(
    process: Callable[..., Any], tmp_path: Path, framework: str
) -> None:
    pytest.importorskip(framework)
    modules = loaded(process, tmp_path, framework)
    assert of_papers(modules) == []
    assert len(modules) <= MOST[framework], "\n".join(modules)


def test_a_class_that_is_imported_counts(process: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    modules = loaded(process, tmp_path, "torch", "import gradgate.references.chain\n")
    assert "gradgate.references.chain.claims" in of_papers(modules)


BY_HAND = (
    SQUARE
    + """
import sys
import gradgate

gradgate.check(lambda x: Square.apply(x), lambda x: PLAIN, (torch.eye(3) + 0.5,))
print("torch._dynamo" in sys.modules)
"""
)


@pytest.mark.parametrize(
    ("plain", "there"),
    [
        ("x**2", "False"),
        ("torch.func.vmap(torch.square)(x)", "False"),
        ("torch.compile(torch.square, backend='eager')(x)", "True"),
    ],
)
def test_a_call_of_check_imports_pytorch_s_compiler_only_if_something_is_compiled(
    process: Callable[..., Any], tmp_path: Path, plain: str, there: str
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "call.py").write_text(BY_HAND.replace("PLAIN", plain))
    ran = process("call.py", cwd=tmp_path)
    assert ran.status == 0, ran.out + ran.err
    assert ran.out.split() == [there]
