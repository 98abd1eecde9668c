"""Claims about Listings 1, 2 and 3 as the paper prints them, with misprints that change results or raise errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references.contract import Claim
from gradgate.references.laws import figure

HERE = "gradgate.references.bilevel.paper.printed"
RIGHT = 1e-9
"""The largest relative error in float64 of a gradient that is right."""


def error(framework: str, method: Callable[..., Any], model: str, **options: Any) -> float:
    """The largest error of a meta-gradient in float64, relative to its largest number.

    Args:
        framework: ``jax`` or ``torch``.
        method: a method of the class.
        model: ``toy``, whose inputs are floating, or ``mlp``, whose targets are integers.
        options: of the method.
    """
    from gradgate.references.backends import leaves, precision, to_numpy
    from gradgate.references.bilevel.problem import BilevelSpec
    from gradgate.references.oracle import gradient

    spec = BilevelSpec(model=model, width=2, layers=1, seed=9)
    with precision(framework, spec.dtype):
        problem = spec.build(framework)  # type: ignore[arg-type]
        found = [to_numpy(leaf) for leaf in leaves(method(problem, **options)[1])]
        right = [to_numpy(leaf) for leaf in leaves(gradient(problem)[1])]
    largest = max(abs(leaf).max() for leaf in right)
    return float(max(abs(one - other).max() for one, other in zip(found, right, strict=True)) / largest)


def works(framework: str, method: Callable[..., Any], model: str, *raised: type[Exception], **options: Any) -> bool:
    """Whether a method gives the meta-gradient; False if it is wrong, or if an error of the types `raised` ends it."""
    try:
        return error(framework, method, model, **options) < RIGHT
    except raised:
        return False


def listing_1(profile: str) -> float:
    """With how many of two models, of floating and of integer inputs, Listing 1 gives the meta-gradient."""
    from gradgate.references.bilevel.paper.printed_jax import listing1_printed

    return float(sum(works("jax", listing1_printed, model, TypeError) for model in ("toy", "mlp")))


def listing_2(profile: str) -> float:
    """With how many of its three mistakes, one at a time, Listing 2 gives the meta-gradient of both models."""
    from gradgate.references.bilevel.paper.printed_torch import listing2_printed

    raised = (NameError, RuntimeError, TypeError, AttributeError)
    return float(
        sum(
            all(works("torch", listing2_printed, model, *raised, mistake=mistake) for model in ("toy", "mlp"))
            for mistake in ("name", "trees", "integers")
        )
    )


def listing_3(profile: str) -> float:
    """With how many of its three mistakes, one at a time, Listing 3 gives the meta-gradient."""
    from gradgate.references.bilevel.paper.printed_jax import listing3_printed

    raised = (UnboundLocalError, TypeError, ValueError)
    return float(
        sum(works("jax", listing3_printed, "toy", *raised, mistake=m) for m in ("name", "result", "unpacking"))
    )


def _claim(name: str, statement: str, printed: float, unit: str, reason: str) -> Claim:
    listing = name.removesuffix("_printed")
    return figure(
        name,
        statement,
        listing.replace("listing_", "Listing "),
        printed=printed,
        unit=unit,
        measured=f"{HERE}:{listing}",
        tolerance=0.0,
        expected="refuted",
        declared_reason=reason,
    )


JAX: dict[str, tuple[Claim, ...]] = {
    "mixflow_drop_in": (
        _claim(
            "listing_1_printed",
            "as printed, it gives the meta-gradient of models with floating and with integer inputs",
            2,
            "models",
            "argnums=range(len(inputs) + 1) differentiates by every input, and JAX refuses to differentiate by "
            "integers: tokens end in a TypeError",
        ),
    ),
    "truncated_bptt": (
        _claim(
            "listing_3_printed",
            "with any one of its three lines as printed, it gives the meta-gradient",
            3,
            "lines",
            "the checkpointed step is assigned to the name that it reads, the step returns nothing, and the scan's "
            "pair is unpacked into one name: each ends the program with an error",
        ),
    ),
}
TORCH: dict[str, tuple[Claim, ...]] = {
    "mixflow_drop_in": (
        _claim(
            "listing_2_printed",
            "with any one of its three lines as printed, it gives the meta-gradient",
            3,
            "lines",
            "backward reads `loss`, which is not defined; trees saved as tensors drop the Hessian without an error; "
            "and it differentiates by integers too",
        ),
    ),
}
