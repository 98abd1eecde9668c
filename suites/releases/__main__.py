"""Measure releases, and confirm rises: ``python -m gradgate.suites.releases jax 0.8.3 0.9.2 0.10.2``."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradgate.references.contract import UsageError
from gradgate.suites.gate import manifest
from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.gate.process import Unmeasurable
from gradgate.suites.releases import cells, environments, history, known, libraries, measuring, rises
from gradgate.suites.releases.environments import Release
from gradgate.suites.releases.libraries import Subject

ROOT = Path(__file__).parents[2]
WHOLE = "1/1"
"""The shard that has every method."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit status: 0, 2 if a release could not be measured, 3 for wrong usage."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.framework == "unite":
            for shard in chosen.names:
                print(f"{history.unite(Path(shard), chosen.history)} cells of {shard}")
            return 0
        if chosen.framework == "known":
            for line in known.run(chosen.names, chosen.environments, ROOT):
                print(line)
            return 0
        if not chosen.names:
            raise UsageError(f"name the releases, such as: {chosen.framework} 0.9.2 0.10.2")
        return _measure([Release.of(f"{chosen.framework}-{name}") for name in chosen.names], chosen)
    except UsageError as error:
        print(f"releases: {error}", file=sys.stderr)
        return 3
    except Unmeasurable as error:
        print(f"releases: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="releases", description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    legal = (*environments.FRAMEWORKS, "unite", "known")
    said = "whose releases; unite: add the histories of shards to this one; known: run the known regressions"
    add("framework", choices=legal, help=said)
    add("names", nargs="*", help="releases, such as 0.9.2; after unite: folders; after known: names, or none for all")
    add("--profiles", help="names, separated by commas (default: those of suites/releases/cells.py)")
    add("--shard", default=WHOLE, metavar="K/N", help="measure the K-th of N parts of the methods")
    add("--only", choices=("references", "gallery"), help="measure only these; default: both")
    add("--revision", default="HEAD", metavar="REV", help="the commit whose methods are measured (default HEAD)")
    add("--jobs", type=int, default=1, metavar="N", help="processes that measure at once (default 1)")
    add("--history", type=Path, default=history.FOLDER, help="the folder of the figures")
    add("--environments", type=Path, default=ROOT / ".nox" / "releases", help="the folder of the environments")
    return parser


def _measure(releases: Sequence[Release], chosen: argparse.Namespace) -> int:
    """Measure releases, each in its environment, then compile every rise again. A release that fails costs its rows."""
    status = 0
    _shard(chosen.shard)  # an error of usage comes before anything is installed
    pythons: dict[Release, Path] = {}
    with measuring.tree(ROOT, chosen.revision) as (overlay, commit), tempfile.TemporaryDirectory() as place:
        for release in releases:
            try:
                pythons[release] = environments.make(release, chosen.environments, ROOT)
            except UsageError as error:
                print(f"releases: {error}", file=sys.stderr)
                status = 2
        if not pythons:
            return status
        subjects = _subjects(overlay, Path(place), max(pythons.items()), chosen)
        for release, python in pythons.items():
            for subject in subjects:
                try:
                    libraries.install(python, release, subject.needs)
                    _one(release, python, subject, commit, chosen)
                    if chosen.shard == WHOLE:
                        _forget(release, subject, chosen.history)
                except (UsageError, Unmeasurable) as error:
                    print(f"releases: {error}", file=sys.stderr)
                    _fail(release, subject, str(error), chosen.history)
                    status = 2
        for subject in subjects:
            _confirm(pythons, subject, chosen)
    return status


def _subjects(overlay: Overlay, place: Path, newest: tuple[Release, Path], chosen: argparse.Namespace) -> list[Subject]:
    """What is measured under every release: the references, then each library of the gallery."""
    release, python = newest
    part, parts = _shard(chosen.shard)
    profiles = chosen.profiles.split(",") if chosen.profiles else cells.PROFILES[release.framework]
    found = []
    if chosen.only != "gallery":
        found.append(Subject(overlay, measuring.cells(overlay, release.framework, profiles)))
    if chosen.only != "references":
        for library in libraries.entries(release.framework):
            try:
                found.append(libraries.subject(library, overlay, place, python, release, profiles))
            except UsageError as error:
                print(f"releases: {library.name}: {error}", file=sys.stderr)
                for profile in profiles:
                    step = history.read(chosen.history, release, profile)
                    step.put(cells.name(libraries.unlisted(library, profile)), {}, str(error))
                    history.write(chosen.history, step)
    methods = dict.fromkeys(manifest.owner(row) for subject in found for row in subject.rows)
    mine = {method for place_, method in enumerate(methods) if place_ % parts == part - 1}
    return [
        dataclasses.replace(subject, rows=rows)
        for subject in found
        if (rows := [row for row in subject.rows if manifest.owner(row) in mine])
    ]


def _one(release: Release, python: Path, subject: Subject, commit: str, chosen: argparse.Namespace) -> None:
    """Measure a release, and write every figure as soon as it is known."""
    reused, rows = 0, subject.rows
    asked = measuring.measure(python, subject.overlay, rows, release.name, chosen.jobs, own=subject.of_gradgate)
    for place, found in enumerate(asked, 1):
        step = history.read(chosen.history, release, str(found.row["profile"]))
        name = cells.name(found.row)
        if step.figures.get(name) != dict(found.figures) or not found.figures:
            step.put(name, found.figures, found.reason)
        step.versions, step.commit = dict(found.versions), commit
        history.write(chosen.history, step)
        reused += found.reused
        if not found.reused:
            said = found.reason or ", ".join(f"{value:,} {q}" for q, value in found.figures.items())
            print(f"{release.name} {place}/{len(rows)} {name}@{found.row['profile']}: {said}", flush=True)
    print(f"{release.name}: {len(rows)} cells, {reused} of them kept from before", flush=True)


def _fail(release: Release, subject: Subject, reason: str, folder: Path) -> None:
    """Enter a reason for every cell of a subject that has no figures."""
    for row in subject.rows:
        step, name = history.read(folder, release, str(row["profile"])), cells.name(row)
        if name not in step.figures:
            step.put(name, {}, reason)
            history.write(folder, step)


def _forget(release: Release, subject: Subject, folder: Path) -> None:
    """Remove the cells of a subject that are listed no longer, because a problem or options have changed."""
    listed: dict[str, set[str]] = {}
    for row in subject.rows:
        listed.setdefault(str(row["profile"]), set()).add(cells.name(row))
    for profile, names in listed.items():
        step, owners = history.read(folder, release, profile), {_owner(name) for name in names}
        for name in {*step.figures, *step.reasons} - names:
            if _owner(name) in owners:
                step.drop(name)
        history.write(folder, step)


def _owner(name: str) -> str:
    """The library of a cell; "" for gradgate's own."""
    return name.rpartition("/")[0]


def _confirm(pythons: dict[Release, Path], subject: Subject, chosen: argparse.Namespace) -> None:
    """Compile every cell with a rise again, under both releases, each in a new process with an empty cache."""
    named = {(cells.name(row), str(row["profile"])): row for row in subject.rows}
    for release, python in sorted(pythons.items()):
        wanted: dict[tuple[str, str], dict[str, Any]] = {}
        for change in rises.changes(history.steps(chosen.history)):
            key = (change.name, change.profile)
            step = history.read(chosen.history, release, change.profile)
            mine = change.rise and release in (change.release, change.before) and change.name not in step.again
            if mine and key in named:
                wanted[key] = named[key]
        if not wanted:
            continue
        asked = list(wanted.values())
        for found in measuring.measure(
            python, subject.overlay, asked, release.name, chosen.jobs, again=True, own=subject.of_gradgate
        ):
            step = history.read(chosen.history, release, str(found.row["profile"]))
            step.again[cells.name(found.row)] = dict(found.figures)
            history.write(chosen.history, step)
        print(f"{release.name}: {len(wanted)} cells compiled again, in a new process", flush=True)


def _shard(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise UsageError(f"--shard {text!r}; legal is K/N with 1 ≤ K ≤ N, such as 2/4")
    return int(part), int(parts)


if __name__ == "__main__":
    sys.exit(main())
