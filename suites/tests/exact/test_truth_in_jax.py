"""A worker evaluates PyTorch's truths in JAX once there are several; another process never loads JAX by itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gradgate.references.contract import installed

SCRIPT = """
import sys
from gradgate.references import registry
from gradgate.suites.exact import truth

cls = registry.spec_class("chain")
for seed in range(truth.FEW + 2):
    truth.reference(cls(seed=seed), "torch", "float64")
    print(seed, "jax" in sys.modules)
"""


@pytest.mark.skipif(not (installed("jax") and installed("torch")), reason="it needs both frameworks")
@pytest.mark.parametrize(("platform", "loaded"), [("cpu", True), ("", False)])
def test_jax_is_loaded_after_some_truths_and_only_in_a_worker(platform: str, loaded: bool) -> None:
    environment = {**os.environ, "JAX_PLATFORMS": platform}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    lines = ran.stdout.split("\n")
    assert lines[0] == "0 False"
    assert lines[-2].split()[1] == str(loaded)
