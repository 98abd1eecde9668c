"""Ways in which something that a pair read can change: one table for the record, `verify`, `memory` and the gate."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

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


def led(link: str, to: str) -> Callable[..., None]:
    """A link comes to lead to another place, or is made."""

    def change(folder: Path, _: pytest.MonkeyPatch | None = None) -> None:
        (folder / link).unlink(missing_ok=True)
        (folder / link).symlink_to(to)

    return change


def table(number: int) -> Callable[..., None]:
    """A database of SQLite with one number comes, in place of any other."""

    def change(folder: Path, _: pytest.MonkeyPatch | None = None) -> None:
        (folder / "d.db").unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(folder / "d.db")) as made, made:
            made.execute(f"create table t as select {number}")

    return change


def zipped(folder: Path, text: str) -> None:
    with zipfile.ZipFile(folder / "code.zip", "w") as archive:
        archive.writestr("inner.py", text)


@dataclass(frozen=True)
class Way:
    """One way to change. ``site-packages`` is on the import path.

    Attributes:
        mine: what the module `mine` does.
        change: the change.
        files: name -> text, before the change.
        prepare: what else is there before the change.
        breaks: after the change, `mine` cannot be imported.
    """

    mine: str
    change: Change
    files: dict[str, str] = field(default_factory=lambda: {"helper.py": "x = 1\n"})
    prepare: Callable[[Path], object] = lambda folder: None
    breaks: bool = False


PACKAGE = {"site-packages/lib/__init__.py": "x = 1\n", "site-packages/lib/data.txt": "1\n"}
FIND = "import importlib.util\nimportlib.util.find_spec('{}')\n"
WAYS = {
    "the module itself": Way("x = 1\n", write("mine.py", "x = 2\n")),
    "a module beside it": Way("import helper\n", write("helper.py", "x = 2\n")),
    "a module of a src folder, through sys.path": Way(
        "import sys\nsys.path.insert(0, 'src')\nimport inner\n",
        write("src/inner.py", "x = 2\n"),
        {"src/inner.py": "x = 1\n"},
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
    "a compiled module beside the text": Way(
        "import helper\n", write("helper.cpython-311-x86_64-linux-gnu.so", ""), breaks=True
    ),
    "the same module in an earlier folder of the path": Way(
        "import sys\nsys.path.insert(0, 'first')\nimport helper\n",
        write("first/helper.py", "x = 2\n"),
        {"helper.py": "x = 1\n", "first/other.py": ""},
    ),
    "a package that imports lazily": Way(
        "import pack\npack.inner\n",
        write("pack/inner.py", "x = 2\n"),
        {
            "pack/__init__.py": "import importlib\ndef __getattr__(n): return importlib.import_module('pack.' + n)\n",
            "pack/inner.py": "x = 1\n",
        },
    ),
    "a star import through __all__": Way(
        "from pack import *\n",
        write("pack/inner.py", "x = 2\n"),
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
        "import sys\nsys.path.insert(0, 'code.zip')\nimport inner\n",
        lambda folder, _: zipped(folder, "x = 2\n"),
        prepare=lambda folder: zipped(folder, "x = 1\n"),
    ),
    "the same length and time of modification": Way("import helper\n", same_time_and_size("helper.py", "x = 2\n")),
    "an optional module that comes": Way(
        "try:\n    import helper2\nexcept ImportError:\n    pass\n", write("helper2.py", "x = 2\n")
    ),
    "a file of data": Way("import json\njson.load(open('d.json'))\n", write("d.json", "[2]"), {"d.json": "[1]"}),
    "a file of data, by pathlib": Way("import pathlib\npathlib.Path('d').read_bytes()\n", write("d", "2"), {"d": "1"}),
    "a file of data, by numpy": Way("import numpy\nnumpy.loadtxt('d')\n", write("d", "2"), {"d": "1"}),
    "a file of data, by os.open": Way("import os\nos.open('d', os.O_RDONLY)\n", write("d", "2"), {"d": "1"}),
    "a file of data that goes": Way("open('d').read()\n", remove("d"), {"d": "1"}, breaks=True),
    "a file that was missing": Way("try:\n    open('d')\nexcept OSError:\n    pass\n", write("d", "1"), {}),
    "a file that was looked for": Way("import os\nos.path.exists('d')\n", write("d", "1"), {}),
    "a file that was looked for, by pathlib": Way("import pathlib\npathlib.Path('d').is_file()\n", write("d", "1"), {}),
    "a folder that was listed": Way("import os\nos.listdir('data')\n", write("data/2", ""), {"data/1": ""}),
    "a pattern of files": Way("import glob\nglob.glob('data/*')\n", write("data/2", ""), {"data/1": ""}),
    "a pattern without a star": Way("import glob\nglob.glob('d')\n", write("d", "1"), {}),
    "a link to other data": Way(
        "open('d').read()\n",
        led("d", "two"),
        {"one": "1", "two": "2"},
        led("d", "one"),
    ),
    "a link that is resolved before it is read": Way(
        "import pathlib\npathlib.Path('d').resolve().read_text()\n",
        led("d", "two"),
        {"one": "1", "two": "2"},
        led("d", "one"),
    ),
    "a link whose target is a name": Way("import os\nos.readlink('d')\n", led("d", "two"), {}, led("d", "one")),
    "a file whose size is asked for": Way("import os\nos.path.getsize('d')\n", write("d", "22"), {"d": "1"}),
    "a file that may be read": Way("import os\nos.access('d', os.R_OK)\n", write("d", "1"), {}),
    "a file that is read and written": Way("open('d', 'r+').read()\n", write("d", "2"), {"d": "1"}),
    "a database": Way("import sqlite3\nsqlite3.connect('d.db').execute('select * from t')\n", table(2), {}, table(1)),
    "a variable, as bytes": Way("import os\nos.environb.get(b'MY_FLAG')\n", variable("MY_FLAG", "2")),
    "a module that find_spec does not find": Way(FIND.format("helper2"), write("helper2.py", ""), {}),
    "a package that find_spec does not find": Way(FIND.format("lib"), write("site-packages/lib/__init__.py", ""), {}),
    "a package that find_spec finds": Way(FIND.format("lib"), remove("site-packages/lib/__init__.py"), PACKAGE),
    "a package whose version is asked for": Way(
        "import importlib.metadata\nimportlib.metadata.version('lib')\n",
        lambda folder, _: (folder / "site-packages/lib-1.dist-info").rename(folder / "site-packages/lib-2.dist-info"),
        {"site-packages/lib-1.dist-info/METADATA": "Name: lib\nVersion: 1\n"},
    ),
    "a module of a package that is read as text": Way(
        "import importlib.util\nopen(importlib.util.find_spec('lib').origin).read()\n",
        write("site-packages/lib/__init__.py", "x = 2\n"),
        PACKAGE,
    ),
    "a variable": Way("import os\nos.environ.get('MY_FLAG')\n", variable("MY_FLAG", "2")),
    "a variable, by os.getenv": Way("import os\nos.getenv('MY_FLAG')\n", variable("MY_FLAG", "2")),
    "a variable, by in": Way("import os\n'MY_FLAG' in os.environ\n", variable("MY_FLAG", "2")),
    "a variable, among all": Way(
        "import os\n{k: v for k, v in os.environ.items() if k == 'MY_SET'}\n",
        variable("MY_SET", "2"),
        {},
        lambda _: os.environ.update(MY_SET="1"),
    ),
    "a package of the same version": Way("import lib\n", write("site-packages/lib/__init__.py", "x = 2\n"), PACKAGE),
    "a package, in a file that it did not import": Way("import lib\n", write("site-packages/lib/b.py", ""), PACKAGE),
    "a package's data": Way("import lib\n", write("site-packages/lib/data.txt", "2\n"), PACKAGE),
    "a package, with its time and length": Way(
        "import lib\n", same_time_and_size("site-packages/lib/__init__.py", "x = 2\n"), PACKAGE
    ),
    "a package that another package imports": Way(
        "import lib\n",
        write("site-packages/deep/__init__.py", "x = 2\n"),
        {"site-packages/lib/__init__.py": "import deep\n", "site-packages/deep/__init__.py": "x = 1\n"},
    ),
    "a module of the project that comes to hide a package": Way(
        "import sys\nsys.path.insert(0, '')\nimport lib\n", write("lib.py", "x = 2\n"), PACKAGE
    ),
    "a link to another folder": Way(
        "open('d/x').read()\n",
        led("d", "two"),
        {"one/x": "1", "two/x": "2"},
        led("d", "one"),
    ),
    "an optional package that is installed": Way(
        "try:\n    import more\nexcept ImportError:\n    pass\n", write("site-packages/more.py", ""), PACKAGE
    ),
}
if sys.platform == "linux":
    WAYS["a file that native code maps"] = Way(
        "import ctypes, mmap\nkept = mmap.mmap(ctypes.CDLL(None).open(b'd', 0), 0, prot=mmap.PROT_READ)\n",
        write("d", "2"),
        {"d": "1"},
    )
