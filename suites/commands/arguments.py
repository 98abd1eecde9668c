"""Arguments that several commands have, each declared once, and checks that several commands make."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError, unknown
from gradgate.references.loading import is_path
from gradgate.suites.console import streams, terminal
from gradgate.suites.gate.code import identity
from gradgate.suites.settings import Settings, Target
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
    "target": {
        "nargs": "?",
        "help": "file.py, or file.py:name or package.module:name of your pair or method (default: what pyproject.toml "
        "names in [tool.gradgate])",
    },
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


def targets(chosen: argparse.Namespace, settings: Settings) -> tuple[Target, ...]:
    """What to work on: the target that is given, or all that the project names; () if it is gradgate's own methods."""
    family, method, framework = (getattr(chosen, name, None) for name in ("family", "method", "framework"))
    if chosen.target:
        return (Target(chosen.target, family or "", framework or ""),)
    return () if family or method else settings.targets


def tell_targets(chosen: argparse.Namespace) -> None:
    """Say what is worked on if no target is given. A command does so when nothing can be wrong usage any more."""
    if chosen.targets and not chosen.target:
        named = ", ".join(dict.fromkeys(given.target for given in chosen.targets))
        terminal.note(f"no target is given, so it is what pyproject.toml names: {named}")


@contextlib.contextmanager
def users_code(settings: Settings) -> Iterator[None]:
    """The scope in which the user's code is imported, here or in a process that starts in it.

    The folders of the setting ``path`` come first. JAX, if first imported there, looks for no accelerator.
    """
    folders = [os.path.abspath(place) for place in settings.path]
    wanted = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    changed = {name: value for name, value in wanted.items() if name not in os.environ}
    if folders:
        changed["PYTHONPATH"] = os.pathsep.join(filter(None, [*folders, os.environ.get("PYTHONPATH")]))
    before, path = {name: os.environ.get(name) for name in changed}, list(sys.path)
    os.environ.update(changed)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = path
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def code(chosen: argparse.Namespace) -> dict[str, str]:
    """The identity of the user's code, as ``code``, in a document of one share of work on it; {} in any other."""
    user = chosen.targets or getattr(chosen, "problem", None) or is_path(chosen.family or "")
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
    with users_code(Settings.read(Path.cwd())), streams.without_native_logs():
        family = registry.family(chosen.family)
    own = family.methods[0].framework
    if chosen.framework not in (None, own):
        raise UsageError(f"{chosen.problem} is written in {own}; leave --framework {chosen.framework} out")
    chosen.framework = own
    return own_problem.left_out(chosen.family)


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
        named = chosen.target or chosen.family or "pyproject.toml"
        raise UsageError(f"{named} has nothing{where}")


def need_report() -> None:
    """Check that the report can be written, before anything long is run.

    Raises:
        UsageError: a package of the extra `report` is missing.
    """
    try:
        import gradgate.suites.report  # noqa: F401
    except ImportError as error:
        raise UsageError(f"--report needs {error.name}: pip install 'gradgate[report]', or use --json FILE") from None
