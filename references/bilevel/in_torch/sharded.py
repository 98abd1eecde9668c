"""Meta-gradients in PyTorch with everything that is kept over the steps divided among several processes (App. A.2).

Fully sharded data parallelism (Rajbhandari et al., 2020): each leaf of η, θ_i, υ_i and their cotangents is flattened,
padded and cut into D equal parts, and each rank holds one part. It also holds one of D equal parts of every batch. For
a gradient the parts are gathered; the gradients of all ranks' data points are summed, and each rank keeps its part. The
update is elementwise, so it acts on parts. The parts of all leaves of a dtype travel in one flat tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree

from gradgate.references import torch_ranks
from gradgate.references.backends import leaves, tree_map
from gradgate.references.bilevel.in_torch.methods import (
    Inner,
    Products,
    forward_over_reverse,
    gradient,
    inner_loss,
    pull_init,
    pull_outer,
    pull_step,
    steps,
)
from gradgate.references.bilevel.options import check_devices, reads_eta
from gradgate.references.bilevel.problem import BilevelProblem
from gradgate.references.contract import Tree


def bilevel_sharded(problem: BilevelProblem, *, devices: int) -> tuple[torch.Tensor, Tree]:
    """Loss and meta-gradient as by `mixflow`, with batches and all that is kept over the steps divided among D devices.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors, float64, float32 or bfloat16; its class lists the shapes.
        devices: D, the number of processes, an integer that divides the batch.

    Returns:
        The loss, a scalar, and its gradient, a tree like ``problem.params`` with the same shapes and dtypes.

    Raises:
        IllegalOption: `devices` is not such an integer.
        NotComposable: a parameter is inside a torch.func transform or requires a gradient.
        RuntimeError: a rank failed or ended; the message says how. The next call starts fresh ones.

    Source:
        App. A.2 (fully sharded data parallelism).

    Stores:
        Per rank: 1/D of θ_i and υ_i of every step, T·(|θ| + |υ|)/D numbers; θ, η, v and a gradient of L whole, for one
        step; and what one product needs for 1/D of the batch, with its layers rematerialised.

    Computes:
        Per rank: 1/D of `mixflow` with `remat` and without saved gradients. Two collectives per step forward: θ and η
        are gathered, and ∇L is summed. Four per step backward: θ and η are gathered, ∇L is summed, v is gathered, and
        the two products are summed. η is left out where L does not read it. The first call starts the processes, which
        takes seconds.

    Not for:
        An inner model whose θ and the rest do not fit on one rank together: all its layers are gathered at once. Not
        for problems that fit on one rank.
    """
    devices = check_devices(problem.spec, devices)
    torch_ranks.refuse_transforms(problem, "bilevel_sharded", "mixflow")
    answers = torch_ranks.run([Part.of(problem, rank, devices) for rank in range(devices)])
    if problem.on_call is not None:
        for call in (call for _, _, calls in answers for call in calls):
            problem.on_call(*call)
    grads = tree_map(lambda like, *parts: _whole(parts, like), problem.params, *(grads for _, grads, _ in answers))
    return answers[0][0], grads


@dataclass
class Part:
    """What one rank is given.

    Attributes:
        problem: its part of η, θ_0 and the batches, and all single numbers.
        eta, theta: trees without numbers, which give the shapes.
        counted: whether it returns the calls of the problem's nets.
    """

    problem: BilevelProblem
    eta: Tree
    theta: Tree
    counted: bool

    @classmethod
    def of(cls, problem: BilevelProblem, rank: int, devices: int) -> Part:
        """The part of rank 0 … devices − 1."""
        own = slice(rank * problem.spec.batch // devices, (rank + 1) * problem.spec.batch // devices)

        def share(tree: Tree) -> Tree:
            return tree_map(lambda leaf: _flat(leaf, devices)[rank].clone(), tree)

        def shape(tree: Tree) -> Tree:
            return tree_map(lambda leaf: leaf.new_zeros(()).expand(leaf.shape), tree)

        xs = {name: leaf if name == "step" else leaf[:, own].clone() for name, leaf in problem.xs.items()}
        y = {name: leaf[own].clone() for name, leaf in problem.y.items()}
        data = {**problem.data, "xs": xs, "y": y, "theta": share(problem.data.get("theta", ()))}
        part = type(problem)(problem.spec, "torch", share(problem.params), data)
        theta = shape(problem.init(problem.params)[0])
        return cls(part, shape(problem.params), theta, problem.on_call is not None)

    def work(self) -> tuple[torch.Tensor, Tree, list[tuple[str, str, int]]]:
        """Forward and backward over the steps: the loss, this rank's part of the gradient, and the calls of nets."""
        calls: list[tuple[str, str, int]] = []
        part = self.problem.counted(lambda *call: calls.append(call)) if self.counted else self.problem
        eta = part.params
        inner, carry, kept = inner_loss(part, remat=True), part.init(eta), []
        for x in steps(part):
            kept.append((x, carry))
            carry = part.update(self.gradient(inner, self.seen(carry[0], eta), x), *carry, eta, x)
        (theta,) = _gathered((carry[0],), (self.theta,))
        loss, (d_theta, d_state, d_eta) = pull_outer(part, (theta, carry[1]), remat=True)
        del theta
        dist.all_reduce(loss)
        cotangents = *_shared((d_theta,)), d_state, d_eta
        while kept:
            x, carry = kept.pop()
            cotangents = pull_step(part, inner, self.mode, carry, None, x, cotangents)
        return loss / dist.get_world_size(), pull_init(part, cotangents), calls

    def seen(self, theta: Tree, eta: Tree) -> tuple[Tree, Tree]:
        """θ and η whole, as L reads them; an η that it does not read has no numbers."""
        if reads_eta(self.problem.spec):
            theta, eta = _gathered((theta, eta), (self.theta, self.eta))
            return theta, eta
        return *_gathered((theta,), (self.theta,)), self.eta

    def gradient(self, inner: Inner, whole: tuple[Tree, Tree], x: Tree) -> Tree:
        """This rank's part of ∇L over all data points."""
        return _shared((gradient(inner, *whole, x),))[0]

    def mode(self, inner: Inner, theta: Tree, eta: Tree, x: Tree, grad: Tree | None) -> tuple[Tree, Products]:
        """`forward_over_reverse` of parts."""
        whole = self.seen(theta, eta)

        def products(v: Tree) -> tuple[Tree, Tree]:
            _, of_whole = forward_over_reverse(inner, *whole, x, v)
            hessian, mixed = of_whole(_gathered((v,), (self.theta,))[0])
            if reads_eta(self.problem.spec):
                hessian, mixed = _shared((hessian, mixed))
                return hessian, mixed
            return _shared((hessian,))[0], tree_map(torch.zeros_like, eta)

        return self.gradient(inner, whole, x), products


def _flat(leaf: torch.Tensor, devices: int) -> torch.Tensor:
    """A leaf flattened, padded with zeros and cut into equal parts: (D, numbers of a part)."""
    return torch.nn.functional.pad(leaf.reshape(-1), (0, -leaf.numel() % devices)).reshape(devices, -1)


def _whole(parts: tuple[torch.Tensor, ...] | list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Undo `_flat`."""
    return torch.cat(list(parts))[: like.numel()].reshape(like.shape)


def _gathered(trees: tuple[Tree, ...], likes: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """Whole leaves, from every rank's parts: one collective for each dtype."""
    (parts, structure), shapes = _pytree.tree_flatten(trees), _pytree.tree_leaves(likes)
    found: list[Any] = list(parts)
    for places in _by_dtype(parts):
        flat = torch.cat([parts[i] for i in places])
        every = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
        dist.all_gather(every, flat)
        pieces = [one.split([len(parts[i]) for i in places]) for one in every]
        for i, pieces_of_leaf in zip(places, zip(*pieces, strict=True), strict=True):
            found[i] = _whole(list(pieces_of_leaf), shapes[i])
    gathered: tuple[Tree, ...] = _pytree.tree_unflatten(found, structure)
    return gathered


def _shared(trees: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """Gradients of the means over each rank's data points -> this rank's parts of their mean: one collective each."""
    ranks = dist.get_world_size()
    whole, structure = _pytree.tree_flatten(trees)
    parts = [_flat(leaf, ranks) for leaf in whole]
    found: list[Any] = list(parts)
    for places in _by_dtype(parts):
        flat = torch.cat([parts[i] for i in places], dim=1)
        dist.all_reduce(flat)
        own = flat[dist.get_rank()] / ranks
        for i, part in zip(places, own.split([parts[i].shape[1] for i in places]), strict=True):
            found[i] = part
    shared: tuple[Tree, ...] = _pytree.tree_unflatten(found, structure)
    return shared


def _by_dtype(tensors: list[torch.Tensor]) -> list[list[int]]:
    """The places of the tensors of each dtype."""
    dtypes = dict.fromkeys(tensor.dtype for tensor in tensors)
    return [[i for i, tensor in enumerate(tensors) if tensor.dtype == dtype] for dtype in dtypes]


@dataclass
class Counted(Part):
    """A part whose work is measured in place of its gradient."""

    def work(self) -> Any:
        """The rank's peak bytes beyond what it was given, and the numbers that each collective reads or writes."""
        from gradgate.hw_profiles.torch_memory import peak

        moved: list[int] = []
        names = ("all_gather", "all_reduce")
        plain = {name: getattr(dist, name) for name in names}

        def counted(name: str) -> Any:
            def call(into: Any, *others: torch.Tensor) -> Any:
                moved.append(sum(tensor.numel() for tensor in (into if isinstance(into, list) else [into])))
                return plain[name](into, *others)

            return call

        def work() -> Any:
            moved.clear()  # `peak` runs it twice
            return super(Counted, self).work()

        for name in names:
            setattr(dist, name, counted(name))
        try:
            memory = peak(work, (), track=leaves([self.problem.params, self.problem.data]))
        finally:
            for name, function in plain.items():
                setattr(dist, name, function)
        return memory.total_bytes - memory.held_bytes, moved


def measured(problem: BilevelProblem, *, devices: int) -> tuple[int, list[int]]:
    """The largest peak bytes of a rank in a call of `bilevel_sharded`, and the numbers that its collectives move.

    Args:
        problem: any `BilevelProblem` of PyTorch tensors.
        devices: the number of ranks.

    Returns:
        Bytes beyond the rank's own part of the problem; and for each collective of a rank the numbers that it gathers
        or sums.

    Raises:
        RuntimeError: a rank failed or ended.
    """
    parts = [Part.of(problem, rank, devices) for rank in range(devices)]
    answers = torch_ranks.run([Counted(part.problem, part.eta, part.theta, False) for part in parts])
    return max(found for found, _ in answers), answers[0][1]
