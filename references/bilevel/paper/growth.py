"""What small programs take over B, S, T, the width and |η|, and by the three second-order products.

The figures of this module are ratios of what small programs take. Bytes are those of the host's compiler: its
assignment is that of the text of the program, without the copies that a TPU makes for its matrix units.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

DEEP: dict[str, Any] = {
    "dtype": "float32",
    "task": "maml",
    "model": "mlp",
    "optimiser": "momentum",
    "steps": 2,
    "batch": 256,
    "layers": 32,
    "width": 16,
    "vocabulary": 16,
    "activation": "gelu",
}
"""An inner model whose activations take most of the memory."""
WIDE: dict[str, Any] = {"model": "toy", "optimiser": "adam", "layers": 2, "width": 64, "batch": 4}
"""A problem in which θ and υ take most of the memory."""
SMALL: dict[str, Any] = {"model": "toy", "optimiser": "sgd", "layers": 1, "batch": 2, "steps": 2}
"""A problem whose η has few numbers."""
SCORES: dict[str, Any] = {
    "dtype": "float32",
    "task": "maml",
    "model": "transformer",
    "optimiser": "adam",
    "steps": 2,
    "batch": 1,
    "vocabulary": 16,
    "layers": 4,
    "width": 8,
    "ffw": 16,
    "heads": 4,
    "key_size": 2,
    "sequence": 256,
}
"""A transformer whose scores are larger than all else."""
PRODUCTS = ("forward_over_reverse", "reverse_over_forward_product", "reverse_over_reverse")
"""The three products of §2.2."""


def only_host(profile: str) -> None:
    """Raise LookupError unless the profile's compiler is the host's."""
    from gradgate.hw_profiles.profile import load

    if load(profile).compiler != "host":
        raise LookupError(f"{profile}: claimed of the host's compiler alone, which copies and pads nothing")


def product(name: str) -> Callable[..., Any]:
    """One of `PRODUCTS` in JAX: (L, θ, η, x, v) -> its products with second derivatives."""
    import jax

    from gradgate.references.bilevel.in_jax import methods

    def reverse_over_reverse(inner: Any, theta: Any, eta: Any, x: Any, v: Any) -> Any:
        return jax.vjp(lambda theta, eta: jax.grad(inner)(theta, eta, x), theta, eta)[1](v)

    found: Callable[..., Any] = reverse_over_reverse if name == PRODUCTS[2] else getattr(methods, name)
    return found


def walk(name: str, remat: bool = False) -> Callable[..., Any]:
    """The meta-gradient by Eq. 6 with one of `PRODUCTS`."""
    from gradgate.references.bilevel.in_jax.methods import block_of, inner_loss, stored

    return lambda problem: stored(problem, inner_loss(problem, remat), product(name), False, block_of(remat))


def product_bytes(profile: str, over: str, under: str) -> float:
    """Temporary bytes of a meta-gradient by one product over those by another, without rematerialised layers."""
    only_host(profile)
    return _bytes(walk(over), profile, **DEEP) / _bytes(walk(under), profile, **DEEP)


def over_reverse_over_reverse(profile: str) -> float:
    """Bytes of forward over reverse mode over those of reverse over reverse mode."""
    return product_bytes(profile, PRODUCTS[0], PRODUCTS[2])


def over_reverse_over_forward(profile: str) -> float:
    """Bytes of forward over reverse mode over those of reverse over forward mode."""
    return product_bytes(profile, PRODUCTS[0], PRODUCTS[1])


def other_over_default(profile: str) -> float:
    """Bytes of reverse over forward mode over those of reverse over reverse mode."""
    return product_bytes(profile, PRODUCTS[1], PRODUCTS[2])


def work_of_products(profile: str) -> float:
    """FLOPs of the most over those of the least expensive of the three products."""
    found = [_flops(walk(name), **DEEP) for name in PRODUCTS]
    return max(found) / min(found)


def bytes_of_products(profile: str) -> float:
    """Bytes of the largest over those of the smallest of the three products: at 64 layers over the same at 16."""
    return _unlike(profile, 64) / _unlike(profile, 16)


def constants_of_products(profile: str) -> float:
    """Bytes of the largest over those of the smallest of the three products."""
    return _unlike(profile, DEEP["layers"])


def _unlike(profile: str, layers: int) -> float:
    only_host(profile)
    found = [_bytes(walk(name), profile, **DEEP | {"layers": layers}) for name in PRODUCTS]
    return max(found) / min(found)


def kept_of_a_step(profile: str, method: Callable[..., Any]) -> float:
    """The slope of the temporary bytes of `mixflow` or `truncated_bptt` over T, in bytes of one (θ, υ)."""
    only_host(profile)
    function = functools.partial(method, remat=True)
    few, many = (_bytes(function, profile, **WIDE, steps=steps) for steps in (16, 64))
    return (many - few) / (48 * 3 * 4 * WIDE["width"] ** 2)


def activations_of_a_bare_step(profile: str) -> float:
    """|θ| + |υ| + |A| over the numbers by which the default without a checkpoint per step grows with T.

    |A| counts one array (B, D) for each transformation of the inner model, the fewest that a reverse pass can read.
    """
    only_host(profile)
    spec = {**WIDE, "batch": 256, "layers": 16}
    slope = (_bytes(_bare, profile, **spec, steps=32) - _bytes(_bare, profile, **spec, steps=8)) / 24 / 4
    return (3 * spec["width"] ** 2 + spec["layers"] * spec["batch"] * spec["width"]) / slope


def _bare(problem: Any) -> Any:
    """Algorithm 1 without any checkpoint."""
    import jax

    return jax.value_and_grad(problem.loss)(problem.params)


def dynamic_over_steps(profile: str, method: Callable[..., Any]) -> float:
    """Dynamic bytes (Eq. 10) at T = 16 over those at T = 4, of a small transformer."""
    from gradgate.references.bilevel.paper import scale
    from gradgate.references.bilevel.problem import BilevelSpec

    only_host(profile)

    def dynamic(steps: int) -> float:
        fields = SCORES | {"steps": steps}
        static = scale.static(BilevelSpec(**fields), scale.DEFAULT)
        return _bytes(functools.partial(method, remat=True), profile, "required_bytes", **fields) - static

    return dynamic(16) / dynamic(4)


def squares(profile: str, optimisations: str, heads: int = SCORES["heads"]) -> float:
    """The coefficient of S² in the dynamic bytes of a transformer of 4 layers, in arrays of scores (B, h, S, S)."""
    from gradgate.references.bilevel.paper import scale
    from gradgate.references.bilevel.problem import BilevelSpec

    only_host(profile)
    fields = SCORES | {"heads": heads}
    a, b, c = (scale.dynamic(BilevelSpec(**fields | {"sequence": S}), optimisations, profile) for S in (256, 512, 768))
    return (c - 2 * b + a) / (2 * 256**2) / (4 * heads)


def constants(profile: str) -> float:
    """The constant k̂ of mixed mode over k of the default, which is per layer (Eq. 12)."""
    from gradgate.references.bilevel.paper import scale

    return squares(profile, scale.MIXFLOW) / (squares(profile, scale.DEFAULT) / SCORES["layers"])


def jvp_work(profile: str) -> float:
    """How FLOPs of a JVP of the inner loss grow from 4 to 16 layers, over how those of its evaluation grow."""
    return _grown(_pushed) / _grown(lambda problem: _inner(problem)(problem.params))


def _pushed(problem: Any) -> Any:
    import jax

    return jax.jvp(_inner(problem), (problem.params,), (problem.params,))


def _grown(function: Callable[..., Any]) -> float:
    few, many = (_flops(function, **SCORES | {"layers": layers}) for layers in (4, 16))
    return many / few


def rematerialised_jvp(profile: str) -> float:
    """The larger of FLOPs and bytes of a JVP of L with layers rematerialised, over the same without."""
    import jax

    def pushed(problem: Any, remat: bool) -> Any:
        return jax.jvp(_inner(problem, remat), (problem.params,), (problem.params,))

    only_host(profile)
    with_, without = (functools.partial(pushed, remat=remat) for remat in (True, False))
    return max(
        _flops(with_, **SCORES) / _flops(without, **SCORES),
        _bytes(with_, profile, **SCORES) / _bytes(without, profile, **SCORES),
    )


def jvp_memory(profile: str) -> float:
    """Bytes of a JVP of the inner gradient, layers rematerialised, over those of evaluating the inner loss."""
    import jax

    def pushed(problem: Any) -> Any:
        return jax.jvp(jax.grad(_inner(problem, True)), (problem.params,), (problem.params,))[1]

    only_host(profile)
    return _bytes(pushed, profile, **SCORES) / _bytes(lambda p: _inner(p)(p.params), profile, **SCORES)


def forward_over_forward(profile: str) -> float:
    """The exponent with which FLOPs of a forward-over-forward product, over those of `mixflow`'s, grow with |θ|."""
    import jax
    import jax.numpy as jnp
    from jax.flatten_util import ravel_pytree

    from gradgate.hw_profiles.fit import fit

    def twice(problem: Any) -> Any:
        flat, unravel = ravel_pytree(problem.params)

        def slope(theta: Any, v: Any) -> Any:
            return jax.jvp(lambda theta: _inner(problem)(unravel(theta)), (theta,), (v,))[1]

        def row(i: Any) -> Any:
            return jax.jvp(lambda theta: slope(theta, flat), (flat,), (jnp.zeros_like(flat).at[i].set(1),))[1]

        return jax.lax.map(row, jnp.arange(flat.size))

    def mixed(problem: Any) -> Any:
        return jax.jvp(jax.grad(_inner(problem)), (problem.params,), (problem.params,))[1]

    widths = (4, 8, 16, 32, 64)
    found = [_flops(twice, **SMALL, width=d) / _flops(mixed, **SMALL, width=d) for d in widths]
    return fit([d * d for d in widths], found, "times").exponent


def crossing(profile: str) -> float:
    """The |η| at which forward mode in η takes the FLOPs of `mixflow`, by its cost per number of an η of 64 numbers."""
    from gradgate.references.bilevel.in_jax.forward import forward_mode
    from gradgate.references.bilevel.in_jax.methods import mixflow

    spec = SMALL | {"width": 8, "task": "learning_lr", "batch": 64}
    plain = _flops(lambda problem: problem.loss(problem.params), **spec)
    return (_flops(mixflow, **spec) - plain) / ((_flops(forward_mode, **spec) - plain) / 64)


def collectives(profile: str) -> float:
    """The collectives of a meta step of `bilevel_sharded` in JAX, without those at θ_T, per inner step."""
    return (len(_moved(6)) - len(_moved(2))) / 4


def moved(profile: str) -> float:
    """The numbers that they gather or sum per inner step, over 6·|θ| + 3·|η|, which two gradients and a product need.

    A gradient reads θ and η and sums ∇L; a product reads v too, and sums a vector like θ and one like η. The second
    gradient and the product of a step share what they read: 6·|θ| and 3·|η| in all.
    """
    width = WIDE["width"]
    theta, eta = width**2, width**2 + width + 1
    return (sum(_moved(6)) - sum(_moved(2))) / 4 / (6 * theta + 3 * eta)


def _moved(steps: int) -> list[int]:
    """The numbers of each collective that a device runs in a meta step, read from the program's text."""
    import jax

    from gradgate.references.bilevel.in_jax.sharded import AXIS, on_profile
    from gradgate.references.bilevel.problem import BilevelSpec
    from gradgate.references.draws import shapes

    problem: Any = shapes(BilevelSpec(dtype="float32", **WIDE | {"task": "loss_weighting", "steps": steps}))
    program, arguments, placed = on_profile(problem, devices=4)
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((4,), (AXIS,))):
        del placed
        return _collectives(jax.make_jaxpr(program)(*arguments).jaxpr)


def _collectives(jaxpr: Any) -> list[int]:
    found: list[int] = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("all_gather", "reduce_scatter", "psum", "psum_invariant", "all_reduce"):
            found += [max(var.aval.size for var in (*eqn.invars, *eqn.outvars))]
        for inside in _inside(eqn.params):
            found += _collectives(inside) * int(eqn.params.get("length", 1))
    return found


def _inside(params: dict[str, Any]) -> list[Any]:
    """The programs inside an equation."""
    return [
        getattr(value, "jaxpr", value) for value in params.values() if hasattr(value, "jaxpr") or hasattr(value, "eqns")
    ]


def per_rank(profile: str) -> float:
    """How many times less a rank of 4 grows with T than a single one, in PyTorch."""
    found = {(devices, steps): _measured(devices, steps)[0] for devices in (1, 4) for steps in (8, 32)}
    return (found[1, 32] - found[1, 8]) / (found[4, 32] - found[4, 8])


def torch_collectives(profile: str) -> float:
    """As `collectives`, in PyTorch, by calls."""
    return (len(_measured(2, 6)[1]) - len(_measured(2, 2)[1])) / 4


def torch_moved(profile: str) -> float:
    """As `moved`, in PyTorch, by calls."""
    width = WIDE["width"]
    theta, eta = width**2, width**2 + width + 1
    return (sum(_measured(2, 6)[1]) - sum(_measured(2, 2)[1])) / 4 / (6 * theta + 3 * eta)


def _measured(devices: int, steps: int) -> tuple[int, list[int]]:
    from gradgate.references.bilevel.in_torch.sharded import measured
    from gradgate.references.bilevel.problem import BilevelSpec

    spec = BilevelSpec(dtype="float32", **WIDE | {"task": "loss_weighting", "steps": steps})
    return measured(spec.build("torch"), devices=devices)


def _inner(problem: Any, remat: bool = False) -> Callable[[Any], Any]:
    """θ -> L at the first batch."""
    import jax

    from gradgate.references.bilevel.in_jax.methods import inner_loss

    first = jax.tree.map(lambda leaf: leaf[0], problem.xs)
    loss = inner_loss(problem, remat)
    return lambda theta: loss(theta, problem.params, first)


def _flops(program: Callable[..., Any], **fields: Any) -> float:
    from gradgate.hw_profiles import work
    from gradgate.references.bilevel.problem import BilevelSpec
    from gradgate.references.draws import shapes

    return float(work.of(program, (shapes(BilevelSpec(**{"dtype": "float32", **fields})),)).flops)


def _bytes(program: Callable[..., Any], profile: str, quantity: str = "temp_bytes", **fields: Any) -> float:
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.bilevel.problem import BilevelSpec
    from gradgate.references.draws import shapes

    found = measure(program, (shapes(BilevelSpec(**{"dtype": "float32", **fields})),), profile)
    if found.temp_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return float(getattr(found, quantity))
