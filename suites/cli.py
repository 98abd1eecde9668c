"""The command line: ``gradgate verify | memory | paper | list | profiles | cache | report | calibrate | …``.

This module only finds the command. What a command does, and its arguments, are in its module of `suites.commands`,
which is imported when the command runs.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any

from gradgate.references.errors import UsageError
from gradgate.suites.commands import COMMANDS
from gradgate.suites.console import streams
from gradgate.suites.console.plain import one_line

CHECKOUT = ("bugs", "calibration", "gallery", "guide", "releases", "selftest", "site", "tests")
"""Rooms of ``suites`` that the wheel leaves out, as ``setup.py`` says."""
STATUS = """exit status:
  0  as claimed
  1  refuted or regressed
  2  could not be measured
  3  wrong usage or configuration"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status.

    A reader that leaves changes nothing: the command goes on and its status is the same. If output is lost in another
    way, such as on a full disk, the status is 2 in place of 0. An exception that no command expects is status 2, one
    line, and a file with the traceback.

    Raises:
        SystemExit: with status 0, after ``--help`` and ``--version``.
    """
    with streams.safe() as (out, err):
        status = _status(sys.argv[1:] if arguments is None else arguments)
        out.flush()
        if out.failed:
            err.write(f"gradgate: output was lost: {out.failed}\n")
            status = status or 2
    return status


def _status(arguments: Sequence[str]) -> int:
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        print("gradgate: interrupted; what was measured is kept", file=sys.stderr)
        return 2
    except Exception as error:
        if _is_usage(error):
            print(f"gradgate: {one_line(str(error))}", file=sys.stderr)
            return 3
        if room := _left_out(error):
            print(f"gradgate: this needs {room}, which only a checkout of gradgate has: run it there", file=sys.stderr)
            return 3
        print(f"gradgate: {_words(error)}", file=sys.stderr)
        return 2


def _run(arguments: Sequence[str]) -> int:
    _settle_folders()
    chosen = _parser(arguments).parse_args(arguments)
    try:
        if getattr(chosen, "problem", None):
            chosen.left_out = importlib.import_module("gradgate.suites.commands.arguments").place_problem(chosen)
        return int(chosen.main(chosen))
    except SystemExit as stop:  # of foreign code: its status says nothing about claims
        raise RuntimeError(f"something called sys.exit({stop.code!r}) while the command ran") from stop


def _settle_folders() -> None:
    """Put the current folder on the import path, so that mylib:function is found in it; name the cache absolutely."""
    with contextlib.suppress(OSError):  # the current folder was removed: not every command needs one
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        if os.environ.get("GRADGATE_CACHE"):  # the gate's processes run in other folders and must find the same one
            os.environ["GRADGATE_CACHE"] = os.path.abspath(os.environ["GRADGATE_CACHE"])


def _is_usage(error: Exception) -> bool:
    hardware = sys.modules.get("gradgate.hw_profiles.profile")  # too slow to import for --help
    return isinstance(error, UsageError) or (hardware is not None and isinstance(error, hardware.ProfileError))


def _left_out(error: Exception) -> str:
    """The folder that is missing because this is an installed wheel; "" if the error is about something else."""
    name = (error.name or "") if isinstance(error, ModuleNotFoundError) else ""
    place = name.removeprefix("gradgate.suites.").partition(".")[0]
    return f"suites/{place}" if name.startswith("gradgate.suites.") and place in CHECKOUT else ""


def _words(error: Exception) -> str:
    """An unexpected exception in one line, with the file that holds its traceback."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return "the current folder no longer exists; change to one that does"
    try:
        said = f"{type(error).__name__}: {one_line(str(error))[:300]}"
    except Exception as mute:
        said = f"{type(error).__name__}: (its message raises {type(mute).__name__})"
    try:
        handle, name = tempfile.mkstemp(prefix="gradgate-crash-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError as no:
        return f"{said}; its traceback could not be written ({one_line(str(no))})"
    return f"{said}; the traceback is in {one_line(name)}, please report it if gradgate is to blame"


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
    """The parser of all commands. Only the command that `arguments` name gets its arguments declared.

    Where a shell is to complete all commands, each gets its own.
    """
    parser = _Parser(
        prog="gradgate",
        description="Verify memory-efficient gradients: is it the gradient, are the promises kept?",
        epilog=_epilog("verify"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")
    asked = next((word for word in arguments if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        made = commands.add_parser(
            name,
            help=command.summary,
            description=command.summary,
            epilog=_epilog(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == asked or asked == "completion":
            try:
                module = importlib.import_module(f"gradgate.suites.commands.{name}")
            except ModuleNotFoundError as error:
                if name == asked or not _left_out(error):
                    raise
                continue  # this is an installed wheel: there is no such command to complete
            module.add_arguments(made)
            made.set_defaults(main=module.main, parser=parser)
    return parser


def _epilog(name: str) -> str:
    """The examples of a command, and what its exit status says, no wider than the terminal.

    What an example does stands beside it, or below it where the lines would be too long.
    """
    examples = COMMANDS[name].examples
    longest = max(len(command) for command, _ in examples)
    beside = [f"  {command.ljust(longest)}  {what}" for command, what in examples]
    if max(map(len, beside)) <= shutil.get_terminal_size().columns - 2:  # as wide as argparse's own lines
        return "\n".join(["examples:", *beside, "", STATUS])
    return "\n".join(["examples:", *(f"  {command}\n      {what}" for command, what in examples), "", STATUS])


if __name__ == "__main__":
    sys.exit(main())
