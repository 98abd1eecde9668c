"""What is declared of a repository: ``NAME.py`` has its pairs, and ``NAME.toml`` its settings and its commits."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from gradgate.references.errors import UsageError, unknown
from gradgate.suites.gallery import metadata
from gradgate.suites.gallery.metadata import Library

FOLDER = Path(__file__).parent / "repositories"
MOST_LINES = 30
"""Lines that the declarations of a repository may have: pairs and what they share, without functions and imports."""
PASSED, CAUGHT, MISSED, ALARM, UNMEASURED = "passed", "caught", "missed", "false alarm", "not measured"
"""What became of a gate: it passes as it should · it fails as it should · it says less than it should · it fails though
it should pass · it ends without a verdict."""
Gives = Literal["fixed", "broken", "bytes fall", "bytes rise", "trade", "neutral"]
Outcome = Literal["passed", "caught", "missed", "false alarm", "not measured"]
WANTED: Mapping[str, tuple[str, str]] = {
    "fixed": ("fixed", "refuted"),
    "broken": ("refuted", "fixed"),
    "bytes fall": ("fall", "rise"),
    "bytes rise": ("rise", "fall"),
    "trade": ("rise", "rise"),
    "neutral": ("", ""),
}
"""What a commit gives -> the kind of finding that the gate must have forwards, and backwards; "": it must pass."""
FAILING = ("refuted", "rise")
"""The wanted findings with which the gate fails."""


class Commit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A commit, and what it gives.

    Attributes:
        commit: its hash.
        gives: what it does to gradients or bytes, for the pairs that are gated.
        pairs: variables of the file of pairs, those whose functions exist before and after; all if there are none.
        base: the revision before; if it is not given, the first parent.
        forwards: the outcome of the gate from the revision before to the commit, if it is not as it should be.
        backwards: that of the gate from the commit to the revision before.
        because: why, and which declaration would have caught what is missed.
        revised: what was declared until the gate spoke, if the commit was then read again and declared otherwise. Such
            a commit is no independent test of the gate.
    """

    commit: str
    gives: Gives
    pairs: tuple[str, ...] = ()
    base: str = ""
    forwards: Outcome | Literal[""] = ""
    backwards: Outcome | Literal[""] = ""
    because: str = ""
    revised: str = ""

    def declared(self) -> tuple[str, str]:
        """The outcomes that are declared: forwards and backwards."""
        usual = [CAUGHT if wanted in FAILING else PASSED for wanted in WANTED[self.gives]]
        return self.forwards or usual[0], self.backwards or usual[1]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The commits of a repository.

    Attributes:
        settings: what is added to its table ``[tool.gradgate]``, besides the pairs.
        commit: the commits.
    """

    settings: Mapping[str, Any] = {}
    commit: tuple[Commit, ...]


@dataclass(frozen=True)
class Repository:
    """A repository with its declarations.

    Attributes:
        library: the metadata of its file of pairs.
        table: its commits.
    """

    library: Library
    table: Table

    @property
    def name(self) -> str:
        """The name of its files."""
        return self.library.name

    def pairs(self) -> list[str]:
        """The variables of the file of pairs that are pairs."""
        statements = ast.parse(self.library.path.read_text(encoding="utf-8")).body
        return [one.targets[0].id for one in statements if _is_pair(one)]  # type: ignore[attr-defined]


def read(name: str, folder: Path = FOLDER) -> Repository:
    """The declarations of a repository.

    Raises:
        UsageError: there is none of this name, or one of its files is wrong.
    """
    known = metadata.paths(folder)
    if name not in known:
        raise unknown("repository", name, known)
    place = folder / f"{name}.toml"
    try:
        table = msgspec.convert(tomllib.loads(place.read_text(encoding="utf-8")), Table)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{place.name}: {error}") from None
    repository = Repository(metadata.read(known[name]), table)
    pairs = repository.pairs()
    for commit in table.commit:
        for pair in commit.pairs:
            if pair not in pairs:
                raise unknown(f"pair of {commit.commit} in {place.name}", pair, pairs)
        if (commit.forwards or commit.backwards) and not commit.because:
            raise UsageError(f"{place.name}: {commit.commit} has an outcome that is not as it should be; say why")
    return repository


def lines(path: Path) -> int:
    """How many lines of a file declare something: all statements but functions, classes, imports and the docstring."""
    statements = ast.parse(path.read_text(encoding="utf-8")).body[1:]
    left_out = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    counted = [one for one in statements if not isinstance(one, left_out)]
    return sum((one.end_lineno or one.lineno) - one.lineno + 1 for one in counted)


def _is_pair(statement: ast.stmt) -> bool:
    """Whether a statement is ``name = gradgate.Pair(…)``, or calls a function whose name ends with ``pair``."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
        return False
    called = statement.value.func
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    return isinstance(statement.targets[0], ast.Name) and name.lower().endswith("pair")
