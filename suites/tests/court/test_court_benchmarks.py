"""Tasks of KernelBench and SOL-ExecBench: what is right is upheld, its wrong twin is not, and traces say so."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gradgate import Court, UsageError
from gradgate.suites.court.benchmarks import of_definition, traces

pytest.importorskip("torch")

MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, sizes, eps):
        super().__init__()
        (width,), height = sizes
        assert isinstance(sizes, list) and isinstance(sizes[0], tuple)
        self.linear = nn.Linear(width, height)
        self.gain = nn.Parameter(torch.ones(5))
        self.register_buffer("shift", torch.ones(5))
        self.eps = eps

    def forward(self, x):
        y = self.linear(x)
        return y * torch.rsqrt((y * y).mean(-1, keepdim=True) + self.eps) * self.gain + self.shift


def get_inputs():
    return [torch.randn(6, 8)]


def get_init_inputs():
    return [[(8,), 5], 1e-6]
"""
ANSWER = """
import torch
from torch import nn


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gain, eps):
        r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
        ctx.save_for_backward(x, gain, r)
        return x * r * gain

    @staticmethod
    def backward(ctx, dy):
        x, gain, r = ctx.saved_tensors
        g = dy * gain
        return r * g - r**3 * x * (g * x).mean(-1, keepdim=True), (dy * x * r).sum(0), None


class ModelNew(nn.Module):
    def __init__(self, sizes, eps):
        super().__init__()
        (width,), height = sizes
        assert isinstance(sizes, list) and isinstance(sizes[0], tuple)
        self.linear = nn.Linear(width, height)
        self.gain = nn.Parameter(torch.ones(5))
        self.register_buffer("shift", torch.ones(5))
        self.eps = eps

    def forward(self, x):
        return Norm.apply(self.linear(x), self.gain, self.eps) + self.shift
"""
MODELS: dict[str, tuple[str, str, str, str]] = {
    "right": ("", "", "upheld", ""),
    "names of its own": ("self.linear", "self.projection", "upheld", ""),
    "a term is dropped": ("- r**3 * x * (g * x).mean(-1, keepdim=True)", "", "refuted", "wrong gradient"),
    "a parameter gets no gradient": ("(dy * x * r).sum(0), None", "None, None", "refuted", "parameters.gain"),
    "another shape": (
        "nn.Linear(width, height)",
        "nn.Linear(width, 6)",
        "error",
        "the task's are gain [5], linear.weight [5, 8]",
    ),
    "no such class": ("class ModelNew", "class Other", "error", "no function ModelNew"),
}
"""Answer -> (text, what takes its place, verdict, part of the reason)."""


@pytest.fixture(scope="module")
def model_court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    """A court for a problem of KernelBench."""
    path = tmp_path_factory.mktemp("kernelbench") / "model.py"
    path.write_text(MODEL)
    with Court(f"{path}:Model") as court:
        yield court


@pytest.mark.parametrize("what", MODELS)
def test_an_answer_to_kernelbench_is_judged_with_its_backward_pass(what: str, model_court: Court) -> None:
    old, new, verdict, words = MODELS[what]
    text = ANSWER.replace(old, new)
    assert (text == ANSWER) == (not old)
    answer = model_court.judge(text)
    assert answer["verdict"] == verdict, answer["reason"]
    assert words in answer["reason"]


def test_a_model_without_inputs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lonely.py"
    path.write_text(MODEL.replace("def get_inputs", "def inputs"))
    with pytest.raises(UsageError, match="get_inputs"):
        Court(f"{path}:Model")


REFERENCE = """
import torch


def more(axes_and_scalars, device):
    return {"rows": torch.randint(0, axes_and_scalars["N"], (axes_and_scalars["M"],), device=device).to(torch.int32)}


def run(x, eps, rows, table):
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)).to(x.dtype), table[rows.long()].sum(-1)
"""
DEFINITION = {
    "name": "norm_and_gather",
    "axes": {
        "M": {"type": "var"},
        "N": {"type": "const", "value": 7},
        "MN": {"type": "expr", "expression": "M * 1 + N"},
    },
    "inputs": {
        "x": {"shape": ["M", "MN"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
        "rows": {"shape": ["M"], "dtype": "int32"},
        "table": {"shape": ["N", "N"], "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["M", "MN"], "dtype": "bfloat16"},
        "sums": {"shape": ["M"], "dtype": "float32"},
    },
    "reference": REFERENCE,
    "custom_inputs_entrypoint": "more",
}
KINDS = {
    "x": {"type": "random"},
    "eps": {"type": "scalar", "value": 1e-6},
    "rows": {"type": "custom"},
    "table": {"type": "random"},
}
WORKLOADS = [
    {"uuid": "small", "axes": {"M": 3}, "inputs": KINDS},
    {"uuid": "large", "axes": {"M": 9}, "inputs": {**KINDS, "eps": {"type": "scalar", "value": 1.0}}},
    {"uuid": "huge", "axes": {"M": 100000}, "inputs": KINDS},
    {"uuid": "stored", "axes": {"M": 3}, "inputs": {**KINDS, "table": {"type": "safetensors", "path": "a"}}},
]
WRITES = """
import torch
from helpers.root import inverse_root


def run(x, eps, rows, table, y, sums):
    assert rows.dtype == torch.int32 and x.dtype == torch.bfloat16
    wide = x.float()
    y.copy_(wide * inverse_root((wide * wide).mean(-1, keepdim=True) + eps))
    sums.copy_(table[rows.long()].sum(-1))
"""
RETURNS = WRITES.replace(", y, sums)", ")").replace("y.copy_(", "y = (").replace("    sums.copy_(", "    sums = (")
RETURNS += "    return y.to(x.dtype), sums\n"
HELPER = "import torch\n\n\ndef inverse_root(x):\n    return torch.rsqrt(x)\n"


def solution(text: str, writes: bool, **spec: Any) -> str:
    """A solution as JSON."""
    build = {"languages": ["pytorch"], "target_hardware": ["LOCAL"], "entry_point": "kernel.py::run", **spec}
    return json.dumps(
        {
            "name": "mine",
            "definition": "norm_and_gather",
            "author": "me",
            "spec": {**build, "destination_passing_style": writes},
            "sources": [{"path": "kernel.py", "content": text}, {"path": "helpers/root.py", "content": HELPER}],
        }
    )


SOLUTIONS: dict[str, tuple[str, list[str]]] = {
    "writes": (solution(WRITES, True), ["PASSED", "PASSED"]),
    "returns": (solution(RETURNS, False), ["PASSED", "PASSED"]),
    "5% off": (
        solution(WRITES.replace("wide * inv", "1.05 * wide * inv"), True),
        ["INCORRECT_NUMERICAL"] * 2,
    ),
    "right at one scalar": (solution(WRITES.replace("+ eps", "+ 1e-6"), True), ["PASSED", "INCORRECT_NUMERICAL"]),
    "writes no second output": (solution(WRITES.replace("sums.copy_", "print"), True), ["INCORRECT_NUMERICAL"] * 2),
    "another shape": (solution(RETURNS.replace("return y", "return y[:1]"), False), ["INCORRECT_SHAPE"] * 2),
    "raises when it is loaded": (solution("raise ValueError(3)\n" + WRITES, True), ["RUNTIME_ERROR"] * 2),
    "raises": (solution(WRITES.replace("wide = x", "wide = z"), True), ["RUNTIME_ERROR"] * 2),
}


@pytest.fixture(scope="module")
def definition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem of SOL-ExecBench."""
    folder = tmp_path_factory.mktemp("sol")
    (folder / "workload.jsonl").write_text("\n".join(map(json.dumps, WORKLOADS)))
    path = folder / "definition.json"
    path.write_text(json.dumps(DEFINITION))
    return path


@pytest.fixture(scope="module")
def sol_court(definition: Path) -> Iterator[Court]:
    """A court for a problem of SOL-ExecBench."""
    with Court(str(definition)) as court:
        yield court


@pytest.mark.parametrize("what", SOLUTIONS)
def test_a_solution_gets_a_trace_for_each_workload(what: str, sol_court: Court) -> None:
    text, wanted = SOLUTIONS[what]
    answer = sol_court.judge(text)
    assert sol_court.benchmark is not None
    found = traces(sol_court.benchmark, answer, {"python": "3"})
    assert [one["evaluation"]["status"] for one in found] == wanted, answer["reason"]
    assert answer["verdict"] == (
        "upheld" if set(wanted) == {"PASSED"} else "error" if "RUNTIME" in wanted[0] else "refuted"
    )
    for one in found:
        assert (one["definition"], one["solution"]) == ("norm_and_gather", "mine")
        as_promised(one["evaluation"])


def as_promised(evaluation: Mapping[str, Any]) -> None:
    """The schema's rule: which fields there are at which status."""
    status = evaluation["status"]
    assert ("correctness" in evaluation) == (status in ("PASSED", "INCORRECT_NUMERICAL"))
    assert ("performance" in evaluation) == (status == "PASSED")
    assert evaluation["environment"]["hardware"]


def test_workloads_that_cannot_be_judged_are_listed(sol_court: Court) -> None:
    assert sorted(sol_court.not_judged)[-2:] == ["workload huge", "workload stored"]
    assert "safetensors" in sol_court.not_judged["workload stored"]


def test_a_solution_in_another_language_gets_words(sol_court: Court) -> None:
    answer = sol_court.judge(solution(WRITES, True, languages=["cuda_cpp"]))
    assert answer["verdict"] == "error"
    assert "cuda_cpp" in answer["reason"]
    assert sol_court.judge("{}")["reason"].startswith("it is no solution of SOL-ExecBench")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("axes", 3, "definition of SOL-ExecBench"),
        ("reference", "def run(:", "raises SyntaxError"),
        ("reference", "def walk(): pass", "no function run"),
        ("inputs", {"x": {"shape": ["M"], "dtype": "float4_e2m1"}}, "no court judges float4_e2m1"),
    ],
)
def test_a_definition_that_is_none_is_refused(
    field: str, value: Any, words: str, tmp_path: Path, definition: Path
) -> None:
    (tmp_path / "workload.jsonl").write_text((definition.parent / "workload.jsonl").read_text())
    path = tmp_path / "definition.json"
    path.write_text(json.dumps({**DEFINITION, field: value}))
    with pytest.raises(UsageError, match=words):
        of_definition(path)
