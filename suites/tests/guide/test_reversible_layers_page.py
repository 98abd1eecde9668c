"""The page of reversible layers: its code runs, and prints what the page shows."""

from __future__ import annotations

import pytest

from gradgate.suites.tests.guide.entry_pages import FOLDER, check


def test_the_page_does_what_it_says() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    assert check("reversible_layers") == 4


def test_its_first_examples_are_at_most_ten_lines() -> None:
    text = (FOLDER / "reversible_layers.md").read_text(encoding="utf-8")
    first, second = text.split("```python\n")[1:3]
    assert max(len(block.partition("```")[0].splitlines()) for block in (first, second)) <= 10
