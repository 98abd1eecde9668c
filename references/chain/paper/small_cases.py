"""Statements of chapters 2, 3 and 5 on small cases: a listing, counts of evaluations, tables, targets, graphs.

Each function measures one statement in seconds. Those about drawn chains use the pairs of `errata`.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from unittest import mock

from gradgate.references.chain.paper import as_printed, background, errata
from gradgate.references.chain.paper.as_printed import Printed
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.solver import table_bytes

GB = 10**9


def difference_evaluations() -> float:
    """Evaluations by forward differences beyond the first, per parameter, counted on the drawn networks (§2.2.1)."""
    import numpy as np

    each = []
    for seed in range(background.NETS):
        weights, biases, x = background._network(np.random.default_rng(seed))
        counted = mock.Mock(side_effect=background._loss)
        with mock.patch.object(background, "_loss", counted):
            background._differences(weights, biases, x, 1e-3)
        each.append((counted.call_count - 1) / len(biases[0]))
    return statistics.mean(each)


def listing_2_1(constructor: str) -> float:
    """Percent of the five comments of Listing 2.1 that hold.

    The first tensor is made on the meta device, which is there on every machine and is not the CPU either. The rest
    runs on the CPU, where a copy stands for what ``.cuda()`` gives: a result, and no leaf.

    Args:
        constructor: ``Tensor``, as printed, or ``tensor``.
    """
    import warnings

    import numpy as np
    import torch

    data = [[1.0, 2.0], [-1.0, 3.0]]
    try:
        getattr(torch, constructor)(data, device="meta")
    except RuntimeError:
        return 0.0  # the program ends here
    a = getattr(torch, constructor)(data)
    a.requires_grad = True
    b = torch.randn(2, 2, requires_grad=True).to("cpu", copy=True)
    c = a + b
    d = torch.full_like(a, 15.0, requires_grad=True)
    e = torch.from_numpy(np.ones((2, 2), dtype=np.single))
    f = ((e + 2) ** 1.3) * d
    torch.nn.functional.linear(f, torch.nn.functional.relu(c)).sum().backward()
    with warnings.catch_warnings():  # reading the gradient of what is no leaf warns
        warnings.simplefilter("ignore")
        told = [a.grad is not None, b.grad is not None, c.grad is None, d.grad is not None, e.grad is None]
    return 100 * sum(told) / len(told)


def states(gigabytes: float, network: str = "resnet50") -> float:
    """Budgets m that the solver's tables have with slots of one byte, per pair (i, j)."""
    costs = _costs(network)
    budget = int(gigabytes * GB)
    rows = table_bytes(costs, costs.output[0] + costs.fixed)  # a table of one m
    return table_bytes(costs, budget) / rows


def tables_over_budget(gigabytes: float, network: str = "resnet50") -> float:
    """Bytes of the solver's tables with slots of one byte, over those of the budget that they plan."""
    budget = int(gigabytes * GB)
    return table_bytes(_costs(network), budget) / budget


def table_growth(network: str = "resnet50") -> float:
    """The power of the number of slots with which the solver's tables grow, from 1 MB slots to 1 kB slots of 10 GB."""
    costs = _costs(network)
    few, many = (table_bytes(costs.in_slots(slot), 10 * GB // slot) for slot in (10**6, 10**3))
    return math.log(many / few) / math.log(10**3)


def _costs(network: str) -> Any:
    from gradgate.references.chain.paper import rows

    return rows.planned(network, 32)


@functools.cache
def _with_large_targets() -> tuple[Printed, ...]:
    """The drawn chains, with targets as large as five other tensors."""
    return tuple(
        Printed(p.alpha_f, p.alpha_b, p.beta_f, [*p.beta_b[:-1], 30 + random.Random(n).randint(0, 6)])
        for n, (p, _) in enumerate(errata.drawn())
        if p.N > 1
    )


def targets_held(quantity: str) -> float:
    """What the first definition of C(i, j, m), with b_j outside m, costs on drawn chains with large targets (§3.1.6).

    Args:
        quantity: ``percent``, of the chains whose least memory it states too high; or ``times``, the mean of the least
            memory that it states over that of the second definition.
    """
    pairs = [
        (p.beta_b[p.N + 1] + _least_outside(p, 0, p.N + 1), _least_within(p, 0, p.N + 1)) for p in _with_large_targets()
    ]
    if quantity == "percent":
        return 100 * sum(first > second for first, second in pairs) / len(pairs)
    return statistics.mean(first / second for first, second in pairs)


def _sweep(p: Printed, i: int, k: int) -> int:
    """The most slots of a sweep from f_i to f_k, f_i left out."""
    return max((0 if n - 1 == i else p.beta_f[n - 1]) + p.beta_f[n] for n in range(i + 1, k + 1))


def _least_within(p: Printed, i: int, j: int) -> int:
    """The least m of (i, j) where b_j is placed within m and freed by whoever uses it."""
    if j == i + 1:
        return p.beta_b[j] + p.beta_b[i]
    return min(
        max(p.beta_b[j] + _sweep(p, i, k), p.beta_f[k] + _least_within(p, k, j), _least_within(p, i, k))
        for k in range(i + 1, j)
    )


def _least_outside(p: Printed, i: int, j: int) -> int:
    """The least m of (i, j) where b_j is held outside m until b_i exists; b_k is then in m while (i, k) runs."""
    if j == i + 1:
        return p.beta_b[i]
    return min(
        max(_sweep(p, i, k), p.beta_f[k] + _least_outside(p, k, j), p.beta_b[k] + _least_outside(p, i, k))
        for k in range(i + 1, j)
    )


def targets_kept() -> float:
    """Bytes by which the peak of a step rises if the caller holds the targets throughout, over the targets' (§3.2.1).

    Six wide layers and a narrow one, every stage run again from the input, and targets as wide as the output. A copy
    stands for the one on the device.
    """
    import torch

    from gradgate.references.chain.in_torch.checkpoint import CheckpointedSequential
    from gradgate.references.chain.in_torch.profile import LiveBytes

    class Loss(torch.nn.Module):
        def __init__(self, targets: Callable[[], Any]) -> None:
            super().__init__()
            self.targets = targets

        def forward(self, y: Any) -> Any:
            return ((y - self.targets()) ** 2).mean()

    def layer(into: int, out: int) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(into, out), torch.nn.Tanh())

    torch.manual_seed(0)
    layers = [layer(4, 64), *(layer(64, 64) for _ in range(5)), layer(64, 16)]
    x, at_hand = torch.randn(512, 4), torch.randn(512, 16)

    def peak(held: bool) -> int:
        with LiveBytes() as meter:
            copy = at_hand.clone() if held else None
            chain = [*layers, Loss(lambda: copy if held else at_hand.clone())]
            model = CheckpointedSequential(chain, classic.recompute_all(len(chain)), x)
            model(x).backward()
        for one in layers:
            one.zero_grad()
        return meter.peak

    peak(True)  # gradients of parameters exist from here on
    return (peak(True) - peak(False)) / at_hand.nbytes


def nested_bytes(deepest: int = 4) -> float:
    """Bytes kept of a layer under `deepest` nested checkpoints, each of which saves its input, over those under one."""
    import torch
    from torch.utils.checkpoint import checkpoint

    from gradgate.references.chain.in_torch.profile import LiveBytes

    x = torch.ones(1024, requires_grad=True)

    def live_bytes(depth: int) -> int:
        run: Callable[[Any], Any] = torch.sin
        for _ in range(depth):
            run = functools.partial(checkpoint, run, use_reentrant=True)
        with LiveBytes() as meter:
            y = x * 2  # the input of the checkpoints, which nothing else holds
            z = run(y)
            del y
            held = meter.live
            del z
        return held

    return live_bytes(deepest) / live_bytes(1)


Graph = Mapping[str, Collection[str]]
"""Node -> the nodes that read it."""
SKIP: Graph = {"x": ("a", "sum"), "a": ("b",), "b": ("sum",), "sum": ("c", "end"), "c": ("d",), "d": ("end",)}
"""Two residual blocks of two layers each, Fig. 5.1: ``x``, ``sum`` and ``end`` are its squares, the others circles."""
MERGE: Graph = {"x": ("a", "b"), "a": ("c",), "b": ("d",), "c": ("end",), "d": ("end",)}
"""A split, two branches of two layers, and a merge, Fig. 5.2."""


TREE: Graph = {"a": ("left",), "b": ("left",), "c": ("right",), "d": ("right",), "left": ("end",), "right": ("end",)}
"""A computation tree, Fig. 5.4: each node is read once."""
NODES: dict[str, tuple[Graph, tuple[frozenset[str], ...]]] = {
    "squares": (SKIP, tuple(map(frozenset, ({"x"}, {"sum"}, {"end"})))),
    "circles": (SKIP, tuple(map(frozenset, ({"a"}, {"b"}, {"c"}, {"d"})))),
    "ends of branches": (MERGE, tuple(map(frozenset, ({"x"}, {"end"})))),
    "single nodes of branches": (MERGE, tuple(map(frozenset, ({"a"}, {"b"}, {"c"}, {"d"})))),
    "one node of each branch": (
        MERGE,
        tuple(map(frozenset, ({"a", "b"}, {"a", "d"}, {"c", "b"}, {"c", "d"}))),
    ),
}
"""Kind -> its graph, and the sets of nodes that are tried as checkpoints."""


def separators(kind: str) -> float:
    """Percent of the checkpoints of a kind in `NODES` from which alone all that follows them can be recomputed."""
    graph, tried = NODES[kind]
    return 100 * sum(_separates(graph, nodes) for nodes in tried) / len(tried)


def subsumed(graph: Graph = TREE) -> float:
    """Percent of the nodes of Fig. 5.4 past which nothing of their own subtree is read (§5.2)."""
    nodes = sorted(set(graph).union(*graph.values()))
    told = []
    for node in nodes:
        below = {other for other in nodes if node in _reached(graph, other)}
        told.append(all(set(graph.get(other, ())) <= below | {node} for other in below))
    return 100 * sum(told) / len(told)


def _separates(graph: Graph, nodes: Collection[str]) -> bool:
    """Whether no edge leads from what is not after the nodes, past them, to what is after them."""
    after = set().union(*(_reached(graph, node) for node in nodes)) - set(nodes)
    return not any(
        reader in after
        for other, readers in graph.items()
        if other not in after and other not in nodes
        for reader in readers
    )


def _reached(graph: Graph, node: str) -> set[str]:
    found: set[str] = set()
    todo = list(graph.get(node, ()))
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += graph.get(one, ())
    return found


def largest_bag(kind: str, shape: str = "sequence") -> int:
    """Nodes of the largest bag of the best merging of a ``skip`` connection or a split and ``merge`` (§5.2).

    The thesis merges nodes into bags "to form a tree of bags", and calls the largest number of nodes in one bag the
    treewidth. (In graph theory a node may be in several bags, and both graphs are then cycles of width 3.) By all
    partitions of the nodes.

    Args:
        kind: ``skip`` or ``merge``.
        shape: what the bags must form: a ``sequence``, or a ``tree`` too. Either is connected and has no cycle, and
            of two bags only one reads from the other, or no bag could be computed before its reader.
    """
    graph = {"skip": SKIP, "merge": MERGE}[kind]
    edges = {(one, reader) for one, readers in graph.items() for reader in readers}
    nodes = sorted({node for edge in edges for node in edge})
    return min(max(map(len, bags)) for bags in _partitions(nodes) if _is_tree(bags, edges, shape))


def _partitions(nodes: list[str]) -> Iterator[list[set[str]]]:
    if not nodes:
        yield []
        return
    first, *others = nodes
    for bags in _partitions(others):
        yield [{first}, *bags]
        for i, bag in enumerate(bags):
            yield [*bags[:i], bag | {first}, *bags[i + 1 :]]


def _is_tree(bags: list[set[str]], edges: set[tuple[str, str]], shape: str) -> bool:
    """Whether bags are joined like a tree; for a ``sequence`` no bag has more than two neighbours."""
    of = {node: i for i, bag in enumerate(bags) for node in bag}
    read = {(of[one], of[other]) for one, other in edges if of[one] != of[other]}
    joined = {frozenset(pair) for pair in read}
    # The graph is connected, so its bags are, and connected bags are a tree if they have one join less than bags.
    if len(joined) != len(bags) - 1 or len(joined) < len(read):
        return False
    return shape == "tree" or all(sum(i in pair for pair in joined) <= 2 for i in range(len(bags)))


def constrained(quantity: str) -> float:
    """The solver without m in its state, on the drawn pairs (§5.3): C(i, j) with its own peak, one policy per (i, j).

    Of the k whose peak is within the whole budget, each (i, j) takes the one of least compute.

    Args:
        quantity: ``solved``, percent of the pairs that have a policy for which it finds one within the budget; or
            ``least``, percent of these for which it finds the least compute.
    """
    possible = solved = least = 0
    for p, budget in errata.drawn():
        best = as_printed.solve(p, budget).compute
        if best == math.inf:
            continue
        possible += 1
        compute, peak = _one_policy(p, budget - p.beta_f[0])
        solved += peak <= budget - p.beta_f[0]
        least += peak <= budget - p.beta_f[0] and compute == best
    return 100 * (solved / possible if quantity == "solved" else least / possible)


def _one_policy(p: Printed, m: int) -> tuple[float, float]:
    """Compute and peak of (0, N + 1), each (i, j) solved once."""
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for length in range(1, p.N + 2):
        for i in range(p.N + 2 - length):
            j = i + length
            if length == 1:
                found[i, j] = p.alpha_b[i], p.beta_b[j] + p.beta_b[i]
                continue
            tried = []
            for k in range(i + 1, j):
                (right, right_peak), (left, left_peak) = found[k, j], found[i, k]
                peak = max(p.beta_b[j] + _sweep(p, i, k), p.beta_f[k] + right_peak, left_peak)
                tried.append((sum(p.alpha_f[i + 1 : k + 1]) + right + left, peak))
            within = [one for one in tried if one[1] <= m]
            found[i, j] = min(within) if within else min(tried, key=lambda one: one[1])
    return found[0, p.N + 1]
