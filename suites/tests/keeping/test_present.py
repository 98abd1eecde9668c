"""Every way in which something that was read can change: each is noticed, and an unchanged project is not."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradgate.hw_profiles.recording import Places, Record, RecordedEnvironment
from gradgate.suites.keeping.keys import data_of, startup, surroundings
from gradgate.suites.keeping.present import ChangedMeanwhile, Present
from gradgate.suites.keeping.store import Store
from gradgate.suites.tests.keeping.ways import PACKAGE, WAYS, same_time_and_size, write

READER = """
import importlib.metadata
list(importlib.metadata.distributions())  # as a framework does: Python remembers what it has listed
from gradgate.hw_profiles import recording
recording.install()
import sys
sys.path.append("")
import mine
from gradgate.hw_profiles.recording import recorded
import json
print(json.dumps(recorded()))
"""
"""A process that records itself, as a worker does, and imports the module ``mine`` of its folder."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site-packages").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site-packages"))
    monkeypatch.delenv("MY_SET", raising=False)
    return tmp_path


def read(folder: Path) -> Record:
    """What a new process reads that imports ``mine`` in a folder."""
    command, environment = [sys.executable, "-P", "-c", READER], dict(os.environ)
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    record: Record = json.loads(ran.stdout.splitlines()[-1])
    return record


def difference(folder: Path, record: Record, packages: dict[str, str]) -> str:
    return Present(folder, Store()).difference(record, packages)


@pytest.mark.parametrize("name", WAYS)
def test_a_change_is_noticed_and_no_change_is_none(name: str, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    way = WAYS[name]
    for path, text in {"mine.py": way.mine, **way.files}.items():
        write(path, text)(project, monkeypatch)
    way.prepare(project)
    record = read(project)
    packages = Present(project, Store()).packages(record)
    write("bystander.py", "x = 1\n")(project, monkeypatch)
    assert difference(project, record, packages) == ""
    way.change(project, monkeypatch)
    assert difference(project, record, packages)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])\n",
            "it started a process (subprocess.Popen",
        ),
        ("import os\nos.system('true')\n", "it started a process (os.system"),
        ("import os\nos.fork() or os._exit(0)\n", "it started a process (os.fork"),
        ("import socket\ns = socket.socket()\ns.connect_ex(('127.0.0.1', 9))\n", "it used the network (socket.connect"),
        ("import os\nos.mkfifo('p')\nos.open('p', os.O_RDONLY | os.O_NONBLOCK)\n", "cannot be compared later"),
        ("open('d').read()\nimport os\nos.utime('d')\n", "d changed while it was read"),
    ],
)
def test_what_cannot_be_compared_later_is_named(
    text: str, reason: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mine.py", text)(project, monkeypatch)
    write("d", "1")(project, monkeypatch)
    record = read(project)
    assert reason in difference(project, record, {})


@pytest.mark.parametrize(
    "text",
    [
        "open('out', 'w').write('1')\nopen('out').read()\n",  # its own output
        "import tempfile\nwith tempfile.TemporaryFile() as f:\n    f.write(b'1')\n",
        "import os\nos.environ['MY_FLAG'] = '1'\nos.environ['MY_FLAG']\ndel os.environ['MY_FLAG']\n",
        "import os\ndict(os.environ)\n",
        "open('/proc/self/status').read()\n",
        "import importlib.metadata\nimportlib.metadata.entry_points(group='x')\n",  # it looks for a file named ""
        "import os\nopen('out', 'a').write('1')\nos.path.getsize('out')\n",  # it begins empty, as nobody read it
        "import os\nopen('t', 'w').close()\nos.rename('t', 'out')\nopen('out').read()\n",
        "import os\nos.symlink('one', 'link')\nos.path.lexists('link')\n",
    ],
)
def test_what_a_process_makes_itself_is_not_something_it_has_read(
    text: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mine.py", text)(project, monkeypatch)
    record = read(project)
    for name in ("out", "other"):
        write(name, "2")(project, monkeypatch)
    monkeypatch.setenv("UNRELATED", "1")
    assert difference(project, record, Present(project, Store()).packages(record)) == ""


@pytest.mark.parametrize(("package", "kept"), [("cuda", True), ("other", False)])
def test_a_process_that_a_framework_starts_while_it_is_imported_is_no_reason(
    package: str, kept: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project / "site-packages" / package
    folder.mkdir()
    (folder / "pathfinder.py").write_text("import ctypes.util\nctypes.util.find_library('dl')\n")
    write("mine.py", f"import {package}.pathfinder\n")(project, monkeypatch)
    record = read(project)
    found = difference(project, record, Present(project, Store()).packages(record))
    assert found == "" if kept else "it started a process (subprocess.Popen" in found


@pytest.mark.parametrize("place", ["~/.cache/gradgate", "$XDG_CACHE_HOME/gradgate", "$GRADGATE_CACHE"])
def test_what_gradgate_keeps_itself_is_not_something_it_has_read(
    place: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("GRADGATE_CACHE", raising=False)
    if place.startswith("$"):
        monkeypatch.setenv(place[1:].partition("/")[0], str(tmp_path / "chosen"))
    file = Path(os.path.expanduser(os.path.expandvars(place))) / "measurements" / "d"
    folder = file.parent.parent
    write("mine.py", f"import os\nos.path.exists({str(folder)!r})\nos.path.exists({str(folder.parent)!r})\n")(
        project, monkeypatch
    )
    record = read(project)
    folder.mkdir(parents=True)
    assert difference(project, record, {}) == "", "the folder itself, before there was one"
    write("mine.py", f"open({str(file)!r}).read()\nopen('d').read()\n")(project, monkeypatch)
    for entry in (file, project / "d"):
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text("1")
    record = read(project)
    file.write_text("2")
    assert difference(project, record, {}) == ""
    write("d", "2")(project, monkeypatch)
    assert difference(project, record, {}) == "d has changed"


def test_what_was_in_a_file_before_the_process_added_to_it_is_what_it_read(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mine.py", "with open('d', 'a') as f:\n    f.write('x')\nopen('d').read()\n")(project, monkeypatch)
    write("d", "1")(project, monkeypatch)
    record = read(project)
    assert difference(project, record, {}) == "d has changed"
    write("d", "1")(project, monkeypatch)
    assert difference(project, record, {}) == ""
    write("mine.py", "with open('d', 'a') as f:\n    f.write('x')\n")(project, monkeypatch)  # as a log does
    record = read(project)
    assert difference(project, record, {}) == ""


def test_what_a_shell_sets_for_each_command_is_not_read_by_a_loop_over_all_variables(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_FLAG", "1")
    for name in ("PWD", "GITHUB_RUN_ID", "CI_JOB_ID"):
        monkeypatch.setenv(name, "one")
    write("mine.py", "import os\n[value for value in os.environ.values()]\n")(project, monkeypatch)
    record = read(project)
    for name in ("_", "PWD", "GITHUB_RUN_ID", "CI_JOB_ID"):
        monkeypatch.setenv(name, "another")
    assert difference(project, record, Present(project, Store()).packages(record)) == ""
    monkeypatch.setenv("MY_FLAG", "2")
    assert "MY_FLAG" in difference(project, record, {})


@pytest.mark.parametrize("name", ["PWD", "GITHUB_RUN_ID"])
def test_what_differs_in_each_run_is_read_by_a_program_that_asks_for_it(
    name: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    write("mine.py", f"import os\nos.environ[{name!r}]\n")(project, monkeypatch)
    record = read(project)
    assert difference(project, record, {}) == ""
    monkeypatch.setenv(name, "2")
    assert name in difference(project, record, {})


def test_importing_tqdm_as_pytorch_does_reads_no_variable_of_others(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setenv("MY_FLAG", "1")
    write("mine.py", "import tqdm\n")(project, monkeypatch)
    record = read(project)
    monkeypatch.setenv("MY_FLAG", "2")
    assert difference(project, record, Present(project, Store()).packages(record)) == ""


def test_bytecode_beside_a_module_of_the_project_is_never_run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("helper.py", "x = 1\n")(project, monkeypatch)
    write("mine.py", "import helper\nopen('seen', 'w').write(str(helper.x))\n")(project, monkeypatch)
    subprocess.run([sys.executable, "-c", "import helper"], cwd=project, check=True, env={"PYTHONPATH": "."})
    assert list(project.glob("__pycache__/helper*"))
    same_time_and_size("helper.py", "x = 2\n")(project, monkeypatch)
    read(project)
    assert (project / "seen").read_text() == "2"


def test_a_module_that_changes_after_its_import_is_recorded_as_it_ran(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("helper.py", "x = 1\n")(project, monkeypatch)
    write("mine.py", "import helper\nopen('helper.py', 'w').write('x = 2')\n")(project, monkeypatch)
    record = read(project)
    assert difference(project, record, {}) == "helper.py has changed"
    write("helper.py", "x = 1\n")(project, monkeypatch)
    assert difference(project, record, {}) == ""


def test_a_library_that_is_loaded_by_its_path_is_read(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = ctypes.util.find_library("m")
    if found is None:
        pytest.skip("this system has no library of mathematical functions to copy")
    text = "import ctypes\ntry:\n    ctypes.CDLL('./own.so')\nexcept OSError:\n    pass\n"
    write("mine.py", text)(project, monkeypatch)
    write("own.so", "1")(project, monkeypatch)
    record = read(project)
    write("own.so", "2")(project, monkeypatch)
    assert difference(project, record, {}) == "own.so has changed"


def test_a_package_that_changes_during_a_run_is_not_believed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, text in PACKAGE.items():
        write(path, text)(project, monkeypatch)
    write("mine.py", "import lib\n")(project, monkeypatch)
    present = Present(project, Store())
    record = read(project)
    assert present.packages(record)["lib"]
    present = Present(project, Store())
    write("site-packages/lib/data.txt", "2\n")(project, monkeypatch)
    with pytest.raises(ChangedMeanwhile, match="lib"):
        present.packages(record)


def test_what_python_does_before_anything_is_recorded_is_part_of_the_question(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def now() -> object:
        return startup(Places(project)), surroundings(), data_of(project, ["*.bin"])

    seen = [now()]
    write("more.bin", "1")(project, monkeypatch)
    seen.append(now())
    write("site-packages/a.pth", "src\n")(project, monkeypatch)
    seen.append(now())
    offers = "[jax_plugins]\nmine = mine\n"
    write("site-packages/mine-1.dist-info/entry_points.txt", offers)(project, monkeypatch)
    seen.append(now())
    (project / "src").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(project / "src"))
    seen.append(now())
    for name in (
        "TORCHDYNAMO_DISABLE",
        "XLA_FLAGS",
        "LD_PRELOAD",
        "PYTHONOPTIMIZE",
        "ATEN_CPU_CAPABILITY",
        "ONEDNN_MAX_CPU_ISA",
        "GRADGATE_ENVIRONMENT",
    ):
        monkeypatch.setenv(name, "1")
        seen.append(now())
    assert all(one != other for place, one in enumerate(seen) for other in seen[:place])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    write("site-packages/other-1.dist-info/entry_points.txt", "[console_scripts]\nx = x\n")(project, monkeypatch)
    assert now() == seen[-1]


def test_the_environment_of_this_process_is_not_recorded() -> None:
    assert not isinstance(os.environ, RecordedEnvironment)
