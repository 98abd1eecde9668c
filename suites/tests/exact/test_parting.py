"""Where two programs first differ: their intermediate values are matched by value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from gradgate.suites.exact import balls
from gradgate.suites.exact.parting import first_apart, recorded

Value = tuple[str, str, list[float]]


def program(*steps: Value) -> Callable[[Any], None]:
    """A run that makes these values: operation, line, numbers."""

    def run(watch: Callable[[str, str, Sequence[Any]], None]) -> None:
        for operation, line, numbers in steps:
            watch(operation, line, [balls.exact(numbers)])

    return run


@pytest.fixture(autouse=True)
def _in_sixty_digits() -> Iterator[None]:
    with balls.digits(60):
        yield


PLAIN = recorded(program(("mul", "a.py:1", [1.0, 2.0]), ("add", "a.py:2", [3.0, 5.0]), ("exp", "a.py:3", [7.0, 11.0])))


def test_a_value_that_is_nearly_one_of_the_plain_programs_is_named_first() -> None:
    near = program(
        ("mul", "b.py:1", [1.0, 2.0]), ("sub", "b.py:2", [9.0, 9.0]), ("add", "b.py:3", [3.0, 5.0 + 2.0**-50])
    )
    assert first_apart(recorded(near), PLAIN).startswith("the programs part at add at b.py:3: ")


def test_else_the_first_value_after_the_last_shared_one_is_named() -> None:
    other = program(("mul", "b.py:1", [1.0, 2.0]), ("add", "b.py:2", [3.0, 5.0]), ("neg", "b.py:3", [-700.0, 1.0]))
    assert first_apart(recorded(other), PLAIN) == (
        "the last value both programs have is add at b.py:2; the next, neg at b.py:3, is the method's alone"
    )


def test_programs_that_share_no_value_part_nowhere() -> None:
    assert first_apart(recorded(program(("neg", "b.py:1", [100.0]))), PLAIN) == ""


def test_a_value_is_known_again_in_another_shape() -> None:
    [flat] = recorded(program(("mul", "", [1.0, 2.0])))

    def run(watch: Any) -> None:
        watch("reshape", "", [balls.exact([[1.0], [2.0]])])

    [tall] = recorded(run)
    assert tall.mark == flat.mark


def test_integers_and_what_is_not_finite_are_left_out() -> None:
    def run(watch: Any) -> None:
        watch("iota", "", [balls.exact([1.0]).astype(object).astype(float).astype(int)])
        watch("div", "", [balls.exact([float("nan")])])

    assert recorded(run) == []
