"""The rows of the audit: kept in ``results.json``, and shown on the guide's page ``answers.md``."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradgate.suites.guide
from gradgate.suites.gallery.answers.source import OWN, Answer

HERE = Path(__file__).parent
KEPT = HERE / "results.json"
PAGE = Path(gradgate.suites.guide.__file__).parent / "answers.md"
SCHEMA = 1
RIGHT, FORWARD, BACKWARD = "right", "wrong outputs", "wrong gradient"
CLAIMS = {
    "outputs": FORWARD,
    "tree": "an input has no gradient",
    "gradient_float32": BACKWARD,
    "gradient_float16": BACKWARD,
    "cotangents": BACKWARD,
    "upstream_scale": BACKWARD,
    "deterministic": "two calls differ",
    "layouts": "ignores strides",
    "each_leaf_alone": "wrong where one input alone has a gradient",
    "not_finite": "hides NaN",
    "pure": "changes an input",
}
"""Claim that is refuted -> the kind of the fault; the first of them in this order names an answer's kind."""
OUTSIDE = "reads or writes outside of its arrays"
ERRORS = {
    "not Python": r"(Syntax|Indentation|Tab)Error",
    OUTSIDE: r"outside of its arrays",
    "lacks the function": r"LookupError: it has no function|NameError: .* is not defined.* in judged_candidate",
    "has another signature": r"TypeError: .*(missing|takes|unexpected|multiple).* in judged_candidate|SimpleNamespace"
    r"|no attribute 'weight'",
    "raises when it is imported": r"^its module raised",
    "a name that is not there": r"NameError|AttributeError|ModuleNotFoundError|ImportError|UnboundLocalError",
    "needs more time than a call has": r"it hung|no request within",
    "uses up memory, or ends": r"memory|its process ended|processes",
}
"""Kind of an error -> what its reason says; the first that fits names the kind."""
ANOTHER = "another error when it is called"


def row(one: Answer, answer: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a court's answer."""
    refuted = [claim["claim"] for claim in answer["claims"] if claim["verdict"] == "refuted"]
    return {
        "operator": one.operator,
        "digest": one.digest,
        "places": list(one.places),
        "verdict": answer["verdict"],
        "kind": kind(answer["verdict"], refuted, answer["reason"]),
        "refuted": refuted,
        "reason": answer["reason"][:300],
        "seconds": answer["seconds"],
    }


def kind(verdict: str, refuted: Sequence[str], reason: str) -> str:
    """The kind of an answer: `RIGHT`, a kind of fault, or a kind of error."""
    if verdict == "upheld":
        return RIGHT
    if verdict == "refuted":
        return next((found for claim, found in CLAIMS.items() if claim in refuted), f"another claim: {refuted[0]}")
    return next((name for name, words in ERRORS.items() if re.search(words, reason)), ANOTHER)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Digest -> row, of a file of lines."""
    if not path.exists():
        return {}
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {one["digest"]: one for one in rows}


def document(
    every: Sequence[Answer], rows: Mapping[str, dict[str, Any]], commit: str, sample: int | None, seed: int
) -> dict[str, Any]:
    """The kept document: how many answers there are, and the rows of those that were judged."""
    strangers = [one for one in every if OWN not in one.places]
    counts = {
        "answers": sum(len(one.places) for one in strangers),
        "texts": len(strangers),
        "of_other_operators": sum(one.operator not in {row["operator"] for row in rows.values()} for one in strangers),
        "judged": sum(OWN not in row["places"] for row in rows.values()),
    }
    listed = sorted(rows.values(), key=lambda one: (one["operator"], OWN not in one["places"], one["digest"]))
    head = {"schema": SCHEMA, "commit": commit, "sample": sample, "seed": seed, "counts": counts}
    return {**head, "rows": listed}


def keep(found: Mapping[str, Any]) -> Path:
    """Write the document and the page; returns the page's path."""
    lines = ",\n".join(json.dumps(one) for one in found["rows"])
    head = json.dumps({key: value for key, value in found.items() if key != "rows"})
    KEPT.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    PAGE.write_text(text(stored()), encoding="utf-8")
    return PAGE


def stored() -> dict[str, Any]:
    """The document of the last run."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


HEAD = """# Answers: backward passes written by programs

TritonBench asks language models for operators in Triton, and publishes what they answered. Its tests run the forward
pass, and some look whether gradients exist; none compares a gradient with another. A [court](strangers.md) judges
here what the answers' backward passes compute. Triton's interpreter runs them on a CPU, behind a wall. Each operator
has a reference in plain PyTorch in `suites/gallery/answers/tasks.py`. The benchmark's own operators are judged on the
same tasks. No code of the benchmark or of an answer is part of gradgate.

```console
$ git clone https://github.com/thunlp/TritonBench
$ python -m gradgate.suites.gallery.answers.run TritonBench --keep
```

"""
KINDS = """*Right* means upheld on every claim. The other columns name the first fault of an answer: *wrong outputs*; a
*wrong gradient* under right outputs; *other faults*, such as strides that are ignored or an input that is changed;
*does not run*: it raises, hangs, is no Python or lacks the function that the benchmark calls.
"""


@dataclass(frozen=True)
class Finding:
    """A mechanism: the script that shows it, its cause in a sentence, and digests of texts that have it."""

    script: str
    cause: str
    seen: tuple[str, ...]


FINDINGS: tuple[Finding, ...] = ()
COLUMNS = (RIGHT, FORWARD, BACKWARD, "other faults", "does not run")


def column(kind: str) -> str:
    """The column of the table in which a kind is counted."""
    errors = {*ERRORS, ANOTHER} - {OUTSIDE}
    return kind if kind in COLUMNS else "does not run" if kind in errors else "other faults"


def text(found: Mapping[str, Any]) -> str:
    """The page."""
    counts, rows = found["counts"], [one for one in found["rows"] if OWN not in one["places"]]
    own = {one["operator"]: one["kind"] for one in found["rows"] if OWN in one["places"]}
    sampled = "all of those" if found["sample"] is None else f"at most {found['sample']} of each operator"
    said = f"Of the commit {found['commit'][:12]}, {counts['answers']} answers declare a backward pass: "
    said += f"{counts['texts']} distinct texts, {counts['of_other_operators']} of them for operators without a task "
    said += f"here. {counts['judged']} were judged, {sampled}, by the seed {found['seed']}.\n\n"
    lines = [f"| operator | the benchmark's own | judged | {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * 6}"]
    for operator in sorted({one["operator"] for one in rows}):
        kinds = Counter(column(one["kind"]) for one in rows if one["operator"] == operator)
        cells = " | ".join(str(kinds[name]) for name in COLUMNS)
        lines.append(f"| `{operator}` | {own.get(operator, 'not judged')} | {kinds.total()} | {cells} |")
    kinds = Counter(column(one["kind"]) for one in rows)
    cells = " | ".join(f"**{kinds[name]}**" for name in COLUMNS)
    lines.append(f"| **all** | | **{kinds.total()}** | {cells} |")
    every = Counter(one["kind"] for one in rows)
    kinds_said = [f"- {name}: {count}" for name, count in every.most_common()]
    parts = [
        HEAD + said + KINDS,
        "\n".join(lines),
        "## Kinds",
        "\n".join(kinds_said),
        "## Findings",
        _findings(found["rows"]),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def _findings(rows: Sequence[Mapping[str, Any]]) -> str:
    own = {one["digest"]: one["operator"] for one in rows if OWN in one["places"]}
    lines = ["Each has a script of at most 20 lines, of our own, that shows the mechanism.\n"]
    for one in FINDINGS:
        theirs = [f"the benchmark's own `{own[digest]}`" for digest in one.seen if digest in own]
        answers = [f"`{digest}`" for digest in one.seen if digest not in own]
        shown = ", ".join([*theirs, *(["the answers " + ", ".join(answers)] if answers else [])])
        lines.append(f"- {one.cause} Seen in {shown} (`suites/gallery/answers/findings/{one.script}`).")
    return "\n".join(lines)
