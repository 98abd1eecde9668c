"""invertible: Moonwalk, gradients of invertible chains from the input's gradient forward, and what it is compared with.

Paper: Krylov, Karamzade, Fox, "Moonwalk: inverse-forward differentiation" (2024).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from gradgate.references.claims import GRADIENT_CLAIMS, KAPPA_OF_ROUNDING, ORACLE_CLAIMS, reference_method
from gradgate.references.contract import Claim, Family, Method, Option, Trial
from gradgate.references.invertible.claims import PROMISES
from gradgate.references.invertible.rounding import SOLVED

PAPER = "Krylov, Karamzade, Fox, Moonwalk: inverse-forward differentiation, 2024"
HERE = "gradgate.references.invertible"
TWELVE_BITS = {"kappa": 4096.0, "rounding": ""}
"""For claims that digits are kept: noise is plain, and log2 κ = 12 of float64's 53 and float32's 24 bits may be
lost."""


def pushed(spec: Any) -> Sequence[int]:
    """How many JVPs are pushed forward together: few, in ragged groups, or all; one by one on the smallest problem."""
    if spec.layers * spec.numbers <= 2:
        return (1, 1000)
    return (7, 1000) if spec.side == 1 else (1000,)


def ways(spec: Any) -> Sequence[str]:
    """Ways to compute vijp: closed; by an inverse where every layer has one; by a solve where the Jacobian is small."""
    inverse = () if spec.submersive else ("inverse",)
    return ("closed", *inverse, *(("solve",) if spec.batch * spec.numbers <= SOLVED else ()))


TANGENTS = Option(
    "tangents", "an integer of at least 1", pushed, illegal=(0, -1, 1.5, None, "all", True), usual=lambda spec: 1
)
PUSHED = {
    "jax": TANGENTS,
    "torch": dataclasses.replace(TANGENTS, usual=lambda spec: 100),  # one by one, eager PyTorch takes minutes
}
VIJP = Option("vijp", "closed, inverse or solve", ways, illegal=("exact", 1, None))
SEED = Option("seed", "an integer of at least 0", lambda spec: (0, 1), illegal=(-1, 0.5, None, "now"))

SETTLED = {"layers": (12, 40)}
MIXING = {"layers": 24}
FEW = {"side": 1, "layers": (1, 2)}
INVERTIBLE = {"submersive": 0}
SUBMERSIVE = {"submersive": 1}
LOST = (
    "tanh^{-1} magnifies rounding by 1/(1 − y²) in every layer, about 5 to 100 times where the chain has settled; over "
    "12 layers nothing is left, and an output rounded to ±1 has no inverse at all"
)
ILL = (
    "where layers mix strongly and tanh is flat, the condition number of h_0 = h_L ∏ ∂x_i/∂x_{i−1} exceeds 1/u: "
    "components of h_L to which larger ones were added leave no digits in h_0, and vijp cannot bring these back"
)
EXACT = (*GRADIENT_CLAIMS.values(), "gradient_exact", "stability", "options", "second_order", "second_order_exact")
"""Claims about the numbers of a gradient."""
SOLVING = ("float64", "float32")
"""Dtypes of the methods that invert dense layers: neither framework solves linear systems or takes QR in bfloat16."""

UNBIASED = Claim(
    "unbiased",
    "unbiased",
    "its mean over u is the gradient",
    "§3.3",
    where=FEW,
    settings={"seed_option": "seed"},
)
REBUILT = (
    Claim(
        "stability_couplings",
        "stability",
        "keeps its digits over 40 additive couplings without tanh",
        "Gomez et al. (2017)",
        where={"unit": "additive"},
        settings=TWELVE_BITS,
    ),
    Claim(
        "inverses",
        "inverses",
        "every layer's inverse gives its input back, and vjp of vijp is the identity",
        "§4, Eq. 10",
        where=INVERTIBLE,
    ),
    Claim(
        "refuses_submersive",
        "refuses_problem",
        "refuses a layer without an inverse, by its name",
        "beyond the paper",
        where=SUBMERSIVE,
        settings={"error": f"{HERE}.layers:NotInvertible", "says": "submersive1 has no inverse"},
    ),
)
UNSTABLE = Claim(
    "stability",
    "stability",
    "keeps its digits with tanh on the outputs",
    "§6.6, Fig. 4, 5",
    "refuted",
    LOST,
    where=SETTLED,
    settings=TWELVE_BITS,
)
STABLE_FORWARD = Claim(
    "stability",
    "stability",
    "keeps its digits on long, ill-scaled and extreme problems",
    "§3.2",
    settings={"options": {"tangents": 1000}},
)
STABLE = Claim(
    "stability",
    "stability",
    "keeps its digits with tanh on the outputs, where reversing loses them",
    "§6.6, Fig. 4, 5",
    where=SETTLED,
    settings=TWELVE_BITS,
)
SECOND_ORDER = Claim(
    "second_order",
    "second_order",
    "differentiated again, gives the oracle's H·v",
    "§4.1, §4.2",
    settings=TWELVE_BITS,
)
"""`loss_by_vijp` holds w_i − h_i constant, so it cannot show what their derivatives lose: only plain noise is
allowed."""
WALKED = (
    Claim(
        "stability_mixing",
        "stability",
        "keeps its digits with tanh on the outputs of layers that mix strongly, over 24 units",
        "§6.6",
        "refuted",
        ILL,
        where=MIXING,
        settings=TWELVE_BITS,
    ),
    Claim(
        "submersive",
        "gradient",
        "equals the gradient of backprop where a layer's Jacobian is only surjective",
        "beyond the paper",
        where=SUBMERSIVE,
        settings={"dtype": "float64"},
    ),
)
FLAT = {"unit": "dense tanh additive"}
FLAT_UNDIVIDED = Claim(
    "stability_flat",
    "stability",
    "keeps its digits where outputs of tanh are rounded to ±1",
    "§6.6",
    "refuted",
    "where the derivative of tanh is rounded to 0, h_{i−1} is 0 whatever h_i was: the Jacobian is singular, and vijp "
    "divides 0 by 0",
    where=FLAT,
    settings=TWELVE_BITS,
)
FLAT_HANDED_OVER = Claim(
    "stability_flat",
    "stability",
    "keeps its digits where outputs of tanh are rounded to ±1: phase 1 hands h_i over",
    "§6.6; handing over is beyond the paper",
    where=FLAT,
    settings=TWELVE_BITS,
)
INVERSES_BY_VIJP = Claim(
    "vijp",
    "vijp",
    "of every layer, submersive ones too, vijp of vjp is the identity",
    "§4, Eq. 10",
)


def _estimate(method: Method) -> Method:
    """The method without the claims that its result is the gradient: the paper says that a random projection is not."""
    claims = tuple(claim for claim in method.claims if claim.name not in EXACT)
    composes = tuple(name for name in method.composes if name not in EXACT)
    return dataclasses.replace(method, claims=claims, composes=composes)


def _methods(framework: str) -> tuple[Method, ...]:
    declare = functools.partial(reference_method, "invertible", framework, PROMISES[framework])
    moonwalk = functools.partial(
        declare, rounding="loss_by_vijp", kappa=KAPPA_OF_ROUNDING, dtypes=SOLVING, replaced=(STABLE, SECOND_ORDER)
    )
    return (
        declare("backprop", *ORACLE_CLAIMS),
        declare("forward", options=(PUSHED[framework],), source="§3.2", replaced=(STABLE_FORWARD,)),
        _estimate(declare("projected_forward", UNBIASED, options=(SEED,), source="§3.3")),
        declare(
            "reversible",
            *REBUILT,
            source="RevBackprop",
            kappa=KAPPA_OF_ROUNDING,
            dtypes=SOLVING,
            rounding="loss_by_reversing",
            where=INVERTIBLE,
            replaced=(UNSTABLE,),
        ),
        moonwalk("moonwalk", *WALKED, FLAT_UNDIVIDED, options=(TANGENTS,), source="Algorithm 1, §4.1"),
        moonwalk(
            "moonwalk_mixed",
            *WALKED,
            INVERSES_BY_VIJP,
            FLAT_HANDED_OVER,
            options=(VIJP,),
            source="Algorithm 1, §4.2",
        ),
    )


def _shape(unit: str, L: int, side: int, channels: int, batch: int, rest: str, **more: Any) -> dict[str, Any]:
    residual, activation, norm, head = rest.split()
    return {
        "unit": unit,
        "layers": L,
        "side": side,
        "channels": channels,
        "batch": batch,
        "residual": residual,
        "activation": activation,
        "norm": norm,
        "head": head,
        **more,
    }


# Every layer occurs, alone or behind others. So does every pair of settings of residual function, activation, norm and
# head. Batch norm gets at least 4 numbers per channel, because it turns two numbers into ± its gain. A chain has no
# time axis. Kernels may cut the rows into tiles of 128, so some batches have more rows than that, and no whole number
# of tiles; together they have every layer and setting.
SHAPES = (
    _shape("additive", 1, 1, 2, 1, "dense tanh none squared_error"),
    _shape("dense", 1, 1, 1, 1, "dense tanh none cross_entropy"),
    _shape("affine", 2, 1, 3, 2, "dense relu none cross_entropy", depth=2),
    _shape("conv1x1 affine", 1, 1, 4, 2, "dense tanh none squared_error", blocks=2, submersive=1),
    _shape("dense additive tanh", 2, 1, 2, 131, "dense tanh none cross_entropy"),
    _shape("additive leaky_relu", 2, 1, 3, 5, "dense relu batch squared_error", depth=2, hidden=2),
    _shape("affine conv1x1 leaky_relu", 2, 2, 2, 2, "conv tanh batch cross_entropy"),
    _shape("additive tanh", 1, 4, 2, 1, "conv relu none squared_error", blocks=2),
    _shape("affine conv1x1 leaky_relu", 1, 1, 2, 131, "conv relu batch squared_error", depth=2),
)

STRESS = (
    _shape("dense tanh", 12, 1, 6, 3, "dense tanh none cross_entropy", scale=0.1, bias=1.0),
    _shape("conv1x1 additive tanh", 12, 1, 6, 3, "dense tanh none cross_entropy", scale=0.05, bias=1.0),
    _shape("additive", 40, 1, 6, 3, "dense tanh none cross_entropy"),
    _shape("affine conv1x1 tanh", 24, 1, 6, 3, "dense tanh none cross_entropy"),
    _shape("dense tanh additive", 2, 1, 4, 3, "dense tanh none cross_entropy", spread=30.0),
)

MEASURED = {
    "dtype": "float32",
    "unit": "additive",
    "layers": 16,
    "channels": 32,
    "batch": 256,
    "residual": "dense",
    "depth": 2,
    "hidden": 8,
    "activation": "relu",
    "norm": "none",
    "classes": 10,
}

TRIAL = Trial(
    clever="moonwalk_mixed",
    lossy="reversible",
    leaves=("head.w", "head.b", "block0"),
    turns=("head.w", "block0", "head.b"),
    target="targets",
    state="x",
    single=("batch",),
    large=("data.x", 2.5),
    ragged=("batch", 2),
)

FAMILY = Family(
    name="invertible",
    paper=PAPER,
    spec=f"{HERE}.problem:InvertibleSpec",
    methods=_methods("jax") + _methods("torch"),
    shapes=SHAPES,
    values={"scale": (0.1, 1.0), "spread": (0.1, 1.5), "bias": (-0.5, 0.5)},
    stress=STRESS,
    letters={"L": "layers", "n": "channels", "d": "hidden"},
    measured=MEASURED,
    eager={"layers": 4, "channels": 8, "hidden": 4, "batch": 32},  # a JVP through all layers for every parameter
    trial=TRIAL,
)
