"""The court: one task, and as many strangers as there are."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import UsageError
from gradgate.references.loading import load
from gradgate.suites.court import problems, proxy
from gradgate.suites.court import wall as walls
from gradgate.suites.court.stranger import Gone, Nursery, Raised, Stranger
from gradgate.suites.judging.engine import judge_on
from gradgate.suites.judging.subject import Subject, first_line
from gradgate.suites.judging.verdict import Task, Verdict, finite
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.workers.variables import environment

LARGEST = 1 << 22
"""Most bytes of a candidate's text."""
SMALLER = 6
"""Most smaller problems that are tried after a refutation."""
BY_COURT = "the court: truth, inputs, cotangents and comparison are on its side of the wall"
BY_CANDIDATE = "the candidate's own process, which could lie about it: a right answer is a hint, a wrong one a fault"
HINTS = frozenset(("pure",))
"""Claims of which the court sees only what the candidate's process says."""


class Court:
    """A warm court for one task. It is a context manager: leaving it ends every process.

    A candidate is the text of a Python module, or the path of one. Its function takes what the task's reference takes
    and returns what that returns. It runs in processes of its own, behind a wall; this process never imports it. Truth,
    reference, seeds, comparison and verdict stay here. Every candidate gets other inputs.

    Args:
        task: a `gradgate.Pair`, whose function is not used and may be None, or its target, such as ``task.py:pair``.
        wall: ``auto`` takes bubblewrap where it works; ``bubblewrap`` insists on it; ``plain`` does without.
        seconds: limit for one answer, compilation included.
        memory: bytes that a candidate may use beyond what the framework takes.

    Raises:
        UsageError: the task is none for strangers, or cannot be found; or there is no such wall.

    Cost: 2 to 6 s to start, and about a second for each candidate in PyTorch; three in JAX, which compiles.

    Not for: functions that draw random numbers, modules, CUDA, and claims about bytes; the answer lists what was not
    judged.

    Example::

        with gradgate.Court("task.py:rms_norm") as court:
            answer = court.judge(text)
            reward = answer["score"]["claims"]
    """

    def __init__(self, task: Pair | str, *, wall: str = "auto", seconds: float = 20.0, memory: int = 4 * 2**30) -> None:
        self.target = task if isinstance(task, str) else ""
        self.kind = walls.chosen(wall)
        self.limits = walls.Limits(seconds=seconds, memory=memory, processor=int(6 * seconds) + 1)
        if "jax" not in sys.modules:  # the reference rounds as the candidate does only if XLA has the same flags
            os.environ["XLA_FLAGS"] = environment()["XLA_FLAGS"]
        declared = load(task) if isinstance(task, str) else task
        if not isinstance(declared, Pair):
            raise UsageError(f"{self.target} is a {type(declared).__name__}; a task is a gradgate.Pair")
        self.pair = proxy.task_of(declared, self.target.rpartition(":")[2])
        self.nursery = Nursery(self.pair.where, self.kind, _hidden(self.target))
        self._dumpable = _set_dumpable(0)
        try:
            self.nursery.start()  # it imports the framework while this process prepares the truth
            self.method = self.pair.lowered
            self.docket = problems.Docket(self.pair, self.method)
        except BaseException:
            self.close()
            raise
        self.claims, self.not_judged = problems.judged(self.method)

    def __enter__(self) -> Court:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process behind the wall."""
        self.nursery.stop()
        if "family" in vars(self.pair):
            registry.forget(self.pair.family.name)
        _set_dumpable(self._dumpable)

    def judge(self, candidate: str | Path, name: str = "", function: str = "") -> dict[str, Any]:
        """Judge one candidate.

        Args:
            candidate: the text of its module, or the path of its file.
            name: what the answer calls it; by default the file's name.
            function: the name of its function; by default ``candidate``, or else the last public one of its module.

        Returns:
            The answer, as ``gradgate schema judge`` describes one of its candidates. Whatever the candidate does is a
            verdict in it.

        Raises:
            UsageError: the file cannot be read, or is too large.
        """
        text, called = _text(candidate, name)
        began, spent = time.perf_counter(), time.process_time()
        opened: list[Stranger] = []

        def fresh() -> Stranger:
            made = self.nursery.stranger(self.limits)
            opened.append(made)
            made.ask({"do": "load", "text": text, "name": function}, (), 0)
            return made

        verdicts: list[Verdict] = []
        failed = ""
        try:
            self.pair.desk.begin(fresh(), fresh)
            verdicts = list(self._heard())
        except Raised as why:
            failed = f"its module raised {why}"
        except Gone as why:
            failed = f"while its module ran, {why}"
        finally:
            for one in opened:
                one.close()
        times = time.perf_counter() - began, time.process_time() - spent
        return self._answer(called, text, verdicts, failed, opened, times)

    def judge_all(self, candidates: Iterable[str | Path]) -> Iterator[dict[str, Any]]:
        """Judge candidates, and yield each one's answer as soon as it is known."""
        for candidate in candidates:
            yield self.judge(candidate)

    def _heard(self) -> Iterator[Verdict]:
        subject = Subject(self.method, self.pair)
        desk = self.pair.desk
        for claim in self.claims:
            task, desk.claim = Task.of(self.method, claim), claim.name
            assert desk.stranger is not None
            if desk.stranger.gone:
                yield Verdict(task, "error", reason=f"not tried: in an earlier claim {desk.stranger.gone}")
                continue
            try:
                found = judge_on(task, subject, self.docket.problems(claim))
                if found.verdict == "refuted" and found.spec:
                    found = self._smallest(task, subject, found)
            except Exception as error:  # whatever a candidate returns, it must not end the court, nor be upheld
                reason = f"the check cannot judge what it returned: {type(error).__name__}: {first_line(error)}"
                found = Verdict(task, "error", reason=reason)
            yield found

    def _smallest(self, task: Task, subject: Subject, found: Verdict) -> Verdict:
        """The verdict on the smallest problem that refutes, of a few."""
        assert found.spec is not None
        smaller = self.docket.smaller(self.pair.spec(**found.spec), found.options)
        for _, problem in zip(range(SMALLER), smaller, strict=False):
            again = judge_on(task, subject, [problem])
            if again.verdict == "refuted":
                return again
            if again.verdict == "error":
                break
        return found

    def _answer(
        self,
        name: str,
        text: str,
        verdicts: list[Verdict],
        failed: str,
        opened: list[Stranger],
        times: tuple[float, float],
    ) -> dict[str, Any]:
        rows = [_row(one) for one in verdicts]
        states = [one.verdict for one in verdicts]
        gradients = [one for one in verdicts if one.task.check == "gradient" and one.verdict == "upheld"]
        if failed or ("error" in states and "refuted" not in states):
            state = "error"
        elif "refuted" in states:
            state = "refuted"
        else:
            state = "upheld" if gradients else "inapplicable"
        worst = min(
            (one for one in verdicts if one.verdict == "refuted" and one.spec),
            default=None,
            key=lambda one: self.pair.numbers(self.pair.spec(**(one.spec or {})).fields),
        )
        first = next((one for one in verdicts if one.verdict in ("refuted", "error")), None)
        counted = [one for one in states if one != "inapplicable"]
        return {
            "name": name,
            "digest": hashlib.sha256(text.encode()).hexdigest(),
            "verdict": state,
            "reason": failed or (first.reason if first else ""),
            "claims": rows,
            "not_judged": dict(self.not_judged),
            "score": {
                "claims": states.count("upheld") / len(counted) if counted else 0.0,
                "digits_lost": {one.task.claim.removeprefix("gradient_"): finite(one.lost) for one in gradients},
                "resident_bytes": max((max(0, one.peak - one.began) for one in opened if one.peak), default=0),
                "processor_seconds": round(sum(one.processor for one in opened), 2),
                "reference_seconds": round(times[1], 2),
            },
            "counterexample": None
            if worst is None
            else {
                "claim": worst.task.claim,
                "spec": worst.spec,
                "options": worst.options,
                "leaf": worst.leaf,
                "error": finite(worst.error),
                "noise": finite(worst.noise),
            },
            "wall": {"kind": self.kind, **(opened[0].walls if opened else {})},
            "processes": len(opened),
            "calls": self.pair.desk.calls,
            "seconds": round(times[0], 3),
        }


def _row(found: Verdict) -> dict[str, Any]:
    return {
        "claim": found.task.claim,
        "statement": found.task.statement,
        "verdict": found.verdict,
        "reason": found.reason,
        "proved_by": BY_CANDIDATE if found.task.check in HINTS else BY_COURT,
        "examples": found.examples,
        "error": finite(found.error),
        "noise": finite(found.noise),
        "leaf": found.leaf,
        "seconds": round(found.seconds, 3),
    }


def _text(candidate: str | Path, name: str) -> tuple[str, str]:
    """(text, name) of a candidate.

    Raises:
        UsageError: its file cannot be read, is no text, or is too large.
    """
    if isinstance(candidate, str) and ("\n" in candidate or not candidate.endswith(".py")):
        text, called = candidate, name or "candidate"
    else:
        path = Path(candidate)
        try:
            with path.open("rb") as file:
                raw = file.read(LARGEST + 1)
            text, called = raw.decode("utf-8"), name or path.name
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{path} is not UTF-8") from None
    if len(text) > LARGEST:
        raise UsageError(f"{called} has more than {LARGEST} characters")
    return text, called


def _hidden(target: str) -> list[str]:
    """What must not be visible behind the wall, should it lie among the packages: the task's file, and gradgate."""
    import gradgate.suites

    found = [str(Path(folder).parent) for folder in gradgate.suites.__path__]
    place = target.rpartition(":")[0]
    if place.endswith(".py"):
        found.append(str(Path(place).resolve()))
    elif place:
        found += [str(Path(path).resolve()) for path in _places(place)]
    return found


def _places(module: str) -> list[str]:
    import importlib.util

    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(module.partition(".")[0])
        if spec is not None:
            return [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]
    return []


def _set_dumpable(value: int) -> int:
    """Set whether other processes of this user may read this one's memory; returns what it was. Linux alone."""
    if not os.path.exists("/proc/self/status"):
        return 1
    libc = ctypes.CDLL(None)
    before = int(libc.prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE
    libc.prctl(4, value, 0, 0, 0)
    return before
