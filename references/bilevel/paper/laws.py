"""What the paper claims about the gain in dynamic bytes, as laws that small programs can show."""

from __future__ import annotations

from typing import Any

from gradgate.references.laws import figure

HERE = "gradgate.references.bilevel.paper.laws"
DEPTHS = (16, 32, 48)


SEQUENCE: dict[str | None, int] = {"tpu": 2048}
"""Compiler -> S: 512, except for TPUs, which pad the output of a layer to 128 numbers per position."""


def small(layers: int, sequence: int) -> Any:
    """A transformer whose scores (B, h, S, S) are larger than the output of a layer, as in the paper (Eq. 12)."""
    from gradgate.references.bilevel.problem import BilevelSpec

    return BilevelSpec(
        dtype="float32",
        task="maml",
        model="transformer",
        optimiser="adam",
        steps=2,
        batch=1,
        sequence=sequence,
        vocabulary=16,
        layers=layers,
        width=8,
        ffw=16,
        heads=4,
        key_size=2,
    )


def gain(layers: int, profile: str) -> float:
    """Dynamic bytes of the default over those of mixed mode (Eq. 10)."""
    from gradgate.hw_profiles.profile import load
    from gradgate.references.bilevel.paper import scale as scale

    spec = small(layers, SEQUENCE.get(load(profile).compiler, 512))
    return scale.dynamic(spec, scale.DEFAULT, profile) / scale.dynamic(spec, scale.MIXFLOW, profile)


def increments(profile: str) -> float:
    """The growth of the gain from 32 to 48 layers, over its growth from 16 to 32: 1 for growth linear in L.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    first, second, third = (gain(layers, profile) for layers in DEPTHS)
    return (third - second) / (second - first)


LINEAR_GAIN = figure(
    "gain_linear_in_layers",
    "with block rematerialisation its gain in dynamic bytes over truncated BPTT grows linearly with L: equal steps of "
    "L add equally",
    "Eq. 12, Fig. 6",
    printed=1.0,
    measured=f"{HERE}:increments",
    unit="times",
    tolerance=0.2,
)
"""A claim of `mixflow` in JAX."""
