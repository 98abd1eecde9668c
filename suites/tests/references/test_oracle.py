"""The oracles: compared with each other, and with theorems of calculus."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.backends import UNIT_ROUNDOFF, leaves, to_numpy, tree_map
from gradgate.references.contract import Spec
from gradgate.references.registry import spec_class
from gradgate.references.taylor import remainder
from gradgate.suites.engine.strategies import edge_specs
from gradgate.suites.exact import truth
from gradgate.suites.judging.tolerance import compare, informs

StateSpace = spec_class("state_space")
SHAPES = edge_specs(registry.family("state_space"), None, seed=1)
LONG_ENOUGH = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps


@pytest.mark.parametrize("spec", SHAPES[::4], ids=lambda spec: f"shape{SHAPES.index(spec)}")
def test_jax_and_pytorch_agree(spec: Spec, jax: Any, torch: Any) -> None:
    ours, theirs = (truth.reference(spec, backend, "float64") for backend in ("jax", "torch"))
    assert ours.grads.keys() == theirs.grads.keys()
    assert ours.loss == pytest.approx(theirs.loss, rel=1e-13)
    noise = {name: max(ours.noise[name], theirs.noise[name]) for name in ours.noise}
    assert compare(theirs.grads, dataclasses.replace(ours, noise=noise), "float64").equal


@pytest.mark.skipif(not LONG_ENOUGH, reason="longdouble has no more digits than float64 on this platform")
class TestTaylor:
    SPEC = StateSpace(length=3, seed=4)

    def test_a_gradient_has_slope_two(self, framework: str) -> None:
        _, grads = oracle.gradient(self.SPEC.build(framework))
        found = remainder(self.SPEC, grads)
        assert found.slope == pytest.approx(2.0, abs=0.01)
        assert all(np.isfinite(found.remainders))

    @pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-5])
    def test_a_wrong_gradient_has_slope_one(self, size: float, torch: Any) -> None:
        _, grads = oracle.gradient(self.SPEC.build("torch"))
        wrong = {**grads, "head": grads["head"] * (1 + size)}
        assert remainder(self.SPEC, wrong).slope == pytest.approx(1.0, abs=0.2)

    def test_a_gradient_that_lacks_one_layer_has_slope_one(self, torch: Any) -> None:
        _, grads = oracle.gradient(self.SPEC.build("torch"))
        layers = tree_map(lambda leaf: torch.cat([0 * leaf[:1], leaf[1:]]), grads["layers"])
        assert remainder(self.SPEC, {**grads, "layers": layers}).slope == pytest.approx(1.0, abs=0.2)

    def test_every_direction_gives_the_same_slope(self, torch: Any) -> None:
        _, grads = oracle.gradient(self.SPEC.build("torch"))
        slopes = [remainder(self.SPEC, grads, seed).slope for seed in range(3)]
        assert slopes == pytest.approx([2.0] * 3, abs=0.02)
        assert len(set(slopes)) == 3


def test_the_hessian_is_symmetric(framework: str) -> None:
    problem = StateSpace(length=3, seed=5).build(framework)
    u, v = (oracle.random_direction(problem, seed) for seed in (1, 2))

    def product(one: Any, other: Any) -> float:
        _, hessian_one = oracle.gradient(problem, vector=one)
        pairs = zip(leaves(hessian_one), leaves(other), strict=True)
        return sum(float(np.sum(to_numpy(a) * to_numpy(b))) for a, b in pairs)

    assert product(u, v) == pytest.approx(product(v, u), rel=1e-10)
    assert product(u, u) != pytest.approx(product(u, v))


def test_hessian_times_vector_is_the_derivative_of_the_gradient(torch: Any) -> None:
    problem = StateSpace(length=3, seed=5).build("torch")
    v, step = oracle.random_direction(problem, 1), 1e-5
    _, exact = oracle.gradient(problem, vector=v)

    def moved(sign: float) -> dict[str, Any]:
        other = problem.with_params(tree_map(lambda p, d: p + sign * step * d, problem.params, v))
        return oracle.split(problem, oracle.gradient(other)[1])

    ahead, behind = moved(1), moved(-1)
    for name, leaf in oracle.split(problem, exact).items():
        assert np.allclose((ahead[name] - behind[name]) / (2 * step), leaf, rtol=1e-5, atol=1e-7), name


@pytest.mark.parametrize("structure", ["diagonal", "scalar", "unstructured"])
def test_the_cut_loss_has_the_value_of_the_loss_and_another_gradient(structure: str, torch: Any) -> None:
    spec = StateSpace(structure=structure, length=6, seed=2, decay=3.0)
    whole = truth.reference(spec, "torch", "float64")
    cut = truth.reference(spec, "torch", "float64", "cut_loss", window=2)
    assert cut.loss == pytest.approx(whole.loss, rel=1e-14)
    assert not compare(cut.grads, whole, "float64", kappa=1e6).equal
    assert compare({"head": cut.grads["head"]}, whole, "float64").equal


@pytest.mark.parametrize("window", [6, 7, 100])
def test_a_window_that_covers_the_sequence_cuts_nothing(window: int, torch: Any) -> None:
    spec = StateSpace(length=6, seed=2)
    whole = truth.reference(spec, "torch", "float64")
    cut = truth.reference(spec, "torch", "float64", "cut_loss", window=window)
    assert compare(cut.grads, whole, "float64").equal


def test_a_window_of_one_leaves_no_path_through_earlier_states(torch: Any) -> None:
    # With T̄ = 1 the state h^{t-1} is a constant of l^t, so A enters only through one product, A^t h^{t-1}.
    spec = StateSpace(length=4, layers=1, norm="none", seed=3)
    problem = spec.build("torch")
    p = {net: {k: leaf[0] for k, leaf in problem.params["layers"][net].items()} for net in "ABC"}
    _, cut = oracle.gradient(problem, "cut_loss", window=1)
    with torch.no_grad():
        x = problem.embed(problem.params["embedding"], problem.data["tokens"])
        states = problem._states(problem.A(p, x), (problem.B(p, x) @ x[..., None])[..., 0])
        before = torch.cat([torch.zeros_like(states[:1]), states[:-1]])

    def one_step(a: Any) -> Any:
        h = problem.A({"A": a}, x) * before + (problem.B(p, x) @ x[..., None])[..., 0]
        y = x + (problem.C(p, x) @ h[..., None])[..., 0]
        return problem.token_loss(problem.params["head"], y, problem.data["targets"], problem.data["upstream"])

    by_hand = torch.func.grad(one_step)(p["A"])
    for name, leaf in by_hand.items():
        assert torch.allclose(cut["layers"]["A"][name][0], leaf, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_noise_is_positive_finite_and_of_the_size_of_a_few_roundings(dtype: str, torch: Any) -> None:
    ref, u = truth.reference(StateSpace(length=5, seed=1), "torch", dtype), UNIT_ROUNDOFF[dtype]
    assert ref.noise.keys() == {"", *ref.grads}
    for name, leaf in ref.grads.items():
        assert 0 < ref.noise[name] < 1e4 * u * np.linalg.norm(leaf), name
    assert 0 < ref.noise[""] < 1e3 * u * abs(ref.loss)


def test_the_noise_predicts_how_far_float32_backprop_strays(framework: str) -> None:
    for seed in range(3):
        spec = StateSpace(seed=seed)
        ref = truth.reference(spec, framework, "float32")
        narrow = dataclasses.replace(spec, dtype="float32").build(framework)
        for name, leaf in oracle.split(narrow, oracle.gradient(narrow)[1]).items():
            floor = 4 * UNIT_ROUNDOFF["float32"] * float(np.linalg.norm(leaf))
            strayed = float(np.linalg.norm(leaf - ref.grads[name]))
            assert strayed <= max(ref.noise[name], floor) * 4, (seed, name)


def test_the_same_spec_gives_the_same_reference_bit_for_bit(framework: str) -> None:
    one, two = (truth.reference(StateSpace(seed=7), framework, "float32") for _ in range(2))
    assert (one.loss, one.noise) == (two.loss, two.noise)
    assert {k: v.tobytes() for k, v in one.grads.items()} == {k: v.tobytes() for k, v in two.grads.items()}


@pytest.mark.parametrize("family", registry.families())
def test_the_samples_of_each_dtype_are_computed_in_it(family: str, framework: str) -> None:
    shapes = registry.family(family).shapes
    spec = spec_class(family)(**shapes[len(shapes) // 2])
    wide, rough = (oracle._sample(spec.build(framework), dtype, "loss", None, {}) for dtype in ("float64", "float32"))
    narrow = dataclasses.replace(spec, dtype="float32").build(framework)
    value, grads = oracle.gradient(narrow)
    plain = np.concatenate([np.ravel(to_numpy(leaf)) for leaf in (value, *leaves(grads))])
    assert not np.array_equal(wide[0], wide[0].astype(np.float32))
    assert np.array_equal(rough[0], rough[0].astype(np.float32))
    strayed = np.abs(rough - wide).max(axis=0)
    assert (np.abs(rough[0] - plain) <= 16 * (strayed + UNIT_ROUNDOFF["float32"] * np.abs(plain))).all()


def test_where_a_loss_strays_by_more_than_half_of_the_digits_a_leaf_says_nothing(torch: Any) -> None:
    problem = spec_class("performer")(length=5, seed=1).build("torch")
    honest = oracle.measure(problem, "float64", rounding="loss_by_subtraction")
    whole = math.hypot(honest.loss, *(np.linalg.norm(leaf) for leaf in honest.grads.values()))
    most = whole * math.sqrt(UNIT_ROUNDOFF["float64"])
    assert max(honest.lost.values()) < 1e-3 * most

    class Wrong(type(problem)):  # type: ignore[misc]
        def loss_by_subtraction(self, params: Any, amount: Any) -> Any:
            return super().loss_by_subtraction(params, amount) * (1 + amount / 100)

    wrong = Wrong(problem.spec, "torch", problem.params, problem.data)
    found = oracle.measure(wrong, "float64", rounding="loss_by_subtraction")
    assert all(np.array_equal(found.grads[name], leaf) for name, leaf in honest.grads.items())
    assert all(far <= most or math.isinf(far) for far in found.lost.values())
    lost = [name for name, far in found.lost.items() if math.isinf(far)]
    assert lost
    assert found.noise == honest.noise
    doubled = {name: 2 * leaf for name, leaf in honest.grads.items()}
    compared = compare(doubled, found, "float64", 32.0)
    assert not set(compared.wrong) & set(lost)
    assert not any(informs(compared.leaves[name][1], "float64") for name in lost if name)


def test_jitter_leaves_the_first_sample_alone_and_moves_the_rest_by_an_ulp_or_two(framework: str) -> None:
    problem = StateSpace(dtype="float32").build(framework)
    for sample, plain in zip(leaves(oracle.jittered(problem)), leaves(problem.params), strict=True):
        runs, exact = to_numpy(sample), to_numpy(plain)
        assert np.array_equal(runs[0], exact)
        assert (np.abs(runs - exact) <= 2 * np.spacing(np.abs(exact).astype(np.float32))).all()
        assert (runs[1:] != exact).any()


def test_stacked_leaves_are_judged_layer_by_layer(framework: str) -> None:
    problem = StateSpace(layers=3).build(framework)
    names = oracle.split(problem, problem.params)
    assert {name.partition(".")[0] for name in names} == {"embedding", "head", "layers[0]", "layers[1]", "layers[2]"}
    assert np.array_equal(names["layers[2].A.w0"], to_numpy(problem.params["layers"]["A"]["w0"])[2])


def test_bfloat16_is_compared_with_the_exact_gradient_of_the_rounded_problem(torch: Any) -> None:
    spec = StateSpace(dtype="bfloat16", seed=2)
    ref, other = (truth.reference(spec, "torch", dtype) for dtype in ("bfloat16", "float64"))
    assert any(not np.array_equal(leaf, other.grads[name]) for name, leaf in ref.grads.items())
    problem = spec.build("torch")
    assert compare(oracle.split(problem, oracle.gradient(problem)[1]), ref, "bfloat16").equal
