"""The selftest: the corpus is complete, mutants are killed, survivors fail the run, and rival tools behave as known."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import FRAMEWORKS, Claim, Method, installed
from gradgate.references.registry import families, methods, plugged_in, spec_class
from gradgate.suites.bugs.corpus import corpus, unbroken
from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.edits import Edit, edited
from gradgate.suites.bugs.facts import facts
from gradgate.suites.bugs.mutant import FORMULA
from gradgate.suites.bugs.operators import single
from gradgate.suites.checks import CHECKS, Case, rivals
from gradgate.suites.engine.strategies import cells
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Inapplicable, Refuted, Subject
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.keeping.keys import Keys
from gradgate.suites.selftest import judging, summary, table
from gradgate.suites.selftest.stored import Stored, _described
from gradgate.suites.workers.supervisor import Limits, Supervisor

PUBLISHED = (
    "PT#190758",
    "OLMo-core PR 828",
    "guided-diffusion#167",
    "PT#193671",
    "PT#71124",
    "fairscale#1199",
    "PT#7617",
    "RevTorch#11",
    "PT#81296",
    "DeepSpeed PR 8455",
    "PT#96136",
    "deepwave#120",
    "jax#5900",
    "jax#9567",
    "diffrax#64",
    "PT#184528",
    "jax PR 6127",
    "mamba#368",
    "mamba PR 547",
    "mamba bb3a82a",
    "fla PR 875",
    "fla PR 781",
    "#1115",
    "fla PR 863",
    "fla PR 1071",
    "fla PR 941",
    "fla PR 633",
    "fla 7362d874",
    "fla#77",
    "FlashQLA PR 28",
    "jaxopt#141",
    "mrcl#15",
    "higher#71",
    "higher#129, #102",
    "MemCNN#16, #29",
    "RevGAN",
    "diffrax#596",
    "tensorflow PR 39042",
    "PT#176065",
    "jax#27748",
    "MemCNN#41",
)
"""Sources of the published bugs that the corpus must hold."""


def test_every_published_bug_is_carried_over() -> None:
    told = "\n".join(mutant.source for mutant in corpus().values())
    assert [source for source in PUBLISHED if source not in told] == []


def test_every_mutant_names_claims_that_its_method_makes_and_tells_its_story() -> None:
    assert len(corpus()) >= 150
    for mutant in corpus().values():
        claims = {claim.name: claim for claim in mutant._claims()}
        assert mutant.kill, mutant.name
        assert all(claims[name].expected == "upheld" for name in (*mutant.kill, *mutant.also)), mutant.name
        assert mutant.story, mutant.name
        assert mutant.source, mutant.name


def test_a_wrong_formula_is_left_to_sixty_digits_alone() -> None:
    wrong = [mutant for mutant in corpus().values() if mutant.formula and not mutant.equivalent]
    assert len(wrong) >= 400
    assert all(len(mutant.kill) == 1 and mutant.verdict == "refuted" for mutant in wrong)
    others = {mutant.kill[0] for mutant in corpus().values() if not mutant.formula}
    assert {"gradient_float64", "memory_law", "pure", "tree"} <= others
    assert not others & set(FORMULA)


def test_the_ladder_of_planted_errors_is_in_every_family_and_framework() -> None:
    rungs: dict[str, set[float]] = {}
    for mutant in corpus().values():
        if mutant.planted:
            rungs.setdefault(f"{mutant.family}.{mutant.framework}", set()).add(mutant.planted)
            assert mutant.also == (("gradient_float64",) if mutant.planted > 1e-12 else ())
    assert rungs.keys() == {f"{family}.{framework}" for family in families() for framework in FRAMEWORKS}
    assert all({1e-11, 2.0**-52, 1e-30} <= sizes for sizes in rungs.values())


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_every_edit_still_finds_its_text(framework: str) -> None:
    if not installed(framework):
        pytest.skip(f"{framework} is not installed")
    for mutant in corpus().values():
        if mutant.framework == framework:
            function = mutant.function()
            assert mutant.source in str(function.__doc__)


def test_an_edit_whose_text_is_gone_is_refused(framework: str) -> None:
    target = f"gradgate.references.chain.in_{framework}.methods:backprop"
    with pytest.raises(LookupError, match="0 times, not once"):
        edited(target, [Edit(f"in_{framework}.methods", "no such text", "")])


def test_an_edit_leaves_the_modules_in_use_alone(framework: str) -> None:
    import importlib

    name = f"gradgate.references.chain.in_{framework}.methods"
    before, classic = (
        importlib.import_module(name),
        importlib.import_module("gradgate.references.chain.schedules.classic"),
    )
    broken = edited(f"{name}:sqrt_n", [Edit("schedules.classic", "round(math.sqrt(", "round(2 * math.sqrt(")])
    import gradgate.references.chain.schedules as package

    assert importlib.import_module(name) is before
    assert package.classic is classic
    assert broken is not before.sqrt_n


@pytest.mark.parametrize("family", families())
def test_what_a_bug_at_an_edge_waits_for_occurs_among_the_problems_of_its_class(family: str) -> None:
    declared = families()[family]
    known = facts(declared)
    for method in (known.plain, known.clever):
        [base] = methods(family, method, "torch")
        problems = [
            (spec.build("numpy"), options)
            for spec, options in cells(declared, base, base.claim("gradient_exact").where, 0)
        ]
        awaited = {"ragged": known.ragged} if method == known.clever else {}
        awaited |= {"large": known.large, "single": single(known.single)} if method == known.plain else {}
        for name, condition in awaited.items():
            assert condition is not None, name
            assert any(bool(condition(problem, options)) for problem, options in problems), (method, name)


def _judged(names: list[str], examples: int = 12) -> dict[str, judging.Outcome]:
    with Supervisor(Run(examples), jobs=1, limits=Limits(240)) as supervisor:
        verdicts: dict[str, dict[str, Verdict]] = {name: {} for name in names}
        return {outcome["name"]: outcome for outcome in judging.judged(names, supervisor, verdicts, judging.TOOLS)}


def test_a_sample_is_killed_by_the_claim_that_was_named_and_an_equivalent_mutant_by_none(torch: Any) -> None:
    names = [
        "state_space.torch.mask_makes_nan",
        "performer.torch.block_printed",
        "invertible.torch.way_without_effect",
        "chain.torch.shared_twice",
        "chain.torch.none_for_a_leaf",
        "chain.torch.planted_1e11",
        "chain.torch.planted_ulp",
        "chain.torch.planted_1e30",
        "chain.torch.downcast",
    ]
    found = _judged([*names, "chain.torch.planted_1e17"])
    assert {name: found[name]["status"] for name in names} == dict.fromkeys(names, "killed")
    assert found["invertible.torch.way_without_effect"]["claim"] == "refusal"
    assert found["chain.torch.planted_1e17"]["status"] == "equivalent"
    by_rivals = found["state_space.torch.mask_makes_nan"]["rivals"]
    assert by_rivals["isapprox"]["found"]
    assert not by_rivals["gradbench"]["found"]  # NaN > tolerance is always false
    tools = found["chain.torch.planted_1e11"]["rivals"]
    assert [name for name, tool in tools.items() if tool["found"]] == [judging.FLOATS]
    for name in ("planted_ulp", "planted_1e30"):
        planted = found[f"chain.torch.{name}"]
        assert (planted["claim"], planted["examples"]) == ("gradient_exact", 1)
        assert not any(tool["found"] for tool in planted["rivals"].values())
    assert found["chain.torch.downcast"]["claim"] == "gradient_float64"
    assert all(rival["found"] for rival in found["chain.torch.shared_twice"]["rivals"].values())


def test_rivals_of_jax_see_what_they_can(jax: Any) -> None:
    found = _judged(["chain.jax.sign_of_a_leaf"])
    assert found["chain.jax.sign_of_a_leaf"]["rivals"].keys() == {
        judging.FLOATS,
        "check_grads",
        "check_vjp",
        "assert_allclose",
        "assert_allclose_loose",
        "isapprox",
        "gradbench",
    }
    assert all(rival["found"] for rival in found["chain.jax.sign_of_a_leaf"]["rivals"].values())


def test_a_survivor_is_named_fails_the_run_and_is_judged_again(
    torch: Any, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "selftest.json"
    arguments = ("selftest", "chain.torch.wrong_where_large", "--examples", "3", "--json", path, "--report", tmp_path)
    first = gradgate(*arguments)  # three problems are too few: none has a large weight
    assert first.status == 1, first
    assert "survived: chain.torch.wrong_where_large" in first.out
    assert "0 of 1 mutants killed" in first.out
    page = (tmp_path / "selftest.html").read_text(encoding="utf-8")
    assert "0 of 1 mutants killed" in page
    assert "another formula than the gradient's: 1. Killed by <code>gradient_exact</code> or" in page
    assert json.loads(path.read_text(encoding="utf-8"))["formulas"] == {"wrong": 1, "killed": 0, "others": {}}
    assert page.count("<script") == page.count("</script>")
    assert "reused" not in gradgate(*arguments).err


def test_a_kill_is_reused_until_something_that_decided_it_changes(
    torch: Any, gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "selftest.json"
    arguments = ("selftest", "chain.torch.planted_1e2", "--examples", "3", "--json", path, "--tools")
    alone = gradgate(*arguments[:-1])
    assert (alone.status, "gradcheck" in alone.out) == (0, False)
    assert [row["rivals"] for row in json.loads(path.read_text(encoding="utf-8"))["mutants"]] == [{}]
    first = gradgate(*arguments)
    assert "reused" not in first.err  # the tools have not judged it yet
    assert first.status == 0, first
    found = json.loads(path.read_text(encoding="utf-8"))["mutants"]
    again = gradgate(*arguments)
    assert (again.status, "1 of 1 outcomes reused" in again.err) == (0, True)
    assert "1 of 1 outcomes reused" in gradgate(*arguments[:-1]).err
    assert "1 of 1 outcomes reused" in gradgate(*arguments).err
    assert json.loads(path.read_text(encoding="utf-8"))["mutants"] == found
    assert "reused" not in gradgate(*arguments, "--seed", "5").err
    assert "reused" not in gradgate(*arguments, "--fresh").err

    mutant = corpus()["chain.torch.planted_1e2"]
    keys = Keys(tmp_path)
    run, closure = Run(3, limit=0.75 * 300), keys.closure
    all_claims = set(found[0]["judged"])
    assert Stored(keys, run).get(mutant).keys() == all_claims

    def edited(module: str) -> Callable[..., dict[str, str]]:
        return lambda *asked: {name: text + (name == module) * "x" for name, text in closure(*asked).items()}

    rivals_of_torch, numerical = all_claims & set(judging.RIVALS), {"gradcheck", "gradcheck_fast"}
    for module, outdated in {
        "gradgate.suites.checks.donation": set(),  # it was not asked
        "gradgate.suites.checks.rivals.of_torch": numerical,
        "gradgate.suites.checks.rivals.of_jax": set(),
        "gradgate.suites.checks.rivals.comparisons": rivals_of_torch - numerical,
        "gradgate.suites.checks.gradient": {judging.FLOATS},
        "gradgate.suites.checks.exact": {"gradient_exact"},
        "gradgate.suites.checks.evaluation": {"gradient_exact", judging.FLOATS},  # floats name a cast by it
        "gradgate.suites.exact.balls": all_claims,
        "gradgate.suites.bugs.generic": all_claims,
        "gradgate.references.chain.in_torch.methods": all_claims,
        "gradgate.references.performer.in_torch.methods": set(),
    }.items():
        monkeypatch.setattr(keys, "closure", edited(module))
        assert all_claims - Stored(keys, run).get(mutant).keys() == outdated, module
    for module, known in {
        "gradgate.suites.checks.exact": {"gradient_exact", judging.FLOATS},
        "gradgate.suites.exact.balls": {"gradient_exact", judging.FLOATS},
        "gradgate.suites.engine.strategies": set(),
        "gradgate.suites.engine.search": set(),
        "gradgate.references.chain.in_torch.methods": set(),
    }.items():
        monkeypatch.setattr(keys, "closure", edited(module))
        assert Stored(keys, run).known(mutant).keys() == known, module


def test_the_problem_that_refuted_before_is_judged_first_and_all_are_if_it_refutes_no_more(torch: Any) -> None:
    name, run = "chain.torch.wrong_where_large", Run(100)

    def judge(known: judging.Known | None) -> tuple[Verdict, list[Run]]:
        asked: list[Run] = []
        with Supervisor(run, 1) as supervisor:
            given, found = supervisor.judge_each, {name: {}}  # type: ignore[var-annotated]

            def watched(pairs: Any, *rest: Any) -> Any:
                listed = list(pairs)
                asked.extend(one for _, one in listed)
                return given(listed, *rest)

            supervisor.judge_each = watched  # type: ignore[method-assign]
            some = {name: {"gradient_exact": known}} if known else {}
            [outcome] = judging.judged([name], supervisor, found, known=some)
        assert outcome["status"] == "killed"
        return found[name]["gradient_exact"], asked

    verdict, asked = judge(None)
    assert (verdict.examples > 1, asked) == (True, [run])
    spec = dataclasses.replace(run, spec=json.dumps(verdict.spec), options=verdict.options)
    again, asked = judge(judging.Known(spec, verdict.examples))
    assert asked == [spec]
    assert (again.examples, again.reason, again.spec) == (verdict.examples, verdict.reason, verdict.spec)
    passes = dataclasses.replace(spec, spec=json.dumps({**(verdict.spec or {}), "scale": 0.1}))
    once_more, asked = judge(judging.Known(passes, 7))
    assert asked == [passes, run]
    assert (once_more.examples, once_more.spec) == (verdict.examples, verdict.spec)


def test_two_bugs_of_one_operator_are_told_apart(torch: Any, tmp_path: Path) -> None:
    stored = Stored(Keys(tmp_path), Run(3))
    one, other = (corpus()[f"chain.torch.planted_1e{k}"] for k in (2, 3))
    same = dataclasses.replace(other, name=one.name, story=one.story, planted=one.planted)
    assert stored._decided_by(one, ["gradient_exact"]) != stored._decided_by(same, ["gradient_exact"])
    assert stored._drawn_by(one) != stored._drawn_by(same)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gate_sing"], "nearest: "),
        (["--family", "chian"], "unknown family 'chian'"),
        (["--framework", "tensorflow"], "unknown framework"),
        (["--examples", "0"], "--examples: must be at least 1"),
    ],
)
def test_wrong_usage_is_told(gradgate: Callable[..., Any], arguments: list[str], said: str) -> None:
    ran = gradgate("selftest", *arguments)
    assert ran.status == 3
    assert said in ran.err


def test_a_file_of_something_else_is_not_overwritten(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps({"verdicts": []}), encoding="utf-8")
    ran = gradgate("selftest", "chain.torch.planted_1e2", "--json", path)
    assert ran.status == 3
    assert json.loads(path.read_text(encoding="utf-8")) == {"verdicts": []}


def test_the_help_says_what_is_judged_and_how_to_go_on(gradgate: Callable[..., Any]) -> None:
    ran = gradgate("selftest", "--help")
    assert ran.status == 0
    assert "survivor, named, and fails the run" in " ".join(ran.out.split())
    assert "the next run goes on where this one stops" in ran.out


@pytest.fixture
def case(framework: str) -> Callable[..., Case]:
    """A function that makes a case: backprop on a small chain, for one claim; `wrong` flips the gradient's sign."""
    from gradgate.references.backends import tree_map

    [declared] = methods("chain", "backprop", framework)

    def make(claim: Claim, wrong: bool = False) -> Case:
        plain = Subject.load(declared)

        def flipped(problem: Any) -> Any:
            loss, grads = plain.function(problem)
            return loss, tree_map(lambda leaf: -leaf, grads)

        spec = spec_class("chain")(layers=1, width=2, batch=1, seed=3)
        return Case(Subject(declared, flipped) if wrong else plain, claim, spec, {})

    return make


@pytest.mark.parametrize("claim", rivals.CLAIMS, ids=lambda claim: claim.name)
def test_a_rival_passes_backprop_and_refutes_its_negative(
    case: Callable[..., Case], claim: Claim, framework: str
) -> None:
    check = CHECKS[claim.check].function
    if claim.name in judging.FOREIGN[framework]:
        with pytest.raises(Inapplicable, match="alone"):
            check(case(claim))
        return
    check(case(claim))
    with pytest.raises(Refuted):
        check(case(claim, wrong=True))


def test_a_check_that_fails_by_itself_kills_nothing_and_is_told() -> None:
    mutant = corpus()["chain.torch.none_for_a_leaf"]
    for reason in ("the check itself failed, please report it: KeyError", "importing x raised LookupError: no text"):
        verdict = Verdict(mutant.task("tree"), "error", reason=reason)
        assert judging.outcome(mutant, {"tree": verdict})["status"] == "undecided"
    told = Verdict(mutant.task("tree"), "refuted", reason="wrong tree")
    assert judging.outcome(mutant, {"tree": told})["status"] == "killed"


def test_bits_are_compared_with_another_implementation(case: Callable[..., Case]) -> None:
    implementation = case(rivals.CLAIMS[0]).subject.declared.implementation
    claim = Claim("same_bits", "same_bits", "", "", settings={"implementation": implementation})
    CHECKS["same_bits"].function(case(claim))
    with pytest.raises(Refuted, match="other bits"):
        CHECKS["same_bits"].function(case(claim, wrong=True))


def _row(name: str, status: str, found: bool, claim: str = "gradient_exact", planted: float = 0.0) -> judging.Outcome:
    return {
        "name": name,
        "claim": claim,
        "family": "chain",
        "framework": "torch",
        "kill": [claim],
        "formula": claim in FORMULA,
        "planted": planted,
        "status": status,
        "examples": 2,
        "seconds": 1.0,
        "rivals": {"isapprox": {"found": found, "examples": 1, "seconds": 0.5}},
    }


def test_the_summary_counts_kills_alarms_and_the_smallest_planted_error() -> None:
    rows = [
        _row("chain.torch.a", "killed", True),
        _row("chain.torch.b", "survived", False),
        _row("chain.torch.c", "sound", True),
        _row("chain.torch.d", "equivalent", False),
        _row("chain.torch.off_a_lot", "killed", True, planted=1e-2),
        _row("chain.torch.off_a_little", "killed", False, planted=1e-3),
    ]
    suite, *others = summary.tools(rows)
    rule = next(tool for tool in others if tool.name == "isapprox")
    assert (suite.detected, suite.asked, suite.alarms, suite.unbroken, suite.smallest) == (3, 4, 0, 1, 1e-3)
    assert (rule.detected, rule.asked, rule.alarms, rule.smallest) == (2, 4, 1, None)  # None: it has a false alarm
    assert next(tool for tool in summary.tools([*rows[:2], *rows[4:]]) if tool.name == "isapprox").smallest == 1e-2
    assert [summary.status(part, len(part)) for part in (rows, rows[:1], [_row("x", "undecided", False)])] == [1, 0, 2]
    assert summary.status(rows[:1], 2) == 2  # 1 of 2 outcomes: the run was cut off
    assert summary.killers(rows) == [("gradient_exact", 3)]
    assert summary.percent(999, 1000) == "99.9 %"


def test_wrong_formulas_are_counted_apart_and_other_bugs_told_by_the_claim_that_kills_them() -> None:
    rows = [
        _row("chain.torch.a", "killed", True),
        _row("chain.torch.b", "survived", False),
        _row("chain.torch.zero", "killed", False, "second_order_exact"),
        _row("chain.torch.downcast", "killed", True, "gradient_float64"),
        _row("chain.jax.all_at_once", "killed", True, "memory_law"),
        _row("chain.torch.nothing_matches", "killed", True, "memory_law"),
        _row("chain.torch.same", "equivalent", False),
        _row("chain.torch.late", "survived", False, "pure"),
    ]
    found = summary.formulas(rows)
    assert (found.wrong, found.killed) == (3, 2)
    assert found.others == {
        "memory_law": ["chain.jax.all_at_once", "chain.torch.nothing_matches"],
        "gradient_float64": ["chain.torch.downcast"],
    }
    first, _, *others = table._formulas(found)
    assert "wrong formulas: 3, killed by gradient_exact or second_order_exact alone: 2 (67 %)" in first
    assert others == ["  memory_law 2: all_at_once, nothing_matches", "  gradient_float64 1: downcast"]
    [suite] = [tool for tool in summary.tools(rows) if tool.name == judging.SUITE]
    assert (suite.asked_formula, suite.found_formula) == (3, 2)
    assert summary.document(rows, {})["formulas"]["wrong"] == 3


def test_floats_alone_are_a_tool_of_their_own() -> None:
    floats = {"found": True, "examples": 1, "seconds": 0.5}
    rows = [_row(f"chain.torch.{k}", "killed", False, planted=10.0**-k) for k in (2, 11, 30)]
    for row in rows:
        row["rivals"][judging.FLOATS] = floats | {"found": row["planted"] > 1e-12}
    suite, alone = summary.tools(rows)[:2]
    assert (suite.label, suite.smallest) == ("gradgate verify", 1e-30)
    assert (alone.label, alone.smallest) == ("gradgate verify, floats alone", 1e-11)


def test_a_mutant_that_one_of_its_further_claims_does_not_see_survives() -> None:
    mutant = corpus()["chain.torch.planted_1e11"]
    exact = Verdict(mutant.task("gradient_exact"), "refuted", 1)
    for verdict, status in (("refuted", "killed"), ("upheld", "survived")):
        floats = Verdict(mutant.task("gradient_float64"), verdict, 1)
        found = judging.outcome(mutant, {"gradient_exact": exact, "gradient_float64": floats})
        assert found["status"] == status
    assert found["claim"] == "gradient_float64"


def test_a_claim_of_a_plug_in_takes_the_place_of_the_contracts(torch: Any) -> None:
    declared = plugged_in(corpus()["invertible.torch.solved_backward"].target, "invertible", "torch")
    [stability] = [claim for claim in declared.claims if claim.name == "stability"]
    assert stability.where
    assert sum(claim.name == "tree" for claim in declared.claims) == 1


def test_unbroken_methods_are_declared_for_every_family_and_framework() -> None:
    assert {name.rpartition(".")[0] for name in unbroken()} == {
        f"{mutant.family}.{mutant.framework}" for mutant in corpus().values()
    }


@pytest.mark.parametrize("name", unbroken())
def test_a_mutant_is_allowed_what_its_method_is_allowed(name: str) -> None:
    mutant = unbroken()[name]
    if not installed(mutant.framework):
        pytest.skip(f"{mutant.framework} is not installed")
    judged = plugged_in(mutant.target, mutant.family, mutant.framework)
    [base] = methods(mutant.family, mutant.method, mutant.framework)
    for allowed in ("kappa", "rounding", "oracle", "options", "composes", "disclaims"):
        assert getattr(judged, allowed) == getattr(base, allowed)


def test_a_bug_is_built_only_when_it_is_judged() -> None:
    [made] = bug("chain", "x", "backprop", "a story", "a source", torch=Edit("nowhere", "a", "b"))
    assert made.name == "chain.torch.x"
    assert isinstance(made.declared, Method)
    assert re.fullmatch(r"gradgate\.suites\.bugs\.corpus:chain\.torch\.x", made.target)
    assert all(isinstance(claim, Claim) for claim in rivals.CLAIMS)


def test_every_bug_is_described_and_no_two_alike() -> None:
    """By its description a verdict is reused. One that calls itself is among what it captured."""
    found: dict[str, list[str]] = {}
    for name, mutant in judging.everything().items():
        found.setdefault(repr(_described(mutant, set())), []).append(name)
    assert not [names for names in found.values() if len(names) > 1]


def test_a_function_that_calls_itself_is_described_by_what_it_captured() -> None:
    def countdown(factor: int) -> Any:
        def run(left: int) -> int:
            return factor * run(left - 1) if left else 1

        return run

    assert _described(countdown(2), set()) != _described(countdown(3), set())
    assert _described(countdown(2), set()) == _described(countdown(2), set())
