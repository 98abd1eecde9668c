"""The page of `linear_attention`: its code runs, and prints what the page shows."""

from __future__ import annotations

import pytest

from gradgate.suites.tests.guide.entry_pages import FOLDER, check


def test_the_page_does_what_it_says() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    assert check("linear_attention") >= 4


def test_its_first_examples_are_at_most_ten_lines() -> None:
    text = (FOLDER / "linear_attention.md").read_text(encoding="utf-8")
    first, second = text.split("```python\n")[1:3]
    assert max(len(block.partition("```")[0].splitlines()) for block in (first, second)) <= 10


def test_a_page_that_shows_what_is_not_printed_is_found() -> None:
    right = "\n```python\nprint(1 + 1)\n```\n\n```text\n2\n```\n"
    assert check(right) == 1
    with pytest.raises(AssertionError, match="not printed: 3"):
        check(right.replace("\n2\n", "\n3\n"))
