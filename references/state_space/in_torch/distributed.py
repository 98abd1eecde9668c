"""Adjoint sharding over several processes with torch.distributed: each rank holds some layers and nothing of the rest.

The paper's notation (Adjoint sharding, §4.4) in the words of the code: Υ is `devices` and υ is `rank`. The ranks pass
y_k forward as `y` and dL/dy_k backward as `g`. The processes are kept until the calling process ends.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from gradgate.references import torch_ranks
from gradgate.references.backends import leaves, tree_map
from gradgate.references.contract import Tree, check_integer
from gradgate.references.state_space.in_torch.methods import (
    adjoint_layers,
    embedding_gradient,
    head_gradient,
    initial_states,
    run_layers,
    unstack,
)
from gradgate.references.state_space.problem import StateSpaceProblem


def adjoint_distributed(problem: StateSpaceProblem, *, devices: int) -> tuple[torch.Tensor, Tree]:
    """Loss and exact gradient as by `adjoint_sharding`; each device differentiates only its own layers.

    The stages run one after another, forward and backward, because a layer's cotangent depends on every layer above it.
    The paper runs the backward stages at once, and so Prop. 3 loses the paths between layers (see
    ``as_printed_torch``).

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        devices: Υ, the number of processes, from 1 to K. Rank r holds the layers K·r // Υ … K·(r + 1) // Υ − 1.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `devices` is not such an integer.
        NotComposable: a parameter is inside a torch.func transform or requires a gradient.
        RuntimeError: a rank failed or ended; the message says how. The next call starts fresh ones.

    Source:
        §4.4, Alg. 1–4, with Prop. 3 corrected.

    Stores:
        Per rank: parameters, gradients, y and h of at most ⌈K/Υ⌉ layers, y and h together ⌈K/Υ⌉·T·batch·(P + N)
        numbers. The embedding is on the first rank, the head on the last.

    Computes:
        As `adjoint_sharding`, all devices together: no VJP runs twice. Each rank sends T·batch·P numbers to the next
        rank and gets as many back. The first call starts the processes, which takes seconds.

    Not for:
        Speed: one device works at a time.
    """
    devices = check_integer("devices", devices, 1, problem.spec.layers)
    torch_ranks.refuse_transforms(problem, "adjoint_distributed", "adjoint_sharding")
    return _joined(problem, devices, window=None)


def adjoint_distributed_truncated(
    problem: StateSpaceProblem, *, devices: int, window: int
) -> tuple[torch.Tensor, Tree]:
    """The loss and the gradient of `adjoint_truncated`; each device differentiates only its own layers.

    Args:
        problem: any `StateSpaceProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        devices: Υ, as for `adjoint_distributed`.
        window: T̄, an integer of at least 1: how many tokens i each token t reaches, itself included.

    Returns:
        The loss, a scalar and not truncated, and the gradient of ``problem.cut_loss``, a tree like ``problem.params``
        with the same shapes and dtypes.

    Raises:
        IllegalOption: `devices` or `window` is not such an integer.
        NotComposable: a parameter is inside a torch.func transform or requires a gradient.
        RuntimeError: a rank failed or ended; the message says how. The next call starts fresh ones.

    Source:
        Alg. 4, with Prop. 3 corrected.

    Stores:
        As `adjoint_distributed`.

    Computes:
        As `adjoint_truncated`, all devices together: no VJP runs twice. What is sent is as in `adjoint_distributed`.

    Not for:
        Speed: one device works at a time. Not for problems in which dependencies longer than `window` tokens matter.
    """
    devices, window = check_integer("devices", devices, 1, problem.spec.layers), check_integer("window", window, 1)
    torch_ranks.refuse_transforms(problem, "adjoint_distributed_truncated", "adjoint_truncated")
    return _joined(problem, devices, window)


def _joined(problem: StateSpaceProblem, devices: int, window: int | None) -> tuple[torch.Tensor, Tree]:
    """Loss and gradient from the ranks' answers; the nets' calls in the ranks are reported here."""
    answers = _run(problem, devices, measure=False, window=window)
    if problem.on_call is not None:
        for call in (call for answer in answers for call in answer.calls):
            problem.on_call(*call)
    layers = tree_map(lambda *shards: torch.cat(shards), *(answer.grads["layers"] for answer in answers))
    first, last = answers[0], answers[-1]
    return last.loss, {"embedding": first.grads["embedding"], "layers": layers, "head": last.grads["head"]}


def residency(problem: StateSpaceProblem, devices: int) -> list[dict[str, Any]]:
    """Measure, inside each rank at the end of its backward pass, what it holds.

    Args:
        problem: any StateSpaceProblem of PyTorch tensors.
        devices: as for `adjoint_distributed`.

    Returns:
        Per rank ``layers``, the indices of its layers; ``parameter_bytes`` and ``gradient_bytes``, the memory of their
        parameters and gradients; ``live_bytes``, the memory of all live tensors, states and embedding included.

    Raises:
        IllegalOption: `devices` is not legal for `adjoint_distributed`.
        NotComposable: a parameter is inside a torch.func transform or requires a gradient.
        RuntimeError: a rank failed or ended; the message says how.

    Source:
        §4.4, "memory per device Mem/Υ".

    Computes:
        As `adjoint_distributed`, and a scan of each rank's objects.
    """
    devices = check_integer("devices", devices, 1, problem.spec.layers)
    torch_ranks.refuse_transforms(problem, "adjoint_distributed", "adjoint_sharding")
    return [answer.resident for answer in _run(problem, devices, measure=True)]


@dataclass
class Job:
    """What one rank gets: a problem with its layers, and the options of the run.

    The embedding and the tokens go to the first rank only; the head, the targets and the upstream factor to the last.
    """

    problem: StateSpaceProblem
    layers: range
    shape: tuple[int, int, int]
    counted: bool
    measure: bool
    window: int | None = None

    def work(self) -> Answer:
        """One rank's work: its layers forward (Alg. 1), then backward (Alg. 2–4) with `adjoint_layers`."""
        rank, last = dist.get_rank(), dist.get_world_size() - 1
        calls: list[tuple[str, str, int]] = []
        problem = self.problem.counted(lambda *call: calls.append(call)) if self.counted else self.problem
        layers, grads, loss = unstack(problem.params["layers"]), {}, None
        y = torch.empty(self.shape, dtype=getattr(torch, problem.dtype))
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

        grads["layers"], g = adjoint_layers(problem, trace, g, window=self.window or len(g))
        if rank > 0:
            dist.send(g, rank - 1)
        else:
            grads["embedding"] = embedding_gradient(problem, problem.data["tokens"], g)
        return Answer(grads, loss, calls, resident(self, grads) if self.measure else {})


@dataclass
class Answer:
    """What one rank returns: the gradients of its arrays, and on the last rank the loss, on others None."""

    grads: Tree
    loss: Any
    calls: list[tuple[str, str, int]]
    resident: dict[str, Any]


def _run(problem: StateSpaceProblem, devices: int, *, measure: bool, window: int | None = None) -> list[Answer]:
    """Cut the problem into one Job per rank, and run them."""
    jobs = []
    for rank in range(devices):
        first, end = (problem.spec.layers * r // devices for r in (rank, rank + 1))
        # Cloned, because pickling a view would send all layers.
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
        part = type(problem)(spec, "torch", params, data)  # without `on_call`, which may not pickle
        shape = (*problem.data["tokens"].shape, problem.spec.width)
        jobs.append(Job(part, range(first, end), shape, problem.on_call is not None, measure, window))

    return torch_ranks.run(jobs)


def resident(job: Job, grads: Tree) -> dict[str, Any]:
    """Bytes of this rank's layers, of their gradients, and of every live tensor in this process."""
    alive = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
    return {
        "layers": list(job.layers),
        "parameter_bytes": storage_bytes(leaves(job.problem.params["layers"])),
        "gradient_bytes": storage_bytes(leaves(grads["layers"])),
        "live_bytes": storage_bytes(alive),
    }


def storage_bytes(tensors: Sequence[torch.Tensor]) -> int:
    """Bytes of the distinct storages of `tensors`: a view counts for all the memory that it keeps alive."""
    return sum({s.data_ptr(): s.nbytes() for s in (tensor.untyped_storage() for tensor in tensors)}.values())
