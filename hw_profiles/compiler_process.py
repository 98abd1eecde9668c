"""The parent's side of the compiling child process: one child per compiler, started when first needed."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from importlib import metadata
from typing import IO

from gradgate.hw_profiles.compiler_main import Reply, Request
from gradgate.hw_profiles.profile import cuda

_HOST_FLAGS = (
    # Buffers are assigned before machine code is made. Optimizing that code doubles the time and changes no bytes.
    "--xla_backend_optimization_level=0",
    # A fixed instruction set, so that machines of different age give the same bytes.
    *(["--xla_cpu_max_isa=AVX2"] if platform.machine().lower() in ("x86_64", "amd64") else []),
)
# The flags of each compiler. The caller's XLA_FLAGS and LIBTPU_INIT_ARGS are not passed on, because bytes must depend
# only on what is in the fingerprint.
FLAGS: dict[str, dict[str, str]] = {
    "host": {"XLA_FLAGS": " ".join(_HOST_FLAGS)},
    "cuda": {"XLA_FLAGS": "--xla_gpu_autotune_level=0"},  # there is no GPU to time candidates on
    "tpu": {},
}
_SETUP = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "8",  # the most devices of the host that a program may use
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # otherwise a second process that loads libtpu aborts on a lock file
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # otherwise JAX 0.8 needs CUDA's libraries to compile
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


class CompilerProcess:
    """A child process that compiles for one compiler (``host``, ``cuda`` or ``tpu``); safe to use from threads."""

    def __init__(self, compiler: str) -> None:
        self.compiler = compiler
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def compile(self, request: Request, limit: float) -> Reply:
        """Return the child's reply, or a reply about a crash or the time limit (in seconds), which end the child."""
        with self._lock:
            process = self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            expired = threading.Event()

            def expire() -> None:
                expired.set()
                process.kill()

            timer = threading.Timer(limit, expire)
            timer.start()
            try:
                pickle.dump(request, process.stdin)
                process.stdin.flush()
                reply: Reply = pickle.load(process.stdout)
            except (EOFError, OSError, pickle.UnpicklingError):
                process.kill()
                code = process.wait()
                last_words = self._last_words()
                self._discard()
                if expired.is_set():
                    reason = f"the compiler did not end within {limit:g} s: raise the limit or shrink the program"
                    return {"status": "timeout", "reason": reason}
                return {"status": "crashed", "reason": f"the compiler crashed ({_exit(code)}){last_words}"}
            finally:
                timer.cancel()
            return reply

    def close(self) -> None:
        """End the child; a later call of ``compile`` starts another."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._process.wait()
                self._discard()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._discard()
        environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")}
        # Tests of the caller may turn warnings into errors; warnings of the compilers' imports must not raise here.
        environment.pop("PYTHONWARNINGS", None)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "gradgate.hw_profiles.compiler_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment | {"PATH": _path()} | _SETUP | FLAGS[self.compiler],
        )
        return self._process

    def _last_words(self) -> str:
        assert self._log is not None
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 2000))
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"; it last said: {lines[-1][:300]}" if lines else ""

    def _discard(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):  # unsent bytes for a child that has ended
                        pipe.close()
        if self._log is not None:
            self._log.close()
        self._process = self._log = None


def _path() -> str:
    """PATH with the pinned assembler in front: XLA uses the first ptxas in PATH, and another one may be too new."""
    try:
        folder = str(metadata.distribution(cuda().assembler).locate_file(cuda().folder))
    except metadata.PackageNotFoundError:
        return os.environ.get("PATH", "")
    return os.pathsep.join([folder, os.environ.get("PATH", "")])


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


_processes: dict[tuple[int, str], CompilerProcess] = {}
_processes_lock = threading.Lock()


def process_for(compiler: str) -> CompilerProcess:
    """Return this process's child for a compiler. A forked process gets its own children."""
    with _processes_lock:
        return _processes.setdefault((os.getpid(), compiler), CompilerProcess(compiler))


@atexit.register
def close_all() -> None:
    """End every compiling child of this process (also done at exit); the next measurement starts new ones."""
    for (pid, _), process in list(_processes.items()):
        if pid == os.getpid():
            process.close()
