"""Claims are as wide as their words: each has a function that passes and a twin that is refuted, from one table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import gradgate
from gradgate import normal
from gradgate.suites.checks.batching import MOST_PAIRS, choices
from gradgate.suites.exact.rounded import MOST, bound, meanings
from gradgate.suites.tests.pairs.verdicts import judged, refuted, upheld

FRAMEWORKS = ("jax", "torch")


def numbers(framework: str) -> Any:
    """The namespace of a framework's functions."""
    return pytest.importorskip("jax").numpy if framework == "jax" else pytest.importorskip("torch")


def product(x: Any, w: Any) -> Any:
    return x @ w


def of(framework: str, function: Callable[..., Any], reference: Callable[..., Any] = product, **how: Any) -> Any:
    """A pair of a product of a vector and a matrix."""
    inputs = {"x": normal("D"), "w": normal("D O")}
    settings = {"inputs": inputs, "dtypes": ("float64", "float32"), "name": "wide", "framework": framework}
    return gradgate.Pair(function, reference, dims={"D": (3, 1), "O": (2,)}, **settings | how)


def handwritten(framework: str, **wrong: Any) -> Callable[..., Any]:
    """The product with a backward pass by hand; `wrong` says what it does wrong."""
    return of_jax(**wrong) if framework == "jax" else of_torch(**wrong)


def of_jax(sums: bool = False, needs_both: bool = False) -> Callable[..., Any]:
    """`sums`: the batching rule of the backward pass sums over the lanes if the weight is not batched."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    @jax.custom_batching.custom_vmap
    def outer(x: Any, g: Any, w: Any) -> Any:
        return jnp.outer(x, g)

    @outer.def_vmap
    def _(size: int, batched: Any, x: Any, g: Any, w: Any) -> Any:
        x, g = (v if b else jnp.broadcast_to(v, (size, *v.shape)) for v, b in zip((x, g), batched, strict=False))
        found = x[:, :, None] * g[:, None, :]
        if sums and not batched[2]:
            found = jnp.broadcast_to(found.sum(0), found.shape)
        return found, True

    made = jax.custom_vjp(product)

    def forward(x: Any, w: Any) -> Any:
        need = (x.perturbed, w.perturbed)
        need = (all(need),) * 2 if needs_both else need
        return x.value @ w.value, (x.value, w.value, tuple(jnp.zeros(()) if n else None for n in need))

    def backward(kept: Any, g: Any) -> Any:
        x, w, (of_x, of_w) = kept
        nothing = jnp.zeros_like
        return nothing(x) if of_x is None else w @ g, nothing(w) if of_w is None else outer(x, g, w)

    made.defvjp(forward, backward, symbolic_zeros=True)
    return lambda x, w: made(x, w)


def of_torch(sums: bool = False, needs_both: bool = False) -> Callable[..., Any]:
    """As `of_jax`."""
    torch = pytest.importorskip("torch")

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(x: Any, w: Any) -> Any:
            return x @ w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def vmap(info: Any, dims: Any, x: Any, w: Any) -> Any:
            x, w = (
                v.movedim(d, 0) if d is not None else v.expand(info.batch_size, *v.shape)
                for v, d in zip((x, w), dims, strict=True)
            )
            if sums and dims[1] is None:
                return Made.apply(x, w[0]).sum(0, keepdim=True).expand(info.batch_size, -1), 0
            return (x[:, None] @ w)[:, 0], 0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            need = ctx.needs_input_grad
            need = (all(need),) * 2 if needs_both else need
            nothing = torch.zeros_like
            return (w @ g if need[0] else nothing(x)), (torch.outer(x, g) if need[1] else nothing(w))

    return lambda x, w: Made.apply(x, w)


# vmap -----------------------------------------------------------------------------------------------------------------


def test_the_choices_of_batched_inputs_cover_each_alone_and_each_left_out() -> None:
    assert sorted(choices(["x", "w", "b"])) == sorted(
        [
            ("x",),
            ("w",),
            ("b",),
            ("x", "w"),
            ("x", "b"),
            ("w", "b"),
            ("x", "w", "b"),
        ]
    )
    assert len(set(choices("abcdef"))) == len(list(choices("abcdef"))) == 2**6 - 1
    seven = "abcdefg"
    many = list(choices(seven))
    assert len(set(many)) == len(many) == 1 + 7 + 7 + 21
    assert all((name,) in many and tuple(n for n in seven if n != name) in many for name in seven)
    assert len(list(choices(range(20)))) == 1 + 20 + 20 + MOST_PAIRS


def four(x: Any, w: Any, b: Any, g: Any) -> Any:
    return g * (x @ w + b)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rule_of_vmap_that_is_wrong_for_one_choice_of_four_inputs_is_refuted(framework: str) -> None:
    xp = numbers(framework)
    inputs = {"x": normal("D"), "w": normal("D O"), "b": normal("O"), "g": normal("O")}
    ways = [
        of(framework, both_of_four(framework, xp, wrong), four, inputs=inputs, composes=("vmap",))
        for wrong in (False, True)
    ]
    upheld(ways[0], ("vmap",), examples=2)
    reason = refuted(ways[1], "vmap", examples=2)
    assert reason.startswith("vmap over x and b, the other inputs not batched, lane 0: "), reason


def both_of_four(framework: str, xp: Any, wrong: bool) -> Callable[..., Any]:
    """`four`; if it is wrong, b counts twice where x and b are batched and w and g are not."""
    if framework == "jax":
        import jax

        made = jax.custom_batching.custom_vmap(four)

        @made.def_vmap
        def _(size: int, batched: Any, *given: Any) -> Any:
            x, w, b, g = given
            more = 2.0 if wrong and batched == [True, False, True, False] else 1.0
            axes = [0 if one else None for one in batched]
            return jax.vmap(lambda x, w, b, g: g * (x @ w + more * b), axes)(x, w, b, g), True

        plain = jax.custom_vjp(lambda *given: made(*given))
        plain.defvjp(lambda *given: (made(*given), given), lambda given, up: jax.vjp(four, *given)[1](up))
        return lambda *given: plain(*given)

    def function(x: Any, w: Any, b: Any, g: Any) -> Any:
        batched = [xp._C._functorch.is_batchedtensor(one) for one in (x, w, b, g)]
        return g * (x @ w + (2.0 if wrong and batched == [True, False, True, False] else 1.0) * b)

    return function


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rule_of_vmap_that_is_wrong_if_one_input_is_not_batched_is_refuted(framework: str) -> None:
    numbers(framework)
    upheld(of(framework, handwritten(framework), composes=("vmap",)), ("vmap",), examples=2)
    reason = refuted(of(framework, handwritten(framework, sums=True), composes=("vmap",)), "vmap", examples=2)
    assert reason.startswith("vmap over x, the other inputs not batched, lane 0: ")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_function_that_works_alone_and_raises_under_vmap_is_refuted(framework: str) -> None:
    xp = numbers(framework)

    def raising(x: Any, w: Any) -> Any:
        if framework == "torch" and xp._C._functorch.is_batchedtensor(x):
            raise RuntimeError("no vmap of x here")
        return product(x, w)

    def raising_in_jax(x: Any, w: Any) -> Any:
        """vmap of the gradient works, that of the function itself does not."""
        import jax

        plain = jax.custom_batching.custom_vmap(product)

        @plain.def_vmap
        def _(size: int, batched: Any, x: Any, w: Any) -> Any:
            raise RuntimeError("no vmap of x here")

        made = jax.custom_vjp(plain)
        made.defvjp(lambda x, w: (product(x, w), (x, w)), lambda kept, g: (kept[1] @ g, xp.outer(kept[0], g)))
        return made(x, w)

    function = raising_in_jax if framework == "jax" else raising
    assert "no vmap of x here" in refuted(of(framework, function, composes=("vmap",)), "vmap", examples=2)


# One input alone, and forward mode ------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_input_that_gets_its_gradient_only_together_with_another_is_refuted(framework: str) -> None:
    numbers(framework)
    upheld(of(framework, handwritten(framework)), ("each_leaf_alone", "gradient_exact"), examples=3)
    wrong = of(framework, handwritten(framework, needs_both=True))
    assert judged(wrong, ("gradient_exact",))["gradient_exact"].verdict == "upheld"
    assert "alone" in refuted(wrong, "each_leaf_alone", examples=3)


def sine(framework: str, sign: float) -> Callable[..., Any]:
    """sin(x @ w) whose rule of forward mode, and in PyTorch only this, has a sign."""
    if framework == "jax":
        jax = pytest.importorskip("jax")
        made = jax.custom_jvp(jax.numpy.sin)
        made.defjvp(lambda x, t: (made(x[0]), sign * t[0] * jax.numpy.cos(x[0])))
        return lambda x, w: made(x @ w)
    torch = pytest.importorskip("torch")

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return torch.sin(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * torch.cos(ctx.saved_tensors[0])

        @staticmethod
        def jvp(ctx: Any, t: Any) -> Any:
            return sign * t * torch.cos(ctx.saved_tensors[0])

    return lambda x, w: Made.apply(x @ w)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_wrong_rule_of_forward_mode_is_refuted(framework: str) -> None:
    xp = numbers(framework)
    pair = [of(framework, sine(framework, sign), lambda x, w: xp.sin(x @ w)) for sign in (1.0, -1.0)]
    upheld(pair[0], ("forward_mode",), examples=2)
    assert refuted(pair[1], "forward_mode", examples=2).startswith("in forward mode: wrong gradient of output (200%)")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_function_without_forward_mode_is_not_called_right_in_it(framework: str) -> None:
    numbers(framework)
    found = judged(of(framework, handwritten(framework)), ("forward_mode",))["forward_mode"]
    assert found.verdict == "inapplicable"
    assert found.reason.startswith("forward mode is not judged: the function offers none: ")


# Outputs that are changed, graphs that are not freed ------------------------------------------------------------------

HELD: list[Any] = []
"""What a wrong function holds for good."""


def keeping(how: str) -> Callable[..., Any]:
    """exp(x @ w), whose backward pass needs its output and keeps it in one of several ways."""
    torch = pytest.importorskip("torch")

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            y = (x @ w).exp()
            if how == "saved":
                ctx.save_for_backward(x, w, y)
            else:
                ctx.save_for_backward(x, w)
                held = {"detached": y.detach(), "a view": y.view(-1), "copied": y.clone(), "a closure": y.detach()}[how]
                ctx.read = (lambda: held) if how == "a closure" else None
                ctx.y = held
            return y

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            x, w, *saved = ctx.saved_tensors
            y = saved[0] if saved else ctx.read() if ctx.read else ctx.y
            return w @ (g * y), torch.outer(x, g * y)

    return lambda x, w: Made.apply(x, w)


@pytest.mark.parametrize(
    ("how", "right"), [("saved", True), ("copied", True), ("detached", False), ("a view", False), ("a closure", False)]
)
def test_an_output_changed_before_the_backward_pass_is_seen_wherever_it_is_kept(how: str, right: bool) -> None:
    pytest.importorskip("torch")
    pair = of("torch", keeping(how), lambda x, w: (x @ w).exp())
    if right:
        upheld(pair, ("autograd",), examples=3)
    else:
        assert refuted(pair, "autograd", examples=3).startswith("output output overwritten before the backward pass: ")


def leaking(keep: Callable[[Any, Any], None]) -> Callable[..., Any]:
    """The product, whose backward pass reads only what is saved; `keep` gets ctx and the output."""
    torch = pytest.importorskip("torch")

    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            ctx.save_for_backward(x, w)
            y = x @ w
            keep(ctx, y)
            return y

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            return w @ g, torch.outer(x, g)

    return lambda x, w: Made.apply(x, w)


@pytest.mark.parametrize(
    ("keep", "reason"),
    [
        (lambda ctx, y: None, ""),
        (lambda ctx, y: setattr(ctx, "y", y.detach()), ""),
        (lambda ctx, y: HELD.__setitem__(slice(None), [y]), ""),  # the last call alone
        (lambda ctx, y: setattr(ctx, "y", y), "a reference cycle holds it"),
        (lambda ctx, y: HELD.append(ctx), "something that outlives the call"),
    ],
    ids=["nothing", "detached", "last", "cycle", "list"],
)
def test_a_graph_whose_backward_pass_is_never_called_is_freed(keep: Any, reason: str) -> None:
    pytest.importorskip("torch")
    pair = of("torch", leaking(keep))
    if reason:
        assert f"its graph is not freed: {reason}" in refuted(pair, "autograd", examples=3)
    else:
        upheld(pair, ("autograd",), examples=3)
    HELD.clear()


# Modules --------------------------------------------------------------------------------------------------------------


def divided(late: bool = False, half: bool = False) -> Any:
    """A module that divides by a running size, which every call in training updates first; tanh of a product.

    Args:
        late: the backward pass reads the buffer as it is then.
        half: the backward pass multiplies in float16 under autocast.
    """
    torch = pytest.importorskip("torch")

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, size: Any) -> Any:
            ctx.size, ctx.on = size if late else size.clone(), torch.is_autocast_enabled("cpu")
            ctx.save_for_backward(x, w)
            return x @ w.T / ctx.size

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            x, w = ctx.saved_tensors
            d = g / ctx.size
            with torch.autocast("cpu", torch.float16 if half else torch.bfloat16, enabled=ctx.on):
                of_x, of_w = d @ w, d.T @ x
            return of_x.to(x.dtype), of_w.to(w.dtype), None

    class Plain(torch.nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(width))
            self.register_buffer("size", torch.ones(width))

        def update(self, x: Any) -> None:
            if self.training:
                with torch.no_grad():
                    self.size.mul_(0.9).add_(0.1 * x.detach().abs().mean(0))

        def forward(self, x: Any) -> Any:
            self.update(x)
            return x @ self.weight.T / self.size.clone()

    class Divided(Plain):
        def forward(self, x: Any) -> Any:
            self.update(x)
            return Function.apply(x, self.weight, self.size)

    return gradgate.module_pair(
        lambda H: Divided(H),
        lambda H: Plain(H),
        {"x": normal("T H")},
        {"T": (4, 1), "H": (3,)},
        dtypes=("float64", "float32"),
        name="divided",
    )


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({}, ""),
        ({"late": True}, "two forward passes and then both backward passes, in their order: "),
        ({"half": True}, "under autocast, with an upstream gradient of the size 1e+06: "),
    ],
    ids=["right", "late", "half"],
)
def test_two_calls_in_flight_and_scaled_upstream_gradients_are_judged(wrong: Any, reason: str) -> None:
    pytest.importorskip("torch")
    pair = divided(**wrong)
    if reason:
        assert refuted(pair, "module_protocol", examples=8).startswith(reason)
    else:
        upheld(pair, ("module_protocol",), examples=8)


# Constants ------------------------------------------------------------------------------------------------------------

FREQUENCIES = [math.exp(-math.log(10000.0) * i / 3) for i in range(3)]
"""Computed in Python's floats, as for rotary embeddings."""
EXPONENTS = [i / 8 for i in range(1, MOST + 4)]
MANY = [math.exp(-exponent) for exponent in EXPONENTS]
CONSTANTS: dict[str, tuple[bool, Any, Any]] = {
    "a decimal": (True, lambda xp, x: 0.1 * x, lambda xp, x: x / 10),
    "pi": (True, lambda xp, x: x / math.sqrt(2 * math.pi), lambda xp, x: x / xp.sqrt(one(xp, x, 2 * math.pi))),
    "sqrt(2/pi)": (True, lambda xp, x: x * math.sqrt(2 / math.pi), lambda xp, x: x * xp.sqrt(2 / one(xp, x, math.pi))),
    "a third": (True, lambda xp, x: x * (1 / 3), lambda xp, x: x / 3),
    "a product": (True, lambda xp, x: 0.01 * x, lambda xp, x: x * 0.1 * 0.1),
    "a table": (
        True,
        lambda xp, x: (x[:, None] * one(xp, x, FREQUENCIES)).sum(1),
        lambda xp, x: (x[:, None] * xp.exp(-one(xp, x, math.log(10000.0)) * one(xp, x, [0.0, 1.0, 2.0]) / 3)).sum(1),
    ),
    "more constants than are solved for": (
        True,
        lambda xp, x: x * one(xp, x, MANY).sum(),
        lambda xp, x: x * xp.exp(-one(xp, x, EXPONENTS)).sum(),
    ),
    "more constants, and a small term": (
        False,
        lambda xp, x: x * one(xp, x, MANY).sum() + 1e-10 * x * x,
        lambda xp, x: x * xp.exp(-one(xp, x, EXPONENTS)).sum(),
    ),
    "a small term": (False, lambda xp, x: x + math.exp(-80) * x, lambda xp, x: 1 * x),
    "a small term beside a constant": (False, lambda xp, x: 0.1 * x + 1e-20 * x * x, lambda xp, x: 0.1 * x),
    "a small term beside an own constant": (False, lambda xp, x: 0.1 * x + 1e-20 * x * x, lambda xp, x: x / 10),
    "a small factor of a shared constant": (
        False,
        lambda xp, x: 0.1 * x * (1 + xp.exp(one(xp, x, -46.0))),
        lambda xp, x: 0.1 * x,
    ),
    "too few digits": (False, lambda xp, x: 0.33333333333333 * x, lambda xp, x: x / 3),
}
"""Name -> whether the function is right, and the two functions."""


def one(xp: Any, x: Any, value: Any) -> Any:
    """Constants as an array of the dtype of x."""
    return xp.asarray(value, dtype=x.dtype)


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_the_rounding_of_a_constant_explains_is_forgiven_and_no_more(framework: str, name: str) -> None:
    xp = numbers(framework)
    right, function, reference = CONSTANTS[name]
    pair = of(framework, lambda x, w: function(xp, xp.tanh(x @ w)), lambda x, w: reference(xp, xp.tanh(x @ w)))
    if right:
        upheld(pair, ("gradient_exact",), examples=4)
    else:
        refuted(pair, "gradient_exact", examples=4)


SINGLES = {"log2(e) as its float32": (True, 1.4426950216), "40 of float32's units beside it": (False, 1.4427)}
"""Name -> whether a constant is right where no array is wider than float32, and the constant."""


@pytest.mark.parametrize("name", SINGLES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_where_float32_is_the_widest_dtype_a_constant_is_its_float32(framework: str, name: str) -> None:
    xp = numbers(framework)
    right, log2e = SINGLES[name]
    functions = (lambda x, w: xp.exp2(log2e * xp.tanh(x @ w)), lambda x, w: xp.exp(xp.tanh(x @ w)))
    refuted(of(framework, *functions), "gradient_exact", examples=2)
    narrow = of(framework, *functions, dtypes=("float32",))
    if right:
        upheld(narrow, ("gradient_exact",), examples=2)
    else:
        refuted(narrow, "gradient_exact", examples=2)


def test_a_number_of_few_bits_is_not_taken_as_rounded() -> None:
    assert [bound(c) for c in (0.5, 1.5, 3.0, 1e15, math.inf)] == [0.0] * 5
    assert bound(float(2**-24 * 11184811)) == 32 / 2 * 2**-24  # a float32 next to 2/3
    assert bound(math.pi) == 16 * math.ulp(math.pi)


def test_of_two_float32_beside_each_other_one_stands_for_a_number() -> None:
    log2e = 1 / math.log(2)
    assert [meanings(c, "float32").contains(log2e) for c in (1.4426950216, 1.4426949024, 1.4426951408)] == [
        True,
        False,
        False,
    ]
    assert not any(meanings(c).contains(log2e) for c in (1.4426950216, 1.44269504))
    tiny = 1.1e-300
    assert meanings(tiny, "float32").contains(math.nextafter(tiny, 0))  # its float32 is 0
    assert not meanings(tiny, "float32").contains(0)


def test_a_gradient_that_is_written_over_the_cotangent_is_the_right_one() -> None:
    torch: Any = pytest.importorskip("torch")

    class Over(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g.mul_(ctx.saved_tensors[0].cos())

    pair = of("torch", lambda x, w: Over.apply(x @ w).cos(), lambda x, w: (x @ w).sin().cos())
    upheld(pair, ("gradient_exact",), examples=2)
    last = of("torch", lambda x, w: Over.apply(x @ w), lambda x, w: (x @ w).sin())
    upheld(last, ("gradient_exact", "gradient_float64"), examples=2)
    refuted(last, "pure", examples=2)
