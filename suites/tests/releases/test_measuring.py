"""Releases are measured by processes, here scripts: a failure is a row, a rise is compiled again, shards add up."""

from __future__ import annotations

import contextlib
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import UsageError
from gradgate.suites.gallery.metadata import Library
from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.releases import __main__ as command
from gradgate.suites.releases import cells, environments, history, libraries, measuring
from gradgate.suites.releases.environments import Release

SCRIPT = """#!{python}
import json, os, sys
from pathlib import Path
request = json.loads(sys.stdin.readline())
here = Path(__file__).parents[1]
with open(here / "asked", "a") as log:
    log.write(json.dumps([[row["method"] for row in request["measure"]], os.environ.get("GRADGATE_CACHE", "")]) + "\\n")
bytes_ = json.loads((here / "bytes").read_text())
for row in request["measure"]:
    size = bytes_[row["method"]]
    known = size is not None
    print(json.dumps({{"figure": {{
        "cell": row, "status": "measured" if known else "crashed", "reason": "" if known else "the compiler crashed",
        "temp_bytes": size, "required_bytes": size, "flops": 7, "fingerprint": {{"jax": here.name, "flag:X": "1"}},
    }}}}))
print(json.dumps({{"answered": True}}))
"""
"""In place of an interpreter: it answers a request with the bytes in a file, and logs what it was asked."""


def row(method: str) -> dict[str, Any]:
    return {
        "family": "chain",
        "method": method,
        "framework": "jax",
        "target": "",
        "origin": "",
        "profile": "nvidia-h100",
        "spec": {"layers": 2},
        "options": {},
    }


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of environments and a history, with two methods in the tree; `release` adds an environment."""
    (tmp_path / "tree").mkdir()

    @contextlib.contextmanager
    def tree(root: Path, revision: str) -> Iterator[tuple[Overlay, str]]:
        yield Overlay(tmp_path / "tree", (tmp_path / "tree",)), "c0ffee"

    def listed(overlay: Overlay, framework: str, profiles: Sequence[str]) -> list[dict[str, Any]]:
        return [row("one"), row("two")]

    def entries(framework: str) -> list[Any]:
        return []

    monkeypatch.setattr(measuring, "tree", tree)
    monkeypatch.setattr(measuring, "cells", listed)
    monkeypatch.setattr(libraries, "entries", entries)
    monkeypatch.delenv("GRADGATE_CACHE", raising=False)
    return tmp_path


def release(folder: Path, version: str, **sizes: int | None) -> Path:
    """An environment that measures these bytes; returns its folder."""
    place = folder / "environments" / f"jax-{version}"
    (place / "bin").mkdir(parents=True, exist_ok=True)
    project = tomllib.loads((command.ROOT / "pyproject.toml").read_text())["project"]
    wanted = environments.requirements(project, Release.of(f"jax-{version}"))
    (place / "installed").write_text("\n".join(wanted))
    (place / "bytes").write_text(json.dumps(sizes))
    python = environments.python_of(place)
    python.write_text(SCRIPT.format(python=sys.executable))
    python.chmod(0o755)
    return place


def run(folder: Path, *arguments: str) -> int:
    places = ("--history", str(folder / "history"), "--environments", str(folder / "environments"))
    return command.main(["jax", *arguments, *places])


def asked(place: Path) -> list[tuple[list[str], str]]:
    return [json.loads(line) for line in (place / "asked").read_text().splitlines()]


pytestmark = [
    pytest.mark.skipif(not (command.ROOT / "pyproject.toml").exists(), reason="not a checkout"),
    pytest.mark.skipif(sys.platform == "win32", reason="a script in place of an interpreter"),
]


def test_a_planted_rise_is_compiled_again_under_both_releases_with_an_empty_cache(fake: Path) -> None:
    old, new = release(fake, "0.9.2", one=100, two=100), release(fake, "0.10.2", one=150, two=100)
    assert run(fake, "0.9.2", "0.10.2") == 0
    for place, size in ((old, 100), (new, 150)):
        [first, second] = asked(place)
        assert first == [["one", "two"], ""]
        assert second[0] == ["one"]
        assert second[1], "the second compilation saw the usual cache"
        step = history.read(fake / "history", Release.of(place.name), "nvidia-h100")
        assert step.again == {cells.name(row("one")): {"required_bytes": size, "temp_bytes": size, "flops": 7}}
        assert step.versions == {"jax": place.name}


def test_without_a_rise_nothing_is_compiled_again(fake: Path) -> None:
    places = [release(fake, version, one=100, two=100) for version in ("0.9.2", "0.10.2")]
    assert run(fake, "0.9.2", "0.10.2") == 0
    assert [len(asked(place)) for place in places] == [1, 1]


def test_a_rise_that_is_confirmed_is_not_compiled_a_third_time(fake: Path) -> None:
    old, new = release(fake, "0.9.2", one=100, two=100), release(fake, "0.10.2", one=150, two=100)
    assert [run(fake, "0.9.2", "0.10.2") for _ in range(2)] == [0, 0]
    assert [len(asked(place)) for place in (old, new)] == [3, 3]


def test_a_compilation_that_fails_is_a_row_with_its_reason(fake: Path) -> None:
    release(fake, "0.9.2", one=100, two=None)
    assert run(fake, "0.9.2") == 0
    step = history.read(fake / "history", Release.of("jax-0.9.2"), "nvidia-h100")
    assert step.figures.keys() == {cells.name(row("one"))}
    assert step.reasons == {cells.name(row("two")): "crashed: the compiler crashed"}


def test_a_release_that_cannot_run_costs_its_own_rows_only(fake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = release(fake, "0.9.2", one=1, two=1)
    environments.python_of(broken).write_text(f"#!{sys.executable}\nraise SystemExit('no such thing')\n")
    release(fake, "0.10.2", one=100, two=100)
    assert run(fake, "0.9.2", "0.10.2") == 2
    assert "jax-0.9.2" in capsys.readouterr().err
    found = {step.release.version: step for step in history.steps(fake / "history")}
    assert len(found["0.10.2"].figures) == 2
    assert (found["0.9.2"].figures, len(found["0.9.2"].reasons)) == ({}, 2)
    assert all("jax-0.9.2" in reason for reason in found["0.9.2"].reasons.values())


def test_shards_measure_every_method_once(fake: Path) -> None:
    place = release(fake, "0.9.2", one=1, two=1)
    assert [run(fake, "0.9.2", "--shard", f"{part}/2") for part in (1, 2)] == [0, 0]
    assert sorted(name for names, _ in asked(place) for name in names) == ["one", "two"]


@pytest.mark.parametrize("shard", ["0/2", "3/2", "x", "1/"])
def test_a_wrong_shard_is_refused(fake: Path, shard: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake, "0.9.2", "--shard", shard) == 3
    assert "1 ≤ K ≤ N" in capsys.readouterr().err


def test_a_command_without_releases_says_what_to_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["jax"]) == 3
    assert "name the releases" in capsys.readouterr().err


def test_a_changed_problem_changes_the_name_of_its_line() -> None:
    other = row("one") | {"spec": {"layers": 3}}
    assert cells.name(row("one")).startswith("chain:one:jax~")
    assert cells.name(row("one")) != cells.name(other)


def test_a_cell_that_is_listed_no_longer_is_removed_by_a_whole_run_alone(fake: Path) -> None:
    release(fake, "0.9.2", one=100, two=100)
    folder, step = fake / "history", history.Step(Release.of("jax-0.9.2"), "nvidia-h100")
    for name in ("chain:one:jax~0000", "tiny/pair:pair:jax~0000"):
        step.put(name, {"required_bytes": 1})
    history.write(folder, step)
    assert run(fake, "0.9.2", "--shard", "1/2") == 0
    assert "chain:one:jax~0000" in history.read(folder, step.release, step.profile).figures
    assert run(fake, "0.9.2") == 0
    names = set(history.read(folder, step.release, step.profile).figures)
    assert names == {cells.name(row("one")), cells.name(row("two")), "tiny/pair:pair:jax~0000"}


def test_a_library_without_packages_is_listed_by_its_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tiny.py"
    path.write_text('# /// script\n# ///\n"""A library."""\n')
    library = Library("tiny", path, (), "https://example.org", "jax", "jax")
    seen: list[str] = []

    def listed(overlay: Overlay, framework: str, profiles: Sequence[str], python: Path) -> list[dict[str, Any]]:
        seen.append((overlay.project / "pyproject.toml").read_text())
        return [row("pair") | {"origin": "of_tiny.py:pair"}]

    monkeypatch.setattr(measuring, "cells", listed)
    overlay = Overlay(tmp_path, (tmp_path / "import",))
    subject = libraries.subject(library, overlay, tmp_path / "p", Path("x"), Release.of("jax-0.9.2"), ["nvidia-h100"])
    assert not subject.of_gradgate
    assert subject.overlay.paths == (tmp_path / "import", tmp_path / "p" / "tiny")
    assert seen == ['[tool.gradgate]\npairs = ["of_tiny.py"]\n']
    assert not (tmp_path / "p" / "tiny" / "tiny.py").exists(), "it would hide a package of this name"
    assert cells.name(subject.rows[0]).startswith("tiny/chain:pair:jax~")


def test_a_library_that_cannot_be_installed_says_why(tmp_path: Path) -> None:
    pip = tmp_path / "python"
    pip.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('ERROR: it needs another release')\n")
    pip.chmod(0o755)
    with pytest.raises(
        UsageError, match=r"thing==1 cannot be installed with jax-0\.9\.2: ERROR: it needs another release"
    ):
        libraries.install(pip, Release.of("jax-0.9.2"), ["thing==1"])
    libraries.install(tmp_path / "nowhere", Release.of("jax-0.9.2"), [])


def test_a_library_of_this_environment_is_installed_in_its_version(tmp_path: Path) -> None:
    def needed(judges: str, *dependencies: str) -> tuple[str, ...]:
        return libraries.needed(Library("x", tmp_path, dependencies, "https://example.org", "jax", judges))

    assert needed("jax") == ()
    assert needed("thing", "thing==1") == ("thing==1",)
    assert needed("pytest") == (f"pytest=={pytest.__version__}",)
    with pytest.raises(UsageError, match="not installed here"):
        needed("no-such-thing")
