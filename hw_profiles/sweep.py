"""Many cells on any executor: local processes, or the workers of a Dask cluster; a worker that dies loses nothing."""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gradgate.hw_profiles import torch_memory
from gradgate.hw_profiles.compile import LIMIT, measure_traced
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.profile import load
from gradgate.hw_profiles.traced import LoweringError, Traced, trace

MEASURED = ("limit", "cache", "use_cache")
"""Options of a cell that its measurement takes; every other one is for its tracing."""


@dataclass(frozen=True)
class Cell:
    """One measurement to make; it must be picklable.

    Attributes:
        program: the program, or its name ``"pkg.mod:fn"``.
        profile: a profile's name, or the path of a TOML file that every worker can read.
        arguments: as ``measure`` takes them; None means that ``program(**static)`` is a factory, called in the
            worker, that returns the program and its arguments, and perhaps a dict of further ``options``. A factory's
            cells stay small: plain numbers travel.
        static: keyword arguments, bound before tracing (or the factory's).
        options: further keyword arguments of ``measure``: x64, donate, mesh, in_specs, limit, …
        framework: ``jax``, or ``torch``, whose programs are run by ``torch_memory.measure``; of the options, ``limit``,
            ``track``, ``around``, the scope in which it is run, and ``kept``, a function that gives further fields of
            the measurement, count there.
        label: anything that tells the caller which cell this is; not used here.
    """

    program: Callable[..., Any] | str
    profile: str
    arguments: tuple[Any, ...] | None = None
    static: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    framework: str = "jax"
    label: Any = None


def measure_cell(cell: Cell) -> Measurement:
    """Measure one cell in this process; what the program or its factory raises becomes the status ``failed``.

    Besides the limit of its compilation, the whole cell may take twice that limit, so that a program that hangs
    while it is traced ends as well; in a thread (a Dask worker) only the compilation is limited.
    """
    try:
        with _deadline(2 * float(cell.options.get("limit", LIMIT))):
            if cell.framework == "torch":
                figures, kept = _once(_run, cell)
                return replace(torch_memory.on_profile(figures, cell.profile), **kept)
            options = {name: value for name, value in cell.options.items() if name in MEASURED}
            return measure_traced(_once(_trace, cell), cell.profile, **options)
    except _Overdue as error:
        return replace(_failed(cell, str(error)), status="timeout")
    except torch_memory.Refusal as error:
        return replace(_failed(cell, str(error)), status="refused")
    except (LoweringError, torch_memory.ProgramError) as error:
        return _failed(cell, str(error))
    except (Exception, SystemExit) as error:
        return _failed(cell, f"{type(error).__name__}: {error}")


def _once(make: Callable[[Cell], Any], cell: Cell) -> Any:
    """What a cell's program comes to, which no profile changes: made once for cells that differ in the profile only.

    The last four are kept, since a sweep asks for the profiles of one program one after the other. Only factories
    that are told in plain JSON are: nothing else says cheaply that two cells are the same.
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


def _trace(cell: Cell) -> Traced:
    program, arguments, static, options = _program(cell)
    return trace(program, arguments, static=static, **{k: v for k, v in options.items() if k not in MEASURED})


def _run(cell: Cell) -> Any:
    program, arguments, static, options = _program(cell)
    with options.get("around", contextlib.nullcontext()):
        figures = torch_memory.run(partial(program, **static), arguments, options.get("track", ()))
    return figures, options.get("kept", dict)()


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
    task: Callable[[Cell], Measurement] = measure_cell,
) -> Iterator[tuple[Cell, Measurement]]:
    """Measure cells in parallel and yield each with its measurement as soon as it is there, in any order.

    Args:
        cells: what to measure.
        executor: any ``concurrent.futures`` executor; it is not shut down. None starts local processes.
        workers: number of local processes; default: the processors.
        task: what is run for a cell; a picklable function.

    A cell whose worker died is tried once more; if it dies again, or the task raises, its measurement has the
    status ``failed`` and a reason. A local process that dies takes its whole pool with it: the pool is started
    anew, and the cells that were running are tried one by one, each in a process of its own, so that an innocent
    one isn't blamed.
    """
    if executor is not None:
        yield from _on(executor, list(cells), task)
        return
    rest, size = list(cells), workers or os.cpu_count() or 1
    while rest:
        lost: list[Cell] = []
        with _pool(size) as pool:
            for cell, result in _collect(pool, rest, task):
                if isinstance(result, Measurement):
                    yield cell, result
                elif isinstance(result, BrokenExecutor):
                    lost.append(cell)
                else:
                    yield cell, _failed(cell, f"{type(result).__name__}: {result}")
        # Cells are started in order, so the first of the lost ones are those that were running.
        rest = lost[size:]
        for cell in lost[:size]:
            yield cell, _alone(cell, task)


@contextlib.contextmanager
def dask_executor(scheduler: str) -> Iterator[Executor]:
    """Open an executor on the workers of a Dask cluster, whose scheduler listens at ``tcp://host:port``.

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
        yield executor


@contextlib.contextmanager
def slurm_executor(*, local: bool = False) -> Iterator[Executor]:
    """Open an executor whose tasks SLURM runs, by executorlib: steps of the allocation that this process is in.

    Outside of an allocation, each task is a job of its own, for which executorlib needs ``pysqa`` and ``h5py`` too.

    Args:
        local: processes of this machine in place of jobs, to try it out.

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
    """The executor that a word on the command line names: ``tcp://host:port`` of Dask, ``slurm``, or ``local-jobs``.

    Raises:
        ImportError, OSError: on entering, as `dask_executor` and `slurm_executor`.
    """
    if scheduler in ("slurm", "local-jobs"):
        return slurm_executor(local=scheduler == "local-jobs")
    return dask_executor(scheduler)


def _on(
    executor: Executor, cells: list[Cell], task: Callable[[Cell], Measurement]
) -> Iterator[tuple[Cell, Measurement]]:
    """Use the caller's executor; whatever it loses is submitted once more."""
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
    """Yield each cell with its measurement or the exception that came instead; last, in order, what broke."""
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
    with _pool(1) as pool:
        _, result = next(_collect(pool, [cell], task))
    if isinstance(result, Measurement):
        return result
    if isinstance(result, BrokenExecutor):
        return _failed(cell, "the worker process died twice on this cell")
    return _failed(cell, f"{type(result).__name__}: {result}")


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    # Not forked: JAX and the compilers have threads, which a fork would leave in the middle of things.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_prepare_quietly)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


class _Overdue(BaseException):
    """Not an Exception, so that no program's own handler swallows it."""


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise ``_Overdue`` in a program that hangs while it is traced; possible in a process's main thread only."""
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
    # The device that is measured is never this machine's own, and its absence is no news.
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"


def _prepare_quietly() -> None:
    _prepare()
    silence = os.open(os.devnull, os.O_WRONLY)  # what programs and plug-ins print would tear the caller's own output
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
