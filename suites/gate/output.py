"""The result of the gate: one document, which is shown as text, JSON or Markdown."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradgate.hw_profiles.profile import CUDA
from gradgate.suites.console.plain import one_line, plain
from gradgate.suites.gate.compare import FAILURES, UNMEASURED, Finding

SCHEMA = 1
HEAD = {
    "rise": "RISE",
    "missing": "GONE",
    "failed": "FAILED",
    "refuted": "REFUTED",
    "unexpected": "UPHELD, DECLARED FALSE",
    "withdrawn": "WITHDRAWN",
    "narrowed": "NARROWER",
    "unmeasured": "NOT MEASURED",
    "left_out": "left out",
    "fixed": "fixed by this change",
    "with_fix": "comes with the fix",
    "known": "not measured, as declared",
    "expired": "expired",
    "allowed": "allowed",
    "unused": "unused",
    "renamed": "renamed",
    "declared": "declared otherwise",
    "edited": "edited",
    "new": "new",
    "fall": "fell",
    "time": "time (advisory)",
}
SHOWN = (
    *("python", "jax", "jaxlib", "libtpu"),
    *(name for one in CUDA for name in (one.pjrt, one.assembler)),
    *("torch", "numpy"),
)
SOME = 8
"""How many files are listed."""
COMMENT = "<!-- gradgate gate -->"
"""First line of the Markdown, by which a pull request's earlier comment is found and replaced."""


@dataclass(frozen=True)
class Document:
    """One run of the gate.

    Attributes:
        base, head: commits.
        asked: the revision given by the user; the base is its merge base with the head.
        fingerprints: the toolchain of base and head.
        cells: how many were measured on the head, and how many there are.
        cells_reused: how many figures of both sides were reused, and how many there are.
        claims: how many claims about gradients were judged, and how many there are.
        claims_reused: how many of these verdicts were reused.
        inapplicable: how many of these claims were found to be inapplicable.
        laws: how many claims about bytes and work were judged, how many there are, and how many verdicts were reused.
        ran: ``base`` and ``head`` -> the modules that came from its tree: name -> path in it.
        built: modules of the head that no commit holds, as a build has made them: name -> path.
        notes: why figures or verdicts cannot be reused by the next gate.
    """

    base: str
    head: str
    asked: str
    fingerprints: tuple[Mapping[str, str], Mapping[str, str]]
    cells: tuple[int, int]
    cells_reused: tuple[int, int]
    claims: tuple[int, int]
    claims_reused: int
    seconds: float
    findings: Sequence[Finding] = field(default_factory=list)
    inapplicable: int = 0
    laws: tuple[int, int, int] = (0, 0, 0)
    ran: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    built: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    @property
    def status(self) -> int:
        """0 nothing rose · 1 regressed · 2 not everything could be measured."""
        kinds = {finding.kind for finding in self.findings}
        if kinds & set(FAILURES):
            return 1
        complete = all(counted[0] == counted[1] for counted in (self.cells, self.claims, self.laws))
        return 0 if complete and self.cells[1] and not kinds & set(UNMEASURED) else 2

    @property
    def verdict(self) -> str:
        """The result in one line."""
        counts = {kind: sum(finding.kind == kind for finding in self.findings) for kind in HEAD}
        words = {
            "rise": ("figure rises", "figures rise"),
            "missing": ("is gone", "are gone"),
            "failed": ("cell fails", "cells fail"),
            "withdrawn": ("claim is withdrawn", "claims are withdrawn"),
            "refuted": ("claim does not hold", "claims do not hold"),
            "unexpected": ("claim is upheld, declared false", "claims are upheld, declared false"),
            "narrowed": ("declaration is narrower", "declarations are narrower"),
            "unmeasured": ("could not be measured", "could not be measured"),
            "fixed": ("claim is fixed by this change", "claims are fixed by this change"),
            "with_fix": ("finding comes with the fix", "findings come with the fix"),
            "allowed": ("allowed rise", "allowed rises"),
            "fall": ("figure falls", "figures fall"),
            "new": ("new cell", "new cells"),
            "left_out": ("quantity is left out", "quantities are left out"),
        }
        said = [f"{counts[kind]} {word[counts[kind] != 1]}" for kind, word in words.items() if counts[kind]]
        if self.status == 0:
            better = (counts["fall"] or counts["fixed"]) and not counts["allowed"] and not counts["with_fix"]
            only = "only improvements" if better else ""
            return "PASS: " + ", ".join([only] * bool(only) + said or ["every gated figure is the same"])
        if self.status == 1:
            return "FAIL: " + ", ".join(said)
        lacking = [] if self.cells[1] else ["no cell is gated"]
        return "NOT MEASURED: " + ", ".join(said + lacking or ["fewer cells or claims ran than there are"])

    @property
    def counts(self) -> list[str]:
        """How many cells were measured and claims judged, how many of them reused, and what ran: one line each."""
        (ran, of), (judged, claims) = self.cells, self.claims
        reused = f"{self.cells_reused[0]} of {self.cells_reused[1]} figures of base and head"
        left = f"; inapplicable: {self.inapplicable}" if self.inapplicable else ""
        lines = [
            f"{ran} of {of} cells measured; reused, as nothing they depend on was touched: {reused}",
            f"{judged} of {claims} gradient claims judged on the head; reused: {self.claims_reused}{left}",
        ]
        if self.laws[1]:
            known = f"{self.laws[0]} of {self.laws[1]} claims about bytes and work"
            lines.append(f"{known} judged on the head; reused: {self.laws[2]}")
        for side, modules in self.ran.items():
            files = sorted(set(modules.values()))
            more = f" and {len(files) - SOME} more" if len(files) > SOME else ""
            lines.append(f"ran from the tree of the {side}: {', '.join(files[:SOME])}{more}")
        if self.built:
            files = sorted({f"{name} ({path})" for name, path in self.built.items()})
            more = f" and {len(files) - SOME} more" if len(files) > SOME else ""
            lines.append(f"made by a build, in neither commit: {', '.join(files[:SOME])}{more}")
        lines += self.notes
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The document in plain JSON types, with stable names."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "verdict": self.verdict,
            "base": self.base,
            "head": self.head,
            "asked": self.asked,
            "fingerprint": dict(self.fingerprints[1]),
            "fingerprint_base": dict(self.fingerprints[0]),
            "cells": {"measured": self.cells[0], "manifest": self.cells[1], "reused": self.cells_reused[0]},
            "claims": {
                "judged": self.claims[0],
                "manifest": self.claims[1],
                "reused": self.claims_reused,
                "inapplicable": self.inapplicable,
            },
            "laws": dict(zip(("judged", "manifest", "reused"), self.laws, strict=True)),
            "ran": {side: dict(modules) for side, modules in self.ran.items()},
            "built": dict(self.built),
            "notes": list(self.notes),
            "seconds": round(self.seconds, 3),
            "findings": [
                dataclasses.asdict(f) | {"share_of_memory": share(f), "reproduce": reproduce(f)} for f in self.findings
            ],
        }


def toolchain(fingerprint: Mapping[str, str]) -> str:
    """Such as ``python 3.11.7 · jax 0.10.2``."""
    return " · ".join(f"{name} {fingerprint[name]}" for name in SHOWN if name in fingerprint)


def bumped(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What differs between two toolchains; "" if they are the same."""
    names = sorted(before.keys() | after.keys())
    return ", ".join(
        f"{n} {before.get(n, 'none')} → {after.get(n, 'none')}" for n in names if before.get(n) != after.get(n)
    )


def share(finding: Finding) -> float | None:
    """The head's bytes divided by the device's memory; None if either is not known."""
    if not finding.memory_bytes or finding.head is None or "bytes" not in finding.quantity:
        return None
    return finding.head / finding.memory_bytes


def reproduce(finding: Finding) -> str:
    """One command that measures the cell again or judges the claim again."""
    row = finding.row
    if finding.reproduce or not row:
        return finding.reproduce
    words = ["gradgate", "memory", *([row["target"]] if row["target"] else []), "--family"]
    words.append(row.get("origin") or row["family"])
    words += [] if row["target"] else ["--method", row["method"]]
    words += ["--framework", row["framework"], "--profile", row["profile"]]
    words += ["--options", json.dumps(row["options"])] if row["options"] else []
    return shlex.join([*words, "--spec", json.dumps(row["spec"])])


def figures(finding: Finding) -> str:
    """Base → head, the difference, percent, and the share of the device's memory."""
    unit = {"flops": "FLOPs", "roofline_seconds": "s"}.get(finding.quantity, "B")

    def shown(value: float | None) -> str:
        return "none" if value is None else f"{value:.3g}" if unit == "s" else f"{int(value):,}"

    if finding.kind == "new":
        return f"{finding.quantity} {shown(finding.head)} {unit}"
    text = f"{finding.quantity} {shown(finding.base)} → {shown(finding.head)} {unit}"
    if finding.base is not None and finding.head is not None:
        change = finding.head - finding.base
        percent = [f"{100 * change / finding.base:+.2f}%"] if finding.base else []
        part = share(finding)
        percent += [f"{100 * part:.3g}% of {(finding.memory_bytes or 0) / 2**30:.1f} GiB"] if part is not None else []
        difference = f"{'+' if change > 0 else ''}{shown(change)} {unit}"
        text += f" ({', '.join([difference, *percent])})"
    return text


def text(document: Document) -> str:
    """The document as text, for a terminal or a log."""
    lines = [
        f"base {document.base[:10]} (merge base with {document.asked}) → head {document.head[:10]}",
        f"toolchain: {toolchain(document.fingerprints[1])}",
    ]
    change = bumped(*document.fingerprints)
    lines += [f"toolchain of the base differs: {change}"] if change else []
    lines += [*document.counts, f"took {document.seconds:.1f} s", ""]
    for finding in document.findings:
        lines += _finding(finding)
    return plain("\n".join([*lines, *([""] if document.findings else []), document.verdict]) + "\n")


def _finding(finding: Finding) -> list[str]:
    row = finding.row
    options = f"  {json.dumps(row['options'])}" if row and row["options"] else ""
    lines = [f"{HEAD[finding.kind]} {finding.name}{options}"]
    lines += [f"  {figures(finding)}"] if finding.base is not None or finding.head is not None else []
    lines += [f"  {finding.sentence}"] if finding.sentence else []
    if finding.kind in (*FAILURES, *UNMEASURED) and reproduce(finding):
        lines.append(f"  reproduce: {reproduce(finding)}")
    return lines


def markdown(document: Document) -> str:
    """The document as Markdown, for a comment on a pull request: the verdict first, details folded.

    What comes from the code under test is text in it: it links to nothing, mentions nobody and ends no table.
    """
    mark = {0: "✅", 1: "❌", 2: "⚠️"}[document.status]
    lines = [COMMENT, f"### {mark} gradgate: {_escape(document.verdict)}", ""]
    loud = [f for f in document.findings if f.kind not in ("edited", "unused", "expired", "time")]
    if loud:
        lines += ["| | cell | options | figures |", "|---|---|---|---|"]
        for finding in loud:
            options = json.dumps(finding.row["options"]) if finding.row and finding.row["options"] else ""
            said = [figures(finding)] if finding.base is not None or finding.head is not None else []
            said += [finding.sentence] if finding.sentence else []
            cells = [HEAD[finding.kind], _code(finding.name), _code(options), _escape("; ".join(said))]
            lines.append("| " + " | ".join(cells) + " |")
        lines.append("")
    commands = dict.fromkeys(reproduce(f) for f in loud if f.kind in (*FAILURES, *UNMEASURED) and reproduce(f))
    if commands:
        fence = _fence("\n".join(commands), 3)
        shown = map(plain, commands)
        lines += ["<details><summary>Reproduce</summary>", "", fence, *shown, fence, "", "</details>", ""]
    lines += [f"- `{document.base[:10]}` → `{document.head[:10]}`", *(f"- {_escape(line)}" for line in document.counts)]
    lines += [f"- {_escape(toolchain(document.fingerprints[1]))}"]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    """Text for a cell of a table, in which nothing is markup.

    A space without width breaks what GitHub and GitLab recognise without markup: mentions, addresses, issue numbers.
    """
    escaped = _MARKUP.sub(r"\\\g<0>", html.escape(one_line(text), quote=False))
    return _RECOGNISED.sub(r"\g<0>&#8203;", escaped)


def _code(text: str) -> str:
    """Text as code in a cell of a table; "" if there is none."""
    shown = one_line(text).replace("|", "\\|")
    fence = _fence(shown, 1)
    inside = f" {shown} " if shown.startswith("`") or shown.endswith("`") else shown
    return f"{fence}{inside}{fence}" if shown else ""


def _fence(text: str, least: int) -> str:
    """A row of backticks that is longer than every one in `text`."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


_MARKUP = re.compile(r"[\\`*_{}\[\]|~$!]")
_RECOGNISED = re.compile(r"@|#(?=\d)|\b(?:https?|ftp|mailto):|\bwww(?=\.)|:(?=[\w+-]+:)", re.IGNORECASE)
