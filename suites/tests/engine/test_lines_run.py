"""Lines that no problem ran, loops that turned once at most, conditions that were never false; in both frameworks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.loading import load
from gradgate.suites.calibration import drawn_pairs
from gradgate.suites.engine import lines_run
from gradgate.suites.judging.lines import Lines, from_json
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.tests.pairs.verdicts import judged

TORCH = """
import torch
import gradgate

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return backward(x, g)

function = Cube.apply
"""
JAX = """
import jax
import gradgate

@jax.custom_vjp
def function(x):
    return x ** 3

function.defvjp(lambda x: (x ** 3, x), lambda x, g: (jax.jit(backward)(x, g),))
"""
PAIR = """
pair = gradgate.Pair(
    lambda x: function(x), lambda x: x * x * x, inputs={{"x": gradgate.normal("N")}}, dims={{"N": {sizes}}},
    framework="{framework}", name="cube", dtypes={dtypes},
)
"""
EVERY = ("float64", "float32", "bfloat16")
BODIES: dict[str, tuple[str, tuple[int, ...], str]] = {
    "a line for many numbers": (
        "if len(x) > 100:\n    x = 2 * x\nreturn 3 * g * x * x",
        (5, 1),
        "no problem ran ops.py:2",
    ),
    "a helper that nobody calls": (
        "def helper(y):\n    y = y + 0\n\n    return y\n\nreturn 3 * g * x * x",
        (5, 1),
        "no problem ran ops.py:2-4",
    ),
    "a loop with one chunk": (
        "total = 0 * g\nfor start in range(0, len(x), 8):\n    part = x * (1 if start < 8 else 0)\n"
        "    total = total + 3 * g * part * part\nreturn total",
        (5, 1),
        "never turned twice: the loop at ops.py:2",
    ),
    "a loop that is not entered": (
        "for _ in range(len(x) // 8):\n    x = x + 0\nreturn 3 * g * x * x",
        (5, 1),
        "no problem ran ops.py:2",
    ),
    "a while loop with one turn": (
        "left = len(x)\nwhile left > 0:\n    left -= 8\nreturn 3 * g * x * x",
        (5, 1),
        "never turned twice: the loop at ops.py:2",
    ),
    "a condition that is always true": (
        "if len(x) < 100:\n    x = x + 0\nreturn 3 * g * x * x",
        (5, 1),
        "never false: the if at ops.py:1",
    ),
    "a condition that another claim makes false": (
        "class ctx:\n    needs_input_grad = (True,)\n\nif ctx.needs_input_grad[0]:\n    x = x + 0\n"
        "return 3 * g * x * x",
        (5, 1),
        "",
    ),
    "a condition that ends a loop": (
        "left = len(x)\nwhile True:\n    if left < 0:\n        break\n    left -= 8\nreturn 3 * g * x * x",
        (9, 17),
        "",
    ),
    "only a refusal": (
        'if len(x) > 100:\n    why = "too many"\n    raise ValueError(why)\nreturn 3 * g * x * x',
        (5, 1),
        "",
    ),
}
NARROW = 'if str(x.dtype).endswith("bfloat16"):\n    x = x + 0\nreturn 3 * g * x * x'
REACHED = {"a line for many numbers": 101, "a loop with one chunk": 20, "a loop that is not entered": 20}
REACHED |= {"a while loop with one turn": 20, "a condition that is always true": 101}
"""Body -> a size with which nothing is missing."""


def verdict(
    folder: Path, framework: str, body: str, sizes: tuple[int, ...], dtypes: tuple[str, ...] = EVERY
) -> Verdict:
    """The verdict on the formula of a pair whose backward pass is the body; its first line is line 1 here."""
    pytest.importorskip(framework)
    lines = "".join(f"    {line}\n" if line else "\n" for line in body.splitlines())
    before = {"torch": TORCH, "jax": JAX}[framework]
    file = folder / f"{sizes[-1]}-{len(dtypes)}" / "ops.py"
    file.parent.mkdir()
    pair = PAIR.format(sizes=sizes, framework=framework, dtypes=dtypes)
    file.write_text(f"def backward(x, g):\n{lines}{before}{pair}")
    return judged(load(f"{file}:pair"), ("gradient_exact",))["gradient_exact"]


def shifted(found: Verdict) -> str:
    """What no problem ran, with the body's lines counted from 1."""
    moved = [
        Lines(
            one.path,
            one.digest,
            *(_up(part) for part in (one.ran, one.never)),
            tuple((a - 1, b) for a, b in one.loops),
            tuple(line - 1 for line in one.branches),
        )
        for one in found.lines
    ]
    return "; ".join(sentence for one in moved for sentence in one.sentences)


def _up(part: Any) -> Any:
    return tuple((first - 1, last - 1) for first, last in part)


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize("name", BODIES)
def test_what_never_ran(framework: str, name: str, tmp_path: Path) -> None:
    """The verdict names the line or the loop; with a size that reaches it, it names nothing."""
    body, sizes, said = BODIES[name]
    found = verdict(tmp_path, framework, body, sizes)
    assert (found.verdict, shifted(found)) == ("upheld", said), found.reason
    assert Verdict.from_dict(found.to_dict()).lines == found.lines
    if name in REACHED:
        assert verdict(tmp_path, framework, body, (*sizes, REACHED[name])).unrun == ""


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize(("dtypes", "said"), [(EVERY, ""), (EVERY[:2], "no problem ran ops.py:2")], ids=["with", "not"])
def test_a_line_for_a_narrow_dtype_runs_in_it(
    framework: str, dtypes: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    found = verdict(tmp_path, framework, NARROW, (5, 1), dtypes)
    assert (found.verdict, shifted(found)) == ("upheld", said), found.reason


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_error_in_a_narrow_dtype_hides_no_line(framework: str, tmp_path: Path) -> None:
    """The claims in floats refute it; the formula is upheld, and the line that nothing runs is named."""
    body = 'if str(x.dtype).endswith("bfloat16"):\n    raise TypeError\n' + BODIES["a line for many numbers"][0]
    found = verdict(tmp_path, framework, body, (5, 1))
    assert (found.verdict, shifted(found)) == ("upheld", "no problem ran ops.py:4"), found.reason


def test_loops_of_jax(tmp_path: Path) -> None:
    """A scan is counted by its length and a while loop by its turns; both twice is nothing to say."""
    pytest.importorskip("jax")
    text = """
import jax
import gradgate

def function(x):
    x, _ = jax.lax.scan(lambda s, y: (s * y, None), x, x[None])
    return x * jax.lax.stop_gradient(
        jax.lax.while_loop(lambda k: k < {most}, lambda k: k + 1.0, 0.0)
    )

pair = gradgate.Pair(
    function, lambda x: {most}.0 * x * x, inputs={{"x": gradgate.normal("N")}}, dims={{"N": (5, 1)}}, framework="jax",
    name="squared",
)
"""
    said = {1: "never turned twice: the loop at ops.py:6, 8", 3: "never turned twice: the loop at ops.py:6"}
    for most in said:
        file = tmp_path / str(most) / "ops.py"
        file.parent.mkdir()
        file.write_text(text.format(most=most))
        found = judged(load(f"{file}:pair"), ("gradient_exact",))["gradient_exact"]
        assert found.verdict == "upheld", found.reason
        assert found.unrun == said[most]


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_functions_of_no_author_run_on_one_problem_alone(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions of gradgate itself have no line to wait for; of an author's file, one that never runs is waited for."""
    pytest.importorskip(framework)
    runs: list[Any] = []

    def counted(*given: Any) -> None:
        runs.append(given)
        run(*given)

    run = lines_run._run
    monkeypatch.setattr(lines_run, "_run", counted)
    found = drawn_pairs.judged(framework, 1)
    assert (found.verdict, found.lines, len(runs)) == ("upheld", (), 1)
    runs.clear()
    body, sizes, _ = BODIES["a line for many numbers"]
    assert verdict(tmp_path, framework, body, sizes).lines
    assert len(runs) > 1


def test_the_trace_function_of_others_comes_back(tmp_path: Path) -> None:
    """A coverage tool or a debugger goes on afterwards."""
    seen: list[str] = []

    def other(frame: Any, event: str, argument: Any) -> None:
        seen.append(event)

    before = sys.gettrace()
    sys.settrace(other)
    try:
        verdict(tmp_path, "torch", "return 3 * g * x * x", (5,))
        assert sys.gettrace() is other
    finally:
        sys.settrace(before)
    assert seen


def test_json_has_lists_for_pairs() -> None:
    """Lines survive JSON, which has no tuples."""
    one = Lines("ops.py", "0", ((1, 3),), ((4, 4),), ((2, 0),), (1, 3))
    row = {"path": "ops.py", "digest": "0", "ran": [[1, 3]], "never": [[4, 4]], "loops": [[2, 0]], "branches": [1, 3]}
    assert from_json([row]) == (one,)
    said = ["no problem ran ops.py:4", "never entered: the loop at ops.py:2", "never false: the if at ops.py:1, 3"]
    assert one.sentences == said
    assert from_json([{name: row[name] for name in row if name != "branches"}])[0].branches == ()
