"""The command, the option of pytest and the block: what they see, what they say, and that results stay as they are."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import gradgate as public
from gradgate.suites.console import watch_table
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.tests.schemas.test_schemas import fits
from gradgate.suites.watching import folders, portable, recorder, results
from gradgate.suites.watching.recorder import Rule

PACKAGE = {
    "pyproject.toml": """
[tool.gradgate.by_design]
"mylib:Reverse" = "the adversarial branch is trained with the reversed gradient"
"mylib:Forgotten" = "nobody calls it"
""",
    "mylib.py": '''
import torch


class Square(torch.autograd.Function):
    """README's first bug: the first row's cotangent for all rows."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).sum(-1)

    @staticmethod
    def backward(ctx, upstream):
        return 2 * ctx.saved_tensors[0] * upstream[0]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, upstream):
        return 3 * ctx.saved_tensors[0] ** 2 * upstream


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, upstream):
        return -upstream


class Round(Reverse):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, upstream):
        return upstream
''',
    "test_mylib.py": """
import os
import subprocess
import sys

import pytest
import torch

from mylib import Cube, Reverse, Round, Square

cube = Cube.apply


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def test_square():
    x = leaf(3, 4)
    Square.apply(x).sum().backward()
    assert torch.equal(x.grad, 2 * x)


@pytest.mark.parametrize("n", range(4))
def test_cube(n):
    cube(leaf(3)).sum().backward()


def test_reverse():
    Reverse.apply(leaf(3)).sum().backward()


def test_round_in_another_process():
    code = "import torch, mylib; mylib.Round.apply(torch.randn(3, requires_grad=True)).sum().backward()"
    subprocess.run([sys.executable, "-c", code], check=True)
""",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch: Any) -> Path:
    """A package whose tests pass, in the current folder."""
    for name, text in PACKAGE.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


def test_the_bug_of_the_readme_is_found_in_a_package_whose_tests_pass(
    package: Path, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xdist")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    files = ("--json", "rules.json", "--junit", "rules.xml", "--report", "report")
    ran = gradgate("watch", *files, "pytest", "-n", 2, "-p", "no:cacheprovider")
    assert "7 passed" in ran.out
    assert ran.status == 1
    assert "4 rules: 2 refuted, 1 upheld, 1 acknowledged" in ran.out
    document = json.loads((package / "rules.json").read_text())
    fits("watch", document)
    rules = {rule["name"].partition(":")[2]: rule for rule in document["rules"]}
    assert {name: rule["state"] for name, rule in rules.items()} == {
        "Square": "refuted",
        "Cube": "upheld",
        "Reverse": "acknowledged",
        "Round": "refuted",
    }
    line = 1 + PACKAGE["mylib.py"].splitlines().index("        return 2 * ctx.saved_tensors[0] * upstream[0]")
    assert (rules["Square"]["file"], rules["Square"]["line"]) == ("mylib.py", line - 2)
    assert rules["Square"]["seen"][0]["test"] == "test_mylib.py::test_square"
    assert rules["Cube"]["calls"] == 4
    assert rules["Reverse"]["acknowledged"].startswith("the adversarial branch")
    assert rules["Reverse"]["likeness"] == ""
    assert "straight-through" in rules["Round"]["likeness"]
    assert f"::error file=mylib.py,line={line - 2},title=gradgate::mylib:Square: wrong gradient" in ran.out
    assert any("mylib:Forgotten" in note for note in document["notes"])
    cases = ElementTree.fromstring((package / "rules.xml").read_text()).findall(".//testcase")
    assert {case.get("classname"): [child.tag for child in case] for case in cases} == {
        "mylib.Square": ["failure"],
        "mylib.Cube": [],
        "mylib.Reverse": ["system-out"],
        "mylib.Round": ["failure"],
    }
    for name, same in (("rules.json", "rules.json"), ("junit.xml", "rules.xml")):
        assert (package / "report" / name).read_text() == (package / same).read_text()
    [log] = json.loads((package / "report" / "failures.sarif").read_text())["runs"]
    places = {
        one["partialFingerprints"]["gradgate/v1"]: one["locations"][0]["physicalLocation"] for one in log["results"]
    }
    assert places.keys() == {"mylib:Square", "mylib:Round"}
    assert places["mylib:Square"] == {"artifactLocation": {"uri": "mylib.py"}, "region": {"startLine": line - 2}}
    page = (package / "report" / "index.html").read_text()
    for words in (
        "mylib:Cube",
        "4 rules: 2 refuted",
        "the adversarial branch",
        "straight-through",
        "def test_gradient",
    ):
        assert words in page
    short = rules["Square"]["test"]
    assert "gradgate" not in short
    assert len([text for text in short.splitlines() if text]) <= 10
    (package / "test_short.py").write_text(short)
    assert "1 failed" in gradgate("watch", "pytest", "-p", "no:cacheprovider", "test_short.py").out


def test_pytest_judges_at_its_end_and_its_status_says_so(package: Path, process: Callable[..., Any]) -> None:
    pytest.importorskip("xdist")  # and without it, as the guide's page on watching says
    words = ("-m", "pytest", "-p", "no:cacheprovider", "--gradgate-watch", "-n", 2)
    ran = process(*words, "-k", "square", cwd=package)
    assert ran.status == 1, ran.out + ran.err
    assert "1 rule: 1 refuted" in ran.out
    assert "1 passed" in ran.out
    assert "mylib:Square (mylib.py:13)" in ran.out


UNITTEST = """
import unittest

import torch

from mylib import Cube, Square


class Training(unittest.TestCase):
    def test_three_steps(self):
        weight = torch.ones(3, requires_grad=True)
        optimizer = torch.optim.SGD([weight], 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            Cube.apply(weight).sum().backward()
            optimizer.step()
        self.assertTrue((weight < 1).all())

    def test_square(self):
        Square.apply(torch.randn(3, 4, requires_grad=True)).sum().backward()
"""


def test_unittest_and_the_steps_of_a_training_loop_are_watched(package: Path, gradgate: Callable[..., Any]) -> None:
    (package / "test_training.py").write_text(UNITTEST)
    ran = gradgate("watch", "--json", "rules.json", "python", "-m", "unittest", "test_training")
    assert "Ran 2 tests" in ran.err
    rules = json.loads((package / "rules.json").read_text())["rules"]
    found = {rule["name"].partition(":")[2]: (rule["state"], rule["calls"]) for rule in rules}
    assert found == {"Square": ("refuted", 1), "Cube": ("upheld", 3)}


def test_a_block_raises_when_it_ends(torch: Any) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return 3 * dy

    class Right(Twice):
        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return 2 * dy

    @public.watch(jobs=1)
    def right() -> None:
        Right.apply(torch.randn(3, requires_grad=True)).sum().backward()

    right()
    assert not recorder.is_recording()
    with pytest.raises(AssertionError, match=r"Twice .* is refuted: wrong gradient"), public.watch(jobs=1):
        Twice.apply(torch.randn(3, requires_grad=True)).sum().backward()
    with pytest.raises(AssertionError, match="no handwritten derivative was called"), public.watch():
        torch.randn(3).sum()
    with pytest.raises(ZeroDivisionError), public.watch():
        1 / 0  # noqa: B018


def test_a_second_run_judges_only_what_has_changed(package: Path, gradgate: Callable[..., Any]) -> None:
    call = "mylib.Cube.apply(torch.randn(3, requires_grad=True)).sum().backward()"
    (package / "script.py").write_text(f"import torch, mylib\ntorch.manual_seed(0)\n{call}\n")
    first, second = (gradgate("watch", "--jobs", 1, "script.py") for _ in range(2))
    assert (first.status, second.status) == (0, 0), first.out + second.out
    assert "verdicts reused" not in first.err + first.out
    assert "verdicts reused" in second.err + second.out
    text = PACKAGE["mylib.py"].replace("return 3 * ctx", "return 4 * ctx")
    (package / "mylib.py").write_text(text)
    edited = gradgate("watch", "--jobs", 1, "script.py")
    assert edited.status == 1
    assert "verdicts reused" not in edited.err + edited.out


def test_what_cannot_run_or_was_not_seen_is_said(package: Path, gradgate: Callable[..., Any]) -> None:
    assert "watch needs a command" in gradgate("watch").err
    ran = gradgate("watch", "no-such-program")
    assert (ran.status, "there is no command 'no-such-program'" in ran.err) == (3, True)
    ran = gradgate("watch", "python", "-c", "import torch")
    assert (ran.status, "no handwritten derivative was called" in ran.out) == (2, True)
    ran = gradgate("watch", "python", "-I", "-c", "import torch")
    assert (ran.status, "no Python process was watched" in ran.out) == (2, True)
    ran = gradgate("watch", "python", "-c", "raise SystemExit(5)")
    assert (ran.status, "the command itself ended with exit status 5" in ran.err) == (2, True)
    (package / "rules.json").write_text("{}")
    ran = gradgate("watch", "--report", ".", "python", "-c", "import no_such_module")
    assert (ran.status, "gradgate did not write it" in ran.err) == (3, True)
    assert "no_such_module" not in ran.err


PROGRAM = {
    "torch": """
import torch
from mylib import Cube
torch.manual_seed(0)
w = torch.randn(20, 20, requires_grad=True)
for step in range(40):
    loss = Cube.apply(torch.dropout(w, 0.5, True) @ w).sum()
    (g,) = torch.autograd.grad(loss, w)
    w = (w - 1e-6 * g).detach().requires_grad_()
print(w.detach().numpy().tobytes().hex())
""",
    "jax": """
import jax, jax.numpy as jnp, numpy
@jax.custom_vjp
def cube(x):
    return x ** 3
cube.defvjp(lambda x: (cube(x), x), lambda x, g: (3 * x**2 * g,))
w = jax.random.normal(jax.random.PRNGKey(0), (20, 20))
for step in range(20):
    w = w - 1e-6 * jax.grad(lambda w: cube(w @ w).sum())(w)
w = jax.jit(jax.vmap(jax.grad(lambda r: cube(r).sum())))(w)
print(numpy.asarray(w).tobytes().hex())
""",
}


def test_watching_changes_no_bit(
    framework: str, package: Path, process: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    (package / "program.py").write_text(PROGRAM[framework])
    plain = process("program.py", cwd=package)
    folder = tmp_path_factory.mktemp("calls")
    watched = process("program.py", cwd=package, env=folders.environment(folder))
    assert plain.status == 0, plain.err
    assert watched.out == plain.out
    seen, notes = results.read(folder)
    assert not notes
    assert {call.rule.name.partition(":")[2].lower() for call in seen} == {"cube"}
    assert sum(call.count for call in seen) >= 20


def test_another_sitecustomize_still_runs(package: Path, process: Callable[..., Any]) -> None:
    (package / "sitecustomize.py").write_text("print('mine')")
    env = {**folders.environment(package), "GRADGATE_WATCH": str(package)}
    env["PYTHONPATH"] += os.pathsep + str(package)
    ran = process("-c", "print('program')", cwd=package, env=env)
    assert (ran.out, ran.err) == ("mine\nprogram\n", "")


def test_what_fails_in_recording_is_written_down_and_the_program_goes_on(
    tmp_path: Path, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> bytes:
        raise ValueError("no such thing")

    monkeypatch.setattr(portable, "dumps", broken)

    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy

    recorder.start(str(tmp_path))
    try:
        Same.apply(torch.randn(3, requires_grad=True)).sum().backward()
    finally:
        recorder.stop()
    [call], _ = results.read(tmp_path)
    assert "no such thing" in json.loads((tmp_path / f"{call.stem}.json").read_text())["unreachable"]
    assert Same.apply.__func__ is torch.autograd.Function.apply.__func__
    assert "apply" not in vars(torch.autograd.function._SingleLevelFunction)


def test_a_row_says_what_was_seen() -> None:
    rule = Rule("torch", "autograd.Function", "mylib:f.<locals>.Square", "/there/mylib.py", 3)
    calls = tuple(results.Seen(f"s{n}", rule, (f"float32[{n}]",), n == 1) for n in range(3))
    one = results.Judged(rule, calls, {}, {}, more=2)
    assert watch_table._seen(one) == "(float32[0]) (float32[1]) traced and 3 more"
    assert watch_table._short(one) == "f.Square"
    assert results.place(rule, Path("/there")) == "mylib.py:3"
    assert watch_table.last_line([one, one]) == "2 rules: 2 not judged"
    assert results.exit_status([one]) == 2
    assert results.exit_status([]) == 0


@pytest.mark.parametrize(
    ("leaf", "error", "likeness", "state"),
    [
        ("x", 0.1, results.AGREES, "by differences"),
        ("x", 1e-16, results.AGREES, "by differences"),
        ("x", 1e-8, results.AGREES, "refuted"),  # central differences would not see it
        ("x", 0.1, "", "refuted"),
        ("", 0.5, results.AGREES, "refuted"),  # the rule's own forward pass returns another value
    ],
)
def test_only_an_iteration_is_judged_by_its_differences(leaf: str, error: float, likeness: str, state: str) -> None:
    rule = Rule("torch", "autograd.Function", "mylib:Bisect", "/there/mylib.py", 3)
    task = Task("Bisect", "Bisect", "torch", "gradient_exact")
    wrong = Verdict(task, "refuted", 1, error, leaf=leaf, spec={"regime": ""})
    call = results.Seen("s", rule, (), False)
    one = results.Judged(rule, (call,), {"s": [wrong]}, {}, explained=results.Explained(likeness))
    assert one.state == state
    batched = dataclasses.replace(one, rule=dataclasses.replace(rule, kind="custom_vmap"))
    assert batched.state == "refuted"  # another function, of which it has the right gradient
    drawn = results.Judged(rule, (call,), {"s": [dataclasses.replace(wrong, spec={"regime": "drawn"})]}, {})
    assert drawn.state == "elsewhere"
    assert dataclasses.replace(one, acknowledged="why").state == ("acknowledged" if state == "refuted" else state)


@pytest.mark.parametrize("claim", ["forward_mode", "each_leaf_alone", "cotangents", "gradient_float32"])
def test_no_iteration_explains_what_differences_do_not_see(claim: str) -> None:
    rule = Rule("torch", "autograd.Function", "mylib:Square", "/there/mylib.py", 3)
    exact = Verdict(Task("Square", "Square", "torch", "gradient_exact"), "upheld", 1, 1e-58)
    wrong = Verdict(Task("Square", "Square", "torch", claim), "refuted", 1, 1.0, leaf="x", spec={"regime": ""})
    call = results.Seen("s", rule, (), False)
    one = results.Judged(rule, (call,), {"s": [exact, wrong]}, {}, explained=results.Explained(results.AGREES))
    assert one.state == "refuted"


@pytest.mark.parametrize(
    ("kind", "leaf", "error", "state"),
    [
        ("custom_root", "w", 1e-6, "in floats"),
        ("custom_root", "w", 1e-2, "refuted"),
        ("custom_root", "", 1e-6, "refuted"),  # another value
        ("custom_vjp", "w", 1e-6, "refuted"),
    ],
)
def test_only_a_solver_may_stop_early(kind: str, leaf: str, error: float, state: str) -> None:
    rule = Rule("jax", kind, "mylib:solve", "/there/mylib.py", 3)
    wrong = Verdict(
        Task("solve", "solve", "jax", "gradient_exact"), "refuted", 1, error, leaf=leaf, spec={"regime": ""}
    )
    one = results.Judged(rule, (results.Seen("s", rule, (), False),), {"s": [wrong]}, {})
    assert one.state == state
    assert ("stops early" in one.reason) == (state == "in floats")
