"""A badge: two words on two colours, as an SVG without anything to load, and as shields.io reads it."""

from __future__ import annotations

import html
from typing import Any

COLOURS = {"green": "#1a7f4b", "amber": "#9a6200", "red": "#c8202f", "grey": "#6b7480"}
"""Name -> colour; white text is readable on each."""
WIDE = 6.6
"""Pixels that a letter takes on average, at the size of the text."""


def svg(label: str, message: str, colour: str) -> str:
    """The badge as SVG.

    Args:
        label, message: the words on the left and on the right.
        colour: a name in `COLOURS`.
    """
    left, right = (round(WIDE * len(text)) + 12 for text in (label, message))
    label, message = html.escape(label), html.escape(message)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="{label}: {message}"><title>{label}: {message}</title>'
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{COLOURS[colour]}"/></g>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">'
        f'<text x="{left / 2}" y="14">{label}</text><text x="{left + right / 2}" y="14">{message}</text></g></svg>\n'
    )


def endpoint(label: str, message: str, colour: str) -> dict[str, Any]:
    """The badge as an endpoint of shields.io."""
    return {"schemaVersion": 1, "label": label, "message": message, "color": COLOURS[colour].removeprefix("#")}
