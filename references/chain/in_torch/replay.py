"""What surrounds a stage when it first runs, and how it is put back when the stage runs again.

A stage can depend on more than its input: on autocast, on flags of PyTorch, on whether its modules train, and on random
numbers. All of these belong to the caller, who may change them between the forward and the backward pass. Plain
backprop would not notice, because it runs nothing again. This module keeps them.

These generators are kept: Python's `random`, NumPy's global one, PyTorch's for the CPU and for every accelerator, and
those that are attributes of a module (`torch.Generator`, `numpy.random.Generator`, `random.Random`). A generator that
is held anywhere else cannot be found from outside. `guard` detects that its numbers have changed.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

Norm = torch.nn.modules.batchnorm._NormBase
_InstanceNorm = torch.nn.modules.instancenorm._InstanceNorm
_NO_DEVICE = {"cpu", "meta"}


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(flags: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(flags[0], warn_only=flags[1])


FLAGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_deterministic, _set_deterministic),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (torch.backends.cuda.cudnn_sdp_enabled, torch.backends.cuda.enable_cudnn_sdp),
)
"""Global settings that decide what an operator computes: how to read each, and how to set it."""


@dataclass(frozen=True)
class Surroundings:
    """The settings under which a chain was called, and under which its stages are run again.

    Autocast keeps casts of weights in a cache, and would hand one made without a graph to a recording; the cache is
    therefore off within a stage. Inference mode is off within a stage too: a chain is only called outside it.

    Attributes:
        autocasts: for each kind of device: its name, whether autocast is on, and the dtype.
        flags: the values of `FLAGS`.
        default_device: where a stage makes new tensors.
    """

    autocasts: tuple[tuple[str, bool, torch.dtype], ...]
    flags: tuple[Any, ...]
    default_device: torch.device

    @classmethod
    def now(cls, device: torch.device) -> Surroundings:
        """The caller's settings."""
        kinds = sorted({"cpu", *_accelerators(device)})
        autocasts = tuple((k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds)
        return cls(autocasts, tuple(get() for get, _ in FLAGS), torch.get_default_device())

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """A scope with these settings; afterwards those found are back."""
        with contextlib.ExitStack() as stack:
            for kind, enabled, dtype in self.autocasts:
                if enabled or torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False))
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(False))
            if torch.get_default_device() != self.default_device:
                stack.enter_context(self.default_device)
            for (get, put), value in zip(FLAGS, self.flags, strict=True):
                found = get()
                if found != value:
                    stack.callback(put, found)
                    put(value)
            yield


@dataclass(frozen=True)
class Generator:
    """A global generator of random numbers.

    Attributes:
        read: gives its state.
        write: sets it.
        nbytes: of a state.
    """

    read: Callable[[], Any]
    write: Callable[[Any], Any]
    nbytes: int = 0


PYTHON = Generator(random.getstate, random.setstate, 25_000)  # 625 Python integers
NUMPY = Generator(
    lambda: pickle.dumps(np.random.get_state(legacy=False)), lambda kept: np.random.set_state(pickle.loads(kept)), 2_700
)
TORCH = Generator(torch.get_rng_state, torch.set_rng_state)


@dataclass(frozen=True)
class RandomState:
    """States of some generators.

    Attributes:
        parts: each generator with its state.
    """

    parts: tuple[tuple[Generator, Any], ...] = ()

    @classmethod
    def now(cls, device: torch.device, modules: Sequence[torch.nn.Module] = ()) -> RandomState:
        """The states of Python's, NumPy's and PyTorch's generators, on every device in use, and of the modules' own."""
        found = (PYTHON, NUMPY, TORCH, *_device_generators(device), *_own_generators(modules))
        return cls(tuple((g, g.read()) for g in found))

    def moved(self, later: RandomState) -> RandomState:
        """The states of those generators whose state is different in `later`."""
        pairs = zip(self.parts, later.parts, strict=False)
        return RandomState(tuple(mine for mine, theirs in pairs if not _same(mine[1], theirs[1])))

    def put_back(self) -> None:
        """Set the generators back to these states."""
        for generator, state in self.parts:
            generator.write(state)

    @property
    def nbytes(self) -> int:
        """Bytes of all the states."""
        return sum(g.nbytes or state.nbytes for g, state in self.parts)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """A scope that starts with these states; afterwards those found are back."""
        found = RandomState(tuple((g, g.read()) for g, _ in self.parts))
        self.put_back()
        try:
            yield
        finally:
            found.put_back()


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


def _accelerators(device: torch.device) -> set[str]:
    """The kinds of devices that a stage may compute on, besides the CPU."""
    current = torch.accelerator.current_accelerator()
    return {device.type, *([current.type] if current is not None else [])} - _NO_DEVICE


def _device_generators(device: torch.device) -> Iterator[Generator]:
    for kind in sorted(_accelerators(device)):
        module = torch.get_device_module(kind)
        if kind == "mps":  # there is one, and its functions take no device
            yield Generator(module.get_rng_state, module.set_rng_state)
        elif getattr(module, "is_initialized", lambda: True)():
            for number in range(module.device_count()):
                yield _of_device(module, torch.device(kind, number))


def _of_device(module: Any, device: torch.device) -> Generator:
    return Generator(lambda: module.get_rng_state(device), lambda state: module.set_rng_state(state, device))


def _own_generators(modules: Sequence[torch.nn.Module]) -> Iterator[Generator]:
    """The generators that are attributes of a module, once for each attribute."""
    for module in modules:
        for value in vars(module).values():
            keep = _generator_of(value.__class__)
            if keep is not None:
                yield keep(value)


@functools.lru_cache(maxsize=1024)  # every attribute of every module is asked, in every step
def _generator_of(kind: type) -> Callable[[Any], Generator] | None:
    """How values of this class are kept; None if they are no generators."""
    if issubclass(kind, torch.Generator):
        return lambda value: Generator(value.get_state, value.set_state)
    if issubclass(kind, random.Random):
        return lambda value: Generator(value.getstate, value.setstate, PYTHON.nbytes)
    return _of_numpy if issubclass(kind, np.random.Generator) else None


def _of_numpy(value: np.random.Generator) -> Generator:
    bits: Any = value.bit_generator

    def write(kept: bytes) -> None:
        bits.state = pickle.loads(kept)

    return Generator(lambda: pickle.dumps(bits.state), write, NUMPY.nbytes)


@contextlib.contextmanager
def in_modes(modules: Sequence[torch.nn.Module], training: Sequence[bool]) -> Iterator[None]:
    """A scope in which each module trains or not, as `training` says; afterwards each has its former mode."""
    changed = [(m, m.training) for m, mode in zip(modules, training, strict=True) if m.training != mode]
    for module, found in changed:
        module.training = not found
    try:
        yield
    finally:
        for module, found in changed:
            module.training = found


@contextlib.contextmanager
def statistics_kept(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """A scope in which batch and instance norms normalise as in training, and leave their running statistics alone."""
    norms = [m for m in modules if isinstance(m, Norm) and m.training and m.track_running_stats]
    hidden = [(norm, dict(norm._buffers)) for norm in norms if isinstance(norm, _InstanceNorm)]
    for norm in norms:
        norm.track_running_stats = False
    for norm, buffers in hidden:  # in training these update what they have, whatever `track_running_stats` says
        norm._buffers.update(dict.fromkeys(buffers))
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
        for norm, buffers in hidden:
            norm._buffers.update(buffers)
