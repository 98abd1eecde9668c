"""Adjoint sharding over several processes with torch.distributed: each rank holds some layers and nothing of the rest.

The paper's notation (Adjoint sharding, §4.4) in the words of the code: Υ is `devices`, υ is `rank`, y_k going up and
dL/dy_k coming down pass from rank to rank as `y` and `g`. The processes are kept until the calling one ends.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import gc
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
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist

from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import NotComposable, Tree, check_integer
from gradgate.references.state_space.problem import StateSpaceProblem
from gradgate.references.state_space.torch_impl import (
    adjoint_layers,
    embedding_gradient,
    head_gradient,
    initial_states,
    run_layers,
    unstack,
)


def adjoint_distributed(problem: StateSpaceProblem, *, devices: int) -> tuple[torch.Tensor, Tree]:
    """Adjoint sharding with the layers spread over `devices` processes; exact.

    Args:
        problem: the state-space problem.
        devices: Υ, from 1 to K. Rank r holds the layers K·r // Υ … K·(r + 1) // Υ − 1.

    Returns:
        The loss, a scalar, and its gradient, shaped and typed like ``problem.params``.

    Raises:
        IllegalOption: `devices` is not an integer from 1 to K.
        NotComposable: a parameter is inside a torch.func transform or requires a gradient.
        RuntimeError: a rank failed or ended; the message says how. The next call starts fresh ones.

    Source: §4.4, Alg. 1–4, with the carried cotangent of `adjoint_sharding`. Cost: a rank stores the parameters,
    states and gradients of its layers, 1/Υ of all, and computes as many VJPs as `adjoint_sharding` does on them; per
    rank one (T, batch, P) is sent each way. The first call starts the processes, which takes seconds. Do not use it for
    speed: the layers of one gradient run one after the other.
    """
    devices = check_integer("devices", devices, 1, problem.spec.layers)
    _refuse_transforms(problem)
    answers = _run(problem, devices, measure=False)
    for net, positions in (event for answer in answers for event in answer.vjps):
        problem.on_vjp(net, positions)
    layers = tree_map(lambda *shards: torch.cat(shards), *(answer.grads["layers"] for answer in answers))
    first, last = answers[0], answers[-1]
    return last.loss, {"embedding": first.grads["embedding"], "layers": layers, "head": last.grads["head"]}


def residency(problem: StateSpaceProblem, devices: int) -> list[dict[str, Any]]:
    """Measure, inside each rank at the end of its backward pass, what it holds.

    Args:
        problem: the state-space problem.
        devices: Υ, from 1 to K.

    Returns:
        One dict per rank: `layers`, the indices of its layers; `parameter_bytes` and `gradient_bytes`, the memory that
        backs their parameters and gradients; `live_bytes`, that of all tensors alive, states and embedding included.

    Raises:
        IllegalOption, NotComposable, RuntimeError: as `adjoint_distributed`.

    Source: §4.4, "memory per device Mem/Υ". Cost: that of `adjoint_distributed` and a scan of each rank's objects.
    """
    devices = check_integer("devices", devices, 1, problem.spec.layers)
    _refuse_transforms(problem)
    return [answer.resident for answer in _run(problem, devices, measure=True)]


@dataclass
class Job:
    """What one rank is given: a problem of its layers, and what to do besides.

    The embedding and the tokens go to the first rank only; the head, the targets and the upstream factor to the last.
    """

    problem: StateSpaceProblem
    layers: range
    shape: tuple[int, int, int]
    counted: bool
    measure: bool


@dataclass
class Answer:
    """What one rank gives back: gradients of what it was given, and on the last rank the loss, elsewhere None."""

    grads: Tree
    loss: Any
    vjps: list[tuple[str, int]]
    resident: dict[str, Any]


def _refuse_transforms(problem: StateSpaceProblem) -> None:
    for leaf in leaves((problem.params, problem.data)):
        if leaf.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(leaf):
            raise NotComposable(
                "adjoint_distributed sends its tensors to other processes, where neither torch.func.vmap nor a further "
                "derivative can follow them; use adjoint_sharding, or detach the parameters"
            )


def _run(problem: StateSpaceProblem, devices: int, *, measure: bool) -> list[Answer]:
    """Cut the problem into one Job per rank, and run them."""
    jobs = []
    for rank in range(devices):
        first, end = (problem.spec.layers * r // devices for r in (rank, rank + 1))
        # Cloned, because a view would take all layers with it.
        layers = tree_map(lambda leaf: leaf[first:end].clone(), problem.params["layers"])  # noqa: B023 - called at once
        params: dict[str, Any] = {"layers": layers}
        data = {}
        if rank == 0:
            params["embedding"] = problem.params["embedding"]
            data["tokens"] = problem.data["tokens"]
        if rank == devices - 1:
            params["head"] = problem.params["head"]
            data["targets"], data["upstream"] = problem.data["targets"], problem.data["upstream"]
        spec = dataclasses.replace(problem.spec, layers=end - first)
        part = type(problem)(spec, "torch", params, data)  # without the counting nets, which do not pickle
        shape = (*problem.data["tokens"].shape, problem.spec.width)
        jobs.append(Job(part, range(first, end), shape, problem.on_vjp is not None, measure))

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

    def run(self, jobs: Sequence[Job]) -> list[Answer]:
        """Give each rank its job and wait for all answers.

        Raises:
            RuntimeError: a rank failed or ended.
        """
        pipes = self._pool(len(jobs))
        for pipe, job in zip(pipes, jobs, strict=True):
            with contextlib.suppress(OSError):  # a rank that ended does not answer either
                pipe.send_bytes(pickle.dumps(job))
        answers = [_receive(pipe) for pipe in pipes]
        failures = [f"rank {rank} {answer}" for rank, answer in enumerate(answers) if isinstance(answer, str)]
        if failures:
            log = (self.folder / "log").read_text(errors="replace")[-1000:]
            raise RuntimeError("\n".join([f"{len(failures)} of {len(jobs)} ranks failed", *failures, log]).rstrip())
        return cast("list[Answer]", answers)

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


def _receive(pipe: Connection) -> Answer | str:
    try:
        answer: Answer | str = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError):
        answer = "ended unexpectedly"
    return answer


def fork_ranks(descriptor: int) -> None:
    """Fork a rank, milliseconds instead of seconds, for each message until the caller closes its end."""
    torch.set_num_threads(1)
    one = torch.ones(())
    torch.func.vjp(torch.sin, one)[1](one)  # what PyTorch imports on first use is imported before the forks
    with socket.socket(fileno=descriptor) as forker:
        while True:
            message, descriptors, _, _ = socket.recv_fds(forker, 4096, 1)
            if not message:
                return
            if os.fork() == 0:
                forker.close()
                serve(descriptors[0], *pickle.loads(message))
                return
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
    """Answer one job, and hold nothing of it afterwards; whether that went well."""
    request = pipe.recv_bytes()
    try:
        answer: Answer | str = work(pickle.loads(request))
    except Exception:
        answer = f"failed: {traceback.format_exc(limit=-1)}"
    pipe.send_bytes(pickle.dumps(answer))
    return isinstance(answer, Answer)


def work(job: Job) -> Answer:
    """One rank's share: its layers forwards (Alg. 1), then backwards (Alg. 2–4) with `adjoint_layers`."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    vjps: list[tuple[str, int]] = []
    problem: Any = job.problem.counted(lambda *event: vjps.append(event)) if job.counted else job.problem
    layers, grads, loss = unstack(problem.params["layers"]), {}, None
    y = torch.empty(job.shape, dtype=getattr(torch, problem.dtype))
    g = torch.empty_like(y)

    if rank == 0:
        y = problem.embed(problem.params["embedding"], problem.data["tokens"])
    else:
        dist.recv(y, rank - 1)
    y, trace = run_layers(problem, layers, y, initial_states(problem, len(layers)))
    if rank < last:
        dist.send(y, rank + 1)
        dist.recv(g, rank + 1)
    else:
        loss, grads["head"], g = head_gradient(problem, y, slice(None))

    grads["layers"], g = adjoint_layers(problem, trace, g, window=len(g))
    if rank > 0:
        dist.send(g, rank - 1)
    else:
        grads["embedding"] = embedding_gradient(problem, problem.data["tokens"], g)
    return Answer(grads, loss, vjps, resident(job, grads) if job.measure else {})


def resident(job: Job, grads: Tree) -> dict[str, Any]:
    """Bytes of the memory behind this rank's layers, their gradients, and every tensor alive in this process."""
    alive = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    return {
        "layers": list(job.layers),
        "parameter_bytes": storage_bytes(leaves(job.problem.params["layers"])),
        "gradient_bytes": storage_bytes(leaves(grads["layers"])),
        "live_bytes": storage_bytes(alive),
    }


def storage_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the distinct storages behind `tensors`: a view counts for all that it keeps alive."""
    return sum({s.data_ptr(): s.nbytes() for s in (tensor.untyped_storage() for tensor in tensors)}.values())
