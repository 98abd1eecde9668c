"""An asv environment that does not build a commit, but combines it with the current benchmark code.

The toolchain is the locked one in which asv runs. Only ``references/`` changes from commit to commit. So all points of
a line have the same meaning, and a commit needs no installation.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path, PurePosixPath

from asv import util
from asv.environment import Environment
from asv.machine import MachineCollection

from gradgate.suites.gate.git import Repository
from gradgate.suites.gate.overlay import Overlay

HERE = Path(__file__).resolve().parent
MACHINES = HERE / ".asv" / "machines.json"
"""asv keeps what it knows of machines in ``~/.asv-machine.json``; here it is a file of the repository's own folder."""
MachineCollection.get_machine_file_path = staticmethod(lambda: str(MACHINES))


class OverlayEnvironment(Environment):
    """asv's ``environment_type`` "overlay"."""

    tool_name = "overlay"

    def __init__(self, conf, python, requirements, tagged_env_vars):
        """Set the attributes that asv needs to name an environment, which it does before its own __init__ ends."""
        self._python, self._requirements, self._tagged_env_vars = python, requirements, tagged_env_vars
        super().__init__(conf, python, requirements, tagged_env_vars)

    @classmethod
    def matches(cls, python):
        """Whether this interpreter has the requested Python version."""
        return python == f"{sys.version_info[0]}.{sys.version_info[1]}"

    def check_presence(self):
        """Return True, because nothing can be missing."""
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
        # asv removes PYTHONPATH from the environment of benchmarks; GRADGATE_IMPORT lets them set it again for their
        # children.
        given = dict(kwargs.pop("env", None) or os.environ)
        environment = {**given, **self._global_env_vars, "ASV_PYTHONPATH": paths, "GRADGATE_IMPORT": paths}
        environment["GRADGATE_COMMIT"] = self.installed_commit_hash or ""
        return util.check_output([sys.executable, *args], env=environment, **kwargs)
