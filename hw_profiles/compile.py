"""Bytes and work of a JAX program on a profile, compiled ahead of time on a machine without that hardware.

The program is traced and lowered here, which needs no compiler of the target; the lowered text is the key of the
cache. Only on a miss is it compiled, in a child process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, cast

from gradgate.hw_profiles import cache as caching
from gradgate.hw_profiles import work
from gradgate.hw_profiles.compiler_main import Reply, Request, gpu_target
from gradgate.hw_profiles.compiler_process import FLAGS, process_for
from gradgate.hw_profiles.fingerprint import compile_fingerprint, fingerprint
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.profile import Profile, availability, load

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
    """Compile ``program(*arguments, **static)`` for a profile and report what it takes.

    Args:
        program: a function that JAX can trace. It is never run.
        arguments: one tree per positional argument; leaves are arrays or ``jax.ShapeDtypeStruct``, of which only
            shape and dtype count, or Python scalars.
        profile: a profile or its name.
        x64: whether 64-bit types are on while the program is traced. They change a program's bytes even where
            none occurs, so this is explicit and no global flag is read or set.
        static: keyword arguments bound before tracing (options of a method).
        donate: positions of arguments whose memory the outputs may reuse.
        mesh: axis names and sizes, for a program on several chips of one TPU topology, or on several devices that
            the host is divided into: ``{"x": 4}``. The program is traced under this mesh, so ``jax.shard_map`` finds
            it without being given one. All bytes are then those of one chip.
        in_specs: with ``mesh``: a tree prefix of ``PartitionSpec`` for the arguments; None leaves it to the compiler.
        out_specs: the same for the result.
        limit: seconds that one compilation may take.
        cache: where measured bytes are kept; default: the user's cache.
        use_cache: False compiles in any case and stores nothing.

    Returns:
        A measurement in every case: a missing compiler, a refused program, a crash, a time limit or an exception
        of the program are statuses with a reason.

    Raises:
        ProfileError: the name of the profile is unknown.

    Cost: tracing only when the program is in the cache; else from 0.1 s on (small GPU and TPU programs) to
    minutes (unrolled loops). The first compilation for each compiler also starts a child process, 1 to 3 s.
    """
    if isinstance(profile, str):
        profile = load(profile)
    flags = FLAGS[profile.compiler] if profile.compiler else {}
    devices = prod((mesh or {}).values())
    record = partial(
        Measurement, profile=profile.name, devices=devices, x64=x64, fingerprint=fingerprint(profile, flags)
    )
    if mesh and devices > 1 and profile.compiler not in ("tpu", "host"):
        reason = f"several devices need a TPU profile or the host's; {profile.name!r} is one device"
        return record(status="refused", reason=reason)
    try:
        traced, lower = _trace(program, arguments, x64, static or {}, donate, mesh, in_specs, out_specs)
        counted, reason = _work(traced)
        record = partial(record, **counted)
        present = availability(profile)
        if profile.compiler is None or not present.available:
            return record(status="unavailable", reason=present.reason)
        text = lower(PLATFORMS[profile.compiler])
    except (Exception, SystemExit) as error:
        return record(status="failed", reason=f"the program could not be lowered: {type(error).__name__}: {error}")

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
    """Completes the compiler's reply: what it adds up to, and whether that fits."""
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
        # The host compiler's figure is blind to rematerialisation.
        "peak_bytes": None if profile.compiler == "host" else reply["peak_bytes"],
    }
    return record(**reply)


def _work(traced: Any) -> tuple[dict[str, int], str]:
    try:
        counted = work.count(traced)
    except work.WorkError as error:
        return {}, f"work not counted: {error}"
    figures = {
        "flops": counted.flops,
        "transcendentals": counted.transcendentals,
        "bytes_moved": counted.bytes_moved,
    }
    return figures, "; ".join(counted.notes)


def _trace(
    program: Callable[..., Any],
    arguments: Sequence[Any],
    x64: bool,
    static: Mapping[str, Any],
    donate: Sequence[int],
    mesh: Mapping[str, int] | None,
    in_specs: Any,
    out_specs: Any,
) -> tuple[Any, Callable[[str], str]]:
    """Return the program's jaxpr, and a function that lowers it to StableHLO text for a platform."""
    import jax

    shapes = jax.tree.map(partial(_shape, x64=x64), tuple(arguments))
    options: dict[str, Any] = {"donate_argnums": tuple(donate)}
    context: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    if mesh:
        abstract = jax.sharding.AbstractMesh(tuple(mesh.values()), tuple(mesh))
        context = partial(jax.sharding.use_abstract_mesh, abstract)

        def place(spec: Any) -> Any:
            return jax.sharding.NamedSharding(abstract, spec)

        for name, specs in (("in_shardings", in_specs), ("out_shardings", out_specs)):
            if specs is not None:
                options[name] = jax.tree.map(place, specs, is_leaf=lambda x: isinstance(x, jax.P))
    # A fresh function, so that JAX's own cache of traces cannot answer for another setting.
    jitted = jax.jit(partial(program, **static), **options)
    with jax.enable_x64(x64), context():
        traced = jitted.trace(*shapes)

    def lower(platform: str) -> str:
        with jax.enable_x64(x64), context():
            return str(traced.lower(lowering_platforms=(platform,)).as_text())

    return traced.jaxpr, lower


def _shape(leaf: Any, x64: bool) -> Any:
    import jax

    if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
        return leaf
    if not x64 and str(leaf.dtype) in ("float64", "complex128", "int64", "uint64"):
        raise TypeError(f"an argument of dtype {leaf.dtype} needs x64=True; without it JAX would narrow it silently")
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=bool(getattr(leaf, "weak_type", False)))
