"""Misprints that change results, each as printed and corrected, as a quotient that is 1 if the formula is right.

Eq. 4: "∂y/∂θ + λ⁰ b(θ) + Σ λⁱ (∂f/∂θ)". Alg. 1, lines 3 and 10: "k = (υ−1)(K//Υ)+1, …, υ(K//Υ)". Alg. 1, line 11:
"Pass: y_{υ(K//Υ)−1} … to device υ+1".
"""

from __future__ import annotations

import functools
from typing import Any

from gradgate.references.backends import precision

STEPS, THETA = 4, 0.7


def b(theta: Any) -> Any:
    """The first state h⁰, from θ."""
    return theta**3


def f(t: int, h: Any, theta: Any) -> Any:
    """The next state hᵗ, from hᵗ⁻¹ and θ."""
    import jax.numpy as jnp

    return jnp.tanh(theta * h + t / 10)


def y(h: Any, theta: Any) -> Any:
    """The output, from the last state and θ."""
    return theta * h**2


def walk(theta: Any) -> list[Any]:
    """All states, h⁰ … hᵗ."""
    states = [b(theta)]
    for t in range(1, STEPS + 1):
        states.append(f(t, states[-1], theta))
    return states


def initial_state(printed: bool, profile: str = "") -> float:
    """Eq. 4 over the derivative dy^t/dθ of a recurrence that starts from h⁰ = b(θ).

    The state and θ are one number each, so that λ⁰ b(θ) has the shape of λ⁰ ∂b/∂θ.
    """
    import jax
    import jax.numpy as jnp

    with precision("jax", "float64"):
        theta = jnp.asarray(THETA, "float64")
        states = walk(theta)
        adjoint, found = jax.grad(y)(states[-1], theta), jax.grad(y, 1)(states[-1], theta)
        for i in range(STEPS, 0, -1):
            found = found + adjoint * jax.grad(f, 2)(i, states[i - 1], theta)
            adjoint = adjoint * jax.grad(f, 1)(i, states[i - 1], theta)
        found = found + adjoint * (b(theta) if printed else jax.grad(b)(theta))
        return float(found / jax.grad(lambda theta: y(walk(theta)[-1], theta))(theta))


def forward(layers: int, devices: int, ranges: bool, passed: bool, profile: str = "") -> float:
    """The loss that Alg. 1 computes over that of K layers one after another.

    Args:
        layers: K.
        devices: Υ.
        ranges: whether lines 3 and 10 are as printed, with K//Υ layers per device; otherwise the last device has the
            rest too, as in Tables 2 to 6.
        passed: whether line 11 is as printed, which passes y_{υ(K//Υ)−1}; otherwise y_{υ(K//Υ)} is passed.
        profile: not used.
    """
    import jax

    from gradgate.references.state_space.problem import StateSpaceSpec

    with precision("jax", "float64"):
        problem: Any = StateSpaceSpec(layers=layers, length=3).build("jax")
        each, params = layers // devices, problem.params
        y = {0: problem.embed(params["embedding"], problem.data["tokens"])}
        for device in range(1, devices + 1):
            first, last = (device - 1) * each + 1, device * each if ranges or device < devices else layers
            for k in range(first, last + 1):
                given = k - 2 if passed and k == first and device > 1 else k - 1
                y[k] = problem.layer(jax.tree.map(lambda leaf: leaf[k - 1], params["layers"]), y[given])  # noqa: B023
        found = problem.token_loss(params["head"], y[max(y)], problem.data["targets"], problem.data["upstream"])
        return float(found / problem.loss(params))


initial_state_printed = functools.partial(initial_state, True)
initial_state_mended = functools.partial(initial_state, False)
ranges_printed = functools.partial(forward, 3, 2, True, False)
passed_printed = functools.partial(forward, 4, 2, False, True)
forward_mended = functools.partial(forward, 3, 2, False, False)
