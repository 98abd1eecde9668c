"""Traced programs: they are reused and watched, and refusals name the reason; loops, branches and devices in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flint")

from jax import lax  # noqa: E402
from jax import numpy as jnp  # noqa: E402
from jax.sharding import Mesh, PartitionSpec  # noqa: E402

from gradgate.suites.exact import balls, on_jax  # noqa: E402
from gradgate.suites.exact.on_jax.block import Block  # noqa: E402

X = np.array([[0.5, -1.25, 2.0], [3.0, 0.75, -0.1]])


def test_one_trace_serves_all_values_of_one_shape() -> None:
    calls = []

    def function(tree: Any) -> Any:
        calls.append(1)
        return {"sum": (tree["x"] * tree["n"]).sum(), "n": tree["n"] + 1}

    program = on_jax.trace(function, {"x": X, "n": np.int64(3)})
    for factor in (2, 5):
        n, total = program.evaluate({"x": X, "n": np.int64(factor)})
        assert n == factor + 1
        assert n.dtype == np.int64
        assert float(total[()]) == pytest.approx(factor * X.sum(), rel=1e-15)
    assert calls == [1]
    assert jax.tree.unflatten(program.structure, [n, total]) == {"n": n, "sum": total}


def test_inputs_may_be_numbers_that_no_float_is() -> None:
    with balls.digits(60):
        third = balls.exact(np.array([1.0, 2.0])) / 3
    program = on_jax.trace(lambda x: 3 * x - jnp.asarray([1.0, 2.0]), third)
    assert max(float(abs(ball).upper()) for ball in program.evaluate(third)[0]) < 1e-58


def test_other_shapes_and_trees_are_refused() -> None:
    program = on_jax.trace(lambda x: x + 1, X)
    with pytest.raises(TypeError, match="shape"):
        program.evaluate(X[0])
    with pytest.raises(TypeError, match="traced with"):
        program.evaluate([X])


def test_casts_to_fewer_bits_change_nothing_and_are_reported() -> None:
    program = on_jax.trace(lambda x: (x.astype(jnp.float32) * 3).astype(jnp.float64) + lax.reduce_precision(x, 8, 7), X)
    assert program.narrowed.keys() == {"float32", "bfloat16"}
    found = program.evaluate(X)[0]
    assert all((ball - 4 * balls.exact(x)[()]).is_zero() for ball, x in zip(found.flat, X.flat, strict=True))
    with jax.enable_x64(True):
        assert on_jax.trace(lambda x: x.astype(jnp.float64) + 1, X.astype(np.float32)).narrowed == {}


def test_a_watch_sees_every_equation_with_its_line() -> None:
    seen: list[tuple[str, str, Any]] = []
    program = on_jax.trace(lambda x: lax.scan(lambda c, row: (c * row.sum(), None), x[0, 0], x)[0], X)
    found = program.evaluate(X, watch=lambda name, line, values: seen.append((name, line, values)))
    assert [name for name, _, _ in seen].count("reduce_sum") == 2
    assert all(line.startswith("test_jax_programs.py:") for _, line, _ in seen)
    assert seen[-1][2][0] is found[0]


@jax.custom_vjp
def _cube(x: Any) -> Any:
    return x * x * x


def _cube_backward(x: Any, upstream: Any) -> tuple[Any]:
    return (jnp.sin(upstream) * x,)


_cube.defvjp(lambda x: (_cube(x), x), _cube_backward)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_a_backward_pass_computes_has_its_own_line(compiled: bool) -> None:
    """JAX gives it the line of the call. A later JAX may need another way (`program._lines_of_backward_passes`)."""
    function = jax.jit(_cube) if compiled else _cube
    seen: dict[str, str] = {}
    program = on_jax.trace(jax.grad(lambda x: jnp.cos(function(x)).sum()), np.arange(3.0))
    program.evaluate(np.arange(3.0), watch=lambda name, line, _: seen.update({name: line}))
    first = _cube_backward.__code__.co_firstlineno
    assert seen["sin"] == f"{Path(__file__).name}:{first + 1}"


def test_a_watch_may_replace_what_an_equation_gives() -> None:
    program = on_jax.trace(lambda x: jnp.exp(x) + 1, np.zeros(2))
    seven = balls.exact([7.0, 7.0])
    [found] = program.evaluate(np.zeros(2), watch=lambda name, line, values: [seven] if name == "exp" else None)
    assert balls.floats(found).tolist() == [8.0, 8.0]


def test_what_no_output_needs_is_not_evaluated() -> None:
    seen = []

    def function(x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            used, unused = carry
            return (used + row.sum(), jnp.tanh(unused)), jnp.exp(row)

        return lax.scan(step, (0.0, x[0]), x)[0][0]

    on_jax.trace(function, X).evaluate(X, watch=lambda name, line, values: seen.append(name))
    assert not {"tanh", "exp"} & set(seen)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jax.pure_callback(np.sin, x, x), "pure_callback"),
        (lambda x: jnp.linalg.eigh(x @ x.T)[0], "eigh"),
        (lambda x: jnp.linalg.svd(x, compute_uv=False), "svd"),
    ],
)
def test_an_operation_without_a_rule_is_named(function: Any, name: str) -> None:
    with pytest.raises(balls.Unknown, match=rf"{name}.*test_jax_programs\.py:\d+"):
        on_jax.trace(function, X).evaluate(X)


def test_a_callback_for_its_effect_only_is_refused_and_one_for_debugging_ignored() -> None:
    def effect(x: Any) -> Any:
        jax.experimental.io_callback(lambda _: None, None, x)
        return x

    with pytest.raises(balls.Unknown, match="io_callback"):
        on_jax.trace(effect, X).evaluate(X)

    def shown(x: Any) -> Any:
        jax.debug.callback(lambda x: pytest.fail("called"), x)
        return x + 1

    assert on_jax.trace(shown, X).evaluate(X)[0].shape == X.shape


def test_a_branch_that_is_not_taken_need_not_be_known() -> None:
    program = on_jax.trace(lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda x: jax.pure_callback(np.sin, x, x), x), X)
    program.evaluate(X)
    with pytest.raises(balls.Unknown, match="pure_callback"):
        program.evaluate(-X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.where(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 >= 1, x, 0),
        lambda x: jnp.maximum(jnp.sin(x) ** 2 + jnp.cos(x) ** 2, 1),
        lambda x: jnp.sort(jnp.stack([jnp.sin(x) ** 2 + jnp.cos(x) ** 2, x * 0 + 1])),
        lambda x: jnp.floor(jnp.sin(x) ** 2 + jnp.cos(x) ** 2),
        lambda x: (jnp.sin(x) ** 2 + jnp.cos(x) ** 2).astype(int),
        lambda x: 1 / (jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1),
        lambda x: jnp.log(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1),
        lambda x: lax.pow(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1, jnp.full_like(x, 0.5)),
        lambda x: lax.digamma(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1),
        lambda x: jnp.arctan2(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1, -1),
        lambda x: 1 / lax.complex(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1, x * 0),
        lambda x: jnp.isfinite(x) * lax.lgamma(jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1),
    ],
)
def test_a_tie_is_undecided_with_its_line(function: Any) -> None:
    with pytest.raises(balls.Undecided, match=r"test_jax_programs\.py:\d+"):
        on_jax.trace(function, X).evaluate(X)


def test_an_exact_tie_is_decided_as_in_floats() -> None:
    gradient = jax.grad(lambda x: jax.nn.relu(x).sum() + x.max() + jnp.maximum(x, 0).sum())
    x = np.array([0.0, 2.0, 2.0, -1.0])
    with jax.enable_x64(True):
        wanted = np.asarray(gradient(jnp.asarray(x)))
    np.testing.assert_array_equal(balls.floats(on_jax.trace(gradient, x).evaluate(x)[0]), wanted)


def test_a_loop_runs_as_often_as_computed_numbers_say() -> None:
    def function(x: Any) -> Any:
        return lax.while_loop(lambda s: s[1] > 0.01, lambda s: (s[0] + 1, s[1] * x), (0, x))

    turns, _ = on_jax.trace(function, np.array(0.5)).evaluate(np.array(0.5))
    assert turns == 6


def test_lanes_of_a_vmapped_loop_stop_when_each_is_through() -> None:
    def turns(x: Any) -> Any:
        return lax.while_loop(lambda s: s[1] > 0.01, lambda s: (s[0] + 1, s[1] * x), (0, x))[0]

    x = np.array([0.5, 0.05, 0.001])
    found = on_jax.trace(jax.vmap(turns), x).evaluate(x)[0]
    assert np.array(found, int).tolist() == [6, 1, 0]


def test_devices_leave_a_loop_when_each_is_through() -> None:
    def body(x: Any) -> Any:
        turns = lax.while_loop(lambda s: s[1].sum() < 10, lambda s: (s[0] + 1, s[1] * 2), (0 * x, x))[0]
        return lax.cond(x.sum() > 2, lambda t: t + 100, lambda t: t, turns)

    mesh, spec = Mesh(np.array(jax.devices()[:2]), ("d",)), PartitionSpec("d")
    function = jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    found = on_jax.trace(function, np.array([1.0, 3.0])).evaluate(np.array([1.0, 3.0]))[0]
    np.testing.assert_array_equal(balls.floats(found), [4, 102])


def test_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src import compiler

    def forbidden(*_: Any, **__: Any) -> Any:
        pytest.fail("a program was compiled")

    def function(x: Any, key: Any) -> Any:
        noise = jax.random.normal(key, x.shape) * jax.random.bernoulli(jax.random.split(key)[0], 0.5, x.shape)
        return jax.value_and_grad(lambda x: (jnp.tanh(x @ x.T) ** 2).sum() + (x * noise)[jnp.array([1, 0])].sum())(x)

    key = jax.random.key(3)
    monkeypatch.setattr(compiler, "compile_or_get_cached", forbidden)
    on_jax.trace(function, X, key).evaluate(X, key)


def _walk(turns: int) -> Any:
    """A loop whose body compares, slices, calls a branch and counts."""

    def function(x: Any) -> Any:
        def body(turn: Any, total: Any) -> Any:
            column = lax.dynamic_slice(x, (0, turn % 3), (2, 1)).sum()
            return lax.cond(column > total, lambda: total + column * x[0, 0], lambda: total - jnp.tanh(column))

        return lax.fori_loop(0, turns, body, 0.0)

    return function


@pytest.mark.parametrize("often", [0, 3, 1000])
def test_a_body_that_runs_often_gives_the_same_balls_as_one_function(
    often: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = on_jax.trace(_walk(20), X)
    [expected] = program.evaluate(X, watch=lambda *_: None)  # watched, it runs step by step
    monkeypatch.setattr(Block, "OFTEN", often)
    [found] = on_jax.trace(_walk(20), X).evaluate(X)
    assert str(found[()]) == str(expected[()])


@pytest.mark.parametrize("often", [0, 1000])
def test_a_tie_in_a_late_turn_is_undecided_with_its_line(often: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Block, "OFTEN", often)
    # The comparison meets a ball around zero in the last turn alone.

    def function(x: Any) -> Any:
        def body(turn: Any, total: Any) -> Any:
            rest = jnp.where(turn == 19, jnp.sin(x[0, 0]) ** 2 + jnp.cos(x[0, 0]) ** 2 - 1, 1.0)
            return total + jnp.where(rest > 0, total, 1.0)  # this line

        return lax.fori_loop(0, 20, body, 0.0)

    with pytest.raises(balls.Undecided, match=r"gt, test_jax_programs\.py:\d+") as raised:
        on_jax.trace(function, X).evaluate(X)
    number = int(str(raised.value).rpartition(":")[2].rstrip(")"))
    assert "# this line" in Path(__file__).read_text().splitlines()[number - 1]
