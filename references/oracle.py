"""Plain backprop in JAX and in PyTorch: the oracle, and the rounding noise of the oracle.

What a method is judged by (`gradgate.suites.tolerance`): the float64 gradient g*, and per leaf how far plain backprop
strays from it on the same problem. The noise is sampled several times, because one sample has a heavy tail: a leaf may
be right by luck. Each time the parameters are moved by a unit or two in the last place, which changes the roundings of
the forward pass, and the gradient is taken of c·loss and divided by c, c in [1, 2), which changes those of the backward
pass also where the parameters do not reach, such as at a saturated tanh; and where the problem can be computed another
way, it is (`Problem.rerounded`). And it is sampled in two dtypes, in units of their roundoffs, because either alone is
blind where the other sees: float64 runs may agree to the last bit where an intermediate result happens to be exact, and
a float32 run that has lost every digit says no more.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references.backends import (
    UNIT_ROUNDOFF,
    leaves,
    named_leaves,
    namespace,
    precision,
    to_backend,
    to_numpy,
    transforms,
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
    run = _compiled(problem.backend, loss, tuple(sorted(options.items())), vector is not None)
    with precision(problem.backend, problem.dtype):
        return run(problem, problem.params, vector)


def reference(
    spec: Spec, backend: str, lower: str, loss: str = "loss", rounding: str = "", **options: Any
) -> Reference:
    """The oracle and its noise on the problem of one Spec.

    Args:
        lower: the dtype beside float64 in which the noise is sampled, float32 or bfloat16; with `rounding` the only
            one, and the dtype under test, which may be float64.
        rounding: a loss of the Problem that rounds further than `loss` and is sampled in its place ("": `loss` itself).
            Of (params, amount, **options), amount as of `Problem.rerounded`; at 0 it is `loss`.
        options: given to the loss.

    Cost: `NOISE_SAMPLES` gradients in each dtype, in float64 the first of them the oracle: one vectorised call each,
    under JAX both in one program; without samples in float64 one plain gradient more.
    """
    if lower == "bfloat16":  # its inputs are rounded further than float32's, so the exact problem is another
        narrow = dataclasses.replace(spec, dtype=lower).build(backend)  # type: ignore[arg-type]
        params, data = cast(narrow, [narrow.params, narrow.data], "float64")
        wide = narrow._replace(spec=dataclasses.replace(spec, dtype="float64"), params=params, data=data)
    else:
        wide = _built(spec if spec.dtype == "float64" else dataclasses.replace(spec, dtype="float64"), backend)
    return measure(wide, lower, loss, rounding=rounding, **options)


def _built(spec: Spec, backend: str) -> Problem:
    """The Problem as the oracle takes it: under JAX with its arrays on the host until the compiled program is called.

    To put each of them on the device by itself costs more than a small gradient does.
    """
    namespace(backend)  # registers Problems as pytrees
    return spec.build("numpy")._replace(backend="jax") if backend == "jax" else spec.build(backend)  # type: ignore[arg-type]


def measure(
    problem: Problem, lower: str, loss: str = "loss", vector: Tree | None = None, rounding: str = "", **options: Any
) -> Reference:
    """The oracle on a float64 `problem`, and its noise there and in the dtype `lower`, which holds its numbers too.

    With a `vector` (float64, representable in the lower dtype) the oracle is H·v in place of the gradient; `rounding`
    as in `reference`.
    """
    names, shapes = _judged(problem)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    starts = ends - [math.prod(shape) for shape in shapes]
    dtypes = (lower,) if rounding else (problem.dtype, lower)
    runs = _sample(problem, dtypes, rounding or loss, vector, options)
    exact = runs[0].copy() if problem.dtype in dtypes else _in_a_row(gradient(problem, loss, vector, **options))
    units = np.repeat([UNIT_ROUNDOFF[dtype] for dtype in dtypes], NOISE_SAMPLES)
    noise = _farthest(runs - exact, starts, units)
    if rounding:  # half of the digits may go: what strays further is another function, such as one with a bug
        noise = np.fmin(noise, math.sqrt(float(exact @ exact) / UNIT_ROUNDOFF[problem.dtype]))
    leaf = {n: exact[a:b].reshape(shape) for n, a, b, shape in zip(names, starts, ends, shapes, strict=True)}
    return Reference(float(leaf.pop("")), leaf, dict(zip(names, noise.tolist(), strict=True)))


def jittered(problem: Problem, samples: int = NOISE_SAMPLES) -> Tree:
    """`samples` copies of the parameters, stacked on a new axis 0: as they are, then each moved by 2u at most.

    Seeded by the problem's shapes alone, so the same problem always gets the same jitter.
    """
    plain = tree_map(to_numpy, problem.params)
    moved = _moved(plain, _signs(plain, "numpy", samples), problem.dtype)
    with precision(problem.backend, problem.dtype):
        return tree_map(lambda leaf: to_backend(problem.backend, leaf, problem.dtype), moved)


def _moved(params: Tree, signs: Tree, dtype: str) -> Tree:
    """Float64 leaves times 1 or 1 ± 2u, u of `dtype`, as the leaves of `signs` say, which have one more axis."""
    step = 2 * UNIT_ROUNDOFF[dtype]
    return tree_map(lambda leaf, sign: leaf * (1.0 + step * sign), params, signs)


def _signs(params: Tree, backend: str, samples: int) -> Tree:
    """A tree like params of −1, 0 and 1 at random, (samples, *shape), float64; 0 in the first sample."""
    drawn = iter(_drawn_signs(tuple(tuple(leaf.shape) for leaf in _in_order(params)), backend, samples))
    return tree_map(lambda _: next(drawn), params)


@functools.lru_cache(maxsize=64)
def _drawn_signs(shapes: tuple[tuple[int, ...], ...], backend: str, samples: int) -> list[Any]:
    """The leaves of `_signs`: to draw them and to put them where they are needed takes longest."""
    rng = np.random.Generator(np.random.PCG64(20261))
    found = [rng.integers(-1, 2, (samples, *shape)).astype(np.float64) for shape in shapes]
    for signs in found:
        signs[0] = 0
    with precision(backend, "float64"):
        return [to_backend(backend, signs, "float64") for signs in found]


def _in_order(tree: Tree) -> list[Any]:
    """The leaves in the order in which `tree_map` meets them."""
    found: list[Any] = []
    tree_map(found.append, tree)
    return found


def random_direction(problem: Problem, seed: int) -> Tree:
    """A tree like params of standard normal numbers, rounded to the problem's dtype."""
    rng = np.random.Generator(np.random.PCG64(seed))
    with precision(problem.backend, problem.dtype):
        return tree_map(
            lambda leaf: to_backend(problem.backend, rng.standard_normal(tuple(leaf.shape)), problem.dtype),
            problem.params,
        )


def _judged(problem: Problem) -> tuple[list[str], list[tuple[int, ...]]]:
    """Names and shapes of the loss, "", and of the judged leaves, in the order in which `_sample` lays them out."""
    names: list[str] = [""]
    shapes: list[tuple[int, ...]] = [()]
    for path, leaf in named_leaves(problem.params).items():
        shape, (top, dot, rest) = tuple(leaf.shape), path.partition(".")
        stacked = top in problem.stacked
        names += [f"{top}[{k}]{dot}{rest}" for k in range(shape[0])] if stacked else [path]
        shapes += [shape[1:]] * shape[0] if stacked else [shape]
    return names, shapes


def _farthest(apart: Any, starts: Any, units: Any) -> Any:
    """The largest norm over axis 0, in units of its row, of each stretch of axis 1; infinite if any is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        distances = np.sqrt(np.add.reduceat(apart * apart, starts, axis=1)) / units[:, None]
    return np.where(np.isfinite(distances).all(axis=0), distances.max(axis=0), np.inf)


def cast(problem: Problem, tree: Tree, dtype: str) -> Tree:
    """A tree of `problem`'s backend with its floating leaves in another dtype."""

    def one(leaf: Any) -> Any:
        array = to_numpy(leaf)
        return leaf if array.dtype.kind in "iub" else to_backend(problem.backend, array, dtype)

    with precision(problem.backend, dtype):
        return tree_map(one, tree)


def _sample(problem: Problem, dtypes: tuple[str, ...], loss: str, vector: Tree | None, options: dict[str, Any]) -> Any:
    """`NOISE_SAMPLES` runs in each dtype, (runs, numbers): the loss, then the leaves in order."""
    run = _compiled(problem.backend, loss, tuple(sorted(options.items())), vector is not None, dtypes)
    signs = _signs(problem.params, problem.backend, NOISE_SAMPLES)
    with precision(problem.backend, problem.dtype):
        return to_numpy(run(problem, signs, vector))


def _in_a_row(found: tuple[Any, Tree]) -> Any:
    """Value and gradient as one of `_sample`'s runs."""
    return np.concatenate([to_numpy(leaf).reshape(-1) for leaf in leaves(found)])


def _factors() -> Any:
    """C of each sample, short enough for bfloat16; 1 for the first."""
    return 1.0 + np.arange(NOISE_SAMPLES) * 13 % 32 / 32


@functools.lru_cache(maxsize=256)
def _compiled(
    backend: str, loss: str, options: tuple[tuple[str, Any], ...], second: bool, dtypes: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """Value and gradient of a Problem; with `dtypes` the samples of each, in one program under JAX.

    A `loss` with one dtype is sampled as one that rounds further: it is told by how much, 0 for the first run.
    """
    made = transforms(backend)
    grad, vjp, vmap = made.grad, made.vjp, made.vmap

    def scalar(problem: Any, vector: Tree, **amount: Any) -> Callable[[Tree], Any]:
        plain = functools.partial(getattr(problem, loss), **dict(options), **amount)
        if not second:
            return plain
        return lambda params: sum(leaves(tree_map(lambda g, v: (g * v).sum(), grad(plain)(params), vector)))

    def plain(problem: Any, params: Tree, vector: Tree) -> Any:
        value, pull = vjp(scalar(problem, vector), params)
        return value, pull(problem.xp.ones_like(value))[0]

    def samples(problem: Any, signs: Tree, vector: Tree) -> Any:
        rows = [in_dtype(dtype, problem, signs, vector) for dtype in dtypes]
        return problem.xp.concat([_floating(problem.xp, each, problem.dtype) for each in rows])

    def in_dtype(dtype: str, problem: Any, signs: Tree, vector: Tree) -> Any:
        """Runs at `jittered` parameters and factors c."""
        xp = problem.xp
        params, data, vector = _floating(xp, [_moved(problem.params, signs, dtype), problem.data, vector], dtype)
        spec = dataclasses.replace(problem.spec, dtype=dtype)
        with precision(backend, dtype):
            given = problem._replace(spec=spec, params=params, data=data)
            factors = xp.asarray(_factors(), dtype=getattr(xp, dtype))

            def run(params: Tree, factor: Any) -> Any:
                lost = {"amount": factor - 1} if len(dtypes) == 1 else {}
                return scalar(given.rerounded(factor - 1), vector, **lost)(params)

            def pulled(params: Tree, factor: Any) -> tuple[Any, list[Any]]:
                value, pull = vjp(lambda params: run(params, factor), params)
                return value, leaves(pull(factor)[0])

            if backend == "torch":
                values, grads = _torch_vjp(lambda params: vmap(run)(params, factors), params, factors)
            else:
                values, grads = vmap(pulled)(params, factors)
            rows = [leaf.reshape(NOISE_SAMPLES, -1) / factors[:, None] for leaf in grads]
            return xp.concat([values[:, None], *rows], axis=1)

    run = samples if dtypes else plain
    return made.jit(run) if backend == "jax" else run


def _floating(xp: Any, tree: Tree, dtype: str) -> Tree:
    """A tree of arrays of `xp`, or of what a trace has in their place, with its floating leaves in another dtype."""
    wanted = getattr(xp, dtype)

    def one(leaf: Any) -> Any:
        return xp.astype(leaf, wanted) if leaf is not None and xp.isdtype(leaf.dtype, "real floating") else leaf

    return tree_map(one, tree)


def _torch_vjp(run: Callable[[Tree], Any], params: Tree, cotangent: Any) -> tuple[Any, list[Any]]:
    """Value and gradient leaves by autograd itself: half the dispatch of `torch.func.vjp` within a vmap."""
    import torch

    with torch.enable_grad():
        tracked = tree_map(lambda leaf: leaf.detach().requires_grad_(), params)
        values = run(tracked)
        return values, list(torch.autograd.grad(values, leaves(tracked), cotangent, materialize_grads=True))
