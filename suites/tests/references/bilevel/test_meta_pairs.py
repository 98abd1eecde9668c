"""`mixed_mode_grad` and `meta_gradient` as pairs: upheld without edits, and refuted with each bug."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.suites.bugs.entries import EntryMutant
from gradgate.suites.bugs.entries_meta import MUTANTS
from gradgate.suites.bugs.entry_pairs import bilevel
from gradgate.suites.tests.pairs.verdicts import refuted, upheld

USUAL = {
    "mixed_mode": (
        "tree",
        "outputs",
        "gradient_exact",
        "gradient_float64",
        "gradient_bfloat16",
        "residual_bytes_of_reference",
    ),
    "meta_gradient": ("outputs", "gradient_exact", "gradient_float32", "gradient_bfloat16"),
    "inversion": ("gradient_exact", "gradient_float64", "gradient_bfloat16"),
    "adam_inversion": ("outputs", "gradient_exact", "gradient_float64", "gradient_float32", "gradient_bfloat16"),
}
"""Pair -> the claims that are judged here; ``gradgate verify`` judges all of them."""


@pytest.mark.parametrize("framework", [framework for framework in FRAMEWORKS if installed(framework)])
@pytest.mark.parametrize("name", USUAL)
def test_a_pair_is_upheld(name: str, framework: str) -> None:
    if (framework, name) == ("jax", "meta_gradient"):
        pytest.importorskip("optax")
    upheld(getattr(bilevel, f"{name}_{framework}"), USUAL[name], examples=3)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if installed(m.framework)], ids=lambda mutant: mutant.name)
def test_a_bug_is_refuted(mutant: EntryMutant) -> None:
    if mutant.framework == "jax" and "loop" in mutant.name:
        pytest.importorskip("optax")
    refuted(mutant.broken(), mutant.kill, examples=8)


def test_every_bug_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_an_edit_that_is_not_there_is_found(torch: Any) -> None:
    import dataclasses

    with pytest.raises(LookupError, match="0 times, not once"):
        dataclasses.replace(MUTANTS[0], edits=(("no such text", ""),)).broken()
