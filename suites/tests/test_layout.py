"""The folders of the tests have the names of the folders of the source, and the tests' README names every fixture."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
README = (HERE / "README.md").read_text(encoding="utf-8")
EXCEPTION = re.compile(r"^- `([\w/]+)/`: \S", re.M)


def homeless(tests: Path, root: Path, readme: str) -> list[str]:
    """Folders of tests without a folder of that name in the root or in ``suites``, and without a reason in README."""
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")} - {Path(".")}
    sources = (root, root / "suites")
    without = [folder.as_posix() for folder in folders if not any((place / folder).is_dir() for place in sources)]
    return sorted(set(without) - set(EXCEPTION.findall(readme)))


def unnamed(conftest: str, readme: str) -> list[str]:
    """Fixtures of a conftest that the README's table does not name; those with a leading underscore are left out."""
    named = {name for line in readme.splitlines() if line.startswith("|") for name in re.findall(r"`(\w+)`", line)}
    functions = [node for node in ast.parse(conftest).body if isinstance(node, ast.FunctionDef)]
    fixtures = [f.name for f in functions if any("fixture" in ast.unparse(d) for d in f.decorator_list)]
    return [name for name in fixtures if not name.startswith("_") and name not in named]


@pytest.mark.skipif(not (ROOT / "asv_bench").exists(), reason="not a checkout")
def test_every_folder_of_tests_has_a_source_of_its_name() -> None:
    found = homeless(HERE, ROOT, README)
    assert not found, (
        f"{', '.join(found)}: neither the repository nor suites/ has a folder of that name; move the tests to the "
        "folder of what they test, or give the reason in suites/tests/README.md"
    )


def test_a_folder_without_a_source_is_found_unless_the_readme_gives_a_reason(tmp_path: Path) -> None:
    for folder in ("suites/judging", "references/chain", "suites/tests/judging", "suites/tests/references/chain"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("judging", "references/chain", "stray"):
        (tmp_path / "suites" / "tests" / name).mkdir(exist_ok=True)
        (tmp_path / "suites" / "tests" / name / "test_it.py").touch()
    assert homeless(tmp_path / "suites" / "tests", tmp_path, "") == ["stray"]
    assert homeless(tmp_path / "suites" / "tests", tmp_path, "- `stray/`: it is about two rooms.\n") == []
    assert homeless(tmp_path / "suites" / "tests", tmp_path, "- `stray/`:\n") == ["stray"]


@pytest.mark.parametrize("path", sorted(HERE.rglob("conftest.py")), ids=lambda path: str(path.relative_to(HERE)))
def test_the_readme_names_every_fixture(path: Path) -> None:
    assert unnamed(path.read_text(encoding="utf-8"), README) == []


def test_a_fixture_that_the_readme_does_not_name_is_found() -> None:
    conftest = "import pytest\n\n@pytest.fixture\ndef given(): ...\n\n@pytest.fixture\ndef _hidden(): ...\n"
    assert unnamed(conftest, "| `other` | all | it |\n`given` in a sentence") == ["given"]
    assert unnamed(conftest, "| `given` | all | it |\n") == []


def test_the_tests_of_a_group_run_in_one_process(tmp_path: Path, process: Callable[..., Any]) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_grouped.py").write_text(
        "import os\nimport pathlib\nimport pytest\n\n"
        "numbers = [pytest.param(n, marks=pytest.mark.xdist_group(str(n % 2))) for n in range(8)]\n\n"
        "@pytest.mark.parametrize('n', numbers)\n"
        "def test_n(n):\n    pathlib.Path(f'{n % 2}-{os.getpid()}').touch()\n"
    )
    ran = process("-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", cwd=tmp_path)
    assert ran.status == 0, ran.out + ran.err
    ran_in = sorted(path.name for path in tmp_path.glob("?-*"))
    assert [name[0] for name in ran_in] == ["0", "1"], ran_in
