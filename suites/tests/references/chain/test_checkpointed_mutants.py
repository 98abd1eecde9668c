"""Bugs that are easy to make in `checkpointed`: each one is detected."""

from __future__ import annotations

import copy
import sys
from typing import Any
from unittest import mock

import pytest

from gradgate.references.contract import installed
from gradgate.suites.bugs.entries import EntryMutant
from gradgate.suites.bugs.entries_chain import FOLDER, JAX, LAYERS, TORCH, PlanMutant
from gradgate.suites.tests.pairs.verdicts import refuted

torch = pytest.importorskip("torch")


def told_apart(models: Any, checkpointed: Any) -> str:
    """How training with this `checkpointed` differs from plain training of `Masked`; empty if it does not differ."""
    plain = models.Masked()
    wrapped = checkpointed(copy.deepcopy(plain), None, budget="least", compute="flops")
    courses = [models.inputs(8), models.inputs(8, 1), models.inputs(8, kept=1.1), models.inputs(5, 2)]
    for number, each in enumerate((*courses, "eval", courses[0], "scale", *courses)):
        for model in (plain, wrapped):
            if each == "eval":
                model.eval()
            elif each == "scale":
                (model if model is plain else model._held[0]).scale = 0.25
        if isinstance(each, str):
            continue
        try:
            found = models.train(wrapped, [each], 1)
        except RuntimeError as error:
            return f"step {number} raises {error}"
        if not models.same(found, models.train(plain, [each], 1)):
            return f"step {number} differs"
    return ""


def test_the_entry_point_itself_is_not_told_apart(models: Any) -> None:
    from gradgate.in_torch import checkpointed

    assert told_apart(models, checkpointed) == ""
    unedited = PlanMutant("none", "no edit", LAYERS[0], ())
    made = unedited.loaded()
    with mock.patch.dict(sys.modules, made):
        assert told_apart(models, made[f"{FOLDER}.model"].checkpointed) == ""


@pytest.mark.parametrize("mutant", TORCH, ids=lambda mutant: mutant.name)
def test_a_bug_is_told_apart(models: Any, mutant: PlanMutant) -> None:
    made = mutant.loaded()
    with mock.patch.dict(sys.modules, made):
        assert told_apart(models, made[f"{FOLDER}.model"].checkpointed)


@pytest.mark.skipif(not installed("jax"), reason="without jax")
@pytest.mark.parametrize("mutant", JAX, ids=lambda mutant: mutant.name)
def test_a_bug_in_jax_is_refuted(mutant: EntryMutant) -> None:
    if mutant.pair.endswith("model_jax"):
        pytest.importorskip("flax")
    refuted(mutant.broken(), mutant.kill, examples=12)
