"""gradient_exact and second_order_exact: what they refute, what they cannot decide, and their messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gradgate.references import registry
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict

PLAIN = {
    "torch": """
import torch

def plain(problem):
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads

def changed(problem, change):
    loss, grads = plain(problem)
    return loss, {**grads, "head": change(grads["head"])}
""",
    "jax": """
import jax
import jax.numpy as jnp
import numpy as np

def plain(problem):
    return jax.value_and_grad(problem.loss)(problem.params)

def changed(problem, change):
    loss, grads = plain(problem)
    return loss, {**grads, "head": change(grads["head"])}
""",
}


@pytest.fixture
def verdict(tmp_path: Path, framework: str) -> Callable[..., Verdict]:
    """The verdict on a plug-in with this body, in the framework of the test."""

    def run(body: str, claim: str = "gradient_exact", examples: int = 4, **bodies: str) -> Verdict:
        file = tmp_path / f"plugin{len(list(tmp_path.iterdir()))}_{framework}.py"  # new: a file is imported once
        file.write_text(
            PLAIN[framework] + "from gradgate.references.contract import method\n" + bodies.get(framework, body)
        )
        target = f"{file}:mine"
        declared = registry.plugged_in(target, "state_space", framework)
        return judge(Task.of(declared, declared.claim(claim), target), Subject.load(declared), Run(examples=examples))

    return run


def test_backprop_is_equal_to_forty_digits_and_more(verdict: Callable[..., Verdict]) -> None:
    found = verdict("def mine(problem):\n    return plain(problem)\n")
    assert found.verdict == "upheld"
    assert found.digits is not None
    assert found.digits >= 40
    assert found.reason == f"equal to {found.digits} digits"


@pytest.mark.parametrize("change", ["x * (1 + 2.0**-52)", "x + 1e-30 * x"])
def test_the_smallest_mistake_is_refuted_on_the_first_problem(change: str, verdict: Callable[..., Verdict]) -> None:
    found = verdict(f"def mine(problem):\n    return changed(problem, lambda x: {change})\n")
    assert (found.verdict, found.examples) == ("refuted", 1)
    assert found.leaf == "head"
    assert found.reason.startswith("wrong gradient of head ")
    assert ", not -" in found.reason
    assert " all is right; plugin" in found.reason
    assert found.wrong_line.rpartition("/")[2].startswith("plugin")


def test_a_refutation_names_the_line_where_the_programs_part(verdict: Callable[..., Verdict], framework: str) -> None:
    found = verdict("def mine(problem):\n    return changed(problem, lambda x: x * (1 + 2.0**-40))\n")
    assert f"plugin0_{framework}.py:" in found.reason


def test_a_cast_is_no_wrong_formula_and_is_told(verdict: Callable[..., Verdict]) -> None:
    found = verdict(
        "",
        torch="def mine(problem):\n    return changed(problem, lambda x: x.float().double())\n",
        jax="def mine(problem):\n    return changed(problem, lambda x: x.astype('float32').astype('float64'))\n",
    )
    assert found.verdict == "upheld"
    assert found.reason.endswith("; casts to float32 count as exact")


def test_an_operation_without_a_rule_is_named(verdict: Callable[..., Verdict]) -> None:
    found = verdict(
        "",
        torch="def mine(problem):\n    return changed(problem, lambda x: x * torch.special.bessel_j0(x).numel() / "
        "torch.special.bessel_j0(x).numel() + 0 * torch.special.bessel_j0(x))\n",
        jax="def mine(problem):\n    return changed(problem, lambda x: jax.pure_callback("
        "lambda v: np.asarray(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x))\n",
    )
    assert found.verdict == "inapplicable"
    assert found.reason.startswith("cannot be evaluated in sixty digits: ")
    assert "bessel_j0" in found.reason or "pure_callback" in found.reason


def test_a_number_read_out_of_a_tensor_makes_it_inapplicable_if_the_result_depends_on_it(
    verdict: Callable[..., Verdict], framework: str
) -> None:
    if framework == "jax":
        pytest.skip("a traced JAX function cannot read a number out of an array")
    found = verdict(
        "def mine(problem):\n    return changed(problem, lambda x: x * ((s := x.norm().item()) / x.norm()))\n"
    )
    assert found.verdict == "inapplicable"
    assert "reads out of a tensor" in found.reason


def test_a_number_that_is_read_and_not_used_hides_nothing(verdict: Callable[..., Verdict], framework: str) -> None:
    if framework == "jax":
        pytest.skip("a traced JAX function cannot read a number out of an array")
    body = "def mine(problem):\n    def change(x):\n        x.norm().item()\n        return {}\n"
    body += "    return changed(problem, change)\n"
    assert verdict(body.format("x")).verdict == "upheld"
    assert verdict(body.format("x * (1 + 2.0**-52)")).verdict == "refuted"


def test_a_function_that_jax_cannot_trace_is_inapplicable(verdict: Callable[..., Verdict], framework: str) -> None:
    if framework == "torch":
        pytest.skip("PyTorch is not traced")
    found = verdict("def mine(problem):\n    return changed(problem, lambda x: x * float(x.sum() * 0 + 1))\n")
    assert found.verdict == "inapplicable"
    assert "JAX cannot trace it" in found.reason


def test_a_wrong_derivative_of_a_right_gradient_is_refuted(verdict: Callable[..., Verdict]) -> None:
    found = verdict(
        "",
        claim="second_order_exact",
        torch="@method(composes=('second_order',))\ndef mine(problem):\n"
        "    return changed(problem, lambda x: x + (x.detach() - x) * 1e-25)\n",
        jax="@method(composes=('second_order',))\ndef mine(problem):\n"
        "    return changed(problem, lambda x: x + (jax.lax.stop_gradient(x) - x) * 1e-25)\n",
    )
    assert found.verdict == "refuted"


def test_an_oracle_is_given_the_options_that_it_takes_and_no_others(verdict: Callable[..., Verdict]) -> None:
    body = """
from gradgate.references.contract import Option
WINDOW = Option("window", "1 or more", lambda spec: (2, 100), illegal=(0,))
CHUNK = Option("chunk", "1 or 2", lambda spec: (1, 2), illegal=(0,))
DECLARED = method(options=[WINDOW, CHUNK], oracle="cut_loss")
"""
    torch = (
        body
        + """
@DECLARED
def mine(problem, window, chunk):
    grads, loss = torch.func.grad_and_value(lambda p: problem.cut_loss(p, window=window))(problem.params)
    return loss, grads
"""
    )
    jax = (
        body
        + """
@DECLARED
def mine(problem, window, chunk):
    return jax.value_and_grad(lambda p: problem.cut_loss(p, window=window))(problem.params)
"""
    )
    assert verdict("", torch=torch, jax=jax).verdict == "upheld"
    assert verdict("", "gradient_float64", torch=torch, jax=jax).verdict == "upheld"


def test_a_method_that_overwrites_its_input_does_not_change_the_truth(
    verdict: Callable[..., Verdict], framework: str
) -> None:
    if framework == "jax":
        pytest.skip("JAX's arrays cannot be overwritten")
    body = "def mine(problem):\n    problem.params['head'].mul_(0.5)\n    return plain(problem)\n"
    assert verdict(body).verdict == "refuted"


@pytest.mark.parametrize("ignored", ["torch.ones_like", "jnp.ones_like"])
def test_an_upstream_cotangent_that_is_ignored_is_refuted(
    ignored: str, verdict: Callable[..., Verdict], framework: str
) -> None:
    if ignored.startswith("torch") is not (framework == "torch"):
        pytest.skip("of the other framework")
    body = "def mine(problem):\n    data = {**problem.data, 'upstream': " + ignored + "(problem.data['upstream'])}\n"
    found = verdict(body + "    return plain(problem._replace(data=data))\n", examples=100)
    assert found.verdict == "refuted"
