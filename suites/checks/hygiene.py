"""Hygiene: two calls give the same bits, and leave inputs, global random state and standard output alone."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import random
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from gradgate.references.backends import named_leaves, to_numpy
from gradgate.references.contract import Method, Problem
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import DONATES, Refuted, Subject
from gradgate.suites.pairs.spec import PairProblem

COTANGENTS = "data.cotangents."
"""How the names of a pair's upstream gradients begin."""

_OTHERS: dict[tuple[str, str], Subject] = {}
"""Other implementations of methods, kept so that each is compiled only once."""


def deterministic(case: Case) -> None:
    """Two calls without jit give the same bits in every leaf and in the loss."""
    problem = case.problem()
    first, second = (case.subject.call(problem, case.options, eager=True) for _ in range(2))
    pairs = zip(named_leaves(first).items(), named_leaves(second).values(), strict=True)
    for (name, one), two in pairs:
        if to_numpy(one).tobytes() != to_numpy(two).tobytes():
            leaf = name.removeprefix("[1].")
            what = f"the gradient of {leaf}" if leaf != name else "the loss"
            raise Refuted(f"two calls on one problem differ in {what}", leaf if leaf != name else "")


def same_bits(case: Case) -> None:
    """The method gives the same bits as another implementation of it; settings: ``implementation``."""
    problem, other = case.problem(), _other(case.subject.declared, case.settings["implementation"])
    mine, theirs = (named_leaves(subject.call(problem, case.options)) for subject in (case.subject, other))
    for name, leaf in mine.items():
        if to_numpy(leaf).tobytes() != to_numpy(theirs[name]).tobytes():
            raise Refuted(f"{name or 'the loss'} has other bits than {case.settings['implementation']} gives", name)


def _other(declared: Method, implementation: str) -> Subject:
    key = declared.key, implementation
    if key not in _OTHERS:
        _OTHERS[key] = Subject.load(dataclasses.replace(declared, implementation=implementation))
    return _OTHERS[key]


def pure(case: Case) -> None:
    """A call without jit leaves everything but its answer as it was.

    That is: params and data; global generators; standard output and error; what `surroundings` lists; threads and
    processes. For the last two only a second call counts: the first call may import a library or start a pool.
    """
    problem = case.problem()
    _advance()
    before, randomness, running = _snapshot(problem), _random_state(), _running()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        case.subject.call(problem, case.options, eager=True)
    after = _snapshot(problem)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            if after.get(name) == DELETED:
                raise Refuted(f"the call deleted its input {name}; {DONATES}", name)
            leaf = "" if isinstance(problem, PairProblem) else name  # of a pair, the reason has its name
            raise Refuted(f"the call changed its {_called(problem, name)}", leaf)
    for name, state in _random_state().items():
        if name in randomness and state != randomness[name]:
            raise Refuted(f"the call moved or reseeded the global random state of {name}")
    for where, text in (("output", out.getvalue()), ("error", err.getvalue())):
        if text:
            raise Refuted(f"the call printed {len(text)} characters to standard {where}: {text.strip()[:60]!r}")
    if case.subject.changed or _running() - running:
        _again(case)


def _called(problem: Problem, name: str) -> str:
    """What an author calls a leaf of a problem: of a pair, an input or the upstream gradient of an output."""
    if not isinstance(problem, PairProblem):
        return f"input {name}"
    if name.startswith(COTANGENTS):
        path = name.removeprefix(COTANGENTS)
        return "upstream gradient" + (f" of output {path}" if len(problem.data["cotangents"]) > 1 else "")
    return f"input {name.removeprefix('params.').removeprefix('data.given.')}"


def _again(case: Case) -> None:
    running = _running()
    case.subject.call(case.problem(), case.options, eager=True)
    if case.subject.changed:
        raise Refuted(f"the call changed {', '.join(case.subject.changed)}")
    more = sorted(_running() - running)
    if more:
        raise Refuted(f"the call left behind {', '.join(more)}")


def _running() -> set[str]:
    """Python threads, and child processes if the platform lists them."""
    threads = {f"a running thread ({thread.name})" for thread in threading.enumerate()}
    children = {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}
    return threads | {f"a child process ({pid})" for pid in children}


DELETED = ("deleted", b"")
"""What is left of an array of JAX whose memory was given to an output."""


def _snapshot(problem: Any) -> dict[str, Any]:
    tree = {"params": problem.params, "data": problem.data}
    return {
        name: DELETED if getattr(leaf, "is_deleted", bool)() else (str(leaf.dtype), to_numpy(leaf).tobytes())
        for name, leaf in named_leaves(tree).items()
    }


def _advance() -> None:
    # A method that reseeds left the generators at the same state in its last call: move them on, so that this is seen.
    random.random()
    np.random.random()
    if "torch" in sys.modules:
        sys.modules["torch"].rand(1)


def _random_state() -> dict[str, Any]:
    states: dict[str, Any] = {"random": random.getstate(), "numpy.random": repr(np.random.get_state())}
    if "torch" in sys.modules:
        states["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return states
