"""``gradgate completion``: print what makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from gradgate.references.errors import UsageError, unknown

SHELLS = ("bash", "zsh", "tcsh")
FILES = ("target", "documents", "task", "candidates")
"""Arguments that name a file although their type is no path."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate completion``."""
    parser.add_argument("shell", metavar="SHELL", help=" | ".join(SHELLS))


def main(chosen: argparse.Namespace) -> int:
    """Print the script for a shell; returns 0.

    Raises:
        UsageError: the shell is not known, or shtab is not installed; says what to do.
    """
    if chosen.shell not in SHELLS:
        raise unknown("shell", chosen.shell, SHELLS)
    try:
        import shtab
    except ImportError:
        raise UsageError("completion needs shtab: pip install 'gradgate[shell]'") from None
    for action in _actions(chosen.parser):
        if action.type is Path or action.dest in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(chosen.parser, chosen.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
