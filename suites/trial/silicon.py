"""Bytes that are known without a GPU, beside those that a GPU's allocator counts.

``python -m gradgate.suites.trial.silicon nvidia-h100 report/silicon.json`` runs every reference method at its measured
problem on this machine's NVIDIA GPU, each in a process of its own, and writes a row for each as it comes.

- JAX: arguments + results + temporaries − aliases of the program compiled for the profile without a device; the same of
  the executable that this GPU's own compiler made; and ``peak_bytes_in_use`` of the allocator, which rounds each buffer
  up to 256 bytes. Tuning is off, because it allocates.
- PyTorch: what the tracker counted on the CPU beyond the problem; and ``requested_bytes`` of CUDA's allocator in a
  second run: in the first one, cuBLAS makes a workspace of 64 MB.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gradgate.hw_profiles import sweep, torch_memory
from gradgate.references import registry
from gradgate.references.backends import tree_map
from gradgate.suites.console.files import write_atomically
from gradgate.suites.gate import manifest
from gradgate.suites.measuring import cells

SECONDS = 240.0
"""The most that one cell may take."""
VARIABLES = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_FLAGS": "--xla_gpu_autotune_level=0"}
Row = dict[str, Any]


def listed(profile: str) -> list[Row]:
    """A row for each reference method: its name and its cell. Methods over several devices are left out."""
    rows = []
    for method in registry.methods():
        if method.sharded:
            continue
        for cell in manifest.Gated(method).cells((profile,)):
            rows.append({"cell": method.key, "framework": method.framework, "static": dict(cell.to_cell().static)})
    return rows


def in_jax(static: Row, profile: str) -> Row:
    """Compile a cell for the profile and for this GPU, and run it."""
    import jax

    spec = registry.spec_class(static["family"]).from_json(static["spec"])
    x64 = spec.dtype == "float64"
    predicted = sweep.measure_cell(sweep.Cell(cells.PROGRAM, profile, None, static, {"x64": x64}, "jax"))
    jax.config.update("jax_enable_x64", x64)
    program, arguments, _ = cells.program(**static)
    with jax.default_device(jax.devices("cpu")[0]):
        problem = spec.build("jax")
    [device, *_] = jax.devices("gpu")
    executable = jax.jit(program).lower(*arguments).compile()
    sizes: Any = executable.memory_analysis()
    before = device.memory_stats()["bytes_in_use"]
    result = jax.block_until_ready(executable(jax.device_put(problem, device)))
    after = device.memory_stats()["peak_bytes_in_use"]
    del result
    parts = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return {
        "predicted": predicted.required_bytes,
        "reason": predicted.reason,
        "compiled": parts - sizes.alias_size_in_bytes,
        "counted": after - before,
        "device": device.device_kind,
    }


def in_torch(static: Row, profile: str) -> Row:
    """Track a cell on the CPU, and run it on this GPU."""
    import torch

    run, (problem,), further = cells.program(**static)
    with further["around"]:
        tracked = torch_memory.peak(run, (problem,), further["track"])
    torch.set_default_device("cuda")  # some problems make tensors of their own

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().to("cuda").requires_grad_(leaf.requires_grad)

    given = type(problem)(problem.spec, "torch", tree_map(moved, problem.params), tree_map(moved, problem.data))
    counted = allocated(lambda: run(given))
    predicted = tracked.total_bytes - tracked.held_bytes
    return {"predicted": predicted, "counted": counted, "device": torch.cuda.get_device_name()}


def allocated(run: Callable[[], Any]) -> int:
    """Bytes that are requested at the peak of a second run, beyond those that were there before it."""
    import torch

    run()
    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    gc.disable()
    result = run()
    torch.cuda.synchronize()
    gc.enable()
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    del result
    return int(peak - before)


MEASURED = {"jax": in_jax, "torch": in_torch}


def _alone(row: Row, profile: str) -> Row:
    asked = [sys.executable, "-m", "gradgate.suites.trial.silicon", profile, "-"]
    try:
        done = subprocess.run(
            asked,
            input=json.dumps(row),
            capture_output=True,
            text=True,
            env={**os.environ, **VARIABLES},
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return row | {"reason": f"more than {SECONDS:.0f} s"}
    if done.returncode:
        return row | {"reason": done.stderr.strip()[-600:]}
    return row | dict(json.loads(done.stdout.strip().splitlines()[-1]))


def main(words: Sequence[str] | None = None) -> int:
    """Measure and write; 2 if a cell could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m gradgate.suites.trial.silicon", description=__doc__)
    parser.add_argument("profile", help="the profile of this machine's GPU, such as nvidia-h100")
    parser.add_argument("file", help="where the rows are written; -: one row is read from the standard input")
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="cells at once (default 4)")
    chosen = parser.parse_args(words)
    if chosen.file == "-":
        row = json.loads(sys.stdin.read())
        print(json.dumps(MEASURED[row["framework"]](row["static"], chosen.profile)))
        return 0
    made: list[Row] = []
    with concurrent.futures.ThreadPoolExecutor(chosen.jobs) as pool:
        asked = [pool.submit(_alone, row, chosen.profile) for row in listed(chosen.profile)]
        for future in concurrent.futures.as_completed(asked):
            row = future.result()
            made.append(row)
            write_atomically(Path(chosen.file), json.dumps(made, indent=1) + "\n")
            figures = [f"{name} {row[name]:,}" for name in ("predicted", "compiled", "counted") if row.get(name)]
            print(row["cell"], ", ".join(figures) or row["reason"], flush=True)
    return 0 if all("counted" in row for row in made) else 2


if __name__ == "__main__":
    raise SystemExit(main())
