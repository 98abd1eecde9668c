"""Optimisers as (init, update) pairs whose steps `meta_gradient` can take back, written once for JAX and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gradgate.references.backends import namespace
from gradgate.references.bilevel.inner import words
from gradgate.references.bilevel.inner.optimisers import safe_root
from gradgate.references.contract import Tree, UsageError


class Frame(NamedTuple):
    """The operations that differ between frameworks.

    Attributes:
        backend: ``jax`` or ``torch``.
        flatten: tree -> (leaves, structure).
        unflatten: (structure, leaves) -> tree.
        is_floating: leaf -> whether it has a cotangent.
        added: (θ, update) -> θ moved, leaf by leaf.
        zeros: leaf -> zeros like it.
        number: (number, leaf) -> the number as a () array in the leaf's dtype, or in float32 if that is wider.
        update: (optimiser, grads, state, params) -> (updates, state), in the user's trees.
        counted: (n, T) -> n + 1 … n + T, of which a loop over T steps reads one in each step.
    """

    backend: str
    flatten: Callable[[Tree], tuple[list[Any], Any]]
    unflatten: Callable[[Any, Sequence[Any]], Tree]
    is_floating: Callable[[Any], bool]
    added: Callable[[Any, Any], Any]
    zeros: Callable[[Any], Any]
    number: Callable[[Any, Any], Any]
    update: Callable[..., tuple[Tree, Tree]]
    counted: Callable[[Any, int], Any]


@dataclass(frozen=True)
class HeavyBall:
    """SGD with momentum as an (init, update) pair, whose step can be taken back: υ' = μυ + g, θ' = θ − α ⊙ υ'.

    Attributes:
        frame: the framework's `Frame`.
        learning_rate: α: a number, a () array, or a tree like θ.
        momentum: μ, between 0 and 1.
    """

    frame: Frame
    learning_rate: Any
    momentum: Any

    def init(self, params: Tree) -> Tree:
        """υ_0: zeros, a tree like θ."""
        return _zeros(self.frame, params)

    def update(self, grads: Tree, state: Tree, params: Tree | None = None) -> tuple[Tree, Tree]:
        """The change of θ, and υ after the step."""
        leaves, structure = self.frame.flatten(grads)
        velocity = [self.momentum * v + g for v, g in zip(self.frame.flatten(state)[0], leaves, strict=True)]
        moves = [-a * v for a, v in zip(self.rates(leaves), velocity, strict=True)]
        return self.frame.unflatten(structure, moves), self.frame.unflatten(structure, velocity)

    def rates(self, leaves: Sequence[Any]) -> list[Any]:
        """α of every leaf.

        Raises:
            UsageError: the learning rates have a different number of leaves than θ.
        """
        return rates(self.frame, self.learning_rate, leaves)


@dataclass(frozen=True)
class Adam:
    """Adam as an (init, update) pair, whose step can be taken back.

    θ' = (1 − α·weight_decay) ⊙ θ − α ⊙ m̂' / (√(v̂' + eps_root) + eps) reads only θ, m' and v', of which the last two are
    known when the step is taken back.

    Attributes:
        frame: the framework's `Frame`.
        learning_rate: α: a number, a () array, a tree like θ, or a function of the step, counted from 0, that gives one
            of these.
        b1, b2: the decay of m and v, between 0 and 1.
        eps: added to the root.
        eps_root: added under the root.
        weight_decay: times α and θ, it is subtracted from θ.
    """

    frame: Frame
    learning_rate: Any
    b1: Any
    b2: Any
    eps: Any
    eps_root: Any
    weight_decay: Any = 0.0

    @property
    def decays(self) -> bool:
        """Whether there is a weight decay: an array, or a number other than 0."""
        return not (isinstance(self.weight_decay, (int, float)) and self.weight_decay == 0)

    def init(self, params: Tree) -> dict[str, Tree]:
        """``step``, how many steps were made, and ``m`` and ``v``, zeros, trees like θ."""
        return {"step": 0, "m": _zeros(self.frame, params), "v": _zeros(self.frame, params)}

    def update(self, grads: Tree, state: Tree, params: Tree | None = None) -> tuple[Tree, dict[str, Tree]]:
        """The change of θ, and the state after the step.

        Raises:
            UsageError: there is a weight decay, and `params` is not given.
        """
        leaves, structure = self.frame.flatten(grads)
        m, v = (self.frame.flatten(state[name])[0] for name in ("m", "v"))
        m = [self.b1 * a + (1 - self.b1) * g for a, g in zip(m, leaves, strict=True)]
        v = [self.b2 * a + (1 - self.b2) * g * g for a, g in zip(v, leaves, strict=True)]
        step, found = state["step"] + 1, self.directions(m, v, state["step"] + 1)
        if self.decays:
            if params is None:
                raise UsageError("weight_decay reads θ: call update(grads, state, params=theta)")
            found = [d + self.weight_decay * p for d, p in zip(found, self.frame.flatten(params)[0], strict=True)]
        moves = [-a * d for a, d in zip(self.rates(leaves, state["step"]), found, strict=True)]
        moved, m, v = (self.frame.unflatten(structure, part) for part in (moves, m, v))
        return moved, {"step": step, "m": m, "v": v}

    def directions(self, m: Sequence[Any], v: Sequence[Any], step: Any) -> list[Any]:
        """What α multiplies, from the leaves of m and v after the step; `step` counts from 1."""
        xp, first, second = namespace(self.frame.backend), 1 - self.b1**step, 1 - self.b2**step

        def one(a: Any, b: Any) -> Any:
            return a / first / (safe_root(xp, b / second + self.eps_root) + self.eps)

        return [one(a, b) for a, b in zip(m, v, strict=True)]

    def rates(self, leaves: Sequence[Any], step: Any) -> list[Any]:
        """α of every leaf in a step, counted from 0.

        Raises:
            UsageError: the learning rates have a different number of leaves than θ.
        """
        rate = self.learning_rate
        return rates(self.frame, rate(step) if callable(rate) else rate, leaves)


@dataclass(frozen=True)
class Clip:
    """Scales gradients down so that their norm over all leaves is at most `max_norm`; an (init, update) pair.

    It has no state and reads only gradients, so a step that it precedes in a `Chain` is taken back as without it.

    Attributes:
        frame: the framework's `Frame`.
        max_norm: a positive number or () array.

    Raises:
        UsageError: `max_norm` is not positive.
    """

    frame: Frame
    max_norm: Any

    def __post_init__(self) -> None:
        """Check a number; arrays may be traced."""
        number = isinstance(self.max_norm, (int, float)) and not isinstance(self.max_norm, bool)
        if not hasattr(self.max_norm, "dtype") and not (number and self.max_norm > 0):
            raise UsageError(f"max_norm must be positive, a number or a () array, not {self.max_norm!r}")

    def init(self, params: Tree) -> tuple[()]:
        """No state."""
        return ()

    def update(self, grads: Tree, state: Tree, params: Tree | None = None) -> tuple[Tree, Tree]:
        """The gradients, times max_norm/norm if the norm is above max_norm, and no state. Sums are float32 at least."""
        backend, xp = self.frame.backend, namespace(self.frame.backend)
        given, structure = self.frame.flatten(grads)
        squares = [xp.sum(leaf * leaf) for leaf in words.widened(backend, given)]
        norm = safe_root(xp, sum(squares[1:], squares[0]))
        above, one = norm > self.max_norm, xp.ones_like(norm)
        factor = xp.where(above, self.max_norm / xp.where(above, norm, one), one)
        return self.frame.unflatten(structure, [xp.astype(factor * leaf, leaf.dtype) for leaf in given]), state


@dataclass(frozen=True)
class Chain:
    """(init, update) pairs, one after the other: each gets what the one before returns. Its state is their tuple.

    Attributes:
        frame: the framework's `Frame`.
        parts: the pairs.

    Raises:
        UsageError: one of them is not a pair, or there is none.
    """

    frame: Frame
    parts: tuple[Any, ...]

    def __post_init__(self) -> None:
        """Check the parts."""
        wrong = [type(part).__name__ for part in self.parts if not is_pair(part)]
        if wrong or not self.parts:
            raise UsageError(
                f"chain takes pairs of init and update, such as clip_by_global_norm(1.0) and adamw(1e-3), not "
                f"{wrong or 'none'}"
            )

    def init(self, params: Tree) -> tuple[Tree, ...]:
        """The state of each."""
        return tuple(part.init(params) for part in self.parts)

    def update(self, grads: Tree, state: Tree, params: Tree | None = None) -> tuple[Tree, tuple[Tree, ...]]:
        """The change of θ, and the states after the step."""
        states = []
        for part, before in zip(self.parts, state, strict=True):
            grads, after = self.frame.update(part, grads, before, params)
            states.append(after)
        return grads, tuple(states)


def parted(pair: Any) -> tuple[tuple[Any, ...], Any]:
    """What comes before the last part of a `Chain`, and that part; of any other pair nothing, and the pair."""
    return (pair.parts[:-1], pair.parts[-1]) if isinstance(pair, Chain) else ((), pair)


def is_pair(optimiser: Any) -> bool:
    """Whether an object has ``init`` and ``update``, as optimisers of optax and torchopt have."""
    return callable(getattr(optimiser, "init", None)) and callable(getattr(optimiser, "update", None))


def rates(frame: Frame, learning_rate: Any, leaves: Sequence[Any]) -> list[Any]:
    """α of every leaf, from one number or a tree like θ.

    Raises:
        UsageError: the learning rates have a different number of leaves than θ.
    """
    found, _ = frame.flatten(learning_rate)
    found = found * len(leaves) if len(found) == 1 else found
    if len(found) != len(leaves):
        raise UsageError(
            f"learning_rate has {len(found)} leaves and θ {len(leaves)}: give one number, or a tree like θ"
        )
    return list(found)


def _zeros(frame: Frame, params: Tree) -> Tree:
    leaves, structure = frame.flatten(params)
    return frame.unflatten(structure, [frame.zeros(leaf) for leaf in leaves])
