"""What the methods claim about memory and work: Table 1 with its source, and further claims.

Table 1 counts a layer's Jacobian as dense: a product with it costs n², and a product by its parameters costs nd. In the
laws over n the function inside a coupling is one dense matrix: its product with x costs n², and its product by the
parameters costs no more. So these laws are equalities, as those over L are. In the laws over d, the parameters of a
layer, d grows with the hidden channels at a fixed n. There both terms of Table 1 are such a product, in proportion to
d, and forward's n²dL² is d²L². Table 1 itself does not say how n² and d are related.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.contract import Claim
from gradgate.references.counts import joined
from gradgate.references.invertible.counts import claims as counted
from gradgate.references.laws import figure, memory_law, work_law

PAPER = "gradgate.references.invertible.paper.rows"
DEEP = (4, 16, 64, 256, 1024)
DEEPER = (64, 256, 1024, 4096, 16384)
WIDE = (64, 128, 256, 512, 1024)
DENSE = {"depth": 1}
"""One matrix of n/2 by n/2 in each coupling: its product with a number per channel costs n², and d = n²/4."""
FEW_ROWS = {"batch": 2, "layers": 2}
FORWARD_WIDE = "n⁴: n²d with d = n²/4 parameters in a layer"
UNIT = {"residual": "conv", "activation": "relu", "norm": "batch", "depth": 1, "side": 4, "channels": 4, "batch": 16}
UNIT_DEPTHS = (16, 32, 64, 128, 256)
SHORT = (2, 4, 8, 16, 32)
UNDOING, WALKING = (8, 12, 16, 24, 32), (32, 48, 64, 96, 128)
"""Depths between which one phase of `reversible`, and of `moonwalk_mixed`, has the peak, so the bytes are one line."""
HEAVY = (64, 128, 256, 512, 1024)
EAGER = {"batch": 64, "channels": 8, "hidden": 4}
FEW = {"batch": 2, "channels": 4, "hidden": 2}
NARROW = {"batch": 256, "channels": 2, "depth": 1, "classes": 2}
"""Two parameters per layer, so that JVPs are few; many samples, so that activations outweigh what 4 tangents take."""
ONE = {"batch": 2, "channels": 4, "layers": 1}
"""For the laws in d. It is small, because PyTorch must run what is counted."""


def _memory(
    framework: str,
    statement: str,
    exponent: float,
    below: tuple[str, float] | None = None,
    sizes: tuple[int, ...] = (),
    **more: Any,
) -> Claim:
    usual, spec = (DEEP, {}) if framework == "jax" else (SHORT, EAGER)
    sizes, spec = sizes or usual, more.pop("spec", spec)
    if below:
        statement += f", and at L = {sizes[-1]} memory is at least {below[1]:g} times below {below[0]}'s"
    return memory_law(
        "memory_law",
        statement,
        "Table 1",
        variable="layers",
        sizes=sizes,
        exponent=exponent,
        spec=spec,
        below=below,
        **more,
    )


def _work(framework: str, exponent: float = 1, **more: Any) -> Claim:
    sizes, spec = (DEEP, {}) if framework == "jax" else (SHORT, EAGER)
    said = {1: "linearly with L", 2: "like L²: dL passes through L layers"}[int(exponent)]
    chosen = {"spec": spec, "sizes": sizes, **more}
    return work_law("work_law", f"its FLOPs grow {said}", "Table 1", variable="layers", exponent=exponent, **chosen)


def _wide(exponent: int, said: str, framework: str = "jax", **more: Any) -> Claim:
    return work_law(
        "work_law_n",
        f"its FLOPs grow like {said}, the residual functions of the couplings being dense",
        "Table 1",
        variable="channels",
        sizes=WIDE,
        exponent=exponent,
        spec=DENSE if framework == "jax" else DENSE | FEW_ROWS,
        **more,
    )


def _unit(framework: str, factor: float, **more: Any) -> Claim:
    return memory_law(
        "memory_law_unit",
        "on the paper's unit, convolution, ReLU and batch norm, memory grows linearly with L at "
        f"most, and at L = {UNIT_DEPTHS[-1]} it is at least {factor:g} times below backprop's",
        "§4.2, §6.1",
        variable="layers",
        sizes=UNIT_DEPTHS,
        exponent=1,
        spec=UNIT,
        below=("backprop", factor),
        **more,
    )


def _heavy(exponent: int = 1, **more: Any) -> Claim:
    return work_law(
        "work_law_d",
        f"its FLOPs grow {'linearly with' if exponent == 1 else 'like the square of'} d",
        "Table 1",
        variable="hidden",
        exponent=exponent,
        sizes=HEAVY,
        spec=ONE,
        **more,
    )


EVERYTHING = "memory grows linearly with L: what every layer's VJPs need is stored"
NOTHING = "memory does not grow with L"
DIRECTION = "memory grows with L by the parameters' tangent only, linearly"
MX = "memory grows linearly with L at most, by what VJPs by x alone need"

JAX: dict[str, tuple[Claim, ...]] = {
    "backprop": (_memory("jax", EVERYTHING, 1, bound="equal"), _work("jax"), _wide(2, "n²"), _heavy()),
    "forward": (_memory("jax", DIRECTION, 1, ("backprop", 4.0)), _work("jax", 2), _heavy(2), _wide(4, FORWARD_WIDE)),
    "projected_forward": (
        _memory("jax", DIRECTION, 1, ("backprop", 10.0), DEEPER),
        _work("jax"),
        _wide(2, "n²"),
        _heavy(),
    ),
    "reversible": (_memory("jax", NOTHING, 0, ("backprop", 100.0)), _work("jax"), _wide(2, "n²"), _heavy()),
    "moonwalk": (
        _memory("jax", NOTHING, 0, ("backprop", 100.0)),
        _work("jax"),
        _wide(3, "n³"),
        _heavy(),
        figure(
            "memory_a4500",
            "at 10 layers per block, 32×32×8, its bytes are below backprop's, in percent of them",
            "§6.3, Fig. 1",
            printed=100,
            measured=f"{PAPER}:pure_at_8",
            unit="%",
            bound="at most",
            tolerance=0,
        ),
    ),
    "moonwalk_mixed": (
        _memory("jax", MX, 1, ("backprop", 4.0)),
        _unit("jax", 2.0),
        _work("jax"),
        _wide(2, "n²"),
        _heavy(),
        figure(
            "work",
            "on the RevNet of §6.1 it does about twice backprop's work, 1.5 to 2.5 times, in percent of backprop's",
            "§6.5",
            printed=200,
            measured=f"{PAPER}:mixed_work",
            unit="%",
            tolerance=0.25,
            unlike="printed are seconds on a device, ours are FLOPs",
        ),
        figure(
            "memory_a4500",
            "at 10 layers per block, 32×32×8, its bytes are below backprop's, in percent of them",
            "§6.3, Fig. 1",
            printed=100,
            measured=f"{PAPER}:mixed_at_8",
            unit="%",
            bound="at most",
            tolerance=0,
        ),
        figure(
            "memory_a4500_18",
            "at 10 layers per block, 32×32×18, its bytes are below backprop's, in percent of them",
            "§6.3, Fig. 2",
            printed=100,
            measured=f"{PAPER}:mixed_at_18",
            unit="%",
            bound="at most",
            tolerance=0,
        ),
        figure(
            "phases_apart",
            "at 10 layers per block, 32×32×8, its phases share no activations: its bytes are the 4/9 "
            "of backprop's that VJPs by x need, to 15%, for what does not grow with L; phases that are merged take 90%",
            "§4.2, §6.5",
            printed=400 / 9,
            measured=f"{PAPER}:mixed_at_8",
            unit="%",
            tolerance=0.15,
        ),
        figure(
            "parameters",
            "the network of Fig. 2 has 200k parameters per layer per block, in percent of that",
            "Fig. 2",
            printed=100,
            measured=f"{PAPER}:parameters",
            unit="%",
        ),
    ),
}

TORCH: dict[str, tuple[Claim, ...]] = {
    "backprop": (
        _memory("torch", EVERYTHING, 1, bound="equal"),
        _work("torch"),
        _wide(2, "n²", "torch"),
        _heavy(),
    ),
    "forward": (
        _memory(
            "torch",
            DIRECTION,
            1,
            ("backprop", 2.0),
            (16, 24, 32, 48, 64),
            options={"tangents": 4},
            spec=NARROW,
        ),
        _work("torch", 2, spec=FEW, options={"tangents": 1000}, sizes=(16, 32, 64, 128, 256)),
        _heavy(2, options={"tangents": 1000}),
    ),
    "projected_forward": (
        _memory("torch", DIRECTION, 1, ("backprop", 4.0)),
        _work("torch"),
        _wide(2, "n²", "torch"),
        _heavy(),
    ),
    "reversible": (
        _memory("torch", "memory grows with L by the gradients only, linearly", 1, ("backprop", 8.0), UNDOING),
        _work("torch"),
        _wide(2, "n²", "torch"),
        _heavy(),
    ),
    "moonwalk": (
        _memory("torch", "memory grows with L by the gradients only, linearly", 1, ("backprop", 4.0)),
        _work("torch"),
        _wide(3, "n³", "torch", options={"tangents": 1000}),
        _heavy(),
    ),
    "moonwalk_mixed": (
        _memory("torch", MX, 1, ("backprop", 4.0), WALKING),
        _unit("torch", 6.0),
        _work("torch"),
        _wide(2, "n²", "torch"),
        _heavy(),
    ),
}

PROMISES = {"jax": joined(JAX, counted("jax")), "torch": joined(TORCH, counted("torch"))}
"""Framework -> method -> its claims about memory, work and counts."""
