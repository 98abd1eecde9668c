"""Meta-gradients in PyTorch with static memory: momentum and Adam taken back in words of three floats (App. A.2)."""

from __future__ import annotations

from typing import Any

import torch

from gradgate.references.bilevel.in_torch.methods import (
    Inner,
    forward_over_reverse,
    gradient,
    inner_loss,
    pull_init,
    pull_outer,
    pull_step,
    steps,
)
from gradgate.references.bilevel.inner.inverses import Steps
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.bilevel.refusal import check_invertible
from gradgate.references.contract import Tree


def compensated_inversion(problem: BilevelProblem) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient in memory that does not grow with T: steps of momentum or Adam are taken back.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes. Its
            inner optimiser must be momentum or Adam.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        NotInvertible: the inner optimiser is SGD, whose step cannot be taken back; the message names a method.

    Source:
        App. A.2 ("such as Adam … invert per-step updates"), with θ and υ in words of three floats
        (Dekker, 1971; Priest, 1991).

    Stores:
        θ and υ of one step in words, 3·(|θ| + |υ|) numbers (in float32 for bfloat16), the cotangents |θ| + |υ|, dV/dη,
        |η| numbers; and what one product needs with its layers rematerialised.

    Computes:
        Per step, two gradients of L and one gradient with tangents, which costs about two more, all with the layers
        rematerialised; and 100 to 170 FLOPs per number of θ and υ.

    Not for:
        More than 2·log2(1/u)/log2(1/μ) steps, u the unit roundoff: 697 at μ = 0.9 in float64 and 315 in float32, 61 and
        27 at μ = 0.3. After more steps no digit is right. Use `buffered_inversion` with momentum, or `log_remat`. Not
        for a further derivative with Adam: tangents of rebuilt states are floats, and those of v_i lose v_{i+1}/v_i
        roundoffs.
    """
    check_invertible(problem)
    return taken_back(problem, inner_loss(problem, remat=True), remat=True, parts=3)


def taken_back(problem: BilevelProblem, inner: Inner, remat: bool, parts: int) -> tuple[Any, Tree]:
    """The walk of `compensated_inversion`, with the parts of a word."""
    eta, words = problem.eta, Steps(problem, parts)
    batches, carry = list(steps(problem)), words.start()
    for x in batches:
        carry = words.forward(gradient(inner, words.rounded(carry)[0], eta, x), carry, x)
    loss, cotangents = pull_outer(problem, words.rounded(carry), remat)
    for x in reversed(batches):
        carry = words.theta_before(carry, x)
        grad = gradient(inner, words.rounded(carry)[0], eta, x)
        carry = words.state_before(grad, carry)
        cotangents = pull_step(problem, inner, forward_over_reverse, words.rounded(carry), grad, x, cotangents)
    return loss, pull_init(problem, cotangents)
