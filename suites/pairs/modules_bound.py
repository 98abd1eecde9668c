"""What the four kinds of modules have in common: a module as a function of its parameters and its state."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references.contract import UsageError

TRAINING = ("train", "training", "is_training", "is_train")
"""Keywords of a module's call that say whether it trains."""
INFERENCE = ("deterministic", "use_running_average", "inference")
"""Keywords of a module's call that say whether it does not train."""


@dataclass(frozen=True)
class Placed:
    """A parameter, or an array of the state, in the place of a draw."""

    size: tuple[int, ...]
    kind: str
    floating: bool = True
    gradient: bool = True
    dtype: str = ""

    def shape(self, dims: Any) -> tuple[int, ...]:
        """The shape at the dims for which it was made."""
        return self.size

    def count(self, dims: Any) -> int:
        """The number of elements."""
        return int(np.prod(self.size, dtype=int))


class Bound(ABC):
    """A module that a builder made at some dims; a call never changes its parameters or its state.

    Attributes:
        parameters: own name -> initial numbers, NumPy, of everything that gets a gradient.
        state: own name -> initial numbers of what a call may change: buffers, running statistics. No parameters.
        draws: own names of the random keys that it holds.
        known_as: own name -> name in the reference, for everything that draws random numbers.
    """

    parameters: Mapping[str, Any]
    state: Mapping[str, Any]
    forward: Callable[..., Any]
    draws: Sequence[str] = ()
    known_as: Callable[[str], str] = staticmethod(str)

    @abstractmethod
    def call(
        self,
        parameters: Mapping[str, Any],
        state: Mapping[str, Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        training: bool,
        key: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """What the module returns, and its state afterwards.

        Args:
            parameters: own name -> array, of all parameters.
            state: own name -> array; what is missing has its initial numbers.
            arguments: positional arguments of the module's call.
            keywords: keyword arguments of the module's call.
            training: the mode of the call.
            key: two uint32 that JAX's random numbers come from; unused in PyTorch, whose generator is global.
        """

    def takes(self, name: str) -> bool:
        """Whether a call of the module takes a keyword."""
        return name in keywords_of(self.forward)

    def mode(self, training: bool) -> dict[str, bool]:
        """The keywords that set the mode of a call; none for most modules, whose mode is an attribute."""
        told = dict.fromkeys(TRAINING, training) | dict.fromkeys(INFERENCE, not training)
        return {name: value for name, value in told.items() if self.takes(name)}


def keywords_of(function: Callable[..., Any]) -> dict[str, bool]:
    """Keyword that a function takes -> whether it has no default value."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name: p.default is p.empty for p in parameters if p.kind in named}


def built(who: str, builder: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    """What a builder makes.

    Raises:
        UsageError: the builder raises; the message says at which dims.
    """
    try:
        return builder(**keywords)
    except Exception as error:
        told = ", ".join(f"{name}={value!r}" for name, value in keywords.items() if isinstance(value, (int, str)))
        raise UsageError(
            f"{who} cannot be built at {told or 'no dims'}: {type(error).__name__}: {error}; if these dims make "
            "no sense together, exclude them by valid="
        ) from error
