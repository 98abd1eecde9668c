"""Coverage: which values the vocabulary offers, which of them were tried, and a sentence on those that never were."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.contract import Family, Method, Option, Spec, UsageError
from gradgate.suites.engine import strategies
from gradgate.suites.engine.coverage import Coverage, coverage

STATE_SPACE = registry.family("state_space")
BACKPROP = STATE_SPACE.methods[0]


def method(**values: Any) -> Method:
    """Backprop with options of these values; a function gives an option's values from the Spec."""
    options = (Option(name, "any", v if callable(v) else lambda _, v=v: v) for name, v in values.items())
    return dataclasses.replace(BACKPROP, options=tuple(options))


def family(*shapes: dict[str, Any]) -> Family:
    return dataclasses.replace(STATE_SPACE, shapes=shapes)


def spec(**fields: Any) -> Spec:
    return registry.spec_class("state_space")(**fields)


TWO = family({"length": 1, "layers": 1}, {"length": 2, "layers": 3})
"""Two sizes that are 1 or more: four pairs, of which the shapes have two."""


def test_pairs_of_fields_and_options_are_counted_and_constant_fields_are_not() -> None:
    """length, layers and chunk vary: 4 pairs of length and layers, and each of 2 + 1 chunks with both: 4 + 3·2 = 10."""
    chunked = method(chunk=lambda s: (1, 2) if s.length == 1 else (7,))
    found = coverage(TWO, chunked, [(spec(length=1, layers=1), {"chunk": 1}), (spec(length=2, layers=3), {"chunk": 7})])
    assert (found.tried, found.possible) == (6, 10)
    assert found.missing == (
        "length=1 with chunk=2",
        "layers=1 with chunk=2",
        "length=1 with layers>1",
        "length>1 with layers=1",
    )


def test_values_of_two_options_that_never_meet_are_told() -> None:
    flags = method(remat=(False, True), save=(False, True))
    shape = spec(length=1, layers=1)
    hand_in_hand = [(shape, {"remat": value, "save": value}) for value in (False, True)]
    found = coverage(family({"length": 1, "layers": 1}), flags, hand_in_hand)
    assert found.missing == ("remat=False with save=True", "remat=True with save=False")
    assert found.sentence() == (
        "2 of 4 pairs of (field, value) tried; never: remat=False with save=True, remat=True with save=False"
    )


def test_drawn_values_seed_dtype_and_upstream_are_no_fields() -> None:
    shapes = [spec(length=1, layers=1), spec(length=2, layers=3)]
    others = [spec(length=1, layers=1, scale=3.0, seed=5, upstream=-1.0, dtype="float32"), shapes[1]]
    assert coverage(TWO, BACKPROP, [(s, {}) for s in others]) == coverage(TWO, BACKPROP, [(s, {}) for s in shapes])
    found = coverage(TWO, BACKPROP, [(s, {}) for s in shapes])
    assert found == Coverage(2, 4, ("length=1 with layers>1", "length>1 with layers=1"))


def test_problems_outside_the_vocabulary_count_for_nothing_new() -> None:
    found = coverage(TWO, BACKPROP, [(spec(length=199, layers=1), {}), (spec(length=1, state=9), {"unknown": 1})])
    assert (found.tried, found.possible) == (1, 4)


def test_every_word_of_a_text_is_a_field() -> None:
    invertible = registry.family("invertible")
    units = dataclasses.replace(invertible, shapes=({"unit": "dense tanh"}, {"unit": "additive", "layers": 1}))
    cls = registry.spec_class("invertible")
    found = coverage(units, dataclasses.replace(invertible.methods[0], options=()), [(cls(unit="additive"), {})])
    assert found.missing == (
        "unit=dense with unit=tanh",
        "unit=dense with layers>1",
        "unit=tanh with layers>1",
        "unit=additive with layers=1",
        "unit=dense with layers=1",
        "unit=tanh with layers=1",
    )


def test_where_and_a_fixed_option_restrict_what_is_offered() -> None:
    flags = method(remat=(False, True), save=(False, True))
    assert coverage(TWO, flags, [], {"length": 2}).possible == 4
    assert coverage(TWO, flags, [], {"length": 2}, {"remat": True}) == Coverage(0, 2, ("save=False", "save=True"))
    with pytest.raises(UsageError, match="no shape in the vocabulary"):
        coverage(TWO, flags, [], {"length": 3})


def test_where_one_field_alone_varies_its_values_are_counted() -> None:
    lengths = family({"length": 1}, {"length": 2}, {"length": 3}, {"length": 129})
    assert coverage(lengths, BACKPROP, [(spec(length=2), {})]) == Coverage(1, 3, ("length=1", "length>128"))


def test_a_long_length_in_one_structure_only_leaves_pairs_untried() -> None:
    """The twin: the class itself has long lengths in all structures, and misses no pair with them."""
    one = family({"length": 2, "structure": "diagonal"}, {"length": 133, "structure": "scalar"})
    found = coverage(one, BACKPROP, [(spec(**shape), {}) for shape in one.shapes])
    assert found.missing == ("structure=diagonal with length>128", "structure=scalar with length>1")
    every = coverage(STATE_SPACE, BACKPROP, [(spec(**shape), {}) for shape in STATE_SPACE.shapes])
    assert not [pair for pair in every.missing if "length>128" in pair]


def test_two_values_that_no_legal_problem_has_together_are_not_counted() -> None:
    performer = registry.family("performer")
    cls = registry.spec_class("performer")
    undone = {"residual": "reversible", "norm": "pre"}
    declared = dataclasses.replace(performer, shapes=(undone, {"residual": "plain", "norm": "post"}))
    found = coverage(declared, dataclasses.replace(performer.methods[0], options=()), [(cls(**undone), {})])
    assert found.missing == ("norm=post with residual=plain", "norm=pre with residual=plain")


def test_what_more_examples_would_try_is_in_the_sentence() -> None:
    assert Coverage(1, 2, ("a=1",), 60).sentence().endswith("never: a=1; --examples 60 tries every shape")
    assert "examples" not in Coverage(1, 2, ("a=1",)).sentence()


def test_where_nothing_varies_it_is_said() -> None:
    found = coverage(family({"length": 1}), BACKPROP, [(spec(length=1), {})])
    assert found == Coverage(0, 0)
    assert found.sentence() == "no field varies: there is one shape, and no option"


def test_a_sentence_lists_two_pairs_and_counts_the_others() -> None:
    assert Coverage(412, 412).sentence() == "412 of 412 pairs of (field, value) tried"
    assert Coverage(1, 6, ("a=1", "b=2", "c=3", "d=4", "e=5")).sentence().endswith("never: a=1, b=2, … (+3)")


@pytest.mark.parametrize("name", sorted(registry.families()))
def test_covering_alone_leaves_pairs_untried_and_the_report_names_them(name: str) -> None:
    declared = registry.family(name)
    specs = strategies.covering_specs(declared, None, 0)
    found = coverage(declared, declared.methods[0], [(s, {}) for s in specs])
    assert found.missing
    assert found.tried + len(found.missing) == found.possible
