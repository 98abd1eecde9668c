"""The answers in a clone of https://github.com/thunlp/TritonBench, and the benchmark's own operators.

And the answers to KernelBench in a clone of https://github.com/deepreinforce-ai/CUDA-L1, with their tasks.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

OPERATORS = "data/TritonBench_G_v1"
FENCE = re.compile(r"```(?:python)?\n(.*?)(?:```|\Z)", re.DOTALL)
RULE = "#" * 100
"""Ends an operator's code in the benchmark's files; a test follows."""
OWN = "benchmark"
"""The place of the benchmark's own operators."""
OPTIMIZED = "optimized_cuda_code"
"""CUDA-L1's folder of answers: a file for each GPU, a line for each problem."""
BATCH = re.compile(r"^batch_size = \d+", re.MULTILINE)
KERNEL = re.compile(r"load_inline|cpp_extension|__global__")
"""What an answer with a kernel in CUDA C++ has; a CPU could run at most what such an answer does in place of it."""


@dataclass(frozen=True)
class Answer:
    """One text that declares a backward pass.

    Attributes:
        operator: the benchmark's file that it answers, without ``.py``; "" in its other half, TritonBench-T.
        text: the code.
        places: ``file:line`` of every answer with this text; `OWN` for the benchmark's own.
        task: the module of its problem of KernelBench; "" if the task is in `tasks`, or the answer is not for a CPU.
    """

    operator: str
    text: str
    places: tuple[str, ...]
    task: str = ""

    @property
    def digest(self) -> str:
        """Names the answer: 12 digits of the text's sha256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


def answers(clone: Path) -> list[Answer]:
    """Every text with a ``def backward``, each once, the benchmark's own first.

    Raises:
        OSError: this is a clone of neither repository.
    """
    if (clone / OPTIMIZED).is_dir():
        return _of_kernelbench(clone)
    own = {path.stem: path.read_text(encoding="utf-8").partition(RULE)[0] for path in (clone / OPERATORS).glob("*.py")}
    if not own:
        raise OSError(f"there are no operators in {clone / OPERATORS}")
    bare = {"".join(text.split()): name for name, text in own.items()}
    places: dict[tuple[str, str], list[str]] = {(name, text): [OWN] for name, text in sorted(own.items())}
    for path in sorted((clone / "LLM_generated").glob("*/*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            operator = bare.get("".join(row["label"].split()), "")
            place = f"{path.parent.name}/{path.name}:{number}"
            places.setdefault((operator, code(row["predict"])), []).append(place)
    return [Answer(name, text, tuple(at)) for (name, text), at in places.items() if "def backward" in text]


def _of_kernelbench(clone: Path) -> list[Answer]:
    """As `answers`, of CUDA-L1. A batch has four members, there and in its problem: a CPU has the truth in seconds."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for path in sorted((clone / OPTIMIZED).glob("*.json")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            problem = f"level{row['level_id']}_{row['task_id']}"
            code, task = (BATCH.sub("batch_size = 4", row[name] or "") for name in ("custom_code", "ref_code"))
            found.setdefault((problem, code, task), []).append(f"{path.name}:{number}")
    return [
        Answer(name, text, tuple(at), "" if KERNEL.search(text) else task)
        for (name, text, task), at in found.items()
        if "def backward" in text
    ]


def code(text: str) -> str:
    """The code of an answer: its longest block in a fence, or all of it."""
    blocks: Sequence[str] = FENCE.findall(text)
    return max(blocks, key=len) if blocks else text.replace("<|im_end|>", "").replace("<|EOT|>", "")


def commit(clone: Path) -> str:
    """The commit of a clone; "" if git does not say."""
    ran = subprocess.run(["git", "-C", str(clone), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return ran.stdout.strip()
