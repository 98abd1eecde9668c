"""Where a side's processes import from: the trees, however the project is laid out and installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.gate import guard, ran
from gradgate.suites.gate.git import LOCK, PREFIX, Repository
from gradgate.suites.gate.overlay import Overlay
from gradgate.suites.tests.gate.layouts import BACKENDS, LAYOUTS, Environment
from gradgate.suites.tests.scratch import Scratch

TABLE = [(name, editable) for name in LAYOUTS for editable in (False, True)]
SHOW = "import importlib; print(importlib.import_module({name!r}).__file__)"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, so that no other run's trees are in it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@contextmanager
def sides(folder: Path) -> Iterator[dict[str, Overlay]]:
    """The overlays of ``base``, which is main, and ``head``."""
    repository = Repository.around(folder)
    revisions = {"base": repository.commit("main"), "head": repository.commit("HEAD")}
    with repository.trees(revisions.values()) as (place, tops):
        working = [tree for tree in repository.worktrees() if tree not in tops.values()]
        yield {
            side: Overlay.make(place / side, tops[rev] / repository.project, judge=tops[revisions["head"]]).guarded(
                tops[rev], tops.values(), working
            )
            for side, rev in revisions.items()
        }


def imported(side: Overlay, name: str, python: str | Path = sys.executable) -> str:
    """Where a process of a side finds a module, relative to the side's tree; "" if it finds none."""
    command = [str(python), "-c", SHOW.format(name=name)]
    found = subprocess.run(
        command, cwd=side.project, env=side.environment(), capture_output=True, text=True, check=False
    )
    if found.returncode:
        assert "ModuleNotFoundError" in found.stderr, found.stderr
        return ""
    assert side.given is not None
    return os.path.relpath(found.stdout.strip(), side.given.tree)


@pytest.mark.parametrize(("name", "editable"), TABLE, ids=[f"{n}-{'editable' if e else 'copied'}" for n, e in TABLE])
def test_each_side_imports_its_own_tree_and_no_module_of_the_other(name: str, editable: bool, tmp_path: Path) -> None:
    layout, environment = LAYOUTS[name], Environment(tmp_path / "environment")
    if not environment.can(layout.backend):
        pytest.skip(f"{layout.backend} is not installed; {BACKENDS} names an environment that has it")
    made = layout.make(tmp_path / "repository", name)
    made.write({f"{layout.code}/{part}.py": "" for part in ("ops", "plain")})  # as PyTorch takes seconds to import
    made.commit({f"{layout.code}/old.py": ""})
    made.git("checkout", "--quiet", "-b", "change")
    made.git("rm", "--quiet", f"{layout.code}/old.py")
    made.commit({f"{layout.code}/new.py": ""})
    for folder in (*layout.beside, layout.project):
        environment.install(made.root / folder, editable=editable)
    with sides(made.root / layout.project) as both:
        for side, there, absent in (("base", "old", "new"), ("head", "new", "old")):
            for part in ("ops", there):
                found = imported(both[side], f"{layout.package}.{part}", environment.python)
                assert found == f"{layout.code}/{part}.py"
            assert not imported(both[side], f"{layout.package}.{absent}", environment.python)


@pytest.fixture
def source(tmp_path: Path) -> Scratch:
    """A project in ``src`` that is not installed."""
    made = Scratch(tmp_path / "repository")
    files = {"pyproject.toml": '[project]\nname = "mylib"\n', "code/mylib/__init__.py": "", "code/mylib/ops.py": ""}
    made.commit({**files, ".gitignore": "_version.py\n", ".gitattributes": "tests export-ignore\n", "tests/a.py": ""})
    made.git("checkout", "--quiet", "-b", "change")
    return made


def test_a_folder_on_pythonpath_or_in_a_pth_file_is_that_of_the_tree(
    source: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(tmp_path / "environment")
    [site] = (tmp_path / "environment").glob("lib/python*/site-packages")
    with sides(source.root) as both:
        assert not imported(both["head"], "mylib.ops", environment.python), "nothing names the folder"
    (site / "mine.pth").write_text(f"{source.root / 'code'}\n")
    with sides(source.root) as both:
        assert imported(both["head"], "mylib.ops", environment.python) == "code/mylib/ops.py"
    (site / "mine.pth").unlink()
    monkeypatch.chdir(source.root)
    monkeypatch.setenv("PYTHONPATH", "code")
    with sides(source.root) as both:
        assert imported(both["base"], "mylib.ops", environment.python) == "code/mylib/ops.py"


def test_a_project_in_src_that_nobody_has_installed_is_imported(tmp_path: Path) -> None:
    made = LAYOUTS["src"].make(tmp_path / "repository", "src")
    made.write({"src/mylib/ops.py": ""})
    made.commit()
    with sides(made.root) as both:
        assert imported(both["head"], "mylib.ops") == "src/mylib/ops.py"


def test_a_module_that_a_build_has_made_is_taken_and_one_that_was_committed_is_not(
    source: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(source.root / "code"))
    made = source.root / "code/mylib/_version.py"
    made.write_text("version = '1'\n")
    source.git("rm", "--quiet", "code/mylib/ops.py")
    source.git("commit", "--quiet", "--message", "gone")
    (source.root / "code/mylib/ops.py").write_text("")
    with sides(source.root) as both:
        for side in both.values():
            assert side.given is not None
            assert (side.given.tree / imported(side, "mylib._version")).resolve() == made.resolve()
        assert imported(both["base"], "mylib.ops") == "code/mylib/ops.py"
        assert not imported(both["head"], "mylib.ops"), "it is untracked now"


def test_a_sitecustomize_of_the_user_still_runs(
    source: Scratch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sitecustomize.py").write_text("import sys\nsys.here = 'yes'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    with sides(source.root) as both:
        command = [sys.executable, "-c", "import sys; print(sys.here)"]
        assert subprocess.check_output(command, env=both["head"].environment(), text=True) == "yes\n"


def test_the_trees_hold_what_an_archive_leaves_out_and_are_removed(source: Scratch, temporary: Path) -> None:
    with sides(source.root) as both:
        assert (both["head"].project / "tests/a.py").is_file()
    assert not list(temporary.glob(f"{PREFIX}*"))
    assert len(source.git("worktree", "list").splitlines()) == 1


WAIT = """
import signal, sys, time
from pathlib import Path
from gradgate.suites.gate.git import Repository
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and what they start, ignore it
repository = Repository.around(Path(sys.argv[1]))
with repository.trees([repository.commit("main")]) as (place, tops):
    print(place, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_killed_leaves_no_trees(source: Scratch, temporary: Path, how: signal.Signals) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", WAIT, str(source.root)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert run.stdout is not None
    place = Path(run.stdout.readline().strip())
    assert place.is_dir()
    Repository.around(source.root).remove_leftovers()
    assert (place / "trees").is_dir(), "its run is alive"
    run.send_signal(how)
    run.communicate()
    deadline = time.monotonic() + 60
    while place.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(source.git("worktree", "list").splitlines()) == 1


def test_leftovers_are_removed_if_they_are_provably_ours(source: Scratch, temporary: Path) -> None:
    repository = Repository.around(source.root)
    ours, vanished = temporary / f"{PREFIX}one", temporary / f"{PREFIX}two"
    for place in (ours, vanished):
        source.git("worktree", "add", "--quiet", "--detach", str(place / "trees" / "head"))
    (ours / LOCK).write_text(str(source.root))
    subprocess.run(["rm", "-rf", str(vanished)], check=True)
    foreign = temporary / f"{PREFIX}three"
    foreign.mkdir()
    (foreign / "notes").write_text("mine")
    repository.remove_leftovers()
    assert not ours.exists()
    assert (foreign / "notes").is_file(), "it has no lock file"
    assert len(source.git("worktree", "list").splitlines()) == 1


def test_what_a_build_leaves_is_no_change_of_the_tree_and_code_is(source: Scratch) -> None:
    repository = Repository.around(source.root)
    built = ("build/lib/mylib/ops.py", "dist/a.py", "code/mylib.egg-info/a.toml", "env/pyvenv.cfg", "env/lib/a.py")
    source.write(dict.fromkeys(built, ""))
    repository.need_clean()
    source.write({"code/mylib/build_tools.py": ""})
    with pytest.raises(UsageError, match="build_tools"):
        repository.need_clean()


def test_the_changed_files_are_those_with_other_content(source: Scratch) -> None:
    repository = Repository.around(source.root)
    (source.root / "code/mylib/ops.py").chmod(0o755)
    source.commit({"code/mylib/new.py": "x = 1\n", "tests/a.py": "x = 2\n"})
    changed = repository.changed(repository.commit("main"), repository.commit("HEAD"))
    assert changed == {"code/mylib/new.py", "tests/a.py"}


def of(source: Scratch, modules: dict[str, str], files: dict[str, str | None] | None = None, *named: str) -> ran.Ran:
    given = guard.Given(source.root, (source.root,), ())
    return ran.Ran({"modules": modules, "files": files or {}}, given, frozenset(named))


def test_a_module_from_elsewhere_that_the_tree_holds_is_refused_with_the_line_to_add(source: Scratch) -> None:
    installed = "/somewhere/site-packages/mylib/ops.py"
    wrong = of(source, {"mylib.ops": installed}, None, "mylib.ops")
    assert wrong.misplaced() == {"mylib.ops": (installed, "code/mylib/ops.py")}
    assert wrong.line("code/mylib/ops.py", "mylib.ops", ("lib",)) == '[tool.gradgate] path = ["lib", "code"]'
    assert not of(source, {"mylib.ops": "code/mylib/ops.py"}, None, "mylib.ops").misplaced()
    assert not of(source, {"torch": "/somewhere/site-packages/torch/__init__.py"}, None, "torch").misplaced()


def test_a_vendored_copy_inside_a_package_is_not_what_an_import_means(source: Scratch) -> None:
    source.write({"code/mylib/_vendor/packaging/__init__.py": "", "code/mylib/_vendor/__init__.py": ""})
    source.write({"code/mylib/ops.py": "import packaging\n"})
    modules = {"mylib.ops": "code/mylib/ops.py", "packaging": "/somewhere/site-packages/packaging/__init__.py"}
    assert not of(source, modules, None, "mylib.ops").misplaced()
    source.write({"src/packaging/__init__.py": ""})
    assert set(of(source, modules, None, "mylib.ops").misplaced()) == {"packaging"}


def test_a_changed_file_that_ran_with_the_same_content_on_both_sides_is_noticed(source: Scratch) -> None:
    path = "code/mylib/ops.py"
    same, other = (of(source, {"mylib.ops": path}, {path: digest}) for digest in ("one", "two"))
    assert ran.unmoved(same, same, [path]) == [path]
    assert ran.unmoved(same, other, [path]) == ran.unmoved(same, same, ["README.md"]) == []


def test_a_built_module_that_both_sides_share_is_noticed_if_its_sources_change(source: Scratch, tmp_path: Path) -> None:
    built, version = tmp_path / "_kernels.py", tmp_path / "_version.py"
    built.write_text("def run(): ...\n")
    version.write_text("version = '1'\n")
    modules = {"mylib": "code/mylib/__init__.py", "mylib._kernels": str(built), "mylib._version": str(version)}
    files: dict[str, str | None] = {str(built): "one", str(version): "two"}
    side = of(source, modules, files)
    assert side.built().keys() == {"mylib._kernels", "mylib._version"}
    assert ran.rebuilt(side, side, ["csrc/kernel.cu"]) == ([str(built)], ["csrc/kernel.cu"])
    assert ran.rebuilt(side, side, ["README.md"]) == ([], [])
    assert ran.rebuilt(of(source, modules, {**files, str(built): "three"}), side, ["csrc/kernel.cu"]) == ([], [])


def test_a_package_is_looked_up_under_every_name_that_a_layout_gives_it(tmp_path: Path) -> None:
    files = {
        "a/ops.py": "",
        "a/__init__.py": "",
        "b/more.py": "",
        "b/__init__.py": "",
        "old/mylib/ops.py": "",
        "one.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    layout = guard.Layout(tmp_path)
    assert layout.place("mylib", ["__init__.py", "ops.py", "sub/__init__.py", "sub/more.py"], tmp_path / "none")
    assert layout.packages == {"mylib": "a", "mylib.sub": "b"}
    assert layout.place("one.py", [""], tmp_path / "none")
    assert layout.roots == ["."]
    assert not layout.place("other", ["ops2.py"], tmp_path / "none")


def test_what_the_guard_knows_survives_json(tmp_path: Path) -> None:
    given = guard.Given(tmp_path, (tmp_path,), (tmp_path / "w",), "app")
    links = tmp_path / "links"
    (tmp_path / "app").mkdir()
    links.mkdir()
    Overlay(tmp_path / "app", (links,)).guarded(tmp_path, (tmp_path,), (tmp_path / "w",))
    assert guard.Given.read(links / guard.GIVEN) == given
    first = guard.Resolved.read(links / guard.RESOLVED, given)
    assert guard.Resolved.read(links / guard.RESOLVED, given) == first
    assert json.loads((links / guard.RESOLVED).read_text())["roots"] == []
