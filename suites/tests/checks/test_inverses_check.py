"""The checks of layers' inverses and vector-inverse-Jacobian products, and of refused problems."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.invertible.layers import Coupling, NotInvertible, Submersion
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict


def judged(method: str, claim: str, function: Callable[..., Any] | None = None) -> Verdict:
    """The verdict on one claim of a PyTorch method, or of another function in its place."""
    [declared] = registry.methods("invertible", method, "torch")
    subject = Subject(declared, function) if function else Subject.load(declared)
    return judge(Task.of(declared, declared.claim(claim)), subject, Run(examples=60))  # the check uses a fifth of these


@pytest.mark.parametrize(
    ("method", "claim"), [("reversible", "inverses"), ("moonwalk_mixed", "vijp"), ("reversible", "refuses_submersive")]
)
def test_what_the_layers_promise_is_upheld(method: str, claim: str, torch: Any) -> None:
    found = judged(method, claim)
    assert (found.verdict, found.examples > 0) == ("upheld", True), found.reason


def test_an_inverse_that_is_off_in_the_tenth_digit_is_refuted_by_its_layers_name(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Coupling.inverse
    monkeypatch.setattr(Coupling, "inverse", lambda self, p, y: right(self, p, y) * (1 + 1e-10))
    found = judged("reversible", "inverses")
    assert found.verdict == "refuted"
    assert "block0[0].0_additive: inverse(forward(x)) is not x: off by 1e-10" in found.reason


@pytest.mark.parametrize(("layer", "named"), [(Coupling, "0_additive"), (Submersion, "submersive0")])
def test_a_vijp_that_is_off_in_the_tenth_digit_is_refuted_by_its_layers_name(
    layer: type, named: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = layer.advance  # type: ignore[attr-defined]

    def off(self: Any, *given: Any) -> Any:
        y, h, dp = right(self, *given)
        return y, h * (1 + 1e-10), dp

    monkeypatch.setattr(layer, "advance", off)
    found = judged("moonwalk_mixed", "vijp")
    assert found.verdict == "refuted"
    assert f"{named}: vijp(vjp(h)) is not h: off by 1e-10" in found.reason


def _raises(error: Exception) -> Callable[..., Any]:
    def method(problem: Any) -> Any:
        raise error

    return method


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (None, "gave a gradient of a problem that it is claimed to refuse"),
        (_raises(ValueError("shapes")), "failed by accident: the method raised ValueError: shapes; expected NotInv"),
        (_raises(NotInvertible("somewhere")), "failed by accident: the method raised NotInvertible: somewhere"),
    ],
)
def test_only_the_documented_error_that_names_the_layer_is_a_refusal(
    function: Callable[..., Any] | None, why: str, torch: Any
) -> None:
    backprop = registry.load(registry.methods("invertible", "backprop", "torch")[0].implementation)
    found = judged("reversible", "refuses_submersive", function or backprop)
    assert found.verdict == "refuted"
    assert why in found.reason


def test_claims_of_a_method_that_is_not_for_all_problems_draw_those_that_it_is_for() -> None:
    for framework in ("jax", "torch"):
        [declared] = registry.methods("invertible", "reversible", framework)
        drawn = [claim for claim in declared.claims if claim.check == "gradient"]
        assert drawn
        assert {claim.where["submersive"] for claim in drawn} == {0}
        assert dataclasses.asdict(declared.claim("refuses_submersive"))["where"] == {"submersive": 1}
