"""What foreign code may do, and the verdict that it gets: in words, while the run goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import UsageError
from gradgate.suites.engine import Run
from gradgate.suites.supervisor import Limits, Supervisor
from gradgate.suites.verdict import Verdict

SEVERAL = """
import os, random, signal, sys, time
import numpy

def backprop(problem):
    return good(problem)

def changed(problem, change):
    loss, grads = good(problem)
    change(grads)
    return loss, grads

def raises(problem):
    raise ValueError("no such thing\\nand more")

def raises_nothing_said(problem):
    raise RuntimeError

def runs_out_of_memory(problem):
    raise MemoryError

def exits(problem):
    sys.exit("bye")

def interrupts(problem):
    raise KeyboardInterrupt

def generator_exit(problem):
    raise GeneratorExit

def ends(problem):
    os._exit(7)

def ends_quietly(problem):
    os._exit(0)

def kills_itself(problem):
    os.kill(os.getpid(), signal.SIGKILL)

def segfaults(problem):
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(problem):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        time.sleep(0.1)

def grows(problem):
    kept = []
    while True:
        kept.append(numpy.ones(2**22))

def returns_none(problem):
    return None

def returns_loss(problem):
    return good(problem)[0]

def returns_three(problem):
    return (*good(problem), 1)

def returns_list(problem):
    return list(good(problem))

def no_grads(problem):
    return good(problem)[0], None

def leaves_only(problem):
    loss, grads = good(problem)
    return loss, [grads["embedding"], grads["head"]]

def lacks_a_leaf(problem):
    return changed(problem, lambda grads: grads.pop("head"))

def an_extra_leaf(problem):
    return changed(problem, lambda grads: grads.update(bias=grads["head"]))

def misnamed(problem):
    return changed(problem, lambda grads: grads.update(haed=grads.pop("head")))

def a_none_leaf(problem):
    return changed(problem, lambda grads: grads.update(head=None))

def wrong_shape(problem):
    return changed(problem, lambda grads: grads.update(head=grads["head"].T.reshape(-1)))

def wrong_dtype(problem):
    return changed(problem, lambda grads: grads.update(head=grads["head"].float()))

def numpy_leaf(problem):
    return changed(problem, lambda grads: grads.update(head=grads["head"].numpy()))

def a_number_as_loss(problem):
    loss, grads = good(problem)
    return float(loss), grads

def a_vector_as_loss(problem):
    loss, grads = good(problem)
    return loss.reshape(1), grads

def nan_leaf(problem):
    return changed(problem, lambda grads: grads.update(head=grads["head"] * float("nan")))

def infinite_leaf(problem):
    return changed(problem, lambda grads: grads.update(head=grads["head"] / 0.0))

def nan_loss(problem):
    loss, grads = good(problem)
    return loss * float("nan"), grads

def half(problem):
    return changed(problem, lambda grads: grads.update(head=grads["head"] / 2))

def wrong_only_in_depth(problem):
    def change(grads):
        if problem.spec.layers >= 3:
            grads["layers"]["B"]["b0"] = grads["layers"]["B"]["b0"] * (1 + 1e-9)
    return changed(problem, change)

def mutates(problem):
    answer = good(problem)
    problem.params["head"].mul_(2)
    return answer

def mutates_data(problem):
    answer = good(problem)
    problem.data["tokens"].zero_()
    return answer

def grows_a_leaf(problem):
    answer = good(problem)
    problem.params["mine"] = answer[0]
    return answer

def reseeds(problem):
    random.seed(0)
    return good(problem)

def reseeds_numpy(problem):
    numpy.random.seed(0)
    return good(problem)

def reseeds_torch(problem):
    torch.manual_seed(0)
    return good(problem)

def draws(problem):
    torch.rand(3)
    return good(problem)

def prints(problem):
    print("here I am")
    return good(problem)

def complains(problem):
    print("oh", file=sys.stderr)
    return good(problem)

calls = [0]

def wavers(problem):
    calls[0] += 1
    return changed(problem, lambda grads: grads.update(head=grads["head"] * (1 + calls[0] * 1e-6)))
"""

EXPECTED: list[tuple[str, str, str, str]] = [
    # function, claim, verdict, reason
    ("raises", "tree", "error", "the method raised ValueError: no such thing"),
    ("raises_nothing_said", "value", "error", r"the method raised RuntimeError: \(no message\)"),
    ("runs_out_of_memory", "tree", "error", r"the method ran out of memory \(MemoryError\)"),
    ("exits", "tree", "error", r"the method called sys.exit\('bye'\)"),
    ("interrupts", "tree", "error", "the method raised KeyboardInterrupt"),
    ("generator_exit", "tree", "error", r"the method raised GeneratorExit: \(no message\)"),
    ("ends_quietly", "tree", "error", r"the method ended its process \(exit status 0\)(: .*)?"),
    ("kills_itself", "tree", "error", r"the method ended its process \(signal SIGKILL\)(: .*)?"),
    (
        "segfaults",
        "tree",
        "error",
        r"the method ended its process \(signal SIGSEGV\): Fatal Python error: Segmentation fault.*in segfaults",
    ),
    ("returns_none", "tree", "error", r"the method returned None; a method returns \(loss, grads\)"),
    ("returns_loss", "tree", "error", r"the method returned tensor\(.*\); a method returns \(loss, grads\)"),
    ("returns_three", "tree", "error", r"the method returned a tuple of 3; a method returns \(loss, grads\)"),
    ("returns_list", "tree", "error", r"the method returned a list of 2; a method returns \(loss, grads\)"),
    ("no_grads", "tree", "error", "the method returned None for grads; expected a tree like problem.params"),
    (
        "leaves_only",
        "tree",
        "error",
        r"wrong tree: grads lacks embedding, .* and has \[0\], \[1\] besides; expected .*",
    ),
    ("lacks_a_leaf", "tree", "error", "wrong tree: grads lacks head; expected the leaves of problem.params"),
    ("an_extra_leaf", "tree", "error", "wrong tree: grads has bias besides; expected the leaves of problem.params"),
    ("misnamed", "tree", "error", "wrong tree: grads lacks head and has haed besides; expected .*"),
    ("a_none_leaf", "tree", "error", r"wrong tree: head is None; expected an array of shape \(1, 1\)"),
    ("wrong_shape", "tree", "error", r"wrong shape: head has shape \(1,\); expected \(1, 1\)"),
    ("wrong_dtype", "tree", "error", r"wrong dtype: head is torch.float32; expected torch.float64"),
    ("numpy_leaf", "tree", "error", r"head is array\(.*\) of numpy; expected an array of torch"),
    ("a_number_as_loss", "tree", "error", r"loss is [-0-9.e]+ of builtins; expected an array of torch"),
    ("a_vector_as_loss", "tree", "error", r"wrong shape: loss has shape \(1,\); expected \(\)"),
    ("nan_leaf", "gradient_float64", "refuted", r"relative errors head: NaN; exact in embedding, layers\[0\]"),
    ("nan_leaf", "upstream", "refuted", "the method's plain gradient is not finite in head"),
    ("infinite_leaf", "gradient_float32", "refuted", r"relative errors head: infinite; exact in .*"),
    ("nan_loss", "value", "refuted", "returned the loss nan, plain evaluation [-0-9.e]+"),
    ("half", "gradient_float64", "refuted", r"relative errors head: 0.5; exact in embedding, layers\[0\]"),
    ("half", "stability", "refuted", "float64: relative errors head: 0.5; exact in .*"),
    ("wrong_only_in_depth", "gradient_float64", "refuted", r"relative errors layers\[\d\]: B.b0 1e-09; .*"),
    ("mutates", "pure", "refuted", "the call changed its input params.head"),
    ("mutates_data", "pure", "refuted", "the call changed its input data.tokens"),
    ("grows_a_leaf", "pure", "refuted", "the call changed its input params.mine"),
    ("reseeds", "pure", "refuted", "the call moved or reseeded the global random state of random"),
    ("reseeds_numpy", "pure", "refuted", "the call moved or reseeded the global random state of numpy.random"),
    ("reseeds_torch", "pure", "refuted", "the call moved or reseeded the global random state of torch"),
    ("draws", "pure", "refuted", "the call moved or reseeded the global random state of torch"),
    ("prints", "pure", "refuted", "the call printed 10 characters to standard output: 'here I am'"),
    ("complains", "pure", "refuted", "the call printed 3 characters to standard error: 'oh'"),
    ("wavers", "deterministic", "refuted", "two calls on one problem differ in .*head"),
]


def judge(supervisor: Supervisor, target: str, *claims: str) -> list[Verdict]:
    tasks = supervisor.describe(target, "state_space", None)
    return [supervisor.judge(task) for task in tasks if not claims or task.claim in claims]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("torch")
    from_conftest = "import torch\n\ndef good(problem):\n    grads, loss = torch.func.grad_and_value(problem.loss)"
    path = tmp_path_factory.mktemp("hostile") / "several.py"
    path.write_text(from_conftest + "(problem.params)\n    return loss, grads\n" + SEVERAL)
    return str(path)


@pytest.mark.parametrize(("function", "claim", "verdict", "reason"), EXPECTED, ids=[f"{e[0]}-{e[1]}" for e in EXPECTED])
def test_each_fault_has_its_verdict_and_the_run_goes_on(
    function: str, claim: str, verdict: str, reason: str, several: str, patient: Supervisor
) -> None:
    [found] = judge(patient, f"{several}:{function}", claim)
    assert found.verdict == verdict, found
    assert re.fullmatch(reason, found.reason), found.reason
    assert found.spec is not None
    assert "\n" not in found.reason
    assert f"{several}:{function}" in found.reproduce
    assert "--spec" in found.reproduce
    [after] = judge(patient, f"{several}:backprop", claim)
    assert after.verdict == "upheld", after


def test_the_smallest_failing_problem_is_the_one_shown(several: str, patient: Supervisor) -> None:
    [found] = judge(patient, f"{several}:wrong_only_in_depth", "gradient_float64")
    assert found.spec is not None
    assert found.spec["layers"] == 3
    assert found.error == pytest.approx(1e-9, rel=1e-3)
    assert found.noise is not None
    assert found.noise < 1e-12
    assert re.fullmatch(r"layers\[\d\]\.B\.b0", found.leaf)


@pytest.mark.parametrize(
    ("function", "claim"), [("raises", "pure"), ("exits", "upstream"), ("a_none_leaf", "stability")]
)
def test_a_fault_is_a_fault_in_every_claim(function: str, claim: str, several: str, patient: Supervisor) -> None:
    [found] = judge(patient, f"{several}:{function}", claim)
    assert found.verdict == "error"


def test_after_a_death_the_rest_of_the_method_is_not_tried_and_says_so(several: str, patient: Supervisor) -> None:
    tasks = [t for name in ("ends", "backprop") for t in patient.describe(f"{several}:{name}", "state_space", None)]
    found = {(v.task.method, v.task.claim): v for v in patient.judge_all(tasks)}
    assert len(found) == len(tasks)
    dead = [v for v in found.values() if v.task.method == "ends"]
    assert all(v.verdict == "error" for v in dead)
    assert sum(v.reason.startswith("the method ended its process (exit status 7)") for v in dead) == 1
    assert (
        sum(v.reason.startswith("not tried: in an earlier claim the method ended its process") for v in dead)
        == len(dead) - 1
    )
    assert all(v.verdict == "upheld" for v in found.values() if v.task.method == "backprop")


def test_a_hung_method_gets_a_verdict_and_the_run_goes_on(several: str) -> None:
    function = "hangs"  # deaf to signals, too
    with Supervisor(Run(examples=3), jobs=1, limits=Limits(120)) as supervisor:
        tasks = [
            task for name in (function, "backprop")
            for task in supervisor.describe(f"{several}:{name}", "state_space", None)
            if task.claim == "tree"
        ]  # fmt: skip
        supervisor.limits = Limits(2)  # from here on PyTorch is imported
        hung = supervisor.judge(tasks[0])
        supervisor.limits = Limits(120)
        good = supervisor.judge(tasks[1])
        again = supervisor.judge(tasks[0])
    assert (hung.verdict, hung.reason) == ("error", "the method hung: no answer within 2 s")
    assert again.reason == "not tried: in an earlier claim the method hung: no answer within 2 s"
    assert hung.spec is not None
    assert "--spec" in hung.reproduce
    assert good.verdict == "upheld"


def test_a_method_that_grows_is_stopped_at_its_memory_limit_and_the_run_goes_on(several: str) -> None:
    limit = 2**30
    with Supervisor(Run(examples=3), jobs=1, limits=Limits(120, limit)) as supervisor:
        [grown] = judge(supervisor, f"{several}:grows", "tree")
        [good] = judge(supervisor, f"{several}:backprop", "tree")
    assert (grown.verdict, grown.reason) == ("error", "the method exhausted memory: its process grew past 1 GiB")
    assert good.verdict == "upheld"


IMPORTS = [
    ("import no_such_module_anywhere", "raised ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
    ("raise RuntimeError('not today')", "raised RuntimeError: not today"),
    ("def broken(:", "raised SyntaxError: .*"),
    ("import sys; sys.exit(0)", "raised SystemExit: 0"),
    ("raise KeyboardInterrupt", "raised KeyboardInterrupt: ?"),
    ("import os; os._exit(9)", r".*the method ended its process \(exit status 9\).*"),
]


@pytest.mark.parametrize(("code", "message"), IMPORTS, ids=[code[:20] for code, _ in IMPORTS])
def test_an_import_that_fails_is_wrong_usage_in_words(code: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code + "\n\ndef good(problem):\n    return problem\n")
    with Supervisor(Run(examples=1), jobs=1) as supervisor, pytest.raises(UsageError) as caught:
        supervisor.describe(f"{path}:good", "state_space", "torch")
    assert re.fullmatch(f"importing {re.escape(str(path))}:good:? {message}", str(caught.value), re.DOTALL), (
        caught.value
    )


def test_an_import_that_hangs_is_wrong_usage_in_words(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import time\nwhile True:\n    time.sleep(0.1)\n")
    with Supervisor(Run(examples=1), jobs=1, limits=Limits(1)) as supervisor, pytest.raises(UsageError) as caught:
        supervisor.describe(f"{path}:good", "state_space", "torch")
    assert str(caught.value) == f"importing {path}:good: the method hung: no answer within 1 s"


JAX = """
import jax.numpy as jnp
import numpy
import random

def raises(problem):
    raise ValueError("under jit")

def numpy_leaves(problem):
    loss, grads = good(problem)
    return loss, {**grads, "head": numpy.zeros(problem.params["head"].shape)}

def nan_leaf(problem):
    loss, grads = good(problem)
    return loss, {**grads, "head": grads["head"] * jnp.nan}

def not_traceable(problem):
    loss, grads = good(problem)
    if float(loss) < 0:
        raise AssertionError
    return loss, grads

def draws(problem):
    random.random()
    return good(problem)

def single(problem):
    loss, grads = good(problem)
    return loss, {**grads, "head": grads["head"].astype("float32")}
"""


@pytest.mark.parametrize(
    ("function", "claim", "verdict", "reason"),
    [
        ("raises", "gradient_float64", "error", "the method raised ValueError: under jit"),
        ("numpy_leaves", "tree", "error", r"head is array\(.*\) of numpy; expected an array of jax"),
        ("nan_leaf", "gradient_float64", "refuted", "relative errors head: NaN; exact in .*"),
        ("single", "tree", "error", "wrong dtype: head is float32; expected float64"),
        ("draws", "pure", "refuted", "the call moved or reseeded the global random state of random"),
        ("not_traceable", "gradient_float64", "upheld", ""),
    ],
)
def test_in_jax_too(
    function: str, claim: str, verdict: str, reason: str, plugin: Callable[..., str], patient: Supervisor
) -> None:
    patient_run, patient.run = patient.run, Run(examples=1)  # a program per shape is compiled
    [found] = judge(patient, f"{plugin(JAX, 'jax')}:{function}", claim)
    patient.run = patient_run
    assert found.verdict == verdict, found
    assert re.fullmatch(reason, found.reason), found.reason


@pytest.mark.parametrize(
    ("function", "status", "last"),
    [("backprop", 0, "as claimed"), ("half", 1, "NOT as claimed"), ("raises", 2, "not everything could be measured")],
)
def test_the_exit_status_says_what_happened(
    function: str, status: int, last: str, several: str, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "v.json"
    ran = gradgate(
        "verify", f"{several}:{function}", "--family", "state_space", "--examples", 2, "--jobs", 1, "--json", file
    )
    assert ran.status == status, ran
    assert ran.out.rstrip().endswith(last)
    assert "Traceback" not in ran.out + ran.err
    rows = json.loads(file.read_text())["verdicts"]
    assert len(rows) == json.loads(file.read_text())["claims"]
    if status:
        assert "reproduce: gradgate verify" in ran.out


def test_a_mixture_of_refuted_and_broken_is_status_one() -> None:
    from gradgate.suites.verdict import Task, exit_status

    refuted, broken = (Verdict(Task("f", "m", "jax", c), v) for c, v in (("a", "refuted"), ("b", "error")))
    assert exit_status([refuted, broken]) == 1
    assert exit_status([broken]) == 2


def test_inside_pytest_the_same_faults_are_failures_and_the_run_goes_on(
    several: str, process: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("xdist")
    ran = process(
        "-m", "pytest", "--pyargs", "gradgate.suites", "--method", f"{several}:ends", "--family", "state_space",
        "--examples", 2, "-n", 2, "-p", "no:cacheprovider", "-q", cwd=tmp_path,
    )  # fmt: skip
    assert ran.status == 1, ran.out + ran.err
    assert "the method ended its process (exit status 7)" in ran.out
    assert "reproduce: gradgate verify" in ran.out
    assert "not tried: in an earlier claim the method ended its process" in ran.out
    assert re.search(r"8 failed", ran.out)
    assert "worker 'gw" not in ran.out, "a pytest worker died with the method"


def test_inside_pytest_a_refuted_claim_fails_alone(several: str, process: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    ran = process(
        "-m", "pytest", "--pyargs", "gradgate.suites", "--method", f"{several}:mutates", "--family", "state_space",
        "--examples", 2, "-p", "no:cacheprovider", "-q", "-k", "pure or tree or value", cwd=tmp_path,
    )  # fmt: skip
    assert ran.status == 1, ran.out + ran.err
    assert "the call changed its input params.head" in ran.out
    assert re.search(r"1 failed, 2 passed", ran.out), ran.out


def test_inside_pytest_wrong_usage_is_told_without_a_traceback(process: Callable[..., Any], tmp_path: Path) -> None:
    ran = process(
        "-m", "pytest", "--pyargs", "gradgate.suites", "--method", "nowhere.py:f", "--family", "state_space",
        "-p", "no:cacheprovider", "-q", cwd=tmp_path,
    )  # fmt: skip
    assert ran.status in (2, 4), ran.out + ran.err
    assert "there is no file nowhere.py" in ran.out + ran.err
    assert "Traceback" not in ran.out + ran.err
