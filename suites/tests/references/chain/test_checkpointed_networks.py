"""Networks of torchvision and transformers, as they are, train within 40% of the bytes that plain training needs."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest

torch = pytest.importorskip("torch")
SHARE, ASKED = 0.4, 0.36
"""Shares of the plain peak: the limit for training, and the budget that is requested."""
pytestmark = pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="without torchvision")


def trained(models: Any, model: Any, batches: list[Any], steps: int) -> Any:
    """The checkpointed model. It must train within SHARE of the plain peak and give the same bits as plain training."""
    plain = models.train(copy.deepcopy(model), batches, 1)["peak"]
    found, wanted, wrapped = models.both(model, batches, steps, budget=int(ASKED * plain))
    assert models.same(found, wanted)
    assert found["peak"] <= SHARE * wanted["peak"]
    return wrapped


def test_resnet50_ten_steps(models: Any) -> None:
    images = [((torch.randn(8, 3, 64, 64),), {}) for _ in range(2)]
    wrapped = trained(models, models.torchvision().resnet50(num_classes=10), images, 10)
    assert len(wrapped.plans) == 1


def test_densenet121(models: Any) -> None:
    trained(models, models.torchvision().densenet121(num_classes=10), [((torch.randn(4, 3, 64, 64),), {})], 2)


def test_vision_transformer(models: Any) -> None:
    vit = models.torchvision().VisionTransformer(
        image_size=32, patch_size=4, num_layers=6, num_heads=4, hidden_dim=64, mlp_dim=256, num_classes=10, dropout=0.1
    )
    trained(models, vit, [((torch.randn(8, 3, 32, 32),), {})], 2)


def test_gpt2_with_padding_and_a_smaller_last_batch(models: Any) -> None:
    models.torchvision()  # transformers imports it
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=6, n_embd=64, n_head=4, vocab_size=256, n_positions=64, use_cache=False, bos_token_id=1, eos_token_id=2
    )
    ids, mask = torch.randint(0, 256, (8, 64)), torch.ones(8, 64, dtype=torch.long)
    mask[0, :20] = 0
    batches = [
        ((), {"input_ids": ids, "attention_mask": mask, "labels": ids}),
        ((), {"input_ids": ids[:5], "attention_mask": mask[1:6], "labels": ids[:5]}),
    ]
    wrapped = trained(models, transformers.GPT2LMHeadModel(config), batches, 4)
    assert len(wrapped.plans) == 2
    assert wrapped.config.n_layer == 6
