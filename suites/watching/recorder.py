"""What runs inside a watched program: it writes every distinct call of a handwritten derivative into a folder.

This module imports neither framework. It waits until the program imports one, and then wraps the entry points of custom
derivatives (`in_torch`, `in_jax`). A wrapped entry point looks at its arguments, copies them if no such call was seen
before, and calls the original with the same objects. So no result changes. What fails in here is written down, and the
program goes on.

A call is a file of JSON, which says what was seen, beside a file that only a worker reads (`portable`). Both are named
after a hash of the call, so that processes that share the folder write each call once.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = "GRADGATE_WATCH"
"""The environment variable that names the folder, in every process of a watched command."""
ENTRANCES = {
    "torch.autograd.function": ("gradgate.suites.watching.in_torch", "wrap"),
    "torch._functorch.autograd_function": ("gradgate.suites.watching.in_torch", "wrap_transforms"),
    "torch.utils.checkpoint": ("gradgate.suites.watching.in_torch", "wrap_checkpoints"),
    "torch._tensor": ("gradgate.suites.watching.in_torch", "wrap_hooks"),
    "torch.nn.modules.module": ("gradgate.suites.watching.in_torch", "wrap_module_hooks"),
    "jax._src.custom_derivatives": ("gradgate.suites.watching.in_jax", "wrap"),
    "jax._src.custom_batching": ("gradgate.suites.watching.in_jax", "wrap"),
    "jax._src.ad_checkpoint": ("gradgate.suites.watching.in_jax", "wrap_checkpoints"),
    "jax._src.lax.control_flow.solves": ("gradgate.suites.watching.in_jax", "wrap_solvers"),
}
"""The module of a framework that has entry points -> the function that wraps them, once that module is imported."""
MOST_CALLS = 6
"""Distinct calls of one rule that are written; the others are only counted."""
BEYOND = "beyond "
"""Begins the names under which the other calls of a rule are counted."""
MOST_NUMBERS = 2**20
"""A call whose arrays have more numbers is only counted: it would be neither cheap to copy nor possible to judge."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """A handwritten derivative.

    Attributes:
        framework: ``jax`` or ``torch``.
        kind: what declares it, such as ``autograd.Function`` or ``custom_vjp``.
        name: ``package.module:qualified.name``.
        file, line: where its backward pass is written.
    """

    framework: str
    kind: str
    name: str
    file: str
    line: int

    @property
    def title(self) -> str:
        """The last part of the name, as an identifier."""
        short = self.name.rpartition(":")[2].replace("<locals>.", "").rpartition(".")[2]
        return "".join(c if c.isalnum() or c == "_" else "_" for c in short) or "rule"


@dataclasses.dataclass(frozen=True)
class Array:
    """An array among the arguments of a call.

    Attributes:
        values: NumPy; a narrow float as float32. None: the call was traced, and had none.
        shape: its shape.
        dtype: the framework's name of its dtype, without the framework.
        differentiated: whether the program could ask for its gradient.
    """

    values: Any
    shape: tuple[int, ...]
    dtype: str
    differentiated: bool

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class Recorder:
    """The calls of one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts: dict[str, int] = {}
        self.known: dict[Rule, int] = {}
        self.beyond: dict[Rule, str] = {}
        self.failed: dict[str, str] = {}
        self._names: dict[Any, str] = {}
        self._lock = threading.Lock()
        self._busy = threading.local()

    def __reduce__(self) -> Any:
        """In another process, what holds this one, such as a module with a hook that is watched, records nothing."""
        return Deaf, ()

    def look(self, at: Callable[..., None], *given: Any) -> None:
        """Call a function that may record; nothing that fails in it reaches the program.

        What this module itself calls is not recorded.
        """
        busy = self._busy
        if getattr(busy, "now", False):
            return
        busy.now = True
        try:
            at(self, *given)
        except Exception as error:
            self.failed.setdefault(type(error).__name__, str(error)[:300])
            self.flush()
        finally:
            busy.now = False

    def saw(self, rule: Rule, key: Any, write: Callable[[], Call]) -> None:
        """Count a call, and write it if it is the first of its kind.

        Args:
            rule: the rule that was called.
            key: what distinguishes this call of the rule from others: shapes, dtypes, options; hashable.
            write: makes the copy of the call.
        """
        name = self._names.get((rule, key))
        if name is None:
            with self._lock:
                name = self._name(rule, key, write)
        count = self.counts[name] = self.counts.get(name, 0) + 1
        if count & (count - 1) == 0:  # the last numbers of a process that is killed are lost, and most are not
            self.flush()

    def _name(self, rule: Rule, key: Any, write: Callable[[], Call]) -> str:
        """The name of a call's files, which are written if nobody did; `BEYOND` for what is only counted.

        A program may call a rule with another option each time, so nothing is stored of a call that is only counted.
        """
        known = self.known.get(rule, 0)
        if known == MOST_CALLS:
            return self.beyond.setdefault(rule, f"{BEYOND}{len(self.beyond)}")
        digest = hashlib.sha256(repr((rule.name, rule.file, rule.line, key)).encode()).hexdigest()[:12]
        name = self._names[rule, key] = f"{rule.title}_{digest}"
        self.known[rule] = known + 1
        if not (self.folder / f"{name}.json").exists():
            self._write(rule, name, write())
        return name

    def flush(self) -> None:
        """Write the numbers of calls."""
        with contextlib.suppress(OSError):
            beyond = [[dataclasses.asdict(rule), self.counts.get(name, 0)] for rule, name in [*self.beyond.items()]]
            counts = {name: count for name, count in [*self.counts.items()] if not name.startswith(BEYOND)}
            document = {"counts": counts, "beyond": beyond, "failed": self.failed}
            draft = self.folder / f".counts-{os.getpid()}"
            draft.write_text(json.dumps(document), encoding="utf-8")
            draft.replace(self.folder / f"counts-{os.getpid()}.json")

    def _write(self, rule: Rule, name: str, call: Call) -> None:
        from gradgate.suites.watching import portable

        unreachable = call.unreachable
        if not unreachable:
            try:
                data = portable.dumps(call.rule, call.arguments, call.keywords, call.originals)
                (self.folder / f"{name}.pickle").write_bytes(data)
            except Exception as error:
                unreachable = f"it cannot be moved to another process: {type(error).__name__}: {str(error)[:200]}"
        document = {
            **dataclasses.asdict(rule),
            "arguments": call.shown,
            "traced": call.traced,
            "test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0],
            "path": [os.path.abspath(folder) for folder in sys.path],
            "unreachable": unreachable,
            "devices": call.devices,
        }
        draft = self.folder / f".{name}-{os.getpid()}"
        draft.write_text(json.dumps(document, indent=1), encoding="utf-8")
        draft.replace(self.folder / f"{name}.json")


class Deaf:
    """What takes the place of a recorder in the process that judges."""

    def look(self, *_: Any) -> None:
        """Record nothing."""


@dataclasses.dataclass(frozen=True)
class Call:
    """The copy of a call.

    Attributes:
        rule: what is called, as `portable` moves it.
        arguments, keywords: of the call, with an `Array` in the place of every array.
        shown: each argument in a word or two.
        traced: whether an array had no values.
        unreachable: why the call cannot be judged elsewhere; "" if it can.
        originals: arrays of the call with their copies, as `portable.dumps` needs them.
        devices: as a pair declares them: what can run the kernels that the rule launches.
    """

    rule: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    shown: list[str]
    traced: bool = False
    unreachable: str = ""
    originals: tuple[tuple[Any, Array], ...] = ()
    devices: tuple[str, ...] = ()


def location(*functions: Any) -> tuple[str, int]:
    """File and first line of the first of these functions that is written in Python outside of the frameworks."""
    for function in functions:
        while hasattr(function, "__wrapped__") or hasattr(function, "func"):
            function = getattr(function, "__wrapped__", None) or function.func
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, types.CodeType) and not of_framework(code.co_filename):
            return code.co_filename, code.co_firstlineno
    return "", 0


def of_framework(file: str) -> bool:
    """Whether a file belongs to JAX or PyTorch."""
    roots = [getattr(sys.modules.get(name), "__file__", None) for name in ("jax", "torch")]
    return any(root and file.startswith(os.path.dirname(root) + os.sep) for root in roots)


def option(value: Any) -> Any:
    """What distinguishes an argument that is no array, hashable: a plain value itself, else its type."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return type(value).__name__, value
    if isinstance(value, (tuple, list)):
        return type(value).__name__, *map(option, value)
    return type(value).__qualname__, getattr(value, "__qualname__", "")


def shown(value: Any) -> str:
    """An argument in a word or two."""
    if isinstance(value, Array):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)[:40]
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(shown, value))})"
    return type(value).__qualname__


# Starting and stopping ------------------------------------------------------------------------------------------------


class _Entrances(importlib.abc.MetaPathFinder):
    """Wraps a framework's entry points when their module has been imported."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._searching = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The specification that another finder gives, whose loader wraps the module's entry points at the end."""
        if name not in ENTRANCES or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def executed(module: types.ModuleType) -> None:
            execute(module)
            _wrap(name, self.recorder)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _wrap(name: str, recorder: Recorder) -> None:
    module, function = ENTRANCES[name]
    _STOP.append(getattr(importlib.import_module(module), function)(sys.modules[name], recorder))


_STOP: list[Callable[[], None]] = []
"""What ends the recording in this process."""


def start(folder: str | None = None) -> Recorder | None:
    """Record from now on into a folder: the given one, or that of the environment; None if there is none.

    A process that records already goes on as it does.
    """
    place = folder or os.environ.get(FOLDER)
    if not place or _STOP:
        return None
    recorder = Recorder(Path(place))
    recorder.flush()  # an empty file: this process is watched
    finder = _Entrances(recorder)
    sys.meta_path.insert(0, finder)
    atexit.register(recorder.flush)
    _STOP.extend((lambda: sys.meta_path.remove(finder), recorder.flush))
    for name in ENTRANCES:
        if name in sys.modules:
            _wrap(name, recorder)
    return recorder


def stop() -> None:
    """Record no longer, and leave the frameworks as they were."""
    while _STOP:
        _STOP.pop()()


def is_recording() -> bool:
    """Whether this process records."""
    return bool(_STOP)
