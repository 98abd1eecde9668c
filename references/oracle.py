"""Plain backprop in JAX and in PyTorch: the oracle, and the rounding noise of the oracle.

What a method is judged by (`gradgate.suites.tolerance`): the float64 gradient g*, and per leaf how far plain backprop
strays from it on the same problem. The noise is sampled several times, because one sample has a heavy tail: a leaf may
be right by luck. Each time the parameters are moved by a unit or two in the last place, which changes the roundings of
the forward pass, and the gradient is taken of c·loss and divided by c, c in [1, 2), which changes those of the backward
pass also where the parameters do not reach, such as at a saturated tanh. And it is sampled in two dtypes, in
units of their roundoffs, because either alone is blind where the other sees: float64 runs may agree to the last bit
where an intermediate result happens to be exact, and a float32 run that has lost every digit says no more.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

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
        noise: judged leaf -> the largest ‖g − g*‖ / u over the samples, u the unit roundoff of the sample's dtype;
            the loss has its own under "".
    """

    loss: float
    grads: dict[str, Any]
    noise: dict[str, float]

    def allowing(self, other: Reference) -> Reference:
        """This oracle, and as noise also how far the runs of another, of a loss that rounds otherwise, lie from it."""
        u = UNIT_ROUNDOFF["float64"]
        apart = {name: float(np.linalg.norm(other.grads[name] - leaf)) / u for name, leaf in self.grads.items()}
        apart[""] = abs(other.loss - self.loss) / u
        wider = {name: max(noise, other.noise[name] + apart[name]) for name, noise in self.noise.items()}
        return dataclasses.replace(self, noise=wider)


def split(problem: Problem, tree: Tree) -> dict[str, Any]:
    """Judged leaf -> NumPy array. Leaves under `problem.stacked` are taken apart along axis 0, one per layer."""
    stack = tree_map(lambda leaf: to_numpy(leaf)[None], tree)
    return {name: leaf[0] for name, leaf in split_stack(problem, stack).items()}


def split_stack(problem: Problem, tree: Tree) -> dict[str, Any]:
    """`split` of a tree whose leaves have one more axis in front, which stays."""
    result: dict[str, Any] = {}
    for path, leaf in named_leaves(tree).items():
        array, top, dot, rest = to_numpy(leaf), *path.partition(".")
        if top in problem.stacked:
            result |= {f"{top}[{k}]{dot}{rest}": array[:, k] for k in range(array.shape[1])}
        else:
            result[path] = array
    return result


def gradient(problem: Problem, loss: str = "loss", vector: Tree | None = None, **options: Any) -> tuple[Any, Tree]:
    """Value and gradient of ``problem.<loss>(params, **options)`` by plain backprop, in the problem's own dtype.

    With a `vector` v (tree like params), value and gradient of ⟨gradient, v⟩: the gradient is then H·v.

    Cost: one forward and one backward pass with every activation stored, twice that for H·v; jitted under JAX.
    """
    run = _compiled(problem.backend, loss, tuple(sorted(options.items())), vector is not None, False)
    with precision(problem.backend, problem.dtype):
        return run(problem, problem.params, vector)


def reference(spec: Spec, backend: str, lower: str, loss: str = "loss", **options: Any) -> Reference:
    """The oracle and its noise on the problem of one Spec.

    Args:
        lower: the dtype beside float64 in which the noise is sampled, float32 or bfloat16.

    Cost: `NOISE_SAMPLES` gradients in float64, the first of them the oracle, and as many in `lower`: one vectorised
    call each, about two plain gradients each where dispatch dominates.
    """
    wide = dataclasses.replace(spec, dtype="float64").build(backend)  # type: ignore[arg-type]
    narrow = dataclasses.replace(spec, dtype=lower).build(backend)  # type: ignore[arg-type]
    if lower == "bfloat16":  # its inputs are rounded further than float32's, so the exact problem is another
        wide = wide._replace(params=cast(narrow, narrow.params, "float64"), data=cast(narrow, narrow.data, "float64"))
    return measure(wide, narrow, loss, **options)


def measure(
    wide: Problem, narrow: Problem, loss: str = "loss", vector: Tree | None = None, **options: Any
) -> Reference:
    """The oracle on `wide`, float64, and its noise there and on `narrow`, the same problem in a lower dtype.

    With a `vector` (float64, representable in the lower dtype) the oracle is H·v in place of the gradient.
    """
    first: dict[str, Any] = {}
    noise: dict[str, float] = {}
    for problem in (wide, narrow):
        v = vector if vector is None or problem is wide else cast(wide, vector, narrow.dtype)
        values, samples = _sample(problem, loss, v, options)
        runs = {"": to_numpy(values)} | split_stack(problem, samples)
        first = first or {name: leaf[0] for name, leaf in runs.items()}
        for name, exact in first.items():
            spread = _farthest(runs[name], exact) / UNIT_ROUNDOFF[problem.dtype]
            noise[name] = max(noise.get(name, 0.0), spread)
    return Reference(float(first.pop("")), first, noise)


def jittered(problem: Problem, samples: int = NOISE_SAMPLES) -> Tree:
    """`samples` copies of the parameters, stacked on a new axis 0: as they are, then each moved by 2u at most.

    Seeded by the problem's shapes alone, so the same problem always gets the same jitter.
    """
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
    rng = np.random.Generator(np.random.PCG64(seed))
    with precision(problem.backend, problem.dtype):
        return tree_map(
            lambda leaf: to_backend(problem.backend, rng.standard_normal(tuple(leaf.shape)), problem.dtype),
            problem.params,
        )


def _farthest(runs: Any, exact: Any) -> float:
    """The largest ‖run − exact‖ over the leading axis; infinite if any run is not finite."""
    distances = np.linalg.norm((runs - exact).reshape(len(runs), -1), axis=1)
    return float(distances.max()) if np.isfinite(distances).all() else float("inf")


def cast(problem: Problem, tree: Tree, dtype: str) -> Tree:
    """A tree of `problem`'s backend with its floating leaves in another dtype."""

    def one(leaf: Any) -> Any:
        array = to_numpy(leaf)
        return leaf if array.dtype.kind in "iub" else to_backend(problem.backend, array, dtype)

    with precision(problem.backend, dtype):
        return tree_map(one, tree)


def _sample(problem: Problem, loss: str, vector: Tree | None, options: dict[str, Any]) -> Any:
    """Values and gradients at `jittered` parameters and factors c, one of each per sample on a new axis 0."""
    run = _compiled(problem.backend, loss, tuple(sorted(options.items())), vector is not None, True)
    with precision(problem.backend, problem.dtype):
        return run(problem, jittered(problem), vector, to_backend(problem.backend, _factors(), problem.dtype))


def _factors() -> Any:
    """C of each sample, short enough for bfloat16; 1 for the first."""
    return 1.0 + np.arange(NOISE_SAMPLES) * 13 % 32 / 32


@functools.lru_cache(maxsize=256)
def _compiled(
    backend: str, loss: str, options: tuple[tuple[str, Any], ...], second: bool, sampled: bool
) -> Callable[..., Any]:
    transforms: Any = importlib.import_module("jax" if backend == "jax" else "torch.func")  # the same names in both
    grad, vjp, vmap = transforms.grad, transforms.vjp, transforms.vmap

    def scalar(problem: Any, vector: Tree) -> Callable[[Tree], Any]:
        plain = functools.partial(getattr(problem, loss), **dict(options))
        if not second:
            return plain
        return lambda params: sum(leaves(tree_map(lambda g, v: (g * v).sum(), grad(plain)(params), vector)))

    def plain(problem: Any, params: Tree, vector: Tree) -> Any:
        value, pull = vjp(scalar(problem, vector), params)
        return value, pull(problem.xp.ones_like(value))[0]

    def samples(problem: Any, params: Tree, vector: Tree, factors: Any) -> Any:
        def one(params: Tree, factor: Any) -> Any:
            value, pull = vjp(scalar(problem, vector), params)
            return value, tree_map(lambda leaf: leaf / factor, pull(factor)[0])

        return vmap(one)(params, factors)

    run = samples if sampled else plain
    return transforms.jit(run) if backend == "jax" else run
