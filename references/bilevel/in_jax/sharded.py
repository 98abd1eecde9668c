"""Meta-gradients in JAX with everything that is kept over the steps divided among several devices (App. A.2).

Fully sharded data parallelism (Rajbhandari et al., 2020): each leaf of η, θ_i, υ_i and their cotangents is flattened,
padded and cut into D equal parts, and each device holds one part. It also holds one of D equal parts of every batch.
For a gradient the parts are gathered; the gradients of all devices' data points are summed, and each device keeps its
part. The update is elementwise, so it acts on parts. The parts of all leaves of a dtype travel in one flat array.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from gradgate.references.bilevel.in_jax.methods import (
    Carry,
    Cotangents,
    Inner,
    block_of,
    floats,
    forward_over_reverse,
    inner_loss,
    pull_init,
    pull_step,
)
from gradgate.references.bilevel.options import check_devices, reads_eta
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import IllegalOption, Tree

AXIS = "device"
PARTS, WHOLE = PartitionSpec(AXIS), PartitionSpec()


@functools.partial(jax.jit, static_argnames="devices")
def bilevel_sharded(problem: BilevelProblem, *, devices: int) -> tuple[Any, Tree]:
    """Loss and meta-gradient as by `mixflow`, with batches and all that is kept over the steps divided among D devices.

    Args:
        problem: any `BilevelProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        devices: D, an integer that divides the batch and is at most the number of JAX devices; the first D are used.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `devices` is not such an integer.

    Source:
        App. A.2 (fully sharded data parallelism).

    Stores:
        Per device: 1/D of θ_i and υ_i of every step, T·(|θ| + |υ|)/D numbers; θ, η, v and a gradient of L whole, for
        one step; and what one product needs for 1/D of the batch, with its layers rematerialised.

    Computes:
        Per device: 1/D of `mixflow` with `remat` and without saved gradients. Two collectives per step forward: θ and η
        are gathered, and ∇L is summed. Four per step backward: θ and η are gathered, ∇L is summed, v is gathered, and
        the two products are summed. η is left out where L does not read it.

    Not for:
        An inner model whose θ and the rest do not fit on one device together: all its layers are gathered at once. Not
        for problems that fit on one device.
    """
    devices = check_devices(problem.spec, devices)
    if devices > jax.device_count():
        raise IllegalOption(
            f"devices must be at most the {jax.device_count()} that JAX has, not {devices}; set "
            f"JAX_NUM_CPU_DEVICES={devices} before JAX starts, for more on the CPU"
        )
    mesh = Mesh(np.array(jax.devices()[:devices]), (AXIS,))
    loss, grads = _mapped(problem, devices, mesh)(*_arguments(problem, devices))
    return loss, _whole(grads, problem.params)


def on_profile(problem: BilevelProblem, *, devices: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The program of `bilevel_sharded` for D devices of a profile instead of this machine's.

    Args:
        problem: a BilevelProblem, or its shapes.
        devices: D, an integer that divides the batch.

    Returns:
        The program, its arguments as shapes, and ``mesh``, ``in_specs`` and ``out_specs`` for
        ``hw_profiles.compile.measure``.

    Raises:
        IllegalOption: `devices` is not such an integer.
    """
    devices = check_devices(problem.spec, devices)
    arguments = jax.eval_shape(lambda problem: _arguments(problem, devices), problem)
    placed = {"mesh": {AXIS: devices}, "in_specs": _specs(problem), "out_specs": (WHOLE, PARTS)}
    return _mapped(problem, devices, None), arguments, placed


def _arguments(problem: BilevelProblem, devices: int) -> tuple[Tree, Tree]:
    """η and the data. Those that are divided are cut into parts: (D, numbers of a part)."""
    data = problem.data
    return _parts(problem.params, devices), {**data, "theta": _parts(data.get("theta", ()), devices)}


def _specs(problem: BilevelProblem) -> tuple[Any, Any]:
    """Where the arguments are: parts and data points on their devices, single numbers on all devices."""
    data: dict[str, Any] = dict.fromkeys(problem.data, WHOLE)
    data["xs"] = {name: WHOLE if name == "step" else PartitionSpec(None, AXIS) for name in problem.xs}
    return PARTS, {**data, "y": PARTS, "theta": PARTS}


def _parts(tree: Tree, devices: int) -> Tree:
    """Each leaf flattened, padded with zeros and cut into equal parts: (D, numbers of a part)."""

    def one(leaf: Any) -> Any:
        return jnp.pad(leaf.reshape(-1), (0, -leaf.size % devices)).reshape(devices, -1)

    return jax.tree.map(one, tree)


def _whole(tree: Tree, like: Tree) -> Tree:
    """Undo `_parts`; the parts may come from `jax.lax.all_gather`."""
    return jax.tree.map(lambda leaf, whole: leaf.reshape(-1)[: whole.size].reshape(whole.shape), tree, like)


def _gathered(tree: Tree, like: Tree) -> Tree:
    """The whole leaves of every device's parts: one collective for each dtype."""
    leaves, structure = jax.tree.flatten(tree)
    found: list[Any] = list(leaves)
    for places in _by_dtype(leaves):
        flat = jnp.concatenate([leaves[i] for i in places])
        columns = jnp.split(jax.lax.all_gather(flat, AXIS), _ends([leaves[i].size for i in places]), axis=1)
        for i, column in zip(places, columns, strict=True):
            found[i] = column
    return _whole(jax.tree.unflatten(structure, found), like)


def _shared(tree: Tree, devices: int) -> Tree:
    """Gradients of the means over each device's data points -> the parts of their mean: one collective per dtype."""
    leaves, structure = jax.tree.flatten(_parts(tree, devices))
    found: list[Any] = list(leaves)
    for places in _by_dtype(leaves):
        flat = jnp.concatenate([leaves[i] for i in places], axis=1)
        own = jax.lax.psum_scatter(flat, AXIS) / devices
        for i, part in zip(places, jnp.split(own, _ends([leaves[i].shape[1] for i in places])), strict=True):
            found[i] = part
    return jax.tree.unflatten(structure, found)


def _by_dtype(leaves: list[Any]) -> list[list[int]]:
    """The places of the leaves of each dtype."""
    dtypes = dict.fromkeys(leaf.dtype for leaf in leaves)
    return [[i for i, leaf in enumerate(leaves) if leaf.dtype == dtype] for dtype in dtypes]


def _ends(sizes: list[int]) -> list[int]:
    """Where all but the last of consecutive pieces end."""
    return list(itertools.accumulate(sizes))[:-1]


def _mapped(problem: BilevelProblem, devices: int, mesh: Mesh | None) -> Callable[..., Any]:
    """(η, data) in parts -> (loss, gradient in parts). Without a mesh it runs on the mesh of the context."""
    full_eta = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), problem.params)
    full_theta, _ = jax.eval_shape(problem.init, problem.params)
    inner = inner_loss(problem, remat=True)

    reads = reads_eta(problem.spec)

    def gradient(whole: tuple[Tree, Tree], x: Tree) -> Tree:
        return _shared(jax.grad(inner)(*whole, x), devices)

    def seen(theta: Tree, eta: Tree) -> tuple[Tree, Tree]:
        """θ and η whole, as L reads them; an η that it does not read is zeros."""
        if reads:
            found: tuple[Tree, Tree] = _gathered((theta, eta), (full_theta, full_eta))
            return found
        return _gathered(theta, full_theta), jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), full_eta)

    def on_device(eta: Tree, data: dict[str, Any]) -> tuple[Any, Tree]:
        eta, theta = jax.tree.map(lambda leaf: leaf[0], (eta, data["theta"]))
        part = problem._replace(params=eta, data={**data, "theta": theta})

        def forward(carry: Carry, x: Tree) -> tuple[Carry, Carry]:
            return part.update(gradient(seen(carry[0], eta), x), *carry, eta, x), carry

        def backward(cotangents: Cotangents, inputs: tuple[Tree, Carry]) -> tuple[Cotangents, None]:
            x, carry = inputs
            whole = seen(carry[0], eta)

            def product(inner: Inner, theta: Tree, _: Tree, x: Tree, v: Tree) -> tuple[Tree, Tree]:
                hessian, mixed = forward_over_reverse(inner, *whole, x, _gathered(v, full_theta))
                if reads:
                    found: tuple[Tree, Tree] = _shared((hessian, mixed), devices)
                    return found
                return _shared(hessian, devices), jax.tree.map(jnp.zeros_like, eta)

            return pull_step(part, inner, product, carry, gradient(whole, x), x, cotangents), None

        (theta, state), kept = jax.lax.scan(forward, part.init(eta), part.xs)
        loss, d_theta = jax.value_and_grad(lambda theta: part.outer_loss(theta, part.y, block=block_of(True)))(
            _gathered(theta, full_theta)
        )
        cotangents = _shared(d_theta, devices), *jax.tree.map(jnp.zeros_like, (floats(state), eta))
        cotangents, _ = jax.lax.scan(backward, cotangents, (part.xs, kept), reverse=True)
        grads = jax.tree.map(lambda leaf: leaf[None], pull_init(part, cotangents))
        return jax.lax.pmean(loss, AXIS), grads

    return jax.shard_map(on_device, mesh=mesh, in_specs=_specs(problem), out_specs=(WHOLE, PARTS), check_vma=False)
