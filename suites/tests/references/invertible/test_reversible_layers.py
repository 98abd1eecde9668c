"""Layers of users as pairs: upheld without edits, and refuted with each bug."""

from __future__ import annotations

import pytest

from gradgate.references.contract import installed
from gradgate.suites.bugs.entries import EntryMutant
from gradgate.suites.bugs.entries_invertible import MUTANTS
from gradgate.suites.bugs.entry_pairs import invertible
from gradgate.suites.tests.pairs.verdicts import refuted, upheld

PAIRS = {
    "revnet_torch": ("tree", "gradient_exact", "gradient_bfloat16", "options", "module_protocol"),
    "normed_torch": ("outputs", "gradient_exact", "autograd", "module_protocol"),
    "own_layers_torch": ("gradient_exact", "gradient_float32", "options", "module_protocol"),
    "walked_torch": ("gradient_exact", "options"),
    "revnet_jax": ("gradient_exact", "gradient_bfloat16", "residual_bytes_of_reference"),
    "noisy_jax": ("outputs", "gradient_exact"),
    "own_layers_jax": ("gradient_exact", "options", "vmap"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_is_upheld(name: str) -> None:
    pytest.importorskip(name.rpartition("_")[2])
    upheld(getattr(invertible, name), PAIRS[name])


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if installed(m.framework)], ids=lambda mutant: mutant.name)
def test_a_bug_is_refuted(mutant: EntryMutant) -> None:
    refuted(mutant.broken(), mutant.kill, examples=6)
