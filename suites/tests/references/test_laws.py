"""Declared laws are plain data: they survive pickle and JSON, and every way of declaring a law gives the same data."""

import dataclasses
import json
import pickle

import pytest

from gradgate.references import law_kinds, registry
from gradgate.references.contract import Claim, Method, UsageError
from gradgate.references.laws import claim, figure, memory_law, per_device, work_law
from gradgate.suites.checks import CHECKS
from gradgate.suites.imports import named

SWEPT = {"variable": "length", "sizes": [4, 8, 16, 32, 64]}
OVER = law_kinds.Over("length", (4, 8, 16, 32, 64))
EVERY = pytest.mark.parametrize("method", registry.methods(), ids=lambda method: method.key)


def test_a_memory_law_is_a_growth_with_its_rules():
    made = memory_law(
        "m",
        "s",
        "p",
        **SWEPT,
        exponent=0.5,
        spec={"layers": 1},
        below=("backprop", 3),
        not_by={"host": "it pads"},
        independent_of={"layers": [1, 2, 4, 8, 16]},
    )
    assert made.check == "memory_law"
    assert made.law == law_kinds.Growth(
        "temp_bytes",
        OVER,
        0.5,
        law_kinds.Within("at most"),
        {"layers": 1},
        None,
        independent_of=(law_kinds.Over("layers", (1, 2, 4, 8, 16)),),
        below=law_kinds.Below("backprop", 3),
        not_by=(law_kinds.NotBy("host", "it pads"),),
    )


def test_a_work_law_is_a_growth_of_flops_that_must_be_met():
    made = work_law("w", "s", "p", **SWEPT, exponent=1)
    assert (made.check, made.law) == ("work_law", law_kinds.Growth("flops", OVER, 1, law_kinds.Within("equal")))


def test_a_share_and_a_figure_are_what_their_functions_make():
    shared = per_device("d", "s", "p", **SWEPT, devices=4)
    printed = figure("f", "s", "p", printed=2, measured="math:sqrt", unit="bytes")
    assert (shared.check, shared.law) == ("per_device", law_kinds.Share("temp_bytes", OVER, 4))
    assert (printed.check, printed.law) == ("figure", law_kinds.Figure(2, "math:sqrt", "bytes"))


def test_a_figure_of_unlike_quantities_is_not_refuted_and_not_upheld_one_sidedly():
    given = {"printed": 2, "measured": "math:sqrt", "unit": "times", "unlike": "printed are seconds, ours are FLOPs"}
    assert figure("f", "s", "p", tolerance=0.25, **given).law.unlike == given["unlike"]
    with pytest.raises(UsageError, match="unlike quantities uphold nothing at most"):
        figure("f", "s", "p", bound="at most", **given)
    with pytest.raises(UsageError, match="unlike quantities refute nothing"):
        figure("f", "s", "p", expected="refuted", declared_reason="it is false", **given)


def test_a_claim_made_of_a_law_names_the_check_of_its_kind():
    law = law_kinds.Growth("peak_bytes", OVER, 1)
    made = claim("mine", "s", "p", law, expected="refuted", declared_reason="it is false")
    assert (made.check, made.law, made.expected) == ("memory_law", law, "refuted")
    assert made.declared_reason == "it is false"


@pytest.mark.parametrize(
    ("bound", "miss", "broken"),
    [
        ("at most", -1.0, False),
        ("at most", 0.1, False),
        ("at most", 0.11, True),
        ("equal", 0.1, False),
        ("equal", 0.11, True),
        ("equal", -0.11, True),
    ],
)
def test_at_most_forgives_what_is_less_and_equal_does_not(bound, miss, broken):
    assert law_kinds.Within(bound, 0.1).broken_by(miss) == broken
    assert law_kinds.Within(bound).broken_by(miss, usual=0.1) == broken


def test_an_unknown_bound_is_refused_with_those_that_are_legal():
    with pytest.raises(UsageError, match="unknown bound 'at least'; legal: at most, equal"):
        memory_law("m", "s", "p", **SWEPT, exponent=1, bound="at least")


def test_a_law_excuses_the_compilers_that_it_names_and_no_other():
    law = law_kinds.Growth("temp_bytes", OVER, 1, not_by=(law_kinds.NotBy("tpu", "it copies"),))
    assert (law.excuse("tpu"), law.excuse("host"), law.excuse(None)) == ("it copies", "", "")


@EVERY
def test_every_law_travels_as_a_pickle_and_as_json(method: Method):
    for declared in laws_of(method):
        assert pickle.loads(pickle.dumps(declared.law)) == declared.law
        plain = dataclasses.asdict(declared.law)
        assert json.loads(json.dumps(plain)) == as_lists(plain)


@EVERY
def test_a_claim_carries_a_law_if_and_only_if_a_profile_judges_it(method: Method):
    for declared in method.claims:
        assert (declared.law is not None) == (CHECKS[declared.check].draws == "profile"), declared.name
        assert (declared.law is not None) == (declared.check in law_kinds.CHECKS), declared.name
        assert declared.law is None or declared.law.check == declared.check
        assert declared.law is None or not declared.settings


@EVERY
def test_every_law_names_functions_methods_and_fields_that_exist(method: Method):
    pytest.importorskip(method.framework)
    fields = {item.name for item in dataclasses.fields(registry.spec_class(method.family))}
    options = {option.name for option in method.options}
    for declared in laws_of(method):
        law = declared.law
        if isinstance(law, law_kinds.Figure):
            assert callable(registry.load(law.measured))
            continue
        assert {law.over.variable, *law.spec} <= fields
        if isinstance(law.options, str):
            assert callable(registry.load(law.options))
        else:
            assert set(law.options or {}) <= options
        if isinstance(law, law_kinds.Share):
            assert law.option in options
        elif law.below is not None:
            assert registry.methods(method.family, law.below.method, method.framework)


def test_the_gate_finds_the_module_that_a_figure_is_measured_by():
    law = figure("f", "s", "p", printed=2, measured="some.module:size", unit="bytes").law
    assert list(named(dataclasses.asdict(law))) == ["some.module"]


def laws_of(method: Method) -> list[Claim]:
    return [declared for declared in method.claims if declared.law is not None]


def as_lists(value: object) -> object:
    """The same value with a list for every tuple, as in JSON."""
    if isinstance(value, dict):
        return {name: as_lists(item) for name, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value
