"""``gradgate gate``: measure the merge base and the head with the head's benchmark code, and compare exactly."""

from __future__ import annotations

import argparse
import datetime
import errno
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gradgate.suites.commands import arguments
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.plain import one_line
from gradgate.suites.console.progress import Show, progress
from gradgate.suites.gate import allow, benchmarks, compare, output
from gradgate.suites.gate.compare import Finding, Half
from gradgate.suites.gate.git import Repository
from gradgate.suites.gate.manifest import identity, name, owner
from gradgate.suites.gate.overlay import Overlay, is_gradgate
from gradgate.suites.gate.process import Unmeasurable, ask
from gradgate.suites.judging.explain import explain
from gradgate.suites.judging.outcomes import FAILED
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.settings import Settings

BENCHMARKS = "asv_bench/benchmarks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate gate``."""
    add = parser.add_argument
    add("--base", default="origin/main", metavar="REV", help="compare with the merge base of HEAD and this revision")
    arguments.add(parser, "--jobs", metavar="N")
    arguments.add(parser, "--timeout", help="limit per call of a gradient check (default 60)")
    limit = "limit per compilation (default 300)"
    add("--limit", type=arguments.seconds, default=300.0, metavar="S", help=limit)
    arguments.add(parser, "--json", help="write the outcome here")
    add("--markdown", type=Path, metavar="FILE", help="write the outcome here, as a comment for a pull request")
    python = "interpreter of another toolchain for the base: --base HEAD compares two toolchains on the same code"
    add("--base-python", default=sys.executable, metavar="PYTHON", help=python)


def main(chosen: argparse.Namespace) -> int:
    """Run the gate and print what it found; returns the exit status.

    Raises:
        UsageError: a wrong argument or configuration, or a repository in which nothing can be compared.
    """
    if chosen.json:
        need_own(chosen.json, "findings")
    if chosen.markdown:
        need_own(chosen.markdown)
    try:
        document = run(Path.cwd(), chosen)
    except Unmeasurable as error:
        print(f"gradgate gate: {one_line(str(error))}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        print(f"gradgate gate: {error.strerror}: {error.filename or tempfile.gettempdir()}", file=sys.stderr)
        return 2
    print(output.text(document), end="")
    if chosen.json:
        write_atomically(chosen.json, json.dumps(document.to_dict(), indent=1) + "\n")
    if chosen.markdown:
        write_atomically(chosen.markdown, output.markdown(document))
    return document.status


def run(folder: Path, chosen: argparse.Namespace) -> output.Document:
    """Compare HEAD with the merge base. Measurements are kept, so an interrupted run can continue.

    Raises:
        UsageError: as in `main`.
        Unmeasurable: a side cannot be measured at all.
    """
    start = time.monotonic()
    repository = Repository.around(folder)
    repository.need_whole_history()
    head = repository.commit("HEAD")
    base = repository.merge_base(repository.commit(chosen.base), head)
    repository.need_clean()
    with tempfile.TemporaryDirectory(prefix="gradgate-gate-") as place:
        trees = {rev: repository.extract(rev, Path(place) / rev) for rev in dict.fromkeys((base, head))}
        settings = {rev: Settings.read(tree) for rev, tree in trees.items()}
        allowed = allow.read(trees[head] / settings[head].allow, settings[head].allow)
        sides = []
        for rev, python, who in ((base, chosen.base_python, "base"), (head, sys.executable, "head")):
            links = Path(place) / f"import-{who}"
            overlay = Overlay.make(links, trees[rev], judge=trees[head], also=settings[rev].path)
            sides.append(_Side(python, overlay, f"the {who} {rev[:10]}", chosen, base=who == "base"))
        before, after = (side.describe() for side in sides)
        for half, rev in ((before, base), (after, head)):
            half.benchmarks = benchmarks.names(trees[rev] / BENCHMARKS)
        _check_allowed(allowed, before, after, settings[head].allow)
        rows = compare.manifest(before, after)
        tasks = after.description["tasks"]
        verdicts: list[dict[str, Any]] = []
        with progress(None, "figures and verdicts") as show:
            reused = sides[0].measure(before, _of(before, rows.values()), show)
            reused += sides[1].measure(after, _of(after, rows.values()), show, tasks, verdicts)
    findings = compare.compare(before, after, allowed, datetime.date.today()) + _gradients(verdicts)
    findings.sort(key=lambda f: f.kind not in (*compare.FAILURES, *compare.UNMEASURED))
    renamed = compare.renames(before, after)
    wanted = [key for key, row in rows.items() if owner(row) not in renamed]
    ran = sum(key in after.figures and after.figures[key]["status"] in ("measured", "too_large") for key in wanted)
    return output.Document(
        base, head, chosen.base, (before.description["fingerprint"], after.description["fingerprint"]),
        (ran, len(wanted)), (reused, len(before.figures) + len(after.figures)), (len(verdicts), len(tasks)),
        sum(verdict["reused"] for verdict in verdicts), time.monotonic() - start, findings,
    )  # fmt: skip


class _Side:
    """One revision under one interpreter."""

    def __init__(self, python: str, overlay: Overlay, who: str, chosen: argparse.Namespace, base: bool) -> None:
        self.python, self.overlay, self.who = python, overlay, who
        self.request = {
            "own": is_gradgate(overlay.project), "base": base, "paths": [str(path) for path in overlay.paths],
            "jobs": chosen.jobs, "limit": chosen.limit, "timeout": chosen.timeout,
        }  # fmt: skip

    def describe(self) -> Half:
        for event in self._ask():
            if "side" in event:
                return Half(event["side"])
        raise Unmeasurable(f"{self.who}: it did not list its methods and claims")

    def measure(
        self,
        half: Half,
        rows: Iterable[Mapping[str, Any]],
        show: Show,
        tasks: Iterable[Mapping[str, Any]] = (),
        verdicts: list[dict[str, Any]] | None = None,
    ) -> int:
        """Fill in the figures and the verdicts; returns how many figures were reused."""
        reused = 0
        for event in self._ask(measure=list(rows), verify=list(tasks)):
            if "figure" in event:
                found = event["figure"]
                half.figures[identity(found["cell"])] = found
                reused += found.get("reused", False)
                _show(show, self.who, found)
            elif "verdict" in event and verdicts is not None:
                verdicts.append(event["verdict"])
                _show(show, self.who, event["verdict"])
        return reused

    def _ask(self, **more: Any) -> Iterable[dict[str, Any]]:
        return ask(self.python, self.overlay, {**self.request, **more}, self.who)


def _of(half: Half, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The cells of the methods that one revision has."""
    return [row for row in rows if owner(row) in half.description["methods"]]


def _show(show: Show, who: str, found: Mapping[str, Any]) -> None:
    """Show a result that is not reused. Without a terminal, every tenth is a line, the first included."""
    if not found.get("reused"):
        what = name(found["cell"]) if "cell" in found else f"{owner(found)}:{found['claim']}"
        show.advance(f"{who}: {what}", line=show.done % 10 == 0)


def _check_allowed(allowed: tuple[allow.Entry, ...], before: Half, after: Half, shown: str) -> None:
    known = {name(row) for half in (before, after) for row in half.cells.values()}
    known |= {*before.description["methods"], *after.description["methods"]}
    known |= before.tasks.keys() | after.tasks.keys() | before.benchmarks
    allow.check_names(allowed, sorted(known), shown)


def _gradients(verdicts: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """The findings of the gate that follow from the judged claims of the head."""
    found = []
    for row in verdicts:
        verdict = Verdict.from_dict(dict(row))
        called, words = f"{owner(row)}:{row['claim']}", explain(verdict)
        if verdict.outcome == "error" or "not installed" in verdict.reason:
            found.append(Finding("unmeasured", called, sentence=verdict.reason, reproduce=row["reproduce"]))
        elif verdict.outcome in FAILED:
            sentence = words.reason or words.outcome
            found.append(Finding("refuted", called, sentence=sentence, reproduce=row["reproduce"]))
    return found
