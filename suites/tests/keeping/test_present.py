"""Every way in which something that was read can change: each is noticed, and an unchanged project is not."""

from __future__ import annotations

import ctypes.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gradgate.hw_profiles.recording import Places, Record, RecordedEnvironment
from gradgate.suites.keeping.keys import data_of, startup, surroundings
from gradgate.suites.keeping.present import ChangedMeanwhile, Present
from gradgate.suites.keeping.store import Store

READER = """
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

Change = Callable[[Path, pytest.MonkeyPatch], object]


def write(name: str, text: str) -> Change:
    """A file gets a text; its folder is made."""

    def change(folder: Path, _: pytest.MonkeyPatch) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    return change


def same_time_and_size(name: str, text: str) -> Change:
    """A file gets another text of the same length, and its old time of modification."""

    def change(folder: Path, _: pytest.MonkeyPatch) -> None:
        before = (folder / name).stat()
        assert len(text) == before.st_size
        (folder / name).write_text(text)
        os.utime(folder / name, ns=(before.st_atime_ns, before.st_mtime_ns))

    return change


def remove(name: str) -> Change:
    return lambda folder, _: (folder / name).unlink()


def variable(name: str, value: str) -> Change:
    return lambda _, patched: patched.setenv(name, value)


def zipped(folder: Path, text: str) -> None:
    with zipfile.ZipFile(folder / "code.zip", "w") as archive:
        archive.writestr("inner.py", text)


@dataclass(frozen=True)
class Way:
    """One way to change: files before, what `mine` does, and the change. ``site-packages`` is on the import path."""

    mine: str
    change: Change
    files: dict[str, str] = field(default_factory=lambda: {"helper.py": "x = 1\n"})
    prepare: Callable[[Path], object] = lambda folder: None


PACKAGE = {"site-packages/lib/__init__.py": "x = 1\n", "site-packages/lib/data.txt": "1\n"}
WAYS = {
    "the module itself": Way("x = 1\n", write("mine.py", "x = 2\n")),
    "a module beside it": Way("import helper\n", write("helper.py", "x = 2\n")),
    "a module of a src folder, through sys.path": Way(
        "import sys\nsys.path.insert(0, 'src')\nimport inner\n",
        write("src/inner.py", "x = 2\n"), {"src/inner.py": "x = 1\n"},
    ),
    "importlib.import_module": Way(
        "import importlib\nimportlib.import_module('hel' + 'per')\n", write("helper.py", "x = 2\n")
    ),
    "__import__": Way("__import__('hel' + 'per')\n", write("helper.py", "x = 2\n")),
    "spec_from_file_location": Way(
        "import importlib.util as u\ns = u.spec_from_file_location('n', 'helper.py')\n"
        "s.loader.exec_module(u.module_from_spec(s))\n",
        write("helper.py", "x = 2\n"),
    ),
    "a text that is executed": Way("exec(open('helper.py').read())\n", write("helper.py", "x = 2\n")),
    "runpy": Way("import runpy\nrunpy.run_path('helper.py')\n", write("helper.py", "x = 2\n")),
    "a folder that becomes a package of that name": Way("import helper\n", write("helper/__init__.py", "x = 2\n")),
    "a folder of that name without __init__.py": Way("import helper\n", write("helper/other.py", "x = 2\n")),
    "a compiled module beside the text": Way("import helper\n", write("helper.cpython-311-x86_64-linux-gnu.so", "")),
    "the same module in an earlier folder of the path": Way(
        "import sys\nsys.path.insert(0, 'first')\nimport helper\n",
        write("first/helper.py", "x = 2\n"), {"helper.py": "x = 1\n", "first/other.py": ""},
    ),
    "a package that imports lazily": Way(
        "import pack\npack.inner\n", write("pack/inner.py", "x = 2\n"),
        {
            "pack/__init__.py": "import importlib\ndef __getattr__(n): return importlib.import_module('pack.' + n)\n",
            "pack/inner.py": "x = 1\n",
        },
    ),
    "a star import through __all__": Way(
        "from pack import *\n", write("pack/inner.py", "x = 2\n"),
        {"pack/__init__.py": "__all__ = ['inner']\n", "pack/inner.py": "x = 1\n"},
    ),
    "a part of a namespace package": Way(
        "import pack.inner\n", write("pack/inner.py", "x = 2\n"), {"pack/inner.py": "x = 1\n"}
    ),
    "under an odd TYPE_CHECKING": Way(
        "from typing import TYPE_CHECKING\nx = 1\nif x or TYPE_CHECKING:\n    import helper\n",
        write("helper.py", "x = 2\n"),
    ),
    "a module in an archive": Way(
        "import sys\nsys.path.insert(0, 'code.zip')\nimport inner\n", lambda folder, _: zipped(folder, "x = 2\n"),
        prepare=lambda folder: zipped(folder, "x = 1\n"),
    ),
    "the same length and time of modification": Way("import helper\n", same_time_and_size("helper.py", "x = 2\n")),
    "an optional module that comes": Way(
        "try:\n    import helper2\nexcept ImportError:\n    pass\n", write("helper2.py", "x = 2\n")
    ),
    "a file of data": Way("import json\njson.load(open('d.json'))\n", write("d.json", "[2]"), {"d.json": "[1]"}),
    "a file of data, by pathlib": Way(
        "import pathlib\npathlib.Path('d').read_bytes()\n", write("d", "2"), {"d": "1"}
    ),
    "a file of data, by numpy": Way(
        "import numpy\nnumpy.loadtxt('d')\n", write("d", "2"), {"d": "1"}
    ),
    "a file of data, by os.open": Way("import os\nos.open('d', os.O_RDONLY)\n", write("d", "2"), {"d": "1"}),
    "a file of data that goes": Way("open('d').read()\n", remove("d"), {"d": "1"}),
    "a file that was missing": Way(
        "try:\n    open('d')\nexcept OSError:\n    pass\n", write("d", "1"), {}
    ),
    "a file that was looked for": Way("import os\nos.path.exists('d')\n", write("d", "1"), {}),
    "a file that was looked for, by pathlib": Way(
        "import pathlib\npathlib.Path('d').is_file()\n", write("d", "1"), {}
    ),
    "a folder that was listed": Way("import os\nos.listdir('data')\n", write("data/2", ""), {"data/1": ""}),
    "a pattern of files": Way("import glob\nglob.glob('data/*')\n", write("data/2", ""), {"data/1": ""}),
    "a link to other data": Way(
        "open('d').read()\n",
        lambda folder, _: ((folder / "d").unlink(), (folder / "d").symlink_to("two")),
        {"one": "1", "two": "2"}, lambda folder: (folder / "d").symlink_to("one"),
    ),
    "a variable": Way("import os\nos.environ.get('MY_FLAG')\n", variable("MY_FLAG", "2")),
    "a variable, by os.getenv": Way("import os\nos.getenv('MY_FLAG')\n", variable("MY_FLAG", "2")),
    "a variable, by in": Way("import os\n'MY_FLAG' in os.environ\n", variable("MY_FLAG", "2")),
    "a variable, among all": Way(
        "import os\n{k: v for k, v in os.environ.items() if k == 'MY_SET'}\n", variable("MY_SET", "2"), {},
        lambda _: os.environ.update(MY_SET="1"),
    ),
    "a package of the same version": Way("import lib\n", write("site-packages/lib/__init__.py", "x = 2\n"), PACKAGE),
    "a package, in a file that it did not import": Way("import lib\n", write("site-packages/lib/b.py", ""), PACKAGE),
    "a package's data": Way("import lib\n", write("site-packages/lib/data.txt", "2\n"), PACKAGE),
    "a package, with its time and length": Way(
        "import lib\n", same_time_and_size("site-packages/lib/__init__.py", "x = 2\n"), PACKAGE
    ),
    "a package that another package imports": Way(
        "import lib\n", write("site-packages/deep/__init__.py", "x = 2\n"),
        {"site-packages/lib/__init__.py": "import deep\n", "site-packages/deep/__init__.py": "x = 1\n"},
    ),
    "a module of the project that comes to hide a package": Way(
        "import sys\nsys.path.insert(0, '')\nimport lib\n", write("lib.py", "x = 2\n"), PACKAGE
    ),
    "a link to another folder": Way(
        "open('d/x').read()\n",
        lambda folder, _: ((folder / "d").unlink(), (folder / "d").symlink_to("two")),
        {"one/x": "1", "two/x": "2"}, lambda folder: (folder / "d").symlink_to("one"),
    ),
    "an optional package that is installed": Way(
        "try:\n    import more\nexcept ImportError:\n    pass\n", write("site-packages/more.py", ""), PACKAGE
    ),
}  # fmt: skip


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
    for name in ("TORCHDYNAMO_DISABLE", "XLA_FLAGS", "LD_PRELOAD", "PYTHONOPTIMIZE", "GRADGATE_ENVIRONMENT"):
        monkeypatch.setenv(name, "1")
        seen.append(now())
    assert all(one != other for place, one in enumerate(seen) for other in seen[:place])
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    write("site-packages/other-1.dist-info/entry_points.txt", "[console_scripts]\nx = x\n")(project, monkeypatch)
    assert now() == seen[-1]


def test_the_environment_of_this_process_is_not_recorded() -> None:
    assert not isinstance(os.environ, RecordedEnvironment)
