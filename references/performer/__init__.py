"""performer: SLiM, the gradient of a Performer in memory that does not grow with the sequence.

Paper: Likhosherstov, Choromanski, Davis, Song, Weller, "Sub-linear memory: how to make Performers SLiM" (2020).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from gradgate.references.claims import KAPPA_OF_ROUNDING, ORACLE_CLAIMS, reference_method
from gradgate.references.contract import Claim, Family, Method, Option, Trial
from gradgate.references.performer.claims import PROMISES
from gradgate.references.performer.slicing import PREFIX_SUMS, TERMS

PAPER = "Likhosherstov et al., Sub-linear memory: how to make Performers SLiM, 2020"
HERE = "gradgate.references.performer"
LONG = 128
"""Tokens of the largest usual tile. A sequence with more tokens counts as long."""
SUBTRACTED = "loss_by_subtraction"
"""The rounding allowed to methods that rebuild states: 𝓑^(n−1) = 𝓑^(n) − ΣT keeps an absolute error of about u·Σ|T|.
So if early features are small, the early states lose digits that plain backprop has. No constant bounds how many: on 7
of 20,000 drawn problems slim lost more than twelve bits. So the loss is measured on each problem."""
TWELVE_BITS = {"options": {"chunk": 1}, "kappa": 4096.0, "rounding": ""}
"""The refuted claim about `slim`: subtraction token by token never loses twelve bits more than backprop."""
SHARP = 3.0
"""The sharpness of the one stress problem on which `slim` loses more than that."""


def ragged(spec: Any) -> Sequence[int]:
    """A short and a long slice: the short one has 1 token, or 2 if L is 3, 5, …; the long one L, or 3 more.

    Each shape has two of the four kinds, and all shapes together have all, so that few programs are compiled. For more
    than 128 tokens: a slice of L + 3 tokens, and one of a usual tile, which leaves a remainder.
    """
    if spec.length > LONG:
        return spec.length + 3, 64
    return (1 + spec.length % 2 * (spec.length > 1), spec.length + 3 * (spec.layers % 2))


CHUNK = Option(
    "chunk",
    "an integer of at least 1",
    ragged,
    illegal=(0, -1, 1.5, None, "all", True),
    usual=lambda spec: min(64, spec.length),
)
PREFIX_SUM = Option(
    "prefix_sum",
    "explicit, iterative, matrix or block",
    lambda spec: PREFIX_SUMS,
    illegal=("parallel", 1, None),
    usual=lambda spec: "block",
)
EVERY = Option("every", "an integer of at least 1", lambda spec: (1, 2), illegal=(0, -2, 1.5, None, True))
TERM = Option("term", "all, key, query or suffix", lambda spec: TERMS, illegal=("value", 3, None))

LOST = (
    "features of FAVOR+ at sharpness 3 span tens of decades: Eq. 19 recovers early states from sums that contain none "
    "of their digits"
)
REASONS = {
    "all": "the gradient of K̃ lacks gradS, that of Q̃ uses the state without the block's prefix, and the suffix sums "
    "leave out each position's own term",
    "key": "D_l = S_lᵀQ̃_l depends on K̃ as well, so its gradient has the summand gradS",
    "query": "N_l = R_l Q̃_l with R_l = blockR_l; curR is already without the block, so it lacks the block's prefix",
    "suffix": "gradR − PS(…)_l is the sum over later positions only; position l also reads its own V_l K̃_lᵀ",
}


VALUE = Claim(
    "value",
    "value",
    "returns the loss of plain evaluation, but for the rounding of rebuilt states",
    "contract",
    settings={"kappa": KAPPA_OF_ROUNDING},
)
"""For methods whose backward pass computes each slice's share of the loss."""
BFLOAT16 = Claim(
    "gradient_bfloat16",
    "gradient",
    "equals the gradient of backprop in bfloat16",
    "§3",
    settings={"dtype": "bfloat16", "kappa": 16.0, "rounding": ""},
)
SUBTRACTING = (
    VALUE,
    BFLOAT16,
    Claim(
        "stability",
        "stability",
        "states rebuilt token by token lose no more than the last one's rounding",
        "§4.2",
        where={"sharpness": (0.1, 0.5, 1.0, 10.0)},
        settings={"options": {"chunk": 1}},
    ),
)
REBUILT = Claim(
    "stability",
    "stability",
    "states rebuilt block by block lose no more than the last one's rounding; at sharpness 3, which is left out here, "
    "subtraction loses them: see stability_sharp of slim",
    "§4.2",
    where={"sharpness": (0.1, 0.5, 1.0, 10.0)},
)
REVERSIBLE = {"residual": "reversible"}
"""The problems whose layers can be undone."""
UNDONE = (
    dataclasses.replace(VALUE, where=REVERSIBLE),
    *(dataclasses.replace(claim, where={**claim.where, **REVERSIBLE}, source="§5") for claim in (BFLOAT16, REBUILT)),
)
SHARPEST = Claim(
    "stability_sharp",
    "stability",
    "loses twelve bits at most with FAVOR+ at sharpness 3",
    "§4.2",
    "refuted",
    LOST,
    where={"sharpness": SHARP},
    settings=TWELVE_BITS,
)
KEEPING = Claim(
    "stability",
    "stability",
    "with every state kept, keeps its digits where subtraction loses them",
    "beyond the paper",
    settings={"options": {"every": 1}},
)
PRINTED_TERMS = tuple(
    Claim(
        name,
        "gradient",
        f"the block backward is right with its {what} as printed",
        "App. B",
        "refuted",
        REASONS[term],
        settings={"dtype": "float64", "options": {"term": term}},
    )
    for name, term, what in (
        ("printed_key", "key", "gradient of K̃"),
        ("printed_query", "query", "gradient of Q̃"),
        ("printed_suffix", "suffix", "suffix sums"),
    )
)

PRINTED_SUFFIX = tuple(
    Claim(name, name, statement, "contract", settings={"kappa": TWELVE_BITS["kappa"]})
    for name, statement in (
        ("upstream", "its gradient of c·loss is c times its gradient, but for twelve bits"),
        ("jit", "gives the same gradient under jax.jit as without, but for twelve bits"),
        ("vmap", "vectorised over parameters, gives each one's gradient, but for twelve bits"),
    )
)
"""App. B's printed suffix sums are a total less a prefix sum, so they lose digits that no noise of the right gradient
shows: 57 times the noise was measured on one problem."""


def _methods(framework: str) -> tuple[Method, ...]:
    declare = functools.partial(reference_method, "performer", framework, PROMISES[framework])
    printed = functools.partial(declare, module=f"paper.as_printed_{framework}", expected="refuted")
    return (
        declare("full", *ORACLE_CLAIMS),
        declare(
            "full_iterative",
            options=(PREFIX_SUM,),
            kappa=KAPPA_OF_ROUNDING,
            rounding=SUBTRACTED,
            source="§4.2, Table 2; App. B mended",
            replaced=(REBUILT,),
        ),
        declare(
            "slim",
            SHARPEST,
            options=(CHUNK, PREFIX_SUM),
            kappa=KAPPA_OF_ROUNDING,
            rounding=SUBTRACTED,
            source="§3, Algorithms 1 and 2; App. B mended",
            replaced=SUBTRACTING,
        ),
        declare(
            "slim_checkpointed",
            options=(CHUNK, PREFIX_SUM),
            kappa=KAPPA_OF_ROUNDING,
            rounding=SUBTRACTED,
            source="§5",
            replaced=SUBTRACTING,
        ),
        declare(
            "slim_reversible",
            module=f"in_{framework}.reversible",
            options=(CHUNK,),
            kappa=KAPPA_OF_ROUNDING,
            rounding=SUBTRACTED,
            source="§5",
            where=REVERSIBLE,
            replaced=UNDONE,
        ),
        declare("slim_kept", options=(CHUNK, PREFIX_SUM, EVERY), source="beyond the paper", replaced=(KEEPING,)),
        printed(
            "block_printed",
            *PRINTED_TERMS,
            options=(TERM,),
            source="App. B",
            declared_reason=REASONS["all"],
            replaced=PRINTED_SUFFIX,
        ),
        printed("one_by_one_printed", source="App. B", declared_reason=REASONS["key"]),
    )


def _shape(L: int, s: int, k: int, d: int, rest: str, M: int = 0, **more: Any) -> dict[str, Any]:
    feature_map, norm, task = rest.split()
    return {
        "length": L,
        "layers": s,
        "heads": k,
        "head_width": d,
        "features": M,
        "feature_map": feature_map,
        "norm": norm,
        "task": task,
        "vocabulary": 2 + (L * s) % 5,
        **more,
    }


# Every pair of two settings of feature map, norm and task occurs, and every size at its edge. But d_model is never 2:
# layer norm turns any two numbers into ± its gain, so gradients through it are only what cancellation leaves, and eight
# samples do not measure their noise. Some shapes have reversible layers. The last three are longer than the usual tiles
# of 32, 64 and 128 tokens and no multiples of any; together they have every setting. `strategies.pick_options` gives
# the first of them, the only one that floats are judged on, to the methods in slices of 64 and in blocks.
SHAPES = (
    _shape(1, 1, 1, 1, "square sublayer window"),
    _shape(1, 2, 2, 2, "favor pre next_token", M=1),
    _shape(2, 1, 1, 3, "square pre next_token"),
    _shape(3, 1, 2, 2, "square post window"),
    _shape(4, 2, 1, 3, "favor sublayer copying", M=4),
    _shape(4, 1, 3, 1, "square pre copying", batch=2),
    _shape(5, 2, 2, 2, "square sublayer next_token"),
    _shape(5, 3, 2, 2, "favor post window", M=3, batch=2, dropout=0.25),
    _shape(7, 2, 2, 3, "square pre window", dropout=0.5),
    _shape(8, 2, 2, 2, "favor pre copying", M=5, dropout=0.25, residual="reversible"),
    _shape(132, 1, 2, 2, "square post copying", expansion=1),
    _shape(131, 1, 3, 1, "favor sublayer window", M=1),
    _shape(131, 2, 1, 4, "favor pre next_token", M=2, batch=2, dropout=0.25, residual="reversible"),
)

STRESS = (
    {**SHAPES[6], "length": 192},
    {**SHAPES[8], "length": 65, "scale": 10.0, "sharpness": 0.1, "residual": "reversible"},
    {**SHAPES[6], "length": 64, "sharpness": 10.0},
    {**SHAPES[6], "length": 48, "feature_map": "favor", "features": 4, "sharpness": SHARP},
    {**SHAPES[7], "sharpness": 1.0},
)

MEASURED = {
    "dtype": "float32",
    "length": 256,
    "layers": 3,
    "heads": 4,
    "head_width": 16,
    "expansion": 4,
    "vocabulary": 256,
}

TRIAL = Trial(
    clever="slim_kept",
    lossy="slim",
    leaves=(
        "embedding",
        "head.b",
        "head.w",
        "layers.attention.value",
        "layers.feed_forward.w1",
        "layers.feed_forward.b2",
        "layers.norms.gain2",
        "layers.norms.shift2",
    ),
    turns=("head.w", "layers.feed_forward.w1", "layers.norms.shift2"),
    target="targets",
    state="targets",
    single=("length",),
    large=("params.feed_forward.w1", 8.0),
    ragged=("length", "chunk"),
)

FAMILY = Family(
    name="performer",
    paper=PAPER,
    spec=f"{HERE}.problem:PerformerSpec",
    methods=_methods("jax") + _methods("torch"),
    shapes=SHAPES,
    values={"scale": (0.1, 10.0), "sharpness": (0.1, 1.0)},
    stress=STRESS,
    letters={"L": "length", "s": "layers", "k": "heads", "d": "head_width", "M": "features"},
    measured=MEASURED,
    eager={"length": 32},
    trial=TRIAL,
)
