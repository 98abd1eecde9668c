"""Bytes and work of a JAX program on a profile, compiled ahead of time on a machine without that hardware.

The program is traced and lowered here, which needs no compiler of the target. The lowered text is the key of the cache.
If it is not in the cache, a child process compiles it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from gradgate.hw_profiles import cache as caching
from gradgate.hw_profiles.compiler_main import Reply, Request, gpu_target
from gradgate.hw_profiles.compiler_process import FLAGS, process_for
from gradgate.hw_profiles.fingerprint import compile_fingerprint, fingerprint
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.profile import Profile, availability, load
from gradgate.hw_profiles.traced import LoweringError, Traced, trace

PLATFORMS = {"host": "cpu", "cuda": "cuda", "tpu": "tpu"}
LIMIT = 600.0  # seconds; a paper-scale model compiles in up to two minutes


def measure(
    program: Callable[..., Any],
    arguments: Sequence[Any],
    profile: Profile | str,
    *,
    x64: bool = False,
    static: Mapping[str, Any] | None = None,
    donate: Sequence[int] = (),
    mesh: Mapping[str, int] | None = None,
    in_specs: Any = None,
    out_specs: Any = None,
    limit: float = LIMIT,
    cache: caching.Cache | None = None,
    use_cache: bool = True,
) -> Measurement:
    """Compile ``program(*arguments, **static)`` for a profile and return its bytes and work.

    Args:
        program, arguments, x64, static, donate, mesh, in_specs, out_specs: as for `traced.trace`. With a mesh, all
            bytes are those of one chip.
        profile: a profile or its name.
        limit: seconds that one compilation may take.
        cache: where measured bytes are kept; default: the user's cache.
        use_cache: if False, the program is always compiled, and nothing is stored.

    Returns:
        A measurement in every case. If the compiler is missing, refuses the program, crashes or takes too long, or if
        the program raises, the measurement has a status that says so, and a reason.

    Raises:
        ProfileError: the name of the profile is unknown.

    Cost: only tracing if the program is in the cache; otherwise from 0.1 s (small GPU and TPU programs) to minutes
    (unrolled loops). The first compilation for each compiler also starts a child process, 1 to 3 s.
    """
    if isinstance(profile, str):
        profile = load(profile)
    given = {"x64": x64, "static": static, "donate": donate, "mesh": mesh, "in_specs": in_specs, "out_specs": out_specs}
    try:
        traced = trace(program, arguments, **given)
    except LoweringError as error:
        return Measurement(profile.name, "failed", str(error), x64=x64, fingerprint=fingerprint(profile))
    return measure_traced(traced, profile, limit=limit, cache=cache, use_cache=use_cache)


def measure_traced(
    traced: Traced,
    profile: Profile | str,
    *,
    limit: float = LIMIT,
    cache: caching.Cache | None = None,
    use_cache: bool = True,
) -> Measurement:
    """As `measure`, for a program that is already traced. So a program is traced once for several profiles."""
    if isinstance(profile, str):
        profile = load(profile)
    flags = FLAGS[profile.compiler] if profile.compiler else {}
    devices = traced.devices
    versions = fingerprint(profile, flags)
    record = partial(Measurement, profile=profile.name, devices=devices, x64=traced.x64, fingerprint=versions)
    if devices > 1 and profile.compiler not in ("tpu", "host"):
        reason = f"several devices need a TPU profile or the host's; {profile.name!r} is one device"
        return record(status="refused", reason=reason)
    figures, reason = traced.work
    record = partial(record, **figures)
    present = availability(profile)
    if profile.compiler is None or not present.available:
        return record(status="unavailable", reason=present.reason)
    try:
        text = traced.text(PLATFORMS[profile.compiler])
    except LoweringError as error:
        return record(status="failed", reason=str(error))

    facts = compile_fingerprint(profile, flags) | {"devices": str(devices)}
    if profile.compiler == "cuda":
        facts["target"] = gpu_target(profile)
    entry = caching.key(text, facts)
    cache = cache or caching.Cache()
    stored = cast("Reply | None", cache.get(entry)) if use_cache else None
    if stored is not None:
        reply = stored
    else:
        reply = process_for(profile.compiler).compile(Request(text=text, profile=profile, devices=devices), limit)
        if use_cache and reply["status"] in ("measured", "too_large"):
            cache.put(entry, reply)
    return _judge(partial(record, cached=stored is not None), profile, dict(reply), reason)


def _judge(record: Callable[..., Measurement], profile: Profile, reply: dict[str, Any], reason: str) -> Measurement:
    """Complete the compiler's reply with the required bytes, and whether they fit."""
    memory = profile.device_memory_bytes
    if reply["status"] == "too_large":
        return record(fits=False, **reply)
    if reply["status"] != "measured":
        return record(**reply)
    required = reply["temp_bytes"] + reply["argument_bytes"] + reply["output_bytes"] - reply["alias_bytes"]
    reply |= {
        "reason": reason,
        "required_bytes": required,
        "fits": None if memory is None else required <= memory,
        # The figure of the host's compiler does not take rematerialisation into account.
        "peak_bytes": None if profile.compiler == "host" else reply["peak_bytes"],
    }
    return record(**reply)
