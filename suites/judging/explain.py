"""A verdict in words: `explain`, which the terminal, the page, JUnit and pytest all use.

Each of the four only arranges these words. So a reader finds the same sentence wherever a refutation is shown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from gradgate.suites.judging.outcomes import OUTCOMES
from gradgate.suites.judging.verdict import Verdict

T = TypeVar("T")
NAMED = 4
"""Number of leaves that a sentence names."""
TINY = 1e-300
"""Widths of balls below it are not written."""
PLAINLY = 5e-4
"""Relative errors from this one on are written in percent."""
WHERE_ZERO = 1e30
"""Relative errors from this one on mean that the true value is zero, as far as sixty digits show it."""
EXACT = ("gradient_exact", "second_order_exact")
"""Claims that are judged in sixty digits."""
KNOWN_ERROR = "finding: error, as declared"
"""The outcome in words of a claim that is declared to fail and could not be measured."""
LABELS = {
    "reason": "reason",
    "measured": "measured",
    "leaf": "leaf",
    "remedy": "what to do",
    "problem": "problem",
    "options": "options",
    "declared_reason": "declared false because",
    "claim": "claim",
    "outcome": "outcome",
    "reproduce": "reproduce",
    "declare": "declare",
}
"""Field of an `Explanation` -> its label, in the order in which the fields are shown."""


@dataclass(frozen=True)
class Explanation:
    """One verdict in words. A field is "" if there is nothing to say.

    Attributes:
        outcome: the verdict compared with what was declared, such as ``finding: refuted, as declared``.
        claim: the claim's name, its statement, and its source.
        declared_reason: why the method declares the claim false.
        reason: the verdict's own sentence: what was wrong, or why nothing could be said.
        measured: the numbers: error and noise, or digits.
        leaf: the leaf of the gradient, unless `measured` names it.
        problem: the Spec of the smallest problem that fails, or the worst one of an upheld claim.
        options: the method's options on that problem.
        reproduce: one command that judges this claim again.
        declare: the declaration to paste if the failure is known.
        remedy: what to do if the function is right as it is, and its declaration says too much.
    """

    outcome: str
    claim: str
    declared_reason: str
    reason: str
    measured: str
    leaf: str
    problem: str
    options: str
    reproduce: str
    declare: str = ""
    remedy: str = ""

    @property
    def clauses(self) -> list[str]:
        """The reason, or else the outcome, in clauses: what is wrong of what and how much, a number of it, where."""
        return (self.reason or self.outcome).split("; ")

    def lines(self, *fields: str) -> list[str]:
        """These fields, or all fields, each as ``label: text``; a field that is "" is left out."""
        chosen = [(LABELS[name], str(getattr(self, name))) for name in fields or LABELS]
        return [f"{label}: {text}" for label, text in chosen if text]


def explain(verdict: Verdict) -> Explanation:
    """Everything that is shown about a verdict."""
    task, numbers = verdict.task, measured(verdict)
    said = verdict.reason.removeprefix(f"equal to {verdict.digits} digits").removeprefix("; ")
    return Explanation(
        outcome=KNOWN_ERROR
        if (verdict.outcome, verdict.verdict) == ("finding", "error")
        else OUTCOMES[verdict.outcome].meaning,
        claim=f"{task.claim}: {task.statement}" + (f" ({task.source})" if task.source else ""),
        declared_reason=task.declared_reason,
        reason=said,
        measured=numbers,
        leaf="" if f" in {verdict.leaf}" in numbers else verdict.leaf,
        problem=compact(verdict.spec or {}),
        options=compact(verdict.options),
        reproduce=verdict.reproduce,
        declare=verdict.to_declare,
        remedy=_remedy(verdict),
    )


RANDOM = "deterministic"
"""The claim that a function refutes if it draws random numbers: whatever compares two of its calls fails as well."""
CAUSES = ("gradient_exact", "outputs", "gradient_float64", "gradient_float32", "gradient_bfloat16", "gradient_float16")
"""Claims that a wrong formula refutes, the most telling one first."""
FOLLOWING = frozenset(
    (
        *CAUSES,
        "cotangents",
        "forward_mode",
        "not_finite",
        "options",
        "second_order",
        "second_order_exact",
        "stability",
        "upstream",
        "value",
    )
)
"""Claims that compare with the reference: if the formula is wrong, they are refuted as well."""
DIGITS = (
    "if gradient_exact is upheld, the formula is right and digits are lost: keep them, or declare {} with its reason"
)
COMPOSED = (
    "if it is not for this transformation, take it out of composes=, or refuse it in words and name it in disclaims="
)
REMEDIES = {
    "tree": "gradient=False in a draw declares an input that gets no gradient",
    "outputs": "if gradient_exact is upheld, the formula is right and digits are lost: look for a cast",
    "each_leaf_alone": "the backward pass returns a gradient for each input that requires one: ctx.needs_input_grad",
    "layouts": "what arrives may have any strides: .contiguous() makes a copy where the code needs one",
    "gradient_float64": DIGITS.format("a larger kappa="),
    "gradient_float32": DIGITS.format("a larger kappa="),
    "gradient_bfloat16": DIGITS.format("the dtypes= that it is for"),
    "gradient_float16": DIGITS.format("the dtypes= that it is for"),
    **dict.fromkeys(("compile", "jit", "vmap", "second_order", "second_order_exact"), COMPOSED),
}
"""Claim of a pair -> what an author can do if the function is as it should be."""
SIZED = re.compile(r"(?:b?float)?\d+")
"""Sizes and dtypes, which differ from problem to problem in what is raised for one cause."""
AGAIN = "differentiated again: "
"""How the reason of a refuted derivative of a gradient begins."""
DRAWS = "the call moved or reseeded the global random state"
"""How the reason begins if a function drew random numbers that nobody declared."""
CHANGED = "the call changed its "
"""How the reason begins if a function writes into what it was given: whatever calls it twice may fail as well."""
BEGINNINGS = {
    AGAIN: "once_differentiable on the backward pass refuses a second derivative in words",
    "two calls on one problem differ": "if it draws random numbers, declare random=True",
    DRAWS: "if it draws random numbers, declare random=True",
    CHANGED: "what arrives belongs to the caller: write into a copy, such as .clone(), or compute out of place",
    "inputs overwritten before": "ctx.save_for_backward keeps inputs and raises if they were changed; attributes of "
    "ctx do not",
}
"""How the reason of a refutation begins -> what an author can do."""


STRUCTURE = re.compile(r"another function: (it returns |\S+ has shape )")
"""How the reason begins if a function returns other outputs than the reference, whatever their numbers."""


SMALL = 1e-3
"""The largest relative error of a function that may be meant to be approximate."""
UNSCALED = "a part of the gradient does not depend on the upstream gradient"
"""What a reason says of a backward pass that adds something of its own, as the gradient of an auxiliary loss is."""


def _remedy(verdict: Verdict) -> str:
    """What the author of a pair can do about a failure, besides mending the function."""
    task = verdict.task
    if verdict.outcome not in ("failure", "error") or not task.origin:
        return ""
    for beginning, remedy in BEGINNINGS.items():
        if verdict.reason.startswith(beginning):
            return remedy
    if UNSCALED in verdict.reason:
        return (
            "right for an upstream gradient of 1 alone, and wrong under a scaled loss: multiply by the upstream "
            "gradient, or, if it is meant so, let the reference add that part in the same way"
        )
    error = verdict.error or 0.0
    if task.claim == "gradient_exact" and 0 < error <= SMALL:
        bound = 10.0 ** math.ceil(math.log10(error) + 1)
        return f"if it is approximate by design, declare its error: approximates=gradgate.within({bound:.0e})"
    if verdict.outcome == "error" or STRUCTURE.match(verdict.reason):
        return ""  # nothing to declare makes it right
    return REMEDIES.get(task.claim, "")


def by_cause(items: Iterable[T], verdict: Callable[[T], Verdict]) -> list[list[T]]:
    """Failures or findings in groups of one cause, the most telling one first in its group, and errors below failures.

    Findings have the same cause if they share the method and the declared reason. Failures of one method do if they
    have the same reason, or if each compares with the reference and the formula is wrong, or if the outputs are others
    than the reference's, or if a leaf has no gradient, or if the method draws random numbers and each compares numbers
    of two calls. If the method writes into what it was given, this is the cause of all that the formula does not cause.
    Errors have the same cause if the same is raised at the same line, apart from sizes and dtypes.
    """
    items = list(items)
    failures = [one for one in map(verdict, items) if one.outcome == "failure"]
    missing = {(one.task.owner, _first(one)) for one in failures if one.task.claim == "tree"}
    failed = {one.task.name for one in failures if (one.task.owner, _first(one)) not in missing}
    changed = {one.task.owner for one in failures if one.reason.startswith(CHANGED)}
    formula: dict[str, int] = {}  # owner -> rank of the claim that shows best that its formula is wrong
    for one in map(verdict, items):
        if one.outcome == "failure" and one.task.claim in CAUSES:
            rank = CAUSES.index(one.task.claim)
            formula[one.task.owner] = min(rank, formula.get(one.task.owner, rank))

    def cause(item: T) -> Hashable:
        one = verdict(item)
        task = one.task
        if one.outcome == "finding":
            return task.family, task.method, task.declared_reason
        if one.outcome == "failure" and STRUCTURE.match(one.reason):
            return task.owner, STRUCTURE
        if one.outcome == "failure" and (task.owner, _first(one)) in missing:
            return task.owner, _first(one)
        follows = task.claim in FOLLOWING or one.reason.startswith(AGAIN)
        if one.outcome == "failure" and task.owner in changed and not (task.owner in formula and follows):
            return task.owner, CHANGED
        if one.outcome == "failure" and f"{task.owner}:{RANDOM}" in failed:
            drawn = task.claim == RANDOM or one.error is not None or one.reason.startswith(DRAWS)
            return task.owner if drawn else (task.owner, one.reason)
        if one.outcome == "failure" and task.owner in formula and follows:
            return task.owner
        if one.outcome == "error":
            said, *frames = one.reason.split(" · ")
            return task.owner, "error", SIZED.sub("#", said.partition("; ")[0]), "".join(frames[-1:])
        return task.owner, one.outcome, one.reason

    groups = alike(items, cause)
    for group in groups:
        group.sort(key=lambda item: _rank(verdict(item)))
    return sorted(groups, key=lambda group: verdict(group[0]).outcome == "error")


def _first(verdict: Verdict) -> str:
    """The first clause of the reason: what is wrong, without numbers that depend on the problem."""
    return verdict.reason.partition("; ")[0]


def _rank(verdict: Verdict) -> int:
    """The place of a failure in its group: claims of `CAUSES` come first, but for a method that changes its inputs."""
    if verdict.outcome == "failure" and verdict.reason.startswith(CHANGED):
        return -1
    order = ("tree", RANDOM, *CAUSES)
    first = verdict.outcome == "failure" and verdict.task.claim in order
    return order.index(verdict.task.claim) if first else len(order)


def alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """The items in groups of equal key, in the order in which the keys first occur."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def is_exact(verdict: Verdict) -> bool:
    """Whether a verdict is about the formula, in sixty digits: its `noise` is then the width of the balls."""
    return verdict.digits is not None or verdict.task.claim in EXACT


def measured(verdict: Verdict) -> str:
    """The numbers of a verdict in words; "" if it has none.

    >>> from gradgate.suites.judging.verdict import Task
    >>> task = Task("chain", "revolve", "jax", "gradient_float64")
    >>> measured(Verdict(task, "upheld", error=3.2e-16, noise=4e-16, leaf="w", lost=0.02))
    'error 3.2e-16 in w, noise 4e-16, 0.8 times the noise; 0.0 digits lost beyond plain backprop'
    >>> measured(Verdict(task, "upheld", 100, error=8e-16, noise=4e-16, leaf="w", bound=6.4e-15, informative=97))
    'error 8e-16 in w, noise 4e-16, 2 times the noise, bound 6.4e-15; 97 of 100 problems informative'
    >>> measured(Verdict(task, "upheld", error=1e-58, digits=57))
    'equal to 57 digits'
    """
    where = f" in {verdict.leaf}" if verdict.leaf else ""
    if verdict.digits is not None:
        return f"equal to {verdict.digits} digits"
    parts = []
    known = verdict.error is not None or verdict.noise is not None
    error, noise = number(verdict.error) or "not finite", number(verdict.noise)
    if known and is_exact(verdict):
        parts.append(
            f"relative error {error}{where}" + (f", known to within {noise}" if (verdict.noise or 0.0) > TINY else "")
        )
    elif known:
        ratio = "" if (times := beside_noise(verdict)) is None else f", {times:.3g} times the noise"
        bound = "" if verdict.bound is None else f", bound {number(verdict.bound)}"
        parts.append(f"error {error}{where}, noise {noise or 'not known'}{ratio}{bound}")
    parts += [] if verdict.lost is None else [f"{verdict.lost:.1f} digits lost beyond plain backprop"]
    if verdict.informative is not None:
        parts.append(f"{verdict.informative} of {verdict.examples} problems informative")
    return "; ".join(parts)


def beside_noise(verdict: Verdict) -> float | None:
    """Error over noise, for a claim judged in floats; None if one is unknown or not finite, or the noise is 0."""
    error, noise = verdict.error, verdict.noise
    if is_exact(verdict) or error is None or not noise or not math.isfinite(error):
        return None
    return error / noise


def listed(errors: Mapping[str, float | str], names: Iterable[str] = ()) -> str:
    """Which leaves are wrong by how much, the worst first, and which are exact.

    Args:
        errors: wrong leaf -> its relative error, or a word for it.
        names: all leaves; those that are not wrong are exact.

    >>> listed({"b": 0.0051, "a": 0.234, "c": 2e-9}, ("a", "b", "c", "d"))
    'a (23%), b (0.51%) and c (2e-09 of its size), exact in d'
    >>> listed({"x": "NaN"}), listed({"x": 12.3})
    ('x (NaN)', 'x (12 times its size)')
    """
    worst = sorted(errors, key=lambda name: _size(errors[name]), reverse=True)
    shown = [f"{name} ({_share(errors[name])})" for name in worst[:NAMED]]
    shown += [f"{len(worst) - NAMED} more"] if len(worst) > NAMED else []
    exact = [name for name in names if name and name not in errors]
    more = f" and {len(exact) - NAMED} more" if len(exact) > NAMED else ""
    right = f", exact in {', '.join(exact[:NAMED])}{more}" if exact else ""
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) + right


def _size(error: float | str) -> float:
    return math.inf if isinstance(error, str) or math.isnan(error) else error


def _share(error: float | str) -> str:
    if isinstance(error, str) or not math.isfinite(error):
        return error if isinstance(error, str) else "not finite"
    if error >= WHERE_ZERO:
        return "where 0 is right"
    if error >= 10:
        return f"{error:.2g} times its size"
    percent = f"{100 * error:.0f}%" if error >= 1 else f"{100 * error:.2g}%"
    return percent if error >= PLAINLY else f"{error:.2g} of its size"


def number(value: float | None) -> str:
    """A number with two digits; "" for None and for a number that is not finite.

    >>> number(1.2368e-6), number(0.0), number(None)
    ('1.2e-06', '0', '')
    """
    return "" if value is None or not math.isfinite(value) else f"{value:.2g}"


def compact(fields: Mapping[str, Any]) -> str:
    """A Spec, or options, on one line: field=value. A field that is "" says nothing, and is left out."""
    return " ".join(f"{name}={value}" for name, value in fields.items() if value != "")
