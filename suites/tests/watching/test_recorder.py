"""What is recorded of a call, and the pair that is made of it: names, values within transformations, and limits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradgate.references.contract import UsageError
from gradgate.suites.watching import explaining, folders, recorder, replay, results


@pytest.fixture
def seen(tmp_path: Path) -> Callable[..., contextlib.AbstractContextManager[dict[str, Any]]]:
    """A function that gives a scope, which records; its dict then has each call by the rule's name."""

    @contextlib.contextmanager
    def recording() -> Iterator[dict[str, Any]]:
        found: dict[str, Any] = {}
        recorder.start(str(tmp_path))
        try:
            yield found
        finally:
            recorder.stop()
        calls, notes = results.read(tmp_path)
        assert not notes
        for call in calls:
            found.setdefault(call.rule.name.rpartition(".")[2].rpartition(":")[2], []).append((call, tmp_path))

    return recording


def recorded(entry: Any) -> replay.Recorded:
    call, folder = entry
    return replay.Recorded.read(str(folder / f"{call.stem}.py"))


def doubled(torch: Any, name: str, **methods: Any) -> Any:
    """A right rule for 2x, within a function, so that it has no name to import."""

    def forward(ctx: Any, x: Any, *others: Any) -> Any:
        return 2 * x

    def backward(ctx: Any, dy: Any) -> Any:
        return 2 * dy

    made = {"forward": staticmethod(forward), "backward": staticmethod(backward), **methods}
    return type(name, (torch.autograd.Function,), {"__module__": __name__, **made})


def test_a_rule_of_pytorch_is_seen_only_where_a_gradient_may_be_asked_for(seen: Any, torch: Any) -> None:
    rule = doubled(torch, "Rule")
    with seen() as found:
        rule.apply(torch.randn(3))
        with torch.no_grad():
            rule.apply(torch.randn(3, requires_grad=True))
        assert not list(results.read(Path(recorder.__file__).parent)[0])
        rule.apply(torch.randn(4, dtype=torch.bfloat16, requires_grad=True))
    [entry] = found["Rule"]
    assert entry[0].arguments == ("bfloat16[4]",)
    made = recorded(entry).pair()
    assert made.dtypes == ("bfloat16",)
    assert recorded(entry).expression() == ""


def test_calls_differ_by_shape_dtype_and_options_and_at_most_six_are_kept(
    seen: Any, torch: Any, tmp_path: Path
) -> None:
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        return 2 * x

    def backward(ctx: Any, dy: Any) -> Any:
        return 2 * dy, None

    rule = doubled(torch, "Rule", forward=staticmethod(forward), backward=staticmethod(backward))
    with seen() as found:
        for _ in range(3):
            rule.apply(torch.randn(3, requires_grad=True), 1.0)
        for n in range(20):
            rule.apply(torch.randn(2, requires_grad=True), float(n))
    assert len(found["Rule"]) == recorder.MOST_CALLS
    document = json.loads(next(tmp_path.glob("counts-*.json")).read_text())
    assert len(document["counts"]) == recorder.MOST_CALLS  # however many calls a program makes
    assert [count for _, count in document["beyond"]] == [15]
    calls, _ = results.read(tmp_path)
    assert sum(call.count + call.others for call in calls) == 23
    [first] = [call for call, _ in found["Rule"] if call.arguments == ("float32[3]", "1.0")]
    assert first.count == 3


def test_what_has_no_values_or_too_many_numbers_is_not_copied(seen: Any, torch: Any) -> None:
    small, large = doubled(torch, "Small"), doubled(torch, "Large")
    with seen() as found:
        small.apply(torch.randn(3, requires_grad=True, device="meta"))
        large.apply(torch.zeros(recorder.MOST_NUMBERS + 1, requires_grad=True))
    assert found["Small"][0][0].traced
    with pytest.raises(UsageError, match="1,048,577 numbers"):
        recorded(found["Large"][0])


def test_torch_func_gives_the_first_lane(seen: Any, torch: Any) -> None:
    class Rule(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, w: Any) -> Any:
            return x * w

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            x, w = ctx.saved_tensors
            return dy * w, dy * x

    x, w = torch.randn(4, 3, 2), torch.randn(2)
    gradient = torch.func.grad(lambda x, w: Rule.apply(x, w).sum())
    with seen() as found:
        torch.vmap(torch.vmap(gradient, (0, None)), (1, None))(x, w)
    call = recorded(found["Rule"][0])
    values = {name: call.flat[path] for name, path in call.names.items()}
    assert np.array_equal(values["x"].values, x[0, 0].numpy())
    assert (values["x"].differentiated, values["w"].differentiated) == (True, False)


def test_jax_gives_values_where_there_are_any(seen: Any, jax: Any) -> None:
    import jax.numpy as jnp

    def rule(name: str) -> Any:
        def forward(x: Any, key: Any) -> Any:
            return 2 * x

        forward.__name__ = forward.__qualname__ = name
        made = jax.custom_vjp(forward)
        made.defvjp(lambda x, key: (2 * x, None), lambda _, g: (2 * g, None))
        return made

    eager, mapped, traced = map(rule, ("eager", "mapped", "traced"))
    x, key = jnp.arange(6.0).reshape(2, 3), jax.random.key(0)
    with seen() as found:
        jax.grad(lambda x: eager(x, key).sum())(x)
        jax.vmap(jax.grad(lambda x: mapped(x, 1).sum()), 1)(x)
        jax.jit(lambda x: traced(x, 1))(x)
        eager(jnp.arange(3), key)
    call = recorded(found["eager"][0])
    assert list(call.names) == ["x"]
    assert np.array_equal(call.flat[call.names["x"]].values, x)
    call = recorded(found["mapped"][0])
    assert np.array_equal(call.flat[call.names["x"]].values, x[:, 0])
    assert found["traced"][0][0].traced
    assert {name: len(entries) for name, entries in found.items()} == {"eager": 1, "mapped": 1, "traced": 1}


def test_a_number_that_jax_gave_a_dtype_is_the_number_of_the_program(seen: Any, jax: Any) -> None:
    @jax.custom_vjp
    def scaled(x: Any, factor: float) -> Any:
        return factor * x

    scaled.defvjp(lambda x, factor: (scaled(x, factor), factor), lambda factor, g: (factor * g, None))
    with seen() as found:  # the rule's first function calls the rule again, with a number that JAX gave it
        jax.grad(lambda x: scaled(x, 2.0).sum())(jax.numpy.ones(3))
    assert [call.arguments for call, _ in found["scaled"]] == [("float32[3]", "2.0")]


def test_a_call_without_values_gets_numbers_like_those_of_another_call(seen: Any, jax: Any) -> None:
    import jax.numpy as jnp

    @jax.custom_vjp
    def rooted(x: Any, labels: Any) -> Any:
        return jnp.log(-x - 2)[labels]

    rooted.defvjp(lambda x, labels: (rooted(x, labels), x), lambda x, g: (g / (x + 2), None))
    labels = jnp.array([1, 0, 1])
    with seen() as found:
        rooted(jnp.array([-3.5, -4.25]), labels)
        jax.jit(rooted)(jnp.array([-3.0, -4.0, -5.0]), labels[:2])
    (known, folder), (traced, _) = sorted(found["rooted"], key=lambda entry: entry[0].traced)
    assert traced.traced
    target = folders.settled(folder, traced.stem, "", known.stem)
    for place in (str(folder / f"{traced.stem}.py"), str(target)):
        made = replay.Recorded.read(place).pair()
        for regime in ("", replay.BETWEEN):
            drawn = made.drawn(made.spec(regime=regime))
            assert drawn["x"].shape == (3,)
            assert (drawn["x"] < -2).all()
        assert made.inputs["labels"].values.tolist() == [1, 0]
    alone = replay.Recorded.read(str(folders.settled(folder, traced.stem, ""))).pair()
    assert alone.elsewhere == {}
    assert (alone.drawn(alone.spec(regime=replay.BETWEEN))["x"] > 0).all()


def test_a_wrapper_of_equinox_is_named_after_what_it_wraps(seen: Any, jax: Any) -> None:
    equinox = pytest.importorskip("equinox")

    @equinox.filter_custom_vjp
    def sine(x: Any) -> Any:
        return jax.numpy.sin(x)

    @sine.def_fwd
    def fwd(perturbed: Any, x: Any) -> Any:
        return sine(x), None

    def bwd(residuals: Any, g: Any, perturbed: Any, x: Any) -> Any:
        return g * jax.numpy.cos(x)

    sine.def_bwd(bwd)
    with seen() as found:
        jax.grad(lambda x: sine(x).sum())(jax.numpy.ones(3))
    rule = found["sine"][0][0].rule
    assert rule.file == __file__
    assert rule.line == bwd.__code__.co_firstlineno


def test_an_equation_is_judged_where_its_values_are_known(seen: Any, jax: Any) -> None:
    jnp, matrix = jax.numpy, 3 * jax.numpy.eye(3)

    def solved(name: str, a: Any, b: Any, transposed: bool = True) -> Any:
        def solve(matvec: Any, b: Any) -> Any:
            return jnp.linalg.solve(a, b)

        solve.__name__ = solve.__qualname__ = name
        return jax.lax.custom_linear_solve(lambda x: a @ x, b, solve, solve if transposed else None).sum()

    with seen() as found:
        jax.grad(lambda a: solved("eager", a, jnp.ones(3)))(matrix)
        jax.jit(lambda a: solved("traced", a, jnp.ones(3)))(matrix)
        solved("forward", matrix, jnp.ones(3), transposed=False)
        jax.scipy.sparse.linalg.cg(matrix, jnp.ones(3))  # a solver of JAX, which is no rule
    call = recorded(found["eager"][0])
    assert {name: tuple(call.flat[path].shape) for name, path in call.names.items()} == {
        "b": (3,),
        "captured[0]": (3, 3),
    }
    assert [call.flat[path].differentiated for path in call.names.values()] == [False, True]
    with pytest.raises(UsageError, match="not known under jit"):
        recorded(found["traced"][0])
    with pytest.raises(UsageError, match="no transpose_solve"):
        recorded(found["forward"][0])
    assert found.keys() == {"eager", "traced", "forward"}


def test_what_holds_a_recorder_moves_without_it(seen: Any, torch: Any) -> None:
    module = torch.nn.Linear(2, 2)

    def twice(module: Any, grad_input: Any, grad_output: Any) -> Any:
        return tuple(2 * g for g in grad_input)

    with seen() as found:
        module.register_full_backward_hook(twice)
        module(torch.ones(1, 2, requires_grad=True)).sum().backward()
    call = recorded(found["twice"][0])
    assert list(call.names) == ["gradients[0]", "others[0]"]
    [held] = call.rule.module._backward_hooks.values()
    assert [part.cell_contents for part in held.__closure__ if isinstance(part.cell_contents, recorder.Deaf)]


def test_drawn_numbers_are_like_those_that_were_seen() -> None:
    rng = np.random.default_rng(0)
    like = replay.like
    assert (like(np.array([0.1, 0.9, 0.5]), rng) <= 0.9).all()
    assert (like(np.array([3.0, 20.0, 7.0]), rng) > 0).all()
    assert (like(np.array([-3.0, -20.0, -7.0]), rng) < 0).all()
    assert set(like(np.array([1.0, 4.0, 4.0]), rng)) <= {1.0, 4.0}
    assert (like(np.full(50, 2.5), rng) > 0).all()
    assert np.ptp(like(np.zeros(50), rng)) > 1
    sparse = like(np.where(np.arange(400) % 4, 0.0, rng.standard_normal(400)), rng)
    assert 0.6 < (sparse == 0).mean() < 0.9
    assert np.isfinite(like(np.array([np.nan, 1.0, -2.0]), rng)).all()


def wave_in_torch(stores: bool) -> None:
    """Call sin(exp(x)), whose rule stores exp(x) or computes it again."""
    import torch

    class wave(torch.autograd.Function):  # noqa: N801
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x.exp()
            ctx.save_for_backward(y if stores else x)
            return y.sin()

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (z,) = ctx.saved_tensors
            y = z if stores else z.exp()
            return dy * y.cos() * y

    wave.apply(torch.ones(3, requires_grad=True))


def wave_in_jax(stores: bool) -> None:
    """The same in JAX."""
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def wave(x: Any) -> Any:
        return jnp.sin(jnp.exp(x))

    def back(z: Any, g: Any) -> Any:
        y = z if stores else jnp.exp(z)
        return (g * jnp.cos(y) * y,)

    wave.defvjp(lambda x: (wave(x), jnp.exp(x) if stores else x), back)
    jax.grad(lambda x: wave(x).sum())(jnp.ones(3))


@pytest.mark.parametrize("stores", [False, True])
def test_bytes_are_counted_with_the_rule_and_without_it(seen: Any, framework: str, stores: bool) -> None:
    with seen() as found:
        {"torch": wave_in_torch, "jax": wave_in_jax}[framework](stores)
    pair = recorded(found["wave"][0]).pair()
    pair.lowered  # registers the class of its problems  # noqa: B018
    counted = explaining.kept_bytes(pair, pair.spec())
    assert counted == {"rule": 24 * stores, "plain": {"torch": 24, "jax": 48}[framework]}
