"""Seconds of checkpointed training steps over plain backprop's, on a chain that is long and wide enough to show them.

The thesis prints an overhead of about 30% for one recomputation (§2.5.1), since a backward takes about twice as long as
a forward. Both are ratios within one process, taken in turn, so that a slow machine does not change them.
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
from gradgate.suites.workers.worker import environment

ROUNDS = 7
LAYERS, WIDTH, BATCH = 36, 96, 512
METHODS = ("sqrt_n", "recursive", "revolve", "uniform_dp", "precise_dp", "checkpoint_sequential")
"""The methods at half of plain backprop's planned peak, as far as they take a budget; and PyTorch's own checkpoints."""


class _Chain:
    timeout = 900

    def prepare(self, framework: str) -> None:
        """The problem, its costs and plain backprop, compiled."""
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
    """Each method over plain backprop."""

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
        """Median over rounds, method and plain backprop in turn."""
        return _ratio(self.run, self.backprop)


class Passes(_Chain):
    """A whole gradient over a forward pass, less 1: how much longer a backward takes than a forward."""

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
    """A call of the function that waits for its result; compiled where that is how it runs, and run once."""
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
    """A step of torch.utils.checkpoint with √N segments, of the same stages."""
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
