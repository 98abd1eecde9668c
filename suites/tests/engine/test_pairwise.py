"""The covering array: every value at every place, every pair at one place at least, few rows, always the same rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from gradgate.suites.engine import pairwise

Lists = list[dict[str, list[Any]]]


def pairs_of(rows: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    return {pair for row in rows for pair in itertools.combinations([(k, repr(v)) for k, v in row.items()], 2)}


def possible(lists: Lists) -> set[tuple[Any, ...]]:
    every = [dict(zip(legal, row, strict=True)) for legal in lists for row in itertools.product(*legal.values())]
    return pairs_of(every)


def values_of(rows: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    return {(name, repr(value)) for row in rows for name, value in row.items()}


PLACES = st.lists(
    st.fixed_dictionaries({name: st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True) for name in "abc"}),
    min_size=1,
    max_size=4,
)


@hypothesis.given(lists=PLACES, data=st.data())
@hypothesis.settings(max_examples=200, derandomize=True, database=None, deadline=None)
def test_every_value_occurs_where_it_is_legal_and_every_pair_somewhere(lists: Lists, data: st.DataObject) -> None:
    least = data.draw(st.lists(st.integers(0, 4), min_size=len(lists), max_size=len(lists)))
    found = pairwise.rows(lists, least)
    assert pairs_of([row for rows in found for row in rows]) == possible(lists)
    for legal, rows, few in zip(lists, found, least, strict=True):
        assert values_of(rows) == {(name, repr(v)) for name, values in legal.items() for v in values}
        assert all(row[name] in legal[name] for row in rows for name in row)
        assert rows[0] == {name: values[0] for name, values in legal.items()}
        assert len(rows) >= few


def test_two_flags_in_one_place_take_four_rows_and_in_two_places_no_more() -> None:
    flags: dict[str, list[Any]] = {"one": [False, True], "two": [False, True]}
    assert [len(rows) for rows in pairwise.rows([flags], [0])] == [4]
    assert [len(rows) for rows in pairwise.rows([flags, flags], [2, 2])] == [4, 2]
    assert [len(rows) for rows in pairwise.rows([flags, flags], [3, 3])] == [3, 3]


def test_ten_flags_take_far_fewer_rows_than_all_combinations() -> None:
    [rows] = pairwise.rows([{f"f{i}": [False, True] for i in range(10)}], [0])
    assert len(rows) <= 12, "6 rows are the fewest possible; all combinations are 1024 rows"


def test_true_is_not_one_and_a_value_need_not_be_hashable() -> None:
    [rows] = pairwise.rows([{"one": [1, True], "two": [[0], {}]}], [0])
    assert len(pairs_of(rows)) == 4


@pytest.mark.parametrize(("costly", "counts"), [((), [4, 2]), ((True, False), [2, 4]), ((True, True), [4, 2])])
def test_a_pair_that_can_meet_elsewhere_costs_no_row_in_a_costly_place(
    costly: tuple[bool, ...], counts: list[int]
) -> None:
    flags: dict[str, list[Any]] = {"one": [0, 1], "two": [0, 1]}
    assert [len(rows) for rows in pairwise.rows([flags, flags], [2, 2], costly)] == counts


def test_a_pair_that_a_costly_place_alone_offers_is_tried_there() -> None:
    lists: Lists = [{"one": [0], "two": [0]}, {"one": [7, 8], "two": [7, 8]}]
    assert len(pairwise.rows(lists, [1, 1], (False, True))[1]) == 4


def test_without_options_a_place_has_as_many_empty_rows_as_asked() -> None:
    assert pairwise.rows([{}, {}], [3, 2]) == [[{}] * 3, [{}] * 2]


def test_the_same_lists_give_the_same_rows() -> None:
    lists: Lists = [{"a": [1, 2, 3], "b": ["x", "y"]}, {"a": [1, 9], "b": ["y", "z", None]}]
    assert pairwise.rows(lists, [3, 3]) == pairwise.rows(lists, [3, 3])
