"""Steps as a history has them, made by hand."""

from __future__ import annotations

from gradgate.suites.releases.environments import Release
from gradgate.suites.releases.history import Step

NAME = "chain:sqrt_n:jax~ab12"


def step(version: str, required: int | None, *, again: int | None = None, flops: int = 100, name: str = NAME) -> Step:
    """One release on one profile with one method; without bytes it is a failed cell."""
    made = Step(Release.of(f"jax-{version}"), "nvidia-h100", versions={"jax": version}, commit="c0ffee")
    if required is None:
        made.put(name, {}, "refused: the compiler refused the program")
    else:
        made.put(name, {"required_bytes": required, "temp_bytes": required // 2, "flops": flops})
    if again is not None:
        made.again[name] = {"required_bytes": again, "temp_bytes": again // 2, "flops": flops}
    return made
