"""Error, time and memory of running each method once, on the host, compared with plain backprop of the same problem."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.common import METHODS, declared, on_host, track
from gradgate.suites.workers.variables import environment

ROUNDS = 9


class _Running:
    """Builds the problem at which PyTorch methods are gated, and compiles both gradients."""

    params = (METHODS,)
    param_names = ("method",)
    timeout = 600

    def setup(self, method: str) -> None:
        on_host()
        os.environ.update(environment())
        from gradgate.references import oracle, registry
        from gradgate.suites.gate.manifest import measured_spec
        from gradgate.suites.judging.subject import Subject
        from gradgate.suites.measuring.cells import usual_options

        known = declared(method)
        self.spec = measured_spec(registry.family(known.family), "torch")
        self.subject = Subject.load(known)
        problem, self.options = self.spec.build(known.framework), usual_options(known, self.spec)
        self.run: Callable[[], Any] = lambda: self.subject.gradient(problem, self.options)
        self.backprop: Callable[[], Any] = lambda: oracle.split(problem, oracle.gradient(problem)[1])
        self.answer = self.run()
        self.backprop()


class Error(_Running):
    """Distance from the float64 oracle, in units of the noise of plain backprop: the same figure as in the verdict."""

    @track("noise")
    def track_error_over_noise(self, method: str) -> float:
        """The ratio of the worst leaf, in float32."""
        from gradgate.references import oracle
        from gradgate.suites.judging.tolerance import compare

        known = self.subject.declared
        options = {} if known.oracle == "loss" else self.options
        problem = oracle.in_widest(self.spec, known.framework, self.spec.dtype)  # too long for sixty digits
        reference = oracle.measure(problem, self.spec.dtype, known.oracle, **options)
        return compare(self.answer[1], reference, self.spec.dtype, known.kappa).ratio


class Speed(_Running):
    """Wall time, which is advisory; also as a ratio within one process, which a slow machine does not change."""

    @track("× backprop")
    def track_time_over_backprop(self, method: str) -> float:
        """Median over rounds, in which the method and backprop take turns."""
        return statistics.median(_seconds(self.run) / _seconds(self.backprop) for _ in range(ROUNDS))

    @track("seconds")
    def time_gradient(self, method: str) -> None:
        """One compiled call."""
        self.run()


class Memory(_Running):
    """Whole-process memory of running a method, frameworks included; advisory."""

    @track("bytes")
    def peakmem_gradient(self, method: str) -> None:
        """Largest resident size."""
        self.run()


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start
