"""Compile one program for a device that is not here, and print its bytes: ``probe.py NAME [TARGET]``, under any JAX.

It imports neither gradgate nor anything newer than JAX 0.4, so it measures releases that gradgate does not support.
TARGET is a file with XLA's description of a GPU; without it, the program is compiled for the host.
"""

# mypy: ignore-errors

import glob
import json
import os
import sys

os.environ.update(JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="2", JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1")
NEWER = ('  device_vendor: "NVIDIA Corporation"\n', "runtime_version { major: 12 minor: 9 }\n")
"""Parts of a description that older releases do not know; the first one is the newest."""


def on_gpu(target):
    """The device that a description describes."""
    import jax_plugins.xla_cuda12  # noqa: F401  registers the platform
    from jax.experimental import topologies

    for older in (None, *NEWER):
        target = target.replace(older, "") if older else target
        try:
            return topologies.get_topology_desc("", platform="cuda", target_config=target, topology="1x1x1").devices[0]
        except Exception as error:
            if "Failed to parse" not in str(error) or older == NEWER[-1]:
                raise
    raise AssertionError


def main(name, *target):
    """Print one line of JSON: the bytes, or the reason why there are none."""
    if target:
        os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
        tools = glob.glob(os.path.join(sys.prefix, "lib", "python3*", "site-packages", "nvidia", "cuda_nvcc", "bin"))
        os.environ["PATH"] = os.pathsep.join([*tools, os.environ.get("PATH", "")])
    import jax

    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import programs

    told = {"jax": jax.__version__, "program": name}
    try:
        function, arguments, donated = getattr(programs, name)()
        if target:
            with open(target[0]) as file:
                place = jax.sharding.SingleDeviceSharding(on_gpu(file.read()))
            shaped = jax.ShapeDtypeStruct
            arguments = jax.tree_util.tree_map(lambda s: shaped(s.shape, s.dtype, sharding=place), arguments)
        stats = jax.jit(function, donate_argnums=donated).lower(*arguments).compile().memory_analysis()
        if stats is None:
            told["reason"] = "this release reports no bytes of a program that is compiled ahead of time"
        else:
            told |= {
                "temp_bytes": stats.temp_size_in_bytes,
                "argument_bytes": stats.argument_size_in_bytes,
                "output_bytes": stats.output_size_in_bytes,
                "alias_bytes": stats.alias_size_in_bytes,
            }
    except Exception as error:
        told["reason"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
