"""Alg. 3.5, the thesis' executor, in PyTorch: as printed, with what §3.2.4 says would mend it, and what does mend it.

Operator i = 0 … N takes f_i to f_{i+1}, the last one to the loss. Line 13 detaches f_k without keeping the result, and
line 8 continues where it should return. Neither changes anything, because f_k has no graph and no policy of Alg. 3.4 is
quadratic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradgate.references.chain.paper import as_printed
from gradgate.references.chain.paper.as_printed import Printed

CHAINS = 12
"""Drawn chains of dense layers, with a policy of Alg. 3.4 for each."""
BATCH, WIDTH = 64, 8


@dataclass(frozen=True)
class Executor:
    """Alg. 3.5 on one chain.

    Attributes:
        operators: f_i -> f_{i+1}; the last one is the loss.
        policy: (i, j, m) -> k.
        sizes: β^f.
        base_printed: line 3 as printed: the backward of f_i itself, which has no graph.
        layer_printed: line 12 as printed: layer i for every l, read as the layer that takes f_i.
        handed: a cotangent is handed over in a list that the callee empties, so that no stack frame keeps it.
    """

    operators: Sequence[Callable[[Any], Any]]
    policy: Callable[[int, int, int], int]
    sizes: Sequence[int]
    base_printed: bool = False
    layer_printed: bool = False
    handed: bool = False

    def run(self, i: int, j: int, m: int, f_i: Any, given: list[Any]) -> Any:
        """b_i, from f_i and b_j, which is the only element of `given`."""
        import torch

        b_j = given.pop() if self.handed else given[0]
        if j == i + 1:
            if self.base_printed:
                f_i.backward(b_j)
            else:
                with torch.enable_grad():
                    self.operators[i](f_i).backward(b_j)
            return f_i.grad
        k, f_k = self.policy(i, j, m), f_i
        with torch.no_grad():
            for n in range(i, k):
                f_k = self.operators[i if self.layer_printed else n](f_k)
        f_k = f_k.detach().requires_grad_()
        passed = [b_j]
        if self.handed:
            del b_j
        passed = [self.run(k, j, m - self.sizes[k], f_k, passed)]
        del f_k
        return self.run(i, k, m, f_i, passed)


def _chain(seed: int) -> tuple[list[Any], list[Callable[[Any], Any]], Any]:
    """Parameters, operators and f_0 of a chain of 3 to 7 dense layers and a loss."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    stages = 3 + seed % 5
    weights = [
        (torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64) / WIDTH**0.5).requires_grad_()
        for _ in range(stages)
    ]

    def layer(w: Any) -> Callable[[Any], Any]:
        return lambda x: torch.tanh(x @ w)

    x = torch.randn(BATCH, WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    return weights, [*map(layer, weights), lambda y: (y * y).sum()], x


def _execute(chain: tuple[list[Any], list[Callable[[Any], Any]], Any], budget: int = 6, **how: bool) -> list[Any]:
    """Gradients by Alg. 3.5 within `budget` slots, at least four; None for a weight that gets no gradient."""
    import torch

    weights, operators, x = chain
    ones = [1] * (len(weights) + 2)
    policy = as_printed.policy(Printed(ones, ones, ones, ones), budget)
    upstream = torch.ones_like(x) if how.get("base_printed") else torch.ones((), dtype=x.dtype)
    Executor(operators, policy, ones, **how).run(0, len(operators), budget - 1, x, [upstream])
    return [w.grad for w in weights]


def right(**how: bool) -> float:
    """Percent of the drawn chains on which Alg. 3.5 gives plain backprop's gradient."""
    import torch

    told = []
    for seed in range(CHAINS):
        weights, operators, y = chain = _chain(seed)
        for operator in operators:
            y = operator(y)
        plain = torch.autograd.grad(y, weights)
        ours = _execute(chain, **how)
        told.append(all(b is not None and torch.allclose(a, b) for a, b in zip(plain, ours, strict=True)))
    return 100 * sum(told) / CHAINS


def kept_by_frames() -> float:
    """By how many percent the peak is higher where stack frames keep cotangents than where they are handed over.

    The chain has 7 layers and the least budget, so that left subcalls are nested as deep as the chain is long.
    """
    from gradgate.references.chain.in_torch.profile import LiveBytes

    peaks = []
    for handed in (False, True):
        chain = _chain(4)
        with LiveBytes() as meter:
            _execute(chain, 4, handed=handed)
        peaks.append(meter.peak)
    return 100 * (peaks[0] / peaks[1] - 1)
