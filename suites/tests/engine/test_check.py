"""`gradgate.check`: two functions at given arguments. Every test runs in both frameworks."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradgate
from gradgate.suites.calibration.check_calls import CALLS, Calls, alarm, draw, missed
from gradgate.suites.tests.pairs.situations import Situation, Unknown, situations


@pytest.fixture
def calls(framework: str) -> Calls:
    """The adapter of a framework."""
    pytest.importorskip(framework)
    return CALLS[framework]()


def named(framework: str) -> list[str]:
    """The names of the situations; none if the framework is not installed."""
    try:
        return [one.name for one in situations(CALLS[framework]())]
    except ImportError:
        return []


TABLE = [(framework, name) for framework in CALLS for name in named(framework)]


def situation(framework: str, name: str) -> tuple[Calls, Situation]:
    calls = CALLS[framework]()
    return calls, next(one for one in situations(calls) if one.name == name)


def checked(calls: Calls, one: Situation, factor: float = 1.0, place: int = 0) -> None:
    function = calls.planted(one.plain, factor, place)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gradgate.FloatsOnly)
        gradgate.check(function, one.plain, one.args(calls), one.options(calls))


def test_the_table_has_twenty_situations_in_each_framework() -> None:
    for framework in CALLS:
        assert len(named(framework)) >= 20 or not named(framework)


@pytest.mark.parametrize(("framework", "name"), TABLE)
def test_a_right_function_passes(framework: str, name: str) -> None:
    checked(*situation(framework, name))


@pytest.mark.parametrize(("framework", "name"), TABLE)
def test_an_error_planted_in_any_leaf_is_seen_and_the_leaf_is_named(framework: str, name: str) -> None:
    calls, one = situation(framework, name)
    for place, leaf in enumerate(one.leaves):
        if leaf:  # a leaf without numbers cannot be wrong
            with pytest.raises(AssertionError, match=rf"^wrong gradient of {re.escape(leaf)} .*"):
                checked(calls, one, 1.001, place)


def cross_entropy(calls: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A plain cross entropy, and a maker of one by hand: of how the upstream gradient is used."""
    xp = calls.xp

    def plain(x: Any, w: Any, labels: Any) -> Any:
        z = x @ w.T
        return (xp.log(xp.exp(z).sum(-1)) - z[xp.arange(len(labels)), labels]).mean()

    def backward(x: Any, w: Any, labels: Any, upstream: Any) -> tuple[Any, Any]:
        z = xp.exp(x @ w.T)
        one = xp.arange(w.shape[0])[None, :] == labels[:, None]
        d = (z / z.sum(-1)[:, None] - xp.where(one, 1.0 + 0 * z, 0 * z)) * upstream / len(labels)
        return d @ w, d.T @ x

    def by_hand(kind: str) -> Callable[..., Any]:
        def pulled(x: Any, w: Any, labels: Any, upstream: Any) -> tuple[Any, Any]:
            dx, dw = backward(x, w, labels, upstream / upstream if kind == "dropped" else upstream)
            if kind == "exchanged":
                return dw, dx
            if kind == "transposed":
                return dx, dw.T + 0
            if kind == "not returned":
                return calls.xp.stack((dx + dx, dx + 0.0))[0], dw
            return (dx, 0 * dw if calls.name == "jax" else None) if kind == "missing" else (dx, dw)

        if calls.name == "jax":
            made = calls.jax.custom_vjp(plain)
            made.defvjp(lambda *args: (plain(*args), args), lambda args, g: (*pulled(*args, g), None))
            return made  # type: ignore[no-any-return]

        class Fused(calls.torch.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                ctx.save_for_backward(*args)
                return plain(*args)

            @staticmethod
            def backward(ctx: Any, *upstream: Any) -> Any:
                return (*pulled(*ctx.saved_tensors, upstream[0]), None)

        return lambda *args: Fused.apply(*args)

    return plain, by_hand


def arguments(calls: Calls, dtype: str = "float32") -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    x, w = (calls.array(rng.normal(size=(n, 5)), dtype) for n in (4, 7))
    return x, w, calls.array([0, 3, 6, 3], "int32" if calls.name == "jax" else "int64")


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_a_right_backward_pass_passes_in_every_dtype(calls: Calls, dtype: str) -> None:
    plain, by_hand = cross_entropy(calls)
    gradgate.check(by_hand("right"), plain, arguments(calls, dtype))


def test_a_dropped_upstream_gradient_is_told_with_leaf_error_and_seed(calls: Calls) -> None:
    plain, by_hand = cross_entropy(calls)
    with pytest.raises(AssertionError, match=r"^wrong gradient of w .*\n(.*\n)*repeat: .*seed=5"):
        gradgate.check(by_hand("dropped"), plain, arguments(calls), seed=5)


def test_a_gradient_that_is_missing_is_refuted(calls: Calls) -> None:
    plain, by_hand = cross_entropy(calls)
    said = "^w has no gradient" if calls.name == "torch" else r"gradient of w \(100%\)"
    with pytest.raises(AssertionError, match=said):
        gradgate.check(by_hand("missing"), plain, arguments(calls))


def test_gradients_in_each_others_place_are_named(calls: Calls) -> None:
    plain, by_hand = cross_entropy(calls)
    x, _, labels = arguments(calls)
    given = (x, 0.5 + x, labels % 4)
    gradgate.check(by_hand("right"), plain, given)
    with pytest.raises(AssertionError, match=r"\n(x has the gradient of w|w has the gradient of x)\n"):
        gradgate.check(by_hand("exchanged"), plain, given)


def test_a_gradient_that_is_transposed_is_said_to_be(calls: Calls) -> None:
    plain, by_hand = cross_entropy(calls)
    x, w, labels = arguments(calls)
    given = (x, w[:5], labels % 5)
    gradgate.check(by_hand("right"), plain, given)
    with pytest.raises(AssertionError, match=r"^wrong gradient of w .*\nw\[.*\nw has its gradient transposed\n"):
        gradgate.check(by_hand("transposed"), plain, given)


def test_a_right_gradient_that_is_not_what_is_returned_is_told_with_its_line(calls: Calls) -> None:
    plain, by_hand = cross_entropy(calls)
    with pytest.raises(AssertionError, match=r"\nthe right gradient of x is made at test_check.py:\d+, \w+, and is"):
        gradgate.check(by_hand("not returned"), plain, arguments(calls))


def test_another_function_is_told_from_a_wrong_gradient(calls: Calls) -> None:
    plain, by_hand = cross_entropy(calls)
    right = by_hand("right")
    with pytest.raises(AssertionError, match=r"^another function") as raised:
        gradgate.check(lambda *args: 2 * right(*args), plain, arguments(calls))
    assert re.match(r"output(\[\d+\])? is \S+, not \S+$", str(raised.value).splitlines()[1]), raised.value


def test_another_formula_is_shown_at_the_line_where_the_two_part(calls: Calls) -> None:
    x = arguments(calls)[0]
    with pytest.raises(AssertionError) as raised:
        gradgate.check(lambda x: (x * x + 0.001 * x).sum(), lambda x: (x * x + 0.002 * x).sum(), (x,))
    assert any(line.startswith("the programs part at test_check.py:") for line in str(raised.value).splitlines()[:4])


def test_a_constant_rounded_to_float64_is_forgiven_and_a_larger_difference_is_not(calls: Calls) -> None:
    x = calls.array(np.random.default_rng(0).normal(size=(4, 3)), "float64")

    def scaled(scale: Any) -> Callable[..., Any]:
        return lambda x: calls.xp.tanh(x @ x.T * scale)

    def rooted(x: Any) -> Any:
        return calls.xp.tanh(x @ x.T / calls.xp.sqrt(0 * x[0, 0] + 3))

    gradgate.check(scaled(3**-0.5), rooted, (x,))
    with pytest.raises(AssertionError, match="another function"):
        gradgate.check(scaled(3**-0.5 * (1 + 1e-12)), rooted, (x,))


def test_the_reference_gets_only_the_options_that_it_takes(calls: Calls) -> None:
    def function(x: Any, *, power: int, chunk: int) -> Any:
        assert chunk == 4
        return x**power

    def plain(x: Any, *, power: int) -> Any:
        return x**power

    args = (calls.array([1.0, 2.0, 3.0]),)
    gradgate.check(function, plain, args, {"power": 3, "chunk": 4})
    with pytest.raises(AssertionError, match="another function"):
        gradgate.check(lambda x, power: x ** (power + 1), plain, args, {"power": 3})


def test_a_function_that_changes_data_in_place_leaves_the_users_data_alone(calls: Calls) -> None:
    def function(x: Any, steps: Any) -> Any:
        steps += 1
        return x * int(steps[0])

    steps = np.array([1])
    gradgate.check(function, lambda x, steps: x * 2, (calls.array([1.0, 2.0]), steps))
    assert steps[0] == 1
    with pytest.raises(AssertionError, match="another function"):
        gradgate.check(function, lambda x, steps: x * 3, (calls.array([1.0, 2.0]), steps))


REFUSED: list[tuple[str, Callable[[Calls], Any], str]] = [
    ("no floats", lambda c: (c.array([1, 2], "int32"),), "no argument has a floating array"),
    ("no arrays", lambda c: (1.0,), "arrays of neither JAX nor PyTorch; give arrays of JAX, or tensors of PyTorch"),
    ("complex", lambda c: (c.array([1.0], "complex64"),), "x is of complex64; complex numbers are not supported"),
    ("no tuple", lambda c: c.array([1.0]), "args is a tuple of the functions"),
    ("a dataclass", lambda c: (Unknown(c.array([1.0])), c.array([1.0])), "Unknown, .*: register the class as a pytree"),
    (
        "a dataclass within data",
        lambda c: ([{1: (Unknown(c.array([1.0])),)}], c.array([1.0])),
        r"\[0\]\[1\]\[0\] is a Unknown",
    ),
]


@pytest.mark.parametrize(("args", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_arguments_that_cannot_be_judged_are_refused_in_words(calls: Calls, args: Any, said: str) -> None:
    with pytest.raises(gradgate.UsageError, match=said):
        gradgate.check(lambda x, *rest: x, lambda x, *rest: 1 * x, args(calls))


def test_outputs_that_cannot_be_judged_are_refused_in_words(calls: Calls) -> None:
    args = (calls.array([1.0, 2.0]),)
    with pytest.raises(gradgate.UsageError, match=r"\[1\] of the reference is complex; complex numbers are not"):
        gradgate.check(lambda x: (x, x), lambda x: (1 * x, calls.xp.fft.fft(x)), args)
    with pytest.raises(gradgate.UsageError, match=r"output of the reference is a Unknown, .*: register the class"):
        gradgate.check(lambda x: Unknown(x), lambda x: Unknown(1 * x), args)


def test_an_error_of_the_reference_is_told_as_wrong_usage_and_one_of_the_function_is_not(calls: Calls) -> None:
    args = (calls.array(np.ones((2, 3))),)
    with pytest.raises(gradgate.UsageError, match="at these arguments, the reference raised"):
        gradgate.check(lambda x: x, lambda x: x @ x, args)
    with pytest.raises(AssertionError, match=r"raised .*test_check.py"):
        gradgate.check(lambda x: x @ x, lambda x: 1 * x, args)


def test_where_nothing_can_be_said_about_the_gradient_the_check_fails_and_says_why(calls: Calls) -> None:
    nan = calls.array([1.0, float("nan")])
    said = r"nothing could be said about the gradient here\ngradient_exact: no problem could be judged"
    with pytest.raises(AssertionError, match=said):
        gradgate.check(lambda x: x * x, lambda x: x**2, (nan,))


def test_a_function_beside_itself_is_refused(calls: Calls) -> None:
    plain, _ = cross_entropy(calls)
    with pytest.raises(gradgate.UsageError, match="the same object"):
        gradgate.check(plain, plain, arguments(calls))


def modules(calls: Any) -> tuple[Any, Any, Any]:
    """Classes of the framework's own modules: of weight and factor, and one with another name; and what wraps data."""
    if calls.name == "torch":
        torch = calls.torch

        class Plain(torch.nn.Module):  # type: ignore[name-defined,misc]
            def __init__(self, weight: Any, factor: float = 1.0) -> None:
                super().__init__()
                self.weight, self.factor = torch.nn.Parameter(weight), factor

            def forward(self, x: Any) -> Any:
                return x * (self.weight if self.factor == 1 else calls.scaled(self.factor)(self.weight)) ** 2

            def loss(self, x: Any) -> Any:
                return self(x).sum()

        class Other(torch.nn.Module):  # type: ignore[name-defined,misc]
            def __init__(self, weight: Any) -> None:
                super().__init__()
                self.gain = torch.nn.Parameter(weight)

            def forward(self, x: Any) -> Any:
                return x * self.gain**2

        return Plain, Other, lambda module: module.weight.detach()
    nnx = pytest.importorskip("flax.nnx")

    class PlainJax(nnx.Module):  # type: ignore[misc]
        def __init__(self, weight: Any, factor: float = 1.0) -> None:
            self.weight, self.factor = nnx.Param(weight), factor

        def __call__(self, x: Any) -> Any:
            return x * calls.scaled(self.factor)(self.weight[...]) ** 2

        def loss(self, x: Any) -> Any:
            return self(x).sum()

    class OtherJax(nnx.Module):  # type: ignore[misc]
        def __init__(self, weight: Any) -> None:
            self.gain = nnx.Param(weight)

        def __call__(self, x: Any) -> Any:
            return x * self.gain[...] ** 2

    return PlainJax, OtherJax, lambda module: module.weight[...]


def equinox_modules(calls: Any) -> tuple[Any, Any, Any]:
    """The same in equinox."""
    eqx = pytest.importorskip("equinox")

    class Plain(eqx.Module):  # type: ignore[misc]
        weight: Any
        factor: float = eqx.field(static=True, default=1.0)

        def __call__(self, x: Any) -> Any:
            return x * (self.weight if self.factor == 1 else calls.scaled(self.factor)(self.weight)) ** 2

        def loss(self, x: Any) -> Any:
            return self(x).sum()

    class Other(eqx.Module):  # type: ignore[misc]
        gain: Any

        def __call__(self, x: Any) -> Any:
            return x * self.gain**2

    return Plain, Other, lambda module: module.weight


MODULES = [("torch", modules), ("jax", modules), ("jax", equinox_modules)]


@pytest.fixture(params=MODULES, ids=["torch", "nnx", "equinox"])
def kinds(request: Any) -> Any:
    """(adapter, weight, x, the module's class, another class, what takes the array out of a module)."""
    framework, make = request.param
    pytest.importorskip(framework)
    calls = CALLS[framework]()
    return calls, calls.array([1.0, 2.0, 3.0]), calls.array([[0.5, 1.5, 1.0]]), *make(calls)


def test_two_modules_are_judged_with_their_parameters(kinds: Any) -> None:
    _, weight, x, plain, _, _ = kinds
    gradgate.check(plain(weight), plain(weight), (x,))
    with pytest.raises(AssertionError, match=r"^wrong gradient of module.weight \(100%\)"):
        gradgate.check(plain(weight, 2.0), plain(weight), (x,))


def test_methods_and_partials_of_modules_are_judged_with_their_parameters(kinds: Any) -> None:
    _, weight, x, plain, _, _ = kinds
    for called in (lambda module: module.loss, lambda module: functools.partial(module.loss)):
        gradgate.check(called(plain(weight)), called(plain(weight)), (x,))
        with pytest.raises(AssertionError, match=r"^wrong gradient of module.weight \(100%\)"):
            gradgate.check(called(plain(weight, 2.0)), called(plain(weight)), (x,))


def test_modules_with_other_names_or_numbers_are_refused_with_the_way_out(kinds: Any) -> None:
    _, weight, x, plain, other, _ = kinds
    with pytest.raises(gradgate.UsageError, match=r"function has gain; the reference has weight.*gradgate.module_pair"):
        gradgate.check(other(weight), plain(weight), (x,))
    with pytest.raises(gradgate.UsageError, match=r"weight has other numbers .* gradgate.module_pair"):
        gradgate.check(plain(2 * weight), plain(weight), (x,))
    with pytest.raises(gradgate.UsageError, match=r"function has weight; the reference has none.*gradgate.module_pair"):
        gradgate.check(plain(weight), lambda x: 1 * x, (x,))


GLOBAL: list[Any] = [None]


def test_a_captured_module_is_refused_and_what_is_captured_as_data_is_not(kinds: Any) -> None:
    _, weight, x, plain, _, array = kinds
    module, other = plain(weight, 2.0), plain(weight)
    GLOBAL[0] = module
    said = r"the function uses .*weight|module|self.* gradgate.module_pair"
    for function in (
        lambda x: module(x),
        lambda x, held=module: held(x),
        functools.partial(lambda held, x: held(x), module),
    ):
        with pytest.raises(gradgate.UsageError, match=said):
            gradgate.check(function, lambda x: x, (x,))
    one, two = array(module), array(other)
    gradgate.check(lambda x: x * one**2, lambda x: two * x * two, (x,))
    with pytest.raises(AssertionError, match=r"^wrong gradient"):
        gradgate.check(lambda x: kinds[0].scaled(2.0)(x) * one, lambda x: x * two, (x,))


def test_a_module_as_an_argument_is_judged_or_refused(kinds: Any) -> None:
    calls, weight, x, plain, _, _ = kinds
    if calls.name == "jax":
        gradgate.check(lambda m, x: 1 * m(x), lambda m, x: m(x), (plain(weight), x))
        with pytest.raises(AssertionError, match=r"^wrong gradient of m.weight"):
            gradgate.check(lambda m, x: m(x), lambda m, x: x * m.weight**2, (plain(weight, 2.0), x))
    else:
        with pytest.raises(gradgate.UsageError, match=r"uses m.weight, which requires .*gradgate.module_pair"):
            gradgate.check(lambda m, x: 1 * m(x), lambda m, x: m(x), (plain(weight), x))


@pytest.mark.parametrize(
    "captured",
    [
        lambda f, w: lambda x: f(x, w),
        lambda f, w: lambda x, held=w: f(x, held),
        lambda f, w: functools.partial(lambda held, x: f(x, held), w),
        lambda f, w: functools.partial(lambda x, held: f(x, held), held=[w]),
        lambda f, w: lambda x: (lambda: f(x, w))(),
    ],
    ids=["closure", "default", "partial", "tree", "nested"],
)
def test_a_captured_tensor_that_requires_a_gradient_is_refused_and_its_array_as_data_is_not(captured: Any) -> None:
    """JAX has no arrays that require a gradient; there `test_a_captured_module_is_refused` is the test of this."""
    torch = pytest.importorskip("torch")
    w, x = torch.ones(3, requires_grad=True), torch.ones(2, 3)

    def function(x: Any, w: Any) -> Any:
        return x * (w[0] if isinstance(w, list) else w)

    with pytest.raises(gradgate.UsageError, match=r"the function uses \w+.*, which requires .* gradgate.module_pair"):
        gradgate.check(captured(function, w), lambda x: 1 * x, (x,))
    gradgate.check(captured(function, w.detach()), lambda x: 1 * x, (x,))
    with pytest.raises(gradgate.UsageError, match=r"the reference uses w, which requires"):
        gradgate.check(lambda x: 1 * x, lambda x: x * w, (x,))
    with pytest.raises(gradgate.UsageError, match=r"the function uses option w, which requires"):
        gradgate.check(lambda x, w: x * w, lambda x: 1 * x, (x,), {"w": w})


def test_a_modules_mode_parameters_and_buffers_are_as_before_the_check() -> None:
    """In PyTorch; modules of JAX are taken apart and never changed."""
    torch = pytest.importorskip("torch")
    one, other = (torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)) for _ in range(2))
    one[1].eval()
    other[1].eval()
    held = {name: (id(leaf), leaf.clone()) for name, leaf in one.state_dict(keep_vars=True).items()}
    gradgate.check(one, other, (torch.randn(4, 3),))
    assert one[0].training
    assert not one[1].training
    after = one.state_dict(keep_vars=True)
    assert {name: id(leaf) for name, leaf in after.items()} == {name: kept for name, (kept, _) in held.items()}
    assert all(torch.equal(leaf, held[name][1]) for name, leaf in after.items())
    other[1].train()
    with pytest.raises(AssertionError, match="another function"):
        gradgate.check(one, other, (torch.randn(4, 3),))


def tanh_slope(error: float, narrow: bool = False) -> tuple[Any, Any]:
    """tanh in NumPy, and its derivative times 1 + error; rounded to float32 on the way if `narrow`."""

    def cast(a: Any) -> Any:
        return a.astype(np.float32) if narrow else a

    return lambda a: np.tanh(cast(a)), lambda a: (1 - np.tanh(cast(a)) ** 2) * (1 + error)


@pytest.mark.parametrize("narrow", [False, True])
def test_a_function_that_leaves_the_framework_is_told_and_its_floats_are_judged_together(
    calls: Calls, narrow: bool
) -> None:
    x = calls.array(np.linspace(-1, 1, 5))
    said = r"sixty digits were impossible.*float32 were judged.*test_check|check_calls.*32 problems informative"
    with pytest.warns(gradgate.FloatsOnly, match=said):
        gradgate.check(calls.outside(*tanh_slope(0.0, narrow)), calls.xp.tanh, (x,))
    with pytest.raises(AssertionError, match=r"in bounds on each problem, but its error .*\n(.*\n)*repeat: .*seed=4"):
        gradgate.check(calls.outside(*tanh_slope(1e-6, narrow)), calls.xp.tanh, (x,), seed=4)


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-14), ("float32", 1e-6), ("bfloat16", 0.2)])
def test_outside_of_the_framework_an_error_near_the_dtypes_rounding_is_seen(
    calls: Calls, dtype: str, error: float
) -> None:
    x = calls.array(np.linspace(-1, 1, 5), dtype)

    def slope(a: Any) -> Any:
        return (1 - np.tanh(np.asarray(a, np.float64)) ** 2) * (1 + error)

    def wide(function: Any, x: Any) -> Any:  # NumPy has no bfloat16
        if dtype != "bfloat16":
            return function(x)
        return (
            calls.xp.asarray(function(x.astype("float32"))).astype(x.dtype)
            if calls.name == "jax"
            else (function(x.float()).bfloat16())
        )

    with pytest.raises(AssertionError, match=r"(in bounds on each problem|wrong gradient of)"):
        gradgate.check(lambda x: wide(calls.outside(np.tanh, slope), x), calls.xp.tanh, (x,))


def test_a_number_that_is_read_out_of_an_array_is_told(calls: Calls) -> None:
    def stopped(x: Any) -> Any:
        return calls.jax.lax.stop_gradient(x) if calls.name == "jax" else x.detach()  # type: ignore[attr-defined]

    def total(x: Any) -> Any:
        return calls.xp.exp(x).sum()

    x = calls.array([0.3, 1.7, 0.9])
    with pytest.warns(gradgate.FloatsOnly, match="sixty digits were impossible"):
        gradgate.check(
            lambda x: x * float(stopped(calls.xp.exp(x).sum())), lambda x: x * stopped(calls.xp.exp(x).sum()), (x,)
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradgate.check(lambda x: x * stopped(x), lambda x: stopped(x) * x, (x,))
    with pytest.raises(AssertionError, match=r"^wrong gradient"):
        gradgate.check(lambda x: x * stopped(x), lambda x: x * x, (x,))


def test_compiled_functions_are_judged(calls: Any) -> None:
    def compiled(function: Any) -> Any:
        return calls.jax.jit(function) if calls.name == "jax" else calls.torch.compile(function, backend="aot_eager")

    x = calls.array([0.3, 1.7, 0.9])
    gradgate.check(compiled(lambda z, a: z * a**2), lambda z, a: z * a * a, (x, x))
    with pytest.raises(AssertionError, match=r"^another function"):
        gradgate.check(compiled(lambda z, a: z * a**2 * 1.001), lambda z, a: z * a * a, (x, x))


SEEDS = range(6)
"""A sample of `gradgate.suites.calibration.check_calls`, whose command judges many more."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_right_call_raises_no_alarm(calls: Calls, seed: int) -> None:
    assert not alarm(calls, seed), draw(calls, seed).description


@pytest.mark.parametrize("seed", SEEDS)
def test_an_error_planted_in_a_random_call_is_seen(calls: Calls, seed: int) -> None:
    assert not missed(calls, seed, 0.5), draw(calls, seed).description
