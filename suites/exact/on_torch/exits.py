"""Where numbers leave the evaluation: `item`, `tolist`, `numpy` and the like.

A number that has left is a float, and what is computed from it is data. It is recorded with its place in the program,
and may be nudged, so that the judge can find out whether the result depends on it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gradgate.suites.exact import balls
from gradgate.suites.exact.lines import judges, line_at
from gradgate.suites.exact.on_torch.shadows import INEXACT, as_numpy

_TORCH = str(Path(torch.__file__).parent)
_FOREIGN = tuple(str(Path(torch.__file__).parents[1] / name) for name in ("array_api_compat", "numpy"))


def caller() -> str:
    """``file.py:123`` of the nearest frame outside of PyTorch and of what judges; "" if there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not _stands_between(name):
            return line_at(name, frame.f_lineno)
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=4096)
def _stands_between(file: str) -> bool:
    """Whether a file is between a program and what watches it: of PyTorch, of NumPy, or of what judges."""
    foreign = file.startswith((_TORCH, "<", *_FOREIGN)) or file.endswith(("contextlib.py", "functools.py"))
    return foreign or judges(file)


def note(state: Any, name: str) -> None:
    """Record an exit."""
    told = f"{name} at {caller()}"
    if told not in state.exits:
        state.exits.append(told)


def plain(state: Any, tensor: Any) -> bool:
    """Whether a tensor's balls are points equal to floats, so that floats lose nothing."""
    if tensor.dtype not in INEXACT:
        return True
    array = state.shadows.read(tensor.detach())
    return all(_is_float(ball) for ball in array.reshape(-1).tolist())


def _is_float(ball: Any) -> bool:
    parts = (ball.real, ball.imag) if hasattr(ball, "imag") and not isinstance(ball, balls.arb) else (ball,)
    return all(not part.is_finite() or (part.is_exact() and balls.arb(float(part)) == part) for part in parts)


def _left(state: Any, tensor: Any, name: str) -> Any:
    """The float64 numbers that a tensor gives out, nudged if the floats lose digits."""
    if balls.is_wide():
        raise balls.Undecided(f"{name}, for all inputs")
    array = balls.floats(state.shadows.read(tensor.detach()))
    if plain(state, tensor):
        return array
    note(state, name)
    return array * (1.0 + state.nudge)


def scalar(state: Any, func: Any, tensor: Any) -> Any:
    """The number that ``item()`` of a tensor of one element returns."""
    if tensor.dtype not in INEXACT:
        return func(tensor)
    return _left(state, tensor, str(func)).reshape(()).item()


class Read(float):
    """A number that `item()` read out of a tensor: that Python compares it is a decision of the program."""

    __slots__ = ("watch",)
    __hash__ = float.__hash__

    watch: Callable[[str, str, Any], Any]

    def _decided(self, other: Any, name: str) -> Any:
        found = getattr(float, f"__{name}__")(self, other)
        if found is not NotImplemented and isinstance(other, (int, float)):
            balls.noted(float(self), float(other))
            self.watch(name, caller(), np.asarray(found))
        return found

    def __lt__(self, other: Any) -> Any:
        return self._decided(other, "lt")

    def __le__(self, other: Any) -> Any:
        return self._decided(other, "le")

    def __gt__(self, other: Any) -> Any:
        return self._decided(other, "gt")

    def __ge__(self, other: Any) -> Any:
        return self._decided(other, "ge")

    def __eq__(self, other: object) -> Any:
        return self._decided(other, "eq")

    def __ne__(self, other: object) -> Any:
        return self._decided(other, "ne")


def _reading(method: Any, current: Callable[[], Any]) -> Any:
    def item(tensor: Any) -> Any:
        number, state = method(tensor), current()
        if state is None or state.watch is None or type(number) is not float:
            return number
        read = Read(number)
        read.watch = state.watch
        return read

    return item


_LOCK = threading.RLock()


@contextlib.contextmanager
def watched(current: Callable[[], Any]) -> Iterator[None]:
    """The scope that records the numbers that leave by methods of Tensor that bypass the dispatcher.

    Args:
        current: the state of the evaluation that this thread is in, or None.
    """
    names = ("numpy", "__array__", "tolist", "data_ptr", "__dlpack__", "item")
    own = {name: vars(torch.Tensor).get(name) for name in names}
    with _LOCK:
        try:
            for name in names:
                method = getattr(torch.Tensor, name)
                made = _reading(method, current) if name == "item" else _watching(name, method, current)
                setattr(torch.Tensor, name, made)
            yield
        finally:
            for name in names:
                if own[name] is None:
                    delattr(torch.Tensor, name)
                else:
                    setattr(torch.Tensor, name, own[name])


_BUSY = threading.local()


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """The scope in which no number leaves: a method of Tensor that calls another, or a kernel that runs on balls."""
    _BUSY.now = True
    try:
        yield
    finally:
        _BUSY.now = False


def _watching(name: str, method: Any, current: Callable[[], Any]) -> Any:
    def watching(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        # Triton takes addresses for kernels alone, which run on balls
        silent = getattr(_BUSY, "now", False) or sys._getframe(1).f_globals.get("__name__", "").startswith("triton.")
        state = None if silent else current()
        if state is not None:
            state.recording = None
        if state is not None and balls.is_wide():
            raise balls.Undecided(f"Tensor.{name}, for all inputs")
        if state is None or tensor.dtype not in INEXACT or _wrapped(tensor):
            return method(tensor, *args, **kwargs)
        with unwatched(), torch.utils._python_dispatch._disable_current_modes():
            bits(state, f"Tensor.{name}", tensor)
            return method(tensor, *args, **kwargs)

    return watching


def bits(state: Any, name: str, tensor: Any) -> None:
    """For a tensor whose memory is about to be read: write the nudged midpoints there, and detect later writes."""
    note(state, name)
    _put(state, tensor)
    state.shadows.guard(tensor.detach())


def _put(state: Any, tensor: Any) -> None:
    """Write the nudged midpoints into the floats themselves, whose memory is handed out."""
    nudge = max(state.nudge, 2 * torch.finfo(tensor.dtype).eps) if state.nudge else 0.0
    values = balls.floats(state.shadows.read(tensor.detach())) * (1.0 + nudge)
    as_numpy(tensor.detach())[...] = values  # not by an operation, which autograd would take for a change


def arrived(state: Any, name: str, tensor: Any) -> None:
    """Numbers that come from a file or a pickle: they may have left the evaluation on their way, and are data now."""
    note(state, name)
    as_numpy(tensor.detach())[...] *= 1.0 + state.nudge
    state.shadows.record(tensor)


def _wrapped(tensor: Any) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))
