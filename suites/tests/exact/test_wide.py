"""Sides that wide balls prove to be out of reach are out of reach, and those that can be reached never are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradgate import Pair, between, integers, normal, positive
from gradgate.references.backends import namespace
from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.exact import balls, decisions, truth, wide
from gradgate.suites.pairs import unseen
from gradgate.suites.tests.engine import behind_decisions
from gradgate.suites.tests.pairs.verdicts import judged

RADIUS = 8.0
Plain = Callable[..., Any]


def pair_of(framework: str, function: Plain, **more: Any) -> Pair:
    """A function of x and w, and the same function again, as a pair."""
    xp = namespace(framework)  # type: ignore[arg-type]
    given: dict[str, Any] = {"inputs": {"x": normal("N"), "w": normal("N")}, "dims": {"N": (3,)}, **more}
    return Pair(
        lambda *leaves: function(xp, *leaves),
        lambda *leaves: function(xp, *leaves),
        framework=framework,
        name="wide",
        **given,
    )


def problem_of(pair: Pair, spec: Any) -> Any:
    return spec.build(pair.where)


def seen(pair: Pair, program: Any, specs: list[Any]) -> decisions.Decisions:
    """The decisions of a program on some problems."""
    found: decisions.Decisions = {}
    for spec in specs:
        problem = problem_of(pair, spec)
        decisions.recorded(lambda watch, problem=problem: program(problem, 60, watch=watch), found)
    return found


STEPS: dict[str, Callable[[Any, Any, Any, float], Any]] = {
    "where": lambda xp, a, b, c: xp.where(a > c, a, 2 * b),
    "guard": lambda xp, a, b, c: xp.where(a * a + 1 < c, 0 * a, a / (1 + b * b)),
    "both": lambda xp, a, b, c: xp.where((a > c) & ~(b > c), a - b, b),
    "either": lambda xp, a, b, c: xp.where((a == c) | (b <= -c), a * b, b - c),
    "clamp": lambda xp, a, b, c: xp.minimum(xp.maximum(a, b), c + 0 * a),
    "abs": lambda xp, a, b, c: abs(a - c) + xp.sign(b),
    "even": lambda xp, a, b, c: xp.where(a**2 < c * c, a**3, b**4),
    "largest": lambda xp, a, b, c: a - xp.max(b) + c,
    "smooth": lambda xp, a, b, c: xp.tanh(a) * xp.exp(b / 64) + c,
    "sum": lambda xp, a, b, c: xp.where(xp.sum(a * a) > c, a, b),
    "chain": lambda xp, a, b, c: xp.where(xp.where(a > b, a, b) > c, xp.sqrt(1 + a * a), b),
    "ramp": lambda xp, a, b, c: a * xp.where(b > c, 1.0, 0.0),
}
CONSTANTS = (-100.0, -20.0, -2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 20.0, 100.0)
programs = st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.sampled_from(CONSTANTS)), min_size=1, max_size=4)


def made(steps: list[tuple[str, float]]) -> Plain:
    def function(xp: Any, x: Any, w: Any) -> Any:
        for name, constant in steps:
            x, w = STEPS[name](xp, x, w, constant), x
        return x

    return function


def called_here(possible: wide.Sides, place: decisions.Place) -> set[int]:
    """The sides of an operation in a backward pass of PyTorch's, whose line is the one of this file that calls it."""
    return set().union(*(side for (name, _), known in possible.items() if name == place[0] for side in known.values()))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_side_that_an_input_takes_is_never_proved_out_of_reach(framework: str) -> None:
    """Random programs; every side that occurs at random inputs within the radius is one that is said to be possible."""
    pytest.importorskip(framework)
    proofs: list[bool] = []

    @settings(max_examples=16, deadline=None, database=None, derandomize=True)
    @given(programs)
    def check(steps: list[tuple[str, float]]) -> None:
        pair = pair_of(framework, made(steps))
        program = truth._Plain(truth.backprop("loss", {}, pair.where))
        specs = [pair.spec(seed=seed) for seed in range(3)]
        for change in ("times 4", "all 0", "equal", "first 0", "all 2", "all -8"):
            specs += [pair.spec(regime=f"{unseen.PREFIX}{change}{of}") for of in ("", " in x", " in w")]
        specs = [one for one in specs if all(abs(leaf).max() <= RADIUS for leaf in pair.drawn(one).values())]
        assert len(specs) > 9
        try:
            possible = wide.sides(program, problem_of(pair, specs[0]), lambda tree, path: (-RADIUS, RADIUS))
        except balls.Undecided:
            proofs.append(False)
            return
        proofs.append(True)
        for place, decision in seen(pair, program, specs).items():
            if decisions.short_name(place[0]) in decisions.CHOICES:
                continue
            reachable = wide.reachable(possible, place) or called_here(possible, place)
            assert decision.sides <= reachable, (steps, place, decision, possible)

    check()
    assert sum(proofs) > 6, proofs


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_sides_that_no_input_has_are_proved_and_those_that_some_has_are_not(framework: str) -> None:
    pytest.importorskip(framework)

    def function(xp: Any, x: Any, w: Any) -> Any:
        safe = xp.where(x * x + 1 < 0.5, 0 * x, x)
        larger = xp.where(w > 6, w, 2 * w)
        return xp.where(w > 1e12, w, safe * larger)

    found = judged(pair_of(framework, function), ("gradient_exact",))["gradient_exact"]
    assert found.verdict == "upheld", found.reason
    assert found.decisions["proved"] == 2
    proved = [one for one in found.decisions["never"] if "cannot be reached" in one]
    assert all("proved for all inputs that the draws allow, up to 1e+08, at N=3)" in one for one in proved), proved
    assert [one.split("`")[1] for one in found.decisions["never"]] == ["… < 0.5", "… > 1e+12"], found.decisions
    assert "proved one-sided" in found.decided


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("top", "proved"), [(2.0, True), (40.0, False)])
def test_what_a_draw_declares_is_the_range(framework: str, top: float, proved: bool) -> None:
    """The logarithm of a positive number is guarded, and a number between 0.5 and 2 is never above 20."""
    pytest.importorskip(framework)

    def function(xp: Any, x: Any, w: Any) -> Any:
        safe = xp.where(w < 0, 0 * w, w)
        return xp.where(x > 20, x, safe * x)

    pair = pair_of(framework, function, inputs={"x": between("N", 0.5, top), "w": positive("N")})
    never = judged(pair, ("gradient_exact",))["gradient_exact"].decisions["never"]
    assert any("… < 0" in one and "cannot be reached" in one for one in never), never
    assert any("… > 20" in one and "cannot be reached" in one for one in never) == proved, never


def test_a_branch_an_index_and_a_number_read_out_end_the_proof() -> None:
    torch = pytest.importorskip("torch")

    def branching(xp: Any, x: Any, w: Any) -> Any:
        return x * w if (x.sum() > 3).item() else x + w

    def indexed(xp: Any, x: Any, w: Any) -> Any:
        return x * w[torch.argmax(x)]

    def masked(xp: Any, x: Any, w: Any) -> Any:
        return w * (x > 1).sum()

    def through_numpy(xp: Any, x: Any, w: Any) -> Any:
        return w * float((x > 1).numpy().any())

    def read(xp: Any, x: Any, w: Any) -> Any:
        return w * float(x.detach().sum())

    def random(xp: Any, x: Any, w: Any) -> Any:
        return w * (x + torch.rand(3) > 0.5)

    for function in (branching, indexed, masked, through_numpy, read, random):
        pair = pair_of("torch", function)
        program = truth._Plain(truth.backprop("loss", {}, "torch"))
        with pytest.raises(Exception, match=r"for all (inputs|random numbers)"):
            wide.sides(program, problem_of(pair, pair.spec()), lambda tree, path: (-RADIUS, RADIUS))


def test_in_jax_a_branch_and_a_loop_end_the_proof() -> None:
    jax = pytest.importorskip("jax")

    def branching(xp: Any, x: Any, w: Any) -> Any:
        return jax.lax.cond(x.sum() > 3, lambda: x * w, lambda: x + w)

    def counted(xp: Any, x: Any, w: Any) -> Any:
        return w * xp.sum(x > 1)

    def rounded(xp: Any, x: Any, w: Any) -> Any:
        return w * w[x[0].astype(int)]

    for function in (branching, counted, rounded):
        pair = pair_of("jax", function)
        program = truth._Plain(truth.backprop("loss", {}, "jax"))
        with pytest.raises(Exception, match=r"for all inputs|whole number|Truth"):
            wide.sides(program, problem_of(pair, pair.spec()), lambda tree, path: (-RADIUS, RADIUS))


def test_integers_are_taken_as_they_are_and_the_sentence_says_so() -> None:
    pytest.importorskip("torch")

    def function(xp: Any, x: Any, index: Any) -> Any:
        return xp.where(x[index] * x[index] < -1, x[index], 2 * x[index])

    pair = pair_of("torch", function, inputs={"x": normal("N"), "index": integers("N", below="N")})
    (never,) = judged(pair, ("gradient_exact",))["gradient_exact"].decisions["never"]
    assert never.endswith("and the integers drawn)"), never


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", sorted(behind_decisions.RULES))
def test_no_fault_behind_a_decision_is_out_of_reach(framework: str, name: str) -> None:
    """Every rule's own condition can be true: what it compares is never proved to be false for all inputs."""
    pytest.importorskip(framework)
    rule = behind_decisions.RULES[name]
    xp = namespace(framework)  # type: ignore[arg-type]
    pair = Pair(
        lambda x: xp.where(rule.where(xp, x), 2 * x, x),
        lambda x: xp.where(rule.where(xp, x), 2 * x, x),
        inputs={"x": normal("N")},
        dims={"N": (5, 4)},
        framework=framework,
        name="in_reach",
    )
    found = judged(pair, ("gradient_exact",))["gradient_exact"]
    assert not [one for one in found.decisions.get("never", ()) if "cannot be reached" in one], found.decisions


def test_equal_numbers_are_equal_only_if_they_are_one_object() -> None:
    """Two numbers of an input may differ, although their balls are equal."""
    pytest.importorskip("torch")
    pair = pair_of("torch", lambda xp, x, w: xp.where(x[0] == x[1], x, w))
    program = truth._Plain(truth.backprop("loss", {}, "torch"))
    possible = wide.sides(program, problem_of(pair, pair.spec()), lambda tree, path: (-RADIUS, RADIUS))
    (taken,) = [taken for (name, _), known in possible.items() if "eq" in name for taken in known.values()]
    assert taken == {-1, 0, 1}
