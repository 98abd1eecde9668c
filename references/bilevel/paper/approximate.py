"""The mixed inner gradient in an approximate method: implicit differentiation with a fixed number of products (§1).

With H = ∂²L/∂θ² the Neumann series of H⁻¹ (Lorraine et al., 2020) gives
dV/dη ≈ −α·Σ_{j<K} ∂V/∂θ (I − αH)^j ∂²L/∂θ∂η. Every term is a product of a vector with a derivative of ∇L, so whoever
writes ∇L with `mixed_mode_grad` in the place of `grad` gets all of them by forward over reverse mode.

The paper's other example, forward gradients (Silver et al., 2021), has no program here. An estimate along a direction
is one JVP of the inner steps. It pushes a tangent through ∇L, which is forward over reverse mode as it stands, and
pulls nothing back, so there is no product whose order could be mixed. `forward_mode` takes such slopes by axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.backends import leaves, to_numpy, tree_map
from gradgate.references.contract import Backend, Tree

PRODUCTS = 8
"""K, the number of terms of the series."""
SMALL: dict[str, Any] = {
    "dtype": "float64",
    "task": "loss_weighting",
    "model": "mlp",
    "steps": 1,
    "batch": 5,
    "layers": 4,
    "width": 4,
}
"""Fields of a Spec whose η enters the inner loss."""
DEEP: dict[str, Any] = SMALL | {"dtype": "float32", "batch": 256, "layers": 32, "width": 16, "vocabulary": 16}
"""The same with activations that take most of the memory."""


def in_jax(problem: Any, mixed: bool, remat: bool = False, rule: Callable[..., Any] | None = None) -> Tree:
    """dV/dη at θ_0 by implicit differentiation, a tree like η.

    Args:
        problem: a `BilevelProblem` of JAX arrays whose inner loss reads η; its first batch is that of L.
        mixed: ∇L is `mixed_mode_grad`'s; else `jax.grad`'s, whose products are by reverse over reverse mode.
        remat: True rematerialises the layers of the inner model one by one.
        rule: stands in for both, for tests.

    Cost: two gradients; K products with ∇L's derivative, each a gradient with tangents if `mixed`.
    """
    import jax

    from gradgate.references.bilevel.in_jax.methods import inner_loss
    from gradgate.references.bilevel.in_jax.mixed_mode import mixed_mode_grad

    inner, first = inner_loss(problem, remat), jax.tree.map(lambda leaf: leaf[0], problem.xs)

    def loss(theta: Tree, eta: Tree) -> Any:
        return inner(theta, eta, first)

    gradient = (rule or (mixed_mode_grad if mixed else jax.grad))(loss)
    theta, rate = problem.init(problem.params)[0], problem.data["learning_rate"]
    pull = jax.vjp(gradient, theta, problem.params)[1]
    v = jax.grad(problem.outer_loss)(theta, problem.y)

    def term(carry: tuple[Tree, Tree], _: None) -> tuple[tuple[Tree, Tree], None]:
        v, total = carry
        by_theta, by_eta = pull(v)
        total = tree_map(lambda t, b: t - rate * b, total, by_eta)
        return (tree_map(lambda a, h: a - rate * h, v, by_theta), total), None

    zeros = tree_map(lambda leaf: 0 * leaf, problem.params)
    (_, total), _ = jax.lax.scan(term, (v, zeros), None, length=PRODUCTS)
    return total


def in_torch(problem: Any, mixed: bool) -> list[Any]:
    """`in_jax` in PyTorch, without rematerialised layers, as a list of leaves; products by `torch.autograd.grad`."""
    import torch

    from gradgate.references.bilevel.in_torch.mixed_mode import mixed_mode_grad

    first = tree_map(lambda leaf: leaf[0], problem.xs)
    theta, eta = (
        tree_map(lambda leaf: leaf.detach().requires_grad_(), tree)
        for tree in (problem.init(problem.params)[0], problem.params)
    )

    def loss(theta: Tree, eta: Tree) -> Any:
        return problem.inner_loss(theta, eta, first)

    def plain(theta: Tree, eta: Tree) -> list[Any]:
        return list(torch.autograd.grad(loss(theta, eta), leaves(theta), create_graph=True))

    slopes = leaves((mixed_mode_grad(loss) if mixed else plain)(theta, eta))
    v = list(torch.autograd.grad(problem.outer_loss(theta, problem.y), leaves(theta)))
    rate, inputs = problem.data["learning_rate"], [*leaves(theta), *leaves(eta)]
    total = [torch.zeros_like(leaf) for leaf in leaves(eta)]
    for _ in range(PRODUCTS):
        found = torch.autograd.grad(slopes, inputs, v, retain_graph=True, materialize_grads=True)
        v = [a - rate * h for a, h in zip(v, found[: len(v)], strict=True)]
        total = [t - rate * b for t, b in zip(total, found[len(v) :], strict=True)]
    return total


def apart(framework: Backend) -> float:
    """The norm of the difference of the two results, ∇L mixed or not, over the norm of the second; float64."""
    from gradgate.references.backends import precision
    from gradgate.references.bilevel.problem import BilevelSpec

    with precision(framework, "float64"):
        problem = BilevelSpec(**SMALL).build(framework)
        program = in_jax if framework == "jax" else in_torch
        return distance(program(problem, True), program(problem, False))


def distance(ours: Tree, other: Tree) -> float:
    """‖ours − other‖ / ‖other‖ over all leaves."""
    pairs = [(to_numpy(a), to_numpy(b)) for a, b in zip(leaves(ours), leaves(other), strict=True)]
    return float((sum(((a - b) ** 2).sum() for a, b in pairs) / sum((b**2).sum() for _, b in pairs)) ** 0.5)


def bytes_quotient(profile: str, millions: int) -> float:
    """Temporary bytes with the mixed gradient over those without: a model of Table 6, its layers rematerialised.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.bilevel.paper import scale
    from gradgate.references.draws import shapes

    spec = scale.configuration(millions, task="loss_weighting", steps=1)

    def temporary(mixed: bool) -> float:
        found = measure(lambda problem: in_jax(problem, mixed, remat=True), (shapes(spec),), profile, limit=scale.LIMIT)
        if found.temp_bytes is None:
            raise LookupError(f"{profile}: {found.reason}")
        return float(found.temp_bytes)

    return temporary(True) / temporary(False)


def eager_bytes_quotient() -> float:
    """The peak beyond the arguments in PyTorch, with the mixed gradient over that without: an MLP of 32 layers."""
    from gradgate.hw_profiles.torch_memory import peak
    from gradgate.references.bilevel.problem import BilevelSpec

    problem = BilevelSpec(**DEEP).build("torch")

    def temporary(mixed: bool) -> int:
        track = leaves([problem.params, problem.data])
        measured = peak(lambda problem: in_torch(problem, mixed), (problem,), track=track)
        return measured.total_bytes - measured.held_bytes

    return temporary(True) / temporary(False)
