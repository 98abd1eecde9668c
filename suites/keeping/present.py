"""Whether what a process once read is still the same on this machine."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gradgate.hw_profiles.recording import (
    Places,
    Reading,
    Record,
    candidates,
    digest,
    digest_or_unreadable,
    names_in,
    value_digest,
)
from gradgate.suites.keeping.store import CannotKeep, Store

Packages = dict[str, str]
"""Installed package -> the digest of the content of all its files."""


class ChangedMeanwhile(Exception):
    """A package was installed or edited while this run used it, so it is unknown which of its files ran."""


class Present:
    """Compares readings with the files, packages and variables of now. Everything is looked at once.

    Cost: reading every file that is compared; of a package, only the times and sizes of its files, after the first run
    on this machine.
    """

    def __init__(self, project: Path, store: Store) -> None:
        """Look at nothing yet.

        Args:
            project: the folder of the project; relative paths of readings begin there.
            store: the cache; the digests of packages are kept in a folder of their own beside it.
        """
        self.places = Places(project)
        self._store = store.beside("packages")
        self._began = time.time_ns()
        self._differences: dict[str, str] = {}
        self._package = functools.cache(self._content)
        self._file = functools.cache(digest_or_unreadable)
        self._names = functools.cache(names_in)

    def difference(self, readings: Record, packages: Mapping[str, str]) -> str:
        """What has changed since these readings were taken, in words; "" if nothing has."""
        for identity, data in readings.items():
            if identity not in self._differences:
                self._differences[identity] = next(self._changes(Reading.from_json(data)), "")
            if self._differences[identity]:
                return self._differences[identity]
        for name, content in packages.items():
            if self.package(name) != content:
                return f"the package {name} has changed"
        return ""

    def packages(self, readings: Record) -> Packages:
        """The digests of the packages that are named in readings.

        Raises:
            ChangedMeanwhile: one of them was changed since this object was made.
        """
        names = sorted({name for data in readings.values() for name in data.get("packages", ())})
        for name in names:
            if self._package(name)[1] > self._began:
                raise ChangedMeanwhile(f"the package {name} was changed during the run")
        return {name: self.package(name) for name in names}

    def package(self, name: str) -> str:
        """The digest of the content of an installed package, bytecode aside; "" if it is not installed."""
        return self._package(name)[0]

    def _content(self, name: str) -> tuple[str, int]:
        """The digest of the files of a package, and the time of the latest change of one of them.

        Files are read anew only if the state of one of them is not the one that was read before on this machine.
        """
        place = next((os.path.join(site, name) for site in self.places.sites if _exists(site, name)), "")
        if not place:
            return "", 0
        states = list(_states(place))
        key = digest(json.dumps(["package", place, states]))
        known = self._store.get(key)
        if known is None:
            total = hashlib.sha256()
            for path, *_ in states:
                total.update(f"{os.path.relpath(path, place)}\0{digest_or_unreadable(path)}\0".encode())
            known = {"content": total.hexdigest(), "latest": max((state[3] for state in states), default=0)}
            with contextlib.suppress(CannotKeep):  # it is read again next time
                self._store.put(key, known)
        return str(known["content"]), int(known["latest"])

    def _changes(self, reading: Reading) -> Iterator[str]:
        """Every difference between a reading and now."""
        yield from reading.unrepeatable
        for path, content in reading.files.items():
            if self._file(self._full(path)) != content:
                yield f"{path} has changed" if content else f"{path} exists now"
        for path, there in reading.probes.items():
            if os.path.lexists(self._full(path)) != there:
                yield f"{path} {'is gone' if there else 'exists now'}"
        for link, target in reading.links.items():
            if _target(self._full(link)) != target:
                yield f"the link {link} leads elsewhere"
        for folder, listing in reading.listings.items():
            if digest("\0".join(self._names(self._full(folder)))) != listing:
                yield f"the files in {folder} have changed"
        for folder, modules in reading.lookups.items():
            names = self._names(self._full(folder))
            for module, entries in modules.items():
                if candidates(names, module) != entries:
                    yield f"{folder} has another file for the module {module}"
        for module in reading.absent:
            if any(candidates(self._names(site), module) for site in self.places.sites):
                yield f"the package {module} is installed now"
        for name, value in reading.variables.items():
            if value_digest(os.environ.get(name)) != value:
                yield f"the environment variable {name} has changed"

    def _full(self, path: str) -> str:
        return os.path.join(self.places.project, path)


def _target(link: str) -> str:
    """Where a link leads; "" if there is none."""
    try:
        return os.readlink(link)
    except OSError:
        return ""


def _exists(site: str, name: str) -> bool:
    return os.path.exists(os.path.join(site, name))


def _states(place: str) -> Iterable[tuple[str, int, int, int, int]]:
    """Path, size, time of modification, time of change and inode of every file in a place, in order.

    The time of change cannot be set by a program, so an edit that restores the time of modification is seen.
    """
    if os.path.isfile(place):
        found = os.stat(place)
        yield place, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
        return
    for folder, inside, files in os.walk(place):
        inside[:] = sorted(name for name in inside if name != "__pycache__")
        for name in sorted(files):
            path = os.path.join(folder, name)
            try:
                found = os.stat(path)
            except OSError:  # a link to nothing
                continue
            yield path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
