"""Errata of adjoint sharding in JAX: what the paper prints, which must be refuted."""

from __future__ import annotations

from typing import Any

import jax

from gradgate.references.contract import Tree
from gradgate.references.state_space.in_jax.methods import head_gradients, pull_layer, run_layer
from gradgate.references.state_space.problem import StateSpaceProblem


def adjoint_sharding_printed(problem: StateSpaceProblem) -> tuple[Any, Tree]:
    """The loss, and what Prop. 3 prints as its gradient: every layer gets the cotangent dl/dy_K.

    The paper writes y_K = y_0 + Σ_k ỹ_k and takes dy_K/dθ_k to be dỹ_k/dθ_k, where θ_k are the parameters of layer k.
    But ỹ_{k+1} … ỹ_K depend on θ_k too, through y_k. The paths through the layers above are missing, so every layer
    below the last is wrong. So is the embedding: Eq. 6 does not mention it, and here it gets dl/dy_K and the path
    through layer 1 only. With K = 1 nothing is missing.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar and right, and the printed gradient, a tree like ``problem.params`` with the same shapes and
        dtypes. Its head and its last layer are right; for K ≥ 2 the rest is not.

    Source:
        Prop. 3, Eq. 6, and its proof in App. A.2, as printed.

    Stores:
        As `adjoint_sharding`.

    Computes:
        As `adjoint_sharding`.

    Not for:
        Any use but refuting Prop. 3. Use `adjoint_sharding`, which corrects it.
    """
    params, data = problem.params, problem.data
    y, pull_embedding = jax.vjp(lambda e: problem.embed(e, data["tokens"]), params["embedding"])
    y, saved = jax.lax.scan(lambda y, p: run_layer(problem, p, y), y, params["layers"])
    loss, (d_head, top) = head_gradients(problem, params["head"], y, data["targets"], data["upstream"])

    def layer(_: Any, xs: tuple[Tree, Any]) -> tuple[Any, Tree]:
        p, saved = xs
        return pull_layer(problem, p, saved, top, window=y.shape[0])  # top, where the carried cotangent belongs

    first, d_layers = jax.lax.scan(layer, top, (params["layers"], saved), reverse=True)
    return loss, {"embedding": pull_embedding(first)[0], "layers": d_layers, "head": d_head}
