"""Merges the results of several machines into one history that only grows."""

import json
import shutil
from pathlib import Path

RECORD = "published"
"""The name of a JSON file in the results folder: how many points each machine and benchmark had when last published. It
does not end in .json, because asv reads every such file there as a result."""


class ShrunkError(Exception):
    """Points of the history are gone: a shard was lost, or results were not restored. Publish nothing."""


def unite(shards, results):
    """Copy the machines of other results folders into this one, and merge their lists of benchmarks.

    If both have a result file of the same commit, it is merged by benchmark. The shard's figures are used, because they
    are newer.

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
            place.write_text(json.dumps(_merged(_load(place), _load(path))))
        ours, theirs = _load(results / "benchmarks.json"), _load(shard / "benchmarks.json")
        (results / "benchmarks.json").write_text(json.dumps(_longest(ours, theirs)))


def check_and_record(results):
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


def count(results):
    """Machine -> benchmark -> number of values that are not missing, over commits and parameters."""
    counted = {}
    for path in result_files(results):
        found = _load(path)
        column = found["result_columns"].index("result")
        for benchmark, row in found["results"].items():
            values = row[column] if isinstance(row, list) else row
            present = sum(value is not None and value == value for value in values or [])
            machine = counted.setdefault(path.parent.name, {})
            machine[benchmark] = machine.get(benchmark, 0) + present
    return counted


def result_files(results):
    """Every result file below a results folder."""
    for path in sorted(Path(results).glob("*/*.json")):
        if path.name != "machine.json":
            yield path


def _load(path):
    return json.loads(path.read_text()) if path.is_file() else {}


def _merged(old, new):
    if not old:
        return new
    if old["result_columns"] != new["result_columns"]:
        raise ShrunkError("two result files of one commit are of different versions of asv; measure it again")
    for key in ("results", "durations"):
        new[key] = {**old.get(key, {}), **new.get(key, {})}
    return new


def _longest(ours, theirs):
    """Both lists of benchmarks; of two entries with one name, the one with more parameters: a class may be new."""

    def size(entry):
        return sum(len(values) for values in entry.get("params", ())) if isinstance(entry, dict) else 0

    return {name: max((d[name] for d in (ours, theirs) if name in d), key=size) for name in {**ours, **theirs}}
