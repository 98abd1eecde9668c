"""Random pairs that are right, and whose functions choose by comparing numbers: none may be refuted, at ties or not.

Each is a function of a function of `bugs.of_pairs.choices`, with other constants. So there are 27 kinds of each of the
two, and decisions depend on decisions. The function has the backward passes by hand, and the reference is plain, or the
other way round. ``nox -s trial -- pairs`` judges their formulas, with the search for sides of decisions that no draw
takes, and counts false alarms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate import Pair, normal
from gradgate.references import registry
from gradgate.references.backends import namespace
from gradgate.suites.bugs.of_pairs import choices
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers.worker import collect_rarely, relieve

CLAIM = "gradient_exact"
EXAMPLES = 4
NOT_AT_ZERO = {"cosine", "shrunk_norm"}
"""Kinds whose plain functions have a norm: at zero its gradient is not finite, so they are references alone."""
AMONG_A_ROW = {"pooled", "spread"}
"""Kinds that compare the numbers of a row with one another. These tie wherever an inner function is flat: at −½, the
largest soft-thresholded number has the one-sided derivatives 0 and 0, and plain rules give half of a share. So they are
plain as references alone."""
TIED = (-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)
"""At these numbers kinds have ties, and at their ties they have such values."""
SIZES = (1, 2, 3, 4)
Function = Callable[..., Any]


def draw(framework: str, seed: int, error: float = 0.0) -> tuple[str, Pair]:
    """What the pair of a seed is in words, and the pair.

    Args:
        error: relative error of the gradient of the function, where its last input is negative.
    """
    rng = np.random.default_rng(seed)
    outer, inner = (str(name) for name in rng.choice(list(choices.KINDS), 2))
    factor, shift = (float(f"{number:.3g}") for number in (rng.uniform(0.5, 2.0), rng.choice([0.0, rng.normal()])))
    xp: Any = namespace(framework)
    by_hand = {name: _by_hand(framework, choices.KINDS[name]) for name in (outer, inner)}
    plain = {name: _plain(xp, choices.KINDS[name]) for name in (outer, inner)}

    def composed(parts: dict[str, Function]) -> Function:
        def function(x: Any, y: Any) -> Any:
            found = _applied(parts[inner], choices.KINDS[inner], x, y)
            found = factor * found + shift + 0 * x  # some of them return a number for each row
            return _applied(parts[outer], choices.KINDS[outer], found, y)

        return function

    refused = {outer, inner} & NOT_AT_ZERO or outer in AMONG_A_ROW or _ties_may_meet(factor, shift)
    turned = bool(rng.integers(2)) and not refused
    function, reference = (composed(parts) for parts in ((plain, by_hand) if turned else (by_hand, plain)))
    if error:
        function = _wrong(framework, xp, function, error)
    sizes = {name: tuple(int(size) for size in rng.permutation(SIZES)[:2]) for name in ("T", "H")}
    made = Pair(
        function,
        reference,
        inputs={"x": normal("T H"), "y": normal("T H")},
        dims=sizes,
        framework=framework,
        name=f"drawn_{seed}",
    )
    words = f"{outer} of {factor:g}·{inner} {shift:+g}, {'the reference' if turned else 'the function'} by hand"
    return f"{words}, {sizes}", made


def _ties_may_meet(factor: float, shift: float) -> bool:
    """Whether an outer function may have a tie where the inner one has one.

    There a plain function of a plain one may give no element of the generalised gradient: −½ for |max(x, 0)| at 0, and
    ½ for min(1 + |x|, 1), which is constant.
    """
    return any(math.isclose(factor * value + shift, tie, abs_tol=1e-9) for value in TIED for tie in TIED)


def _by_hand(framework: str, kind: choices.Kind) -> Function:
    return choices.in_jax(kind) if framework == "jax" else choices.in_torch(kind)


def _plain(xp: Any, kind: choices.Kind) -> Function:
    return lambda *inputs: kind.plain(xp, *inputs)


def _applied(function: Function, kind: choices.Kind, x: Any, y: Any) -> Any:
    return function(*(x, y)[: len(kind.inputs)])


def _wrong(framework: str, xp: Any, function: Function, error: float) -> Function:
    """The function with a gradient that is wrong where the last input is negative."""
    kind = choices.Kind(
        lambda xp, x, y: x,
        lambda xp, x, y: x,
        lambda xp, g, x, y: (g * xp.where(y < 0, 1 + error + 0 * y, 1 + 0 * y), 0 * y),
        choices.TWO,
    )
    skewed = _by_hand(framework, kind)
    return lambda x, y: function(skewed(x, y), y)


def judged(framework: str, seed: int, error: float = 0.0) -> Verdict:
    """The verdict on the formula of the pair of a seed.

    Cost: 0.3 to 1 s of one core.
    """
    _, pair = draw(framework, seed, error)
    method = pair.lowered
    try:
        return judge(Task.of(method, method.claim(CLAIM)), Subject(method, pair), Run(EXAMPLES, seed))
    finally:
        registry.forget(method.family)


def alarms(framework: str, start: int, stop: int) -> tuple[dict[str, str], int]:
    """Judge the right pairs of the seeds start … stop − 1.

    Returns:
        Seed -> why its pair was refuted or gave an error, and how many gave no answer.
    """
    found, silent = {}, 0
    for seed in range(start, stop):
        verdict = judged(framework, seed)
        collect_rarely()  # after the first, which imports the framework
        silent += verdict.verdict == "inapplicable"
        if verdict.verdict not in ("upheld", "inapplicable"):
            found[str(seed)] = f"{draw(framework, seed)[0]}: {verdict.verdict}: {verdict.reason}"
    relieve()
    return found, silent
