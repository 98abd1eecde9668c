"""Faults of foreign code besides wrong gradients, each with the verdict and the sentence that it must get.

Each fault is a method of `crashes`, `answers` or `changes`, and is judged like any plugged-in method:

``gradgate verify gradgate.suites.bugs.hostile.changes:forks --family state_space --framework torch``

`suites/tests/workers/test_hostile_methods.py` runs all of them in both frameworks; the table in CONTRIBUTING.md is the
result of `table`.
"""

from __future__ import annotations

from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.bugs.hostile import answers, changes, crashes
from gradgate.suites.bugs.hostile.fault import Fault

FAULTS: tuple[Fault, ...] = tuple(
    vars(method)["hostile"]
    for module in (crashes, answers, changes)
    for method in vars(module).values()
    if "hostile" in getattr(method, "__dict__", {})
)
"""All faults, in the order of the modules."""
IMPORTS = (
    (
        "import no_such_module",
        "raised ModuleNotFoundError: No module named 'no_such_module' · bad.py:1 in <module>: import …",
    ),
    ("raise RuntimeError('not today')", "raised RuntimeError: not today · bad.py:1 in <module>: raise …"),
    ("def broken(:", "raised SyntaxError: …"),
    ("import sys; sys.exit(0)", "raised SystemExit: 0 · bad.py:1 in <module>: import sys; sys.exit(0)"),
    (
        "raise KeyboardInterrupt",
        "raised KeyboardInterrupt: (no message) · bad.py:1 in <module>: raise KeyboardInterrupt",
    ),
    ("import os; os._exit(9)", "the method ended its process (exit status 9)…"),
    ("while True: pass", "the method hung: no answer within … s"),
)
"""The first line of a module, and the reason, after ``importing TARGET``, why a method of this module is wrong
usage."""


def table() -> str:
    """The faults as a table in Markdown: what a method does, the verdict, the sentence."""
    rows = ["| a method that… | verdict | sentence |", "|---|---|---|"]
    for found in FAULTS:
        only = [framework for framework in FRAMEWORKS if framework not in found.not_in]
        words = found.words[0].lower() + found.words[1:]
        where = f" ({only[0]})" if len(only) < len(FRAMEWORKS) else ""
        rows.append(f"| {words}{where} | {found.verdict} | {found.reason} |")
    return "\n".join(rows)
