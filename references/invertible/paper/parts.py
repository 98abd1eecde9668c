"""Bytes of parts of the methods: phase 1 by itself, what mixed Moonwalk keeps, forward with several tangents."""

from __future__ import annotations

from typing import Any

from gradgate.references.invertible.paper.compiled import measured
from gradgate.references.invertible.paper.rows import PROFILE, bytes_of, revnet
from gradgate.references.invertible.problem import InvertibleSpec

SMALL = InvertibleSpec(dtype="float32", channels=16, batch=64, activation="relu")


def phase_one(deep: int = 256, shallow: int = 16, profile: str = "cpu") -> float:
    """Temporary bytes of phase 1 by JVPs alone, at `deep` layers over those at `shallow` (§4.1)."""
    from gradgate.references.invertible.in_jax.phases import input_gradient_forward

    def phase(problem: Any) -> Any:
        return input_gradient_forward(problem, 1)

    return _temporaries(phase, deep, profile) / _temporaries(phase, shallow, profile)


def phase_one_reverse(layers: tuple[int, int, int] = (16, 64, 256), profile: str = "cpu") -> float:
    """What the last layers add to the temporary bytes of phase 1 by reverse mode, over what the first add (§4.2)."""
    from gradgate.references.invertible.in_jax.phases import input_gradient_reverse

    few, some, many = (_temporaries(input_gradient_reverse, depth, profile) for depth in layers)
    return (many - some) / (some - few)


def kept_by_mixed(channels: int = 18, layers: int = 10) -> float:
    """Mx·L, a float32 per number of every coupling's half, over all bytes of mixed Moonwalk, in percent (§6.3, Fig. 2).

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    spec = revnet(channels, layers)
    kept = 4 * spec.batch * spec.numbers // 2 * layers * spec.blocks
    return 100 * kept / bytes_of("moonwalk_mixed", channels, layers, PROFILE)


def forward_bytes(tangents: int, profile: str = "cpu") -> int:
    """Temporary bytes of forward with so many tangents pushed together, 16 layers (§6.2)."""
    from gradgate.references.invertible.in_jax.methods import forward

    return _temporaries(lambda problem: forward(problem, tangents=tangents), 16, profile)


def _temporaries(program: Any, layers: int, profile: str) -> int:
    import dataclasses

    from gradgate.references.draws import shapes

    return int(measured(program, (shapes(dataclasses.replace(SMALL, layers=layers)),), profile).temp_bytes)
