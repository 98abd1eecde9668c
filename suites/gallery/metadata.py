"""The library files of the gallery, read from their inline metadata (PEP 723) without running them."""

from __future__ import annotations

import dataclasses
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError, unknown
from gradgate.suites.workers.shards import Shard

FOLDER = Path(__file__).parent
HEAD = "# /// script\n"
"""The first line of a library file."""
BLOCK = re.compile(r"\A# /// script\n((?:#(?: .*)?\n)+?)# ///\n")
FRAMEWORKS = ("jax", "torch")
FIELDS = {
    "home": str,
    "framework": str,
    "judges": str,
    "no-deps": bool,
    "no-build-isolation": bool,
    "seconds": int,
    "limit": int,
    "notes": str,
    "by-design": dict,
    "findings": dict,
}
"""Field of ``[tool.gradgate]`` -> its type."""
PYTHON = re.compile(r">=\s*(\d+)\.(\d+)(?:\s*,\s*<\s*(\d+)\.(\d+))?")
"""The only form of ``requires-python`` that is read."""


@dataclass(frozen=True)
class Library:
    """A library file.

    Attributes:
        name: the name of the file, without ``.py``.
        path: the file.
        dependencies: what pip installs; the first entry is the library.
        home: the URL of the library.
        framework: ``jax`` or ``torch``.
        judges: the distribution whose version is reported.
        no_deps: whether pip installs nothing that is not named.
        no_build_isolation: whether source distributions are built with the packages of the shared environment.
        seconds: how long a run takes that judges everything; decides the share.
        limit: seconds after which the run is stopped.
        notes: a sentence for the page.
        by_design: of the census: pattern of rules' names -> why they differ from the derivative of their forward pass.
        findings: of the census: name of a rule -> its ``cause`` and the ``script`` that shows it.
        python: the versions of Python that it needs.
        title: the first line of the docstring.
    """

    name: str
    path: Path
    dependencies: tuple[str, ...]
    home: str
    framework: str
    judges: str
    no_deps: bool = False
    no_build_isolation: bool = False
    seconds: int = 60
    limit: int = 600
    notes: str = ""
    python: str = ""
    title: str = ""
    by_design: Mapping[str, str] = dataclasses.field(default_factory=dict)
    findings: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    def unsuited(self, version: tuple[int, ...] = sys.version_info[:2]) -> str:
        """Why a version of Python cannot run it; "" if it can."""
        found = PYTHON.fullmatch(self.python) if self.python else None
        if found is None:
            return ""
        low = (int(found[1]), int(found[2]))
        high = (int(found[3]), int(found[4])) if found[3] else None
        if low <= version and (high is None or version < high):
            return ""
        return f"it needs Python {self.python}, and this is Python {'.'.join(map(str, version))}"


def read(path: Path) -> Library:
    """The library that a file declares.

    Raises:
        UsageError: the metadata is missing or wrong; says what is legal.
    """
    text = path.read_text(encoding="utf-8")
    block = BLOCK.match(text)
    if block is None:
        raise UsageError(f"{path.name}: a library file begins with a block '# /// script' … '# ///' (PEP 723)")
    try:
        found = tomllib.loads("\n".join(line[2:] for line in block[1].splitlines()))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path.name}: its inline metadata is not TOML: {error}") from None
    own = found.get("tool", {}).get("gradgate")
    if own is None:
        raise UsageError(f"{path.name}: its inline metadata has no table [tool.gradgate]")
    dependencies = tuple(found.get("dependencies", ()))
    _check(path.name, own, dependencies, str(found.get("requires-python", "")))
    rest = {name.replace("-", "_"): value for name, value in own.items() if name != "judges"}
    judges = own.get("judges") or distribution(dependencies[0])
    title = re.match(r'"""(.*?)("""|\n)', text[block.end() :])
    return Library(
        path.stem,
        path,
        dependencies,
        judges=judges,
        python=str(found.get("requires-python", "")),
        title=title[1] if title else "",
        **rest,
    )


def _check(name: str, own: dict[str, Any], dependencies: tuple[str, ...], python: str) -> None:
    """Check the fields of a file.

    Raises:
        UsageError: one is missing, unknown or of the wrong type.
    """
    for field, value in own.items():
        if field not in FIELDS:
            raise unknown(f"field of [tool.gradgate] in {name}", field, FIELDS)
        if type(value) is not FIELDS[field]:
            raise UsageError(f"{name}: {field} is of type {FIELDS[field].__name__}, not {value!r}")
    for field in ("home", "framework"):
        if field not in own:
            raise UsageError(f"{name}: [tool.gradgate] lacks {field}")
    if own["framework"] not in FRAMEWORKS:
        raise unknown(f"framework in {name}", own["framework"], FRAMEWORKS)
    if not own["home"].startswith("https://"):
        raise UsageError(f"{name}: home is a URL that begins with https://, not {own['home']!r}")
    if not dependencies and "judges" not in own:
        raise UsageError(f"{name}: without dependencies, [tool.gradgate] needs judges, the distribution that is judged")
    for given in dependencies:
        if "==" not in given and " @ " not in given:
            raise UsageError(f"{name}: {given!r} is not pinned; write name==version, or name @ URL")
    if python and not PYTHON.fullmatch(python):
        raise UsageError(f"{name}: requires-python is '>=3.11' or '>=3.11,<3.13', not {python!r}")


def distribution(requirement: str) -> str:
    """The name of the distribution in a requirement.

    >>> distribution("jax-thing[extra]==1.0"), distribution("memcnn @ https://x/y.tar.gz")
    ('jax-thing', 'memcnn')
    """
    return re.split(r"[\s\[=<>!~@;]", requirement, maxsplit=1)[0]


def paths(folder: Path = FOLDER) -> dict[str, Path]:
    """Name -> path of every library file of a folder: the files that begin with inline metadata."""
    found = sorted(folder.glob("*.py"))
    return {path.stem: path for path in found if path.read_text(encoding="utf-8").startswith(HEAD)}


def chosen(names: list[str], folder: Path = FOLDER, shard: Shard | None = None) -> list[Library]:
    """The libraries of these names, or all; with a share, those whose turn it is.

    Raises:
        UsageError: there is no such library, or a file's metadata is wrong.
    """
    known = paths(folder)
    for name in names:
        if name not in known:
            raise unknown("library", name, known)
    found = [read(path) for name, path in known.items() if name in names or not names]
    part = shard or Shard()
    return part.part(found, lambda library: library.name, lambda library: float(library.seconds))
