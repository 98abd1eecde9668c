"""The cost of the rule of equality, as a multiple of one plain gradient of the same problem, in the same process."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

from gradgate.references import registry
from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.workers.variables import environment

ROUNDS = 15
SHAPES = ("smallest", "middle", "largest")


def roundings() -> list[str]:
    """Every family as ``family``, and as ``family:loss`` for each loss whose rounding one of its methods is allowed."""
    found = {(m.family, m.rounding) for m in registry.methods()}
    return [f"{family}:{rounding}" if rounding else family for family, rounding in sorted(found)]


def cpu_seconds(function: Callable[[], Any]) -> float:
    """CPU time of one call; other processes on the machine do not count."""
    start = time.process_time()
    function()
    return time.process_time() - start


class Checking:
    """Cost of judging one gradient, without running the method: oracle, noise and comparison, with nothing cached.

    ``family`` is judged by the plain rule, and ``family:loss`` by the rule for methods that may round as that loss
    does. The shapes are the edge cases of the family that such a method takes, ordered by their number of parameters.
    """

    params = (list(FRAMEWORKS), roundings(), list(SHAPES))
    param_names = ("framework", "problems", "shape")
    timeout = 300

    def setup(self, framework: str, problems: str, shape: str) -> None:
        """Compile and run once everything that is timed."""
        os.environ.update(environment())
        from gradgate.references import oracle
        from gradgate.references.backends import leaves
        from gradgate.references.contract import installed
        from gradgate.suites.engine.strategies import edge_specs
        from gradgate.suites.exact import truth
        from gradgate.suites.judging.tolerance import compare

        if not installed(framework):
            raise NotImplementedError(f"{framework} is not installed")
        family, _, rounding = problems.partition(":")
        method = next(m for m in registry.methods(family, None, framework) if m.rounding == rounding)
        specs = edge_specs(registry.family(family), method.claim("gradient_float64").where, 0)
        specs.sort(key=lambda spec: sum(leaf.size for leaf in leaves(spec.build("numpy").params)))
        spec = specs[SHAPES.index(shape) * (len(specs) - 1) // 2]
        problem = spec.build(framework)  # type: ignore[arg-type]

        def plain() -> Any:
            return oracle.split(problem, oracle.gradient(problem)[1])

        def judge() -> Any:
            reference = oracle.measure(wide, "float64", rounding=rounding, truth=known)
            return compare(self.grads, reference, "float64")

        wide, known = oracle.in_widest(spec, framework, "float64"), truth.of_spec(spec, framework, "", "loss", ())
        self.plain, self.judge, self.grads = plain, judge, plain()
        judge()

    def track_plain_gradients(self, framework: str, problems: str, shape: str) -> float:
        """Median over rounds of the CPU time of one judgement over that of one plain gradient."""
        return statistics.median(cpu_seconds(self.judge) / cpu_seconds(self.plain) for _ in range(ROUNDS))

    track_plain_gradients.unit = "plain gradients"  # type: ignore[attr-defined]
    track_plain_gradients.version = "3"  # type: ignore[attr-defined]

    def time_judgement(self, framework: str, problems: str, shape: str) -> None:
        """Oracle, noise and comparison of one problem."""
        self.judge()

    time_judgement.version = "3"  # type: ignore[attr-defined]
