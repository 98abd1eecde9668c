"""Parallel work: how pairs are assigned to instances, batches of VJPs, and the longest chain of operations."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gradgate.references.registry import spec_class
from gradgate.references.state_space.paper import depth, rows
from gradgate.references.state_space.walks import Walks

StateSpace = spec_class("state_space")


def pairs(length: int, instances: int) -> list[tuple[int, int]]:
    """The pairs (t, i) of tokens, for every step of every walk."""
    walks = Walks.of(length)
    found = []
    for first in itertools.chain.from_iterable(walks.groups(instances)):
        for step in range(walks.steps):
            t, i = (first, first - step) if step < first else (walks.second(first), walks.steps - step)
            found.append((t, i))
    return found


@pytest.mark.parametrize("length", range(1, 10))
@pytest.mark.parametrize("instances", [1, 2, 3, 100])
def test_every_pair_is_taken_exactly_once(length: int, instances: int) -> None:
    wanted = [(t, i) for t in range(1, length + 1) for i in range(1, t + 1)]
    assert sorted(pairs(length, instances)) == wanted


@pytest.mark.parametrize("length", [7, 8])
def test_no_group_is_larger_than_the_instances_and_only_the_last_is_smaller(length: int) -> None:
    sizes = [len(group) for group in Walks.of(length).groups(3)]
    assert sizes == [3, 1]
    assert len(Walks.of(length).groups(4)) == 1


@pytest.mark.parametrize(("length", "instances", "wanted"), [(6, 1, 21), (6, 2, 14), (6, 3, 7), (5, 3, 5), (5, 99, 5)])
def test_batches_of_vjps_run_one_after_another(length: int, instances: int, wanted: int, framework: str) -> None:
    spec = StateSpace(length=length, layers=2, batch=1)
    found = depth.batches("adjoint_parallel", framework, spec, instances=instances)
    assert found == {"A": 2 * wanted, "B": 2 * wanted, "C": 2 * -(-length // instances)}


def test_one_instance_has_the_batches_of_adjoint_sharding_and_backprop_has_one_a_layer(jax: Any) -> None:
    spec = StateSpace(length=6, layers=2, batch=1)
    assert depth.batches("adjoint_sharding", "jax", spec) == {"A": 42, "B": 42, "C": 12}
    assert depth.batches("backprop", "jax", spec) == {"A": 2, "B": 2, "C": 2}


def test_the_chain_of_a_jax_program_is_that_of_its_dependent_operations(jax: Any) -> None:
    jnp, lax = jax.numpy, jax.lax
    x = jnp.ones(8)

    def chain(program: Any) -> int:
        return depth.of_jax(program, (x,))

    assert chain(lambda x: x) == 0
    assert chain(lambda x: (x + 1) * (x - 1)) == 2
    assert chain(lambda x: jnp.concatenate([x, x])[::2].reshape(2, 4)) == 0
    assert chain(jnp.sum) == 3
    assert chain(lambda x: jnp.outer(x, x) @ x) == 1 + 1 + 3
    assert chain(lambda x: lax.scan(lambda c, _: (c * c, None), x, None, 100)[0]) == 100
    assert chain(lambda x: lax.scan(lambda c, _: (c * c, c), x, None, 100)[1]) == 99
    assert chain(lambda x: lax.scan(lambda c, e: (c, jnp.exp(e * e)), x, x)[1]) == 2  # no step waits for another
    assert chain(lambda x: lax.scan(lambda c, _: ((c[1] + 1, c[0]), None), (x, x), None, 7)[0]) == 4


def test_the_chain_of_prefix_sums_grows_by_as_much_with_every_doubling(jax: Any) -> None:
    def chain(length: int) -> int:
        return depth.of_jax(lambda x: jax.lax.associative_scan(jax.numpy.add, x), (jax.numpy.ones(length),))

    assert chain(32) > chain(16)
    assert chain(128) - chain(64) == chain(64) - chain(32) == chain(32) - chain(16)


def test_a_branch_waits_for_what_chooses_it_and_a_while_loop_is_refused(jax: Any) -> None:
    x = jax.numpy.ones(())

    def branch(x: Any) -> Any:
        return jax.lax.cond(x * x * x > 0, lambda y: y + 1, lambda y: y * y + 1, x)

    assert depth.of_jax(branch, (x,)) == 4
    with pytest.raises(LookupError, match="while loop"):
        depth.of_jax(lambda x: jax.lax.while_loop(lambda x: x < 9, lambda x: x + 1, x), (x,))


def test_the_chain_of_a_pytorch_program_is_that_of_its_operators(torch: Any) -> None:
    x = torch.ones(8)
    assert depth.of_torch(lambda x: (x + 1) * (x - 1), x) == 2
    assert depth.of_torch(lambda x: torch.cat([x, x])[::2].reshape(2, 4), x) == 0
    assert depth.of_torch(lambda x: x.sum(), x) == 3
    assert depth.of_torch(lambda x: torch.outer(x, x) @ x[:, None], x) == 1 + 1 + 3


@pytest.mark.parametrize(
    ("method", "wanted"), [("adjoint_sharding", 3), ("adjoint_sharding_printed", 1), ("backprop", 3)]
)
def test_vjps_wait_for_those_of_the_layers_above_but_as_printed(method: str, wanted: int, jax: Any) -> None:
    spec = StateSpace(length=2, layers=3)
    assert depth.of_nets(method, spec, "vjps") == wanted
    assert depth.of_nets(method, spec, "evaluations") == 3


def test_doubling_tells_a_linear_chain_from_a_logarithmic_one(jax: Any) -> None:
    assert rows.doubling("reverse_recurrence", "jax") == pytest.approx(2, 0.01)
    assert rows.doubling("associative_scan", "jax") == pytest.approx(1, 0.01)


@pytest.mark.parametrize("instances", [7, 56])
def test_the_acceleration_is_the_number_of_instances(instances: int, jax: Any) -> None:
    assert rows.acceleration(instances, "jax") == instances


def test_more_instances_than_walks_accelerate_no_further(jax: Any) -> None:
    spec = StateSpace(length=6, layers=1, batch=1)
    alone = depth.batches("adjoint_parallel", "jax", spec, instances=1)["A"]
    assert alone / depth.batches("adjoint_parallel", "jax", spec, instances=50)["A"] == 3
