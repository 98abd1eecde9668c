"""What a pair keeps between its passes, eager and under torch.compile, and its compiled peak: exact, from shapes."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.common import on_host, track

PAIRS = {
    "rms_norm": "gradgate.suites.guide.examples.rms_norm:pair",
    "attention": "gradgate.suites.guide.examples.attention:attention_torch",
}
"""Name -> a pair of the guide in PyTorch; attention does not compose with torch.compile."""


class Passes:
    """The figures at the problem at which the gate compares a pair."""

    params = (list(PAIRS),)
    param_names = ("pair",)
    timeout = 600

    def setup(self, name: str) -> None:
        """Count the figures of a pair."""
        on_host()
        from gradgate.references.contract import installed
        from gradgate.suites.measuring import cells

        if not installed("torch") or not hasattr(cells, "of_passes"):
            raise NotImplementedError("PyTorch is not installed, or this commit cannot count them")
        module, _, pair = PAIRS[name].partition(":")
        declared: Any = getattr(importlib.import_module(module), pair)
        method = declared.lowered
        spec = declared.spec(**declared.family.measured)
        self.figures = cells.of_passes(declared, spec, cells.usual_options(method, spec))
        if "reason" in self.figures:
            raise RuntimeError(self.figures["reason"])

    @track("bytes")
    def track_residual_bytes(self, name: str) -> int | None:
        """Kept between the passes."""
        return self.figures.get("residual_bytes")

    @track("bytes")
    def track_compiled_residual_bytes(self, name: str) -> int | None:
        """Kept between the passes under torch.compile."""
        return self.figures.get("compiled_residual_bytes")

    @track("bytes")
    def track_compiled_peak_bytes(self, name: str) -> int | None:
        """Inductor's estimate of the peak of the larger pass."""
        return self.figures.get("compiled_peak_bytes")
