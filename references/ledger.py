"""The statements of a paper that can be measured, and how each is covered here.

``references/<class>/paper/ledger.toml`` holds the statements of a class's paper in the order of the paper::

    [[statement]]
    place = "§4.2, Table 3"
    words = "reduces peak memory by more than 10x"
    claims = ["mixflow:jax:memory_law", "mixflow:*:gradient_*"]
    figures = ["Table 3 / HBM, H100", "Table 3 / HBM, TPU / 44M"]
    reason = ""

A claim is written ``method:framework:claim``; the framework may be ``*``, and the name of the claim may end in ``*``.
A figure is written ``place / series / x`` of a `Published` row; its beginning is enough, up to the end of a word.
A statement has claims or figures, or a reason why it has neither.
"""

from __future__ import annotations

import importlib
import importlib.resources
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references import published, registry
from gradgate.references.contract import Claim, Method
from gradgate.references.derived import begins
from gradgate.references.errors import UsageError, unknown
from gradgate.references.published import Judged, Published

FILE = "ledger.toml"
LONGEST = 12
"""The largest number of the paper's words in a statement."""
NOT_YET = "not covered yet: "
"""The beginning of the reason of a statement that could be measured here, but is not measured yet."""
NOTE = "note: "
"""The beginning of the reason of a sentence that claims nothing of this paper: a setting, or about other work."""
NO_NUMBER = "without a printed number"
"""In place of a verdict, for figures that the paper only draws, or that are ours."""
KINDS = ("claim", "figure", "note", "not measurable", "not covered yet")
"""How a statement can be covered."""
FIELDS = ("place", "words", "claims", "figures", "reason")


@dataclass(frozen=True)
class Statement:
    """One statement of a paper that can be measured.

    Attributes:
        place: section, table, figure, listing, equation or appendix.
        words: the paper's own words, at most `LONGEST`.
        claims: patterns of the claims that judge it.
        figures: beginnings of the figures that measure it.
        reason: why there are neither claims nor figures; else "".
    """

    place: str
    words: str
    claims: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    reason: str = ""

    @property
    def kind(self) -> str:
        """How it is covered, one of `KINDS`; ``claim`` if it has both claims and figures."""
        if self.claims:
            return "claim"
        if self.figures:
            return "figure"
        if self.reason.startswith(NOTE):
            return "note"
        return "not covered yet" if self.reason.startswith(NOT_YET) else "not measurable"


@dataclass(frozen=True)
class Entry:
    """A statement with the claims and figures that it names.

    Attributes:
        statement: as it is in the ledger.
        claims: the claims that it names, each with its method.
        rows: the figures that it names.
    """

    statement: Statement
    claims: tuple[tuple[Method, Claim], ...] = ()
    rows: tuple[Published, ...] = ()

    @property
    def expected(self) -> str:
        """What its claims are expected to be: ``upheld``, ``refuted``, ``upheld and refuted``; "" without claims."""
        declared = {claim.expected for _, claim in self.claims}
        return " and ".join(name for name in ("upheld", "refuted") if name in declared)

    def verdict(self, judged: Mapping[str, Judged]) -> str:
        """The verdicts on its figures, such as ``2 upheld, 1 unexplained``, ``all unexplained`` or `NO_NUMBER`.

        Args:
            judged: key of a printed figure -> its verdict.
        """
        found = [judged[row.key] for row in self.rows if row.key in judged]
        outcomes = [one.outcome for one in found]
        if not outcomes:
            return NO_NUMBER
        if len(set(outcomes)) == 1:
            return outcomes[0] if len(outcomes) == 1 else f"all {outcomes[0]}"
        return published.summary(published.counts(found))

    def differing(self, judged: Mapping[str, Judged]) -> dict[str, Judged]:
        """The name of each printed figure -> its verdict; empty if all verdicts are alike."""
        found = {row.name: judged[row.key] for row in self.rows if row.key in judged}
        return found if len({one.outcome for one in found.values()}) > 1 else {}

    def rests_on(self, judged: Mapping[str, Judged]) -> str:
        """Why neither a claim nor a figure settles it; "" if one does.

        ``unexplained`` if every printed figure is unexplained; `NO_NUMBER` if no figure is printed, so none can fail.
        """
        if self.claims or not self.rows:
            return ""
        outcomes = {judged[row.key].outcome for row in self.rows if row.key in judged}
        return "" if outcomes - {"unexplained"} else "unexplained" if outcomes else NO_NUMBER


@dataclass(frozen=True)
class Ledger:
    """The ledger of one class.

    Attributes:
        family: name of the class.
        paper: authors, title and year.
        entries: its statements, in the order of the paper.
    """

    family: str
    paper: str
    entries: tuple[Entry, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many statements are of each kind, for every kind."""
        return {kind: sum(entry.statement.kind == kind for entry in self.entries) for kind in KINDS}

    def unsettled(self, judged: Mapping[str, Judged]) -> str:
        """How many statements are not settled by their figures, in words; "" if all are; see `Entry.rests_on`."""
        found = [entry.rests_on(judged) for entry in self.entries]
        kinds = (("unexplained", "on unexplained figures alone"), (NO_NUMBER, f"on figures {NO_NUMBER} alone"))
        told = [f"{n} {'rests' if n == 1 else 'rest'} {words}" for kind, words in kinds if (n := found.count(kind))]
        return ", ".join(told)

    @property
    def summary(self) -> str:
        """The counts in words, such as ``1 claim, 2 figures, 0 notes, 0 not measurable, 3 not covered yet``."""
        plural = {"claim": "claims", "figure": "figures", "note": "notes"}
        return ", ".join(f"{n} {kind if n == 1 else plural.get(kind, kind)}" for kind, n in self.counts.items())


def of_family(name: str) -> Ledger:
    """The ledger of a class, without entries if the class has no ledger. Imports its declarations, and runs nothing.

    Raises:
        UsageError: there is no such class; or a statement is incomplete, or names a claim or a figure that does not
            exist.
    """
    declared = registry.family(name)
    package = registry.package(declared.name)
    file = importlib.resources.files(package) / "paper" / FILE if package else None
    if file is None or not file.is_file():
        return Ledger(declared.name, declared.paper, ())
    try:
        listed = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file} is not TOML: {error}") from None
    statements = parse(listed, str(file))
    found = rows(package)
    return Ledger(declared.name, declared.paper, tuple(entry(one, declared.methods, found) for one in statements))


def rows(package: str) -> tuple[Published, ...]:
    """The figures of its paper that a class lists, given the class's package; may be empty."""
    place = f"{package}.paper.rows"
    try:
        return tuple(getattr(importlib.import_module(place), "PUBLISHED", ()))
    except ModuleNotFoundError as error:
        if not f"{place}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports one that is not
        return ()


def parse(listed: Mapping[str, Any], file: str) -> tuple[Statement, ...]:
    """The statements in the parsed TOML of a ledger.

    Args:
        listed: ``{"statement": [{...}, ...]}``.
        file: the name of the file, for errors.

    Raises:
        UsageError: a statement is wrong; the message says which one, why, and what is legal.
    """
    if wrong := [key for key in listed if key != "statement"]:
        raise unknown(f"table in {file}", wrong[0], ["statement"])
    statements = tuple(
        _statement(fields, f"{file}, statement {i}") for i, fields in enumerate(listed.get("statement", ()), 1)
    )
    seen: dict[tuple[str, str], int] = {}
    for i, one in enumerate(statements, 1):
        first = seen.setdefault((one.place, one.words), i)
        if first != i:
            raise UsageError(f"{file}: statement {i} repeats statement {first}: {one.place}, {one.words!r}; merge them")
    return statements


def _statement(fields: Mapping[str, Any], where: str) -> Statement:
    for name in fields:
        if name not in FIELDS:
            raise unknown(f"field of {where}", name, FIELDS)
    for name in ("place", "words", "reason"):
        value = fields.get(name, "")
        if not isinstance(value, str) or (name != "reason" and not value.strip()):
            raise UsageError(
                f"{where}: {name} must be text{'' if name == 'reason' else ' and not empty'}, not {value!r}"
            )
    for name in ("claims", "figures"):
        values = fields.get(name, [])
        if not isinstance(values, list) or not all(isinstance(value, str) and value for value in values):
            raise UsageError(f"{where}: {name} must be a list of names, not {values!r}")
    made = Statement(
        fields["place"],
        fields["words"],
        tuple(fields.get("claims", ())),
        tuple(fields.get("figures", ())),
        fields.get("reason", "").strip(),
    )
    length = sum(any(letter.isalnum() for letter in word) for word in made.words.split())
    if length > LONGEST:
        raise UsageError(f"{where}: {length} words of the paper, legal are at most {LONGEST}; shorten {made.words!r}")
    if bool(made.claims or made.figures) == bool(made.reason):
        which = "claims or figures and a reason too" if made.reason else "neither claims nor figures nor a reason"
        raise UsageError(f"{where} ({made.place}, {made.words!r}) has {which}; give claims or figures, else a reason")
    return made


def entry(statement: Statement, methods: Sequence[Method], found: Iterable[Published]) -> Entry:
    """A statement with the claims and figures that it names.

    Raises:
        UsageError: a name matches nothing; the message names the nearest.
    """
    every = {f"{m.name}:{m.framework}:{c.name}": (m, c) for m in methods for c in m.claims}
    claims = {key: every[key] for pattern in statement.claims for key in _matching(pattern, every, statement)}
    listed = {figure_name(row): row for row in found}
    figures: dict[str, Published] = {}
    for start in statement.figures:
        chosen = {name: row for name, row in listed.items() if begins(name, start)}
        if not chosen:
            raise unknown(f"figure of the statement at {statement.place}", start, _starts(start, listed))
        figures |= chosen
    return Entry(statement, tuple(claims.values()), tuple(figures.values()))


def figure_name(row: Published) -> str:
    """``place / series / x`` of a figure."""
    return row.name


def _matching(pattern: str, every: Mapping[str, Any], statement: Statement) -> list[str]:
    parts = pattern.split(":")
    if len(parts) != 3:
        raise UsageError(f"{statement.place}: a claim is written method:framework:claim, not {pattern!r}")
    method, framework, claim = parts

    def fits(key: str) -> bool:
        m, f, c = key.split(":")
        named = c.startswith(claim[:-1]) if claim.endswith("*") else c == claim
        return m == method and framework in ("*", f) and named

    chosen = [key for key in every if fits(key)]
    if not chosen:
        near = sorted({key for key in every if key.startswith(f"{method}:")}) or sorted(every)
        raise unknown(f"claim of the statement at {statement.place}", pattern, near)
    return chosen


def _starts(start: str, listed: Mapping[str, Published]) -> list[str]:
    """The names that a wrong figure may stand for: the series of its place, or else all places."""
    place = start.partition(" / ")[0]
    own = {name.rpartition(" / ")[0] for name, row in listed.items() if row.place == place}
    return sorted(own or {row.place for row in listed.values()})


def is_of_paper(claim: Claim) -> bool:
    """Whether the source of a claim is a paper, and not the contract, an oracle, or a claim beyond the paper."""
    return claim.source not in ("contract", "oracle") and not claim.source.startswith("beyond the paper")


def unnamed(ledger: Ledger, methods: Sequence[Method], found: Iterable[Published]) -> list[str]:
    """Claims from the paper, and figures with a printed number, that no statement names."""
    claims = {(m.name, m.framework, c.name) for one in ledger.entries for m, c in one.claims}
    figures = {row.key for one in ledger.entries for row in one.rows}
    missing = [
        f"{m.name}:{m.framework}:{c.name}"
        for m in methods
        for c in m.claims
        if is_of_paper(c) and (m.name, m.framework, c.name) not in claims
    ]
    return missing + [figure_name(row) for row in found if row.printed is not None and row.key not in figures]
