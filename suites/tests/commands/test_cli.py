"""The command line as a user sees it: JSON schemas, exit status, messages, and what an interrupted run keeps."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gradgate.references import registry
from gradgate.references.registry import spec_class
from gradgate.suites.commands import COMMANDS
from gradgate.suites.judging.outcomes import VERDICTS
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.workers.supervisor import Supervisor

QUICK = ("verify", "--family", "state_space", "--method", "backprop", "--framework", "torch", "--jobs", 1)
VERDICT_KEYS = {
    "family",
    "method",
    "framework",
    "claim",
    "verdict",
    "expected",
    "examples",
    "error",
    "noise",
    "leaf",
    "spec",
    "profile",
    "reason",
    "declared_reason",
    "seconds",
    "reproduce",
}


def test_list_json_has_the_stable_names(gradgate: Callable[..., Any]) -> None:
    ran = gradgate("list", "--json")
    assert ran.status == 0
    [*methods] = json.loads(ran.out)["methods"]
    assert methods
    for method in methods:
        assert {"family", "method", "framework", "claims", "options"} <= method.keys()
        assert method["claims"]
        for claim in method["claims"]:
            assert {"name", "statement", "source", "expected"} <= claim.keys()
            assert claim["expected"] in ("upheld", "refuted")
    named = {(m["method"], m["framework"]) for m in methods if m["family"] == "state_space"}
    expected = {
        "backprop",
        "adjoint_sharding",
        "adjoint_sharding_printed",
        "adjoint_truncated",
        "reverse_recurrence",
        "adjoint_distributed",
        "adjoint_distributed_truncated",
        "adjoint_parallel",
        "associative_scan",
    }
    assert named == {(name, framework) for name in expected for framework in ("jax", "torch")}


def test_list_narrows_to_what_is_asked_for_and_reads_as_text(gradgate: Callable[..., Any]) -> None:
    ran = gradgate("list", "--method", "reverse_recurrence", "--framework", "torch")
    assert ran.status == 0
    assert "state_space reverse_recurrence torch" in ran.out
    assert "chunk: an integer of at least 1" in ran.out
    assert "backprop torch" not in ran.out


def test_list_marks_what_is_expected_to_be_refuted(gradgate: Callable[..., Any]) -> None:
    assert "(expected: refuted)" in gradgate("list", "--method", "adjoint_sharding_printed").out


def test_profiles_json_has_the_stable_names(gradgate: Callable[..., Any]) -> None:
    ran = gradgate("profiles", "--json")
    assert ran.status == 0
    rows = json.loads(ran.out)["profiles"]
    names = {"name", "kind", "memory_bytes", "bandwidth", "compiler", "available", "extra"}
    assert all(names <= row.keys() for row in rows)
    assert {"cpu", "nvidia-h100", "tpu-v5e"} <= {row["name"] for row in rows}
    assert "nvidia-h100" in gradgate("profiles").out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_the_exit_status_and_fits_a_terminal(
    command: str, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = gradgate(command, "--help")
    assert ran.status == 0
    assert f"usage: gradgate {command}" in ran.out
    assert "exit status:\n  0  as claimed" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize(("columns", "beside"), [("80", False), ("120", True)])
def test_what_an_example_does_stands_beside_it_only_where_there_is_room(
    columns: str, beside: bool, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    told = gradgate("watch", "--help").out
    assert ("gradgate watch pytest tests  " in told) == beside
    assert ("gradgate watch pytest tests\n      what your tests call" in told) != beside


@pytest.mark.parametrize("command", [[], *([c] for c in COMMANDS)])
def test_help_shows_examples(command: list[str], gradgate: Callable[..., Any]) -> None:
    ran = gradgate(*command, "--help")
    assert ran.status == 0
    assert "example" in ran.out
    assert f"  gradgate {' '.join(command)}".rstrip() in ran.out


WRONG = [
    (("verify", "--family", "state_spce"), "unknown family 'state_spce'; legal: .*state_space.*; nearest: state_space"),
    (("list", "--family", "chian"), "unknown family 'chian'; legal: .*state_space.*"),
    (
        ("verify", "--method", "reverse_recurence"),
        "unknown method 'reverse_recurence'; legal: .*adjoint_sharding.*; nearest: reverse_recurrence",
    ),
    (("list", "--framework", "pytorch"), "unknown framework 'pytorch'; legal: jax, torch; nearest: torch"),
    ((*QUICK, "--claim", "gradient_float46"), "unknown claim 'gradient_float46'; legal: .*; nearest: gradient_float64"),
    ((*QUICK, "--profile", "cup"), "unknown profile 'cup'; did you mean 'cpu'.* Known: .*cpu.*"),
    ((*QUICK, "--profile", "no/such.toml"), ".*no/such.toml.*"),
    (
        (*QUICK, "--spec", "{length: 3}"),
        "--spec is a JSON object, such as '{\"dtype\": .*}'; '{length: 3}' is not JSON: .*",
    ),
    ((*QUICK, "--spec", '{"lenght": 3}'), "unknown Spec field 'lenght'; legal: .*; nearest: length"),
    ((*QUICK, "--spec", '{"length": 0}'), "length must be at least 1, not 0"),
    ((*QUICK, "--spec", '{"norm": null}'), "norm must be a string, not None"),
    ((*QUICK, "--spec", "{}", "--options", "[1]"), r"--options is a JSON object, such as '{.*}', not '\[1\]'"),
    ((*QUICK, "--spec", "{}", "--options", "{"), "--options is a JSON object, such as '{.*}'; '{' is not JSON: .*"),
    ((*QUICK, "--options", "{}"), "--options belong to one problem: give it with --spec"),
    ((*QUICK, "--examples", 0), "argument --examples: must be at least 1, not 0; see gradgate verify --help"),
    ((*QUICK, "--examples", "many"), "argument --examples: must be an integer, not 'many'; see gradgate verify --help"),
    ((*QUICK, "--jobs", -1), "argument --jobs: must be at least 1, not -1; see gradgate verify --help"),
    ((*QUICK, "--timeout", 0), "argument --timeout: must be positive, not 0; see gradgate verify --help"),
    ((*QUICK, "--timeout", "nan"), "argument --timeout: must be positive, not nan; see gradgate verify --help"),
    (("verify", "--exmples", 3), "unrecognized arguments: --exmples; see gradgate --help"),
    (("verfy",), "argument command: invalid choice: 'verfy' .*; see gradgate --help"),
    ((), "the following arguments are required: command; see gradgate --help"),
    (("verify", "mine.py:f"), "there is no file mine.py"),
    (
        ("verify", "json:dumps"),
        "json:dumps is no gradgate.Pair; say which problems it solves: --family .*state_space.*",
    ),
    (("verify", "mine.py:f", "--family", "x"), "unknown family 'x'; legal: .*state_space.*"),
    (("verify", "nowhere.py:f", "--family", "state_space"), "there is no file nowhere.py"),
    (("verify", "no.such.module:f", "--family", "state_space"), "no.such.module:f: there is no module 'no'; is its .*"),
    (
        ("verify", "mine", "--family", "state_space"),
        "a target is package.module:function or file.py:function, not 'mine'",
    ),
    (
        ("report", "no/verdicts.json"),
        "cannot read no/verdicts.json: No such file or directory; gradgate verify --report.*",
    ),
    (("calibrate", "--family", "nope"), "unknown family 'nope'; legal: .*state_space.*"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG, ids=[" ".join(map(str, a))[-40:] or "none" for a, _ in WRONG])
def test_wrong_usage_is_status_three_and_one_sentence(
    arguments: tuple[Any, ...], message: str, gradgate: Callable[..., Any]
) -> None:
    ran = gradgate(*arguments)
    assert ran.status == 3, ran
    assert ran.out == ""
    assert re.fullmatch(f"gradgate: {message}\n", ran.err), ran.err


def test_a_missing_function_names_the_nearest(plugin: Callable[..., str], gradgate: Callable[..., Any]) -> None:
    path = plugin("\ndef other(problem):\n    return good(problem)\n")
    ran = gradgate("verify", f"{path}:god", "--family", "state_space")
    assert ran.status == 3
    assert ran.err == f"gradgate: unknown function in {path} 'god'; legal: good, other; nearest: good\n"


def test_a_file_whose_framework_cannot_be_told_asks_for_it(tmp_path: Path, gradgate: Callable[..., Any]) -> None:
    (tmp_path / "mine.py").write_text("def f(problem):\n    return None\n")
    ran = gradgate("verify", tmp_path / "mine.py:f", "--family", "state_space")
    assert ran.status == 3
    assert "its module imports neither JAX nor PyTorch; say --framework jax or --framework torch" in ran.err
    ran = gradgate("verify", tmp_path / "mine.py:f", "--family", "state_space", "--framework", "tensorflow")
    assert ran.status == 3
    assert "unknown framework 'tensorflow'; legal: jax, torch" in ran.err


def test_verify_json_has_the_schema(torch: Any, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "deep" / "verdicts.json"
    ran = gradgate(*QUICK, "--claim", "gradient_float64", "--examples", 3, "--json", file)
    assert ran.status == 0, ran
    assert "1 of 1 claims as declared: as claimed" in ran.out
    document = json.loads(file.read_text())
    assert document["schema"] == 1
    assert isinstance(document["fingerprint"], dict)
    [row] = document["verdicts"]
    assert row.keys() >= VERDICT_KEYS
    assert row["verdict"] in VERDICTS
    assert (row["family"], row["method"], row["framework"]) == ("state_space", "backprop", "torch")
    assert (row["claim"], row["verdict"], row["expected"]) == ("gradient_float64", "upheld", "upheld")
    assert (row["examples"], row["profile"]) == (3, "cpu")
    assert 0 <= row["error"] < row["noise"] * 16
    assert spec_class("state_space")(**row["spec"]).to_json()
    assert row["seconds"] > 0
    assert list(file.parent.iterdir()) == [file], "no draft is left"


def test_a_spec_replays_one_problem_with_its_options(torch: Any, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    file, spec = tmp_path / "v.json", {"length": 7, "layers": 2, "seed": 11}
    ran = gradgate(
        "verify",
        "--family",
        "state_space",
        "--method",
        "reverse_recurrence",
        "--framework",
        "torch",
        "--claim",
        "gradient_float64",
        "--spec",
        json.dumps(spec),
        "--options",
        '{"chunk": 4}',
        "--json",
        file,
        "--jobs",
        1,
    )
    assert ran.status == 0, ran
    [row] = json.loads(file.read_text())["verdicts"]
    assert (row["examples"], row["options"]) == (1, {"chunk": 4})
    assert row["spec"] == {**row["spec"], **spec}


def test_the_command_that_is_printed_reproduces_the_failure(
    plugin: Callable[..., str], gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    path = plugin(
        "\ndef half(problem):\n    loss, grads = good(problem)\n"
        "    return loss, {**grads, 'head': grads['head'] * (0.5 if problem.spec.layers > 1 else 1.0)}\n"
    )
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    asked = ("verify", f"{path}:half", "--family", "state_space", "--claim", "gradient_float64", "--examples", 12)
    assert gradgate(*asked, "--json", first).status == 1
    [row] = json.loads(first.read_text())["verdicts"]
    word, *again = shlex.split(row["reproduce"])
    assert word == "gradgate"
    assert gradgate(*again, "--json", second).status == 1
    [replayed] = json.loads(second.read_text())["verdicts"]
    for key in ("verdict", "error", "noise", "leaf", "spec", "reason"):
        assert replayed[key] == row[key]
    assert (row["spec"]["layers"], replayed["examples"]) == (3, 1)


def test_an_erratum_is_a_finding_and_not_a_failure(torch: Any, gradgate: Callable[..., Any]) -> None:
    ran = gradgate(
        "verify",
        "--method",
        "adjoint_sharding_printed",
        "--framework",
        "torch",
        "--claim",
        "gradient_float64",
        "--examples",
        12,
        "--jobs",
        1,
    )
    assert ran.status == 0, ran
    assert "finding: refuted, as declared" in ran.out
    assert "declared false because: every layer is fed dl/dy_K" in ran.out
    assert "reproduce: gradgate verify --family state_space --method adjoint_sharding_printed" in ran.out
    assert "layers[0]" in ran.out
    assert "exact in head, layers[2]" in " ".join(ran.out.split())


def test_the_same_seed_gives_the_same_verdicts_bit_for_bit_with_one_worker_or_two_and_inside_pytest(
    torch: Any, process: Callable[..., Any], tmp_path: Path
) -> None:
    chosen = [registry.methods("state_space", name, "torch")[0] for name in ("backprop", "reverse_recurrence")]
    tasks = [Task.of(method, method.claim(claim)) for method in chosen for claim in ("gradient_float64", "value")]

    def verdicts(jobs: int, seed: int = 0) -> dict[str, dict[str, Any]]:
        with Supervisor(Run(examples=14, seed=seed), jobs) as supervisor:
            rows = {v.task.name: v.to_dict() for v in supervisor.judge_all(tasks)}
        for row in rows.values():
            del row["seconds"], row["record"]  # which worker read a file first is no part of a verdict
        return rows

    one, two, other = verdicts(1), verdicts(2), verdicts(2, seed=1)
    assert json.dumps(one, sort_keys=True) == json.dumps(two, sort_keys=True)
    assert all(one[name]["spec"] != row["spec"] for name, row in other.items())

    pytest.importorskip("xdist")
    ran = process(
        "-m",
        "pytest",
        "--pyargs",
        "gradgate.suites",
        "--framework",
        "torch",
        "--family",
        "state_space",
        "-q",
        "--examples",
        14,
        "-k",
        "test_claim and (backprop or recurrence) and (gradient_float64 or value)",
        "-n",
        2,
        "--junitxml",
        "junit.xml",
        "-p",
        "no:cacheprovider",
        cwd=tmp_path,
    )
    assert ran.status == 0, ran.out + ran.err
    cases = [
        {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in ElementTree.parse(tmp_path / "junit.xml").getroot().iter("testcase")
    ]
    assert len(cases) == len(tasks)
    for found in cases:
        row = one[":".join(str(found[key]) for key in ("family", "method", "framework", "claim"))]
        for key, value in row.items():
            assert found[key] == str(value), (found["method"], key)


# A job that a shell starts in the background ignores SIGINT, and its children inherit this: so Python's handler is set.
INTERRUPTIBLE = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from gradgate.suites.cli import main; sys.exit(main(sys.argv[1:]))"
)


@pytest.mark.skipif(os.name != "posix", reason="SIGINT")
def test_an_interrupted_run_keeps_what_was_measured_and_is_status_two(
    plugin: Callable[..., str], tmp_path: Path, gradgate: Callable[..., Any]
) -> None:
    path = plugin(
        "\nimport time\n\ndef stops(problem):\n    if problem.spec.upstream != 1.0:\n"
        "        time.sleep(1000)\n    return good(problem)\n"
    )
    file = tmp_path / "v.json"
    running = subprocess.Popen(
        [
            sys.executable,
            "-c",
            INTERRUPTIBLE,
            "verify",
            f"{path}:stops",
            "--family",
            "state_space",
            "--examples",
            "8",
            "--jobs",
            "1",
            "--timeout",
            "600",
            "--json",
            str(file),
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    for _ in range(1200):
        if file.exists() or running.poll() is not None:
            break
        time.sleep(0.1)
    time.sleep(1)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 2, out + err
    assert "interrupted; what was measured is kept" in err
    assert "Traceback" not in err
    document = json.loads(file.read_text())
    assert 0 < len(document["verdicts"]) < document["claims"]
    assert all(row["verdict"] == "upheld" for row in document["verdicts"])
    pytest.importorskip("jinja2")
    assert gradgate("report", file).status == 2, "it was cut off"
    assert (tmp_path / "v" / "index.html").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"verdicts": [{}]}', '{"verdicts": 3}', "\x00\xff"])
def test_report_of_a_broken_file_is_wrong_usage(text: str, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    file = tmp_path / "verdicts.json"
    file.write_bytes(text.encode("latin-1"))
    ran = gradgate("report", file)
    assert ran.status == 3, ran
    assert ran.err.startswith(f"gradgate: {file} ")
    assert ran.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [file]


def test_a_report_is_written_beside_the_verdicts_that_verify_wrote(
    torch: Any, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("jinja2")
    ran = gradgate(*QUICK, "--claim", "tree", "--examples", 1, "--report", tmp_path / "r")
    assert ran.status == 0, ran
    assert {p.name for p in (tmp_path / "r").iterdir()} == {
        "index.html",
        "verdicts.json",
        "junit.xml",
        "failures.sarif",
        "plotly.min.js",
    }
    assert "index.html" in ran.err


def test_a_file_that_cannot_be_written_is_wrong_usage(torch: Any, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = gradgate(*QUICK, "--claim", "tree", "--examples", 1, "--json", tmp_path / "file" / "v.json")
    assert ran.status == 3
    assert "gradgate: cannot write" in ran.err


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    if os.name != "posix":
        pytest.skip("pipes of a shell")
    ran = subprocess.run(
        f"{sys.executable} -m gradgate.suites.cli list --json | head -c 10",
        shell=True,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stderr == ""
    assert len(ran.stdout) == 10
