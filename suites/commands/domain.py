"""``gradgate domain``: for each input of a pair, the scales at which the gradient keeps its digits."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import Family, UsageError
from gradgate.suites.commands import arguments
from gradgate.suites.console import domain_table, streams, terminal
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.engine import strategies
from gradgate.suites.exact import truth
from gradgate.suites.judging.subject import Subject
from gradgate.suites.pairs import calls, domain, unseen
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairSpec
from gradgate.suites.settings import Settings

SCHEMA = 1
NUMBERS = 64
"""Most numbers of the inputs of the problem that is taken if none is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate domain``."""
    arguments.add(parser, "target", help="file.py:pair or package.module:pair (default: the pair of pyproject.toml)")
    arguments.add(parser, "--spec", help="dims and shared options of the problem (default: of at most 64 numbers)")
    arguments.add(parser, "--options", help="options of the function (default: the usual ones)")
    arguments.add(parser, "--json", help="write the points here")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a picture here")


def main(chosen: argparse.Namespace) -> int:
    """Measure, show and write; returns 0.

    Raises:
        UsageError: the target is no pair, or no input of it may be scaled; says what is legal.
    """
    settings = Settings.read(Path.cwd())
    for path in filter(None, (chosen.json, chosen.svg)):
        need_own(path, "points") if path is chosen.json else need_own(path)
    chosen.targets = arguments.targets(chosen, settings)
    named = [given.target for given in chosen.targets if not given.family]
    if not named:
        raise UsageError("say which pair: file.py:pair, or a file with one")
    with arguments.users_code(settings):
        with streams.without_native_logs():
            offered = [family for target in named for family in calls.offered(target)]
        if len(offered) > 1:
            said = f"{', '.join(named)} declares {len(offered)} pairs"
            raise UsageError(f"{said}; name one, such as {offered[0].origin}")
        _measure(chosen, offered[0])
    return 0


def _measure(chosen: argparse.Namespace, family: Family) -> None:
    subject, target = Subject.load(family.methods[0]), chosen.target or family.origin
    pair = subject.function
    if not isinstance(pair, Pair):
        raise UsageError(f"{target} is no gradgate.Pair, and only a pair says how its inputs are drawn")
    if pair.reference is None:
        raise UsageError(f"{target} names no reference=, whose digits would be compared with the function's")
    leaves = unseen.free(pair)
    if not leaves:
        raise UsageError(f"{target}: only inputs that are drawn as normal() about 0 are scaled, and it has none")
    spec = _spec(chosen.spec, family, pair)
    options = arguments.json_object(chosen.options, "--options")
    taken = strategies.pick_options(family.methods[0], spec) if options is None else options
    arguments.tell_targets(chosen)
    total = len(domain.POWERS) * (len(leaves) + (len(leaves) > 1)) * len(pair.dtypes) * len(domain.ROLES)
    found = []
    with progress(total, "points") as show:
        for point in domain.points(subject, spec, taken):
            found.append(point)
            show.advance(f"{point.leaf or 'all inputs'} times 1e{point.power:+03d} in {point.dtype}")
    domain_table.show(pair.called, found)
    if chosen.json:
        write_atomically(chosen.json, json.dumps(_document(target, spec, taken, found), indent=1) + "\n")
    if chosen.svg:
        from gradgate.suites.report import domain_plot

        write_atomically(chosen.svg, domain_plot.picture(pair.called, found))
        terminal.note(f"picture: {chosen.svg}")


def _spec(asked: str | None, family: Family, pair: Pair) -> PairSpec:
    """The problem: what was asked for, with other fields of the largest shape that has few numbers.

    Raises:
        UsageError: a field does not exist, or the problem is too large for sixty digits.
    """
    shapes = [shape for shape in family.shapes if not shape.get("regime")]
    small = [shape for shape in shapes if pair.numbers(_fields(pair, shape)) <= NUMBERS]
    usual = max(small or shapes[:1], key=lambda shape: pair.numbers(_fields(pair, shape)))
    fields = {**usual, **(arguments.json_object(asked, "--spec") or {})}
    found = registry.spec_class(family.name).from_json(json.dumps(fields))
    assert isinstance(found, PairSpec)
    if found.work() > truth.AFFORDABLE:
        raise UsageError(f"--spec {asked} is too large for sixty digits; take smaller dims")
    return found


def _fields(pair: Pair, shape: Any) -> dict[str, Any]:
    return {name: shape[name] for name in (*pair.dims, *pair.shared)}


def _document(target: str, spec: PairSpec, options: Any, found: Sequence[domain.Point]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "target": target,
        "spec": json.loads(spec.to_json()),
        "options": dict(options),
        "points": [dataclasses.asdict(point) for point in found],
    }
