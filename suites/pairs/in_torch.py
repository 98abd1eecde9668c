"""Calling a pair's function in PyTorch: outputs, and the gradient by its own backward pass."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from gradgate.references.contract import NotComposable, Tree
from gradgate.suites.judging.subject import Refuted, first_line
from gradgate.suites.pairs import rules
from gradgate.suites.pairs.matching import check_outputs
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import ALL, ONLY, PairProblem, PairSpec


def gradient(pair: Pair, problem: PairProblem, options: Mapping[str, Any], role: str = "function") -> tuple[Any, Tree]:
    """⟨cotangents, outputs⟩ and its gradient, by `torch.autograd.grad`; within torch.func by `torch.func.vjp`.

    The gradient of a leaf is None if autograd gives it none, although the reference's outputs depend on the leaf.

    Raises:
        Refuted: the outputs are not those of the reference.
        NotComposable: the function refuses a transformation.
    """
    inputs = (*problem.params.values(), *problem.data["given"].values())
    if any(torch._C._functorch.is_functorch_wrapped_tensor(leaf) for leaf in inputs):
        return _transformed(pair, problem, options)
    params = {path: leaf.detach().requires_grad_() for path, leaf in problem.params.items()}
    found = forward(pair, role, problem, params, options)
    # before the backward pass, which may write over the cotangents and the outputs
    loss = problem.inner({path: out.detach() for path, out in found.items()})
    grads = backward(pair, problem, found, params)
    reached = None
    for path, grad in grads.items():
        if grad is None:
            reached = _reached(pair, problem, grads) if reached is None else reached
            grads[path] = None if path in reached else torch.zeros_like(params[path])
    return loss, grads


def forward(
    pair: Pair, role: str, problem: PairProblem, params: Tree, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Path -> output of a function at leaves.

    Raises:
        Refuted: the outputs are not those of the reference.
    """
    with torch.enable_grad():
        found: dict[str, Any] = pair.outputs(role, problem, params, options)
    check_outputs(found, problem.data["cotangents"])
    return found


def backward(pair: Pair, problem: PairProblem, found: Mapping[str, Any], params: Tree) -> dict[str, Any]:
    """Path -> gradient of every leaf that requires one, or None.

    Outputs without a cotangent are left out, as by a user's loss that does not use them.
    """
    cotangents = problem.data["cotangents"]
    asked = [path for path in found if problem.spec.cotangents in (ALL, "zero", ONLY + path)]
    asked = [path for path in asked if found[path].requires_grad]
    wanted = {path: leaf for path, leaf in params.items() if leaf.requires_grad}
    if not asked:
        return dict.fromkeys(wanted)
    upstream = [cotangents[path].to(found[path].dtype) for path in asked]
    with rules.named(pair):
        return pull(pair, [found[path] for path in asked], wanted, upstream)


def pull(pair: Pair, outs: list[Any], leaves: Tree, cotangents: list[Any], **how: Any) -> dict[str, Any]:
    """Path -> gradient of a leaf, or None, by `torch.autograd.grad` or, if the pair asks for it, by ``backward()``."""
    if not pair.by_backward:
        found = torch.autograd.grad(outs, list(leaves.values()), cotangents, allow_unused=True, **how)
        _settle(outs)
        return dict(zip(leaves, found, strict=True))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using backward\\(\\) with create_graph=True")
        torch.autograd.backward(outs, cotangents, **how)
    _settle(outs)
    grads = {path: leaf.grad for path, leaf in leaves.items()}
    for leaf in leaves.values():
        leaf.grad = None
    return grads


def _settle(outs: list[Any]) -> None:
    """After a backward pass on a device: copy what it has overwritten into the inputs and cotangents on the CPU."""
    for copies in {out.copies for out in outs if hasattr(out, "copies")}:  # of `transfer.call`
        copies.settle()


def _transformed(pair: Pair, problem: PairProblem, options: Mapping[str, Any]) -> tuple[Any, Tree]:
    def outputs(params: Tree) -> dict[str, Any]:
        found = pair.outputs("function", problem, params, options)
        check_outputs(found, problem.data["cotangents"])
        return found

    try:
        pulled: Any = torch.func.vjp(outputs, problem.params)
        found, pull = pulled
        [grads] = pull({path: problem.data["cotangents"][path].to(out.dtype) for path, out in found.items()})
    except Refuted:
        raise
    except Exception as error:
        raise NotComposable(f"{pair.called} does not work within torch.func: {first_line(error)}") from error
    return problem.inner(found), grads


def _reached(pair: Pair, problem: PairProblem, grads: Tree) -> set[str]:
    """Leaves without a gradient of the function on which autograd finds that the reference's outputs depend."""
    asked = [path for path, grad in grads.items() if grad is None]
    params = {path: leaf.detach().requires_grad_(path in asked) for path, leaf in problem.params.items()}
    grads = backward(pair, problem, forward(pair, "reference", problem, params), params)
    return {path for path, grad in grads.items() if grad is not None}


def residual_bytes(pair: Pair, spec: PairSpec, options: Mapping[str, Any], role: str) -> int:
    """The bytes kept between the forward and the backward pass; the forward pass is run once."""
    from gradgate.hw_profiles.residuals import of_torch
    from gradgate.suites.measuring import fakes

    def forward(given: PairProblem) -> Any:
        return pair.outputs(role, given, given.params, options)

    around, run, problem = fakes.around(pair if role == "function" else None, forward, spec)
    with around:
        params = {path: leaf.detach().requires_grad_() for path, leaf in problem.params.items()}
        inputs = [*params.values(), *problem.data["given"].values()]
        return of_torch(lambda: run(problem.with_params(params)), inputs)


def flops(pair: Pair, spec: PairSpec) -> float:
    """FLOPs of the reference's products of matrices, counted in one run."""
    from gradgate.hw_profiles.work import torch_flops

    problem = dataclasses.replace(spec, dtype=spec.widest).build("torch")
    with torch.no_grad():
        return float(torch_flops(lambda: pair.outputs("reference", problem, problem.params)))
