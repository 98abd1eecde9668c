"""Whether a function's outputs are those of the reference in number, place and shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gradgate.suites.judging.subject import Refuted


def check_outputs(found: Mapping[str, Any], like: Mapping[str, Any]) -> None:
    """Check the outputs of a function against arrays in the shapes of the reference's.

    Raises:
        Refuted: the message names the outputs of both, or the first wrong shape.
    """
    if found.keys() != like.keys():
        raise Refuted(f"another function: it returns {_named(found)}, and the reference {_named(like)}")
    for path, out in found.items():
        if tuple(out.shape) != tuple(like[path].shape):
            shapes = f"{tuple(out.shape)}, the reference's {tuple(like[path].shape)}"
            raise Refuted(f"another function: {path} has shape {shapes}", path)


def _named(outputs: Collection[str]) -> str:
    """The outputs by their paths; that of a function that returns one array has no path to name."""
    return "one array" if [*outputs] == ["output"] else ", ".join(outputs) or "no array"
