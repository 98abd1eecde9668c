"""What an author of a plug-in meets: wrong forms, refused options, errors with a place, another function's answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.suites.checks import another
from gradgate.suites.checks.base import Case
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Refuted, Subject
from gradgate.suites.judging.verdict import Task, Verdict

Judged = Callable[..., Verdict]
HEAD = "from gradgate.references.contract import IllegalOption, Option, method\n"


@pytest.fixture
def judged(plugin: Callable[..., str], framework: str, tmp_path: Path) -> Judged:
    """A function that judges `mine` of a plug-in, in each framework; the plug-in's module also has `good`."""

    def run(code: str, claim: str, examples: int = 3) -> Verdict:
        path = plugin(HEAD + code, framework, f"mine{len(list(tmp_path.iterdir()))}.py")
        declared = registry.plugged_in(f"{path}:mine", "state_space", framework)
        task = Task.of(declared, declared.claim(claim), f"{path}:mine")
        return judge(task, Subject.load(declared), Run(examples=examples))

    return run


def changed(leaf: str) -> str:
    return f"def mine(problem):\n    loss, grads = good(problem)\n    return loss, {{**grads, 'head': {leaf}}}\n"


@pytest.mark.parametrize("claim", ["tree", "value", "gradient_exact"])
def test_a_leaf_that_is_none_is_refuted_by_its_name(claim: str, judged: Judged) -> None:
    found = judged(changed("None"), claim, examples=1)
    assert (found.verdict, found.leaf) == ("refuted", "head")
    assert found.reason.startswith("head has no gradient; None came in place of an array of shape (")
    assert judged(changed("grads['head']"), claim, examples=1).verdict == "upheld"


@pytest.mark.parametrize(
    ("leaf", "said"), [("'words'", "head is 'words' of builtins; expected an array of"), ("None", "None")]
)
def test_what_jit_takes_for_an_error_is_refuted_if_it_is_an_answer(leaf: str, said: str, judged: Judged) -> None:
    found = judged(changed(leaf), "gradient_float64")
    assert found.verdict == "refuted", found
    assert said in found.reason


@pytest.mark.parametrize("claim", ["vmap", "second_order", "second_order_exact"])
def test_a_wrong_form_is_refuted_under_transformations_too(claim: str, judged: Judged) -> None:
    declared = "@method(composes=('vmap', 'second_order'))\n"
    for answer in ("None", "(good(problem)[0], {})", "(good(problem)[0], None)"):
        found = judged(f"{declared}def mine(problem):\n    return {answer}\n", claim, examples=1)
        assert found.verdict == "refuted", (answer, found)
        assert found.reason.startswith(("the method returned None", "wrong tree: grads lacks embedding")), found.reason
    right = f"{declared}def mine(problem):\n    return good(problem)\n"
    assert judged(right, claim, examples=1).verdict == "upheld"


OPTION = """
EVERY = Option("every", "an integer from 1 to 3", lambda spec: (1, 2, 3), illegal=(0, True, 2.0))

@method(options=[EVERY])
def mine(problem, *, every):
    if type(every) is not int or every < 1:
        raise IllegalOption(f"every must be an integer of at least 1, not {every!r}")
    WRONG
    return good(problem)
"""
REFUSED = OPTION.replace("WRONG", 'if every == 3:\n        raise IllegalOption("every must be at most 2, not 3")')
CRASHES = OPTION.replace("WRONG", 'if every == 3:\n        raise KeyError("no third")')
NEVER = OPTION.replace("WRONG", 'raise KeyError("never")')
FINE = OPTION.replace("WRONG", "pass")


@pytest.mark.parametrize("claim", ["options", "gradient_exact"])
def test_a_legal_value_that_is_refused_is_refuted_by_option_and_value(claim: str, judged: Judged) -> None:
    found = judged(REFUSED, claim, examples=12)
    assert found.verdict == "refuted", found
    assert found.options == {"every": 3} or claim == "options"
    start = (
        "every=3 is declared legal (an integer from 1 to 3), but the method refuses it: every must be at most 2, not 3"
    )
    assert found.reason.startswith(f"{start} · mine"), found.reason
    assert judged(FINE, claim, examples=12).verdict == "upheld"


@pytest.mark.parametrize("claim", ["options", "gradient_exact"])
def test_a_crash_for_one_legal_value_alone_is_refuted(claim: str, judged: Judged) -> None:
    found = judged(CRASHES, claim, examples=12)
    assert found.verdict == "refuted", found
    start = "every=3 is declared legal (an integer from 1 to 3), but with it the method raised KeyError: 'no third'; "
    assert found.reason.startswith(f"{start}with every=1 it gives an answer · mine"), found.reason


@pytest.mark.parametrize("claim", ["options", "gradient_float64", "gradient_exact"])
def test_a_crash_for_every_value_is_an_error(claim: str, judged: Judged) -> None:
    found = judged(NEVER, claim)
    assert found.verdict == "error", found
    assert found.reason.startswith("the method raised KeyError: 'never' · mine")


def test_illegal_values_may_be_refused_though_they_equal_legal_ones(judged: Judged) -> None:
    assert judged(FINE, "refusal").verdict == "upheld"


LOCAL = """
def step(x):
    return x[:, 10**6] + missing_name

def mine(problem):
    loss, grads = good(problem)
    return loss, {**grads, "head": step(grads["head"])}
"""
DEEP = """
def a(n):
    return a(n - 1) if n else b()

def b():
    return c()

def c():
    raise RuntimeError("deep down")

def mine(problem):
    return a(5)
"""


def test_an_error_says_where_in_the_authors_file_and_nowhere_else(judged: Judged, framework: str) -> None:
    found = judged(LOCAL, "tree")
    assert found.verdict == "error"
    first, *frames = found.reason.split(" · ")
    assert first.startswith("the method raised ")
    assert [frame.partition(":")[2].partition(" ")[2] for frame in frames] == [
        'in mine: return loss, {**grads, "head": step(grads["head"])}',
        "in step: return x[:, 10**6] + missing_name",
    ]
    assert all(frame.startswith("mine") and ".py:" in frame for frame in frames)
    assert "\n" not in found.reason


def test_an_error_shows_the_last_three_frames_and_one_that_calls_itself_once(judged: Judged) -> None:
    frames = judged(DEEP, "tree").reason.split(" · ")[1:]
    assert [frame.partition(" in ")[2] for frame in frames] == [
        "a: return a(n - 1) if n else b()",
        "b: return c()",
        'c: raise RuntimeError("deep down")',
    ]


def test_an_error_inside_gradgate_or_a_framework_shows_the_authors_line(judged: Judged) -> None:
    found = judged("def mine(problem):\n    return problem.loss({}), {}\n", "tree")
    frames = found.reason.split(" · ")[1:]
    assert len(frames) == 1, found.reason
    assert frames[0].endswith("in mine: return problem.loss({}), {}")


def test_an_installed_package_is_the_authors_if_the_method_is_in_it(
    judged: Judged, framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    package = f"theirs_{framework}"
    (folder / f"{package}.py").write_text("def mine(problem):\n    raise RuntimeError('theirs')\n")
    monkeypatch.syspath_prepend(folder)
    inside = judged(f"import {package}\nmine = {package}.mine\n", "tree")
    assert inside.reason.endswith(f" · {package}.py:2 in mine: raise RuntimeError('theirs')")
    outside = judged(f"import {package}\n\ndef mine(problem):\n    return {package}.mine(problem)\n", "tree")
    assert outside.reason.endswith(f" in mine: return {package}.mine(problem)")


OTHER = {
    "another function: its loss is": "return loss * 2, {k: scaled(v, 2) for k, v in grads.items()}",
    "returned the loss": "return loss + 1, grads",
    "of neither": "return loss * 2, {k: scaled(v, -3) for k, v in grads.items()}",
}
SCALED = """
from gradgate.references.backends import tree_map

def scaled(tree, factor):
    return tree_map(lambda leaf: factor * leaf, tree)

def mine(problem):
    loss, grads = good(problem)
    """
FOLLOWS = {
    "another function: its loss is": "the gradient follows it",
    "returned the loss": "its gradient is plain evaluation's",
    "of neither": "the gradient is of neither",
}


@pytest.mark.parametrize("said", OTHER)
def test_a_wrong_value_says_whether_the_gradient_follows_it(said: str, judged: Judged) -> None:
    found = judged(SCALED + OTHER[said] + "\n", "value")
    assert found.verdict == "refuted"
    assert said in found.reason
    assert found.reason.endswith(FOLLOWS[said]), found.reason
    assert " plain evaluation gives " in found.reason


def test_sixty_digits_tell_another_function_from_a_wrong_gradient_and_from_a_wrong_loss(judged: Judged) -> None:
    another_one, loss_alone, _ = (judged(SCALED + code + "\n", "gradient_exact") for code in OTHER.values())
    assert another_one.reason.startswith("another function: its loss is ")
    assert ", not " in another_one.reason
    assert "; the gradient follows it; wrong gradient of " in another_one.reason
    assert loss_alone.reason.startswith("wrong loss, right gradient: the loss is ")
    wrong = judged(SCALED + "return loss, {k: scaled(v, 2) for k, v in grads.items()}\n", "gradient_exact")
    assert wrong.reason.startswith("wrong gradient of ")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_refuted_gradient_says_first_that_the_function_is_another(dtype: str, framework: str) -> None:
    pytest.importorskip(framework)
    declared = registry.methods("state_space", "backprop", framework)[0]
    right = Subject.load(declared)

    def case(loss_factor: float, factor: float) -> tuple[Case, float, dict[str, Any]]:
        from gradgate.references.backends import tree_map

        def function(problem: Any) -> Any:
            loss, grads = right.function(problem)
            return loss * loss_factor, tree_map(lambda leaf: factor * leaf, grads)

        made = Case(Subject(declared, function), declared.claim(f"gradient_{dtype}"), _spec(), {})
        return made, *made.subject.gradient(made.problem(dtype), {})

    def reason(*factors: float) -> str:
        one, loss, grads = case(*factors)
        reference = one.reference(dtype)
        with pytest.raises(Refuted) as caught, another.naming_a_wrong_loss(one, loss, grads, reference, dtype):
            one.judge(grads, reference, dtype)
        return str(caught.value)

    assert "; the gradient follows it; wrong gradient of " in reason(2.0, 2.0)
    assert reason(2.0, 2.0).startswith("another function: its loss is ")
    assert "; the gradient is of neither; wrong gradient of " in reason(2.0, -1.0)
    assert reason(1.0, 2.0).startswith("wrong gradient of ")


def _spec() -> Any:
    return registry.spec_class("state_space")(length=3, layers=2, seed=4)


WINDOWED = """
WINDOW = Option("window", "1 or more", lambda spec: (2, 100), illegal=(0,))
CHUNK = Option("chunk", "1 or 2", lambda spec: (1, 2), illegal=(0,))

@method(options=[WINDOW, CHUNK], oracle="cut_loss", composes=COMPOSES)
def mine(problem, *, window, chunk):
    if chunk not in (1, 2):
        raise IllegalOption(f"chunk must be 1 or 2, not {chunk}")
    if window < 1:
        raise IllegalOption(f"window must be at least 1, not {window}")
    def cut(params):
        return problem.cut_loss(params, window=window)
    return DIFFERENTIATED
"""
DIFFERENTIATED = {
    "jax": "jax.value_and_grad(cut)(problem.params)",
    "torch": "torch.func.grad_and_value(cut)(problem.params)[::-1]",
}


def test_an_oracle_that_takes_one_of_two_options_is_judged_in_every_claim(
    plugin: Callable[..., str], framework: str
) -> None:
    code = WINDOWED.replace("DIFFERENTIATED", DIFFERENTIATED[framework]).replace("COMPOSES", "('vmap',)")
    path = plugin(HEAD + code, framework)
    declared = registry.plugged_in(f"{path}:mine", "state_space", framework)
    subject = Subject.load(declared)
    asked = [claim for claim in declared.claims if framework == "torch" or claim.name in ("value", "gradient_exact")]
    found = {claim.name: judge(Task.of(declared, claim), subject, Run(examples=2)) for claim in asked}
    assert len(found) > (10 if framework == "torch" else 1)
    wrong = {name: verdict.reason for name, verdict in found.items() if verdict.verdict in ("refuted", "error")}
    assert not wrong
