"""The errors that a user's mistake raises: wrong usage, and what a method refuses. Their messages say what to do."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Iterable
from typing import Any


class UsageError(ValueError):
    """Wrong usage or configuration; the command line exits with status 3.

    Cause: a name, a Spec or an option that gradgate does not know. Remedy: the message lists what is legal and the
    nearest name.
    """


class IllegalOption(ValueError):
    """A method was given an option value that it documents as illegal.

    Cause: for example ``chunk=0``. Remedy: the message states the legal values.
    """


class NotComposable(TypeError):
    """A method was composed with a transformation that it disclaims, for example a further derivative.

    Cause: the transformation is not in the method's capabilities. Remedy: the message names the alternative.
    """


class FloatsOnly(UserWarning):
    """`gradgate.check` passed, but sixty digits were impossible: the formula was not compared, only floats were.

    Cause: a function leaves its framework, for example through NumPy, a callback or an operation without a rule.
    Remedy: the message says where. Give arguments in float64, or accept it: ``pytest.warns(gradgate.FloatsOnly)``.
    """


def unknown(kind: str, name: str, legal: Iterable[str]) -> UsageError:
    """The error for a wrong name: what was wrong, every legal value, and the nearest one.

    >>> unknown("family", "state_spce", ["state_space"]).args[0]
    "unknown family 'state_spce'; legal: state_space; nearest: state_space"
    """
    names = sorted(legal)
    near = nearest(name, names)
    hint = f"; nearest: {near}" if near else ""
    return UsageError(f"unknown {kind} {name!r}; legal: {', '.join(names) or '(none)'}{hint}")


def nearest(name: str, legal: Iterable[str]) -> str:
    """The legal name that was probably meant; "" if none is near.

    >>> nearest("profle", ["profiles", "pairs"]), nearest("x", ["profiles"])
    ('profiles', '')
    """
    names = list(legal)
    near = [each for each in names if name and each.startswith(name)]
    near += difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return near[0] if near else ""


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """`value` as an int within low … high.

    Raises:
        IllegalOption: not an integer, or outside; states the legal values.
    """
    legal = f"an integer of at least {low}" + (f" and at most {high}" if high is not None else "")
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise IllegalOption(f"{name} must be {legal}, not {value!r}")
    return number


def check_arrays(names: str, arrays: tuple[Any, ...], kind: str, fits: Callable[[Any], bool]) -> None:
    """Check the types of operands.

    Args:
        names: the names of the operands, separated by spaces.
        arrays: the operands.
        kind: what is legal, in words.
        fits: operand -> whether it is legal.

    Raises:
        UsageError: an operand is of another type.
    """
    for name, x in zip(names.split(), arrays, strict=True):
        if not fits(x):
            raise UsageError(f"{name} is a {type(x).__name__}; legal: {kind}")
