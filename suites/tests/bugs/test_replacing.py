"""An edit of a source fits in any layout of it, and raises if its text occurs nowhere or twice."""

from __future__ import annotations

import ast

import pytest

from gradgate.suites.bugs.replacing import replaced

OLD, NEW = "step(None, x, scale=2)", "step(None, -x, scale=2)"
LAYOUTS = (
    "y = step(None, x, scale=2)\n",
    "y = step(\n    None,\n    x,\n    scale=2,\n)\n",
    "y = step(\n    None, x, scale=2\n)  # as before\n",
    "y = step(None, x,  # the state\n         scale=2)\n",
)


@pytest.mark.parametrize("text", LAYOUTS)
def test_an_edit_fits_in_every_layout(text: str) -> None:
    assert ast.dump(ast.parse(replaced(text, OLD, NEW))) == ast.dump(ast.parse(f"y = {NEW}"))


def test_lines_keep_their_indentation() -> None:
    text = "def f(x):\n    if x:\n        x = g(\n            x,\n            1,\n        )\n        return x\n"
    old, new = "        x = g(x, 1)\n        return x\n", "        return g(x, 2)\n"
    assert replaced(text, old, new) == "def f(x):\n    if x:\n        return g(x, 2)\n"


@pytest.mark.parametrize("old", ["step(None, y, scale=2)", "None, x, scale=2, more", '"step(None, x, scale=2)"'])
@pytest.mark.parametrize("text", LAYOUTS)
def test_a_text_that_does_not_occur_is_refused(text: str, old: str) -> None:
    with pytest.raises(LookupError, match="occurs 0 times, not once"):
        replaced(text, old, NEW)


def test_a_text_that_occurs_twice_in_other_layouts_is_refused() -> None:
    with pytest.raises(LookupError, match="occurs 2 times, not once"):
        replaced(LAYOUTS[1] + LAYOUTS[2], OLD, NEW)


def test_spaces_within_a_string_count() -> None:
    with pytest.raises(LookupError, match="occurs 0 times"):
        replaced("say('a  b')", "say('a b')", "say('')")
