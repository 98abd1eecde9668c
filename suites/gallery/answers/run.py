"""Judge answers of TritonBench and KernelBench: ``python -m gradgate.suites.gallery.answers.run CLONE``.

CLONE is a clone of https://github.com/thunlp/TritonBench, or of https://github.com/deepreinforce-ai/CUDA-L1, which has
answers to KernelBench. Every answer with a ``def backward`` is read; those whose operator has a task are judged behind
a wall, in Triton's interpreter. Rows are added to ``report/answers.jsonl``, and what is there is not judged again.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradgate.suites.court.cases import Case, Settings, judge_cases
from gradgate.suites.gallery.answers import page, source
from gradgate.suites.gallery.answers.source import Answer
from gradgate.suites.workers.shards import Shard

CUDA = re.compile(r"""(["'])cuda(?::\d+)?\1""")
FUTURE = re.compile(r"^from __future__ .*$", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge and count; returns 0."""
    parser = argparse.ArgumentParser(prog="answers", description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--operator", action="append", help="only answers for this operator (default: all)")
    parser.add_argument("--sample", type=int, metavar="N", help="at most N answers for each operator, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="courts at once (default 2)")
    parser.add_argument("--timeout", type=float, default=20.0, help="limit for one call of an answer (default 20 s)")
    parser.add_argument("--shard", type=Shard.parse, default=Shard(), metavar="I/N", help="only the I-th of N shares")
    parser.add_argument("--keep", action="store_true", help="write the rows to a file here, and the guide's page")
    parser.add_argument("--report", type=Path, default=Path("report/answers.jsonl"), help="where rows are added")
    chosen = parser.parse_args(arguments)
    every = source.answers(chosen.clone)
    known = page.read(chosen.report)
    own = _sampled(every, chosen.sample, chosen.seed)
    own = [one for one in own if not chosen.operator or one.operator in chosen.operator]
    own = chosen.shard.part(own, lambda one: one.digest)  # of all answers, so that what is known moves no share
    own = [one for one in own if one.digest not in known]
    chosen.report.parent.mkdir(parents=True, exist_ok=True)
    with chosen.report.open("a", encoding="utf-8") as file:
        for row in _judged(own, Settings(seconds=chosen.timeout), chosen.jobs):
            known[row["digest"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{row['operator']:28} {row['digest']} {row['kind']:28} {row['reason'][:100]}", flush=True)
    known = {one.digest: known[one.digest] for one in every if one.digest in known}
    found = page.document(every, known, source.commit(chosen.clone), chosen.sample, chosen.seed)
    print(json.dumps(found["counts"]))
    if chosen.keep:
        print(f"kept: {page.keep(found)}")
    return 0


def _sampled(every: Sequence[Answer], most: int | None, seed: int) -> list[Answer]:
    """The answers whose operator has a task, at most so many for each; the benchmark's own always."""
    from gradgate.suites.gallery.answers.tasks import CALLS

    found: list[Answer] = []
    for operator in sorted({*CALLS, *(one.operator for one in every if one.task)}):
        listed = [one for one in every if one.operator == operator and (one.task or operator in CALLS)]
        own = [one for one in listed if source.OWN in one.places]
        rest = sorted((one for one in listed if one not in own), key=lambda one: one.digest)
        random.Random(f"{seed} {operator}").shuffle(rest)
        found += own + rest[:most]
    return found


def _judged(answers: Sequence[Answer], settings: Settings, jobs: int) -> Iterator[dict[str, Any]]:
    from gradgate.suites.gallery.answers import tasks

    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for one in answers:
            text = tasks.BEFORE + FUTURE.sub("", CUDA.sub('"cpu"', one.text))
            if one.task:
                path = Path(folder, f"{one.operator}.py")
                path.write_text(one.task, encoding="utf-8")
                cases.append(Case(f"{path}:Model", text, one.digest))
            else:
                task = f"{tasks.__name__}:{one.operator}"
                cases.append(Case(task, text + tasks.CALLS[one.operator], one.digest, "judged_candidate"))
        for i, answer in judge_cases(cases, settings, jobs):
            yield page.row(answers[i], answer)


if __name__ == "__main__":
    sys.exit(main())
