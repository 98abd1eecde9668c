"""Optimal checkpointing of a sequence of layers in JAX, as nested rematerialisation: `checkpointed`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from gradgate.references.chain.in_jax.methods import _tied, stage_costs
from gradgate.references.chain.schedules.budget import Budget, check_budget, in_bytes, schedule_within
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Plan, Save, Schedule, Split
from gradgate.references.chain.schedules.simulate import Simulation, simulate
from gradgate.references.contract import Tree, UsageError

Run = Callable[[Tree, Any], tuple[Any, Tree]]
"""The arrays of a layer and x -> y and the layer's state afterwards."""


@dataclass(frozen=True)
class Planned:
    """What one kind of call costs, and the schedule that fits the budget.

    Attributes:
        costs: of the layers, from their programs.
        schedule: nested.
    """

    costs: Costs
    schedule: Schedule

    @property
    def simulation(self) -> Simulation:
        """Compute and peak of a gradient, by step, as planned."""
        return simulate(self.schedule, self.costs)


class Checkpointed:
    """What `checkpointed` returns: a function ``run(params, x, *side)``, or for modules ``run(model, x, *side)``."""

    def __init__(self, layers: Any, budget: Budget) -> None:
        check_budget(budget)
        self.layers, self.budget = layers, budget
        self.plans: dict[Any, Planned] = {}
        self._allowed = 0  # the most bytes that a share was so far

    def __call__(self, params: Any, x: Any, *side: Any) -> Any:
        """The last layer's output; its derivative by JAX follows the schedule for these shapes.

        Args:
            params: one tree per layer, or the model itself where the layers are modules.
            x: what the first layer takes, one array.
            side: what every layer takes besides, such as a mask.

        The schedule is made when the shapes first occur.
        """
        layers, arrays, after = self._taken(params, side)
        plan = self.plan(params, x, *side).schedule.plan()
        y, states = _run(layers, plan, arrays, x, side)
        after(states)
        return y

    def plan(self, params: Any, x: Any, *side: Any) -> Planned:
        """The plan for such arguments, which may be arrays or `jax.ShapeDtypeStruct`."""
        layers, arrays, _ = self._taken(params, side)
        shapes = jax.tree.map(_shape, (arrays, x, side))
        leaves, tree = jax.tree.flatten(shapes)
        key = (tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves), tree, jax.config.read("jax_enable_x64"))
        if key not in self.plans:
            costs = _costs(layers, arrays, x, side)
            budget = in_bytes([costs], self.budget, allowed=self._allowed)
            self.plans[key] = Planned(costs, schedule_within(costs, budget))
            if isinstance(self.budget, float):
                self._allowed = int(budget)
        return self.plans[key]

    def _taken(self, params: Any, side: Any) -> tuple[list[Any], list[Tree], Callable[[Any], None]]:
        """Functions of (arrays, x, side), their arrays, and what to do with the states that come out."""
        if _functions(self.layers):
            if not isinstance(params, Sequence) or len(params) != len(self.layers):
                raise UsageError(
                    f"params must be a sequence of {len(self.layers)} trees, one per layer, not {_told(params)}"
                )
            return [_of_function(layer) for layer in self.layers], list(params), lambda _: None
        modules = _sequence(params)
        if _is_nnx(modules[0]):
            return _of_nnx(modules)
        taken = [_of_pytree(module) for module in modules]
        return [run for run, _ in taken], [arrays for _, arrays in taken], lambda _: None


def checkpointed(layers: Any, params: Any = None, x: Any = None, *side: Any, budget: Budget) -> Checkpointed:
    """A sequence of layers whose gradient is taken within a budget of bytes, at the least recomputation.

    Each layer is a stage. Its residuals and values in bytes and its FLOPs are read off its program; the optimal
    persistent schedule for them becomes nested `jax.checkpoint`. A plan is valid for one kind of call: its shapes and
    dtypes. Another kind gets its own plan when it first occurs.

    Args:
        layers: functions ``layer(params_l, x, *side) -> y``; or modules of flax nnx or equinox, in a list or as a
            `Sequential`. Each takes what the one before gives: one array.
        params: one tree per function, of arrays or `jax.ShapeDtypeStruct`; with modules, None.
        x: an example; None: the first plan is made by the first call.
        side: what every layer takes besides, such as a mask. It is kept throughout.
        budget: bytes, an integer; or a share, a float above 0 and at most 1, of what saving everything takes; or
            ``least``. A share is at least as many bytes as it was for an earlier kind of call. The budget holds values,
            residuals and cotangents, x among them, not parameters and their gradients.
            Bytes are those that the plan counts; XLA's scratch space and its order of operations are not planned.

    Returns:
        A function ``run(params, x, *side)``; with modules, ``run(model, x, *side)``. `jax.grad`, `jax.jit`, `jax.vmap`
        and the transformations of nnx and equinox accept it. What a module of nnx changes, such as the statistics of a
        batch norm and the counters of dropout, is changed once.

    Raises:
        UsageError: not a sequence of layers; a layer that gives no single array; another number of parameter trees;
            two modules of nnx that share a state.
        BudgetTooSmall: states the least bytes that suffice.

    Source:
        §3.1, Alg. 3.4, corrected (`schedules.solver`), as nested rematerialisation.

    Stores:
        At most `budget` bytes, as planned, if XLA keeps the order. On CPUs XLA drops the barriers that keep it.

    Computes:
        The forwards of the schedule, and one VJP per layer. Once per kind of call every layer is traced; nothing is
        compiled or run.

    Not for:
        CPUs, where it saves no memory. Layers that pass several arrays: put such layers into one.
    """
    run = Checkpointed(layers if _functions(layers) else _sequence(layers), budget)
    if x is not None:
        run.plan(params if _functions(layers) else layers, x, *side)
    return run


def _run(layers: Sequence[Any], plan: Plan, arrays: Any, x: Any, side: Any) -> tuple[Any, dict[int, Tree]]:
    """Run from the plan's start to its end; returns x and every layer's state afterwards, by number."""
    states: dict[int, Tree] = {}
    while isinstance(plan, (Save, Split)):
        if isinstance(plan, Save):
            x, states[plan.start] = _stage(layers[plan.start], arrays[plan.start], x, side)
            plan = plan.rest
        else:
            left = plan.left
            own = {n: arrays[n] for n in range(plan.start, left.end)}

            def again(own: Any, x: Any, side: Any, left: Plan = left) -> Any:
                return _run(layers, left, own, x, side)

            x, inner = jax.checkpoint(again)(own, x, side)
            states |= inner
            plan = plan.right
    x, states[plan.start] = _stage(layers[plan.start], arrays[plan.start], x, side)
    return x, states


def _stage(layer: Any, arrays: Tree, x: Any, side: Any) -> tuple[Any, Tree]:
    """One layer; its weights' gradients are computed before the cotangent of x is passed on (`methods`)."""
    kept, rest = _split(arrays)
    kept, x = _tied(kept, x)
    return layer(_joined(kept, rest), x, side)


def _split(tree: Tree) -> tuple[Tree, Tree]:
    """The tree with only the leaves that have a gradient, and the tree with only the others; None elsewhere."""
    return (
        jax.tree.map(lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, tree),
        jax.tree.map(lambda leaf: None if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf, tree),
    )


def _joined(kept: Tree, rest: Tree) -> Tree:
    return jax.tree.map(lambda a, b: b if a is None else a, kept, rest, is_leaf=lambda leaf: leaf is None)


# Layers of each kind, as functions of arrays


def _functions(layers: Any) -> bool:
    """Whether these are functions that take their parameters."""
    if not isinstance(layers, (list, tuple)) or not layers:
        return False
    return all(callable(layer) and not _is_module(layer) for layer in layers)


def _is_nnx(layer: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(layer, nnx.Module)


def _is_module(layer: Any) -> bool:
    equinox = sys.modules.get("equinox")
    return _is_nnx(layer) or (equinox is not None and isinstance(layer, equinox.Module))


def _sequence(model: Any) -> list[Any]:
    """The modules of a list or of a `Sequential`."""
    layers = getattr(model, "layers", model)
    try:
        found = list(layers)
    except TypeError:
        found = []
    if not found or not all(callable(layer) for layer in found) or not any(map(_is_module, found)):
        raise UsageError(
            f"{_told(model)} is no sequence of layers: give functions layer(params, x), or modules of flax nnx or "
            "equinox, in a list or as a Sequential"
        )
    return found


def _of_function(layer: Any) -> Any:
    return lambda arrays, x, side: (layer(arrays, x, *side), None)


def _of_pytree(module: Any) -> tuple[Run, Tree]:
    """A module that is a tree, such as equinox's: its arrays, and a function that puts them back."""
    leaves, tree = jax.tree.flatten(module)
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct))]

    def run(arrays: Any, x: Any, side: Any) -> tuple[Any, Tree]:
        filled = list(leaves)
        for n, leaf in zip(places, arrays, strict=True):
            filled[n] = leaf
        return jax.tree.unflatten(tree, filled)(x, *side), None

    return run, [leaves[n] for n in places]  # type: ignore[return-value]


def _of_nnx(modules: Sequence[Any]) -> tuple[list[Any], list[Tree], Callable[[Any], None]]:
    """Modules of flax nnx; what they change is put back into them."""
    nnx: Any = sys.modules["flax.nnx"]
    owners: dict[int, int] = {}
    for number, module in enumerate(modules):
        for _, node in nnx.iter_graph(module) if _is_nnx(module) else ():
            if not isinstance(node, nnx.Variable) or isinstance(node, nnx.Param):
                continue
            if owners.setdefault(id(node), number) != number:
                raise UsageError(
                    f"layers {owners[id(node)]} and {number} share a {type(node).__name__}, which each would change "
                    "on its own: give each its own"
                )
    parts = [nnx.split(module) if _is_nnx(module) else (None, {}) for module in modules]

    def of(module: Any, graph: Any) -> Any:
        def run(arrays: Any, x: Any, side: Any) -> tuple[Any, Tree]:
            if graph is None:
                return module(x, *side), {}
            merged = nnx.merge(graph, arrays)
            y = merged(x, *side)
            return y, nnx.state(merged, nnx.Not(nnx.Param))

        return run

    def after(states: Any) -> None:
        for number, state in states.items():
            if parts[number][0] is not None and jax.tree.leaves(state):
                nnx.update(modules[number], state)

    functions = [of(module, graph) for module, (graph, _) in zip(modules, parts, strict=True)]
    return functions, [state for _, state in parts], after


# What they cost


def _costs(layers: Sequence[Any], arrays: Sequence[Tree], x: Any, side: Any) -> Costs:
    """The costs of the layers, from their programs."""
    if len(jax.tree.leaves(x)) != 1:
        raise UsageError(
            f"x is {_told(x)}, not one array: put what passes several into one layer, or pass masks in side"
        )
    x, side = _shape(x), jax.tree.map(_stand_in, side)
    found: list[Any] = []
    sizes = [x.size * x.dtype.itemsize]
    for number, (layer, own) in enumerate(zip(layers, arrays, strict=True)):
        kept, rest = _split(own)
        kept, rest = jax.tree.map(_shape, kept), jax.tree.map(_stand_in, rest)

        def stage(p: Any, x: Any, layer: Any = layer, rest: Any = rest) -> Any:
            return layer(_joined(p, rest), x, side)[0]

        y = jax.eval_shape(stage, kept, x)
        if not isinstance(y, jax.ShapeDtypeStruct):
            raise UsageError(f"layer {number} gives {_told(y)}, not one array: put what passes several into one layer")
        found.append(stage_costs(stage, kept, x, number > 0))
        x = y
        sizes.append(x.size * x.dtype.itemsize)
    forward, backward, saved, saves_input, saves_output, forward_peak, backward_peak = zip(*found, strict=True)
    save_peak = [max(p, size + s) for p, size, s in zip(forward_peak, sizes[1:], saved, strict=True)]
    gradient = (0, *sizes[1:])
    leaves_behind = (a - b - s for a, b, s in zip(gradient, gradient[1:], saved, strict=False))
    return Costs(
        forward,
        backward,
        tuple(sizes),
        gradient,
        saved,
        saves_input,
        saves_output,
        forward_peak,
        tuple(save_peak),
        tuple(map(max, backward_peak, leaves_behind)),
    )


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), leaf.dtype if hasattr(leaf, "dtype") else jnp.result_type(leaf))


def _stand_in(leaf: Any) -> Any:
    """An array of that kind: numbers do not matter for what a program costs."""
    shape = _shape(leaf)
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0, impl=str(shape.dtype._impl.name)), shape.shape)
    return jnp.zeros(shape.shape, shape.dtype)


def _told(value: Any) -> str:
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (list, tuple)) else "")
