"""The figures by which the suite is judged: false alarms, and the smallest planted error that verify sees.

``gradgate calibrate`` measures both for every class and keeps what it has measured.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from gradgate.hw_profiles import processes
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS, UsageError
from gradgate.suites.calibration import alarms, power
from gradgate.suites.commands import arguments
from gradgate.suites.console import terminal
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.schemas import documents
from gradgate.suites.workers import cluster
from gradgate.suites.workers.shards import cost
from gradgate.suites.workers.variables import environment

SCHEMA = 1
CHUNK = 250
"""Problems per piece of work. A piece is judged and kept as a whole; a stopped run loses unfinished pieces only."""
EXAMPLES = 100
"""Problems per claim when planted errors are looked for: the default of ``gradgate verify``."""
QUANTILES = (0.5, 0.99, 0.999, 1.0)
Piece = tuple[str, ...]
"""(``alarms``, framework, start) or (``power``, framework, method)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate calibrate``."""
    drawn = "random problems of each class, half in each framework; every method gets each (default 4000)"
    parser.add_argument("--problems", type=arguments.positive, default=4000, metavar="N", help=drawn)
    arguments.add(parser, "--family", help="problem class (default: all)")
    arguments.add(parser, "--seed", default=1, help=None)
    arguments.add(parser, "--jobs", help=None)
    arguments.add(parser, "--shard", "--scheduler")
    arguments.add(parser, "--json", help="keep the results here and resume from them")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="write the figures here, family by family")


def main(chosen: argparse.Namespace) -> int:
    """Measure both figures, class by class, and print them; returns 0 if there is no false alarm, else 1.

    A run with the same seed and toolchain continues from the results in its file. In the summary, the figures of other
    families stay.

    Raises:
        UsageError: a wrong name, or a file that this command did not write.

    Cost: about 0.4 s of one core per problem and framework, and about 30 s per method for the planted errors.
    """
    families = [registry.family(chosen.family).name] if chosen.family else list(registry.families())
    if chosen.shard.of > 1 and (chosen.summary or not chosen.json):
        raise UsageError("the figures need all shares: give --shard a --json, without --summary, and unite the files")
    seed, problems, keep = chosen.seed, chosen.problems, chosen.json
    head = {"seed": seed, "problems": problems, "fingerprint": fingerprint()}
    kept = _kept(keep, head)
    if chosen.summary:
        need_own(chosen.summary, "families")
    os.environ.update(environment())
    figures = {}
    every = [(family, piece) for family in families for piece in _pieces(family, problems)]
    own = chosen.shard.part(every, lambda one: ":".join([one[0], *one[1]]), lambda one: cost(one[1][1]))
    share = {"shard": chosen.shard.to_dict(len(every))} if chosen.shard.of > 1 else {}
    for family in dict.fromkeys(family for family, _ in own):
        done = kept.setdefault(family, {})
        pieces = [piece for of, piece in own if of == family]
        todo = [piece for piece in pieces if ":".join(piece) not in done]
        with progress(len(pieces), f"{family}: pieces of work") as show:
            show.advance(count=len(pieces) - len(todo))
            for piece, found in _measured(family, seed, problems // 2, todo, chosen):
                done[":".join(piece)] = found
                show.advance()
                if keep:
                    write_atomically(keep, json.dumps({"schema": SCHEMA, **head, **share, "families": kept}))
        figures[family] = {"date": date.today().isoformat(), **figure({":".join(p): done[":".join(p)] for p in pieces})}
        _print(family, figures[family])
    if keep and not keep.exists():  # a share with nothing to do writes its file, too
        write_atomically(keep, json.dumps({"schema": SCHEMA, **head, **share, "families": kept}))
    if chosen.summary:
        _summarise(chosen.summary, head, figures)
    total, alarmed = (sum(f[key] for f in figures.values()) for key in ("judgements", "false_alarms"))
    terminal.console().print(f"seed {seed}: {alarmed} false alarms in {total} judgements of {', '.join(figures)}")
    return 1 if alarmed else 0


def _pieces(family: str, problems: int) -> list[Piece]:
    found: list[Piece] = []
    for framework in FRAMEWORKS:
        chosen = alarms.methods(family, framework)
        found += [("power", framework, method.name) for method in chosen]
        found += [("alarms", framework, str(start)) for start in range(0, problems // 2, CHUNK) if chosen]
    if not found:
        raise UsageError("no framework is installed: pip install 'gradgate[jax]' or 'gradgate[torch]'")
    return found


def _measured(
    family: str, seed: int, problems: int, todo: Sequence[Piece], chosen: argparse.Namespace
) -> Iterator[tuple[Piece, dict[str, Any]]]:
    """Every piece with its result, from local processes or a cluster. A lost piece is handed out once more."""
    address = registry.family(family).address  # other processes find a class of the user's by it
    for last in (False, True):
        lost: list[Piece] = []
        with contextlib.ExitStack() as stack:
            executor = stack.enter_context(cluster.executor(chosen.scheduler))
            pool = executor or stack.enter_context(processes.pool(chosen.jobs))
            work = measure if executor is None else measure_apart
            futures = {pool.submit(work, address, seed, problems, piece): piece for piece in todo}
            for future in concurrent.futures.as_completed(futures):
                died = isinstance(future.exception(), concurrent.futures.BrokenExecutor)
                if not last and (died or (executor is not None and future.exception() is not None)):
                    lost.append(futures[future])
                else:
                    yield futures[future], future.result()
        todo = lost


def measure(family: str, seed: int, problems: int, piece: Piece) -> dict[str, Any]:
    """Do one piece of work, in a separate process."""
    what, framework, which = piece
    if what == "alarms":
        return alarms.measure(family, framework, seed, int(which), min(CHUNK, problems - int(which)))
    return power.of_method(family, which, framework, EXAMPLES, seed)


def measure_apart(*asked: Any) -> dict[str, Any]:
    """`measure` on a machine of a cluster: in a new process, which has not yet imported a framework.

    Raises:
        RuntimeError: the process failed; says how.
    """
    place = f"import json, sys; from {measure.__module__} import measure; "
    script = place + "print(json.dumps(measure(*json.loads(sys.argv[1]))))"
    ran = subprocess.run(
        [sys.executable, "-c", script, json.dumps(asked)],
        env={**os.environ, **environment()},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if ran.returncode:
        raise RuntimeError(f"status {ran.returncode}: {ran.stderr[-500:]}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _kept(keep: Path | None, head: dict[str, Any]) -> dict[str, Any]:
    if keep is None or not keep.is_file():
        return {}
    found = documents.read(keep, "calibrate")
    if any(found[key] != value for key, value in head.items()):
        raise UsageError(f"{keep} was measured with another seed, number of problems or toolchain; give another --json")
    return dict(found["families"])


def figure(pieces: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one family: judgements, by method and framework, false alarms, quantiles, planted errors."""
    chunks = [found for key, found in pieces.items() if key.startswith("alarms:")]
    judged: Counter[str] = sum((Counter(chunk["judged"]) for chunk in chunks), Counter())
    found: dict[str, Any] = {
        "problems": sum(chunk["problems"] for chunk in chunks),
        "judgements": judged.total(),
        "methods": dict(sorted(judged.items())),
        "frameworks": {f: sum(n for key, n in judged.items() if key.endswith(f)) for f in FRAMEWORKS},
        "false_alarms": sum(len(chunk["alarms"]) for chunk in chunks),
        "alarms": [alarm for chunk in chunks for alarm in chunk["alarms"]],
        "sixty_digits": sum(len(chunk["digits"]) for chunk in chunks),
        "fewest_digits": min((digits for chunk in chunks for digits in chunk["digits"]), default=None),
    }
    planted = {f"{key.split(':')[2]}:{key.split(':')[1]}": of for key, of in pieces.items() if key.startswith("power:")}
    for dtype in alarms.DTYPES:
        ratios = np.concatenate(
            [np.asarray(chunk["ratios"].get(dtype, []), float) for chunk in chunks] or [np.zeros(0)]
        )
        found[dtype] = {
            "error_over_noise": {f"{q:g}": round(float(np.quantile(ratios, q)), 2) for q in QUANTILES}
            if len(ratios)
            else {},
            "worst": _worst([chunk["worst"].get(dtype, {}) for chunk in chunks]),
            "smallest_seen": {method: of[dtype] for method, of in sorted(planted.items()) if dtype in of},
        }
    return found


def _worst(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Method -> the largest error over noise of all tables."""
    return {key: max(table.get(key, 0.0) for table in tables) for key in sorted(set().union(*tables))}


def _summarise(path: Path, head: dict[str, Any], figures: Mapping[str, Any]) -> None:
    before = documents.read(path, "summary") if path.exists() else {}
    others = before["families"] if all(before.get(key) == value for key, value in head.items()) else {}
    document = {"schema": SCHEMA, **head, "families": {**others, **figures}}
    write_atomically(path, json.dumps(document, indent=1) + "\n")


def _print(family: str, found: Mapping[str, Any]) -> None:
    out = terminal.console()
    for alarm in found["alarms"][:20]:
        out.print(f"false alarm: {json.dumps(alarm)}", markup=False, soft_wrap=True)
    where = ", ".join(f"{framework} {count}" for framework, count in found["frameworks"].items())
    out.print(
        f"{family}: {found['false_alarms']} false alarms in {found['judgements']} judgements of {found['problems']} "
        f"problems ({where}), {found['sixty_digits']} of them also in sixty digits (at least {found['fewest_digits']})"
    )
    for dtype in alarms.DTYPES:
        row = found[dtype]
        quantiles = ", ".join(f"{100 * float(q):g}% {value:.2f}" for q, value in row["error_over_noise"].items())
        out.print(f"{dtype}: error over noise of the worst leaf: {quantiles}")
        seen = {method: max(kinds.values(), key=_delta) for method, kinds in row["smallest_seen"].items() if kinds}
        for method, (delta, leaf, *bound) in seen.items():
            least = f"; bound on a common factor: {bound[0]}" if bound else ""
            out.print(
                f"  {method:28} an error planted in one leaf is refuted from {delta} on ({leaf} needs the most{least})",
                soft_wrap=True,
            )


def _delta(seen: Sequence[str]) -> float:
    return float(seen[0])
