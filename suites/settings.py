"""A project's settings: the table ``[tool.gradgate]`` of its pyproject.toml. Every command reads them here."""

from __future__ import annotations

import tomllib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gradgate.references.errors import UsageError
from gradgate.suites.schemas.checking import checked

PROFILES = ("cpu", "nvidia-h100", "tpu-v5p")
WHERE = "pyproject.toml: [tool.gradgate]"
Text = Annotated[str, Meta(min_length=1)]
Scalar = bool | int | float | str | None


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A method of the project: a callable, and the problems that it solves."""

    target: Annotated[Text, Meta(description="`package.module:function` or `file.py:function`, below the project")]
    family: Annotated[Text, Meta(description="the class of problems, such as `state_space`")]
    framework: Annotated[
        Literal["jax", "torch", ""], Meta(description="if it is not given, the one that the module imports")
    ] = ""
    spec: Annotated[
        dict[str, Scalar],
        Meta(description="fields of the problem at which bytes are measured; they replace the family's"),
    ] = {}
    options: Annotated[
        dict[str, Scalar], Meta(description="options of the method at this problem; they replace the usual ones")
    ] = {}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table, every key with its default."""

    profiles: Annotated[
        tuple[Text, ...],
        Meta(
            min_length=1,
            description="the profiles for which JAX functions are compiled, such as `nvidia-h100`, or paths of TOML "
            "files; PyTorch functions run once, under the first",
        ),
    ] = PROFILES
    methods: Annotated[
        tuple[Target, ...], Meta(description="methods of gradgate's classes, each a table `[[tool.gradgate.methods]]`")
    ] = ()
    pairs: Annotated[
        tuple[Text, ...],
        Meta(
            description="files, modules, or `file.py:name`; every `gradgate.Pair` in them is gated, and is what "
            "`gradgate verify` and `gradgate memory` take if they get no target"
        ),
    ] = ()
    path: Annotated[
        tuple[Text, ...],
        Meta(
            description="folders from which both sides of the gate, `verify`, `memory` and `domain` import, such as "
            "`src`, relative to the project"
        ),
    ] = ()
    allow: Annotated[Text, Meta(description="the file of allowed rises, relative to the project")] = (
        "gradgate_allow.toml"
    )
    examples: Annotated[int, Meta(ge=1, le=1_000_000, description="problems per gradient claim in the gate")] = 20
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description="the seed of everything that the gate draws")] = 0
    fail_under: Annotated[
        float,
        Meta(
            ge=0,
            le=100,
            description="percent of the decisions of pairs that must go both ways, else `gradgate verify` ends with 2",
        ),
    ] = 0
    depends: Annotated[
        tuple[Text, ...],
        Meta(
            description="globs of files, besides imported modules, that change what a function computes, such as "
            "`tables/*.json`; when one changes, nothing is reused. Each must match a file of the project"
        ),
    ] = ()
    by_design: Annotated[
        dict[Text, Text],
        Meta(
            description="handwritten derivatives that differ from the derivative of their forward pass on purpose, as "
            "`gradgate watch` names them, such as `mylib.quantize:Round`; each with the reason"
        ),
    ] = {}

    @property
    def targets(self) -> tuple[Target, ...]:
        """All that the project names: its methods, and its pairs, which are targets without a class."""
        return (*self.methods, *(Target(place, family="") for place in self.pairs))

    @classmethod
    def read(cls, project: Path) -> Settings:
        """The settings of a project; the defaults if it has no such table.

        Raises:
            UsageError: not TOML, an unknown key, a value of the wrong kind, a path that leaves the project, a folder of
                `path` that is not there, or a glob of `depends` that matches no file.
        """
        try:
            declared = read_toml(project / "pyproject.toml", "pyproject.toml")
        except FileNotFoundError:
            return cls()
        tool = declared.get("tool", {})
        if not isinstance(tool, dict):
            raise UsageError(f"pyproject.toml: tool must be a table, not {tool!r}")
        settings = checked(tool.get("gradgate", {}), cls, WHERE)
        settings._check_files(project)
        return settings

    def _check_files(self, project: Path) -> None:
        for key, places in (("path", self.path), ("allow", (self.allow,)), ("depends", self.depends)):
            for place in places:
                if _leaves(place):
                    legal = "a path below the project, without .. and without a leading slash"
                    raise UsageError(f"{WHERE}: {key} must be {legal}, not {place!r}")
        for place in self.path:
            if not (project / place).is_dir():
                raise UsageError(f"{WHERE}: path names {place!r}, and the project has no such folder")
        for glob in self.depends:
            try:
                found = any(each.is_file() for each in project.glob(glob))
            except ValueError as error:  # such as a** before Python 3.13
                raise UsageError(f"{WHERE}: depends has {glob!r}, which is no glob: {error}") from None
            if not found:
                raise UsageError(f"{WHERE}: depends has {glob!r}, which matches no file of the project; correct it")


def read_toml(path: Path, shown: str) -> dict[str, Any]:
    """The content of a TOML file.

    Args:
        path: the file.
        shown: the name of the file in messages.

    Raises:
        FileNotFoundError: there is no such file.
        UsageError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UsageError(f"cannot read {shown}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # tomllib raises a plain ValueError for a number of 5,000 digits
        raise UsageError(f"{shown} is not TOML: {error}") from None


def _leaves(place: str) -> bool:
    """Whether a path or glob may name something outside the project, on any system."""
    given = PurePosixPath(place), PureWindowsPath(place)
    return any(each.is_absolute() or each.drive or each.root or ".." in each.parts for each in given)
