"""Table 1's rivals, written plainly: an RNN, a residual RNN, and the Transformer with softmax attention.

Serial time is the FLOPs of loss and gradient, parallel time the longest chain of operations (`depth`), and memory the
temporary bytes as compiled. Each is an exponent of L, or for a depth what a second doubling of L adds over the first.
The residual RNN in coupled halves can be undone step by step, which takes O(1) memory besides the input.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.performer.paper.alone import CLOSE, LEVELS, LINEAR, exponent, steps
from gradgate.references.performer.problem import PerformerProblem, PerformerSpec
from gradgate.references.published import Agreement, Published, equal, less_than, upheld

HERE = "gradgate.references.performer.paper.rivals"
WIDTH = 8
"""Numbers in a state, and features of an input."""


def recurrent(params: Any, x: Any, residual: bool = False) -> Any:
    """½Σ h_l² of an RNN h_l = tanh(Wh_{l−1} + Vx_l) (21), or of h_l = h_{l−1} + tanh(…) (22); x is (L, WIDTH)."""
    import jax
    import jax.numpy as jnp

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        new = jnp.tanh(params["W"] @ h + params["V"] @ x)
        h = h + new if residual else new
        return h, 0.5 * (h * h).sum()

    return jax.lax.scan(step, jnp.zeros(WIDTH, x.dtype), x)[1].sum()


def coupled(params: Any, x: Any) -> Any:
    """½Σ h_l² of a residual RNN in halves: a += tanh(Wb + Vx), b += tanh(Wa + Vx); each half has WIDTH numbers."""
    import jax
    import jax.numpy as jnp

    def run(h: Any, x: Any) -> tuple[Any, Any]:
        h = _forward(params, h, x)
        return h, 0.5 * sum((half * half).sum() for half in h)

    zero = jnp.zeros(WIDTH, x.dtype)
    return jax.lax.scan(run, (zero, zero), x)[1].sum()


def _forward(params: Any, h: Any, x: Any) -> Any:
    import jax.numpy as jnp

    a = h[0] + jnp.tanh(params["W"] @ h[1] + params["V"] @ x)
    return a, h[1] + jnp.tanh(params["W"] @ a + params["V"] @ x)


def undone(params: Any, x: Any, back: Callable[..., Any] | None = None) -> tuple[Any, Any]:
    """Loss and gradient of `coupled` with one state in memory: each step is undone before its backward pass.

    Args:
        params, x: as for `coupled`.
        back: takes the place of `_undo`, so that a test can see it fail.
    """
    import jax
    import jax.numpy as jnp

    zero = jnp.zeros(WIDTH, x.dtype)

    def run(carry: Any, x: Any) -> tuple[Any, None]:
        h, loss = carry
        h = _forward(params, h, x)
        return (h, loss + 0.5 * sum((half * half).sum() for half in h)), None

    (h, loss), _ = jax.lax.scan(run, ((zero, zero), jnp.zeros((), x.dtype)), x)

    def pull(carry: Any, x: Any) -> tuple[Any, None]:
        h, g, grads = carry
        before = (back or _undo)(params, h, x)
        _, rule = jax.vjp(lambda p, h: _forward(p, h, x), params, before)
        part, g = rule(tuple(down + half for down, half in zip(g, h, strict=True)))
        return (before, g, jax.tree.map(jnp.add, grads, part)), None

    start = (h, (zero, zero), jax.tree.map(jnp.zeros_like, params))
    (_, _, grads), _ = jax.lax.scan(pull, start, x, reverse=True)
    return loss, grads


def _undo(params: Any, h: Any, x: Any) -> Any:
    import jax.numpy as jnp

    b = h[1] - jnp.tanh(params["W"] @ h[0] + params["V"] @ x)
    return h[0] - jnp.tanh(params["W"] @ b + params["V"] @ x), b


def softmax_states(problem: PerformerProblem, params: Any) -> Any:
    """X^(s) (L, batch, D) of the Transformer with softmax attention (Eq. 1) with a Performer's parameters.

    Queries are divided by √d, as FAVOR+ estimates exp(q·k/√d). The rest of a layer is the Performer's.
    """
    xp, spec = problem.xp, problem.spec
    X = problem.embed(params["embedding"], 0, spec.length)
    later = xp.arange(spec.length)[:, None] < xp.arange(spec.length)[None, :]
    shape = (spec.length, spec.batch, spec.heads, spec.head_width)
    for r in range(spec.layers):
        p = problem.layer(params, r)
        q, k, v = (
            xp.permute_dims(xp.reshape(xp.matmul(X, p["attention"][name]), shape), (1, 2, 0, 3))
            for name in ("query", "key", "value")
        )
        scores = xp.matmul(q, xp.matrix_transpose(k)) / spec.head_width**0.5
        weights = xp.where(later, xp.zeros_like(scores), xp.exp(scores))
        both = xp.concat([v, xp.ones_like(v[..., :1])], axis=-1)
        X = problem.finish(p, X, xp.permute_dims(xp.matmul(weights, both), (2, 0, 1, 3)), r, 0)
    return X


def approximation(features: int, seeds: int = 8) -> float:
    """‖X − X'‖ / ‖X'‖ of the last layer's outputs: FAVOR+ with M features, and softmax with the same weights.

    The root of the mean square over draws of the features.
    """
    import numpy as np

    found = []
    for seed in range(seeds):
        spec = PerformerSpec(
            length=16,
            layers=2,
            heads=2,
            head_width=8,
            feature_map="favor",
            features=features,
            seed=3,
        )
        problem = spec.build("numpy")
        drawn = np.random.default_rng(seed).standard_normal((features, spec.head_width))
        from gradgate.references.performer.features import orthogonal_rows

        problem = problem._replace(data={**problem.data, "projection": orthogonal_rows(drawn, "numpy", "float64")})
        X = problem.embed(problem.params["embedding"], 0, spec.length)
        for r in range(spec.layers):
            T, gamma = problem.F(problem.params, r, X)
            X = problem.G(problem.params, r, problem.prefix_sum(T), gamma)
        truth = softmax_states(problem, problem.params)
        found.append(float(((X - truth) ** 2).sum() / (truth**2).sum()))
    return float(np.mean(found) ** 0.5)


def program(model: str, length: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Loss and gradient of a model at L tokens, and the shapes of its arguments."""
    import jax

    from gradgate.references.draws import shapes

    if model == "softmax":
        spec = PerformerSpec(dtype="float32", length=length, layers=1, heads=1, head_width=4, expansion=1)

        def whole(problem: Any) -> Any:
            def loss(params: Any) -> Any:
                return problem.slice_loss(params, softmax_states(problem, params))

            return jax.value_and_grad(loss)(problem.params)

        return whole, (shapes(spec),)
    square, x = (jax.ShapeDtypeStruct((rows, WIDTH), "float32") for rows in (WIDTH, length))
    given = ({"W": square, "V": square}, x)
    if model == "undone":
        return undone, given
    plain: dict[str, Callable[..., Any]] = {
        "RNN": recurrent,
        "Residual": functools.partial(recurrent, residual=True),
        "coupled": coupled,
    }
    return jax.value_and_grad(plain[model]), given


def flops(model: str, first: int) -> float:
    """The exponent of L in the FLOPs, from `first`, twice and four times as many tokens."""
    from gradgate.hw_profiles import work

    return exponent(lambda length: work.of(*program(model, length)).flops, first)


def memory(model: str, first: int, profile: str = "cpu") -> float:
    """The exponent of L in the temporary bytes, as compiled; 0 if they do not grow.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    from gradgate.hw_profiles.compile import measure

    def temporary(length: int) -> int:
        found = measure(*program(model, length), profile)
        if found.temp_bytes is None:
            raise LookupError(f"{profile}: {found.reason}")
        return found.temp_bytes

    if temporary(first) == temporary(4 * first):
        return 0.0
    return exponent(temporary, first)


def parallel(model: str, first: int) -> float:
    """What a second doubling of L adds to the longest chain, over the first."""
    from gradgate.references.state_space.paper.depth import of_jax

    return steps(lambda length: of_jax(*program(model, length)), first)


def _table() -> list[Published]:
    rows = []

    def row(series: str, x: str, name: str, model: str, printed: float, agreement: Agreement, first: int) -> None:
        told = {"model": model, "first": first}
        rows.append(Published("Table 1", series, x, "1", f"{HERE}:{name}", told, printed, expects=upheld(agreement)))

    counted = equal(0.01, "counts of operations: a doubling adds exactly as much, or one level")
    for series, model, power, growth, first in (
        ("RNN", "RNN", 1.0, LINEAR, 256),
        ("Residual NN", "Residual", 1.0, LINEAR, 256),
        ("exponential Transformer", "softmax", 2.0, LEVELS, 1024),
    ):
        row(series, "FLOPs, exponent of L", "flops", model, power, equal(0.05, CLOSE), first)
        row(series, "depth, second doubling of L over the first", "parallel", model, growth, counted, first)
        row(series, "bytes, exponent of L", "memory", model, power, equal(0.05, CLOSE), first)
    row("Residual NN in coupled halves", "bytes, exponent of L", "memory", "coupled", 1.0, equal(0.05, CLOSE), 256)
    return rows


FAVOR = "§3.4 / FAVOR+ against softmax with the same weights"
ROWS = (
    *_table(),
    Published(
        "Table 1",
        "Residual NN in coupled halves, undone",
        "bytes, exponent of L",
        "1",
        f"{HERE}:memory",
        {"model": "undone", "first": 256},
    ),
    *(
        Published(
            "§3.4",
            "FAVOR+ against softmax with the same weights",
            M,
            "relative",
            f"{HERE}:approximation",
            {"features": M},
        )
        for M in (16, 64, 256, 1024)
    ),
    Published(
        "§3.4",
        "FAVOR+ against softmax with the same weights",
        "exponent of M",
        "1",
        "gradgate.references.derived:growth",
        {"of": FAVOR},
        0.0,
        expects=upheld(less_than('"can approximate any conventional Transformer": more features come closer')),
    ),
)
