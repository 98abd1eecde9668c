"""The command line finds its commands: each is one module and one row of the table, imported only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites import commands
from gradgate.suites.commands import COMMANDS, arguments

HEAVY = ("jax", "torch", "numpy", "rich", "hypothesis", "flint", "gradgate.references.registry", "gradgate.hw_profiles")
"""Packages that take long to import, and modules of gradgate that import them."""
SCRIPT = """
import sys
from gradgate.suites.cli import main
try:
    main()
except SystemExit:
    print(*sys.modules, file=sys.stderr)
"""


def modules() -> set[str]:
    return {path.stem for path in Path(str(commands.__file__)).parent.glob("*.py")} - {"__init__", "arguments", "union"}


def test_every_command_has_a_module_and_every_module_a_row_in_the_table() -> None:
    assert modules() == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_declares_its_arguments_and_has_a_main(name: str) -> None:
    module = importlib.import_module(f"gradgate.suites.commands.{name}")
    module.add_arguments(argparse.ArgumentParser())
    assert callable(module.main)


def imported(process: Callable[..., Any], tmp_path: Path, *words: str) -> set[str]:
    """Which of the heavy packages are imported by a command line, in a fresh interpreter."""
    ran = process("-c", SCRIPT, *words, cwd=tmp_path)
    assert ran.status == 0, ran
    return set(ran.err.split()) & set(HEAVY)


def test_the_help_imports_nothing_heavy(process: Callable[..., Any], tmp_path: Path) -> None:
    assert imported(process, tmp_path, "--help") == set()


def test_a_command_imports_what_it_needs(process: Callable[..., Any], tmp_path: Path) -> None:
    found = imported(process, tmp_path, "verify", "--help")
    assert {"gradgate.references.registry", "gradgate.hw_profiles"} <= found
    assert not {"jax", "torch"} & found


def test_the_help_of_one_command_imports_no_other(gradgate: Callable[..., Any], monkeypatch: Any) -> None:
    monkeypatch.delitem(sys.modules, "gradgate.suites.commands.gate", raising=False)
    assert gradgate("cache", "--help").status == 0
    assert "gradgate.suites.commands.gate" not in sys.modules


def test_a_shared_argument_may_have_another_help_and_default() -> None:
    parser = argparse.ArgumentParser()
    arguments.add(parser, "--jobs", default=7, help="other words")
    assert parser.parse_args([]).jobs == 7
    assert "other words" in parser.format_help()


@pytest.mark.parametrize(
    ("check", "text", "said"),
    [
        (arguments.positive, "0", "at least 1, not 0"),
        (arguments.positive, "1.5", "must be an integer, not '1.5'"),
        (arguments.seconds, "0", "must be positive, not 0"),
        (arguments.seconds, "nan", "must be positive, not nan"),
        (arguments.seconds, "long", "must be a number of seconds, not 'long'"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(check: Callable[[str], Any], text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        check(text)


def test_a_number_that_makes_sense_is_read() -> None:
    assert (arguments.positive("3"), arguments.seconds("0.5")) == (3, 0.5)
