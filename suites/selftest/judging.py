"""Judges mutants by the suite until a claim refutes them, and by other tools if asked. The result is plain JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from gradgate.suites.bugs.corpus import corpus, unbroken
from gradgate.suites.bugs.mutant import Mutant
from gradgate.suites.bugs.of_pairs import one_side
from gradgate.suites.bugs.of_pairs.one_side import OneSide
from gradgate.suites.checks import rivals
from gradgate.suites.judging.outcomes import AGAINST
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Verdict, finite
from gradgate.suites.workers.cluster import Judges

RIVALS = tuple(claim.name for claim in rivals.CLAIMS)
FOREIGN = {
    "torch": ("check_grads", "check_vjp"),
    "jax": ("gradcheck", "gradcheck_fast", "assert_close", "assert_close_loose"),
}
"""Rivals that do not judge a framework."""
SUITE = "gradgate"
FLOATS = "gradient_float64"
"""The suite's own claim in float64. It is compared with the rivals as if there were no sixty digits."""
TOOLS = (FLOATS, *RIVALS)
"""What is compared with the suite."""
Outcome = dict[str, Any]
"""The outcome of one mutant, as in the file of ``gradgate selftest --json``."""


@dataclass(frozen=True)
class Known:
    """The problem that refuted a mutant before.

    Attributes:
        run: judges this problem alone.
        examples: how many problems were judged until it.
    """

    run: Run
    examples: int


def everything() -> dict[str, Mutant | OneSide]:
    """The corpus, the mutants of pairs behind one decision, and the unbroken methods on which alarms are counted."""
    return {**unbroken(), **corpus(), **one_side.mutants()}


def judged(
    names: Iterable[str],
    supervisor: Judges,
    verdicts: MutableMapping[str, dict[str, Verdict]],
    tools: Collection[str] = (),
    known: Mapping[str, Mapping[str, Known]] | None = None,
) -> Iterator[Outcome]:
    """An outcome for every name, in the order in which the outcomes become known.

    Args:
        names: of mutants, of which something is missing.
        supervisor: who judges.
        verdicts: name -> claim -> the verdict, of what is judged already; gets the verdicts that were missing.
        tools: those of `TOOLS` that judge the mutants, too.
        known: name -> claim -> the problem that is judged first, alone. All are judged if it refutes no more.
    """
    first = {(name, claim): one for name, of in (known or {}).items() for claim, one in of.items()}
    mutants = {name: everything()[name] for name in names}
    wanted = {name: missing(mutant, verdicts[name], tools) for name, mutant in mutants.items()}
    for name in unbroken():  # judged twice, so that the compilation of the first time does not count as their cost
        if name in wanted:
            wanted[name] *= 2
    while wanted:
        left = {name: len(claims) for name, claims in wanted.items()}
        pairs = [(name, claim) for name, claims in wanted.items() for claim in claims]
        runs = [first[pair].run if pair in first else supervisor.run for pair in pairs]
        tasks = [mutants[name].task(claim) for name, claim in pairs]
        wanted = {}
        for verdict, _ in supervisor.judge_each(zip(tasks, runs, strict=True)):
            name, claim = verdict.task.method, verdict.task.claim
            alone = first.pop((name, claim), None)
            if alone is None:
                verdicts[name][claim] = verdict
            elif _kills(mutants[name], verdict):
                verdicts[name][claim] = dataclasses.replace(verdict, examples=alone.examples)
            left[name] -= 1
            if left[name]:
                continue
            if more := missing(mutants[name], verdicts[name], tools):
                wanted[name] = more
            else:
                yield outcome(mutants[name], verdicts[name], tools)


def missing(mutant: Mutant | OneSide, verdicts: Mapping[str, Verdict], tools: Collection[str] = ()) -> list[str]:
    """The claims that have to be judged next; none if the outcome is known.

    A mutant is first judged by the claim that is most likely to refute it, by the claims that must refute it, too, and
    by the tools. If the most likely claim does not refute it, the next claims follow one by one.
    """
    first = {*mutant.kill[:1], *mutant.also, *_beside(mutant, tools)}
    left = [claim for claim in claims(mutant, tools) if claim not in verdicts]
    if now := [claim for claim in left if claim in first]:
        return now
    return left[:1] if _killer(mutant, verdicts) is None else []


def claims(mutant: Mutant | OneSide, tools: Collection[str]) -> list[str]:
    """All claims by which a mutant may be judged, those of these tools among them."""
    return list(dict.fromkeys([*mutant.kill, *mutant.also, *_beside(mutant, tools)]))


def _beside(mutant: Mutant | OneSide, tools: Collection[str]) -> list[str]:
    """The tools that judge this framework, the floats a wrong formula alone; none if the bug is in no method."""
    if mutant.claims or isinstance(mutant, OneSide):  # the bug is in the code that measures a figure, or in a pair
        return []
    others = FOREIGN[mutant.framework] if mutant.formula else (*FOREIGN[mutant.framework], FLOATS)
    return [name for name in tools if name not in others]


def _tells(verdict: Verdict) -> bool:
    """Whether a verdict is about the method, and not about a check that failed or a mutant that cannot be built."""
    return not verdict.reason.startswith(("the check itself failed", "importing"))


def _kills(mutant: Mutant | OneSide, verdict: Verdict) -> bool:
    return verdict.verdict == mutant.verdict and _tells(verdict)


def _killer(mutant: Mutant | OneSide, verdicts: Mapping[str, Verdict]) -> Verdict | None:
    found = (verdicts[claim] for claim in mutant.kill if claim in verdicts)
    return next((verdict for verdict in found if _kills(mutant, verdict)), None)


def outcome(mutant: Mutant | OneSide, verdicts: Mapping[str, Verdict], tools: Collection[str] = ()) -> Outcome:
    """The outcome of a mutant that has all verdicts it needs, with what these tools say."""
    asked, killer = [verdicts[claim] for claim in mutant.kill if claim in verdicts], _killer(mutant, verdicts)
    blind = next((verdicts[claim] for claim in mutant.also if not _kills(mutant, verdicts[claim])), None)
    last = next((verdict for verdict in verdicts.values() if not _tells(verdict)), blind or killer or asked[-1])
    if not _tells(last) or not any(verdict.verdict in ("upheld", "refuted", mutant.verdict) for verdict in asked):
        status = "undecided"
    else:
        status = "killed" if killer and not blind else "survived"
    if mutant.equivalent:  # the proof is in words; no claim may contradict it, and no bit may differ
        status = {"survived": "equivalent", "killed": "alarm", "undecided": "undecided"}[status]
    elif mutant.name in unbroken():
        status = {"survived": "sound", "killed": "alarm", "undecided": "undecided"}[status]
    return {
        "name": mutant.name,
        "family": mutant.family,
        "framework": mutant.framework,
        "method": mutant.method,
        "story": mutant.story,
        "source": mutant.source,
        "kill": list(mutant.kill),
        "also": list(mutant.also),
        "equivalent": mutant.equivalent,
        "formula": mutant.formula,
        "planted": mutant.planted,
        "status": status,
        "claim": last.task.claim,
        "examples": last.examples,
        "seconds": round(last.seconds, 3),
        "leaf": last.leaf,
        "error": finite(last.error),
        "reason": last.reason,
        "judged": [claim for claim in claims(mutant, tools) if claim in verdicts],
        "rivals": {
            name: {
                "found": found.verdict in AGAINST,
                "examples": found.examples,
                "seconds": round(found.seconds, 3),
                "reason": found.reason,
            }
            for name, found in verdicts.items()
            if name in tools and found.verdict != "inapplicable"
        },
    }
