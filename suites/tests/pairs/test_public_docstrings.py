"""Public docstrings state arguments, errors and cost, when not to use the function, and an example."""

from __future__ import annotations

import inspect
import re

import pytest

import gradgate

COMPLETE = ("Pair", "check", "parametrize", "module_pair", "grows", "at_most", "within", "order")
DRAWS = (
    *("normal", "uniform", "positive", "between", "simplex", "spd", "distinct", "integers", "mask", "constant"),
    "key",
)
SECTIONS = {
    "Args": r"^(Args|Attributes):$",
    "Raises": "^Raises:$",
    "Cost": r"^Cost: \S",
    "Not for": r"^Not for: \S",
    "Example": "^Example::$",
}


def lacking(told: str) -> list[str]:
    """Sections that a docstring lacks."""
    return [name for name, pattern in SECTIONS.items() if not re.search(pattern, told, re.MULTILINE)]


@pytest.mark.parametrize("name", COMPLETE)
def test_every_section_is_there(name: str) -> None:
    assert lacking(inspect.getdoc(getattr(gradgate, name)) or "") == []


@pytest.mark.parametrize("name", [*COMPLETE, *DRAWS])
def test_every_parameter_is_named(name: str) -> None:
    public = getattr(gradgate, name)
    told = inspect.getdoc(public) or ""
    of_normal = {"scale", "mean", "gradient", "dtype", "dims"} if name in DRAWS else set()
    missing = [p for p in inspect.signature(public).parameters if not re.search(rf"\b{p}\b", told)]
    assert set(missing) <= of_normal - ({"dims"} if name == "normal" else set()), missing


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_has_an_example_that_is_one(name: str) -> None:
    told = inspect.getdoc(getattr(gradgate, name)) or ""
    example = told.partition("Example::")[2].strip()
    assert f"{name}(" in example
    inputs = eval(f"dict({example})", vars(gradgate) | {n: getattr(gradgate, n) for n in DRAWS})
    assert all(isinstance(draw, gradgate.Draw) for draw in inputs["inputs"].values())


def test_the_rest_is_said_in_a_sentence() -> None:
    for name in gradgate.__all__:
        if name != "__version__":
            assert re.match(r"[^\n]+\.", inspect.getdoc(getattr(gradgate, name)) or ""), name


def test_a_docstring_without_a_section_is_found() -> None:
    assert lacking("Does it.\n\nArgs:\n    x: it.\n\nRaises:\n    UsageError: no.\n\nCost: none.") == [
        "Not for",
        "Example",
    ]
