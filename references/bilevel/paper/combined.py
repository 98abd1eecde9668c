"""A.2 names techniques that reduce static memory, "or their combinations": here inverted steps and shared states.

`momentum_inversion` keeps no step. On several devices, XLA's partitioner shares out θ, υ and their cotangents if it is
told that θ_0 is shared out, so the two techniques are combined without another method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.published import Published, at_least, equal, upheld

HERE = "gradgate.references.bilevel.paper.combined"
STEPS = 64
LARGE: dict[str, Any] = {
    "dtype": "float32",
    "task": "maml",
    "model": "toy",
    "optimiser": "momentum",
    "layers": 2,
    "width": 512,
    "batch": 8,
    "steps": STEPS,
}
"""A problem in which θ and υ take most of the memory."""


def shared(problem: Any, devices: int) -> dict[str, Any]:
    """``mesh``, ``in_specs`` and ``out_specs`` for a method whose problem has its θ_0 cut into D parts along axis 0.

    Args:
        problem: a `BilevelProblem` of the task maml, whose η is θ_0, or its shapes.
        devices: D, which divides axis 0 of every leaf of θ_0.
    """
    import jax
    from jax.sharding import PartitionSpec

    parts = jax.tree.map(lambda _: PartitionSpec("device"), problem.params)
    whole = jax.tree.map(lambda _: PartitionSpec(), problem)
    return {
        "mesh": {"device": devices},
        "in_specs": (whole._replace(params=parts),),
        "out_specs": (PartitionSpec(), parts),
    }


def saved(profile: str, inverted: bool, devices: int) -> float:
    """Temporary bytes of `mixflow` on one device, over those per device of a combination.

    Args:
        profile: a profile of the host or of a TPU.
        inverted: whether the combination takes steps back (`momentum_inversion`) or keeps them (`mixflow`).
        devices: how many devices share the states; 1: they are not shared out.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    from gradgate.references.bilevel.in_jax.methods import mixflow
    from gradgate.references.bilevel.in_jax.static import momentum_inversion

    chosen = momentum_inversion if inverted else mixflow
    return _bytes(mixflow, 1, profile) / _bytes(chosen, devices, profile)


def _bytes(method: Callable[..., Any], devices: int, profile: str) -> float:
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.bilevel.problem import BilevelSpec
    from gradgate.references.draws import shapes

    problem = shapes(BilevelSpec(**LARGE))
    placed = shared(problem, devices) if devices > 1 else {}
    found = measure(method, (problem,), profile, **placed)
    if found.temp_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return float(found.temp_bytes)


def _rows() -> list[Published]:
    folds = upheld(at_least('"reduced by several folds with the following techniques or their combinations": three'))
    quarter = upheld(equal(0.1, '"reduced by several folds": four devices hold a quarter each, and little besides'))
    chosen = (
        ("inverted", True, 1, 3.0, folds),
        ("shared by 4 devices", False, 4, 4.0, quarter),
        ("inverted and shared by 4", True, 4, 3.0, folds),
    )
    return [
        Published(
            f"A.2, static memory of T = {STEPS} steps of momentum, CPU",
            "kept and on one device, over",
            name,
            "times",
            f"{HERE}:saved",
            {"profile": "cpu", "inverted": inverted, "devices": devices},
            printed,
            expects=expects,
        )
        for name, inverted, devices, printed, expects in chosen
    ]


COMBINED: tuple[Published, ...] = tuple(_rows())
