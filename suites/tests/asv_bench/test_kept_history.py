"""A history without holes: ten commits, a profile that crashes, is lost and is cancelled, and the rest filled in."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.scratch import Scratch

ROOT = Path(__file__).resolve().parents[3]
ASV = ROOT / "asv_bench"
pytestmark = [
    pytest.mark.skipif(not ASV.exists(), reason="not a checkout"),
    pytest.mark.xdist_group("history"),
]
PROFILES = ("cpu", "nvidia-h100")
CHEAP = '''"""One figure that the commit itself holds, so that a benchmark costs nothing."""

import os
import time
from pathlib import Path


class Figures:
    params = (["f:one:jax", "f:two:jax"],)
    param_names = ("method",)

    def setup_cache(self):
        if os.environ.get("FAILS"):
            raise RuntimeError("the compiler crashed")
        if os.environ.get("HANGS") == os.environ["GRADGATE_COMMIT"]:
            time.sleep(600)
        return int((Path(os.environ["GRADGATE_IMPORT"].split(os.pathsep)[-1]) / "count").read_text())

    def track_temp_bytes(self, count, method):
        return 1000 + count

    track_temp_bytes.version = "1"
    track_temp_bytes.unit = "bytes"
'''


class Origin:
    """A repository on a server, and runners: fresh clones that know nothing of each other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home, self.runners = folder, folder / "home", 0
        self.lost: list[str] = []
        self.home.mkdir()
        self.author = Scratch(folder / "author")
        self.author.commit({"pyproject.toml": '[project]\nname = "scratch"\n', "count": "0\n"})
        self.author.git("init", "--quiet", "--bare", "--initial-branch=main", str(folder / "origin.git"))
        self.author.git("remote", "add", "origin", str(folder / "origin.git"))
        self.author.git("push", "--quiet", "origin", "main")

    def push(self, count: int) -> list[str]:
        """Commit so many times, push once; returns the commits, oldest first."""
        made = [
            self.author.commit({"count": f"{self.author.git('rev-list', '--count', 'HEAD')}\n"}) for _ in range(count)
        ]
        self.author.git("push", "--quiet", "origin", "main")
        return made

    def runner(self) -> Runner:
        """A fresh clone with this repository's benchmark folder, and the cheap benchmark in it."""
        self.runners += 1
        root = self.folder / f"runner-{self.runners}"
        self.author.git("clone", "--quiet", str(self.folder / "origin.git"), str(root))
        shutil.copytree(
            ASV,
            root / "asv_bench",
            ignore=shutil.ignore_patterns(".asv", "__pycache__", "node_modules", "benchmarks", "peers"),
        )
        (root / "asv_bench" / "benchmarks").mkdir()
        (root / "asv_bench" / "benchmarks" / "__init__.py").touch()
        (root / "asv_bench" / "benchmarks" / "common.py").write_text("def derive(profile):\n    return []\n")
        (root / "asv_bench" / "benchmarks" / "figures.py").write_text(CHEAP)
        return Runner(root, self.home)

    def points(self) -> dict[str, dict[str, list[float | None]]]:
        """Profile -> commit -> its points on the branch."""
        found: dict[str, dict[str, list[float | None]]] = {}
        for name in self.author.git(
            "--git-dir", str(self.folder / "origin.git"), "ls-tree", "-r", "--name-only", "benchmark-history"
        ).splitlines():
            if name.count("/") == 1 and name.endswith(".json") and not name.endswith("machine.json"):
                text = self.author.git(
                    "--git-dir", str(self.folder / "origin.git"), "show", f"benchmark-history:{name}"
                )
                document = json.loads(text)
                [row] = document["results"].values()
                found.setdefault(name.partition("/")[0], {})[document["commit_hash"]] = row[0]
        return found


class Runner:
    """A machine of the workflow."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root, self.home = root, home

    def run(self, script: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the benchmark folder."""
        return subprocess.run(
            self._command(script, *words),
            cwd=self.root,
            env=self._environment(more),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    def cancel(self, name: str, commits: str, hangs: str) -> None:
        """Measure commits, of which one hangs, and kill everything once another one has its points."""
        command = self._command("bench.py", "--profiles", name, "--commits", commits)
        environment = self._environment({"HANGS": hangs})
        ran = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            end = time.monotonic() + 240
            while not list((self.results / name).glob("*-overlay*.json")):
                assert ran.poll() is None
                assert time.monotonic() < end
                time.sleep(0.1)
        finally:
            os.killpg(ran.pid, signal.SIGKILL)
            ran.wait()

    def _command(self, script: str, *words: object) -> list[str]:
        return [sys.executable, str(self.root / "asv_bench" / script), *map(str, words)]

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.home), **more}

    @property
    def results(self) -> Path:
        """Where its points are."""
        return self.root / "asv_bench" / ".asv" / "results"


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    """Five pushes of two commits. nvidia-h100 crashes in the second push, its machine is lost in the fourth, and in the
    fifth it is cancelled after the newer commit."""
    pytest.importorskip("asv", reason="asv is not installed: pip install 'gradgate[asv]'")
    from gradgate.hw_profiles import profile

    if not profile.availability(profile.load(PROFILES[1])).available:
        pytest.skip("the compiler of nvidia-h100 is not installed: pip install 'gradgate[cuda]'")
    made = Origin(tmp_path_factory.mktemp("history"))
    for push in range(5):
        commits = made.push(2)
        for name in PROFILES:
            runner, pushed = made.runner(), f"{commits[0]}^..HEAD"
            fails, cancelled = (name != "cpu" and push == place for place in (1, 4))
            if cancelled:
                runner.cancel(name, pushed, hangs=commits[0])
            else:
                ran = runner.run(
                    "bench.py", "--profiles", name, "--commits", pushed, **({"FAILS": "1"} if fails else {})
                )
                assert ran.returncode == (2 if fails else 0), ran.stdout + ran.stderr
            if name != "cpu" and push == 3:
                made.lost += commits
                continue
            made.lost += commits if fails else commits[:1] if cancelled else []
            ran = made.runner().run("branch.py", "keep", runner.results)
            assert ran.returncode == 0, ran.stdout + ran.stderr
    return made


def test_all_points_of_the_other_jobs_are_kept_and_missing_fills_the_rest(origin: Origin) -> None:
    commits = origin.author.git("rev-list", "main").split()[:10]
    kept = origin.points()
    assert set(kept["cpu"]) == set(commits)
    failed = {commit for commit, values in kept["nvidia-h100"].items() if not values}
    assert set(origin.lost) == (set(commits) - set(kept["nvidia-h100"])) | failed
    assert len(origin.lost) == 5
    runner = origin.runner()
    assert "cpu, nvidia-h100" in runner.run("branch.py", "fetch").stdout
    ran = runner.run("bench.py", "--profiles", ",".join(PROFILES), "--missing", "--most", 3)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "cpu: no commit is missing" in ran.stdout
    assert "nvidia-h100: 2 older commits are left" in ran.stdout
    assert runner.run("bench.py", "--profiles", PROFILES[1], "--missing").returncode == 0
    ran = origin.runner().run("branch.py", "keep", runner.results)
    assert ran.stdout == "benchmark-history has 40 points of 2 machines\n"
    kept = origin.points()
    for name in PROFILES:
        assert set(kept[name]) == set(commits)
        assert all(len(set(values)) == 1 and values[0] > 1000 for values in kept[name].values())
        assert len({values[0] for values in kept[name].values()}) == 10
    shows = "import sys, dashboard; from pathlib import Path; dashboard.write(*map(Path, sys.argv[1:]))"
    shower, site = origin.runner(), runner.root / "site"
    command = [sys.executable, "-c", shows, str(runner.results), str(site), str(shower.root)]
    subprocess.run(command, cwd=shower.root / "asv_bench", check=True, timeout=60)
    shown = json.loads((site / "dashboard" / "figures.json").read_text())["measured"]
    assert shown == {name: list(range(10)) for name in PROFILES}


def test_a_shallow_clone_does_not_guess_what_is_missing(origin: Origin, tmp_path: Path) -> None:
    runner = origin.runner()
    shutil.rmtree(runner.root / ".git")
    origin.author.git("clone", "--quiet", "--depth", "1", f"file://{origin.folder / 'origin.git'}", str(tmp_path / "c"))
    shutil.move(tmp_path / "c" / ".git", runner.root / ".git")
    ran = runner.run("bench.py", "--missing")
    assert (ran.returncode, "git fetch --unshallow" in ran.stderr) == (3, True)


def test_nothing_is_written_into_the_home_folder(origin: Origin) -> None:
    assert {path.name for path in origin.home.rglob("*")} <= {".cache", "gradgate"}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, Any]]:
    """The modules `history` and `branch`."""
    import importlib

    monkeypatch.syspath_prepend(str(ASV))
    yield importlib.import_module("history"), importlib.import_module("branch")
    for name in ("history", "branch"):
        sys.modules.pop(name, None)


def write(folder: Path, commit: str, values: list[float | None], started: int = 0, machine: str = "cpu") -> None:
    """A results folder with a point of one benchmark at one commit."""
    (folder / machine).mkdir(parents=True, exist_ok=True)
    (folder / machine / "machine.json").write_text("{}")
    (folder / "benchmarks.json").write_text("{}")
    row = {"commit_hash": commit, "durations": {}, "result_columns": ["result", "params", "version", "started_at"]}
    row["results"] = {"figures.Figures.track_temp_bytes": [values, [["'a'", "'b'"]], "1", started]}  # type: ignore[assignment]
    (folder / machine / f"{commit[:8]}.json").write_text(json.dumps(row))


def values_of(history: Any, folder: Path) -> list[list[float | None]]:
    return [
        row["result"] for path in history.result_files(folder) for _, row in history.rows(json.loads(path.read_text()))
    ]


def test_a_failure_never_replaces_a_figure_and_of_two_figures_the_newer_stays(scripts: Any, tmp_path: Path) -> None:
    history, _ = scripts
    write(tmp_path / "one", "a" * 40, [1, 2], started=5)
    write(tmp_path / "stale", "a" * 40, [1, None], started=9)
    write(tmp_path / "newer", "a" * 40, [3, 4], started=9)
    for order in (("one", "stale"), ("stale", "one")):
        history.unite([tmp_path / name for name in order], tmp_path / f"failed-{order[0]}")
        assert values_of(history, tmp_path / f"failed-{order[0]}") == [[1, 2]]
    for order in (("one", "newer"), ("newer", "one")):
        history.unite([tmp_path / name for name in order], tmp_path / f"both-{order[0]}")
        assert values_of(history, tmp_path / f"both-{order[0]}") == [[3, 4]]


def test_a_commit_that_fails_three_times_is_given_up_and_said(scripts: Any, tmp_path: Path) -> None:
    history, _ = scripts
    commits = [letter * 40 for letter in "dcba"]  # newest first
    assert history.missing(tmp_path, "cpu", commits) == history.Missing((commits[0],), ())
    write(tmp_path, commits[3], [1, 2])
    write(tmp_path, commits[1], [1, None])
    assert history.missing(tmp_path, "cpu", commits).commits == (commits[0], commits[2])
    for _ in range(history.TRIES):
        assert history.record_tries(tmp_path, "cpu", commits[1:3]) == [commits[2]]
    assert history.missing(tmp_path, "cpu", commits) == history.Missing((commits[0],), (commits[2],))
    write(tmp_path, commits[2], [5, 5])
    assert history.missing(tmp_path, "cpu", commits) == history.Missing((commits[0],), ())


@pytest.fixture
def bare(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bare repository, and a clone of it in which `branch` works."""
    made = Scratch(tmp_path / "made")
    made.commit({"a": "a"})
    made.git("clone", "--quiet", "--bare", str(made.root), str(tmp_path / "origin.git"))
    made.git("remote", "add", "origin", str(tmp_path / "origin.git"))
    monkeypatch.setattr(scripts[1], "HERE", made.root)
    return tmp_path / "origin.git"


def test_two_jobs_that_keep_at_once_lose_nothing(scripts: Any, bare: Path, tmp_path: Path) -> None:
    history, branch = scripts
    others = iter("bc")

    def another_job() -> None:
        if letter := next(others, ""):
            write(tmp_path / letter, letter * 40, [2, 2], machine="nvidia-h100")
            branch.keep([tmp_path / letter], "the other one")

    write(tmp_path / "a", "a" * 40, [1, 1])
    assert (
        branch.keep([tmp_path / "a"], "this one", another_job, pause=0.0)
        == "benchmark-history has 6 points of 2 machines"
    )
    assert branch.keep([tmp_path / "a"], "again") == "benchmark-history has these results already"
    branch.fetch(tmp_path / "fetched")
    assert values_of(history, tmp_path / "fetched") == [[1, 1], [2, 2], [2, 2]]
    assert (
        subprocess.run(
            ["git", "rev-list", "--count", "benchmark-history"], cwd=bare, capture_output=True, text=True, check=True
        ).stdout
        == "3\n"
    )


def test_the_verdicts_of_a_commit_are_kept_as_figures(scripts: Any, bare: Path, tmp_path: Path, capsys: Any) -> None:
    history, branch = scripts
    row = {"family": "f", "method": "one", "framework": "jax", "as_expected": True}
    rows = [{**row, "digits": 43}, {**row, "digits": 41}, {**row, "lost": 0.5, "as_expected": False}]
    rows += [{**row, "method": "two"}]
    file = tmp_path / "verdicts.json"
    assert branch.main(["keep", "--verdicts", str(file)]) == 3
    assert "verdicts.json" in capsys.readouterr().err
    file.write_text(json.dumps({"verdicts": rows}))
    assert branch.main(["keep", "--verdicts", str(file)]) == 0
    branch.fetch(tmp_path / "fetched")
    [path] = history.result_files(tmp_path / "fetched")
    document = json.loads(path.read_text())
    assert document["commit_hash"] == branch._git(branch.HERE, "rev-parse", "HEAD")
    found = {name.rpartition("_")[2]: row for name, row in history.rows(document)}
    assert found["declared"]["result"] == [1, 0]
    assert found["declared"]["params"] == [["'f:one:jax'", "'f:two:jax'"]]
    assert found["digits"]["result"][0] == 41
    assert found["lost"]["result"][0] == 0.5
    assert [history.points(found[name]) for name in ("digits", "lost")] == [1, 1], "the other method has no digits"


def test_the_arrays_of_both_folders_are_kept(scripts: Any, tmp_path: Path) -> None:
    history, _ = scripts
    for letter, arrays in (("a", "f32[8]; f32[4]"), ("b", "f32[9]")):
        write(tmp_path / letter, letter * 40, [1, 1])
        (tmp_path / f"new-{letter}").mkdir()
        (tmp_path / f"new-{letter}" / f"{letter * 40}.json").write_text(json.dumps({"m": arrays}))
        history.record_alive(tmp_path / letter, "cpu", tmp_path / f"new-{letter}")
    history.unite([tmp_path / "b"], tmp_path / "a")
    assert history.alive(tmp_path / "a" / "cpu") == {"a" * 40: {"m": "f32[8]; f32[4]"}, "b" * 40: {"m": "f32[9]"}}


def test_a_commit_or_push_that_fails_fails(scripts: Any, bare: Path, tmp_path: Path, capsys: Any) -> None:
    _, branch = scripts
    write(tmp_path / "a", "a" * 40, [1, 1])
    hook = bare / "hooks" / "pre-receive"
    hook.write_text("#!/bin/sh\necho the branch is protected; exit 1\n")
    hook.chmod(0o755)
    assert branch.main(["keep", str(tmp_path / "a")]) == 2
    assert "the branch is protected" in capsys.readouterr().err
    hook.unlink()
    assert branch.main(["keep", str(tmp_path / "a")]) == 0
    write(tmp_path / "lost", "a" * 40, [None, None])
    shutil.rmtree(bare)
    assert branch.main(["keep", str(tmp_path / "lost")]) == 2
    assert "origin does not answer" in capsys.readouterr().err
