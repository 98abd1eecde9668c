"""The claims that every method makes, whatever its paper promises: the part of a declaration that the contract adds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from gradgate.references.contract import DTYPES, Claim, Expected, Method, Option

COMPOSITIONS = {"jax": ("jit", "vmap", "second_order"), "torch": ("vmap", "second_order")}
"""Framework -> the transformations that a method composes with or disclaims; every reference method says which."""

GRADIENT_CLAIMS = {
    "float64": "gradient_float64",
    "float32": "gradient_float32",
    "bfloat16": "gradient_bfloat16",
}
"""Dtype -> the name of the claim about the gradient in it."""
REFUSAL_CLAIMS = {"jit": "refuses_jit", "vmap": "refuses_vmap", "second_order": "refuses_second_order"}
"""Transformation -> the name of the claim of a method that refuses it."""
KAPPA_OF_ROUNDING = 32.0
"""κ of a method with a `rounding`: 16 times what it loses knowingly, as every method has 16 times the noise."""

ORACLE_CLAIMS = (
    Claim("taylor", "taylor", "the Taylor remainder of the NumPy loss falls with slope 2", "oracle"),
    Claim("oracles_agree", "oracles_agree", "JAX and PyTorch backprop agree to 25 digits", "oracle"),
)
"""The claims that check the oracles themselves; each family's backprop makes them."""


def contract_claims(
    *,
    composes: Sequence[str] = (),
    disclaims: Sequence[str] = (),
    options: Sequence[Option] = (),
    gradient: str = "the gradient of backprop",
    source: str = "contract",
    expected: Expected = "upheld",
    declared_reason: str = "",
    dtypes: Sequence[str] = DTYPES,
    where: Mapping[str, Any] | None = None,
    replaced: Sequence[Claim] = (),
) -> tuple[Claim, ...]:
    """The claims that every method makes. Those about the gradient's numbers share one expectation.

    Args:
        composes: transformations that must work.
        disclaims: transformations that must be refused with a message.
        gradient: what the method's gradient is claimed to equal, in words.
        expected: what is expected of the claims about the gradient's numbers.
        dtypes: the dtypes that the method supports; its gradient is claimed in each.
        where: Spec fields of the problems that the method is for; None: all.
        replaced: claims that replace the contract's claims of the same name.
    """

    def numbers(name: str, check: str, statement: str, **settings: object) -> Claim:
        return Claim(name, check, statement, source, expected, declared_reason, settings=settings)

    def same(name: str, statement: str) -> Claim:
        return Claim(name, name, statement, "contract")

    def equals(dtype: str) -> Claim:
        return numbers(GRADIENT_CLAIMS[dtype], "gradient", f"equals {gradient} in {dtype}", dtype=dtype)

    # Claims that share compiled programs are neighbours: an idle worker takes the later half of a method's claims.
    claims = [
        same("tree", "returns (loss, grads) with the tree, shapes and dtypes of the parameters"),
        same("value", "returns the loss of plain evaluation"),
        numbers("gradient_exact", "gradient_exact", f"its formula is {gradient}: equal to 40 digits and more"),
        equals("float64"),
        same("upstream", "its gradient of c·loss is c times its gradient"),
        *(equals(dtype) for dtype in DTYPES[1:] if dtype in dtypes),
        numbers("stability", "stability", "keeps its digits on long, ill-scaled and extreme problems"),
        same("deterministic", "gives the same bits when called twice"),
        same("pure", "leaves inputs and global random state alone, and prints nothing"),
    ]
    if options:
        names = ", ".join(option.name for option in options)
        claims.append(numbers("options", "options", f"gives this gradient for every legal value of {names}"))
        claims.append(same("refusal", f"refuses illegal values of {names} with IllegalOption"))
    if "jit" in composes:
        claims.append(same("jit", "gives the same gradient under jax.jit as without"))
    if "vmap" in composes:
        claims.append(same("vmap", "vectorised over parameters, gives each one's gradient"))
    if "second_order" in composes:
        claims.append(numbers("second_order_exact", "second_order_exact", "the formula of its derivative is H·v"))
        claims.append(numbers("second_order", "second_order", "differentiated again, gives the oracle's H·v"))
    for name in disclaims:
        statement = f"refuses {name} with NotComposable, in words"
        claims.append(Claim(REFUSAL_CLAIMS[name], "refuses", statement, "contract", settings={"transformation": name}))
    instead = {claim.name: claim for claim in replaced}
    limited = [dataclasses.replace(claim, where=dict(where)) for claim in claims] if where else claims
    return tuple(instead.get(claim.name, claim) for claim in limited)


def reference_method(
    family: str,
    framework: str,
    promises: Mapping[str, tuple[Claim, ...]],
    name: str,
    *claims: Claim,
    options: tuple[Option, ...] = (),
    module: str = "",
    package: str = "",
    oracle: str = "loss",
    kappa: float = 16.0,
    rounding: str = "",
    disclaims: tuple[str, ...] = (),
    sharded: str = "",
    unmeasured: str = "",
    dtypes: tuple[str, ...] = DTYPES,
    measured: Mapping[str, Any] | None = None,
    **contract: Any,
) -> Method:
    """Declare a reference method. Its claims are the contract's, then those given here, then its `promises`.

    It composes with every transformation that it does not disclaim.

    Args:
        promises: name of a method -> its claims about memory and work.
        claims: claims of this method besides the contract's.
        module: the module of the family's package that has the function of that name; by default
            ``in_<framework>.methods``.
        package: the package of the family, by default ``gradgate.references.<family>``; or a file,
            ``path/to/file.py``, and then `module` is not used.
        oracle, kappa, rounding, disclaims, sharded, unmeasured, dtypes, measured: as for `Method`.
        contract: the other arguments of `contract_claims`: ``gradient``, ``source``, ``expected``,
            ``declared_reason``, ``where`` and ``replaced``.
    """
    composes = tuple(c for c in COMPOSITIONS[framework] if c not in disclaims)
    package = package or f"gradgate.references.{family}"
    place = package if package.endswith(".py") else f"{package}.{module or f'in_{framework}.methods'}"
    own = contract_claims(composes=composes, disclaims=disclaims, options=options, dtypes=dtypes, **contract)
    return Method(
        family,
        name,
        framework,
        f"{place}:{name}",
        own + claims + promises.get(name, ()),
        options,
        oracle,
        kappa,
        rounding,
        composes,
        disclaims,
        sharded,
        unmeasured,
        dtypes,
        measured or {},
    )
