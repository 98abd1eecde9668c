"""Foreign code may do anything: it gets a verdict with a reason, and the run continues."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import FRAMEWORKS, UsageError, installed
from gradgate.suites.bugs import hostile
from gradgate.suites.bugs.hostile.fault import FAMILY, Fault, is_sentence
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.workers.supervisor import Limits, Supervisor

GOOD = "gradgate.suites.bugs.hostile.fault:good"
PATIENT = 120.0
AFTER = ("tree", "pure", "gradient_float64")
"""The claims by which the good method is judged after each kind of fault."""
TRIED = [
    pytest.param(name, fault, id=f"{fault.name}-{name}", marks=pytest.mark.xdist_group(f"hostile:{name}"))
    for name in FRAMEWORKS
    for fault in hostile.FAULTS
    if name not in fault.not_in
]


def judge(supervisor: Supervisor, target: str, *claims: str) -> list[Verdict]:
    tasks = supervisor.describe(target, FAMILY, None)
    return [supervisor.judge(task) for task in tasks if not claims or task.claim in claims]


Judged = Callable[[str], tuple[dict[str, Verdict], list[Verdict]]]


@pytest.fixture(scope="module")
def judged(request: pytest.FixtureRequest) -> Judged:
    """Verdicts of a framework on every fault that was asked for, by its name, and on a good method after each kind.

    One worker at a time judges them all, when the first is needed.
    """
    params = [
        item.callspec.params
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    asked = {(each["framework"], each["fault"].name) for each in params if isinstance(each.get("fault"), Fault)}

    @functools.cache
    def verdicts(framework: str) -> tuple[dict[str, Verdict], list[Verdict]]:
        if not installed(framework):
            pytest.skip(f"{framework} is not installed")
        found: dict[str, Verdict] = {}
        good: list[Verdict] = []
        with Supervisor(Run(examples=1), jobs=1) as supervisor:
            # The worker that survives all faults of the first kind also judges the good method after them.
            for ends in ("", "process", "memory", "time"):
                faults = [each for each in hostile.FAULTS if each.ends == ends and (framework, each.name) in asked]
                if faults:
                    supervisor.limits = Limits(10 if ends == "time" else PATIENT, 2**30 if ends == "memory" else 0)
                    tasks = [_task(fault.target, framework, fault.claim) for fault in faults]
                    found |= {verdict.task.method: verdict for verdict in supervisor.judge_all(tasks)}
                    supervisor.limits = Limits(PATIENT)
                    again = [_task(GOOD, framework, claim) for claim in AFTER]
                    good += supervisor.judge_all(again)
        return found, good

    return verdicts


def _task(target: str, framework: str, claim: str) -> Task:
    return Task(FAMILY, target.rpartition(":")[2], framework, claim, target)


@pytest.mark.parametrize(("framework", "fault"), TRIED)
def test_each_fault_has_its_verdict_and_its_sentence(framework: str, fault: Fault, judged: Judged) -> None:
    verdict = judged(framework)[0][fault.name]
    assert verdict.verdict == fault.verdict, verdict
    assert fault.told_by(verdict.reason), verdict.reason
    assert "\n" not in verdict.reason
    assert verdict.spec is not None
    assert fault.target in verdict.reproduce
    assert "--spec" in verdict.reproduce


@pytest.mark.parametrize(
    "framework", [pytest.param(name, marks=pytest.mark.xdist_group(f"hostile:{name}")) for name in FRAMEWORKS]
)
def test_no_fault_harms_a_good_method_after_it(framework: str, judged: Judged) -> None:
    faults, good = judged(framework)
    if not faults:
        pytest.skip(f"no fault in {framework} was asked for")
    assert len(good) == len(AFTER) * len({each.ends for each in hostile.FAULTS if each.name in faults})
    assert all(verdict.verdict == "upheld" for verdict in good), good


def test_the_table_in_contributing_is_this_one() -> None:
    text = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert hostile.table() in text, "paste gradgate.suites.bugs.hostile.table()"


@pytest.mark.parametrize(("code", "message"), hostile.IMPORTS, ids=[code[:20] for code, _ in hostile.IMPORTS])
def test_an_import_that_fails_is_wrong_usage_in_words(code: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(code + "\n\ndef good(problem):\n    return problem\n")
    limits = Limits(2 if "hung" in message else PATIENT)
    with Supervisor(Run(examples=1), jobs=1, limits=limits) as supervisor, pytest.raises(UsageError) as caught:
        supervisor.describe(f"{path}:good", FAMILY, "torch")
    start, said = f"importing {path}:good", str(caught.value)
    assert said.startswith(start), said
    assert is_sentence(message, said.removeprefix(start).lstrip(": ")), said


def test_a_target_that_is_no_function_is_wrong_usage(plugin: Callable[..., str]) -> None:
    target = f"{plugin('mine = 1.0')}:mine"
    with Supervisor(Run(examples=1), jobs=1) as supervisor, pytest.raises(UsageError, match="'mine' is a float, no"):
        supervisor.describe(target, FAMILY, "torch")


DEEP = """
def wrong_only_in_depth(problem):
    loss, grads = good(problem)
    if problem.spec.layers >= 3:
        grads["layers"]["B"]["b0"] = grads["layers"]["B"]["b0"] * (1 + 1e-9)
    return loss, grads
"""


def test_the_smallest_failing_problem_is_the_one_shown(plugin: Callable[..., str], patient: Supervisor) -> None:
    [found] = judge(patient, f"{plugin(DEEP)}:wrong_only_in_depth", "gradient_float64")
    assert found.verdict == "refuted"
    assert found.reason.startswith("wrong gradient of layers[")
    assert found.spec is not None
    assert found.spec["layers"] == 3
    assert found.error == pytest.approx(1e-9, rel=1e-3)
    assert found.noise is not None
    assert found.noise < 1e-12


UNTRACEABLE = """
def not_traceable(problem):
    loss, grads = good(problem)
    if float(loss) < 0:
        raise AssertionError
    return loss, grads
"""


def test_a_jax_method_that_cannot_be_traced_is_judged_as_it_is(plugin: Callable[..., str]) -> None:
    target = f"{plugin(UNTRACEABLE, 'jax')}:not_traceable"
    with Supervisor(Run(examples=1), jobs=1, limits=Limits(PATIENT)) as supervisor:
        [found] = judge(supervisor, target, "gradient_float64")
    assert found.verdict == "upheld", found


@pytest.mark.parametrize("claim", ["pure", "upstream", "stability", "gradient_float32"])
def test_a_fault_is_a_fault_and_a_wrong_form_is_refuted_in_every_claim(claim: str, patient: Supervisor) -> None:
    pytest.importorskip("torch")
    for name, expected in (("crashes:raises", "error"), ("crashes:exits", "error"), ("answers:a_none_leaf", "refuted")):
        verdict = patient.judge(_task(f"gradgate.suites.bugs.hostile.{name}", "torch", claim))
        assert verdict.verdict == expected, verdict


def test_the_exit_status_tells_a_mixture_of_refuted_and_broken_from_broken_alone() -> None:
    from gradgate.suites.judging.outcomes import exit_status

    refuted, broken = (Verdict(Task("f", "m", "jax", c), v) for c, v in (("a", "refuted"), ("b", "error")))
    assert exit_status([refuted, broken]) == 1
    assert exit_status([broken]) == 2


@pytest.mark.parametrize(
    ("name", "status", "last"),
    [
        ("fault:good", 0, "as claimed"),
        ("answers:half", 1, "NOT as claimed"),
        ("crashes:raises", 2, "not everything could be measured"),
    ],
)
def test_the_exit_status_says_what_happened(
    name: str, status: int, last: str, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    file = tmp_path / "v.json"
    ran = gradgate(
        "verify",
        f"gradgate.suites.bugs.hostile.{name}",
        "--family",
        FAMILY,
        "--framework",
        "torch",
        "--examples",
        2,
        "--jobs",
        1,
        "--json",
        file,
    )
    assert ran.status == status, ran
    assert ran.out.rstrip().endswith(last)
    assert "Traceback" not in ran.out + ran.err
    document = json.loads(file.read_text())
    assert len(document["verdicts"]) == document["claims"]
    if status:
        assert "reproduce: gradgate verify" in ran.out
