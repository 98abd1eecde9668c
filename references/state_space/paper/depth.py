"""What can run at once: a program's longest chain of operations, and its batches of VJPs one after another.

In a chain each operation needs a result of the one before it. The longest chain is the time of the program on a machine
without limits. An operation on whole arrays is one step for any size; a sum of n terms is ⌈log₂ n⌉ steps, and a product
of matrices is one step more than its sums. Moving, choosing and converting numbers takes no step, and neither do
operations on integers. An array is one unit: an operation that needs one element waits for all of them, so the chain is
an upper bound on the chain between single numbers. Nothing is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradgate.hw_profiles import call_count, trip_count, work
from gradgate.hw_profiles.calls import MARKER
from gradgate.references import registry
from gradgate.references.backends import precision
from gradgate.references.state_space.problem import StateSpaceProblem, StateSpaceSpec

MOVES = frozenset(
    {
        "broadcast_in_dim",
        "concatenate",
        "convert_element_type",
        "copy",
        "dynamic_slice",
        "dynamic_update_slice",
        "expand_dims",
        "gather",
        "pad",
        "reshape",
        "rev",
        "select_n",
        "slice",
        "split",
        "squeeze",
        "stop_gradient",
        "transpose",
        "optimization_barrier",
    }
)
"""Primitives of JAX that only move numbers."""
TORCH_MOVES = frozenset(
    {
        "view",
        "_unsafe_view",
        "reshape",
        "expand",
        "permute",
        "transpose",
        "t",
        "squeeze",
        "unsqueeze",
        "select",
        "slice",
        "cat",
        "stack",
        "clone",
        "detach",
        "alias",
        "copy_",
        "new_zeros",
        "zeros_like",
        "ones_like",
        "zeros",
        "ones",
        "full",
        "index",
        "index_select",
        "index_copy",
        "select_backward",
        "slice_backward",
        "embedding",
        "lift_fresh_copy",
        "_to_copy",
        "arange",
        "eye",
        "scalar_tensor",
        "unbind",
        "split",
        "constant_pad_nd",
        "where",
        "new_empty_strided",
        "squeeze_",
        "unsqueeze_",
        "empty_like",
        "fill",
        "full_like",
        "gather",
        "getitem",
        "repeat",
        "as_strided",
    }
)
"""Operators of ATen that only move or make numbers."""
Steps = Callable[[Any], int]
"""A function from an equation of JAX to the number of its steps."""
NEVER = -math.inf
"""The chain between two arrays that do not depend on each other."""


def of_jax(program: Callable[..., Any], arguments: Sequence[Any], steps: Steps | None = None) -> int:
    """The longest chain of operations of ``program(*arguments)``; arguments are trees of arrays or of their shapes.

    Args:
        program, arguments: what is traced.
        steps: gives the steps of an equation that runs no program; None: those of the module's docstring.

    Raises:
        LookupError: the program has a while loop, whose chain cannot be read from the text.

    Cost: a trace; and for each loop of n steps log₂ n products of matrices with a row per carried array.
    """
    import jax
    from jax.interpreters import partial_eval

    closed = jax.make_jaxpr(program)(*arguments)
    live, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)
    return int(_chains(live, steps or _steps).max())


def _chains(jaxpr: Any, steps: Steps) -> Any:
    """The longest chain from each argument, and from the start, to each result: (results, arguments + 1)."""
    n = len(jaxpr.invars)
    start = np.full(n + 1, NEVER)
    start[n] = 0
    known: dict[Any, Any] = {}
    for place, var in enumerate(jaxpr.invars):
        known[var] = start.copy()
        known[var][place] = 0

    def of(var: Any) -> Any:
        return start if hasattr(var, "val") else known.get(var, start)

    for eqn in jaxpr.eqns:
        given = np.stack([start, *(of(var) for var in eqn.invars)])
        found = _through(eqn, steps)
        if found is None:
            made = np.repeat((given.max(0) + steps(eqn))[None], len(eqn.outvars), 0)
        else:
            made = _after(found, np.concatenate([given[1:], start[None]]))
        known |= dict(zip(eqn.outvars, made, strict=True))
    return np.stack([of(var) for var in jaxpr.outvars])


def _through(eqn: Any, steps: Steps) -> Any:
    """The chains through an equation that runs a program, from its operands and the start; None: it runs no program."""
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        return _scan(_chains(params["jaxpr"].jaxpr, steps), *trip_count.passed_to_scan(params), params["length"])
    if name == "cond":
        branches = np.stack([_chains(branch.jaxpr, steps) for branch in params["branches"]]).max(0)
        return np.concatenate([branches.max(1, keepdims=True), branches], 1)  # all results wait for the choice
    if name == "while":
        raise LookupError("the longest chain of a while loop is not to be read from its text")
    if name in work.CALLS:
        inner = params[work.CALLS[name]]
        return _chains(getattr(inner, "jaxpr", inner), steps)
    return None


def _scan(body: Any, constants: int, carried: int, length: int) -> Any:
    """The chains through a loop: the table of the body's chains to the power `length`.

    The table has a row per carried and stacked array. Its states are the operands, the start, and the longest chain so
    far of each stacked result.
    """
    operands = body.shape[1] - 1
    stacked = len(body) - carried
    one = np.full((operands + 1 + stacked,) * 2, NEVER)
    np.fill_diagonal(one, 0)
    one[constants : constants + carried] = NEVER
    one[constants : constants + carried, : operands + 1] = body[:carried]
    one[operands + 1 :, : operands + 1] = body[carried:]
    all_steps = np.full_like(one, NEVER)
    np.fill_diagonal(all_steps, 0)
    while length:
        if length % 2:
            all_steps = _after(one, all_steps)
        one, length = _after(one, one), length // 2
    rows = [*range(constants, constants + carried), *range(operands + 1, len(one))]
    return all_steps[rows, : operands + 1]


def _after(left: Any, right: Any) -> Any:
    """The longest chains that go through `right` and then `left`."""
    return np.stack([(row[:, None] + right).max(0) for row in left])


def _steps(eqn: Any) -> int:
    """Steps of an equation of JAX."""
    name, shapes = eqn.primitive.name, [getattr(var.aval, "shape", ()) for var in eqn.invars]
    if name in MOVES or all(var.aval.dtype.kind in "iub" for var in eqn.outvars):
        return 0
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 1 + _levels(math.prod(shapes[0][axis] for axis in contracted))
    if name.startswith("reduce_"):
        return _levels(math.prod(shapes[0][axis] for axis in eqn.params["axes"]))
    if name.startswith("cum"):
        return _levels(shapes[0][eqn.params["axis"]])
    return 0 if name == MARKER else 1


def _levels(terms: int) -> int:
    return math.ceil(math.log2(max(terms, 1)))


def of_torch(program: Callable[..., Any], *arguments: Any) -> int:
    """The longest chain of operations that a PyTorch program runs, by its graph of ATen operators.

    Cost: runs the program once, and about a millisecond for each of its operators.
    """
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    depths: dict[Any, int] = {}
    deepest = 0
    for node in make_fx(program)(*arguments).graph.nodes:
        before = max((depths[each] for each in node.all_input_nodes), default=0)
        depths[node] = before + (_torch_steps(node, torch.Tensor) if node.op == "call_function" else 0)
        if node.op == "output":
            deepest = depths[node]
    return deepest


def _torch_steps(node: Any, tensor: Any) -> int:
    """Steps of an operator of ATen."""
    name = getattr(getattr(node.target, "overloadpacket", node.target), "__name__", "")
    found: Any = node.meta.get("val")
    if name in TORCH_MOVES or (isinstance(found, tensor) and not found.is_floating_point()):
        return 0
    first: Any = next((each.meta.get("val") for each in node.all_input_nodes if each.meta.get("val") is not None), None)
    if name in ("mm", "bmm", "addmm", "dot", "mv", "baddbmm"):
        return 1 + _levels(node.all_input_nodes[-1].meta["val"].shape[-2])
    if name in ("sum", "mean", "amax", "prod", "logsumexp"):
        return _levels(first.numel() // max(found.numel(), 1))
    return 1


def of_method(name: str, framework: str, spec: StateSpaceSpec, **options: Any) -> int:
    """The longest chain of operations of loss and gradient by a method.

    Raises:
        LookupError: the program has a while loop.
    """
    [declared] = registry.methods("state_space", name, framework)
    method = registry.load(declared.implementation)
    with precision(framework, spec.dtype):
        problem = spec.build("jax" if framework == "jax" else "torch")

        def program(params: Any) -> Any:
            return method(problem.with_params(params), **options)

        return (of_jax if framework == "jax" else lambda run, given: of_torch(run, *given))(program, (problem.params,))


def of_nets(name: str, spec: StateSpaceSpec, kind: str, **options: Any) -> int:
    """The longest chain of calls of the nets by a method in JAX, where each needs the result of the one before it.

    Args:
        name: the name of the method.
        spec: the problem.
        kind: the kind of calls, ``evaluations`` or ``vjps``.
        options: options of the method.
    """
    [declared] = registry.methods("state_space", name, "jax")
    method = registry.load(declared.implementation)

    def steps(eqn: Any) -> int:
        return int(eqn.primitive.name == MARKER and eqn.params["kind"] == kind)

    with precision("jax", spec.dtype):
        problem = spec.build("jax").counted(lambda net, kind, number: None)
        return of_jax(lambda problem: method(problem, **options), (problem,), steps)


class Together(StateSpaceProblem):
    """A problem whose nets count each call as one, for any number of tokens."""

    def positions(self, net: str, *args: Any) -> int:
        """One."""
        return 1


def batches(name: str, framework: str, spec: StateSpaceSpec, **options: Any) -> dict[str, int]:
    """Batches of VJPs that a method runs one after another, by net. One call of a net is one batch.

    Loops run their steps one after another, even if the steps do not need each other.
    """
    [declared] = registry.methods("state_space", name, framework)
    method = registry.load(declared.implementation)
    found: dict[str, int] = {}

    def on_call(net: str, kind: str, number: int) -> None:
        if kind == "vjps":
            found[net] = found.get(net, 0) + number

    with precision(framework, spec.dtype):
        built = spec.build("jax" if framework == "jax" else "torch")
        problem = Together(built.spec, built.backend, built.params, built.data).counted(on_call)
        if framework == "jax":
            counted = call_count.of(lambda problem: method(problem, **options), (problem,))
            return {net: calls.vjps for net, calls in counted.calls.items()}
        method(problem, **options)
    return found
