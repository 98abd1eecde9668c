"""Bytes and FLOPs of every method on one profile: exact, the same figures as in the gate, from the same cache."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from benchmarks.common import ENTRIES, PROFILE, track


def _measured() -> dict[str, dict[str, Any]]:
    """Name -> figure on this profile, for every method that this commit has and the profile can measure."""
    from gradgate.suites.gate import manifest
    from gradgate.suites.gate.compare import figures
    from gradgate.suites.gate.side import Side

    paths = os.environ.get("GRADGATE_IMPORT", "").split(os.pathsep)
    side = Side({"own": True, "paths": paths, "jobs": 2, "limit": 600.0})
    names = {manifest.identity(e["cell"]): e["name"] for e in ENTRIES if e["cell"] and e["method"] in side.methods}
    rows = [entry["cell"] for entry in ENTRIES if entry["cell"] and entry["method"] in side.methods]
    found: dict[str, dict[str, Any]] = {}

    def keep(event: dict[str, Any]) -> None:
        if "figure" not in event:  # notes on what the next run measures again
            return
        figure = event["figure"]
        measured = figures(figure) if figure["status"] in ("measured", "too_large") else {}
        measured["peak_bytes"] = figure.get("peak_bytes") if measured else None
        found[names[manifest.identity(figure["cell"])]] = {
            "reason": figure["reason"],
            "status": figure["status"],
            "alive": figure.get("alive", []),
            **measured,
        }

    side.measure(rows, keep)
    if os.environ.get("GRADGATE_ALIVE"):  # a folder, of bench.py: what asv keeps of a benchmark are numbers
        texts = {name: "; ".join(figure["alive"]) for name, figure in found.items() if figure["alive"]}
        place = Path(os.environ["GRADGATE_ALIVE"]) / f"{os.environ['GRADGATE_COMMIT']}.json"
        place.write_text(json.dumps(texts), encoding="utf-8")
    return found


class Figures:
    """One point per method and profile, at the problem and the options at which the gate compares."""

    params = ([entry["name"] for entry in ENTRIES],)
    param_names = ("method",)
    timeout = 3600

    def setup_cache(self) -> dict[str, dict[str, Any]]:
        """Measure every method once; the benchmarks below only look up the figures."""
        return _measured()

    def setup(self, measured: dict[str, dict[str, Any]], method: str) -> None:
        """Find the method's figure; a failure is a failed benchmark, not a gap."""
        if method not in measured:
            raise NotImplementedError(f"{method} is not measured on {PROFILE}")
        self.figure = measured[method]
        if self.figure["status"] not in ("measured", "too_large"):
            raise RuntimeError(f"{self.figure['status']}: {self.figure['reason']}")

    @track("bytes")
    def track_temp_bytes(self, measured: dict[str, dict[str, Any]], method: str) -> float:
        """Temporaries."""
        return self._known("temp_bytes")

    @track("bytes")
    def track_state_bytes(self, measured: dict[str, dict[str, Any]], method: str) -> float:
        """Arguments + outputs − aliases."""
        return self._known("state_bytes")

    @track("bytes")
    def track_peak_bytes(self, measured: dict[str, dict[str, Any]], method: str) -> float:
        """The peak that the compiler reports, or eager PyTorch's; the host's compiler has none that can be trusted."""
        return self._known("peak_bytes")

    @track("FLOPs", version="2")  # version 1 counted n additions for a sum of n products
    def track_flops(self, measured: dict[str, dict[str, Any]], method: str) -> float:
        """Arithmetic operations."""
        return self._known("flops")

    def _known(self, quantity: str) -> float:
        """A figure; NaN, which asv takes for skipped and not for failed, if the profile does not have it."""
        value = self.figure.get(quantity)
        return math.nan if value is None else value
