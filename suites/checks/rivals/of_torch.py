"""PyTorch's gradcheck."""

from __future__ import annotations

import warnings
from typing import Any

from gradgate.references.backends import leaves, named_leaves
from gradgate.references.contract import Tree
from gradgate.suites.checks.base import Case
from gradgate.suites.checks.rivals.words import framework, in_one_line
from gradgate.suites.judging.subject import Refuted


def gradcheck(case: Case) -> None:
    """`torch.autograd.gradcheck` of the loss with the method as its backward pass; settings: ``fast``."""
    torch = framework(case, "torch")
    from torch.autograd.gradcheck import GradcheckError

    problem = case.problem()
    inputs = [leaf.detach().clone().requires_grad_() for leaf in leaves(problem.params)]

    class Loss(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(ctx: Any, *flat: Any) -> Any:
            ctx.save_for_backward(*flat)
            return problem.loss(_filled(problem.params, flat)).detach()

        @staticmethod
        def backward(ctx: Any, cotangent: Any) -> Any:
            params = _filled(problem.params, [leaf.detach() for leaf in ctx.saved_tensors])
            with torch.enable_grad():
                _, grads = case.subject.call(problem.with_params(params), case.options)
            return tuple(leaf * cotangent for leaf in leaves(grads))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.autograd.gradcheck(Loss.apply, inputs, fast_mode=case.settings["fast"])
    except GradcheckError as error:
        raise Refuted(in_one_line(error)) from None


def _filled(tree: Tree, flat: Any) -> Tree:
    """The structure of a tree with other leaves, in the order of `named_leaves`."""
    found = dict(zip(named_leaves(tree), flat, strict=True))

    def fill(part: Tree, path: str) -> Tree:
        if isinstance(part, dict):
            return {key: fill(part[key], f"{path}.{key}" if path else str(key)) for key in part}
        if isinstance(part, (list, tuple)):
            return type(part)([fill(item, f"{path}[{i}]") for i, item in enumerate(part)])
        return found[path]

    return fill(tree, "")
