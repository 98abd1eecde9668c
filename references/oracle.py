"""Plain backprop in JAX and in PyTorch: the oracle, and the rounding noise of the oracle.

A method is judged by two things (`gradgate.suites.judging.tolerance`): the true gradient g*, and per leaf the error of
plain backprop on the same problem, in the dtype under test. The truth is known to sixty digits
(`gradgate.suites.exact`), so the noise is measured and not predicted. It is sampled several times, because one sample
may be far too small: a leaf may be right by luck. Each sample rounds differently. The parameters are moved by a unit or
two in the last place, which changes the roundings of the forward pass. The gradient of c·loss, with c in [1, 2), is
taken and divided by c. This changes the roundings of the backward pass, also at a saturated tanh, where moved
parameters have no effect. If the problem can be computed in another way, it is (`Problem.rerounded`).

The samples are one vectorised call, in which a framework may round otherwise than in single calls: PyTorch's kernel of
a layer norm subtracts large numbers in its backward pass, and what `vmap` makes of it does not. So where a gradient of
a user's own loss looks worse than plain backprop, that is also run call by call (`Reference.call_by_call`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gradgate.references.backends import (
    NARROW,
    UNIT_ROUNDOFF,
    leaves,
    named_leaves,
    namespace,
    on_device,
    precision,
    reverse_mode,
    shared,
    to_backend,
    to_numpy,
    transforms,
    tree_map,
)
from gradgate.references.contract import Problem, Spec, Tree
from gradgate.references.draws import rounded

NOISE_SAMPLES = 8
"""Evaluations per noise measurement, in one vectorised call. One sample underestimates the noise tenfold in one leaf of
ten; all eight samples do so in one leaf of 10^8."""


@dataclass(frozen=True)
class Reference:
    """The truth on one problem, and the error of plain backprop in one dtype.

    Attributes:
        loss: float64 value.
        grads: judged leaf -> the truth rounded to float64; stacked leaves are split, ``layers[0].A.w0``.
        noise: judged leaf -> the largest ‖g − g*‖ over the samples of plain backprop; the loss's noise is under "".
        rest: judged leaf -> the truth minus `grads`; zero for a leaf that is missing.
        lost: judged leaf -> the same as `noise` for a loss that rounds as the method may; infinite if more than half
            of the dtype's digits are lost; {} if there is no such loss.
        along: judged leaf -> ⟨g − g*, g*⟩/‖g*‖² of every sample: the part of its error that is common scaling. Leaves
            that are zero are left out, and leaves of which a sample is not finite.
        lost_along: the same for the loss of `lost`.
        declared: the relative and the absolute error that the method declares, besides rounding.
        inside: judged leaf -> the same as `noise` for plain backprop in a wider dtype, whose results are rounded once
            to the dtype under test; {} if this was not measured.
        inside_along: the same as `along` for the runs of `inside`.
        call_by_call: measures `noise` again, each run in a call of its own; None if the loss is not `Spec.foreign`.
    """

    loss: float
    grads: dict[str, Any]
    noise: dict[str, float]
    rest: dict[str, Any] = dataclasses.field(default_factory=dict)
    lost: dict[str, float] = dataclasses.field(default_factory=dict)
    along: dict[str, Any] = dataclasses.field(default_factory=dict)
    lost_along: dict[str, Any] = dataclasses.field(default_factory=dict)
    declared: tuple[float, float] = (0.0, 0.0)
    inside: dict[str, float] = dataclasses.field(default_factory=dict)
    inside_along: dict[str, Any] = dataclasses.field(default_factory=dict)
    call_by_call: Callable[[], dict[str, float]] | None = None


@dataclass(frozen=True)
class Truth:
    """Loss and gradient to twice the digits of float64, as sums of two numbers.

    Attributes:
        high, low: the loss, then the judged leaves in order, in one row: `high` is the truth rounded to float64, `low`
            is the rest.
    """

    high: Any
    low: Any


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

    With a `vector` v, a tree like params, they are the value and gradient of ⟨gradient, v⟩; the gradient is then H·v.

    Cost: one forward and one backward pass with every activation stored, twice that for H·v; jitted under JAX.
    """
    asked = (problem.backend, loss, tuple(sorted(options.items())), vector is not None)
    found: tuple[Any, Tree] = _run(problem, asked, problem.params, vector)
    return found


def in_widest(spec: Spec, backend: str, dtype: str) -> Problem:
    """The Problem in `Spec.widest`, with the numbers of a test in `dtype`: one of `NARROW` rounds them further."""
    wide = spec if spec.dtype == spec.widest else dataclasses.replace(spec, dtype=spec.widest)
    if dtype not in NARROW:
        return _built(wide, backend)
    narrow = dataclasses.replace(spec, dtype=dtype).build(backend)  # type: ignore[arg-type]
    where = "numpy" if backend == "jax" else backend  # as in `_built`
    params, data = cast(narrow._replace(backend=where), [narrow.params, narrow.data], wide.dtype)
    return narrow._replace(spec=wide, params=params, data=data)


def _built(spec: Spec, backend: str) -> Problem:
    """The Problem as the oracle takes it: under JAX its arrays stay on the host until the compiled program is called.

    To put each array on the device by itself costs more than a small gradient.
    """
    namespace(backend)  # registers Problems as pytrees
    return spec.build("numpy")._replace(backend="jax") if backend == "jax" else spec.build(backend)  # type: ignore[arg-type]


def measure(
    problem: Problem,
    dtype: str,
    loss: str = "loss",
    vector: Tree | None = None,
    rounding: str = "",
    truth: Truth | None = None,
    inside: str = "",
    **options: Any,
) -> Reference:
    """The truth on a float64 `problem`, and the error of plain backprop in `dtype`.

    Args:
        problem: a Problem whose numbers are representable in `dtype` (`in_widest`).
        dtype: the dtype under test.
        loss: name of the loss; it is given the `options`.
        vector: v, representable in `dtype`; the truth is then H·v in place of the gradient.
        rounding: name of a loss of the Problem that rounds more than `loss`, "" for none. It is a function of (params,
            amount, **options), with `amount` as in `Problem.rerounded`, and equals `loss` in exact arithmetic.
        truth: the truth on the same problem; None takes the float64 gradient of plain backprop as the truth.
        inside: a wider dtype in which plain backprop is run, too; its results are rounded once to `dtype`.

    Cost: `NOISE_SAMPLES` gradients in one vectorised call, and as many again with `rounding` or `inside`. Without a
    truth, and in a dtype other than float64, one more plain gradient. Under JAX each is one compiled program.
    """
    names, shapes = _judged(problem)
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    starts = ends - [math.prod(shape) for shape in shapes]
    runs = _sample(problem, dtype, loss, vector, options)
    if not scales(problem.spec) or _adds_its_own(problem.spec, runs, dtype):
        runs = _sample(problem, dtype, loss, vector, options, scaled=False)
    if truth is None:
        first = runs[0].copy() if dtype == problem.dtype else _in_a_row(gradient(problem, loss, vector, **options))
        truth = Truth(first, np.zeros_like(first))
    known = truth
    # Of a function that is judged against itself, an error that all samples share is not noise.
    own = getattr(problem, "against_itself", False)

    def errors(runs: Any) -> Any:
        return runs - runs[0] if own else runs - known.high - known.low

    def noise(runs: Any) -> dict[str, float]:
        return dict(zip(names, _farthest(errors(runs), starts).tolist(), strict=True))

    def call_by_call() -> dict[str, float]:
        return noise(_sample(problem, dtype, loss, vector, options, scaled=scales(problem.spec), way="in turn"))

    found: dict[str, Any] = {"noise": noise(runs), "call_by_call": call_by_call if problem.spec.foreign else None}
    found["along"] = _along(errors(runs), truth.high, names, starts)
    if rounding:
        apart = _sample(problem, dtype, rounding, vector, options, rounds=True) - truth.high - truth.low
        # Half of the digits may be lost. If more are lost, this problem says nothing about the leaf.
        most = math.sqrt(float(truth.high @ truth.high) * UNIT_ROUNDOFF[dtype])
        far = _farthest(apart, starts)
        found["lost"] = dict(zip(names, np.where(far <= most, far, np.inf).tolist(), strict=True))
        found["lost_along"] = _along(apart, truth.high, names, starts)
    if inside:
        wide = rounded(_sample(problem, inside, loss, vector, options, scaled=scales(problem.spec)), dtype)
        found["inside"] = noise(wide)
        found["inside_along"] = _along(errors(wide), truth.high, names, starts)
    placed = list(zip(names, starts, ends, shapes, strict=True))
    leaf = {name: truth.high[a:b].reshape(shape) for name, a, b, shape in placed}
    rest = {name: truth.low[a:b].reshape(shape) for name, a, b, shape in placed if name}
    return Reference(float(leaf.pop("")), leaf, rest=rest, **found)


_NOT_SCALED: set[type[Spec]] = set()
"""Classes of Specs whose plain gradient of c·loss is not c times the gradient of the loss."""


def scales(spec: Spec) -> bool:
    """Whether the plain gradient of c·loss is c times the gradient of the loss, as far as is known.

    It is not if the backward pass of a pair's reference adds something of its own, such as the gradient of an auxiliary
    loss.
    """
    return type(spec) not in _NOT_SCALED


def _adds_its_own(spec: Spec, runs: Any, dtype: str) -> bool:
    """Whether the samples show that the backward pass adds something: g(c)/c is then g + a·(1/c − 1), and not g."""
    factors = _factors()
    others = factors != 1
    grads = runs[:, 1:]
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite adds nothing that is known
        apart = (grads[others] - grads[0]) / (1 / factors[others] - 1)[:, None]
    size = float(np.abs(apart).max(initial=0.0))
    if dtype in NARROW or not 0 < size < math.inf:
        return False
    rounding = math.sqrt(UNIT_ROUNDOFF[dtype])
    found = size > rounding * np.abs(grads[0]).max() and bool((np.abs(apart - apart[0]) <= rounding * size).all())
    if found:
        _NOT_SCALED.add(type(spec))
    return found


def jittered(problem: Problem, samples: int = NOISE_SAMPLES) -> Tree:
    """`samples` copies of the parameters, stacked on a new axis 0: the first unchanged, the others moved by at most 2u.

    The jitter depends on the problem's shapes alone, so the same problem always gets the same jitter.
    """
    plain = tree_map(to_numpy, problem.params)
    moved = _moved(plain, _signs(plain, "numpy", samples, "float64"), problem.dtype)
    with precision(problem.backend, problem.dtype):
        return tree_map(lambda leaf: to_backend(problem.backend, leaf, problem.dtype), moved)


def _moved(params: Tree, signs: Tree, dtype: str) -> Tree:
    """Leaves of a wide dtype times 1 + 2u·sign, u of `dtype`. The leaves of `signs` have one more axis, in front."""
    step = 2 * UNIT_ROUNDOFF[dtype]
    return tree_map(lambda leaf, sign: leaf * (1.0 + step * sign), params, signs)


def _signs(params: Tree, backend: str, samples: int, dtype: str) -> Tree:
    """A tree like params of random −1, 0 and 1, (samples, *shape), in `dtype`; all 0 in the first sample."""
    drawn = iter(_drawn_signs(tuple(tuple(leaf.shape) for leaf in _in_order(params)), backend, samples, dtype))
    return tree_map(lambda _: next(drawn), params)


@functools.lru_cache(maxsize=64)
def _drawn_signs(shapes: tuple[tuple[int, ...], ...], backend: str, samples: int, dtype: str) -> list[Any]:
    """The leaves of `_signs`, kept because drawing them and putting them on the device is what takes longest."""
    rng = np.random.Generator(np.random.PCG64(20261))
    found = [rng.integers(-1, 2, (samples, *shape)).astype(np.float64) for shape in shapes]
    for signs in found:
        signs[0] = 0
    with precision(backend, dtype):
        return [to_backend(backend, signs, dtype) for signs in found]


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


def _farthest(apart: Any, starts: Any) -> Any:
    """For each stretch of axis 1, the largest of its norms over axis 0; infinite if one of them is not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        distances = np.sqrt(_sums(apart * apart, starts))
    return np.where(np.isfinite(distances).all(axis=0), distances.max(axis=0), np.inf)


def _sums(rows: Any, starts: Any) -> Any:
    """The sum over each stretch of the last axis; 0 for an empty stretch, which is a leaf without numbers."""
    empty = np.diff(starts, append=rows.shape[-1]) == 0
    if not empty.any():
        return np.add.reduceat(rows, starts, axis=-1)
    padded = np.concatenate([rows, np.zeros_like(rows[..., :1])], axis=-1)
    return np.where(empty, 0.0, np.add.reduceat(padded, starts, axis=-1))


def _along(apart: Any, truth: Any, names: list[str], starts: Any) -> dict[str, Any]:
    """Leaf -> the part of each run's error along the true leaf, relative to the leaf; zero leaves are left out."""
    squares = _sums(truth * truth, starts)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        shares = _sums(apart * truth, starts) / squares
    return {
        name: shares[:, i] for i, name in enumerate(names) if name and squares[i] and np.isfinite(shares[:, i]).all()
    }


def cast(problem: Problem, tree: Tree, dtype: str) -> Tree:
    """A tree of `problem`'s backend with its floating leaves in another dtype."""

    def one(leaf: Any) -> Any:
        array = to_numpy(leaf)
        return leaf if array.dtype.kind in "iub" else to_backend(problem.backend, array, dtype)

    with precision(problem.backend, dtype):
        return tree_map(one, tree)


def _sample(
    problem: Problem,
    dtype: str,
    loss: str,
    vector: Tree | None,
    options: dict[str, Any],
    *,
    rounds: bool = False,
    scaled: bool = True,
    way: Way = "vectorised",
) -> Any:
    """The results of `NOISE_SAMPLES` runs in `dtype`, as float64 (runs, numbers): the loss, then the leaves in order.

    Args:
        rounds: whether the loss takes the argument `amount` (see `measure`).
        scaled: whether the gradient of c·loss is taken and divided by c, another c in each run.
    """
    asked = (problem.backend, loss, tuple(sorted(options.items())), vector is not None, dtype, rounds, scaled)
    signs = _signs(problem.params, problem.backend, NOISE_SAMPLES, problem.dtype)
    return to_numpy(_run(problem, asked, signs, vector, way=way))


Way = Literal["vectorised", "in turn", "eagerly"]
"""How the samples are computed: in one call; in turn, which JAX compiles; or in turn, and not compiled."""

_EAGER: set[tuple[Any, ...]] = set()
"""Classes of Specs, and what `_compiled` was asked for, whose loss can be neither compiled nor vmapped."""


def _run(problem: Problem, asked: tuple[Any, ...], *arguments: Any, way: Way = "vectorised") -> Any:
    """What `_compiled` of these settings returns.

    A loss may be foreign code: one that reads a number, as `if` and `item` do, or calls a Function without a rule for
    vmap, is neither compiled nor vmapped. Its runs are made one by one, and if that fails, too, the error is plain.
    """
    key = (type(problem.spec), way, *asked)
    with precision(problem.backend, problem.dtype):
        if key not in _EAGER:
            try:
                return _compiled(*asked, way=way)(problem, *arguments)
            except Exception as error:
                try:
                    found = _compiled(*asked, way="eagerly")(problem, *arguments)
                except Exception as plain:
                    raise plain from error
            _EAGER.add(key)
            return found
        return _compiled(*asked, way="eagerly")(problem, *arguments)


def _in_a_row(found: tuple[Any, Tree]) -> Any:
    """Value and gradient in one row, as `_sample` lays out a run."""
    return np.concatenate([to_numpy(leaf).reshape(-1) for leaf in leaves(found)])


def _factors() -> Any:
    """The factor c of each sample, with few enough digits for bfloat16; 1 for the first sample."""
    return 1.0 + np.arange(NOISE_SAMPLES) * 13 % 32 / 32


@functools.lru_cache(maxsize=256)
def _compiled(
    backend: str,
    loss: str,
    options: tuple[tuple[str, Any], ...],
    second: bool,
    dtype: str = "",
    rounds: bool = False,
    scaled: bool = True,
    *,
    way: Way = "vectorised",
) -> Callable[..., Any]:
    """A function for the value and gradient of a Problem, or with a `dtype` for the samples in it.

    In JAX it is jitted, unless it is to run eagerly.
    """
    made = transforms(backend)
    grad, vjp = (made.grad, made.vjp) if dtype and way == "vectorised" else reverse_mode(backend)

    def scalar(problem: Any, vector: Tree, **amount: Any) -> Callable[[Tree], Any]:
        plain = functools.partial(getattr(problem, loss), **dict(options), **amount)
        if not second:
            return plain
        return lambda params: sum(leaves(tree_map(lambda g, v: (g * v).sum(), grad(plain)(params), vector)))

    def plain(problem: Any, params: Tree, vector: Tree) -> Any:
        value, pull = vjp(scalar(problem, vector), params)
        grads = pull(problem.xp.ones_like(value))[0]
        return (value.detach() if backend == "torch" else value), grads

    def samples(problem: Any, signs: Tree, vector: Tree) -> Any:
        """The runs, each with its own jittered parameters and factor c."""
        xp, wide = problem.xp, problem.dtype
        params, data, vector = _floating(xp, [_moved(problem.params, signs, dtype), problem.data, vector], dtype)
        spec = dataclasses.replace(problem.spec, dtype=dtype)
        with precision(backend, dtype):
            given = problem._replace(spec=spec, params=params, data=data)
            factors = xp.asarray(_factors() if scaled else np.ones(NOISE_SAMPLES), dtype=getattr(xp, dtype))

            def run(params: Tree, factor: Any) -> Any:
                amount = {"amount": factor - 1} if rounds else {}
                return scalar(given.rerounded(factor - 1), vector, **amount)(params)

            def pulled(params: Tree, factor: Any) -> tuple[Any, list[Any]]:
                value, pull = vjp(lambda params: run(params, factor), params)
                return value, leaves(pull(factor)[0])

            if way == "in turn" and backend == "jax":
                values, grads = made.lax.map(lambda each: pulled(*each), (params, factors))
            elif way != "vectorised":
                lanes = [pulled(tree_map(lambda leaf: leaf[i], params), factors[i]) for i in range(NOISE_SAMPLES)]  # noqa: B023
                values = xp.stack([value for value, _ in lanes])
                grads = [xp.stack(list(rows)) for rows in zip(*(rows for _, rows in lanes), strict=True)]
            elif backend == "torch":
                alike = made.vmap(run, randomness="same")  # one mask for all samples
                # Plain autograd dispatches half as much as `torch.func.vjp` within a vmap.
                values, pull = reverse_mode(backend)[1](lambda params: alike(params, factors), params)
                grads = leaves(pull(factors)[0])
            else:
                values, grads = made.vmap(pulled)(params, factors)
            rows = [leaf.reshape(NOISE_SAMPLES, -1) / factors[:, None] for leaf in grads]
            found = xp.concat([values[:, None], *rows], axis=1)
        return _floating(xp, found, wide)

    run = samples if dtype else plain
    if backend != "jax":
        return run
    return on_device(run) if way == "eagerly" else shared(run)


def _floating(xp: Any, tree: Tree, dtype: str) -> Tree:
    """A tree of arrays or tracers of `xp`, with its floating leaves in another dtype."""
    wanted = getattr(xp, dtype)

    def one(leaf: Any) -> Any:
        return xp.astype(leaf, wanted) if leaf is not None and xp.isdtype(leaf.dtype, "real floating") else leaf

    return tree_map(one, tree)
