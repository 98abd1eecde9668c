"""Arguments that several commands have, each declared once, and checks that several commands make."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError, unknown
from gradgate.references.loading import is_path
from gradgate.suites.gate.code import identity
from gradgate.suites.workers.shards import Shard


def positive(text: str) -> int:
    """An integer of at least 1.

    Raises:
        ArgumentTypeError: the text is not such a number.
    """
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer, not {text!r}") from None
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def seconds(text: str) -> float:
    """A positive number of seconds.

    Raises:
        ArgumentTypeError: the text is not such a number.
    """
    return _duration(text, "seconds")


def minutes(text: str) -> float:
    """A positive number of minutes.

    Raises:
        ArgumentTypeError: the text is not such a number.
    """
    return _duration(text, "minutes")


def _duration(text: str, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of {unit}, not {text!r}") from None
    if not number > 0:
        raise argparse.ArgumentTypeError(f"must be positive, not {number:g}")
    return number


def percentage(text: str) -> float:
    """A number from 0 to 100.

    Raises:
        ArgumentTypeError: the text is not such a number.
    """
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a percentage, not {text!r}") from None
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"must be from 0 to 100, not {number:g}")
    return number


_SHARED: dict[str, dict[str, Any]] = {
    "target": {"nargs": "?", "help": "file.py, or file.py:name or package.module:name of your pair or method"},
    "--problem": {"metavar": "MODEL", "help": "your model, file.py:Model; the methods of the class --family run on it"},
    "--family": {"metavar": "F", "help": "problem class, such as state_space, or path/to/my_class of your own"},
    "--method": {"metavar": "M", "help": "reference method, for example reverse_recurrence"},
    "--framework": {"metavar": "X", "help": "jax or torch"},
    "--examples": {"type": positive, "default": 100, "metavar": "N", "help": "problems per claim (default 100)"},
    "--seed": {"type": int, "default": 0, "help": "seed of everything that is drawn (default 0)"},
    "--spec": {"metavar": "JSON"},
    "--options": {"metavar": "JSON"},
    "--profile": {"default": "cpu"},
    "--jobs": {"type": positive, "default": 2, "help": "worker processes (default 2)"},
    "--timeout": {
        "type": seconds,
        "default": 60.0,
        "metavar": "S",
        "help": "limit per call in seconds (default 60)",
    },
    "--shard": {
        "type": Shard.parse,
        "default": Shard(),
        "metavar": "I/N",
        "help": "do only the I-th of N shares of this work; gradgate report unites the results",
    },
    "--minutes": {"type": minutes, "metavar": "M", "help": "begin nothing after this time; the next run goes on"},
    "--scheduler": {"metavar": "S", "help": "work on a cluster: tcp://HOST:PORT of Dask, or slurm"},
    "--json": {"type": Path, "metavar": "FILE"},
    "--report": {"type": Path, "metavar": "DIR"},
}


def add(parser: argparse.ArgumentParser, *names: str, **different: Any) -> None:
    """Add shared arguments in this order.

    Args:
        names: the names of shared arguments, such as ``--family``.
        different: keywords of `add_argument` that this command sets differently, such as ``help``.
    """
    for name in names:
        parser.add_argument(name, **{**_SHARED[name], **different})


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--json`` to a command that prints JSON and writes no file."""
    parser.add_argument("--json", action="store_true", help="as JSON")


EXAMPLES = {"--spec": """'{"dtype": "float32", "seed": 1}'""", "--options": """'{"chunk": 4}'"""}
"""Option that takes a JSON object -> what a shell passes on as one."""


def json_object(text: str | None, name: str) -> dict[str, Any] | None:
    """The JSON object given to the option `name`; None if the option was not given.

    Raises:
        UsageError: it is not JSON, or not an object; shows one.
    """
    if not text:
        return None
    example = f", such as {EXAMPLES[name]}" if name in EXAMPLES else ""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{name} is a JSON object{example}; {text!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{name} is a JSON object{example}, not {text!r}")
    return found


def code(chosen: argparse.Namespace) -> dict[str, str]:
    """The identity of the user's code, as ``code``, in a document of one share of work on it; {} in any other."""
    user = chosen.target or getattr(chosen, "problem", None) or is_path(chosen.family or "")
    return {"code": identity(Path.cwd())} if chosen.shard.of > 1 and user else {}


def place_problem(chosen: argparse.Namespace) -> dict[str, str]:
    """Set ``family`` to the model of ``--problem`` as one of the class ``--family``, and ``framework`` to the model's.

    Returns:
        Method -> why it does not run on the model.

    Raises:
        UsageError: the model or the class cannot be used; says why and what is legal.
    """
    from gradgate.references import own_problem, registry

    if getattr(chosen, "target", None):
        raise UsageError(f"--problem runs the reference methods on your model; leave {chosen.target} out")
    chosen.family = own_problem.address(chosen.problem, chosen.family)
    with _on_the_host():
        family = registry.family(chosen.family)
    own = family.methods[0].framework
    if chosen.framework not in (None, own):
        raise UsageError(f"{chosen.problem} is written in {own}; leave --framework {chosen.framework} out")
    chosen.framework = own
    return own_problem.left_out(chosen.family)


@contextlib.contextmanager
def _on_the_host() -> Iterator[None]:
    """A scope in which JAX, if first imported there, looks for no accelerator. Processes started later do look."""
    wanted = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def need_framework(name: str, *, here: bool = True) -> None:
    """Check that a framework is known, and installed if it is used here, before its methods are asked for.

    Raises:
        UsageError: it is not; says what is legal, or how to install it.
    """
    from gradgate.references.contract import FRAMEWORKS, installed  # what prints help does without

    if name not in FRAMEWORKS:
        raise unknown("framework", name, FRAMEWORKS)
    if here and not installed(name):
        raise UsageError(f"{name} is not installed: pip install 'gradgate[{name}]'")


def need_some(chosen: argparse.Namespace, found: Sized) -> None:
    """Check that a target has something in the framework that is asked for: nothing judged must not look right.

    Raises:
        UsageError: it has nothing.
    """
    if not found:
        where = f" in {chosen.framework}: leave --framework out" if chosen.framework else ""
        raise UsageError(f"{chosen.target or chosen.family} has nothing{where}")


def need_report() -> None:
    """Check that the report can be written, before anything long is run.

    Raises:
        UsageError: a package of the extra `report` is missing.
    """
    try:
        import gradgate.suites.report  # noqa: F401
    except ImportError as error:
        raise UsageError(f"--report needs {error.name}: pip install 'gradgate[report]', or use --json FILE") from None
