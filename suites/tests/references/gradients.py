"""A method's gradient on a problem, and its error, as tests of the classes ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradgate.references import registry
from gradgate.references.backends import precision
from gradgate.references.contract import Spec
from gradgate.references.oracle import split
from gradgate.references.registry import load
from gradgate.suites.exact import truth
from gradgate.suites.judging.tolerance import compare

Function = str | Callable[..., Any]
"""A method: the name of a reference, or a function."""


def run(family: str, framework: str, method: Function, spec: Spec, **options: Any) -> tuple[float, dict[str, Any]]:
    """The loss, and the leaves of the gradient that are judged."""
    if isinstance(method, str):
        method = load(registry.methods(family, method, framework)[0].implementation)
    with precision(framework, spec.dtype):
        problem = spec.build(framework)  # type: ignore[arg-type]
        loss, grads = method(problem, **options)
    return float(loss), split(problem, grads)


def worst(family: str, framework: str, method: Function, spec: Spec, **options: Any) -> float:
    """The largest error, in units of the noise of plain backprop."""
    _, grads = run(family, framework, method, spec, **options)
    return compare(grads, truth.reference(spec, framework, spec.dtype), spec.dtype).ratio
