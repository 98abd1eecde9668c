"""Claims about counts: how often a method evaluates the nets of a problem, and pushes them forward or pulls them back.

The nets are those that a class of problems names in ``Problem.nets``: its layers, or their parts. A claim is judged on
drawn problems. In PyTorch the nets report their calls while the method runs. In JAX the calls are read from the
program's text, where a call in a loop counts once per iteration; nothing is compiled, so what XLA merges or moves later
is not seen.

For a plug-in, numbers are in forward passes: ``evaluations(at_most=2)`` says that each net is evaluated at most twice
as often as by plain evaluation of the loss. An exact count is a formula, ``package.module:function`` or
``file.py:function``, of the Spec and the method's options::

    @method(options=[SLOTS], claims=[counts.recomputations(at_most=1), counts.revolve_optimal(slots="slots")])
    def mine(problem, *, slots): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from gradgate.references.contract import Claim, Expected, UsageError, unknown
from gradgate.references.laws import Bound

RECOMPUTATIONS = "recomputations"
"""Evaluations beyond those of plain evaluation of the loss."""
LEGAL = ("evaluations", RECOMPUTATIONS, "jvps", "vjps")
Amount = float | str
"""Forward passes, or a formula."""


def claim(
    name: str,
    statement: str,
    source: str,
    *,
    formula: Amount | None,
    kinds: Sequence[str] = ("evaluations", "jvps", "vjps"),
    bound: Bound = "equal",
    weights: str = "",
    given: Mapping[str, Any] | None = None,
    named: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    where: Mapping[str, Any] | None = None,
    expected: Expected = "upheld",
    declared_reason: str = "",
) -> Claim:
    """The claim that the nets are called as often as a formula says.

    Args:
        name: stable name of the claim.
        statement: the promise in one sentence.
        source: paper and equation.
        formula: ``module:function`` of (spec, **options of the method) -> net -> number, or ``Calls`` for several
            kinds at once; or a number of forward passes, for every net, all layers of a chain together; None: nothing
            is claimed, and the verdict reports the counts. A net that the formula leaves out is not judged.
        kinds: the kinds of calls that are judged, from LEGAL.
        bound: whether the counts must ``equal`` the formula's, or may be ``at most`` as many.
        weights: ``module:function`` of the same arguments -> net -> what one call costs; the claim is then about the
            sum of all costs, which the formula gives under the name ``compute``.
        given: more arguments of the formula.
        named: argument of the formula -> the method's option that gives it; None: all options under their own names.
        options: options of the method that are fixed.
        where: Spec fields that the claim is restricted to.
        expected: ``refuted`` for a claim known to be false.
        declared_reason: why it is false.

    Raises:
        UsageError: an unknown kind, or a negative number.
    """
    for kind in kinds:
        if kind not in LEGAL:
            raise unknown("kind of calls", kind, LEGAL)
    if isinstance(formula, (int, float)) and not formula >= 0:
        raise UsageError(f"a number of forward passes is at least 0, not {formula}")
    settings = {
        "formula": formula,
        "kinds": tuple(kinds),
        "bound": bound,
        "weights": weights,
        "given": dict(given or {}),
        "named": None if named is None else dict(named),
        "options": dict(options or {}),
    }
    return Claim(name, "counts", statement, source, expected, declared_reason, dict(where or {}), settings)


def evaluations(*, at_most: Amount | None = None, exactly: Amount | None = None, **more: Any) -> Claim:
    """The claim about how often each net is evaluated: the first evaluations and the recomputations both count.

    Args:
        at_most, exactly: give one of them: a number of forward passes, such as 1.25, or a formula; see `claim`.
        more: arguments of `claim`, such as ``name``, ``source``, ``where`` or ``options``.

    Raises:
        UsageError: neither or both are given, or a negative number.
    """
    return _amount("evaluations", at_most, exactly, more)


def recomputations(*, at_most: Amount | None = None, exactly: Amount | None = None, **more: Any) -> Claim:
    """The claim about how often each net is evaluated beyond the plain forward pass; arguments as of `evaluations`."""
    return _amount(RECOMPUTATIONS, at_most, exactly, more)


def vjps(*, at_most: Amount | None = None, exactly: Amount | None = None, **more: Any) -> Claim:
    """The claim about how often each net is pulled back; 1 is once per plain evaluation. Arguments: `evaluations`."""
    return _amount("vjps", at_most, exactly, more)


def jvps(*, at_most: Amount | None = None, exactly: Amount | None = None, **more: Any) -> Claim:
    """The claim about how often tangents are pushed through each net; arguments as of `evaluations`."""
    return _amount("jvps", at_most, exactly, more)


def revolve_optimal(*, slots: str | int, **more: Any) -> Claim:
    """The claim about a method of the class ``chain`` that no schedule with as many slots runs fewer forwards.

    Args:
        slots: how many values x_k are stored at once, x_0 included: a number, or the method's option that gives it.
        more: arguments of `claim`.

    Raises:
        UsageError: a number of slots below 1.
    """
    if isinstance(slots, int) and slots < 1:
        raise UsageError(f"slots must be at least 1, not {slots}")
    settings: dict[str, Any] = {
        "name": "revolve_optimal",
        "source": "Griewank and Walther 2000",
        "statement": "runs no more forwards than REVOLVE with as many values stored",
        "given": {"slots": slots} if isinstance(slots, int) else {},
        "named": {} if isinstance(slots, int) else {"slots": slots},
    }
    formula = "gradgate.references.chain.counts:optimal"
    return claim(formula=formula, kinds=("evaluations",), bound="at most", **{**settings, **more})


def _amount(kind: str, at_most: Amount | None, exactly: Amount | None, more: Mapping[str, Any]) -> Claim:
    if (at_most is None) == (exactly is None):
        raise UsageError(f"{kind} takes one of at_most and exactly: a number of forward passes, or module:function")
    amount = at_most if exactly is None else exactly
    bound: Literal["at most", "equal"] = "at most" if exactly is None else "equal"
    said = f"by {amount}" if isinstance(amount, str) else f"{amount:g} times those of a plain forward pass"
    settings: dict[str, Any] = {
        "name": kind,
        "source": "its author",
        "statement": f"the {kind} of each net are {bound} {said}",
    }
    return claim(formula=amount, kinds=(kind,), bound=bound, **{**settings, **more})


REPORT = claim(
    "counts",
    "its evaluations, JVPs and VJPs of each net, as counted",
    "contract",
    formula=None,
    kinds=(),
)
"""The claim that every plug-in carries. It claims nothing; its verdict reports the counts."""


def check_names(declared: Claim, options: Sequence[str], load: Callable[[str], Any]) -> None:
    """Check the names in a claim about counts. Any other claim passes.

    Args:
        declared: a plug-in's claim.
        options: the names of the plug-in's options.
        load: finds what ``module:function`` names.

    Raises:
        UsageError: a formula cannot be found, or the method does not declare an option.
    """
    if declared.check != "counts":
        return
    for formula in (declared.settings["formula"], declared.settings["weights"]):
        if formula and isinstance(formula, str):
            load(formula)
    for option in (declared.settings["named"] or {}).values():
        if option not in options:
            raise unknown(f"option in the claim {declared.name}", option, options)


def joined(*promises: Mapping[str, tuple[Claim, ...]]) -> dict[str, tuple[Claim, ...]]:
    """Method -> its claims, from several such tables, in their order."""
    names = {name: None for table in promises for name in table}
    return {name: tuple(claim for table in promises for claim in table.get(name, ())) for name in names}
