"""Names of the devices on which a pair's function may run, and what each needs before anything is imported."""

from __future__ import annotations

from collections.abc import Mapping

INTERPRETER, CUDA = "interpreter", "cuda"
DEVICES = (INTERPRETER, CUDA)
"""What `Pair.devices` may name."""
VARIABLE = "TRITON_INTERPRET"
"""The variable that Triton reads when a kernel is declared."""
ENVIRONMENT: Mapping[str, Mapping[str, str]] = {"": {}, INTERPRETER: {VARIABLE: "1"}, CUDA: {VARIABLE: "0"}}
"""Device -> variables that must be in the environment of a process before anything is imported."""
