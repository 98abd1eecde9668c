"""``gradgate memory``: bytes and work over a sweep, the fitted law, and the largest size that fits each device."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gradgate.hw_profiles import profile as hardware
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.measurement import ANSWERS, Measurement
from gradgate.references import registry
from gradgate.references.contract import Family, Method, Setting, Spec, UsageError, unknown
from gradgate.suites.commands import arguments
from gradgate.suites.commands.arguments import json_object, need_report
from gradgate.suites.console import choice_table, memory_table, streams, terminal
from gradgate.suites.console.files import is_stream, need_own, write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.verdict import Task
from gradgate.suites.keeping.figures import Figures
from gradgate.suites.keeping.keys import Keys
from gradgate.suites.measuring import cells, choice
from gradgate.suites.measuring.cells import MethodCell
from gradgate.suites.measuring.series import Series
from gradgate.suites.pairs import calls
from gradgate.suites.settings import Settings, Target
from gradgate.suites.workers import cluster
from gradgate.suites.workers.supervisor import Supervisor

QUANTITIES = ("temp_bytes", "required_bytes", "flops")
"""Quantities to which a law is fitted. The second decides what fits a device."""

EXAMPLES = 6
"""Problems per claim where ``--problem`` also judges the methods; ``gradgate verify --problem`` tries more."""

INAPPLICABLE = "inapplicable"
"""Status of a cell that cannot be measured: it needs several devices and the profile is one, or it is `unmeasured`."""


@dataclasses.dataclass(frozen=True)
class Range:
    """A geometric sweep over a Spec field; without a field, the given problem only."""

    variable: str = ""
    letter: str = ""
    sizes: tuple[int, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate memory``."""
    arguments.add(parser, "target", "--problem", "--family", "--method", "--framework")
    profiles = "hardware profiles, or paths of TOML files (default cpu)"
    arguments.add(parser, "--profile", metavar="P[,P…]", help=profiles)
    sweep = "a Spec field or the paper's letter, in factors of 2: T=64:4096"
    parser.add_argument("--sweep", default="", metavar="NAME=LOW:HIGH", help=sweep)
    options = "options of the method (default: the usual ones, which may depend on the size)"
    arguments.add(parser, "--options", help=options)
    arguments.add(parser, "--spec", default="{}", help="fields of the problem that differ from the family's usual ones")
    arguments.add(parser, "--shard", "--scheduler")
    arguments.add(parser, "--jobs", metavar="N", help="local processes (default 2)")
    fresh = "measure everything again; without it, figures of what has not changed are reused"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    arguments.add(parser, "--timeout", default=300.0, help="limit per compilation in seconds (default 300)")
    arguments.add(parser, "--json", help="write cells and laws here, after each cell")
    arguments.add(parser, "--report", help="write memory.html, the plot, and memory.json here")


def main(chosen: argparse.Namespace) -> int:
    """Measure, show and write; returns the exit status.

    Returns:
        0 every cell has an answer ("too large for the device" is one) or is inapplicable on this profile; 2 a cell
        could not be measured.

    Raises:
        UsageError, ProfileError: a wrong name or value; lists what is legal.
    """
    if chosen.report:
        need_report()
    settings = Settings.read(Path.cwd())
    for name in ("memory.html", "choice.html", "plotly.min.js") if chosen.report else ():
        need_own(chosen.report / name)
    for path in _targets(chosen):
        need_own(path, "cells")
    for name in chosen.profile.split(","):
        hardware.load(name.strip())
    chosen.targets = arguments.targets(chosen, settings)
    with arguments.users_code(settings):
        return _main(chosen, settings)


def _main(chosen: argparse.Namespace, settings: Settings) -> int:
    """As `main`, where the user's code can be imported."""
    with streams.without_native_logs():
        methods = _methods(chosen)
    every = [cell for each in methods for cell in _cells(chosen, *each, chosen.profile.split(","))]
    asked = chosen.shard.part(every, lambda cell: f"{cell.declared.key}@{cell.profile}")
    share = {"shard": chosen.shard.to_dict(len(every))} if chosen.shard.of > 1 else {}
    share |= arguments.code(chosen)
    swept = _range(registry.family(methods[0][1].name), chosen.sweep)
    arguments.tell_targets(chosen)
    rows: dict[int, dict[str, Any]] = {}
    try:
        _measure(chosen, settings, asked, rows, share)
    finally:
        document = share | _document(asked, rows, swept)
        _write(chosen, document, last=not chosen.problem)
    if chosen.problem:
        document["choice"] = _choice(chosen, document, [method for method, *_ in methods], swept)
        _write(chosen, document)
        choice_table.show(document["choice"])
    else:
        memory_table.show(document, swept.letter)
    if chosen.report:
        from gradgate.suites.report import frame, memory_page

        pages = memory_page.pages(document)
        frame.write(chosen.report, pages)
        for name in pages:
            terminal.note(f"report: {chosen.report / name}")
    return 0 if all(row["status"] in (*ANSWERS, INAPPLICABLE) for row in rows.values()) else 2


def _measure(
    chosen: argparse.Namespace,
    settings: Settings,
    asked: list[MethodCell],
    rows: dict[int, dict[str, Any]],
    share: dict[str, Any],
) -> None:
    """Fill `rows`, place of a cell -> its row: kept figures first, then what has to be measured; write as they come."""
    kept = Figures(Keys(Path.cwd(), settings.depends), fresh=chosen.fresh)
    places = {id(cell): place for place, cell in enumerate(asked)}
    with cluster.executor(chosen.scheduler) as executor, progress(len(asked), "cells") as show:

        def done(cell: MethodCell, measured: Measurement) -> None:
            row = rows[places[id(cell)]] = _row(cell, measured)
            show.advance(f"{cell.declared.name} {measured.profile}: {row['status']}")

        waiting = []
        for cell in asked:
            known = kept.get(cell.declared, cell.to_dict())
            if known is None:
                waiting.append(cell)
            else:
                done(cell, dataclasses.replace(known, cached=True))
        written = 0.0
        for cell, measured in cells.measure(waiting, executor, workers=chosen.jobs, limit=chosen.timeout):
            kept.put(cell.declared, cell.to_dict(), measured)
            done(cell, measured)
            if time.monotonic() - written > 1:  # without laws: fitting each time would cost more than the cells
                _write(chosen, share | _document(asked, rows, Range()), last=False)
                written = time.monotonic()
    kept.keys.imports.parsed.keep()
    if len(waiting) < len(asked):
        said = f"{len(asked) - len(waiting)} of {len(asked)} cells reused: what they depend on is unchanged"
        terminal.note(f"{said}; --fresh measures all anew")
    for note in kept.answers.notes("figures"):
        terminal.note(note)


def _choice(
    chosen: argparse.Namespace, document: dict[str, Any], methods: list[Method], swept: Range
) -> dict[str, Any]:
    """What `choice_table.show` takes: the verdicts on the methods for the user's model, with the measurements."""
    tasks = [Task.of(m, claim) for m in methods for claim in m.claims if claim.name in choice.SETTLING]
    with Supervisor(Run(examples=EXAMPLES), chosen.jobs) as supervisor, progress(len(tasks), "claims") as show:
        verdicts = []
        for verdict in supervisor.judge_all(tasks):
            verdicts.append(verdict.to_dict())
            show.advance(f"{verdict.task.method} {verdict.task.claim}: {verdict.verdict}")
    told = {m.name: choice.judged((v for v in verdicts if v["method"] == m.name), m.oracle) for m in methods}
    return {
        "problem": chosen.problem,
        "class": chosen.family.rpartition("@")[2],
        "letter": swept.letter,
        "rows": choice.rows(document["cells"], document["laws"], told),
        "left_out": chosen.left_out,
        "verdicts": verdicts,
    }


def _row(cell: MethodCell, measured: Measurement) -> dict[str, Any]:
    """A measured cell as in the JSON. Its status is inapplicable if the method cannot be measured on this profile."""
    row, why = cells.row(cell, measured), cell.declared.unmeasured
    if measured.devices > 1 and hardware.load(cell.profile).compiler not in ("tpu", "host"):
        why = f"it runs on {measured.devices} devices, and {measured.profile} is one; tpu profiles and cpu have several"
    return row | {"status": INAPPLICABLE, "reason": why} if why else row


def _methods(chosen: argparse.Namespace) -> list[tuple[Method, Family, Target]]:
    """The methods, the problems of each, and the target that it comes from."""
    if chosen.framework:
        arguments.need_framework(chosen.framework)
    found: list[tuple[Method, Family, Target]] = []
    for given in chosen.targets:
        if given.family:
            method = registry.plugged_in(given.target, given.family, given.framework or None)
            found.append((method, registry.family(given.family), given))
        else:
            for family in calls.offered(given.target):
                found += [(method, family, Target("", "")) for method in family.methods]
    if chosen.targets:
        found = [one for one in found if chosen.framework in (None, one[0].framework)]
        arguments.need_some(chosen, found)
        return found
    if not chosen.family:
        raise UsageError(f"say which problems: --family {' | '.join(registry.families())}, or file.py of your pairs")
    # PyTorch runs each cell for real, with the same bytes on every profile: it is measured only when requested.
    methods = registry.methods(chosen.family, chosen.method, chosen.framework or "jax")
    if not chosen.framework:
        arguments.need_framework("jax")
    return [(method, registry.family(chosen.family), Target("", "")) for method in methods]


def _cells(
    chosen: argparse.Namespace, method: Method, family: Family, given: Target, profiles: list[str]
) -> Iterator[MethodCell]:
    swept, asked = _range(family, chosen.sweep), json_object(chosen.options, "--options") or {}
    legal = [option.name for option in method.options]
    for name in asked:
        # With several methods, an option goes to those that have it. At least one must have it.
        if name not in legal and (chosen.method or chosen.targets or not _known_option(chosen, name)):
            raise unknown(f"option of {method.name}", name, legal)
    for setting in _settings(chosen, family):
        for spec in _specs(chosen, family, swept, {**setting.fields, **given.spec}):
            options = cells.usual_options(method, spec) | dict(setting.options) | dict(given.options)
            options |= {k: v for k, v in asked.items() if k in legal}
            for profile in profiles:
                yield MethodCell(method, profile.strip(), spec, options, given.target, setting.name)


def _settings(chosen: argparse.Namespace, family: Family) -> tuple[Setting, ...]:
    """The problems to measure: all that the class declares, unless the user asks for one or for a sweep."""
    asked = chosen.sweep or json_object(chosen.spec, "--spec") or json_object(chosen.options, "--options")
    return (Setting("", {}, {}),) if asked or not family.settings else family.settings


def _known_option(chosen: argparse.Namespace, name: str) -> bool:
    every = registry.methods(chosen.family, None, chosen.framework or "jax")
    return any(option.name == name for method in every for option in method.options)


def _specs(chosen: argparse.Namespace, family: Family, swept: Range, further: Mapping[str, Any]) -> list[Spec]:
    cls, letters = registry.spec_class(family.name), family.letters
    fields = {letters.get(name, name): value for name, value in (json_object(chosen.spec, "--spec") or {}).items()}
    base = {"dtype": "float32"} | dict(family.measured) | dict(further) | fields
    if not swept.variable:
        return [cls.from_json(json.dumps(base))]
    return [cls.from_json(json.dumps({**base, swept.variable: size})) for size in swept.sizes]


def _range(family: Family, text: str) -> Range:
    if not text:
        return Range()
    match = re.fullmatch(r"\s*(\w+)\s*=\s*(\d{1,18})\s*:\s*(\d{1,18})\s*", text)
    if match is None:
        raise UsageError(f"--sweep is NAME=LOW:HIGH, such as T=64:4096, not {text!r}")
    name, low, high = match[1], int(match[2]), int(match[3])
    fields = [f.name for f in dataclasses.fields(registry.spec_class(family.name)) if f.type in ("int", int)]
    variable = family.letters.get(name, name)
    if variable not in fields:
        raise unknown(
            f"size of {family.name}", name, [*fields, *(letter for letter in family.letters if letter not in fields)]
        )
    if not 1 <= low <= high:
        raise UsageError(f"--sweep {text}: LOW must be at least 1 and at most HIGH")
    letter = next((short for short, known in family.letters.items() if known == variable), variable)
    return Range(variable, letter, tuple(low * 2**i for i in range(int(math.log2(high / low) + 1e-9) + 1)))


def _document(asked: list[MethodCell], found: dict[int, dict[str, Any]], swept: Range) -> dict[str, Any]:
    order = {path: place for place, path in enumerate(dict.fromkeys(cell.profile for cell in asked))}
    done = sorted(found, key=lambda place: (asked[place].declared.key, order[asked[place].profile], place))
    rows = [found[place] for place in done]
    return {
        "schema": 1,
        "fingerprint": fingerprint(),
        "cells": rows,
        "laws": _laws(rows, swept) if swept.variable else [],
    }


def _laws(rows: list[dict[str, Any]], swept: Range) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["method"], row["framework"], row["profile"]), []).append(row)
    laws = []
    for (method, framework, profile), group in groups.items():
        for quantity in (*QUANTITIES, *(name for name in cells.OF_PASSES if name in group[0])):
            found = [(r["spec"][swept.variable], r.get(quantity)) for r in group if r["status"] == "measured"]
            points = [(size, value) for size, value in found if value is not None]
            series = Series.of(quantity, swept.variable, swept.letter, points)
            owner = {"family": group[0]["family"], "method": method, "framework": framework, "profile": profile}
            laws.append(owner | series.to_dict() | _limits(series, group, swept, profile))
    return laws


def _limits(series: Series, group: list[dict[str, Any]], swept: Range, profile: str) -> dict[str, Any]:
    """The largest size measured to fit, the smallest that does not, and the largest that the law predicts to fit."""
    if series.quantity != "required_bytes":
        return {}
    fit, unfit = ([r["spec"][swept.variable] for r in group if r["fits"] is known] for known in (True, False))
    memory = next((r["memory_bytes"] for r in group), None)
    foretold = series.law.largest_size(memory) if series.law is not None and memory is not None else None
    return {
        "memory_bytes": memory,
        "largest_measured": max(fit, default=None),
        "smallest_unfit": min(unfit, default=None),
        "largest_foretold": foretold,
    }


def _write(chosen: argparse.Namespace, document: dict[str, Any], last: bool = True) -> None:
    """Write the document; a pipe gets the last state only."""
    for path in _targets(chosen):
        if last or not is_stream(path):
            write_atomically(path, json.dumps(document, indent=1) + "\n")


def _targets(chosen: argparse.Namespace) -> list[Path]:
    """The files in which a run keeps its figures."""
    written = [chosen.json] if chosen.json else []
    return [*written, chosen.report / "memory.json"] if chosen.report else written
