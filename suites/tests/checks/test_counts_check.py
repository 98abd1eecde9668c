"""Counts of what methods run: planted waste is refuted in every class and framework, and the unbroken method is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import counts, registry
from gradgate.references.chain import counts as chain_counts
from gradgate.references.chain.schedules import classic
from gradgate.references.contract import FRAMEWORKS, UsageError
from gradgate.references.invertible import counts as invertible_counts
from gradgate.references.registry import spec_class
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # from PyTorch's first jvp

HEAD = """
import functools, math
from gradgate.references import counts
from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Option
from gradgate.references.plugged import method

FRAMEWORK = "{framework}"
"""
FRAME = {
    "torch": "import torch\n\n"
    "def plain(problem):\n"
    "    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)\n    return loss, grads\n",
    "jax": "import jax\n\ndef plain(problem):\n    return jax.value_and_grad(problem.loss)(problem.params)\n",
}
WASTED = """
def wasted(answer, *values):
    # computes the values without need; they are in the result, since JAX would remove them otherwise
    loss, grads = answer
    return loss + 0 * sum(leaf.sum() for value in values for leaf in leaves(value) if leaf.ndim), grads

@method(claims=[counts.evaluations(at_most=1)])
def once(problem):
    return plain(problem)
"""

CHAIN = """
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.in_{framework}.methods import by_schedule

SLOTS = Option("slots", "2 or 3", lambda spec: (2, 3), illegal=(0,))

@method(options=[SLOTS], claims=[counts.revolve_optimal(slots="slots")])
def revolve(problem, *, slots):
    return by_schedule(problem, classic.revolve(problem.spec.layers + 1, slots))

@method(options=[SLOTS], claims=[counts.revolve_optimal(slots="slots")])
def revolve_with_a_slot_unused(problem, *, slots):
    return by_schedule(problem, classic.revolve(problem.spec.layers + 1, slots - 1))

@method(options=[SLOTS], claims=[counts.revolve_optimal(slots="slots")])
def revolve_with_one_forward_more(problem, *, slots):
    return wasted(revolve(problem, slots=slots), problem.layers[-1](problem.params["layers"][-1], last_input(problem)))

def last_input(problem):
    return problem.x.mean() * problem.xp.ones((problem.spec.batch, problem.spec.widths()[-2]), dtype=problem.x.dtype)

@method(claims=[counts.evaluations(at_most=1)])
def a_quarter_twice(problem):
    x, values = problem.x, []
    for layer, p in list(zip(problem.layers, problem.params["layers"]))[: math.ceil(problem.spec.layers / 4)]:
        x = layer(p, x)
        values.append(x)
    return wasted(plain(problem), *values)
"""

STATE_SPACE = """
from gradgate.references.state_space.in_{framework}.methods import reverse_recurrence

CHUNK = Option("chunk", "an integer of at least 1", lambda spec: (2,), illegal=(0,))
EXACT = counts.claim(
    "slices", "as its formula says", "test", formula="gradgate.references.state_space.counts:recurrence",
    given={{"framework": FRAMEWORK}},
)

@method(options=[CHUNK], claims=[EXACT])
def in_slices(problem, *, chunk):
    return reverse_recurrence(problem, chunk=chunk)

@method(options=[CHUNK], claims=[EXACT])
def a_slice_twice(problem, *, chunk):
    p = tree_map(lambda leaf: leaf[0], problem.params["layers"])
    tokens = problem.data["tokens"][: math.ceil(problem.spec.length / 4)]
    values = problem.layer(p, problem.embed(problem.params["embedding"], tokens))
    return wasted(in_slices(problem, chunk=chunk), values)
"""

PERFORMER = """
from gradgate.references.performer.in_{framework}.methods import slim

CHUNK = Option("chunk", "an integer of at least 1", lambda spec: (2,), illegal=(0,))
TWICE = counts.evaluations(at_most=2)

@method(options=[CHUNK], claims=[TWICE])
def in_slices(problem, *, chunk):
    return slim(problem, chunk=chunk)

@method(options=[CHUNK], claims=[TWICE])
def a_quarter_of_all_slices_a_third_time(problem, *, chunk):
    count = math.ceil(problem.length / 4)
    X = problem.embed(problem.params["embedding"], 0, count)
    values = []
    for _ in range(2):
        for r in range(problem.spec.layers):
            T, gamma = problem.F(problem.params, r, X)
            X = problem.G(problem.params, r, problem.prefix_sum(T), gamma)
            values.append(X)
    return wasted(in_slices(problem, chunk=chunk), *values)
"""

BILEVEL = """
from gradgate.references.bilevel.in_{framework}.methods import mixflow

EXACT = counts.evaluations(
    exactly="gradgate.references.bilevel.counts:mixflow", given={{"framework": FRAMEWORK, "remat": False}}
)

@method(claims=[EXACT])
def mixed(problem):
    return mixflow(problem)

@method(claims=[EXACT])
def an_inner_step_in_four_twice(problem):
    theta, values = problem.init(problem.params)[0], []
    for i in range(math.ceil(problem.spec.steps / 4)):
        x = tree_map(lambda leaf: leaf[i], problem.xs)
        values.append(problem.inner_loss(theta, problem.params, x).reshape(1))
    return wasted(mixed(problem), *values)
"""

INVERTIBLE = """
from gradgate.references.invertible.in_{framework} import methods as impl
from gradgate.references.invertible.inverse_products import advance_by

VJP = {{"torch": lambda: torch.func.vjp, "jax": lambda: jax.vjp}}[FRAMEWORK]()

def walked(problem, advance):
    h, handed = impl.input_gradient_reverse(problem)
    steps = impl.walk(problem, h, advance=advance, handed=handed)
    return impl.gathered(steps) if FRAMEWORK == "jax" else impl.gathered(problem, steps)

def exact(formula, **given):
    return counts.claim(
        "exact", "as its formula says", "test", formula="gradgate.references.invertible.counts:" + formula,
        given={{"framework": FRAMEWORK, **given}},
    )

MIXED, PURE = exact("mixed", vijp="closed"), exact("moonwalk", tangents=1000)

def closed(layer, p, x, h, handed):
    return advance_by("closed", VJP)(layer, p, x, h, handed)

def evaluated_twice(layer, p, x, h, handed):
    y, h, dp = closed(layer, p, x, h, handed)
    return (y + layer(p, x)) / 2, h, dp

@method(claims=[MIXED])
def mixed(problem):
    return walked(problem, closed)

@method(claims=[MIXED])
def mixed_with_a_layer_twice(problem):
    return walked(problem, evaluated_twice)

@method(claims=[PURE])
def moonwalk(problem):
    return impl.moonwalk(problem, tangents=1000)

@method(claims=[PURE])
def moonwalk_with_a_jvp_more(problem):
    moved = lambda x: problem.head_losses(problem.params["head"], problem.body(problem.params, x))
    return wasted(moonwalk(problem), impl.jax.jvp(moved, (problem.x,), (problem.x,))[1]) if FRAMEWORK == "jax" else (
        wasted(moonwalk(problem), torch.func.jvp(moved, (problem.x,), (problem.x,))[1])
    )
"""

PLANTED = (
    ("chain", CHAIN, "revolve", "revolve_optimal", "upheld", ""),
    ("chain", CHAIN, "revolve_with_a_slot_unused", "revolve_optimal", "refuted", "evaluations of layer: "),
    ("chain", CHAIN, "revolve_with_one_forward_more", "revolve_optimal", "refuted", "evaluations of layer: "),
    ("chain", CHAIN, "once", "evaluations", "upheld", ""),
    ("chain", CHAIN, "a_quarter_twice", "evaluations", "refuted", "evaluations of layer: "),
    ("state_space", STATE_SPACE, "in_slices", "slices", "upheld", ""),
    ("state_space", STATE_SPACE, "a_slice_twice", "slices", "refuted", "evaluations of A: "),
    ("performer", PERFORMER, "in_slices", "evaluations", "upheld", ""),
    ("performer", PERFORMER, "a_quarter_of_all_slices_a_third_time", "evaluations", "refuted", "evaluations of "),
    ("bilevel", BILEVEL, "mixed", "evaluations", "upheld", ""),
    ("bilevel", BILEVEL, "an_inner_step_in_four_twice", "evaluations", "refuted", "evaluations of inner loss: "),
    ("invertible", INVERTIBLE, "mixed", "exact", "upheld", ""),
    ("invertible", INVERTIBLE, "mixed_with_a_layer_twice", "exact", "refuted", "evaluations of layer: "),
    ("invertible", INVERTIBLE, "moonwalk", "exact", "upheld", ""),
    ("invertible", INVERTIBLE, "moonwalk_with_a_jvp_more", "exact", "refuted", "JVPs of layer: "),
)


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., Verdict]:
    """Judge one claim of a function in a plug-in of this code."""

    def run(family: str, framework: str, code: str, function: str, claim: str) -> Verdict:
        pytest.importorskip(framework)
        path = tmp_path / f"{framework}.py"
        head = HEAD.format(framework=framework) + FRAME[framework] + WASTED
        path.write_text(head + code.format(framework=framework))
        target = f"{path}:{function}"
        declared = registry.plugged_in(target, family, framework)
        return judge(Task.of(declared, declared.claim(claim), target), Subject.load(declared), Run(examples=4))

    return run


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("family", "code", "function", "claim", "verdict", "reason"), PLANTED)
def test_waste_is_refuted_and_its_unbroken_twin_is_not(
    family: str,
    code: str,
    function: str,
    claim: str,
    verdict: str,
    reason: str,
    framework: str,
    judged: Callable[..., Verdict],
) -> None:
    found = judged(family, framework, code, function, claim)
    assert found.verdict == verdict, found
    assert reason in found.reason, found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_refutation_names_net_and_numbers_and_one_forward_more_is_one(
    framework: str, judged: Callable[..., Verdict]
) -> None:
    found = judged("chain", framework, CHAIN, "revolve_with_one_forward_more", "revolve_optimal")
    spec = spec_class("chain")(**found.spec or {})
    least = chain_counts.optimal(spec, **found.options)["layer"]
    assert found.reason == f"evaluations of layer: {least + 1} (at most: {least})"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plug_in_that_claims_no_count_is_told_its_counts(framework: str, judged: Callable[..., Verdict]) -> None:
    found = judged("chain", framework, "def silent(problem):\n    return plain(problem)\n", "silent", "counts")
    layers = (found.spec or {})["layers"]
    assert found.verdict == "upheld"
    assert found.reason == f"head: 1 evaluations, 1 VJPs; layer: {layers} evaluations, {layers} VJPs"


OWN_KERNEL = """
@method(claims=[counts.evaluations(at_most=1)])
def by_its_own_layers(problem):
    return plain(problem.counted(None))
"""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_nothing_is_said_of_a_method_that_runs_other_nets_than_the_problems(
    framework: str, judged: Callable[..., Verdict]
) -> None:
    found = judged("chain", framework, OWN_KERNEL, "by_its_own_layers", "evaluations")
    assert found.verdict == "inapplicable"
    assert "it evaluates head 0 times, fewer than the loss itself (1)" in found.reason


DECIDED_BY_VALUES = """
def extra(problem, x):
    return problem.layers[0](problem.params["layers"][0], x)

@method(claims=[counts.evaluations(at_most=2)])
def branch(problem):
    x = problem.x
    y = jax.lax.cond(x.sum() ** 2 >= 0, lambda: extra(problem, x), lambda: 0 * extra(problem, extra_input(problem)))
    return wasted(plain(problem), y)

def extra_input(problem):
    return problem.x + 0 * extra(problem, problem.x).sum()

@method(claims=[counts.evaluations(at_most=2)])
def loop(problem):
    p = problem.params["layers"][0]
    def body(carry):
        i, total = carry
        return i + 1, total + problem.layers[0](p, problem.x).sum()
    runs = jax.lax.while_loop(lambda carry: carry[0] < 3 + (problem.x.sum() ** 2 < 0), body, (0, problem.x.sum()))
    return wasted(plain(problem), runs[1].reshape(1))

@method(claims=[counts.evaluations(at_most=2)])
def untraceable(problem):
    values = [extra(problem, problem.x) for _ in range(3 if float(problem.x.sum() ** 2) >= 0 else 1)]
    return wasted(plain(problem), *values)
"""


@pytest.mark.parametrize(("function", "evaluations"), [("branch", 0), ("loop", 4), ("untraceable", 4)])
def test_calls_of_jax_that_values_decide_are_counted_as_they_run(
    function: str, evaluations: int, judged: Callable[..., Verdict], jax: Any
) -> None:
    found = judged("chain", "jax", DECIDED_BY_VALUES, function, "evaluations")
    assert found.verdict == ("refuted" if evaluations else "upheld"), found
    if evaluations:
        assert found.reason == f"evaluations of layer: {evaluations} (at most: 2)"


WRONG = """
@method(claims=[counts.evaluations(at_most="gradgate.references.chain.counts:plian")])
def no_formula(problem):
    return plain(problem)

@method(claims=[counts.revolve_optimal(slots="slot")], options=[Option("slots", "1", lambda spec: (1,), illegal=(0,))])
def no_option(problem, *, slots):
    return plain(problem)
"""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_formula", "unknown function in gradgate.references.chain.counts 'plian'"),
        ("no_option", "unknown option in the claim revolve_optimal 'slot'; legal: slots; nearest: slots"),
    ],
)
def test_a_claim_that_names_what_is_not_there_is_wrong_usage(
    function: str, message: str, judged: Callable[..., Verdict]
) -> None:
    with pytest.raises(UsageError, match=message):
        judged("chain", "torch", WRONG, function, "evaluations")


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: counts.evaluations(), "evaluations takes one of at_most and exactly"),
        (lambda: counts.vjps(at_most=1, exactly=1), "vjps takes one of at_most and exactly"),
        (lambda: counts.jvps(at_most=-1), "a number of forward passes is at least 0, not -1"),
        (lambda: counts.recomputations(at_most=math.nan), "a number of forward passes is at least 0, not nan"),
        (lambda: counts.revolve_optimal(slots=0), "slots must be at least 1, not 0"),
        (lambda: counts.claim("c", "s", "x", formula=1, kinds=("vjp",)), "unknown kind of calls 'vjp'.*nearest: vjps"),
    ],
)
def test_an_impossible_claim_is_wrong_usage(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        declare()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_reference_that_wastes_a_slot_is_refuted_by_its_own_formula(
    framework: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(framework)
    declared = registry.methods("chain", "revolve", framework)[0]
    task = Task.of(declared, declared.claim("counts"))
    assert judge(task, Subject.load(declared), Run(examples=4)).verdict == "upheld"
    fewer = classic.usual_checkpoints
    monkeypatch.setattr(classic, "usual_checkpoints", lambda stages: max(1, fewer(stages) - 1))
    found = judge(task, Subject.load(declared), Run(examples=4))
    assert found.verdict == "refuted"
    assert found.reason.startswith("evaluations of layer: ")


def test_the_least_forwards_are_revolves_and_never_more_with_a_slot_more() -> None:
    for stages in range(1, 30):
        least = [chain_counts.least_forwards(stages, slots) for slots in range(1, 9)]
        assert least == [classic.revolve_forwards(stages, slots) for slots in range(1, 9)]
        assert least == sorted(least, reverse=True)
        assert least[0] == stages * (stages + 1) // 2


def test_halving_costs_what_its_recursion_says() -> None:
    def more(n: int) -> int:
        return 0 if n == 1 else (n + 1) // 2 + more((n + 1) // 2) + more(n // 2)

    for layers in range(1, 70):
        found = chain_counts.recursive(spec_class("chain")(layers=layers))
        assert found["layer"].evaluations + found["head"].evaluations == layers + 1 + more(layers + 1)


@pytest.mark.parametrize("shape", range(len(registry.family("invertible").shapes)))
def test_a_chains_words_are_the_layers_of_its_problem(shape: int) -> None:
    spec = spec_class("invertible")(**registry.family("invertible").shapes[shape])
    chain = invertible_counts.Chain.of(spec)
    names = [layer.name.rpartition(".")[2] for layer in spec.build("numpy").layers]
    words = [name.partition("_")[2] if "_" in name else name.rstrip("0123456789") for name in names]
    assert words == list(chain.words)
