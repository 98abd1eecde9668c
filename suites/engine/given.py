"""One claim, judged on given problems: nothing is drawn, searched or made smaller."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradgate.references.contract import Spec
from gradgate.suites.checks import CHECKS, Case, Check
from gradgate.suites.checks.base import Rejected
from gradgate.suites.judging.population import Population
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted, Subject
from gradgate.suites.judging.tolerance import ADVICE, BINDS, Comparison, digits_lost
from gradgate.suites.judging.verdict import Task, Verdict

DRAWS_OF_TORCH = (
    "it draws random numbers, and PyTorch draws other ones in float64 than in float32: declare dtypes without one "
    "of them"
)
"""Why problems of a pair with `random` may say nothing."""
SHRINKS = 60
"""Most problems tried to shrink a failing one. It is a count, not a time, so that a run repeats bit for bit."""


@dataclass
class Judging:
    """The state of judging one claim: what was judged, the worst that passed, the smallest that failed.

    Attributes:
        population: the comparisons of all problems that passed, to be judged together.
        worst: the comparison with the largest error in proportion to its bound, and its case.
        exact: the case in sixty digits that agreed to the fewest digits.
        remarkable: the case whose `remark` has the largest number.
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
    remarkable: Case | None = None
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
        if case.remark > (self.remarkable.remark if self.remarkable else (0.0, "")):
            self.remarkable = case
        shape = case.spec.static().to_json() if case.comparisons else ""
        for found in case.comparisons:
            self.population.add(found, shape)
            self.beyond = max(self.beyond, found.beyond)
            if self.worst is None or _weight(found) > _weight(self.worst[0]):
                self.worst = (found, case)


def _weight(found: Comparison) -> tuple[bool, float]:
    """The weight of a comparison: first whether its problem is informative, then its error over noise."""
    return found.informs, found.ratio


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
    search, start = Judging(), time.perf_counter()
    try:
        for spec, options in problems:
            search.drawn = True
            with contextlib.suppress(Rejected):
                judge_case(search, Case(subject, claim, spec, options), check, lambda _: None)
    except Inapplicable as why:
        return Verdict(task, "inapplicable", len(search.judged), reason=str(why))
    except (Refuted, Fault):
        pass
    return verdict_of(task, search, check, run or Run(len(search.judged)), time.perf_counter() - start)


def judge_case(search: Judging, case: Case, check: Check, progress: Callable[[int], None]) -> None:
    """Judge one problem, unless it was judged before.

    Raises:
        Refuted, Fault: the problem refutes the claim.
        Rejected: nothing can be said on this problem.
    """
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


def verdict_of(task: Task, search: Judging, check: Check, run: Run, seconds: float) -> Verdict:
    """The verdict on all problems that were judged."""
    count = search.problems
    if search.failure is not None:
        failure, case = search.failure
        verdict = "refuted" if isinstance(failure, Refuted) else "error"
        leaf, error, noise = (getattr(failure, name, None) for name in ("leaf", "error", "noise"))
        return Verdict(
            task,
            verdict,
            count,
            error,
            noise,
            leaf or "",
            case.judged,
            dict(case.options),
            reason=str(failure),
            wrong_line=getattr(failure, "line", ""),
            seconds=seconds,
        )
    if not count:
        none = "plain backprop is finite on none of them" if search.drawn else "the restriction leaves none"
        none = search.rejected or none
        return Verdict(task, "inapplicable", reason=f"no problem could be judged: {none}")
    if search.exact is not None:
        return _exact_verdict(task, search.exact, search.narrowed, count, seconds)
    if search.worst is None and search.remarkable is not None:
        case = search.remarkable
        return Verdict(
            task,
            "upheld",
            count,
            spec=case.judged,
            options=dict(case.options),
            reason=case.remark[1],
            seconds=seconds,
        )
    if search.worst is None:
        return Verdict(task, "upheld", count, seconds=seconds)
    if check.together and (refuted := search.population.refuted()):
        reason = f"{refuted}; {ADVICE}" if "accumulates" in search.worst[1].settings else str(refuted)
        return Verdict(
            task,
            "refuted",
            count,
            refuted.error,
            refuted.noise,
            refuted.leaf,
            reason=reason,
            seconds=seconds,
            run={"examples": run.examples, "seed": run.seed},
        )
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
        task,
        "upheld",
        count,
        worst.error,
        worst.noise,
        worst.leaf,
        case.judged,
        dict(case.options),
        reason=search.remarkable.remark[1] if search.remarkable else "",
        seconds=seconds,
        lost=digits_lost(search.beyond),
        informative=informed.problems,
        bound=worst.noise * BINDS[worst.dtype],
    )


def _exact_verdict(task: Task, case: Case, narrowed: frozenset[str], examples: int, seconds: float) -> Verdict:
    found = case.exact
    assert found is not None
    few = "; the difference is as small as that of a constant rounded to float64" if found.wrong else ""
    casts = f"{few}; casts to {' and '.join(sorted(narrowed))} count as exact" if narrowed else few
    return Verdict(
        task,
        "upheld",
        examples,
        found.error,
        None,
        found.leaf,
        case.judged,
        dict(case.options),
        reason=f"equal to {found.digits} digits{casts}",
        seconds=seconds,
        digits=found.digits,
    )
