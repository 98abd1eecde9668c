"""Hypothesis strategies of Specs: few shapes, many values.

Shapes come from the family's small vocabulary, so compiled programs are reused and shrinking stays quick; a failing
example shrinks towards the vocabulary's first entries, the smallest. Values are drawn freely.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from gradgate.references import registry
from gradgate.references.contract import Family, Method, Spec, UsageError

GRID = 240
"""Steps between the ends of a value's range; a drawn value is a step, so that it shrinks to a plain number."""


def specs(family: Family, where: Mapping[str, Any] | None = None, step: int = 1) -> st.SearchStrategy[Spec]:
    """Legal float64 Specs of a family.

    Args:
        family: declares the shapes and the ranges of values.
        where: Spec fields to which the shapes are restricted; a tuple lists alternatives.
        step: every how manyth of these shapes is used.

    Raises:
        UsageError: no shape of the vocabulary satisfies `where`.
    """
    cls = registry.spec_class(family.name)
    values = {name: _value(getattr(cls(), name), low, high) for name, (low, high) in family.values.items()}
    seeds = st.integers(0, 2**32 - 1)
    return st.builds(
        lambda shape, drawn, seed: cls(**{**shape, **drawn, "seed": seed}),
        st.sampled_from(shapes(family, where)[::step]),
        st.fixed_dictionaries(values),
        seeds,
    )


def shapes(family: Family, where: Mapping[str, Any] | None = None) -> Sequence[Mapping[str, Any]]:
    """The shapes of the vocabulary that satisfy `where`, the smallest first."""
    cls = registry.spec_class(family.name)
    found = [shape for shape in family.shapes if fits(cls(**shape), where or {})]
    if not found:
        raise UsageError(f"no shape in the vocabulary of {family.name} has {dict(where or {})}")
    return found


def edge_specs(family: Family, where: Mapping[str, Any] | None, seed: int, step: int = 1) -> list[Spec]:
    """One Spec of every `step`-th shape at default values: always tried, before anything is drawn."""
    cls = registry.spec_class(family.name)
    return [cls(**{**shape, "seed": 1000 * seed + i}) for i, shape in enumerate(shapes(family, where))][::step]


def pick_options(method: Method, spec: Spec, covering: str = "") -> dict[str, Any]:
    """One legal value of every option, fixed by the Spec's shape, so that each shape compiles one program.

    Different shapes take different ones, so that all kinds of values occur; `covering` names an option that takes its
    largest value instead.
    """
    turn = sum(value for value in dataclasses.asdict(spec.static()).values() if isinstance(value, int))
    chosen = {}
    for option in method.options:
        legal = list(option.values(spec))
        chosen[option.name] = legal[-1] if option.name == covering else legal[turn % len(legal)]
        turn //= len(legal)  # or options of as many values would go hand in hand
    return chosen


def fits(spec: Spec, where: Mapping[str, Any]) -> bool:
    """Whether a Spec has these fields; a tuple lists alternatives."""
    return all(
        getattr(spec, name) in wanted if isinstance(wanted, tuple) else getattr(spec, name) == wanted
        for name, wanted in where.items()
    )


def value_at(share: float, low: float, high: float) -> float:
    """The value at a share of the way from low to high, in proportion where the range spans more than a decade."""
    drawn = low * (high / low) ** share if low > 0 and high / low >= 10 else low + (high - low) * share
    return float(f"{drawn:.4g}")


def _value(default: float, low: float, high: float) -> st.SearchStrategy[float]:
    return st.just(default) | st.integers(0, GRID).map(lambda step: value_at(step / GRID, low, high))
