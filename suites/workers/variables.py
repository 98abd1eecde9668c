"""What the process of a worker has in its environment. This module imports no framework and nothing that judges.

The process that starts workers needs it too, and is quick because it imports nothing else of theirs.
"""

from __future__ import annotations

import functools
import os
from importlib import metadata

import platformdirs

from gradgate.suites.pairs.device_names import ENVIRONMENT

HOST_DEVICES = 4
"""Number of CPU devices of JAX, so that methods over several devices can run."""

WITHOUT_EMITTERS = "--xla_cpu_use_fusion_emitters=false"
"""A flag that ends the process in jaxlib 0.11.1 and later, which do not know it any more."""
XLA_FLAGS = (
    "--xla_cpu_multi_thread_eigen=false",
    # Hundreds of small programs are compiled, and each runs a few times. These two make compiling three times cheaper.
    "--xla_backend_optimization_level=0",
    WITHOUT_EMITTERS,
    # This takes another quarter off: each program is given to LLVM in one piece, not in parts for many threads.
    "--xla_cpu_parallel_codegen_split_count=1",
    # XLA may leave out a rounding to bfloat16 between two operations, in one program and not in another. A method that
    # computes a number twice and subtracts would then get different digits.
    "--xla_allow_excess_precision=false",
)

PIPE_CLOSED = 74  # EX_IOERR, which os does not have on every system
"""Exit status of a worker whose answering pipe is closed."""


def xla_flags(jaxlib: str) -> list[str]:
    """The flags that a version of jaxlib knows; of none, if jaxlib is not installed, all of them.

    >>> [WITHOUT_EMITTERS in xla_flags(version) for version in ("", "0.10.2", "0.11.0", "0.11.1", "0.12.0")]
    [True, True, True, False, False]
    """
    numbers = tuple(int(part) for part in jaxlib.split(".")[:3] if part.isdecimal())
    return [flag for flag in XLA_FLAGS if flag != WITHOUT_EMITTERS or numbers < (0, 11, 1)]


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
        "XLA_FLAGS": " ".join(filter(None, [os.environ.get("XLA_FLAGS"), *xla_flags(_jaxlib())])),
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONHASHSEED": "0",
        "PYTHONFAULTHANDLER": "1",
        **ENVIRONMENT[device],
    }


@functools.cache
def _jaxlib() -> str:
    """The version of jaxlib; "" if it is not installed."""
    try:
        return metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return ""
