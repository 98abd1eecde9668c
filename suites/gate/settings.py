"""A project's settings of the gate: the table ``[tool.gradgate]`` of its pyproject.toml."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradgate.references.contract import UsageError

PROFILES = ("cpu", "nvidia-h100", "tpu-v5p")


@dataclass(frozen=True)
class Target:
    """A method of the project: a callable, and the problems that it solves.

    Attributes:
        target: ``package.module:function`` or ``file.py:function``, the file relative to the project.
        family: the class of problems.
        framework: ``jax`` or ``torch``; "" means the one that its module imports.
        spec: fields of the problem at which bytes are measured; they replace the family's.
        options: options of the method at this problem; they replace the usual ones.
    """

    target: str
    family: str
    framework: str = ""
    spec: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """The table, every key with its default.

    Attributes:
        profiles: the profiles for which JAX methods are compiled; PyTorch methods run once, under the first.
        methods: methods of the project; none in gradgate's own repository, where the registry lists them.
        pairs: files, modules, or ``file.py:name``; every `gradgate.Pair` in them is gated.
        path: folders on the import path, such as ``src``.
        allow: the file of allowed rises.
        examples: problems per gradient claim.
        seed: the seed of everything that is drawn.
        depends: globs of files, besides imported modules, that change what a method computes.
    """

    profiles: tuple[str, ...] = PROFILES
    methods: tuple[Target, ...] = ()
    pairs: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    allow: str = "asv_bench/allow.toml"
    examples: int = 20
    seed: int = 0
    depends: tuple[str, ...] = ()

    @classmethod
    def read(cls, project: Path) -> Settings:
        """The settings of a project; the defaults if it has no such table.

        Raises:
            UsageError: not TOML, an unknown key, or a value of the wrong kind.
        """
        path = project / "pyproject.toml"
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("gradgate", {})
        except FileNotFoundError:
            return cls()
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"pyproject.toml is not TOML: {error}") from None
        where = "[tool.gradgate]"
        kinds = {"profiles": list, "methods": list, "path": list, "allow": str, "examples": int, "seed": int}
        check_table(where, table, kinds | {"depends": list, "pairs": list})
        if table.get("examples", 1) < 1 or table.get("seed", 0) < 0:
            raise UsageError(f"{where}: examples must be at least 1 and seed at least 0")
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        for key in ("profiles", "path", "depends", "pairs"):
            if not all(isinstance(item, str) for item in values.get(key, ())):
                raise UsageError(f"{where}: {key} must be a list of strings")
        values["methods"] = tuple(_target(i, row) for i, row in enumerate(table.get("methods", ()), 1))
        if not values.get("profiles", PROFILES):
            raise UsageError(f"{where}: profiles is empty; nothing would be measured")
        return cls(**values)


def check_table(where: str, table: Any, kinds: Mapping[str, type], required: Sequence[str] = ()) -> None:
    """Check the keys and types of a TOML table.

    Raises:
        UsageError: a key or type is wrong; says which key, its value and what is legal.
    """
    if not isinstance(table, dict):
        raise UsageError(f"{where} must be a table, not {table!r}")
    for key, value in table.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ";"
            raise UsageError(f"{where}: unknown key {key!r}{hint} legal: {', '.join(kinds)}")
        if type(value) is not kinds[key]:
            raise UsageError(f"{where}: {key} must be a {_NAMES.get(kinds[key], kinds[key].__name__)}, not {value!r}")
    for key in required:
        if key not in table:
            raise UsageError(f"{where}: the key {key!r} is missing")


_NAMES = {str: "string", int: "whole number", bool: "true or false", dict: "table", list: "list"}


def _target(place: int, row: Any) -> Target:
    kinds = {"target": str, "family": str, "framework": str, "spec": dict, "options": dict}
    check_table(f"[[tool.gradgate.methods]] number {place}", row, kinds, ("target", "family"))
    return Target(**row)
