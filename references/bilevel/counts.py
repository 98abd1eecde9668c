"""How often the methods evaluate the inner loss and its layers, and take JVPs and VJPs of them: the claims' formulas.

There are T inner steps and L layers. A call is a call of the inner loss, the outer loss or a layer at one data point.
In loss_weighting the inner loss has a second network of L layers, with parameters η, which weighs the first one's
losses.

The list says what each differentiation of the inner loss L(θ, η) runs at one data point: calls of a layer of θ's
network, then of a layer of η's, with (r = 1) and without (r = 0) block rematerialisation.

    gradient by θ        evaluations 1 + r and 1    VJPs 1 and 0: the weights do not depend on θ
    product by mixed     a JVP of the gradient by (θ, η) along θ. Evaluations 1 + r and 1 + r; JVPs 2 + r, of the
    mode                 forward pass, of what is rematerialised and of the VJP, and 1, of the VJP alone; VJPs 1 and 1.
                         In JAX no VJP of η's network, whose value is not needed; in PyTorch θ's layers are evaluated
                         once more with r, as forward mode through a rematerialised layer runs the layer by itself.
    by reverse mode      the gradient by (θ, η) of a JVP along θ: evaluations 1 and 1, JVPs 1 and 0, VJPs 2, of the
    over forward mode    layer and of its JVP, and 1
    by reverse mode      a gradient by θ, and its VJP: evaluations 1 + r and 1, then r and r; VJPs 1 and 0, then 2, of
    over reverse mode    the VJP and of the layer, and 1. In JAX with r one more: the VJP is rematerialised too.
"""

from __future__ import annotations

from typing import Any

from gradgate.hw_profiles.calls import Calls
from gradgate.references.contract import Claim
from gradgate.references.counts import claim

HERE = "gradgate.references.bilevel.counts"
Run = tuple[Calls, Calls, Calls]
"""Calls of the inner loss, of a layer of θ's network and of one of η's, at one data point."""


def _gradient(framework: str, remat: bool) -> Run:
    return Calls(1, 0, 1), Calls(1 + remat, 0, 1), Calls(1)


def _mixed(framework: str, remat: bool) -> Run:
    jax = framework == "jax"
    again = 0 if jax else int(remat)
    return Calls(1, 1, 1), Calls(1 + remat + again, 2 + remat, 1), Calls(1 + remat, 1, 0 if jax else 1)


def _over_forward(framework: str, remat: bool) -> Run:
    return Calls(1, 1, 1), Calls(1, 1, 2), Calls(1, 0, 1)


def _over_reverse(framework: str, remat: bool) -> Run:
    again = int(remat and framework == "jax")
    return Calls(1, 0, 1), Calls(1 + 2 * remat, 0, 3 + again), Calls(1 + remat, 0, 1)


def _counted(spec: Any, remat: bool, *runs: tuple[int, Run]) -> dict[str, Calls]:
    """The calls of the given numbers of runs over a batch, and of one gradient of the outer loss."""
    total = {
        "inner loss": Calls(),
        "layer": Calls(spec.layers * (1 + remat), 0, spec.layers),
        "outer loss": Calls(1, 0, 1),
    }
    for times, (loss, theta, eta) in runs:
        weighs = spec.layers if spec.task == "loss_weighting" else 0
        for net, parts in (("inner loss", ((1, loss),)), ("layer", ((spec.layers, theta), (weighs, eta)))):
            for number, calls in parts:
                total[net] = _sum(total[net], calls, times * number)
    return {net: _sum(Calls(), calls, spec.batch) for net, calls in total.items()}


def _sum(left: Calls, right: Calls, times: int) -> Calls:
    return Calls(
        left.evaluations + times * right.evaluations, left.jvps + times * right.jvps, left.vjps + times * right.vjps
    )


def _needed(spec: Any, framework: str) -> int:
    """Whether the backward pass through an update needs the value of ∇L.

    It does if ∇L is multiplied: by itself in Adam, by η in learning_lr. Otherwise JAX leaves the gradient out; PyTorch
    always runs it.
    """
    return int(framework == "torch" or spec.optimiser == "adam" or spec.task == "learning_lr")


def truncated_bptt(spec: Any, *, framework: str, remat: bool, **_: Any) -> dict[str, Calls]:
    """A gradient per step forward; another and its VJP per step back, even if saved: the VJP needs the same input."""
    T = spec.steps
    return _counted(spec, remat, (T, _gradient(framework, remat)), (T, _over_reverse(framework, remat)))


def mixflow(
    spec: Any, *, framework: str, remat: bool = True, save_inner_grads: bool = False, **_: Any
) -> dict[str, Calls]:
    """A gradient per step forward; per step back a product, and the gradient again unless it is saved or not needed."""
    T = spec.steps
    gradients = T if save_inner_grads else T + T * _needed(spec, framework)
    return _counted(spec, remat, (gradients, _gradient(framework, remat)), (T, _mixed(framework, remat)))


def reverse_over_forward(spec: Any, *, framework: str, **_: Any) -> dict[str, Calls]:
    """As `mixflow`, with the other product."""
    T = spec.steps
    gradients = T + T * _needed(spec, framework)
    return _counted(spec, False, (gradients, _gradient(framework, False)), (T, _over_forward(framework, False)))


def inversion(spec: Any, *, framework: str, **_: Any) -> dict[str, Calls]:
    """As `mixflow`; a step back always needs ∇L, to take υ back."""
    T = spec.steps
    return _counted(spec, True, (2 * T, _gradient(framework, True)), (T, _mixed(framework, True)))


def buffered(spec: Any, *, framework: str, **_: Any) -> dict[str, Calls]:
    """As `inversion`, and a gradient per step before, to choose the grid."""
    T = spec.steps
    return _counted(spec, True, (3 * T, _gradient(framework, True)), (T, _mixed(framework, True)))


# In PyTorch the way to the last step is halved recursively, and every half that is passed is run once. For n steps
# these are A(n) = ⌊n/2⌋ + A(⌈n/2⌉) + A(⌊n/2⌋) with A(1) = 0, the number of ones in the binary forms of 0 … n − 1. The
# last step itself is run too, for V. In JAX T is cut into powers of two. For each power, 2^k steps are run forward; in
# the backward pass each of k halvings runs half of them again: 2^k·k/2.
def log_remat(spec: Any, *, framework: str, **_: Any) -> dict[str, Calls]:
    """Each step runs up to log2 T times forward; the backward pass is as in `mixflow`."""
    T = spec.steps
    if framework == "torch":
        forward = 1 + sum(step.bit_count() for step in range(T))
    else:
        forward = T + sum(2**k * k // 2 for k in range(T.bit_length()) if T >> k & 1)
    gradients = forward + T * _needed(spec, framework)
    return _counted(spec, True, (gradients, _gradient(framework, True)), (T, _mixed(framework, True)))


def claims(framework: str) -> dict[str, tuple[Claim, ...]]:
    """Method -> its claim about counts."""

    def counted(formula: str, statement: str, source: str, **more: Any) -> tuple[Claim, ...]:
        given = {"framework": framework, **more.pop("given", {})}
        return (claim("counts", statement, source, formula=f"{HERE}:{formula}", given=given, **more),)

    products = "takes a gradient per step forward, and one and a product of second derivatives per step back"
    return {
        "truncated_bptt": counted("truncated_bptt", "takes a gradient per step forward, one and its VJP back", "§4"),
        "mixflow": counted("mixflow", products, "Algorithm 2, §4"),
        "mixflow_drop_in": counted(
            "mixflow",
            "takes the gradients and products of Algorithm 2, with a rule of its own for the gradient",
            "Listings 1 and 2",
            given={"save_inner_grads": framework == "torch"},
        ),
        "reverse_over_forward": counted("reverse_over_forward", products, "Proposition 3.1"),
        "momentum_inversion": counted("inversion", products, "App. A.2", where={"optimiser": "momentum"}),
        "compensated_inversion": counted("inversion", products, "App. A.2", where={"optimiser": ("momentum", "adam")}),
        "buffered_inversion": counted(
            "buffered",
            f"{products}, and a gradient per step to choose the grid",
            "App. A.2",
            where={"optimiser": "momentum"},
        ),
        "log_remat": counted("log_remat", f"{products}, and each step up to log2 T times more", "App. A.2"),
        "gradient_replay": counted(
            "mixflow",
            "takes a gradient per step forward, and a product of second derivatives per step back",
            "beyond the paper",
            given={"save_inner_grads": True},
        ),
        "bilevel_sharded": counted("mixflow", f"{products}, on all devices together", "App. A.2"),
    }
