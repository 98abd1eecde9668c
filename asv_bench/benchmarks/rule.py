"""What the rule of equality costs: measured in plain gradients of the same problem, side by side in one process."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from gradgate.suites.worker import environment

FRAMEWORKS = ["jax", "torch"]
ROUNDS = 15


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class Checking:
    """Cost of judging one gradient, beyond running the method."""

    params = (FRAMEWORKS, ["smallest", "middle", "largest"])
    param_names = ("framework", "shape")
    timeout = 300

    def setup(self, framework: str, shape: str) -> None:
        """Compile and warm everything that is timed."""
        os.environ.update(environment())
        from gradgate.references import oracle, registry
        from gradgate.references.contract import installed
        from gradgate.suites.strategies import edge_specs
        from gradgate.suites.tolerance import compare

        if not installed(framework):
            raise NotImplementedError(f"{framework} is not installed")
        specs = edge_specs(registry.family("state_space"), None, 0)
        spec = specs[{"smallest": 0, "middle": len(specs) // 2, "largest": 9}[shape]]
        problem = spec.build(framework)

        def plain() -> Any:
            return oracle.split(problem, oracle.gradient(problem)[1])

        def judge() -> Any:
            reference = oracle.reference(spec, framework, "float32")
            return compare(self.grads, reference, "float64", 16.0)

        self.plain, self.judge, self.grads = plain, judge, plain()
        judge()

    def track_plain_gradients(self, framework: str, shape: str) -> float:
        """Median over rounds of the time of one judgement over the time of one plain gradient."""
        return statistics.median(_seconds(self.judge) / _seconds(self.plain) for _ in range(ROUNDS))

    track_plain_gradients.unit = "plain gradients"  # type: ignore[attr-defined]
    track_plain_gradients.version = "1"  # type: ignore[attr-defined]

    def time_judgement(self, framework: str, shape: str) -> None:
        """Oracle, noise and comparison of one problem."""
        self.judge()

    time_judgement.version = "1"  # type: ignore[attr-defined]
