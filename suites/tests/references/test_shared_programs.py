"""Compiled programs that functions share: one for one program, another for anything that differs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gradgate
from gradgate.references import backends

X, Y = np.arange(3.0, dtype=np.float32), np.ones(3, np.float32)


@pytest.fixture
def compiled() -> Iterator[Any]:
    """The programs that are kept; none at the start."""
    backends.forget_programs()
    yield backends._PROGRAMS
    backends.forget_programs()


def test_two_functions_with_one_program_share_it_and_keep_their_trees(compiled: Any) -> None:
    first = backends.shared(lambda tree: {"a": tree["x"] * 2, "b": [tree["y"]]})
    again = backends.shared(lambda pair: (pair[0] * 2, pair[1]))
    np.testing.assert_array_equal(first({"x": X, "y": Y})["a"], 2 * X)
    np.testing.assert_array_equal(first({"x": X, "y": Y})["b"][0], Y)
    number = len(compiled)
    other = backends.shared(lambda tree: {"a": tree["x"] * 2, "b": [tree["y"]]})
    assert other({"x": X, "y": Y}).keys() == {"a", "b"}
    assert len(compiled) == number
    np.testing.assert_array_equal(again((X, Y))[0], 2 * X)


@pytest.mark.parametrize("size", [3, 100_000])
def test_captured_numbers_tell_programs_apart(compiled: Any, size: int) -> None:
    x = np.zeros(size, np.float32)
    for number in range(3):
        captured = jnp.arange(size, dtype=jnp.float32).at[size // 2].add(number)
        found = backends.shared(lambda x, captured=captured: x + captured)(x)
        np.testing.assert_array_equal(found, captured)
    assert len(compiled) == 3


def test_a_number_that_changes_between_two_functions_is_read_again(compiled: Any) -> None:
    scale = {"value": 1.0}
    for value in (1.0, 2.0):
        scale["value"] = value
        np.testing.assert_array_equal(backends.shared(lambda x: x * scale["value"])(X), value * X)


def test_which_argument_is_used_tells_programs_apart(compiled: Any) -> None:
    np.testing.assert_array_equal(backends.shared(lambda x, y: x + 1)(X, Y), X + 1)
    np.testing.assert_array_equal(backends.shared(lambda x, y: y + 1)(X, Y), Y + 1)
    np.testing.assert_array_equal(backends.shared(lambda x, y: y)(X, Y), Y)
    np.testing.assert_array_equal(backends.shared(lambda x, y: x)(X, Y), X)


def test_dtypes_and_64_bits_tell_programs_apart(compiled: Any) -> None:
    run = backends.shared(lambda x: x * (1 + 2.0**-30))
    assert run(X).dtype == np.float32
    with jax.enable_x64(True):
        assert run(X).dtype == np.float32
        wide = run(X.astype(np.float64))
        assert wide.dtype == np.float64
        np.testing.assert_array_equal(wide, X.astype(np.float64) * (1 + 2.0**-30))


def test_a_program_that_calls_back_is_not_shared(compiled: Any) -> None:
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    for number in (1, 2):

        def back(x: Any, number: int = number) -> Any:
            return np.asarray(x) + number

        run = backends.shared(lambda x, back=back: jax.pure_callback(back, shape, x))
        np.testing.assert_array_equal(run(X), X + number)
    assert not compiled


def test_an_array_that_is_committed_to_a_device_stays_there(compiled: Any) -> None:
    device = jax.devices()[-1]
    found = backends.shared(lambda x: x + 1)(jax.device_put(X, device))
    assert found.devices() == {device}
    assert not compiled


def test_few_programs_are_kept(compiled: Any) -> None:
    for number in range(backends.MOST_PROGRAMS + 3):
        backends.shared(lambda x, number=number: x + number)(X)
    assert len(compiled) == backends.MOST_PROGRAMS


def test_programs_of_functions_that_live_on_are_dropped_too(compiled: Any) -> None:
    run = backends.shared(lambda x: x * 3)
    np.testing.assert_array_equal(run(X), 3 * X)
    program = weakref.ref(compiled[next(iter(compiled))])
    backends.forget_programs()
    jax.clear_caches()
    gc.collect()
    assert program() is None, "a function that is alive keeps its compiled program"
    np.testing.assert_array_equal(run(X), 3 * X)


def test_a_second_check_compiles_nothing_and_sees_a_number_that_has_changed(compiled: Any) -> None:
    factor = {"value": 2.0}

    @jax.custom_vjp
    def double(x: Any) -> Any:
        return x * 2

    double.defvjp(lambda x: (x * 2, None), lambda _, g: (g * factor["value"],))
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    check = (double, lambda x: x + x, (jnp.asarray(X),))
    gradgate.check(*check)
    number = len(compiled)
    events.clear()
    gradgate.check(*check)
    assert len(compiled) == number
    assert not [name for name in events if "backend_compile" in name]
    factor["value"] = 2.5
    with pytest.raises(AssertionError, match="wrong gradient of x"):
        gradgate.check(*check)
