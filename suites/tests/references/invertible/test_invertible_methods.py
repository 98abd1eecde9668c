"""Moonwalk and related methods, beyond their claims: separate phases, gradients layer by layer, lost digits."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.backends import leaves, precision, to_numpy, tree_map
from gradgate.references.contract import IllegalOption, UsageError
from gradgate.references.draws import shapes
from gradgate.references.invertible.layers import NotInvertible
from gradgate.references.invertible.paper import rows as paper
from gradgate.references.invertible.paper import steps
from gradgate.references.invertible.paper.training import curves, distance
from gradgate.references.invertible.problem import InvertibleSpec
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task
from gradgate.suites.tests.references import gradients

EXACT = {
    "backprop": {},
    "forward": {"tangents": 50},
    "reversible": {},
    "moonwalk": {"tangents": 3},
    "moonwalk_mixed": {},
}
SETTLED = InvertibleSpec(unit="dense tanh", layers=12, channels=6, batch=3, scale=0.1, bias=1.0, seed=8)


run = functools.partial(gradients.run, "invertible")
worst = functools.partial(gradients.worst, "invertible")


@pytest.mark.parametrize("method", EXACT)
def test_every_method_is_exact_on_a_small_revnet(method: str, torch: Any) -> None:
    spec = InvertibleSpec(
        unit="additive", residual="conv", activation="relu", norm="batch", side=4, channels=3, blocks=2, layers=2
    )
    assert worst("torch", method, spec, **EXACT[method]) < 300


@pytest.mark.parametrize("method", ["moonwalk", "moonwalk_mixed"])
def test_moonwalk_passes_layers_whose_jacobian_is_surjective_only(method: str, torch: Any) -> None:
    spec = InvertibleSpec(residual="conv", side=4, channels=2, blocks=2, layers=1, submersive=2)
    assert worst("torch", method, spec) < 64


def test_reversing_refuses_a_layer_without_an_inverse_by_its_name(framework: str) -> None:
    spec = InvertibleSpec(channels=6, blocks=2, submersive=1)
    refused = "submersive1 has no inverse: from 5 channels it makes 4"
    with pytest.raises(NotInvertible, match=refused):
        run(framework, "reversible", spec)
    with pytest.raises(NotInvertible, match="submersive0 has no inverse"):
        run(framework, "moonwalk_mixed", spec, vijp="inverse")


@pytest.mark.parametrize("seed", [0, 1])
def test_with_settled_tanh_reversing_loses_its_digits_and_moonwalk_does_not(seed: int, torch: Any) -> None:
    spec = dataclasses.replace(SETTLED, seed=seed)
    assert worst("torch", "reversible", spec) > 1e8
    assert worst("torch", "moonwalk_mixed", spec) < 64
    assert worst("torch", "moonwalk", spec, tangents=6) < 64


def test_where_tanh_layers_mix_strongly_mixed_loses_its_digits_too(torch: Any) -> None:
    spec = InvertibleSpec(unit="affine conv1x1 tanh", layers=24, channels=6, batch=3)
    assert worst("torch", "moonwalk_mixed", spec) > 1e5


def test_dividing_by_the_vjps_own_derivative_cancels_its_error(torch: Any) -> None:
    layer = InvertibleSpec(unit="dense tanh", channels=2, layers=1).build("torch").layers[1]
    x, h = torch.full((1, 1, 1, 2), 7.0), torch.tensor([3.0, -5.0]).reshape(1, 1, 1, 2)
    y, pull = torch.func.vjp(torch.tanh, x)
    assert torch.allclose(layer.advance(torch.func.vjp, {}, x, pull(h)[0])[1], h, rtol=1e-6)
    assert not torch.allclose(pull(h)[0] * torch.cosh(x) ** 2, h, rtol=1e-3)
    assert not torch.allclose(layer.inverse({}, y), x, rtol=1e-4)


def test_batch_norm_joins_the_samples_so_one_jvp_per_number_of_a_sample_is_not_enough(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = InvertibleSpec(batch=5, norm="batch")
    assert worst("torch", "moonwalk", spec, tangents=50) < 1000
    monkeypatch.setattr(InvertibleSpec, "coupled", False)
    assert worst("torch", "moonwalk", spec, tangents=50) > 1e6


@pytest.mark.parametrize("method", ["moonwalk", "moonwalk_mixed"])
def test_a_second_phase_that_reads_the_firsts_activations_fails_the_memory_law(method: str, jax: Any) -> None:
    from gradgate.references.invertible.in_jax import methods as jax_impl

    def merged(problem: Any, **options: Any) -> Any:
        """The program that a compiler would make of both phases if it computed the activations only once."""
        p = problem.params
        [block] = problem.blocks
        [(key, layer)] = block.unit.items()
        y, xs = jax.lax.scan(lambda x, q: (layer(q[key], x), x), problem.x, p[block.key])
        loss, (d_head, h) = jax.value_and_grad(problem.head_loss, argnums=(0, 1))(p["head"], y)

        def back(h: Any, given: Any) -> Any:
            return jax.vjp(lambda x: layer(given[0][key], x), given[1])[1](h)[0], ()

        h, _ = jax.lax.scan(back, h, (p[block.key], xs), reverse=True)

        def ahead(h: Any, given: Any) -> Any:
            _, h, dp = layer.advance(jax.vjp, given[0][key], given[1], h)
            return h, {key: dp}

        _, grads = jax.lax.scan(ahead, h, (p[block.key], xs))
        return loss, {block.key: grads, "head": d_head}

    spec = InvertibleSpec(layers=3)
    with precision("jax", "float64"):
        problem = spec.build("jax")
        assert distance(merged(problem)[1], jax_impl.backprop(problem)[1]) < 1e-13
    [declared] = registry.methods("invertible", method, "jax")
    planted = dataclasses.replace(declared, implementation="merged")
    verdict = judge(Task.of(planted, planted.claim("memory_law")), Subject(planted, merged), Run())
    assert verdict.verdict == "refuted", verdict.reason


def test_gradients_that_are_applied_as_they_are_handed_out_are_not_in_memory(jax: Any) -> None:
    kept, dropped = (steps.step_bytes("moonwalk_mixed", handed_out, "cpu") for handed_out in (False, True))
    gradients = sum(4 * leaf.size for leaf in leaves(shapes(steps.heavy()).params["block0"]))
    assert kept > gradients
    assert dropped < 0.5 * gradients


@pytest.mark.parametrize("optimiser", ["descent", "adam"])
def test_steps_that_apply_handed_out_gradients_are_the_steps_that_keep_them(optimiser: str, jax: Any) -> None:
    ends = []
    with precision("jax", "float64"):
        problem = InvertibleSpec(unit="additive tanh", layers=3, side=2, submersive=1).build("jax")
        for method, handed_out in (("moonwalk_mixed", True), ("moonwalk_mixed", False), ("backprop", False)):
            params, state = problem.params, steps.adam_state(problem.params) if optimiser == "adam" else {}
            for number in (1.0, 2.0, 3.0):
                step = steps.step(method, handed_out, optimiser)
                _, params, state = step(params, state, problem.data, problem, number)
            ends.append((params, state))
        forgotten = steps.adam_state(problem.params) if optimiser == "adam" else {}
        _, params, _ = steps.step("moonwalk_mixed", True, optimiser)(params, forgotten, problem.data, problem, 3.0)
    assert distance(ends[0][0], ends[1][0]) < 1e-14
    assert distance(ends[0][0], ends[2][0]) < 1e-10
    assert distance(ends[0][0], problem.params) > 1e-4
    assert distance(ends[0][0], params) > 1e-6
    if optimiser == "adam":
        assert distance(ends[0][1], ends[1][1]) < 1e-12


def test_an_unknown_optimiser_is_refused(jax: Any) -> None:
    with pytest.raises(UsageError, match="unknown optimiser 'adamw'; legal: adam, descent"):
        steps.step("backprop", False, "adamw")


@pytest.mark.parametrize("forgetful", [False, True])
def test_in_pytorch_adam_overwrites_each_layer_as_its_gradient_is_handed_out(forgetful: bool, torch: Any) -> None:
    from gradgate.references.invertible.in_torch import methods as torch_impl

    spec = InvertibleSpec(unit="dense tanh", layers=3)
    ours, theirs = spec.build("torch"), spec.build("torch")
    whole: dict[str, Any] = steps.adam_state(theirs.params)
    moments: dict[str, Any] = {}
    for number in (1.0, 2.0, 3.0):
        visit = steps.adam(1e-2, number)
        h, handed = torch_impl.input_gradient_reverse(ours)
        parts = {layer.name: p for layer, p in ours.chain(ours.params)}
        if forgetful:
            moments.clear()
        for name, dp in torch_impl.walk(ours, h, handed=handed):
            if name == "head":
                _, dp = dp
            p = ours.params["head"] if name == "head" else parts[name]
            moved, moments[name] = visit(p, dp, moments.get(name) or steps.adam_state({"": p})[""])
            for leaf, new in moved.items():
                p[leaf].copy_(new)
        _, grads = torch_impl.backprop(theirs)
        for key, p in theirs.params.items():
            moved, whole[key] = visit(p, grads[key], whole[key])
            theirs = theirs.with_params({**theirs.params, key: moved})
    assert (distance(ours.params, theirs.params) < 1e-10) is not forgetful


def test_pytorch_hands_out_layers_in_order_and_keeps_none(torch: Any) -> None:
    from gradgate.hw_profiles.torch_memory import peak
    from gradgate.references.invertible.in_torch import methods as torch_impl

    problem: Any = InvertibleSpec(unit="dense tanh", layers=12, channels=24).build("torch")
    h, _ = torch_impl.input_gradient_reverse(problem)
    names = [name for name, _ in torch_impl.walk(problem, h)]
    assert names[:3] == ["block0[0].0_dense", "block0[0].1_tanh", "block0[1].0_dense"]
    assert names[-1] == "head"

    def dropped() -> None:
        for _ in torch_impl.walk(problem, h):
            pass

    held = leaves([problem.params, problem.data])
    kept = peak(lambda: list(torch_impl.walk(problem, h)), (), held).total_bytes
    gradients = sum(leaf.nbytes for leaf in leaves(problem.params["block0"]))
    assert kept - peak(dropped, (), held).total_bytes > 0.8 * gradients


def test_projected_forward_errs_as_theory_says(torch: Any) -> None:
    assert paper.variance_ratio(300) == pytest.approx(1.0, abs=0.2)


def test_a_random_direction_is_on_the_device_of_the_parameters(torch: Any) -> None:
    from gradgate.references.invertible.in_torch import methods as torch_impl

    problem = InvertibleSpec().build("torch")
    elsewhere = type(problem)(problem.spec, "torch", tree_map(lambda p: p.to("meta"), problem.params), problem.data)
    assert {leaf.device.type for leaf in leaves(torch_impl.random_direction(elsewhere, 3))} == {"meta"}


def test_projected_forward_repeats_itself_by_its_seed(framework: str) -> None:
    one, again, other = (run(framework, "projected_forward", InvertibleSpec(), seed=s)[1] for s in (3, 3, 4))
    assert all((one[name] == again[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_the_estimate_is_the_projection_times_the_squared_length_of_its_direction(torch: Any) -> None:
    from gradgate.references.invertible.in_torch import methods as torch_impl

    problem = InvertibleSpec(layers=2).build("torch")
    u = torch.cat([leaf.ravel() for leaf in leaves(torch_impl.random_direction(problem, 3))])
    exact = torch.cat([leaf.ravel() for leaf in leaves(torch_impl.backprop(problem)[1])])
    found = torch.cat([leaf.ravel() for leaf in leaves(torch_impl.projected_forward(problem, seed=3)[1])])
    unit = u / torch.linalg.norm(u)
    projection = (exact @ unit) * unit
    assert torch.allclose(found, torch.linalg.norm(u) ** 2 * projection, rtol=1e-10)
    assert not torch.allclose(found, projection, rtol=0.5)


def test_both_frameworks_give_one_gradient(jax: Any, torch: Any) -> None:
    spec = InvertibleSpec(unit="affine tanh", residual="conv", side=2, layers=2, seed=2)
    (ours, mine), (theirs, other) = (run(f, "moonwalk_mixed", spec) for f in ("jax", "torch"))
    assert ours == pytest.approx(theirs, rel=1e-13)
    assert all(mine[name] == pytest.approx(other[name], rel=1e-9, abs=1e-12) for name in mine)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("moonwalk", {"tangents": 0}, "tangents must be an integer of at least 1, not 0"),
        ("forward", {"tangents": 1.5}, r"tangents must be an integer of at least 1, not 1\.5"),
        ("moonwalk_mixed", {"vijp": "exact"}, "vijp must be closed, inverse or solve, not 'exact'"),
        ("projected_forward", {"seed": -1}, "seed must be an integer of at least 0, not -1"),
    ],
)
def test_an_illegal_option_is_refused_with_the_legal_values(
    method: str, options: dict[str, Any], message: str, framework: str
) -> None:
    with pytest.raises(IllegalOption, match=message):
        run(framework, method, InvertibleSpec(), **options)


def test_the_network_of_figure_2_has_its_parameters_and_mixed_its_work(jax: Any) -> None:
    assert paper.parameters("cpu") == pytest.approx(100, abs=0.5)
    assert paper.work_ratio("moonwalk_mixed", "backprop", 18, 10) == pytest.approx(5 / 3, rel=0.02)
    assert paper.work_ratio("reversible", "backprop", 18, 10) == pytest.approx(4 / 3, rel=0.02)


def test_a_training_by_mixed_moonwalk_learns_and_its_error_is_recorded(jax: Any) -> None:
    found = curves(41, layers=1)
    assert found["step"] == [0, 20, 40]
    assert found["accuracy_moonwalk_mixed"][-1] > found["accuracy_moonwalk_mixed"][0]
    assert all(0 < error < 1e-2 for error in found["error_moonwalk_mixed"])
    assert max(found["error_backprop"]) < 1e-6


def test_phases_agree_on_the_inputs_gradient(framework: str) -> None:
    from importlib import import_module

    methods = import_module(f"gradgate.references.invertible.in_{framework}.methods")
    with precision(framework, "float64"):
        problem = InvertibleSpec(unit="additive tanh", batch=3).build(framework)
        forward, (reverse, _) = methods.input_gradient_forward(problem, 3), methods.input_gradient_reverse(problem)
    assert to_numpy(forward) == pytest.approx(to_numpy(reverse), rel=1e-11, abs=1e-14)
