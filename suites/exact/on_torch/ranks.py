"""Processes of `gradgate.references.torch_ranks` as threads of this one, so that balls pass between them.

Jobs and answers travel by pickle as they do between processes, but a tensor goes as a clone made under the mode. One
thread runs at a time. Within these threads the functions of torch.distributed are stand-ins.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

from gradgate.references import torch_ranks

_RANK = threading.local()


class _Failed(Exception):
    """Another rank failed, so this one stops."""


class Group:
    """A thread for each job, and the messages between the threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.turn = threading.Condition()
        self.post: dict[tuple[int, int], list[Any]] = {}
        self.rounds: dict[int, dict[int, Any]] = {}
        self.failure: BaseException | None = None

    def wait(self, ready: Callable[[], bool]) -> None:
        """Let others run until something is there."""
        while not ready():
            if self.failure is not None:
                raise _Failed
            self.turn.wait()

    def exchange(self, rank: int, number: int, tensor: Any) -> list[Any]:
        """What all ranks brought to the common call with this number, in the order of the ranks."""
        brought = self.rounds.setdefault(number, {})
        brought[rank] = tensor
        self.turn.notify_all()
        self.wait(lambda: len(brought) == self.size)
        return [brought[each] for each in range(self.size)]


def _here() -> tuple[Group, int] | None:
    return getattr(_RANK, "here", None)


def _common(tensor: Any) -> list[Any]:
    group, rank = _RANK.here
    _RANK.calls += 1
    return group.exchange(rank, _RANK.calls, tensor.detach().clone())


def _send(tensor: Any, dst: int, *_: Any, **__: Any) -> None:
    group, rank = _RANK.here
    group.post.setdefault((rank, dst), []).append(tensor.detach().clone())
    group.turn.notify_all()


def _recv(tensor: Any, src: int, *_: Any, **__: Any) -> int:
    group, rank = _RANK.here
    group.wait(lambda: bool(group.post.get((src, rank))))
    _into(tensor, group.post[src, rank].pop(0))
    return src


def _into(tensor: Any, value: Any) -> None:
    tensor.detach().copy_(value)


def _all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, *_: Any, **__: Any) -> None:
    if op != dist.ReduceOp.SUM:
        raise NotImplementedError(f"the evaluation of torch.distributed.all_reduce with {op}")
    first, *others = _common(tensor)
    for other in others:
        first = first + other
    _into(tensor, first)


def _all_gather(tensors: list[Any], tensor: Any, *_: Any, **__: Any) -> None:
    for target, value in zip(tensors, _common(tensor), strict=True):
        _into(target, value)


def _broadcast(tensor: Any, src: int, *_: Any, **__: Any) -> None:
    _into(tensor, _common(tensor)[src])


def _barrier(*_: Any, **__: Any) -> None:
    _common(torch.zeros(()))


STANDINS: dict[str, Callable[..., Any]] = {
    "get_rank": lambda *_: _RANK.here[1],
    "get_world_size": lambda *_: _RANK.here[0].size,
    "is_initialized": lambda: True,
    "send": _send,
    "recv": _recv,
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "barrier": _barrier,
}
"""Function of torch.distributed -> what it does in a rank that is a thread."""


@contextlib.contextmanager
def in_threads(state: Any, entered: Callable[[Any], AbstractContextManager[None]]) -> Iterator[None]:
    """The scope in which `torch_ranks.run` runs its jobs as threads that take part in the evaluation."""
    before, run = {name: getattr(dist, name) for name in STANDINS}, torch_ranks.run
    owner = threading.get_ident()

    def run_here(jobs: Sequence[Any]) -> list[Any]:
        if threading.get_ident() != owner:
            return run(jobs)
        state.recording = None
        return _run(jobs, lambda: entered(state))

    try:
        for name, standin in STANDINS.items():
            setattr(dist, name, _switched(standin, before[name]))
        torch_ranks.run = run_here
        yield
    finally:
        torch_ranks.run = run
        for name, function in before.items():
            setattr(dist, name, function)


def _switched(standin: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return (real if _here() is None else standin)(*args, **kwargs)

    return function


def _run(jobs: Sequence[Any], entered: Callable[[], AbstractContextManager[None]]) -> list[Any]:
    group = Group(len(jobs))
    parcels = [_packed(job) for job in jobs]
    answers: dict[int, Any] = {}

    def work(rank: int) -> None:
        with group.turn:
            _RANK.here, _RANK.calls = (group, rank), 0
            try:
                with entered():
                    answers[rank] = _packed(_unpacked(parcels[rank]).work())
            except _Failed:
                pass
            except BaseException as error:
                group.failure = group.failure or error
            finally:
                group.turn.notify_all()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if group.failure is not None:
        raise group.failure
    return [_unpacked(answers[rank]) for rank in range(len(jobs))]


class _Packer(pickle.Pickler):
    """Everything by pickle, but tensors as clones."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.tensors: list[Any] = []

    def persistent_id(self, obj: Any) -> Any:
        """The number of a tensor."""
        if not isinstance(obj, torch.Tensor):
            return None
        self.tensors.append(obj.detach().clone().requires_grad_(obj.requires_grad))
        return len(self.tensors) - 1


def _packed(thing: Any) -> tuple[bytes, list[Any]]:
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(thing)
    return file.getvalue(), packer.tensors


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: Any, tensors: list[Any]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        """The tensor of a number."""
        return self.tensors[pid]


def _unpacked(parcel: Any) -> Any:
    content, tensors = parcel
    return _Unpacker(io.BytesIO(content), tensors).load()
