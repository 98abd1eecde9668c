"""The unbiasedness check: it accepts a random estimator whose mean is the gradient, and refutes the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from gradgate.references.contract import Claim, Method
from gradgate.references.registry import spec_class
from gradgate.suites.checks import CHECKS, Case
from gradgate.suites.checks.statistics import DRAWS, ERROR_RATE, _t_limit
from gradgate.suites.judging.subject import Refuted, Subject

CLAIM = Claim("unbiased", "unbiased", "its mean is the gradient", "test", settings={"seed_option": "seed"})
SPECS = [
    spec_class("state_space")(length=2, layers=1, state=1, width=1, vocabulary=2, batch=1, seed=1),
    spec_class("state_space")(length=2, layers=2, seed=2),
]


def projected(change: Callable[[Any, Any, Any], Any]) -> Subject:
    """A subject that estimates the gradient as (∇f·v) v, where v is normal; `change` alters an estimated leaf."""
    import torch

    def estimate(problem: Any, *, seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        exact, loss = torch.func.grad_and_value(problem.loss)(problem.params)
        flat, tree = torch.utils._pytree.tree_flatten(exact)
        v = [torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype) for leaf in flat]
        slope = sum((leaf * direction).sum() for leaf, direction in zip(flat, v, strict=True))
        estimates = [change(slope * direction, leaf, slope) for direction, leaf in zip(v, flat, strict=True)]
        return loss, torch.utils._pytree.tree_unflatten(estimates, tree)

    return Subject(Method("state_space", "projected", "torch", "test:estimate"), estimate)


def check(change: Callable[[Any, Any, Any], Any], spec: Any) -> None:
    CHECKS["unbiased"].function(Case(projected(change), CLAIM, spec, {}))


@pytest.mark.parametrize("spec", SPECS, ids=["small", "two_layers"])
def test_an_unbiased_estimator_is_accepted(spec: Any, torch: Any) -> None:
    check(lambda estimate, exact, slope: estimate, spec)


def test_the_gradient_itself_which_has_no_variance_is_accepted(torch: Any) -> None:
    check(lambda estimate, exact, slope: exact, SPECS[0])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda estimate, exact, slope: 3 * estimate, id="factor"),
        pytest.param(lambda estimate, exact, slope: -estimate, id="sign"),
        pytest.param(lambda estimate, exact, slope: estimate + 10 * exact.abs().max() + 1, id="wrong_mean"),
        pytest.param(lambda estimate, exact, slope: estimate / slope, id="missing_factor"),
        pytest.param(lambda estimate, exact, slope: 1.001 * exact, id="biased_without_variance"),
    ],
)
def test_a_biased_estimator_is_refuted_in_words(change: Callable[[Any, Any, Any], Any], torch: Any) -> None:
    with pytest.raises(Refuted) as caught:
        check(change, SPECS[0])
    assert re.fullmatch(
        rf"the mean of {DRAWS} draws of \S+ is \S+ ± \S+, the oracle's \S+: biased \(error rate 1e-06\)",
        str(caught.value),
    ), caught.value
    assert caught.value.leaf


def test_the_limit_is_the_quantile_of_students_t() -> None:
    # 399 degrees of freedom, two-sided; computed with SciPy: t.isf(rate / 2, 399)
    for rate, exact in ((0.05, 1.965927), (1e-3, 3.315123), (1e-6, 4.969113)):
        assert _t_limit(rate) == pytest.approx(exact, rel=2e-4)
    assert _t_limit(ERROR_RATE / 10) > _t_limit(ERROR_RATE)
