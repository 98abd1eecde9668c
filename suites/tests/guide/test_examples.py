"""The examples of the guide hold as a reader judges them: every claim, on as many problems as by default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.guide import examples

FOLDER = Path(examples.__file__).parent
JUDGED = {
    "attention.py": (("jax", "torch"), 100),
    "cross_entropy.py": (("jax",), 100),
    "rms_norm.py": (("torch",), 100),
    "triton_conv.py": (("torch", "triton"), 6),  # a minute at 100, in Triton's interpreter
}
"""Example -> the packages that it needs, and the problems for each claim."""


@pytest.mark.parametrize("name", JUDGED)
def test_every_claim_of_an_example_is_as_declared(name: str, gradgate: Any) -> None:
    packages, problems = JUDGED[name]
    for package in packages:
        pytest.importorskip(package)
    ran = gradgate("verify", FOLDER / name, "--jobs", 1, "--examples", problems)
    assert ran.status == 0, ran.out + ran.err


def test_every_example_is_judged() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} - {"__init__.py"} == set(JUDGED)
