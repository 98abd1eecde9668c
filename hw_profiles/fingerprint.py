"""What a figure depends on, apart from the program: versions, platform, profile and compiler flags."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping

from gradgate.hw_profiles.profile import Profile, cuda, installed, toolchain

PACKAGES = (
    "gradgate",
    "jax",
    "jaxlib",
    "libtpu",
    "torch",
    "triton",
    "numpy",
    "array-api-compat",
    "hypothesis",
)


def fingerprint(profile: Profile | None = None, flags: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the versions of Python and of every installed package that can change a figure, read from metadata.

    With a profile, the result also has its name and the hash of its facts; with flags, each one as ``flag:NAME``. This
    imports neither JAX nor PyTorch, and takes less than a millisecond per package.
    """
    out = {"python": platform.python_version(), "machine": f"{sys.platform}-{platform.machine()}"}
    out.update(installed((*PACKAGES, *cuda().packages)))
    if profile is not None:
        out["profile"] = profile.name
        out["profile_hash"] = profile.digest()
    out.update({f"flag:{name}": value for name, value in sorted((flags or {}).items())})
    return out


def compile_fingerprint(profile: Profile, flags: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the fingerprint that can change compiled bytes; it is a part of the cache's key.

    Raises:
        ValueError: the profile has no compiler.
    """
    if profile.compiler is None:
        raise ValueError(f"profile {profile.name!r} has no compiler")
    out = installed(toolchain(profile.compiler))
    out["profile_hash"] = profile.digest()
    if profile.compiler == "host":
        out["machine"] = f"{sys.platform}-{platform.machine()}"
    out.update({f"flag:{name}": value for name, value in sorted(flags.items())})
    return out
