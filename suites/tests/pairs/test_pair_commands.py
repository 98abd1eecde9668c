"""`gradgate verify` and `gradgate memory` on pairs in files and modules: verdicts, messages and exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("pair_commands")

RIGHT, REFUTED, UNMEASURED, USAGE = range(4)
PAIRS = """
import torch
import gradgate
from gradgate import normal

def plain(x):
    return (x * x).sum()

class Square(torch.autograd.Function):
    factor = 2

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).sum()

    @classmethod
    def backward(cls, ctx, upstream):
        return 2 * upstream * ctx.saved_tensors[0]

def square(x):
    return Square.apply(x)

def halved(x):
    return Square.apply(x) / 2 + plain(x).detach() / 2

def declared(function, **more):
    return gradgate.Pair(function, plain, {"x": normal("T")}, {"T": (2, 3)}, dtypes=("float64",), **more)

right = declared(square)
"""
WRONG = "wrong = declared(halved)\n"


@pytest.fixture
def file(tmp_path: Path, torch: Any) -> Callable[..., Path]:
    """Write a file that declares pairs."""

    def write(code: str = "", name: str = "gradients.py", head: str = PAIRS) -> Path:
        path = tmp_path / name
        path.write_text(head + code)
        return path

    return write


@pytest.fixture
def verify(gradgate: Callable[..., Any]) -> Callable[..., Any]:
    """Run ``gradgate verify`` with two problems per claim."""

    def run(*arguments: object) -> Any:
        ran = gradgate("verify", *arguments, "--examples", 2, "--jobs", 1)
        assert "Traceback" not in ran.out + ran.err
        return ran

    return run


def test_every_pair_of_a_file_is_judged(file: Callable[..., Path], verify: Callable[..., Any], tmp_path: Path) -> None:
    ran = verify(file(WRONG), "--json", tmp_path / "v.json")
    assert ran.status == REFUTED, ran.err
    rows = json.loads((tmp_path / "v.json").read_text())["verdicts"]
    refuted = {(row["method"], row["claim"]) for row in rows if row["verdict"] == "refuted"}
    assert {row["method"] for row in rows} == {"right", "wrong"}
    assert {"gradient_exact", "gradient_float64"} <= {claim for method, claim in refuted if method == "wrong"}
    assert not [claim for method, claim in refuted if method == "right"]
    assert "wrong gradient of x (50%)" in ran.out


def test_one_pair_of_a_file_is_judged_by_its_name(file: Callable[..., Path], verify: Callable[..., Any]) -> None:
    ran = verify(f"{file(WRONG)}:right", "--claim", "gradient_exact")
    assert ran.status == RIGHT, ran.out + ran.err
    assert "1 of 1 claims as declared" in ran.out
    assert "wrong" not in ran.out


def test_several_claims_are_judged_and_no_other(file: Callable[..., Path], verify: Callable[..., Any]) -> None:
    ran = verify(f"{file(WRONG)}:right", "--claim", "gradient_exact", "--claim", "tree")
    assert "2 of 2 claims as declared" in ran.out
    ran = verify(f"{file(WRONG)}:right", "--claim", "tree", "--claim", "trees")
    assert (ran.status, "trees" in ran.err) == (3, True)


def test_the_command_that_a_failure_prints_repeats_it(file: Callable[..., Path], verify: Callable[..., Any]) -> None:
    import shlex

    first = verify(f"{file(WRONG)}:wrong", "--claim", "gradient_exact")
    [line] = [line for line in first.out.splitlines() if "reproduce: " in line]
    command = shlex.split(line.partition("reproduce: ")[2])
    assert command[:2] == ["gradgate", "verify"]
    again = verify(*command[2:])
    assert again.status == first.status == REFUTED, again.err


def test_a_module_is_judged_by_its_name(file: Callable[..., Path], process: Callable[..., Any], tmp_path: Path) -> None:
    package = tmp_path / "mylib"
    package.mkdir()
    (package / "__init__.py").touch()
    file(name="mylib/gradients.py")
    command = ("-m", "gradgate.suites.cli", "verify")
    more = ("--claim", "tree", "--examples", 1, "--jobs", 1)
    for target in ("mylib.gradients", "mylib.gradients:right"):
        ran = process(*command, target, *more, cwd=tmp_path)
        assert ran.status == RIGHT, ran.out + ran.err


@pytest.mark.parametrize(
    ("code", "target", "said"),
    [
        ("x = 3\n", "", "declares no gradgate.Pair"),
        (PAIRS, ":rihgt", "nearest: right"),
        (PAIRS, ":plain", "say which problems"),
        ("raise RuntimeError('no such library')\n", "", "RuntimeError: no such library"),
        ("import not_installed_here\n", "", "No module named 'not_installed_here'"),
        ("import sys\nsys.exit(5)\n", "", "exit"),
        ("import gradgate\npair = gradgate.Pair(abs, abs, {'x': 3}, {})\n", "", "input x is 3; a draw such as"),
        ("this is no Python\n", "", "SyntaxError"),
    ],
    ids=["no pair", "misspelt", "a function", "raises", "not installed", "exits", "wrong declaration", "no Python"],
)
def test_a_file_that_cannot_be_judged_is_wrong_usage_in_words(
    code: str, target: str, said: str, file: Callable[..., Path], verify: Callable[..., Any]
) -> None:
    ran = verify(f"{file(code, head='')}{target}")
    assert ran.status == USAGE, ran.out + ran.err
    assert said in ran.err


def test_an_import_that_hangs_is_wrong_usage_in_words(file: Callable[..., Path], verify: Callable[..., Any]) -> None:
    ran = verify(file("import time\ntime.sleep(600)\n", head=""), "--timeout", 3)
    assert ran.status == USAGE, ran.out + ran.err
    assert "3 s" in ran.err


def test_a_file_that_is_not_there_is_wrong_usage(verify: Callable[..., Any], tmp_path: Path) -> None:
    ran = verify(tmp_path / "nowhere.py")
    assert ran.status == USAGE
    assert "nowhere.py" in ran.err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("    raise ValueError('no such block')\n", "ValueError: no such block"),
        ("    import os\n    os._exit(3)\n", "ended its process"),
        ("    import time\n    time.sleep(600)\n", "hung: no answer within"),
    ],
    ids=["raises", "exits", "hangs"],
)
def test_a_function_that_gives_no_answer_fails_in_words(
    body: str, said: str, file: Callable[..., Path], verify: Callable[..., Any]
) -> None:
    code = f"def bad(x):\n{body}\npair = declared(bad, framework='torch')\ndel right\n"
    ran = verify(file(code), "--claim", "gradient_float64", "--timeout", 5)
    assert ran.status == UNMEASURED, ran.out + ran.err
    assert said in ran.out


def test_a_claim_about_bytes_that_cannot_be_measured_there_is_inapplicable(
    file: Callable[..., Path], verify: Callable[..., Any], tmp_path: Path
) -> None:
    code = "bytes = declared(square, name='bytes', claims=[gradgate.at_most('temp_bytes', of_reference=4)])\n"
    ran = verify(f"{file(code)}:bytes", "--profile", "nvidia-h100", "--json", tmp_path / "v.json")
    assert ran.status in (RIGHT, UNMEASURED), ran.out + ran.err
    [row] = json.loads((tmp_path / "v.json").read_text())["verdicts"]
    assert row["claim"] == "temp_bytes_of_reference"


def test_a_profile_that_has_nothing_to_judge_is_wrong_usage(
    file: Callable[..., Path], verify: Callable[..., Any]
) -> None:
    ran = verify(file(), "--profile", "nvidia-h100")
    assert ran.status == USAGE
    assert "nothing is claimed about memory or work" in ran.err


def test_memory_of_a_pair_is_swept_over_a_dim_on_several_profiles(
    jax: Any, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import jax.numpy as jnp\nimport gradgate\nfrom gradgate import normal\n"
        "def plain(x, w):\n    return jnp.exp(x @ w.T).sum()\n"
        "def other(x, w):\n    return jnp.exp(jnp.einsum('th,vh->tv', x, w)).sum()\n"
        "pair = gradgate.Pair(other, plain, {'x': normal('T H'), 'w': normal('V H')}, "
        "{'T': (2,), 'H': (4,), 'V': (256,)})\n"
    )
    ran = gradgate(
        "memory",
        f"{tmp_path / 'mine.py'}:pair",
        "--profile",
        "cpu,tpu-v5p",
        "--sweep",
        "T=64:1024",
        "--jobs",
        1,
        "--json",
        tmp_path / "m.json",
    )
    cells = json.loads((tmp_path / "m.json").read_text())["cells"]
    if any(cell["status"] == "unavailable" for cell in cells):
        pytest.skip("no compiler of TPUs is installed")
    assert ran.status == RIGHT, ran.out + ran.err
    assert [cell["spec"]["T"] for cell in cells] == 2 * [64, 128, 256, 512, 1024]
    assert {cell["profile"] for cell in cells} == {"cpu", "tpu-v5p"}
    assert cells[4]["temp_bytes"] >= 1024 * 256 * 4


def test_a_sweep_over_a_dim_that_is_not_declared_is_wrong_usage(
    file: Callable[..., Path], gradgate: Callable[..., Any]
) -> None:
    ran = gradgate("memory", f"{file()}:right", "--sweep", "S=64:128")
    assert ran.status == USAGE
    assert "unknown size of right 'S'" in ran.err


def test_integers_are_of_the_dtype_that_pytorch_indexes_with(
    file: Callable[..., Path], verify: Callable[..., Any]
) -> None:
    code = """
def loss(x, labels):
    return torch.nn.functional.cross_entropy(x, labels)
def other(x, labels):
    return torch.logsumexp(x, 1).mean() - x[range(len(x)), labels].mean()
inputs = {"x": normal("T V"), "labels": gradgate.integers("T", below="V")}
entropy = gradgate.Pair(other, loss, inputs, {"T": (3,), "V": (4,)}, dtypes=("float64",))
"""
    ran = verify(f"{file(code)}:entropy", "--claim", "gradient_exact")
    assert ran.status == RIGHT, ran.out + ran.err


def test_a_reference_that_does_not_take_what_is_drawn_is_wrong_usage(
    file: Callable[..., Path], verify: Callable[..., Any]
) -> None:
    code = """
def fussy(x):
    raise ValueError("only even lengths")
odd = gradgate.Pair(square, fussy, {"x": normal("T")}, {"T": (3,)}, framework="torch")
"""
    ran = verify(f"{file(code)}:odd", "--claim", "tree")
    assert ran.status == USAGE, ran.out + ran.err
    assert "the reference raised ValueError at T=3: only even lengths" in ran.err


def test_a_pair_of_an_entry_point_is_judged_by_its_name(
    file: Callable[..., Path], tmp_path: Path, process: Callable[..., Any]
) -> None:
    file(WRONG, name="theirs.py")
    about = tmp_path / "theirs-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[gradgate.pairs]\nright = theirs:right\nwrong = theirs:wrong\n")
    asked = ("-m", "gradgate.suites.cli", "verify", "--claim", "gradient_exact")
    ran = process(*asked, "--family", "right", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ran.status == RIGHT, ran.out + ran.err
    assert "1 of 1 claims as declared" in ran.out
    ran = process(*asked, "--family", "wrong", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert ran.status == REFUTED, ran.out + ran.err
