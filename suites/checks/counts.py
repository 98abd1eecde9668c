"""Counts: VJPs that a method runs, and what each device of a distributed method holds."""

from __future__ import annotations

import collections

from gradgate.references import registry
from gradgate.suites.checks.base import Case
from gradgate.suites.subject import Refuted


def vjp_count(case: Case) -> None:
    """The VJPs of each net that run are those of the claim's formula, exactly.

    Settings: ``formula``, ``module:function`` of (spec, **options) -> net -> count.
    """
    expected = registry.load(case.settings["formula"])(case.spec, **case.options)
    counts: collections.Counter[str] = collections.Counter(dict.fromkeys(expected, 0))

    def on_vjp(net: str, positions: int) -> None:
        counts[net] += positions

    problem = case.problem().counted(on_vjp)
    # Called without jit: a counted problem is not a pytree, and its loops compile all the same.
    case.subject.call(problem, case.options, eager=True)
    if problem.backend == "jax":
        import jax

        jax.effects_barrier()
    if dict(counts) != expected:
        shown = ", ".join(f"{net} {counts[net]} (formula: {n})" for net, n in sorted(expected.items()))
        raise Refuted(f"VJPs that ran: {shown}")


def own_layers(case: Case) -> None:
    """Each device holds the parameters and gradients of its own layers only, every layer on exactly one device.

    Settings: ``residency``, ``module:function`` of (problem, devices) -> what each device was measured to hold.
    """
    problem = case.problem()
    measure = registry.load(case.settings["residency"])
    devices = case.options["devices"]
    held = case.subject.guard(problem, case.options, measure, problem, devices)
    layers = case.spec.layers  # type: ignore[attr-defined]
    if sorted(layer for device in held for layer in device["layers"]) != list(range(layers)):
        raise Refuted(
            f"layers on the devices: {[device['layers'] for device in held]}; each of {layers} belongs on one"
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
