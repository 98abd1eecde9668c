"""Processes that work together by torch.distributed, for methods over several devices; they run until the caller ends.

A method cuts its problem into one job per rank; `run` gives each rank its job and returns their answers.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from gradgate.references.backends import leaves
from gradgate.references.contract import NotComposable, Problem


class Job(Protocol):
    """What one rank is given. A job and its result are sent by pickle."""

    def work(self) -> Any:
        """Do this rank's share, inside a process group of as many ranks as there are jobs."""


def refuse_transforms(problem: Problem, method: str, instead: str) -> None:
    """Raise NotComposable if a tensor of the problem is inside a torch.func transform or requires a gradient."""
    for leaf in leaves((problem.params, problem.data)):
        if leaf.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(leaf):
            raise NotComposable(
                f"{method} sends its tensors to other processes, where neither torch.func.vmap nor a further "
                f"derivative can follow them; use {instead}, or detach the parameters"
            )


def run(jobs: Sequence[Job]) -> list[Any]:
    """Give each rank its job and wait for all answers.

    Raises:
        RuntimeError: a rank failed or ended; the message says how. The next call starts fresh ones.

    Cost: the first call starts the processes, which takes seconds.
    """
    global _ranks
    with _LOCK:
        if _ranks is None or _ranks.owner != os.getpid():  # a forked child must not speak through its parent's pipes
            _ranks = Ranks()
        try:
            return _ranks.run(jobs)
        except BaseException:  # a failed or interrupted call leaves ranks and pipes in any state
            _ranks.close()
            _ranks = None
            raise


class Ranks:
    """All processes of this module: one that imports torch and forks the others, and one pool per number of devices.

    It is a plain child rather than multiprocessing's fork server, which imports the caller's main module anew and is
    forbidden to daemons. A process ends when the socket to it closes, so none outlives the caller.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.folder = Path(tempfile.mkdtemp(prefix="gradgate-ranks-"))
        self.pools: dict[int, list[Connection]] = {}
        self.forker, theirs = socket.socketpair()
        with theirs, (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import fork_ranks; fork_ranks({theirs.fileno()})"],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the caller, and the group can be ended as one
            )
        atexit.register(self.close)

    def run(self, jobs: Sequence[Job]) -> list[Any]:
        """Give each rank its job and wait for all answers.

        Raises:
            RuntimeError: a rank failed or ended.
        """
        pipes = self._pool(len(jobs))
        for pipe, job in zip(pipes, jobs, strict=True):
            with contextlib.suppress(OSError):  # a rank that ended does not answer either
                pipe.send_bytes(pickle.dumps(job))
        answers = [_receive(pipe) for pipe in pipes]
        failures = [f"rank {rank} {said}" for rank, (well, said) in enumerate(answers) if not well]
        if failures:
            log = (self.folder / "log").read_text(errors="replace")[-1000:]
            raise RuntimeError("\n".join([f"{len(failures)} of {len(jobs)} ranks failed", *failures, log]).rstrip())
        return [answer for _, answer in answers]

    def close(self) -> None:
        """End all processes, except from a forked child, whose parent owns them."""
        atexit.unregister(self.close)
        if self.owner != os.getpid():
            return
        for pipe in itertools.chain(*self.pools.values()):
            pipe.close()
        self.forker.close()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _pool(self, devices: int) -> list[Connection]:
        if devices not in self.pools:
            self.pools[devices] = []
            rendezvous = (self.folder / f"rendezvous{devices}").as_uri()
            for rank in range(devices):
                mine, theirs = multiprocessing.Pipe()
                with theirs, contextlib.suppress(OSError):
                    socket.send_fds(self.forker, [pickle.dumps((rank, devices, rendezvous))], [theirs.fileno()])
                    self.forker.recv(1)  # the message was read, so that the next is not joined to it
                self.pools[devices].append(mine)
        return self.pools[devices]


_LOCK = threading.Lock()
_ranks: Ranks | None = None


def _receive(pipe: Connection) -> tuple[bool, Any]:
    """(True, what the job returned), or (False, a sentence)."""
    try:
        answer: tuple[bool, Any] = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError):
        answer = False, "ended unexpectedly"
    return answer


def fork_ranks(descriptor: int) -> None:
    """Fork a rank for each message until the caller closes its end. A fork takes milliseconds, not seconds."""
    torch.set_num_threads(1)
    one = torch.ones(())
    torch.func.jvp(torch.func.grad(torch.sin), (one,), (one,))  # imports before the forks what it imports on first use
    with socket.socket(fileno=descriptor) as forker:
        while True:
            message, descriptors, _, _ = socket.recv_fds(forker, 4096, 1)
            if not message:
                return
            if os.fork() == 0:
                forker.close()
                serve(descriptors[0], *pickle.loads(message))
                os._exit(0)  # a regular exit of an interpreter with PyTorch takes seconds of a core
            os.close(descriptors[0])
            forker.send(b".")


def serve(descriptor: int, rank: int, devices: int, rendezvous: str) -> None:
    """Be one rank: answer the jobs that come through the pipe until it closes, or until one fails.

    A rank that failed ends, so that those who wait for it fail too.
    """
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=devices)
    with Connection(descriptor) as pipe, contextlib.suppress(EOFError, OSError):
        while _answer(pipe):
            pass


def _answer(pipe: Connection) -> bool:
    """Answer one job and return whether it succeeded; nothing of the job is kept."""
    request = pipe.recv_bytes()
    try:
        answer: tuple[bool, Any] = True, pickle.loads(request).work()
    except Exception:
        answer = False, f"failed: {traceback.format_exc(limit=-1)}"
    pipe.send_bytes(pickle.dumps(answer))
    return answer[0]
