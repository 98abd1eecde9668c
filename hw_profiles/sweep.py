"""Measure many cells on any executor: local processes or a cluster. If a worker dies, its cells are measured again."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gradgate.hw_profiles import processes, recording, torch_memory
from gradgate.hw_profiles.compile import LIMIT, measure_traced
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.profile import load
from gradgate.hw_profiles.traced import LoweringError, Traced, trace

MEASURED = ("limit", "cache", "use_cache")
"""Options of a cell that are for its measurement; all other options are for its tracing."""


@dataclass(frozen=True)
class Cell:
    """One measurement to make; it must be picklable.

    Attributes:
        program: the program, or its name ``"pkg.mod:fn"``.
        profile: a profile's name, or the path of a TOML file that every worker can read.
        arguments: as ``measure`` takes them; None means that ``program(**static)`` is a factory, called in the
            worker, that returns the program and its arguments, and perhaps a dict of further ``options``. With a
            factory, a cell is small: only plain numbers are sent to the worker.
        static: keyword arguments, bound before tracing (or the factory's).
        options: further keyword arguments of ``measure``: x64, donate, mesh, in_specs, limit, …; and ``further``, a
            function that returns more fields of the measurement, and sentences as its ``reason``.
        framework: ``jax`` or ``torch``. For PyTorch programs, only these options are used: ``limit``, ``further``,
            ``track``, ``around`` (the scope in which the program is run), and ``count`` (the function of `torch_memory`
            that runs it, ``run`` by default).
        label: anything by which the caller recognises the cell; it is not used here.
    """

    program: Callable[..., Any] | str
    profile: str
    arguments: tuple[Any, ...] | None = None
    static: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    framework: str = "jax"
    label: Any = None


def measure_cell(cell: Cell) -> Measurement:
    """Measure one cell in this process; if the program or its factory raises, the status is ``failed``.

    One compilation may take ``limit`` seconds, and the whole cell twice that time, so that a program that hangs while
    it is traced is stopped too. In a thread (a Dask worker), only the compilation has a limit.
    """
    try:
        with _deadline(2 * float(cell.options.get("limit", LIMIT))):
            if cell.framework == "torch":
                figures, further = _once(_run, cell)
                return _with(torch_memory.on_profile(figures, cell.profile), further)
            options = {name: value for name, value in cell.options.items() if name in MEASURED}
            traced, further = _once(_trace, cell)
            return _with(measure_traced(traced, cell.profile, **options), further)
    except _Overdue as error:
        return replace(_failed(cell, str(error)), status="timeout")
    except torch_memory.Refusal as error:
        return replace(_failed(cell, str(error)), status="refused")
    except (LoweringError, torch_memory.ProgramError) as error:
        return _failed(cell, str(error))
    except (Exception, SystemExit) as error:
        return _failed(cell, f"{type(error).__name__}: {error}")


def measure_recorded(cell: Cell) -> Measurement:
    """As `measure_cell`; the measurement also has the record of what this process has read."""
    return replace(measure_cell(cell), record=recording.recorded())


def _once(make: Callable[[Cell], Any], cell: Cell) -> Any:
    """The part of a cell's result that does not depend on the profile, computed once for cells that differ only in it.

    The last four results are kept, because a sweep measures the profiles of one program one after the other. A result
    is kept only if the cell can be written as plain JSON; for other cells, a comparison would be expensive.
    """
    try:
        key = json.dumps([make.__name__, cell.program, cell.arguments, cell.static, cell.options], sort_keys=True)
    except (TypeError, ValueError):
        return make(cell)
    if key not in _MADE:
        while len(_MADE) > 3:
            del _MADE[next(iter(_MADE))]
        _MADE[key] = make(cell)
    return _MADE[key]


_MADE: dict[str, Any] = {}


def _with(found: Measurement, further: Mapping[str, Any]) -> Measurement:
    """A measurement with further fields; their reason comes after its own."""
    reasons = [reason for reason in (found.reason, further.get("reason", "")) if reason]
    return replace(found, **{**further, "reason": "; ".join(reasons)})


def _trace(cell: Cell) -> tuple[Traced, Mapping[str, Any]]:
    program, arguments, static, options = _program(cell)
    further = options.pop("further", dict)
    traced = trace(program, arguments, static=static, **{k: v for k, v in options.items() if k not in MEASURED})
    return traced, further()


def _run(cell: Cell) -> Any:
    program, arguments, static, options = _program(cell)
    with options.get("around", contextlib.nullcontext()):
        count = options.get("count", torch_memory.run)
        figures = count(partial(program, **static), arguments, options.get("track", ()))
    return figures, options.get("further", dict)()


def _program(cell: Cell) -> tuple[Callable[..., Any], Any, Mapping[str, Any], dict[str, Any]]:
    program = _resolve(cell.program) if isinstance(cell.program, str) else cell.program
    if cell.arguments is not None:
        return program, cell.arguments, cell.static, dict(cell.options)
    program, arguments, *more = program(**cell.static)
    options = dict(cell.options)
    for further in more:
        options |= further
    return program, arguments, {}, options


def run(
    cells: Iterable[Cell],
    executor: Executor | None = None,
    *,
    workers: int | None = None,
    task: Callable[[Cell], Measurement] = measure_recorded,
) -> Iterator[tuple[Cell, Measurement]]:
    """Measure cells in parallel, and yield each cell with its measurement as soon as it is done, in any order.

    Args:
        cells: what to measure.
        executor: any ``concurrent.futures`` executor; it is not shut down. None starts local processes.
        workers: number of local processes; default: the processors.
        task: the function that is run for a cell; it must be picklable.

    A cell whose worker died is tried once more. If the worker dies again, or the task raises, the measurement has the
    status ``failed`` and a reason. If a local process dies, its whole pool ends with it: the pool is started again, and
    the cells that were running are tried one by one, each in a separate process, so that only the cell that kills its
    process fails.
    """
    if executor is not None:
        yield from _on(executor, list(cells), task)
        return
    rest, size = list(cells), workers or os.cpu_count() or 1
    while rest:
        lost: list[Cell] = []
        with processes.pool(size, _prepare_quietly) as pool:
            for cell, result in _collect(pool, rest, task):
                if isinstance(result, Measurement):
                    yield cell, result
                elif isinstance(result, BrokenExecutor):
                    lost.append(cell)
                else:
                    yield cell, _failed(cell, f"{type(result).__name__}: {result}")
        # Cells are started in order, so the first of the lost cells are those that were running.
        rest = lost[size:]
        for cell in lost[:size]:
            yield cell, _alone(cell, task)


@contextlib.contextmanager
def dask_executor(scheduler: str) -> Iterator[Executor]:
    """Open an executor on the workers of a Dask cluster whose scheduler listens at ``tcp://host:port``.

    If it has no worker yet, a warning is logged: what is submitted waits until one comes.

    Raises:
        ImportError: dask.distributed is not installed.
        OSError: no scheduler answers there.
    """
    try:
        from distributed import Client, WorkerPlugin
    except ImportError as error:
        raise ImportError("a Dask cluster needs dask.distributed: pip install 'gradgate[dask]'") from error

    class Prepare(WorkerPlugin):  # on workers that start later, too
        def setup(self, worker: Any) -> None:
            _prepare()

    with Client(scheduler) as client, client.get_executor(pure=False) as executor:
        client.register_plugin(Prepare(), name="gradgate")
        if not client.nthreads():
            waiting = "%s has no worker yet: the work waits until one is started with `dask worker %s`"
            logging.getLogger(__name__).warning(waiting, scheduler, scheduler)
        yield executor


@contextlib.contextmanager
def slurm_executor(*, local: bool = False) -> Iterator[Executor]:
    """Open an executor of executorlib whose tasks SLURM runs, as steps of the allocation of this process.

    Outside of an allocation, each task is a separate job, for which executorlib needs ``pysqa`` and ``h5py`` too.

    Args:
        local: use processes of this machine in place of jobs, as a test.

    Raises:
        ImportError: executorlib is not installed.
    """
    try:
        import executorlib
    except ImportError as error:
        raise ImportError("SLURM needs executorlib: pip install executorlib pyzmq") from error
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # jobs inherit it
    inside = "SLURM_JOB_ID" in os.environ
    slurm = executorlib.SlurmJobExecutor if inside else executorlib.SlurmClusterExecutor
    with (executorlib.SingleNodeExecutor if local else slurm)() as executor:
        yield executor


def cluster_executor(scheduler: str) -> contextlib.AbstractContextManager[Executor]:
    """The executor for a name on the command line: ``tcp://host:port`` of Dask, ``slurm``, or ``local-jobs``.

    Raises:
        ImportError, OSError: on entering, as for `dask_executor` and `slurm_executor`.
    """
    if scheduler in ("slurm", "local-jobs"):
        return slurm_executor(local=scheduler == "local-jobs")
    return dask_executor(scheduler)


def _on(
    executor: Executor, cells: list[Cell], task: Callable[[Cell], Measurement]
) -> Iterator[tuple[Cell, Measurement]]:
    """Use the caller's executor; cells that it loses are submitted once more."""
    again: list[Cell] = []
    for cell, result in _collect(executor, cells, task):
        if isinstance(result, Measurement):
            yield cell, result
        else:
            again.append(cell)
    for cell, result in _collect(executor, again, task):
        if isinstance(result, Measurement):
            yield cell, result
        else:
            yield cell, _failed(cell, f"lost twice by the executor: {type(result).__name__}: {result}")


def _collect(
    executor: Executor, cells: list[Cell], task: Callable[[Cell], Measurement]
) -> Iterator[tuple[Cell, Measurement | BaseException]]:
    """Yield each cell with its measurement or its exception; cells of a broken executor come last, in order."""
    futures: dict[Future[Measurement], int] = {}
    broken: dict[int, BaseException] = {}
    for place, cell in enumerate(cells):
        try:
            futures[executor.submit(task, cell)] = place
        except RuntimeError as error:  # the executor broke or was shut down meanwhile
            broken[place] = error
    for future in as_completed(futures):
        place = futures[future]
        failure = RuntimeError("the cell was cancelled") if future.cancelled() else future.exception()
        if isinstance(failure, BrokenExecutor):
            broken[place] = failure
        else:
            yield cells[place], future.result() if failure is None else failure
    for place in sorted(broken):
        yield cells[place], broken[place]


def _alone(cell: Cell, task: Callable[[Cell], Measurement]) -> Measurement:
    with processes.pool(1, _prepare_quietly) as pool:
        _, result = next(_collect(pool, [cell], task))
    if isinstance(result, Measurement):
        return result
    if isinstance(result, BrokenExecutor):
        return _failed(cell, "the worker process died twice on this cell")
    return _failed(cell, f"{type(result).__name__}: {result}")


class _Overdue(BaseException):
    """Not an Exception, so that no handler in a program catches it."""


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise ``_Overdue`` in a program that hangs while it is traced; works only in the main thread of a process."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def overdue(*_: object) -> None:
        raise _Overdue(f"the cell did not end within {seconds:g} s: raise the limit or shrink the program")

    previous = signal.signal(signal.SIGALRM, overdue)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _prepare() -> None:
    # The measured device is never one of this machine, so its absence needs no warning.
    constants = {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    os.environ.update(constants)
    recording.install().constants = frozenset(constants)


def _prepare_quietly() -> None:
    _prepare()
    silence = os.open(os.devnull, os.O_WRONLY)  # else programs and plug-ins print into the caller's output
    os.dup2(silence, 1)
    os.dup2(silence, 2)


def _resolve(name: str) -> Callable[..., Any]:
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"{name!r} does not name a program; legal: 'pkg.mod:fn'")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{name!r} is a {type(found).__name__}; a program must be callable")
    return found


def _failed(cell: Cell, reason: str) -> Measurement:
    try:
        profile = load(cell.profile)
    except ValueError as error:
        return Measurement(cell.profile, "failed", str(error), fingerprint=fingerprint())
    return Measurement(profile.name, "failed", reason, fingerprint=fingerprint(profile))
