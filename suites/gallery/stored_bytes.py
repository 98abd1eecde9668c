"""Bytes that the pairs of a file and their references keep: ``python -m gradgate.suites.gallery.stored_bytes``.

It runs in the environment of a library and prints one JSON object. Figures are kept under a hash of what they depend
on, so a second run imports no framework.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradgate.hw_profiles import recording
from gradgate.references import registry
from gradgate.references.contract import Family
from gradgate.references.law_kinds import OfReference
from gradgate.suites.judging.subject import first_line
from gradgate.suites.keeping.answers import Answers
from gradgate.suites.keeping.keys import MEASURING, Keys
from gradgate.suites.keeping.present import Present
from gradgate.suites.keeping.store import Store
from gradgate.suites.measuring.cells import usual_options
from gradgate.suites.settings import Settings
from gradgate.suites.workers.variables import environment

NAME = "gradgate.suites.gallery.stored_bytes"
"""This module; its name is another one while it runs."""
Kept = dict[str, Any]
"""``pairs``: variable -> ``name``, ``spec``, ``kept`` and ``plain`` in bytes, or a ``reason``."""


def of_file(target: str) -> Kept:
    """The figures of a file, kept or measured."""
    keys, store = Keys(Path.cwd(), Settings.read(Path.cwd()).depends), Store()
    answers = Answers(store, Present(Path.cwd(), store), keys.imports)
    key = keys.question((*MEASURING, NAME), [], "residual bytes of pairs", target)
    answer = answers.get(key)
    if answer is None:
        pairs = {offered.origin.rpartition(":")[2]: _of_pair(offered) for offered in registry.offered(target)}
        answer = {"pairs": pairs}, recording.recorded()
        if all("error" not in row for row in pairs.values()):
            answers.put(key, *answer, {})
    keys.imports.parsed.keep()
    return answer[0]


def _of_pair(family: Family) -> dict[str, Any]:
    """The bytes of a pair and of its reference, at the sizes of its claim about them, or at the usual ones."""
    [method] = family.methods
    claimed: list[Mapping[str, Any]] = [
        claim.law.spec
        for claim in method.claims
        if isinstance(claim.law, OfReference) and claim.law.quantity == "residual_bytes"
    ]
    fields = {"dtype": "float32"} | dict(family.measured) | dict(claimed[0] if claimed else {})
    row: dict[str, Any] = {"name": method.name, "spec": fields}
    try:
        spec = registry.spec_class(family.name).from_json(json.dumps(fields))
        pair = registry.load(method.implementation)
        options = usual_options(method, spec)
        row["spec"] = {name: value for name, value in dataclasses.asdict(spec).items() if name in fields}
        row["kept"], row["plain"] = (pair.residual_bytes(spec, options, role) for role in ("function", "reference"))
    except (Exception, SystemExit) as error:  # foreign code
        row["reason"] = f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, (MemoryError, SystemExit)):
            row["error"] = True
    return row


def main() -> int:
    """Print the figures of the file that is named; returns the exit status."""
    recording.install().constants = frozenset(environment())
    os.environ.update(environment())
    with contextlib.redirect_stdout(io.StringIO()):  # a library may print
        found = of_file(sys.argv[1])
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
