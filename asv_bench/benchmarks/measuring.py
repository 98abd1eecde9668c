"""What measuring a small cell costs: compiled for the first time, and when its program is in the cache."""

from __future__ import annotations

import dataclasses
import tempfile
from typing import Any

from gradgate.hw_profiles.profile import load_all

FAMILY, METHOD = "state_space", "reverse_recurrence"


class Cell:
    """One small cell on each profile, the profile's compiler already running."""

    timeout = 300
    version = "1"
    params = ([profile.name for profile in load_all() if profile.compiler],)
    param_names = ("profile",)

    def setup(self, profile: str) -> None:
        """Start the profile's compiler and fill a cache of this benchmark's own."""
        from gradgate.hw_profiles.cache import Cache
        from gradgate.hw_profiles.profile import availability, load

        if not availability(load(profile)).available:
            raise NotImplementedError(f"the compiler of {profile} is not installed")
        self.folder = tempfile.TemporaryDirectory(prefix="gradgate-bench-")
        self.cache = Cache(self.folder.name)
        self._measure(profile, 32)
        self._measure(profile, 64)

    def teardown(self, profile: str) -> None:
        """Remove the cache."""
        self.folder.cleanup()

    def time_cold(self, profile: str) -> None:
        """Trace, lower and compile."""
        assert not self._measure(profile, 64, use_cache=False).cached

    def time_warm(self, profile: str) -> None:
        """Trace and lower; the bytes are in the cache."""
        assert self._measure(profile, 64).cached

    def _measure(self, profile: str, length: int, use_cache: bool = True) -> Any:
        from gradgate.hw_profiles.compile import measure
        from gradgate.references import registry
        from gradgate.suites.cells import of_method, usual_options

        family = registry.family(FAMILY)
        [declared] = registry.methods(FAMILY, METHOD, "jax")
        spec = dataclasses.replace(registry.spec_class(FAMILY)(**family.measured), length=length)
        program, arguments, _ = of_method(
            declared, registry.load(declared.implementation), spec, usual_options(declared, spec)
        )
        return measure(program, arguments, profile, cache=self.cache, use_cache=use_cache)
