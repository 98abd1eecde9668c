"""Statements of §2.4 on what is live: reference counting on a chain of nodes, what optimisers keep, where peaks are.

`background.pebbles` has the same chain without counts.
"""

from __future__ import annotations

import math

from gradgate.references.chain.paper import errata


def counted(leaves: int, lazy: bool, in_place: bool = False) -> tuple[int, int]:
    """Most pebbles, and operations, of reference counting on that chain of two-input nodes (§2.4.2).

    Args:
        leaves: L, in L − 1 nodes.
        lazy: leaves are placed when they are needed; otherwise all first.
        in_place: a node takes the memory of an input whose count is one.
    """
    readers = {f"leaf {n}": 1 for n in range(leaves)} | {f"node {n}": 1 for n in range(leaves - 1)}
    inputs = {n: (f"leaf {n + 1}", f"node {n - 1}" if n else "leaf 0") for n in range(leaves - 1)}
    live = set() if lazy else {f"leaf {n}" for n in range(leaves)}
    most, operations = len(live), len(live)
    for n, given in inputs.items():
        for one in given:
            operations += 1
            live.add(one)
        most = max(most, len(live) + (not in_place))
        for one in given:
            operations += 1
            readers[one] -= 1
            if not readers[one]:
                live.remove(one)
        live.add(f"node {n}")
        most = max(most, len(live))
    return most, operations


def counted_pebbles(leaves: int, lazy: bool) -> int:
    """The most pebbles of `counted`."""
    return counted(leaves, lazy)[0]


def saved_in_place(leaves: int) -> int:
    """Pebbles that operating in place saves where leaves are placed late."""
    return counted(leaves, lazy=True)[0] - counted(leaves, lazy=True, in_place=True)[0]


def counted_growth(leaves: int) -> float:
    """The power of the number of leaves with which the operations of `counted` grow, from L to 10·L."""
    few, many = (counted(n, lazy=True)[1] for n in (leaves, 10 * leaves))
    return math.log10(many / few)


def optimiser_values(name: str) -> float:
    """Numbers per parameter that an optimiser of PyTorch keeps after a step, besides its count of steps (§2.4.3)."""
    import torch

    weights = torch.ones(1000, requires_grad=True)
    more = {"momentum": 0.9} if name == "SGD" else {}
    optimiser = getattr(torch.optim, name)([weights], lr=0.1, **more)
    (weights * weights).sum().backward()
    optimiser.step()
    kept = [one for one in optimiser.state[weights].values() if isinstance(one, torch.Tensor) and one.numel() > 1]
    return sum(one.numel() for one in kept) / weights.numel()


def rises(forward_freed: bool = True) -> float:
    """Percent of the backward steps of drawn chains that need more than the one before exactly if §2.4.3 says so.

    It says: if b_{i−1}, newly allocated, is larger than f_i and b_{i+1} together, which are freed. What is needed is
    counted tensor by tensor.

    Args:
        forward_freed: False leaves f_i out of the condition, so that a test sees the figure fail.
    """
    told = []
    for p, _ in errata.drawn():
        held = [sum(p.beta_f[: i + 1]) + p.beta_b[i + 1] + p.beta_b[i] for i in range(p.N + 1)]
        for i in range(p.N, 0, -1):
            larger = p.beta_b[i - 1] > p.beta_f[i] * forward_freed + p.beta_b[i + 1]
            told.append((held[i - 1] > held[i]) == larger)
    return 100 * sum(told) / len(told)
