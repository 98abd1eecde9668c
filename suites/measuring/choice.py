"""Which method to use for a model: verdicts, bytes and work of every method on every device, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SETTLING = ("gradient_exact", "gradient_float32", "value", "options", "gradient_float64")
"""Claims that decide whether a method is right on a model. The first one with a number of digits is shown."""


@dataclass(frozen=True)
class Judged:
    """The result for one method, over its claims.

    Attributes:
        right: whether every claim that could be judged holds; None if none could be judged, or the method approximates.
        said: the result in a few words.
        reason: why it is wrong, or could not be judged; "" if it is right.
    """

    right: bool | None
    verdict: str
    reason: str = ""


def judged(verdicts: Iterable[Mapping[str, Any]], oracle: str = "loss") -> Judged:
    """The result for one method, from its verdicts as in verdicts.json.

    Args:
        verdicts: the verdicts on its claims.
        oracle: the loss whose gradient the method claims. If it is not ``loss``, the method is called approximate.
    """
    found = list(verdicts)
    bad = [v for v in found if v["verdict"] in ("refuted", "error")]
    if bad:
        word = "wrong" if any(v["verdict"] == "refuted" for v in bad) else "no answer"
        return Judged(False, word, f"{bad[0]['claim']}: {bad[0]['reason']}")
    good = [v for v in found if v["verdict"] == "upheld"]
    if not good:
        return Judged(None, "not judged", next((v["reason"] for v in found), "no claim was judged"))
    digits = next((v["digits"] for v in good if v.get("digits")), None)
    said = f"right, {digits} digits" if digits else "right, in floats"
    return Judged(True, said) if oracle == "loss" else Judged(None, f"approximate ({oracle})")


def rows(
    cells: Sequence[Mapping[str, Any]], laws: Sequence[Mapping[str, Any]], verdicts: Mapping[str, Judged]
) -> list[dict[str, Any]]:
    """One row per method and profile: its verdict, and bytes, work and time at the largest size that was measured.

    Args:
        cells, laws: as in the JSON of ``gradgate memory``.
        verdicts: method -> what was judged.

    Returns:
        Dicts with ``method``, ``profile``, ``right``, ``verdict``, ``reason`` of the verdict, ``note`` of the
        measurement, ``options``, ``size``, ``status``, ``required_bytes``, ``temp_bytes``, ``flops``,
        ``roofline_seconds``, ``fits``, ``largest`` and ``foretold``.
    """
    limits = {(law["method"], law["profile"]): law for law in laws if law["quantity"] == "required_bytes"}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in cells:
        key = (cell["method"], cell["profile"])
        law = limits.get(key)
        size = cell["spec"][law["variable"]] if law else None
        held = found.get(key)
        if held is not None and held["status"] == "measured" and (cell["status"] != "measured" or size < held["size"]):
            continue
        told = verdicts.get(cell["method"], Judged(None, "not judged"))
        found[key] = {
            "method": cell["method"],
            "profile": cell["profile"],
            "right": told.right,
            "verdict": told.verdict,
            "reason": told.reason,
            "note": cell["reason"],
            "options": cell["options"],
            "size": size,
            "status": cell["status"],
            **{name: cell[name] for name in ("required_bytes", "temp_bytes", "flops", "roofline_seconds", "fits")},
            "largest": law["largest_measured"] if law else None,
            "foretold": law["largest_foretold"] if law else None,
        }
    return list(found.values())


def best(found: Sequence[Mapping[str, Any]], profile: str) -> dict[str, Mapping[str, Any]]:
    """``least memory`` and ``least time`` -> the best of the right methods that fit a device, if there is one."""
    able = [r for r in found if r["profile"] == profile and r["right"] and r["fits"] is not False]
    found_best = {}
    for name, quantity in (("least memory", "required_bytes"), ("least time", "roofline_seconds")):
        known = [r for r in able if r[quantity] is not None]
        if known:
            found_best[name] = min(known, key=lambda r: (r[quantity], r["temp_bytes"] or 0))
    return found_best
