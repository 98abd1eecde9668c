"""An asv environment in which a commit is not built but laid over the current benchmark code.

The toolchain is the one that asv runs in, locked; what changes from commit to commit is ``references/`` alone. So one
line of a graph has one meaning from end to end, and a commit costs no installation.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path, PurePosixPath

from asv import util
from asv.environment import Environment

from gradgate.suites.gate.git import Repository
from gradgate.suites.gate.overlay import Overlay

HERE = Path(__file__).resolve().parent


class OverlayEnvironment(Environment):
    """asv's ``environment_type`` "overlay"."""

    tool_name = "overlay"

    def __init__(self, conf, python, requirements, tagged_env_vars):
        """As asv asks for it; it names an environment before its own __init__ ends."""
        self._python, self._requirements, self._tagged_env_vars = python, requirements, tagged_env_vars
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python):
        """Whether this interpreter is of the Python version asked for."""
        return python == f"{sys.version_info[0]}.{sys.version_info[1]}"

    def check_presence(self):
        """There is nothing that could be missing."""
        return True

    def _setup(self):
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def install_project(self, conf, repo, commit_hash):
        """Write the commit's files into a folder, and link its references and the current benchmark code together."""
        root = HERE.parent
        trees = Path(self._path) / "trees"
        shutil.rmtree(trees, ignore_errors=True)
        trees.mkdir(parents=True)
        place = Path(tempfile.mkdtemp(dir=trees))
        project = Repository(root, PurePosixPath(".")).extract(commit_hash, place / "tree")
        overlay = Overlay.make(place / "import", project, judge=root)
        (Path(self._path) / "import").write_text(os.pathsep.join(str(path) for path in overlay.paths))
        self._set_commit_hash(commit_hash)
        self._set_installed_commit_hash(commit_hash)

    def run(self, args, **kwargs):
        """Run this interpreter with the commit's import path."""
        paths = (Path(self._path) / "import").read_text()
        # asv takes PYTHONPATH away from benchmarks; GRADGATE_IMPORT tells theirs to put it back for their children.
        given = dict(kwargs.pop("env", None) or os.environ)
        environment = {**given, **self._global_env_vars, "ASV_PYTHONPATH": paths, "GRADGATE_IMPORT": paths}
        return util.check_output([sys.executable, *args], env=environment, **kwargs)
