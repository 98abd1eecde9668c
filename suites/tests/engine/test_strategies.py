"""Strategies: only legal problems, every edge, shrinking to the smallest, a vocabulary that covers all settings."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.contract import Claim, Family, Spec, UsageError
from gradgate.references.state_space.problem import CHOICES
from gradgate.suites.checks import CHECKS, Case, Check
from gradgate.suites.checks.base import Rejected
from gradgate.suites.engine import search, strategies
from gradgate.suites.engine.coverage import coverage
from gradgate.suites.engine.given import Judging, judge_case
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Refuted, Subject
from gradgate.suites.judging.verdict import Task

FAMILIES = sorted(registry.families())
QUIET = hypothesis.settings(
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


UNTRIED = (
    *("blocks>1 with batch>128", "submersive=1 with batch>128", "channels=1 with batch>128"),
    "side>1 with batch>128",
)
"""Pairs with a long size that no shape has: a batch is as long in one block of invertible layers as in two; and with
four pixels, pure Moonwalk takes 1,048 JVPs a gradient, 25 CPU seconds for one claim in sixty digits."""


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return registry.family(request.param)


def check_legal(spec: Spec) -> None:
    assert type(spec).from_json(spec.to_json()) == spec
    problem = spec.build("torch")
    loss, grads = oracle.gradient(problem)
    assert np.isfinite(float(loss)), spec
    for name, leaf in oracle.split(problem, grads).items():
        assert np.isfinite(leaf).all(), (name, spec)


def test_every_drawn_spec_builds_a_problem_with_a_finite_oracle(family: Family, torch: Any) -> None:
    seen: set[Spec] = set()

    @QUIET
    @hypothesis.given(strategies.specs(family))
    def check(spec: Spec) -> None:
        assert spec.dtype == "float64"
        for name, (low, high) in family.values.items():
            assert low <= getattr(spec, name) <= high, (name, spec)
        check_legal(spec)
        seen.add(spec.static())

    check()
    assert len(seen) == len(strategies.covering(family))


def test_every_stress_spec_builds_a_problem_with_a_finite_oracle(family: Family, torch: Any) -> None:
    for fields in family.stress:
        check_legal(registry.spec_class(family.name)(**fields))


def test_every_shape_builds_the_same_sizes_in_float32(family: Family, torch: Any) -> None:
    for spec in strategies.edge_specs(family, None, seed=0):
        wide, narrow = spec.build("torch"), dataclasses.replace(spec, dtype="float32").build("torch")
        assert {k: v.shape for k, v in oracle.split(wide, wide.params).items()} == {
            k: v.shape for k, v in oracle.split(narrow, narrow.params).items()
        }


@pytest.mark.parametrize("where", [{"layers": 1}, {"layers": (1, 2), "head": "cross_entropy"}, {"length": 1}])
def test_where_restricts_every_drawn_shape(where: dict[str, Any]) -> None:
    family = registry.family("state_space")

    def fits(spec: Spec) -> bool:
        return all(getattr(spec, k) in (v if isinstance(v, tuple) else (v,)) for k, v in where.items())

    @QUIET
    @hypothesis.given(strategies.specs(family, where))
    def check(spec: Spec) -> None:
        assert fits(spec)

    check()
    assert all(map(fits, strategies.edge_specs(family, where, seed=3)))
    every = strategies.edge_specs(family, None, seed=3)
    assert sum(map(fits, every)) == len(strategies.shapes(family, where)) < len(every)


def test_the_covering_shapes_have_every_word_of_every_field_and_the_edges(family: Family) -> None:
    def words(shapes: Any) -> set[tuple[str, str]]:
        texts = [(k, v) for shape in shapes for k, v in shape.items() if isinstance(v, str)]
        return {(name, word) for name, text in texts for word in text.split()}

    few = strategies.covering(family)
    assert words(few) == words(family.shapes)
    usual = [shape for shape in family.shapes if not strategies.is_long(shape)]
    assert few[0] == family.shapes[0]
    assert usual[-1] in few or strategies.is_long(few[-1])
    assert len([shape for shape in few if strategies.is_long(shape)]) == 1
    assert 3 <= len(few) < len(family.shapes)


def test_the_cells_are_every_value_of_every_option_on_every_shape() -> None:
    family = registry.family("state_space")
    [method] = registry.methods("state_space", "reverse_recurrence", "torch")
    cells = strategies.cells(family, method, None, seed=0)
    for shape in family.shapes:
        plain = registry.spec_class("state_space")(**shape)
        tried = {options["chunk"] for spec, options in cells if spec.static() == plain.static()}
        assert tried == set(method.options[0].values(plain))
    assert len({spec.to_json() for spec, _ in cells}) == len(cells)
    assert any(spec.scale == 1.0 for spec, _ in cells)  # type: ignore[attr-defined]
    assert len({spec.decay for spec, _ in cells}) > 20  # type: ignore[attr-defined]


def test_the_cells_try_every_pair_of_values_and_every_value_on_every_shape(family: Family) -> None:
    for method in family.methods:
        cells = strategies.cells(family, method, None, seed=0)
        found, options = coverage(family, method, cells), {option.name for option in method.options}
        assert not [pair for pair in found.missing if options & {word.split("=")[0] for word in pair.split()}]
        assert not [pair for pair in found.missing if ">128" in pair and pair not in UNTRIED], method.key
        assert len(cells) <= 62, f"{method.key}: too slow; 61 cells took 17 CPU seconds in sixty digits"


def test_values_of_different_options_do_not_go_hand_in_hand() -> None:
    [method] = registry.methods("bilevel", "mixflow", "jax")
    for shape in registry.family("bilevel").shapes[:2]:
        where = {name: shape[name] for name in ("task", "model", "optimiser")}
        cells = strategies.cells(registry.family("bilevel"), method, where, seed=0)
        assert {tuple(options.values()) for _, options in cells} == set(itertools.product((False, True), repeat=2))


def test_the_same_seed_gives_the_same_cells_and_another_seed_other_problems(family: Family) -> None:
    method = family.methods[1]
    one, same, other = (strategies.cells(family, method, None, seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert [options for _, options in one] == [options for _, options in other]
    assert not {spec for spec, _ in one} & {spec for spec, _ in other}


def test_a_method_without_options_gets_several_problems_of_every_shape(family: Family) -> None:
    method = dataclasses.replace(family.methods[0], options=())
    counts = [strategies.LONG_DRAWN if strategies.is_long(shape) else strategies.DRAWN for shape in family.shapes]
    assert len(strategies.cells(family, method, None, seed=0)) == sum(counts)


def test_some_shapes_are_longer_than_every_usual_tile_and_fill_none(family: Family) -> None:
    every = list(filter(strategies.is_long, family.shapes))
    for shape in every:
        sizes = {name: size for name, size in shape.items() if isinstance(size, int)}
        long = max(sizes, key=lambda name: sizes[name])
        assert sizes[long] > strategies.LONG
        assert sizes[long] % 32
        assert max(size for name, size in sizes.items() if name not in (long, "vocabulary")) <= 4, "others are small"
    assert every[0] in strategies.covering(family), "claims in floats try it"
    assert every[0] in strategies.narrow(family), "bfloat16 tries it"
    for method in family.methods:
        claim = next((claim for claim in method.claims if claim.name == "gradient_exact"), method.claims[0])
        if strategies.fits(registry.spec_class(family.name)(**every[0]), claim.where):
            cells = strategies.cells(family, method, claim.where, 0)
            tried = [spec for spec, _ in cells if getattr(spec, long) > 128]
            assert 1 <= len(tried) <= 8 * len(every), f"{method.key}: each costs seconds in sixty digits"
            assert all(spec.upstream != 1 for spec in tried[:2]), "the first two cells need an upstream other than 1"


def test_more_examples_try_more_shapes_and_at_last_all(family: Family) -> None:
    few, enough = strategies.covering(family), strategies.enough(family)
    assert strategies.covering(family, None, 100) == few, "what verify takes by default"
    assert enough == strategies.EACH * len(family.shapes)
    assert list(strategies.covering(family, None, enough)) == list(family.shapes)
    assert list(strategies.narrow(family, None, enough)) == list(family.shapes)
    assert len(strategies.covering(family, None, enough - 1)) < len(family.shapes)


def test_a_shape_is_long_by_its_sizes_alone() -> None:
    assert strategies.is_long({"length": 129, "seed": 1})
    assert not strategies.is_long({"length": 128, "seed": 10**6, "scale": 300.0, "head": "linear"})


def test_a_long_shape_is_drawn_and_less_often_than_others() -> None:
    family, lengths = registry.family("state_space"), list[int]()

    @hypothesis.settings(QUIET, max_examples=200)
    @hypothesis.given(strategies.specs(family))
    def collect(spec: Any) -> None:
        lengths.append(spec.length)

    collect()
    assert 5 <= sum(length > strategies.LONG for length in lengths) < len(lengths) / len(strategies.covering(family))


def test_every_where_of_a_claim_leaves_some_shape(family: Family) -> None:
    for method in family.methods:
        for claim in method.claims:
            stress = claim.check in CHECKS and CHECKS[claim.check].draws == "stress"
            known = [
                registry.spec_class(family.name)(**fields) for fields in (family.stress if stress else family.shapes)
            ]
            assert any(strategies.fits(spec, claim.where) for spec in known), (method.key, claim.name)


def test_a_where_that_no_shape_satisfies_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"no shape in the vocabulary of state_space has \{'layers': 99\}"):
        strategies.shapes(registry.family("state_space"), {"layers": 99})


def test_shrinking_ends_at_the_smallest_shape_and_plain_values(family: Family) -> None:
    cls = registry.spec_class(family.name)
    found = hypothesis.find(strategies.specs(family), lambda _: True, settings=QUIET)
    assert found == cls(**family.shapes[0])


def test_shrinking_keeps_what_the_failure_needs_and_nothing_else() -> None:
    family = registry.family("state_space")
    found = hypothesis.find(strategies.specs(family), lambda spec: spec.layers >= 2, settings=QUIET)
    first = next(shape for shape in strategies.covering(family) if shape["layers"] >= 2)
    assert found == registry.spec_class("state_space")(**first)


def test_the_first_shape_has_every_size_at_its_edge() -> None:
    first = registry.family("state_space").shapes[0]
    assert {first[size] for size in ("length", "layers", "state", "width", "batch", "depth")} == {1}


def judged(claim: str, run: Run) -> list[Spec]:
    """The Specs of the problems that backprop in PyTorch gets while a claim is judged."""
    seen: list[Spec] = []
    method = registry.methods("state_space", "backprop", "torch")[0]
    subject = Subject.load(method)

    def recording(problem: Any) -> Any:
        seen.append(problem.spec)
        return method_function(problem)

    method_function = subject.function
    verdict = search.judge(Task.of(method, method.claim(claim)), dataclasses.replace(subject, function=recording), run)
    assert verdict.verdict == "upheld", verdict.reason
    return seen


def test_every_covering_shape_is_tried_before_anything_is_drawn(torch: Any) -> None:
    family = registry.family("state_space")
    edges = strategies.covering_specs(family, None, seed=4)
    seen = judged("gradient_float64", Run(examples=len(edges) + 3, seed=4))
    assert seen[: len(edges)] == edges
    assert len(set(seen)) == len(edges) + 3


def test_few_examples_spread_from_the_smallest_to_the_largest_shape(torch: Any) -> None:
    edges = strategies.covering_specs(registry.family("state_space"), None, seed=0)
    seen = judged("gradient_float64", Run(examples=3))
    assert (seen[0], seen[-1], len(seen)) == (edges[0], edges[-1], 3)


def test_another_seed_draws_other_problems_and_the_same_seed_the_same(torch: Any) -> None:
    one, same, other = (judged("gradient_float64", Run(examples=20, seed=seed)) for seed in (1, 1, 2))
    assert one == same
    same_values = {(spec.seed, spec.scale, spec.decay) for spec in set(one) & set(other)}  # type: ignore[attr-defined]
    assert same_values <= {(0, 1.0, 1.0)}, "Hypothesis tries the simplest numbers now and then, whatever the seed"


def test_picked_options_are_legal_and_their_kinds_vary(family: Family) -> None:
    for method in family.methods:
        for option in method.options:
            places = set()
            for spec in strategies.edge_specs(family, None, seed=0):
                legal = list(option.values(spec))
                picked = strategies.pick_options(method, spec)[option.name]
                places.add(legal.index(picked))
                assert strategies.pick_options(method, spec, covering=option.name)[option.name] == legal[-1]
            assert len(places) > 1, f"{method.key}: {option.name} is always the same kind of value"


def test_options_are_fixed_by_the_shape_so_that_each_shape_compiles_once(spec: Callable[..., Spec]) -> None:
    method = registry.methods("state_space", "reverse_recurrence", "torch")[0]
    picks = [strategies.pick_options(method, spec(seed=s, scale=2.0 + s, decay=float(s))) for s in range(5)]
    assert all(pick == picks[0] for pick in picks)


@pytest.mark.parametrize(
    ("share", "low", "high", "value"),
    [
        (0.0, 0.1, 10.0, 0.1),
        (0.5, 0.1, 10.0, 1.0),
        (1.0, 0.1, 10.0, 10.0),
        (0.5, -4.0, 6.0, 1.0),
        (0.25, 1.0, 5.0, 2.0),
    ],
)
def test_values_lie_between_their_ends_in_proportion_over_decades(
    share: float, low: float, high: float, value: float
) -> None:
    assert strategies.value_at(share, low, high) == value


def test_the_vocabulary_covers_every_pair_of_settings() -> None:
    shapes = registry.family("state_space").shapes
    settings = {**CHOICES, "depth": (1, 2)}
    unbounded = {("none", "identity"), ("none", "silu")}
    for one, two in itertools.combinations(sorted(settings), 2):
        seen = {(shape[one], shape[two]) for shape in shapes}
        wanted = set(itertools.product(settings[one], settings[two]))
        if {one, two} == {"activation", "norm"}:
            forbidden = {(activation, norm) for norm, activation in unbounded}
            assert not seen & forbidden, "without a norm the activation must be bounded"
            wanted -= forbidden
        assert wanted <= seen, f"{one} × {two}: {sorted(wanted - seen)} never occur"


def test_every_check_judges_at_least_its_minimum_and_at_most_what_is_asked() -> None:
    for name, check in CHECKS.items():
        assert check.examples(1) == 1, name
        assert 2 <= check.fewest <= check.examples(100) <= 100, name
        assert check.examples(1000) >= check.examples(100), name


def test_a_claim_restricted_to_a_field_is_judged_only_there(torch: Any) -> None:
    method = registry.methods("state_space", "backprop", "torch")[0]
    claim = Claim("one", "gradient", "", "", where={"length": 1}, settings={"dtype": "float64"})
    subject = Subject.load(dataclasses.replace(method, claims=(claim,)))
    verdict = search.judge(Task.of(method, claim), subject, Run(examples=4))
    assert verdict.verdict == "upheld"
    assert verdict.spec is not None
    assert verdict.spec["length"] == 1


@pytest.mark.parametrize("fate", ["all pass", "some are rejected", "one kind is refuted"])
def test_what_was_drawn_once_is_judged_as_hypothesis_would_have_it(fate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method, check = registry.methods("state_space", "backprop", "torch")[0], CHECKS["gradient"]
    claim, subject = method.claim("gradient_float64"), Subject(method, lambda _: None)

    def run() -> tuple[Judging, list[str]]:
        made, order = Judging(), []

        def judged(case: Case) -> None:
            order.append(case.spec.to_json())
            if fate == "some are rejected" and case.spec.seed % 3 == 0:
                raise Rejected
            if fate == "one kind is refuted" and case.spec.seed > 2**31:
                raise Refuted("no")

        one = Check("", together=True)
        one.__dict__["function"] = judged
        with contextlib.suppress(Refuted):
            search.draw(
                made,
                lambda spec, options: judge_case(made, Case(subject, claim, spec, options), one, lambda _: None),
                method,
                claim,
                check,
                Run(100),
            )
        return made, order

    once = run()
    with monkeypatch.context() as patched:
        patched.setattr(search, "_drawn", dict[str, Any]().__getitem__)  # nothing is known: Hypothesis draws at once
        anew = run()
    assert [*once[0].judged] == [*anew[0].judged], "the same problems in the same order"
    assert once[0].problems == anew[0].problems
    assert (once[0].failure is None) == (anew[0].failure is None) == (fate != "one kind is refuted")
    if once[0].failure and anew[0].failure:
        assert once[0].failure[1].spec == anew[0].failure[1].spec, "the same smallest problem"
    if fate == "all pass":
        assert once[1] == anew[1]
        monkeypatch.setattr(search, "_falsify", None)
        assert run()[1] == once[1], "what is drawn the second time is not drawn by Hypothesis"


@pytest.mark.parametrize("family", FAMILIES)
def test_every_claim_of_a_reference_finds_problems(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_options", lambda *_: {})  # options may need the framework
    kinds = {
        (str(claim.where), claim.check, str(claim.settings)): (method, claim)
        for method in registry.methods(family)
        for claim in method.claims
        if CHECKS[claim.check].draws != "profile"
    }
    for method, claim in kinds.values():
        made, found = Judging(), []

        def put(spec: Spec, _: object, judged: dict[str, None] = made.judged, found: list[Spec] = found) -> None:
            judged[spec.to_json()] = None
            found.append(spec)

        search.draw(made, put, dataclasses.replace(method, options=()), claim, CHECKS[claim.check], Run(12))
        assert found, (method.key, claim.name)


def test_what_a_seed_draws_does_not_depend_on_imported_modules(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn() -> list[Spec]:
        found: list[Spec] = []
        search._falsify(strategies.specs(family), found.append, 60, 7)
        return found

    before = drawn()
    name = f"full_of_numbers_{family.name}"
    (tmp_path / f"{name}.py").write_text(f"NUMBERS = {[*range(100, 240)]}, {[n / 7 for n in range(100)]}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module(name)
    assert drawn() == before
