"""Gradients of the state-space problem in PyTorch: backprop, adjoint sharding, and what improves on it.

The paper's notation (Adjoint sharding, §3–4) in the words of the code, for one layer k: ŷ_{k-1} is `x`, y_{k-1} is `y`,
h_k is `h` and holds h^0 … h^T, dL/dy_k is `g`, dl^t/dỹ^t λ^{t,i} is `mu`, vjp_𝓐 is `A_vjp`, T̄ is `window`.

Every method is written with `torch.func`, so that `torch.func.vmap` over the parameters and a further derivative work.
The VJPs of all tokens that are ready at one moment run as one batch over the leading axis.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and letters are those of
`problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradgate.references.backends import tree_map
from gradgate.references.contract import NotComposable, Tree, check_integer
from gradgate.references.state_space.problem import StateSpaceProblem

vjp: Callable[..., Any] = torch.func.vjp  # its annotation allows a third value, which is not requested here

Trace = list[tuple[Tree, torch.Tensor, torch.Tensor]]
"""What the backward pass of each layer needs: its parameters, y_{k-1} (T, batch, P), h^0 … h^T (T + 1, batch, N)."""


def backprop(problem: StateSpaceProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient by reverse-mode differentiation of the whole loss.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        The baseline of the paper, Eq. 1.

    Stores:
        Every intermediate of all K layers and T tokens: K·T·batch·O(N·P + |A| + N + P) numbers, where |A| is N²
        (unstructured), N (diagonal) or 1 (scalar).

    Computes:
        K·T evaluations and K·T VJPs of each net A, B and C. FLOPs grow linearly with T.

    Not for:
        Sequences whose activations do not fit in memory. Use `reverse_recurrence`.
    """
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads


def adjoint_sharding(problem: StateSpaceProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient from one VJP per token t and token i ≤ t that t depends on.

    Prop. 2 holds for each layer by itself. The layers are joined by g_{k−1} = g_k + (∂ỹ_k/∂y_{k−1})ᵀ g_k. Prop. 3
    leaves this out: as printed, every layer gets the cotangent dl/dy_K.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        Prop. 2 and Alg. 1–4, with Prop. 3 corrected.

    Stores:
        y and h of every layer, K·T·batch·(P + N) numbers, and the intermediates of the nets A and B of one layer for
        all T tokens, T·batch·O(N·P + |A|) numbers, where |A| is N² (unstructured), N (diagonal) or 1 (scalar).

    Computes:
        K·T(T + 1)/2 VJPs of A and of B, and K·T of C. Evaluations: K·T + K·T(T + 1)/2 of A and of B, 2·K·T of C, and
        K·T more of A. FLOPs grow like T².

    Not for:
        Speed: `reverse_recurrence` gives the same gradient with K·T VJPs of each net.
    """
    return _sharded(problem, len(problem.data["tokens"]))


def adjoint_truncated(problem: StateSpaceProblem, *, window: int) -> tuple[torch.Tensor, Tree]:
    """The loss, and the gradient in which each token reaches back over at most `window` tokens.

    The loss l^t of token t reaches A^i and B^i only for t − T̄ < i ≤ t. With window ≥ T the gradient is exact.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        window: T̄, an integer of at least 1: how many tokens i each token t reaches, itself included.

    Returns:
        The loss, a scalar and not truncated, and the gradient of ``problem.cut_loss``, a tree like ``problem.params``
        with the same shapes and dtypes.

    Raises:
        IllegalOption: `window` is not an integer of at least 1.
        NotComposable: the gradient is differentiated again.

    Source:
        §4.3, Eq. 7, corrected as `adjoint_sharding` is.

    Stores:
        As `adjoint_sharding`.

    Computes:
        K·(T̄·T − T̄(T̄ − 1)/2) VJPs of A and of B for T̄ ≤ T, and K·T of C. Each VJP evaluates its net again, as in
        `adjoint_sharding`. At a fixed T̄ FLOPs grow linearly with T.

    Not for:
        Problems in which dependencies longer than `window` tokens matter: the gradient drops them and is biased.
    """
    loss, grads = _sharded(problem, check_integer("window", window, 1))
    return loss, tree_map(FirstOrderOnly.apply, grads)


def _sharded(problem: StateSpaceProblem, window: int) -> tuple[torch.Tensor, Tree]:
    loss, head, g, trace = evaluate(problem)
    layers, g = adjoint_layers(problem, trace, g, window)
    embedding = embedding_gradient(problem, problem.data["tokens"], g)
    return loss, {"embedding": embedding, "layers": layers, "head": head}


class FirstOrderOnly(torch.autograd.Function):
    """An identity for the truncated gradient that refuses to be differentiated.

    The states before the window are constants in this gradient but depend on the parameters, so its derivative is not
    the Hessian of the cut loss or of any other loss.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: torch.Tensor) -> torch.Tensor:
        """The gradient leaf unchanged."""
        return gradient.view_as(gradient)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is saved."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        """Refuse.

        Raises:
            NotComposable: always.
        """
        raise NotComposable(
            "adjoint_truncated cannot be differentiated again: the states before the window are constants in its "
            "gradient but depend on the parameters; use adjoint_sharding or reverse_recurrence"
        )

    jvp = backward


def reverse_recurrence(problem: StateSpaceProblem, *, chunk: int | None = None) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient from one VJP of each net per token, one slice of time at a time.

    The forward pass keeps the K states at the start of each slice of `chunk` tokens. The backward pass takes the slices
    from the last to the first. It recomputes the inside of a slice, and passes Aᵀμ of the slice's first token to the
    slice before it.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        chunk: c, tokens per slice: None or an integer of at least 1. The last slice may be shorter. None, or T or
            more, means one slice.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `chunk` is neither None nor an integer of at least 1.

    Source:
        Beyond the paper: Prop. 2 with the sum over t carried out first, which turns it into a recurrence backward in
        time.

    Stores:
        The K states at the start of each slice, K·(T/c)·batch·N numbers, and the activations of one slice,
        c·batch·O(K(P + N) + N·P + |A|) numbers, where |A| is N² (unstructured), N (diagonal) or 1 (scalar). With c
        near √T the sum of both is smallest and grows like √T.

    Computes:
        K·T VJPs of each net. Evaluations: 2·K·T of each net, and K·c·⌊(T − 1)/c⌋ more, because every slice but the last
        runs forward once more, and K·T more of A. FLOPs grow linearly with T.

    Not for:
        Spreading tokens over devices: the slices run one after another, but the VJPs of `adjoint_sharding` are
        independent. Not for the gradients of single tokens' losses, which are summed here.
    """
    tokens, layers = problem.data["tokens"], unstack(problem.params["layers"])
    size = len(tokens) if chunk is None else check_integer("chunk", chunk, 1)
    spans = [slice(first, first + size) for first in range(0, len(tokens), size)]

    starts = [initial_states(problem, len(layers))]
    for span in spans[:-1]:
        _, trace = run_layers(problem, layers, problem.embed(problem.params["embedding"], tokens[span]), starts[-1])
        starts.append([h[-1].clone() for _, _, h in trace])  # a view would keep the whole slice alive
        del trace

    grads = tree_map(torch.zeros_like, {**problem.params, "layers": layers})
    carries, losses = initial_states(problem, len(layers)), []
    for span in reversed(spans):
        losses.append(add_slice(problem, layers, span, starts.pop(), carries, grads))
    return torch.stack(losses).sum(), {**grads, "layers": stack(grads["layers"])}


def evaluate(problem: StateSpaceProblem) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Trace]:
    """Run forward over all tokens: the loss, the gradient of the head, dL/dy_K (T, batch, P), and the trace."""
    layers = unstack(problem.params["layers"])
    y = problem.embed(problem.params["embedding"], problem.data["tokens"])
    y, trace = run_layers(problem, layers, y, initial_states(problem, len(layers)))
    loss, head, g = head_gradient(problem, y, slice(None))
    return loss, head, g, trace


def initial_states(problem: StateSpaceProblem, layers: int) -> list[torch.Tensor]:
    """Zeros (batch, N) for each layer: h^0, and also the cotangent after the last token."""
    some = next(iter(problem.params["layers"]["A"].values()))
    return [some.new_zeros(problem.spec.batch, problem.spec.state) for _ in range(layers)]


def run_layers(
    problem: StateSpaceProblem, layers: Sequence[Tree], y: torch.Tensor, starts: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, Trace]:
    """y_0 (n, batch, P) of n successive tokens -> y_K of the same shape and the trace, from the states before them."""
    trace = []
    for p, start in zip(layers, starts, strict=True):
        x = problem.norm(y)
        a, b = problem.A(p, x), matvec(problem.B(p, x), x)
        states = [start]
        for t in range(len(y)):
            states.append(problem.apply(a[t], states[-1]) + b[t])
        h = torch.stack(states)
        trace.append((p, y, h))
        y = y + matvec(problem.C(p, x), h[1:])
    return y, trace


def head_gradient(
    problem: StateSpaceProblem, y: torch.Tensor, span: slice
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Differentiate the head on the tokens in `span`: their loss, its gradient for the head, dL/dy_K (n, batch, P)."""
    gradient = torch.func.grad_and_value(problem.token_loss, argnums=(0, 1))
    (head, g), loss = gradient(problem.params["head"], y, problem.data["targets"][span], problem.data["upstream"])
    return loss, head, g


def embedding_gradient(problem: StateSpaceProblem, tokens: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """dL/dy_0 (n, batch, P) -> gradient of the embedding (vocabulary, P)."""
    _, embed_vjp = vjp(lambda embedding: problem.embed(embedding, tokens), problem.params["embedding"])
    return embed_vjp(g)[0]


def adjoint_layers(problem: StateSpaceProblem, trace: Trace, g: torch.Tensor, window: int) -> tuple[Tree, torch.Tensor]:
    """Adjoint sharding from the last layer of `trace` to its first: stacked gradients, and dL/dy before the first."""
    grads = []
    for p, y, h in reversed(trace):
        layer, g = adjoint_layer(problem, p, y, h, g, window)
        grads.append(layer)
    return stack(grads[::-1]), g


# h^t reaches back through h^t = A^t h^{t-1} + B^t ŷ^t, so the cotangent of h^i in l^t is
#     μ^{t,i} = (dl^t/dỹ^t C^t) A^t … A^{i+1} = A^{i+1}ᵀ μ^{t,i+1},    μ^{t,t} = C^tᵀ g^t,
# and those of A^i, B^i and ŷ^i are μ^{t,i} ⊗ h^{i-1}, μ^{t,i} ⊗ ŷ^i and B^iᵀ μ^{t,i}. At lag t − i = d all μ^{i+d,i}
# follow from those at lag d − 1 by one step, for all i at once; row i of `mu` is μ^{i+d,i}.
# y_k = y_{k-1} + ỹ_k(Norm(y_{k-1})), so dL/dy_{k-1} = g + Normᵀ(cotangent of ŷ). Prop. 3 uses g = dL/dy_K everywhere.
def adjoint_layer(
    problem: StateSpaceProblem, p: Tree, y: torch.Tensor, h: torch.Tensor, g: torch.Tensor, window: int
) -> tuple[Tree, torch.Tensor]:
    """dL/dy_k -> (gradient of the layer, dL/dy_{k-1}), a VJP of A and B for each token and lag below `window`."""
    x, norm_vjp = vjp(problem.norm, y)
    a = problem.A(p, x)
    mu, grad_C, g_x = output_vjp(problem, p, x, h[1:], g)
    grads, g_lag = transition_vjp(problem, p, x, h[:-1], mu)
    g_x = g_x + g_lag
    for lag in range(1, min(window, len(x))):
        n = len(x) - lag
        mu = problem.apply_transposed(a[1 : n + 1], mu[1:])
        grads_lag, g_lag = transition_vjp(problem, p, x[:n], h[:n], mu)
        grads = tree_map(torch.add, grads, grads_lag)
        g_x = torch.cat([g_x[:n] + g_lag, g_x[n:]])
    return {**grads, **grad_C}, g + norm_vjp(g_x)[0]


def add_slice(
    problem: StateSpaceProblem,
    layers: Sequence[Tree],
    span: slice,
    starts: Sequence[torch.Tensor],
    carries: list[torch.Tensor],
    grads: dict[str, Any],
) -> torch.Tensor:
    """Run one slice through all layers and back: adds to `grads`, moves `carries` to its start, returns its loss."""
    tokens = problem.data["tokens"][span]
    y, trace = run_layers(problem, layers, problem.embed(problem.params["embedding"], tokens), starts)
    loss, head, g = head_gradient(problem, y, span)
    grads["head"] = grads["head"] + head
    for k in reversed(range(len(layers))):
        layer, g, carries[k] = recurrence_layer(problem, *trace.pop(), g, carries[k])
        grads["layers"][k] = tree_map(torch.add, grads["layers"][k], layer)
    grads["embedding"] = grads["embedding"] + embedding_gradient(problem, tokens, g)
    return loss


# A VJP is linear in its cotangent, so the VJPs of all t ≥ i at token i are one VJP, with μ^i = Σ_{t≥i} μ^{t,i}. With
# μ^{t,i} = A^{i+1}ᵀ μ^{t,i+1} for t > i and μ^{i,i} = C^iᵀ g^i, this sum follows a recurrence backward in time:
#     μ^i = C^iᵀ g^i + A^{i+1}ᵀ μ^{i+1},    μ^{T+1} = 0.
# Its second term is all that a slice needs from the later slices.
def recurrence_layer(
    problem: StateSpaceProblem, p: Tree, y: torch.Tensor, h: torch.Tensor, g: torch.Tensor, carry: torch.Tensor
) -> tuple[Tree, torch.Tensor, torch.Tensor]:
    """dL/dy_k and Aᵀμ of the next token -> (gradient of the layer, dL/dy_{k-1}, Aᵀμ of the first token)."""
    x, norm_vjp = vjp(problem.norm, y)
    a = problem.A(p, x)
    direct, grad_C, g_x = output_vjp(problem, p, x, h[1:], g)
    mus = []
    for i in reversed(range(len(x))):
        mus.append(direct[i] + carry)
        carry = problem.apply_transposed(a[i], mus[-1])
    grads, g_state = transition_vjp(problem, p, x, h[:-1], torch.stack(mus[::-1]))
    return {**grads, **grad_C}, g + norm_vjp(g_x + g_state)[0], carry


def output_vjp(
    problem: StateSpaceProblem, p: Tree, x: torch.Tensor, h: torch.Tensor, g: torch.Tensor
) -> tuple[torch.Tensor, Tree, torch.Tensor]:
    """The backward pass of ỹ^t = C^t h^t, a VJP per token: Cᵀg (n, batch, N), the gradient of C, the cotangent of x."""
    c, C_vjp = vjp(problem.C, {"C": p["C"]}, x)
    grad_C, g_x = C_vjp(outer(g, h))
    return matvec(c.mT, g), grad_C, g_x


def transition_vjp(
    problem: StateSpaceProblem, p: Tree, x: torch.Tensor, h_before: torch.Tensor, mu: torch.Tensor
) -> tuple[Tree, torch.Tensor]:
    """The backward pass of h^i = A^i h^{i-1} + B^i ŷ^i, one VJP of A and of B per token: gradients, cotangent of x."""
    _, A_vjp = vjp(problem.A, {"A": p["A"]}, x)
    grad_A, x_A = A_vjp(problem.transition_cotangent(mu, h_before))
    b, B_vjp = vjp(problem.B, {"B": p["B"]}, x)
    grad_B, x_B = B_vjp(outer(mu, x))
    return {**grad_A, **grad_B}, x_A + x_B + matvec(b.mT, mu)


def unstack(layers: Tree) -> list[Tree]:
    """Parameters stacked over K -> one tree per layer."""
    count = len(next(iter(layers["A"].values())))
    return [tree_map(lambda leaf: leaf[k], layers) for k in range(count)]  # noqa: B023 - called at once


def stack(layers: Sequence[Tree]) -> Tree:
    """One tree per layer -> one tree stacked over K."""
    return tree_map(lambda *leaves: torch.stack(leaves), *layers)


def matvec(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """(…, m, n) times (…, n) -> (…, m)."""
    return (matrix @ vector[..., None])[..., 0]


def outer(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """(…, m) and (…, n) -> (…, m, n)."""
    return left[..., :, None] * right[..., None, :]
