"""The budget that the entry points take (bytes, a share or ``least``), and the best schedule within it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.schedule import Schedule
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import BudgetTooSmall, minimum_budget, precise_dp
from gradgate.references.contract import IllegalOption, UsageError, check_integer

Budget: TypeAlias = float | Literal["least"]
"""Bytes, an int; a share of what saving everything takes, a float above 0 and at most 1; or ``least``."""


TIE = 1e-9
"""What a further run of every stage counts, as a share of the chain's forward compute: it decides ties only."""


def check_budget(budget: Any) -> None:
    """Raise UsageError or IllegalOption unless it is a `Budget`."""
    if isinstance(budget, float):
        if not 0 < budget <= 1:
            raise UsageError(
                f"a budget that is a float is a share, above 0 and at most 1, not {budget}; bytes are an int"
            )
    elif budget != "least":
        try:
            check_integer("budget", budget, 1)
        except IllegalOption as error:
            raise IllegalOption(f"{error}; or a share of what plain training takes, such as 0.5; or 'least'") from None


def in_bytes(costs: Sequence[Costs], budget: Budget, beside: int = 0, allowed: int = 0) -> Budget:
    """A budget with bytes in place of a share.

    Args:
        costs: those of each way to cut the model. A share is relative to the least that any of them takes when saving
            everything.
        budget: as the user gave it.
        beside: bytes in memory besides the chain, which the budget covers.
        allowed: bytes that an earlier kind of call was allowed. A share is at least as many bytes: a smaller last batch
            fits where the full batches did.
    """
    if not isinstance(budget, float):
        return budget
    return max(int(budget * (min(simulate(classic.save_all(c.stages), c).peak for c in costs) + beside)), allowed)


def schedule_within(costs: Costs, budget: Budget, beside: int = 0) -> Schedule:
    """The persistent lazy schedule of least compute within a budget that holds `beside` bytes besides the chain.

    Raises:
        BudgetTooSmall: states the least bytes that suffice, `beside` included.
    """
    if budget == "least":
        return precise_dp(costs, minimum_budget(costs))
    most = simulate(classic.save_all(costs.stages), costs).peak + beside
    size = int(budget * most) if isinstance(budget, float) else int(budget)
    least = minimum_budget(costs) + beside
    if size < least:
        told = f" for {costs.stages} stages; saving everything takes {most}"
        if beside:
            told += f"; {beside} of them are parameters, gradients, buffers and the optimiser's state"
        raise BudgetTooSmall(size, least, told)
    return precise_dp(costs, size - beside)


def best_within(costs: Sequence[Costs], budget: Budget, beside: int = 0) -> tuple[int, Schedule]:
    """The way to cut a model, of several, whose schedule computes least within the budget, and that schedule.

    Of schedules that compute the same, it is one that runs stages as seldom as possible: FLOPs of most stages are 0,
    and each run takes some time. With ``least``, the budget is the fewest bytes that any of the ways needs. A share is
    relative to the least that any of the ways takes when saving everything. Raises BudgetTooSmall like
    `schedule_within`, with the least bytes that any of the ways needs.
    """
    if budget == "least":
        budget = min(map(minimum_budget, costs)) + beside
    budget = in_bytes(costs, budget, beside)
    found: list[tuple[float, int, int, Schedule]] = []
    refused: list[BudgetTooSmall] = []
    for number, each in enumerate(costs):
        try:
            little = TIE * sum(each.forward) / each.stages
            leaning = dataclasses.replace(each, forward=tuple(one + little for one in each.forward))
            schedule = schedule_within(leaning, budget, beside)
            found.append((simulate(schedule, each).compute, sum(schedule.runs()), number, schedule))
        except BudgetTooSmall as error:
            refused.append(error)
    if not found:
        raise min(refused, key=lambda error: error.minimum)
    _, _, number, schedule = min(found, key=lambda item: item[:3])
    return number, schedule
