"""`gradgate.module_pair` with torch.nn.Module: right modules are upheld, and each kind of mistake is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gradgate
from gradgate.references import registry
from gradgate.suites.tests.pairs.verdicts import refuted, upheld

torch = pytest.importorskip("torch")
nn = torch.nn

DIMS = {"B": (3, 4), "H": (2, 5)}
X = {"x": gradgate.normal("B H")}


class Norm(nn.Module):
    """Batch norm by hand. Broken subclasses override `running`, `own_eval` or `gain`."""

    running = True
    own_eval = True

    def __init__(self, H: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(H)), nn.Parameter(torch.zeros(H))
        self.register_buffer("mean", torch.zeros(H))
        self.register_buffer("var", torch.ones(H))
        self.register_buffer("steps", torch.tensor(0))

    def gain(self) -> Any:
        return self.weight

    def forward(self, x: Any) -> Any:
        if self.training or not self.own_eval:
            mean, var = x.mean(0), x.var(0, correction=0)
        else:
            mean, var = self.mean, self.var
        if self.training and self.running:
            with torch.no_grad():
                self.mean.lerp_(mean, 0.1)
                self.var.lerp_(x.var(0), 0.1)
                self.steps += 1
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.gain() + self.bias


NAMES = {"running_mean": "mean", "running_var": "var", "num_batches_tracked": "steps"}


def norm_pair(module: Callable[..., Any], **how: Any) -> Any:
    return gradgate.module_pair(lambda H: module(H), lambda H: nn.BatchNorm1d(H), X, DIMS, NAMES, **how)


def test_batch_norm_by_hand_is_upheld_in_every_claim() -> None:
    upheld(norm_pair(Norm))


def test_running_statistics_that_are_not_updated_are_refuted() -> None:
    class Forgets(Norm):
        running = False

    assert "after the call" in refuted(norm_pair(Forgets), "outputs")


def test_batch_statistics_in_eval_mode_are_refuted() -> None:
    class AlwaysTrains(Norm):
        own_eval = False

    refuted(norm_pair(AlwaysTrains), "gradient_exact")


def test_a_gain_without_a_gradient_is_refuted() -> None:
    class Detached(Norm):
        def gain(self) -> Any:
            return self.weight.detach()

    assert "module.weight has no gradient" in refuted(norm_pair(Detached), "tree")


def test_both_modes_are_judged_and_one_alone_if_told() -> None:
    def modes(pair: Any) -> set[bool]:
        try:
            return {shape["training"] for shape in registry.family(pair.lowered.family).shapes}
        finally:
            registry.forget(pair.lowered.family)

    assert modes(norm_pair(Norm)) == {True, False}
    assert modes(norm_pair(Norm, modes=("eval",))) == {False}


class Mlp(nn.Module):
    """Linear, dropout, tanh."""

    def __init__(self, H: int, p: float = 0.5) -> None:
        super().__init__()
        self.inner, self.drop = nn.Linear(H, H), nn.Dropout(p)

    def plain(self, x: Any) -> Any:
        return self.drop(self.inner(x)).tanh()

    def forward(self, x: Any) -> Any:
        return self.plain(x)


def plain_mlp(H: int) -> Any:
    return nn.Sequential(nn.Linear(H, H), nn.Dropout(0.5), nn.Tanh())


def mlp_pair(module: Callable[..., Any], **how: Any) -> Any:
    return gradgate.module_pair(
        lambda H: module(H), plain_mlp, X, DIMS, {"0": "inner"}, **{"random": True, "dtypes": ("float64",), **how}
    )


def test_dropout_is_judged_with_one_mask_in_both_modules() -> None:
    upheld(mlp_pair(Mlp, dtypes=("float64", "float32")))


class Recompute(torch.autograd.Function):
    """Calls a module again in the backward pass; the module decides which random state and parameters it uses then."""

    @staticmethod
    def forward(ctx: Any, module: Any, x: Any, *parameters: Any) -> Any:
        ctx.module, ctx.saved, ctx.state = module, (x, *parameters), torch.get_rng_state()
        with torch.no_grad():
            return module.plain(x)

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        leaves = [leaf.detach().requires_grad_() for leaf in ctx.saved]
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            ctx.module.restore(ctx.state)
            names = [name for name, _ in ctx.module.named_parameters()]
            own = dict(zip(names, leaves[1:], strict=True)) if ctx.module.keeps else {}
            out = torch.func.functional_call(_Plain(ctx.module), {f"of.{n}": p for n, p in own.items()}, (leaves[0],))
        wanted = leaves if own else [leaves[0], *ctx.module.parameters()]
        return (None, *torch.autograd.grad(out, wanted, upstream))


class _Plain(nn.Module):
    def __init__(self, of: Any) -> None:
        super().__init__()
        self.of = of
        self.train(of.training)

    def forward(self, x: Any) -> Any:
        return self.of.plain(x)


class Recomputed(Mlp):
    """Keeps parameters and the generator's state, but recomputes in the mode that it has in the backward pass."""

    keeps = True

    def restore(self, state: Any) -> None:
        torch.set_rng_state(state)

    def forward(self, x: Any) -> Any:
        return Recompute.apply(self, x, *self.parameters())


class DrawsAgain(Recomputed):
    """Draws another mask in the backward pass."""

    def restore(self, state: Any) -> None:
        torch.rand(7)


def test_a_mask_drawn_again_in_the_recomputation_is_refuted() -> None:
    refuted(mlp_pair(DrawsAgain), "gradient_float64", 12)


def test_a_recomputation_in_the_mode_of_the_backward_pass_is_refuted() -> None:
    upheld(mlp_pair(Recomputed), ("tree", "gradient_float64"))
    assert "the other mode" in refuted(mlp_pair(Recomputed), "module_protocol", 24)


class ReadsItsWeight(nn.Module):
    """A linear map whose backward pass reads the weight's values at the time of the backward pass."""

    def __init__(self, H: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(H, H))

    def forward(self, x: Any) -> Any:
        return ReadLater.apply(x, self.weight, self)


class ReadLater(torch.autograd.Function):
    """x @ w.T; the backward pass reads the current values of w, without autograd's check for overwritten tensors."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, module: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.held = [w.detach()]
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        [x] = ctx.saved_tensors
        return upstream[0] @ ctx.held[0], upstream[0].T @ x, None


def linear_pair(module: Callable[..., Any], **how: Any) -> Any:
    return gradgate.module_pair(
        lambda H: module(H), lambda H: nn.Linear(H, H, bias=False), X, DIMS, dtypes=("float64", "float32"), **how
    )


def test_a_parameter_overwritten_before_the_backward_pass_is_right_or_raises() -> None:
    upheld(linear_pair(lambda H: nn.Sequential(nn.Linear(H, H, bias=False)), rename={"weight": "0.weight"}))
    assert "module.weight" in refuted(linear_pair(ReadsItsWeight), "module_protocol")


class SharedByCopies(nn.Linear):
    """Holds its weight in a closure, which a deep copy does not copy."""

    def __init__(self, H: int) -> None:
        super().__init__(H, H, bias=False)
        self.run: Any = None

    def forward(self, x: Any) -> Any:
        if self.run is None:
            weight = self.weight
            self.run = lambda x: x @ weight.T
            return self.run(x)
        return x @ self.weight.T if self.run.__closure__[0].cell_contents is self.weight else self.run(x)


def test_a_copy_that_uses_the_weights_of_the_original_is_refuted() -> None:
    class OneCall(SharedByCopies):
        def forward(self, x: Any) -> Any:
            if not isinstance(self.weight, nn.Parameter):  # functional_call passes the caller's tensors
                return x @ self.weight.T
            return super().forward(x)

    assert "a deep copy" in refuted(linear_pair(OneCall), "module_protocol")


class LargestBatch(nn.Linear):
    """Multiplies its gradient by this batch's size over the largest batch's size so far."""

    def __init__(self, H: int) -> None:
        super().__init__(H, H, bias=False)
        self.most = 0

    def forward(self, x: Any) -> Any:
        self.most = max(self.most, len(x)) if isinstance(self.weight, nn.Parameter) else len(x)
        out = super().forward(x)
        share = len(x) / self.most
        return out * share + out.detach() * (1 - share)


def test_a_smaller_batch_after_a_larger_one_is_judged() -> None:
    assert "smaller batch" in refuted(linear_pair(LargestBatch), "module_protocol")


class UpdatesTwice(Norm):
    """Batch norm that updates its statistics again when the gradient arrives, as a recomputation would."""

    def forward(self, x: Any) -> Any:
        out = super().forward(x)

        def again(_: Any) -> None:
            self.mean.lerp_(x.detach().mean(0), 0.1)

        if self.training and out.requires_grad:
            out.register_hook(again)
        return out


def test_statistics_that_the_backward_pass_updates_again_are_refuted() -> None:
    upheld(norm_pair(UpdatesTwice), ("outputs", "gradient_float64"))
    assert "once more" in refuted(norm_pair(UpdatesTwice), "module_protocol", 24)


class WrongUnderAutocast(nn.Linear):
    """Wrong by a factor if autocast is on."""

    def __init__(self, H: int) -> None:
        super().__init__(H, H, bias=False)

    def forward(self, x: Any) -> Any:
        out = super().forward(x)
        return out * 1.5 if torch.is_autocast_enabled("cpu") else out


def test_what_is_wrong_under_autocast_alone_is_refuted() -> None:
    assert "under autocast" in refuted(linear_pair(WrongUnderAutocast), "module_protocol", 24)


def test_a_buffer_of_the_function_alone_is_its_own_business() -> None:
    class Cached(nn.Linear):
        def __init__(self, H: int) -> None:
            super().__init__(H, H, bias=False)
            self.register_buffer("seen", torch.zeros(()))

    upheld(linear_pair(Cached), ("tree", "outputs", "gradient_float64"))


def test_options_go_to_the_builder_or_to_the_call() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return super().forward(x) * scale

    def build(H: int, bias: bool) -> Any:
        return Scaled(H, H, bias=bias)

    def other(H: int, bias: bool) -> Any:
        return Scaled(H, H, bias=bias)

    pair = gradgate.module_pair(
        build, other, X, DIMS, options={"bias": (True, False), "scale": (1.0, 2.0)}, dtypes=("float64",)
    )
    assert set(pair.shared) == {"bias", "scale", "training"}
    upheld(pair, ("tree", "outputs", "gradient_exact", "module_protocol"))


def test_a_frozen_parameter_of_the_reference_is_data() -> None:
    def frozen(H: int) -> Any:
        module = nn.Linear(H, H)
        module.bias.requires_grad_(False)
        return module

    pair = gradgate.module_pair(lambda H: frozen(H), frozen, X, DIMS, dtypes=("float64",))
    assert pair.differentiated_at({"B": 3, "H": 2, "training": True}) == {"x", "module.weight"}
    upheld(pair, ("tree", "outputs", "gradient_float64"))


def test_parameters_that_do_not_match_are_listed_with_the_nearest() -> None:
    with pytest.raises(gradgate.UsageError) as told:
        _ = gradgate.module_pair(lambda H: Mlp(H), lambda H: nn.Linear(H, H), X, DIMS).spec(B=3, H=2).build("torch")
    assert "weight, bias" in str(told.value)
    assert "inner.weight, inner.bias" in str(told.value)
    assert "nearest to weight is inner.weight" in str(told.value)


def test_a_statistic_that_the_function_lacks_is_told() -> None:
    class Bare(Norm):
        def __init__(self, H: int) -> None:
            super().__init__(H)
            del self.var

    names = {name: own for name, own in NAMES.items() if own != "var"}
    pair = gradgate.module_pair(lambda H: Bare(H), lambda H: nn.BatchNorm1d(H), X, DIMS, names)
    with pytest.raises(gradgate.UsageError, match="changes running_var of the reference"):
        pair.spec(B=3, H=2).build("torch")


class Checkpointed(Mlp):
    """Calls itself again in the backward pass, as torch.utils.checkpoint does."""

    def forward(self, x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(self.plain, x, use_reentrant=False)


def test_a_checkpoint_within_a_module_finds_the_parameters_in_the_backward_pass() -> None:
    claims = ("tree", "outputs", "gradient_exact", "gradient_float64", "autograd", "layouts")
    upheld(mlp_pair(Checkpointed), claims, 12)


def test_tied_weights_are_one_parameter() -> None:
    class Tied(nn.Module):
        def __init__(self, H: int) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(H, H, bias=False), nn.Linear(H, H, bias=False)
            self.two.weight = self.one.weight

        def forward(self, x: Any) -> Any:
            return self.two(self.one(x).tanh())

    class Untied(Tied):
        def forward(self, x: Any) -> Any:
            return (x @ self.one.weight.T).tanh() @ self.two.weight.detach().T

    pair = gradgate.module_pair(lambda H: Tied(H), lambda H: Tied(H), X, DIMS, dtypes=("float64",))
    upheld(pair, ("tree", "outputs", "gradient_exact", "module_protocol"))
    wrong = gradgate.module_pair(lambda H: Untied(H), lambda H: Tied(H), X, DIMS, dtypes=("float64",))
    assert "one.weight" in refuted(wrong, "gradient_exact")


def test_torch_compile_and_vmap_take_modules() -> None:
    upheld(norm_pair(Norm, composes=("compile",)), ("compile",))
    upheld(
        linear_pair(lambda H: nn.Linear(H, H, bias=False), composes=("vmap", "second_order")), ("vmap", "second_order")
    )


def test_bytes_and_work_of_a_module_are_measured() -> None:
    from gradgate.hw_profiles.torch_memory import measure

    pair = linear_pair(lambda H: nn.Sequential(nn.Linear(H, H, bias=False)), rename={"weight": "0.weight"})
    problem = pair.spec(B=3, H=5).build("torch")
    found = measure(lambda given: pair(given), (problem,))
    assert found.status == "measured", found.reason
