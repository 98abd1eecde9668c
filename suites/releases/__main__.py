"""Measure releases, and confirm rises: ``python -m gradgate.suites.releases jax 0.8.3 0.9.2 0.10.2``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gradgate.references.contract import UsageError
from gradgate.suites.gate.process import Unmeasurable
from gradgate.suites.releases import cells, environments, history, known, measuring, rises
from gradgate.suites.releases.environments import Release

ROOT = Path(__file__).parents[2]


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
    add("--shard", default="1/1", metavar="K/N", help="measure the K-th of N parts of the methods")
    add("--revision", default="HEAD", metavar="REV", help="the commit whose methods are measured (default HEAD)")
    add("--jobs", type=int, default=1, metavar="N", help="processes that measure at once (default 1)")
    add("--history", type=Path, default=history.FOLDER, help="the folder of the figures")
    add("--environments", type=Path, default=ROOT / ".nox" / "releases", help="the folder of the environments")
    return parser


def _measure(releases: Sequence[Release], chosen: argparse.Namespace) -> int:
    """Measure releases, each in its environment, then compile every rise again. A release that fails costs its rows."""
    framework = chosen.framework
    profiles = chosen.profiles.split(",") if chosen.profiles else cells.PROFILES[framework]
    part, parts = _shard(chosen.shard)
    status = 0
    with measuring.tree(ROOT, chosen.revision) as (overlay, commit):
        methods: dict[str, list[dict[str, object]]] = {}
        for row in measuring.cells(overlay, framework, profiles):
            methods.setdefault(str(row["method"]) + str(row["family"]), []).append(row)
        rows = [row for place, cell in enumerate(methods.values()) if place % parts == part - 1 for row in cell]
        pythons: dict[Release, Path] = {}
        for release in releases:
            try:
                pythons[release] = environments.make(release, chosen.environments, ROOT)
                _one(release, pythons[release], overlay, rows, commit, chosen)
            except (UsageError, Unmeasurable) as error:
                print(f"releases: {error}", file=sys.stderr)
                status = 2
        _confirm(pythons, overlay, rows, chosen)
    return status


def _one(
    release: Release,
    python: Path,
    overlay: measuring.Overlay,
    rows: Sequence[dict[str, object]],
    commit: str,
    chosen: argparse.Namespace,
) -> None:
    """Measure a release, and write every figure as soon as it is known."""
    reused = 0
    found = None
    for place, found in enumerate(measuring.measure(python, overlay, rows, release.name, chosen.jobs), 1):
        step = history.read(chosen.history, release, str(found.row["profile"]))
        name = cells.name(found.row)
        if step.figures.get(name) != dict(found.figures) or not found.figures:
            step.put(name, found.figures, found.reason)
        step.versions, step.commit = dict(found.versions), commit
        history.write(chosen.history, step)
        reused += found.reused
        if not found.reused or place == len(rows):
            said = found.reason or ", ".join(f"{value:,} {q}" for q, value in found.figures.items())
            print(f"{release.name} {place}/{len(rows)} {name}@{found.row['profile']}: {said}", flush=True)
    print(f"{release.name}: {len(rows)} cells, {reused} of them kept from before", flush=True)


def _confirm(
    pythons: dict[Release, Path],
    overlay: measuring.Overlay,
    rows: Sequence[dict[str, object]],
    chosen: argparse.Namespace,
) -> None:
    """Compile every cell with a rise again, under both releases, each in a new process with an empty cache."""
    named = {(cells.name(row), str(row["profile"])): row for row in rows}
    for release, python in sorted(pythons.items()):
        wanted: dict[tuple[str, str], dict[str, object]] = {}
        for change in rises.changes(history.steps(chosen.history)):
            key = (change.name, change.profile)
            step = history.read(chosen.history, release, change.profile)
            mine = change.rise and release in (change.release, change.before) and change.name not in step.again
            if mine and key in named:
                wanted[key] = named[key]
        if not wanted:
            continue
        for found in measuring.measure(python, overlay, list(wanted.values()), release.name, chosen.jobs, again=True):
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
