"""Calls of `gradgate.check` in both frameworks: what the frameworks call alike things, and random calls that are right.

``python -m gradgate.suites.calibration.check_calls jax --seconds 300`` draws calls and reports false alarms.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import time
import traceback
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gradgate


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
        return identity  # type: ignore[no-any-return]

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
        return made  # type: ignore[no-any-return]

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

        class Identity(self.torch.autograd.Function):  # type: ignore[name-defined,misc]
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

        class Outside(self.torch.autograd.Function):  # type: ignore[name-defined,misc]
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return called(function, x)

            @staticmethod
            def backward(ctx: Any, *upstream: Any) -> Any:
                return upstream[0] * called(slope, ctx.saved_tensors[0])

        return lambda x: Outside.apply(x)

    def register(self, cls: type) -> None:
        """See `Calls.register`."""
        self.torch.export.register_dataclass(cls)


CALLS: dict[str, type[Calls]] = {"jax": Jax, "torch": Torch}
