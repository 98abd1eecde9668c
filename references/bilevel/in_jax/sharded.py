"""Meta-gradients in JAX with everything that is kept over the steps divided among several devices (App. A.2).

Fully sharded data parallelism (Rajbhandari et al., 2020): each leaf of η, θ_i, υ_i and their cotangents is flattened,
padded and cut into D equal parts, and each device holds one part. It also holds one of D equal parts of every batch.
For a gradient the parts are gathered; the gradients of all devices' data points are summed, and each device keeps its
part. The update is elementwise, so it acts on parts.
"""

from __future__ import annotations

import functools
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
from gradgate.references.bilevel.options import check_devices
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
        Per device: 1/D of `mixflow` with `remat` and without saved gradients. Per step forward, θ and η are gathered
        and ∇L is summed. Per step backward, θ and η are gathered once or twice, v once, and ∇L and the two products are
        summed.

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


def _mapped(problem: BilevelProblem, devices: int, mesh: Mesh | None) -> Callable[..., Any]:
    """(η, data) in parts -> (loss, gradient in parts). Without a mesh it runs on the mesh of the context."""
    full_eta = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), problem.params)
    full_theta, _ = jax.eval_shape(problem.init, problem.params)
    inner = inner_loss(problem, remat=True)

    def gathered(tree: Tree, like: Tree) -> Tree:
        return _whole(jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, AXIS), tree), like)

    def shared(tree: Tree) -> Tree:
        """Gradients of the means over each device's data points -> the parts of their mean."""
        parts = _parts(tree, devices)
        return jax.tree.map(lambda leaf: jax.lax.psum_scatter(leaf, AXIS) / devices, parts)

    def gradient(theta: Tree, eta: Tree, x: Tree) -> Tree:
        return shared(jax.grad(inner)(gathered(theta, full_theta), gathered(eta, full_eta), x))

    def product(inner: Inner, theta: Tree, eta: Tree, x: Tree, v: Tree) -> tuple[Tree, Tree]:
        theta, eta, v = gathered(theta, full_theta), gathered(eta, full_eta), gathered(v, full_theta)
        hessian, mixed = forward_over_reverse(inner, theta, eta, x, v)
        return shared(hessian), shared(mixed)

    def on_device(eta: Tree, data: dict[str, Any]) -> tuple[Any, Tree]:
        eta, theta = jax.tree.map(lambda leaf: leaf[0], (eta, data["theta"]))
        part = problem._replace(params=eta, data={**data, "theta": theta})

        def forward(carry: Carry, x: Tree) -> tuple[Carry, Carry]:
            return part.update(gradient(carry[0], eta, x), *carry, eta, x), carry

        def backward(cotangents: Cotangents, inputs: tuple[Tree, Carry]) -> tuple[Cotangents, None]:
            x, carry = inputs
            grad = gradient(carry[0], eta, x)
            return pull_step(part, inner, product, carry, grad, x, cotangents), None

        (theta, state), kept = jax.lax.scan(forward, part.init(eta), part.xs)
        loss, d_theta = jax.value_and_grad(lambda theta: part.outer_loss(theta, part.y, block=block_of(True)))(
            gathered(theta, full_theta)
        )
        cotangents = shared(d_theta), *jax.tree.map(jnp.zeros_like, (floats(state), eta))
        cotangents, _ = jax.lax.scan(backward, cotangents, (part.xs, kept), reverse=True)
        grads = jax.tree.map(lambda leaf: leaf[None], pull_init(part, cotangents))
        return jax.lax.pmean(loss, AXIS), grads

    return jax.shard_map(on_device, mesh=mesh, in_specs=_specs(problem), out_specs=(WHOLE, PARTS), check_vma=False)
