"""The page of `checkpointed`: its code runs, and prints what the page shows."""

from __future__ import annotations

import pytest

from gradgate.suites.tests.guide.entry_pages import FOLDER, check


def test_the_page_does_what_it_says() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("torch")
    assert check("checkpointed_models") >= 2


def test_its_first_examples_are_at_most_ten_lines() -> None:
    text = (FOLDER / "checkpointed_models.md").read_text(encoding="utf-8")
    first, second = text.split("```python\n")[1:3]
    assert max(len(block.partition("```")[0].splitlines()) for block in (first, second)) <= 10


def test_a_page_that_shows_what_is_not_printed_is_found() -> None:
    text = (FOLDER / "checkpointed_models.md").read_text(encoding="utf-8")
    block = text[text.index("```python") : text.index("In JAX")]
    with pytest.raises(AssertionError, match="not printed: False"):
        check(block.replace("True ", "False "))
