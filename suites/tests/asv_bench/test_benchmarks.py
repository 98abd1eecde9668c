"""asv's configuration, which asv itself does not check, and the attributes that every benchmark must have."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ASV = Path(__file__).resolve().parents[3] / "asv_bench"
pytestmark = pytest.mark.skipif(not ASV.exists(), reason="not a checkout")
KIND = re.compile(r"(track|time|timeraw|mem|peakmem)_")


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Every benchmark: name -> function."""
    import importlib

    monkeypatch.syspath_prepend(str(ASV))
    found = {}
    for path in sorted((ASV / "benchmarks").glob("[a-z]*.py")):
        module = importlib.import_module(f"benchmarks.{path.stem}")
        for name, owner in vars(module).items():
            if inspect.isclass(owner) and owner.__module__ == module.__name__ and not name.startswith("_"):
                methods = inspect.getmembers(owner, inspect.isfunction)
                found |= {f"{path.stem}.{name}.{called}": f for called, f in methods if KIND.match(called)}
    yield found
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def test_every_key_of_the_configuration_is_one_that_asv_knows() -> None:
    config = pytest.importorskip("asv.config", reason="asv is not installed: pip install 'gradgate[asv]'")
    from asv import util

    given = util.load_json(str(ASV / "asv.conf.json"), config.Config.api_version, js_comments=True)
    assert set(given) <= {*vars(config.Config()), "version"}
    loaded = config.Config.load(str(ASV / "asv.conf.json"))
    assert (ASV / loaded.benchmark_dir).is_dir()
    assert loaded.environment_type == "overlay"
    assert [(ASV / (name.removeprefix(".") + ".py")).is_file() for name in loaded.plugins] == [True]


def test_every_benchmark_has_a_version_and_what_is_tracked_a_unit(benchmarks: dict[str, Any]) -> None:
    assert len(benchmarks) >= 8
    for name, function in benchmarks.items():
        owner = function.__qualname__.rpartition(".")[0]
        version = getattr(function, "version", None) or _of_class(function, owner, "version")
        assert version, f"{name} has no version: an edit would make asv drop its old points"
        if KIND.match(name.rpartition(".")[2]).group(1) == "track":  # type: ignore[union-attr]
            assert getattr(function, "unit", None), f"{name} has no unit"


def test_any_rise_of_bytes_counts_as_a_regression(benchmarks: dict[str, Any]) -> None:
    pytest.importorskip("asv", reason="asv is not installed: pip install 'gradgate[asv]'")
    from asv import util

    thresholds = util.load_json(str(ASV / "asv.conf.json"), 1, js_comments=True)["regressions_thresholds"]
    for name in (
        "figures.Figures.track_temp_bytes",
        "figures.Figures.track_state_bytes",
        "figures.Figures.track_flops",
        "passes.Passes.track_residual_bytes",
        "passes.Passes.track_compiled_residual_bytes",
        "passes.Passes.track_compiled_peak_bytes",
    ):
        assert name in benchmarks
        assert max(value for pattern, value in thresholds.items() if re.match(pattern, name)) <= 1e-6


@pytest.mark.parametrize(("name", "known", "more"), [("rms_norm", 3, True), ("attention", 1, False)])
def test_the_passes_of_a_pair_are_counted(name: str, known: int, more: bool, benchmarks: dict[str, Any]) -> None:
    """The norm keeps more than its inputs, attention in blocks does not."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    owner = sys.modules["benchmarks.passes"].Passes()  # type: ignore[attr-defined]
    owner.setup(name)
    found = [function(owner, name) for called, function in benchmarks.items() if called.startswith("passes.")]
    assert len(found) == 3
    counted = [value for value in found if value is not None]
    assert len(counted) == known
    assert (min(counted) > 0) == more


def _of_class(function: Any, owner: str, name: str) -> Any:
    module = sys.modules[function.__module__]
    return getattr(getattr(module, owner), name, None)


def test_the_lock_of_the_pages_scripts_names_all_that_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ASV))
    import local

    locked = json.loads((ASV / "page" / "package-lock.json").read_text())["packages"]
    for path in local.FILES.values():
        assert locked[f"node_modules/{path.partition('/')[0]}"]["integrity"]
    monkeypatch.delitem(sys.modules, "local")


def test_what_a_second_run_does_again_is_counted(benchmarks: dict[str, Any]) -> None:
    assert "commands.Commands.track_done_again" in benchmarks
    done_again = sys.modules["benchmarks.commands"].done_again  # type: ignore[attr-defined]
    assert done_again({"verdicts": [{"reused": True}, {"reused": False}]}) == 1
    kept = {"claims": {"judged": 3, "reused": 3}, "cells": {"measured": 1, "reused": 2}}
    assert done_again(kept) == 0
    assert done_again({**kept, "cells": {"measured": 1, "reused": 1}}) == 1


@pytest.mark.parametrize("alive", [["f32[8] 32 bytes (add.1)", "f32[4] 16 bytes"], []])
def test_a_figure_has_its_peak_and_the_arrays_of_the_commit_are_written(
    alive: list[str], benchmarks: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradgate.suites.gate import side

    module = sys.modules["benchmarks.figures"]
    entry = next(entry for entry in module.ENTRIES if entry["cell"])
    known = {"temp_bytes": 48, "required_bytes": 64, "flops": 7, "peak_bytes": None, "alive": alive}

    class Measured:
        methods = (entry["method"],)

        def __init__(self, request: dict[str, Any]) -> None:
            """Measure nothing."""

        def measure(self, rows: list[dict[str, Any]], send: Any) -> None:
            send({"figure": {**known, "status": "measured", "reason": "", "cell": entry["cell"]}})

    monkeypatch.setattr(side, "Side", Measured)
    monkeypatch.setenv("GRADGATE_ALIVE", str(tmp_path))
    monkeypatch.setenv("GRADGATE_COMMIT", "a" * 40)
    found = module._measured()
    written = json.loads((tmp_path / f"{'a' * 40}.json").read_text())
    assert written == ({entry["name"]: "; ".join(alive)} if alive else {})
    figures = module.Figures()
    figures.setup(found, entry["name"])
    assert figures.track_temp_bytes(found, "") == 48
    assert figures.track_state_bytes(found, "") == 16
    assert math.isnan(figures.track_peak_bytes(found, "")), "skipped, and not failed"


def test_a_cell_is_measured_as_the_gate_does_it(
    benchmarks: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    module = sys.modules["benchmarks.figures"]
    entry = next(entry for entry in module.ENTRIES if entry["cell"] and entry["method"] == "chain:backprop:torch")
    monkeypatch.setattr(module, "ENTRIES", [entry])
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path))
    monkeypatch.delenv("GRADGATE_ALIVE", raising=False)
    found = module._measured()
    assert found[entry["name"]]["status"] == "measured", found
    assert found[entry["name"]]["temp_bytes"] > 0
