"""The claims that are always judged about a pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from gradgate.references.backends import NARROW
from gradgate.references.contract import Claim, Option
from gradgate.suites.pairs.approximate import Convergence, ErrorBound
from gradgate.suites.pairs.declared import EVERY_CHOICE, DeclaredPair
from gradgate.suites.pairs.device_names import INTERPRETER

FLOATS = {dtype: f"gradient_{dtype}" for dtype in ("float64", "float32", "bfloat16", "float16")}
EXACT = "its formula is the reference's gradient: equal to 40 digits and more, constants rounded to {} aside"
ITSELF = (
    "its formula is the derivative of what its own forward pass computes, equal to 40 digits and more; whether that is "
    "what it should compute is not judged"
)
AUTOGRAD = (
    "keeps autograd's protocol: after inputs or outputs changed before the backward pass, is right or raises; "
    "without a backward pass, its graph is freed"
)
REFUSED = {
    "jit": "refuses_jit",
    "compile": "refuses_compile",
    "vmap": "refuses_vmap",
    "second_order": "refuses_second_order",
}


def contract(pair: DeclaredPair, options: Sequence[Option]) -> tuple[Claim, ...]:
    """The claims of a pair: those about every pair, and those about its transformations, options and promises."""

    def owed(name: str, statement: str, check: str = "", **settings: Any) -> Claim:
        return Claim(name, check or name, statement, "contract", settings=settings)

    dtype = "float64" if "float64" in pair.dtypes else "float32"
    steps = pair.approximates if isinstance(pair.approximates, Convergence) else None
    bound = f", but for {pair.approximates.words}" if isinstance(pair.approximates, ErrorBound) else ""
    found = [owed("tree", "gives every floating input a gradient of its shape and dtype, and none is None")]
    if steps:
        told = f"its outputs and gradient converge with order {steps.order:g} in the step of {steps.option}, in {dtype}"
        found.append(owed("gradient_order", told, "convergence"))
    else:
        alone = pair.reference is None  # then its outputs are those of the reference by definition
        exact = f"its formula is the reference's gradient{bound}" if bound else ITSELF if alone else EXACT.format(dtype)
        plain = "the gradient of its own forward pass" if alone else "the reference's gradient"
        if not alone:
            found.append(owed("outputs", f"returns the outputs of the reference, in every dtype{bound}"))
        found += [
            owed("gradient_exact", exact, constants=True),
            *(_in_floats(pair, name, f"equals {plain} in {name}{bound}") for name in pair.dtypes),
            owed("cotangents", "gives the right gradient if only one output has a cotangent, or none has"),
        ]
    found += [
        owed("upstream", "its gradient of c·loss is c times its gradient"),
        owed("deterministic", "gives the same bits when called twice"),
        owed("pure", "leaves inputs and global random state alone, and prints nothing"),
    ]
    if not pair.against_itself:
        found.append(
            owed("not_finite", "if an input is not finite, its answer is not finite wherever the reference's is not")
        )
    if pair.regimes and not steps:
        found.append(owed("stability", f"keeps its digits where inputs are {', '.join(pair.regimes)}"))
    if options and not steps:
        names = ", ".join(option.name for option in options)
        found.append(owed("options", f"gives this gradient for every legal value of {names}"))
    if pair.donates:
        found.append(owed("donation", f"gives the memory of {', '.join(pair.donates)} to its outputs"))
    jax = pair.where == "jax"
    each = "each_leaf_alone_in_jax" if jax else ""
    found.append(owed("each_leaf_alone", "gives each input its gradient if only this input requires one", each))
    if not steps:
        found.append(owed("forward_mode", "in forward mode, where it offers that, gives the reference's derivative"))
    if not jax:
        found += [
            owed("layouts", "takes inputs and cotangents that are transposed, strided or expanded"),
            owed("autograd", AUTOGRAD),
        ]
    for name, statement in (
        ("jit", "gives the same gradient under jax.jit as without"),
        ("compile", "gives the same gradient under torch.compile as without"),
        ("vmap", f"under vmap over {_batched(pair)} of its inputs, gives the value and the gradient of each lane"),
    ):
        found += [owed(name, statement)] if name in pair.composes else []
    if "second_order" in pair.composes:
        found.append(owed("second_order_exact", "the formula of its derivative is H·v", constants=True))
        found.append(owed("second_order", "differentiated again, gives the reference's H·v"))
    for name in pair.disclaims:
        found.append(owed(REFUSED[name], f"refuses {name} in words", "refuses", transformation=name, in_own_words=True))
    if INTERPRETER in pair.devices:
        found += [
            owed(
                "memory_safe",
                "its kernels read and write only what is theirs, assert nothing false, and use no undefined number",
            ),
            owed(
                "order_free",
                "its answer depends neither on the order of a kernel's programs nor on what a tuner chooses",
            ),
        ]
    found += pair.further()
    return tuple(claim if dtype == "float64" else _narrow(claim) for claim in found) + pair.promises


def _batched(pair: DeclaredPair) -> str:
    """Over which of the inputs vmap is tried."""
    if pair.batchable <= EVERY_CHOICE:
        return "every choice"
    return "all, each alone, all but one, and some pairs"


def _in_floats(pair: DeclaredPair, dtype: str, statement: str) -> Claim:
    """The claim about the gradient in one dtype."""
    settings = {"dtype": dtype}
    if pair.accumulates and dtype in NARROW:
        statement = f"{statement}, as if it were computed in {pair.accumulates} and rounded once"
        settings["accumulates"] = pair.accumulates
    return Claim(FLOATS[dtype], "gradient", statement, "contract", settings=settings)


def _narrow(claim: Claim) -> Claim:
    """The claim for a function that does not take float64: float32 is its widest dtype."""
    return dataclasses.replace(claim, settings={"widest": "float32", **claim.settings})
