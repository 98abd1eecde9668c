"""The colours of verdicts can be read: WCAG AA on every ground on which a page puts them, in both schemes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gradgate.suites

ROOM = Path(gradgate.suites.__file__).parent
TONES = ("upheld", "finding", "failure", "unexpected", "error", "inapplicable")
TINTS = (0.0, 0.1, 0.14, 0.16)
"""Shares of the tone in the ground below it, in badges, reasons and marks."""
AA = 4.5


def palettes() -> dict[str, dict[str, str]]:
    """Scheme -> name of a colour of the report -> its hexadecimal number."""
    text = (ROOM / "report" / "style.css").read_text(encoding="utf-8")
    light, dark = re.findall(r":root \{(.*?)\}", text, flags=re.DOTALL)[:2]
    return {name: dict(re.findall(r"--(\w+): (#\w{6})", part)) for name, part in (("light", light), ("dark", dark))}


def channels(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The contrast ratio of two sRGB colours as WCAG 2 defines it."""

    def luminance(colour: tuple[float, ...]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def worst(tone: str, palette: dict[str, str]) -> float:
    """The least contrast of a tone on its own tints over each ground."""
    colour, found = channels(tone), []
    for ground in (channels(palette["page"]), channels(palette["raised"])):
        for tint in TINTS:
            mixed = tuple(tint * a + (1 - tint) * b for a, b in zip(colour, ground, strict=True))
            found.append(contrast(colour, mixed))
    return min(found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_tone_can_be_read_on_its_own_tint(scheme: str) -> None:
    palette = palettes()[scheme]
    low = {name: round(worst(palette[name], palette), 2) for name in TONES if worst(palette[name], palette) < AA}
    assert low == {}
    grounds = [channels(palette[name]) for name in ("page", "raised")]
    for name in ("text", "faint", "link"):
        assert min(contrast(channels(palette[name]), ground) for ground in grounds) >= AA, name


def test_a_tone_that_is_too_pale_is_seen() -> None:
    assert worst("#1a7f4b", palettes()["light"]) < AA, "the green of an earlier version"
    assert round(contrast(channels("#000000"), channels("#ffffff")), 1) == 21.0


def test_the_site_has_the_colours_of_the_report() -> None:
    text = (ROOM / "site" / "site.css").read_text(encoding="utf-8")
    light, *dark = re.findall(r"\{([^{}]*--upheld:[^{}]*)\}", text)
    assert len(dark) == 2, "chosen by the system, and by the reader"
    for scheme, parts in (("light", [light]), ("dark", dark)):
        for part in parts:
            found = dict(re.findall(r"--(\w+): (#\w{6})", part))
            assert found == {name: palettes()[scheme][name] for name in TONES}
