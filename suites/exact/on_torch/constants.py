"""Constants of PyTorch's own derivative formulas, which its C++ rounds to floats before an operation sees them.

The derivative of erf multiplies by the float next to 2/√π, that of var by the float next to 2/(n − 1). Which formula is
running is known from autograd's node, so the number that was meant can be put in the place of its float. A number that
a program writes itself is never changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch
from flint import arb

from gradgate.suites.exact import balls

PURE: tuple[Callable[[], Any], ...] = (
    lambda: arb(2).log(),
    lambda: arb(10).log(),
    lambda: 2 / arb.pi().sqrt(),
    lambda: -2 / arb.pi().sqrt(),
    lambda: arb.pi().sqrt() / 2,
    lambda: arb.pi() / 180,
    lambda: 180 / arb.pi(),
    arb.pi,
    lambda: 1 / arb(2).sqrt(),  # these and the following: of gelu
    lambda: 1 / (2 * arb.pi()).sqrt(),
    lambda: (2 / arb.pi()).sqrt(),
    lambda: 3 * arb(0.044715),
    lambda: 6 * arb(0.044715),
)
"""Numbers that formulas multiply by."""


@functools.cache
def _pure(value: float) -> Callable[[], Any] | None:
    """The number in `PURE` that a float is next to, or nearly: some formulas round twice."""
    return next((number for number in PURE if abs(float(number().mid()) - value) <= 4e-16 * abs(value)), None)


Known = dict[float, Any]
"""Float -> the number that it stood for earlier in this evaluation."""


def _constant(value: float, node: Any, known: Known) -> Any:
    number = _pure(value)
    return None if number is None else number()


def _ratio(value: float, node: Any, known: Known) -> Any:
    """k/n for whole numbers, such as 2/(n − 1)."""
    near = Fraction(value).limit_denominator(2**20)
    return arb(near.numerator) / near.denominator if near and float(near) == value else None


def _remainder(value: float, node: Any, known: Known) -> Any:
    """1 − w for a weight w."""
    return 1 - arb(node._saved_weight) if 1 - node._saved_weight == value else None


def _scale(value: float, node: Any, known: Known) -> Any:
    """1/(1 − p) for a probability p."""
    p = node._saved_p
    return 1 / (1 - arb(p)) if p != 1 and 1 / (1 - p) == value else None


def _logarithm(value: float, node: Any, known: Known) -> Any:
    """Log b for a base b."""
    base = node._saved_self
    exact = arb(base).log() if isinstance(base, (int, float)) and base > 0 else None
    return exact if exact is not None and abs(float(exact.mid()) - value) < 1e-15 * (1 + abs(value)) else None


def _lower(value: float, node: Any, known: Known) -> Any:
    """An exponent, less 1 or 2."""
    exponent = node._saved_exponent if hasattr(node, "_saved_exponent") else node._saved_ord
    if not isinstance(exponent, (int, float)):
        return None
    exact = known.get(exponent, balls.exact(exponent)[()])
    return next((exact - less for less in (0, 1, 2) if exponent - less == value), None)


FORMULAS: dict[str, Callable[[float, Any, Known], Any]] = {
    **{
        f"{name}Backward0": _constant
        for name in (
            "Erf",
            "Erfc",
            "Erfinv",
            "Exp2",
            "Log2",
            "Log10",
            "Deg2Rad",
            "Rad2Deg",
            "Sinc",
            "Logaddexp2",
            "Gelu",
        )
    },
    **{f"{name}Backward{i}": _ratio for name in ("Var", "Std", "VarMean", "StdMean") for i in range(3)},
    **{f"Native{name}Backward0": _ratio for name in ("BatchNormBackward", "LayerNormBackward", "GroupNorm")},
    "PowBackward0": _lower,
    "LinalgVectorNormBackward0": _lower,
    "GeluBackwardBackward0": _constant,
    "LerpBackward0": _remainder,
    "NativeDropoutBackward0": _scale,
    "PowBackward2": _logarithm,
}
"""Name of autograd's node -> the number that its float stands for, or None."""


OPERATIONS = frozenset(("mul", "pow", "native_dropout_backward"))
"""Operations to which formulas pass constants. A number that is added, such as an eps, is the program's own."""


def meant(known: Known, operation: str, args: Any) -> Any:
    """The arguments of an operation with the numbers that its derivative formula means in place of their floats."""
    node = torch._C._current_autograd_node() if operation in OPERATIONS else None
    if node is None:
        return args
    name = node.name()
    if name == "MulBackward1":  # a product with a scalar that C++ made; those of programs are "MulBackward0"
        return [known.get(each, each) if type(each) is float else each for each in args]
    formula = FORMULAS.get(name)
    if formula is None:
        return args
    changed = []
    for each in args:
        number = formula(each, node, known) if type(each) is float else None
        if number is not None:
            known[each] = number
        changed.append(each if number is None else number)
    return changed
