"""How long the solver of optimal checkpointing takes, and the memory of its tables."""

from __future__ import annotations

import random
from typing import Any

CHAINS = {"150 stages, 500 slots": (150, 500, 1), "66 stages, 12,000 slots": (66, 12_000, 30)}
"""Name -> stages, slots, and the factor of all sizes: a case of the literature, and DenseNet-121 with slots of 1 MB."""


def costs(stages: int, factor: int) -> Any:
    """Costs of a chain as in PyTorch: some stages keep their inputs, some keep their outputs, and sizes vary."""
    from gradgate.references.chain.schedules.costs import Costs

    rng = random.Random(stages)

    def numbers(count: int, low: int, high: int) -> list[int]:
        return [factor * rng.randint(low, high) for _ in range(count)]

    output, saved = numbers(stages + 1, 2, 9), numbers(stages, 0, 20)
    return Costs(
        tuple(rng.random() for _ in range(stages)),
        tuple(2 * rng.random() for _ in range(stages)),
        tuple(output),
        tuple(output),
        tuple(saved),
        tuple(rng.random() < 0.7 for _ in range(stages)),
        tuple(rng.random() < 0.4 for _ in range(stages)),
        tuple(a + b for a, b in zip(output[1:], numbers(stages, 0, 5), strict=True)),
        tuple(a + b + c for a, b, c in zip(output[1:], saved, numbers(stages, 0, 5), strict=True)),
        tuple(a + b for a, b in zip(output[:-1], numbers(stages, 0, 5), strict=True)),
    )


class Solving:
    """Precise DP: seconds, and bytes of tables."""

    params = tuple(CHAINS)
    param_names = ("chain",)
    timeout = 300

    def setup(self, chain: str) -> None:
        """Make the costs."""
        stages, self.slots, factor = CHAINS[chain]
        self.costs = costs(stages, factor)

    def time_precise_dp(self, chain: str) -> None:
        """The whole solver, schedule included."""
        from gradgate.references.chain.schedules.solver import precise_dp

        precise_dp(self.costs, self.slots, slot=1)

    time_precise_dp.version = "1"  # type: ignore[attr-defined]

    def time_minimum_budget(self, chain: str) -> None:
        """The least budget, exact."""
        from gradgate.references.chain.schedules.solver import minimum_budget

        minimum_budget(self.costs)

    time_minimum_budget.version = "1"  # type: ignore[attr-defined]

    def track_table_bytes(self, chain: str) -> int:
        """Bytes of the tables."""
        from gradgate.references.chain.schedules.solver import table_bytes

        return table_bytes(self.costs, self.slots)

    track_table_bytes.unit = "bytes"  # type: ignore[attr-defined]
    track_table_bytes.version = "1"  # type: ignore[attr-defined]
