"""The gate on scratch repositories: what passes, what fails, the messages, and what is kept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.schemas import documents

pytestmark = pytest.mark.xdist_group("gate")

METHOD = "references/cubic/by_hand.py"
HOARD = ("    g = 2 * kept[-1]", "    hoard = [y.clone() for y in kept]\n    g = 2 * hoard[-1]")
NAME = "cubic:by_hand:torch@nvidia-h100"


def test_an_untouched_tree_passes_and_nothing_is_measured_twice(change: Any, gate: Any) -> None:
    change.commit({"README.md": "other words\n"})
    first, again = gate(change), gate(change)
    assert first.status == again.status == 0, first.out + first.err
    assert "1 of 1 cells measured" in first.out
    assert "PASS: every gated figure is the same" in first.out
    assert "reused, as nothing they depend on was touched: 2 of 2 figures" in again.out
    assert "3 of 3 gradient claims judged on the head; reused: 3" in again.out


def test_one_more_stored_activation_fails_and_is_named_with_figures(change: Any, gate: Any, tmp_path: Path) -> None:
    change.replace(METHOD, HOARD)
    change.commit()
    ran = gate(change, "--json", tmp_path / "gate.json", "--markdown", tmp_path / "gate.md")
    assert ran.status == 1, ran.out + ran.err
    document = documents.read(tmp_path / "gate.json", "gate")
    [rise] = [f for f in document["findings"] if f["kind"] == "rise"]
    assert (rise["name"], rise["quantity"]) == (NAME, "temp_bytes")
    assert rise["head"] - rise["base"] == 7 * 512 * 4, "x and six activations of 512 float32 numbers"
    assert f"RISE {NAME}" in ran.out
    assert f"+{7 * 512 * 4:,} B" in ran.out
    assert "% of 79.1 GiB" in ran.out
    assert "reproduce: gradgate memory --family cubic --method by_hand" in ran.out
    assert ran.out.rstrip().splitlines()[-1] == "FAIL: 1 figure rises" == document["verdict"]
    assert document["status"] == 1
    assert NAME in (tmp_path / "gate.md").read_text()


def test_two_runs_with_caches_of_their_own_give_identical_figures(
    change: Any, gate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change.replace(METHOD, HOARD)
    change.commit()
    found = []
    for name in ("one", "two"):
        monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / name))
        gate(change, "--json", tmp_path / f"{name}.json")
        document = json.loads((tmp_path / f"{name}.json").read_text())
        assert document["cells"]["reused"] == document["claims"]["reused"] == 0
        found.append([(f["name"], f["quantity"], f["base"], f["head"]) for f in document["findings"]])
    assert found[0] == found[1]
    assert found[0]


def test_a_fall_passes_and_is_said(change: Any, gate: Any) -> None:
    change.replace(METHOD, ('[problem.data["x"]]', '[problem.data["x"]]'), HOARD)
    worse = change.commit()
    change.git("branch", "--force", "worse", worse)
    change.git("revert", "--no-edit", "HEAD")
    ran = gate(change, base="worse")
    assert ran.status == 0, ran.out
    assert "PASS: only improvements, 1 figure falls" in ran.out


def test_a_commit_that_only_renames_passes(change: Any, gate: Any) -> None:
    change.git("mv", METHOD, "references/cubic/hand.py")
    change.replace("references/cubic/hand.py", ("def by_hand", "def manual"), ("kept", "stored"))
    change.replace("references/cubic/__init__.py", (".by_hand:by_hand", ".hand:manual"), ('"by_hand"', '"manual"'))
    change.commit()
    ran = gate(change)
    assert ran.status == 0, ran.out
    assert "renamed cubic:by_hand:torch\n  is cubic:manual:torch now" in ran.out
    assert "1 of 1 cells" in ran.out


def test_a_rise_behind_an_edited_benchmark_fails(change: Any, gate: Any) -> None:
    change.replace(METHOD, HOARD)
    change.replace("references/cubic/__init__.py", ('"width": 4096, "depth": 6', '"width": 8, "depth": 1'))
    change.commit()
    ran = gate(change)
    assert ran.status == 1, ran.out
    assert "2 of 2 cells" in ran.out
    assert f"edited {NAME}" in ran.out
    assert f"+{7 * 512 * 4:,} B" in ran.out


def test_deleted_cells_claims_and_benchmarks_fail_each_by_name(change: Any, gate: Any) -> None:
    change.replace(
        "references/cubic/__init__.py",
        ('("tree", "value", ', '("tree", '),
        ("tuple(CLAIMS))", 'tuple(CLAIMS), unmeasured="not today")'),
    )
    change.replace("asv_bench/benchmarks/figures.py", ("track_bytes", "bytes"))
    change.commit()
    ran = gate(change)
    assert ran.status == 1, ran.out
    assert f"GONE {NAME}\n  a gated cell of the base is gone" in ran.out
    assert "WITHDRAWN cubic:by_hand:torch:value" in ran.out
    assert "GONE figures.Figures.track_bytes" in ran.out
    assert "0 of 1 cells" in ran.out


def test_a_wrong_gradient_fails_and_cannot_be_declared_away(change: Any, gate: Any) -> None:
    change.replace(METHOD, ("g = d * w[k]", "g = d * w[k] * (1 + 1e-7)"))
    change.commit()
    ran = gate(change)
    assert ran.status == 1, ran.out
    assert "REFUTED cubic:by_hand:torch:gradient_float64" in ran.out
    assert "reproduce: gradgate verify --family cubic" in ran.out
    change.replace(
        "references/cubic/__init__.py",
        ("contract_claims()", 'contract_claims(expected="refuted", declared_reason="so")'),
    )
    change.commit()
    ran = gate(change)
    assert ran.status == 1, ran.out
    assert "WITHDRAWN cubic:by_hand:torch:gradient_float64\n  claimed on the base, declared false now" in ran.out


def test_an_allowed_rise_passes_up_to_its_ceiling(change: Any, gate: Any) -> None:
    change.replace(METHOD, HOARD)
    entry = f'[[allow]]\ncell = "{NAME}"\nceiling = 99999999\nreason = "on purpose"\nexpires = 2999-01-01\n'
    change.commit({"gradgate_allow.toml": entry})
    ran = gate(change)
    assert ran.status == 0, ran.out
    assert f"allowed {NAME}" in ran.out
    assert "on purpose" in ran.out
    change.commit({"gradgate_allow.toml": entry.replace("99999999", "20")})
    ran = gate(change)
    assert ran.status == 1
    assert "above the ceiling 20" in ran.out
    change.commit({"gradgate_allow.toml": entry.replace("2999", "2001")})
    ran = gate(change)
    assert ran.status == 1
    assert f"expired {NAME}" in ran.out


def test_a_method_that_cannot_run_any_more_fails(change: Any, gate: Any) -> None:
    change.replace(METHOD, ("    w, kept", "    raise RuntimeError('broken')\n    w, kept"))
    change.commit()
    ran = gate(change)
    assert ran.status == 1, ran.out
    assert f"FAILED {NAME}" in ran.out
    assert "RuntimeError: broken" in ran.out
    assert "0 of 1 cells" in ran.out


def test_a_cache_that_cannot_be_written_is_said_with_status_2(
    change: Any, gate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "file" / "cache"))
    ran = gate(change)
    assert ran.status == 2
    assert "cannot be written" in ran.err
    assert "GRADGATE_CACHE" in ran.err


def test_killed_in_the_middle_it_goes_on_where_it_was_and_a_damaged_entry_is_measured_again(
    change: Any, gate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path))
    command = [sys.executable, "-m", "gradgate.suites.cli", "gate", "--base", "main"]
    started = subprocess.Popen(command, cwd=change.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not list(tmp_path.rglob("*.json")):  # the first figure is kept
        assert time.monotonic() < deadline
        assert started.poll() is None
        time.sleep(0.02)
    started.send_signal(signal.SIGKILL)
    started.wait()
    kept = sorted(tmp_path.rglob("*.json"))
    ran = gate(change, "--json", tmp_path / "gate.json.out")
    assert ran.status == 0, ran.out + ran.err
    assert json.loads((tmp_path / "gate.json.out").read_text())["cells"]["reused"] >= 1
    kept[0].write_text("{ half of it")
    ran = gate(change)
    assert ran.status == 0, ran.out + ran.err
    assert "1 of 1 cells" in ran.out


FOREIGN = """import torch
from helper import square


def mine(problem):
    grads, loss = torch.func.grad_and_value(problem.loss)(problem.params)
    return loss, grads
"""


def test_a_foreign_repository_is_gated_by_its_pyproject(gate: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from gradgate.suites.tests.scratch import Scratch

    other = Scratch(tmp_path / "other")
    settings = (
        '[tool.gradgate]\nprofiles = ["cpu"]\nexamples = 1\npath = ["src"]\n'
        '[[tool.gradgate.methods]]\ntarget = "mine.py:mine"\nfamily = "state_space"\nframework = "torch"\n'
        "spec = {length = 8}\n"
    )
    other.commit({"pyproject.toml": settings, "mine.py": FOREIGN, "src/helper.py": "square = 1\n"})
    other.git("checkout", "--quiet", "-b", "change")
    other.commit({"src/helper.py": "square = 2\n"})
    ran = gate(other)
    assert ran.status == 0, ran.out + ran.err
    assert "1 of 1 cells" in ran.out
    assert "0 of 2 figures" in ran.out, "the base and the head differ in a module that is imported"
    other.replace("mine.py", ("    return loss, grads", "    return loss * 2, grads"))
    other.commit()
    ran = gate(other)
    assert ran.status == 1, ran.out
    assert "REFUTED state_space:mine:torch:value" in ran.out
    assert "gradgate verify mine.py:mine" in ran.out


def test_a_module_outside_the_project_is_refused_since_both_sides_would_import_the_same(
    gate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    from gradgate.suites.tests.scratch import Scratch

    (tmp_path / "installed").mkdir()
    (tmp_path / "installed" / "elsewhere.py").write_text("import torch\ndef mine(problem): ...\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    other = Scratch(tmp_path / "other")
    methods = '[[tool.gradgate.methods]]\ntarget = "elsewhere:mine"\nfamily = "state_space"\n'
    other.commit({"pyproject.toml": methods})
    ran = gate(other)
    assert ran.status == 3
    assert "elsewhere is not among the project's files" in ran.err
