"""What the methods promise of memory and work."""

from __future__ import annotations

from typing import Any

PROMISES: dict[str, dict[str, Any]] = {"jax": {}, "torch": {}}
