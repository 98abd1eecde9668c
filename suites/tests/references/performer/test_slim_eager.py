"""Table 2's program: its gradient is the same in slices, and its bytes grow with the slice."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def eager(torch: Any) -> Any:
    from gradgate.references.performer.paper import eager_torch

    return eager_torch


def gradient(eager: Any, torch: Any, chunk: int, tokens: Any) -> Any:
    torch.manual_seed(0)
    model = eager.Model(128, 2).double()
    model.accumulate(tokens, chunk)
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("chunk", [32, 70, 149])
def test_a_gradient_in_slices_is_that_of_the_whole_sequence(eager: Any, torch: Any, chunk: int) -> None:
    tokens = torch.randint(256, (151,), generator=torch.Generator().manual_seed(1))
    whole, ours = (gradient(eager, torch, each, tokens) for each in (150, chunk))
    assert torch.linalg.norm(ours - whole) < 1e-9 * torch.linalg.norm(whole)


def test_the_sums_of_blocks_have_the_gradient_of_all_sums_at_once(eager: Any, torch: Any) -> None:
    made = torch.Generator().manual_seed(2)
    q, k, v, state = (
        torch.rand(shape, generator=made, dtype=torch.float64, requires_grad=True)
        for shape in ((70, 1, 2, 3), (70, 1, 2, 3), (70, 1, 2, 4), (1, 2, 4, 3))
    )
    sums = state + torch.cumsum(v[..., :, None] * k[..., None, :], 0)
    plain = (sums @ q[..., None])[..., 0], sums[-1]
    weights = [torch.rand(part.shape, generator=made, dtype=torch.float64) for part in plain]

    def pulled(parts: Any) -> Any:
        return torch.autograd.grad(sum((w * p).sum() for w, p in zip(weights, parts, strict=True)), (q, k, v, state))

    for ours, true in zip(pulled(eager.BlockSums.apply(q, k, v, state)), pulled(plain), strict=True):
        assert torch.allclose(ours, true, rtol=1e-10)


def test_a_longer_slice_takes_more_and_a_missing_layer_less(eager: Any) -> None:
    one, three = (eager.step_size("I", 64, layers) for layers in (1, 3))
    assert one < three
    assert eager.step_size("I", 512, 1) > one
