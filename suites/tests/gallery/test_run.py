"""Tiny libraries are judged in environments of their own; one that fails costs its own row only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.gallery import environment, judge, metadata, run
from gradgate.suites.tests.gallery.wheels import DISCLAIMED, PAIR, library, wheel

pytest.importorskip("torch")
pytest.importorskip("pip")
if os.name == "nt":
    pytest.skip("needs process groups", allow_module_level=True)

Main = Callable[..., tuple[int, dict[str, dict[str, Any]]]]
SHOWS = '"""It does."""\n\nimport tiny\n\nprint(tiny.FACTOR, tiny.__file__)\nraise SystemExit(tiny.FACTOR == 6)\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of library files: one pair is right, one is wrong and declared, and three libraries are broken."""
    folder = tmp_path_factory.mktemp("gallery")
    tiny = wheel(folder / "wheels", "tiny", "1.0", "FACTOR = 7\n")
    wrong = PAIR.replace("FACTOR", "tiny.FACTOR").replace("import torch\n", "import torch\nimport tiny\n", 1)
    right = PAIR.split("\n\n\n")[-1].replace("scaled", "plain").replace("Scaled.apply(x)", "(1 * x) * (3 * x)")
    right = right.replace(DISCLAIMED, "")
    library(folder, "tiny", tiny, f"{wrong}\n{right}", limit=240)
    hangs = wheel(folder / "wheels", "hangs", "1.0", "import time\n\ntime.sleep(600)\n")
    library(folder, "hangs", hangs, f"import hangs\n{PAIR}", limit=6)
    ends = wheel(folder / "wheels", "ends", "1.0", "import os\n\nos._exit(7)\n")
    library(folder, "ends", ends, f"import ends\n{PAIR}", limit=120)
    raises = wheel(folder / "wheels", "raises", "1.0", "raise OSError('no such driver')\n")
    library(folder, "raises", raises, f"import raises\n{PAIR}", limit=120)
    library(folder, "absent", f"absent @ {(folder / 'absent-1.0-py3-none-any.whl').as_uri()}", PAIR)
    (folder / "findings").mkdir()
    (folder / "findings" / "tiny_factor.py").write_text(SHOWS)
    return folder


@pytest.fixture(scope="module")
def main(place: Path) -> Main:
    """A function that judges libraries in these environments, with these claims declared refuted; returns its status
    and the rows."""

    def judged(*arguments: str, claims: str = "") -> tuple[int, dict[str, dict[str, Any]]]:
        entry = (
            f'[[finding]]\nlibrary = "tiny"\npairs = ["scaled"]\nclaims = [{claims}]\nkind = "wrong gradient"\n'
            'cause = "Its factor is 7."\ndocumented = "no"\nscript = "findings/tiny_factor.py"\n'
        )
        (place / "findings.toml").write_text(entry if claims else "")
        report, made = place / "report", place / "environments"
        where = ["--folder", place, "--report", report, "--environments", made, "--jobs", "1", "--examples", "2"]
        with pytest.MonkeyPatch.context() as patch:  # the cache of a test is its own; here all runs share one
            patch.setenv("GRADGATE_CACHE", str(place / "cache"))
            status = run.main([*arguments, *map(str, where)])
        rows = {path.stem: json.loads(path.read_text()) for path in report.glob("*.json")}
        return status, rows

    return judged


@pytest.fixture(scope="module")
def first(main: Main) -> tuple[int, dict[str, dict[str, Any]]]:
    """Everything judged once, with nothing declared."""
    return main()


def cells(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(row["pair"], row["claim"]) for row in rows}


def test_a_library_that_fails_costs_its_own_row_only_and_the_reason_is_told(
    first: tuple[int, dict[str, dict[str, Any]]],
) -> None:
    _, rows = first
    states = {name: row["state"] for name, row in rows.items()}
    expected = {"tiny": "judged", "hangs": "cut off", "ends": "not judged", "raises": "not judged"}
    assert states == {**expected, "absent": "not installed"}
    assert rows["hangs"]["reason"] == "stopped after 6 s: 0 of 0 claims were judged"
    assert "exit status 7" in rows["ends"]["reason"]
    assert "no such driver" in rows["raises"]["reason"]
    assert rows["absent"]["reason"].startswith("pip failed: ERROR: ")


def test_a_refutation_that_is_not_declared_fails_the_run(first: tuple[int, dict[str, dict[str, Any]]]) -> None:
    status, rows = first
    assert status == 1
    tiny = rows["tiny"]
    assert ("scaled", "gradient_float64") in cells(tiny["unexplained"])
    assert {pair for pair, _ in cells(tiny["refuted"])} == {"scaled"}, "the right pair is upheld"
    assert (tiny["library"], tiny["version"], tiny["installed"]) == ("tiny", "1.0", {"tiny": "1.0"})
    assert tiny["problems"] == sum(pair["problems"] for pair in tiny["pairs"].values()) > 10


def test_what_each_pair_and_its_reference_keep_is_counted(first: tuple[int, dict[str, dict[str, Any]]]) -> None:
    found = first[1]["tiny"]["pairs"]["scaled"]
    assert (found["spec"]["T"], found["kept"], found["plain"]) == (3, 0, 24), "three numbers; inputs do not count"


def test_declared_findings_come_out_as_declared_and_an_unchanged_library_is_not_judged_again(
    main: Main, first: tuple[int, dict[str, dict[str, Any]]]
) -> None:
    claims = ", ".join(f'"{claim}"' for _, claim in cells(first[1]["tiny"]["unexplained"]))
    status, rows = main("tiny", claims=claims)
    assert status == 0
    assert rows["tiny"]["reused"], "verdicts are kept by content"
    assert (rows["tiny"]["unexplained"], rows["tiny"]["gone"]) == ([], [])
    [script] = rows["tiny"]["scripts"]
    assert script["shown"]
    assert script["output"].startswith("7 lib"), "the folder of the environment is left out"


def test_a_declared_finding_that_does_not_occur_fails_the_run(main: Main, place: Path, capsys: Any) -> None:
    claims = '"tree"'
    status, rows = main("tiny", claims=claims)
    assert status == 1
    assert cells(rows["tiny"]["gone"]) == {("scaled", "tree")}
    assert "declared, but not refuted: scaled tree: upheld" in capsys.readouterr().out


def test_without_judging_the_last_verdicts_are_compared_and_the_scripts_run(
    main: Main, place: Path, first: tuple[int, dict[str, dict[str, Any]]]
) -> None:
    claims = ", ".join(f'"{claim}"' for _, claim in cells(first[1]["tiny"]["unexplained"]))
    status, rows = main("tiny", "--scripts", claims=claims)
    assert (status, rows["tiny"]["state"], rows["tiny"]["problems"] > 0) == (0, "judged", True)
    assert main("tiny", "--scripts", claims=f'{claims}, "tree"')[0] == 1, "tree is upheld"
    (place / "findings" / "tiny_factor.py").write_text(SHOWS.replace("== 6", "!= 6"))
    status, rows = main("tiny", "--scripts", claims=claims)
    (place / "findings" / "tiny_factor.py").write_text(SHOWS)
    assert (status, rows["tiny"]["scripts"][0]["status"]) == (1, "exit status 1"), "the script does not show it"


def test_wrong_usage_is_told(main: Main, capsys: Any) -> None:
    assert main("tinny")[0] == 3
    assert "nearest: tiny" in capsys.readouterr().err


def test_in_an_environment_its_own_version_wins_and_the_shared_packages_are_there(tmp_path: Path) -> None:
    requirement = wheel(tmp_path, "iniconfig", "99.0", "OWN = True\n")
    own = metadata.read(library(tmp_path, "own", requirement, ""))
    found = environment.made(own, tmp_path / "environments")
    assert (found.version, found.installed) == ("99.0", {"iniconfig": "99.0"})
    program = "import iniconfig, numpy, gradgate.suites.gallery; print(iniconfig.OWN)"
    ran = subprocess.run([found.python, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.stdout == "True\n", ran.stderr
    newer = wheel(tmp_path, "iniconfig", "99.1", "OWN = True\n")
    again = environment.made(metadata.read(library(tmp_path, "own", newer, "")), tmp_path / "environments")
    assert (again.version, again.key != found.key) == ("99.1", True), "another pin, another environment"


def test_a_process_that_takes_too_long_is_ended_with_those_it_started(tmp_path: Path) -> None:
    ran = environment.run(["sh", "-c", "echo begun; sleep 300 & sleep 300"], 2.0)
    assert (ran.status, ran.output) == (None, "begun\n")
    assert environment.run(["sh", "-c", "exit 3"], 30.0).status == 3


def test_the_status_of_a_run(tmp_path: Path) -> None:
    good: dict[str, Any] = {"state": "judged", "unexplained": [], "gone": [], "unsteady": [], "scripts": []}
    assert judge.status([good]) == 0
    assert judge.status([good, good | {"state": "cut off"}]) == 2
    wrong = good | {"unsteady": [{"pair": "a", "claim": "b", "reason": "c"}]}
    assert judge.status([good | {"state": "cut off"}, wrong]) == 1
