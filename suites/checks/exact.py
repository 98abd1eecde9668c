"""The formula: the gradient and its derivative in sixty digits, where equal formulas agree and no error is allowed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from gradgate.references.backends import leaves, to_numpy
from gradgate.references.contract import Problem, Tree
from gradgate.suites.checks import another, kinks
from gradgate.suites.checks.base import Case, Excused, Rejected
from gradgate.suites.checks.evaluation import (
    CANNOT,
    SLIGHT,
    cast_alone,
    checked,
    evaluated,
    evaluator,
    guarded,
    plain_program,
    plain_result,
    problem_of,
)
from gradgate.suites.exact import balls, programs
from gradgate.suites.exact.agreement import LIMIT, Agreement, NotFinite, compare, settle
from gradgate.suites.exact.lines import path_of
from gradgate.suites.exact.parting import (
    Parting,
    Watch,
    first_apart,
    made_before,
    made_but_lost,
    mended,
    recorded,
)
from gradgate.suites.exact.programs import Evaluator, Result
from gradgate.suites.exact.rounded import explained
from gradgate.suites.judging.explain import UNSCALED, listed
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted
from gradgate.suites.pairs.spec import PairProblem

NUDGE = 2.0**-20
"""Relative change of the numbers that a program reads out of tensors, to see whether its result depends on them. It is
some units in the last place of float32, in which many programs go on."""
NEAR = 1e-4
"""Largest relative difference that is tried to be put down to constants: that of a float32 constant, amplified."""
ROUNDED = 1e-12
"""Largest relative error that is put down to constants where the value to blame is looked for."""


def gradient(case: Case) -> None:
    """Loss and every leaf, or those that the claim is about, equal the oracle's to at least 40 digits.

    Settings: ``oracle``, another loss of the Problem than the method's own; ``leaves="last_layer"``.
    """
    _judge(case, evaluator(case), plain_program(case))


def second_order(case: Case) -> None:
    """The gradient of ⟨method's gradient, v⟩ equals the oracle's H·v to at least 40 digits."""
    twice = functools.partial(programs.differentiated, backend=case.subject.declared.framework)
    own = case.subject.program("exact, twice", case.options, lambda: Evaluator(twice(checked(case))))
    _judge(case, own, plain_program(case), programs.direction(case.problem(), 0))


def _judge(case: Case, method: Evaluator, plain: Evaluator, *trees: Tree) -> None:
    """Decide whether two programs are equal, and say where they first differ if they are not.

    Args:
        trees: what both programs take besides the problem.

    Raises:
        Refuted: they differ. Inapplicable: an operation has no rule. Rejected: a tie, or a problem without a value.
    """
    found: list[Result] = []

    def values(digits: int, **how: Any) -> Result:
        with balls.digits(digits):
            problem = problem_of(case)
            result = guarded(case, problem, lambda: method(problem, digits, *trees, **how))
        found.append(result)
        return result

    def plainly(digits: int, **how: Any) -> Result:
        if how or balls.standing_now():
            return plain(problem_of(case), digits, *trees, **how)
        return plain_result(case, digits, bool(trees))

    try:
        agreement = settle(lambda digits: _leaves(case, values(digits)), lambda digits: plainly(digits).values)
    except balls.Unknown as why:
        if _unseen(case):
            raise Rejected(f"{CANNOT}: {why}") from why
        raise Inapplicable(f"{CANNOT}: {why}") from None
    except NotFinite as why:
        raise Rejected("the reference's gradient is not finite") from why
    except balls.Undecided as why:
        raise Rejected(f"the digits do not decide {why}") from why
    own = found[-1]
    narrowed = frozenset(own.narrowed) - {case.widest}
    case.exact = dataclasses.replace(agreement, narrowed=narrowed)
    if not agreement.wrong or _as_declared(case, agreement, plainly):
        return
    if _unseen(case):
        case.exact = None
        apart = _excused(case, method, plain, trees)
        if apart:
            raise Excused(apart)
        case.exact = dataclasses.replace(agreement, narrowed=narrowed)
    if own.exits and _matters(own, values):
        if _unseen(case):
            raise Rejected(f"its result depends on a number that it reads out of a tensor, {own.exits[0]}")
        raise Inapplicable(f"{CANNOT}: its result depends on a number that it reads out of a tensor, {own.exits[0]}")
    if case.settings.get("constants", False) and not agreement.open and max(agreement.wrong.values()) <= NEAR:
        near = _by_constants(case, values, plainly, trees)
        if near is not None:
            case.exact = dataclasses.replace(near, narrowed=narrowed)
            return
    agreement = _unrounded(case, agreement, values, plainly, trees)
    if _against_itself(case):
        agreement = dataclasses.replace(agreement, shown="")  # the nearest gradient is right in no single number
        where = Parting("as its forward pass shows along random directions; the errors may be larger")
    else:
        noted = Parting(own.notes[0]) if own.notes and agreement.open else None
        where = noted or _apart(case, agreement, own.values, values, plainly)
    ignored = "" if trees or _against_itself(case) else _ignored(case, agreement, own.values, plain)
    slight = not agreement.open and agreement.error <= SLIGHT
    cast = cast_alone(case, own.narrowed, plainly(60).narrowed).sentence if slight else ""
    places = "; ".join(filter(None, [ignored, cast, _exchanged(agreement, own.values, plainly), where.sentence]))
    said = _told(agreement, _meaning(case, agreement, own.values, plainly), own.values, places)
    said += f"; {UNSCALED}" if "" not in agreement.wrong and not agreement.open and _adds(case) else ""
    said = f"at inputs that no draw has ({case.spec.regime}): {said}" if _unseen(case) else said  # type: ignore[attr-defined]
    raise Refuted(said, agreement.leaf, agreement.error, agreement.radius, path_of(where.line))


def _against_itself(case: Case) -> bool:
    """Whether the function is judged by values of its own forward pass (`exact.forward`)."""
    return bool(getattr(case.spec, "against_itself", False))


def _unseen(case: Case) -> bool:
    """Whether the inputs are changed so that they take sides of decisions which no draw of a pair takes."""
    return bool(getattr(case.spec, "unseen", False))


def _excused(case: Case, method: Evaluator, plain: Evaluator, trees: tuple[Tree, ...]) -> str:
    """`kinks.excused` for the two programs.

    Raises:
        Rejected: nothing can be said at these inputs.
    """
    recordings: programs.Recordings = {}

    def of_method(problem: Problem, digits: int) -> Any:
        return guarded(case, problem, lambda: method(problem, digits, *trees)).values

    return kinks.excused(
        lambda: problem_of(case),
        of_method,
        lambda problem, digits: plain(problem, digits, *trees, recordings=recordings).values,
        case.subject.declared.dtypes,
    )


def _unrounded(
    case: Case,
    agreement: Agreement,
    values: Callable[..., Result],
    plainly: Callable[..., Result],
    trees: tuple[Tree, ...],
) -> Agreement:
    """The agreement without the leaves, or the loss, that differ by rounded constants alone: they are not wrong.

    The leaf that is farthest off stays.
    """
    worst = max(agreement.wrong.values())
    small = {name for name, error in agreement.wrong.items() if error <= NEAR and error < worst}
    if not case.settings.get("constants", False) or agreement.open:
        return agreement
    for names in (small, small & {""}):
        with contextlib.suppress(Rejected):
            if names and _by_constants(case, values, plainly, trees, names) is not None:
                left = {name: error for name, error in agreement.wrong.items() if name not in names}
                return dataclasses.replace(agreement, wrong=left)
    return agreement


def _by_constants(
    case: Case,
    values: Callable[..., Result],
    plainly: Callable[..., Result],
    trees: tuple[Tree, ...],
    names: Collection[str] | None = None,
) -> Agreement | None:
    """The agreement of the two programs once their constants are unrounded (`exact.rounded`); None if nothing helps.

    Claims about a paper's methods forgive nothing: we wrote the constants of those methods.

    Args:
        names: the leaves that are compared; None compares all that the claim is about.

    Raises:
        Rejected: a constant moves a comparison.
    """
    problem = problem_of(case)
    arrays = [to_numpy(leaf) for leaf in leaves([problem.params, problem.data, *trees]) if leaf is not None]
    data = frozenset(abs(x) for array in arrays if array.dtype.kind == "f" for x in array.ravel().tolist())

    def of_method(digits: int) -> dict[str, Any]:
        found = _leaves(case, values(digits))
        return found if names is None else {name: found[name] for name in names}

    try:
        return explained(of_method, lambda digits: plainly(digits).values, data, case.widest)
    except balls.Undecided as why:
        raise Rejected from why


def _as_declared(case: Case, agreement: Agreement, plainly: Callable[..., Result]) -> bool:
    """Whether every leaf is within the error that the function declares; its outputs are judged by another claim."""
    relative, absolute = case.declared_error
    if agreement.open or not (relative or absolute):
        return False
    with balls.digits(60):
        exact = plainly(60).values if absolute else {}
    allowed = {name: relative + _share(absolute, exact[name]) if absolute else relative for name in agreement.wrong}
    return all(error <= allowed[name] for name, error in agreement.wrong.items() if name)


def _share(absolute: float, leaf: Any) -> float:
    """An absolute error relative to the norm of a leaf."""
    size = float(np.linalg.norm(balls.floats(leaf).astype(float).ravel()))
    return absolute / size if size else absolute


def _leaves(case: Case, result: Result) -> dict[str, Any]:
    """The values that the claim is about."""
    if case.settings.get("leaves") != "last_layer":
        return result.values
    last = f"layers[{case.spec.layers - 1}]"  # type: ignore[attr-defined]
    return {name: leaf for name, leaf in result.values.items() if name.startswith(last)}


def _matters(before: Result, values: Callable[..., Result]) -> bool:
    """Whether a program's result depends on the numbers that it reads out of tensors."""
    with balls.digits(60):
        found = compare(values(60, nudge=NUDGE).values, before.values)
    return found.error > LIMIT


def _apart(
    case: Case,
    agreement: Agreement,
    answers: Mapping[str, Any],
    values: Callable[..., Result],
    plainly: Callable[..., Result],
) -> Parting:
    """The value that is to blame, or else where the programs first differ.

    Args:
        answers: what the method returns.
    """
    leaf = max(agreement.wrong, key=lambda name: agreement.wrong[name])
    worst = agreement.wrong[leaf]
    least = ROUNDED if worst > NEAR else LIMIT  # what is left then is a constant that both programs round in their way
    try:
        with balls.digits(balls.DIGITS):
            exact = plainly(balls.DIGITS).values

            def right(result: Result) -> bool:
                return compare(_leaves(case, result), exact).error <= least

            recordings: programs.Recordings = {}
            if case.subject.declared.framework == "torch":  # all later runs play its recording, and count alike
                values(balls.DIGITS, recordings=recordings)

            def run(watch: Watch) -> Result:
                return values(balls.DIGITS, watch=watch, recordings=recordings)

            own, plain = recorded(run), recorded(lambda watch: plainly(balls.DIGITS, watch=watch))
            blamed = mended(run, own, plain, right)
            lost = made_but_lost(own, exact[leaf], leaf) if leaf else None
            if lost and (blamed is None or blamed.place < lost.place):  # the other value is right by accident
                return lost
            if blamed:
                return blamed
            until = made_before(own, answers.get(leaf))
            return first_apart(until, plain, worst) or Parting("")
    except (balls.Undecided, Fault, Refuted, NotFinite):
        return Parting("")


def _meaning(case: Case, agreement: Agreement, values: dict[str, Any], plainly: Callable[..., Result]) -> str:
    """What is wrong: the function, its gradient, or that gradient's derivative."""
    twice = case.claim.check == "second_order_exact"
    if "" not in agreement.wrong:
        return "wrong derivative of the right gradient" if twice else "wrong gradient"
    with balls.digits(60):
        exact = plainly(60).values
        shown = "not finite" if agreement.open else compare({"": values[""]}, exact).shown
    if twice:
        return f"wrong gradient: ⟨gradient, v⟩ is {shown}"
    if len(agreement.wrong) == 1:
        return f"wrong loss, right gradient: the loss is {shown}"
    return "; ".join(filter(None, [f"another function: its loss is {shown}", _followed(case, values, exact)]))


def _adds(case: Case) -> bool:
    """Whether the gradient of 0·loss is not zero although the plain one is: something in it is not multiplied."""
    if _against_itself(case):
        return False
    without = dataclasses.replace(case, spec=dataclasses.replace(case.spec, upstream=0.0))
    try:
        with balls.digits(60):
            own, plain = evaluated(without, 60), plain_result(without, 60)
    except (balls.Unknown, balls.Undecided, Fault, Refuted):
        return False
    some = [any(np.any(leaf != 0) for name, leaf in found.values.items() if name) for found in (own, plain)]
    return some == [True, False]


def _followed(case: Case, values: Mapping[str, Any], exact: Mapping[str, Any]) -> str:
    """Which loss the gradient belongs to, as far as differences can decide it."""

    def value(problem: Problem) -> float:
        with balls.digits(60):
            found = guarded(case, problem, lambda: evaluator(case)(problem, 60)).values[""]
        return float(balls.floats(found))

    grads, plain = ({name: balls.floats(leaf) for name, leaf in side.items() if name} for side in (values, exact))
    with contextlib.suppress(balls.Unknown, balls.Undecided, Fault, Refuted):
        return another.follows(problem_of(case), value, grads, plain)
    return ""


def _ignored(case: Case, agreement: Agreement, values: Mapping[str, Any], plain: Evaluator) -> str:
    """The output whose upstream gradient the backward pass ignores, in words; "" if there is none."""
    problem = problem_of(case)
    cotangents = problem.data.get("cotangents", {}) if isinstance(problem, PairProblem) else {}
    if len(cotangents) < 2 or agreement.open or "" in agreement.wrong:
        return ""
    grads = {name: leaf for name, leaf in values.items() if name}
    for path, cotangent in cotangents.items():
        less = {**problem.data, "cotangents": {**cotangents, path: 0 * cotangent}}
        with balls.digits(60), contextlib.suppress(balls.Unknown, balls.Undecided, NotFinite):
            if not compare(grads, plain(problem._replace(data=less), 60).values).error > LIMIT:
                return f"the upstream gradient of output {path} is ignored, and all else is right"
    return ""


def _exchanged(agreement: Agreement, values: Mapping[str, Any], plainly: Callable[..., Result]) -> str:
    """Which wrong leaf has the gradient of another one, or its own transposed, in words; "" if none has."""
    if agreement.open or not agreement.shown or not any(agreement.wrong):
        return ""
    with balls.digits(60):
        exact = plainly(60).values
        for wrong in filter(None, agreement.wrong):
            turned = np.swapaxes(exact[wrong], -1, -2) if np.ndim(exact[wrong]) > 1 else exact[wrong]
            if np.shape(turned) == np.shape(values[wrong]) and _equal(values[wrong], turned):
                return f"{wrong} has its gradient transposed"
            for name in (name for name in exact if name not in ("", wrong)):
                alike = np.shape(values[wrong]) == np.shape(exact[name]) and np.any(balls.floats(exact[name]))
                if alike and _equal(values[wrong], exact[name]):
                    return f"{wrong} has the gradient of {name}"
    return ""


def _equal(one: Any, other: Any) -> bool:
    return bool(compare({"": one}, {"": other}).error <= LIMIT)


def _told(agreement: Agreement, meaning: str, leaves: Collection[str], where: str) -> str:
    """The refutation in words: what is wrong, the wrong leaves, the first wrong digits, where the programs differ."""
    worst = max(agreement.wrong, key=lambda name: agreement.wrong[name])
    shown = _place(worst, agreement.shown) if agreement.shown else ""
    wrong = {name: error for name, error in agreement.wrong.items() if name}
    of = listed(wrong, leaves) if wrong else ""
    if ":" in meaning:
        what = f"{meaning}; wrong gradient of {of}" if of else meaning
    else:
        what = f"{meaning}, in {of}" if " of " in meaning else f"{meaning} of {of}"
    return "; ".join(part for part in (what, shown, where) if part)


def _place(leaf: str, shown: str) -> str:
    """A leaf and its first wrong digits; "" for the loss, whose digits are reported elsewhere."""
    return "" if not leaf else f"{leaf}{shown}" if shown.startswith("[") else f"{leaf} is {shown}"
