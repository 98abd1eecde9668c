"""The two figures by which the suite is judged: false alarms, and the smallest planted error that is caught.

Exact methods of another order of operations than backprop's are put to random problems of a family. First the formula
is judged in sixty digits: a method that is refuted there is a false alarm. Then floats are judged, on the shapes that
verify draws: every leaf out of bounds is a false alarm. Then an error of relative size 10^-k is planted in one leaf,
and the rule either refutes it.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS, Method, Spec, UsageError, installed
from gradgate.suites import terminal
from gradgate.suites.checks import exact
from gradgate.suites.checks.base import Case, Rejected
from gradgate.suites.files import write_atomically
from gradgate.suites.strategies import covering, pick_options, shapes, value_at
from gradgate.suites.subject import Refuted, Subject
from gradgate.suites.tolerance import compare
from gradgate.suites.worker import environment, relieve

CHUNK = 250
"""Problems per unit of work: what a stopped run loses at the most."""
PLANTED = {"float64": range(9, 16), "float32": range(3, 8)}
"""Exponents k of the planted relative errors 10^-k."""
PLAIN = ("backprop", "full", "truncated_bptt")
"""Methods that are plain backprop under another name: they would only lower the figures."""
QUANTILES = (0.5, 0.99, 0.999, 1.0)
GOALS = {"float64": 1e-10, "float32": 1e-5}
"""Planted errors that must be refuted."""


def main(families: Sequence[str], problems: int, seed: int, jobs: int, keep: Path | None, summary: Path | None) -> int:
    """Measure both figures, family by family, and print them; 0 if there is no false alarm, else 1.

    Args:
        families: their names.
        problems: of each family.
        keep: file of results; a run with the same seed and toolchain goes on from what it holds.
        summary: file to which the figures of these families are written; those of others stay.

    Cost: about 0.2 s per problem on one core, plus compiling each covering shape once per method.
    """
    head = {"seed": seed, "fingerprint": fingerprint()}
    kept = _kept(keep, head)
    os.environ.update(environment())
    figures = {}
    for family in families:
        chunks = kept.setdefault(family, {})
        starts = range(0, problems, CHUNK)
        counts = {str(start): min(CHUNK, problems - start) for start in starts}
        todo = {start: count for start, count in counts.items() if chunks.get(start, {"asked": 0})["asked"] < count}
        with terminal.counting(f"{family}: problems", problems) as advance:
            advance(sum(count for start, count in counts.items() if start not in todo))
            for start, chunk in _measured(family, seed, todo, jobs):
                chunks[start] = chunk
                advance(counts[start])
                if keep:
                    write_atomically(keep, json.dumps({**head, "families": kept}))
        figures[family] = {"date": date.today().isoformat(), **figure([chunks[start] for start in counts])}
        _print(family, figures[family])
    if summary:
        _summarise(summary, head, figures)
    total, alarms = (sum(f[key] for f in figures.values()) for key in ("problems", "false_alarms"))
    terminal.console().print(f"seed {seed}: {alarms} false alarms over {total} problems of {', '.join(figures)}")
    return 1 if alarms else 0


def _measured(family: str, seed: int, todo: Mapping[str, int], jobs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit a framework's threads
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        futures = {pool.submit(measure, family, seed, int(start), count): start for start, count in todo.items()}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.result()


def measure(family: str, seed: int, start: int, count: int) -> dict[str, Any]:
    """Judge problems number start … start + count − 1; each is put to one exact method, in turn, in every precision."""
    subjects = [_subject(method) for method in _exact(family)]
    found: dict[str, Any] = {
        "asked": count, "judged": {}, "alarms": [], "exact": [], "ratios": {}, "worst": {}, "caught": {}, "planted": {},
    }  # fmt: skip
    floats = [registry.spec_class(family)(**shape).static() for shape in covering(registry.family(family))]
    for number in range(start, start + count):
        if number % 10 == 0:
            relieve()
        rng = np.random.default_rng([seed, number])
        subject = subjects[number % len(subjects)]
        claim = subject.declared.claim("gradient_exact")
        spec = random_spec(family, rng, claim.where)
        case = Case(subject, claim, spec, pick_options(subject.declared, spec))
        try:
            _judge_exactly(case, found)
            for dtype in PLANTED if spec.static() in floats else ():
                _judge(case, dtype, rng, found)
        except Rejected:  # the oracle is not finite
            continue
        found["judged"][subject.declared.key] = found["judged"].get(subject.declared.key, 0) + 1
    return found


def random_spec(family: str, rng: np.random.Generator, where: Mapping[str, Any]) -> Spec:
    """A Spec of a random shape of the vocabulary, of those that satisfy `where`, and random values."""
    declared = registry.family(family)
    fitting = shapes(declared, where)
    shape = fitting[int(rng.integers(len(fitting)))]
    values = {name: value_at(float(rng.random()), low, high) for name, (low, high) in declared.values.items()}
    return registry.spec_class(family)(**{**shape, **values, "seed": int(rng.integers(2**32))})


def _judge_exactly(case: Case, found: dict[str, Any]) -> None:
    try:
        exact.gradient(case)
    except Refuted as refuted:
        found["alarms"].append(_alarm(case, "sixty digits", refuted.leaf, refuted.error))
    assert case.exact is not None
    found["exact"].append(case.exact.digits)


def _alarm(case: Case, dtype: str, leaf: str, ratio: float | None) -> dict[str, Any]:
    return {
        "method": case.subject.declared.key, "dtype": dtype, "spec": dataclasses.asdict(case.spec),
        "options": dict(case.options), "leaf": leaf, "ratio": ratio,
    }  # fmt: skip


def _judge(case: Case, dtype: str, rng: np.random.Generator, found: dict[str, Any]) -> None:
    reference, kappa = case.reference(dtype), case.subject.declared.kappa
    _, grads = case.subject.gradient(case.problem(dtype), case.options)
    verdict = compare(grads, reference, dtype, kappa)
    found["ratios"].setdefault(dtype, []).append(round(verdict.ratio, 4))
    worst = found["worst"].setdefault(dtype, {})
    worst[case.subject.declared.key] = max(round(verdict.ratio, 4), worst.get(case.subject.declared.key, 0.0))
    if not verdict.equal:
        found["alarms"].append(_alarm(case, dtype, verdict.leaf, verdict.ratio))
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
        if m.name not in PLAIN and installed(m.framework) and not any(o.name == "devices" for o in m.options)
        and m.claim("gradient_exact").expected == "upheld"
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
        families: dict[str, Any] = found["families"]
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{keep} is no file of gradgate calibrate; give another --json") from None
    if not same:
        raise UsageError(f"{keep} was measured with another seed or toolchain; give another --json")
    return families


def figure(chunks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one family: problems judged, by method and framework, false alarms, quantiles, planted errors."""
    judged: Counter[str] = sum((Counter(chunk["judged"]) for chunk in chunks), Counter())
    found: dict[str, Any] = {
        "problems": judged.total(),
        "methods": dict(sorted(judged.items())),
        "frameworks": {f: sum(n for key, n in judged.items() if key.endswith(f)) for f in FRAMEWORKS},
        "false_alarms": sum(len(chunk["alarms"]) for chunk in chunks),
        "alarms": [alarm for chunk in chunks for alarm in chunk["alarms"]],
        "fewest_digits": min((digits for chunk in chunks for digits in chunk["exact"]), default=None),
    }
    for dtype in PLANTED:
        ratios = np.concatenate([np.asarray(chunk["ratios"].get(dtype, []), float) for chunk in chunks])
        planted = sum(chunk["planted"].get(dtype, 0) for chunk in chunks)
        caught = sum((Counter(chunk["caught"].get(dtype, {})) for chunk in chunks), Counter())
        found[dtype] = {
            "error_over_noise": {f"{q:g}": round(float(np.quantile(ratios, q)), 2) for q in QUANTILES} if len(ratios)
            else {},
            "worst": _worst([chunk["worst"].get(dtype, {}) for chunk in chunks]),
            "planted": planted,
            "refuted": {f"1e-{k}": caught[f"1e-{k}"] for k in PLANTED[dtype]},
        }  # fmt: skip
    return found


def _worst(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Method -> the largest error over noise of all tables."""
    return {key: max(table.get(key, 0.0) for table in tables) for key in sorted(set().union(*tables))}


def _summarise(path: Path, head: dict[str, Any], figures: Mapping[str, Any]) -> None:
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    others = before["families"] if all(before.get(key) == value for key, value in head.items()) else {}
    write_atomically(path, json.dumps({**head, "families": {**others, **figures}}, indent=1) + "\n")


def _print(family: str, found: Mapping[str, Any]) -> None:
    out = terminal.console()
    for alarm in found["alarms"][:20]:
        out.print(f"false alarm: {json.dumps(alarm)}", markup=False, soft_wrap=True)
    where = ", ".join(f"{framework} {count}" for framework, count in found["frameworks"].items())
    out.print(f"{family}: {found['false_alarms']} false alarms over {found['problems']} problems ({where})")
    out.print(f"sixty digits: every formula equal to {found['fewest_digits']} digits at least")
    for dtype in PLANTED:
        row = found[dtype]
        quantiles = ", ".join(f"{100 * float(q):g}% {value:.2f}" for q, value in row["error_over_noise"].items())
        out.print(f"{dtype}: error over noise of the worst leaf: {quantiles}")
        shares = ", ".join(f"{k} {100 * n / max(1, row['planted']):.2f}%" for k, n in row["refuted"].items())
        out.print(f"{dtype}: planted relative error in one leaf, refuted: {shares}")
