"""What the process of a worker has in its environment. This module imports no framework and nothing that judges.

The process that starts workers needs it too, and is quick because it imports nothing else of theirs.
"""

from __future__ import annotations

import os

import platformdirs

from gradgate.suites.pairs.device_names import ENVIRONMENT

HOST_DEVICES = 4
"""Number of CPU devices of JAX, so that methods over several devices can run."""

XLA_FLAGS = (
    "--xla_cpu_multi_thread_eigen=false",
    # Hundreds of small programs are compiled, and each runs a few times. These two make compiling three times cheaper.
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    # This takes another quarter off: each program is given to LLVM in one piece, not in parts for many threads.
    "--xla_cpu_parallel_codegen_split_count=1",
    # XLA may leave out a rounding to bfloat16 between two operations, in one program and not in another. A method that
    # computes a number twice and subtracts would then get different digits.
    "--xla_allow_excess_precision=false",
)

PIPE_CLOSED = 74  # EX_IOERR, which os does not have on every system
"""Exit status of a worker whose answering pipe is closed."""


def environment(device: str = "") -> dict[str, str]:
    """What has to be in the environment before JAX or PyTorch is imported.

    Args:
        device: the device of the pairs that the process is for (`gradgate.suites.pairs.devices`); "" for all others.

    There is one thread per worker: two workers share two cores, and a sum over threads could depend on their number.
    """
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(HOST_DEVICES),
        "JAX_COMPILATION_CACHE_DIR": os.path.join(platformdirs.user_cache_dir("gradgate"), "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "XLA_FLAGS": " ".join(filter(None, [os.environ.get("XLA_FLAGS"), *XLA_FLAGS])),
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONHASHSEED": "0",
        "PYTHONFAULTHANDLER": "1",
        **ENVIRONMENT[device],
    }
