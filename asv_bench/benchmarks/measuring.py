"""The time that measuring a small cell takes, when its program is compiled and when it is in the cache."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from typing import Any

from gradgate.hw_profiles.profile import load_all

FAMILY, METHOD = "state_space", "reverse_recurrence"
COMPILED = [profile.name for profile in load_all() if profile.compiler]
"""Profiles whose bytes come from a compiler."""


class Cell:
    """One small cell on each profile, with the profile's compiler already running."""

    timeout = 300
    version = "1"
    params = (COMPILED,)
    param_names = ("profile",)

    def setup(self, profile: str) -> None:
        """Start the profile's compiler and fill a separate cache for this benchmark."""
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
        from gradgate.suites.measuring.cells import of_method, usual_options

        family = registry.family(FAMILY)
        [declared] = registry.methods(FAMILY, METHOD, "jax")
        spec = dataclasses.replace(registry.spec_class(FAMILY)(**family.measured), length=length)
        program, arguments, _ = of_method(
            declared, registry.load(declared.implementation), spec, usual_options(declared, spec)
        )
        return measure(program, arguments, profile, cache=self.cache, use_cache=use_cache)


class Sweep:
    """A hundred cells by the command line: ten profiles at ten lengths, all of them in the cache."""

    timeout = 900
    number = 1
    rounds = 1
    version = "1"

    def setup(self) -> None:
        """Measure every cell once, with a separate cache for this benchmark."""
        from gradgate.hw_profiles.profile import availability, load

        there = [name for name in COMPILED if availability(load(name)).available][:10]
        if len(there) < 10:
            raise NotImplementedError(f"the compilers of {len(there)} profiles are installed, and ten are measured")
        self.folder = tempfile.TemporaryDirectory(prefix="gradgate-bench-")
        command = [sys.executable, "-m", "gradgate.suites.cli", "memory", "--family", FAMILY, "--method", METHOD]
        self.command = [*command, "--framework", "jax", "--profile", ",".join(there), "--sweep", "T=2:1024"]
        self.time_a_hundred_warm_cells()

    def teardown(self) -> None:
        """Remove the cache."""
        self.folder.cleanup()

    def time_a_hundred_warm_cells(self) -> None:
        """The whole command: imports, tracing, reading the bytes, the laws, the table."""
        environment = os.environ | {"GRADGATE_CACHE": self.folder.name}
        subprocess.run(self.command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
