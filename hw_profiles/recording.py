"""What a process read while it judged or measured: files, modules, packages, environment variables.

A verdict is true of the code and the data that the process really used. Which ones these were cannot be guessed from
the text of a module: imports are computed, files are opened, variables are read. So `install` observes the process from
its start. An audit hook sees every file that is opened, every folder that is listed, every library that is loaded,
every process that is started and every connection; `os.environ` records the variables that are read; `os.stat` records
which files were looked for and where links lead.

What a process has read is a list of *readings*. Each holds what is new since the reading before, so the readings of a
later verdict begin with those of an earlier one. A module stays imported, so everything that was read before a verdict
counts for it.

What is not recorded, and why:

- Python's own library: the fingerprint has its version.
- gradgate's data files: they change with its code, which is hashed apart.
- Folders that only this program or a framework writes: its cache, and what PyTorch, Triton and Hypothesis keep.
- Files that native code opens without Python, and does not keep in memory as maps: no hook sees them. A project names
  them in ``depends``.

This module imports only Python's own library, because it runs before everything else.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib._bootstrap_external as bootstrap
import importlib.util
import json
import os
import stat
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

SITES = ("site-packages", "dist-packages")
"""Names of folders of installed packages."""
PARTS = ("gradgate", "gradgate.suites", "gradgate.references", "gradgate.hw_profiles")
"""The packages that hold gradgate's modules."""
TOOLCHAIN = frozenset(
    (
        *("torch", "torchgen", "functorch", "triton", "cuda"),  # with CUDA, PyTorch imports cuda, which asks ldconfig
        *("jax", "jaxlib", "jax_plugins", "libtpu", "numpy", "scipy", "ml_dtypes", "opt_einsum"),
        *("sympy", "networkx", "hypothesis", "pytest", "_pytest", "pluggy", "flint", "platformdirs"),
        "tqdm",  # PyTorch imports it, and it loops over all variables to find its own
    )
)
"""Packages whose processes, connections and listings concern the machine and not the judged code."""
COMPILES_FILES = "cpp_extension"
"""The module of the toolchain that starts compilers on an author's files. No hook sees what a compiler reads."""
SYSTEM = ("/usr/lib", "/lib")
"""Where the system's own libraries keep data, such as locales, which they map by themselves."""
RESOLVES = ("_joinrealpath", "realpath")
"""Functions that ask for each folder of a path. What they follow is recorded, and what is opened there afterwards."""
METADATA = os.path.join("importlib", "metadata")
"""The module that lists every folder of the import path if a program asks for the version of a package."""
MACHINE = ("/proc/", "/sys/", "/dev/", "/etc/ld.so")
"""Where files are about the machine. They change at any time, and no gradient with them."""
SCRATCH = (f"{os.sep}.hypothesis{os.sep}", f"{os.sep}torchinductor_", f"{os.sep}.triton{os.sep}", "__pycache__")
"""Parts of paths at which a framework keeps files of its own."""
QUESTIONS = frozenset(("exists", "isfile", "isdir", "is_file", "is_dir", "access", "lstat"))
"""Functions of Python's library that tell only whether a file is there, and of which kind."""
ALWAYS = ("sitecustomize", "usercustomize")
"""Modules that Python itself looks for when it starts."""
LINKS = "GRADGATE_LINKS"
"""The environment variable with the folder of links in which the gate arranges the import path of one side."""
SHELL = ("_", "OLDPWD", "SHLVL")
"""Variables that a shell sets anew for each command. A program that loops over all variables reads them, too."""
OF_A_RUN = ("PWD", "GITHUB_", "RUNNER_", "ACTIONS_", "CI_")
"""What the names begin with of variables that differ from one folder or run of a CI to the next. A loop over all
variables does not read them; a program that asks for one by its name does.
"""
APART = ("PYTHONPATH", LINKS, "GRADGATE_CACHE", *SHELL)
"""Variables that no reading has: what they change, the import path and the cache, is compared by itself."""
WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Reading:
    """What a process read in one stretch of its life. Paths in the project's repository are relative to the project.

    Attributes:
        files: path -> sha256 of the content; "" if there was no such file.
        modules: dotted name -> path, for the modules that no installed package holds.
        judges: dotted name -> sha256, for gradgate's own modules.
        packages: installed packages, by the name of their folder or file.
        variables: environment variable -> digest of its value; "" if it was not set.
        lookups: folder -> name of a module -> the entries of the folder that could be this module.
        absent: modules that were looked for, and that no folder of installed packages held.
        probes: path -> whether it existed when this was asked.
        links: path of a link -> where it led when this was asked.
        listings: folder -> digest of the names in it.
        unrepeatable: why something cannot be compared later, such as a process that was started.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    judges: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    lookups: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    probes: Mapping[str, bool] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    listings: Mapping[str, str] = field(default_factory=dict)
    unrepeatable: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The fields that are not empty, as plain JSON types."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in named.items() if value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reading:
        """The reading of `to_json`.

        Raises:
            TypeError: the data has other fields.
        """
        named: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        return cls(**named)


Record = dict[str, dict[str, Any]]
"""Everything that a process has read: identity of a reading -> the reading as JSON, in order."""


def digest(content: bytes | str) -> str:
    """The sha256 of a text or of bytes, in hexadecimal digits."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def value_digest(value: str | None) -> str:
    """The digest of a variable's value, from which the value cannot be read; "" if the variable is not set."""
    return "" if value is None else digest("value of a variable\0" + value)[:16]


def file_digest(path: str) -> str:
    """The sha256 of a file; "" if there is none.

    Raises:
        OSError: it cannot be read, or it is neither a file nor a folder, so that its content cannot be compared.
    """
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if stat.S_ISDIR(found.st_mode):
        return "folder"
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is a pipe or a device")
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_or_unreadable(path: str) -> str:
    """The sha256 of a file; "" if there is none, and "unreadable" if it cannot be read."""
    try:
        return file_digest(path)
    except OSError:
        return "unreadable"


def names_in(folder: str) -> list[str]:
    """The names in a folder, sorted; [] if there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def candidates(names: Iterable[str], module: str) -> list[str]:
    """Which names in a folder could be a module: ``a``, ``a.py`` and ``a.cpython-311.so`` for ``a``."""
    return [name for name in names if name.partition(".")[0] == module]


class Places:
    """Which part of the machine a path belongs to.

    Attributes:
        project: the folder of the project, in which the process runs.
        root: the top of the project's repository; the project itself if it is in none.
        sites: the folders of installed packages.
    """

    def __init__(self, project: str | os.PathLike[str], gradgate: Iterable[str] | None = None) -> None:
        """Find the places.

        Args:
            project: the folder of the project.
            gradgate: the folders of gradgate's own modules; by default, those of this process.
        """
        self.project = os.path.realpath(project)
        above = [Path(self.project), *Path(self.project).parents]
        self.root = next((str(place) for place in above if (place / ".git").exists()), self.project)
        sites = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
        sites |= {path for path in sys.path if os.path.basename(path) in SITES}
        self.sites = sorted({os.path.realpath(path) for path in sites}, key=lambda path: (-len(path), path))
        library = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")}
        library |= {
            f"{os.path.dirname(path)}{os.sep}python{sys.version_info[0]}{sys.version_info[1]}.zip" for path in library
        }
        self._library = tuple({form + os.sep for path in library for form in (path, os.path.realpath(path))})
        inside = gradgate_folders() if gradgate is None else gradgate
        self._links = os.environ.get(LINKS, "")
        links = [self._links] if self._links else []
        self._gradgate = tuple({os.path.realpath(folder) + os.sep for folder in [*inside, *links]})
        self._shared: dict[tuple[str, str], bool] = {}
        self._passed: dict[str, bool] = {}

    def package(self, path: str) -> str:
        """The installed package of a file, as ``numpy``, ``six.py`` or ``nvidia/cuda_nvcc``; "" if it is in none.

        A folder that is no package itself can hold parts of several, so the folder below it is taken.
        """
        for site in self.sites:
            if path.startswith(site + os.sep):
                first, *rest = path[len(site) + 1 :].split(os.sep)
                if (site, first) not in self._shared:
                    init = os.path.join(site, first, "__init__.py")
                    self._shared[site, first] = "." not in first and not os.path.exists(init)
                return f"{first}/{rest[0]}" if len(rest) > 1 and self._shared[site, first] else first
        return ""

    def is_library(self, path: str) -> bool:
        """Whether a file is part of Python itself."""
        return (path + os.sep).startswith(self._library) and not self.package(path)

    def is_scratch(self, path: str) -> bool:
        """Whether a file is about the machine, or in a folder that a framework or this program writes."""
        return (path + os.sep).startswith((*MACHINE, *_caches())) or any(part in path for part in SCRATCH)

    def is_links(self, path: str) -> bool:
        """Whether a file is in the folder of links of the gate, whose finder asks for each module once more."""
        return bool(self._links) and path.startswith(self._links + os.sep)

    def is_foreign(self, path: str) -> bool:
        """Whether a file counts by its own content: it is none of the others, and of no installed package."""
        known = (path + os.sep).startswith(self._gradgate) or self.is_scratch(path) or self.is_library(path)
        return not known and not self.package(path)

    def shown(self, path: str) -> str:
        """A path as it stands in a reading: relative to the project if it is in the project's repository."""
        inside = path == self.root or path.startswith(self.root + os.sep)
        return os.path.relpath(path, self.project) if inside else path

    def owner(self, frame: FrameType | None) -> str:
        """Whose code the nearest frame outside of Python's library is: ``gradgate``, a package, or "" for an author."""
        while frame is not None:
            file = frame.f_code.co_filename
            passed = self._passed.get(file)
            if passed is None:  # a traceback asks for the state of each of its files
                passed = file.startswith("<frozen") or self.is_library(file) or file == __file__
                self._passed[file] = passed
            if not passed:
                return "gradgate" if is_judge(_module(frame)) else self.package(file).partition(os.sep)[0]
            frame = frame.f_back
        return "gradgate"  # Python's own start, or a thread of its library


def gradgate_folders() -> list[str]:
    """The folders of gradgate's own modules. They are found without importing any of them."""
    specs = [importlib.util.find_spec(name) for name in PARTS]
    return [folder for spec in specs if spec is not None for folder in spec.submodule_search_locations or ()]


def is_judge(module: str) -> bool:
    """Whether a module is one of gradgate's own."""
    return module == "gradgate" or module.startswith("gradgate.")


def _module(frame: FrameType) -> str:
    spec = frame.f_globals.get("__spec__")  # a worker is __main__ by name
    return str(getattr(spec, "name", "") or frame.f_globals.get("__name__", ""))


def _caches() -> tuple[str, ...]:
    """The folders in which gradgate and frameworks keep what they made, on Linux and on macOS."""
    home = os.path.expanduser("~")
    above = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return _below((above, os.path.join(home, "Library", "Caches")), os.environ.get("GRADGATE_CACHE", ""))


@functools.cache
def _below(caches: tuple[str, ...], own: str) -> tuple[str, ...]:
    folders = [os.path.join(folder, name) for folder in caches for name in ("gradgate", "torch", "matplotlib")]
    return tuple(os.path.realpath(folder) + os.sep for folder in [*folders, *([own] if own else [])])


class Recorder:
    """Records what this process reads, from `install` on.

    Attributes:
        places: the places on this machine.
        constants: environment variables that whoever started this process sets, so that they need no comparison.
        record: the readings so far; `read` adds to it.
    """

    def __init__(self, places: Places) -> None:
        """Record nothing yet.

        Args:
            places: the places on this machine.
        """
        self.places = places
        self.constants: frozenset[str] = frozenset()
        self.record: Record = {}
        self._thread = threading.local()
        self._modules_seen: set[str] = set()
        self._names = dict.fromkeys(ALWAYS)
        self._wanted: set[str] = set()
        self._judges: dict[str, str] = {}
        self._executed: dict[str, str] = {}
        self._appended: dict[str, str] = {}
        self._opened: dict[str, tuple[int, ...]] = {}
        self._written: set[str] = set()
        self._packages: dict[str, None] = {}
        self._finders: dict[str, None] = {}
        self._listed: dict[str, None] = {}
        self._probes: dict[str, bool] = {}
        self._links: dict[str, str] = {}
        self._variables: dict[str, str] = {}
        self._variables_written: set[str] = set()
        self._reasons: dict[str, None] = {}
        self._reported: dict[str, dict[Any, Any]] = {each.name: {} for each in fields(Reading)}

    @contextlib.contextmanager
    def unheard(self) -> Iterator[bool]:
        """The scope in which this thread's own reading is not recorded; gives False if it was in one already."""
        before = getattr(self._thread, "busy", False)
        self._thread.busy = True
        try:
            yield not before
        finally:
            self._thread.busy = before

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take one audit event. It runs inside of the call that raised the event, so it raises nothing itself."""
        handler = _HANDLERS.get(event)
        if handler is None:
            return
        with self.unheard() as first:
            if not first:
                return
            try:
                handler(self, event, arguments)
            except Exception as error:  # what could not be recorded must not be believed
                self._reasons[f"{event} could not be recorded ({type(error).__name__}: {error})"] = None

    def execute(self, module: str, path: str, content: bytes) -> None:
        """Record the text of a module that runs now, whatever its file holds later."""
        if is_judge(module):
            self._judges[module] = digest(content)
        else:
            self._executed.update(dict.fromkeys(_forms(path), digest(content)))

    def look_for(self, module: str, caller: FrameType) -> None:
        """Record that a module is looked for: by an import, or by `importlib.util.find_spec`, which raises no event."""
        with self.unheard() as first:
            if first:
                self._names[module] = None
                if self._is_authors(caller) and not self.places.is_links(caller.f_code.co_filename):
                    self._wanted.add(module)

    def probe(
        self, path: object, there: bool, caller: FrameType, place_of: Callable[[str], str] = os.path.realpath
    ) -> None:
        """Record that somebody asked whether a file exists, or for more that `os.stat` tells, such as its size.

        For the second, the file counts as read. `place_of` gives the path that was asked about: links are followed.
        """
        with self.unheard() as first:
            if not first or not isinstance(path, str | bytes | os.PathLike) or not self._is_authors(caller):
                return
            if not os.fsdecode(path):  # "" is never there, and its absolute path is the current folder
                return
            real = place_of(os.fsdecode(path))
            if METADATA in caller.f_code.co_filename and real in self.places.sites:
                self._listed[real] = None  # its names are those that an earlier caller has listed, if it is unchanged
            if real in self._written or not self.places.is_foreign(real):
                return
            if any(cache.startswith(real + os.sep) for cache in _caches()):  # it is there after the first run
                return
            self._probes.setdefault(real, there)
            if there and not os.path.isdir(real) and not self._asks_only(caller):
                self._opened.setdefault(real, _state(real))

    def follow(self, link: object, target: str | bytes, caller: FrameType) -> None:
        """Record where a link leads, which somebody has asked."""
        with self.unheard() as first:
            if not first or not isinstance(link, str | bytes | os.PathLike) or not self._is_authors(caller):
                return
            place = os.path.abspath(os.fsdecode(link))
            if place not in self._written and self.places.is_foreign(place):
                self._links.setdefault(place, os.fsdecode(target))

    def _is_authors(self, caller: FrameType) -> bool:
        return self.places.owner(caller) not in {"gradgate", *TOOLCHAIN}

    def _asks_only(self, frame: FrameType | None) -> bool:
        """Whether a function that only asks for a file's existence is between an author's code and this frame."""
        while frame is not None:
            file = frame.f_code.co_filename
            if not file.startswith("<frozen") and not self.places.is_library(file) and file != __file__:
                return False
            if frame.f_code.co_name in QUESTIONS:
                return True
            frame = frame.f_back
        return False

    def get_variable(self, name: str, value: str | None) -> None:
        """Record that a variable was read."""
        if name in self._variables or name in self._variables_written or name in APART:
            return
        with self.unheard() as first:
            if first and self.places.owner(sys._getframe(2)) != "gradgate":
                self._variables[name] = value_digest(value)

    def set_variable(self, name: str) -> None:
        """Record that a variable was changed: what is read from now on does not come from outside.

        gradgate itself only puts back the value from outside.
        """
        with self.unheard():
            judge = self.places.owner(sys._getframe(2)) == "gradgate"
        (self._variables_written.discard if judge else self._variables_written.add)(name)

    def read(self) -> Record:
        """Add what is new as one more reading; returns all readings so far."""
        with self.unheard():
            new = Reading.from_json({name: self._new(name, value) for name, value in self._everything().items()})
            data = new.to_json()
            if data:
                self.record[digest(json.dumps(data, sort_keys=True))] = data
            return dict(self.record)

    def _open(self, _: str, arguments: tuple[Any, ...]) -> None:
        """A file is opened; the event comes before the opening."""
        path, mode, flags = (*arguments, None, 0)[:3]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        real = os.path.realpath(os.fsdecode(path))
        if os.path.basename(real).startswith("<"):  # the name of a text that is in no file, looked up for a traceback
            return
        package = self.places.package(real)
        if package and not real.endswith(".pyc") and ".dist-info" not in package:
            self._packages[package] = None
        if package or not self.places.is_foreign(real):
            return
        flags = flags if isinstance(flags, int) else 0
        if isinstance(mode, str) and set(mode) & set("wax+"):  # C's own fopen gives a mode alone
            flags |= os.O_RDWR if "+" in mode else os.O_WRONLY
            flags |= os.O_TRUNC if set(mode) & set("wx") else 0
        writes = flags & WRITING
        if writes and not flags & (os.O_TRUNC | os.O_EXCL) and real not in self._written:
            self._appended[real] = digest_or_unreadable(real)
        if real in self._appended and writes != os.O_WRONLY:
            self._executed.update(dict.fromkeys(_forms(path), self._appended[real]))
        if writes:
            self._written.add(real)
        elif real not in self._written:
            for form in _forms(path):
                self._opened.setdefault(form, _state(form))

    def _make(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A link is made, or a file that this process has written gets its name."""
        source, made = (os.path.abspath(os.fsdecode(path)) for path in arguments[:2])
        if event == "os.symlink" or os.path.realpath(source) in self._written:
            self._written.update((made, os.path.join(os.path.realpath(os.path.dirname(made)), os.path.basename(made))))

    def _connect(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A database of SQLite is opened, in a file or in memory."""
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes | os.PathLike) else ""
        path = path.removeprefix("file:").partition("?")[0] if path.startswith("file:") else path
        if path and path != ":memory:":
            self._open(event, (path, None, os.O_RDWR))

    def _import(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A module is looked for, or a compiled one is loaded from a file."""
        name, file = (*arguments, None)[:2]
        if isinstance(name, str):
            self._names[name] = None
        if isinstance(file, str) and file:
            self._open(event, (file, "rb", 0))

    def _load(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A library is loaded. One without a path comes from the system."""
        if arguments and isinstance(arguments[0], str) and os.sep in arguments[0]:
            self._open(event, (arguments[0], "rb", 0))

    def _list(self, _: str, arguments: tuple[Any, ...]) -> None:
        """A folder is listed, by the import machinery or by somebody's code."""
        path = arguments[0] if arguments and arguments[0] is not None else "."
        if not isinstance(path, str | bytes | os.PathLike):
            return
        real = os.path.realpath(os.fsdecode(path))
        if not self.places.is_foreign(real + os.sep):
            return
        caller = _outside(sys._getframe(1))
        if caller is not None and "importlib._bootstrap_external" in caller.f_code.co_filename:
            self._finders[real] = None
        elif caller is not None and METADATA in caller.f_code.co_filename and real not in self.places.sites:
            return  # it looks for installed packages; what else comes into this folder, such as a report, is no matter
        elif self.places.owner(caller) not in {"gradgate", *TOOLCHAIN}:
            self._listed[real] = None

    def _leave(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A process is started or a connection is opened: what comes back cannot be compared later."""
        caller = _outside(sys._getframe(1))
        if self.places.owner(caller) in {"gradgate", *TOOLCHAIN} and not _compiles_files(caller):
            return
        what = "it used the network" if event in CONNECTIONS else "it started a process"
        self._reasons[f"{what} ({event}{_first_word(arguments)})"] = None

    def _everything(self) -> dict[str, Any]:
        """Every field of a reading, with what is known of it up to now."""
        modules = self._modules()
        for path in _mapped_data():
            if path not in self._written and not path.startswith(SYSTEM) and self.places.is_foreign(path):
                self._opened.setdefault(path, _state(path))
        listings = {self.places.shown(folder): digest("\0".join(names_in(folder))) for folder in self._listed}
        lookups, absent = self._lookups()
        files = self._files()
        probes = {self.places.shown(path): there for path, there in self._probes.items()}
        return {
            "files": files,
            "modules": modules,
            "judges": self._judges,
            "packages": self._packages,
            "variables": {name: value for name, value in self._variables.items() if name not in self.constants},
            "lookups": lookups,
            "absent": absent,
            "probes": {path: there for path, there in probes.items() if path not in files},
            "links": {self.places.shown(link): target for link, target in self._links.items()},
            "listings": listings,
            "unrepeatable": self._reasons,
        }

    def _new(self, name: str, value: Mapping[Any, Any]) -> Any:
        """The entries of a field that no reading has, or has otherwise."""
        reported = self._reported[name]
        new = {key: entry for key, entry in value.items() if reported.get(key, reported) != entry}
        reported.update(new)
        return list(new) if name in ("packages", "absent", "unrepeatable") else new

    def _modules(self) -> dict[str, str]:
        """Find the files of newly imported modules; returns those of foreign ones."""
        found = {}
        for name in [name for name in list(sys.modules) if name not in self._modules_seen]:
            self._modules_seen.add(name)
            file = _file_of(sys.modules.get(name))
            if not file:
                continue
            real = os.path.realpath(file)
            own = str(getattr(getattr(sys.modules[name], "__spec__", None), "name", name))  # a worker is __main__
            if is_judge(own):
                self._judges.setdefault(own, file_digest(real))
            elif package := self.places.package(real):
                self._packages[package] = None
            elif not self.places.is_library(real) and not self.places.is_scratch(real) and os.path.exists(real):
                found[name] = self.places.shown(real)
                if real not in self._executed:
                    self._opened.setdefault(real, _state(real))
        return found

    def _files(self) -> dict[str, str]:
        """The digests of all files: of a module, the text that was run; of any other, the content now.

        A file that has changed since it was opened is a reason not to believe the rest.
        """
        found = {}
        for path, before in list(self._opened.items()):
            if path in self._executed:
                continue
            shown = self.places.shown(path)
            if shown in self._reported["files"] and _state(path) == before:
                found[shown] = self._reported["files"][shown]
                continue
            try:
                found[shown] = file_digest(path)
            except OSError as error:
                self._reasons[f"it read {shown}, which cannot be compared later ({error})"] = None
                continue
            if _state(path) != before:
                self._reasons[f"{shown} changed while it was read"] = None
        return found | {self.places.shown(path): text for path, text in self._executed.items()}

    def _lookups(self) -> tuple[dict[str, dict[str, list[str]]], dict[str, None]]:
        """Where new modules were looked for: in each folder, what could be the module; and those that are nowhere."""
        names, self._names = self._names, {}
        folders = [os.path.realpath(path or os.curdir) for path in sys.path]
        folders += [folder for folder in self._finders if folder not in folders]
        foreign = [folder for folder in folders if os.path.isdir(folder) and self.places.is_foreign(folder + os.sep)]
        listed = functools.cache(names_in)
        found: dict[str, dict[str, list[str]]] = {}
        absent: dict[str, None] = {}
        for name in names:
            parent, _, last = name.rpartition(".")
            if parent:
                inside = getattr(sys.modules.get(parent), "__path__", None) or ()
                searched = [os.path.realpath(path) for path in inside if isinstance(path, str)]
                searched = [folder for folder in searched if self.places.is_foreign(folder + os.sep)]
            else:
                searched = foreign
                if name not in sys.modules:
                    there = [(site, entry) for site in self.places.sites for entry in candidates(listed(site), name)]
                    if not there:
                        absent[name] = None
                    elif name in self._wanted:  # it was found, and not imported
                        self._packages.update(dict.fromkeys(entry for place in there if (entry := _whole(*place))))
            for folder in searched:
                found.setdefault(self.places.shown(folder), {})[last] = candidates(listed(folder), last)
        known: dict[str, Any] = self._reported["lookups"]  # a folder has entries in several readings
        return {folder: known.get(folder, {}) | entries for folder, entries in found.items()}, absent


class RecordedEnvironment(os._Environ[str]):
    """`os.environ`, which records what is read of it. Copying all of it for another process is not reading it."""

    recorder: Recorder
    copied = ""
    """The variable whose value a loop over all of them takes next."""

    def __getitem__(self, key: str) -> str:
        """The value of a variable.

        Raises:
            KeyError: it is not set.
        """
        if key != self.copied and isinstance(key, str):
            data: Any = self._data  # type: ignore[attr-defined]
            value = data.get(self.encodekey(key))
            self.recorder.get_variable(key, None if value is None else self.decodevalue(value))
        self.copied = ""
        return str(super().__getitem__(key))

    def __setitem__(self, key: str, value: str) -> None:
        """Change a variable."""
        super().__setitem__(key, value)
        self.recorder.set_variable(key)

    def __delitem__(self, key: str) -> None:
        """Remove a variable.

        Raises:
            KeyError: it is not set.
        """
        super().__delitem__(key)
        self.recorder.set_variable(key)

    def __iter__(self) -> Iterator[str]:
        """The names of all variables."""
        owner = self.recorder.places.owner(sys._getframe(1))
        for key in super().__iter__():
            if owner in {"gradgate", *TOOLCHAIN} or key.startswith(OF_A_RUN):
                self.copied = key
            yield key
        self.copied = ""


class RecordedBytes(os._Environ[bytes]):
    """`os.environb`, the same variables as bytes."""

    recorder: Recorder

    def __getitem__(self, key: bytes) -> bytes:
        """The value of a variable.

        Raises:
            KeyError: it is not set.
        """
        if isinstance(key, bytes):
            value = self._data.get(key)  # type: ignore[attr-defined]
            self.recorder.get_variable(os.fsdecode(key), None if value is None else os.fsdecode(value))
        return bytes(super().__getitem__(key))


def install() -> Recorder:
    """Record what this process reads from now on. A second call returns the same recorder.

    Modules that are not in Python's library or an installed package are compiled from their text from now on:
    bytecode that lies beside them may be that of another text.

    Cost: 4% of the time of a typical judgement. An audit hook cannot be removed.
    """
    if not _INSTALLED:
        recorder = Recorder(Places(os.getcwd()))
        _INSTALLED.append(recorder)
        sys.addaudithook(recorder.hear)
        _record_modules(recorder)
        _record_stat(recorder)
        for environment, recording in _environments():
            environment.recorder = recorder
            environment.__class__ = recording
    return _INSTALLED[0]


def _environments() -> Iterator[tuple[Any, type]]:
    yield os.environ, RecordedEnvironment
    if os.supports_bytes_environ:
        yield os.environb, RecordedBytes


def recorded() -> Record:
    """Everything that this process has read up to now; {} if `install` was not called."""
    return _INSTALLED[0].read() if _INSTALLED else {}


_INSTALLED: list[Recorder] = []


class Listener:
    """The first finder of every import. It finds nothing, and records what is looked for."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Record the name."""
        self.recorder.look_for(name, sys._getframe(1))


def _record_modules(recorder: Recorder) -> None:
    """Take the text of foreign modules only from their source, and record it and what is looked for."""
    sys.meta_path.insert(0, Listener(recorder))
    loader: Any = bootstrap.SourceFileLoader
    kept_code: Callable[[Any, str], CodeType] = loader.get_code

    def get_code(self: Any, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        with recorder.unheard():
            real = os.path.realpath(path)
            installed = recorder.places.package(real) or recorder.places.is_library(real)
            if installed or (is_judge(fullname) and _is_newer(importlib.util.cache_from_source(path), path)):
                return kept_code(self, fullname)
            content: bytes = self.get_data(path)
            recorder.execute(fullname, path, content)
        code: CodeType = self.source_to_code(content, path)
        return code

    loader.get_code = get_code


def _record_stat(recorder: Recorder) -> None:
    """Record for which files `os.stat`, `os.lstat`, `os.access` and `os.readlink` are called."""
    original = os.stat

    @functools.wraps(original)
    def recorded_stat(path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        try:
            found = original(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        except (FileNotFoundError, NotADirectoryError):
            recorder.probe(path, False, sys._getframe(1))
            raise
        recorder.probe(path, True, sys._getframe(1))
        return found

    for able in (os.supports_dir_fd, os.supports_follow_symlinks, os.supports_fd):
        able.add(recorded_stat)
    os.stat = recorded_stat
    permitted, led, seen = os.access, os.readlink, os.lstat

    @functools.wraps(seen)
    def lstat(path: Any, *, dir_fd: int | None = None) -> os.stat_result:
        resolves = sys._getframe(1).f_code.co_name in RESOLVES
        try:
            found = seen(path, dir_fd=dir_fd)
        except (FileNotFoundError, NotADirectoryError):
            if not resolves:
                recorder.probe(path, False, sys._getframe(), os.path.abspath)
            raise
        if not resolves:
            recorder.probe(path, True, sys._getframe(), os.path.abspath)
        return found

    @functools.wraps(permitted)
    def access(path: Any, mode: int, **more: Any) -> bool:
        found = permitted(path, mode, **more)
        recorder.probe(path, found or os.path.exists(path), sys._getframe())
        return found

    @functools.wraps(led)
    def readlink(path: Any, *, dir_fd: int | None = None) -> Any:
        target = led(path, dir_fd=dir_fd)
        recorder.follow(path, target, sys._getframe(1))
        return target

    for able in (os.supports_dir_fd, os.supports_effective_ids, os.supports_follow_symlinks):
        if permitted in able:
            able.add(access)
    os.supports_dir_fd.update((readlink, lstat))
    os.access, os.readlink, os.lstat = access, readlink, lstat


def _is_newer(path: str, than: str) -> bool:
    """Whether a file was written after the last change of another, whose times of modification may be forged."""
    try:
        return os.stat(path).st_mtime_ns > os.stat(than).st_ctime_ns
    except OSError:
        return False


def _mapped_data() -> set[str]:
    """The files that native code has mapped into memory now, as that for weights does, but for libraries.

    Only Linux tells; elsewhere none is known.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            rows = [line.rstrip("\n").split(maxsplit=5) for line in maps]
    except OSError:
        return set()
    files = [(row[1], row[5]) for row in rows if len(row) == 6 and row[5].startswith(os.sep)]
    return {path for _, path in files if os.path.isfile(path)} - {path for access, path in files if "x" in access}


def _whole(site: str, entry: str) -> str:
    """An entry of a folder of installed packages that is one package; "" for a folder that may hold parts of many."""
    folder = os.path.join(site, entry)
    return "" if os.path.isdir(folder) and not os.path.exists(os.path.join(folder, "__init__.py")) else entry


def _forms(path: str | bytes | os.PathLike[Any]) -> set[str]:
    """A path as it was given, and without links: a link may come to lead elsewhere."""
    given = os.path.abspath(os.fsdecode(path))
    return {given, os.path.realpath(given)}


def _state(path: str) -> tuple[int, ...]:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _file_of(module: object) -> str:
    """The file of a module; "" if it has none."""
    spec = getattr(module, "__spec__", None)
    file = getattr(spec, "origin", None) if getattr(spec, "has_location", False) else None
    file = file or getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


def _outside(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


def _compiles_files(frame: FrameType | None) -> bool:
    while frame is not None:
        if COMPILES_FILES in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _first_word(arguments: tuple[Any, ...]) -> str:
    word = next((word for word in arguments if isinstance(word, str) and word), "")
    return f" {word}" if word else ""


PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty")
CONNECTIONS = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "urllib.Request")
_HANDLERS: Mapping[str, Callable[[Recorder, str, tuple[Any, ...]], None]] = {
    "open": Recorder._open,
    "import": Recorder._import,
    "ctypes.dlopen": Recorder._load,
    "sqlite3.connect": Recorder._connect,
    "os.rename": Recorder._make,
    "os.symlink": Recorder._make,
    "os.listdir": Recorder._list,
    "os.scandir": Recorder._list,
    **dict.fromkeys((*PROCESSES, *CONNECTIONS), Recorder._leave),
}
"""Audit event -> what is recorded of it."""
