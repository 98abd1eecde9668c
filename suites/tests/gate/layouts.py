"""Scratch projects of every common layout, installed into environments of their own, for the tests of the gate."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from gradgate.suites.tests.scratch import SUM_OF_SQUARES, Scratch

BACKENDS = "GRADGATE_TEST_BACKENDS"
"""Environment variable: the environment with hatchling, poetry-core, flit-core, meson-python, meson and ninja."""
GATED = '[tool.gradgate]\npairs = ["tests/gradients.py"]\nprofiles = ["cpu"]\nexamples = 1\n'
PAIRS = """import gradgate
from gradgate import normal

square = gradgate.Pair(
    "{package}.ops:square", "{package}.plain:square", {{"x": normal("T")}}, {{"T": (2, 512)}}, dtypes=("float32",),
)
"""
PLAIN = '"""For {called}."""\n\nimport torch\n\ndef square(x):\n    return (x * x).sum()\n'
OPS = '"""For {called}."""\n\n' + SUM_OF_SQUARES + "\ndef square(x):\n    return Square.apply(x)\n"
SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
PROJECT = '[project]\nname = "{name}"\nversion = "0"\ndescription = "a layout"\n'
MESON = """project('mylib', version: '0')
py = import('python').find_installation(pure: true)
py.install_sources(['code/ops.py', 'code/plain.py', 'code/__init__.py'], subdir: 'mylib', pure: true)
"""


@dataclass(frozen=True)
class Layout:
    """How a project keeps its code.

    Attributes:
        pyproject: its pyproject.toml, without the gate's table.
        code: the folder of the package that holds the gated function.
        package: its dotted name.
        files: further files: path -> text.
        backend: the module that builds it.
        project: the folder that is gated and installed.
        beside: further projects of the repository that are installed.
    """

    pyproject: str
    code: str
    package: str = "mylib"
    files: tuple[tuple[str, str], ...] = ()
    backend: str = "setuptools"
    project: str = "."
    beside: tuple[str, ...] = ()

    def make(self, root: Path, called: str) -> Scratch:
        """A repository in this layout, with a pair whose function is right."""
        made, top = Scratch(root), "" if self.project == "." else f"{self.project}/"
        files = {
            f"{top}pyproject.toml": self.pyproject + GATED,
            f"{top}tests/gradients.py": PAIRS.format(package=self.package),
            f"{self.code}/__init__.py": '"""A library of one function."""\n\n__version__ = "0"\n',
            f"{self.code}/plain.py": PLAIN.format(called=called),
            f"{self.code}/ops.py": OPS.format(called=called),
            ".gitattributes": "tests export-ignore\n",
            ".gitignore": "__pycache__/\n",
            "README.md": "hello\n",
        }
        made.commit(files | dict(self.files))
        return made


def _project(name: str, **more: str) -> str:
    return PROJECT.format(name=name) + "".join(f"{text}\n" for text in more.values())


def _backend(name: str, module: str) -> str:
    return f'[build-system]\nrequires = ["{name}"]\nbuild-backend = "{module}"\n'


LAYOUTS = {
    "flat": Layout(SETUPTOOLS + _project("mylib") + '[tool.setuptools]\npackages = ["mylib"]\n', "mylib"),
    "src": Layout(SETUPTOOLS + _project("my-lib") + '[tool.setuptools.packages.find]\nwhere = ["src"]\n', "src/mylib"),
    "renamed": Layout(
        SETUPTOOLS
        + _project("mylib")
        + '[tool.setuptools]\npackages = ["mylib"]\n[tool.setuptools.package-dir]\nmylib = "source"\n',
        "source",
    ),
    "hatch": Layout(
        _backend("hatchling", "hatchling.build")
        + _project("mylib")
        + '[tool.hatch.build.targets.wheel]\npackages = ["lib/mylib"]\n',
        "lib/mylib",
        backend="hatchling",
    ),
    "poetry": Layout(
        _backend("poetry-core", "poetry.core.masonry.api")
        + '[tool.poetry]\nname = "mylib"\nversion = "0"\ndescription = "a layout"\nauthors = []\n'
        'packages = [{include = "mylib", from = "code"}]\n',
        "code/mylib",
        backend="poetry.core",
    ),
    "flit": Layout(_backend("flit_core", "flit_core.buildapi") + _project("mylib"), "src/mylib", backend="flit_core"),
    "meson": Layout(
        _backend("meson-python", "mesonpy") + _project("mylib"),
        "code",
        files=(("meson.build", MESON),),
        backend="mesonpy",
    ),
    "monorepo": Layout(
        SETUPTOOLS + _project("the-app") + "[tool.setuptools]\npackages = []\n",
        "libraries/core/src/ns/core",
        package="ns.core",
        project="app",
        beside=("libraries/core",),
        files=(
            (
                "libraries/core/pyproject.toml",
                SETUPTOOLS + _project("ns-core") + '[tool.setuptools.packages.find]\nwhere = ["src"]\n',
            ),
        ),
    ),
}
CHANGES = {
    "wrong": (("2 * upstream * x", "3 * upstream * x"),),
    "array": (("save_for_backward(x)", "save_for_backward(x, x.exp())"), ("x, = ctx", "x, _ = ctx")),
    "docs": (),
}
"""A change of ops.py -> what it replaces; of none, the README changes."""


class Environment:
    """A virtual environment that also sees what the running one has installed, gradgate included."""

    def __init__(self, place: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        self.python = place / "bin" / "python"
        [site] = place.glob("lib/python*/site-packages")
        seen = [sysconfig.get_path("purelib")]
        self.variables = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        if os.environ.get(BACKENDS):
            other = Path(os.environ[BACKENDS])
            seen += map(str, other.glob("lib/python*/site-packages"))
            self.variables["PATH"] = f"{other / 'bin'}{os.pathsep}{os.environ['PATH']}"
        lines = [f"import site; site.addsitedir({folder!r})\n" for folder in seen]
        (site / "zz_shared.pth").write_text("".join(lines))

    def can(self, module: str) -> bool:
        """Whether a module can be imported."""
        found = subprocess.run([self.python, "-c", f"import {module}"], capture_output=True, check=False)
        return found.returncode == 0

    def install(self, folder: Path, *, editable: bool) -> None:
        """Install a project, as ``pip install .`` or ``pip install -e .`` does."""
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(self.python),
                "install",
                "--quiet",
                "--no-deps",
                "--no-build-isolation",
                *(["--editable"] if editable else []),
                str(folder),
            ],
            check=True,
            env=self.variables,
        )

    def gate(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the gate in a folder."""
        command = [str(self.python), "-m", "gradgate.suites.cli", "gate", "--base", "main", "--jobs", "1", *arguments]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=self.variables)
