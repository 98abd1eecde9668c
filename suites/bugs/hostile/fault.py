"""Declares a fault: a method, the claim by which it is judged, and the verdict and the sentence that it must get."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gradgate.references import oracle
from gradgate.references.contract import Problem

FAMILY = "state_space"
Answer = tuple[Any, Any]
Ends = Literal["", "process", "time", "memory"]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        method: the method with the fault.
        claim: the claim by which it is judged.
        verdict: the expected verdict.
        reason: the expected sentence, in which … matches any text.
        ends: what it ends or uses up: its ``process``, its ``time`` or its ``memory``; "" if the worker survives.
        not_in: framework -> why the fault does not exist there.
    """

    method: Callable[[Problem], Any]
    claim: str
    verdict: str
    reason: str
    ends: Ends = ""
    not_in: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method.__name__

    @property
    def words(self) -> str:
        """What the method does, in one line: its docstring."""
        return (self.method.__doc__ or "").rstrip(".")

    @property
    def target(self) -> str:
        """The name by which `gradgate verify` judges it."""
        return f"{self.method.__module__}:{self.name}"

    def told_by(self, reason: str) -> bool:
        """Whether a verdict's reason is the expected sentence."""
        return is_sentence(self.reason, reason)


def is_sentence(expected: str, reason: str) -> bool:
    """Whether a sentence is the expected one, in which … matches any text."""
    return re.fullmatch(".*".join(map(re.escape, expected.split("…"))), reason, re.DOTALL) is not None


IMMUTABLE = {"jax": "JAX arrays cannot be changed in place"}
TORCH_ALONE = {"jax": "it is PyTorch's"}
JAX_ALONE = {"torch": "it is JAX's"}


def fault(
    verdict: str, reason: str, claim: str = "tree", *, ends: Ends = "", not_in: Mapping[str, str] | None = None
) -> Callable[[Callable[[Problem], Any]], Callable[[Problem], Any]]:
    """Declare a method as a fault; the declaration is stored as its attribute ``hostile``."""

    def enter(method: Callable[[Problem], Any]) -> Callable[[Problem], Any]:
        vars(method)["hostile"] = Fault(method, claim, verdict, reason, ends, not_in or {})
        return method

    return enter


def good(problem: Problem) -> Answer:
    """Plain backprop."""
    return oracle.gradient(problem)


def altered(problem: Problem, **changed: Callable[[Any], Any]) -> Answer:
    """Plain backprop, with some leaves changed."""
    loss, grads = good(problem)
    return loss, {**grads, **{name: change(grads[name]) for name, change in changed.items()}}
