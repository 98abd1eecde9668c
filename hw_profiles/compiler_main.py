"""The child process that compiles: ``python -m gradgate.hw_profiles.compiler_main``.

It reads pickled requests from its standard input, compiles each StableHLO text for hardware that this machine need not
have, and writes one pickled reply per request to its standard output. If a compiler crashes or hangs, it affects only
this process. The process ends when its parent ends.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import re
import sys
import threading
from typing import Any, TypedDict

from gradgate.hw_profiles import alive
from gradgate.hw_profiles.profile import Profile, cuda

# Limits of every NVIDIA GPU since capability 5.0 (CUDA C++ Programming Guide, technical specifications per capability).
_COMMON_GPU_LIMITS = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
}
VENDOR = '  device_vendor: "NVIDIA Corporation"\n'
# "Ran out of memory on HBM, the total memory required for HLO temporaries (298.02G) exceeds …" or "Used 20.5G of …".
_WANTED = re.compile(r"(?:required[^(]*\(|Used )([0-9.]+)([KMGT]?)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Request(TypedDict):
    """One module to compile for ``devices`` devices of the profile."""

    text: str
    profile: Profile
    devices: int


class Reply(TypedDict, total=False):
    """``status`` is measured, too_large or refused. Sizes are bytes on one device; ``reason`` is a sentence.

    ``alive`` names the largest temporaries (`alive.named`).
    """

    status: str
    reason: str
    temp_bytes: int
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    peak_bytes: int
    required_bytes: int | None
    alive: tuple[str, ...]


def main() -> None:
    """Answer requests until the standard input ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # compilers print; the pipe to the parent is only for replies
    requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        pickle.dump(answer(requests.get()), replies)
        replies.flush()


def _listen(requests: queue.SimpleQueue[Request]) -> None:
    # In a separate thread, so that the end of the parent is noticed during a long compilation.
    while True:
        try:
            requests.put(pickle.load(sys.stdin.buffer))
        except EOFError:
            os._exit(0)


def answer(request: Request) -> Reply:
    """Compile one module and report its bytes; a compiler's error becomes a reply with its reason."""
    try:
        return _compile(request)
    except Exception as error:
        message = " ".join(str(error).split())[:600]
        if "RESOURCE_EXHAUSTED" not in message:
            return {"status": "refused", "reason": f"the compiler refused the program: {message}"}
        wanted = _WANTED.search(message)
        # The compiler rounds what it prints, so the figure is good to about three digits.
        required = int(float(wanted[1]) * _UNITS[wanted[2]]) if wanted else None
        return {"status": "too_large", "reason": f"too large for the device: {message}", "required_bytes": required}


def _compile(request: Request) -> Reply:
    import numpy as np
    from jax._src.compiler import get_compile_options
    from jax._src.interpreters.mlir import module_to_bytecode
    from jax.interpreters.mlir import make_ir_context
    from jaxlib._jax import DeviceList
    from jaxlib.mlir import ir

    devices = _devices(request["profile"])
    if request["devices"] > len(devices):
        reason = f"the mesh has {request['devices']} devices, the topology {len(devices)}: make the mesh smaller"
        return {"status": "refused", "reason": reason}
    devices = devices[: request["devices"]]
    assignment = np.array([[device.id for device in devices]])
    options = get_compile_options(1, len(devices), device_assignment=assignment)
    client = devices[0].client
    build = client.compile_and_load if request["profile"].compiler == "host" else client.compile
    with make_ir_context():
        module = ir.Module.parse(request["text"])
        given = {"executable_devices": DeviceList(tuple(devices)), "compile_options": options}
        try:
            executable = build(module, **given)
        except TypeError:  # JAX 0.7 takes bytes; it is older than our range, but may be the gate's base
            executable = build(module_to_bytecode(module), **given)
    stats = executable.get_compiled_memory_stats()
    return {
        "status": "measured",
        "reason": "",
        "temp_bytes": stats.temp_size_in_bytes,
        "argument_bytes": stats.argument_size_in_bytes,
        "output_bytes": stats.output_size_in_bytes,
        "alias_bytes": stats.alias_size_in_bytes,
        "peak_bytes": stats.peak_memory_in_bytes,
        "alive": _alive(stats, executable),
    }


def _alive(stats: Any, executable: Any) -> tuple[str, ...]:
    """The largest temporaries; () with a JAX or a compiler that does not tell, because bytes do not depend on them."""
    assignment = getattr(stats, "serialized_buffer_assignment_proto", b"")
    if not assignment:
        return ()
    try:
        return tuple(
            alive.named(assignment, [one.as_serialized_hlo_module_proto() for one in executable.hlo_modules()])
        )
    except (AttributeError, IndexError, KeyError, UnicodeDecodeError) as error:
        print(f"the buffer assignment cannot be read: {error!r}", file=sys.stderr)
        return ()


def _devices(profile: Profile) -> list[Any]:
    """Return the devices of the profile's topology, as its compiler describes them."""
    import jax
    from jax.experimental import topologies

    if profile.compiler == "host":
        return list(jax.devices("cpu"))
    if profile.compiler == "cuda":
        importlib.import_module(cuda().module)  # registers the platform
        target, describe = gpu_target(profile), topologies.get_topology_desc
        try:
            return list(describe("", platform="cuda", target_config=target, topology="1x1x1").devices)
        except Exception as error:
            if "Failed to parse GpuTargetConfigProto" not in str(error):
                raise
        older = target.replace(VENDOR, "")  # up to 0.9.2 the description has no such field
        return list(describe("", platform="cuda", target_config=older, topology="1x1x1").devices)
    config = profile.target.get("chip_config")
    extra = {"chip_config_name": config} if config else {}
    return list(topologies.get_topology_desc(profile.target["topology"], platform="tpu", **extra).devices)


def gpu_target(profile: Profile) -> str:
    """Describe the GPU as XLA's ``GpuTargetConfigProto``, in text form."""
    facts = profile.target
    major, _, minor = facts["capability"].partition(".")
    info = _COMMON_GPU_LIMITS | {
        "core_count": facts["cores"],
        "fpus_per_core": facts["lanes_per_core"],
        "threads_per_core_limit": facts["threads_per_core"],
        "clock_rate_ghz": facts["clock_ghz"],
        "l2_cache_size": facts["l2_bytes"],
        "shared_memory_per_core": facts["shared_bytes_per_core"],
        "shared_memory_per_block_optin": facts["shared_bytes_per_block"],
        "device_memory_size": profile.memory_bytes,
        "memory_bandwidth": int(profile.bandwidth or 0),
    }
    lines = "".join(f"  {key}: {value}\n" for key, value in info.items())
    return (
        f"gpu_device_info {{\n{lines}"
        f"  cuda_compute_capability {{ major: {major} minor: {minor or 0} }}\n"
        f"{VENDOR}}}\n"
        'platform_name: "CUDA"\n'
        "dnn_version_info { major: 9 minor: 10 }\n"
        "runtime_version { major: 12 minor: 9 }\n"
        f'device_description_str: "{profile.name}"\n'
    )


if __name__ == "__main__":
    main()
