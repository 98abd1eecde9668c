"""The chain's methods, beyond their claims: the JAX form follows the schedule, illegal use is refused, figures."""

from __future__ import annotations

from typing import Any

import pytest

from gradgate.references.backends import precision
from gradgate.references.chain.paper import figures
from gradgate.references.chain.problem import ChainSpec
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import BudgetTooSmall, minimum_budget, precise_dp
from gradgate.references.contract import IllegalOption, UsageError
from gradgate.references.registry import load, methods


def test_nested_rematerialisation_runs_every_layer_as_often_as_the_schedule_says(jax: Any) -> None:
    from gradgate.hw_profiles import work
    from gradgate.references.chain.in_jax import methods as jax_impl
    from gradgate.references.draws import shapes

    spec = ChainSpec(dtype="float32", layers=6, width=3, batch=2, profile="uniform")
    problem: Any = shapes(spec)
    schedules = [classic.save_all(7), classic.sqrt_n(7), classic.recursive(7), classic.recompute_all(7)]
    schedules += [classic.revolve(7, 2), precise_dp(jax_impl.costs_of(spec), minimum_budget(jax_impl.costs_of(spec)))]
    for schedule in schedules:
        found = work.of(lambda p: jax_impl.by_schedule(p, schedule), (problem,))  # noqa: B023 - called at once
        assert found.transcendentals == sum(schedule.runs()[:-1]) * spec.width * spec.batch


def test_jax_refuses_a_schedule_that_is_not_nested(jax: Any) -> None:
    from gradgate.references.chain.in_jax import methods as jax_impl

    text = '{"stages": 3, "operations": "F1 S2 F1 F2 S3 S1 D2 D1 D3 B3 B2 D0 B1"}'
    with pytest.raises(UsageError, match="not nested"):
        jax_impl.rematerialised([], Schedule.from_json(text))


def test_jax_knows_what_a_stage_saves(jax: Any) -> None:
    from gradgate.references.chain.in_jax.methods import stage_costs

    x, w = jax.ShapeDtypeStruct((4, 8), "float32"), jax.ShapeDtypeStruct((8, 2), "float32")
    product = stage_costs(lambda w, x: x @ w, w, x)
    forward, by_w, by_x = 4 * 2 * (2 * 8 - 1), 8 * 2 * (2 * 4 - 1), 4 * 8 * (2 * 2 - 1)
    assert product == (forward, by_w + by_x, 0, True, False, 32, 64 + 128)
    assert stage_costs(lambda _, x: jax.numpy.tanh(x), {}, x)[2:5] == (128, False, True)  # y, and also 1 − y
    assert stage_costs(lambda _, x: x + 1.0, {}, x)[2:5] == (0, False, False)


@pytest.mark.parametrize("method", ["uniform_dp", "precise_dp"])
def test_a_budget_too_small_states_one_that_suffices(method: str, framework: str) -> None:
    spec = ChainSpec(layers=4, width=4, batch=3)
    function = load(methods("chain", method, framework)[0].implementation)
    problem = spec.build(framework)
    with precision(framework, spec.dtype), pytest.raises(BudgetTooSmall) as error:
        function(problem, budget=10)
    assert isinstance(error.value, IllegalOption)
    with precision(framework, spec.dtype):
        function(problem, budget=error.value.minimum)


def test_the_free_schedules_beat_the_solver_where_the_claim_says_so() -> None:
    assert figures.free_gap() == 23 / 19
    assert figures.NARROW.steady()


def test_the_uniform_trade_off_has_the_shape_of_figure_4_1() -> None:
    from gradgate.references.chain.paper.rows import uniform_curves

    found = [compute for compute in uniform_curves(most=24)["N = 20"] if compute is not None]
    assert found == sorted(found, reverse=True)
    assert found[0] > 2.5 * 40
    assert found[-1] == 40


def test_the_meta_device_tells_the_bytes_and_flops_of_the_cpu(torch: Any) -> None:
    from gradgate.references.chain.in_torch.checkpoint import costs_of
    from gradgate.references.chain.paper.rows import chain_of

    found = [costs_of(*chain_of("resnet50", 2, 64, narrow=8, device=d), compute="flops") for d in ("cpu", "meta")]
    for name in ("forward", "backward", "output", "gradient", "saved", "saves_input", "saves_output", "backward_peak"):
        assert getattr(found[0], name) == getattr(found[1], name)


def test_another_packages_revolve_schedule_is_read_as_ours() -> None:
    pytest.importorskip("checkpoint_schedules")
    from gradgate.references.chain.paper.peers import checkpoint_schedules_revolve

    for stages, values in ((1, 1), (10, 3), (23, 5)):
        assert checkpoint_schedules_revolve(stages, values).runs() == classic.revolve(stages, values).runs()


def test_costs_made_uniform_keep_their_means() -> None:
    costs = Costs.of([1, 3], [2, 6], [2, 4, 6], [1, 3])
    flat = costs.flattened(compute=True, memory=True)
    assert (flat.forward, flat.backward, flat.output, flat.saved) == ((2, 2), (4, 4), (4, 4, 4), (2, 2))
    assert costs.flattened() == costs
    assert simulate(classic.save_all(2), flat).compute == simulate(classic.save_all(2), costs).compute


def test_the_networks_are_sequences_of_the_known_sizes(torch: Any) -> None:
    from gradgate.references.chain.paper import networks

    for make, layers, parameters in ((networks.resnet50, 23, 25_557_032), (networks.densenet121, 79, 7_978_856)):
        with torch.device("meta"):
            network = make()
        assert len(network) == layers
        assert sum(p.numel() for p in network.parameters()) == parameters
        assert network(torch.empty(1, 3, 64, 64, device="meta")).shape == (1, 1000)
