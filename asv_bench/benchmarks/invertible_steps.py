"""Time of every method of the invertible chains relative to plain backprop, on the network of Fig. 3 made small.

The paper measures seconds of one batch of 512 at 32×32×18 on an A4500 (Fig. 3). Here the same network is as large as a
CPU runs in seconds. Ratios within one process, with the runs taking turns, are what a slow machine does not change.
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

ROUNDS = 5
METHODS = ("forward", "projected_forward", "reversible", "moonwalk", "moonwalk_mixed")
LAYERS = (1, 3)
"""Layers per block of three blocks; forward takes a JVP for each of some hundred parameters per layer."""


class Steps:
    """The time of each method relative to plain backprop, on 8×8×4, 2 samples, without batch norm."""

    params = (list(FRAMEWORKS), list(METHODS), list(LAYERS))
    param_names = ("framework", "method", "layers")
    timeout = 900

    def setup(self, framework: str, method: str, layers: int) -> None:
        """Build the network, and compile both."""
        on_host()
        if not installed(framework):
            raise NotImplementedError(f"{framework} is not installed")
        os.environ.update(environment())
        from gradgate.references.invertible.paper.rows import revnet

        problem = revnet(4, layers, side=8, batch=2, norm="none").build(framework)  # type: ignore[arg-type]
        methods: Any = importlib.import_module(f"gradgate.references.invertible.in_{framework}.methods")
        self.run = _ready(framework, getattr(methods, method), problem)
        self.backprop = _ready(framework, methods.backprop, problem)

    @track("× backprop")
    def track_seconds_over_backprop(self, framework: str, method: str, layers: int) -> float:
        """Median over rounds, in which the method and plain backprop take turns."""
        return statistics.median(_seconds(self.run) / _seconds(self.backprop) for _ in range(ROUNDS))


class Narrow:
    """The time of Moonwalk relative to plain backprop where the input is small and couplings are wide inside (§1)."""

    params = (["moonwalk", "moonwalk_mixed"],)
    param_names = ("method",)
    timeout = 900

    def setup(self, method: str) -> None:
        """Only on the host."""
        on_host()
        if not installed("jax"):
            raise NotImplementedError("jax is not installed")
        os.environ.update(environment())

    @track("× backprop")
    def track_seconds_over_backprop(self, method: str) -> float:
        """Median over rounds."""
        from gradgate.references.invertible.paper.timings import over_backprop

        return over_backprop(method)


class Forward:
    """§6.2: forward with its tangents mapped together, and the time of compiling it with each JVP written out."""

    timeout = 900

    def setup(self) -> None:
        """Only on the host."""
        on_host()
        if not installed("jax"):
            raise NotImplementedError("jax is not installed")
        os.environ.update(environment())

    @track("× one at a time")
    def track_mapped_over_single(self) -> float:
        """Seconds of a step, 256 tangents together."""
        from gradgate.references.invertible.paper.timings import mapped_over_single

        return mapped_over_single()

    @track("× mapped")
    def track_compile_unrolled_over_mapped(self) -> float:
        """Seconds of compilation."""
        from gradgate.references.invertible.paper.timings import compile_unrolled_over_mapped

        return compile_unrolled_over_mapped(1)


def _ready(framework: str, function: Callable[..., Any], problem: Any) -> Callable[[], Any]:
    """A call of the function that waits for its result; it is compiled in JAX, and has run once."""
    if framework == "jax":
        import jax

        compiled = jax.jit(function)

        def run() -> Any:
            return jax.block_until_ready(compiled(problem))
    else:

        def run() -> Any:
            return function(problem)

    run()
    return run


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
