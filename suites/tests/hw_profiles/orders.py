"""Measures the gated PyTorch cells in an order, in one process.

``python suites/tests/hw_profiles/orders.py SEED [CELL…]`` prints one line of JSON for each cell: its name
and its figures. Seed 0 is the order of the registry, 1 the reverse, any other a shuffled one. The same lines must come
out in every order, and for a cell alone; a cell may be named twice.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

FIGURES = (
    "status",
    "temp_bytes",
    "argument_bytes",
    "flops",
    "residual_bytes",
    "compiled_residual_bytes",
    "compiled_peak_bytes",
)
PAIRS = ("chain", "invertible", "performer", "state_space", "bilevel")
"""Classes whose pairs of entry points are measured too."""


def listed() -> dict[str, str]:
    """Name -> the cell as JSON. It is listed in another process, because listing imports what cells import late."""
    from gradgate.references import registry
    from gradgate.suites.bugs import entry_pairs
    from gradgate.suites.gate import manifest

    root = Path(entry_pairs.__file__).parent
    methods = [method for method in registry.methods() if method.framework == "torch"]
    for name in PAIRS:
        families = registry.offered(str(root / f"{name}.py"))
        methods += [method for family in families for method in family.methods if method.framework == "torch"]
    cells = [cell for method in methods for cell in manifest.Gated(method).cells(("cpu",))]
    return {cell.declared.key: json.dumps(dict(cell.to_cell().static)) for cell in cells}


def main() -> None:
    """Measure and print."""
    if sys.argv[1] == "list":
        print(json.dumps(listed()))
        return
    asked = subprocess.run([sys.executable, __file__, "list"], check=True, capture_output=True, text=True)
    known = json.loads(asked.stdout)
    names, seed = sys.argv[2:] or list(known), int(sys.argv[1])
    if seed == 1:
        names.reverse()
    elif seed:
        random.Random(seed).shuffle(names)
    from gradgate.hw_profiles import sweep

    for name in names:
        sweep._MADE.clear()  # else a cell that is named twice would be measured once
        static = json.loads(known[name])
        found = sweep.measure_cell(
            sweep.Cell("gradgate.suites.measuring.cells:program", "cpu", None, static, framework="torch")
        )
        print(json.dumps([name, [getattr(found, figure) for figure in FIGURES]]), flush=True)


if __name__ == "__main__":
    main()
