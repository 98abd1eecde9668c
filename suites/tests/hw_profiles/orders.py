"""Measures the gated PyTorch cells in an order, in one process, or each in a process of its own.

``python suites/tests/hw_profiles/orders.py SEED [CELL…]`` prints one line of JSON for each cell: its name
and its figures. Seed 0 is the order of the registry, 1 the reverse, any other a shuffled one. ``alone [CELL…]`` starts
a process for each cell, and ``list`` prints the cells. The same lines must come out in every order, and for a cell
alone: after ``sort -u`` of all of them, each cell has one line. A cell may be named twice.
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
PAIRS = (
    "entry_pairs/chain.py",
    "entry_pairs/invertible.py",
    "entry_pairs/performer.py",
    "entry_pairs/state_space.py",
    "entry_pairs/bilevel.py",
    "of_pairs/torch_sequences.py",
    "of_pairs/torch_tables.py",
)
"""Files of `bugs` whose pairs are measured too."""


def listed() -> dict[str, str]:
    """Name -> the cell as JSON. It is listed in another process, because listing imports what cells import late."""
    from gradgate.references import registry
    from gradgate.suites import bugs
    from gradgate.suites.gate import manifest

    root = Path(bugs.__file__).parent
    methods = [method for method in registry.methods() if method.framework == "torch"]
    for name in PAIRS:
        families = registry.offered(str(root / name))
        methods += [method for family in families for method in family.methods if method.framework == "torch"]
    cells = [cell for method in methods for cell in manifest.Gated(method).cells(("cpu",))]
    return {cell.declared.key: json.dumps(dict(cell.to_cell().static)) for cell in cells}


def measured(name: str, static: str) -> str:
    """The line of a cell."""
    from gradgate.hw_profiles import sweep

    sweep._MADE.clear()  # else a cell that is named twice would be measured once
    found = sweep.measure_cell(
        sweep.Cell("gradgate.suites.measuring.cells:program", "cpu", None, json.loads(static), framework="torch")
    )
    return json.dumps([name, [getattr(found, figure) for figure in FIGURES]])


def main() -> None:
    """Measure and print."""
    order = sys.argv[1]
    if order == "list":
        print(json.dumps(listed()))
        return
    if order == "given":
        print(measured(*sys.argv[2:]))
        return
    asked = subprocess.run([sys.executable, __file__, "list"], check=True, capture_output=True, text=True)
    known = json.loads(asked.stdout)
    names = sys.argv[2:] or list(known)
    if order == "alone":
        for name in names:
            subprocess.run([sys.executable, __file__, "given", name, known[name]], check=True)
        return
    if order == "1":
        names.reverse()
    elif order != "0":
        random.Random(int(order)).shuffle(names)
    for name in names:
        print(measured(name, known[name]), flush=True)


if __name__ == "__main__":
    main()
