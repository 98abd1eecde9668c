"""Bilevel methods, beyond their claims: large steps, what inversion loses, how states are kept, errata."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.backends import leaves, precision, to_backend, to_numpy, tree_map
from gradgate.references.bilevel import MEASURED
from gradgate.references.bilevel import claims as promises
from gradgate.references.bilevel.problem import BilevelSpec
from gradgate.references.contract import IllegalOption, NotComposable, UsageError
from gradgate.references.oracle import split
from gradgate.references.registry import load
from gradgate.suites.checks import quantities, sweeps
from gradgate.suites.judging.subject import Refuted, Subject
from gradgate.suites.tests.references import gradients

EXACT = ("truncated_bptt", "mixflow", "reverse_over_forward", "log_remat")


run = functools.partial(gradients.run, "bilevel")
worst = functools.partial(gradients.worst, "bilevel")


@pytest.mark.parametrize("task", ["maml", "learning_lr", "loss_weighting"])
@pytest.mark.parametrize("model", ["toy", "mlp", "transformer"])
@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_mixed_mode_is_exact_for_every_task_model_and_optimiser(
    task: str, model: str, optimiser: str, torch: Any
) -> None:
    spec = BilevelSpec(task=task, model=model, optimiser=optimiser, width=2, ffw=2, layers=1, seed=3)
    assert worst("torch", "mixflow", spec, remat=True, save_inner_grads=True) < 16


@pytest.mark.parametrize("method", ["mixflow", "log_remat"])
def test_the_noise_knows_what_backprop_cancels_by_luck(method: str, jax: Any) -> None:
    """One problem of 9,000: a query's gradient is only the rounding error of a token that attends to itself alone."""
    spec = BilevelSpec(
        dtype="float32",
        model="transformer",
        optimiser="sgd",
        steps=2,
        layers=1,
        width=2,
        ffw=2,
        sequence=2,
        learning_rate=0.02973,
        scale=0.4305,
        seed=2157561568,
    )
    assert worst("jax", method, spec) < 4


@pytest.mark.parametrize("task", ["maml", "loss_weighting"])
@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_rerounded_problem_has_the_same_gradient_up_to_rounding(
    framework: str, task: str, torch: Any, jax: Any
) -> None:
    spec = BilevelSpec(task=task, model="transformer", optimiser="sgd", width=2, ffw=2, layers=1, seed=3)
    with precision(framework, spec.dtype):
        plain = spec.build(framework)  # type: ignore[arg-type]
        other = plain.rerounded(to_backend(framework, np.asarray(0.40625), spec.dtype))
        (loss, one), (same, two) = (oracle.gradient(problem) for problem in (plain, other))
    assert float(loss) == pytest.approx(float(same), rel=1e-14)
    mine, theirs = split(plain, one), split(other, two)
    assert all(mine[name] == pytest.approx(theirs[name], rel=1e-9, abs=1e-13) for name in mine)
    assert any((mine[name] != theirs[name]).any() for name in mine)


def test_in_the_papers_setting_both_frameworks_give_one_gradient(jax: Any, torch: Any) -> None:
    spec = BilevelSpec(model="transformer", optimiser="adam", width=2, ffw=2, layers=1, sequence=2, seed=3)
    options = {"remat": True, "save_inner_grads": True}
    (ours, mine), (theirs, other) = (run(f, "mixflow", spec, **options) for f in ("jax", "torch"))
    assert ours == pytest.approx(theirs, rel=1e-13)
    assert mine.keys() == other.keys()
    assert all(mine[name] == pytest.approx(other[name], rel=1e-9, abs=1e-12) for name in mine)


@pytest.mark.parametrize("method", EXACT)
def test_a_method_is_exact_over_many_steps(method: str, torch: Any) -> None:
    assert worst("torch", method, BilevelSpec(steps=11, optimiser="adam", layers=1, width=2, seed=4)) < 16


@pytest.mark.parametrize("steps", [1, 6, 8])
def test_halving_covers_every_number_of_steps(steps: int, jax: Any) -> None:
    assert worst("jax", "log_remat", BilevelSpec(model="toy", steps=steps, width=1, batch=1, seed=5)) < 16


def test_momentum_taken_back_loses_its_digits_as_fast_as_is_said(torch: Any) -> None:
    def lost(momentum: float, steps: int) -> float:
        spec = BilevelSpec(optimiser="momentum", momentum=momentum, steps=steps, layers=1, width=2, seed=6)
        return worst("torch", "momentum_inversion", spec)

    assert lost(0.9, 32) < 1024
    assert 1e3 < lost(0.5, 24) < 2.0**26
    assert lost(0.3, 32) > 1e9


@pytest.mark.parametrize("method", ["truncated_bptt", "mixflow"])
def test_rematerialised_layers_can_be_vectorised_over_and_differentiated_again_in_pytorch(
    method: str, torch: Any
) -> None:
    problem = BilevelSpec(model="mlp", optimiser="momentum", seed=4).build("torch")
    run = load(f"gradgate.references.bilevel.in_torch.methods:{method}")

    def grads_of(params: Any, remat: bool) -> Any:
        return run(problem.with_params(params), remat=remat)[1]

    lanes = tree_map(lambda leaf: torch.stack([leaf, 2 * leaf]), problem.params)
    many = torch.func.vmap(lambda params: grads_of(params, True))(lanes)
    alone = grads_of(tree_map(lambda leaf: 2 * leaf, problem.params), False)
    further = [
        torch.func.vjp(functools.partial(grads_of, remat=remat), problem.params)[1](problem.params)[0]
        for remat in (True, False)
    ]
    for one, other in zip(leaves(tree_map(lambda leaf: leaf[1], many)), leaves(alone), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(*map(leaves, further), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("tree", [False, True])
def test_a_rematerialised_layer_of_tensors_or_trees_keeps_its_inputs_alone(torch: Any, tree: bool) -> None:
    from gradgate.hw_profiles import residuals
    from gradgate.references.bilevel.in_torch.remat import remat

    x, w = torch.randn(4, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)

    def layer(x: Any, given: Any) -> Any:
        return torch.exp(x @ (given["w"] if tree else given)).sin()

    inputs = (x, {"w": w} if tree else w)
    kept = [residuals.of_torch(lambda run=run: run(*inputs), [x, w]) for run in (remat(layer), layer)]
    assert kept == [0, x.nbytes], "without it, the exponentials are kept"
    grads = [torch.autograd.grad(run(*inputs).sum(), [x, w]) for run in (remat(layer), layer)]
    assert all(torch.equal(one, other) for one, other in zip(*grads, strict=True))


def test_rematerialised_layers_have_tangents_in_dual_numbers_of_pytorch(
    torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.autograd import forward_ad

    from gradgate.references.bilevel.in_torch import direct
    from gradgate.references.bilevel.in_torch.remat import remat

    x, slope = torch.tensor([0.3, -1.2], dtype=torch.float64, requires_grad=True), torch.tensor([2.0, 0.5]).double()

    def derivatives(layer: Any) -> tuple[Any, Any]:
        with forward_ad.dual_level():
            tangent = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, slope))).tangent
        return tangent, torch.autograd.grad(tangent.sum(), x)[0]

    for one, other in zip(derivatives(remat(torch.sin)), derivatives(torch.sin), strict=True):
        torch.testing.assert_close(one, other)
    monkeypatch.setattr(direct.forward_ad, "_set_fwd_grad_enabled", lambda _: contextlib.nullcontext())
    with pytest.raises(RuntimeError, match="not require grad"):  # a tangent of zeros
        derivatives(remat(torch.sin))


@pytest.mark.parametrize(
    ("method", "optimiser", "message"),
    [
        ("momentum_inversion", "sgd", "must be momentum, not sgd; use log_remat, which needs no inverse"),
        ("momentum_inversion", "adam", "must be momentum, not adam; use compensated_inversion, which takes Adam back"),
        ("buffered_inversion", "adam", "must be momentum, not adam; use compensated_inversion"),
        ("compensated_inversion", "sgd", "must be momentum or adam, whose step can be taken back, not sgd; use log"),
    ],
)
def test_an_optimiser_that_cannot_be_taken_back_is_refused(
    method: str, optimiser: str, message: str, framework: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(framework, method, BilevelSpec(optimiser=optimiser))


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("mixflow", {"remat": 1}, "remat must be True or False, not 1"),
        ("truncated_bptt", {"save_inner_grads": None}, "save_inner_grads must be True or False, not None"),
        ("bilevel_sharded", {"devices": 0}, "devices must be an integer of at least 1 and at most 6, not 0"),
        ("bilevel_sharded", {"devices": 4}, "devices must divide the batch of 6, which 4 does not"),
    ],
)
def test_an_illegal_option_is_refused_with_the_legal_values(
    method: str, options: dict[str, Any], message: str, framework: str
) -> None:
    with pytest.raises(IllegalOption) as caught:
        run(framework, method, BilevelSpec(batch=6), **options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "mmal"}, "unknown task 'mmal'; .*nearest: maml"),
        ({"steps": 0}, "steps must be at least 1, not 0"),
        ({"momentum": 1.0}, "momentum must lie between 0 and 1"),
        ({"model": "transformer", "key_size": 3}, "key_size must be even, since RoPE turns pairs of numbers, not 3"),
        ({"epsilon_root": -1.0}, "epsilon_root must be at least 0"),
    ],
)
def test_a_spec_that_builds_no_problem_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BilevelSpec(**fields)


def test_more_devices_than_jax_has_are_refused_with_how_to_get_them(jax: Any) -> None:
    with pytest.raises(IllegalOption, match="set JAX_NUM_CPU_DEVICES=64 before JAX starts"):
        run("jax", "bilevel_sharded", BilevelSpec(batch=64), devices=64)


def test_shared_out_to_processes_it_refuses_transforms(torch: Any) -> None:
    problem = BilevelSpec(model="toy").build("torch")
    method: Callable[..., Any] = load(registry.methods("bilevel", "bilevel_sharded", "torch")[0].implementation)
    with pytest.raises(NotComposable, match="use mixflow, or detach the parameters"):
        torch.func.grad(lambda p: method(problem.with_params(p), devices=2)[0])(problem.params)


def test_a_leaf_that_the_devices_do_not_divide_is_padded_and_cut_again(framework: str) -> None:
    spec = BilevelSpec(task="loss_weighting", model="toy", width=3, batch=2, layers=1, seed=7)
    assert worst(framework, "bilevel_sharded", spec, devices=2) < 16


def test_the_hessian_is_not_forgotten(framework: str) -> None:
    def first_order(problem: Any, **_: Any) -> Any:
        return problem.loss(problem.params), grads_at_the_end(problem)

    def grads_at_the_end(problem: Any) -> Any:
        import importlib

        grad = importlib.import_module("jax" if framework == "jax" else "torch.func").grad
        theta, state = problem.init(problem.params)
        for i in range(problem.spec.steps):
            x = tree_map(lambda leaf: leaf[i], problem.xs)  # noqa: B023 - called at once
            found = grad(lambda theta: problem.inner_loss(theta, problem.params, x))(theta)  # noqa: B023
            theta, state = problem.update(found, theta, state, problem.params, x)
        return grad(lambda theta: problem.outer_loss(theta, problem.y))(theta)

    assert worst(framework, first_order, BilevelSpec(model="toy", width=2, batch=1, layers=1, seed=8)) > 1e9


# The laws of memory and work in PyTorch: they can fail


def put_to(claim: str, method: str, function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge a law that `method` claims on another function. Refuted is raised if the law does not hold."""
    monkeypatch.setattr(quantities, "KNOWN", {})
    [declared] = registry.methods("bilevel", method, "torch")
    sweeps.growth(sweeps.Sweep(Subject(declared, function), declared.claim(claim)))


def test_mixed_mode_that_records_its_reverse_pass_is_refuted(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradgate.references.bilevel.in_torch import methods as torch_impl

    def recorded(function: Any, *primals: Any, has_aux: bool = False) -> Any:
        derived = torch.func.grad_and_value(function, argnums=tuple(range(len(primals))), has_aux=has_aux)
        grads, value = derived(*primals)
        return value, grads

    monkeypatch.setattr(torch_impl, "value_and_gradients", recorded)
    with pytest.raises(Refuted, match="claimed at least 3 times"):
        put_to("memory_law", "mixflow", torch_impl.mixflow, monkeypatch)


@pytest.mark.parametrize(
    ("claim", "method", "other", "said"),
    [
        ("memory_law", "momentum_inversion", "mixflow", r"claimed at most T\^0"),
        ("memory_law", "gradient_replay", "mixflow", "claimed at least 2.5 times"),
        ("work_law", "gradient_replay", "log_remat", r"claimed equal T\^1"),
    ],
)
def test_a_law_put_to_a_method_that_breaks_it_is_refuted(
    claim: str, method: str, other: str, said: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradgate.references.bilevel.in_torch import methods as torch_impl
    from gradgate.references.bilevel.in_torch import static as torch_static

    def stored(problem: Any, **_: Any) -> Any:
        return torch_impl.mixflow(problem, remat=True)

    function = torch_static.log_remat if other == "log_remat" else stored
    with pytest.raises(Refuted, match=said):
        put_to(claim, method, lambda problem, **_: function(problem), monkeypatch)


def test_halving_that_keeps_every_state_is_seen(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradgate.references.bilevel.in_torch import methods as torch_impl
    from gradgate.references.bilevel.in_torch import static as torch_static

    monkeypatch.setattr(torch_static, "log_remat", torch_impl.mixflow)
    assert promises.eager_log_remat_growth("cpu") > 300


# The listings


def raised(framework: str, function: Any, spec: BilevelSpec, **options: Any) -> type[BaseException]:
    """The type of the error that a listing raises."""
    with pytest.raises(Exception) as caught:  # the test checks the type
        run(framework, function, spec, **options)
    return caught.type


TOY = BilevelSpec(model="toy", width=2, layers=1, seed=9)
CLASSES = BilevelSpec(model="mlp", width=2, layers=1, seed=9)


def test_listing_1_is_right_on_floating_inputs_and_fails_on_classes(jax: Any) -> None:
    from gradgate.references.bilevel.paper.printed_jax import listing1_printed

    assert worst("jax", listing1_printed, TOY) < 16
    assert raised("jax", listing1_printed, CLASSES) is TypeError


def test_listing_1_has_no_further_derivative_and_ours_has(jax: Any) -> None:
    from gradgate.references.bilevel.in_jax.methods import mixflow
    from gradgate.references.bilevel.paper.printed_jax import listing1_printed

    def along(method: Any) -> Any:
        with precision("jax", "float64"):
            problem = TOY.build("jax")
            direction = tree_map(jax.numpy.ones_like, problem.params)
            return jax.jvp(lambda p: method(problem.with_params(p))[1], (problem.params,), (direction,))[1]

    with pytest.raises(TypeError, match="forward-mode"):
        along(listing1_printed)
    assert all(np.isfinite(to_numpy(leaf)).all() for leaf in leaves(along(mixflow)))


def test_listing_1_refuses_an_inner_loss_that_closes_over_eta(jax: Any) -> None:
    """Line 12 of Algorithm 2 calls it without η. With this reading, the mistake raises an error."""
    from gradgate.references.bilevel.paper.printed_jax import _listing1

    problem = TOY.build("jax")

    def outer(eta: Any) -> Any:
        gradient = _listing1(lambda theta: ((eta["weights"] * theta) ** 2).sum())
        return gradient(problem.params["weights"]).sum()

    with pytest.raises(jax.errors.UnexpectedTracerError):
        jax.grad(outer)(problem.params)


@pytest.mark.parametrize(
    ("mistake", "error"), [("name", UnboundLocalError), ("result", TypeError), ("unpacking", ValueError)]
)
def test_each_mistake_of_listing_3_ends_it(mistake: str, error: type[BaseException], jax: Any) -> None:
    from gradgate.references.bilevel.paper.printed_jax import listing3_printed

    assert raised("jax", listing3_printed, TOY, mistake=mistake) is error


def test_listing_2_names_what_is_not_there(torch: Any) -> None:
    from gradgate.references.bilevel.paper.printed_torch import listing2_printed

    assert raised("torch", listing2_printed, TOY, mistake="name") is NameError


def test_listing_2_forgets_the_hessian_where_parameters_are_a_tree_and_says_nothing(torch: Any) -> None:
    from gradgate.references.bilevel.paper.printed_torch import listing2_printed

    assert worst("torch", functools.partial(listing2_printed, mistake="trees"), TOY) > 1e9


def test_listing_2_is_right_on_floating_tensors_and_fails_on_classes(torch: Any) -> None:
    from gradgate.references.bilevel.paper.printed_torch import listing2_printed

    assert worst("torch", functools.partial(listing2_printed, mistake="integers"), TOY) < 16
    assert raised("torch", listing2_printed, CLASSES, mistake="integers") is RuntimeError


def test_what_is_measured_builds() -> None:
    assert BilevelSpec(**MEASURED).layout() is not None


def test_a_step_of_sgd_on_a_reversible_block_cannot_be_undone() -> None:
    """App. A.2, read as about updates: for the block y₁ = x₁ + w·x₂ and L = (y₁ − t)²/2, every w moves to one."""
    x1, x2, target, rate = 0.5, 1.0, 2.0, 1.0

    def step(w: float, rate: float) -> float:
        return w - rate * (x1 + w * x2 - target) * x2

    assert step(-3.0, rate) == step(7.0, rate) == target - x1
    assert step(-3.0, rate / 2) != step(7.0, rate / 2)
