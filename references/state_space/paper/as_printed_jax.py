"""Errata of adjoint sharding in JAX: what the paper prints, which must be refuted."""

from __future__ import annotations

from typing import Any

import jax

from gradgate.references.contract import Tree
from gradgate.references.state_space.in_jax.methods import head_gradients, pull_layer, run_layer
from gradgate.references.state_space.problem import StateSpaceProblem


def adjoint_sharding_printed(problem: StateSpaceProblem) -> tuple[Any, Tree]:
    """Loss, and what Prop. 3 gives as its gradient: every layer is fed dl/dy_K.

    The paper writes y_K = y_0 + Σ_k ỹ_k and takes dy_K/dθ_k to be dỹ_k/dθ_k, θ_k being layer k's parameters. But
    ỹ_{k+1} … ỹ_K depend on θ_k too, through y_k: the paths through the layers above are missing, so every layer below
    the last is wrong, and so is the embedding, which here gets dl/dy_K and the path through layer 1 alone. With K = 1
    nothing is missing.

    Returns:
        The scalar loss and a tree like ``problem.params``, in its shapes and dtypes. The head and the last layer are
        right; for K ≥ 2 all else is not.

    Source: Adjoint sharding, Prop. 3, Eq. 6, and its proof, A.2.
    Stores and computes: as `adjoint_sharding`, which is Prop. 3 mended; use that one.
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
