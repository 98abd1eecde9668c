"""The verdicts on a pair's claims, judged in this process."""

from __future__ import annotations

from typing import Any

from gradgate.references import registry
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict


def judged(pair: Any, claims: tuple[str, ...] = (), examples: int = 6, run: Run | None = None) -> dict[str, Verdict]:
    """Verdicts by claim; on all claims if `claims` is empty. `run` takes the place of one with so many examples."""
    method = pair.lowered
    subject = Subject(method, pair)
    try:
        return {
            claim.name: judge(Task.of(method, claim), subject, run or Run(examples=examples))
            for claim in method.claims
            if not claims or claim.name in claims
        }
    finally:
        registry.forget(method.family)


def refuted(pair: Any, claim: str, examples: int = 6) -> str:
    """The reason for which a claim is refuted."""
    found = judged(pair, (claim,), examples)[claim]
    assert found.verdict == "refuted", found
    return str(found.reason)


def upheld(pair: Any, claims: tuple[str, ...] = (), examples: int = 6, besides: tuple[str, ...] = ()) -> None:
    """Fail unless these claims are upheld; those in `besides` may have any verdict.

    If there are none, all claims are judged, and forward mode may be inapplicable.
    """
    found = {name: verdict for name, verdict in judged(pair, claims, examples).items() if name not in besides}
    if not claims and found["forward_mode"].verdict == "inapplicable":
        del found["forward_mode"]
    assert found
    wrong = {name: f"{one.verdict}: {one.reason}" for name, one in found.items() if one.verdict != "upheld"}
    assert not wrong, wrong
