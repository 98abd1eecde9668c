"""Where two programs first differ: their intermediate values are matched by value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from gradgate.suites.exact import balls, parting
from gradgate.suites.exact.lines import judges, line_at, path_of, text_of
from gradgate.suites.exact.parting import Parting, Record, first_apart, made_before, made_but_lost, mended, recorded

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


def sentence(run: Callable[[Any], None], error: float = 0.0) -> str:
    found = first_apart(recorded(run), PLAIN, error)
    return "" if found is None else found.sentence


def test_a_value_that_is_nearly_one_of_the_plain_programs_is_named_first() -> None:
    near = program(
        ("mul", "b.py:1", [1.0, 2.0]), ("sub", "b.py:2", [9.0, 9.0]), ("add", "b.py:3", [3.0, 5.0 + 2.0**-50])
    )
    assert sentence(near).startswith("the programs part at b.py:3, add: [1] is 5.0000")


def test_values_that_differ_by_a_rounded_constant_are_not_where_programs_part_that_differ_by_far_more() -> None:
    near = program(("mul", "b.py:1", [1.0, 2.0]), ("add", "b.py:3", [3.0, 5.0 + 2.0**-50]), ("neg", "b.py:4", [0.5]))
    assert sentence(near, error=0.3).startswith("no value is shared from here on: at b.py:3, add")
    assert sentence(near, error=1e-15).startswith("the programs part at b.py:3, add: [1] is 5.0000")


def chain(factor: float, order: int = 1) -> Callable[[Callable[..., Any]], Any]:
    """A run that computes 3x, a value that only this run has, and factor · 3x; the watch may replace any value."""

    def run(watch: Callable[..., Any]) -> Any:
        def step(line: str, value: Any) -> Any:
            instead = watch("mul", line, [value])
            return value if instead is None else instead[0]

        start = step("c.py:1", balls.exact([1.0, 2.0][::order]) * 3)
        own = step("c.py:2", start * 7)
        return step("c.py:4", step("c.py:3", own * factor) / 7)

    return run


def test_a_value_is_to_blame_if_the_plain_programs_value_in_its_place_mends_the_result() -> None:
    right, wrong = chain(2.0), chain(3.0)
    truth = right(lambda *_: None)

    def equal(result: Any) -> bool:
        return bool((balls.floats(result) == balls.floats(truth)).all())

    found = mended(wrong, recorded(wrong), recorded(right), equal)
    assert found == Parting("at c.py:3, mul: [1] is 126, and with the reference's 84.0 all is right", "c.py:3")
    assert mended(wrong, recorded(wrong), recorded(right), lambda _: False) is None


@pytest.mark.parametrize(
    ("factor", "taken", "said"),
    [
        (3.0, 1e-9, "at e.py:3, mul: [0] is 4.50, and with the reference's 2.00 all is right"),
        (2.0, 1.0, "at e.py:1, mul: [0] is 1.50, and with the reference's 1.00 all is right"),
    ],
)
def test_a_loop_that_another_value_keeps_from_ending_is_ended(factor: float, taken: float, said: str) -> None:
    """The loop takes 1.5 from 6 until nothing is left: four turns, six for 1, and without an end for 1e-9."""

    def wrong(watch: Callable[..., Any]) -> Any:
        def report(line: str, value: Any) -> Any:
            instead = watch("mul", line, [value])
            return value if instead is None else instead[0]

        each, left = report("e.py:1", balls.exact([1.5])), balls.exact([6.0])
        while balls.floats(left)[0] > 0:
            left = report("e.py:2", left - each)
        return report("e.py:3", each * factor)

    plain = recorded(program(("mul", "f.py:1", [taken]), ("mul", "f.py:2", [2.0])))
    found = mended(wrong, recorded(wrong), plain, lambda result: bool(balls.floats(result)[0] == 2))
    assert found is not None
    assert found.sentence == said


def test_a_right_gradient_that_is_made_and_not_returned_is_named() -> None:
    steps = recorded(program(("mul", "b.py:1", [2.0, 3.0]), ("mul", "b.py:2", [5.0, 7.0]), ("neg", "", [1.0, 0.0])))
    found = made_but_lost(steps, balls.exact([[2.0], [3.0]]), "x")
    assert found == Parting("the right gradient of x is made at b.py:1, mul, and is not what is returned", "b.py:1")
    assert found.place == 0
    assert made_but_lost(steps, balls.exact([2.0, 4.0]), "x") is None
    assert made_but_lost(steps, balls.exact([1.0, 0.0]), "x") is None, "it has no line of the author's"


def test_the_line_is_the_authors_and_has_its_text() -> None:
    assert judges(balls.__file__)
    assert not judges(__file__)
    line = line_at(__file__, 1)
    assert line == "test_parting.py:1"
    assert text_of(line).startswith('"""Where two programs')
    assert path_of(line).endswith("/exact/test_parting.py:1")
    assert (text_of("nowhere.py:7"), path_of("nowhere.py:7")) == ("", "")


def test_else_the_first_value_after_the_last_shared_one_is_named() -> None:
    other = program(("mul", "b.py:1", [1.0, 2.0]), ("add", "b.py:2", [3.0, 5.0]), ("neg", "b.py:3", [-700.0, 1.0]))
    assert sentence(other) == ("no value is shared from here on: at b.py:3, neg; the last is made at b.py:2, add")


def test_what_is_made_after_the_wrong_result_is_left_out() -> None:
    run = program(("mul", "b.py:1", [1.0, 2.0]), ("neg", "b.py:2", [-9.0, 1.0]), ("exp", "b.py:3", [7.0, 11.0]))
    record = recorded(run)
    assert sentence(run).startswith("the last value both programs have is made at b.py:3, exp")
    found = first_apart(made_before(record, balls.exact([[-9.0], [1.0]])), PLAIN)
    assert found is not None
    assert found.sentence == ("no value is shared from here on: at b.py:2, neg; the last is made at b.py:1, mul")
    assert made_before(record, balls.exact([0.5])) == made_before(record, None) == record


def test_programs_that_share_no_value_part_nowhere() -> None:
    assert first_apart(recorded(program(("neg", "b.py:1", [100.0]))), PLAIN) is None


def test_a_value_is_known_again_in_another_shape() -> None:
    [flat] = recorded(program(("mul", "", [1.0, 2.0]))).steps

    def run(watch: Any) -> None:
        watch("reshape", "", [balls.exact([[1.0], [2.0]])])

    [tall] = recorded(run).steps
    assert tall.mark == flat.mark


def test_integers_and_what_is_not_finite_are_left_out() -> None:
    def run(watch: Any) -> None:
        watch("iota", "", [balls.exact([1.0]).astype(object).astype(float).astype(int)])
        watch("div", "", [balls.exact([float("nan")])])

    assert recorded(run) == Record([], 2)


def test_of_a_long_program_only_the_first_operations_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it shares last is then not known; a value that is nearly one of the plain program's is."""
    monkeypatch.setattr(parting, "LONGEST", 10)
    first, last = ("mul", "b.py:1", [1.0, 2.0]), ("exp", "b.py:4", [7.0, 11.0])
    near, no_value = ("add", "b.py:3", [3.0, 5.0 + 2.0**-50]), ("iota", "", [])
    assert recorded(program(*[last] * 20)) == Record(recorded(program(*[last] * 10)).steps, 11)
    assert sentence(program(first, *[no_value] * 8, last)).startswith("the last value both programs have is made at b")
    assert not sentence(program(first, *[no_value] * 9, last))
    assert sentence(program(first, near, *[no_value] * 20)).startswith("the programs part at b.py:3")
