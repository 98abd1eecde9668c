"""What a push leaves to the nightly run: named, never a whole kind without need, and the same for everybody."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests import nightly

HERE = Path(__file__).parent


def stale(names: list[str]) -> list[str]:
    """The names of test functions and fixtures that do not exist."""

    def exists(name: str) -> bool:
        file, _, function = name.partition("::")
        path = HERE / file
        return path.is_file() and any(
            isinstance(node, ast.FunctionDef) and node.name == function.rpartition("::")[2]
            for node in ast.walk(ast.parse(path.read_text()))
        )

    return [name for name in names if not exists(name)]


def test_every_name_in_the_table_is_a_test_function_or_a_fixture() -> None:
    table = nightly.read()
    assert table
    assert not stale([*table, *nightly.EVERY_TIME]), "rename or remove these in nightly.toml and nightly.py"
    assert not set(table) & set(nightly.EVERY_TIME)


def test_a_name_that_is_no_test_function_is_seen() -> None:
    there = "test_nightly.py::test_a_name_that_is_no_test_function_is_seen"
    assert stale([there, "test_nightly.py::test_gone", "gone.py::test_a"]) == [
        "test_nightly.py::test_gone",
        "gone.py::test_a",
    ]


def items(name: str, number: int) -> list[str]:
    return [f"suites/tests/a/test_a.py::{name}[{n}]" for n in range(number)]


def test_as_many_tests_stay_as_fit_into_the_share() -> None:
    every = items("test_dear", 20) + items("test_cheap", 20) + items("test_huge", 2)
    seconds = {"a/test_a.py::test_dear": 3.0, "a/test_a.py::test_huge": 13.0}
    left = nightly.left_to_the_night(every, seconds, share=12.0)
    assert len(left & set(items("test_dear", 20))) == 16
    assert not left & set(items("test_cheap", 20))
    assert left >= set(items("test_huge", 2))
    assert left == nightly.left_to_the_night(every[::-1], seconds, share=12.0)


def test_a_new_test_moves_no_other() -> None:
    seconds = {"a/test_a.py::test_dear": 3.0}
    few, more = (set(items("test_dear", number)) for number in (20, 21))
    stayed = few - nightly.left_to_the_night(sorted(few), seconds, share=12.0)
    still = more - nightly.left_to_the_night(sorted(more), seconds, share=12.0)
    assert len(stayed & still) >= 3


class _Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


def test_the_groups_that_take_longest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "read", lambda: {"a/test_a.py::test_dear": 3.0})
    monkeypatch.setattr(nightly, "EVERY_TIME", {"a/test_a.py::test_huge": 50.0})
    every = [_Item(name) for name in [*items("test_cheap", 2), *items("test_dear", 2), *items("test_huge", 1)]]
    ordered: list[Any] = nightly.expensive_first(every, lambda item: item.nodeid.partition("[")[0])  # type: ignore[arg-type]
    assert [item.nodeid.rpartition("::")[2] for item in ordered] == [
        "test_huge[0]",
        "test_dear[0]",
        "test_dear[1]",
        "test_cheap[0]",
        "test_cheap[1]",
    ]


REPORT = """<testsuites><testsuite>
<testcase classname="suites.tests.a.test_a" name="test_dear[x::y/z.py]" time="10.0"/>
<testcase classname="suites.tests.a.test_a" name="test_dear[2]@group" time="12.0"/>
<testcase classname="suites.tests.a.test_a" name="test_cheap" time="0.5"/>
<testcase classname="suites.tests.a.test_a.TestMany" name="test_one" time="4.0"/>
<testcase classname="suites.tests.a.test_a" name="test_from_end_to_end" time="50.0"/>
</testsuite></testsuites>"""


def test_the_table_is_written_from_reports_and_keeps_its_comment_and_its_fixtures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "EVERY_TIME", {"a/test_a.py::test_from_end_to_end": 50.0})
    report, table = tmp_path / "one.xml", tmp_path / "nightly.toml"
    report.write_text(REPORT)
    table.write_text('# why\n"a/test_gone.py::test_gone" = 3\n"a/test_a.py::site" = 40\n')
    nightly.write(nightly.measured([report]), table)
    rows = {"a/test_a.py::TestMany::test_one": 4, "a/test_a.py::site": 40, "a/test_a.py::test_dear": 11}
    assert table.read_text() == "# why\n" + "".join(f'"{name}" = {each}\n' for name, each in rows.items())
    assert nightly.read(table) == rows


def test_a_test_that_needs_an_expensive_fixture_of_its_file_is_left_out() -> None:
    seconds = {"a/test_a.py::site": 40.0}
    [item] = items("test_cheap", 1)
    assert nightly.needs(item, ["tmp_path", "site"], seconds)
    assert not nightly.needs(item, ["tmp_path"], seconds)
    assert not nightly.needs(item.replace("test_a.py", "test_b.py"), ["site"], seconds)


def collected(process: Callable[..., Any], *words: str) -> list[str]:
    """The node ids of the tests of a folder."""
    ran = process("-m", "pytest", "--collect-only", "-q", *words, str(HERE / "console"), cwd=HERE.parents[1])
    assert ran.status in (0, 5), ran.err + ran.out
    return [line for line in ran.out.splitlines() if "::" in line]


def test_parts_hold_every_test_once(process: Callable[..., Any]) -> None:
    asked = ("-k", "stream or progress")
    parts = [collected(process, *asked, "--part", f"{index}/2") for index in (1, 2)]
    assert all(parts), "the parts share what -k leaves"
    assert sorted(parts[0] + parts[1]) == sorted(collected(process, *asked))


def test_folders_of_tests_follow_changed_sources_and_tests() -> None:
    changed = ["suites/gate/side.py", "references/chain/in_torch/revolve.py", "references/oracle.py", "README.md"]
    assert nightly.folders_of([*changed, "suites/tests/exact/test_wide.py", "suites/api/__init__.py"]) == {
        "gate/",
        "references/chain/",
        "references/",
        "exact/",
    }
    assert nightly.folders_of(["suites/guide/kernels.md"]) == {"guide/", "site/"}, "the site is built from the guide"


def test_nothing_is_touched_since_this_commit_and_an_unknown_commit_is_refused(process: Callable[..., Any]) -> None:
    changed = subprocess.run(
        ["git", "diff", "--name-only", "HEAD"], cwd=HERE, capture_output=True, text=True, check=True
    )
    if "console/" not in nightly.folders_of(changed.stdout.splitlines()):
        assert collected(process, "--since", "HEAD") == []
    ran = process("-m", "pytest", "--collect-only", "--since", "no-such-commit", str(HERE / "console"), cwd=HERE)
    assert "--since no-such-commit" in ran.err + ran.out
    assert ran.status == 4
