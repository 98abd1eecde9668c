"""What ``gradgate judge`` shows in the terminal: a line for each candidate, and why it is not upheld."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from gradgate.suites.console.plain import one_line
from gradgate.suites.console.terminal import console

STYLES = {"upheld": "green", "refuted": "red", "error": "red", "inapplicable": "yellow"}


def show(answer: Mapping[str, Any]) -> None:
    """Show one candidate's answer."""
    out = console()
    state, claims = answer["verdict"], answer["claims"]
    upheld = sum(row["verdict"] == "upheld" for row in claims)
    said = f" {one_line(answer['name'])}  {upheld} of {len(claims)} claims upheld, {answer['seconds']:.1f} s"
    out.print(Text(f"{state:12}", style=STYLES[state]), Text(said), sep="", soft_wrap=True)
    if answer["reason"]:
        out.print(f"             {one_line(answer['reason'])}", soft_wrap=True)
    hint = answer["sixty_digits"]
    if hint["state"] == "differs":
        out.print(f"             in sixty digits it differs: {one_line(hint['reason'])}", soft_wrap=True)
    found = answer["counterexample"]
    if found:
        sizes = " ".join(f"{name}={value!r}" for name, value in {**found["spec"], **found["options"]}.items())
        out.print(f"             {found['claim']} at {sizes}", soft_wrap=True)


def conclude(answers: Sequence[Mapping[str, Any]]) -> None:
    """Show how many candidates there were of each verdict, and what the wall was."""
    out = console()
    counts = Counter(answer["verdict"] for answer in answers)
    out.print(", ".join(f"{count} {state}" for state, count in counts.items()), soft_wrap=True)
    wall = next((answer["wall"] for answer in answers if answer["wall"]), None)
    if wall:
        walls = "; ".join(f"{name}: {how}" for name, how in wall.items())
        out.print(f"wall: {walls}", soft_wrap=True)


def resumed(count: int, path: object) -> None:
    """Say how many answers are taken from a file."""
    console().print(f"{count} answers are in {one_line(str(path))} and are not judged again", soft_wrap=True)
