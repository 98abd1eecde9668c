"""Every hazard of eager PyTorch, with plain backprop, torch.utils.checkpoint, and the executor with every schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.chain.schedules import classic
from gradgate.suites.checks.base import Case
from gradgate.suites.checks.protocol import protocol
from gradgate.suites.judging.subject import Inapplicable, Refuted, Subject

torch = pytest.importorskip("torch")

from torch.utils.checkpoint import checkpoint  # noqa: E402 - after the check that PyTorch is there

from gradgate.references.chain.in_torch import methods as torch_impl  # noqa: E402
from gradgate.references.chain.in_torch.checkpoint import CheckpointedSequential, stages_of  # noqa: E402
from gradgate.suites.checks import hazards  # noqa: E402
from gradgate.suites.checks.hazard_table import HAZARDS  # noqa: E402

SCHEDULED = ("sqrt_n", "recursive", "recompute_all", "revolve", "uniform_dp", "precise_dp")
NAMED = {hazard.name: hazard for hazard in HAZARDS}
REFUSED = {
    "generator_elsewhere",
    "weight_replaced",
    "module_replaced",
    "functional_call",
    "flag_turned",
    "shape_turned",
    "attribute_changed",
    "smaller_batch",
    "second_derivative",
}
"""Hazards where plain backprop is right and the executor raises an error with an explanation."""
RIGHT_ANYWAY = {"activation_overwritten"}
"""Hazards where plain backprop raises. A schedule is right here if it has dropped the value that was overwritten."""
WRONG_IN_PYTORCH = {
    "torch_generator",
    "weight_changed",
    "optimizer_step",
    "buffer_changed",
    "statistics_changed",
    "data_swapped",
    "module_replaced",
    "functional_call",
    "attribute_changed",
    "batch_norm_once",
    "two_forwards",
    "twice_retained",
    "part_then_all",
}
"""Hazards where torch.utils.checkpoint with ``use_reentrant=False`` is silently wrong (PyTorch 2.13)."""


def layer_by_layer(model: Any, sample: Any) -> Callable[[Any], Any]:
    """torch.utils.checkpoint around each layer."""

    def run(x: Any) -> Any:
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=False)
        return x

    return run


def everything_saved(model: Any, sample: Any) -> Any:
    return CheckpointedSequential(model, classic.save_all(len(stages_of(model, sample))), sample)


def test_there_are_more_than_twelve_hazards_and_each_has_its_name() -> None:
    assert len(NAMED) == len(HAZARDS) >= 40
    assert {hazard.name for hazard in HAZARDS if hazard.refusable} >= REFUSED


@pytest.mark.parametrize("name", NAMED)
def test_plain_backprop_does_what_the_table_says(name: str) -> None:
    found = hazards.outcome(NAMED[name], hazards.plain)
    assert found.kind == {"right": "right", "raises": "raises", "wrong": "as plain"}[NAMED[name].plain], found.detail


@pytest.mark.parametrize("method", SCHEDULED)
@pytest.mark.parametrize("name", NAMED)
def test_a_schedule_is_right_to_the_bit_or_raises_in_words(name: str, method: str) -> None:
    found = hazards.outcome(NAMED[name], getattr(torch_impl, method).module)
    wanted = "raises" if name in REFUSED or NAMED[name].plain != "right" else "right"
    assert found.kind == wanted or (found.kind == "right" and name in RIGHT_ANYWAY), found.detail
    assert not found.fault(NAMED[name])


@pytest.mark.parametrize("name", sorted(NAMED.keys() - REFUSED))
def test_what_runs_nothing_again_is_plain_backprop(name: str) -> None:
    found = hazards.outcome(NAMED[name], everything_saved)
    assert found.kind in {"right": ("right",), "raises": ("raises", "right")}.get(
        NAMED[name].plain, ("raises", "as plain", "right")
    ), found.detail


def test_what_torch_utils_checkpoint_gets_wrong_without_a_word() -> None:
    wrong = {name for name, hazard in NAMED.items() if hazards.outcome(hazard, layer_by_layer).kind == "wrong"}
    assert wrong == WRONG_IN_PYTORCH


def judged(function: Any) -> None:
    [declared] = registry.methods("chain", "revolve", "torch")
    spec = registry.spec_class("chain")(layers=2, width=2, batch=1)
    protocol(Case(Subject(declared, function), declared.claim("protocol"), spec, {}))


def test_the_check_upholds_the_executor_and_refutes_what_is_silently_wrong() -> None:
    judged(torch_impl.revolve)

    def silent(problem: Any) -> Any:
        raise NotImplementedError

    with pytest.raises(Inapplicable, match="module"):
        judged(silent)
    silent.module = layer_by_layer  # type: ignore[attr-defined]
    with pytest.raises(Refuted, match=r"of \d+ hazards: eval_between .*: it refuses"):
        judged(silent)


def test_an_error_without_words_is_an_accident() -> None:
    def broken(model: Any, sample: Any) -> Any:
        raise KeyError(3)

    found = hazards.outcome(NAMED["dropout"], broken)
    assert found.kind == "accident"
    assert "fails by accident: KeyError: 3" in found.fault(NAMED["dropout"])
