"""What watching costs, and whether it changes an outcome: the packages' own tests, with it and without it.

``python -m gradgate.suites.gallery.census.package_tests [NAME…]``. ``tests.toml`` names packages whose source
distributions hold tests, and which of these run. They run in turn with watching and without. Watched tests are recorded
and not judged: a program waits for its own run, and judging comes afterwards.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tarfile
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gradgate.references.errors import unknown
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gallery.census import page
from gradgate.suites.gallery.census.cost import Cost, children_cpu
from gradgate.suites.gallery.census.package import HERE
from gradgate.suites.gallery.environment import INSTALLING, CannotInstall, last_words, made, run
from gradgate.suites.gallery.judge import QUIET
from gradgate.suites.gallery.metadata import Library, distribution
from gradgate.suites.watching import folders, results

PLACE = HERE / "tests.toml"
LIMIT = 300.0
"""Seconds after which a run of tests is stopped."""
ENDED = (0, 1)
"""The exit statuses of pytest after which its tests have outcomes."""


@dataclass(frozen=True)
class Suite:
    """Tests of a package.

    Attributes:
        name: the package.
        framework: ``jax`` or ``torch``.
        requires: what is installed for them; the first entry is the package.
        words: the arguments of pytest.
    """

    name: str
    framework: str
    requires: tuple[str, ...]
    words: tuple[str, ...]

    @property
    def library(self) -> Library:
        """The package, as environments are made for it."""
        first = self.requires[0]
        return Library(self.name, PLACE, self.requires, "", self.framework, distribution(first), no_deps=True)


def suites(names: Sequence[str] = ()) -> list[Suite]:
    """The tests of these packages, or all.

    Raises:
        UsageError: there is no such package.
    """
    every = tomllib.loads(PLACE.read_text(encoding="utf-8"))
    for name in names:
        if name not in every:
            raise unknown("package", name, every)
    return [
        Suite(name, one["framework"], tuple(one["requires"]), tuple(one["pytest"]))
        for name, one in every.items()
        if name in names or not names
    ]


def unpacked(requirement: str, folder: Path, python: Path) -> Path:
    """The source distribution of a requirement, unpacked.

    Raises:
        CannotInstall: there is none.
    """
    place = folder / requirement
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pytest.ini").touch()  # or pytest would find the settings of a project that this folder is in
    if not place.exists():
        with tempfile.TemporaryDirectory() as into:
            words = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", into]
            ran = run([python, *words, "--no-binary", distribution(requirement), requirement], INSTALLING)
            archive = next(Path(into).glob("*.tar.gz"), None)
            if archive is None:
                raise CannotInstall(f"{requirement} has no source distribution: {last_words(ran.output)}")
            with tarfile.open(archive) as opened:
                opened.extractall(place, filter="data")
    [inside] = place.iterdir()
    return inside


def outcomes(report: Path) -> list[str]:
    """Each test with its outcome, as pytest's JUnit XML has them."""
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return sorted(f"{one.get('classname')}::{one.get('name')} {[child.tag for child in one]}" for one in cases)


def measured(suite: Suite, environments: Path, runs: int) -> Cost:
    """Run the tests of a package with and without watching.

    Args:
        suite: the tests.
        environments: where environments and source distributions are.
        runs: how often they run in each way.

    Raises:
        CannotInstall: the package or its tests cannot be installed.
        RuntimeError: the tests do not run.
    """
    environment = made(suite.library, environments)
    source = unpacked(suite.requires[0], environments / "sources", environment.python)
    return compared(f"{suite.name} {environment.version}", environment.python, source, suite.words, runs)


def compared(name: str, python: Path, source: Path, words: Sequence[str], runs: int) -> Cost:
    """Run tests with and without watching.

    Args:
        name: what they are called in the table.
        python: the interpreter.
        source: the folder in which they run.
        words: the arguments of pytest.
        runs: how often they run in each way.

    Raises:
        RuntimeError: the tests do not run, or have other outcomes at each run.
    """
    seconds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    found: dict[bool, list[list[str]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as place:
        report, calls = Path(place) / "report.xml", Path(place) / "calls"
        calls.mkdir()
        command: list[str | Path] = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=",
            f"--junitxml={report}",
        ]
        for number in range(2 * runs):
            watched = number % 2 == 1
            env = QUIET | {"PYTHONHASHSEED": "0"} | (folders.environment(calls) if watched else {})
            cpu, began = children_cpu(), time.monotonic()
            ran = run([*command, *words], LIMIT, cwd=source, env=env)
            seconds[watched].append((children_cpu() - cpu, time.monotonic() - began))
            if ran.status not in ENDED:
                raise RuntimeError(f"{name}: pytest ended with {ran.status}: {last_words(ran.output)}")
            found[watched].append(outcomes(report))
        seen, notes = results.read(calls)
    plain, slowed = (list(map(statistics.median, zip(*seconds[one], strict=True))) for one in (False, True))
    first = found[False][0]
    if any(one != first for one in found[False]):
        raise RuntimeError(f"{name}: the outcomes of its tests differ from run to run without watching")
    return Cost(
        name,
        len(first),
        not notes and all(one == first for one in found[True]),
        sum(one.count + one.others for one in seen) // runs,
        plain[0],
        slowed[0],
        len({one.rule for one in seen}),
        (plain[1], slowed[1]),
        "outcomes",
    )


def keep(found: Sequence[Cost]) -> Path:
    """Put rows into the table of the census, in place of older rows of these packages, and write its page."""
    rows = {row["name"].split()[0]: row for row in (*page.stored_costs(), *map(asdict, found))}
    known = [rows[one.name] for one in suites() if one.name in rows]
    write_atomically(HERE / page.TESTS, json.dumps(known, indent=1) + "\n")
    return page.keep([])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table; 0 if no outcome is another one and nothing costs too much."""
    parser = argparse.ArgumentParser(prog="package_tests", description="What watching costs packages' own tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="packages of tests.toml (default: all)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind (default 3)")
    parser.add_argument(
        "--environments", type=Path, default=Path(".nox/census_tests"), help="where environments and sources are"
    )
    parser.add_argument("--keep", action="store_true", help="also write the rows to the page of the census")
    given = parser.parse_args(arguments)
    rows, failed = [], False
    for suite in suites(given.names):
        try:
            rows.append(measured(suite, given.environments.resolve(), given.runs))
            print(rows[-1], flush=True)
        except (CannotInstall, RuntimeError) as error:
            failed = True
            print(error, flush=True)
    if given.keep:
        print(f"kept: {keep(rows)}")
    return int(failed or not all(row.same and row.is_small for row in rows))


if __name__ == "__main__":
    sys.exit(main())
