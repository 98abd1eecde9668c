"""Plain backprop in JAX and in PyTorch: the oracle, and the rounding noise of the oracle.

What a method is judged by (`gradgate.suites.tolerance`): the float64 gradient g*, and per leaf how far plain backprop
in a lower dtype strays from it on the same problem. The noise is sampled several times, the parameters moved by one
unit in the last place each time, because one sample has a heavy tail: a leaf may be right by luck.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import (
    UNIT_ROUNDOFF,
    leaves,
    named_leaves,
    precision,
    to_backend,
    to_numpy,
    tree_map,
)
from gradgate.references.contract import Problem, Spec, Tree

NOISE_SAMPLES = 8
"""Evaluations per noise measurement, in one vectorised call. By luck alone one is ten times too small in one leaf of
ten; eight at once in one of 10^8."""


@dataclass(frozen=True)
class Reference:
    """The float64 oracle of one problem and the noise of plain backprop.

    Attributes:
        loss: float64 value.
        grads: judged leaf -> float64 array; stacked leaves are split, ``layers[0].A.w0``.
        noise: judged leaf -> absolute noise ‖g − g*‖ of plain backprop in `dtype`; ``loss`` has its own under "".
        dtype: the dtype that the noise was measured in.
    """

    loss: float
    grads: dict[str, Any]
    noise: dict[str, float]
    dtype: str


def split(problem: Problem, tree: Tree) -> dict[str, Any]:
    """Judged leaf -> NumPy array. Leaves under `problem.stacked` are taken apart along axis 0, one per layer."""
    result = {}
    for path, leaf in named_leaves(tree).items():
        array, top, dot, rest = to_numpy(leaf), *path.partition(".")
        if top in problem.stacked and array.ndim:
            result |= {f"{top}[{k}]{dot}{rest}": row for k, row in enumerate(array)}
        else:
            result[path] = array
    return result


def gradient(problem: Problem, loss: str = "loss", **options: Any) -> tuple[Any, Tree]:
    """Value and gradient of ``problem.<loss>(params, **options)`` by plain backprop, in the problem's own dtype.

    Cost: one forward and one backward pass with every activation stored; jitted under JAX.
    """
    return _call("gradient", problem, loss, options)


def hessian_vector(problem: Problem, vector: Tree, loss: str = "loss", **options: Any) -> Tree:
    """H·v of ``problem.<loss>`` by reverse over reverse: the gradient of ⟨gradient, v⟩. Tree like params."""
    return _call("hessian_vector", problem, loss, options, vector)


def reference(spec: Spec, backend: str, noise_dtype: str, loss: str = "loss", **options: Any) -> Reference:
    """The oracle and its noise on the problem of one Spec.

    Args:
        noise_dtype: where the noise is measured: the dtype under test, and float32 for a float64 test.

    Cost: one float64 gradient and one vectorised call of `NOISE_SAMPLES` gradients in `noise_dtype`.
    """
    wide = dataclasses.replace(spec, dtype="float64").build(backend)  # type: ignore[arg-type]
    narrow = dataclasses.replace(spec, dtype=noise_dtype).build(backend)  # type: ignore[arg-type]
    if noise_dtype == "bfloat16":  # its inputs are rounded further, so its own exact problem is the oracle's
        with precision(backend, "float64"):
            wide = wide.with_params(_cast(narrow.params, "float64"))._replace(data=_cast(narrow.data, "float64"))
    value, grads = gradient(wide, loss, **options)
    exact = split(wide, grads)
    values, samples = _call("samples", narrow, loss, options, jittered(narrow))
    noise = {"": float(abs(to_numpy(values) - float(value)).max())}
    for name, error in _deviation(narrow, samples, exact).items():
        noise[name] = float(error)
    return Reference(float(value), exact, noise, noise_dtype)


def jittered(problem: Problem, samples: int = NOISE_SAMPLES) -> Tree:
    """`samples` copies of the parameters, stacked on a new axis 0: as they are, then each moved by ±1 ulp or not at all.

    Seeded by the problem's shapes alone, so the same problem always gets the same jitter.
    """
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(20261))
    step = 2 * UNIT_ROUNDOFF[problem.dtype]

    def move(leaf: Any) -> Any:
        array = to_numpy(leaf)
        signs = rng.integers(-1, 2, (samples, *array.shape))
        signs[0] = 0
        return to_backend(problem.backend, array * (1.0 + step * signs), problem.dtype)

    with precision(problem.backend, problem.dtype):
        return tree_map(move, problem.params)


def random_direction(problem: Problem, seed: int) -> Tree:
    """A tree like params of standard normal numbers, rounded to the problem's dtype."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(seed))
    with precision(problem.backend, problem.dtype):
        return tree_map(
            lambda leaf: to_backend(problem.backend, rng.standard_normal(tuple(leaf.shape)), problem.dtype), problem.params
        )


def _deviation(problem: Problem, samples: Tree, exact: dict[str, Any]) -> dict[str, float]:
    import numpy as np

    worst: dict[str, float] = dict.fromkeys(exact, 0.0)
    host = tree_map(to_numpy, samples)
    for i in range(len(leaves(host)[0])):
        for name, leaf in split(problem, tree_map(lambda leaf: leaf[i], host)).items():  # noqa: B023 - called at once
            distance = float(np.linalg.norm(leaf - exact[name]))
            worst[name] = max(worst[name], distance) if np.isfinite(distance) else float("inf")
    return worst


def _cast(tree: Tree, dtype: str) -> Tree:
    def cast(leaf: Any) -> Any:
        if hasattr(leaf, "is_floating_point"):
            import torch

            return leaf.to(getattr(torch, dtype)) if leaf.is_floating_point() else leaf
        import jax.numpy as jnp

        return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return tree_map(cast, tree)


def _call(what: str, problem: Problem, loss: str, options: dict[str, Any], *more: Any) -> Any:
    compiled = {"jax": _jax, "torch": _torch}[problem.backend](what, loss, tuple(sorted(options.items())))
    with precision(problem.backend, problem.dtype):
        return compiled(problem, *more)


@functools.lru_cache(maxsize=256)
def _jax(what: str, loss: str, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    import jax

    def plain(problem: Any) -> Callable[[Tree], Any]:
        return functools.partial(getattr(problem, loss), **dict(options))

    def inner(problem: Any, vector: Tree) -> Callable[[Tree], Any]:
        products = lambda p: jax.tree.map(lambda g, v: (g * v).sum(), jax.grad(plain(problem))(p), vector)
        return lambda p: sum(jax.tree.leaves(products(p)))

    table: dict[str, Callable[..., Any]] = {
        "gradient": lambda problem: jax.value_and_grad(plain(problem))(problem.params),
        "samples": lambda problem, stacked: jax.vmap(jax.value_and_grad(plain(problem)))(stacked),
        "hessian_vector": lambda problem, vector: jax.grad(inner(problem, vector))(problem.params),
    }
    return jax.jit(table[what])


@functools.lru_cache(maxsize=256)
def _torch(what: str, loss: str, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    import torch

    def plain(problem: Any) -> Callable[[Tree], Any]:
        return functools.partial(getattr(problem, loss), **dict(options))

    def swapped(problem: Any, params: Tree) -> tuple[Any, Tree]:
        grads, value = torch.func.grad_and_value(plain(problem))(params)
        return value, grads

    def inner(problem: Any, vector: Tree) -> Callable[[Tree], Any]:
        def product(params: Tree) -> Any:
            terms = tree_map(lambda g, v: (g * v).sum(), torch.func.grad(plain(problem))(params), vector)
            return sum(leaves(terms))

        return product

    table: dict[str, Callable[..., Any]] = {
        "gradient": lambda problem: swapped(problem, problem.params),
        "samples": lambda problem, stacked: torch.func.vmap(functools.partial(swapped, problem))(stacked),
        "hessian_vector": lambda problem, vector: torch.func.grad(inner(problem, vector))(problem.params),
    }
    return table[what]
