"""Random pairs that are right, and whose functions choose by comparing numbers: none may be refuted, at ties or not.

Each is a function of a function of `bugs.of_pairs.choices`, with other constants. So there are 27 kinds of each of the
two, and decisions depend on decisions. The function has the backward passes by hand, and the reference is plain, or the
other way round. ``python -m gradgate.suites.calibration.drawn_pairs jax --seconds 300`` judges their formulas, with the
search for sides of decisions that no draw takes, and reports false alarms; ``--wrong`` plants an error of 1 % instead.
"""

from __future__ import annotations

import argparse
import collections
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from gradgate import Pair, normal
from gradgate.references import registry
from gradgate.references.backends import namespace
from gradgate.suites.bugs.of_pairs import choices
from gradgate.suites.judging.engine import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers.variables import environment
from gradgate.suites.workers.worker import relieve

CLAIM = "gradient_exact"
EXAMPLES = 4
NOT_AT_ZERO = {"cosine", "shrunk_norm"}
"""Kinds whose plain functions have a norm: at zero its gradient is not finite, so they are references alone."""
SIZES = (1, 2, 3, 4)
FORGOTTEN = 200
"""Number of pairs after which compiled programs are dropped."""
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

    # A plain function of a plain one may give no element of the generalised gradient at a tie within a tie: −½ for
    # |max(x, 0)| at 0. With a shift, both ties never meet.
    turned = bool(rng.integers(2)) and shift != 0 and not {outer, inner} & NOT_AT_ZERO
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


def main() -> int:
    """Judge random pairs until the time is over; the exit status is 1 if there was an alarm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=("jax", "torch"))
    parser.add_argument("--seconds", type=float, default=300.0, help="processor time")
    parser.add_argument("--seed", type=int, default=0, help="the first pair's seed")
    parser.add_argument("--wrong", action="store_true", help="plant an error of 1 %% and count what is not refuted")
    chosen = parser.parse_args()
    os.environ.update(environment())
    number, bad = chosen.seed, 0
    counts: collections.Counter[str] = collections.Counter()
    while time.process_time() < chosen.seconds:
        verdict = judged(chosen.framework, number, 0.01 if chosen.wrong else 0.0)
        counts[verdict.verdict] += 1
        counts["tries"] += verdict.decisions.get("tries", 0)
        counts["differences at ties"] += sum("generalised" in one for one in verdict.decisions.get("apart", ()))
        if (verdict.verdict != "upheld") != chosen.wrong:
            bad += chosen.wrong or verdict.verdict != "inapplicable"
            words = draw(chosen.framework, number)[0]
            print(f"seed {number}: {words}\n{verdict.verdict}: {verdict.reason}\n{verdict.spec}\n", flush=True)
        number += 1
        if number % FORGOTTEN == 0:
            relieve()
    what = "not refuted" if chosen.wrong else "false alarms"
    print(f"{chosen.framework}: {bad} {what} in {number - chosen.seed} pairs, seeds from {chosen.seed}; {dict(counts)}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
