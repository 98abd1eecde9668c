"""Residual bytes: what a program keeps between its forward and its backward pass.

The definition is one for both frameworks. Counted is every array that the forward pass makes and that the backward pass
keeps alive, once, however often it is saved. Inputs, outputs, and what existed before (parameters in a closure,
constants) do not count, and neither do views of them. In PyTorch, storages are counted while the forward pass runs; in
JAX, the residuals of `jax.vjp` in its jaxpr, where a transposed or reshaped array is a view.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from typing import Any


def of_torch(forward: Callable[[], Any], inputs: Sequence[Any]) -> int:
    """Bytes of the storages that a forward pass makes and that its outputs keep alive.

    This includes what autograd saves, and what a function stores on its ``ctx`` or anywhere else.

    Args:
        forward: runs the forward pass and returns its outputs: a tree of tensors with their graph. It is called twice,
            and the second call is counted, as in `torch_memory.peak`.
        inputs: the tensors that the forward pass reads.

    Returns:
        The bytes, counted by storage: a view costs nothing, and a storage that is saved twice counts once. Storages of
        inputs and outputs do not count, nor do those that existed before, such as parameters in a closure and tables
        that the function keeps. A storage that was resized counts with its last size.
    """
    import torch
    from torch.utils import _pytree

    from gradgate.hw_profiles.torch_tracker import Tracker

    with torch.enable_grad():
        forward()
        with Tracker() as tracker:
            outputs = forward()
    gc.collect()
    around = _pytree.tree_leaves([outputs, list(inputs)])
    return tracker.alive(leaf for leaf in around if isinstance(leaf, torch.Tensor))


_VIEWS = ("transpose", "reshape", "squeeze", "expand_dims")
"""Primitives of JAX whose result has the numbers of its first argument, all of them and in some order."""


def of_jax(forward: Callable[..., Any], arguments: Sequence[Any], *, x64: bool = False) -> int:
    """Bytes that ``jax.vjp`` of a function keeps for the backward pass, counted in its jaxpr.

    Args:
        forward: a function of trees of floating-point arrays; it is traced and not run.
        arguments: arrays or `jax.ShapeDtypeStruct`.
        x64: whether to trace with 64 bits.

    Returns:
        Bytes of the residuals, each counted once. Inputs, outputs and constants of the program do not count. A
        transposed or reshaped copy of one of these does not count either, because in PyTorch it is a view. XLA never
        keeps more. It may keep less, because it can recompute cheap values.
    """
    import jax
    import jax.extend.core

    with jax.enable_x64(x64):
        closed = jax.make_jaxpr(lambda *given: jax.vjp(forward, *given))(*arguments)
        count = len(jax.tree.leaves(jax.eval_shape(forward, *arguments)))
    jaxpr = closed.jaxpr
    outputs, kept = jaxpr.outvars[:count], jaxpr.outvars[count:]
    kept = [variable for variable in kept if not isinstance(variable, jax.extend.core.Literal)]
    viewed = {
        id(equation.outvars[0]): equation.invars[0] for equation in jaxpr.eqns if equation.primitive.name in _VIEWS
    }

    def viewed_of(variable: Any) -> Any:
        while id(variable) in viewed:
            variable = viewed[id(variable)]
        return variable

    left_out = {id(viewed_of(variable)) for variable in (*jaxpr.invars, *jaxpr.constvars, *outputs)}
    residuals = {id(root): root.aval for root in map(viewed_of, kept)}
    return sum(
        math.prod(aval.shape) * aval.dtype.itemsize
        for place, aval in residuals.items()
        if place not in left_out and hasattr(aval, "shape")
    )
