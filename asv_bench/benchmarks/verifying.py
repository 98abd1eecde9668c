"""The cost of judging one method: programs traced for it, and CPU time relative to one plain gradient."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.common import declared, on_host, track

METHODS = ("state_space:reverse_recurrence:jax", "state_space:reverse_recurrence:torch")
EXAMPLES = 12
ROUNDS = 5
SCRIPT = """
import json, sys, time
from gradgate.references import oracle, registry
from gradgate.suites.gate.manifest import measured_spec
from gradgate.suites.engine import search
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task

family, name, framework = sys.argv[1].split(":")
traced = []
if framework == "jax":
    import jax

    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: traced.append(1) if event.endswith("/jaxpr_to_mlir_module_duration") else None
    )
[method] = registry.methods(family, name, framework)
problem = measured_spec(registry.family(family), framework).build(framework)
oracle.split(problem, oracle.gradient(problem)[1])
start = time.process_time()
for _ in range(int(sys.argv[3])):
    oracle.split(problem, oracle.gradient(problem)[1])
plain = (time.process_time() - start) / int(sys.argv[3])
traced.clear()
start, subject = time.process_time(), Subject.load(method)
for claim in method.claims:
    search.judge(Task.of(method, claim), subject, Run(examples=int(sys.argv[2])))
print(json.dumps({"programs": len(traced), "ratio": (time.process_time() - start) / plain}))
"""
"""Judges every claim of a method in one process, without a cache of compiled programs."""


class Verifying:
    """Judge one method of each framework: every claim, on few problems, without a cache."""

    params = (METHODS,)
    param_names = ("method",)
    timeout = 1800

    def setup_cache(self) -> dict[str, dict[str, Any]]:
        """Judge each method once; the benchmarks only look up the figures."""
        on_host()
        return {method: measured(method) for method in METHODS}

    @track("programs")
    def track_programs(self, found: dict[str, dict[str, Any]], method: str) -> int:
        """Programs lowered by JAX while the method is judged; the cost without a cache is proportional to it."""
        if method.endswith("torch"):
            raise NotImplementedError("eager PyTorch traces no programs")
        return int(found[method]["programs"])

    @track("× gradient")
    def track_cpu_over_gradient(self, found: dict[str, dict[str, Any]], method: str) -> float:
        """CPU time of judging, relative to one plain gradient at the problem at which bytes are measured."""
        return float(found[method]["ratio"])


def measured(method: str) -> dict[str, Any]:
    """Programs and ratio of one method."""
    from gradgate.suites.workers.variables import environment

    declared(method)
    with tempfile.TemporaryDirectory(prefix="gradgate-bench-") as folder:
        fresh = {"GRADGATE_CACHE": folder, "JAX_COMPILATION_CACHE_DIR": os.path.join(folder, "xla")}
        ran = subprocess.run(
            [sys.executable, "-c", SCRIPT, method, str(EXAMPLES), str(ROUNDS)],
            env={**os.environ, **environment(), **fresh},
            capture_output=True,
            text=True,
            check=True,
        )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found
