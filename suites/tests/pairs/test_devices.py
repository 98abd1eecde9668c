"""Where a pair's function runs: in Triton's interpreter in its own process, on a device, or nowhere, with a reason."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import UsageError
from gradgate.suites.judging.run import Run
from gradgate.suites.pairs import devices, triton_interpreter
from gradgate.suites.tests.pairs.verdicts import judged
from gradgate.suites.workers.supervisor import Limits, Supervisor
from gradgate.suites.workers.variables import environment

pytest.importorskip("torch")

TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not TRITON, reason="Triton is not installed: pip install 'gradgate[triton]'")

KERNELS = """
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

import gradgate
from gradgate import normal


@triton.jit
def _forward(x, y, scale, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    row = tl.load(x + place, mask=inside, other=0.0)
    total = tl.zeros_like(row)
    for i in range(2):
        total += libdevice.tanh(row * scale.to(tl.float32)) * (i.to(tl.float32) + 1.0)
    tl.store(y + place, total, mask=inside)


@triton.jit
def _backward(x, dy, dx, scale, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    t = libdevice.tanh(tl.load(x + place, mask=inside, other=0.0) * scale)
    tl.store(dx + place, 3.0 * scale * (1.0 - t * t) * tl.load(dy + place, mask=inside, other=0.0), mask=inside)


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x, y = x.contiguous(), torch.empty(x.shape)
        _forward[(triton.cdiv(x.numel(), 4),)](x, y, 0.5, x.numel(), BLOCK=4)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty(x.shape)
        _backward[(triton.cdiv(x.numel(), 4),)](x, dy, dx, 0.5, x.numel(), BLOCK=4)
        return dx


def plain(x):
    return 3 * torch.tanh(0.5 * x)


squash = gradgate.Pair(
    Squash.apply, reference=plain, inputs={"x": normal("T")}, dims={"T": (1, 3, 9)}, dtypes=("float32",),
    framework="torch", devices=("interpreter",), name="squash",
)
"""
REFUSED = """
@triton.jit
def _fast(x, y):
    tl.store(y, libdevice.fast_cosf(tl.load(x)))


class Cosine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty(x.shape)
        _fast[(1,)](x, y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy


cosine = gradgate.Pair(
    Cosine.apply, reference=torch.cos, inputs={"x": normal("T")}, dims={"T": (1,)}, dtypes=("float32",),
    framework="torch", devices=("interpreter",), name="cosine",
)
"""
CLAIMS = ("tree", "outputs", "gradient_exact", "gradient_float32", "layouts", "pure", "autograd")


@pytest.fixture(scope="module")
def judge() -> Iterator[Callable[..., dict[str, Any]]]:
    """A function that judges the pairs of a file in a worker process, as the command line does; verdicts by claim."""
    with Supervisor(Run(examples=4), 1, Limits(120)) as supervisor:

        def verdicts(path: Path, text: str, claims: tuple[str, ...]) -> dict[str, Any]:
            path.write_text(text)
            tasks = [task for task in supervisor.describe(str(path), "", None) if task.claim in claims]
            return {task.claim: supervisor.judge(task) for task in tasks}

        yield verdicts


def test_a_process_for_the_interpreter_has_its_variable_and_no_other_has() -> None:
    assert environment("interpreter")["TRITON_INTERPRET"] == "1"
    assert "TRITON_INTERPRET" not in environment()
    assert environment("cuda")["TRITON_INTERPRET"] == "0"


@needs_triton
def test_kernels_are_judged_in_workers_that_interpret_them(tmp_path: Path, judge: Any) -> None:
    assert not triton_interpreter.interpreting()
    found = judge(tmp_path / "kernels.py", KERNELS, CLAIMS)
    assert {name: verdict.verdict for name, verdict in found.items()} == dict.fromkeys(CLAIMS, "upheld"), found


@needs_triton
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("factor", "3.0 * scale", "3.0"),
        ("cotangent", "tl.load(dy + place, mask=inside, other=0.0), mask", "1.0, mask"),
        ("stride", "dy = dy.contiguous()", "dy = dy"),
        ("output kept on ctx", "ctx.save_for_backward(x)", "ctx.save_for_backward(x); ctx.y = y"),
    ],
)
def test_a_mistake_in_a_kernel_is_refuted(tmp_path: Path, judge: Any, name: str, right: str, wrong: str) -> None:
    assert KERNELS.count(right) == 1
    found = judge(tmp_path / f"{name}.py", KERNELS.replace(right, wrong), ("gradient_float32", "layouts", "autograd"))
    assert "refuted" in {verdict.verdict for verdict in found.values()}, found


@needs_triton
@pytest.mark.parametrize(("scale", "verdict"), [("3.0", "upheld"), ("2.0", "refuted")])
def test_a_library_may_enter_the_device_of_a_tensor(tmp_path: Path, judge: Any, scale: str, verdict: str) -> None:
    launch = "        _backward[(triton"
    entered = "        with getattr(torch, x.device.type).device(x.device.index):\n    " + launch
    text = KERNELS.replace(launch, entered).replace("3.0 * scale", f"{scale} * scale")
    found = judge(tmp_path / f"entered_{verdict}.py", text, ("gradient_exact", "gradient_float32"))
    assert {one.verdict for one in found.values()} == {verdict}, found


@needs_triton
def test_what_the_interpreter_cannot_do_is_inapplicable_in_its_own_words(tmp_path: Path, judge: Any) -> None:
    found = judge(tmp_path / "fast.py", KERNELS.partition("squash =")[0] + REFUSED, ("outputs",))["outputs"]
    assert found.verdict == "inapplicable", found
    assert "cannot run the kernel _fast: NotImplementedError('libdevice.fast_cosf has no counterpart" in found.reason


@needs_triton
def test_in_a_process_that_was_started_without_it_nothing_is_judged(
    tmp_path: Path, process: Callable[..., Any]
) -> None:
    (tmp_path / "test_mine.py").write_text(
        KERNELS + "\n\n@gradgate.parametrize(squash, examples=2)\ndef test_gradient(check):\n    check()\n"
    )
    words = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", "-k", "tree", "test_mine.py")
    skipped = process(*words, cwd=tmp_path, env={"TRITON_INTERPRET": "0"})
    assert "1 skipped" in skipped.out
    assert "start this process with TRITON_INTERPRET=1" in " ".join(skipped.out.split())


def _pair(**how: Any) -> Any:
    import torch

    import gradgate

    return gradgate.Pair(
        torch.sin,
        reference=lambda x: torch.cos(x - torch.pi / 2),
        inputs={"x": gradgate.normal("T")},
        dims={"T": (3,)},
        framework="torch",
        name="sine",
        **how,
    )


def test_a_device_that_is_absent_is_inapplicable_with_the_reason() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    found = judged(_pair(devices=("cuda",)), ("tree", "gradient_float64"))
    assert {verdict.verdict for verdict in found.values()} == {"inapplicable"}
    assert f"torch {torch.__version__} sees no CUDA device" in found["tree"].reason


def scaled(output: Callable[[Any, float], Any], cotangent: Callable[[Any, float], Any]) -> Any:
    """2·x, whose passes multiply by 2 as the two functions do."""
    import torch

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return output(x, 2.0)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, dy: Any) -> Any:
            return cotangent(dy, 2.0)

    return Scaled.apply


def right(x: Any, factor: float) -> Any:
    return x * factor


def in_place(x: Any, factor: float) -> Any:
    """Like a kernel that writes over what it reads."""
    x.data.mul_(factor)
    return x.clone()


def in_memory_order(x: Any, factor: float) -> Any:
    """Like a kernel that takes what it reads for contiguous."""
    import torch

    return torch.as_strided(x, x.shape, torch.empty(x.shape).stride()) * factor


@pytest.mark.parametrize(
    ("output", "cotangent", "refuted", "reason"),
    [
        (right, right, set(), ""),
        (right, in_memory_order, {"layouts"}, ""),
        (right, in_place, {"pure", "deterministic"}, "the call changed its upstream gradient"),
        (in_place, right, {"pure", "deterministic"}, "the call changed its input x"),
    ],
)
def test_a_function_on_a_device_is_judged_as_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, output: Any, cotangent: Any, refuted: set[str], reason: str
) -> None:
    """It gets copies; what it writes over them counts. Here the device is the CPU, and the copies are real."""
    import gradgate
    from gradgate.suites.pairs import transfer

    called = []

    def call(device: str, function: Any, arguments: Any, keywords: Any) -> Any:
        called.append(device)
        return transfer.call("cpu", function, arguments, keywords) if device else function(*arguments, **keywords)

    monkeypatch.setattr(devices, "missing", lambda device: "" if device == "cuda" else "absent")
    monkeypatch.setattr(devices, "call", call)
    on_cpu = gradgate.Pair(
        scaled(output, cotangent),
        reference=lambda x: x + x,
        inputs={"x": gradgate.normal("T H")},
        dims={"T": (3,), "H": (2,)},
        framework="torch",
        name="scaled",
    )
    claims = ("tree", "outputs", "gradient_float64", "pure", "deterministic", "each_leaf_alone", "autograd", "layouts")
    there = judged(dataclasses.replace(on_cpu, devices=("cuda",)), claims)
    here = judged(on_cpu, claims)
    assert {claim: verdict.verdict for claim, verdict in there.items()} == {
        claim: verdict.verdict for claim, verdict in here.items()
    }
    assert {claim for claim, verdict in there.items() if verdict.verdict == "refuted"} >= refuted
    assert reason in there["pure"].reason
    assert "cuda" in called


def test_without_triton_a_pair_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "missing", lambda device: "triton is not installed: pip install 'gradgate[triton]'")
    found = judged(_pair(devices=("interpreter",)), ("outputs",))["outputs"]
    assert (found.verdict, found.reason) == ("inapplicable", devices.missing("interpreter"))
    named = devices.loaded("a_module_of_kernels:function", ("interpreter",))
    with pytest.raises(Exception, match="triton is not installed"):
        named(1)
    with pytest.raises(UsageError):
        devices.loaded("a_module_of_kernels:function", ())


def test_unknown_devices_are_named() -> None:
    with pytest.raises(UsageError, match="interpreter"):
        _pair(devices=("interpretr",))
    with pytest.raises(UsageError, match="a tuple such as"):
        _pair(devices="cuda")


def test_a_jax_pair_has_no_devices() -> None:
    jax = pytest.importorskip("jax")
    import gradgate

    pair = gradgate.Pair(
        jax.numpy.sin,
        reference=lambda x: jax.numpy.cos(x - jax.numpy.pi / 2),
        inputs={"x": gradgate.normal("T")},
        dims={"T": (3,)},
        framework="jax",
        devices=("interpreter",),
    )
    with pytest.raises(UsageError, match="interpret=True"):
        _ = pair.lowered


def test_the_variable_is_read_as_triton_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, told in (("1", True), ("true", True), ("0", False), ("", False)):
        monkeypatch.setenv("TRITON_INTERPRET", value)
        assert triton_interpreter.interpreting() is told
    assert os.environ["TRITON_INTERPRET"] == ""


@needs_triton
@pytest.mark.parametrize(("scale", "verdict"), [("3.0", "upheld"), ("2.0", "refuted")])
def test_a_kernel_that_is_imported_at_the_head_of_the_pairs_file_is_interpreted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: str, verdict: str
) -> None:
    """Its names of libdevice are bound before Triton's interpreter is prepared; a fresh worker shows it."""
    monkeypatch.chdir(tmp_path)
    head, _, tail = KERNELS.partition("squash =")
    kernel = head.replace("extra import libdevice", "extra.libdevice import tanh").replace("libdevice.tanh", "tanh")
    (tmp_path / "squashing.py").write_text(kernel.replace("3.0 * scale", f"{scale} * scale"))
    (tmp_path / "pairs.py").write_text(
        "from squashing import Squash, plain\n\nimport gradgate\nfrom gradgate import normal\n\nsquash =" + tail
    )
    with Supervisor(Run(examples=4), 1, Limits(120)) as supervisor:
        [task] = [
            task
            for task in supervisor.describe(str(tmp_path / "pairs.py"), "", None)
            if task.claim == "gradient_float32"
        ]
        found = supervisor.judge(task)
    assert found.verdict == verdict, found
