"""Which tests are too expensive for every push, and run every night instead.

``nightly.toml`` names the expensive test functions and the processor seconds of one of their tests. Of each of them, a
push runs as many tests as fit into `SHARE`, the same ones every time; all others are marked `nightly`. So every kind of
test runs for a push unless one alone takes longer than that, and ``nox -s nightly`` runs all of them. The table also
names expensive fixtures that tests share: a push runs no test that needs one. For a pull request, ``nox -s nightly --
--since REV`` runs what was left out in folders that the change touches.

``python -m gradgate.suites.tests.nightly report/*.xml`` writes the file again, from the JUnit reports of all shares of
a nightly run.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from gradgate.suites.console.files import write_atomically

TABLE = Path(__file__).with_name("nightly.toml")
SHARE = 1.0
"""Processor seconds that a push spends on one test function of the table."""
EVERY_TIME = {
    "test_documents.py::test_the_first_example_of_the_readme_prints_what_it_shows": 8.0,
    "test_workflows.py::test_the_workflow_of_the_readme_gates_a_repository": 70.0,
    "watching/test_watch_command.py::test_the_bug_of_the_readme_is_found_in_a_package_whose_tests_pass": 35.0,
}
"""Test functions that a push runs whatever they cost, and their seconds: the gate and what the README says, from end to
end."""
READ_BY = {"guide/": "site/"}
"""Folder of sources -> the tests that read it, beside those of its name: the site is built from the guide."""
CHEAP = 0.1
"""Processor seconds of a test that the table does not name."""


def read(path: Path = TABLE) -> dict[str, float]:
    """Test function, as ``gate/test_gate.py::test_name`` -> seconds of one of its tests; fixture -> its seconds."""
    return {str(name): float(seconds) for name, seconds in tomllib.loads(path.read_text()).items()}


def function_of(item: str) -> str:
    """The test function of a test, by its node id from this folder on.

    >>> function_of("suites/tests/gate/test_gate.py::test_name[jax]@group")
    'gate/test_gate.py::test_name'
    """
    return item.partition("[")[0].partition("@")[0].rpartition("suites/tests/")[2]


def cost(item: str, seconds: Mapping[str, float]) -> float:
    """Processor seconds of a test, as tests are divided among processes."""
    name = function_of(item)
    return EVERY_TIME.get(name) or seconds.get(name, CHEAP)


def expensive_first(items: Sequence[pytest.Item], group: Callable[[pytest.Item], str]) -> list[pytest.Item]:
    """The tests, those of expensive groups first: what is left for the end of a run is short."""
    seconds, of_group = read(), dict[str, float]()
    for item in items:
        of_group[group(item)] = of_group.get(group(item), 0.0) + cost(item.nodeid, seconds)
    return sorted(items, key=lambda item: (-of_group[group(item)], group(item)))


def left_to_the_night(items: Sequence[str], seconds: Mapping[str, float], share: float = SHARE) -> set[str]:
    """The tests that a push leaves out.

    Args:
        items: node ids of all tests.
        seconds: what one test of an expensive function costs.
        share: what the tests of one function may cost.
    """
    of_function: dict[str, list[str]] = defaultdict(list)
    for item in items:
        of_function[function_of(item)].append(item)
    left: set[str] = set()
    for name, each in seconds.items():
        # By a hash, so that the kinds of parameters are mixed and a new test moves no other.
        mixed = sorted(of_function.get(name, []), key=lambda item: hashlib.sha256(item.encode()).hexdigest())
        left.update(mixed[int(share / each) :])
    return left


def needs(item: str, fixtures: Iterable[str], seconds: Mapping[str, float]) -> bool:
    """Whether a test needs an expensive fixture of its file."""
    file = function_of(item).partition("::")[0]
    return any(f"{file}::{name}" in seconds for name in fixtures)


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark what a push leaves out as `nightly`."""
    seconds = read()
    left = left_to_the_night([item.nodeid for item in items], seconds)
    for item in items:
        if item.nodeid in left or needs(item.nodeid, getattr(item, "fixturenames", ()), seconds):
            item.add_marker(pytest.mark.nightly)


def folders_of(changed: Iterable[str]) -> set[str]:
    """The folders of tests, as ``gate/``, whose sources or tests are among changed files.

    A folder of tests has the name of the folder that it tests, and so has one in `references`.

    >>> sorted(folders_of(["suites/gate/side.py", "references/chain/spec.py", "suites/tests/exact/test_wide.py"]))
    ['exact/', 'gate/', 'references/chain/']
    """
    found = set()
    for path in changed:
        parts = path.split("/")[:-1]
        while parts[:1] == ["suites"] or parts[:1] == ["tests"]:
            parts = parts[1:]
        for depth in (2, 1):  # the innermost folder that has tests of its own
            if len(parts) >= depth and TABLE.parent.joinpath(*parts[:depth]).is_dir():
                found.add("/".join(parts[:depth]) + "/")
                break
    return found | {READ_BY[folder] for folder in found & set(READ_BY)}


def touched(items: Sequence[pytest.Item], since: str) -> list[pytest.Item]:
    """Of the tests that a push leaves out, those of folders that have changed since a commit."""
    command = ["git", "diff", "--name-only", "--merge-base", since]
    changed = subprocess.run(command, cwd=TABLE.parents[2], capture_output=True, text=True, check=False)
    if changed.returncode:
        raise pytest.UsageError(f"--since {since}: {changed.stderr.strip()}")
    folders = folders_of(changed.stdout.splitlines())
    left = [item for item in items if item.get_closest_marker("nightly")]
    return [item for item in left if any(function_of(item.nodeid).startswith(folder) for folder in folders)]


def measured(reports: Iterable[Path]) -> dict[str, float]:
    """The mean seconds of the tests of each function, of those whose tests together cost more than the share."""
    taken: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            place = str(case.get("classname")).partition("suites.tests.")[2]
            file, _, inner = place.partition(".Test")  # a class of tests in the file
            inside = f"::Test{inner}" if inner else ""
            name = f"{file.replace('.', '/')}.py{inside}::{case.get('name')}"
            taken[function_of(name)].append(float(case.get("time", 0)))
    expensive = {name: each for name, each in taken.items() if sum(each) > SHARE and name not in EVERY_TIME}
    return {name: float(f"{sum(each) / len(each):.2g}") for name, each in expensive.items()}


def write(seconds: Mapping[str, float], path: Path = TABLE) -> None:
    """Write the table; its comment and its fixtures stay, which no report names."""
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    fixtures = {name: each for name, each in read(path).items() if "::test_" not in name and "::Test" not in name}
    rows = sorted({**seconds, **fixtures}.items())
    write_atomically(path, "\n".join([*head, *(f'"{name}" = {each:g}' for name, each in rows)]) + "\n")


def main(words: Sequence[str] | None = None) -> int:
    """Write the table again; returns 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", type=Path, metavar="XML", help="JUnit reports that hold all tests")
    write(measured(parser.parse_args(words).reports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
