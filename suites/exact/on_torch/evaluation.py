"""One evaluation: a function is called under the mode, and its answer is returned in balls."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from gradgate.references.backends import leaves
from gradgate.references.contract import Problem
from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch import (  # noqa: F401 - the modules of rules register them
    activations,
    comparisons,
    convolution,
    elementwise,
    exits,
    extremes,
    linear_algebra,
    losses,
    normalisation,
    pooling,
    products,
    ranks,
    reductions,
    structure,
    transforms,
)
from gradgate.suites.exact.on_torch.mode import BallMode, State
from gradgate.suites.exact.on_torch.recording import NotRecorded, Recording
from gradgate.suites.exact.on_torch.shadows import INEXACT, as_numpy
from gradgate.suites.exact.tiles import Tiles


@dataclass
class Evaluated:
    """What a program answered.

    Attributes:
        outputs: leaves of the answer in the order of `gradgate.references.backends.leaves`: object arrays of balls for
            floats, NumPy arrays for others.
        answer: the answer itself, a tree of tensors.
        narrowed: dtype below float64 to which values were cast -> the line of the first such cast; the balls were not.
        exits: where numbers left the evaluation, each ``operation at file.py:123``.
        notes: where kernels stored what follows from memory that nobody wrote.
        tiles: how the masks, branches and loops of kernels went.
        recording: what the program did; None if it was not recorded, or cannot be.
    """

    outputs: list[Any]
    answer: Any
    narrowed: Mapping[str, str]
    exits: tuple[str, ...]
    notes: tuple[str, ...]
    tiles: Tiles
    recording: Recording | None = None


_CURRENT = threading.local()


def _state() -> State | None:
    """The evaluation that this thread is in."""
    return getattr(_CURRENT, "state", None)


def evaluate(
    function: Callable[..., Any],
    *args: Any,
    digits: int = balls.DIGITS,
    nudge: float = 0.0,
    watch: Callable[[str, str, Any], Any] | None = None,
    given: Sequence[tuple[torch.Tensor, Any]] = (),
    recording: Recording | None = None,
) -> Evaluated:
    """Call ``function(*args)`` on floats, and also on balls.

    Args:
        function: any eager PyTorch program; its answer is a tree of tensors and numbers.
        args: trees of tensors, or Problems. Each number of a tensor counts as exactly its float.
        digits: decimal digits of the midpoints.
        nudge: every number that leaves the evaluation is multiplied by 1 + nudge.
        watch: called after every operation with its name, ``file.py:123`` of its caller, and its balls; unless it
            returns None, what it returns takes their place.
        given: tensors, each with the balls to use in place of its floats.
        recording: is told what the program does.

    Raises:
        Unknown: an operation has neither a rule nor a decomposition, or foreign code made the answer.
        Undecided: a comparison is not decided by the balls.
    """
    state = State(nudge, watch)
    state.recording = recording
    with balls.digits(digits):
        for tensor, array in given:
            state.shadows.write(tensor.detach(), balls.exact(array))
        for tensor in _tensors(args):
            state.shadows.record(tensor)
        with entered(state), exits.watched(_state), ranks.in_threads(state, entered):
            answer = function(*args)
        if state.failure is not None:  # even if the program caught it
            raise state.failure
        found = leaves(answer)
        outputs = [_output(state, leaf) for leaf in found]
        tensors = (isinstance(leaf, torch.Tensor) for leaf in found)
        ends = [leaf if one else made for leaf, made, one in zip(found, outputs, tensors, strict=True)]
        state.record("ended", ends, state.narrowed)
    told = tuple(state.exits), tuple(state.notes)
    return Evaluated(outputs, answer, state.narrowed, *told, state.tiles, state.recording)


def evaluate_again(
    function: Callable[..., Any],
    inputs: Sequence[torch.Tensor],
    recordings: dict[int, Recording | None],
    digits: int = balls.DIGITS,
    watch: Callable[[str, str, Any], Any] | None = None,
) -> Evaluated:
    """`evaluate` for a function of the same shapes many times: it is called once if it can be recorded.

    Args:
        function: takes no arguments; its numbers come from `inputs`.
        recordings: digits -> what a call did, None if it cannot be recorded. They are added here.
        watch: as for `evaluate`.
    """
    known = recordings.get(digits)
    with contextlib.suppress(NotRecorded):
        if known is not None:
            with balls.digits(digits):
                return Evaluated(known.play(inputs, watch), None, known.narrowed, (), (), {}, known)
        if digits not in recordings:
            recordings[digits] = None
            found = evaluate(function, digits=digits, watch=watch, recording=Recording(inputs))
            recordings[digits] = found.recording
            return found
    return evaluate(function, digits=digits, watch=watch)


@contextlib.contextmanager
def entered(state: State) -> Iterator[None]:
    """The scope in which this thread takes part in an evaluation."""
    before = _state()
    _CURRENT.state = state
    try:
        with sdpa_kernel(SDPBackend.MATH), _nothing_compiled(), BallMode(state):
            yield
    finally:
        _CURRENT.state = before


@contextlib.contextmanager
def _nothing_compiled() -> Iterator[None]:
    """The scope in which what `torch.compile` has made, or makes, runs eagerly.

    To say so, PyTorch imports its compiler, which takes a second. So it is said where the compiler is already there, or
    when somebody asks for it.
    """
    with contextlib.ExitStack() as scope:
        plain = torch.compile

        def compiled(*args: Any, **named: Any) -> Any:
            scope.enter_context(torch.compiler.set_stance("force_eager"))
            return plain(*args, **named)

        if "torch._dynamo" in sys.modules:
            scope.enter_context(torch.compiler.set_stance("force_eager"))
        elif plain.__module__ != __name__:  # no scope around this one, and no other thread's, has done so
            scope.callback(setattr, torch, "compile", plain)
            torch.compile = compiled
        yield


def _tensors(tree: Any) -> list[torch.Tensor]:
    """The floating tensors of a tree of arguments."""
    if isinstance(tree, torch.Tensor):
        return [tree] if tree.dtype in INEXACT else []
    if isinstance(tree, Problem):
        return _tensors([tree.params, tree.data])
    if isinstance(tree, dict):
        return _tensors(list(tree.values()))
    if isinstance(tree, (list, tuple)):
        return [leaf for item in tree for leaf in _tensors(item)]
    return []


def _output(state: State, leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        plain = np.asarray(leaf)
        return balls.exact(plain) if plain.dtype.kind in "fc" else plain
    leaf = leaf.detach()
    if leaf.dtype not in INEXACT:
        return as_numpy(leaf.cpu())
    if not leaf._is_zerotensor() and not state.shadows.known(leaf):
        raise balls.Unknown(f"an answer of shape {tuple(leaf.shape)} was made outside of PyTorch's dispatcher")
    return state.shadows.read(leaf)
