"""The page with the history of every figure: ``bytes.html``, and ``dashboard/figures.json`` that it reads.

One page compares any commit with any other, worst changes first. Above it are the rises that nobody has acknowledged: a
rise stays there until the figure falls again, or until ``allow.toml`` has an entry for it, at its commit or later. This
is the file of the gate, so a rise that the gate was asked to accept is acknowledged from the start.
"""

from __future__ import annotations

import datetime
import html
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import history

from gradgate.references.errors import UsageError
from gradgate.suites.gallery import badge
from gradgate.suites.gate import allow

PAGES = Path(__file__).resolve().parent / "pages"
STYLE = Path(allow.__file__).resolve().parents[1] / "report" / "style.css"
"""The report's style: one design for all pages."""
BRANCH = "main"
ALLOW = "asv_bench/allow.toml"
FILES = ("bytes.html", "dashboard", "badge.svg", "badge.json")
"""What is written into the folder of the site."""


@dataclass(frozen=True)
class Quantity:
    """One thing that is measured.

    Attributes:
        key: its name, as in allow.toml if the gate guards it.
        label: its name on the page.
        unit: the unit.
        guarded: whether a worse figure is a rise to be acknowledged. The others are compared only: times and errors
            are noisy, and the gate does not guard them.
        falls: whether a smaller figure is the worse one.
    """

    key: str
    label: str
    unit: str = "bytes"
    guarded: bool = True
    falls: bool = False


QUANTITIES = {
    "figures.Figures.track_temp_bytes": Quantity("temp_bytes", "temp bytes"),
    "figures.Figures.track_state_bytes": Quantity("state_bytes", "state bytes"),
    "figures.Figures.track_peak_bytes": Quantity("peak_bytes", "peak bytes", guarded=False),
    "passes.Passes.track_residual_bytes": Quantity("residual_bytes", "residual bytes"),
    "passes.Passes.track_compiled_residual_bytes": Quantity("compiled_residual_bytes", "compiled residual bytes"),
    "passes.Passes.track_compiled_peak_bytes": Quantity("compiled_peak_bytes", "compiled peak bytes"),
    "figures.Figures.track_flops": Quantity("flops", "FLOPs", "FLOPs"),
    "verdicts.Verdicts.track_not_as_declared": Quantity("verdicts", "claims not as declared", "claims"),
    "verdicts.Verdicts.track_digits": Quantity("digits", "digits of the formula", "digits", guarded=False, falls=True),
    "verdicts.Verdicts.track_digits_lost": Quantity("digits_lost", "digits lost in floats", "digits", guarded=False),
    "gradients.Error.track_error_over_noise": Quantity("error", "error over noise", "noise", guarded=False),
}
"""Benchmark -> what it measures, in the order of the page. asv's pages show the other benchmarks."""


@dataclass(frozen=True)
class Commit:
    """A commit of the branch that has results; `date` is a day such as 2026-11-25."""

    hash: str
    date: str
    subject: str


@dataclass
class Series:
    """One figure over the history.

    Attributes:
        method: ``class:method:framework``, or the name of a pair.
        name: the parameter of asv, which also has a digest of problem and options.
        benchmark: the benchmark's name.
        profile: the profile; "" for verdicts.
        points: (place of the commit, value) for each commit at which the profile was measured; None if it failed.
    """

    method: str
    name: str
    benchmark: str
    profile: str
    points: list[tuple[int, float | None]] = field(default_factory=list)

    @property
    def cell(self) -> str:
        """The name that allow.toml uses."""
        return f"{self.method}@{self.profile}"

    def changes(self) -> list[tuple[int, int, float, float]]:
        """(place before, place, value before, value) of each change between two commits that were measured."""
        known = [(place, value) for place, value in self.points if value is not None]
        pairs = itertools.pairwise(known)
        return [(before, place, old, new) for (before, old), (place, new) in pairs if new != old]


@dataclass
class Allowed:
    """An entry of allow.toml.

    Attributes:
        entry: the entry.
        hash: the commit that added it.
        since: the place of the first commit with results that has it.
        until: the place of the first one that no longer has it; infinite if the newest has it.
    """

    entry: allow.Entry
    hash: str
    since: int
    until: float = math.inf

    def acknowledges(self, place: int, day: datetime.date, cell: str, quantity: str, value: float) -> bool:
        """Whether it was valid for a rise at a place, or was written after it."""
        entry = self.entry
        there = self.since > place or (self.until > place and entry.expires >= day)
        about = (entry.cell.partition(" ")[0], entry.quantity) == (cell, quantity)
        return there and about and entry.ceiling is not None and value <= entry.ceiling


def write(results: Path, site: Path, root: Path) -> int:
    """Write the page and what it reads into the folder of the site; returns the number of open rises.

    Args:
        results: folder of asv's results.
        site: the folder to write into.
        root: a folder of the repository.

    Raises:
        UsageError: git does not know the branch.
    """
    commits = of_branch(root, {commit for commit, *_ in _documents(results)})
    series = _series(results, commits)
    link = commit_link(root)
    alive = {path.parent.name: history.alive(path.parent) for path in results.glob(f"*/{history.ALIVE}")}
    document = figures(commits, series, entries(root, commits), link, alive)
    folder = site / "dashboard"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "figures.json").write_text(json.dumps(document, separators=(",", ":")), encoding="utf-8")
    shutil.copy(STYLE, folder / "report.css")
    for name in ("dashboard.css", "dashboard.js"):
        shutil.copy(PAGES / name, folder / name)
    verdicts = _newest_verdicts(series, commits)
    (site / "badge.svg").write_text(badge.svg("claims", *verdicts[:2]), encoding="utf-8")
    (site / "badge.json").write_text(json.dumps(badge.endpoint("claims", *verdicts[:2])), encoding="utf-8")
    rises = sum(change["state"] == "open" for change in document["changes"])
    (site / "bytes.html").write_text(page(site, document, *verdicts), encoding="utf-8")
    return rises


def of_branch(root: Path, measured: Iterable[str]) -> list[Commit]:
    """The commits of the branch that have results, oldest first.

    Raises:
        UsageError: git does not know the branch, or none of its commits has results.
    """
    wanted = set(measured)
    told = _git(root, "log", "--first-parent", "--reverse", "--format=%H%x00%cs%x00%s", BRANCH)
    rows = [line.split("\0") for line in told.splitlines()]
    found = [Commit(*row) for row in rows if row[0] in wanted]
    if not found:
        raise UsageError(f"no commit of {BRANCH} has results: nox -s history fetches them, nox -s bench measures some")
    return found


def commit_link(root: Path) -> str:
    """The start of the address of a commit's page, if origin is a server with such pages; "" otherwise."""
    try:
        origin = _git(root, "remote", "get-url", "origin").strip()
    except UsageError:
        return ""
    found = re.fullmatch(r"(?:https://(?:[^@/]+@)?|ssh://git@|git@)([\w.-]+\.\w+)[:/]([\w./-]+?)(?:\.git)?/?", origin)
    return f"https://{found[1]}/{found[2]}/commit/" if found else ""


def entries(root: Path, commits: Sequence[Commit]) -> list[Allowed]:
    """Every entry that allow.toml ever had on the branch: a reason must not vanish with an entry that has expired."""
    revisions = _git(root, "log", "--first-parent", "--reverse", "--format=%H", BRANCH, "--", ALLOW).split()
    line = _git(root, "rev-list", "--first-parent", "--reverse", BRANCH).split()
    places = {commit.hash: place for place, commit in enumerate(commits)}
    found: dict[allow.Entry, Allowed] = {}
    for revision in revisions:
        place = sum(commit in places for commit in line[: line.index(revision)])
        read = set(_read(root, revision))
        for entry in read:
            known = found.setdefault(entry, Allowed(entry, revision, place))
            known.until = math.inf
        for entry, known in found.items():
            if entry not in read:
                known.until = min(known.until, place)
    return list(found.values())


def _read(root: Path, revision: str) -> tuple[allow.Entry, ...]:
    """The entries at a commit; none if the file is gone, or is one that this gate cannot read, which is said."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "allow.toml"
            file.write_text(_git(root, "show", f"{revision}:{ALLOW}"), encoding="utf-8")
            return allow.read(file, f"{ALLOW} of {revision[:8]}")
    except UsageError as error:
        print(f"publish: {error}")
        return ()


def figures(
    commits: Sequence[Commit],
    series: Sequence[Series],
    allowed: Sequence[Allowed],
    link: str,
    alive: Mapping[str, Mapping[str, Mapping[str, str]]],
) -> dict[str, Any]:
    """What the page reads, as plain JSON types.

    ``series`` have the keys c, m, f (class, method, framework), p (profile), q (quantity), a (asv's page of it) and v:
    [place, value] where the value differs from the one before, and null where there is none. ``changes`` have s (the
    place of their series), from and at (places of commits), old and new, and a state: ``better``, ``worse`` (a quantity
    that nobody has to acknowledge), ``open``, ``acknowledged`` or ``undone``.

    Args:
        commits, series, allowed: of the branch.
        link: the start of the address of a commit's page; "" if there is none.
        alive: machine -> commit -> name -> the arrays that are alive at the peak.
    """
    measured: dict[str, set[int]] = {}
    for one in series:
        measured.setdefault(one.profile, set()).update(place for place, _ in one.points)
    rows, changes = [], []
    for number, one in enumerate(series):
        quantity = QUANTITIES[one.benchmark]
        parts = one.method.split(":") if one.method.count(":") == 2 else ["pairs", one.method, "torch"]
        machine = f"machine={one.profile or history.VERIFY}"
        parameter = "pair" if one.benchmark.startswith("passes.") else "method"
        asv = f"history/index.html#{one.benchmark}?{machine}&p-{parameter}={_quoted(one.name)}"
        rows.append(
            {
                "c": parts[0],
                "m": parts[1],
                "f": parts[2],
                "p": one.profile,
                "q": quantity.key,
                "a": asv,
                "v": _shortened(one, measured[one.profile]),
            }
        )
        for before, place, old, new in one.changes():
            change = {"s": number, "from": before, "at": place, "old": old, "new": new}
            changes.append(change | _state(one, quantity, place, old, new, allowed, commits))
            text = alive.get(one.profile, {}).get(commits[place].hash, {}).get(one.name, "")
            if text and quantity.key in ("temp_bytes", "peak_bytes"):
                changes[-1]["alive"] = text
    return {
        "commits": [[commit.hash, commit.date, commit.subject] for commit in commits],
        "link": link,
        "edit": link.replace("/commit/", f"/edit/{BRANCH}/{ALLOW}"),
        "quantities": {q.key: [q.label, q.unit, q.falls, q.guarded] for q in QUANTITIES.values()},
        "measured": {profile: sorted(places) for profile, places in measured.items()},
        "series": rows,
        "changes": changes,
    }


def _shortened(one: Series, measured: Iterable[int]) -> list[tuple[int, float | None]]:
    """(place, value) wherever the value differs from the one before; None where the profile has no point of it."""
    known = dict(one.points)
    found: list[tuple[int, float | None]] = []
    for place in sorted(place for place in measured if place >= one.points[0][0]):
        value = known.get(place)
        if not found or value != found[-1][1]:
            found.append((place, value))
    return found


def _state(
    one: Series,
    quantity: Quantity,
    place: int,
    old: float,
    new: float,
    allowed: Sequence[Allowed],
    commits: Sequence[Commit],
) -> dict[str, str]:
    """Whether a change is worse, and what became of it; with the reason if it was acknowledged."""
    if (new > old) == quantity.falls:
        return {"state": "better"}
    if not quantity.guarded:
        return {"state": "worse"}
    day = datetime.date.fromisoformat(commits[place].date)
    for known in allowed:
        if known.acknowledges(place, day, one.cell, quantity.key, new):
            return {"state": "acknowledged", "reason": known.entry.reason, "by": known.hash}
    later = [value for at, value in one.points if at > place and value is not None]
    if any(value >= old if quantity.falls else value <= old for value in later):
        return {"state": "undone"}
    return {"state": "open"}


def page(site: Path, document: Mapping[str, Any], words: str, colour: str, verdicts: str) -> str:
    """The page as text; the script fills its tables.

    Args:
        site: the folder of the site, for the links to what is there.
        document: what `figures` returns.
        words, colour: of the badge.
        verdicts: a sentence on the newest verdicts.
    """
    there = {"history/index.html": "asv", "history/regressions.xml": "Feed", "report/index.html": "Verdicts"}
    links = [("index.html", "Guide"), *((path, name) for path, name in there.items() if (site / path).exists())]
    newest = document["commits"][-1]
    values = {
        "links": "".join(f'<a href="{path}">{name}</a>' for path, name in links),
        "tone": {"green": "upheld", "red": "failure"}.get(colour, "inapplicable"),
        "badge": html.escape(f"claims: {words}"),
        "verdicts": html.escape(verdicts),
        "count": str(len(document["commits"])),
        "newest": html.escape(f"{newest[0][:8]} of {newest[1]}"),
    }
    text = (PAGES / "bytes.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], text)


def _documents(results: Path) -> list[tuple[str, str, dict[str, Any]]]:
    """(commit, machine, result file) of every result file."""
    found = [(path.parent.name, json.loads(path.read_text(encoding="utf-8"))) for path in history.result_files(results)]
    return [(document["commit_hash"], machine, document) for machine, document in found]


def _series(results: Path, commits: Sequence[Commit]) -> list[Series]:
    place = {commit.hash: number for number, commit in enumerate(commits)}
    found: dict[tuple[str, str, str], Series] = {}
    for commit, machine, document in _documents(results):
        for benchmark, row in history.rows(document):
            if benchmark not in QUANTITIES or commit not in place or not row["result"]:
                continue
            for quoted, value in zip(row["params"][0], row["result"], strict=False):
                name, profile = quoted.strip("'"), "" if machine == history.VERIFY else machine
                if value is None or not math.isnan(value):  # asv writes NaN for what a profile does not have
                    one = Series(name.partition("~")[0], name, benchmark, profile)
                    found.setdefault((benchmark, profile, name), one).points.append((place[commit], value))
    for one in found.values():
        one.points.sort(key=lambda point: point[0])
    order = list(QUANTITIES)
    there = [one for one in found.values() if any(value is not None for _, value in one.points)]
    return sorted(there, key=lambda one: (one.name, one.profile != "cpu", one.profile, order.index(one.benchmark)))


def _newest_verdicts(series: Sequence[Series], commits: Sequence[Commit]) -> tuple[str, str, str]:
    """The words and the colour of the badge, and a sentence for the page."""
    judged = [one for one in series if QUANTITIES[one.benchmark].key == "verdicts"]
    if not judged:
        return "not judged", "grey", "No verdicts are kept yet: gradgate verify has not run for any of these commits."
    newest = max(place for one in judged for place, _ in one.points)
    values = [value for one in judged for place, value in one.points if place == newest and value is not None]
    wrong = round(sum(values))
    words = f"{wrong} not as declared" if wrong else "as declared"
    said = f"At {commits[newest].hash[:8]} of {commits[newest].date}, the claims of "
    said += f"{len(values)} method{'s' * (len(values) != 1)} were judged: "
    said += f"{wrong} {'is' if wrong == 1 else 'are'} not as declared." if wrong else "all are as declared."
    return words, "red" if wrong else "green", said


def _quoted(name: str) -> str:
    return quote(repr(name))


def _git(root: Path, *words: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    ran = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False, env=environment)
    if ran.returncode:
        raise UsageError(f"git {words[0]}: {ran.stderr.strip()}")
    return ran.stdout
