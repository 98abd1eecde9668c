"""The rows of the audit: kept in a file for each benchmark, and shown on the guide's page ``answers.md``."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradgate.suites.guide
from gradgate.suites.gallery.answers.source import KERNEL, OWN, Answer

HERE = Path(__file__).parent
KEPT = {name: HERE / f"{name.lower()}.json" for name in ("TritonBench", "KernelBench")}
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
    r"|'Tensor' object has no attribute '(weight|elementwise_affine)'",
    "raises when it is imported": r"^its module raised",
    "a name that is not there": r"NameError|AttributeError|ModuleNotFoundError|ImportError|UnboundLocalError",
    "a condition of many lanes": r"a condition has many lanes",
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
    return {one["digest"]: one | {"kind": kind(one["verdict"], one["refuted"], one["reason"])} for one in rows}


def document(
    every: Sequence[Answer], rows: Mapping[str, dict[str, Any]], commit: str, sample: int | None, seed: int
) -> dict[str, Any]:
    """The kept document: how many answers there are, and the rows of those that were judged."""
    strangers = [one for one in every if OWN not in one.places]
    counts = {
        "answers": sum(len(one.places) for one in strangers),
        "texts": len(strangers),
        "of_other_operators": sum(one.operator not in {row["operator"] for row in rows.values()} for one in strangers),
        "in_cuda": sum(bool(KERNEL.search(one.text)) for one in strangers),
        "judged": sum(OWN not in row["places"] for row in rows.values()),
    }
    listed = sorted(rows.values(), key=lambda one: (one["operator"], OWN not in one["places"], one["digest"]))
    benchmark = "KernelBench" if any(one.task for one in every) else "TritonBench"
    head = {"schema": SCHEMA, "benchmark": benchmark, "commit": commit, "sample": sample, "seed": seed}
    head["counts"] = counts
    return {**head, "rows": listed}


def keep(found: Mapping[str, Any]) -> Path:
    """Write the document and the page; returns the page's path."""
    lines = ",\n".join(json.dumps(one) for one in found["rows"])
    head = json.dumps({key: value for key, value in found.items() if key != "rows"})
    KEPT[found["benchmark"]].write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    PAGE.write_text(text(stored("TritonBench"), stored("KernelBench")), encoding="utf-8")
    return PAGE


def stored(benchmark: str) -> dict[str, Any]:
    """The document of the last run over a benchmark's answers."""
    found: dict[str, Any] = json.loads(KEPT[benchmark].read_text(encoding="utf-8"))
    return found


HEAD = """# Answers: backward passes written by programs

TritonBench asks language models for operators in Triton, and publishes what they answered. 23 of its own operators have
a backward pass; the tests of eleven of them return gradients or their norms, mostly those of a sum or a mean. A
[court](strangers.md) judges here what the answers' backward passes compute. No code of the benchmark or of an answer is
part of gradgate.

```console
$ git clone https://github.com/thunlp/TritonBench
$ python -m gradgate.suites.gallery.answers.run TritonBench --keep
```

Triton's interpreter runs the answers on a CPU, behind a wall. Each operator has a reference in plain PyTorch in
`suites/gallery/answers/tasks.py`: what the benchmark's own operator computes, called as the benchmark's tests call it.
The benchmark's own operators are judged, too. Floats that nobody wrote are NaN, and an access outside of a kernel's
arrays is an error; a GPU may give any number there.

"""
KINDS = """*Right* means upheld on every claim. The other columns name the first fault of an answer: *wrong outputs*; a
*wrong gradient* under right outputs; *other faults*, such as an input without a gradient, strides that are ignored, an
input that is changed, or an access outside of the arrays; *does not run*: it raises, takes too long, is no Python, or
lacks the function that the benchmark calls. Many of these were written for older releases of Triton, or from a prompt
that does not name the function.
"""
KERNELBENCH = """## KernelBench

KernelBench asks for a forward pass alone. [CUDA-L1](https://github.com/deepreinforce-ai/CUDA-L1) publishes what one
program answered to its 250 problems, for each of five GPUs. The command is the same, with a clone of that repository.
The class of the problem is the reference, and its batch has four members. The gradients of inputs and parameters are
judged, too.

Of the commit {commit}, {answers} answers declare a backward pass: {texts} distinct texts, {in_cuda} of them with
kernels in CUDA C++, which a CPU cannot run. {judged} of the others were judged. {run} of them run here, and {right} of
these are right.

{kinds}

## What else was looked for

GPU MODE publishes 42 problems (`gpu-mode/reference-kernels`). One of them, of a cross entropy, asks for a backward
pass. No answer to it is there or in `gpu-mode/kernelbot-data`. A search for its function names found four texts of one
author, in a repository without a name. They have three formulas, and all are right here, in float32 and in bfloat16,
without `torch.compile`, which they call.

Of other repositories with answers to KernelBench, these were read: `anneouyang/KernelBenchLeaderboard` (5 of 413 files
declare a backward pass), `technoabsurdist/KernelBench` (10 of 719), `yenhao-huang/KernelBench` (4 of 2,031),
`hzeng2000/KernelBench` (0 of 817) and `yoenoo/eh_kernelbench` (0 of 33). All 19 are in CUDA C++, which a CPU cannot
run. So are the backward kernels of `SakanaAI/robust-kbench`, which has eight tasks with a backward pass.
`AMD-AGI/GEAK-eval` has TritonBench's own operators once more, and no answers.
"""


@dataclass(frozen=True)
class Finding:
    """A mechanism: the script that shows it, its cause in a sentence, and digests of texts that have it."""

    script: str
    cause: str
    seen: tuple[str, ...]


FINDINGS = (
    Finding(
        "state_stored_once.py",
        "The backward pass of a recurrence in blocks stores the gradient of its state once, after the loop over the "
        "blocks; the other blocks read memory that nobody wrote.",
        ("a0f2decf5525",),
    ),
    Finding(
        "cotangent_strides.py",
        "A backward kernel goes by the strides of another array than the one it reads, or by none: the cotangent of a "
        "slice, a transposition or a sum is read at the wrong places.",
        ("f6ecfb975542", "f07622801bf8", "557515685054", "8a2efc0c13fc", "05f3f5f1e8b8"),
    ),
    Finding(
        "expanded_cotangent.py",
        "A backward pass works in place and goes by its cotangent's strides: that of a sum has strides of 0 and memory "
        "for one number, and the kernel leaves it.",
        ("58305b75b991",),
    ),
    Finding(
        "cotangent_overwritten.py",
        "A backward pass writes the gradient into its cotangent, which may belong to somebody else, too.",
        ("0602cb162057", "e1c664253718"),
    ),
    Finding(
        "logits_overwritten.py",
        "A backward pass writes the gradient into the logits; whoever uses them later gets the gradient.",
        ("9064fe05941f",),
    ),
    Finding(
        "input_overwritten.py",
        "A forward pass writes its corrected values into its input `v`; a second call computes something else.",
        ("65d5227c435d",),
    ),
    Finding(
        "masked_lanes.py",
        "A normalisation subtracts the mean from masked lanes, too, and they count in the variance: wrong unless the "
        "width is a power of 2.",
        ("e1c664253718", "8ac6fc115d22"),
    ),
    Finding(
        "masked_exponents.py",
        "A softmax loads masked lanes as 0, and each adds the exponential of minus the maximum to the denominator.",
        ("1ff36f25afa5",),
    ),
    Finding(
        "log_softmax_factor.py",
        "A log-softmax has its exponential inside of the sum over the cotangent, and takes that of its input in place "
        "of its output.",
        ("3b088fd8a32e",),
    ),
    Finding(
        "never_attached.py",
        "The function calls its kernel itself; the backward pass stands in a class that autograd never sees, so there "
        "is no gradient.",
        ("325498797a39", "76769bd76edc", "2f75c21bd342", "94d2e1286291"),
    ),
    Finding(
        "mean_of_convolution.py",
        "The mean of a transposed convolution is computed from the mean of its input and of its weights, without the "
        "factor between their numbers and without the borders; the bias hides it.",
        ("f4e716c6dbdf", "1fd24c89a957"),
    ),
    Finding(
        "constant_output.py",
        "A softmax over one number is always 1. A constant is returned, without a gradient; for batches of another "
        "size, the gradient is that of what stands before the softmax, where 0 is right.",
        ("250dfec4e96d",),
    ),
)
COLUMNS = (RIGHT, FORWARD, BACKWARD, "other faults", "does not run")


def column(kind: str) -> str:
    """The column of the table in which a kind is counted."""
    errors = {*ERRORS, ANOTHER} - {OUTSIDE}
    return kind if kind in COLUMNS else "does not run" if kind in errors else "other faults"


def text(found: Mapping[str, Any], kernelbench: Mapping[str, Any]) -> str:
    """The page."""
    counts, rows = found["counts"], [one for one in found["rows"] if OWN not in one["places"]]
    own = {one["operator"]: one["kind"] for one in found["rows"] if OWN in one["places"]}
    outcomes = Counter(column(one["kind"]) for one in rows)
    drawn = (
        f"at most {found['sample']} of each operator, by the seed {found['seed']}" if found["sample"] else "all others"
    )
    judged = [
        f"Of the commit {found['commit'][:12]}, {counts['answers']} answers declare a backward pass:",
        f"{counts['texts']} distinct texts, {counts['of_other_operators']} of them for operators without a task here.",
        f"{counts['judged']} were judged, {drawn}. {outcomes.total() - outcomes['does not run']} of them run,",
        f"and {outcomes[RIGHT]} of these are right. Of {len(own)} of the benchmark's own operators,",
        f"{sum(kind == RIGHT for kind in own.values())} are right.",
    ]
    lines = [f"| operator | the benchmark's own | judged | {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * 6}"]
    for operator in sorted({one["operator"] for one in rows}):
        kinds = Counter(column(one["kind"]) for one in rows if one["operator"] == operator)
        cells = " | ".join(str(kinds[name]) for name in COLUMNS)
        lines.append(f"| `{operator}` | {own.get(operator, 'not judged')} | {kinds.total()} | {cells} |")
    cells = " | ".join(f"**{outcomes[name]}**" for name in COLUMNS)
    lines.append(f"| **all** | | **{outcomes.total()}** | {cells} |")
    parts = [
        HEAD + "\n".join(judged),
        KINDS.rstrip(),
        "\n".join(lines),
        "## Kinds",
        _kinds(rows),
        _of_kernelbench(kernelbench),
        "## Findings",
        _findings([*found["rows"], *kernelbench["rows"]]),
    ]
    return "\n\n".join(parts).rstrip() + "\n"


def _kinds(rows: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(f"- {name}: {count}" for name, count in Counter(one["kind"] for one in rows).most_common())


def _of_kernelbench(found: Mapping[str, Any]) -> str:
    counts, outcomes = found["counts"], Counter(column(one["kind"]) for one in found["rows"])
    return KERNELBENCH.rstrip().format(
        commit=found["commit"][:12],
        **counts,
        run=outcomes.total() - outcomes["does not run"],
        right=outcomes[RIGHT],
        kinds=_kinds(found["rows"]),
    )


def _findings(rows: Sequence[Mapping[str, Any]]) -> str:
    own = {one["digest"]: one["operator"] for one in rows if OWN in one["places"]}
    lines = ["Each has a script of at most 20 lines, of our own, that shows the mechanism.\n"]
    for one in FINDINGS:
        theirs = [f"the benchmark's own `{own[digest]}`" for digest in one.seen if digest in own]
        answers = [f"`{digest}`" for digest in one.seen if digest not in own]
        shown = ", ".join(
            [*theirs, *([f"the answer{'s' * (len(answers) > 1)} " + ", ".join(answers)] if answers else [])]
        )
        lines.append(f"- {one.cause} Seen in {shown} (`suites/gallery/answers/findings/{one.script}`).")
    return "\n".join(lines)
