import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gradgate.hw_profiles.sweep import Cell, dask_executor, measure_cell, run

pytest.importorskip("jax", reason="JAX is not installed")


def dense(programs, *sizes):
    return [Cell(f"{programs}:dense", "cpu", static={"n": n}, label=n) for n in sizes]


def by_label(results):
    return {cell.label: measurement for cell, measurement in results}


def test_local_processes_measure_every_cell_with_the_bytes_of_this_process(programs):
    cells = dense(programs, 8, 16, 24)
    found = by_label(run(cells, workers=2))
    assert {n: m.temp_bytes for n, m in found.items()} == {c.label: measure_cell(c).temp_bytes for c in cells}


def test_a_worker_that_dies_loses_nothing(programs, tmp_path):
    flag = str(tmp_path / "died")
    deaths = [
        Cell(f"{programs}:die", "cpu", label="dies"),
        Cell(f"{programs}:die_once", "cpu", static={"flag": flag}, label="once"),
    ]
    cells = dense(programs, 8, 10) + deaths + dense(programs, 12, 14)
    found = by_label(run(cells, workers=2))
    assert len(found) == 6
    assert found.pop("dies").reason == "the worker process died twice on this cell"
    assert {m.status for m in found.values()} == {"measured"}


def test_what_a_cell_raises_is_its_status_and_the_sweep_goes_on(programs):
    cells = [
        Cell(f"{programs}:leave", "cpu", label="leaves"),
        Cell(f"{programs}:none", "cpu", label="missing"),
        Cell("nonsense", "cpu", label="nonsense"),
        Cell(f"{programs}:dense", "no-such", static={"n": 8}, label="profile"),
        Cell(f"{programs}:hang", "cpu", options={"limit": 0.5}, label="hangs"),
        *dense(programs, 8),
    ]
    found = by_label(run(cells, workers=2))
    assert found[8].status == "measured"
    assert found["leaves"].reason == "SystemExit: 4"
    assert "has no attribute 'none'" in found["missing"].reason
    assert "legal: 'pkg.mod:fn'" in found["nonsense"].reason
    assert "unknown profile 'no-such'" in found["profile"].reason
    assert found["hangs"].status == "timeout"


def test_any_executor_will_do_and_a_cell_may_carry_its_program(programs):
    import jax

    cells = [Cell(jax.numpy.sin, "cpu", (jax.ShapeDtypeStruct((n,), "float32"),), label=n) for n in (10, 20)]
    with ThreadPoolExecutor(2) as executor:
        found = by_label(run(cells + dense(programs, 8), executor))
    assert (found[10].output_bytes, found[20].output_bytes) == (40, 80)
    assert found[8].status == "measured"


def test_an_executor_that_is_shut_down_gives_every_cell_a_reason(programs):
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    (found,) = by_label(run(dense(programs, 8), executor)).values()
    assert found.status == "failed"
    assert "lost twice" in found.reason


def test_a_dask_cluster_of_two_workers_loses_nothing_when_one_dies(programs, tmp_path):
    pytest.importorskip("distributed", reason="dask.distributed is not installed: pip install 'gradgate[dask]'")
    script = tmp_path / "cluster.py"
    script.write_text(DASK)
    arguments = [sys.executable, str(script), programs, str(tmp_path / "died")]
    # This runs in a separate process: a cluster leaves threads and handlers behind.
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["10 measured", "12 measured", "14 measured", "8 measured", "once measured"], (
        done.stderr
    )


DASK = """
import sys
from distributed import LocalCluster
from gradgate.hw_profiles.sweep import Cell, dask_executor, run

if __name__ == "__main__":
    programs, flag = sys.argv[1:]
    cells = [Cell(f"{programs}:dense", "cpu", static={"n": n}, label=n) for n in (8, 10, 12, 14)]
    cells.insert(1, Cell(f"{programs}:die_once", "cpu", static={"flag": flag}, label="once"))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with dask_executor(cluster.scheduler_address) as executor:
            found = [f"{cell.label} {m.status}" for cell, m in run(cells, executor)]
    print(*sorted(found), sep="\\n")
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dask_cluster_without_a_worker_says_what_it_waits_for(workers, caplog):
    distributed = pytest.importorskip("distributed", reason="pip install 'gradgate[dask]'")
    local = distributed.LocalCluster(n_workers=workers, threads_per_worker=1, processes=False, dashboard_address=None)
    with local as cluster, dask_executor(cluster.scheduler_address):
        said = [one.getMessage() for one in caplog.records if one.name == "gradgate.hw_profiles.sweep"]
    address = cluster.scheduler_address
    wait = f"{address} has no worker yet: the work waits until one is started with `dask worker {address}`"
    assert said == ([wait] if workers == 0 else [])


def test_dask_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"gradgate\[dask\]"), dask_executor("tcp://127.0.0.1:1"):
        pass


WARM = """
import sys
from gradgate.hw_profiles.sweep import Cell, run

if __name__ == "__main__":
    cells = [Cell(f"{sys.argv[1]}:dense", "cpu", static={"n": 4 + i % 5}) for i in range(100)]
    found = [m for _, m in run(cells, workers=2)]
    assert {m.status for m in found} == {"measured"}
    print(sum(m.cached for m in found))
"""


def test_of_a_hundred_unchanged_cells_none_is_compiled_by_another_process(programs, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADGATE_CACHE", str(tmp_path / "cache"))
    script = tmp_path / "warm.py"
    script.write_text(WARM)
    for _ in range(2):
        done = subprocess.run([sys.executable, str(script), programs], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "100"  # the time of a cell: asv_bench/benchmarks/measuring.py, time_warm
