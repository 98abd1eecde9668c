"""Bytes of a program, from the compiler of a profile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def measured(program: Callable[..., Any], arguments: tuple[Any, ...], profile: str, **more: Any) -> Any:
    """What a profile's compiler says of a program.

    Raises:
        LookupError: it gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure

    found = measure(program, arguments, profile, **more)
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found
