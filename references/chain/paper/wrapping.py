"""What §3.2.3 and §5.1 say of layers under ``torch.utils.checkpoint``, and of recomputation by ``.backward()``.

What a forward pass keeps is seen as autograd packs it, by value: every layer of a chain has another output. A layer
that saves its output is tanh, as §2.3.2 has it; one that saves its input is sin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

from gradgate.references.published import equal, figures_of, refuted, upheld

LAYERS = 6
"""N, in chains f_0 → … → f_N."""
REPEATING = ("recursive", "recompute_all", "uniform_dp", "precise_dp")
"""Schedules that run stages of a chain of 15 layers more than twice."""
Wrap = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


def _drop(layer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    from torch.utils.checkpoint import checkpoint

    return functools.partial(checkpoint, layer, use_reentrant=True)


def _kept(operation: str, wrapped: int, wrap: Wrap) -> tuple[set[int], list[int]]:
    """Which of f_0 … f_N a forward pass keeps, and how often each layer has run after the backward pass too.

    Args:
        operation: the function of every layer.
        wrapped: the number of the layer, from 1, that is under a checkpoint.
        wrap: what puts it there.
    """
    import torch

    runs, packed = [0] * (LAYERS + 1), []

    def layer(n: int, x: Any) -> Any:
        runs[n] += 1
        return getattr(torch, operation)(x)

    values = [torch.linspace(0.5, 1.5, 4, dtype=torch.float64)]
    for _ in range(LAYERS):
        values.append(getattr(torch, operation)(values[-1]))
    x = values[0].clone().requires_grad_()

    def pack(tensor: Any) -> Any:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = x
        for n in range(1, LAYERS + 1):
            own = functools.partial(layer, n)
            out = (wrap(own) if n == wrapped else own)(out)
    found = {n for n, value in enumerate(values) if any(torch.equal(value, tensor) for tensor in packed)}
    out.sum().backward()
    return found, runs


def wrapped(which: Literal["k", "k + 1"], wrap: Wrap = _drop) -> float:
    """Percent of the layers k < N for which a wrapped layer keeps and runs again what §3.2.3 says; layers save outputs.

    Args:
        which: ``k``: f_{k−1} is kept and f_k is made again; ``k + 1``: f_k is kept and f_{k+1} is made again.
        wrap: takes the place of the checkpoint, so that a test sees the figure fail.
    """
    told = []
    for k in range(1, LAYERS):
        layer = k if which == "k" else k + 1
        kept, runs = _kept("tanh", layer, wrap)
        twice = [n for n, count in enumerate(runs) if count == 2]
        told.append(layer - 1 in kept and layer not in kept and twice == [layer])
    return 100 * sum(told) / len(told)


def freed(operation: Literal["tanh", "sin"], wrap: Wrap = _drop) -> float:
    """Percent of the layers k < N whose output is not kept when they are wrapped.

    Args:
        operation: the function of every layer.
        wrap: as for `wrapped`.
    """
    told = [k not in _kept(operation, k, wrap)[0] for k in range(1, LAYERS)]
    return 100 * sum(told) / len(told)


def by_backward(detached: bool = False, plain: bool = False, layers: int = 15) -> float:
    """Percent of `REPEATING` schedules that ``.backward()`` on the loss of a larger model carries out (§5.1).

    The chain lies between two other layers. Right are: the gradients of all three, those of the plain model to the
    last bit; and a layer of the chain that has run three times or more.

    Args:
        detached: the chain's output is detached, as §5.1 asks for, and no gradient is fed in.
        plain: the chain is not checkpointed, so that a test sees the figure fail.
        layers: of the chain.
    """
    import copy

    import torch
    from torch import nn

    from gradgate.references.chain.in_torch import methods

    with torch.random.fork_rng():
        torch.manual_seed(0)
        chain = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(layers)))
        before, after, x = nn.Linear(4, 4), nn.Linear(4, 1), torch.randn(3, 4)
    told = []
    for name in REPEATING:
        parts: list[Any] = copy.deepcopy([before, chain, after])
        sample = before(x).detach().requires_grad_()
        runs = [0] * layers

        def count(*_: Any, n: int, runs: list[int] = runs) -> None:
            runs[n] += 1

        module = parts[1] if plain else getattr(methods, name).module(parts[1], sample)
        for n, layer in enumerate(parts[1]):
            layer.register_forward_hook(functools.partial(count, n=n))
        inside = module(parts[0](x))
        parts[2](inside.detach() if detached else inside).sum().backward()
        ours = [p.grad for part in parts for p in part.parameters()]
        truth: list[Any] = copy.deepcopy([before, chain, after])
        truth[2](truth[1](truth[0](x))).sum().backward()
        wanted = [p.grad for part in truth for p in part.parameters()]
        same = all(a is not None and torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))
        told.append(same and max(runs) > 2)
    return 100 * sum(told) / len(told)


HERE = "gradgate.references.chain.paper.wrapping"
EXACT = equal(0.0, "the sentence says so of every case")
NONE = equal(0.0, "'to my knowledge, impossible with PyTorch': no schedule")


_row = figures_of(HERE)


CHAIN, CASES = f"{LAYERS} layers, torch.utils.checkpoint", "% of the layers"
ROWS = (
    _row(
        "§3.2.3, a wrapped layer",
        "k: f_{k−1} is kept and f_k made again",
        CHAIN,
        CASES,
        "wrapped",
        {"which": "k"},
        100.0,
        upheld(EXACT),
    ),
    _row(
        "§3.2.3, a wrapped layer",
        "k + 1: f_k is kept and f_{k+1} made again",
        CHAIN,
        CASES,
        "wrapped",
        {"which": "k + 1"},
        100.0,
        upheld(EXACT),
    ),
    _row(
        "§3.2.3, a wrapped layer's output",
        "freed, where layers save their outputs",
        CHAIN,
        CASES,
        "freed",
        {"operation": "tanh"},
        100.0,
        upheld(EXACT),
    ),
    _row(
        "§3.2.3, a wrapped layer's output",
        "freed, where layers save their inputs",
        CHAIN,
        CASES,
        "freed",
        {"operation": "sin"},
        100.0,
        refuted(EXACT, instead=0.0),
        "it is the input of the next layer, which saves it",
    ),
    _row(
        "§5.1, recomputation by .backward()",
        "inside a larger model, nothing detached",
        "4 schedules, 15 layers",
        "% with plain backprop's gradient",
        "by_backward",
        {},
        0.0,
        refuted(NONE, instead=100.0),
        "an autograd function can wrap the whole chain, and run its schedule in its own backward",
    ),
)
