"""The process that measures and judges one side: ``python -m gradgate.suites.gate.side``, in that side's overlay.

It reads requests, a line of JSON each, and answers with lines of JSON. ``{"side": …}`` lists what this side has.
``{"figure": …}`` and ``{"verdict": …}`` are sent one by one, as soon as each is known. ``{"record": …}`` says which
files ran (`gate.ran`), and ``{"notes": …}`` why results cannot be kept. ``{"answered": true}`` ends an answer;
``{"usage": …}`` and ``{"broken": …}`` end it with a sentence. All requests are about one tree, so what is judged is
imported once. The process ends when its parent ends, with all processes that it started.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradgate.hw_profiles.recording import Record

Send = Callable[[dict[str, Any]], None]


class Side:
    """One tree as this process imports it, and what its methods depend on."""

    def __init__(self, request: dict[str, Any]) -> None:
        from gradgate.suites.gate import manifest
        from gradgate.suites.keeping.keys import Keys
        from gradgate.suites.settings import Settings

        self.request = request
        self.settings = Settings.read(Path.cwd())
        self.methods = {
            g.declared.key: g for g in manifest.gated(self.settings, request["own"], request.get("base", False))
        }
        if not request["own"]:
            self._need_own_files()
        self.keys = Keys(Path.cwd(), self.settings.depends)
        self._sent: set[str] = set()

    def describe(self) -> dict[str, Any]:
        """The gated cells and claims of this side, and the toolchain.

        Raises:
            UsageError: a pair of the head is wrong at every problem. The base may have one: the change may mend it.
        """
        from gradgate.references import loading
        from gradgate.suites.gate.declared import facts
        from gradgate.suites.pairs.calls import check_calls
        from gradgate.suites.pairs.pair import Pair

        cells, tasks = [], []
        for known in () if self.request.get("base", False) else self.methods.values():
            if isinstance(pair := loading.load(known.declared.implementation), Pair):
                check_calls(pair)
        for known in self.methods.values():
            cells += [cell.to_dict() for cell in known.cells(self.settings.profiles)]
            tasks += [asdict(task) for task in known.tasks(self.settings.profiles)]
        return {
            "methods": sorted(self.methods),
            "cells": cells,
            "tasks": tasks,
            "fingerprint": self.keys.fingerprint,
            "left_out": {key: dict(getattr(g.declared, "left_out", {})) for key, g in self.methods.items()},
            "declared": {key: facts(known.declared) for key, known in self.methods.items()},
            "run": {"examples": self.settings.examples, "seed": self.settings.seed},
            "allow": self.settings.allow,
            "named": {key: sorted(known.named()) for key, known in self.methods.items()},
        }

    def record(self) -> dict[str, Any]:
        """What this process has imported; {} if the trees are not known."""
        from gradgate.suites.gate import ran

        return dict(ran.record(Path(self.request["tree"]))) if self.request.get("tree") else {}

    def measure(self, rows: list[dict[str, Any]], send: Send) -> None:
        """Send a figure for every cell; kept figures are sent first."""
        from gradgate.hw_profiles.profile import ProfileError, load
        from gradgate.references.contract import UsageError
        from gradgate.suites.gate import manifest
        from gradgate.suites.keeping.figures import Figures
        from gradgate.suites.measuring import cells

        figures, asked = Figures(self.keys), {}

        def answer(row: dict[str, Any], cell: cells.MethodCell, measured: Any, reused: bool) -> None:
            found = {**cells.row(cell, measured), "cell": row, "reused": reused}
            send({"figure": found} | self._ran(measured.record, measured.record))

        for row in rows:
            try:
                cell = manifest.from_dict(row, self.methods)
                if cell is None:
                    raise UsageError(f"there is no method {manifest.owner(row)}")
                load(row["profile"])
            except (UsageError, ProfileError) as error:
                send({"figure": {"cell": row, "status": "failed", "reason": str(error)}})
                continue
            known = figures.get(cell.declared, cell.to_dict())
            if known is not None:
                answer(row, cell, known, reused=True)
            else:
                asked[id(cell)] = row, cell
        waiting = [cell for _, cell in asked.values()]
        for cell, measured in cells.measure(waiting, workers=self.request["jobs"], limit=self.request["limit"]):
            figures.put(cell.declared, cell.to_dict(), measured)
            answer(asked[id(cell)][0], cell, measured, reused=False)
        self.keys.imports.parsed.keep()
        _need_kept(figures.answers)
        send({"notes": figures.answers.not_kept("figures")})

    def verify(self, rows: list[dict[str, Any]], send: Send) -> None:
        """Send a verdict for every task; kept verdicts are sent first."""
        from gradgate.suites.judging.run import Run
        from gradgate.suites.judging.verdict import Task
        from gradgate.suites.keeping.verdicts import Verdicts
        from gradgate.suites.workers.supervisor import Limits, Supervisor

        limits = Limits(self.request["timeout"])
        asked_run = self.request.get("run", {"examples": self.settings.examples, "seed": self.settings.seed})
        run = Run(**asked_run, limit=0.75 * limits.seconds)  # the base is judged as the head is
        methods = {key: known.declared for key, known in self.methods.items()}
        verdicts, asked = Verdicts(run, self.keys, methods=methods), {}
        for row in rows:
            task = Task(**row)
            known = verdicts.get(task)
            if known is not None:
                send({"verdict": {**known.to_dict(), "reused": True}} | self._ran(known.record, verdicts.readings))
            else:
                asked[task.name, task.profile] = task
        with Supervisor(run, self.request["jobs"], limits) as supervisor:
            for verdict in supervisor.judge_all(asked.values()):
                verdicts.put(verdict, asked[verdict.task.name, verdict.profile], supervisor.readings)
                row = {**verdict.to_dict(), "reused": False}
                send({"verdict": row} | self._ran(verdict.record, supervisor.readings))
        self.keys.imports.parsed.keep()
        _need_kept(verdicts.answers)
        send({"notes": verdicts.answers.not_kept("verdicts")})

    def _need_own_files(self) -> None:
        """Check that every method is imported from this tree: otherwise both sides would measure the same copy.

        Raises:
            UsageError: one of them is not among the project's files.
        """
        from gradgate.references.contract import UsageError
        from gradgate.references.loading import module_of

        tree = Path(self.request.get("tree") or Path.cwd()).resolve()
        for known in self.methods.values():
            place = known.declared.implementation.rpartition(":")[0]
            file = getattr(module_of(place), "__file__", None)
            if file is None or not Path(file).resolve().is_relative_to(tree):
                raise UsageError(
                    f"{place} is not among the project's files; [tool.gradgate] path names folders such as src"
                )

    def _ran(self, identities: Iterable[str], readings: Record) -> dict[str, Any]:
        """Which files of the tree these readings name, as a part of an event; {} if an earlier event had them all."""
        from gradgate.suites.gate import ran

        new = [identity for identity in identities if identity not in self._sent]
        if not new or not self.request.get("tree"):
            return {}
        self._sent.update(new)
        tree = Path(self.request["tree"])
        return {"record": dict(ran.of_readings([readings[identity] for identity in new], tree, Path.cwd()))}


def _need_kept(answers: Any) -> None:
    """Say so if the cache cannot be written: an interrupted gate could not go on.

    Raises:
        CannotKeep: an answer could not be written.
    """
    from gradgate.suites.keeping.store import CannotKeep

    if answers.failed:
        raise CannotKeep(answers.failed)


class Server:
    """Answers requests about one tree."""

    def __init__(self, send: Send) -> None:
        """Import nothing yet.

        Args:
            send: sends an event.
        """
        self.send = send
        self._side: Side | None = None

    def serve(self, request: dict[str, Any]) -> None:
        """Answer one request. Every error is sent as an event."""
        from gradgate.hw_profiles.profile import ProfileError
        from gradgate.references.contract import UsageError
        from gradgate.suites.keeping.store import CannotKeep

        try:
            if self._side is None:
                self._side = Side(request)
            side = self._side
            side.request = request
            if request.get("describe", True):
                self.send({"side": side.describe()})
            if "measure" in request:
                side.measure(request["measure"], self.send)
            if "verify" in request:
                side.verify(request["verify"], self.send)
            if record := side.record():
                self.send({"record": record})
            self.send({"answered": True})
        except (UsageError, ProfileError) as error:
            self.send({"usage": str(error)})
        except CannotKeep as error:
            self.send({"broken": str(error)})
        except BaseException as error:  # foreign code may raise anything, SystemExit too
            traceback.print_exc()
            self.send({"broken": f"{type(error).__name__}: {error}"})


def main() -> None:
    """Serve the requests on standard input. Answers go to standard output, all other output to standard error."""
    import json

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        text, began = b"", False
        while more := os.read(0, 1 << 16):
            *lines, text = (text + more).split(b"\n")
            for line in lines:
                began = True
                asked.put(line)
        if not began:  # the parent ended before it had asked
            os._exit(0)
        os.killpg(0, signal.SIGKILL)  # the parent has ended; this process leads its own group

    def send(event: dict[str, Any]) -> None:
        replies.write(json.dumps(event, default=str) + "\n")
        replies.flush()

    threading.Thread(target=listen, daemon=True).start()
    server = Server(send)
    while True:
        server.serve(json.loads(asked.get()))


if __name__ == "__main__":
    main()
