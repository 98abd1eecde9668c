"""state_space: adjoint sharding, and the shorter way to the same gradient.

Paper: Xu, Tavanaei, Asadi, Bouyarmane, "Adjoint sharding for very long context training of state space models" (2024).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from gradgate.references.claims import ORACLE_CLAIMS, reference_method
from gradgate.references.contract import Claim, Family, Method, Option, Trial
from gradgate.references.counts import claim as claim_counts
from gradgate.references.state_space.claims import PROMISES

PAPER = "Xu et al., Adjoint sharding for very long context training of state space models, 2024"
HERE = "gradgate.references.state_space"
LONG = 128
"""Tokens of the largest usual tile. A sequence with more tokens counts as long."""


def ragged(spec: Any) -> Sequence[int]:
    """Lengths of slices for a sequence of `spec.length` tokens: some divide it, some do not, one is longer than it.

    For more than 128 tokens there are only two, because each is a program to compile and to run in sixty digits: a
    usual tile, which leaves a remainder, and a length beyond the sequence.
    """
    if spec.length > LONG:
        return 64, spec.length + 3
    return sorted({1, 2, max(1, spec.length - 1), spec.length, spec.length + 3})


def near_root(spec: Any) -> int:
    """The integer nearest √T: about where reverse_recurrence needs least memory."""
    return round(math.sqrt(spec.length))


CHUNK = Option("chunk", "an integer of at least 1", ragged, illegal=(0, -1, 1.5, "all", True), usual=near_root)
WINDOW = Option(
    "window",
    "an integer of at least 1",
    ragged,
    illegal=(0, -1, 2.5, None, True),
    usual=lambda spec: min(16, spec.length),
)
INSTANCES = Option(
    "instances",
    "an integer of at least 1",
    ragged,
    illegal=(0, -1, 1.5, "all", True),
    usual=lambda spec: 7 * 8,
)
"""How many VJPs run at once. The usual value is the paper's 7 instances on each of 8 GPUs (§4.5)."""
DEVICES = Option(
    "devices",
    "an integer from 1 to the number of layers; in JAX at most the number of its devices",
    lambda spec: range(min(spec.layers, 4) if spec.length > LONG else 1, min(spec.layers, 4) + 1),
    illegal=(0, -1, 1.5, 10**6, None),
    usual=lambda spec: min(4, spec.layers),
)


def _pairs(spec: Any, window: int | None = None) -> int:
    """VJPs of A (and of B) of the whole model: one per layer, token t and lag below min(t, window)."""
    reach = window or spec.length
    return int(spec.layers * sum(min(t, reach) for t in range(1, spec.length + 1)))


def quadratic_count(spec: Any, **_: Any) -> dict[str, int]:
    """§4.3: (1+T)T/2 VJPs of A and of B, T of C, per layer."""
    return {"A": _pairs(spec), "B": _pairs(spec), "C": spec.layers * spec.length}


def truncated_count(spec: Any, *, window: int, **_: Any) -> dict[str, int]:
    """T̄T − T̄(T̄−1)/2 VJPs of A and of B per layer, T̄ at most T: §4.3 with its sign corrected."""
    reach = min(window, spec.length)
    count = spec.layers * (reach * spec.length - reach * (reach - 1) // 2)
    return {"A": count, "B": count, "C": spec.layers * spec.length}


def truncated_count_printed(spec: Any, *, window: int) -> dict[str, int]:
    """§4.3 as printed: T̄T + T̄(T̄−1)/2."""
    reach = min(window, spec.length)
    count = spec.layers * (reach * spec.length + reach * (reach - 1) // 2)
    return {"A": count, "B": count, "C": spec.layers * spec.length}


def linear_count(spec: Any, **_: Any) -> dict[str, int]:
    """T VJPs of each net per layer."""
    return dict.fromkeys("ABC", spec.layers * spec.length)


def _counts(statement: str, source: str, formula: str, **claim: Any) -> Claim:
    name = claim.pop("name", "vjp_count")
    return claim_counts(name, statement, source, formula=f"{HERE}:{formula}", kinds=("vjps",), **claim)


LINEAR = _counts("runs T VJPs of each net per layer", "beyond the paper", "linear_count")
QUADRATIC = _counts("runs (1+T)T/2 VJPs of A and of B, and T of C, per layer", "§4.3", "quadratic_count")


CUT = "backprop through the graph cut at lag T̄"
TRUNCATED = (
    Claim(
        "gradient_full_window",
        "gradient",
        "equals backprop when the window covers the sequence",
        "Eq. 7",
        settings={"dtype": "float64", "oracle": "loss", "covering": "window"},
    ),
    _counts("runs T̄T − T̄(T̄−1)/2 VJPs of A and of B per layer", "§4.3, sign mended", "truncated_count"),
    _counts(
        "runs T̄T + T̄(T̄−1)/2 VJPs of A and of B per layer",
        "§4.3 as printed",
        "truncated_count_printed",
        name="vjp_count_printed",
        expected="refuted",
        declared_reason="the sign: 10,000 tokens and T̄ = 2,000 save the paper's own 64% only with a minus",
    ),
)
PRINTED = (
    Claim(
        "gradient_one_layer",
        "gradient",
        "equals backprop for one layer",
        "Prop. 2",
        where={"layers": 1},
        settings={"dtype": "float64"},
    ),
    Claim(
        "gradient_last_layer",
        "gradient",
        "equals backprop in the last layer's parameters",
        "Prop. 3, Eq. 6",
        settings={"dtype": "float64", "leaves": "last_layer"},
    ),
)
SHARDED: dict[str, dict[str, Any]] = {
    "jax": {"sharded": f"{HERE}.in_jax.distributed:on_profile"},
    "torch": {
        "unmeasured": "it runs in processes of its own, which the tracker of bytes does not see",
        "disclaims": ("vmap", "second_order"),
    },
}
"""Framework -> how the method over several devices is measured, and which transformations it refuses."""


def _own_layers(framework: str) -> Claim:
    return Claim(
        "own_layers",
        "own_layers",
        "each device holds the parameters and gradients of its own layers only",
        "§4.4, Alg. 1",
        settings={"residency": f"{HERE}.in_{framework}.distributed:residency"},
    )


def _methods(framework: str) -> tuple[Method, ...]:
    declare = functools.partial(reference_method, "state_space", framework, PROMISES[framework])
    return (
        declare("backprop", LINEAR, *ORACLE_CLAIMS),
        declare("adjoint_sharding", QUADRATIC, source="Prop. 2, Alg. 1–4; Prop. 3 mended"),
        declare(
            "adjoint_sharding_printed",
            QUADRATIC,
            *PRINTED,
            module=f"paper.as_printed_{framework}",
            source="Prop. 3, Eq. 6",
            expected="refuted",
            declared_reason="every layer is fed dl/dy_K: the paths through the layers above it are missing",
        ),
        declare(
            "adjoint_truncated",
            *TRUNCATED,
            options=(WINDOW,),
            disclaims=("second_order",),
            oracle="cut_loss",
            gradient=CUT,
            source="Eq. 7",
        ),
        declare("reverse_recurrence", LINEAR, options=(CHUNK,), source="beyond the paper"),
        declare(
            "adjoint_parallel",
            QUADRATIC,
            module=f"in_{framework}.parallel",
            options=(INSTANCES,),
            source="§4.5",
        ),
        declare("associative_scan", LINEAR, module=f"in_{framework}.parallel", source="beyond the paper"),
        declare(
            "adjoint_distributed",
            QUADRATIC,
            _own_layers(framework),
            module=f"in_{framework}.distributed",
            options=(DEVICES,),
            source="§4.4, Alg. 1–4",
            **SHARDED[framework],
        ),
        declare(
            "adjoint_distributed_truncated",
            *TRUNCATED[:2],
            module=f"in_{framework}.distributed",
            options=(DEVICES, WINDOW),
            source="Alg. 4",
            oracle="cut_loss",
            gradient=CUT,
            **{**SHARDED[framework], "disclaims": ("second_order", *(("vmap",) if framework == "torch" else ()))},
        ),
    )


def _shape(
    structure: str, T: int, K: int, N: int, P: int, batch: int, depth: int, rest: str, maps: str = "full"
) -> dict[str, Any]:
    activation, norm, head = rest.split()
    return {
        "structure": structure,
        "length": T,
        "layers": K,
        "state": N,
        "width": P,
        "batch": batch,
        "depth": depth,
        "maps": maps,
        "activation": activation,
        "norm": norm,
        "head": head,
        "vocabulary": 2 + (T * K) % 5,
    }


# Every size occurs at its edge, and every pair of two settings of structure, maps, norm, head, activation and depth.
# The exception: without a norm the activation is bounded, or three layers would overflow float32. One sequence of each
# structure is longer than the usual tiles of 32, 64 and 128 tokens and is no multiple of any; together they have every
# setting. They have at most two layers, because adjoint sharding runs T(T+1)/2 VJPs of each; by its sizes
# `strategies.pick_options` picks slices and windows of 64 for the first, the only one that floats are judged on.
SHAPES = (
    _shape("scalar", 1, 1, 1, 1, 1, 1, "tanh none squared_error", maps="vectors"),
    _shape("diagonal", 2, 1, 2, 2, 1, 1, "tanh layer cross_entropy"),
    _shape("diagonal", 2, 2, 2, 2, 1, 1, "tanh rms cross_entropy"),
    _shape("unstructured", 3, 1, 2, 1, 2, 2, "silu layer squared_error"),
    _shape("unstructured", 3, 2, 3, 2, 2, 1, "identity layer cross_entropy", maps="vectors"),
    _shape("scalar", 4, 2, 2, 3, 2, 2, "identity rms squared_error"),
    _shape("diagonal", 5, 3, 1, 2, 1, 2, "silu rms cross_entropy", maps="vectors"),
    _shape("unstructured", 5, 1, 3, 3, 3, 1, "tanh none squared_error"),
    _shape("scalar", 7, 3, 3, 2, 2, 1, "silu layer cross_entropy"),
    _shape("diagonal", 8, 2, 4, 3, 1, 2, "tanh none cross_entropy"),
    _shape("unstructured", 133, 2, 2, 2, 1, 1, "identity rms squared_error"),
    _shape("diagonal", 1, 4, 2, 2, 2, 1, "identity layer squared_error"),
    _shape("scalar", 133, 1, 2, 1, 1, 1, "tanh none cross_entropy", maps="vectors"),
    _shape("diagonal", 133, 1, 1, 3, 2, 2, "silu layer cross_entropy"),
)

STRESS = (
    {**SHAPES[9], "length": 48, "decay": 9.0, "scale": 0.3},
    {**SHAPES[9], "length": 48, "decay": -9.0, "scale": 3.0},
    {**SHAPES[8], "length": 33, "decay": 5.0, "scale": 5.0},
    {**SHAPES[4], "length": 33, "scale": 10.0},
)

MEASURED = {
    "dtype": "float32",
    "structure": "diagonal",
    "length": 256,
    "layers": 4,
    "state": 16,
    "width": 32,
    "batch": 8,
    "vocabulary": 64,
}

TRIAL = Trial(
    clever="reverse_recurrence",
    lossy="reverse_recurrence",
    leaves=(
        "embedding",
        "head",
        "layers.A.b0",
        "layers.A.w0",
        "layers.B.b0",
        "layers.B.w0",
        "layers.C.b0",
        "layers.C.w0",
    ),
    turns=("head", "layers.B.w0", "layers.C.b0", "layers.A.w0", "embedding"),
    coarse={"layers.A.w0": 0.2},
    target="targets",
    state="targets",
    single=("length",),
    large=("params.layers.A.b", 4.5),
    ragged=("length", "chunk"),
)

FAMILY = Family(
    name="state_space",
    paper=PAPER,
    spec=f"{HERE}.problem:StateSpaceSpec",
    methods=_methods("jax") + _methods("torch"),
    shapes=SHAPES,
    values={"scale": (0.1, 10.0), "decay": (-4.0, 6.0)},
    stress=STRESS,
    letters={"T": "length", "K": "layers", "N": "state", "P": "width"},
    measured=MEASURED,
    eager={"length": 32},
    trial=TRIAL,
)
