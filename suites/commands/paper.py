"""``gradgate paper``: measure again what a paper printed, keep it as JSON next to the family, and judge it."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import datetime
import json
import os
import re
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from gradgate.hw_profiles import processes
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.derived import is_derived
from gradgate.references.errors import UsageError, unknown
from gradgate.references.published import Published
from gradgate.suites.commands import arguments
from gradgate.suites.console import paper_table, terminal
from gradgate.suites.console.files import write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.measuring.paper_results import (
    SCHEMA,
    blank,
    complete,
    published,
    read,
    results_path,
    stored,
    with_verdict,
)

MOVED = 0.01
"""A figure that is measured again and differs by more than this, relatively, is reported with its earlier value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate paper``."""
    arguments.add(parser, "--family", help="problem class, for example performer")
    parser.add_argument("--place", metavar="P", help="only what is printed there: 'Table 2', or '§4.1' for all within")
    processes = "processes (default 1; ratios of times need an otherwise idle machine)"
    arguments.add(parser, "--jobs", default=1, metavar="N", help=processes)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--again", action="store_true", help="also measure what is already there")
    which.add_argument("--kept", action="store_true", help="only judge kept results; without --family, of all papers")
    arguments.add(parser, "--shard")
    results = "file of results, read and written (default: paper.json in the family's folder)"
    arguments.add(parser, "--json", help=results)


def main(chosen: argparse.Namespace) -> int:
    """Measure what is missing, write after each figure, and judge every printed figure; returns the exit status.

    What an earlier run measured with the same toolchain is kept, so an interrupted run resumes where it stopped.

    Returns:
        0 every figure is as declared; 1 one is not; 2 one could not be measured, or has no expectation.

    Raises:
        UsageError: a wrong name; lists what is legal.
    """
    if chosen.kept and not chosen.family:
        return _all_kept(chosen)
    asked = published(chosen.family)
    if chosen.shard.of > 1 and not chosen.json:
        raise UsageError("a share of a paper is kept in a separate file: --shard needs --json FILE")
    places = _places(chosen.place, list(dict.fromkeys(item.place for item in asked)))
    path = chosen.json or results_path(chosen.family)
    placed = [item for item in asked if item.place in places and not is_derived(item)]
    own = chosen.shard.part(placed, lambda item: item.key)
    rows = {row["key"]: row for row in read(path)["results"]}
    if not chosen.kept:
        keys = {"keys": [item.key for item in own]}
        share = {"shard": chosen.shard.to_dict(len(placed)) | keys} if chosen.shard.of > 1 else {}
        _measure_missing(asked, own, rows, path, share, chosen)
    told_here = {item.key for item in own}
    if chosen.shard.of == 1:  # figures derived from others need all shares
        told_here |= {item.key for item in asked if item.place in places}
    found = complete(asked, rows.values())
    return paper_table.show({chosen.family: [row for row in found if row["key"] in told_here]})


def _places(asked: str | None, every: list[str]) -> list[str]:
    """The place that is asked for; or all that begin with its words, as those of a section do.

    Raises:
        UsageError: there is none.
    """
    if asked is None or asked in every:
        return every if asked is None else [asked]
    within = [place for place in every if re.match(rf"{re.escape(asked)}(?!\w|\.\d)", place)]
    if not within:
        raise unknown("place", asked, every)
    return within


def _all_kept(chosen: argparse.Namespace) -> int:
    if chosen.place or chosen.json or chosen.shard.of > 1:
        raise UsageError("--place, --json and --shard are about one paper: say --family too")
    found = {family: stored(family) for family in registry.families()}
    return paper_table.show({family: rows for family, rows in found.items() if rows})


def _measure_missing(
    asked: Sequence[Published],
    own: Sequence[Published],
    rows: dict[str, dict[str, Any]],
    path: Path,
    share: dict[str, Any],
    chosen: argparse.Namespace,
) -> None:
    """Measure what of `own` is missing in `rows`, and add it; after each figure, write all known results of `asked`."""
    versions = fingerprint()

    def there(item: Published) -> bool:
        row = rows.get(item.key)
        return row is not None and row["fingerprint"] == versions and row["ours"] is not None

    wanted = [item for item in own if chosen.again or not there(item)]
    terminal.note(f"{len(wanted)} of {len(asked)} figures to measure; the others are in {path}")

    def keep() -> None:  # reasons and verdicts follow from declarations, so they are renewed for earlier results too
        known = [with_verdict(one, rows[one.key]) for one in asked if one.key in rows]
        write_atomically(
            path, json.dumps({"schema": SCHEMA, **share, "results": known}, indent=1, ensure_ascii=False) + "\n"
        )

    keep()
    with progress(len(wanted), "figures") as show, contextlib.closing(_all_measured(wanted, chosen.jobs)) as results:
        for item, found in results:
            earlier = rows.get(item.key, {}).get("ours")
            rows[item.key] = row(item, found, versions)
            keep()
            show.advance(line=False)
            show.note(f"[{show.done}/{len(wanted)}] {sentence(rows[item.key])}{moved(earlier, found['ours'])}")


def _all_measured(wanted: Sequence[Published], jobs: int) -> Generator[tuple[Published, dict[str, Any]], None, None]:
    """Each figure with its measurement, in order of completion, from `jobs` processes."""
    with processes.pool(jobs, _prepare) as pool:
        futures = {pool.submit(_measured, item.measured, dict(item.arguments)): item for item in wanted}
        for future in concurrent.futures.as_completed(futures):
            try:
                found = future.result()
            except Exception as error:  # a dead worker: what was measured is written already
                found = {"ours": None, "problem": f"{type(error).__name__}: {error}", "seconds": 0.0}
            yield futures[future], found


def row(item: Published, found: dict[str, Any], versions: dict[str, str]) -> dict[str, Any]:
    """One result: what was printed, what was measured, their ratio, the verdict, and what it depends on."""
    return with_verdict(
        item,
        blank(item)
        | {
            "ours": found["ours"],
            "problem": found["problem"],
            "seconds": round(found["seconds"], 1),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "fingerprint": versions,
        },
    )


def sentence(result: dict[str, Any]) -> str:
    """A result in one line."""
    what = f"{result['place']}, {result['series']}, {result['x']}"
    if result["ours"] is None:
        return f"{what}: {result['problem']}"
    if not isinstance(result["ours"], (int, float)):
        return f"{what}: measured"
    ratio = f", printed {result['printed']:.4g}, ratio {result['ratio']:.3g}" if result["ratio"] is not None else ""
    return f"{what}: {result['ours']:.4g} {result['unit']}{ratio}"


def moved(earlier: Any, now: Any) -> str:
    """The kept number in words, if the new one differs; "" if they agree within `MOVED` or one is not known."""
    numbers = (int, float)
    if not isinstance(earlier, numbers) or not isinstance(now, numbers) or abs(now - earlier) <= MOVED * abs(earlier):
        return ""
    return f"; it was {earlier:.4g}"


def _prepare() -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    silence = os.open(os.devnull, os.O_WRONLY)  # compilers would print into the lines of progress
    os.dup2(silence, 2)


def _measured(target: str, arguments: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    ours, problem = None, ""
    try:
        ours = registry.load(target)(**arguments)
    except (Exception, SystemExit) as error:
        problem = str(error) if isinstance(error, LookupError) else f"{type(error).__name__}: {error}"
    return {"ours": ours, "problem": problem, "seconds": time.perf_counter() - start}
