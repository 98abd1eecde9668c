"""The rule: what a change did to every gated figure, and whether it passes. It only takes data and returns data."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradgate.suites.gate import declared
from gradgate.suites.gate.allow import Entry
from gradgate.suites.gate.manifest import identity, name, owner
from gradgate.suites.gate.ran import EMPTY, Record
from gradgate.suites.judging.verdict import NEVER
from gradgate.suites.measuring.cells import OF_PASSES

ADVISORY = "roofline_seconds"
FAILURES = ("rise", "missing", "failed", "refuted", "unexpected", "withdrawn", "narrowed")
UNMEASURED = ("unmeasured",)
DECISIONS = "decisions"
"""What follows a method in the name of the finding that fewer of its decisions go both ways."""
Counts = Mapping[str, Any]
"""`Verdict.decisions`."""


@dataclass(frozen=True)
class Finding:
    """One thing to say about a change.

    Attributes:
        kind: ``rise``, ``fall``, ``missing``, ``failed``, ``refuted``, ``unexpected`` (upheld, declared false),
            ``withdrawn`` (a claim taken back), ``narrowed`` (a declaration that tries or promises less, or fewer
            decisions that go both ways), ``allowed``, ``unmeasured``, ``left_out`` (a pair leaves a quantity out),
            ``fixed`` (refuted on the base, upheld on the head), ``with_fix`` (a rise, or fewer decisions both ways, of
            a method that is fixed), ``known`` (an error that is declared), ``renamed``, ``declared`` (otherwise than on
            the base), ``edited`` (a benchmark), ``new``, ``expired`` or ``unused`` (entries of allow.toml), ``time``.
        name: the name of the cell, claim or benchmark.
        row: the cell's dict; {} if the finding is not about a cell.
        quantity, base, head: the figures, if there are two.
        memory_bytes: the memory of the device, if it is known.
        sentence: what there is to say besides figures.
        reproduce: one command that reproduces the finding, if there is one.
        owner: the method, of a finding on a claim.
    """

    kind: str
    name: str
    row: Mapping[str, Any] = field(default_factory=dict)
    quantity: str = ""
    base: float | None = None
    head: float | None = None
    memory_bytes: int | None = None
    sentence: str = ""
    reproduce: str = ""
    owner: str = ""


@dataclass
class Half:
    """One side as measured.

    Attributes:
        description: what the side sent: methods, cells, tasks, fingerprint.
        figures: identity of a cell -> its figure.
        benchmarks: names of the asv benchmarks.
        record: the files that its processes imported.
    """

    description: Mapping[str, Any]
    figures: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    benchmarks: frozenset[str] = frozenset()
    record: Record = field(default_factory=lambda: EMPTY)

    @property
    def cells(self) -> dict[str, Mapping[str, Any]]:
        """Identity -> cell, for the side's own manifest."""
        return {identity(row): row for row in self.description["cells"]}

    @property
    def tasks(self) -> dict[str, Mapping[str, Any]]:
        """Name -> claim. A law that is judged on several profiles is one claim."""
        return {f"{owner(t)}:{t['claim']}": t for t in self.description["tasks"]}

    def declared(self, method: str) -> Mapping[str, Any]:
        """The facts that a method declares (`gate.declared`); {} if they are not known."""
        found: Mapping[str, Any] = self.description.get("declared", {}).get(method, {})
        return found


def manifest(base: Half, head: Half) -> dict[str, Mapping[str, Any]]:
    """Every cell to measure: those of the base, so that no edit of a benchmark hides a rise, and those of the head."""
    return {**base.cells, **head.cells}


def figures(found: Mapping[str, Any]) -> dict[str, float | None]:
    """The gated figures of a measured cell. For a cell too large for the device: the bytes that it needs, and FLOPs.

    ``state_bytes`` is what is held before and after the call: arguments + outputs − aliases.
    """
    if found["status"] == "too_large":
        return {"required_bytes": found["required_bytes"], "flops": found["flops"]}
    temp, required = found["temp_bytes"], found["required_bytes"]
    kept = {name: found[name] for name in OF_PASSES if name in found}
    return {"temp_bytes": temp, "state_bytes": required - temp, "flops": found["flops"], **kept}


def compare(base: Half, head: Half, allowed: Iterable[Entry], today: datetime.date) -> list[Finding]:
    """Everything that a change did, worst first, without the gradient checks."""
    rule = _Rule(base, head, tuple(allowed), today)
    found = [*rule.deleted(), *rule.narrowed(), *rule.cells(), *rule.entries(), *rule.left_out()]
    later = ("left_out", "expired", "allowed", "unused", "renamed", "declared", "edited", "new", "fall", "time")
    order = (*FAILURES, *UNMEASURED, *later)
    return sorted(found, key=lambda finding: order.index(finding.kind))


def decisions(
    before: Mapping[str, Counts], after: Mapping[str, Counts], allowed: Iterable[Entry], today: datetime.date
) -> list[Finding]:
    """Pairs of which more decisions do not go both ways than on the base, and a larger share of all.

    A change may add as many of the one kind as there were, and it may remove decisions that went both ways.

    Args:
        before, after: method -> `Verdict.decisions` of its upheld formula on the base and on the head, under one name;
            {} if there are none, which is all of them.
        allowed: every entry; those about decisions that nothing needs are found here.
    """
    findings, entries = [], {entry.cell: entry for entry in allowed if entry.cell.endswith(f":{DECISIONS}")}
    for method in before.keys() & after.keys():
        (was, of), (now, left) = (
            (one.get("both", 0), one.get("decisions", 0)) for one in (before[method], after[method])
        )
        if left - now <= of - was or _share(now, left) >= _share(was, of):
            continue
        never = ", ".join(after[method]["never"][:NEVER])
        sentence = f"{now} of {left} decisions both ways, and {was} of {of} on the base; never: {never}"
        name = f"{method}:{DECISIONS}"
        entry = entries.pop(name, None)
        if entry is not None and entry.covers(name, "", today):
            findings.append(Finding("allowed", name, sentence=f"{sentence}; until {entry.expires}: {entry.reason}"))
        else:
            findings.append(Finding("narrowed", name, sentence=sentence, owner=method))
    valid = (entry for entry in entries.values() if today <= entry.expires)
    return [*findings, *(Finding("unused", entry.cell, sentence="is not needed any more") for entry in valid)]


def _share(both: int, decisions: int) -> float:
    return both / decisions if decisions else 1.0


def renames(base: Half, head: Half) -> dict[str, str]:
    """Renamed methods, old name -> new name: one is gone, one is new, and the figures are the same in every cell."""
    gone = [m for m in base.description["methods"] if m not in head.description["methods"]]
    new = [m for m in head.description["methods"] if m not in base.description["methods"]]
    found: dict[str, str] = {}
    for method in gone:
        signature = _signature(base, method)
        for other in new:
            family, _, framework = method.split(":")
            same = other.startswith(f"{family}:") and other.endswith(f":{framework}") and other not in found.values()
            if same and signature and _signature(head, other) == signature:
                found[method] = other
                break
    return found


def _signature(half: Half, method: str) -> dict[str, Any]:
    cells = {key: row for key, row in half.cells.items() if owner(row) == method}
    measured = {key: half.figures.get(key) for key in cells}
    if any(figure is None or figure["status"] != "measured" for figure in measured.values()):
        return {}
    return {
        identity({**cells[key], "method": "", "family": ""}): figures(figure)
        for key, figure in measured.items()
        if figure is not None
    }


def _why(found: Mapping[str, Any]) -> str:
    return f"is not known: {found['reason']}" if found.get("reason") else "is not known"


@dataclass
class _Rule:
    base: Half
    head: Half
    allowed: tuple[Entry, ...]
    today: datetime.date
    needed: set[Entry] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.renamed = renames(self.base, self.head)

    def deleted(self) -> Iterable[Finding]:
        """Methods, cells, claims and benchmarks of the base that the head no longer has."""
        for old, new in self.renamed.items():
            yield Finding("renamed", old, sentence=f"is {new} now: the same figures in every cell")
        left = self.head.description["methods"]
        for method in self.base.description["methods"]:
            if method not in left and method not in self.renamed:
                sentence = "a method of the base is gone, with its cells and claims"
                yield self._removal(method, "missing", sentence + self._alike(method))
        kept = {name(row) for row in self.head.cells.values()}
        before = {name(row) for row in self.base.cells.values() if owner(row) in left}
        for gone in sorted(before - kept):
            yield self._removal(gone, "missing", "a gated cell of the base is gone")
        for gone, task in self.base.tasks.items():
            if owner(task) not in left and owner(task) not in self.renamed:
                continue
            now = self.head.tasks.get(f"{self.renamed.get(owner(task), owner(task))}:{task['claim']}")
            if now is None:
                yield self._removal(gone, "withdrawn", "a claim of the base is gone")
            elif (task["expected"], now["expected"]) == ("upheld", "refuted"):
                yield self._removal(gone, "withdrawn", "claimed on the base, declared false now")
        for gone in sorted(self.base.benchmarks - self.head.benchmarks):
            yield self._removal(gone, "missing", "a benchmark of the base is gone")

    def _alike(self, gone: str) -> str:
        """Which new method may be a pair under another name, as a sentence; "" if there is none."""
        signature = _signature(self.base, gone)
        for method in self.head.description["methods"]:
            if method not in self.base.description["methods"] and signature == _signature(self.head, method) != {}:
                return f"; {method} is new and has the same figures: if it is renamed, allow this removal"
        return ""

    def narrowed(self) -> Iterable[Finding]:
        """Declarations that try or promise less than on the base, and others that have changed."""
        for method in self.base.description["methods"]:
            now = self.renamed.get(method, method)
            before, after = self.base.declared(method), self.head.declared(now)
            if not before or not after:
                continue
            for fact, sentence in declared.narrower(before, after):
                yield self._removal(f"{method}:{fact}", "narrowed", sentence)
            for fact, sentence in declared.otherwise(before, after):
                yield Finding("declared", f"{method}:{fact}", sentence=sentence)
        old, new = (half.description.get("run", {}) for half in (self.base, self.head))
        if self.base.description["methods"] and old and new:
            if new["examples"] < old["examples"]:
                sentence = f"{new['examples']} problems per claim, and {old['examples']} on the base"
                yield self._removal("examples", "narrowed", sentence)
            if new["seed"] != old["seed"]:
                yield Finding("declared", "seed", sentence=f"was {old['seed']}, and is {new['seed']}")

    def cells(self) -> Iterable[Finding]:
        """The findings on every cell of both manifests."""
        kept = {name(row) for row in self.head.cells.values()}
        for key, row in manifest(self.base, self.head).items():
            of_base = key in self.base.cells
            if of_base and (self._renamed(row) or name(row) not in kept):
                continue  # reported by `deleted`
            yield from self._cell(key, row, of_base)

    def entries(self) -> Iterable[Finding]:
        """Entries of allow.toml that have expired or are not needed."""
        for entry in self.allowed:
            if self.today > entry.expires:
                yield Finding("expired", entry.cell, quantity=entry.quantity, sentence=f"expired on {entry.expires}")
            elif entry not in self.needed and not entry.cell.endswith(f":{DECISIONS}"):  # those follow in `decisions`
                yield Finding("unused", entry.cell, quantity=entry.quantity, sentence="is not needed any more")

    def left_out(self) -> Iterable[Finding]:
        """The quantities that pairs of the head leave out, with their reasons."""
        for method, reasons in self.head.description.get("left_out", {}).items():
            for quantity, reason in reasons.items():
                yield Finding("left_out", method, quantity=quantity, sentence=f"{quantity}: {reason}")

    def _cell(self, key: str, row: Mapping[str, Any], of_base: bool) -> Iterable[Finding]:
        before, after = self.base.figures.get(key), self.head.figures.get(key)
        if after is None:
            yield Finding("unmeasured", name(row), row, sentence="was not measured on the head")
            return
        if after["status"] not in ("measured", "too_large"):
            broke = before is not None and before["status"] == "measured" and after["status"] == "failed"
            sentence = f"{after['status']} on the head: {after['reason']}"
            if of_base and key not in self.head.cells:
                sentence = f"the benchmark was edited, and as the base has it: {sentence}"
                entry = self._entry(name(row), "")
                if entry is not None:
                    yield Finding("allowed", name(row), row, sentence=f"{sentence}; until {entry.expires}")
                    return
            yield Finding("failed" if broke else "unmeasured", name(row), row, sentence=sentence)
            return
        if before is None or before["status"] not in ("measured", "too_large"):
            if not of_base:
                yield Finding("new", name(row), row, head=figures(after).get("temp_bytes"), quantity="temp_bytes")
                return
            why = before["reason"] if before is not None else "it was not measured"
            status = before["status"] if before is not None else "missing"
            yield Finding("unmeasured", name(row), row, sentence=f"{status} on the base: {why}")
            return
        if of_base and key not in self.head.cells:
            yield Finding(
                "edited", name(row), row, sentence="the benchmark was edited; compared as the base has it, too"
            )
        yield from self._figures(row, before, after)

    def _figures(
        self, row: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> Iterable[Finding]:
        for lost in (each for each in OF_PASSES if each in before and each not in after):
            sentence = f"was {before[lost]:,} on the base; on the head it {_why(after)}"
            yield Finding("unmeasured", name(row), row, lost, sentence=sentence)
        both = {each for each in OF_PASSES if each in before and each in after}
        old, new = (
            {
                quantity: number
                for quantity, number in figures(side).items()
                if quantity not in OF_PASSES or quantity in both
            }
            for side in (before, after)
        )
        if old.keys() != new.keys():  # one of the two is too large for the device
            old, new = ({"required_bytes": side["required_bytes"], "flops": side["flops"]} for side in (before, after))
        memory = after.get("memory_bytes")
        for quantity in old:
            was, now = old[quantity], new[quantity]
            if was == now:
                continue
            kind, sentence = "fall", ""
            if now is None or (was is not None and now > was):
                kind, sentence = "rise", "" if now is not None else "cannot be counted any more"
                entry = self._entry(name(row), quantity)
                if entry is not None and now is not None and entry.ceiling is not None and now <= entry.ceiling:
                    kind, sentence = "allowed", f"up to {entry.ceiling:,} until {entry.expires}: {entry.reason}"
                elif entry is not None:
                    sentence = f"above the ceiling {entry.ceiling:,} of allow.toml"
            yield Finding(kind, name(row), row, quantity, was, now, memory, sentence)
        was, now = before.get(ADVISORY), after.get(ADVISORY)
        if was and now and was != now:
            yield Finding("time", name(row), row, ADVISORY, was, now)

    def _entry(self, cell: str, quantity: str) -> Entry | None:
        entry = next((e for e in self.allowed if e.covers(cell, quantity, self.today)), None)
        if entry is not None:
            self.needed.add(entry)
        return entry

    def _removal(self, gone: str, kind: str, sentence: str) -> Finding:
        entry = self._entry(gone, "")
        if entry is not None:
            return Finding("allowed", gone, sentence=f"{sentence}, allowed until {entry.expires}: {entry.reason}")
        return Finding(kind, gone, sentence=sentence)

    def _renamed(self, row: Mapping[str, Any]) -> bool:
        return owner(row) in self.renamed
