"""Single figures of the paper, each beside what is measured or computed here.

§4.5: "a selective diagonal SSM with P=128, N=225 and bs=8, while storing and performing computations in FP16, computing
vjp_A, vjp_B and vjp_C each takes around 0.6MB memory and 1798144 FLOPs". One net is a single dense layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

DEPTH = {"jax": 256, "torch": 8}
"""Framework -> T from which its doublings are looked at: PyTorch's programs are traced operator by operator."""


def doubling(method: str, framework: str, profile: str = "") -> float:
    """What doubling T again adds to a method's longest chain of operations, over what doubling it once adds."""
    from gradgate.references.state_space.paper import depth
    from gradgate.references.state_space.problem import StateSpaceSpec

    options = {"instances": 4 * DEPTH[framework]} if method == "adjoint_parallel" else {}
    chains = [
        depth.of_method(method, framework, StateSpaceSpec(length=factor * DEPTH[framework], layers=1), **options)
        for factor in (1, 2, 4)
    ]
    return (chains[2] - chains[1]) / (chains[1] - chains[0])


def acceleration(instances: int, framework: str, profile: str = "") -> float:
    """Batches of VJPs of A one after another on one instance over those on several, at T = 2·instances."""
    from gradgate.references.state_space.paper import depth
    from gradgate.references.state_space.problem import StateSpaceSpec

    spec = StateSpaceSpec(length=2 * instances, layers=1, state=1, width=1, batch=1)
    alone, together = (depth.batches("adjoint_parallel", framework, spec, instances=m)["A"] for m in (1, instances))
    return alone / together


doubling_backprop_jax = functools.partial(doubling, "backprop", "jax")
doubling_backprop_torch = functools.partial(doubling, "backprop", "torch")
doubling_adjoint_parallel_jax = functools.partial(doubling, "adjoint_parallel", "jax")
doubling_adjoint_parallel_torch = functools.partial(doubling, "adjoint_parallel", "torch")
doubling_associative_scan_jax = functools.partial(doubling, "associative_scan", "jax")
doubling_associative_scan_torch = functools.partial(doubling, "associative_scan", "torch")
acceleration_7_jax = functools.partial(acceleration, 7, "jax")
acceleration_7_torch = functools.partial(acceleration, 7, "torch")
acceleration_56_jax = functools.partial(acceleration, 7 * 8, "jax")
acceleration_280_jax = functools.partial(acceleration, 5 * 8 * 7, "jax")

WIDTH, STATE, BATCH = 128, 225, 8
PRINTED_FLOPS, PRINTED_BYTES = 1_798_144, 600_000


def flops_formula(width: int = WIDTH, state: int = STATE, batch: int = BATCH) -> int:
    """bs(7NP + 3N): three passes of the net, bs·N(2P+1) each by Table 1, and NP for the adjoint state (§4.5)."""
    return batch * (7 * state * width + 3 * state)


def memory_formula(width: int = WIDTH, state: int = STATE, batch: int = BATCH) -> int:
    """Numbers that a VJP of A holds by Table 1, diagonal: bs(N + |θ_A|*) + |θ_A|, the bias left out."""
    return batch * (state + state * width) + state * width


def formula_flops(profile: str) -> int:
    """The paper's own formula at the sizes that it names."""
    return flops_formula()


def formula_bytes(profile: str) -> int:
    """Table 1 at the sizes that §4.5 names, two bytes a number."""
    return 2 * memory_formula()


def net_passes() -> int:
    """FLOPs of three passes of the net A, bs·N(2P+1) each: Table 1 without the adjoint state."""
    return 3 * BATCH * STATE * (2 * WIDTH + 1)


def vjp_flops(profile: str) -> int:
    """FLOPs of one VJP of A, forward pass included, counted from its program, 2 per multiply-add as Table 1 counts."""
    from gradgate.hw_profiles import work

    program, arguments = _vjp_of_a("float32")
    return work.of(program, arguments).nominal_flops


def vjp_bytes(profile: str) -> int:
    """Bytes that one VJP of A takes in bfloat16: arguments, results and temporaries.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure

    found = measure(*_vjp_of_a("bfloat16"), profile)
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.required_bytes


def _vjp_of_a(dtype: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One VJP of A at §4.5's sizes by its parameters and its input, and the shapes that it takes."""
    import jax

    from gradgate.references.draws import shapes
    from gradgate.references.state_space.problem import StateSpaceSpec

    problem: Any = shapes(
        StateSpaceSpec(dtype=dtype, length=1, layers=1, state=STATE, width=WIDTH, batch=BATCH, activation="identity")
    )

    def vjp(p: Any, x: Any, cotangent: Any) -> Any:
        return jax.vjp(lambda p, x: problem.A({"A": p}, x), p, x)[1](cotangent)

    layer = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), problem.params["layers"]["A"])
    x, cotangent = (jax.ShapeDtypeStruct((BATCH, n), dtype) for n in (WIDTH, STATE))
    return vjp, (layer, x, cotangent)
