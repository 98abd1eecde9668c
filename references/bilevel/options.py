"""The options that the frameworks share."""

from __future__ import annotations

from typing import Any

from gradgate.references.contract import IllegalOption


def check_flag(name: str, value: Any) -> bool:
    """`value` if it is True or False.

    Raises:
        IllegalOption: it is something else.
    """
    if not isinstance(value, bool):
        raise IllegalOption(f"{name} must be True or False, not {value!r}")
    return value
