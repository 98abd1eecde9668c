"""False alarms (false positives): correct methods, judged on random problems by every rule that can refute.

All exact methods of one framework are judged on every drawn problem, in every dtype that they support. One of them, in
turn, is also judged in sixty digits. A leaf that is out of bounds on a problem is a false alarm. So is a leaf that the
problems of one call of `measure` refute together.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradgate.references import registry
from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.references.contract import Method, Spec, installed
from gradgate.suites.checks import exact
from gradgate.suites.checks.base import Case, Rejected
from gradgate.suites.engine.strategies import covering, fits, pick_options, value_at
from gradgate.suites.judging.population import Population
from gradgate.suites.judging.subject import Refuted, Subject
from gradgate.suites.judging.tolerance import compare
from gradgate.suites.workers.worker import relieve

DTYPES = ("float64", "float32", "bfloat16")


def methods(family: str, framework: str) -> list[Method]:
    """Methods claimed exact that run in one process; none if the framework is not installed."""
    if not installed(framework):
        return []
    return [
        m
        for m in registry.methods(family, None, framework)
        if not any(o.name == "devices" for o in m.options)
        and any(claim.name == "gradient_exact" and claim.expected == "upheld" for claim in m.claims)
    ]


def measure(family: str, framework: str, seed: int, start: int, count: int) -> dict[str, Any]:
    """Judge problems number start … start + count − 1.

    Returns:
        ``judged``: method -> number of judgements; one judges a method on a problem in all its dtypes. ``alarms``: what
        was refuted. ``digits``: for every formula that was judged in sixty digits, to how many it agreed. ``ratios``:
        dtype -> error over noise of the worst leaf, of every judgement. ``worst``: dtype -> method -> the largest.

    Cost: 0.1 to 0.3 s a problem on one core, plus compiling each shape once per method and dtype.
    """
    subjects = [_subject(family, method.name, framework) for method in methods(family, framework)]
    found: dict[str, Any] = {
        "asked": count,
        "problems": 0,
        "judged": {},
        "alarms": [],
        "digits": [],
        "ratios": {},
        "worst": {},
    }
    together: dict[tuple[str, str], Population] = {}
    for number in range(start, start + count):
        if number % 10 == 0:
            relieve()
        spec = random_spec(family, np.random.default_rng([seed, number]))
        able = [s for s in subjects if fits(spec, s.declared.claim("gradient_float64").where)]
        for i, subject in enumerate(able):
            case = Case(subject, subject.declared.claim("gradient_exact"), spec, pick_options(subject.declared, spec))
            try:
                if i == number % len(able):
                    _in_sixty_digits(case, found)
                _in_floats(case, found, together)
            except Rejected:  # the oracle is not finite
                continue
            key = subject.declared.key
            found["judged"][key] = found["judged"].get(key, 0) + 1
        found["problems"] += bool(able)
    for (key, dtype), population in together.items():
        refuted = population.refuted()
        if refuted is not None:
            found["alarms"].append({"method": key, "dtype": dtype, "leaf": refuted.leaf, "reason": str(refuted)})
    return found


def random_spec(family: str, rng: np.random.Generator, where: Mapping[str, Any] | None = None) -> Spec:
    """A Spec with random values and a random shape, one that verify draws in floats and that satisfies `where`."""
    declared = registry.family(family)
    fitting = covering(declared, where)
    shape = fitting[int(rng.integers(len(fitting)))]
    values = {name: value_at(float(rng.random()), low, high) for name, (low, high) in declared.values.items()}
    return registry.spec_class(family)(**{**shape, **values, "seed": int(rng.integers(2**32))})


def _in_sixty_digits(case: Case, found: dict[str, Any]) -> None:
    try:
        exact.gradient(case)
    except Refuted as refuted:
        found["alarms"].append(_alarm(case, "sixty digits", refuted.leaf, refuted.error))
    assert case.exact is not None
    found["digits"].append(case.exact.digits)


def _in_floats(case: Case, found: dict[str, Any], together: dict[tuple[str, str], Population]) -> None:
    declared, shape = case.subject.declared, case.spec.static().to_json()
    for dtype in DTYPES:
        claim = next((c for c in declared.claims if c.name == GRADIENT_CLAIMS[dtype]), None)
        if claim is None:
            continue
        one = dataclasses.replace(case, claim=claim)
        reference, kappa = one.reference(dtype), claim.settings.get("kappa", declared.kappa)
        _, grads = case.subject.gradient(case.problem(dtype), case.options)
        verdict = compare(grads, reference, dtype, kappa)
        together.setdefault((declared.key, dtype), Population()).add(verdict, shape)
        ratio = round(min(verdict.ratio, sys.float_info.max), 3)  # JSON has no infinity
        found["ratios"].setdefault(dtype, []).append(ratio)
        worst = found["worst"].setdefault(dtype, {})
        worst[declared.key] = max(ratio, worst.get(declared.key, 0.0))
        if not verdict.equal:
            found["alarms"].append(_alarm(case, dtype, verdict.leaf, ratio))


def _alarm(case: Case, dtype: str, leaf: str, ratio: float | None) -> dict[str, Any]:
    return {
        "method": case.subject.declared.key,
        "dtype": dtype,
        "spec": dataclasses.asdict(case.spec),
        "options": dict(case.options),
        "leaf": leaf,
        "ratio": ratio,
    }


@functools.cache
def _subject(family: str, method: str, framework: str) -> Subject:
    """Kept, so that a worker compiles each shape once."""
    return Subject.load(registry.methods(family, method, framework)[0])
