"""Functions of PyTorch that name no reference: what the values of a forward pass say, and what they do not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.suites.tests.exact import test_triton_kernels
from gradgate.suites.tests.exact.kernel_judge import Judge
from gradgate.suites.tests.pairs.verdicts import judged

torch = pytest.importorskip("torch")

LEAKED: list[Any] = []


def wave(x: Any, w: Any) -> Any:
    return x.sin() * w


class Wave(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, w: Any) -> Any:
        return wave(x, w)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        return x.cos() * w * dy, (x.sin() * dy).sum(0)

    @staticmethod
    def jvp(ctx: Any, dx: Any, dw: Any) -> Any:
        x, w = ctx.saved_tensors
        return x.cos() * w * dx + x.sin() * dw


class WrongTangent(Wave):
    @staticmethod
    def jvp(ctx: Any, dx: Any, dw: Any) -> Any:
        x, w = ctx.saved_tensors
        return x.cos() * w * dx + 1.001 * x.sin() * dw


class WrongTwice(Wave):
    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        return x.cos().detach() * w * dy, (x.sin() * dy).sum(0)


class Leaking(Wave):
    @staticmethod
    def forward(x: Any, w: Any) -> Any:
        LEAKED.append(wave(x, w))
        return LEAKED[-1]


class Hidden(torch.autograd.Function):
    """A forward pass that autograd cannot follow: in place, into a buffer, of detached numbers."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        out = torch.empty_like(x)
        for row in range(len(x)):
            torch.sin(x.detach()[row], out=out[row])
        return out.mul_(w.data)

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        x, w = ctx.saved_tensors
        return x.cos() * w * dy, (x.sin() * dy).sum(0)


def _pair(function: Any, **how: Any) -> gradgate.Pair:
    return gradgate.Pair(
        function,
        reference=None,
        inputs={"x": normal("T H"), "w": normal("H")},
        dims={"T": (1, 3), "H": (1, 4)},
        framework="torch",
        name="wave",
        **how,
    )


def test_every_claim_about_right_functions_is_upheld() -> None:
    for function in (wave, Wave.apply):
        pair = _pair(function, composes=("second_order", "vmap"))
        found = judged(pair, (), 3)
        assert {verdict.verdict for verdict in found.values()} == {"upheld"}, found
        assert found.keys() >= {"forward_mode", "second_order_exact", "vmap", "autograd", "layouts"}
        assert not found.keys() & {"outputs", "not_finite"}


@pytest.mark.parametrize(
    ("function", "claim", "words"),
    [
        (WrongTangent, "forward_mode", "in forward mode: wrong gradient of"),
        (WrongTwice, "autograd", "differentiated again: wrong gradient of x"),
        (Leaking, "autograd", "its graph is not freed"),
    ],
)
def test_what_only_its_own_values_can_refute(function: Any, claim: str, words: str) -> None:
    found = judged(_pair(function.apply), (claim, "gradient_exact"), 3)
    assert found["gradient_exact"].verdict == "upheld"
    assert found[claim].verdict == "refuted"
    assert words in found[claim].reason


def test_a_wrong_second_derivative_is_refuted_by_values_of_the_gradient() -> None:
    pair = _pair(WrongTwice.apply, composes=("second_order",))
    found = judged(pair, ("gradient_exact", "second_order_exact", "second_order"), 3)
    assert [found[claim].verdict for claim in found] == ["upheld", "refuted", "refuted"]


def test_a_forward_pass_that_autograd_cannot_follow_has_a_derivative() -> None:
    found = judged(_pair(Hidden.apply), ("gradient_exact", "gradient_float32"), 3)
    assert {verdict.verdict for verdict in found.values()} == {"upheld"}, found


def test_a_hook_in_the_backward_pass_is_not_in_the_forward_pass() -> None:
    def reversing(x: Any, w: Any) -> Any:
        y = wave(x, w)
        if y.requires_grad:
            y.register_hook(lambda grad: -grad)
        return y

    found = judged(_pair(reversing), ("gradient_exact", "gradient_float32"), 3)
    assert {verdict.verdict for verdict in found.values()} == {"refuted"}, found


def test_a_gradient_that_is_missing_is_refuted() -> None:
    found = judged(_pair(lambda x, w: wave(x, w.detach())), ("gradient_exact",), 3)["gradient_exact"]
    assert found.verdict == "refuted"
    assert "wrong gradient of w" in found.reason


def test_at_a_tie_nothing_is_judged_and_the_reason_says_so() -> None:
    x = torch.zeros(3)
    with pytest.raises(AssertionError, match=r"nothing could be said(.|\n)*a tie: the forward pass has no derivative"):
        gradgate.check(torch.relu, None, (x,))
    gradgate.check(torch.relu, None, (x + 1,))
    gradgate.check(torch.square, None, (x,))  # it is flat there, and has a derivative


def test_a_number_that_is_read_out_of_a_tensor_hides_a_derivative() -> None:
    x = torch.linspace(-1, 2, 5)
    with pytest.raises(AssertionError, match="depends on a number that it reads out of a tensor"):
        gradgate.check(lambda x: x * x.max().item(), None, (x,))
    gradgate.check(lambda x: x * (2 if x.sum().item() > -9 else 3), None, (x,))


def test_what_cannot_be_evaluated_in_sixty_digits_is_not_judged_in_floats() -> None:
    def outside(x: Any) -> Any:
        return x * torch.from_numpy(x.detach().numpy() * 2)

    with pytest.raises(AssertionError, match="nothing could be said about the gradient here"):
        gradgate.check(outside, None, (torch.ones(2),))


def test_modules_are_judged_against_themselves() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self, wrong: float) -> None:
            super().__init__()
            self.linear, self.wrong = torch.nn.Linear(4, 3), wrong

        def forward(self, x: Any) -> Any:
            weight = self.linear.weight
            return torch.nn.functional.gelu(self.linear(x)) + self.wrong * (weight - weight.detach()).sum()

    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    gradgate.check(torch.nn.Sequential(Scaled(0.0), torch.nn.LayerNorm(3), torch.nn.Dropout(0.5)), None, (x,))
    with pytest.raises(AssertionError, match=r"wrong gradient of module\.linear\.weight"):
        gradgate.check(Scaled(1e-6), None, (x,))


def _scaled(wrong: float) -> Any:
    """A module with a custom gradient, and a buffer that a training call changes."""

    class Squash(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, gain: Any) -> Any:
            ctx.save_for_backward(x, gain)
            return torch.tanh(x) * gain

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, dy: Any) -> Any:
            x, gain = ctx.saved_tensors
            t = torch.tanh(x)
            return dy * gain * (1 - t * t), (dy * t + wrong * dy * t).sum(0)

    class Scaled(torch.nn.Module):
        def __init__(self, H: int) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones(H))
            self.register_buffer("seen", torch.zeros(H))

        def forward(self, x: Any) -> Any:
            if self.training:
                with torch.no_grad():
                    self.seen += x.mean(0)
            return Squash.apply(x, self.gain)

    return Scaled


def _module_pair(wrong: float, **how: Any) -> Any:
    inputs, dims = {"x": normal("B H")}, {"B": (2, 3), "H": (3, 4)}
    return gradgate.module_pair(_scaled(wrong), None, inputs, dims, name="scaled", framework="torch", **how)


def test_a_pair_of_a_module_and_itself() -> None:
    found = judged(_module_pair(0.0))
    wrong = {name: one.reason for name, one in found.items() if one.verdict not in ("upheld", "inapplicable")}
    assert not wrong, wrong
    assert "module_protocol" in found
    assert [name for name, one in found.items() if one.verdict == "inapplicable"] == ["forward_mode"]
    refuted = judged(_module_pair(1e-30), ("gradient_exact", "gradient_float32"))
    assert {name: one.verdict for name, one in refuted.items()} == {
        "gradient_exact": "refuted",
        "gradient_float32": "upheld",
    }
    assert "wrong gradient of module.gain " in refuted["gradient_exact"].reason
    assert judged(_module_pair(1e-2), ("gradient_float32",))["gradient_float32"].verdict == "refuted"


def test_a_module_and_itself_have_the_same_names() -> None:
    with pytest.raises(gradgate.UsageError, match="reference=None is the module itself"):
        _module_pair(0.0, rename={"gain": "weight"})


def test_a_function_that_only_backward_differentiates_needs_a_reference() -> None:
    with pytest.raises(gradgate.UsageError, match="by_backward needs a reference="):
        _pair(wave, by_backward=True)


MISTAKES = {"": "return g", **test_triton_kernels.MISTAKES}


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'gradgate[triton]'"
)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_triton_kernels_have_the_verdicts_that_they_have_against_references(mistake: str, tmp_path: Path) -> None:
    text, path = test_triton_kernels.FILE.read_text(encoding="utf-8"), tmp_path / "kernels.py"
    planted = test_triton_kernels.PLANTED
    for right, wrong in (
        ("reference=plain", "reference=None"),
        (planted, planted.replace("return g", MISTAKES[mistake])),
    ):
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    path.write_text(text, encoding="utf-8")
    judge = Judge()
    try:
        found = judge.judge(path, ("gradient_exact",), examples=2)
    finally:
        judge.close()
    assert {verdict for verdict, _ in found.values()} == {"refuted" if mistake else "upheld"}, found
    assert len(found) == len(test_triton_kernels.KERNELS)
