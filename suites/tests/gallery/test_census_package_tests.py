"""Packages' own tests are run with and without watching, and an outcome that watching changes is seen."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.gallery.census import package_tests, page
from gradgate.suites.tests.gallery.test_census_cost import SCRIPTS

CHANGED = "\n\ndef test_that_nobody_watches():\n    assert 'GRADGATE_WATCH' not in os.environ\n"
"""A test whose outcome is another one when it is watched."""


@pytest.mark.parametrize("changed", [False, True])
def test_outcomes_are_compared_with_and_without_watching(framework: str, changed: bool, tmp_path: Path) -> None:
    body = SCRIPTS[framework] + "\n\ndef test_nothing():\n    pass\n\n\ndef test_failing():\n    assert False\n"
    (tmp_path / "test_rules.py").write_text(body + CHANGED * changed)
    found = package_tests.compared("double 1.0", Path(sys.executable), tmp_path, ["test_rules.py"], runs=1)
    assert found.same is not changed
    assert (found.results, found.rules, found.calls) == (2 + changed, 1, 1)
    assert min(found.plain, found.watched, *found.walls) > 0
    assert ("OTHER outcomes" in str(found)) is changed


def test_outcomes_that_differ_in_themselves_are_no_row(tmp_path: Path) -> None:
    text = (
        "import os\n\n\ndef test_parity():\n    assert open('runs', 'a').write('x') and os.path.getsize('runs') % 3\n"
    )
    (tmp_path / "test_rules.py").write_text(text)
    with pytest.raises(RuntimeError, match="without watching"):
        package_tests.compared("double 1.0", Path(sys.executable), tmp_path, ["test_rules.py"], runs=3)


def test_tests_that_do_not_run_are_no_row(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        package_tests.compared("none 1.0", Path(sys.executable), tmp_path, ["missing.py"], runs=1)
    with pytest.raises(UsageError, match="package"):
        package_tests.suites(["missing"])


def test_the_settings_of_a_project_around_them_are_not_theirs(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n')
    inside = tmp_path / "sources" / "old==1.0" / "old-1.0"
    inside.mkdir(parents=True)
    (inside / "test_old.py").write_text(
        "import warnings\n\nwarnings.warn('old', DeprecationWarning)\n\n\ndef test():\n    pass\n"
    )
    python = Path(sys.executable)
    with pytest.raises(RuntimeError, match="pytest ended with 2"):
        package_tests.compared("old 1.0", python, inside, ["test_old.py"], runs=1)
    assert package_tests.unpacked("old==1.0", tmp_path / "sources", python) == inside
    assert package_tests.compared("old 1.0", python, inside, ["test_old.py"], runs=1).results == 1


def test_at_least_four_packages_of_each_framework_have_a_row_that_holds() -> None:
    rows = {row["name"].split()[0]: row for row in page.stored_costs()}
    every = package_tests.suites()
    assert rows.keys() == {suite.name for suite in every}
    for framework in ("jax", "torch"):
        assert sum(suite.framework == framework for suite in every) >= 4
    for row in rows.values():
        assert package_tests.Cost(**row).is_small, row
        assert row["same"], row
        assert row["rules"], row
