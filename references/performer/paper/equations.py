"""Equations of §2.1, §3.2, §3.3 and App. A that a few lines can check: causality, the forms of Eq. 2, slices.

Slices are run here with copies θ^(n) of the parameters and with additions to 𝓑^(n), so that the derivative of each
slice's loss by each of them is seen.
"""

from __future__ import annotations

import functools
from typing import Any

from gradgate.references.backends import precision
from gradgate.references.performer.problem import PerformerSpec
from gradgate.references.published import Published, equal, figures_of, more_than, refuted, upheld

HERE = "gradgate.references.performer.paper.equations"
LENGTH, WIDTH, CHUNK = 12, 6, 4
SPEC = PerformerSpec(length=LENGTH, layers=2, seed=8)


def _drawn() -> Any:
    """Queries, keys and values, (LENGTH, WIDTH) each."""
    import numpy as np

    return np.random.default_rng(6).normal(size=(3, LENGTH, WIDTH))


def attended(kind: str, q: Any, k: Any, v: Any) -> Any:
    """Attention token by token, with g(x)_i = x_i².

    Args:
        kind: ``exponential`` (Eq. 1), ``first`` or ``second`` form of Eq. 2, ``prefix`` sums (Eqs. 3 and 4).
        q, k, v: (L, d) each.
    """
    import numpy as np

    g, out = np.square, []
    R, S = np.cumsum(v[:, :, None] * g(k)[:, None, :], axis=0), np.cumsum(g(k), axis=0)
    for n in range(len(q)):
        own = slice(0, n + 1)
        if kind == "prefix":
            out.append((R[n] @ g(q[n])) / (S[n] @ g(q[n])))
        elif kind == "second":
            above = sum(np.outer(v[i], g(k[i])) for i in range(n + 1)) @ g(q[n])
            out.append(above / (g(k[own]).sum(0) @ g(q[n])))
        else:
            weights = np.exp(k[own] @ q[n]) if kind == "exponential" else g(k[own]) @ g(q[n])
            out.append((weights[:, None] * v[own]).sum(0) / weights.sum())
    return np.stack(out)


def forms(kind: str, squares: bool = True) -> float:
    """‖out − first‖ / ‖first‖ of a form of Eq. 2 and its first form, in float64.

    Args:
        kind: as for `attended`.
        squares: False gives the form keys that are not squared before, so that a test sees the figure fail.
    """
    import numpy as np

    q, k, v = _drawn()
    first, other = attended("first", q, k, v), attended(kind, q, k if squares else k + 0.1, v)
    return float(np.linalg.norm(other - first) / np.linalg.norm(first))


def later_tokens(kind: str, reach: int = 0) -> float:
    """The largest change of outputs up to token l when q, k and v after l change, over all l.

    Args:
        kind: as for `attended`, or ``model``: the logits' inputs X^(s) of a whole Performer, when later tokens change.
        reach: how many tokens after l are looked at too, so that a test sees the figure fail.
    """
    import numpy as np

    changes = []
    if kind == "model":
        problem = SPEC.build("numpy")
        last = functools.partial(_last, problem)
        base = last(problem.data["tokens"])
        for n in range(LENGTH - 1):
            moved = problem.data["tokens"].copy()
            moved[n + 1 :] = (moved[n + 1 :] + 1) % SPEC.vocabulary
            changes.append(np.abs(last(moved) - base)[: n + 1 + reach].max())
        return float(max(changes))
    given = _drawn()
    base = attended(kind, *given)
    for n in range(LENGTH - 1):
        moved = given.copy()
        moved[:, n + 1 :] += 1.0
        changes.append(np.abs(attended(kind, *moved) - base)[: n + 1 + reach].max())
    return float(max(changes))


def _last(problem: Any, tokens: Any) -> Any:
    """X^(s) of all tokens, by Eqs. 11 to 13."""
    problem = problem._replace(data={**problem.data, "tokens": tokens})
    X = problem.embed(problem.params["embedding"], 0, LENGTH)
    for r in range(problem.spec.layers):
        T, gamma = problem.F(problem.params, r, X)
        X = problem.G(problem.params, r, problem.prefix_sum(T), gamma)
    return X


def slices(problem: Any, copies: Any, added: Any, swapped: bool = False, held: int = 0) -> Any:
    """𝓛^(1) … 𝓛^(N) by Eqs. 16 (corrected), 17 and 18, an array (N,) in JAX.

    Args:
        problem: a PerformerProblem of JAX arrays.
        copies: θ^(1) … θ^(N).
        added: numbers (s, …) that are added to 𝓑^(n) after slice n, for each n.
        swapped: whether the last slice runs first, so that a test sees the figures fail.
        held: of how many layers, from the first, 𝓑^(n) is held: only what is added to it changes it in derivatives.
    """
    import jax
    import jax.numpy as jnp

    states, found = [0.0] * problem.spec.layers, {}
    order = range(len(copies))
    for n in reversed(order) if swapped else order:
        start, params = n * CHUNK, copies[n]
        X = problem.embed(params["embedding"], start, CHUNK)
        for r in range(problem.spec.layers):
            T, gamma = problem.F(params, r, X)
            U = states[r] + problem.prefix_sum(T)
            X = problem.G(params, r, U, gamma, start)
            states[r] = (jax.lax.stop_gradient(U[-1]) if r < held else U[-1]) + added[n][r]
        found[n] = problem.slice_loss(params, X, start)
    return jnp.stack([found[n] for n in order])


def _setting() -> Any:
    import jax.numpy as jnp

    problem: Any = SPEC.build("jax")
    T, _ = problem.F(problem.params, 0, problem.embed(problem.params["embedding"], 0, 1))
    count = LENGTH // CHUNK
    return problem, [problem.params] * count, [[jnp.zeros(T.shape[1:])] * SPEC.layers] * count


def sliced_loss(swapped: bool = False) -> float:
    """|Σ 𝓛^(n) − 𝓛| / |𝓛|, in float64; `swapped` as for `slices`."""
    with precision("jax", "float64"):
        problem, copies, added = _setting()
        whole = problem.loss(problem.params)
        return float(abs(slices(problem, copies, added, swapped).sum() - whole) / abs(whole))


def unaffected(by: str, swapped: bool = False) -> float:
    """The largest derivative of 𝓛^(m) by what App. A says that it does not depend on.

    Args:
        by: ``θ``: by θ^(n) for m < n; ``𝓑``: by 𝓑^(n) for m ≤ n.
        swapped: as for `slices`.
    """
    import jax

    with precision("jax", "float64"):
        problem, copies, added = _setting()
        if by == "θ":
            slopes = jax.jit(jax.jacrev(lambda copies: slices(problem, copies, added, swapped)))(copies)
        else:
            slopes = jax.jit(jax.jacrev(lambda added: slices(problem, copies, added, swapped)))(added)
        later = [
            abs(leaf[m]).max()
            for n, own in enumerate(slopes)
            for leaf in jax.tree.leaves(own)
            for m in range(n + (by != "θ"))
        ]
        return float(max(later))


def only_through(held: int = SPEC.layers) -> float:
    """The largest derivative of 𝓛^(m) by θ^(n) and by 𝓑^(n−1), m > n, where 𝓑^(n) is held.

    Args:
        held: as for `slices`; all layers, or fewer, so that a test sees the figure fail.
    """
    import jax

    with precision("jax", "float64"):
        problem, copies, added = _setting()

        def losses(copies: Any, added: Any) -> Any:
            return slices(problem, copies, added, held=held)

        by_copies, by_added = jax.jit(jax.jacrev(losses, (0, 1)))(copies, added)
        later = [
            abs(leaf[m]).max()
            for n in range(len(copies) - 1)
            for own in (by_copies[n], by_added[n - 1] if n else [])
            for leaf in jax.tree.leaves(own)
            for m in range(n + 1, len(copies))
        ]
        return float(max(later))


def summed(left_out: int = -1) -> float:
    """‖Σ_n ∇_{θ^(n)}𝓛 − ∇_θ𝓛‖ / ‖∇_θ𝓛‖, in float64, without the share of slice `left_out`."""
    import jax

    from gradgate.references.performer.paper.measured import relative_error

    with precision("jax", "float64"):
        problem, copies, added = _setting()
        shares = jax.jit(jax.grad(lambda copies: slices(problem, copies, added).sum()))(copies)
        kept = [share for n, share in enumerate(shares) if n != left_out]
        total = jax.tree.map(lambda *leaves: sum(leaves), *kept)
        return relative_error(total, jax.grad(problem.loss)(problem.params))


def formula_ratio(feature_count: int = 64, width: int = 1024) -> float:
    """11·L·s·d_model² over L·s·M(d+1)k at d = 64, both per token and layer (§3.4)."""
    return 11 * width**2 / (feature_count * (64 + 1) * (width // 64))


def chain_in_blocks(length: int = 256) -> float:
    """The longest chain of operations of the full gradient with blocks over that with explicit prefix sums (§4.1)."""
    from gradgate.references.performer.paper import depth

    return depth.chain("full_iterative", length, prefix_sum="block") / depth.chain("full", length)


EXACT = equal(0.0, "a derivative or a change that is not there")
ROUNDING = equal(1e-13, "equal but for rounding in float64")


_row = figures_of(HERE)


ROWS = (
    *(
        _row(
            "§2.1, later tokens",
            name,
            "12 tokens",
            "largest change",
            "later_tokens",
            {"kind": kind},
            0.0,
            upheld(EXACT),
        )
        for name, kind in (("Eq. 1", "exponential"), ("Eq. 2", "first"), ("a Performer of 2 layers", "model"))
    ),
    _row(
        "§2.1, Eq. 2",
        "second form, distance from the first",
        "12 tokens",
        "relative",
        "forms",
        {"kind": "second"},
        0.0,
        upheld(ROUNDING),
    ),
    _row(
        "§2.1, Eq. 2",
        "Eqs. 3 and 4, distance from the first form",
        "12 tokens",
        "relative",
        "forms",
        {"kind": "prefix"},
        0.0,
        upheld(ROUNDING),
    ),
    _row(
        "§3.2, slices", "loss, distance from Eq. 10", "3 slices", "relative", "sliced_loss", {}, 0.0, upheld(ROUNDING)
    ),
    _row(
        "App. A",
        "derivative of earlier slices' losses",
        "by θ^(n)",
        "largest",
        "unaffected",
        {"by": "θ"},
        0.0,
        upheld(EXACT),
    ),
    _row(
        "App. A",
        "derivative of losses up to the slice's",
        "by 𝓑^(n)",
        "largest",
        "unaffected",
        {"by": "𝓑"},
        0.0,
        upheld(EXACT),
    ),
    _row(
        "App. A",
        "derivative of later slices' losses, 𝓑^(n) held",
        "by θ^(n) and 𝓑^(n−1)",
        "largest",
        "only_through",
        {},
        0.0,
        upheld(EXACT),
    ),
    _row("§3.3, Σ ∇_{θ^(n)} 𝓛", "distance from ∇_θ 𝓛", "3 slices", "relative", "summed", {}, 0.0, upheld(ROUNDING)),
    _row(
        "§3.4, additions",
        "11Lsd²_model over LsM(d+1)k",
        "III",
        "times",
        "formula_ratio",
        {},
        1.0,
        upheld(more_than('"much bigger", without a number: bigger')),
    ),
    _row(
        "§4.1, parallelization",
        "longest chain of operations, blocks over explicit sums",
        "L = 256",
        "times",
        "chain_in_blocks",
        {},
        1.0,
        upheld(more_than('"at a cost of less parallelization"')),
    ),
    Published(
        "§4.1, cause of the slow growth",
        "exponent of C in JAX",
        "II, iter.",
        "1",
        "gradgate.references.derived:growth",
        {"of": "Fig. 2, memory / II, iter."},
        1.0,
        "JAX's compiler shows it too: parameters and their gradient, most of the bytes, do not grow with C",
        expects=refuted(
            equal(0.25, '"we attribute this effect to … PyTorch": elsewhere it would grow like C'), instead=0.1015
        ),
    ),
)
