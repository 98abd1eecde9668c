"""Objects named by targets: ``package.module:name``, ``path/to/file.py:name`` or ``path/to/folder:name``."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gradgate.references.errors import UsageError, unknown

PLUGIN = "gradgate_plugin_"
"""How the name of a module begins that was loaded from a file; a number that differs from folder to folder ends it."""


def load(target: str) -> Any:
    """The object that a target names. Imports and so runs the module that it is in.

    Args:
        target: ``package.module:name``, ``path/to/file.py:name``, or ``path/to/folder:name`` of a package's folder; a
            folder in the working directory is written ``./folder:name``.

    Raises:
        UsageError: there is no colon, or no such file, module or name; the message gives the nearest name. An error
            inside the module itself is passed on as it is.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise UsageError(f"a target is package.module:function or file.py:function, not {target!r}")
    module = _at(Path(place)) if is_path(place) else _module(place, target)
    if not hasattr(module, name):
        functions = [n for n, v in vars(module).items() if isinstance(v, Callable) and not n.startswith("_")]  # type: ignore[arg-type]
        raise unknown(f"function in {place}", name, functions)
    return getattr(module, name)


def module_of(place: str) -> ModuleType:
    """The module of a target without its name: ``package.module``, ``path/to/file.py`` or ``path/to/folder``.

    Raises:
        UsageError: there is no such file or module.
    """
    return _at(Path(place)) if is_path(place) else _module(place, place)


def is_path(place: str) -> bool:
    """Whether the place in a target is a path, and not the name of a module."""
    return place.endswith(".py") or os.sep in place


def need_file(target: str) -> None:
    """Raise UsageError if a target is in a Python file that is not there, or in a file of another kind."""
    place = target.partition(":")[0]
    if place.endswith(".py") and not Path(place).is_file():
        raise UsageError(f"there is no file {place}")
    if Path(place).suffix not in ("", ".py") and Path(place).is_file():
        raise UsageError(f"{place} is no Python file: its name must end in .py")


def shortest(path: Path) -> str:
    """The path relative to the working directory if it is inside, where our other processes work too; else in full."""
    here = Path.cwd()
    if not path.is_relative_to(here):
        return str(path)
    short = str(path.relative_to(here))
    return short if is_path(short) else f".{os.sep}{short}"


def _module(place: str, target: str) -> ModuleType:
    if not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"{place} is neither a Python file, such as gradients.py, nor the name of a module")
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(error.name + ".")):
            raise UsageError(f"{target}: there is no module {error.name!r}; is its project installed here?") from None
        raise


def _at(path: Path) -> ModuleType:
    if path.name == "__init__.py":
        return _package(path.parent.resolve())
    if not path.name.endswith(".py"):
        return _package(path.resolve())
    need_file(str(path))
    return _file(path.resolve())


@functools.cache
def _file(path: Path) -> ModuleType:
    return _executed(f"{PLUGIN}{path.stem}_{abs(hash(path.resolve())):x}", path)


@functools.cache
def _package(folder: Path) -> ModuleType:
    """The package in a folder. Its name is the folder's name, because its modules import each other by that name."""
    init, name = folder / "__init__.py", folder.name
    if not init.is_file():
        said = "it has no __init__.py" if folder.is_dir() else "there is no such folder"
        raise UsageError(f"{folder} is no package: {said}")
    if not name.isidentifier():
        raise UsageError(f"{folder}: {name!r} is no name for a package; rename the folder, such as my_class")
    known = importlib.util.find_spec(name)
    if known is None:
        return _executed(name, init, [str(folder)])
    if known.origin is None or Path(known.origin).resolve() != init:
        raise UsageError(f"{folder}: another package is called {name!r}, at {known.origin}; rename the folder")
    return importlib.import_module(name)


class _FromText(importlib.machinery.SourceFileLoader):
    """Compiles a file from its text: bytecode beside it may be that of another text of the same second and length."""

    def path_stats(self, path: Any) -> Any:
        """None are known, so that no bytecode is read or written."""
        raise OSError


def _executed(name: str, path: Path, inside: list[str] | None = None) -> ModuleType:
    loader = _FromText(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader, submodule_search_locations=inside)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]  # otherwise the next import would find half of the module
        raise
    return module
