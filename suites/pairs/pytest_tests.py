"""`gradgate.parametrize`: every claim of a pair as a test of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.contract import Claim, Method
from gradgate.suites.pairs.pair import Pair

SHOWN = ("outcome", "claim", "declared_reason", "reason", "measured", "leaf", "problem", "options")
"""What a failing test says of its verdict."""
EXAMPLES = 24
"""Problems of a claim unless told."""


def parametrize(*pairs: Pair, examples: int = EXAMPLES, seed: int = 0) -> Callable[[Any], Any]:
    """Decorator that runs a test once for every claim of the pairs; the test calls its argument ``check``.

    Args:
        pairs: judged in the process of pytest, so that breakpoints work.
        examples: problems per claim.
        seed: of everything that is drawn.

    Example::

        @gradgate.parametrize(flce)
        def test_gradient(check):
            check()

    A claim that is declared to fail is an expected failure, and fails the test if it is upheld. A claim that cannot be
    judged is skipped with its reason.
    """
    import pytest

    found = []
    for pair in pairs:
        method = pair.lowered
        for claim in method.claims:
            test = functools.partial(_judge, pair, method, claim, examples, seed)
            found.append(pytest.param(test, id=f"{pair.called}-{claim.name}"))
    return pytest.mark.parametrize("check", found)


def _judge(pair: Pair, method: Method, claim: Claim, examples: int, seed: int) -> None:
    import pytest

    from gradgate.suites.judging.engine import Run, judge
    from gradgate.suites.judging.explain import explain
    from gradgate.suites.judging.outcomes import OUTCOMES
    from gradgate.suites.judging.verdict import Task

    verdict = judge(Task.of(method, claim, pair.target), _subject(pair), Run(examples, seed))
    if verdict.verdict == "inapplicable":
        pytest.skip(verdict.reason)
    told = explain(verdict)
    if verdict.outcome == "finding":
        pytest.xfail(claim.declared_reason)
    if OUTCOMES[verdict.outcome].status:
        pytest.fail("\n".join(told.lines(*SHOWN)), pytrace=False)


@functools.lru_cache(maxsize=64)
def _subject(pair: Pair) -> Any:
    from gradgate.suites.judging.subject import Subject

    return Subject(pair.lowered, pair)
