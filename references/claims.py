"""The claims that every method owes, whatever its paper promises: the contract's own part of a declaration."""

from __future__ import annotations

from collections.abc import Sequence

from gradgate.references.contract import Claim, Expected, Option

COMPOSITIONS = {
    "jit": "gives the same gradient under jax.jit as without",
    "vmap": "can be vectorised over parameters",
    "second_order": "can be differentiated again",
}
LEGAL_COMPOSITIONS = {"jax": ("jit", "vmap", "second_order"), "torch": ("vmap", "second_order")}


def contract_claims(
    framework: str,
    *,
    composes: Sequence[str],
    options: Sequence[Option] = (),
    gradient: str = "the gradient of backprop",
    source: str = "contract",
    expected: Expected = "upheld",
    reason: str = "",
    bfloat16: bool = False,
) -> tuple[Claim, ...]:
    """The checks of every method, as claims; those about the gradient's numbers share one expectation.

    Args:
        composes: transformations that must work; every other legal one must be refused in words.
        gradient: what the method's gradient is claimed to equal, in words.
        expected: of the claims about the gradient's numbers.
        bfloat16: claim the gradient in bfloat16 too.
    """

    def numbers(name: str, check: str, statement: str, **settings: object) -> Claim:
        return Claim(name, check, statement, source, expected, reason, settings=settings)

    def owed(name: str, statement: str, **settings: object) -> Claim:
        check = "refuses_composition" if name.startswith("refuses_") else name
        return Claim(name, check, statement, "contract", settings=settings)

    dtypes = ["float64", "float32", *(["bfloat16"] if bfloat16 else [])]
    claims = [
        owed("tree", "returns (loss, grads) with the tree, shapes and dtypes of the parameters"),
        owed("value", "returns the loss of plain evaluation"),
        *(numbers(f"gradient_{d}", "gradient", f"equals {gradient} in {d}", dtype=d) for d in dtypes),
        owed("deterministic", "gives the same bits when called twice"),
        owed("pure", "leaves inputs and global random state alone, and prints nothing"),
        numbers("upstream", "upstream", "the gradient of c·loss is c times the gradient"),
        numbers("stability", "stability", "keeps its digits on long, ill-scaled and extreme problems"),
    ]
    if options:
        names = ", ".join(option.name for option in options)
        claims.append(numbers("options", "options", f"gives this gradient for every legal value of {names}"))
        claims.append(owed("refusal", f"refuses illegal values of {names} with IllegalOption"))
    for name in LEGAL_COMPOSITIONS[framework]:
        if name in composes:
            claims.append(numbers(name, name, COMPOSITIONS[name]))
        else:
            claims.append(owed(f"refuses_{name}", f"refuses {name} with NotComposable, in words", transformation=name))
    return tuple(claims)
