"""The invertible problem: its layers and their inverses, convolution, refusals and files."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradgate.references import oracle, registry
from gradgate.references.backends import precision, to_numpy
from gradgate.references.contract import UsageError
from gradgate.references.invertible.layers import LAYERS, Layer, vijp_by_solve, vijp_of_inverse
from gradgate.references.invertible.paper.training import cifar10, examples
from gradgate.references.invertible.problem import InvertibleSpec
from gradgate.references.invertible.refusal import NotInvertible, check_invertible, check_vijp
from gradgate.references.invertible.residual import convolve, product_of_patches
from gradgate.suites.engine.strategies import edge_specs
from gradgate.suites.exact import truth

EDGES = edge_specs(registry.family("invertible"), None, seed=3)
WITH_INVERSE = [spec for spec in EDGES if not spec.submersive]  # type: ignore[attr-defined]


def wide(spec: InvertibleSpec) -> Any:
    """The NumPy problem in extended precision."""
    return dataclasses.replace(spec, dtype="longdouble").build("numpy")


@pytest.mark.parametrize("spec", EDGES, ids=lambda spec: f"{spec.unit}-{spec.residual}-{spec.norm}")
def test_the_loss_is_the_same_in_numpy_and_pytorch(spec: Any, torch: Any) -> None:
    exact, problem = wide(spec), spec.build("torch")
    assert float(problem.loss(problem.params)) == pytest.approx(float(exact.loss(exact.params)), rel=1e-12)


def test_the_loss_is_the_same_in_jax(jax: Any) -> None:
    spec = EDGES[6]
    exact = wide(spec)
    with precision("jax", "float64"):
        problem = spec.build("jax")
        assert float(problem.loss(problem.params)) == pytest.approx(float(exact.loss(exact.params)), rel=1e-12)


@pytest.mark.parametrize("spec", WITH_INVERSE, ids=lambda spec: f"{spec.unit}-{spec.residual}-{spec.norm}")
def test_the_inverses_give_the_input_back_through_the_whole_chain(spec: Any) -> None:
    problem = spec.build("numpy")
    chain, x = problem.chain(problem.params), problem.x
    for layer, p in chain:
        x = layer(p, x)
    assert np.allclose(x, problem.body(problem.params, problem.x), rtol=1e-14)
    for layer, p in reversed(chain):
        x = layer.inverse(p, x)
    assert np.allclose(x, problem.x, rtol=1e-9)


OTHER_WAYS = [("loss", spec) for spec in EDGES if spec.residual == "conv"]  # type: ignore[attr-defined]
OTHER_WAYS += [(loss, spec) for loss in ("loss_by_reversing", "loss_by_vijp") for spec in EDGES]


@pytest.mark.parametrize(("loss", "spec"), OTHER_WAYS, ids=lambda it: it if isinstance(it, str) else it.unit)
def test_the_loss_computed_another_way_differs_by_rounding_only(loss: str, spec: Any, framework: str) -> None:
    found = truth.reference(spec, framework, "float64", rounding="" if loss == "loss" else loss)
    with precision(framework, spec.dtype):
        plain = spec.build(framework)
        value, grads = oracle.gradient(plain)
    assert found.loss == pytest.approx(float(value), rel=1e-12)
    for name, leaf in oracle.split(plain, grads).items():
        assert found.grads[name] == pytest.approx(leaf, rel=1e-9, abs=1e-12)
        assert (found.lost or found.noise)[name] < 1e-9


def test_convolutions_are_rerounded_as_products_of_patches() -> None:
    kinds = {spec.residual: spec.build("numpy").rerounded(0.5).spec.residual for spec in EDGES}  # type: ignore[attr-defined]
    assert kinds == {"dense": "dense", "conv": "patches"}


@pytest.mark.parametrize("loss", ["loss_by_reversing", "loss_by_vijp"])
def test_what_a_flat_tanh_loses_is_noise_of_the_loss_that_goes_back_through_it(loss: str, framework: str) -> None:
    spec = InvertibleSpec(unit="dense additive tanh", layers=3, channels=4, batch=3, spread=3.0, seed=4)
    found = truth.reference(spec, framework, "float64", rounding=loss)
    more = {name: found.lost[name] / found.noise[name] for name in found.noise}
    assert max(more.values()) > 20
    assert more["head.b"] < 10


def test_a_submersive_layers_vijp_is_the_right_inverse_of_its_jacobian(torch: Any) -> None:
    problem = InvertibleSpec(side=2, channels=2, submersive=3, seed=1).build("torch")
    layer, p = problem.chain(problem.params)[-1]
    x, h = torch.randn(2, 1, 1, 8, dtype=torch.float64), torch.randn(2, 1, 1, 5, dtype=torch.float64)
    y, pull = torch.func.vjp(lambda x: layer(p, x), x)
    below = pull(h)[0]
    assert y.shape == h.shape
    assert torch.allclose(layer.advance(torch.func.vjp, p, x, below)[1], h, rtol=1e-12)
    assert torch.allclose(vijp_by_solve(torch.func.vmap, torch.func.vjp, layer, p, x, below), h, rtol=1e-12)
    gram = p["w"].T @ p["w"]
    assert torch.allclose(torch.linalg.solve(gram, (below @ p["w"]).reshape(2, 5).T).T.reshape(h.shape), h, rtol=1e-10)


@pytest.mark.parametrize("word", [*LAYERS, "ψ"])
def test_vijp_in_closed_form_of_the_inverse_and_by_a_solve_agree(word: str, torch: Any) -> None:
    unit = "additive" if word in ("ψ", "tanh", "leaky_relu") else ""
    spec = InvertibleSpec(unit=f"{unit} {'' if word == 'ψ' else word}", side=2, channels=3, layers=1, seed=1)
    problem = spec.build("torch")
    layer, p = problem.chain(problem.params)[-1 if word == "ψ" else -2]
    x, h = torch.randn(2, 2, 2, 3, dtype=torch.float64), torch.randn(2, 2, 2, 3, dtype=torch.float64)
    vjp = torch.func.vjp
    y, closed, _ = layer.advance(vjp, p, x, h)
    h = h.reshape(y.shape) if word != "ψ" else h
    assert torch.allclose(vijp_of_inverse(vjp, layer, p, x, h), closed, rtol=1e-9)
    assert torch.allclose(vijp_by_solve(torch.func.vmap, vjp, layer, p, x, h), closed, rtol=1e-9)
    back, h_back, _ = layer.retreat(vjp, p, y, closed)
    assert torch.allclose(back, x, rtol=1e-9)
    assert torch.allclose(h_back, h, rtol=1e-9)


def test_a_coupling_lets_the_halves_change_places() -> None:
    problem = InvertibleSpec(channels=5, layers=1).build("numpy")
    y = problem.body(problem.params, problem.x)
    assert np.array_equal(y[..., 3:], problem.x[..., :2])
    assert not np.allclose(y[..., :3], problem.x[..., 2:])


def test_down_sampling_moves_squares_into_channels() -> None:
    problem = InvertibleSpec(side=4, channels=2, batch=1).build("numpy")
    layer = problem.layers[-1]
    y = layer({}, problem.x)
    assert y.shape == (1, 2, 2, 8)
    assert np.array_equal(y[0, 1, 0].reshape(2, 2, 2), problem.x[0, 2:4, 0:2])


@pytest.mark.parametrize("side", [1, 2, 5])
def test_the_frameworks_convolutions_are_products_of_patches(side: int, framework: str) -> None:
    rng = np.random.default_rng(side)
    x, w = rng.standard_normal((2, side, side, 3)), rng.standard_normal((3, 3, 3, 4))
    with precision(framework, "float64"):
        from gradgate.references.backends import to_backend

        ours = convolve(framework, to_backend(framework, x, "float64"), to_backend(framework, w, "float64"))
    assert np.allclose(to_numpy(ours), product_of_patches(np, x, w), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"unit": "additive relu"}, r"block0\.1_relu: relu is not invertible: .*legal instead: leaky_relu"),
        ({"unit": "pool additive"}, r"block0\.0_pool: pool is not invertible: .*surjective.*"),
        ({"unit": "additive pad"}, r"block0\.1_pad: pad is not invertible: .*injective.*"),
        ({"unit": "additiv"}, "unknown layer 'additiv'; legal: .*nearest: additive"),
        ({"channels": 1}, r"block0\.0_additive: a coupling needs at least 2 channels to split, not 1"),
        ({"unit": "tanh"}, "unit must have a layer with parameters, .*'tanh' has none"),
        ({"side": 6, "blocks": 2}, r"side must be 1 or divisible by 2\^blocks = 4, not 6"),
        ({"spread": 0.0}, r"spread must be positive, not 0\.0"),
        ({"submersive": -1}, "submersive must be at least 0, not -1"),
        ({"submersive": 4}, "submersive0: of 4 channels 4 cannot be taken away"),
        ({"submersive": 3, "blocks": 2}, r"block1\.0_additive: a coupling needs at least 2 channels to split, not 1"),
        ({"norm": "layer"}, "unknown norm 'layer'; legal: batch, none.*"),
    ],
)
def test_an_impossible_spec_is_refused_and_the_layer_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        InvertibleSpec(**fields)
    assert re.fullmatch(message, str(caught.value)), caught.value


def test_a_singular_matrix_is_refused_by_its_layers_name(framework: str) -> None:
    with precision(framework, "float64"):
        problem = InvertibleSpec(unit="tanh dense", channels=3).build(framework)
        block = problem.params["block0"]
        flat = {"w": 0 * block["1_dense"]["w"], "b": block["1_dense"]["b"]}
        dead = problem.with_params({**problem.params, "block0": {**block, "1_dense": flat}})
        assert check_invertible(problem) < 1e-12
        with pytest.raises(NotInvertible, match=r"block0\[0\]\.1_dense cannot be inverted"):
            check_invertible(dead)


def test_a_singular_jacobian_is_refused_to_moonwalk_by_its_layers_name(framework: str) -> None:
    with precision(framework, "float64"):
        problem = InvertibleSpec(unit="tanh dense", channels=3, submersive=1).build(framework)
        assert check_vijp(problem) < 1e-12
        wide = problem.params["submersive0"]
        dead = problem.with_params({**problem.params, "submersive0": {"w": 0 * wide["w"] + 1, "b": wide["b"]}})
        with pytest.raises(NotInvertible, match="submersive0"):
            check_vijp(dead)
        with pytest.raises(NotInvertible, match="submersive0 has no inverse: from 3 channels it makes 2"):
            check_invertible(problem)


def test_an_inaccurate_vijp_is_refused_with_its_error(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = InvertibleSpec().build(framework)
    layer = type(problem.layers[0])
    right = layer.advance

    def off(self: Any, *given: Any) -> Any:
        y, h, dp = right(self, *given)
        return y, h * (1 + 1e-5), dp

    monkeypatch.setattr(layer, "advance", off)
    with pytest.raises(NotInvertible, match=r"block0\[0\]\.0_additive: its vijp is off by 1e-05; at most 1e-08 is"):
        check_vijp(problem)


def test_vijp_is_not_checked_in_numpy_which_has_no_vjp() -> None:
    with pytest.raises(UsageError, match="NumPy has no VJP"):
        check_vijp(InvertibleSpec().build("numpy"))


def test_a_saturated_tanh_is_refused_by_its_layers_name() -> None:
    problem = InvertibleSpec(unit="dense tanh", channels=2, spread=60.0).build("numpy")
    with pytest.raises(NotInvertible, match=r"block0\[0\]\.1_tanh cannot be inverted here: .*saturated"):
        check_invertible(problem)


def test_an_inaccurate_inverse_is_refused_with_its_error(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = InvertibleSpec().build(framework)
    layer = type(problem.layers[0])
    right = layer.inverse
    monkeypatch.setattr(layer, "inverse", lambda self, p, y: right(self, p, y) * (1 + 1e-5))
    with pytest.raises(NotInvertible, match=r"block0\[0\]\.0_additive: its inverse is off by 1e-05; at most 1e-08 is"):
        check_invertible(problem)


def test_wrong_shapes_are_refused_by_every_method(framework: str) -> None:
    problem = InvertibleSpec().build(framework)
    wrong = problem.with_params(
        {**problem.params, "head": {**problem.params["head"], "b": problem.params["head"]["w"]}}
    )
    for declared in registry.methods("invertible", None, framework):
        with pytest.raises(UsageError, match=r"head\.b has shape \(4, 3\); expected \(3,\)"):
            registry.load(declared.implementation)(wrong)


def test_a_layer_without_a_rule_says_so() -> None:
    with pytest.raises(NotImplementedError):
        Layer("mine", "numpy", InvertibleSpec().block_shape(0)).inverse({}, np.zeros(1))


def test_cifar10_is_read_from_its_binary_files_and_padded(tmp_path: Path) -> None:
    image = np.arange(3072, dtype=np.uint16).astype(np.uint8)
    (tmp_path / "test_batch.bin").write_bytes(bytes([7]) + image.tobytes())
    x, classes = cifar10(tmp_path, "test", channels=8)
    assert x.shape == (1, 32, 32, 8)
    assert classes.tolist() == [7]
    assert x[0, 3, 4, 1] == image[1024 + 3 * 32 + 4] / np.float32(255)
    assert not x[..., 3:].any()
    with pytest.raises(UsageError, match=r"cannot read .*data_batch_1\.bin"):
        cifar10(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(b"abc")
    with pytest.raises(UsageError, match=r"has 3 bytes; CIFAR-10's files are records of 3,073 bytes"):
        cifar10(tmp_path, "test")


def test_generated_images_differ_by_class() -> None:
    x, classes = examples(InvertibleSpec(side=4, channels=2), 60)
    assert x.shape == (60, 4, 4, 2)
    means = [x[classes == c].mean(0) for c in range(3)]
    assert np.linalg.norm(means[0] - means[1]) > 2
