"""The process that measures and judges one side: ``python -m gradgate.suites.gate.side``, in that side's overlay.

It reads one request, a line of JSON, and answers with lines of JSON. ``{"side": …}`` lists what this side has.
``{"figure": …}`` and ``{"verdict": …}`` are sent one by one, as soon as each is known. ``{"record": …}`` says which
files ran (`gate.ran`). ``{"usage": …}`` and ``{"broken": …}`` end the answer with a sentence. The process ends when its
parent ends, with all processes that it started.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

Send = Callable[[dict[str, Any]], None]


class Side:
    """One tree as this process imports it, and what its methods depend on."""

    def __init__(self, request: dict[str, Any]) -> None:
        from gradgate.suites.gate import manifest
        from gradgate.suites.gate.settings import Settings
        from gradgate.suites.keeping.keys import Keys, data_of
        from gradgate.suites.keeping.sources import Imports
        from gradgate.suites.keeping.store import Store

        self.request, self.store = request, Store()
        self.settings = Settings.read(Path.cwd())
        self.methods = {
            g.declared.key: g for g in manifest.gated(self.settings, request["own"], request.get("base", False))
        }
        paths, mounts = _import_path(request)
        self.imports = Imports(paths, Path.cwd(), mounts, functools.partial(_in_tree, request.get("tree", "")))
        self.keys = Keys(self.imports, data_of(Path.cwd(), self.settings.depends))
        self.fingerprint = self.keys.fingerprint

    def describe(self) -> dict[str, Any]:
        """The gated cells and claims of this side, and the toolchain."""
        from gradgate.suites.gate.declared import facts

        cells, tasks = [], []
        for known in self.methods.values():
            cells += [cell.to_dict() for cell in known.cells(self.settings.profiles)]
            tasks += [asdict(task) for task in known.tasks(self.settings.profiles)]
        return {
            "methods": sorted(self.methods), "cells": cells, "tasks": tasks, "fingerprint": self.fingerprint,
            "declared": {key: facts(known.declared) for key, known in self.methods.items()},
            "run": {"examples": self.settings.examples, "seed": self.settings.seed}, "allow": self.settings.allow,
            "named": {key: sorted(known.named()) for key, known in self.methods.items()},
        }  # fmt: skip

    def record(self) -> dict[str, Any]:
        """What this process has imported; {} if the trees are not known."""
        from gradgate.suites.gate import ran

        return dict(ran.record(Path(self.request["tree"]))) if self.request.get("tree") else {}

    def measure(self, rows: list[dict[str, Any]], send: Send) -> None:
        """Send a figure for every cell; kept figures are sent first."""
        from gradgate.hw_profiles.measurement import Measurement
        from gradgate.hw_profiles.profile import ProfileError, load
        from gradgate.references.contract import UsageError
        from gradgate.suites.gate import manifest
        from gradgate.suites.measuring import cells

        asked, keys = [], []
        for row in rows:
            try:
                cell = manifest.from_dict(row, self.methods)
                if cell is None:
                    raise UsageError(f"there is no method {manifest.owner(row)}")
                load(row["profile"])
            except (UsageError, ProfileError) as error:
                send({"figure": {"cell": row, "status": "failed", "reason": str(error)}})
                continue
            key = self.keys.figure(self._places(cell.declared), cell.to_dict())
            kept = self.store.get(key)
            if kept is not None:
                found = cells.row(cell, Measurement.from_json(kept))
                send({"figure": {**found, "cell": row, "reused": True}})
            else:
                asked.append(cell)
                keys.append((row, key))
        places = {id(cell): place for place, cell in enumerate(asked)}
        for cell, measured in cells.measure(asked, workers=self.request["jobs"], limit=self.request["limit"]):
            row, key = keys[places[id(cell)]]
            if measured.ok:
                self.store.put(key, measured.to_json())
            send({"figure": {**cells.row(cell, measured), "cell": row, "reused": False}})

    def verify(self, rows: list[dict[str, Any]], send: Send) -> None:
        """Send a verdict for every task; kept verdicts are sent first."""
        from gradgate.suites.judging.run import Run
        from gradgate.suites.judging.verdict import Task
        from gradgate.suites.workers.supervisor import Limits, Supervisor

        limits = Limits(self.request["timeout"])
        asked_run = self.request.get("run", {"examples": self.settings.examples, "seed": self.settings.seed})
        run = Run(**asked_run, limit=0.75 * limits.seconds)  # the base is judged as the head is
        asked, keys = [], {}
        for row in rows:
            task = Task(**row)
            key = self.keys.verdict(self._places(self.methods[task.owner].declared), task, run)
            keys[task.name, task.profile] = key
            kept = self.store.get(key)
            if kept is not None:
                send({"verdict": {**kept, "reused": True}})
            else:
                asked.append(task)
        with Supervisor(run, self.request["jobs"], limits) as supervisor:
            for verdict in supervisor.judge_all(asked):
                found = verdict.to_dict()
                if verdict.verdict != "error":  # this machine may have caused an error
                    self.store.put(keys[verdict.task.name, verdict.task.profile], found)
                send({"verdict": {**found, "reused": False}})

    def _places(self, declared: Any) -> list[str]:
        """The modules and files of a method.

        Raises:
            UsageError: its implementation is not among the project's files.
        """
        from gradgate.references.contract import UsageError
        from gradgate.suites.keeping.sources import strings_of

        place = declared.implementation.rpartition(":")[0]
        if self.imports.file(place) is None:  # otherwise both sides would measure an installed copy
            raise UsageError(
                f"{place} is not among the project's files; [tool.gradgate] path names folders such as src"
            )
        return strings_of(declared)


def _import_path(request: dict[str, Any]) -> tuple[list[Path], dict[str, Path]]:
    """The import path of this side, and packages that lie in the tree under another name."""
    from gradgate.suites.gate import guard

    paths = [Path(path) for path in request["paths"]]
    if not request.get("tree"):
        return paths, {}
    tree, links = Path(request["tree"]), paths[0]
    resolved = guard.Resolved.read(links / guard.RESOLVED, guard.Given.read(links / guard.GIVEN))
    mounts = {name: tree / place for name, place in resolved.packages.items()}
    return [*paths, *(Path(place) for place in sys.path if Path(place).is_relative_to(tree))], mounts


def _in_tree(tree: str, name: str) -> Path | None:
    """Where a top-level module lies in the tree, if the guard finds it there under another name."""
    import importlib.util

    spec = importlib.util.find_spec(name) if tree and name not in sys.builtin_module_names else None
    inside = None if spec is None else next(iter(spec.submodule_search_locations or ()), spec.origin)
    return Path(inside) if inside and Path(inside).is_relative_to(tree) else None


def serve(request: dict[str, Any], send: Send) -> None:
    """Answer one request. Every error is sent as an event."""
    from gradgate.hw_profiles.profile import ProfileError
    from gradgate.references.contract import UsageError
    from gradgate.suites.keeping.store import CannotKeep

    try:
        side = Side(request)
        if request.get("describe", True):  # to describe needs both frameworks, to measure needs the cells' own
            send({"side": side.describe()})
        if "measure" in request:
            side.measure(request["measure"], send)
        if "verify" in request:
            side.verify(request["verify"], send)
        if record := side.record():
            send({"record": record})
    except (UsageError, ProfileError) as error:
        send({"usage": str(error)})
    except CannotKeep as error:
        send({"broken": str(error)})
    except BaseException as error:  # foreign code may raise anything, SystemExit too
        traceback.print_exc()
        send({"broken": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Serve the request on standard input. Answers go to standard output, all other output to standard error."""
    import json

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    text = b""
    while not text.endswith(b"\n"):
        more = os.read(0, 1 << 16)
        if not more:  # the parent ended before it had asked
            return
        text += more
    request = json.loads(text)

    def send(event: dict[str, Any]) -> None:
        replies.write(json.dumps(event, default=str) + "\n")
        replies.flush()

    def listen() -> None:
        while os.read(0, 1 << 16):
            pass
        os.killpg(0, signal.SIGKILL)  # the parent has ended; this process leads its own group

    threading.Thread(target=listen, daemon=True).start()
    serve(request, send)
    replies.close()


if __name__ == "__main__":
    main()
