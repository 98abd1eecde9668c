"""What generation carries, and B and C of N numbers each: outputs are those of the loss, and wrong ones are seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradgate.references import registry
from gradgate.references.contract import UsageError
from gradgate.references.performer.paper.measured import relative_error
from gradgate.references.state_space.paper import stored_states
from gradgate.references.state_space.problem import StateSpaceProblem, StateSpaceSpec


class Forgetful(StateSpaceProblem):
    """A problem whose states decay to nothing between two tokens of generation."""

    def apply(self, a: Any, h: Any) -> Any:
        return 0 * h


@pytest.mark.parametrize("structure", ["unstructured", "diagonal", "scalar"])
def test_generation_gives_the_outputs_of_the_loss_and_without_states_it_does_not(structure: str) -> None:
    problem = StateSpaceSpec(length=7, layers=2, structure=structure, seed=3).build("numpy")
    y, numbers = stored_states.outputs(problem)
    found = problem.token_loss(problem.params["head"], y, problem.data["targets"], problem.data["upstream"])
    exact = problem.loss(problem.params)
    assert float(found) == pytest.approx(float(exact), rel=1e-13)
    assert numbers == 2 * 2 * 3
    wrong, _ = stored_states.outputs(Forgetful(problem.spec, "numpy", problem.params, problem.data))
    assert not np.allclose(wrong, y, rtol=1e-3)


def test_generation_carries_as_many_numbers_after_a_long_sequence_and_a_cache_does_not() -> None:
    assert stored_states.carried(3) == stored_states.carried(40) == 6
    assert stored_states.over_cache(1000, 6, 4) == stored_states.over_cache(10, 6, 4) / 100


def test_maps_of_n_numbers_have_fewer_parameters_and_the_same_gradient_by_every_method(torch: Any) -> None:
    spec = StateSpaceSpec(length=6, layers=3, maps="vectors", seed=2)
    problem: Any = spec.build("torch")
    assert problem.params["layers"]["B"]["w0"].shape == (3, 2, 3)
    assert StateSpaceSpec(layers=3).build("torch").params["layers"]["B"]["w0"].shape == (3, 2, 6)
    methods = {m.name: registry.load(m.implementation) for m in registry.methods("state_space", None, "torch")}
    _, exact = methods["backprop"](problem)
    for name, options in (
        ("adjoint_sharding", {}),
        ("reverse_recurrence", {"chunk": 4}),
        ("associative_scan", {}),
        ("adjoint_parallel", {"instances": 2}),
    ):
        assert relative_error(methods[name](problem, **options)[1], exact) < 1e-13
    assert relative_error(methods["adjoint_sharding_printed"](problem)[1], exact) > 0.01


def test_an_unknown_kind_of_maps_is_refused_with_the_legal_ones() -> None:
    with pytest.raises(UsageError, match="full"):
        StateSpaceSpec(maps="diagonal")
