"""Equations of §2, §3 and App. A.3 that a few lines can check, each against code that does not use it.

§3.2: Y_K = Y_0 + Σ Ỹ_k. §4.2: dy_K/dθ = Σ dỹ_k/dθ. Eq. 3: df/dθ = ∂f/∂θ + ∂f/∂h · ∂h/∂θ. §2: the product of the
∂f/∂h of a recurrent network. App. A.3: (dl/dy) C_θ h as a VJP.
"""

from __future__ import annotations

import functools
from typing import Any

from gradgate.references.backends import precision
from gradgate.references.published import at_most, equal, figures_of, upheld
from gradgate.references.state_space.paper import misprints
from gradgate.references.state_space.problem import StateSpaceProblem, StateSpaceSpec

HERE = "gradgate.references.state_space.paper.identities"
SPEC = StateSpaceSpec(length=7, layers=4, state=5, width=3, structure="unstructured")
STRUCTURES = ("unstructured", "diagonal", "scalar")


def ssm(problem: StateSpaceProblem, p: Any, x: Any) -> Any:
    """The five steps of §3.1, token by token, from h⁰ = 0: x (T, batch, P) -> ỹ (T, batch, P)."""
    xp, h, found = problem.xp, problem.xp.zeros((x.shape[1], problem.spec.state), dtype=x.dtype), []
    for token in x:
        a, b, c = problem.A(p, token), problem.B(p, token), problem.C(p, token)
        h = problem.apply(a, h) + (b @ token[..., None])[..., 0]
        found.append((c @ h[..., None])[..., 0])
    return xp.stack(found)


def _layers(problem: StateSpaceProblem) -> list[Any]:
    own = problem.params["layers"]
    each = range(problem.spec.layers)
    return [{net: {name: leaf[k] for name, leaf in own[net].items()} for net in own} for k in each]


def residual_sum(structure: str, left_out: int = 0) -> float:
    """‖Y_K − (Y_0 + Σ Ỹ_k)‖ / ‖Y_K‖ in float64: Y_K by the layers of the problem, Ỹ_k by `ssm` of their inputs.

    Args:
        structure: of A.
        left_out: a layer, from 1, whose Ỹ_k is left out, so that a test sees the figure fail; 0: none.
    """
    import dataclasses

    import numpy as np

    problem = dataclasses.replace(SPEC, structure=structure).build("numpy")
    y = problem.embed(problem.params["embedding"], problem.data["tokens"])
    total = y
    for k, p in enumerate(_layers(problem), 1):
        if k != left_out:
            total = total + ssm(problem, p, problem.norm(y))
        y = problem.layer(p, y)
    return float(np.linalg.norm(y - total) / np.linalg.norm(y))


def residual_derivative(through_inputs: bool = True) -> float:
    """‖dY_K/dθ·v − Σ dỸ_k/dθ·v‖ / ‖dY_K/dθ·v‖ for one drawn direction v of the layers' parameters, in float64.

    Args:
        through_inputs: False holds the input of every layer constant, so that a test sees the figure fail.
    """
    import jax

    with precision("jax", "float64"):
        problem: Any = SPEC.build("jax")
        layers, start = _layers(problem), problem.embed(problem.params["embedding"], problem.data["tokens"])
        keys = iter(jax.random.split(jax.random.key(0), 100))
        direction = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape, leaf.dtype), layers)

        def last(layers: Any) -> Any:
            y = start
            for p in layers:
                y = problem.layer(p, y)
            return y

        def added(layers: Any, k: int) -> Any:
            y = start
            for p in layers[:k]:
                y = problem.layer(p, y)
            return ssm(problem, layers[k], problem.norm(y if through_inputs else jax.lax.stop_gradient(y)))

        def along(function: Any) -> Any:
            return jax.jvp(function, (layers,), (direction,))[1]

        whole = along(last)
        parts = sum(along(functools.partial(added, k=k)) for k in range(len(layers)))
        return float(jax.numpy.linalg.norm(whole - parts) / jax.numpy.linalg.norm(whole))


def total_derivative(through_state: bool = True) -> float:
    """∂hᵗ/∂θ by Eq. 3, step after step from ∂b/∂θ, over the derivative of the whole recurrence of `misprints`.

    Args:
        through_state: False leaves the second term of Eq. 3 out.
    """
    import jax

    with precision("jax", "float64"):
        theta = jax.numpy.asarray(misprints.THETA, "float64")
        states = misprints.walk(theta)
        slope = jax.grad(misprints.b)(theta)
        for t in range(1, misprints.STEPS + 1):
            own, state = (jax.grad(misprints.f, n)(t, states[t - 1], theta) for n in (2, 1))
            slope = own + state * slope * through_state
        return float(slope / jax.grad(lambda theta: misprints.walk(theta)[-1])(theta))


def nested(first_state: bool = True) -> float:
    """The nested sum at the end of §3.3, from the inside out, over dyᵗ/dθ.

    Args:
        first_state: False stops before ∂b/∂θ, which the dots of the sum stand for too.
    """
    import jax

    with precision("jax", "float64"):
        theta = jax.numpy.asarray(misprints.THETA, "float64")
        states = misprints.walk(theta)

        def inside(t: int) -> Any:
            if t == 0:
                return jax.grad(misprints.b)(theta) * first_state
            own, state = (jax.grad(misprints.f, n)(t, states[t - 1], theta) for n in (2, 1))
            return own + state * inside(t - 1)

        own, state = jax.grad(misprints.y, 1)(states[-1], theta), jax.grad(misprints.y)(states[-1], theta)
        truth = jax.grad(lambda theta: misprints.y(misprints.walk(theta)[-1], theta))(theta)
        return float((own + state * inside(misprints.STEPS)) / truth)


def selective_norm(structure: str, bounded: bool = True) -> float:
    """The largest norm of a product of transitions A^j … A^i of a drawn selective layer, over all j ≥ i, T = 50.

    Args:
        structure: of A.
        bounded: False leaves out the function that bounds A, so that a test sees the figure fail.
    """
    import dataclasses

    import numpy as np

    activation = "tanh" if bounded else "identity"
    spec = dataclasses.replace(SPEC, structure=structure, length=50, layers=1, scale=3.0, activation=activation)
    problem = spec.build("numpy")
    [p] = _layers(problem)
    x = problem.norm(problem.embed(problem.params["embedding"], problem.data["tokens"]))[:, 0]
    a = problem.A(p, x)
    if not bounded:
        a = np.broadcast_to(problem._net(p["A"], x)[..., :1, None] * np.eye(spec.state), (50, spec.state, spec.state))
    elif structure != "unstructured":
        a = np.stack([np.diag(np.broadcast_to(one, (spec.state,))) for one in a])
    most = 0.0
    for i in range(len(a)):
        product = np.eye(spec.state)
        for one in a[i:]:
            product = one @ product
            most = max(most, float(np.linalg.norm(product, 2)))
    return most


def example(swapped: bool = False) -> float:
    """App. A.3: the sum of (l_y ⊗ h) ∘ C_θ, P = 2 and N = 3, over the gradient of l_y·(C(θ) h): the worst of |θ| = 4.

    Args:
        swapped: h and l_y change places where they can, so that a test sees the figure fail.
    """
    import jax
    import jax.numpy as jnp

    with precision("jax", "float64"):
        one, two, three, four = jax.random.split(jax.random.key(1), 4)
        theta, slope, h = (jax.random.normal(key, (n,), "float64") for key, n in ((one, 4), (two, 2), (three, 3)))
        mixing = jax.random.normal(four, (2, 3, 4), "float64")

        def C(theta: Any) -> Any:
            return jnp.tanh(mixing @ theta)

        by_parameter = jax.jacobian(C)(theta)  # (P, N, |θ|)
        outer = jnp.outer(h[:2], jnp.append(slope, 1.0)) if swapped else jnp.outer(slope, h)
        found = (outer[..., None] * by_parameter).sum((0, 1))
        truth = jax.grad(lambda theta: slope @ (C(theta) @ h))(theta)
        return float(jnp.abs(found / truth - 1).max() + 1)


ROUNDING = "equal but for rounding in float64"


_row = figures_of(HERE)


ROWS = (
    *(
        _row(
            "§3.2, Y_K",
            "distance of Y_0 + Σ Ỹ_k",
            structure,
            "relative",
            "residual_sum",
            {"structure": structure},
            0.0,
            upheld(equal(1e-14, ROUNDING)),
        )
        for structure in STRUCTURES
    ),
    _row(
        "§4.2, dy_K/dθ",
        "distance of Σ dỹ_k/dθ",
        "unstructured, one direction",
        "relative",
        "residual_derivative",
        {},
        0.0,
        upheld(equal(1e-13, ROUNDING)),
    ),
    _row(
        "§3.3, Eq. 3",
        "∂hᵗ/∂θ over that of the whole recurrence",
        "t = 4",
        "times",
        "total_derivative",
        {},
        1.0,
        upheld(equal(1e-12, ROUNDING)),
    ),
    _row("§3.3, nested sum", "over dyᵗ/dθ", "t = 4", "times", "nested", {}, 1.0, upheld(equal(1e-12, ROUNDING))),
    *(
        _row(
            "§2, product of ∂f/∂h",
            "selective layer, largest",
            structure,
            "norm",
            "selective_norm",
            {"structure": structure},
            1.0,
            upheld(at_most('"remedies with careful parameterization": no product explodes')),
        )
        for structure in STRUCTURES
    ),
    _row(
        "App. A.3",
        "sum((l_y ⊗ h) ∘ C_θ) over the gradient",
        "P = 2, N = 3",
        "times, the worst",
        "example",
        {},
        1.0,
        upheld(equal(1e-10, ROUNDING)),
    ),
)
