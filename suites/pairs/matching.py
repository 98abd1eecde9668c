"""Whether a function's outputs are those of the reference in number, place and shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradgate.suites.judging.subject import Refuted


def check_outputs(found: Mapping[str, Any], like: Mapping[str, Any]) -> None:
    """Check the floating outputs of a function against arrays in the shapes of the reference's.

    Raises:
        Refuted: the message names the outputs that are missing or superfluous, or the first wrong shape.
    """
    missing, extra = [p for p in like if p not in found], [p for p in found if p not in like]
    if missing or extra:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has {', '.join(extra)} besides"] if extra else []
        raise Refuted(f"another function: its floating outputs {' and '.join(parts)}; expected {', '.join(like)}")
    for path, out in found.items():
        if tuple(out.shape) != tuple(like[path].shape):
            raise Refuted(
                f"another function: {path} has shape {tuple(out.shape)}, the reference's {tuple(like[path].shape)}"
            )
