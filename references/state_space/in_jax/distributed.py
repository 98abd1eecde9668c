"""Adjoint sharding with the layers spread over several JAX devices (§4.4, Alg. 1 and 4).

The paper's Υ is ``devices``; its K // Υ layers per device are ``slots`` here. Some slots are empty if Υ does not divide
K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from gradgate.references.contract import IllegalOption, Tree, check_integer
from gradgate.references.state_space.in_jax.methods import first_order_only, head_gradients, pull_layer, run_layer
from gradgate.references.state_space.problem import StateSpaceProblem

SHARDED, REPLICATED = PartitionSpec("device"), PartitionSpec()
IN = (SHARDED, REPLICATED, REPLICATED, REPLICATED)
OUT = (REPLICATED, {"embedding": REPLICATED, "layers": SHARDED, "head": REPLICATED})


def adjoint_distributed(problem: StateSpaceProblem, *, devices: int) -> tuple[Any, Tree]:
    """Loss and exact gradient as by `adjoint_sharding`; each device differentiates only its own layers.

    The stages run one after another, forward and backward, because a layer's cotangent depends on every layer above it.
    The paper runs the backward stages at once, and so Prop. 3 loses the paths between layers (see ``as_printed_jax``).

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        devices: Υ, an integer from 1 to the smaller of K and the number of JAX devices; the first Υ are used.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes. Outside
        `jax.jit` it is spread over the devices; if Υ divides K, the layers' leaves are divided by layer.

    Raises:
        IllegalOption: `devices` is not such an integer.

    Source:
        §4.4, Alg. 1–4, with Prop. 3 corrected.

    Stores:
        Per device: parameters, gradients, y and h of ⌈K/Υ⌉ layers, y and h together ⌈K/Υ⌉·T·batch·(P + N) numbers.
        Embedding, head and one y are on every device.

    Computes:
        As `adjoint_sharding`, all devices together: no VJP runs twice. Υ times forward and Υ times back, every device
        sends T·batch·P numbers to its neighbour. Outside `jax.jit` each call compiles again.

    Not for:
        Speed: one device works at a time.
    """
    devices = check_devices(problem, devices)
    params, slots = problem.params, layer_slots(problem.spec.layers, devices)
    layers = _spread(params["layers"], slots)
    loss, grads = _program(problem, devices)(layers, params["embedding"], params["head"], problem.data)
    return loss, grads | {"layers": _gather(grads["layers"], slots)}


def adjoint_distributed_truncated(problem: StateSpaceProblem, *, devices: int, window: int) -> tuple[Any, Tree]:
    """The loss and the gradient of `adjoint_truncated`; each device differentiates only its own layers.

    Args:
        problem: any `StateSpaceProblem` of JAX arrays, float64, float32 or bfloat16; its class lists the shapes.
        devices: Υ, as for `adjoint_distributed`.
        window: T̄, an integer of at least 1: how many tokens i each token t reaches, itself included.

    Returns:
        The loss, a scalar and not truncated, and the gradient of ``problem.cut_loss``, a tree like ``problem.params``
        with the same shapes and dtypes, spread as that of `adjoint_distributed`.

    Raises:
        IllegalOption: `devices` or `window` is not such an integer.
        NotComposable: the gradient is differentiated again.

    Source:
        Alg. 4, with Prop. 3 corrected.

    Stores:
        As `adjoint_distributed`.

    Computes:
        As `adjoint_truncated`, all devices together: no VJP runs twice. What is sent is as in `adjoint_distributed`.

    Not for:
        Speed: one device works at a time. Not for problems in which dependencies longer than `window` tokens matter.
    """
    devices, window = check_devices(problem, devices), check_integer("window", window, 1)
    params = first_order_only(
        problem.params,
        "adjoint_distributed_truncated cannot be differentiated again: the states before the window are constants in "
        "its gradient but depend on the parameters, so its derivative is no Hessian; use adjoint_distributed",
    )
    slots = layer_slots(problem.spec.layers, devices)
    layers = _spread(params["layers"], slots)
    loss, grads = _program(problem, devices, window)(layers, params["embedding"], params["head"], problem.data)
    return loss, grads | {"layers": _gather(grads["layers"], slots)}


def residency(problem: StateSpaceProblem, devices: int) -> list[dict[str, Any]]:
    """Measure what each device holds when `adjoint_distributed` runs, from its arrays and its compiled program.

    Args:
        problem: any StateSpaceProblem of JAX arrays, outside a trace.
        devices: as for `adjoint_distributed`.

    Returns:
        Per device ``layers``, the indices of the layers that it holds; ``parameter_bytes`` and ``gradient_bytes``, the
        bytes of layer parameters and gradients in its shards, empty slots included; ``temp_bytes``, the temporary
        memory of the compiled program on one device.

    Raises:
        IllegalOption: `devices` is not legal for `adjoint_distributed`.

    Source:
        §4.4, "memory per device Mem/Υ".

    Computes:
        Compiles and runs the program once.
    """
    devices = check_devices(problem, devices)
    slots, program, mesh = layer_slots(problem.spec.layers, devices), _program(problem, devices), _mesh(devices)
    params = problem.params
    shared = (params["embedding"], params["head"], problem.data)
    shared = jax.device_put(shared, NamedSharding(mesh, REPLICATED))
    layers = jax.device_put(_spread(params["layers"], slots), NamedSharding(mesh, SHARDED))
    compiled = program.lower(layers, *shared).compile()
    _, grads = compiled(layers, *shared)
    memory: Any = compiled.memory_analysis()

    def held(tree: Tree, device: Any) -> int:
        shards = [shard for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards]
        return sum(shard.data.nbytes for shard in shards if shard.device == device)

    return [
        {
            "layers": [int(k) for k in own if k >= 0],
            "parameter_bytes": held(layers, device),
            "gradient_bytes": held(grads["layers"], device),
            "temp_bytes": int(memory.temp_size_in_bytes),
        }
        for own, device in zip(slots, mesh.devices, strict=True)
    ]


def on_profile(
    problem: StateSpaceProblem, *, devices: int, window: int | None = None
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The program of `adjoint_distributed` for Υ devices of a profile instead of this machine's.

    Args:
        problem: a StateSpaceProblem, or its shapes.
        devices: Υ, an integer from 1 to K.
        window: T̄ of `adjoint_distributed_truncated`; None: all tokens.

    Returns:
        The program, its arguments as shapes, and ``mesh``, ``in_specs`` and ``out_specs`` for
        ``hw_profiles.compile.measure``.

    Raises:
        IllegalOption: `devices` is not such an integer.
    """
    devices = check_integer("devices", devices, 1, problem.spec.layers)
    slots, params = layer_slots(problem.spec.layers, devices), problem.params
    layers = jax.eval_shape(lambda tree: _spread(tree, slots), params["layers"])
    placed = {"mesh": {"device": devices}, "in_specs": IN, "out_specs": OUT}
    arguments = (layers, params["embedding"], params["head"], problem.data)
    return _mapped(problem, devices, None, window), arguments, placed


def check_devices(problem: StateSpaceProblem, devices: Any) -> int:
    """Check Υ against the layers of the problem and the devices of JAX.

    Raises:
        IllegalOption: it is not an integer from 1 to the smaller of both; the message says how to get more devices.
    """
    devices = check_integer("devices", devices, 1, problem.spec.layers)
    if devices > jax.device_count():
        raise IllegalOption(
            f"devices must be an integer of at least 1 and at most {jax.device_count()}, the number of JAX devices, "
            f"not {devices}; for more on the CPU, before JAX starts: "
            f'jax.config.update("jax_num_cpu_devices", {devices})'
        )
    return devices


def layer_slots(layers: int, devices: int) -> Any:
    """Which layers each device holds: (Υ, ⌈K/Υ⌉) indices in order, −1 for an empty slot at the end of a row.

    >>> layer_slots(5, 3).tolist()
    [[0, -1], [1, 2], [3, 4]]
    """
    slots = np.full((devices, -(-layers // devices)), -1)
    for row, own in enumerate(slots):
        held = range(row * layers // devices, (row + 1) * layers // devices)
        own[: len(held)] = held
    return slots


def _spread(layers: Tree, slots: Any) -> Tree:
    """Layers stacked on axis 0 by slot, device after device; an empty slot holds a copy that nothing reads."""
    if (slots >= 0).all():
        return layers
    return jax.tree.map(lambda leaf: leaf[np.maximum(slots.ravel(), 0)], layers)


def _gather(layers: Tree, slots: Any) -> Tree:
    """Undo `_spread`."""
    if (slots >= 0).all():
        return layers
    return jax.tree.map(lambda leaf: leaf[np.flatnonzero(slots >= 0)], layers)


def _mesh(devices: int) -> Mesh:
    return Mesh(np.array(jax.devices()[:devices]), ("device",))


# A stage runs the layers that one device holds. At stage s only device s computes; then every device passes its array
# to its neighbour on a ring. So y_0 on device 0 becomes y_K on device 0 after Υ stages, and g_K goes back the same way
# to g_0. In the backward pass all other devices hold zeros, and a sum over devices gives each device the result. No
# device waits within a branch: ppermute and psum are outside every cond, and check_vma is off, because it would put the
# sums of a further derivative inside.
def _mapped(
    problem: StateSpaceProblem, devices: int, mesh: Mesh | None, window: int | None = None
) -> Callable[..., Any]:
    """Build (layers by slot, embedding, head, data) -> the loss and the gradients, layers by slot.

    Without a mesh it runs on the mesh of the context.
    """
    slots = layer_slots(problem.spec.layers, devices)
    full = bool((slots >= 0).all())
    onward = [(d, (d + 1) % devices) for d in range(devices)]
    back = [(d, s) for s, d in onward]

    def on_device(layers: Tree, embedding: Any, head: Any, data: dict[str, Any]) -> tuple[Any, Tree]:
        index = jax.lax.axis_index("device")
        occupied = jnp.asarray(slots >= 0)[index]
        y, pull_embedding = jax.vjp(lambda e: problem.embed(e, data["tokens"]), embedding)
        T, batch = data["tokens"].shape
        no_states = jnp.zeros((T + 1, batch, problem.spec.state), y.dtype)

        def if_occupied(slot: Any, run: Callable[[], Any], skip: Callable[[], Any]) -> Any:
            return run() if full else jax.lax.cond(slot, run, skip)

        def run_slot(y: Any, xs: tuple[Any, Tree]) -> tuple[Any, Any]:
            slot, p = xs
            return if_occupied(slot, lambda: run_layer(problem, p, y), lambda: (y, (y, no_states)))

        def forward(carry: tuple[Any, Any], stage: Any) -> tuple[tuple[Any, Any], None]:
            y, saved = jax.lax.cond(
                index == stage, lambda y, _: jax.lax.scan(run_slot, y, (occupied, layers)), lambda *same: same, *carry
            )
            return (jax.lax.ppermute(y, "device", onward), saved), None

        def pull_slot(g: Any, xs: tuple[Any, Tree, Any]) -> tuple[Any, Tree]:
            slot, p, saved = xs
            return if_occupied(
                slot,
                lambda: pull_layer(problem, p, saved, g, window or T),
                lambda: (g, jax.tree.map(jnp.zeros_like, p)),
            )

        def backward(carry: tuple[Any, Tree], stage: Any) -> tuple[tuple[Any, Tree], None]:
            g, grads = carry
            g = jax.lax.ppermute(g, "device", back)
            return jax.lax.cond(
                index == stage,
                lambda g, _: jax.lax.scan(pull_slot, g, (occupied, layers, saved), reverse=True),
                lambda *same: same,
                g,
                grads,
            ), None

        stages = jnp.arange(devices)
        nothing = jax.tree.map(lambda leaf: jnp.zeros((slots.shape[1], *leaf.shape), leaf.dtype), (y, no_states))
        (y, saved), _ = jax.lax.scan(forward, (y, nothing), stages)
        loss, (d_head, g) = jax.lax.cond(
            index == 0,
            lambda: head_gradients(problem, head, y, data["targets"], data["upstream"]),
            lambda: jax.tree.map(jnp.zeros_like, (data["upstream"], (head, y))),
        )
        (g, d_layers), _ = jax.lax.scan(backward, (g, jax.tree.map(jnp.zeros_like, layers)), stages, reverse=True)
        loss, d_head, d_embedding = jax.lax.psum((loss, d_head, pull_embedding(g)[0]), "device")
        return loss, {"embedding": d_embedding, "layers": d_layers, "head": d_head}

    return jax.shard_map(on_device, mesh=mesh, in_specs=IN, out_specs=OUT, check_vma=False)


def _program(problem: StateSpaceProblem, devices: int, window: int | None = None) -> jax.stages.Wrapped:
    return jax.jit(_mapped(problem, devices, _mesh(devices), window))
