import json
import subprocess
import sys

import pytest

from gradgate.suites.cli import main

pytest.importorskip("jax", reason="JAX is not installed")

SMALL = '{"P": 8, "N": 4, "K": 1, "vocabulary": 8}'
BASE = ["memory", "--family", "state_space", "--jobs", "1", "--spec", SMALL]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))


def test_a_sweep_writes_cells_and_laws_and_a_plot(tmp_path, capsys):
    pytest.importorskip("plotly", reason="plotly is not installed: pip install 'gradgate[report]'")
    out = tmp_path / "memory.json"
    asked = ["--method", "backprop", "--sweep", "T=64:1024", "--json", str(out), "--report", str(tmp_path / "report")]
    assert main([*BASE, *asked]) == 0
    document = json.loads(out.read_text())
    assert [cell["spec"]["length"] for cell in document["cells"]] == [64, 128, 256, 512, 1024]
    named = "family method framework profile options spec temp_bytes argument_bytes output_bytes flops fits fingerprint"
    for cell in document["cells"]:
        assert set(named.split()) <= cell.keys()
        assert cell["status"] == "measured"
    law = next(law for law in document["laws"] if law["quantity"] == "temp_bytes")
    assert law["law"]["exponent"] == pytest.approx(1, abs=0.05)
    assert law["words"] in capsys.readouterr().out.replace("\n", " ")
    assert "T^1.0" in (tmp_path / "report" / "memory.html").read_text()


def test_what_cannot_be_measured_has_a_sentence_and_status_2(tmp_path, capsys):
    out = tmp_path / "memory.json"
    assert main([*BASE, "--method", "backprop", "--profile", "nvidia-k80,cpu", "--json", str(out)]) == 2
    found = {cell["profile"]: cell for cell in json.loads(out.read_text())["cells"]}
    assert found["cpu"]["status"] == "measured"
    assert found["nvidia-k80"]["status"] == "unavailable"
    assert "no compiler of today" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (
            ["--profile", "nvidia-h100"],
            "it runs on 4 devices, and nvidia-h100 is one; tpu profiles and cpu have several",
        ),
        (["--framework", "torch"], "it runs in processes of its own, which the tracker of bytes does not see"),
    ],
)
def test_what_nobody_can_measure_is_inapplicable_in_words_and_no_failure(chosen, said, tmp_path, capsys):
    if "torch" in chosen:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    out = tmp_path / "memory.json"
    base = ["memory", "--family", "state_space", "--method", "adjoint_distributed", "--jobs", "1"]
    assert main([*base, *chosen, "--json", str(out)]) == 0
    [cell] = json.loads(out.read_text())["cells"]
    assert (cell["status"], cell["reason"], cell["temp_bytes"]) == ("inapplicable", said, None)
    shown = capsys.readouterr()
    assert f"inapplicable: {said}" in shown.out.replace("\n", " ")
    assert shown.err.endswith("inapplicable\n")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--sweep", "lenght=4:8"], "nearest: length"),
        (["--sweep", "T=4"], "T=64:4096"),
        (["--sweep", "T=8:4"], "LOW must be"),
        (["--method", "backprop", "--options", '{"chunk": 3}'], "unknown option of backprop"),
        (["--options", "[1]"], "JSON object"),
        (["--spec", '{"layrs": 3}'], "nearest: layers"),
        (["--profile", "nvidia-h10"], "nvidia-h100"),
        (["--scheduler", "nonsense"], "--scheduler nonsense"),
        (["--jobs", "0"], "at least 1"),
    ],
)
def test_wrong_usage_names_what_is_legal(wrong, said, capsys):
    if "--scheduler" in wrong:
        pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'gradgate[dask]'")
    assert main([*BASE, *wrong]) == 3
    assert said in capsys.readouterr().err


def test_the_cache_shows_its_size_and_can_be_cleared(capsys):
    assert main([*BASE, "--method", "backprop"]) == 0
    capsys.readouterr()
    assert main(["cache"]) == 0
    assert capsys.readouterr().out.startswith("3 measurements")  # the compiler's bytes, the cell, and what was read
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out.startswith("removed 3 ")


DASK = """
import sys
from distributed import LocalCluster
from gradgate.suites.cli import main

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        status = main([*sys.argv[1:], "--scheduler", cluster.scheduler_address])
    sys.exit(status)
"""


def test_a_dask_cluster_of_two_workers_measures_the_sweep(tmp_path):
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'gradgate[dask]'")
    script, out = tmp_path / "cluster.py", tmp_path / "memory.json"
    script.write_text(DASK)
    asked = [*BASE, "--method", "reverse_recurrence", "--sweep", "T=16:64", "--json", str(out)]
    done = subprocess.run([sys.executable, str(script), *asked], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [cell["status"] for cell in json.loads(out.read_text())["cells"]] == ["measured"] * 3
