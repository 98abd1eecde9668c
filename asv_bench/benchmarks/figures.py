"""Bytes and FLOPs of every method on one profile: exact, and the very figures of the gate, from the same cache."""

from __future__ import annotations

import os
from typing import Any

from benchmarks.common import HOST, METHODS, PROFILE, track


def _measured() -> dict[str, dict[str, Any]]:
    """Method -> its figure on this profile, for every method that this commit has and the profile can measure."""
    from gradgate.suites.gate import manifest
    from gradgate.suites.gate.compare import figures
    from gradgate.suites.gate.side import Side

    paths = os.environ.get("GRADGATE_IMPORT", "").split(os.pathsep)
    side = Side({"own": True, "paths": paths, "jobs": 2, "limit": 600.0})
    rows = [manifest.to_dict(cell) for known in side.methods.values() for cell in known.cells((PROFILE,))]
    rows = [row for row in rows if row["framework"] == "jax" or PROFILE == HOST]  # eager bytes are the same everywhere
    found: dict[str, dict[str, Any]] = {}

    def keep(event: dict[str, Any]) -> None:
        figure = event["figure"]
        measured = figures(figure) if figure["status"] in ("measured", "too_large") else {}
        found[manifest.owner(figure["cell"])] = {"reason": figure["reason"], "status": figure["status"], **measured}

    side.measure(rows, keep)
    return found


class Figures:
    """One point per method and profile, at the problem and the options at which the gate compares."""

    params = (METHODS,)
    param_names = ("method",)
    timeout = 3600

    def setup_cache(self) -> dict[str, dict[str, Any]]:
        """Measure every method once; the benchmarks below only look up."""
        return _measured()

    def setup(self, measured: dict[str, dict[str, Any]], method: str) -> None:
        """Find the method's figure; a failure is a failed benchmark, not a gap."""
        if method not in measured:
            raise NotImplementedError(f"{method} is not measured on {PROFILE}")
        self.figure = measured[method]
        if self.figure["status"] not in ("measured", "too_large"):
            raise RuntimeError(f"{self.figure['status']}: {self.figure['reason']}")

    @track("bytes")
    def track_temp_bytes(self, measured: dict[str, dict[str, Any]], method: str) -> int | None:
        """Temporaries."""
        return self.figure.get("temp_bytes")

    @track("bytes")
    def track_state_bytes(self, measured: dict[str, dict[str, Any]], method: str) -> int | None:
        """Arguments + outputs − aliases."""
        return self.figure.get("state_bytes")

    @track("FLOPs")
    def track_flops(self, measured: dict[str, dict[str, Any]], method: str) -> int | None:
        """Arithmetic operations."""
        return self.figure.get("flops")
