"""The inner optimisers agree with optax and torch.optim number by number, and have derivatives where v̂ is 0."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate.references import registry
from gradgate.references.backends import leaves, namespace, precision, to_backend, to_numpy, tree_map
from gradgate.references.bilevel.inner import optimisers
from gradgate.references.bilevel.inner.optimisers import OPTIMISERS, momentum_theta_before, momentum_velocity_before
from gradgate.suites.checks import CHECKS, Case
from gradgate.suites.engine.strategies import cells
from gradgate.suites.judging.subject import Refuted, Subject

RATE, H = 0.05, {"momentum": 0.9, "decay": 0.999, "epsilon": 1e-6, "epsilon_root": 1e-3}
STEPS = 5


def numbers(seed: int, lead: tuple[int, ...] = ()) -> Any:
    """A tree with a tuple, a scalar and an empty sub-tree."""
    rng = np.random.default_rng(seed)
    return {
        "a": (rng.standard_normal((*lead, 2, 3)), rng.standard_normal(lead)),
        "b": {"c": rng.standard_normal((*lead, 4))},
        "d": (),
    }


def ours(backend: str, name: str, grads: Any, **h: float) -> list[Any]:
    """θ after each step; the first θ is `numbers(0)`."""
    xp, optimiser = namespace(backend), OPTIMISERS[name]
    with precision(backend, "float64"):

        def ready(tree: Any) -> Any:
            return tree_map(lambda leaf: to_backend(backend, np.asarray(leaf), "float64"), tree)

        theta, h = ready(numbers(0)), ready(H | h)
        rate = tree_map(lambda leaf: 0 * leaf + RATE, theta)
        state, found = optimiser.init(xp, theta), []
        for i in range(STEPS):
            grad = ready(tree_map(lambda leaf: leaf[i], grads))  # noqa: B023 - called at once
            theta, state = optimiser.update(xp, h, rate, xp.asarray(i + 1), grad, theta, state)
            found.append([to_numpy(leaf) for leaf in leaves(theta)])
    return found


@pytest.mark.parametrize("name", list(OPTIMISERS))
def test_an_optimiser_steps_as_that_of_optax_does(name: str, jax: Any) -> None:
    optax = pytest.importorskip("optax")
    theirs = {
        "sgd": optax.sgd(RATE),
        "momentum": optax.sgd(RATE, momentum=H["momentum"]),
        "adam": optax.adam(RATE, H["momentum"], H["decay"], eps=H["epsilon"], eps_root=H["epsilon_root"]),
    }[name]
    grads = numbers(1, (STEPS,))
    with jax.enable_x64(True):
        theta = jax.tree.map(jax.numpy.asarray, numbers(0))
        state = theirs.init(theta)
        for i, expected in enumerate(ours("jax", name, grads)):
            updates, state = theirs.update(jax.tree.map(lambda leaf: leaf[i], grads), state, theta)  # noqa: B023
            theta = optax.apply_updates(theta, updates)
            for mine, other in zip(expected, leaves(theta), strict=True):
                np.testing.assert_allclose(mine, to_numpy(other), rtol=1e-13)


@pytest.mark.parametrize("name", list(OPTIMISERS))
def test_an_optimiser_steps_as_that_of_torch_does(name: str, torch: Any) -> None:
    theta = [torch.tensor(leaf, requires_grad=True) for leaf in leaves(numbers(0))]
    theirs = {
        "sgd": lambda: torch.optim.SGD(theta, RATE),
        "momentum": lambda: torch.optim.SGD(theta, RATE, momentum=H["momentum"]),
        "adam": lambda: torch.optim.Adam(theta, RATE, (H["momentum"], H["decay"]), H["epsilon"]),
    }[name]()
    grads = numbers(1, (STEPS,))
    for i, expected in enumerate(ours("torch", name, grads, epsilon_root=0.0)):
        for leaf, grad in zip(theta, leaves(grads), strict=True):
            leaf.grad = torch.tensor(grad[i])
        theirs.step()
        for mine, other in zip(expected, theta, strict=True):
            np.testing.assert_allclose(mine, other.detach().numpy(), rtol=1e-13)


def test_momentum_is_taken_back_from_where_it_led() -> None:
    xp, h = namespace("numpy"), {name: np.asarray(value) for name, value in H.items()}
    theta, velocity, grad = numbers(0), numbers(2), numbers(3)
    rate = tree_map(lambda leaf: 0 * leaf + RATE, theta)
    after = OPTIMISERS["momentum"].update(xp, h, rate, 1, grad, theta, velocity)
    back = momentum_theta_before(rate, *after), momentum_velocity_before(h["momentum"], grad, after[1])
    for mine, other in zip(leaves(back), leaves((theta, velocity)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-13)


def slope_of_a_step(framework: str, step: Callable[[Any, Any], Any]) -> float:
    """d step(xp, g) / dg at g = 0."""
    xp = namespace(framework)
    with precision(framework, "float64"):
        zero = to_backend(framework, np.zeros(1), "float64")
        if framework == "jax":
            import jax

            return float(jax.grad(lambda g: step(xp, g).sum())(zero)[0])
        import torch

        return float(torch.func.grad(lambda g: step(xp, g).sum())(zero)[0])


def test_adams_step_has_its_derivative_where_no_gradient_ever_was(framework: str) -> None:
    def step(xp: Any, g: Any) -> Any:
        h = {name: xp.asarray(value) for name, value in (H | {"epsilon_root": 0.0}).items()}
        theta, _ = OPTIMISERS["adam"].update(xp, h, RATE, xp.asarray(1), g, 0 * g, {"m": 0 * g, "v": 0 * g})
        return theta

    assert slope_of_a_step(framework, step) == pytest.approx(-RATE / H["epsilon"], rel=1e-8)


def test_the_formula_as_published_has_none_in_backprop(framework: str) -> None:
    def step(xp: Any, g: Any) -> Any:
        return -RATE * g / (xp.sqrt(g * g) + H["epsilon"])

    assert np.isnan(slope_of_a_step(framework, step))


@pytest.mark.parametrize(("layers", "seen"), [(1, False), (2, True)])
def test_a_nan_at_adams_root_reaches_eta_from_the_second_layer_on(
    layers: int, seen: bool, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead unit keeps the NaN away from the parameters of the first layer: so problems with Adam have two layers."""
    family = registry.family("bilevel")
    [method] = registry.methods("bilevel", "truncated_bptt", "torch")
    right, claim = Subject.load(method), method.claim("gradient_exact")

    def plain(problem: Any, **options: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(optimisers, "safe_root", lambda xp, x: xp.sqrt(x))
            return right.function(problem, **options)

    refuted = 0
    for spec, options in cells(family, method, {"optimiser": "adam"}, 0):
        assert spec.layers == 2  # type: ignore[attr-defined]
        other = dataclasses.replace(spec, layers=layers)  # type: ignore[call-arg]
        CHECKS[claim.check].function(Case(right, claim, other, options))
        try:
            CHECKS[claim.check].function(Case(Subject(method, plain), claim, other, options))
        except Refuted:
            refuted += 1
    assert bool(refuted) == seen
