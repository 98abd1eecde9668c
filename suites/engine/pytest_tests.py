"""`gradgate.parametrize`: every claim of a pair as a separate test."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.contract import Claim, Method, UsageError
from gradgate.suites.pairs.pair import Pair

SHOWN = ("measured", "leaf", "problem", "options", "declared_reason", "claim", "outcome")
"""What a failing test shows of its verdict, after what is wrong."""
EXAMPLES = 24
"""Problems of a claim by default."""


def parametrize(*pairs: Pair, examples: int = EXAMPLES, seed: int = 0) -> Callable[[Any], Any]:
    """Decorator that runs a test once for every claim of the pairs; the test calls its argument ``check``.

    Every claim is a separate test, named ``pair-claim``. A test fails if the claim is refuted, and says what was wrong
    and on which problem. A claim in `Pair.expected` is an expected failure (xfail), and fails the test if it is upheld
    after all. A claim that cannot be judged is skipped with its reason.

    Args:
        pairs: made by `gradgate.Pair` or `gradgate.module_pair`.
        examples: problems per claim.
        seed: the seed of everything that is drawn: inputs and cotangents.

    Raises:
        UsageError: an argument is not a pair, or a pair is declared wrongly; pytest shows this when it collects the
            file.

    Cost: that of ``gradgate verify`` with as many ``--examples``: some seconds to a minute for a pair. Collecting the
    file imports both functions.

    Not for: functions that may crash or hang. They are judged in pytest's process, so that breakpoints work; ``gradgate
    verify`` judges in separate processes. Not for profiles: claims about bytes are judged on ``cpu`` here.

    Example::

        @gradgate.parametrize(flce)
        def test_gradient(check):
            check()
    """
    import pytest

    if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
        raise UsageError(f"examples is a whole number of at least 1, not {examples!r}")
    found = []
    for pair in pairs:
        if not isinstance(pair, Pair):
            raise UsageError(f"parametrize takes gradgate.Pair, not a {type(pair).__name__}")
        method = pair.lowered
        for claim in method.claims:
            test = functools.partial(_judge, pair, method, claim, examples, seed)
            found.append(pytest.param(test, id=f"{pair.called}-{claim.name}"))
    return pytest.mark.parametrize("check", found)


def _judge(pair: Pair, method: Method, claim: Claim, examples: int, seed: int) -> None:
    import pytest

    from gradgate.suites.engine.search import judge
    from gradgate.suites.judging.explain import explain
    from gradgate.suites.judging.outcomes import OUTCOMES
    from gradgate.suites.judging.run import Run
    from gradgate.suites.judging.verdict import Task

    verdict = judge(Task.of(method, claim, pair.target), _subject(pair), Run(examples, seed))
    if verdict.verdict == "inapplicable":
        pytest.skip(verdict.reason)
    words = explain(verdict)
    if verdict.outcome == "finding":
        pytest.xfail(claim.declared_reason)
    if OUTCOMES[verdict.outcome].status:
        pytest.fail("\n".join((*words.clauses, *words.lines(*SHOWN))), pytrace=False)


@functools.lru_cache(maxsize=64)
def _subject(pair: Pair) -> Any:
    from gradgate.suites.judging.subject import Subject

    return Subject(pair.lowered, pair)
