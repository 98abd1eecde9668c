"""``python -m gradgate.suites.calibration.pairs``: mutants × tools, right pairs, false positives, planted errors."""

from __future__ import annotations

import argparse
import collections
import os
import sys

from gradgate.suites.bugs.of_pairs import one_side, rivals
from gradgate.suites.bugs.of_pairs.corpus import CHOOSING, MODULES, MUTANTS, pairs
from gradgate.suites.bugs.of_pairs.mutant import EXAMPLES, judged, unbroken
from gradgate.suites.calibration import power
from gradgate.suites.calibration.pairs import alarms
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.workers.variables import environment

BAR = {"float64": 1e-11, "float32": 3e-5}
"""Dtype -> the planted error that must be refuted in every leaf."""


def main() -> int:
    """The exit status: 1 if a mutant survives, a right pair is refuted, or a planted error passes."""
    parser = argparse.ArgumentParser(prog="python -m gradgate.suites.calibration.pairs", description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="problems for each claim")
    parser.add_argument("--framework", choices=("jax", "torch"), default="", help="only this framework")
    parser.add_argument("--only", default="", help="only names that contain this text")
    parser.add_argument("--no-rivals", action="store_true", help="run only the claims, not other tools")
    parser.add_argument("--pairs", action="store_true", help="judge all claims of the right pairs")
    parser.add_argument("--planted", action="store_true", help="find the smallest error in one leaf that is refuted")
    parser.add_argument("--alarms", type=int, metavar="N", help="judge N random problems of the right pairs")
    parser.add_argument("--one-side", action="store_true", help="write the table of mutants behind single decisions")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for --alarms: the most time, about")
    parser.add_argument("--seed", type=int, default=0, help="for --alarms")
    args = parser.parse_args()
    os.environ.update(environment())
    if args.alarms is not None:
        return _alarms(args)
    if args.one_side:
        return _one_side(args)
    if args.planted:
        return _planted(args)
    return _right(args) if args.pairs else _mutants(args)


def _mutants(args: argparse.Namespace) -> int:
    """Judge every mutant: whether its claim refutes it, and which tools detect it."""
    chosen = [m for m in MUTANTS if m.name.startswith(args.framework) and args.only in m.name]
    counts: collections.Counter[str] = collections.Counter()
    asked: collections.Counter[str] = collections.Counter()
    survivors = []
    for mutant in chosen:
        pair = mutant.broken()
        verdict = judged(pair, mutant.kill, args.examples)
        tools = {} if args.no_rivals else rivals.detected_by(pair)
        outcome = {f"gradgate: {mutant.kill}": verdict.verdict == "refuted", **tools}
        for tool, hit in {"gradgate": verdict.verdict == "refuted", **tools}.items():
            counts[tool] += hit
            asked[tool] += 1
        if verdict.verdict != "refuted":
            survivors.append(f"{mutant.name}: {verdict.verdict} {verdict.reason}")
        shown = "  ".join(f"{'+' if hit else '-'} {tool}" for tool, hit in outcome.items())
        print(f"{mutant.name:32} {shown}", flush=True)
    print("\ndetected, of all mutants that the tool was run on:")
    for tool, number in asked.items():
        print(f"  {tool:22} {counts[tool]:4} of {number}")
    for line in survivors:
        print(f"survived: {line}")
    if not args.no_rivals:
        _on_right_pairs(args)
    return bool(survivors)


def _on_right_pairs(args: argparse.Namespace) -> None:
    """Run the tools on the right pairs."""
    for name in _chosen(args):
        wrong = [tool for tool, hit in rivals.detected_by(unbroken(name)).items() if hit]
        if wrong:
            print(f"false positive on a right pair: {name}: {', '.join(wrong)}")


def _right(args: argparse.Namespace) -> int:
    """Judge every claim of every right pair."""
    bad = 0
    for name in _chosen(args):
        pair = unbroken(name)
        verdicts = [judged(pair, claim.name, args.examples) for claim in pair.lowered.claims]
        for verdict in verdicts:
            if verdict.verdict != "upheld":
                bad += 1
                print(f"{name} {verdict.task.claim}: {verdict.verdict}: {verdict.reason}")
        print(f"{name}: {sum(v.verdict == 'upheld' for v in verdicts)} of {len(verdicts)} claims upheld", flush=True)
    return bool(bad)


def _planted(args: argparse.Namespace) -> int:
    """Find the smallest relative error in one leaf of a right pair that is refuted, and print the worst leaves."""
    worst: dict[str, tuple[float, str]] = {}
    for name in _chosen(args):
        pair = unbroken(name)
        for dtype in sorted(set(BAR) & set(pair.dtypes)):
            for found in power.smallest(Subject(pair.lowered, pair), dtype, Run(args.examples)).values():
                print(f"{name:32} {dtype:8} {found.delta:g} in {found.leaf}", flush=True)
                worst[dtype] = max(worst.get(dtype, (0.0, "")), (found.delta, f"{found.leaf} of {name}"))
    for dtype, (delta, where) in worst.items():
        print(f"{dtype}: refuted in every leaf from {delta:g} on; the worst one is {where}")
    return any(delta > BAR[dtype] for dtype, (delta, _) in worst.items())


def _one_side(args: argparse.Namespace) -> int:
    """Find the mutants of `one_side`, and why some are equivalent; the status is 1 if a bug among them survives."""
    rows, bad = one_side.table(), 0
    every = pairs((*MODULES, *CHOOSING))
    for name in (name for name in every if name.startswith(args.framework) and args.only in name):
        listed = []
        for site in one_side.sites(name):
            mutant = one_side.OneSide(name, site)
            reason = one_side.equivalence(mutant)
            survives = not reason and judged(mutant.broken(), one_side.CLAIM).verdict != "refuted"
            bad += survives
            print(f"{mutant.name}: {'SURVIVES' if survives else reason or 'killed'}", flush=True)
            listed.append([site.operation, site.number, site.side, reason])
        rows[name] = listed
    kept = {name: rows[name] for name in every if rows.get(name)}
    one_side.TABLE.write_text(one_side.written(kept), encoding="utf-8")
    return bool(bad)


def _alarms(args: argparse.Namespace) -> int:
    problems, judgements, found = 0, 0, []
    ratios: dict[str, float] = {}
    for batch in alarms.measured(args.alarms, args.seconds, args.framework, args.seed):
        problems += batch["problems"]
        judgements += alarms.judgements(batch)
        for dtype, seen in batch["ratios"].items():
            ratios[dtype] = max(ratios.get(dtype, 0.0), *seen)
        for alarm in batch["alarms"]:
            found.append(alarm)
            print(f"alarm: {batch['pair']}: {alarm}", flush=True)
    print(f"{problems} problems, {judgements} judgements, {len(found)} alarms ({len(found) / max(1, judgements):.1e})")
    print("largest error over noise: " + ", ".join(f"{dtype} {worst:.2f}" for dtype, worst in ratios.items()))
    return bool(found)


def _chosen(args: argparse.Namespace) -> list[str]:
    return [name for name in pairs() if name.startswith(args.framework) and args.only in name]


if __name__ == "__main__":
    sys.exit(main())
