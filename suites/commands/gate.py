"""``gradgate gate``: measure the merge base and the head with the head's benchmark code, and compare exactly."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import errno
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from gradgate.references import laws
from gradgate.references.errors import UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.plain import one_line
from gradgate.suites.console.progress import Show, progress
from gradgate.suites.gate import allow, benchmarks, compare, declared, output, ran
from gradgate.suites.gate.compare import Finding, Half
from gradgate.suites.gate.git import Repository
from gradgate.suites.gate.manifest import identity, name, owner
from gradgate.suites.gate.overlay import Overlay, is_gradgate
from gradgate.suites.gate.process import SideProcess, Unmeasurable
from gradgate.suites.judging.explain import explain
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.settings import Settings

BENCHMARKS = "asv_bench/benchmarks"
REFUTED_BEFORE = "the base was refuted as well: this change did not cause it"
UNJUDGED_BEFORE = "it could not be judged on the base either"
Verdicts = dict[tuple[str, str], Verdict]
"""(name of a claim, profile) -> the verdict on it."""


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
    if shutil.which(chosen.base_python) is None:
        raise UsageError(f"cannot run {chosen.base_python}: there is no such program")
    repository = Repository.around(folder)
    repository.need_whole_history()
    head = repository.commit("HEAD")
    base = repository.merge_base(repository.commit(chosen.base), head)
    repository.need_clean()
    with repository.trees((base, head)) as (place, tops), contextlib.ExitStack() as running:
        trees = {rev: top / repository.project for rev, top in tops.items()}
        settings = {rev: Settings.read(tree) for rev, tree in trees.items()}
        allowed = allow.read(trees[head] / settings[head].allow, settings[head].allow)
        working = [tree for tree in repository.worktrees() if tree not in tops.values()]
        threads = running.enter_context(ThreadPoolExecutor(2))  # joined last, when the processes have ended
        sides = []
        for rev, python, who in ((base, chosen.base_python, "base"), (head, sys.executable, "head")):
            overlay = Overlay.make(place / f"import-{who}", trees[rev], judge=trees[head], also=settings[rev].path)
            overlay = overlay.guarded(tops[rev], tops.values(), working)
            process = running.enter_context(SideProcess(python, overlay, f"the {who} {rev[:10]}"))
            sides.append(_Side(process, chosen, settings[rev].path, who == "base"))
        described = [threads.submit(side.describe) for side in sides]  # at once: each imports what it judges
        after, before = (one.result() for one in reversed(described))  # the head may be wrong usage
        for half, rev in ((before, base), (after, head)):
            half.benchmarks = benchmarks.names(trees[rev] / BENCHMARKS)
        _check_allowed(allowed, before, after, settings[head].allow)
        rows = compare.manifest(before, after)
        with progress(None, "figures and verdicts") as show:
            reused = sides[0].measure(before, _of(before, rows.values()), show)
            verdicts = _Judged(after.description["tasks"])
            reused += sides[1].measure(after, _of(after, rows.values()), show, after.description["tasks"], verdicts)
            findings = compare.compare(before, after, allowed, datetime.date.today())
            changed = repository.changed(base, head)
            was = _Judged(before.description["tasks"])
            asked = _to_judge_on_the_base(before, after, findings, verdicts, changed)
            sides[0].measure(before, (), show, asked, was, run=after.description["run"])
        halves = {side: sides[n].ran(half) for n, (side, half) in enumerate((("base", before), ("head", after)))}
        findings += _own_files(halves["base"], halves["head"], changed)
    findings += _gradients(verdicts.by_key, was.by_key, compare.renames(before, after)) + _unjudged(
        after, verdicts.by_key
    )
    reached = _decisions(was, compare.renames(before, after)), _decisions(verdicts, {})
    findings += compare.decisions(reached[0], reached[1], allowed, datetime.date.today())
    findings = _beside_fixes(findings)
    findings.sort(key=lambda f: f.kind not in (*compare.FAILURES, *compare.UNMEASURED, "fixed", "with_fix"))
    renamed = compare.renames(before, after)
    wanted = [key for key, row in rows.items() if owner(row) not in renamed]
    measured = sum(key in after.figures and after.figures[key]["status"] in ("measured", "too_large") for key in wanted)
    gradients, lawful = verdicts.parts()
    tasks = after.description["tasks"]
    of_laws = sum(task["check"] in laws.CHECKS for task in tasks)
    return output.Document(
        base,
        head,
        chosen.base,
        (before.description["fingerprint"], after.description["fingerprint"]),
        (measured, len(wanted)),
        (reused, len(before.figures) + len(after.figures)),
        (len(gradients), len(tasks) - of_laws),
        len(verdicts.reused & gradients.keys()),
        time.monotonic() - start,
        findings,
        inapplicable=sum(one.verdict == "inapplicable" for one in gradients.values()),
        laws=(len(lawful), of_laws, len(verdicts.reused & lawful.keys())),
        ran={side: half.from_tree for side, half in halves.items()},
        built=halves["head"].built(),
        notes=list(dict.fromkeys(note for side in sides for note in side.notes)),
    )


class _Judged:
    """The verdicts of one side, and which of them were reused."""

    def __init__(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Begin without verdicts.

        Args:
            tasks: the claims, as the side describes them; a verdict's own row does not name the check.
        """
        known = [Task(**row) for row in tasks]
        self.tasks = {(task.name, task.profile): task for task in known}
        self.by_key: Verdicts = {}
        self.reused: set[tuple[str, str]] = set()

    def add(self, row: dict[str, Any]) -> None:
        """Add a verdict as a side sends it."""
        verdict = Verdict.from_dict(row)
        key = verdict.task.name, verdict.task.profile
        self.by_key[key] = replace(verdict, task=self.tasks.get(key, verdict.task))
        self.reused |= {key} if row["reused"] else set()

    def parts(self) -> tuple[Verdicts, Verdicts]:
        """The verdicts on gradients, and those on bytes and work."""
        return (
            {key: one for key, one in self.by_key.items() if one.task.check not in laws.CHECKS},
            {key: one for key, one in self.by_key.items() if one.task.check in laws.CHECKS},
        )


class _Side:
    """One revision under one interpreter."""

    def __init__(self, process: SideProcess, chosen: argparse.Namespace, path: tuple[str, ...], base: bool) -> None:
        overlay = process.overlay
        self.process, self.who, self.path = process, process.who, path
        self.notes: dict[str, None] = {}
        assert overlay.given is not None
        self.given = overlay.given
        self.request = {
            "own": is_gradgate(overlay.project),
            "base": base,
            "paths": [str(path) for path in overlay.paths],
            "tree": str(self.given.tree),
            "jobs": chosen.jobs,
            "limit": chosen.limit,
            "timeout": chosen.timeout,
        }

    def describe(self) -> Half:
        """What this side has.

        Raises:
            UsageError: a module comes from elsewhere although the tree holds it.
        """
        records = []
        for event in self.process.ask(self.request):
            if "side" in event:
                half = Half(event["side"])
            records += [event["record"]] if "record" in event else []
        if not records:
            raise Unmeasurable(f"{self.who}: it did not list its methods and claims")
        half.record = ran.united(records)
        self.ran(half)
        return half

    def ran(self, half: Half) -> ran.Ran:
        """Which files ran.

        Raises:
            UsageError: a module comes from elsewhere although the tree holds it; says what to add to the settings.
        """
        named = frozenset(name for names in half.description["named"].values() for name in names)
        found = ran.Ran(half.record, self.given, named)
        for module, (path, held) in found.misplaced().items():
            raise UsageError(
                f"{self.who}: {module} comes from {path}, although the commit holds {held}; the gate would not measure "
                f"the commit. Add to pyproject.toml: {found.line(held, module, self.path)}"
            )
        return found

    def measure(
        self,
        half: Half,
        rows: Iterable[Mapping[str, Any]],
        show: Show,
        tasks: Iterable[Mapping[str, Any]] = (),
        verdicts: _Judged | None = None,
        **more: Any,
    ) -> int:
        """Fill in the figures and the verdicts; returns how many figures were reused."""
        reused, asked = 0, {"measure": list(rows), "verify": list(tasks)}
        if not any(asked.values()):
            return 0
        for event in self.process.ask({**self.request, "describe": False, **asked, **more}):
            if "record" in event:
                half.record = ran.united([half.record, event["record"]])
            if "figure" in event:
                found = event["figure"]
                half.figures[identity(found["cell"])] = found
                reused += found.get("reused", False)
                _show(show, self.who, found)
            elif "verdict" in event and verdicts is not None:
                verdicts.add(event["verdict"])
                _show(show, self.who, event["verdict"])
            self.notes.update(dict.fromkeys(event.get("notes", ())))
        return reused


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
    methods = {*before.description["methods"], *after.description["methods"]}
    known |= methods | before.tasks.keys() | after.tasks.keys() | before.benchmarks
    facts = (*declared.LISTS, *declared.LIMITS, compare.DECISIONS)
    known |= {f"{method}:{fact}" for method in methods for fact in facts} | {"examples"}
    allow.check_names(allowed, sorted(known), shown)


def _own_files(base: ran.Ran, head: ran.Ran, changed: Collection[str]) -> list[Finding]:
    """Findings about files that ran on both sides, though the change should make them differ.

    Raises:
        Unmeasurable: a changed file ran with the same content on both sides.
    """
    if same := ran.unmoved(base, head, changed):
        raise Unmeasurable(
            f"the change touches {', '.join(same[:3])}, which ran, and yet both sides ran the same content; the gate "
            "did not measure the commits: please report it"
        )
    built, sources = ran.rebuilt(base, head, changed)
    if not built:
        return []
    sentence = (
        f"both sides run it, as it is in neither commit, and the change touches {', '.join(sources[:3])}, from which "
        "it may be built: install the base in an environment of its own and give --base-python"
    )
    return [Finding("unmeasured", path, sentence=sentence) for path in built]


def _to_judge_on_the_base(
    before: Half, after: Half, findings: Iterable[Finding], verdicts: _Judged, changed: Collection[str]
) -> list[Mapping[str, Any]]:
    """The claims about gradients to judge on the base as well: to say what the change fixed, and what it broke.

    They are those of methods with a failing claim or a rise and, if a file that ran was changed, of all methods; what
    no file of a method has changed is not judged again.
    """
    own = {path for half in (before, after) for path in half.record["modules"].values()}
    renamed = {new: old for old, new in compare.renames(before, after).items()}
    touched, against = bool(own & set(changed)), ("failure", "unexpected", "error")
    owners = {owner(finding.row) for finding in findings if finding.kind == "rise"}
    owners |= {one.task.owner for one in verdicts.by_key.values() if touched or one.outcome in against}
    owners = {renamed.get(one, one) for one in owners}
    return [task for task in before.description["tasks"] if owner(task) in owners and task["check"] not in laws.CHECKS]


def _gradients(verdicts: Verdicts, was: Verdicts, renamed: Mapping[str, str]) -> list[Finding]:
    """The findings that follow from the judged claims of the head, and from the same claims on the base."""
    old = {(f"{renamed.get(v.task.owner, v.task.owner)}:{v.task.claim}", key[1]): v for key, v in was.items()}
    found = []
    for key, verdict in verdicts.items():
        words, task, base = explain(verdict), verdict.task, old.get(key)
        called = task.name if task.check not in laws.CHECKS else f"{task.name}@{task.profile}"
        beside = {
            "failure": REFUTED_BEFORE,
            "upheld": "upheld on the base",
            "error": UNJUDGED_BEFORE,
            "unexpected": "",
        }.get(base.outcome if base else "", "")
        reason = words.reason or words.outcome
        kind = {
            "failure": "refuted",
            "unexpected": "unexpected",
            "error": "unmeasured",
            "finding": "known" if verdict.verdict == "error" else "",
        }.get(verdict.outcome, "unmeasured" if "not installed" in verdict.reason else "")
        if kind == "unexpected":
            reason = f"is upheld, though declared false: {task.declared_reason}"
        elif kind == "known":
            reason, beside = f"{reason}; declared: {task.declared_reason}", ""
        if verdict.outcome == "upheld" and base is not None and (base.outcome == "failure" or base.raised):
            was_told = "the base could not be judged" if base.raised else "refuted on the base"
            kind, reason, beside = "fixed", f"{was_told}: {explain(base).reason}", ""
        if kind:
            declare = "" if kind in ("fixed", "known") else words.declare
            sentence = "\n  ".join(filter(None, (reason, beside, declare)))
            again = "" if kind == "fixed" else words.reproduce
            found.append(Finding(kind, called, sentence=sentence, reproduce=again, owner=task.owner))
    return found


def _decisions(judged: _Judged, renamed: Mapping[str, str]) -> dict[str, Mapping[str, Any]]:
    """Method, by its name on the head -> the decisions of its formula, if that is upheld."""
    known = [one for one in judged.by_key.values() if one.task.claim == "gradient_exact" and one.verdict == "upheld"]
    return {renamed.get(one.task.owner, one.task.owner): one.decisions for one in known}


def _unjudged(after: Half, verdicts: Verdicts) -> list[Finding]:
    """Methods of the head without a verdict on their gradient. If all claims are inapplicable, that is not a PASS."""
    found = []
    for method in after.description["methods"]:
        of = [one for one in verdicts.values() if one.task.owner == method and one.task.check not in laws.CHECKS]
        of = [one for one in of if one.task.claim.startswith("gradient")] or of
        if of and all(one.verdict == "inapplicable" and "not installed" not in one.reason for one in of):
            sentence = f"nothing was judged about its gradient: {of[0].reason}"
            found.append(Finding("unmeasured", method, sentence=sentence, owner=method))
    return found


def _beside_fixes(findings: list[Finding]) -> list[Finding]:
    """The findings; what a method that this change fixes costs does not fail, as its base computes something else.

    That is a rise, or more decisions that do not go both ways: a fix may add a branch that no draw reaches.

    If the base's program fails, there is nothing to compare with: the figure is new.
    """
    fixed = {finding.owner for finding in findings if finding.kind == "fixed"}
    mended = fixed - {finding.owner for finding in findings if finding.kind == "refuted"}

    def beside(finding: Finding) -> Finding:
        if (owner(finding.row) if finding.row else finding.owner) not in mended:
            return finding
        if finding.kind == "unmeasured" and finding.sentence.startswith("failed on the base: the program failed"):
            return replace(finding, kind="new")
        decisions = finding.kind == "narrowed" and finding.name.endswith(f":{compare.DECISIONS}")
        costs = finding.kind == "rise" or decisions
        return replace(finding, kind="with_fix") if costs else finding

    return [beside(finding) for finding in findings]
