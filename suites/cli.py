"""The command line: ``gradgate verify | memory | paper | list | profiles | cache | report | calibrate | …``.

This module only finds the command. What a command does, and its arguments, are in its module of `suites.commands`,
which is imported when the command runs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.suites.commands import COMMANDS

STATUS = "exit status: 0 as claimed, 1 refuted or regressed, 2 could not be measured, 3 wrong usage or configuration"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if os.getcwd() not in sys.path:  # so that mylib:function is found in the current folder
        sys.path.append(os.getcwd())
    try:
        chosen = _parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
        if getattr(chosen, "problem", None):
            chosen.left_out = importlib.import_module("gradgate.suites.commands.arguments").place_problem(chosen)
        status = int(chosen.main(chosen))
        sys.stdout.flush()  # a broken pipe is handled below; at exit it would be an error
        return status
    except ValueError as error:
        if not _is_usage(error):
            raise
        print(f"gradgate: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("gradgate: interrupted; what was measured is kept", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _is_usage(error: ValueError) -> bool:
    from gradgate.hw_profiles.profile import ProfileError  # too slow to import for --help

    return isinstance(error, UsageError | ProfileError)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see {self.prog} --help")


class _Version(argparse.Action):
    """Print the version. The metadata is read only when this option is given."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from gradgate import __version__

        print(f"gradgate {__version__}")
        parser.exit()


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of all commands. Only the command that `arguments` name gets its arguments declared."""
    parser = _Parser(
        prog="gradgate", description="Verify memory-efficient gradients: is it the gradient, are the promises kept?",
        epilog=_epilog("verify"), formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        made = commands.add_parser(
            name, help=command.summary, description=command.summary, epilog=_epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        if name == asked:
            module = importlib.import_module(f"gradgate.suites.commands.{name}")
            module.add_arguments(made)
            made.set_defaults(main=module.main)
    return parser


def _epilog(name: str) -> str:
    return "\n".join(["examples:", *(f"  {line}" for line in COMMANDS[name].examples), "", STATUS])


if __name__ == "__main__":
    sys.exit(main())
