"""Counts: evaluations, JVPs and VJPs of nets that a method runs, and what each device of a distributed method holds."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradgate.hw_profiles.calls import KINDS, Calls
from gradgate.references import registry
from gradgate.references.backends import untraceable
from gradgate.references.contract import Problem, Spec
from gradgate.references.counts import RECOMPUTATIONS
from gradgate.suites.checks.base import Case
from gradgate.suites.exact import balls
from gradgate.suites.judging.subject import Fault, Inapplicable, Refuted

WORDS = {"evaluations": "evaluations", "jvps": "JVPs", "vjps": "VJPs", RECOMPUTATIONS: "recomputations"}
DIGITS = 20
"""Digits of the balls on which a JAX program runs to be counted: more than float64 has, and faster than sixty."""
Counted = dict[str, Calls]
"""Name of a net -> its calls."""


def counts(case: Case) -> None:
    """The calls of each net equal the claim's formula, or are at most that many. Without a formula, they are reported.

    Settings: those of `gradgate.references.counts.claim`.
    """
    problem = case.problem()
    if not problem.nets:
        raise Inapplicable(f"problems of {case.subject.declared.family} name no net whose calls could be counted")
    found = Found(of_method(case, problem), of_loss(case.spec.static(), problem.backend))
    case.remark = found.most, found.sentence
    kinds, bound = case.settings["kinds"], case.settings["bound"]
    if case.settings["weights"]:
        found.weigh(_called(case, case.settings["weights"]), kinds)
    wrong = []
    for net, said in sorted(_expected(case, found).items()):
        for kind in kinds:
            expected = getattr(said, kind) if isinstance(said, Calls) else said
            number = found.number(net, kind)
            if bound == "at most" and kind in ("evaluations", RECOMPUTATIONS):
                found.check_run(net)
            if number > expected if bound == "at most" else number != expected:
                limit = "at most" if bound == "at most" else "formula"
                wrong.append(f"{WORDS[kind]} of {net}: {number:g} ({limit}: {expected:g})")
    if wrong:
        raise Refuted("; ".join(wrong))


def _expected(case: Case, found: Found) -> Mapping[str, Any]:
    """Net -> how many calls the claim expects: a number, or Calls."""
    formula = case.settings["formula"]
    if formula is None:
        return {}
    if isinstance(formula, str):
        return _called(case, formula)
    return {net: formula * calls.evaluations for net, calls in found.plain.items() if "[" not in net}


def _called(case: Case, formula: str) -> Mapping[str, Any]:
    """The value of a formula for this problem and the method's options."""
    named = case.settings["named"]
    options = case.options if named is None else {name: case.options[option] for name, option in named.items()}
    said: Mapping[str, Any] = registry.load(formula)(case.spec, **{**options, **case.settings["given"]})
    return said


class Found:
    """The calls that a method makes, and those of plain evaluation of the loss.

    Attributes:
        calls, plain: name of a net, with an index where there are several, -> its calls.
    """

    def __init__(self, calls: Mapping[str, Calls], plain: Mapping[str, Calls]) -> None:
        self.calls, self.plain = totals(calls), totals(plain)
        self.costs: dict[str, float] = {}

    @property
    def most(self) -> float:
        """The number of evaluations of all nets."""
        return sum(calls.evaluations for net, calls in self.calls.items() if "[" not in net)

    @property
    def sentence(self) -> str:
        """All counts in words."""
        nets = {net: calls for net, calls in self.calls.items() if "[" not in net}
        parts = [
            f"{net}: " + ", ".join(f"{getattr(calls, kind)} {WORDS[kind]}" for kind in KINDS if getattr(calls, kind))
            for net, calls in sorted(nets.items())
        ]
        return "; ".join(parts)

    def weigh(self, costs: Mapping[str, float], kinds: Sequence[str]) -> None:
        """Add up what the calls cost, under the name ``compute``."""
        for kind in kinds:
            self.costs[kind] = sum(cost * self.number(net, kind) for net, cost in costs.items())

    def number(self, net: str, kind: str) -> float:
        """The number of calls of a net; for ``compute``, their cost."""
        if net == "compute":
            return self.costs[kind]
        if kind == RECOMPUTATIONS:
            return self.number(net, "evaluations") - self.plain.get(net, Calls()).evaluations
        return int(getattr(self.calls.get(net, Calls()), kind))

    def check_run(self, net: str) -> None:
        """Raise Inapplicable if the method evaluates a net less often than the loss: other code then replaces it."""
        number, least = self.number(net, "evaluations"), self.plain.get(net, Calls()).evaluations
        if number < least:
            raise Inapplicable(
                f"it evaluates {net} {number:g} times, fewer than the loss itself ({least}): the code that "
                "runs instead is not counted; call the problem's own nets"
            )


def totals(calls: Mapping[str, Calls]) -> dict[str, Calls]:
    """The calls, and under ``layer`` the sum over all nets ``layer[0]``, ``layer[1]``, … that differ in an index."""
    found: dict[str, Calls] = {net: dataclasses.replace(own) for net, own in calls.items()}
    for net, own in calls.items():
        name, bracket, _ = net.partition("[")
        if bracket:
            total = found.setdefault(name, Calls())
            for kind in KINDS:
                setattr(total, kind, getattr(total, kind) + getattr(own, kind))
    return found


def of_method(case: Case, problem: Problem) -> Counted:
    """The calls that one call of the method makes.

    Raises:
        Fault: the method raised. Inapplicable: the calls of a JAX program cannot be counted.
    """
    method = functools.partial(case.subject.function, **case.options)

    def guarded(function: Callable[..., Any], *arguments: Any) -> Any:
        return case.subject.guard(problem, case.options, function, *arguments)

    if problem.backend == "jax":
        kept, shape = functools.partial(case.subject.program, options=case.options), case.spec.static().to_json()
        # All problems of a shape share one program text.
        text: Counted | str = kept(f"calls in the text, {shape}", make=lambda: _in_text(method, problem, guarded))
        if not isinstance(text, str):
            return text
        run = functools.partial(_in_run, method, problem, guarded, text)  # the calls depend on the values
        found: Counted = kept(f"calls in a run, {case.spec.to_json()}", make=run)
        return found
    counter = Counter()
    case.subject.call(problem.counted(counter), case.options, eager=True)
    return counter.calls


@functools.lru_cache(maxsize=512)
def of_loss(spec: Spec, backend: str) -> Counted:
    """The calls of plain evaluation of the loss."""
    problem = spec.build(backend)  # type: ignore[arg-type]

    def loss(problem: Problem) -> Any:
        return problem.loss(problem.params)

    if backend == "jax":
        from gradgate.references.backends import precision

        with precision("jax", problem.dtype):
            found = _in_text(loss, problem, lambda function, *arguments: function(*arguments))
        assert isinstance(found, dict), "the losses of problems have no branches"
        return found
    counter = Counter()
    loss(problem.counted(counter))
    return counter.calls


class Counter:
    """Adds up calls; an object to pass as `on_call`."""

    def __init__(self) -> None:
        self.calls: Counted = collections.defaultdict(Calls)

    def __call__(self, net: str, kind: str, number: int) -> None:
        """Add calls of one kind."""
        calls = self.calls[net]
        setattr(calls, kind, getattr(calls, kind) + number)


def _in_text(program: Callable[..., Any], problem: Problem, guarded: Callable[..., Any]) -> Counted | str:
    """The calls in a JAX program's text, which is not compiled. Or, as a string, why the text does not determine them.

    The string is "" if JAX cannot trace the program, so that there is no text.
    """
    import jax

    from gradgate.hw_profiles import call_count

    try:
        traced = guarded(jax.make_jaxpr(program), problem.counted(Counter()))
    except Fault as fault:
        if fault.__cause__ is None or not untraceable(fault.__cause__):
            raise
        return ""
    found = call_count.count(traced)
    return "; ".join(found.uncertain) or dict(found.calls)


def _in_run(program: Callable[..., Any], problem: Problem, guarded: Callable[..., Any], why: str) -> Counted:
    """The calls of a JAX program that runs operation by operation: on balls or, if it has no text, with jit disabled.

    Raises:
        Inapplicable: an operation has no rule on balls.
    """
    import jax

    from gradgate.suites.exact import on_jax

    counter = Counter()
    counted = problem.counted(counter)
    try:
        if why:
            guarded(lambda: on_jax.trace(program, counted).evaluate(counted, digits=DIGITS))
        else:
            with jax.disable_jit():
                guarded(program, counted)
    except Fault as fault:
        if not isinstance(fault.__cause__, (balls.Unknown, balls.Undecided)):
            raise
        raise Inapplicable(f"calls cannot be counted: {why}; and {fault.__cause__}") from None
    return counter.calls


def own_layers(case: Case) -> None:
    """Each device holds the parameters and gradients of its own layers only, and every layer is on exactly one device.

    Settings: ``residency``, ``module:function`` of (problem, devices) -> what each device was measured to hold.
    """
    problem = case.problem()
    measure = registry.load(case.settings["residency"])
    devices = case.options["devices"]
    held = case.subject.guard(problem, case.options, measure, problem, devices)
    layers = case.spec.layers  # type: ignore[attr-defined]
    if sorted(layer for device in held for layer in device["layers"]) != list(range(layers)):
        raise Refuted(
            f"layers on the devices: {[device['layers'] for device in held]}; each of {layers} must be on one device"
        )
    per_layer = _bytes(problem.params["layers"]) // layers
    most = -(-layers // devices)  # a device of a sharded array may hold padding up to the largest share
    for index, device in enumerate(held):
        for what in ("parameter_bytes", "gradient_bytes"):
            if device[what] > most * per_layer:
                raise Refuted(
                    f"device {index} of {devices} holds {device[what]} {what.replace('_', ' ')}; "
                    f"its share is at most {most} of {layers} layers, {most * per_layer} bytes"
                )


def _bytes(tree: object) -> int:
    from gradgate.references.backends import leaves

    return sum(leaf.nbytes for leaf in leaves(tree))
