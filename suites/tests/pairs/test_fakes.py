"""Bytes without memory: fake tensors give the figures of real ones; a function that reads a number is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import gradgate
from gradgate import integers, normal
from gradgate.hw_profiles.sweep import Cell, measure_cell
from gradgate.hw_profiles.torch_memory import Refusal
from gradgate.references import registry
from gradgate.suites.measuring import cells, fakes, launches
from gradgate.suites.pairs import triton_interpreter
from gradgate.suites.tests.pairs.verdicts import judged

torch = pytest.importorskip("torch")

FIGURES = ("status", "temp_bytes", "argument_bytes", "peak_bytes", "flops")


def measured(method: Any, function: Any, spec: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The figures of a method."""
    found = measure_cell(Cell(lambda: cells.of_method(method, function, spec, options), "cpu", None, framework="torch"))
    return {name: getattr(found, name) for name in FIGURES} | ({} if found.ok else {"reason": found.reason})


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention with a mask by position."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ v


def entropy(x: Any, weight: Any, labels: Any) -> Any:
    """Cross entropy of x @ weight.T."""
    return torch.nn.functional.cross_entropy(x @ weight.T, labels)


def choosy(x: Any) -> Any:
    """A function that branches on a computed number."""
    return x * 2 if x.sum() > 0 else x * 2.0 + 0.0 * x


def _pair(function: Any, inputs: dict[str, Any], dims: dict[str, Any], **how: Any) -> Any:
    return gradgate.Pair(
        function,
        reference=lambda *given: function(*given),
        inputs=inputs,
        dims=dims,
        framework="torch",
        name=function.__name__,
        **how,
    )


PAIRS = {
    "attention": lambda: _pair(
        attention, {name: normal("T H") for name in "qkv"}, {"T": (5,), "H": (4,)}, dtypes=("float32", "bfloat16")
    ),
    "entropy": lambda: _pair(
        entropy,
        {"x": normal("T H"), "weight": normal("V H"), "labels": integers("T", below="V")},
        {"T": (7,), "H": (4,), "V": (9,)},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_fake_tensors_give_the_figures_of_real_ones(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = PAIRS[name]()
    method, spec = pair.lowered, pair.spec(**pair.family.measured)
    real = measured(method, pair, spec, {}), pair.residual_bytes(spec, {})
    monkeypatch.setattr(fakes, "LARGE", 1)
    assert (measured(method, pair, spec, {}), pair.residual_bytes(spec, {})) == real
    assert real[0]["status"] == "measured"
    larger = dataclasses.replace(spec, T=2 * spec.T)
    assert measured(method, pair, larger, {}) != real[0]


@pytest.mark.parametrize("key", ["chain:store_all", "state_space:backprop", "bilevel:backprop"])
def test_reference_methods_have_the_same_bytes_on_fake_tensors(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, _, name = key.partition(":")
    methods = [method for method in registry.methods(family) if method.framework == "torch"]
    method = next((m for m in methods if m.name == name), methods[0])
    spec = registry.spec_class(family)(**registry.family(family).measured)
    if spec.layout() is None:
        pytest.skip(f"problems of {family} are drawn, not laid out")
    function, options = registry.load(method.implementation), cells.usual_options(method, spec)
    real = measured(method, function, spec, options)
    monkeypatch.setattr(fakes, "LARGE", 1)
    assert measured(method, function, spec, options) == real


def test_bytes_at_a_scale_that_no_machine_has() -> None:
    pair = _pair(attention, {name: normal("T H") for name in "qkv"}, {"T": (5, 2**20), "H": (4, 64)})
    spec = pair.spec(T=2**20, H=64, dtype="float32")
    found = measured(pair.lowered, pair, spec, {})
    assert found["status"] == "measured"
    assert found["peak_bytes"] > 2 * 4 * 2**40  # two matrices of T × T


def test_a_number_that_is_read_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = _pair(choosy, {"x": normal("T")}, {"T": (5,)}, claims=[gradgate.grows("residual_bytes", T=1)])
    monkeypatch.setattr(fakes, "LARGE", 1)
    found = measured(pair.lowered, pair, pair.spec(), {})
    assert found["status"] == "refused"
    assert "reads a number out of a tensor, and tensors hold no numbers" in found["reason"]
    verdict = judged(pair, ("residual_bytes_T",))["residual_bytes_T"]
    assert verdict.verdict == "inapplicable"
    assert "residual bytes cannot be counted: it reads a number" in verdict.reason


class _Kernel:
    """A stand-in for a kernel that would write to the tensors with which it is launched."""

    __name__ = "kernel"


launch: Any = triton_interpreter._launched(lambda self, *arguments, **_: arguments[-1].fill_(1.0))


def _filled(x: Any) -> Any:
    out = torch.empty_like(x)
    launch(_Kernel(), x, out)
    return out


def test_a_branch_on_what_a_kernel_computes_is_refused() -> None:
    x, labels = torch.ones(3), torch.tensor([1, 2])
    with fakes.launches_skipped():
        _filled(x)
        assert int(labels.sum()) == 3  # no kernel computes it
        assert (torch.ones(2) * 2).sum().item() == 4.0
    for read in (torch.Tensor.item, bool, torch.Tensor.nonzero, lambda out: out.view(1)[out.view(1) > 0]):
        with pytest.raises(Refusal, match="reads a number out of what a kernel has computed"), fakes.launches_skipped():
            read(_filled(x).sum() * 2)
    assert _filled(x).sum() == 3


def _read_after_launch(counts: Any) -> Any:
    launch(_Kernel(), counts, torch.empty(3))
    return counts.sum().item()


def test_labels_that_kernels_get_in_chunks_are_still_the_users_and_are_read() -> None:
    """As a fused linear cross entropy does: it launches kernels on slices of the labels, and counts the labels."""
    x, labels = torch.ones(3), torch.tensor([1, 2, 0])
    with fakes.launches_skipped():
        for start in range(3):
            chunk = labels[start : start + 1]
            launch(_Kernel(), chunk, torch.empty_like(x))
            assert (labels != 0).sum().item() == 2
    made = [lambda: labels + 0, lambda: (labels + 0)[1:]]  # a kernel may write what the program made
    for make in made:
        with pytest.raises(Refusal, match="reads a number out of what a kernel has computed"), fakes.launches_skipped():
            _read_after_launch(make())


def test_a_launch_that_does_nothing_is_counted() -> None:
    with launches.skipping() as skipped:
        _filled(torch.ones(3))
        assert skipped.count == 1
    assert not launches.skipped()
