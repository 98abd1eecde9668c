"""What the methods promise of memory and work: the paper's claims with their source, and what is added here.

The inner model of the sweeps over L is an MLP whose activations outweigh its parameters, as they do in the paper; that
of the sweeps over T is the toy map, whose parameters outweigh its activations. The paper's own sizes are in `paper`.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.bilevel.paper_laws import LINEAR_GAIN
from gradgate.references.contract import Claim
from gradgate.references.laws import figure, memory_law, per_device, work_law

HERE = "gradgate.references.bilevel.promises"
DEEP = (4, 8, 16, 32, 64)
LONG = (4, 16, 64, 256, 1024)
STATIC: dict[str, Any] = {"model": "toy", "optimiser": "adam", "layers": 2, "width": 64, "batch": 4}
"""A problem whose θ and υ are most of what there is."""


def _deep(name: str, statement: str, **settings: Any) -> Claim:
    source = settings.pop("source", "§5.3, Eq. 12")
    return memory_law(name, statement, source, variable="layers", sizes=DEEP, spec={"optimiser": "adam"}, **settings)


def _long(statement: str, exponent: float, **settings: Any) -> Claim:
    spec = {**STATIC, **settings.pop("spec", {})}
    return memory_law(
        "memory_law", statement, "App. A.2", variable="steps", sizes=LONG, exponent=exponent, spec=spec, **settings
    )


def _work(statement: str, exponent: float = 1, **settings: Any) -> Claim:
    return work_law(
        "work_law",
        statement,
        "§2.3, App. A.2",
        variable="steps",
        sizes=LONG,
        exponent=exponent,
        spec=STATIC,
        **settings,
    )


def log_remat_growth(profile: str) -> float:
    """Bytes by which `log_remat` grows from T = 1 to T = 1024, over those of 2·log2 1024 states, in percent.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.bilevel.jax_static import log_remat
    from gradgate.references.bilevel.problem import BilevelSpec
    from gradgate.references.draws import shapes

    found = []
    for steps in (1, 1024):
        problem = shapes(BilevelSpec(**{**STATIC, "dtype": "float32", "optimiser": "momentum", "steps": steps}))
        measured = measure(log_remat, (problem,), profile)
        if measured.temp_bytes is None:
            raise LookupError(f"{profile}: {measured.reason}")
        found.append(measured.temp_bytes)
    state = 2 * 4 * STATIC["width"] ** 2
    return 100 * (found[1] - found[0]) / (2 * 10 * state)


LINEAR = "its FLOPs grow linearly with T"

JAX: dict[str, tuple[Claim, ...]] = {
    "truncated_bptt": (
        _deep(
            "memory_law", "also with layers rematerialised, its temporary memory grows linearly with L", exponent=1,
            bound="equal",
        ),
        _work(LINEAR),
    ),
    "mixflow": (
        _deep(
            "memory_law",
            "its temporary memory grows linearly with L at most, and at L = 64 is 3 times below truncated_bptt's",
            exponent=1, below=("truncated_bptt", 3.0),
        ),
        _deep(
            "memory_law_printed", "with layers rematerialised, its memory does not depend on the number of layers",
            exponent=0, source="§5.3", expected="refuted",
            reason="the reverse pass inside keeps every layer's input, and forward mode its tangent: 2·L·B·S·d "
            "numbers, few beside the B·S² of one layer's attention, but not none",
        ),
        LINEAR_GAIN,
        _work(LINEAR),
    ),
    "momentum_inversion": (
        _long(
            "its temporary memory does not grow with T, and at T = 1024 is at least 50 times below mixflow's", 0,
            spec={"optimiser": "momentum"}, below=("mixflow", 50.0),
        ),
    ),
    "log_remat": (
        figure(
            "memory", "from T = 1 to T = 1024 its temporary memory grows by at most two states (θ, υ) per halving, in "
            "percent", "App. A.2", printed=100, measured=f"{HERE}:log_remat_growth", unit="%", bound="at most",
            tolerance=0.05,
        ),
        _work("its FLOPs grow like T·log T, here no faster than T^1.1", 1.1, bound="at most", tolerance=0.05),
    ),
    "bilevel_sharded": (
        per_device(
            "memory_per_device", "what grows with T is shared out: on each of 4 devices it grows 4 times less",
            "App. A.2", variable="steps", sizes=LONG, devices=4, spec=STATIC,
        ),
    ),
}  # fmt: skip

TORCH: dict[str, tuple[Claim, ...]] = {}

PROMISES = {"jax": JAX, "torch": TORCH}
"""Framework -> method -> its claims about memory and work."""
