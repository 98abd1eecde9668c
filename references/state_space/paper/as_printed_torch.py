"""The state-space erratum in PyTorch: Prop. 3 taken literally, kept so that the suite refutes it."""

from __future__ import annotations

import torch

from gradgate.references.contract import Tree
from gradgate.references.state_space.in_torch.methods import adjoint_layer, embedding_gradient, evaluate, stack
from gradgate.references.state_space.problem import StateSpaceProblem


def adjoint_sharding_printed(problem: StateSpaceProblem) -> tuple[torch.Tensor, Tree]:
    """Adjoint sharding as printed: every layer is fed dl/dy_K. Wrong for all layers but the last.

    The paper writes y_K = y_0 + Σ_k ỹ_k and differentiates each ỹ_k by the parameters of layer k alone. But ỹ_j of a
    layer j above k reads Norm(y_{j-1}), which contains ỹ_k: the paths through the layers above are missing. With one
    layer there are none, and every leaf is exact; with more, the last layer and the head are. The mended version,
    `adjoint_sharding`, feeds layer k with dL/dy_k instead. Eq. 6 says nothing of the embedding; in its spirit it gets
    dl/dy_K and the input cotangent of layer 1 fed with it. `g` is dl/dy_K, `trace` holds ŷ and h of every layer.

    Returns:
        The loss, a scalar and right, and the printed gradient, shaped and typed like ``problem.params``.

    Source: Prop. 3, Eq. 6. Cost: that of `adjoint_sharding`. Do not use it.
    """
    loss, head, g, trace = evaluate(problem)
    layers, before = zip(*(adjoint_layer(problem, p, y, h, g, window=len(y)) for p, y, h in trace), strict=True)
    embedding = embedding_gradient(problem, problem.data["tokens"], before[0])
    return loss, {"embedding": embedding, "layers": stack(layers), "head": head}
