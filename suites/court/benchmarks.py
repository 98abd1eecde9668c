"""Tasks and candidates in the formats of two benchmarks of kernels: KernelBench and SOL-ExecBench.

KernelBench's problem is a module with a class ``Model`` of PyTorch, and functions ``get_inputs`` and
``get_init_inputs``; an answer has a class ``ModelNew`` that is built and called alike. A court adds the backward pass:
the gradients of parameters and inputs are judged, too. SOL-ExecBench's problem is a definition and workloads, an answer
a solution, all in JSON; functions of arrays alone, so outputs are judged, which are gradients if the definition is of a
backward pass. Its traces are written.
"""

from __future__ import annotations

import datetime
import importlib
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gradgate.references.contract import Claim, UsageError
from gradgate.suites.pairs import expressions
from gradgate.suites.pairs.draws import WIDTHS, Draw, integers, mask, normal, uniform
from gradgate.suites.pairs.pair import Pair

LARGEST_WORKLOAD = 1 << 24
"""Most numbers in the inputs and outputs of a workload that is judged; the others are listed as not judged."""
FLAT = 1e-12
"""Standard deviation, over the mean, below which the numbers of a parameter count as equal."""
SPREAD = 0.25
"""Standard deviation of the draws of a parameter whose initial numbers are equal, over their size, or over 1."""
PYTHON = ("pytorch", "triton", "python")
"""Languages of solutions that can run on a CPU; Triton's in its interpreter."""


@dataclass(frozen=True)
class Workload:
    """One workload of SOL-ExecBench: its identity, its sizes and scalars, and its line of JSON."""

    uuid: str
    sizes: dict[str, int]
    scalars: dict[str, Any]
    listed: dict[str, Any]


@dataclass(frozen=True)
class Benchmark:
    """A task of a benchmark.

    Attributes:
        pair: the task as a pair without a function.
        call: how the process behind the wall calls a candidate, as `inside.Served.load` takes it.
        function: the name that a candidate's function or class has.
        workloads: those that are judged; none: the court's own problems.
        left_out: workload -> why it is not judged.
        made: (sizes and scalars, seed) -> inputs that the task itself draws.
        outputs: (dims, dtype) of each output that a candidate may have to write into.
    """

    pair: Pair
    call: dict[str, Any]
    function: str = ""
    workloads: tuple[Workload, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    made: Callable[[Mapping[str, Any], int], dict[str, Any]] | None = None
    outputs: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def claims(self) -> list[Claim]:
        """The claims of a task with workloads: for each, that its outputs are right."""
        dtype = self.pair.dtypes[-1]
        return [
            Claim(
                f"outputs_{i + 1}",
                "outputs_together",
                f"returns the outputs of the reference at workload {one.uuid}",
                "contract",
                settings={"widest": dtype, "fields": {**one.sizes, **one.scalars}},
            )
            for i, one in enumerate(self.workloads)
        ]


# ---- KernelBench


def of_model(model: type, name: str) -> Benchmark:
    """A problem of KernelBench as a task: the gradients of the parameters and the inputs of its class are judged, too.

    Parameters are drawn about their initial numbers, inputs with the mean and the deviation of those that the problem
    gives. Buffers are what each class makes of them, and the module's mode is that in which it is built.

    Args:
        model: the class; ``get_inputs`` and ``get_init_inputs`` are in its module.

    Raises:
        UsageError: one of them is missing, or gives something that is neither a tensor nor a plain value.
    """
    import torch

    module = importlib.import_module(model.__module__) if model.__module__ != "__main__" else None
    space = vars(module) if module else {}
    for needed in ("get_inputs", "get_init_inputs"):
        if not callable(space.get(needed)):
            raise UsageError(
                f"{name}: the module of a class {model.__name__} has a function {needed}, as KernelBench's do"
            )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        init = space["get_init_inputs"]()
        built = model(*init)
        given = space["get_inputs"]()
    if not _plain(init):
        raise UsageError(f"{name}: get_init_inputs gives something else than numbers, texts and lists of them")
    parameters = {key: _like(leaf, True) for key, leaf in built.named_parameters() if leaf.requires_grad}
    inputs: dict[str, Any] = {"parameters": parameters} if parameters else {}
    for place, leaf in enumerate(given):
        if not isinstance(leaf, torch.Tensor):
            raise UsageError(f"{name}: get_inputs gives a {type(leaf).__name__}; a court takes tensors")
        inputs[f"input_{place}"] = _like(leaf, False)

    def reference(*arguments: Any) -> Any:
        own, rest = (arguments[0], arguments[1:]) if parameters else ({}, arguments)
        like = next(one for one in (*own.values(), *rest) if one.is_floating_point())
        buffers = {key: leaf.to(like.dtype) if leaf.is_floating_point() else leaf.clone() for key, leaf in _rest(built)}
        return torch.func.functional_call(built, {**own, **{k: b.clone() for k, b in buffers.items()}}, rest)

    pair = Pair(None, reference=reference, inputs=inputs, dtypes=("float64", "float32"), name=name, framework="torch")
    shapes = [[key, list(leaf.shape)] for key, leaf in built.named_parameters() if leaf.requires_grad]
    return Benchmark(pair, {"kind": "module", "init": [_sent(one) for one in init], "parameters": shapes}, "ModelNew")


def _rest(module: Any) -> Iterator[tuple[str, Any]]:
    """Everything that a module holds besides its trained parameters."""
    yield from module.named_buffers()
    yield from ((name, leaf.detach()) for name, leaf in module.named_parameters() if not leaf.requires_grad)


def _like(leaf: Any, parameter: bool) -> Draw:
    """A draw of numbers like those of a tensor."""
    dims = " ".join(map(str, leaf.shape))
    if leaf.dtype.is_floating_point:
        numbers = leaf.detach().double()
        mean = float(numbers.mean()) if numbers.numel() else 0.0
        spread = float(numbers.std(correction=0)) if numbers.numel() else 1.0
        if spread <= FLAT * max(1.0, abs(mean)):
            spread = SPREAD * (abs(mean) or 1.0)
        elif not parameter and float(numbers.min()) >= 0 and float(numbers.max()) <= 1:
            return uniform(dims)
        return normal(dims, scale=spread, mean=mean)
    if str(leaf.dtype) == "torch.bool":
        return mask(dims)
    return integers(dims, low=int(leaf.min()), below=int(leaf.max()) + 1)


def _plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return isinstance(value, (str, int, float, bool, type(None)))


def _sent(value: Any) -> Any:
    """A plain value as JSON, with what tells a tuple from a list: a class may look at which one it gets."""
    found = [_sent(one) for one in value] if isinstance(value, (list, tuple)) else value
    return {"tuple": found} if isinstance(value, tuple) else found


# ---- SOL-ExecBench


class Axis(msgspec.Struct):
    """An axis of a definition."""

    type: str
    value: int = 0
    expression: str = ""


class Tensor(msgspec.Struct):
    """An input or an output of a definition; no shape: a number of Python."""

    shape: list[str] | None
    dtype: str


class Definition(msgspec.Struct):
    """SOL-ExecBench's definition of a task, as far as a court reads it."""

    name: str
    axes: dict[str, Axis]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    reference: str
    custom_inputs_entrypoint: str | None = None


class Listed(msgspec.Struct):
    """A line of SOL-ExecBench's workloads."""

    uuid: str
    axes: dict[str, int]
    inputs: dict[str, dict[str, Any]]


class Source(msgspec.Struct):
    """A file of a solution."""

    path: str
    content: str


class Build(msgspec.Struct):
    """How a solution is built and called."""

    entry_point: str
    languages: list[str] = []
    language: str = ""  # FlashInfer-Bench's name
    destination_passing_style: bool = True


class Solution(msgspec.Struct):
    """SOL-ExecBench's solution, as far as a court reads it."""

    name: str
    definition: str
    spec: Build
    sources: list[Source]


def read(path: Path, kind: type[Any]) -> Any:
    """A document of SOL-ExecBench.

    Raises:
        UsageError: it cannot be read, or is no such document; says which field is wrong.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} is no {kind.__name__.lower()} of SOL-ExecBench: {error}") from None


def of_definition(path: Path) -> Benchmark:
    """A definition of SOL-ExecBench, with ``workload.jsonl`` beside it, as a task: its outputs are judged.

    Raises:
        UsageError: a file is missing or is no such document, or the task cannot be judged here; says why.
    """
    found: Definition = read(path, Definition)
    fixed = {name: axis.value for name, axis in found.axes.items() if axis.type == "const"}
    free = [name for name, axis in found.axes.items() if axis.type == "var"]
    texts = {name: str(value) for name, value in fixed.items()} | {name: name for name in free}
    for name, axis in found.axes.items():
        if axis.type == "expr":
            texts[name] = f"({_substituted(axis.expression, texts)})"
    tensors = {name: one for name, one in found.inputs.items() if one.shape is not None}
    scalars = [name for name, one in found.inputs.items() if one.shape is None]
    floating = [one.dtype for one in tensors.values() if one.dtype in WIDTHS]
    strange = [one.dtype for one in (*tensors.values(), *found.outputs.values()) if one.dtype not in KNOWN]
    if strange or not floating:
        raise UsageError(f"{path}: no court judges {strange[0] if strange else 'a task without floating inputs'}")
    own = min(floating, key=WIDTHS.index)
    space = _run(found.reference, path)
    made = space.get(found.custom_inputs_entrypoint or "")
    workloads, left_out = [], {}
    for listed in _lines(path.with_name("workload.jsonl")):
        kinds = {str(one.get("type")) for one in listed.inputs.values()}
        values = {name: listed.inputs[name].get("value") for name in scalars if name in listed.inputs}
        numbers = sum(
            _count(one, texts, listed.axes) for one in (*tensors.values(), *found.outputs.values()) if one.shape
        )
        if kinds - {"random", "scalar", "custom"}:
            left_out[f"workload {listed.uuid}"] = f"its inputs are in {', '.join(sorted(kinds - {'random', 'scalar'}))}"
        elif numbers > LARGEST_WORKLOAD:
            left_out[f"workload {listed.uuid}"] = f"it has {numbers} numbers; at most {LARGEST_WORKLOAD} are judged"
        else:
            sizes = {name: listed.axes[name] for name in free}
            workloads.append(Workload(listed.uuid, sizes, values, msgspec.to_builtins(listed)))
    if not workloads:
        raise UsageError(
            f"{path}: none of its workloads can be judged: {next(iter(left_out.values()), 'there are none')}"
        )
    order = list(found.inputs)
    casts = [tensors[name].dtype for name in order if name in tensors]
    run = space["run"]

    def reference(*arguments: Any, **values: Any) -> Any:
        return usual(run(*placed(order, [_cast(a, d) for a, d in zip(arguments, casts, strict=True)], values)))

    reference.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in (*tensors, *scalars)]
    )
    custom = {name for one in workloads for name, how in one.listed["inputs"].items() if how["type"] == "custom"}
    same = {tuple(sorted(one.sizes.items())) for one in workloads}
    pair = Pair(
        None,
        reference=reference,
        inputs={name: _drawn(one, texts, own) for name, one in tensors.items()},
        dims={name: tuple(dict.fromkeys(one.sizes[name] for one in workloads)) for name in free},
        options={name: tuple(dict.fromkeys(one.scalars[name] for one in workloads)) for name in scalars},
        dtypes=("float32",) if own == "float32" else ("float64",) if own == "float64" else ("float32", own),
        valid=lambda **sizes: tuple(sorted(sizes.items())) in same,
        name=found.name,
        framework="torch",
    )

    def inputs(fields: Mapping[str, Any], seed: int) -> dict[str, Any]:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            drawn = made({**fixed, **fields}, torch.device("cpu"))  # type: ignore[misc]
        wide = {n: a.double() if a.is_floating_point() else a for n, a in drawn.items()}
        return {name: array.numpy() for name, array in wide.items() if name in custom}

    call = {"kind": "kernel", "order": order, "scalars": scalars, "dtypes": casts}
    outputs = tuple((_dims(one, texts), one.dtype) for one in found.outputs.values())
    return Benchmark(pair, call, "run", tuple(workloads), left_out, inputs if custom else None, outputs, found.name)


KNOWN = (*WIDTHS, "int64", "int32", "int16", "int8", "bool")
"""Dtypes that cross the wall."""


def usual(found: Any) -> Any:
    """What a function of a definition returns: one output as itself, several as a tuple."""
    listed = (
        list(found.values())
        if isinstance(found, dict)
        else list(found)
        if isinstance(found, (list, tuple))
        else [found]
    )
    return listed[0] if len(listed) == 1 else tuple(listed)


def placed(order: Sequence[str], arrays: Sequence[Any], values: Mapping[str, Any]) -> list[Any]:
    """Positional arguments in the order of a definition."""
    left = iter(arrays)
    return [values[name] if name in values else next(left) for name in order]


def _cast(array: Any, dtype: str) -> Any:
    """An integer in the dtype of its definition; floats stay, so that a wider evaluation is one."""
    import torch

    wanted = getattr(torch, dtype)
    return array if array.is_floating_point() else array.to(wanted)


def _substituted(text: str, texts: Mapping[str, str]) -> str:
    import re

    return re.sub(r"[A-Za-z_]\w*", lambda word: texts.get(word[0], word[0]), text).replace(" ", "")


def _dims(one: Tensor, texts: Mapping[str, str]) -> str:
    return " ".join(texts.get(name, name) for name in one.shape or ())


def _count(one: Tensor, texts: Mapping[str, str], sizes: Mapping[str, int]) -> int:
    return math.prod(int(expressions.evaluate(text, sizes)) for text in _dims(one, texts).split())


def _drawn(one: Tensor, texts: Mapping[str, str], own: str) -> Draw:
    dims = _dims(one, texts)
    if one.dtype in WIDTHS:
        return normal(dims, dtype="" if one.dtype == own else one.dtype)
    return mask(dims) if one.dtype == "bool" else integers(dims, below=2)


def _lines(path: Path) -> list[Listed]:
    try:
        return [msgspec.json.decode(line, type=Listed) for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; it is beside the definition") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} has a line that is no workload of SOL-ExecBench: {error}") from None


def _run(text: str, path: Path) -> dict[str, Any]:
    module = types.ModuleType("reference")
    try:
        exec(compile(text, f"{path.name}:reference", "exec"), vars(module))
    except Exception as error:
        raise UsageError(f"{path}: its reference raises {type(error).__name__}: {error}") from None
    if not callable(vars(module).get("run")):
        raise UsageError(f"{path}: its reference has no function run")
    return vars(module)


def traces(task: Benchmark, answer: Mapping[str, Any], environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """SOL-ExecBench's traces of an answer: one for each workload that was judged.

    Latencies are measured on this CPU, from the request to the reply through the wall: they compare with each other and
    with nothing else.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    found = []
    nothing = {"claim": "", "verdict": answer["verdict"], "reason": answer["reason"]}
    rows = answer["claims"] or [nothing] * len(task.workloads)  # its module raised, or it is none that runs here
    for row, workload in zip(rows, task.workloads, strict=True):
        if row["verdict"] == "inapplicable":
            continue  # no status of a trace says that nothing is known
        status = _status(row)
        evaluation: dict[str, Any] = {
            "status": status,
            "environment": {"hardware": "CPU", "libs": dict(environment)},
            "timestamp": now,
            "log": row["reason"],
        }
        seen = answer["measured"].get(row["claim"])
        if status in ("PASSED", "INCORRECT_NUMERICAL") and seen:
            evaluation["correctness"] = {
                key: seen[key] for key in ("max_relative_error", "max_absolute_error", "has_nan", "has_inf")
            }
        if status == "PASSED" and seen:
            ours, theirs = seen["seconds"] * 1e3, seen["reference_seconds"] * 1e3
            evaluation["performance"] = {
                "latency_ms": ours,
                "reference_latency_ms": theirs,
                "speedup_factor": theirs / max(ours, 1e-9),
            }
        listed = workload.listed
        found.append(
            {"definition": task.name, "solution": answer["name"], "workload": listed, "evaluation": evaluation}
        )
    return found


def _status(row: Mapping[str, Any]) -> str:
    if row["verdict"] == "upheld":
        return "PASSED"
    if row["verdict"] == "refuted":
        words = row["reason"]
        return (
            "INCORRECT_SHAPE" if "shape" in words else "INCORRECT_DTYPE" if "dtype" in words else "INCORRECT_NUMERICAL"
        )
    return "TIMEOUT" if "hung" in row["reason"] else "RUNTIME_ERROR"
