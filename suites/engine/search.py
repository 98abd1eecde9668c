"""Search for a problem on which a claim fails, and shrink it: Hypothesis behind one function."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from gradgate.suites.engine import hardest, lines_run, sides, strategies
from gradgate.suites.engine.coverage import coverage
from gradgate.suites.exact import decisions
from gradgate.suites.judging.population import Population
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted, Subject
from gradgate.suites.judging.tolerance import ADVICE, BINDS, Comparison, digits_lost
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.pairs.lengths import long_sums
from gradgate.suites.pairs.pair import Pair

DRAWS_OF_TORCH = (
    "it draws random numbers, and PyTorch draws other ones in float64 than in float32: declare dtypes without one "
    "of them"
)
"""Why problems of a pair with `random` may say nothing."""
DRAWS = 3
"""How many problems Hypothesis may draw for each one that is judged. It repeats some, and it prefers some shapes."""
SHRINKS = 60
"""Most problems tried to shrink a failing one. It is a count, not a time, so that a run repeats bit for bit."""
STRESS_SEEDS = 3
MISSING = 20
"""Number of untried pairs of (field, value) that a verdict names."""
BFLOAT16_EACH = 12
"""Least number of problems of each shape for a claim about bfloat16: fewer than ten cannot be judged together."""


@dataclass
class Search:
    """The state of one search: what was judged, the worst that passed, the smallest that failed.

    Attributes:
        population: the comparisons of all problems that passed, to be judged together.
        worst: the comparison with the largest error in proportion to its bound, and its case.
        exact: the case in sixty digits that agreed to the fewest digits.
        told: the case whose `told` has the largest number.
        narrowed: narrower dtypes to which a program cast in any case in sixty digits.
        shrinks: problems that were tried to make a failing one smaller.
        tried: the problems that passed, with their options.
        drawn: whether there was any problem.
        rejected: why the last problem that was rejected was not judged, if the check says so.
    """

    judged: dict[str, Exception | None] = field(default_factory=dict)
    population: Population = field(default_factory=Population)
    worst: tuple[Comparison, Case] | None = None
    beyond: float = 0.0
    exact: Case | None = None
    told: Case | None = None
    narrowed: frozenset[str] = frozenset()
    failure: tuple[Exception, Case] | None = None
    shrinks: int = 0
    tried: list[tuple[Spec, Mapping[str, Any]]] = field(default_factory=list)
    drawn: bool = False
    rejected: str = ""

    @property
    def problems(self) -> int:
        """Problems judged until the first failure; those tried to make it smaller do not count."""
        return len(self.judged) - self.shrinks

    def passed(self, case: Case) -> None:
        """Add what a case that passed has recorded."""
        self.tried.append((case.spec, case.options))
        if case.exact is not None:
            self.narrowed |= case.exact.narrowed
            if self.exact is None or case.exact.error > self.exact.exact.error:  # type: ignore[union-attr]
                self.exact = case
        if case.told > (self.told.told if self.told else (0.0, "")):
            self.told = case
        shape = case.spec.static().to_json() if case.found else ""
        for found in case.found:
            self.population.add(found, shape)
            self.beyond = max(self.beyond, found.beyond)
            if self.worst is None or _weight(found) > _weight(self.worst[0]):
                self.worst = (found, case)


def _weight(found: Comparison) -> tuple[bool, float]:
    """The weight of a comparison: first whether its problem is informative, then its error over noise."""
    return found.informs, found.ratio


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
    search, start = Search(), time.perf_counter()
    reached: sides.Search | None = None
    worst: dict[str, Any] = {}

    def put(spec: Spec, options: Mapping[str, Any]) -> None:
        search.drawn = True
        _put(search, Case(subject, claim, spec, options), check, progress)

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
                    _other_sides(reached, put)
            worst = _hardest(search, subject, claim, check)
    except Inapplicable as why:
        return Verdict(task, "inapplicable", len(search.judged), reason=str(why))
    except (Refuted, Fault):
        pass
    verdict = _verdict(task, search, check, run, time.perf_counter() - start)
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


def judge_on(
    task: Task, subject: Subject, problems: Iterable[tuple[Spec, Mapping[str, Any]]], run: Run | None = None
) -> Verdict:
    """Judge one claim on these problems, in this order, until one refutes it; nothing is drawn, searched or shrunk.

    Args:
        task: names the claim, which is none about memory or work.
        subject: the loaded method.
        problems: (Spec, options) of each problem; one on which plain backprop is not finite is left out.
        run: what the verdict says how the problems were drawn.
    """
    claim = subject.declared.claim(task.claim)
    check = CHECKS[claim.check]
    search, start = Search(), time.perf_counter()
    try:
        for spec, options in problems:
            search.drawn = True
            with contextlib.suppress(Rejected):
                _put(search, Case(subject, claim, spec, options), check, lambda _: None)
    except Inapplicable as why:
        return Verdict(task, "inapplicable", len(search.judged), reason=str(why))
    except (Refuted, Fault):
        pass
    return _verdict(task, search, check, run or Run(len(search.judged)), time.perf_counter() - start)


def _other_sides(reached: sides.Search, put: Callable[[Spec, Mapping[str, Any]], None]) -> None:
    """Judge the problems that take sides of decisions which none has taken."""
    for spec in reached.problems():
        try:
            put(spec, reached.options)
            reached.judged()
        except Excused as why:
            reached.judged(str(why))
        except Rejected as why:
            reached.rejected(str(why))


def _hardest(search: Search, subject: Subject, claim: Claim, check: Check) -> dict[str, Any]:
    """The hardest problem that a search finds, as `Verdict.worst`."""
    if search.worst is None:
        return {}
    drawn, first = search.worst
    found = hardest.begin(claim, subject.function, first.spec, drawn.ratio)
    if found is None:
        return {}

    def judge(spec: Spec) -> Comparison | None:
        case = Case(subject, claim, spec, first.options)
        with contextlib.suppress(Rejected, Refuted, Fault):
            check.function(case)
        return case.found[-1] if case.found else None

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
        task, verdict, case.measured, spec=dataclasses.asdict(case.spec) if case.spec else None,
        options=dict(case.options), profile=task.profile, reason=reason, seconds=time.perf_counter() - start,
        laws=[series.to_dict() for series in case.series],
    )  # fmt: skip


def not_installed(task: Task) -> Verdict | None:
    """The verdict on a claim whose framework is missing; else None. If it is missing, the method must not be loaded."""
    name = task.framework
    if installed(name):
        return None
    return Verdict(task, "inapplicable", reason=f"{name} is not installed: pip install 'gradgate[{name}]'")


def draw(
    search: Search,
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
        _falsify(strategies.specs(family, claim.where, shapes), until_enough, DRAWS * missing, seed)


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


def _put(search: Search, case: Case, check: Check, progress: Callable[[int], None]) -> None:
    key = case.spec.to_json() + json.dumps(dict(case.options), sort_keys=True, default=str)
    if key not in search.judged:
        if search.failure is not None:
            if search.shrinks >= SHRINKS:
                return  # whatever else Hypothesis tries counts as passing: the smallest failure so far is kept
            search.shrinks += 1
        try:
            check.function(case)
        except (Refuted, Fault) as failure:
            search.judged[key] = failure
        except Rejected as why:
            search.rejected = str(why) or search.rejected
            raise
        except Exception as error:
            fault = case.subject.fault_of_reference(error)
            if fault is None:
                raise
            search.judged[key] = fault
        else:
            search.judged[key] = None
            search.passed(case)
        progress(search.problems)
    found = search.judged[key]
    if found is not None:
        search.failure = (found, case)  # Hypothesis ends with its smallest, so the last one is kept
        raise found.with_traceback(None)


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


def _verdict(task: Task, search: Search, check: Check, run: Run, seconds: float) -> Verdict:
    count = search.problems
    if search.failure is not None:
        failure, case = search.failure
        verdict = "refuted" if isinstance(failure, Refuted) else "error"
        leaf, error, noise = (getattr(failure, name, None) for name in ("leaf", "error", "noise"))
        return Verdict(
            task, verdict, count, error, noise, leaf or "", dataclasses.asdict(case.spec), dict(case.options),
            reason=str(failure), wrong_line=getattr(failure, "line", ""), seconds=seconds,
        )  # fmt: skip
    if not count:
        none = "plain backprop is finite on none of them" if search.drawn else "the restriction leaves none"
        none = search.rejected or none
        return Verdict(task, "inapplicable", reason=f"no problem could be judged: {none}")
    if search.exact is not None:
        return _exact_verdict(task, search.exact, search.narrowed, count, seconds)
    if search.worst is None and search.told is not None:
        case = search.told
        return Verdict(
            task, "upheld", count, spec=dataclasses.asdict(case.spec), options=dict(case.options), reason=case.told[1],
            seconds=seconds,
        )  # fmt: skip
    if search.worst is None:
        return Verdict(task, "upheld", count, seconds=seconds)
    if check.together and (refuted := search.population.refuted()):
        reason = f"{refuted}; {ADVICE}" if "accumulates" in search.worst[1].settings else str(refuted)
        return Verdict(
            task, "refuted", count, refuted.error, refuted.noise, refuted.leaf, reason=reason, seconds=seconds,
            run={"examples": run.examples, "seed": run.seed},
        )  # fmt: skip
    informed = search.population.informed(check.together)
    assert informed is not None
    worst, case = search.worst
    if not informed.enough:
        casts = " and ".join(sorted(case.casts))
        why = f"{informed}; the reference casts to {casts}, and rounds as that dtype does" if casts else str(informed)
        if getattr(case.subject.function, "random", False) and task.framework == "torch":
            why += f"; {DRAWS_OF_TORCH}"
        return Verdict(task, "inapplicable", count, reason=why, seconds=seconds, informative=informed.problems)
    return Verdict(
        task, "upheld", count, worst.error, worst.noise, worst.leaf, dataclasses.asdict(case.spec),
        dict(case.options), reason=search.told.told[1] if search.told else "", seconds=seconds,
        lost=digits_lost(search.beyond), informative=informed.problems, bound=worst.noise * BINDS[worst.dtype],
    )  # fmt: skip


def _exact_verdict(task: Task, case: Case, narrowed: frozenset[str], examples: int, seconds: float) -> Verdict:
    found = case.exact
    assert found is not None
    few = "; the difference is as small as that of a constant rounded to float64" if found.wrong else ""
    casts = f"{few}; casts to {' and '.join(sorted(narrowed))} count as exact" if narrowed else few
    return Verdict(
        task, "upheld", examples, found.error, None, found.leaf, dataclasses.asdict(case.spec), dict(case.options),
        reason=f"equal to {found.digits} digits{casts}", seconds=seconds, digits=found.digits,
    )  # fmt: skip
