"""Gradients of the chain problem in JAX: the same schedules as nested rematerialisation.

A nested schedule is a `Plan`, and a plan is a program: "save" applies a stage as it is, whose residuals JAX then keeps;
"split" wraps the left segment in `jax.checkpoint`, which keeps the segment's input alone, and runs the segment by its
own plan when its turn comes in the backward pass. XLA orders operations and frees memory; the memory laws check that it
does not keep what a schedule drops.

The stages are the layers and the head: N + 1 of them.

In the sections Stores and Computes, a number is one array element of the problem's dtype, and N is the number of
layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core

from gradgate.references.chain.problem import ChainProblem
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Plan, Save, Schedule, Split
from gradgate.references.chain.schedules.solver import precise_dp as solve
from gradgate.references.contract import Spec, Tree


def backprop(problem: ChainProblem) -> tuple[jax.Array, Tree]:
    """Loss and gradient by plain reverse-mode differentiation.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.1.4: what every other method is compared with.

    Stores:
        The residuals of all n stages: memory grows linearly with N.

    Computes:
        n evaluations of stages and n VJPs.

    Not for:
        Chains whose residuals do not fit in memory. Use `precise_dp` with a budget.
    """
    return jax.value_and_grad(problem.loss)(problem.params)


def _scheduled(
    name: str, make: Callable[[int], Schedule], documentation: str
) -> Callable[[ChainProblem], tuple[Any, Tree]]:
    def method(problem: ChainProblem) -> tuple[jax.Array, Tree]:
        return by_schedule(problem, make(problem.spec.layers + 1))

    method.__name__ = method.__qualname__ = name
    method.__doc__ = documentation
    return method


sqrt_n = _scheduled(
    "sqrt_n",
    classic.sqrt_n,
    """Loss and gradient with about √N segments: each is run again and recorded when its turn comes.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.5.1; Chen et al. (2016).

    Stores:
        With k = round(√n) segments, the k − 1 values between segments and the residuals of one segment, ⌈n/k⌉ stages.
        Both grow like √N. XLA for CPUs drops the barriers that keep this order, and takes more memory.

    Computes:
        2n − ⌈n/k⌉ evaluations of stages, because only the last segment runs once, and n VJPs.

    Not for:
        Layers of very unequal size or cost: segments are equal in length, not in bytes. Use `precise_dp`.
    """,
)
recursive = _scheduled(
    "recursive",
    classic.recursive,
    """Loss and gradient by halving: the right half of a segment runs backward first, then the left half runs again.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.5.2, k = 1.

    Stores:
        ⌈log2 n⌉ values at most, the value in passing and the residuals of one stage: memory grows like log N. XLA for
        CPUs drops the barriers that keep this order, and takes more memory.

    Computes:
        n + n·log2(n)/2 evaluations of stages if n is a power of two (`counts.recursive` has every n), and n VJPs.

    Not for:
        Any use but comparison: `revolve` stores as many values and never runs more stages.
    """,
)
recompute_all = _scheduled(
    "recompute_all",
    classic.recompute_all,
    """Loss and gradient with x_0 alone stored: every stage is run again from there.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.5.2.

    Stores:
        x_0, the value in passing and the residuals of one stage: memory does not grow with N. XLA for CPUs drops the
        barriers that keep this order, and takes more memory.

    Computes:
        n + n(n − 1)/2 evaluations of stages and n VJPs.

    Not for:
        Chains of more than a few stages: FLOPs grow like N². Use `revolve`.
    """,
)
revolve = _scheduled(
    "revolve",
    lambda stages: classic.revolve(stages, classic.usual_checkpoints(stages)),
    """Loss and gradient with the fewest forwards that ⌈log2 n⌉ stored values allow, by REVOLVE.

    The N layers and the head are n = N + 1 stages.

    Args:
        problem: any `ChainProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Source:
        §2.5.3; Griewank and Walther (2000).

    Stores:
        s = ⌈log2 n⌉ values, at least one, x_0 among them, the value in passing and the residuals of one stage: memory
        grows like log N. XLA for CPUs drops the barriers that keep this order, and takes more memory.

    Computes:
        n + r·n − C(s + r, s + 1) evaluations of stages, with the least r for which C(s + r, s) ≥ n, and n VJPs.

    Not for:
        Layers of very unequal size or cost: it counts values, not bytes. Use `precise_dp`.
    """,
)


def uniform_dp(problem: ChainProblem, *, budget: int) -> tuple[jax.Array, Tree]:
    """Loss and gradient by the cheapest uniform policy whose peak is within a budget of bytes.

    The policy of Gruslys et al. stores a given number of values at once: its slots. Among the numbers of slots whose
    peak, as planned, is within the budget, the one of least FLOPs is used.

    Args:
        problem: any `ChainProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        budget: bytes, an integer of at least 1 that suffices for the chain. It holds values, residuals and cotangents,
            x_0 among them, but not parameters and their gradients. Bytes are those that `costs_of` plans; XLA's scratch
            space and order are not planned.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `budget` is not an integer of at least 1, or is too small; the message states what suffices.

    Source:
        §2.5.5, Alg. 2.1, with t bounded by N.

    Stores:
        At most `budget` bytes of values, residuals and cotangents, as planned.

    Computes:
        The fewest evaluations of stages that m slots allow (`counts.least_forwards`), and one VJP per stage. Once per
        shape, stages are traced; once per shape and budget, a schedule per number of slots is made and simulated.

    Not for:
        Layers of very unequal cost: it counts stages, not FLOPs. Use `precise_dp`.
    """
    return by_schedule(problem, classic.uniform_within(costs_of(problem.spec), budget))


def precise_dp(problem: ChainProblem, *, budget: int) -> tuple[jax.Array, Tree]:
    """Loss and gradient by the persistent lazy schedule of least FLOPs whose peak is within a budget of bytes.

    Args:
        problem: any `ChainProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        budget: bytes, an integer of at least 1 that suffices for the chain. It holds values, residuals and cotangents,
            x_0 among them, but not parameters and their gradients. Bytes are those that `costs_of` plans; XLA's scratch
            space and order are not planned.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `budget` is not an integer of at least 1, or is too small; the message states what suffices.

    Source:
        §3.1, Alg. 3.4, corrected (`schedules.solver`).

    Stores:
        At most `budget` bytes of values, residuals and cotangents, as planned.

    Computes:
        The least FLOPs of any persistent lazy schedule within the budget, and one VJP per stage. Once per shape, stages
        are traced; once per shape and budget, the solver takes N³/6 additions per slot of the budget.

    Not for:
        Chains of hundreds of layers whose shape or budget changes at every call: the solver then takes longer than the
        gradient. Use `revolve`.
    """
    return by_schedule(problem, _solved(problem.spec.static(), budget))


def by_schedule(problem: ChainProblem, schedule: Schedule) -> tuple[jax.Array, Tree]:
    """Loss and gradient by a nested schedule.

    Args:
        problem: any `ChainProblem` of JAX arrays.
        schedule: nested, of N + 1 stages: the layers and the head.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        UsageError: the schedule is not nested.

    Stores:
        What `schedules.simulate` says of the schedule, if XLA keeps its order.

    Computes:
        The forwards of the schedule, and one VJP per stage.
    """
    layers, plan = stages(problem), schedule.plan()

    def loss(params: Tree) -> jax.Array:
        return _run(layers, plan, [*params["layers"], {}], problem.x)

    return jax.value_and_grad(loss)(problem.params)


def rematerialised(layers: Sequence[Callable[[Tree, Any], Any]], schedule: Schedule) -> Callable[[Any, Any], Any]:
    """A function ``f(params, x)`` whose derivative by JAX follows a nested schedule.

    Args:
        layers: N maps ``layer(params_l, x) -> y``.
        schedule: nested, of N stages.

    Returns:
        ``f``, of one tree of parameters per layer and x_0; it returns x_N.

    Raises:
        UsageError: the schedule is not nested.
    """
    return functools.partial(_run, layers, schedule.plan())


@jax.custom_vjp
def _tied(p: Tree, x: Any) -> tuple[Tree, Any]:
    """Both unchanged; in the backward pass, the cotangent of x leaves only once those of p have been computed.

    A schedule runs a stage backward as one operation. Without this, compilers postpone the products for the weights to
    the end, and keep every value and every cotangent for them: 2N of each. Further derivatives are exact too.
    """
    return p, x


_tied.defvjp(lambda p, x: ((p, x), None), lambda _, cotangents: jax.lax.optimization_barrier(cotangents))


def _run(layers: Sequence[Callable[[Tree, Any], Any]], plan: Plan, params: Any, x: Any) -> Any:
    """Run from the plan's start to its end; `params` holds those of every stage of the plan, by index."""
    while isinstance(plan, (Save, Split)):
        if isinstance(plan, Save):
            x, plan = layers[plan.start](*_tied(params[plan.start], x)), plan.rest
        else:
            own = {n: params[n] for n in range(plan.start, plan.left.end)}
            x, plan = jax.checkpoint(functools.partial(_run, layers, plan.left))(own, x), plan.right
    return layers[plan.start](*_tied(params[plan.start], x))


def stages(problem: ChainProblem) -> list[Callable[[Tree, Any], Any]]:
    """The layers, and the head, which takes no parameters."""
    return [*problem.layers, lambda _, y: problem.head(y)]


def costs_of(spec: Spec) -> Costs:
    """The costs of the stages of a chain, from their programs; the same for every Spec of one shape.

    Args:
        spec: any `ChainSpec`; its numbers are not built.

    Returns:
        Costs of N + 1 stages: residuals and values in bytes, compute in FLOPs.

    Computes:
        Traces every stage a few times, once per shape: the result is kept. Nothing is compiled or run.
    """
    return _costs(spec.static())


@functools.lru_cache(maxsize=256)
def _costs(spec: Any) -> Costs:
    from gradgate.references.backends import precision
    from gradgate.references.draws import shapes

    with precision("jax", spec.dtype):
        problem: Any = shapes(spec)
        params, x = [*problem.params["layers"], {}], problem.x
        found: list[Any] = []
        sizes = [_bytes(x)]
        for layer, p in zip(problem.layers, params, strict=False):
            found.append(stage_costs(layer, p, x, len(found) > 0))
            x = jax.eval_shape(layer, p, x)
            sizes.append(_bytes(x))
        found.append(stage_costs(_head(problem), problem.data, x, True))
        sizes.append(x.dtype.itemsize)
    forward, backward, saved, saves_input, saves_output, forward_peak, backward_peak = zip(*found, strict=True)
    save_peak = [max(p, size + s) for p, size, s in zip(forward_peak, sizes[1:], saved, strict=True)]
    return Costs(
        forward,
        backward,
        tuple(sizes),
        (0, *sizes[1:]),
        saved,
        saves_input,
        saves_output,
        forward_peak,
        tuple(save_peak),
        backward_peak,
    )


def _head(problem: Any) -> Callable[[Any, Any], Any]:
    return lambda data, y: problem._replace(data=data).head(y)


def stage_costs(
    stage: Callable[[Tree, Any], Any], p: Tree, x: Any, needs_input_grad: bool = True
) -> tuple[float, float, int, bool, bool, int, int]:
    """Forward and backward FLOPs, saved bytes, whether input and output are saved, peaks forward and backward.

    What JAX saves of a stage is what its `jax.vjp` closes over: an output of the traced program that is no parameter.
    Peaks are estimates: forward, the output and the largest intermediate; backward, all cotangents, x's and p's.
    """
    from gradgate.hw_profiles import work

    def linearised(p: Tree, x: Any) -> Any:
        return jax.vjp(stage, p, x) if needs_input_grad else jax.vjp(lambda p: stage(p, x), p)

    def run_both(p: Tree, x: Any, cotangent: Any) -> Any:
        result, pull = linearised(p, x)
        return result, pull(cotangent)

    program = jax.make_jaxpr(linearised)(p, x)
    inputs, result, residuals = program.jaxpr.invars, program.jaxpr.outvars[0], program.jaxpr.outvars[1:]
    kept = {id(v): v for v in residuals if not isinstance(v, jax.extend.core.Literal) and v not in inputs[:-1]}
    saved = sum(_bytes(v.aval) for v in kept.values() if v is not inputs[-1] and v is not result)
    y = jax.eval_shape(stage, p, x)
    alone = jax.make_jaxpr(stage)(p, x).jaxpr
    largest = max((_bytes(v.aval) for eqn in alone.eqns for v in eqn.outvars if v is not alone.outvars[0]), default=0)
    x64 = x.dtype.itemsize == 8
    forward = float(work.of(stage, (p, x), x64=x64).flops)
    both = float(work.of(run_both, (p, x, y), x64=x64).flops)
    gradients = sum(_bytes(leaf) for leaf in jax.tree.leaves(p)) + needs_input_grad * _bytes(x)
    return (
        forward,
        max(both - forward, 0.0),
        saved,
        id(inputs[-1]) in kept,
        id(result) in kept,
        _bytes(y) + largest,
        gradients,
    )


def _bytes(array: Any) -> int:
    return int(array.size * array.dtype.itemsize)


@functools.lru_cache(maxsize=256)
def _solved(spec: Any, budget: Any) -> Schedule:
    return solve(_costs(spec), budget)
