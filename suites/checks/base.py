"""The input of a check (a `Case`), and what the check records there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gradgate.references import oracle, registry
from gradgate.references.contract import Claim, Problem, Spec, Tree
from gradgate.suites.exact import balls, truth, underflow
from gradgate.suites.exact.agreement import Agreement
from gradgate.suites.judging.explain import listed
from gradgate.suites.judging.subject import Inapplicable, Refuted, Subject, build
from gradgate.suites.judging.tolerance import Comparison, compare, own_truth

QUICK_COMPILER = {"xla_backend_optimization_level": 0}
"""Compiler options that halve the time of compiling a program that runs once or twice."""


class Rejected(Exception):
    """A drawn problem on which the oracle itself is not finite; another one is drawn."""


class Excused(Rejected):
    """A problem on which function and reference differ, without a fault of the function; the message says why."""


@dataclass(frozen=True)
class Check:
    """A check and how often it runs.

    Attributes:
        place: ``module:function`` of the function that judges one Case.
        share: fraction of the run's examples that the check judges, but at least `fewest`.
        draws: what the check judges. ``generated``: random Specs. ``stress``: the family's stress Specs, each under
            several seeds. ``cells``: every shape with every value of every option. ``profile``: no Specs, but one sweep
            over sizes on a hardware profile; the function gets a `sweeps.Sweep`.
        together: whether all problems are also judged together (`population`).
        fewest: the least number of examples. Two examples are the smallest and the largest shape. That is enough for a
            check that compiles new programs for each shape, because sixty digits judge the formula on all shapes.
    """

    place: str
    share: float = 1.0
    draws: Literal["generated", "stress", "cells", "profile"] = "generated"
    together: bool = False
    fewest: int = 3

    @functools.cached_property
    def function(self) -> Callable[[Any], None]:
        """The function, whose module is then imported."""
        judge: Callable[[Any], None] = registry.load(self.place)
        return judge

    def examples(self, wanted: int) -> int:
        """How many examples this check judges when the run asks for `wanted`."""
        return min(wanted, max(self.fewest, round(self.share * wanted)))


@dataclass
class Case:
    """One problem, one method and one claim: what a check judges.

    Attributes:
        comparisons: every comparison that this case made, in floats.
        exact: the result of a check in sixty digits; None for every other check.
        remark: (a number, a sentence) for the report of an upheld claim. Of all cases of the claim, the sentence with
            the largest number is reported.
    """

    subject: Subject
    claim: Claim
    spec: Spec
    options: Mapping[str, Any]
    comparisons: list[Comparison] = field(default_factory=list)
    exact: Agreement | None = field(default=None)
    remark: tuple[float, str] = (0.0, "")

    @property
    def settings(self) -> Mapping[str, Any]:
        """The claim's arguments of the check."""
        return self.claim.settings

    @property
    def rounding(self) -> str:
        """The loss whose rounding is allowed: the claim's own, else the method's."""
        return str(self.settings.get("rounding", self.subject.declared.rounding))

    @property
    def widest(self) -> str:
        """The widest dtype that the method supports."""
        return str(self.settings.get("widest", "float64"))

    @property
    def judged(self) -> dict[str, Any]:
        """The fields of the Spec of the problem that was judged: in the dtype that the claim is about, else the widest.

        The problems of all claims are drawn in float64, so that they are the same ones.
        """
        return dataclasses.asdict(self.spec) | {"dtype": self.settings.get("dtype", self.widest)}

    def problem(self, dtype: str = "", **fields: Any) -> Problem:
        """The case's Problem in a dtype (default: the widest), with some Spec fields replaced."""
        return build(self.subject, dataclasses.replace(self.spec, dtype=dtype or self.widest, **fields))

    @property
    def claimed(self) -> tuple[str, dict[str, Any]]:
        """The Problem's loss whose gradient the method claims to compute, and the options that the loss takes."""
        loss = self.settings.get("oracle", self.subject.declared.oracle)
        taken = () if loss == "loss" else _parameters(self.subject.declared.family, loss)
        return loss, {name: value for name, value in self.options.items() if name in taken}

    def reference(self, dtype: str) -> oracle.Reference:
        """The truth about what the method claims to compute, with the noise of a test in `dtype`.

        Plain backprop runs in the method's framework.

        Raises:
            Rejected: the truth, or plain backprop in float64, is not finite. Inapplicable: as `judgeable`.
        """
        loss, options = self.claimed
        framework = self.subject.declared.framework
        with judgeable():
            found = _reference(self.spec, framework, dtype, loss, self.rounding, tuple(sorted(options.items())))
        declared = self.declared_error
        return finite(dataclasses.replace(found, declared=declared) if any(declared) else found, dtype)

    @property
    def declared_error(self) -> tuple[float, float]:
        """The relative and the absolute error that a pair declares, because it is approximate by design."""
        declared = getattr(self.subject.function, "approximates", None)
        return getattr(declared, "relative", 0.0), getattr(declared, "absolute", 0.0)

    def against_own(self, reference: oracle.Reference, grads: Mapping[str, Any]) -> oracle.Reference:
        """A reference with the oracle's noise, but the method's own untransformed gradient in place of the oracle's.

        Raises:
            Refuted: that gradient is not finite, so nothing can be compared with it.
        """
        for name, leaf in grads.items():
            if not np.isfinite(leaf).all():
                raise Refuted(f"the method's plain gradient is not finite in {name}", name)
        return own_truth(reference, grads, self.widest)

    def judge(
        self, grads: Mapping[str, Any], reference: oracle.Reference, dtype: str, what: str = "", factor: float = 1.0
    ) -> None:
        """Compare leaves by the rule of equality, and record the comparison.

        Raises:
            Refuted: a leaf is out of bounds. The message names every wrong leaf, layer by layer.
        """
        found = self.compared(grads, reference, dtype, factor)
        self.record(found)
        require(found, grads, what, reference.grads)

    def judge_derived(
        self,
        got: Mapping[str, Any],
        reference: oracle.Reference,
        run: Callable[[Any, Tree], Tree],
        problem: Problem,
        vector: Tree,
        what: str,
        nearest: Callable[[Tree], Tree] | None = None,
    ) -> None:
        """`judge` of a derivative that the framework has made of a function's own one, in the widest dtype.

        A rule is written so that it loses no small numbers, and its derivative is not. So what it loses because results
        on the way are too small for the dtype is no fault, and is remarked (`gradgate.suites.exact.underflow`).

        Args:
            run: what has computed the derivative, of a problem and a vector.
            problem, vector: those of `got`.
            nearest: the truth, of an answer, where `reference` has only what is nearest to one that is rounded.

        Raises:
            Refuted: as `judge`.
        """
        found = self.compared(got, reference, self.widest)
        if not found.equal and self.spec.work() <= truth.AFFORDABLE:
            with contextlib.suppress(Exception):  # foreign code may fail in balls in any way: nothing is explained then
                lost = underflow.losses(run, problem, vector)
                known = dataclasses.replace(reference, grads=nearest(lost.formula)) if nearest else reference
                again = self.compared(lost.unexplained(got, known.grads), known, self.widest)
                if again.equal and self.compared(lost.formula, known, self.widest).equal:
                    wrong = element(found.leaf, got, known.grads).removeprefix("; ")
                    self.remark = (1.0, f"{what}{wrong}: a result on the way is too small for {self.widest}")
                    found = again
        self.record(found)
        require(found, got, what, reference.grads)

    def compared(
        self, got: Mapping[str, Any], reference: oracle.Reference, dtype: str, factor: float = 1.0
    ) -> Comparison:
        """Arrays compared by the rule of equality, with the claim's κ; the comparison is not recorded.

        If a pair's reference casts to a narrower dtype, its rounding in `dtype` may be too large to say anything. It
        then rounds as bfloat16 does, and is judged as such.
        """
        kappa = self.settings.get("kappa", self.subject.declared.kappa)
        found = compare(got, reference, dtype, kappa, factor)
        if found.informs or dtype == "bfloat16" or not self.casts:
            return found
        return compare(got, reference, "bfloat16", kappa, factor)

    @property
    def casts(self) -> frozenset[str]:
        """Which of bfloat16 and float16 a pair's reference casts to, as far as sixty digits show it."""
        if not hasattr(self.subject.function, "reference"):
            return frozenset()
        loss, options = self.claimed
        shape, given = self.spec.static(), tuple(sorted(options.items()))
        return truth.narrowed(shape, self.subject.declared.framework, loss, given) & {"bfloat16", "float16"}

    def record(self, found: Comparison) -> None:
        """Record a comparison."""
        self.comparisons.append(found)


@functools.cache
def _parameters(family: str, loss: str) -> frozenset[str]:
    """Names that a Problem's loss takes; a method may have further options, such as a chunk."""
    problem = registry.spec_class(family)().build("numpy")
    return frozenset(inspect.signature(getattr(problem, loss)).parameters)


def finite(found: oracle.Reference, dtype: str) -> oracle.Reference:
    """The given reference, if it is finite.

    Raises:
        Rejected: the truth, or plain backprop in float64, is not finite.
    """
    numbers = [np.asarray(found.loss), *found.grads.values()]
    overflows = dtype == "float64" and not np.isfinite(list(found.noise.values())).all()
    if overflows or not all(np.isfinite(leaf).all() for leaf in numbers):
        raise Rejected
    return found


def require(
    found: Comparison, grads: Mapping[str, Any], what: str = "", known: Mapping[str, Any] | None = None
) -> None:
    """Raise Refuted, with every wrong leaf in the message, unless all leaves are in bounds.

    Args:
        known: the true leaves, if one element of the worst leaf is to be shown beside its true value.
    """
    if not found.equal:
        shown = element(found.leaf, grads, known or {})
        raise Refuted(f"{what}wrong gradient of {describe(found, grads)}{shown}", found.leaf, found.error, found.noise)


def measured(case: Case, problem: Problem, vector: Tree | None = None) -> oracle.Reference:
    """What the method claims to compute on a problem, with the noise of a test in the widest dtype.

    Raises:
        Rejected: as `finite`. Inapplicable: as `judgeable`.
    """
    loss, options = case.claimed
    with judgeable():
        known = truth.of_problem(problem, loss, options, vector)
    found = oracle.measure(problem, case.widest, loss, vector, case.rounding, known, **options)
    return finite(dataclasses.replace(found, declared=case.declared_error), case.widest)


@contextlib.contextmanager
def judgeable() -> Iterator[None]:
    """The scope in which a truth is asked for that a function without a reference may not have.

    Raises:
        Inapplicable: it cannot be evaluated in sixty digits. Rejected: it does not exist at this problem.
    """
    try:
        yield
    except balls.Unknown as why:
        raise Inapplicable(f"without a reference, only sixty digits say what the gradient is: {why}") from None
    except balls.Undecided as why:
        raise Rejected(str(why)) from why


@functools.lru_cache(maxsize=20_000)
def _reference(
    spec: Spec, backend: str, dtype: str, loss: str, rounding: str, options: tuple[tuple[str, Any], ...]
) -> oracle.Reference:
    # All methods of a family are judged on the same problems, so most truths and noises are computed only once.
    return truth.reference(spec, backend, dtype, loss, rounding, **dict(options))


def describe(found: Comparison, got: Mapping[str, Any]) -> str:
    """Which leaves, or outputs, are wrong by how much, and which are exact."""
    errors: dict[str, float | str] = {}
    for name, error in found.wrong.items():
        value = got[name]
        errors[name] = "NaN" if np.isnan(value).any() else "infinite" if np.isinf(value).any() else error
    return listed(errors, got)


def element(name: str, got: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """The element of an array that differs most from the truth, as a clause of a sentence; "" if it cannot be said.

    >>> element("x", {"x": np.array([[1.0, 2.0]])}, {"x": np.array([[1.0, 2.5]])})
    '; x[0,1] is 2.00, not 2.50'
    >>> element("x", {"x": np.array([0.1234567])}, {"x": np.array([0.1234568])})
    '; x[0] is 0.1234567, not 0.1234568'
    """
    if name not in got or name not in known or np.shape(got[name]) != np.shape(known[name]) or not np.size(got[name]):
        return ""
    one, other = (np.asarray(leaf, dtype=np.float64) for leaf in (got[name], known[name]))
    with np.errstate(invalid="ignore"):
        apart = np.abs(one - other)
    place = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), apart.shape)
    mine, true = float(one[place]), float(other[place])
    for digits in range(3, 18):  # as many digits as show the difference
        shown = [f"{value:#.{digits}g}".rstrip(".") for value in (mine, true)]
        if shown[0] != shown[1]:
            break
    else:
        return ""
    index = f"[{','.join(map(str, place))}]" if place else ""
    return f"; {name}{index} is {shown[0]}, not {shown[1]}"


def farthest(runs: Sequence[Mapping[str, Any]], exact: Mapping[str, Any]) -> dict[str, float]:
    """Name -> the largest distance of any run's array from the exact array: the noise of this array."""
    return {
        name: max(float(np.linalg.norm((run[name] - leaf).ravel())) for run in runs) for name, leaf in exact.items()
    }


def need(module: str, extra: str) -> None:
    """Raise Inapplicable unless a module can be imported; `extra` says how to install it."""
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise Inapplicable(f"{module} is not installed: pip install 'gradgate[{extra}]'")
