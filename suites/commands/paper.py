"""``gradgate paper``: measure again what a paper printed, and keep it as JSON beside the family."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import multiprocessing
import os
import time
from collections.abc import Generator, Sequence
from typing import Any

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.errors import UsageError, unknown
from gradgate.references.published import Published
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.files import write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.measuring.paper_results import SCHEMA, published, read, results_path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate paper``."""
    arguments.add(parser, "--family", help="problem class, for example performer")
    parser.add_argument("--place", metavar="P", help="only what is printed there, for example 'Table 2'")
    processes = "processes (default 1; ratios of times want a quiet machine)"
    arguments.add(parser, "--jobs", default=1, metavar="N", help=processes)
    parser.add_argument("--again", action="store_true", help="measure what is already there too")
    arguments.add(parser, "--shard")
    results = "results, read and written (default: beside the family's paper.py)"
    arguments.add(parser, "--json", help=results)


def main(chosen: argparse.Namespace) -> int:
    """Measure what is missing, one after another, and write after each; the exit status.

    What an earlier run measured with the same toolchain is kept, so an interrupted run goes on where it stopped.

    Returns:
        0 all is measured; 2 something could not be measured.

    Raises:
        UsageError: a wrong name; lists what is legal.
    """
    asked = published(chosen.family)
    if chosen.shard.of > 1 and not chosen.json:
        raise UsageError("a share of a paper is kept in a file of its own: --shard needs --json FILE")
    if chosen.place:
        places = list(dict.fromkeys(item.place for item in asked))
        if chosen.place not in places:
            raise unknown("place", chosen.place, places)
    path = chosen.json or results_path(chosen.family)
    versions, rows = fingerprint(), {row["key"]: row for row in read(path)["results"]}

    def kept(item: Published) -> bool:
        row = rows.get(item.key)
        return row is not None and row["fingerprint"] == versions and row["ours"] is not None

    placed = [item for item in asked if chosen.place in (None, item.place)]
    own = chosen.shard.part(placed, lambda item: item.key)
    wanted = [item for item in own if chosen.again or not kept(item)]
    keys = {"keys": [item.key for item in own]}
    share = {"shard": chosen.shard.to_dict(len(placed)) | keys} if chosen.shard.of > 1 else {}
    terminal.note(f"{len(wanted)} of {len(asked)} figures to measure; the others are in {path}")

    def keep() -> None:  # a reason is told, not measured: what is listed holds for earlier results too
        known = [rows[one.key] | {"reason": one.reason} for one in asked if one.key in rows]
        write_atomically(
            path, json.dumps({"schema": SCHEMA, **share, "results": known}, indent=1, ensure_ascii=False) + "\n"
        )

    keep()
    with progress(len(wanted), "figures") as show, contextlib.closing(_all_measured(wanted, chosen.jobs)) as results:
        for item, found in results:
            rows[item.key] = row(item, found, versions)
            keep()
            show.advance(line=False)
            show.note(f"[{show.done}/{len(wanted)}] {sentence(rows[item.key])}")
    return 2 if any(rows[item.key]["ours"] is None for item in wanted) else 0


def _all_measured(wanted: Sequence[Published], jobs: int) -> Generator[tuple[Published, dict[str, Any]], None, None]:
    """Each figure with what was measured, in the order in which they finish, on `jobs` processes."""
    spawn = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(jobs, spawn, initializer=_prepare)
    try:
        futures = {pool.submit(_measured, item.measured, dict(item.arguments)): item for item in wanted}
        for future in concurrent.futures.as_completed(futures):
            try:
                yield futures[future], future.result()
            except Exception as error:  # a dead worker: what was measured is written already
                yield futures[future], {"ours": None, "problem": f"{type(error).__name__}: {error}", "seconds": 0.0}
    finally:  # an interruption does not wait for what has not begun
        pool.shutdown(cancel_futures=True)


def row(item: Published, found: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    """One result: what was printed, what was measured, their ratio, and what it depends on."""
    ours = found["ours"]
    known = isinstance(ours, (int, float)) and bool(item.printed)
    return {
        "key": item.key, "place": item.place, "series": item.series, "x": item.x, "unit": item.unit,
        "printed": item.printed, "ours": ours, "ratio": ours / item.printed if known else None, "reason": item.reason,
        "problem": found["problem"], "seconds": round(found["seconds"], 1),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "fingerprint": versions,
    }  # fmt: skip


def sentence(result: dict[str, Any]) -> str:
    """A result in one line."""
    what = f"{result['place']}, {result['series']}, {result['x']}"
    if result["ours"] is None:
        return f"{what}: {result['problem']}"
    if not isinstance(result["ours"], (int, float)):
        return f"{what}: measured"
    ratio = f", printed {result['printed']:.4g}, ratio {result['ratio']:.3g}" if result["ratio"] is not None else ""
    return f"{what}: {result['ours']:.4g} {result['unit']}{ratio}"


def _prepare() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    silence = os.open(os.devnull, os.O_WRONLY)  # what compilers print would tear the lines of progress
    os.dup2(silence, 2)


def _measured(target: str, arguments: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    ours, problem = None, ""
    try:
        ours = registry.load(target)(**arguments)
    except (Exception, SystemExit) as error:
        problem = str(error) if isinstance(error, LookupError) else f"{type(error).__name__}: {error}"
    return {"ours": ours, "problem": problem, "seconds": time.perf_counter() - start}
