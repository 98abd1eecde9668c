"""The Chinchilla-like decoder: rotary positions, causal masking, agreement of three backends, the sizes of Table 6."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gradgate.references.backends import leaves, named_leaves, namespace, precision, to_backend, to_numpy, tree_map
from gradgate.references.bilevel.inner import transformer
from gradgate.references.contract import Spec
from gradgate.references.draws import draw

SMALL = {"width": 16, "ffw": 24, "heads": 2, "key_size": 6, "layers": 3, "vocabulary": 13}
LENGTH = 7


def tokens(seed: int = 0) -> Any:
    """Tokens of the small vocabulary, of shape (2, LENGTH)."""
    return np.random.default_rng(seed).integers(0, SMALL["vocabulary"], (2, LENGTH)).astype(np.int32)


def theta(backend: Any = "numpy", dtype: str = "longdouble") -> Any:
    """Random parameters of the small model."""
    return draw(transformer.draws(**SMALL), Spec(dtype=dtype), backend)


def losses(backend: Any, dtype: str = "float64", **options: Any) -> Any:
    """Cross-entropies of shape (2, LENGTH), as a NumPy array."""
    with precision(backend, dtype):
        arrays = [to_backend(backend, tokens(seed)) for seed in (0, 1)]
        return to_numpy(transformer.token_losses(backend, theta(backend, dtype), *arrays, **options))


def test_a_rotary_product_depends_on_the_distance_alone() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 8))
    turns = transformer.rotations(np, 40, 8, np.float64)
    turned = [transformer.rotate(np, np.broadcast_to(x, (40, 8)), turns) for x in (q, k)]
    products = turned[0] @ turned[1].T
    for distance in (0, 3, 17):
        assert np.ptp(np.diag(products, -distance)) < 1e-12
    assert products[0, 0] == pytest.approx(q @ k)
    assert np.ptp(products) > 0.1


def test_a_rotation_keeps_lengths_and_turns_by_the_angle_of_the_paper() -> None:
    pair = np.zeros((3, 4))
    pair[:, 1] = 1.0  # the second pair is rotated by 10000^(-1/2) per position
    turned = transformer.rotate(np, pair, transformer.rotations(np, 3, 4, np.float64))
    assert turned[2] == pytest.approx([0.0, math.cos(0.02), 0.0, math.sin(0.02)])


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_frameworks_agree_with_extended_precision(backend: str, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(backend)
    assert losses(backend) == pytest.approx(np.asarray(losses("numpy", "longdouble"), float), rel=1e-13)


def test_bfloat16_tells_far_positions_apart(torch: Any) -> None:
    cosines, sines = transformer.rotations(namespace("torch"), 1026, 2, torch.bfloat16)
    angle = np.arange(1024, 1026)
    assert cosines.dtype == torch.bfloat16
    assert to_numpy(cosines)[1024:, 0] == pytest.approx(np.cos(angle), abs=4e-3)
    assert to_numpy(sines)[1024:, 0] == pytest.approx(np.sin(angle), abs=4e-3)


def test_a_position_sees_no_later_token() -> None:
    first = tokens()
    second = first.copy()
    second[:, 4] = (second[:, 4] + 1) % SMALL["vocabulary"]
    before, after = (transformer.outputs("numpy", theta(), each) for each in (first, second))
    assert np.array_equal(before[:, :4], after[:, :4])
    assert np.abs(before - after)[:, 4:].max(axis=(0, 2)).min() > 1e-6


def test_a_loss_is_minus_the_log_probability_of_its_target() -> None:
    logits = np.asarray(transformer.outputs("numpy", theta(), tokens()), dtype=np.longdouble)
    probability = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = -np.log(np.take_along_axis(probability, tokens(1)[..., None].astype(int), axis=-1)[..., 0])
    assert np.allclose(losses("numpy", "longdouble"), expected, rtol=1e-15)


def test_the_block_is_wrapped_once_and_gives_the_same_numbers(jax: Any) -> None:
    wrapped = []

    def block(layer: Any) -> Any:
        wrapped.append(layer)
        return jax.checkpoint(layer)

    assert np.array_equal(losses("jax", block=block), losses("jax"))
    assert len(wrapped) == 1


def test_attention_as_the_library_writes_it_gives_the_same_losses(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradgate.references.bilevel.paper.listings import library_attention

    ours = losses("jax")
    monkeypatch.setattr(transformer, "attention", library_attention)
    assert losses("jax") == pytest.approx(ours, rel=1e-13)


def test_every_parameter_has_a_gradient(torch: Any) -> None:
    parameters = tree_map(lambda leaf: leaf.requires_grad_(), theta("torch", "float64"))
    arrays = [torch.asarray(tokens(seed)) for seed in (0, 1)]
    transformer.token_losses("torch", parameters, *arrays).sum().backward()
    assert all(float(leaf.grad.abs().min()) > 0 for leaf in leaves(parameters["layers"]))


def test_numbers_of_table_6_are_those_of_their_rows() -> None:
    assert len(transformer.SIZES) == 22
    for millions, size in transformer.SIZES.items():
        relative = size.layers * size.width * size.heads * size.key_size
        assert (size.parameters() + relative) / 1e6 == pytest.approx(millions, rel=0.01), millions


def test_the_count_of_parameters_is_that_of_the_draws() -> None:
    size = transformer.Size(0, SMALL["width"], SMALL["ffw"], SMALL["key_size"], SMALL["heads"], SMALL["layers"])
    counted = sum(math.prod(leaf.shape) for leaf in named_leaves(transformer.draws(**SMALL)).values())
    assert size.parameters(SMALL["vocabulary"]) == counted
