"""What the methods promise of memory and work: the paper's claims with their source, and what is added here."""

from __future__ import annotations

from gradgate.references.contract import Claim

JAX: dict[str, tuple[Claim, ...]] = {}
TORCH: dict[str, tuple[Claim, ...]] = {}
PROMISES = {"jax": JAX, "torch": TORCH}
"""Framework -> method -> its claims about memory and work."""
