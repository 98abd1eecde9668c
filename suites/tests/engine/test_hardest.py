"""The hardest problem in floats is searched for and reported: what loses digits at larger inputs alone is seen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from gradgate import Pair, normal, within
from gradgate.references import registry
from gradgate.references.backends import namespace
from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.checks import CHECKS, Case
from gradgate.suites.engine import hardest
from gradgate.suites.judging.subject import Refuted, Subject
from gradgate.suites.judging.tolerance import KAPPA, Comparison
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.pairs import unseen
from gradgate.suites.tests.pairs.verdicts import judged

Slope = Callable[[Any, Any], Any]


def logistic(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def cancelling(xp: Any, x: Any) -> Any:
    """The derivative of `logistic`, which loses digits for large x alone: there 1 − s cancels."""
    return logistic(xp, x) * (1 - logistic(xp, x))


def careful(xp: Any, x: Any) -> Any:
    """The derivative of `logistic`, which loses none."""
    return logistic(xp, x) * logistic(xp, -x)


def verdict(
    framework: str, forward: Slope, slope: Slope, claim: str, plain: Slope | None = None, **how: Any
) -> Verdict:
    pytest.importorskip(framework)
    xp: Any = namespace(framework)
    function: Any
    if framework == "jax":
        import jax

        function = jax.custom_vjp(lambda x: forward(xp, x))
        function.defvjp(lambda x: (forward(xp, x), x), lambda x, g: (g * slope(xp, x),))
    else:
        import torch

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return forward(xp, x)

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * slope(xp, ctx.saved_tensors[0])

        function = Function.apply
    pair = Pair(
        lambda x: function(x),
        lambda x: forward(xp, x),
        inputs={"x": normal("N")},
        **{"dims": {"N": (8,)}, "framework": framework, "name": "hard", **how},
    )
    return judged(pair, (claim,), 12)[claim]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("dtype", hardest.DTYPES)
def test_a_loss_of_digits_at_larger_inputs_is_reported_and_the_careful_twin_has_none(
    framework: str, dtype: str
) -> None:
    wrong = verdict(framework, logistic, cancelling, f"gradient_{dtype}")
    assert wrong.verdict == "upheld", wrong  # it is no fault at the inputs that are drawn
    assert wrong.worst["drawn"] < KAPPA < wrong.worst["noises"]
    assert wrong.worst["scales"]["x"] in (8.0, 64.0)
    assert wrong.worst["spec"]["regime"].startswith("unseen: times ")
    assert wrong.reason == hardest.worded(wrong.worst)
    assert "a regime with such inputs would be refuted" in wrong.reason
    right = verdict(framework, logistic, careful, f"gradient_{dtype}")
    assert right.worst["noises"] < KAPPA
    assert 0 < right.worst["tries"] <= hardest.TRIES


def test_a_regime_with_such_inputs_is_refuted() -> None:
    regimes = {"large": lambda given: given | {"x": 4 + 8 * abs(given["x"])}}
    assert verdict("torch", logistic, cancelling, "stability", regimes=regimes).verdict == "refuted"
    assert verdict("torch", logistic, careful, "stability", regimes=regimes).verdict == "upheld"


def test_a_run_repeats_bit_for_bit() -> None:
    one, other = (verdict("torch", logistic, careful, "gradient_float64").worst for _ in range(2))
    assert one == other


def test_nothing_is_searched_where_an_error_is_declared() -> None:
    found = verdict("torch", logistic, cancelling, "gradient_float32", approximates=within(1e-3))
    assert (found.verdict, found.worst) == ("upheld", {})


def test_a_name_repeats_several_changes() -> None:
    pair = Pair("a:f", "a:g", inputs={"x": normal("N"), "w": normal("N")}, dims={"N": (2,)}, framework="torch")
    name = unseen.scaled({"x": 3, "w": -1})
    assert name == "unseen: times 8 in x; times 0.5 in w"
    assert unseen.known(pair, name)
    assert not unseen.known(pair, "unseen: times 8 in x; times 0.5 in y")
    drawn = pair.given(pair.spec(N=2))
    changed = unseen.changed(pair, name, drawn)
    assert (changed["x"] == 8 * drawn["x"]).all()
    assert (changed["w"] == drawn["w"] / 2).all()


@pytest.mark.parametrize(("worst", "shape"), [(7, {"N": 7}), (8, {})])
def test_other_shapes_that_were_drawn_are_tried(worst: int, shape: dict[str, int]) -> None:
    """The shape that is worst is reported; its problem has the scales that were worst at the first shape."""
    pytest.importorskip("torch")
    inputs = {"x": normal("N")}
    pair = Pair(lambda x: x * x, lambda x: x**2, inputs, {"N": (8, 7, 2)}, framework="torch", name="shapes")
    claim = next(claim for claim in pair.lowered.claims if claim.name == "gradient_float64")
    drawn = [pair.spec(N=size) for size in (8, 7, 2)]
    found = hardest.begin(claim, pair, drawn[0], 0.5, drawn)
    assert found is not None
    assert [one["N"] for one in found.shapes] == [2, 7]

    def judge(spec: Any) -> Comparison:
        ratio = 2.0 * (worst == spec.N) + ("times 8 " in spec.regime)
        return Comparison("float64", {"x": (1e-15, 1e-15, ratio)})

    found.search(judge)
    assert found.summary().get("shape", {}) == shape
    assert found.summary()["scales"] == {"x": 8.0}
    assert found.tries <= hardest.TRIES


@pytest.mark.parametrize(("regime", "within"), [("", True), ("unseen: times 30", False)])
def test_why_floats_do_not_refute_at_inputs_that_only_the_search_found(regime: str, within: bool) -> None:
    """Attention that keeps no matrix is right, and far beyond the bound where q and k are large."""
    torch = pytest.importorskip("torch")

    class Attention(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
            scores = q @ k.T
            total = scores.logsumexp(1)
            out = (scores - total[:, None]).exp() @ v
            ctx.save_for_backward(q, k, v, out, total)
            return out

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            q, k, v, out, total = ctx.saved_tensors
            weights = (q @ k.T - total[:, None]).exp()
            apart = weights * (grads[0] @ v.T - (grads[0] * out).sum(1)[:, None])
            return apart @ k, apart.T @ q, weights.T @ grads[0]

    pair = Pair(
        lambda q, k, v: Attention.apply(q, k, v),
        lambda q, k, v: torch.softmax(q @ k.T, -1) @ v,
        inputs={name: normal("T H") for name in ("q", "k", "v")},
        dims={"T": (16,), "H": (8,)},
        framework="torch",
        name="attention",
    )
    method = pair.lowered
    claim = method.claim("gradient_float32")
    subject = Subject(method, pair)
    found = []
    for seed in range(4):
        case = Case(subject, claim, pair.spec(regime=regime, dtype="float32", seed=seed), {})
        with contextlib.suppress(Refuted):
            CHECKS[claim.check].function(case)
        found.extend(case.comparisons)
    registry.forget(method.family)
    assert found
    assert (max(one.ratio for one in found) < KAPPA) == within
