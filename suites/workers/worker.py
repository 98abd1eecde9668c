"""The process in which foreign code runs. It takes tasks as lines of JSON, and answers with events as lines of JSON.

Events: ``{"call": {…}}`` before each call of foreign code and ``{"call": null}`` after it; ``{"progress": n}`` while a
claim is judged; then ``{"verdict": {…}}``, or ``{"elsewhere": "…"}`` with the device of the process that has to judge
it. ``{"described": […]}`` answers a request to describe, and ``{"legal": true}`` a request to check a Spec; either may
get ``{"usage": "…"}``. ``{"warm": true}`` answers a request to import what a description and a first gradient need. An
answer also says what the process has read (`_read`). The supervisor kills this process when a call lasts too
long; events that were sent before are not lost.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import gc
import json
import os
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any, TextIO

from gradgate.hw_profiles import recording
from gradgate.suites.pairs.devices import elsewhere
from gradgate.suites.workers.variables import PIPE_CLOSED

COLLECTION = (50_000, 10, 10)
"""Thresholds of the garbage collector. Tracing makes many small objects, and collecting them at Python's own thresholds
takes a sixth of the time of a claim in JAX."""

MAPPINGS = 30_000
"""Number of memory mappings above which compiled programs are dropped. Linux allows a process 65,530. Each XLA program
on the CPU takes one to three hundred, and compiling past the limit is a segmentation fault."""
RESIDENT = 4 * 2**30
"""Bytes of resident memory above which they are dropped, too, if nothing else is said."""


def main(receive: TextIO, send: Callable[[dict[str, Any]], None]) -> None:
    """Serve requests until the supervisor closes the pipe."""
    from gradgate.references.contract import UsageError
    from gradgate.suites.judging.subject import Fault, what_happened

    sent: set[str] = set()

    def watch(call: dict[str, Any] | None) -> None:
        send({"call": call})

    warnings.simplefilter("ignore")  # the warnings of methods are not shown
    for line in receive:
        try:
            send(_serve(json.loads(line), send, watch) | _read(sent))
        except UsageError as error:
            send({"usage": str(error)})
        except Fault as fault:
            send({"fault": str(fault)})
        except Exception as error:
            traceback.print_exc()
            send({"fault": f"the check itself failed, please report it: it {what_happened(error)}"})


def _read(sent: set[str]) -> dict[str, Any]:
    """What this process has read up to now.

    Returns:
        ``record``, the identities of all readings; ``readings``, those that were not `sent` before; ``loaded``,
        gradgate's modules in these.
    """
    record = recording.recorded()
    new = {identity: reading for identity, reading in record.items() if identity not in sent}
    sent |= new.keys()
    loaded = {name: text for reading in new.values() for name, text in reading.get("judges", {}).items()}
    return {"record": list(record), "readings": new, "loaded": loaded}


def _serve(
    request: dict[str, Any], send: Callable[[dict[str, Any]], None], watch: Callable[..., None]
) -> dict[str, Any]:
    from gradgate.references import registry
    from gradgate.references.backends import to_backend, transforms
    from gradgate.suites.imports import strings_of
    from gradgate.suites.judging.verdict import Task

    if "warm" in request:
        with contextlib.suppress(Exception):  # the worker that describes it reports any error
            described = _serve({"describe": request["warm"]}, send, watch)["described"]
            for framework in {task["framework"] for task in described}:
                transforms(framework).grad(lambda x: x * x)(to_backend(framework, 1.0, "float32"))
        return {"warm": True}
    if "spec" in request:
        origin, spec = request["spec"]
        watch({"importing": origin})
        try:
            registry.spec_class(registry.family(origin).name).from_json(spec)
        finally:
            watch(None)
        return {"legal": True}
    if "describe" in request:
        target, family, framework = request["describe"]
        methods = [_subject(target, family, "", framework, watch).declared] if family else _offered(target, watch)
        tasks = [Task.of(method, claim, target if family else "") for method in methods for claim in method.claims]
        tasks = [task for task in tasks if framework in (None, task.framework)]
        places = {method.key: strings_of(method) for method in methods}
        return {"described": [dataclasses.asdict(task) for task in tasks], "places": places}

    def progress(judged: int) -> None:
        send({"progress": judged})
        if judged % 10 == 0:
            relieve(request["keep"])

    from gradgate.suites.engine.search import judge, not_installed  # a wrong declaration is refused without these
    from gradgate.suites.judging.run import Run

    relieve(request["keep"])
    task = Task(**request["task"])
    if task.origin:
        watch({"importing": task.origin})
        registry.family(task.origin)
        watch(None)
    absent = not_installed(task)
    if absent is not None:
        return {"verdict": absent.to_dict()}
    subject = _subject(task.target, task.family, task.method, task.framework, watch)
    collect_rarely()
    if device := elsewhere(subject.function):
        return {"elsewhere": device}
    verdict = judge(task, subject, Run(**request["run"]), progress)
    return {"verdict": verdict.to_dict()}


def collect_rarely() -> None:
    """From now on, collect garbage at the thresholds `COLLECTION`, and never visit what is alive: mostly modules."""
    if gc.get_threshold() == COLLECTION:
        return
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION)


def relieve(keep: int = RESIDENT) -> None:
    """Drop JAX's compiled programs before memory mappings run out, or if the process is larger than `keep` bytes.

    They are compiled again on demand. The C library gives freed memory back to the system only when told to.
    """
    try:
        with open("/proc/self/maps", "rb") as maps:
            mappings = sum(1 for _ in maps)
        with open("/proc/self/statm", encoding="ascii") as sizes:
            resident = int(sizes.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux: no such limit
        return
    if (mappings > MAPPINGS or resident > keep) and "jax" in sys.modules:
        from gradgate.references.backends import forget_programs

        forget_programs()
        sys.modules["jax"].clear_caches()
        gc.collect()
        with contextlib.suppress(AttributeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)


@functools.lru_cache(maxsize=64)
def _subject(target: str, family: str, method: str, framework: str | None, watch: Callable[..., None]) -> Any:
    # Kept, so that all claims of one method share its compiled programs.
    from gradgate.references import registry
    from gradgate.references.contract import UsageError
    from gradgate.suites.judging.frames import last_frames
    from gradgate.suites.judging.subject import Fault, Subject
    from gradgate.suites.pairs.calls import failed_import

    if not target:
        return Subject.load(registry.methods(family, method, framework)[0], watch)
    registry.family(family)
    watch({"importing": target})
    try:
        declared = registry.plugged_in(target, family, framework)
    except UsageError:
        raise
    except BaseException as error:
        raise Fault(failed_import(target, error), last_frames(error, target)) from error
    finally:
        watch(None)
    return Subject.load(declared, watch)


def _offered(target: str, watch: Callable[..., None]) -> list[Any]:
    """The methods of the pairs and classes that a target offers, whose declarations are checked."""
    from gradgate.suites.pairs import calls

    watch({"importing": target})
    try:
        return [method for family in calls.offered(target) for method in family.methods]
    finally:
        watch(None)


def _end_with_supervisor(requests: int) -> None:
    """Wait until the other end of the pipe is closed, then end this process and all that it started.

    This is needed because a supervisor that was killed cannot stop a call that hangs.
    """
    poll = select.poll()
    poll.register(requests, 0)
    [(_, what)] = poll.poll()
    if what & select.POLLHUP:
        os.killpg(0, signal.SIGKILL)


def run(arguments: list[str]) -> None:
    """Serve until the supervisor closes the pipe; `arguments` are the file descriptors to read and to write."""
    reader, writer, own = os.fdopen(int(arguments[0])), os.fdopen(int(arguments[1]), "w"), os.getpid()
    threading.Thread(target=_end_with_supervisor, args=(reader.fileno(),), daemon=True).start()

    def write(event: dict[str, Any]) -> None:
        """Write one event, and flush at once: after a crash, only what was flushed is left."""
        if os.getpid() != own:  # the method forked and returned twice: only the parent answers
            os._exit(0)
        try:
            writer.write(json.dumps(event, default=str) + "\n")
            writer.flush()
        except OSError:
            os._exit(PIPE_CLOSED)

    main(reader, write)
