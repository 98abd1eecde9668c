"""The court: one task, and as many strangers as there are."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import msgspec

from gradgate.references import oracle, registry
from gradgate.references.backends import precision
from gradgate.references.contract import UsageError
from gradgate.references.loading import load
from gradgate.suites.court import benchmarks, problems, proxy
from gradgate.suites.court import wall as walls
from gradgate.suites.court.benchmarks import Benchmark
from gradgate.suites.court.stranger import Gone, Nursery, Raised, Stranger
from gradgate.suites.engine.given import judge_on
from gradgate.suites.exact import agreement, balls, truth
from gradgate.suites.judging.subject import Fault, Refuted, Subject, first_line
from gradgate.suites.judging.verdict import Task, Verdict, finite
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem
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

    A candidate is the text of a Python module, as a `str`, or its file, as a `pathlib.Path`. Its function takes what
    the task's reference takes and returns what that returns. It runs in processes of its own, behind a wall; this
    process never imports it. Truth, reference, seeds, comparison and verdict stay here. Every candidate gets other
    inputs.

    Args:
        task: a `gradgate.Pair`, whose function is not used and may be None, or its target, like ``task.py:pair``; the
            target of a class ``Model`` of KernelBench, or the path of a definition of SOL-ExecBench.
        wall: ``auto`` takes bubblewrap where it works; ``bubblewrap`` insists on it; ``plain`` does without.
        seconds: limit for one answer, compilation included.
        memory: bytes that a candidate may use beyond what the framework takes.

    Raises:
        UsageError: the task is none for strangers, or cannot be found; or there is no such wall.

    Cost: 2 to 6 s to start, and about a second for each candidate in PyTorch; three in JAX, which compiles.

    Not for: `gradgate.module_pair`, CUDA, and claims about bytes; the answer lists what was not judged.

    Example::

        with gradgate.Court("task.py:rms_norm") as court:
            answer = court.judge(text)
            reward = answer["score"]["claims"]
    """

    def __init__(self, task: Pair | str, *, wall: str = "auto", seconds: float = 20.0, memory: int = 4 * 2**30) -> None:
        self.target = task if isinstance(task, str) else ""
        self.kind = walls.chosen(wall)
        self.limits = walls.Limits(seconds=seconds, memory=memory, processor=int(6 * seconds) + 1)
        flags = os.environ.get("XLA_FLAGS")
        if "jax" not in sys.modules:  # the reference rounds as the candidate does only if XLA has the same flags
            os.environ["XLA_FLAGS"] = environment()["XLA_FLAGS"]
        declared = _declared(task) if isinstance(task, str) else task
        self.benchmark = declared if isinstance(declared, Benchmark) else None
        pair = self.benchmark.pair if self.benchmark else declared
        if not isinstance(pair, Pair):
            raise UsageError(
                f"{self.target} is a {type(declared).__name__}; a task is a gradgate.Pair, a class of KernelBench, or "
                "a definition of SOL-ExecBench"
            )
        self.pair = proxy.task_of(pair, pair.name or self.target.rpartition(":")[2], self.benchmark)
        if self.pair.where != "jax":  # whoever opens it may use JAX for something else
            os.environ.pop("XLA_FLAGS", None)
            if flags is not None:
                os.environ["XLA_FLAGS"] = flags
        self.nursery = Nursery(self.pair.where, self.kind, _hidden(self.target))
        self._dumpable = _set_dumpable(0)
        try:
            self.nursery.start()  # it imports the framework while this process prepares the truth
            self.method = self.pair.lowered
            if self.benchmark and self.benchmark.workloads:
                claims, dtypes = tuple(self.benchmark.claims()), tuple(self.pair.dtypes[-1:])
                self.method = dataclasses.replace(self.method, claims=claims, dtypes=dtypes)
            with self._on_cpu():
                self.docket = problems.Docket(self.pair, self.method)
        except BaseException:
            self.close()
            raise
        self.claims, self.not_judged = problems.judged(self.method)
        if self.benchmark:
            self.not_judged |= self.benchmark.left_out

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
            candidate: the text of its module. A `Path` is read; a text is never taken for a path, because a stranger
                could name the file of the reference.
            name: what the answer calls it; by default the file's name.
            function: the name of its function; by default ``candidate``, or else the last public one of its module.

        Returns:
            The answer, as ``gradgate schema judge`` describes one of its candidates. Whatever the candidate does is a
            verdict in it.

        Raises:
            UsageError: the file cannot be read.
        """
        text, called = candidate_text(candidate, name)
        asked = _asked(text, function or (self.benchmark.function if self.benchmark else ""))
        if "reason" in asked:
            return unanswered(self.target, called, text, function, asked["reason"])
        called = name or asked.get("solution", called)
        if self.benchmark:
            asked["call"] = self.benchmark.call
        began, spent = time.perf_counter(), time.process_time()
        opened: list[Stranger] = []

        def fresh() -> Stranger:
            made = self.nursery.stranger(self.limits)
            opened.append(made)
            made.ask({**asked, "do": "load"}, (), 0)
            return made

        verdicts: list[Verdict] = []
        hint: dict[str, Any] = {"state": "unknown", "reason": "it was not tried, because another claim failed"}
        failed = ""
        try:
            self.pair.desk.begin(fresh(), fresh, asked.get("writes", False))
            with self._on_cpu():
                verdicts = list(self._heard())
                if all(one.verdict in ("upheld", "inapplicable") for one in verdicts):
                    hint = self._in_sixty_digits()
        except Raised as why:
            failed = f"its module raised {why}"
        except Gone as why:
            failed = f"while its module ran, {why}"
        finally:
            for one in opened:
                one.close()
        times = time.perf_counter() - began, time.process_time() - spent
        return self._answer(called, text, function, verdicts, failed, opened, times) | {"sixty_digits": hint}

    def _on_cpu(self) -> contextlib.AbstractContextManager[Any]:
        """Where the reference runs: on the CPU, as candidates do, though JAX may take a GPU that rounds otherwise."""
        if self.pair.where != "jax":
            return contextlib.nullcontext()
        import jax

        return cast(contextlib.AbstractContextManager[Any], jax.default_device(jax.local_devices(backend="cpu")[0]))

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
                if found.verdict == "refuted" and found.spec and "fields" not in claim.settings:
                    found = self._smallest(task, subject, found)
            except Exception as error:  # whatever a candidate returns, it must not end the court, nor be upheld
                reason = f"the check cannot judge what it returned: {type(error).__name__}: {first_line(error)}"
                found = Verdict(task, "error", reason=reason)
            yield found

    def _in_sixty_digits(self) -> dict[str, Any]:
        """Whether the candidate's formula is the reference's, as its own process says: a hint, and no verdict."""
        floats = next((one for one in self.claims if one.check == "gradient"), None)
        if floats is None:
            return {"state": "unknown", "reason": "the task has outputs alone"}
        spec, _ = max(self.docket.problems(floats), key=lambda one: (one[0].work() <= truth.AFFORDABLE, one[0].work()))
        if spec.work() > truth.AFFORDABLE:
            return {"state": "unknown", "reason": "the problems are too large"}
        self.pair.desk.claim = "sixty digits"
        try:
            problem = oracle.in_widest(spec, self.pair.where, "float64")
            with precision(self.pair.where, "float64"), balls.digits(balls.DIGITS):
                got = self.pair.in_sixty_digits(cast(PairProblem, problem))
                exact = truth.result(spec, self.pair.where, "loss", (), balls.DIGITS, False).values
                found = agreement.compare(got, exact)
        except (Fault, Refuted, balls.Unknown, balls.Undecided, agreement.NotFinite) as why:
            return {"state": "unknown", "reason": str(why)}
        except Exception as error:  # whatever a candidate's process sends, it must not end the court
            return {"state": "unknown", "reason": f"{type(error).__name__}: {first_line(error)}"}
        state = "differs" if found.wrong else "unknown" if found.open else "equal"
        reason = f"{found.leaf}{found.shown}" if found.wrong else "the balls are too wide" if found.open else ""
        return {"state": state, "reason": reason, "error": finite(found.error)}

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
        function: str,
        verdicts: list[Verdict],
        failed: str,
        opened: list[Stranger],
        times: tuple[float, float],
    ) -> dict[str, Any]:
        rows = [_row(one) for one in verdicts]
        states = [one.verdict for one in verdicts]
        gradients = [one for one in verdicts if one.task.check == "gradient" and one.verdict == "upheld"]
        decisive = "outputs_together" if self.benchmark and self.benchmark.workloads else "gradient"
        if failed or ("error" in states and "refuted" not in states):
            state = "error"
        elif "refuted" in states:
            state = "refuted"
        else:
            known = any(one.task.check == decisive and one.verdict == "upheld" for one in verdicts)
            state = "upheld" if known else "inapplicable"
        worst = min(
            (one for one in verdicts if one.verdict == "refuted" and one.spec),
            default=None,
            key=lambda one: self.pair.numbers(self.pair.spec(**(one.spec or {})).fields),
        )
        first = next((one for one in verdicts if one.verdict in ("refuted", "error")), None)
        counted = [one for one in states if one != "inapplicable"]
        return {
            **unanswered(self.target, name, text, function, failed or (first.reason if first else "")),
            "verdict": state,
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
            "measured": self.pair.desk.measured,
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


def unanswered(task: str, name: str, text: str, function: str, reason: str) -> dict[str, Any]:
    """The answer about a candidate that was not judged, for this reason."""
    return {
        "task": task,
        "task_digest": task_digest(task),
        "name": name,
        "function": function,
        "digest": text_digest(text),
        "verdict": "error",
        "reason": reason,
        "claims": [],
        "not_judged": {},
        "score": {"claims": 0.0, "digits_lost": {}, "resident_bytes": 0, "processor_seconds": 0.0},
        "counterexample": None,
        "measured": {},
        "sixty_digits": {"state": "unknown", "reason": reason},
        "wall": {},
        "processes": 0,
        "calls": 0,
        "seconds": 0.0,
    }


def text_digest(text: str) -> str:
    """The sha256 of a candidate's text, which may hold what is no UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def task_digest(target: str) -> str:
    """The sha256 of the file in which a task is declared; "" if there is none. Files that it imports do not count."""
    place = target if target.endswith(".json") else target.rpartition(":")[0]
    path = Path(place)
    if place and not target.endswith(".json") and not place.endswith(".py"):
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(place)
            path = Path(spec.origin if spec and spec.origin else "")
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _declared(target: str) -> Any:
    """The task that a target names: a Pair, or what a benchmark declares."""
    if target.endswith(".json"):
        return benchmarks.of_definition(Path(target))
    found = load(target)
    if isinstance(found, type) and "torch" in sys.modules and issubclass(found, sys.modules["torch"].nn.Module):
        return benchmarks.of_model(found, target.rpartition(":")[2])
    return found


def _asked(text: str, function: str) -> dict[str, Any]:
    """What a candidate's process has to load, or a ``reason`` why nothing can be."""
    if len(text) > LARGEST:
        return {"reason": f"it has more than {LARGEST} characters"}
    try:
        text.encode()
    except UnicodeEncodeError:
        return {"reason": "it is not UTF-8"}
    if "\n" not in text and text.endswith((".py", ".json")):
        return {"reason": f"it is the name of a file; in Python, pathlib.Path({text!r}) is the file itself"}
    if not text.lstrip().startswith("{"):
        return {"text": text, "name": function}
    try:
        found = msgspec.json.decode(text.encode(), type=benchmarks.Solution)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return {"reason": f"it is no solution of SOL-ExecBench: {error}"}
    strange = {*found.spec.languages, *filter(None, [found.spec.language])} - set(benchmarks.PYTHON)
    if strange:
        return {"reason": f"it is in {', '.join(sorted(strange))}; a court runs {', '.join(benchmarks.PYTHON)}"}
    files = {one.path: one.content for one in found.sources}
    place, _, entry = found.spec.entry_point.partition("::")
    if place not in files or not entry:
        return {"reason": f"its entry point {found.spec.entry_point} is in none of its files"}
    whole = {"text": files.pop(place), "name": entry, "files": files}
    return {**whole, "writes": found.spec.destination_passing_style, "solution": found.name}


def candidate_text(candidate: str | Path, name: str) -> tuple[str, str]:
    """(text, name) of a candidate. What is no UTF-8 is in the text as lone surrogates, and no more is read than counts.

    Raises:
        UsageError: its file cannot be read.
    """
    if isinstance(candidate, str):
        return candidate, name or "candidate"
    try:
        with candidate.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            return file.read(LARGEST + 1), name or candidate.name
    except OSError as error:
        raise UsageError(f"cannot read {candidate}: {error.strerror}") from None


def _hidden(target: str) -> list[str]:
    """What must not be visible behind the wall, should it lie among the packages: the task's file, and gradgate."""
    import gradgate.suites

    found = [str(Path(folder).parent) for folder in gradgate.suites.__path__]
    place = target if target.endswith(".json") else target.rpartition(":")[0]
    if place.endswith((".py", ".json")):
        found.append(str(Path(place).resolve()))
    elif place:
        found += [str(Path(path).resolve()) for path in _places(place)]
    return found


def _places(module: str) -> list[str]:
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
