"""A function that is approximate by design: its outputs and gradients converge with the order that it declares."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgate.references.backends import UNIT_ROUNDOFF
from gradgate.suites.checks.base import Case
from gradgate.suites.checks.outputs import all_outputs, known_outputs
from gradgate.suites.judging.subject import Refuted
from gradgate.suites.judging.tolerance import GROWTH, KAPPA
from gradgate.suites.pairs.approximate import Convergence
from gradgate.suites.pairs.pair import Pair

LEAST = 0.5
"""How much less than the declared order a fitted one may be: orders are whole numbers, and steps are not infinitely
small."""


def convergence(case: Case) -> None:
    """Every output and every gradient converges to the reference's, with the order that the pair declares.

    A step at which the error is as small as rounding shows no order. An array with fewer than two steps above that is
    right, and shows no order either.

    Raises:
        Refuted: the order of an array, fitted over the steps, is lower; the message has the errors.
    """
    pair: Pair = case.subject.function  # type: ignore[assignment]
    declared = pair.approximates
    assert isinstance(declared, Convergence)
    dtype = case.widest
    steps = declared.steps(pair.options[declared.option])
    reference = case.reference(dtype)
    truths = {f"the gradient of {name}": (leaf, reference.noise[name]) for name, leaf in reference.grads.items()}
    truths |= {f"output {path}": found for path, found in known_outputs(case, pair, dtype).items()}
    whole = max((float(np.linalg.norm(leaf)) for leaf, _ in truths.values()), default=0.0)
    errors: dict[str, list[tuple[float, float]]] = {name: [] for name in truths}
    for step, value in steps:
        options = {**case.options, declared.option: value}
        problem = case.problem(dtype)
        _, grads = case.subject.gradient(problem, options)
        found: dict[str, Any] = {f"the gradient of {name}": leaf for name, leaf in grads.items()}
        outs = case.subject.guard(problem, options, all_outputs, pair, "function", problem, options)
        found |= {f"output {path}": leaf for path, leaf in outs.items()}
        for name, (truth, noise) in truths.items():
            error = float(np.linalg.norm((found[name] - truth).ravel()))
            if not np.isfinite(error):
                raise Refuted(f"{name} is not finite with {declared.option}={value!r}", name)
            size = float(np.linalg.norm(truth)) or whole or 1.0
            if error > KAPPA * max(noise, GROWTH * UNIT_ROUNDOFF[dtype] * size):
                errors[name].append((step, error / size))
    slowest: list[tuple[float, str]] = []
    for name, points in errors.items():
        if len(points) < 2:
            continue
        logs = np.log(np.array(points))
        fitted = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
        slowest.append((fitted, name))
        if fitted < declared.order - LEAST:
            listed = ", ".join(f"{error:.2g} at {step:.3g}" for step, error in points)
            raise Refuted(
                f"{name} converges with order {fitted:.2f} in the step of {declared.option}, declared "
                f"{declared.order:g}: relative errors {listed}",
                name,
                points[-1][1],
            )
    if slowest:
        fitted, name = min(slowest)
        case.remark = (-fitted, f"the slowest of {len(slowest)} arrays, {name}, converges with order {fitted:.2f}")
