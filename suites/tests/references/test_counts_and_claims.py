"""Declarations are complete and consistent. A run fails if a declaration is wrong in either direction."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.claims import COMPOSITIONS, contract_claims
from gradgate.references.contract import FRAMEWORKS, Claim, Method
from gradgate.references.registry import spec_class
from gradgate.references.state_space import linear_count, quadratic_count, truncated_count, truncated_count_printed
from gradgate.suites.checks import CHECKS
from gradgate.suites.engine.search import judge
from gradgate.suites.engine.strategies import shapes
from gradgate.suites.judging.outcomes import exit_status
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task

METHODS = [method for family in registry.families().values() for method in family.methods]
EVERY = pytest.mark.parametrize("method", METHODS, ids=[m.key for m in METHODS])
GRADIENTS = [method for method in METHODS if "unbiased" not in {claim.check for claim in method.claims}]
"""All methods except the random estimates, which are judged by their mean."""
EVERY_GRADIENT = pytest.mark.parametrize("method", GRADIENTS, ids=[m.key for m in GRADIENTS])


def test_all_but_one_method_give_the_gradient_itself() -> None:
    assert {method.name for method in METHODS} - {method.name for method in GRADIENTS} == {"projected_forward"}


@EVERY_GRADIENT
def test_every_composition_is_claimed_or_disclaimed_and_never_both(method: Method) -> None:
    legal = set(COMPOSITIONS[method.framework])
    assert set(method.composes) | set(method.disclaims) == legal
    assert not set(method.composes) & set(method.disclaims)
    claimed = {claim.name for claim in method.claims}
    assert set(method.composes) <= claimed
    assert {f"refuses_{name}" for name in method.disclaims} <= claimed


@EVERY
def test_every_claim_names_a_check_and_is_unique(method: Method) -> None:
    assert all(claim.check in CHECKS for claim in method.claims)
    names = collections.Counter(claim.name for claim in method.claims)
    assert max(names.values()) == 1, names
    assert all(claim.statement and claim.source for claim in method.claims)


@EVERY
def test_whatever_is_expected_to_be_refuted_says_why_and_nothing_else_does(method: Method) -> None:
    for claim in method.claims:
        assert bool(claim.declared_reason) == (claim.expected == "refuted"), claim.name


@EVERY_GRADIENT
def test_every_method_owes_the_contract(method: Method) -> None:
    owed = {claim.name for claim in contract_claims(options=method.options, dtypes=method.dtypes)}
    assert owed <= {claim.name for claim in method.claims}


@EVERY
def test_every_restriction_names_fields_of_the_spec(method: Method) -> None:
    fields = {field.name for field in dataclasses.fields(spec_class(method.family))}
    assert all(set(claim.where) <= fields for claim in method.claims)


@EVERY
def test_every_implementation_formula_and_measurement_that_is_named_exists(method: Method) -> None:
    pytest.importorskip(method.framework)
    assert callable(registry.load(method.implementation))
    for claim in method.claims:
        for setting in ("formula", "residency"):
            if setting in claim.settings:
                assert callable(registry.load(claim.settings[setting]))


@EVERY
def test_every_option_has_legal_values_for_every_shape_and_illegal_ones_that_differ(method: Method) -> None:
    for option in method.options:
        assert option.illegal, option.name
        for shape in shapes(registry.family(method.family)):
            legal = list(option.values(spec_class(method.family)(**shape)))
            assert legal, (option.name, shape)
            assert not [v for v in legal if any(v is w or (type(v) is type(w) and v == w) for w in option.illegal)]


OF_ONE_FRAMEWORK = {("bilevel", "autograd_checkpoint"): "torch"}
"""Methods that are the usual code of one framework's users, with the framework."""


def test_every_method_exists_in_both_frameworks_with_the_same_claims_but_for_composition() -> None:
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for method in METHODS:
        # claims of memory and work may differ, because the frameworks can measure different quantities
        names = {claim.name for claim in method.claims if CHECKS[claim.check].draws != "profile"}
        plain = {name: name.removeprefix("refuses_").removesuffix("_exact") for name in names}
        compositions = {name for name in names if plain[name] in ("jit", "vmap", "second_order", "protocol")}
        found.setdefault((method.family, method.name), {})[method.framework] = names - compositions
    assert {key: [*found[key]] for key in OF_ONE_FRAMEWORK} == {key: [one] for key, one in OF_ONE_FRAMEWORK.items()}
    for key, by_framework in found.items():
        if key in OF_ONE_FRAMEWORK:
            continue
        assert by_framework.keys() == set(FRAMEWORKS), key
        assert by_framework["jax"] == by_framework["torch"], key


@pytest.mark.parametrize(("length", "layers"), [(1, 1), (5, 1), (4, 3)])
def test_the_formulas_count_what_they_say(length: int, layers: int) -> None:
    spec = spec_class("state_space")(length=length, layers=layers)
    pairs = layers * sum(1 for t in range(length) for i in range(t + 1))
    assert quadratic_count(spec) == {"A": pairs, "B": pairs, "C": layers * length}
    assert linear_count(spec) == dict.fromkeys("ABC", layers * length)
    for window in range(1, length + 3):
        near = layers * sum(1 for t in range(length) for i in range(t + 1) if t - i < window)
        assert truncated_count(spec, window=window)["A"] == near
        assert (truncated_count_printed(spec, window=window)["A"] == near) == (min(window, length) == 1)


def test_the_papers_own_saving_needs_the_mended_sign() -> None:
    spec = spec_class("state_space")(length=10_000, layers=1)
    whole = quadratic_count(spec)["A"]
    assert 1 - truncated_count(spec, window=2_000)["A"] / whole == pytest.approx(0.64, abs=0.005)
    assert 1 - truncated_count_printed(spec, window=2_000)["A"] / whole == pytest.approx(0.56, abs=0.005)


def test_a_claim_that_is_declared_false_and_holds_fails_the_run(torch: Any) -> None:
    backprop = registry.methods("state_space", "backprop", "torch")[0]
    claim = Claim(
        "gradient_float64",
        "gradient",
        "equals backprop",
        "test",
        expected="refuted",
        declared_reason="nobody believes it",
        settings={"dtype": "float64"},
    )
    subject = Subject.load(dataclasses.replace(backprop, claims=(claim,)))
    verdict = judge(Task.of(subject.declared, claim), subject, Run(examples=3))
    assert (verdict.verdict, verdict.as_expected) == ("upheld", False)
    assert exit_status([verdict]) == 1


def test_a_composition_that_is_disclaimed_and_works_fails_the_run(
    plugin: Callable[..., str], gradgate: Callable[..., Any]
) -> None:
    path = plugin(
        "\nfrom gradgate.references.contract import method\n\n"
        "@method(disclaims=['second_order'], composes=['vmap'])\ndef modest(problem):\n    return good(problem)\n"
    )
    ran = gradgate("verify", f"{path}:modest", "--family", "state_space", "--examples", 1, "--jobs", 1)
    assert ran.status == 1, ran
    assert "second_order is disclaimed, but it works: claim it" in ran.out
    assert "claim: refuses_second_order" in ran.out
    assert "12 of 13 claims as declared" in ran.out


DECORATED = """
from gradgate.references.contract import IllegalOption, NotComposable, Option, method

CHUNK = Option("chunk", "1 or 2", lambda spec: [1, 2], illegal=(0, "x"))

@method(options=[CHUNK])
def lax(problem, *, chunk):
    return good(problem)

@method(options=[CHUNK])
def strict(problem, *, chunk):
    if chunk not in (1, 2):
        raise IllegalOption(f"chunk must be 1 or 2, not {chunk!r}")
    return good(problem)

@method(options=[CHUNK])
def off_at_two(problem, *, chunk):
    if chunk not in (1, 2):
        raise ValueError("no")
    loss, grads = good(problem)
    return loss, {**grads, "head": grads["head"] * chunk}

@method(disclaims=["second_order"])
def fails_by_accident(problem):
    loss, grads = good(problem)
    return loss, {**grads, "head": torch.from_numpy(grads["head"].numpy())}
"""


@pytest.mark.parametrize(
    ("function", "claim", "verdict", "reason"),
    [
        ("strict", "refusal", "upheld", ""),
        ("strict", "options", "upheld", ""),
        ("lax", "refusal", "refuted", "chunk=0 was accepted; legal: 1 or 2"),
        ("off_at_two", "refusal", "refuted", "chunk=0: the method raised ValueError: no; expected IllegalOption"),
        ("off_at_two", "options", "refuted", "chunk=2: wrong gradient of head (100%), exact in embedding, layers[0]"),
        ("fails_by_accident", "refuses_second_order", "refuted", "second_order failed by accident: the method raised"),
    ],
)
def test_what_a_plug_in_declares_is_held_to(
    function: str, claim: str, verdict: str, reason: str, plugin: Callable[..., str], patient: Any
) -> None:
    tasks = {t.claim: t for t in patient.describe(f"{plugin(DECORATED)}:{function}", "state_space", None)}
    found = patient.judge(tasks[claim])
    assert found.verdict == verdict, found
    assert reason in found.reason


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("oracle='los'", r"unknown oracle of .*:odd 'los'; legal: cut_loss, loss, token_loss; nearest: loss"),
        ("composes=['second-order']", "unknown transformation 'second-order'; legal: .*; nearest: second_order"),
        ("disclaims=['vmpa']", "unknown transformation 'vmpa'; legal: jit, second_order, vmap; nearest: vmap"),
    ],
)
def test_what_a_plug_in_declares_wrongly_is_wrong_usage(
    declared: str, message: str, plugin: Callable[..., str], gradgate: Callable[..., Any]
) -> None:
    path = plugin(
        f"\nfrom gradgate.references.contract import method\n\n@method({declared})\ndef odd(problem):\n"
        "    return good(problem)\n"
    )
    ran = gradgate("verify", f"{path}:odd", "--family", "state_space", "--jobs", 1)
    assert ran.status == 3, ran
    assert re.fullmatch(f"gradgate: {message}\n", ran.err), ran.err


def test_inapplicable_contradicts_nothing_but_alone_it_says_nothing(tmp_path: Path) -> None:
    from gradgate.suites.judging.verdict import Verdict

    absent = Verdict(Task("f", "m", "jax", "c"), "inapplicable")
    assert exit_status([absent, Verdict(Task("f", "m", "jax", "value"), "upheld")]) == 0
    assert exit_status([absent]) == 2
    assert exit_status([]) == 0
