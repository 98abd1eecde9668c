"""Shards of work: every item is in exactly one, items that belong together are in one, and all take a similar time."""

from __future__ import annotations

import argparse

import pytest

from gradgate.references import registry
from gradgate.suites.judging.verdict import Task
from gradgate.suites.workers.shards import Shard, cost


def tasks() -> list[Task]:
    return [Task.of(method, claim) for method in registry.methods() for claim in method.claims]


def parts(of: int) -> list[list[Task]]:
    every = tasks()
    return [Shard(i, of).part(every, lambda t: t.owner, lambda t: cost(t.framework)) for i in range(1, of + 1)]


@pytest.mark.parametrize("of", [1, 2, 4, 7, 1000])
def test_every_claim_is_in_exactly_one_share_and_a_method_is_in_one(of: int) -> None:
    found = parts(of)
    names = [task.name for part in found for task in part]
    assert sorted(names) == sorted(task.name for task in tasks())
    owners = [{task.owner for task in part} for part in found]
    assert sum(map(len, owners)) == len({task.owner for task in tasks()})


def test_shares_are_the_same_each_time_and_cost_about_the_same() -> None:
    found = parts(4)
    assert found == parts(4)
    costs = [sum(cost(task.framework) for task in part) for part in found]
    assert max(costs) < 1.1 * min(costs)


def test_a_share_keeps_the_order_of_the_work() -> None:
    assert Shard(1, 1).part(["b", "a", "c"], str) == ["b", "a", "c"]
    assert Shard(2, 2).part(["b", "a", "c"], str) == ["b"]


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3", "1.0/2"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="I/N with I from 1 to N"):
        Shard.parse(text)


def test_a_share_is_read() -> None:
    assert Shard.parse("2/4") == Shard(2, 4)
