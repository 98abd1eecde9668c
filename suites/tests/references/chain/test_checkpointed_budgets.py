"""No training step takes more bytes than its budget, on random models with skips; plans promise what is measured.

`dags.py` measures any number of models. A sample of them is kept here.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs, Sharing
from gradgate.references.chain.schedules.schedule import Schedule, Split, saved
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import BudgetTooSmall, minimum_budget, precise_dp
from gradgate.references.contract import UsageError

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.mark.parametrize("seed", [1, 5, 15, 22])
def test_random_models_stay_within_their_budgets(dags: Any, seed: int) -> None:
    found = dags.rows(seed)
    assert found
    for row in found:
        assert row.measured <= row.budget
        assert row.measured + row.states >= 0.9 * row.simulated


class Skip(nn.Module):
    """Conv, pool, two convs, upsample, cat, two convs: the cotangents of what is concatenated are one storage."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 16), (16, 32), (32, 16), (32, 16), (16, 3))
        self.convs = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in sizes)

    def forward(self, x: Any) -> Any:
        first = self.convs[0](x).relu()
        y = nn.functional.max_pool2d(first, 2)
        y = self.convs[2](self.convs[1](y).relu()).relu()
        y = torch.cat([first, nn.functional.interpolate(y, scale_factor=2)], 1)
        return self.convs[4](self.convs[3](y).relu()).mean()


def test_a_skip_costs_what_it_takes(dags: Any) -> None:
    from gradgate.in_torch import checkpointed

    model, x = Skip(), torch.randn(4, 3, 32, 32)
    wrapped = checkpointed(model, x, budget="least", compute="flops")
    promised = wrapped.plans[0].simulation.peak
    assert 0.999 * promised <= dags.peak(wrapped, x) <= promised < 0.75 * dags.peak(model, x)


def test_the_gradient_of_a_tied_weight_waits_for_its_other_use(dags: Any) -> None:
    from gradgate.in_torch import checkpointed

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(512, 32)
            self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(6)))

        def forward(self, ids: Any) -> Any:
            return (self.blocks(self.embed(ids)) @ self.embed.weight.T).logsumexp(-1).mean()

    model, ids = Tied(), torch.randint(0, 512, (4, 8))
    wrapped = checkpointed(model, ids, budget="least", compute="flops")
    promised = wrapped.plans[0].simulation.peak
    assert 0.9 * promised <= dags.peak(wrapped, ids) <= promised


def shared() -> Costs:
    """Three stages that hand a tensor of 10 bytes on; the last one reads it."""
    sharing = Sharing(
        sizes=(10, 4, 4, 1),
        values=((0,), (0, 1), (0, 2), (3,)),
        recorded=((0,), (1,), (0, 2)),
        saved=(0, 0, 0),
        forward_peak=(4, 4, 1),
        save_peak=(4, 4, 1),
    )
    return Costs(
        (1.0,) * 3,
        (1.0,) * 3,
        (10, 14, 14, 1),
        (0, 14, 14, 1),
        (0, 4, 14),
        (True, False, False),
        (False, False, False),
        (14, 14, 1),
        (14, 18, 15),
        (0, 4, 14),
        sharing=sharing,
    )


def test_a_tensor_that_is_handed_on_counts_once() -> None:
    costs = shared()
    plain, alone = Schedule.of(saved(0, 3)), dataclasses.replace(costs, sharing=None)
    assert max(step.held for step in simulate(plain, costs).steps[:6]) == 10 + 4 + 4 + 1
    assert simulate(plain, alone).peak > simulate(plain, costs).peak
    again = Schedule.of(Split(saved(0, 1), saved(1, 3)))
    assert simulate(again, costs).compute == simulate(plain, costs).compute + 1
    assert Costs.from_json(costs.to_json()) == costs
    assert costs.in_slots(3).sharing == dataclasses.replace(
        costs.sharing, sizes=(4, 2, 2, 1), saved=(0, 0, 0), forward_peak=(2, 2, 1), save_peak=(2, 2, 1)
    )


def test_schedules_of_shared_values_fit_or_are_refused() -> None:
    costs = shared()
    least = minimum_budget(costs)
    assert least <= simulate(classic.recompute_all(3), costs).peak
    assert simulate(precise_dp(costs, least), costs).peak == least
    assert precise_dp(costs, simulate(Schedule.of(saved(0, 3)), costs).peak) == Schedule.of(saved(0, 3))
    with pytest.raises(BudgetTooSmall, match=f"at least {least}"):
        precise_dp(costs, least - 1)


def test_storages_that_do_not_fit_together_are_refused() -> None:
    sharing = shared().sharing
    assert sharing is not None
    for change, says in (
        ({"saved": (0,)}, "peaks for each stage"),
        ({"recorded": ((2,), (1,), (0,))}, "stage 1: a recording"),
        ({"sizes": (10,)}, "needs a size"),
    ):
        with pytest.raises(UsageError, match=says):
            dataclasses.replace(sharing, **change)


class Recurrent(nn.Module):
    """Stacked LSTMs: oneDNN has a kernel of its own for them where no gradient is recorded, with other bits."""

    def __init__(self) -> None:
        super().__init__()
        self.entry, self.exit = nn.Linear(8, 16), nn.Linear(16, 4)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.exit(self.lstm(self.entry(x).tanh())[0].sin()).square().mean()


class Unlike(nn.Module):
    """Gives something else where no gradient is recorded; `drift` also changes from run to run."""

    drift = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_forward_hook(lambda *_: None)  # so that it is called as a whole, like a backend's kernel

    def forward(self, x: Any) -> Any:
        y = self.linear(x) * (1.0 if torch.is_grad_enabled() else 1.0 + 1e-6)
        return y + Unlike.drift


def test_other_bits_without_a_gradient_are_no_change_of_the_function(models: Any) -> None:
    if torch.backends.mkldnn.is_available():
        model = Recurrent()
        batch = ((torch.randn(8, 20, 8),), {})
        found, plain, wrapped = models.both(model, [batch], budget="least")
        assert models.same(found, plain)
        names = [name for name, each in zip(wrapped.plans[0].stages, wrapped.plans[0].graded, strict=True) if each]
        assert len(names) <= 1
        assert all("lstm" in name for name in names)
    sequence = nn.Sequential(Unlike(), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), Unlike())
    found, plain, wrapped = models.both(sequence, [((torch.randn(8, 16),), {})], budget="least")
    assert models.same(found, plain)
    assert sum(wrapped.plans[0].graded) == 2


def test_other_bits_without_a_gradient_in_a_sequence_by_hand() -> None:
    from gradgate.references.chain.in_torch.checkpoint import CheckpointedSequential

    sequence, x = nn.Sequential(Unlike(), nn.Tanh(), nn.Linear(16, 16)), torch.randn(8, 16)
    wrapped = CheckpointedSequential(sequence, classic.recompute_all(3), x)
    gradients = []
    for each in (wrapped, sequence):
        each.zero_grad()
        each(x).square().mean().backward()
        gradients.append([p.grad.clone() for p in each.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


def test_a_changed_function_is_still_refused() -> None:
    from gradgate.in_torch import checkpointed

    sequence = nn.Sequential(nn.Linear(16, 16), Unlike(), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
    wrapped = checkpointed(sequence, torch.randn(64, 16), budget="least", compute="flops")
    loss = wrapped(torch.randn(64, 16)).square().mean()
    Unlike.drift = 1e-3
    try:
        with pytest.raises(RuntimeError, match="gave another output: something that it depends on has changed"):
            loss.backward()
    finally:
        Unlike.drift = 0.0
