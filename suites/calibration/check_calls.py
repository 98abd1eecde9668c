"""Calls of `gradgate.check` in both frameworks: what the frameworks call alike things, and random calls that are right.

``nox -s trial -- calls`` draws calls and counts false alarms.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gradgate
from gradgate.suites.workers.worker import collect_rarely, relieve


class Calls(ABC):
    """What a framework calls the same thing.

    Attributes:
        xp: the namespace of arrays: ``jax.numpy`` or ``torch``.
    """

    name: str
    xp: Any

    @abstractmethod
    def array(self, numbers: Any, dtype: str = "float32") -> Any:
        """An array of numbers."""

    @abstractmethod
    def scaled(self, factor: float) -> Callable[[Any], Any]:
        """The identity, whose gradient is multiplied by a factor: a planted error, unless the factor is 1."""

    @abstractmethod
    def mapped(self, function: Callable[[Any], Any], tree: Any) -> Any:
        """The tree with a function applied to its floating leaves."""

    @abstractmethod
    def outside(self, function: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A function of NumPy, elementwise, and its derivative, as an operation with a backward pass."""

    @abstractmethod
    def key(self, seed: int) -> Any:
        """What random numbers come from: a typed key of JAX, a generator of PyTorch."""

    @abstractmethod
    def coins(self, key: Any, shape: tuple[int, ...]) -> Any:
        """Random booleans."""

    @abstractmethod
    def register(self, cls: type) -> None:
        """Make a dataclass a pytree."""

    def planted(self, plain: Callable[..., Any], factor: float = 1.0, place: int = 0) -> Callable[..., Any]:
        """A function like `plain` whose gradient by floating leaf number `place` is multiplied by a factor."""

        def function(*args: Any, **options: Any) -> Any:
            numbers = iter(range(sys.maxsize))
            one = self.scaled(factor)
            return plain(*self.mapped(lambda leaf: one(leaf) if next(numbers) == place else leaf, args), **options)

        return function


class Jax(Calls):
    """JAX."""

    name = "jax"

    def __init__(self) -> None:
        import jax

        self.jax, self.xp = jax, jax.numpy

    def array(self, numbers: Any, dtype: str = "float32") -> Any:
        """See `Calls.array`."""
        with self.jax.enable_x64(dtype in ("float64", "int64")):
            return self.xp.asarray(np.asarray(numbers), getattr(self.xp, dtype))

    def scaled(self, factor: float) -> Callable[[Any], Any]:
        """See `Calls.scaled`."""
        identity = self.jax.custom_vjp(lambda x: x)
        identity.defvjp(lambda x: (x, None), lambda _, g: (g * factor if factor != 1 else g,))
        return identity

    def mapped(self, function: Callable[[Any], Any], tree: Any) -> Any:
        """See `Calls.mapped`."""

        def floating(leaf: Any) -> bool:
            return hasattr(leaf, "dtype") and self.xp.issubdtype(leaf.dtype, self.xp.floating)

        return self.jax.tree.map(lambda leaf: function(leaf) if floating(leaf) else leaf, tree)

    def outside(self, function: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """See `Calls.outside`."""

        def called(inner: Callable[[Any], Any], x: Any) -> Any:
            shape = self.jax.ShapeDtypeStruct(x.shape, x.dtype)
            return self.jax.pure_callback(
                lambda a: np.asarray(inner(np.asarray(a)), x.dtype), shape, x, vmap_method="expand_dims"
            )

        made = self.jax.custom_vjp(functools.partial(called, function))
        made.defvjp(lambda x: (called(function, x), x), lambda x, g: (g * called(slope, x),))
        return made

    def key(self, seed: int) -> Any:
        """See `Calls.key`."""
        return self.jax.random.key(seed)

    def coins(self, key: Any, shape: tuple[int, ...]) -> Any:
        """See `Calls.coins`."""
        return self.jax.random.bernoulli(key, 0.5, shape)

    def register(self, cls: type) -> None:
        """See `Calls.register`."""
        self.jax.tree_util.register_dataclass(cls)


class Torch(Calls):
    """PyTorch."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self.torch = self.xp = torch

    def array(self, numbers: Any, dtype: str = "float32") -> Any:
        """See `Calls.array`."""
        return self.torch.tensor(np.asarray(numbers)).to(getattr(self.torch, dtype))

    def scaled(self, factor: float) -> Callable[[Any], Any]:
        """See `Calls.scaled`."""

        class Identity(self.torch.autograd.Function):  # type: ignore[name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                return x.view_as(x)

            @staticmethod
            def backward(ctx: Any, *upstream: Any) -> Any:
                return upstream[0] * factor if factor != 1 else upstream[0]

        return lambda x: Identity.apply(x)

    def mapped(self, function: Callable[[Any], Any], tree: Any) -> Any:
        """See `Calls.mapped`."""

        def floating(leaf: Any) -> bool:
            return isinstance(leaf, self.torch.Tensor) and leaf.is_floating_point()

        return self.torch.utils._pytree.tree_map(lambda leaf: function(leaf) if floating(leaf) else leaf, tree)

    def outside(self, function: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """See `Calls.outside`."""

        def called(inner: Callable[[Any], Any], x: Any) -> Any:
            return self.torch.from_numpy(np.asarray(inner(x.detach().numpy()))).to(x.dtype)

        class Outside(self.torch.autograd.Function):  # type: ignore[name-defined]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return called(function, x)

            @staticmethod
            def backward(ctx: Any, *upstream: Any) -> Any:
                return upstream[0] * called(slope, ctx.saved_tensors[0])

        return lambda x: Outside.apply(x)

    def key(self, seed: int) -> Any:
        """See `Calls.key`."""
        return self.torch.Generator().manual_seed(seed)

    def coins(self, key: Any, shape: tuple[int, ...]) -> Any:
        """See `Calls.coins`."""
        return self.torch.rand(shape, generator=key) < 0.5

    def register(self, cls: type) -> None:
        """See `Calls.register`."""
        self.torch.export.register_dataclass(cls)


CALLS: dict[str, type[Calls]] = {"jax": Jax, "torch": Torch}

ROWS, COLUMNS = 4, 3
SHAPES = ((ROWS, COLUMNS), (COLUMNS,), (ROWS, 1), ())
NAMES = ("z", "weight", "a", "X", "m1", "b", "_q", "scale", "k", "gain", "Bias", "u")
KINDS = ("float", "index", "coin", "whole", "real", "text", "nothing", "key", "empty")
SHARES = (0.55, 0.08, 0.08, 0.06, 0.06, 0.03, 0.05, 0.05, 0.04)


@dataclass(frozen=True)
class Call:
    """A random call that is right.

    Attributes:
        function, plain: compute the same numbers in different ways.
        leaves: how many floating leaves the arguments have that the functions use.
        outside: whether the function leaves the framework, so that sixty digits are impossible.
        said: the arguments in words.
    """

    function: Callable[..., Any]
    plain: Callable[..., Any]
    args: tuple[Any, ...]
    leaves: int
    outside: bool
    description: str


def ways(calls: Calls) -> list[tuple[Callable[[Any], Any], Callable[[Any], Any]]]:
    """Functions of an array in two ways, equally well conditioned."""
    xp = calls.xp

    def root(x: Any) -> Any:
        return xp.sqrt(1 + x * x)

    return [
        (lambda x: x**2, lambda x: x * x),
        (lambda x: x**3, lambda x: x * x * x),
        (xp.exp, lambda x: xp.exp(x / 2) * xp.exp(x / 2)),
        (root, lambda x: root(x) * root(x) / root(x)),
        (xp.tanh, lambda x: xp.sinh(x) / xp.cosh(x)),
        (lambda x: 1 / (1 + xp.exp(-x)), lambda x: xp.exp(x) / (1 + xp.exp(x))),
        (lambda x: x - 3 * x, lambda x: -2 * x),
        (lambda x: x / x.sum(), lambda x: x * (1 / x.sum())),
        (xp.sin, lambda x: 2 * xp.sin(x / 2) * xp.cos(x / 2)),
    ]


def draw(calls: Calls, seed: int) -> Call:
    """The call of a seed."""
    rng = np.random.default_rng(seed)
    base = str(rng.choice(["float32", "float32", "float32", "float64", "bfloat16"]))
    kinds = ["float", *rng.choice(KINDS, int(rng.integers(0, 6)), p=SHARES)]
    rng.shuffle(kinds)
    two, outside = ways(calls), bool(rng.random() < 0.15)
    picked = [two[i] for i in rng.integers(len(two), size=len(kinds))]
    place = next(i for i, kind in enumerate(kinds) if kind == "float")
    if outside:
        away = calls.outside(lambda a: np.sin(a), lambda a: np.cos(a))
        picked[place] = (calls.xp.sin, away)
        base = "float32" if base == "bfloat16" else base  # NumPy has no bfloat16
    made = [_made(calls, kind, base, rng, mixed=not outside) for kind in kinds]
    signs, output = rng.choice([-1.0, 1.0], len(kinds)), int(rng.integers(4))

    def run(way: int, values: Sequence[Any]) -> Any:
        total: Any = calls.array(np.ones((ROWS, COLUMNS)), "int32")  # takes the dtype of the floats
        for i, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            if kind == "float":
                one = picked[i][way](value)
                total = total * one if i % 2 else total + float(signs[i]) * one
        for kind, value in zip(kinds, values, strict=True):
            if kind == "index":
                total = total[value]
            elif kind == "coin":
                total = calls.xp.where(value, total, 0 * total)
            elif kind in ("whole", "real"):
                total = total * value
            elif kind == "key":
                total = calls.xp.where(calls.coins(value, tuple(total.shape)), total, 2 * total)
            elif kind == "empty":
                total = total + value.sum()
        return [total, total.sum(), (total, 2.5), {"z": total, "a": [total.sum(), None]}][output]

    groups = _groups(len(kinds), rng)
    args = tuple(_grouped(group, [made[i] for i in members]) for group, members in groups)

    def function(way: int) -> Callable[..., Any]:
        def called(*given: Any) -> Any:
            flat = [leaf for (group, _), one in zip(groups, given, strict=True) for leaf in _ungrouped(group, one)]
            return run(way, flat)

        return called

    plain, other = function(0), function(1)
    if rng.random() < 0.7:
        names = [str(name) for name in rng.permutation(NAMES)[: len(groups)]]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        plain.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    said = f"{base} {' '.join(kinds)} in {[group for group, _ in groups]}{' outside' if outside else ''}"
    return Call(other, plain, args, kinds.count("float"), outside, said)


def _made(calls: Calls, kind: str, base: str, rng: np.random.Generator, mixed: bool) -> Any:
    """An argument of a kind."""
    if kind == "float":
        wider = {"bfloat16": "float32", "float32": "float64" if calls.name == "torch" else "float32"}
        dtype = wider.get(base, base) if mixed and rng.random() < 0.15 else base
        shape = SHAPES[int(rng.integers(len(SHAPES)))]
        return calls.array(rng.uniform(0.3, 1.5, shape) * rng.choice([-1, 1]), dtype)
    if kind == "index":
        return calls.array(rng.integers(0, ROWS, ROWS), "int32")
    if kind == "coin":
        return calls.array(rng.random((ROWS, COLUMNS)) < 0.7, "bool")
    numbers = {"whole": int(rng.integers(1, 4)), "real": 0.75, "text": "mean", "nothing": None}
    if kind in numbers:
        return numbers[kind]
    return calls.key(int(rng.integers(100))) if kind == "key" else calls.array(np.zeros((0, 2)), base)


def _groups(count: int, rng: np.random.Generator) -> list[tuple[Any, list[int]]]:
    """How arguments are put together into trees: (kind of tree, numbers of its leaves)."""
    found: list[tuple[Any, list[int]]] = []
    start = 0
    while start < count:
        size = int(rng.integers(1, 4)) if rng.random() < 0.4 else 1
        members = list(range(start, min(count, start + size)))
        kind = ["alone", "list", "tuple", "dict"][int(rng.integers(4))] if size > 1 else "alone"
        keys = [str(key) for key in rng.permutation(NAMES)[: len(members)]] if kind == "dict" else kind
        found += [(keys, members)] if kind != "alone" else [("alone", [one]) for one in members]
        start = members[-1] + 1
    return found


def _grouped(group: Any, leaves: list[Any]) -> Any:
    if isinstance(group, list):
        return dict(zip(group, leaves, strict=True))
    return leaves[0] if group == "alone" else tuple(leaves) if group == "tuple" else leaves


def _ungrouped(group: Any, tree: Any) -> list[Any]:
    if isinstance(group, list):
        return [tree[key] for key in group]
    return [tree] if group == "alone" else list(tree)


def alarm(calls: Calls, seed: int) -> str:
    """What `gradgate.check` says against the right call of a seed; "" if nothing."""
    call = draw(calls, seed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            gradgate.check(call.function, call.plain, call.args, seed=seed)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    warned = any(one.category is gradgate.FloatsOnly for one in told)
    return "" if warned == call.outside else f"FloatsOnly: {warned}, though the function leaves: {call.outside}"


def missed(calls: Calls, seed: int, error: float = 0.01) -> bool:
    """Whether an error planted in one leaf of the call of a seed is not seen; the seed chooses the leaf."""
    call = draw(calls, seed)
    place = seed % call.leaves
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", gradgate.FloatsOnly)
            gradgate.check(calls.planted(call.function, 1 + error, place), call.plain, call.args, seed=seed)
    except AssertionError:
        return False
    return True


def alarms(framework: str, start: int, stop: int) -> tuple[dict[str, str], int]:
    """Judge the right calls of the seeds start … stop − 1.

    Returns:
        Seed -> what was said against its call, and how many gave no answer: none.
    """
    calls = CALLS[framework]()
    collect_rarely()
    said = {str(seed): alarm(calls, seed) for seed in range(start, stop)}
    relieve()
    return {seed: f"{draw(calls, int(seed)).description}: {words}" for seed, words in said.items() if words}, 0
