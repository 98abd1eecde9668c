"""Merges the results of several machines into one history that only grows, and says which commits it lacks."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD = "published"
"""The name of a JSON file in the results folder: how many points each machine and benchmark had when last published. It
does not end in .json, because asv reads every such file there as a result."""
TRIED = "tried"
"""The name of a JSON file in a machine's folder: commit -> how often it was measured without success."""
ALIVE = "alive"
"""The name of a JSON file in a machine's folder: which arrays were alive at the peak. It has a list of ``texts``, and
``at``: commit -> name of the figure -> place in that list."""
TRIES = 3
"""After so many failures, a commit is no longer counted as missing: a broken commit would fail every later run."""
VERIFY = "verify"
"""The machine under whose name verdicts are kept: they belong to a commit, and not to one profile."""
OF_VERDICTS = {
    "verdicts.Verdicts.track_not_as_declared": "claims",
    "verdicts.Verdicts.track_digits": "digits",
    "verdicts.Verdicts.track_digits_lost": "digits",
}
"""Benchmark -> its unit, of the figures that come from verdicts.json and not from asv."""
Row = dict[str, Any]
"""A document of asv's, or a part of one: asv alone knows its keys."""


class ShrunkError(Exception):
    """Points of the history are gone: a shard was lost, or results were not restored. Publish nothing."""


@dataclass(frozen=True)
class Missing:
    """The commits that a machine lacks, newest first.

    Attributes:
        commits: those to measure.
        given_up: those that have failed `TRIES` times.
    """

    commits: tuple[str, ...]
    given_up: tuple[str, ...]


def unite(shards: Iterable[Path], results: Path) -> None:
    """Copy the machines of other results folders into this one, and merge their lists of benchmarks.

    If both have a result file of the same commit, it is merged by benchmark: the row with more points stays, and of two
    with as many points the one that was measured last. So a failure never replaces a figure.

    Raises:
        ShrunkError: a shard has no results: a job that measured nothing must not look like a job that measured
            something.
    """
    results.mkdir(parents=True, exist_ok=True)
    for shard in map(Path, shards):
        files = list(result_files(shard))
        if not files:
            raise ShrunkError(f"{shard} holds no results: its job measured nothing")
        for path in files:
            place = results / path.parent.name / path.name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path.parent / "machine.json", place.parent / "machine.json")
            _write(place, _merged(_load(place), _load(path)))
        for path in shard.glob(f"*/{ALIVE}"):
            _write_alive(results / path.parent.name, {**alive(results / path.parent.name), **alive(path.parent)})
        for path in shard.glob(f"*/{TRIED}"):
            place = results / path.parent.name / TRIED
            ours, theirs = _load(place), _load(path)
            _write(place, {key: max(ours.get(key, 0), theirs.get(key, 0)) for key in sorted({*ours, *theirs})})
        ours, theirs = _load(results / "benchmarks.json"), _load(shard / "benchmarks.json")
        _write(results / "benchmarks.json", _longest(ours, theirs))


def check_and_record(results: Path) -> dict[str, dict[str, int]]:
    """Count the points, compare with the last publication, and write the new counts.

    Returns:
        machine -> benchmark -> number of points.

    Raises:
        ShrunkError: there are no points, or fewer than before; the message names the machine and the benchmark.
    """
    counted = count(results)
    if not any(counted.values()):
        raise ShrunkError(f"{results} holds no points: nothing to publish")
    for machine, benchmarks in _load(results / RECORD).items():
        for benchmark, before in benchmarks.items():
            now = counted.get(machine, {}).get(benchmark, 0)
            if now < before:
                raise ShrunkError(f"{machine}: {benchmark} had {before} points and has {now}: history must not shrink")
    (results / RECORD).write_text(json.dumps(counted, indent=1, sort_keys=True))
    return counted


def count(results: Path) -> dict[str, dict[str, int]]:
    """Machine -> benchmark -> number of values that are not missing, over commits and parameters."""
    counted: dict[str, dict[str, int]] = {}
    for path in result_files(results):
        found = _load(path)
        machine = counted.setdefault(path.parent.name, {})
        for benchmark, row in rows(found):
            machine[benchmark] = machine.get(benchmark, 0) + points(row)
    return counted


def missing(results: Path, machine: str, branch: Sequence[str]) -> Missing:
    """The commits of a branch that a machine lacks, from its first measured commit on; HEAD alone if it has none.

    A commit is there if it has a result file and none of its benchmarks failed as a whole. One method that fails is a
    result.

    Args:
        results: folder of asv's results.
        machine: the name of a profile.
        branch: the commits of the branch, newest first.
    """
    there = measured(results, machine)
    last = max((place for place, commit in enumerate(branch) if commit in there), default=0)
    lacking = [commit for commit in branch[: last + 1] if commit not in there]
    tried = _load(results / machine / TRIED)
    given_up = [commit for commit in lacking if tried.get(commit, 0) >= TRIES]
    return Missing(tuple(commit for commit in lacking if commit not in given_up), tuple(given_up))


def measured(results: Path, machine: str) -> set[str]:
    """The commits of which a machine has points, and none of whose benchmarks failed as a whole."""
    found = set()
    for path in result_files(results):
        if path.parent.name == machine:
            document = _load(path)
            values = [row["result"] for _, row in rows(document)]
            if values and all(value is not None and any(one is not None for one in value) for value in values):
                found.add(document["commit_hash"])
    return found


def record_tries(results: Path, machine: str, asked: Sequence[str]) -> list[str]:
    """Count one more failure of each asked commit that the machine still lacks; returns these commits."""
    there = measured(results, machine)
    failed = [commit for commit in asked if commit not in there]
    if failed:
        tried = _load(results / machine / TRIED)
        (results / machine).mkdir(parents=True, exist_ok=True)
        _write(results / machine / TRIED, {**tried, **{commit: tried.get(commit, 0) + 1 for commit in failed}})
    return failed


def alive(machine: Path) -> dict[str, dict[str, str]]:
    """Commit -> name of a figure -> the arrays that were alive at its peak, of a machine's folder."""
    document = _load(machine / ALIVE)
    texts = document.get("texts", [])
    return {commit: {name: texts[at] for name, at in row.items()} for commit, row in document.get("at", {}).items()}


def record_alive(results: Path, machine: str, folder: Path) -> None:
    """Add the files that a benchmark wrote, one for each commit, to those that are known."""
    new = {path.stem: _load(path) for path in sorted(folder.glob("*.json"))}
    if any(new.values()):
        _write_alive(results / machine, {**alive(results / machine), **new})


def of_verdicts(document: Row, commit: str, milliseconds: int) -> tuple[Row, Row]:
    """The figures of a run of ``gradgate verify``, as asv would write them.

    For each method: how many claims are not as declared, the fewest digits to which a formula agrees in sixty digits,
    and the most digits that a gradient in floats loses beyond plain backprop.

    Args:
        document: verdicts.json.
        commit: the commit that was judged.
        milliseconds: when it was made, since 1970.

    Returns:
        The result file, and the list of benchmarks.
    """
    of_method: dict[str, list[Row]] = {}
    for row in document["verdicts"]:
        of_method.setdefault(f"{row['family']}:{row['method']}:{row['framework']}", []).append(row)
    names = sorted(of_method)
    least = [[row["digits"] for row in of_method[name] if "digits" in row] for name in names]
    lost = [[row["lost"] for row in of_method[name] if "lost" in row] for name in names]
    values = (
        [sum(not row["as_expected"] for row in of_method[name]) for name in names],
        [min(found, default=math.nan) for found in least],
        [max(found, default=math.nan) for found in lost],
    )
    params = [[repr(name) for name in names]]
    facts = dict.fromkeys(("os", "arch", "cpu", "num_cpu", "ram"), "") | {"machine": VERIFY}
    result = {
        "commit_hash": commit,
        "env_name": VERIFY,
        "date": milliseconds,
        "params": {**facts, "python": ""},
        "python": "",
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at"],
        "results": {name: [one, params, "1", milliseconds] for name, one in zip(OF_VERDICTS, values, strict=True)},
        "durations": {},
        "version": 2,
    }
    benchmarks = {
        name: {
            "name": name,
            "param_names": ["method"],
            "params": params,
            "unit": unit,
            "version": "1",
            "type": "track",
            "timeout": 60,
            "code": "",
        }
        for name, unit in OF_VERDICTS.items()
    }
    return result, {**benchmarks, "version": 2}


def write_verdicts(document: Row, commit: str, milliseconds: int, results: Path) -> None:
    """Write `of_verdicts` into a results folder."""
    result, benchmarks = of_verdicts(document, commit, milliseconds)
    (results / VERIFY).mkdir(parents=True, exist_ok=True)
    _write(results / VERIFY / "machine.json", {**result["params"], "version": 1})
    _write(results / VERIFY / f"{commit[:8]}-{VERIFY}.json", result)
    _write(results / "benchmarks.json", benchmarks)


def result_files(results: Path) -> Iterator[Path]:
    """Every result file below a results folder."""
    for path in sorted(Path(results).glob("*/*.json")):
        if path.name != "machine.json":
            yield path


def rows(document: Row) -> Iterator[tuple[str, Row]]:
    """Each benchmark of a result file, and its row as a dict with the columns of the file, such as ``result``."""
    for benchmark, row in document["results"].items():
        given = row if isinstance(row, list) else [row]  # asv leaves out what is missing at the end
        yield benchmark, {"result": None, **dict(zip(document["result_columns"], given, strict=False))}


def points(row: Row) -> int:
    """How many values of a row are there: asv writes null for one that failed, and NaN for one that was skipped."""
    return sum(value is not None and value == value for value in row["result"] or [])


def _load(path: Path) -> Row:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _write(path: Path, document: Row) -> None:
    path.write_text(json.dumps(document), encoding="utf-8")


def _write_alive(machine: Path, known: dict[str, dict[str, str]]) -> None:
    texts = sorted({text for row in known.values() for text in row.values()})
    place = {text: at for at, text in enumerate(texts)}
    rows = {commit: {name: place[text] for name, text in row.items()} for commit, row in sorted(known.items())}
    _write(machine / ALIVE, {"texts": texts, "at": rows})


def _merged(old: Row, new: Row) -> Row:
    if not old:
        return new
    if old["result_columns"] != new["result_columns"]:
        raise ShrunkError("two result files of one commit are of different versions of asv; measure it again")
    before, after = dict(rows(old)), dict(rows(new))

    def newer(name: str) -> bool:
        if name not in before or name not in after:
            return name in after
        one, other = before[name], after[name]
        return (points(one), one.get("started_at") or 0) <= (points(other), other.get("started_at") or 0)

    names = {**old["results"], **new["results"]}
    new["results"] = {name: (new if newer(name) else old)["results"][name] for name in names}
    new["durations"] = {**old.get("durations", {}), **new.get("durations", {})}
    return new


def _longest(ours: Row, theirs: Row) -> Row:
    """Both lists of benchmarks; of two entries with one name, the one with more parameters: a class may be new."""

    def size(entry: Any) -> int:
        return sum(len(values) for values in entry.get("params", ())) if isinstance(entry, dict) else 0

    return {name: max((d[name] for d in (ours, theirs) if name in d), key=size) for name in {**ours, **theirs}}
