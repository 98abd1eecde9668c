# /// script
# dependencies = ["betty-ml==0.1.1"]
#
# [tool.gradgate]
# home = "https://github.com/leopard-ai/betty"
# framework = "torch"
# no-deps = true
# seconds = 100
# notes = "the functions of betty.hypergradient get stand-ins for its problems; the lower level is quadratic"
# ///
"""betty-ml 0.1.1: its hypergradients against the derivative of the solution of a quadratic problem."""

import types

import torch
from betty.hypergradient.cg import cg
from betty.hypergradient.darts import darts
from betty.hypergradient.neumann import neumann

import gradgate
from gradgate import normal


def matrix(a):
    """Symmetric and positive definite, with eigenvalues of at least 1."""
    return torch.eye(len(a), dtype=a.dtype) + a @ a.T / len(a)


class Hypergradient(torch.autograd.Function):
    """W = A⁻¹·b with the gradient by b that a function of betty computes. A = `matrix` of a."""

    @staticmethod
    def forward(ctx, b, a, method, settings):
        """The solution of the lower level, ½·wᵀ·A·w − b·w."""
        solution = torch.linalg.solve(matrix(a), b)
        ctx.save_for_backward(b, a, solution)
        ctx.how = method, settings
        return solution

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, upstream):
        """−(∂²L/∂b∂w)·A⁻¹·upstream, by betty."""
        b, a, solution = ctx.saved_tensors
        method, settings = ctx.how
        with torch.enable_grad():
            w, upper = solution.clone().requires_grad_(), b.detach().clone().requires_grad_()

            def lower_loss(batch):
                return 0.5 * w @ matrix(a) @ w - upper @ w

            lower = types.SimpleNamespace(
                paths=(),
                cur_batch=None,
                training_step_exec=lower_loss,
                config=types.SimpleNamespace(**settings),
                parameters=lambda: [w],
                trainable_parameters=lambda: [w],
            )
            outer = types.SimpleNamespace(trainable_parameters=lambda: [upper])
            [found] = method([upstream.clone()], lower, outer)
        return found, None, None, None


def by_cg(b, a, alpha=1.0):
    """Conjugate gradients, as many steps as there are unknowns."""
    return Hypergradient.apply(b, a, cg, {"cg_iterations": len(b), "cg_alpha": alpha})


def by_darts(b, a):
    """Finite differences of one step of the lower level: the matrix is taken for the identity."""
    return Hypergradient.apply(b, a, darts, {"darts_alpha": 0.01})


def by_neumann(b, a, terms=3):
    """A Neumann series."""
    return Hypergradient.apply(b, a, neumann, {"neumann_iterations": terms, "neumann_alpha": 0.3})


def solved(b, a):
    """The reference for `by_cg`."""
    return torch.linalg.solve(matrix(a), b)


def with_gradient_of(value, other):
    """The value of one tensor with the gradient of another one."""
    return value.detach() + other - other.detach()


def plain_neumann(b, a, terms=3):
    """The reference for `by_neumann`: the solution, with the gradient of 0.3·Σ (1 − 0.3·A)ᵏ·b."""
    term = total = b
    for _ in range(terms):
        term = term - 0.3 * matrix(a) @ term
        total = total + term
    return with_gradient_of(torch.linalg.solve(matrix(a), b), 0.3 * total)


def plain_darts(b, a):
    """The reference for `by_darts`: the solution, with the gradient of b."""
    return with_gradient_of(torch.linalg.solve(matrix(a), b), b)


DIRECTION = "the next direction is built from the old residual in place of the new one"
NOTHING = "a gradient of 0 of the upper level is divided by its norm 0, so the answer is NaN"
WRONG = ("gradient_exact", "gradient_float64", "gradient_float32", "options")
INPUTS = {"b": normal("H"), "a": normal("H H", gradient=False)}
SIZES = {"H": (3, 1, 2)}
conjugate = gradgate.Pair(
    by_cg,
    reference=solved,
    name="betty_cg",
    inputs=INPUTS,
    dims=SIZES,
    options={"alpha": (1.0, 0.5)},
    dtypes=("float64", "float32"),
    expected=dict.fromkeys(WRONG, DIRECTION) | {"cotangents": NOTHING},
)
series = gradgate.Pair(
    by_neumann,
    reference=plain_neumann,
    name="betty_neumann",
    inputs=INPUTS,
    dims=SIZES,
    options={"terms": (3, 0, 10)},
    dtypes=("float64", "float32"),
)
differences = gradgate.Pair(
    by_darts,
    reference=plain_darts,
    name="betty_darts",
    inputs=INPUTS,
    dims=SIZES,
    dtypes=("float64",),
    expected={"cotangents": NOTHING},
)
