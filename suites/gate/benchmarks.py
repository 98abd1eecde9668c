"""Names of the asv benchmarks in a tree, read from the text: a benchmark that is deleted is a finding."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_BENCHMARK = re.compile(r"(track|time|timeraw|mem|peakmem)_\w+")


def names(folder: Path) -> frozenset[str]:
    """``module.Class.track_x`` and ``module.time_y`` of every benchmark below a folder."""
    found = set()
    for path in sorted(folder.rglob("*.py")):
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        try:
            tree = ast.parse(path.read_bytes())
        except SyntaxError:
            continue  # asv reports it; the benchmarks in it count as gone
        for node in tree.body:
            inside = node.body if isinstance(node, ast.ClassDef) else [node]
            owner = f"{module}.{node.name}" if isinstance(node, ast.ClassDef) else module
            for item in inside:
                if isinstance(item, ast.FunctionDef) and _BENCHMARK.fullmatch(item.name):
                    found.add(f"{owner}.{item.name}")
    return frozenset(found)
