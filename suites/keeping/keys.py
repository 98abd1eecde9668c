"""The hash of the question that a figure or a verdict answers: what is asked, who judges, and in which toolchain.

What the answer depends on besides is recorded while it is found (`gradgate.hw_profiles.recording`), and compared before
it is used again (`gradgate.suites.keeping.present`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gradgate
import gradgate.hw_profiles
import gradgate.references
import gradgate.suites
from gradgate.hw_profiles.cache import Cache
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.profile import load
from gradgate.hw_profiles.recording import Places, digest, file_digest, is_judge, names_in
from gradgate.hw_profiles.work import COUNTING
from gradgate.suites.imports import Imports, Parsed
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.workers.variables import environment

MEASURING = ("gradgate.suites.measuring.cells", "gradgate.hw_profiles.sweep", "gradgate.hw_profiles.torch_memory")
"""Modules that measure a figure."""
JUDGING = (
    "gradgate.suites.workers.worker",
    *(f"gradgate.suites.pairs.{name}" for name in ("pair", "modules", "draws", "laws", "in_jax", "in_torch")),
    "gradgate.suites.engine.quick",
    *sorted(f"gradgate.suites.checks.{path.stem}" for path in Path(__file__).parents[1].glob("checks/[!_]*.py")),
)
"""Modules that judge a claim: the worker, and the parts of pairs and the checks, which are imported by name."""
NATIVE = (
    *("XLA_", "JAX_", "PYTORCH_", "TORCH", "TF_", "MKL_", "OMP_", "KMP_", "CUDA_", "LD_", "DYLD_", "PYTHON"),
    *("ATEN_", "DNNL_", "ONEDNN_", "OPENBLAS_", "BLIS_", "VECLIB_", "GOTO_", "GOMP_", "NPY_", "TPU_", "LIBTPU_"),
    *("CUBLAS_", "CUDNN_", "NVIDIA_TF32", "GLIBC_", "MALLOC_"),
)
"""Prefixes of environment variables that native code or Python itself reads, where no record sees it."""
JUDGED = ("GRADGATE_ENVIRONMENT",)
"""The hash of the environment in which the gallery judges a library."""
HARMLESS = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPYCACHEPREFIX")
"""Variables with such a prefix that change no result. The folders of PYTHONPATH are compared apart."""
PLUGINS = ("jax_plugins", "torch.backends", "torch_dynamo_backends", "gradgate.")
"""Groups of entry points whose packages a framework, or gradgate, loads without being asked."""


class Keys:
    """Hashes over what is asked, the modules that judge it, and the toolchain.

    Attributes:
        imports: follows the imports of gradgate's modules.
        fingerprint: the fingerprint of the toolchain.
    """

    def __init__(self, project: Path, depends: Iterable[str] = ()) -> None:
        """Read the toolchain.

        Args:
            project: the folder in which methods are imported.
            depends: globs of files in this folder that methods read in a way that no record sees.
        """
        mounts = {
            "gradgate": Path(str(gradgate.__file__)).parent,
            "gradgate.suites": Path(gradgate.suites.__path__[0]),
            "gradgate.references": Path(gradgate.references.__path__[0]),
            "gradgate.hw_profiles": Path(gradgate.hw_profiles.__path__[0]),
        }
        self.imports, self.fingerprint = Imports(mounts, Parsed(Cache().folder.parent / "imports.json")), fingerprint()
        self._closures: dict[tuple[str, ...], dict[str, str]] = {}
        self._profiles: dict[str, str] = {}
        self._start = [self.fingerprint, COUNTING, data_of(project, depends), surroundings(), startup(Places(project))]

    @contextlib.contextmanager
    def parsing(self) -> Iterator[None]:
        """The scope at whose end, also by an error, the parsed imports of our modules are cached."""
        try:
            yield
        finally:
            self.imports.parsed.keep()

    def closure(self, judges: Iterable[str], places: Iterable[str]) -> dict[str, str]:
        """The modules of gradgate behind a key: name -> sha256.

        Args:
            judges: modules that judge or measure.
            places: modules and files of a method. Those of other projects are left out.
        """
        starts = tuple(sorted({*judges, *filter(is_judge, places)}))
        if starts not in self._closures:
            self._closures[starts] = self.imports.closure(starts)
        return self._closures[starts]

    def question(self, judges: Iterable[str], places: Iterable[str], *facts: Any) -> str:
        """One hash over the modules that judge, gradgate's modules of a method, and facts of plain JSON types."""
        text = json.dumps([self.closure(judges, places), self._start, *facts], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def unchanged(self, judges: Iterable[str], places: Iterable[str]) -> bool:
        """Whether gradgate's modules behind a key are unchanged since they were read. A run takes minutes."""
        return self.imports.unchanged(self.closure(judges, places))

    def verdict(self, places: Iterable[str], task: Task, run: Run) -> str:
        """The key of a verdict.

        Args:
            places: modules and files of the method, from `sources.strings_of`.
            task: the claim.
            run: the settings with which it is judged.
        """
        facts = [dataclasses.asdict(task), dataclasses.asdict(run), self._profile(task.profile)]
        return self.question(JUDGING, places, "verdict", *facts)

    def figure(self, places: Iterable[str], cell: Mapping[str, Any]) -> str:
        """The key of a measured cell.

        Args:
            places: modules and files of the method, from `sources.strings_of`.
            cell: its fields, as `MethodCell.to_dict` gives them.
        """
        return self.question(MEASURING, places, "figure", cell, self._profile(cell["profile"]))

    def _profile(self, name: str) -> str:
        if name not in self._profiles:
            self._profiles[name] = load(name).digest()
        return self._profiles[name]


def data_of(project: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Hashes of the files of a project that match the globs."""
    paths = sorted({path for pattern in patterns for path in project.glob(pattern) if path.is_file()})
    return {str(path.relative_to(project)): file_digest(str(path)) for path in paths}


def surroundings() -> dict[str, str]:
    """The environment variables that a worker inherits and that native code or Python itself reads."""
    always_set = environment().keys() - {"XLA_FLAGS"}
    read = {name: value for name, value in sorted(os.environ.items()) if name.startswith((*NATIVE, *JUDGED))}
    return {name: value for name, value in read.items() if name not in always_set and name not in HARMLESS}


def startup(places: Places) -> dict[str, Any]:
    """What Python does before anything is recorded: folders on the path, ``.pth`` files, and plug-ins that are offered.

    Args:
        places: the places on this machine.
    """
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    folders = [places.shown(os.path.realpath(path)) for path in given if places.is_foreign(os.path.realpath(path))]
    added: dict[str, str] = {}
    for site in places.sites:
        for name in names_in(site):
            path = os.path.join(site, name)
            if name.endswith(".pth"):
                added[name] = file_digest(path)
            elif name.endswith(".dist-info") and (text := _offers(os.path.join(path, "entry_points.txt"))):
                added[name] = text
    return {"path": folders, "added": added}


def _offers(path: str) -> str:
    """The digest of a package's entry points, if a framework or gradgate loads one of them; else ""."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    groups = [line[1:-1] for line in text.splitlines() if line.startswith("[") and line.endswith("]")]
    return digest(text) if any(group.startswith(PLUGINS) for group in groups) else ""
