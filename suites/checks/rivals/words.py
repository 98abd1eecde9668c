"""What a tool of another project says, as a verdict of ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Inapplicable, Refuted


def framework(case: Case, name: str) -> Any:
    """The module of a framework.

    Raises:
        Inapplicable: the method is not written in it.
    """
    if case.subject.declared.framework != name:
        raise Inapplicable(f"a tool of {name} alone")
    return importlib.import_module(name)


def asserted(rival: Callable[..., Any], *arguments: Any, **settings: Any) -> None:
    """Call a tool that raises AssertionError where it finds something.

    Raises:
        Refuted: it found something.
    """
    try:
        rival(*arguments, **settings)
    except AssertionError as error:
        raise Refuted(in_one_line(error)) from None


def in_one_line(error: Exception) -> str:
    """The beginning of an error's text."""
    return " ".join(str(error).split())[:200]
