"""The page "What is judged of a pair" has what the code has, in its words."""

from __future__ import annotations

from pathlib import Path

import gradgate.suites.guide
from gradgate.suites.tests.guide import judged_page

PAGE = Path(gradgate.suites.guide.__file__).parent / "judged.md"


def test_the_page_is_what_the_code_says() -> None:
    """If this fails: ``python -m gradgate.suites.tests.guide.judged_page > suites/guide/judged.md``."""
    assert PAGE.read_text(encoding="utf-8") == judged_page.page()


def test_no_draw_no_field_and_no_claim_that_is_always_judged_is_left_out() -> None:
    page = judged_page.page()
    for name in ("mask", "key", "constant", "normal"):
        assert f"| `{name}(" in page
    for name in ("by_backward", "accumulates", "`gradient_exact`", "`autograd`", "`donation`", "| 3 |"):
        assert name in page
    assert len(list(judged_page.draws())) == 11
