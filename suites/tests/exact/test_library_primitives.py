"""A primitive of a library is evaluated through its implementation in Python; JAX's own need a rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flint")

from jax import numpy as jnp  # noqa: E402
from jax.extend.core import Primitive  # noqa: E402

from gradgate.suites.exact import balls, on_jax  # noqa: E402


def primitive(impl: Any) -> Any:
    """A primitive with this implementation, which takes and returns an array."""
    made = Primitive("of_a_library")
    made.def_abstract_eval(lambda x: x)
    if impl is not None:
        made.def_impl(impl)
    return made


def evaluated(made: Any) -> Any:
    """What a program of this primitive gives at 2, as a float."""
    argument = np.asarray([2.0])
    with jax.enable_x64(True):
        program = on_jax.trace(lambda x: [3 * made.bind(x)], argument)
    [found] = program.evaluate(argument, digits=60)
    return balls.floats(found)[0]


def test_a_primitive_of_a_library_is_evaluated_through_its_implementation() -> None:
    assert evaluated(primitive(lambda x: jnp.sin(x) * x)) == pytest.approx(6 * np.sin(2.0), rel=1e-15)


def test_another_implementation_gives_another_number() -> None:
    assert evaluated(primitive(lambda x: jnp.cos(x) * x)) == pytest.approx(6 * np.cos(2.0), rel=1e-15)


def test_a_primitive_without_an_implementation_is_unknown() -> None:
    with pytest.raises(balls.Unknown, match="no rule for the primitive of_a_library"):
        evaluated(primitive(None))


def test_the_next_float_is_exact_and_undecided_after_a_number_that_is_not() -> None:
    argument = np.asarray([0.5])
    with jax.enable_x64(True):
        program = on_jax.trace(lambda x: [jnp.nextafter(x, jnp.inf)], argument)
        rounded = on_jax.trace(lambda x: [jnp.nextafter(jnp.sin(x), jnp.inf)], argument)
    [found] = program.evaluate(argument, digits=60)
    assert balls.floats(found)[0] == np.nextafter(0.5, np.inf)
    with pytest.raises(balls.Undecided, match="which float is next"):
        rounded.evaluate(argument, digits=60)
