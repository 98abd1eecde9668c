"""Search for a problem on which a claim fails, and shrink it: Hypothesis behind one function."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from unittest import mock

import hypothesis
import numpy as np
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from gradgate.references import registry
from gradgate.references.contract import Claim, Family, Method, Spec, installed
from gradgate.suites.checks import CHECKS, Case, Check, sweeps
from gradgate.suites.checks.base import Excused, Rejected
from gradgate.suites.engine import hardest, lines_run, sides, simpler, strategies
from gradgate.suites.engine.coverage import coverage
from gradgate.suites.engine.given import Judging, judge_case, verdict_of
from gradgate.suites.exact import decisions
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted, Subject
from gradgate.suites.judging.tolerance import Comparison
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.pairs.lengths import long_sums
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairSpec

DRAWS = 3
"""How many problems Hypothesis may draw for each one that is judged. It repeats some, and it prefers some shapes."""
SLIGHT = 1e-2
"""Relative error below which a refutation may look like rounding, so that a more telling problem is looked for."""
FURTHER = 4
"""How many problems are judged for this."""
CLEARER = 10.0
"""A larger problem is shown in place of the smallest only if its error is so many times as large."""
STRESS_SEEDS = 3
MISSING = 20
"""Number of untried pairs of (field, value) that a verdict names."""
BFLOAT16_EACH = 12
"""Least number of problems of each shape for a claim about bfloat16: fewer than ten cannot be judged together."""


def judge(task: Task, subject: Subject, run: Run, progress: Callable[[int], None] = lambda _: None) -> Verdict:
    """Judge one claim of one method.

    Args:
        task: names the claim.
        subject: the loaded method.
        run: examples and seed, or one Spec.
        progress: called with the number of problems judged so far.

    Returns:
        The verdict. Errors of the method are not raised from here, but a method can still end or hang the process.
    """
    claim = subject.declared.claim(task.claim)
    check = CHECKS[claim.check]
    search, start = Judging(), time.perf_counter()
    reached: sides.Search | None = None
    worst: dict[str, Any] = {}

    def put(spec: Spec, options: Mapping[str, Any]) -> None:
        search.drawn = True
        judge_case(search, Case(subject, claim, spec, options), check, progress)

    if check.draws == "profile":
        return _on_profile(task, subject, claim, run, progress)
    try:
        if run.spec:
            spec = registry.spec_class(task.family).from_json(run.spec)
            default = _options(subject.declared, claim, spec)
            with contextlib.suppress(Rejected):
                put(spec, default if run.options is None else dict(run.options))
        else:
            with decisions.turning() as turns:
                draw(search, put, subject.declared, claim, check, run)
                reached = sides.search(subject, claim, search.tried)
                if reached:
                    _other_sides(search, reached, put, strategies.shapes(registry.family(task.family), claim.where))
            worst = _hardest(search, subject, claim, check)
    except Inapplicable as why:
        return Verdict(task, "inapplicable", len(search.judged), reason=str(why))
    except (Refuted, Fault):
        if check.draws == "cells" and isinstance(subject.function, Pair) and not run.spec:
            _more_telling(search, put, subject.declared, claim, run)
    verdict = verdict_of(task, search, check, run, time.perf_counter() - start)
    if verdict.verdict != "upheld" or check.draws == "stress" or run.spec:
        return verdict
    if reached:
        verdict = dataclasses.replace(verdict, decisions=reached.summary())
    if isinstance(subject.function, Pair) and claim.name == "gradient_exact":
        verdict = dataclasses.replace(verdict, lines=lines_run.of_pair(subject, search.tried, turns))
    verdict = dataclasses.replace(verdict, worst=worst, reason=verdict.reason or hardest.worded(worst))
    fixed = claim.settings.get("options", {})
    tried = coverage(registry.family(task.family), subject.declared, search.tried, claim.where, fixed)
    some = dataclasses.replace(tried, missing=tried.missing[:MISSING], enough=_enough(subject.declared, claim, run))
    return dataclasses.replace(verdict, coverage=dataclasses.asdict(some))


def _more_telling(
    search: Judging,
    put: Callable[[Spec, Mapping[str, Any]], None],
    declared: Method,
    claim: Claim,
    run: Run,
) -> None:
    """Where the smallest problem refutes by little, judge a few others and keep the one with the largest error.

    The others are of the same regime: what was wrong at values that were seen is shown there.
    """

    def error(failure: tuple[Exception, Case]) -> float:
        return float(getattr(failure[0], "error", None) or 0.0)

    smallest = search.failure
    if smallest is None or not 0 < error(smallest) < SLIGHT or getattr(smallest[1].spec, "unseen", False):
        return
    best, regime = smallest, getattr(smallest[1].spec, "regime", "")
    drawn = strategies.cells(registry.family(declared.family), declared, claim.where, run.seed)
    alike = [one for one in drawn[1 : len(drawn) // 2 + 1] if getattr(one[0], "regime", "") == regime]
    for spec, picked in _spread(alike, FURTHER):
        search.failure = smallest
        with contextlib.suppress(Rejected, Refuted, Fault, Inapplicable):
            put(spec, picked | dict(claim.settings.get("options", {})))
        best = max(best, search.failure or smallest, key=error)
    search.failure = best if error(best) >= CLEARER * error(smallest) else smallest


def _other_sides(
    search: Judging,
    reached: sides.Search,
    put: Callable[[Spec, Mapping[str, Any]], None],
    shapes: Sequence[Mapping[str, Any]],
) -> None:
    """Judge the problems that take sides of decisions which none has taken; what refutes is made simpler."""

    def refuted(spec: PairSpec) -> bool:
        before = search.failure
        try:
            put(spec, reached.options)
        except Exception as why:  # also of foreign code, at inputs that nobody has promised
            if before and type(why) is type(before[0]):
                return True
            search.failure = before
        return False

    for spec in reached.problems():
        try:
            put(spec, reached.options)
            reached.judged()
        except Excused as why:
            reached.judged(str(why))
        except Rejected as why:
            reached.rejected(str(why))
        except (Refuted, Fault):
            simpler.Simpler(reached.pair, spec, refuted).search(shapes)
            raise


def _hardest(search: Judging, subject: Subject, claim: Claim, check: Check) -> dict[str, Any]:
    """The hardest problem that a search finds, as `Verdict.worst`."""
    if search.worst is None:
        return {}
    drawn, first = search.worst
    found = hardest.begin(claim, subject.function, first.spec, drawn.ratio, [spec for spec, _ in search.tried])
    if found is None:
        return {}

    def judge(spec: Spec) -> Comparison | None:
        case = Case(subject, claim, spec, first.options)
        with contextlib.suppress(Rejected, Refuted, Fault):
            check.function(case)
        return case.comparisons[-1] if case.comparisons else None

    found.search(judge)
    return found.summary()


def _enough(declared: Method, claim: Claim, run: Run) -> int:
    """The least number of examples with which the claim is judged on every shape; 0 if the run has as many."""
    family, check = registry.family(declared.family), CHECKS[claim.check]
    if check.draws == "cells":
        least = len(strategies.cells(family, declared, claim.where, run.seed))
    else:
        least = strategies.enough(family, claim.where)
    wanted = math.ceil(least / check.share)
    return wanted if wanted > run.examples else 0


def _on_profile(task: Task, subject: Subject, claim: Claim, run: Run, progress: Callable[[int], None]) -> Verdict:
    """Judge a claim about memory or work; with a Spec given, the sweep starts from it."""
    start, base = time.perf_counter(), {}
    if run.spec:
        base = dataclasses.asdict(registry.spec_class(task.family).from_json(run.spec))
    case = sweeps.Sweep(subject, claim, task.profile, base, run.limit, progress)
    try:
        CHECKS[claim.check].function(case)
        verdict, reason = "upheld", case.sentence
    except Refuted as why:
        verdict, reason = "refuted", str(why)
    except Inapplicable as why:
        verdict, reason = "inapplicable", str(why)
    except Fault as why:
        verdict, reason = "error", str(why)
    return Verdict(
        task,
        verdict,
        case.measured,
        spec=dataclasses.asdict(case.spec) if case.spec else None,
        options=dict(case.options),
        profile=task.profile,
        reason=reason,
        seconds=time.perf_counter() - start,
        laws=[series.to_dict() for series in case.series],
    )


def not_installed(task: Task) -> Verdict | None:
    """The verdict on a claim whose framework is missing; else None. If it is missing, the method must not be loaded."""
    name = task.framework
    if installed(name):
        return None
    return Verdict(task, "inapplicable", reason=f"{name} is not installed: pip install 'gradgate[{name}]'")


def draw(
    search: Judging,
    put: Callable[[Spec, Mapping[str, Any]], None],
    declared: Method,
    claim: Claim,
    check: Check,
    run: Run,
) -> None:
    """Call `put` with each problem of a claim. `put` enters the problem into `search`, and raises if it refutes."""
    family = registry.family(declared.family)
    wanted = check.examples(run.examples)
    seed = int.from_bytes(hashlib.sha256(f"{run.seed}:{family.name}".encode()).digest()[:4], "big")
    if check.draws == "cells":
        for spec, picked in _spread(strategies.cells(family, declared, claim.where, run.seed), wanted):
            with contextlib.suppress(Rejected):
                put(spec, picked | dict(claim.settings.get("options", {})))
        return
    if check.draws == "stress":
        certain, shapes = list(_stress(family, claim.where, seed)), None
    else:
        narrow = claim.settings.get("dtype") == "bfloat16"
        shapes = (strategies.narrow if narrow else strategies.covering)(family, claim.where, run.examples)
        certain = strategies.covering_specs(family, claim.where, run.seed, shapes)
        certain += _of_each(family, shapes, seed) if narrow else []
        certain += _long_sums(family, seed) if "accumulates" in claim.settings else []
        wanted = max(wanted, len(certain)) if narrow or "accumulates" in claim.settings else wanted
    for spec in _spread(certain, wanted):
        with contextlib.suppress(Rejected):
            put(spec, _options(declared, claim, spec))
    if shapes is None:
        return
    missing = wanted - len(search.judged)
    left = strategies.shares(family, shapes, missing)

    def until_enough(spec: Spec) -> None:
        shape = spec.static()
        if search.failure is not None:
            put(spec, _options(declared, claim, spec))
        elif left[shape] > 0:
            before = len(search.judged)
            put(spec, _options(declared, claim, spec))
            left[shape] -= len(search.judged) - before

    if missing > 0:
        cls: Any = registry.spec_class(family.name)
        values = tuple(family.values.items())
        frozen, examples = tuple(tuple(shape.items()) for shape in shapes), DRAWS * missing
        try:
            for spec in _drawn(cls, values, frozen, examples, seed):
                until_enough(spec)
        except Exception:  # from here on, Hypothesis draws other Specs: it draws anew, and finds all up to here judged
            search.failure = None
            _falsify(_strategy(cls, values, frozen), until_enough, examples, seed)


@functools.lru_cache(maxsize=32)
def _drawn(
    cls: type[Spec], values: tuple[Any, ...], shapes: tuple[Any, ...], examples: int, seed: int
) -> tuple[Spec, ...]:
    """What Hypothesis draws while nothing is refuted or rejected: the same for all claims and methods of a family."""
    found: list[Spec] = []
    _falsify(_strategy(cls, values, shapes), found.append, examples, seed)
    return tuple(found)


def _strategy(cls: type[Spec], values: tuple[Any, ...], shapes: tuple[Any, ...]) -> st.SearchStrategy[Spec]:
    return strategies.of_shapes(cls, dict(values), [dict(shape) for shape in shapes])


def _falsify(specs: st.SearchStrategy[Spec], put: Callable[[Spec], None], examples: int, seed: int) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,  # a failure remembered from an earlier run would make this run's verdict depend on it
        deadline=None,
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    @hypothesis.given(specs)
    def falsify(spec: Spec) -> None:
        try:
            put(spec)
        except Rejected:
            hypothesis.reject()

    with _no_constants_of_modules(), contextlib.suppress(hypothesis.errors.Unsatisfiable):  # all of them are rejected
        falsify()


@contextlib.contextmanager
def _no_constants_of_modules() -> Iterator[None]:
    """Draw no numbers from the source of imported modules.

    Hypothesis mixes the numbers in the source of every local module into what it draws. The problems of a seed would
    then depend on what else the process has imported, and on every number in the code.
    """
    # This is private, because there is no setting. A test fails if a version of Hypothesis draws them in another way.
    if not hasattr(providers.HypothesisProvider, "_local_constants"):
        yield
        return
    providers.CONSTANTS_CACHE.cache.clear()
    with mock.patch.object(providers.HypothesisProvider, "_local_constants", providers.Constants()):
        yield
    providers.CONSTANTS_CACHE.cache.clear()


def _options(declared: Method, claim: Claim, spec: Spec) -> dict[str, Any]:
    picked = strategies.pick_options(declared, spec, claim.settings.get("covering", ""))
    return picked | dict(claim.settings.get("options", {}))


def _stress(family: Family, where: Mapping[str, Any], seed: int) -> Iterator[Spec]:
    cls = registry.spec_class(family.name)
    for i in range(STRESS_SEEDS):
        for shape in family.stress:
            spec = cls(**{**shape, "seed": seed + i})
            if strategies.fits(spec, where):
                yield spec


def _of_each(family: Family, shapes: Sequence[Mapping[str, Any]], seed: int) -> list[Spec]:
    """Specs with random values, BFLOAT16_EACH − 1 of every shape: the caller has one more Spec of every shape."""
    cls, found = registry.spec_class(family.name), []
    for number in range((BFLOAT16_EACH - 1) * len(shapes)):
        rng = np.random.default_rng([seed, number])
        drawn = {name: strategies.value_at(rng.random(), low, high) for name, (low, high) in family.values.items()}
        found.append(cls(**{**shapes[number % len(shapes)], **drawn, "seed": seed + number}))
    return found


def _long_sums(family: Family, seed: int) -> list[Spec]:
    """Specs of a pair in which one dim is long, for a claim about sums in a narrow dtype: enough to refute together."""
    cls: Any = registry.spec_class(family.name)
    lengthened = long_sums(cls.pair)
    return [cls(**fields, seed=seed + number) for fields in lengthened for number in range(BFLOAT16_EACH)]


def _spread(specs: list[Any], wanted: int) -> list[Any]:
    """At most `wanted` of the items, spread evenly from the smallest to the largest."""
    if wanted >= len(specs):
        return specs
    return [specs[round(i * (len(specs) - 1) / max(1, wanted - 1))] for i in range(wanted)]
