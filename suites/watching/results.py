"""What was seen of each rule, what the verdicts on its calls mean for it, and the exit status of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gradgate.references.claims import GRADIENT_CLAIMS
from gradgate.suites.judging.verdict import Verdict
from gradgate.suites.watching.recorder import Rule

FLOATS = tuple(GRADIENT_CLAIMS.values())
CLAIMS = (
    "tree",
    "gradient_exact",
    *FLOATS,
    "cotangents",
    "each_leaf_alone",
    "layouts",
    "deterministic",
    "forward_mode",
)
"""Claims whose refutation refutes the rule."""
HAZARDS = ("autograd",)
"""Claims about uses that the program may not make, such as a second derivative. A refutation is shown as a warning."""
MOST_JUDGED = 6
"""Distinct calls of one rule that are judged: those with values first."""
COARSE, FINE = 1e-3, 1e-15
"""Relative errors: see `Judged._is_iteration`."""
IMPLICIT = ("custom_root", "custom_linear_solve")
"""Kinds of rules that solve an equation, and whose solvers may stop early."""
COMPARED = ("checkpoint", "custom_vmap", *IMPLICIT)
"""Kinds of rules that have another reference than the derivative of their own forward pass."""
AGREES = "agrees with central differences"
"""What `explaining` says of a gradient that agrees with central differences."""
DRAWN = "drawn"
"""The regime of inputs that were not seen (`replay.DRAWN`)."""


@dataclass(frozen=True)
class State:
    """What is known about a rule.

    Attributes:
        mark: one character.
        words: the state in words.
        status: the exit status of a run with such a rule.
    """

    mark: str
    words: str
    status: int = 0


STATES = {
    "refuted": State("✗", "refuted", 1),
    "elsewhere": State("?", "right at what was seen, wrong at other inputs"),
    "upheld": State("✓", "upheld"),
    "in floats": State("≈", "upheld in floats"),
    "by differences": State("≈", "upheld by finite differences"),
    "acknowledged": State("○", "acknowledged"),
    "not judged": State("–", "not judged", 2),
}
"""Name -> state, in the order in which rules are shown."""


@dataclass(frozen=True)
class Seen:
    """A distinct call of a rule.

    Attributes:
        stem: the name of its files.
        rule: what was called.
        arguments: each argument in a word or two.
        traced: whether it was recorded without values.
        test: the test that made it, if pytest ran one.
        count: how many times such a call was made.
        others: how many further calls of the rule were only counted; of its first distinct call.
    """

    stem: str
    rule: Rule
    arguments: tuple[str, ...]
    traced: bool
    test: str = ""
    count: int = 0
    others: int = 0


@dataclass(frozen=True)
class Explained:
    """What is known about a refuted rule besides its verdicts.

    Attributes:
        likeness: how its gradient relates to the right one, if in a simple way: maybe by design; else "".
        test: a short test without gradgate that fails; "" if there is none.
        agrees: where sixty digits say nothing, whether the gradient agrees with differences of the forward pass in
            float64; None if these were not asked, or are not sharp enough.
        away: how far it is from them, relative to the gradient.
        sharp: how sharp they are, in the same unit.
        call: the stem of the call of which differences say this.
        kept_bytes: what the ``rule`` keeps between its passes, and what is kept without it, ``plain``; None if that is
            not known.
    """

    likeness: str = ""
    test: str = ""
    agrees: bool | None = None
    away: float = 0.0
    sharp: float = 0.0
    call: str = ""
    kept_bytes: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Judged:
    """A rule with the verdicts on its calls.

    Attributes:
        verdicts: stem of a call -> verdicts on it.
        reasons: stem of a call -> why it could not be judged.
        more: number of distinct calls that were recorded and not judged.
        others: how many times the rule was called in these and other ways.
        acknowledged: the reason that the settings give for a rule that differs; "" if they give none.
    """

    rule: Rule
    calls: tuple[Seen, ...]
    verdicts: Mapping[str, Sequence[Verdict]]
    reasons: Mapping[str, str]
    more: int = 0
    others: int = 0
    acknowledged: str = ""
    explained: Explained = field(default_factory=Explained)

    @property
    def count(self) -> int:
        """How many times the rule was called."""
        return sum(call.count for call in self.calls) + self.others

    @property
    def is_wrong(self) -> bool:
        """Whether its gradient is wrong somewhere and nothing explains that."""
        return self.state in ("refuted", "elsewhere")

    @property
    def state(self) -> str:
        """A name in STATES."""
        states = [self.state_of(call) for call in self.calls]
        found: str = next(
            name for name in ("refuted", "elsewhere", "upheld", "in floats", "not judged") if name in states
        )
        if found in ("refuted", "elsewhere") and self._stops_early:
            return "in floats"
        if found in ("refuted", "elsewhere") and self._is_iteration:
            return "by differences"
        if found == "not judged" and self.explained.agrees is not None:
            found = "by differences" if self.explained.agrees else "refuted"
        return "acknowledged" if self.acknowledged and found not in ("upheld", "in floats", "by differences") else found

    def state_of(self, call: Seen) -> str:
        """The state that the verdicts on one call give."""
        rows = self.verdicts.get(call.stem, ())
        wrong = [one for one in rows if one.verdict == "refuted" and one.task.claim in CLAIMS]
        if wrong:
            drawn = all((one.spec or {}).get("regime") == DRAWN for one in wrong)
            return "elsewhere" if drawn else "refuted"
        upheld = {one.task.claim for one in rows if one.verdict == "upheld"}
        return "upheld" if "gradient_exact" in upheld else "in floats" if upheld & {*FLOATS} else "not judged"

    @property
    def _stops_early(self) -> bool:
        """Whether the rule solves an equation, and its gradient is off by no more than a solver that stops early is."""
        one = self.finding
        return self.rule.kind in IMPLICIT and one is not None and bool(one.leaf) and (one.error or 1.0) < COARSE

    @property
    def _is_iteration(self) -> bool:
        """Whether the rule differs from the derivative of its forward pass, and yet agrees with its finite differences.

        So it is where the forward pass is an iteration that stops, such as a bisection: it is a staircase, whose steps
        have another derivative than the function that it approximates. The differences have five digits. So an error
        below `COARSE` would not be seen in them; one below `FINE`, in sixty digits, is none in any float. They say
        nothing of what other claims judge, such as a second derivative, or one input alone; and where the formula is
        that of the forward pass, there are no steps.
        """
        one = self.finding
        if one is None or one.error is None or not one.leaf:  # a wrong value is no matter of derivatives
            return False
        rows = self.verdicts[self.worst.stem]
        same = any(row.task.claim == "gradient_exact" and row.verdict == "upheld" for row in rows)
        if same or one.task.claim not in ("gradient_exact", *FLOATS):
            return False
        if self.rule.kind in COMPARED:
            return False
        return self.explained.likeness == AGREES and not FINE < one.error < COARSE

    @property
    def finding(self) -> Verdict | None:
        """The verdict that says most about what is wrong; None if nothing is."""
        return next(
            (
                one
                for name in ("refuted", "elsewhere")
                for call in self.calls
                if self.state_of(call) == name
                for claim in CLAIMS
                for one in self.verdicts[call.stem]
                if one.task.claim == claim and one.verdict == "refuted"
            ),
            None,
        )

    @property
    def reason(self) -> str:
        """Why the rule is refuted, or not judged; "" if it is upheld."""
        if self.explained.agrees is not None:
            how = "agrees with" if self.explained.agrees else f"is {self.explained.away:.2g} of its size away from"
            said = f"its gradient {how} differences of its forward pass in float64, which are sharp to"
            return f"{said} {self.explained.sharp:.1g}; sixty digits say nothing: {self._unsaid}"
        if self.state == "in floats" and self.finding is not None:
            return (
                f"its solver stops early: its gradient is {self.finding.error:.1g} of its size away from the exact one"
            )
        if self.state == "by differences":
            return "its forward pass is an iteration, whose steps have another derivative than what it approximates"
        if self.finding is not None:
            return self.finding.reason
        if self.state not in ("not judged", "acknowledged"):
            return ""
        return self._unsaid

    @property
    def _unsaid(self) -> str:
        """Why no verdict on its gradient was given."""
        told = [self.reasons[call.stem] for call in self.calls if call.stem in self.reasons]
        told += [
            one.reason
            for call in self.calls
            for one in self.verdicts.get(call.stem, ())
            if one.task.claim in ("tree", "gradient_exact", *FLOATS) and one.verdict != "upheld"
        ]
        return told[0] if told else "no claim about its gradient gave an answer"

    @property
    def hazards(self) -> list[str]:
        """Warnings, a sentence each, of a rule whose gradient is right."""
        rows = [one for call in self.calls for one in self.verdicts.get(call.stem, ())]
        return list(dict.fromkeys(r.reason for r in rows if r.task.claim in HAZARDS and r.verdict == "refuted"))

    @property
    def needs_differences(self) -> bool:
        """Whether sixty digits cannot enter the forward pass, and nothing else has judged the gradient."""
        rows = [one for call in self.calls for one in self.verdicts.get(call.stem, ())]
        closed = [one for one in rows if one.task.claim == "gradient_exact" and one.verdict == "inapplicable"]
        errors = [one for one in rows if one.task.claim == "tree" and one.verdict != "upheld"]
        return self.state == "not judged" and bool(closed) and not errors

    @property
    def worst(self) -> Seen:
        """The call that `finding` is about, or that differences judged, or else the first one."""
        if self.finding is None:
            return next((call for call in self.calls if call.stem == self.explained.call), self.calls[0])
        return next(call for call in self.calls if self.finding in self.verdicts[call.stem])


def read(folder: Path) -> tuple[list[Seen], list[str]]:
    """The calls that were recorded in a folder, and what failed in recording, a sentence each.

    A call without values is left out if one of the same shapes has them.
    """
    counts: dict[str, int] = {}
    beyond: dict[Rule, int] = {}
    failed: dict[str, None] = {}
    for path in sorted(folder.glob("counts-*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for stem, count in document["counts"].items():
            counts[stem] = counts.get(stem, 0) + count
        for fields, count in document["beyond"]:
            beyond[Rule(**fields)] = beyond.get(Rule(**fields), 0) + count
        failed.update(
            dict.fromkeys(f"a call was not recorded: {name}: {why}" for name, why in document["failed"].items())
        )
    seen = []
    for path in sorted(folder.glob("*.json")):
        call = json.loads(path.read_text(encoding="utf-8"))
        if "framework" not in call:
            continue
        rule = Rule(**{name: call[name] for name in ("framework", "kind", "name", "file", "line")})
        arguments, count = tuple(call["arguments"]), counts.get(path.stem, 1)
        seen.append(Seen(path.stem, rule, arguments, call["traced"], call["test"], count))
    known = {(call.rule, call.arguments) for call in seen if not call.traced}
    seen = [call for call in seen if not call.traced or (call.rule, call.arguments) not in known]
    return [replace(call, others=beyond.pop(call.rule, 0)) for call in seen], list(failed)


def was_watched(folder: Path) -> bool:
    """Whether any process recorded into a folder."""
    return any(folder.glob("counts-*.json"))


def by_rule(calls: Iterable[Seen]) -> dict[Rule, list[Seen]]:
    """The calls of each rule, those with values first, in the order of files and lines."""
    found: dict[Rule, list[Seen]] = {}
    for call in sorted(calls, key=lambda c: (c.rule.file, c.rule.line, c.traced, len(str(c.arguments)))):
        found.setdefault(call.rule, []).append(call)
    return found


def exit_status(judged: Iterable[Judged]) -> int:
    """0 every rule is upheld or acknowledged · 1 one is refuted · 2 one could not be judged."""
    found = {STATES[one.state].status for one in judged}
    return 1 if 1 in found else max(found, default=0)


def place(rule: Rule, here: Path) -> str:
    """File and line of a rule, as short as they can be."""
    path = Path(rule.file)
    if path.is_relative_to(here):
        path = path.relative_to(here)
    elif "site-packages" in path.parts:
        path = Path(*path.parts[path.parts.index("site-packages") + 1 :])
    return f"{path}:{rule.line}"


def document(
    judged: Sequence[Judged], notes: Sequence[str], here: Path, fingerprint: Mapping[str, str]
) -> dict[str, Any]:
    """The results as ``gradgate watch --json`` writes them."""
    return {
        "schema": 1,
        "fingerprint": dict(fingerprint),
        "rules": [
            {
                "framework": one.rule.framework,
                "kind": one.rule.kind,
                "name": one.rule.name,
                "file": place(one.rule, here).rpartition(":")[0],
                "line": one.rule.line,
                "state": one.state,
                "reason": one.reason,
                "acknowledged": one.acknowledged,
                "likeness": one.explained.likeness,
                "test": one.explained.test,
                "warnings": one.hazards,
                "kept_bytes": one.explained.kept_bytes,
                "calls": one.count,
                "more": one.more,
                "seen": [
                    {
                        "arguments": list(call.arguments),
                        "traced": call.traced,
                        "test": call.test,
                        "calls": call.count,
                        "state": one.state_of(call),
                        "verdicts": [verdict.to_dict() for verdict in one.verdicts.get(call.stem, ())],
                    }
                    for call in one.calls
                ],
            }
            for one in judged
        ],
        "notes": list(notes),
    }
