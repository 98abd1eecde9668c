"""Time of checkpointed training steps relative to plain backprop, on a chain that is long and wide enough to show it.

The thesis prints an overhead of about 30% for one recomputation (§2.5.1), because a backward pass takes about twice as
long as a forward pass. Both figures are ratios within one process, with the runs taking turns, so that a slow machine
does not change them.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import on_host, track
from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.suites.workers.variables import environment

ROUNDS = 7
LAYERS, WIDTH, BATCH = 36, 96, 512
METHODS = ("sqrt_n", "recursive", "revolve", "uniform_dp", "precise_dp", "checkpoint_sequential")
"""The methods, and PyTorch's own checkpoints. A method with a budget gets half of plain backprop's planned peak."""


class _Chain:
    timeout = 900

    def prepare(self, framework: str) -> None:
        """Make the problem and its costs, and compile plain backprop."""
        on_host()
        if not installed(framework):
            raise NotImplementedError(f"{framework} is not installed")
        os.environ.update(environment())
        from gradgate.references.chain.problem import ChainSpec

        spec = ChainSpec(dtype="float32", layers=LAYERS, width=WIDTH, batch=BATCH, profile="uniform")
        self.methods: Any = importlib.import_module(f"gradgate.references.chain.in_{framework}.methods")
        self.problem, self.costs = spec.build(framework), self.methods.costs_of(spec)  # type: ignore[arg-type]
        self.backprop = _ready(framework, self.methods.backprop, self.problem)


class Steps(_Chain):
    """The time of each method relative to plain backprop."""

    params = (list(FRAMEWORKS), list(METHODS))
    param_names = ("framework", "method")

    def setup(self, framework: str, method: str) -> None:
        """Compile both."""
        self.prepare(framework)
        if method == "checkpoint_sequential":
            if framework != "torch":
                raise NotImplementedError("checkpoint_sequential is PyTorch's")
            self.run: Callable[[], Any] = _sequential(self.methods, self.problem)
            self.run()
            return
        from gradgate.references.chain.schedules import classic
        from gradgate.references.chain.schedules.simulate import simulate

        half = simulate(classic.save_all(self.costs.stages), self.costs).peak // 2
        options = {"budget": half} if method.endswith("_dp") else {}
        self.run = _ready(framework, getattr(self.methods, method), self.problem, **options)

    @track("× backprop")
    def track_seconds_over_backprop(self, framework: str, method: str) -> float:
        """Median over rounds, in which the method and plain backprop take turns."""
        return _ratio(self.run, self.backprop)


class Passes(_Chain):
    """Time of a gradient relative to a forward pass, minus 1: the relative time of the backward pass."""

    params = (list(FRAMEWORKS),)
    param_names = ("framework",)

    def setup(self, framework: str) -> None:
        """Compile both."""
        self.prepare(framework)
        self.forward = _ready(framework, lambda problem: problem.loss(problem.params), self.problem)

    @track("× forward")
    def track_backward_over_forward(self, framework: str) -> float:
        """Median over rounds."""
        return _ratio(self.backprop, self.forward) - 1


def _ready(framework: str, function: Callable[..., Any], problem: Any, **options: Any) -> Callable[[], Any]:
    """A call of the function that waits for its result; it is compiled in JAX, and has run once."""
    if framework == "jax":
        import jax

        compiled = jax.jit(lambda problem: function(problem, **options))

        def run() -> Any:
            return jax.block_until_ready(compiled(problem))
    else:

        def run() -> Any:
            return function(problem, **options)

    run()
    return run


def _sequential(methods: Any, problem: Any) -> Callable[[], Any]:
    """A step of torch.utils.checkpoint with √N segments, for the same stages."""
    import torch
    from torch.utils.checkpoint import checkpoint_sequential

    leaves = [leaf.detach().requires_grad_() for p in problem.params["layers"] for leaf in p.values()]
    names = [list(p) for p in problem.params["layers"]]
    held = iter(leaves)
    params = [{name: next(held) for name in each} for each in names]
    stages = [lambda x, layer=layer, p=p: layer(p, x) for layer, p in zip(problem.layers, params, strict=True)]
    stages.append(problem.head)

    def run() -> Any:
        loss = checkpoint_sequential(stages, round(len(stages) ** 0.5), problem.x, use_reentrant=False)
        return torch.autograd.grad(loss, leaves)

    return run


def _ratio(one: Callable[[], Any], other: Callable[[], Any]) -> float:
    return statistics.median(_seconds(one) / _seconds(other) for _ in range(ROUNDS))


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
