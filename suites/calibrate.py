"""The two figures by which the rule of equality is judged: false alarms, and the smallest planted error that is caught.

Exact methods of another order of operations than backprop's are put to random problems of a family. Every leaf out of
bounds is a false alarm. Then an error of relative size 10^-k is planted in one leaf, and the rule either refutes it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.contract import Method, Spec, UsageError, installed
from gradgate.suites import terminal
from gradgate.suites.checks.base import Case, Rejected
from gradgate.suites.files import write_atomically
from gradgate.suites.strategies import pick_options, shapes, value_at
from gradgate.suites.subject import Subject
from gradgate.suites.tolerance import compare
from gradgate.suites.worker import environment

CHUNK = 250
"""Problems per unit of work: what a stopped run loses at the most."""
PLANTED = {"float64": range(9, 16), "float32": range(3, 8)}
"""Exponents k of the planted relative errors 10^-k."""
GOALS = {"float64": 1e-10, "float32": 1e-5}
"""Planted errors that must be refuted."""


def main(family: str, problems: int, seed: int, jobs: int, keep: Path | None) -> int:
    """Measure both figures and print them; 0 if there is no false alarm, else 1.

    Args:
        keep: file of results; a run with the same family, seed and toolchain goes on from what it holds.

    Cost: about 40 ms per problem on one core, plus compiling each shape once per method.
    """
    head = {"family": family, "seed": seed, "fingerprint": fingerprint()}
    chunks = _kept(keep, head)
    missing = [start for start in range(0, problems, CHUNK) if str(start) not in chunks]
    os.environ.update(environment())
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit a framework's threads
    with (
        concurrent.futures.ProcessPoolExecutor(jobs, mp_context=spawn) as pool,
        Progress(console=terminal.console(stderr=True)) as bar,
    ):
        shown = bar.add_task(f"{family}: problems", total=problems, completed=CHUNK * len(chunks))
        futures = {pool.submit(measure, family, seed, start, min(CHUNK, problems - start)): start for start in missing}
        for future in concurrent.futures.as_completed(futures):
            chunks[str(futures[future])] = future.result()
            bar.advance(shown, CHUNK)
            if keep:
                write_atomically(keep, json.dumps({**head, "date": date.today().isoformat(), "chunks": chunks}))
    return _print(list(chunks.values()), head)


def measure(family: str, seed: int, start: int, count: int) -> dict[str, Any]:
    """Judge problems number start … start + count − 1; each is put to one exact method, in turn, in both dtypes."""
    subjects = [_subject(method) for method in _exact(family)]
    found: dict[str, Any] = {"judged": 0, "rejected": 0, "alarms": [], "ratios": {}, "caught": {}, "planted": {}}
    for number in range(start, start + count):
        rng = np.random.default_rng([seed, number])
        subject = subjects[number % len(subjects)]
        claim = subject.declared.claim("gradient_float64")
        spec = random_spec(family, rng, claim.where)
        case = Case(subject, claim, spec, pick_options(subject.declared, spec))
        try:
            for dtype in PLANTED:
                _judge(case, dtype, rng, found)
            found["judged"] += 1
        except Rejected:
            found["rejected"] += 1
    return found


def random_spec(family: str, rng: np.random.Generator, where: Mapping[str, Any]) -> Spec:
    """A Spec of a random shape of the vocabulary, of those that satisfy `where`, and random values."""
    declared = registry.family(family)
    fitting = shapes(declared, where)
    shape = fitting[int(rng.integers(len(fitting)))]
    values = {name: value_at(float(rng.random()), low, high) for name, (low, high) in declared.values.items()}
    return registry.spec_class(family)(**{**shape, **values, "seed": int(rng.integers(2**32))})


def _judge(case: Case, dtype: str, rng: np.random.Generator, found: dict[str, Any]) -> None:
    reference, kappa = case.reference(dtype), case.subject.declared.kappa
    _, grads = case.subject.gradient(case.problem(dtype), case.options)
    verdict = compare(grads, reference, dtype, kappa)
    found["ratios"].setdefault(dtype, []).append(round(verdict.ratio, 4))
    if not verdict.equal:
        found["alarms"].append(
            {"method": case.subject.declared.key, "dtype": dtype, "spec": dataclasses.asdict(case.spec),
             "options": dict(case.options), "leaf": verdict.leaf, "ratio": verdict.ratio}
        )  # fmt: skip
        return
    whole = np.sqrt(sum(float(np.sum(g * g)) for g in reference.grads.values()))
    alive = [name for name, leaf in reference.grads.items() if np.linalg.norm(leaf) > 1e-12 * whole]
    if not alive:
        return
    leaf = alive[rng.integers(len(alive))]
    found["planted"][dtype] = found["planted"].get(dtype, 0) + 1
    for k in PLANTED[dtype]:
        wrong = {leaf: grads[leaf] * (1 + 10.0**-k)}
        caught = not compare(wrong, reference, dtype, kappa).equal
        table = found["caught"].setdefault(dtype, {})
        table[f"1e-{k}"] = table.get(f"1e-{k}", 0) + int(caught)


def _exact(family: str) -> list[Method]:
    """Methods claimed exact that do not just run backprop in one process, in every framework that is installed."""
    chosen = [
        m for m in registry.methods(family)
        if m.name != "backprop" and installed(m.framework) and not any(o.name == "devices" for o in m.options)
        and m.claim("gradient_float64").expected == "upheld"
    ]  # fmt: skip
    if not chosen:
        raise UsageError("no framework is installed: pip install 'gradgate[jax]' or 'gradgate[torch]'")
    return chosen


_SUBJECTS: dict[str, Subject] = {}


def _subject(method: Method) -> Subject:
    if method.key not in _SUBJECTS:  # kept, so that a worker compiles each shape once
        _SUBJECTS[method.key] = Subject.load(method)
    return _SUBJECTS[method.key]


def _kept(keep: Path | None, head: dict[str, Any]) -> dict[str, Any]:
    if keep is None or not keep.exists():
        return {}
    try:
        found = json.loads(keep.read_text(encoding="utf-8"))
        same = all(found[key] == value for key, value in head.items())
        chunks: dict[str, Any] = found["chunks"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{keep} is no file of gradgate calibrate; give another --json") from None
    if not same:
        raise UsageError(f"{keep} was measured with another family, seed or toolchain; give another --json")
    return chunks


def _print(chunks: list[dict[str, Any]], head: dict[str, Any]) -> int:
    alarms = [alarm for chunk in chunks for alarm in chunk["alarms"]]
    judged = sum(chunk["judged"] for chunk in chunks)
    out = terminal.console()
    for alarm in alarms[:20]:
        out.print(f"false alarm: {json.dumps(alarm)}", markup=False, soft_wrap=True)
    out.print(f"{head['family']}, seed {head['seed']}: {len(alarms)} false alarms over {judged} problems")
    for dtype, rows in _columns(chunks, "ratios"):
        ratios = np.concatenate([np.asarray(row) for row in rows])
        quantiles = ", ".join(f"{100 * q:g}% {np.quantile(ratios, q):.2f}" for q in (0.5, 0.99, 0.999, 1.0))
        out.print(f"{dtype}: error over noise of the worst leaf: {quantiles}")
        planted = sum(chunk["planted"].get(dtype, 0) for chunk in chunks)
        shares = {f"1e-{k}": sum(c["caught"].get(dtype, {}).get(f"1e-{k}", 0) for c in chunks) for k in PLANTED[dtype]}
        shown = ", ".join(f"{size} {100 * n / max(1, planted):.2f}%" for size, n in shares.items())
        out.print(f"{dtype}: planted relative error in one leaf, refuted: {shown}")
    return 1 if alarms else 0


def _columns(chunks: list[dict[str, Any]], key: str) -> Iterator[tuple[str, list[Any]]]:
    for dtype in PLANTED:
        rows = [chunk[key][dtype] for chunk in chunks if dtype in chunk[key]]
        if rows:
            yield dtype, rows
