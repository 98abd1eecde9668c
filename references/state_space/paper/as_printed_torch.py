"""The state-space erratum in PyTorch: Prop. 3 taken literally, kept so that the suite refutes it."""

from __future__ import annotations

import torch

from gradgate.references.contract import Tree
from gradgate.references.state_space.in_torch.methods import adjoint_layer, embedding_gradient, evaluate, stack
from gradgate.references.state_space.problem import StateSpaceProblem


def adjoint_sharding_printed(problem: StateSpaceProblem) -> tuple[torch.Tensor, Tree]:
    """The loss, and what Prop. 3 prints as its gradient: every layer gets the cotangent dl/dy_K.

    The paper writes y_K = y_0 + Σ_k ỹ_k and takes dy_K/dθ_k to be dỹ_k/dθ_k, where θ_k are the parameters of layer k.
    But ỹ_{k+1} … ỹ_K depend on θ_k too, through y_k. The paths through the layers above are missing, so every layer
    below the last is wrong. So is the embedding: Eq. 6 does not mention it, and here it gets dl/dy_K and the path
    through layer 1 only. With K = 1 nothing is missing.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

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
    loss, head, g, trace = evaluate(problem)
    layers, before = zip(*(adjoint_layer(problem, p, y, h, g, window=len(y)) for p, y, h in trace), strict=True)
    embedding = embedding_gradient(problem, problem.data["tokens"], before[0])
    return loss, {"embedding": embedding, "layers": stack(layers), "head": head}
