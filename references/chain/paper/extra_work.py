"""FLOPs beyond plain backprop's, counted while the methods run, over the law that they are claimed to follow.

Each figure is the largest such quotient of several lengths over the smallest: 1 where the law holds, from above and
from below. The chains are uniform. In JAX all arithmetic of the program counts, also the little that JAX adds per
segment. In PyTorch products of matrices count.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence

from gradgate.references.chain.problem import ChainSpec

HALVED = (15, 31, 63)
"""Layers: with the head a power of two stages, so that halves are even."""
QUADRATIC = (6, 12, 24)


def recursive_in_jax(profile: str = "") -> float:
    """The spread of the extra FLOPs of `recursive` over n log₂ n, for n stages."""
    return spread("jax", "recursive", HALVED, n_log_n)


def recursive_in_torch(profile: str = "") -> float:
    """The same in PyTorch."""
    return spread("torch", "recursive", HALVED, n_log_n)


def recompute_all_in_jax(profile: str = "") -> float:
    """The spread of the extra FLOPs of `recompute_all` over n(n − 1)/2, for n stages."""
    return spread("jax", "recompute_all", QUADRATIC, pairs)


def recompute_all_in_torch(profile: str = "") -> float:
    """The same in PyTorch."""
    return spread("torch", "recompute_all", QUADRATIC, pairs)


def spread(framework: str, method: str, layers: Sequence[int], law: Callable[[int], float]) -> float:
    """The largest over the smallest quotient of a method's extra FLOPs and a law of the number of stages.

    Infinite where the method does nothing beyond plain backprop.
    """
    each = [_extra(framework, method, n) / law(n + 1) for n in layers]
    return max(each) / min(each) if min(each) > 0 else math.inf


def n_log_n(stages: int) -> float:
    """The law n log₂ n."""
    return stages * math.log2(stages)


def pairs(stages: int) -> float:
    """The law n(n − 1)/2."""
    return stages * (stages - 1) / 2


def _extra(framework: str, method: str, layers: int) -> float:
    spec = ChainSpec(dtype="float32", layers=layers, width=4, batch=32, profile="uniform")
    return _flops(framework, method, spec) - _flops(framework, "backprop", spec)


def _flops(framework: str, method: str, spec: ChainSpec) -> float:
    function = getattr(importlib.import_module(f"gradgate.references.chain.in_{framework}.methods"), method)
    if framework == "jax":
        from gradgate.hw_profiles import work
        from gradgate.references.draws import shapes

        return work.of(function, (shapes(spec),)).flops
    from gradgate.hw_profiles.torch_work import flop_counter

    problem = spec.build("torch")
    with flop_counter() as counter:
        function(problem)
    return float(counter.get_total_flops())
