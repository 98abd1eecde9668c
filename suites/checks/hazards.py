"""What can happen between the forward and the backward pass of a model in eager PyTorch, as data.

A `Hazard` is a small scene: a model, its forward and backward pass, and something that happens around them. Each scene
is played with a *wrap*: it makes the function under test from a sequence of layers. The function is a checkpointed
module, a compiled one, or the sequence itself. The rule is the same for all of them: the outcome is right, to the bit,
or an error says in words what is wrong. An outcome that is silently wrong is a failure.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

Wrap = Callable[[nn.Sequential, torch.Tensor], Callable[[torch.Tensor], torch.Tensor]]
"""(the layers, a sample of the input) -> x -> y, the function under test."""
WIDTH, BATCH = 6, 4


class Scene:
    """One model, and what its passes leave behind.

    Attributes:
        model: the layers, from which the function under test was made.
        leaf: what the input is computed from; it collects the input's gradient.
        x: the input. It is not a leaf, so that it can be overwritten.
        y: the output of the last forward pass.
        loss: the sum of `y`.
        seen: the tensors that hooks have seen.
        changing: whether the hazard happens. Where plain autograd is not right, the truth is the scene without hazard.
    """

    def __init__(self, layers: list[nn.Module], wrap: Wrap, changing: bool = True) -> None:
        self.model, self.changing = nn.Sequential(*layers), changing
        self.leaf = torch.randn(BATCH, WIDTH, requires_grad=True)
        self.x = self.leaf.clone()
        self.seen: list[torch.Tensor] = []
        self.tensors: list[torch.Tensor] = []
        self.parameters = list(self.model.parameters())
        self.function = wrap(self.model, self.x.detach().requires_grad_())

    def forward(self, x: torch.Tensor | None = None) -> torch.Tensor:
        """The loss: the sum of the output. Only the model's part of the graph saves tensors."""
        self.y = self.function(self.x if x is None else x)
        self.loss = self.y.sum()
        return self.loss

    def result(self) -> list[tuple[str, torch.Tensor | None]]:
        """What the passes have left behind, by name: loss, gradients, buffers, modes, what the generators give next."""
        flags = torch.tensor([m.training for m in self.model.modules()])
        following = torch.tensor([random.random(), np.random.random(), float(torch.rand(()))], dtype=torch.float64)
        return [
            ("the loss", self.loss.detach()),
            *((f"the gradient of parameter {n}", p.grad) for n, p in enumerate(self.parameters)),
            ("the gradient of the input", self.leaf.grad),
            *((f"the buffer {name}", buffer) for name, buffer in self.model.named_buffers()),
            *((f"what hook {n} saw", tensor) for n, tensor in enumerate(self.seen)),
            ("the modes of the modules", flags),
            ("the random numbers that follow", following),
        ]


@dataclass(frozen=True)
class Hazard:
    """One thing that can happen.

    Attributes:
        name: a unique name.
        does: what happens, in words.
        layer: makes a layer that the hazard is about; each model holds several of them, with other layers in between.
        play: the passes, and what happens around them.
        plain: what plain autograd gives: the right gradient, an error, or a silently wrong gradient.
        refusable: whether the function under test may refuse even if plain autograd is right.
        shared: whether one and the same layer is used at all places.
    """

    name: str
    does: str
    layer: Callable[[], nn.Module]
    play: Callable[[Scene], None]
    plain: Literal["right", "raises", "wrong"] = "right"
    refusable: bool = False
    shared: bool = False

    def layers(self, blocks: int) -> list[nn.Module]:
        """The layers of one model; each call makes new ones."""
        own = [self.layer()] * blocks if self.shared else [self.layer() for _ in range(blocks)]
        stacked = [layer for one in own for layer in (nn.Linear(WIDTH, WIDTH), one, nn.Tanh())]
        return [*stacked, nn.Linear(WIDTH, WIDTH), nn.Tanh()]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a hazard.

    Attributes:
        kind: ``right``; ``raises``: an error in words; ``accident``: an error that is no refusal; ``as plain``: the
            bits of plain autograd where these are wrong; or ``wrong``: silently wrong.
        detail: the error, or what is wrong.
    """

    kind: Literal["right", "raises", "accident", "as plain", "wrong"]
    detail: str = ""

    def fault(self, hazard: Hazard) -> str:
        """Why this outcome is a failure, in words; "" if it is none."""
        if self.kind in ("right", "as plain") or (
            self.kind == "raises" and (hazard.plain != "right" or hazard.refusable)
        ):
            return ""
        said = {"raises": "it refuses", "accident": "it fails by accident", "wrong": "silently wrong"}[self.kind]
        return f"{hazard.name} ({hazard.does}): {said}: {self.detail}"


def outcome(hazard: Hazard, wrap: Wrap, blocks: int = 2, seed: int = 0) -> Outcome:
    """Play a hazard with `wrap`, and compare what it leaves behind with what plain autograd leaves behind.

    If plain autograd raises or is silently wrong, the truth is the scene in which the hazard does not happen. If plain
    autograd is silently wrong, its bits are accepted, too.
    """
    truth = _played(hazard, plain, blocks, seed, changing=hazard.plain == "right")
    try:
        found = _played(hazard, wrap, blocks, seed)
    except Exception as error:
        words = str(error).split()
        clear = isinstance(error, RuntimeError) or type(error).__module__.startswith("gradgate.")
        return Outcome("raises" if clear and len(words) >= 5 else "accident", f"{type(error).__name__}: {error}")
    wrong = _first_difference(found, truth)
    if wrong and hazard.plain == "wrong" and not _first_difference(found, _played(hazard, plain, blocks, seed)):
        return Outcome("as plain", wrong)
    return Outcome("wrong", wrong) if wrong else Outcome("right")


def plain(model: nn.Sequential, sample: torch.Tensor) -> nn.Sequential:
    """The wrap that returns the layers unchanged."""
    return model


def _played(
    hazard: Hazard, wrap: Wrap, blocks: int, seed: int, changing: bool = True
) -> list[tuple[str, torch.Tensor | None]]:
    with _own_surroundings(seed):
        scene = Scene(hazard.layers(blocks), wrap, changing)
        torch.manual_seed(seed + 1)
        random.seed(seed + 1)
        np.random.seed(seed + 1)
        hazard.play(scene)
        return [(name, t if t is None else t.detach().clone()) for name, t in scene.result()]


def _first_difference(
    found: list[tuple[str, torch.Tensor | None]], truth: list[tuple[str, torch.Tensor | None]]
) -> str:
    if [name for name, _ in found] != [name for name, _ in truth]:
        return f"{len(found)} results, plain autograd has {len(truth)}"
    for (name, mine), (_, right) in zip(found, truth, strict=True):
        if mine is None or right is None:
            if mine is not right:
                return f"{name} is {'missing' if mine is None else 'there'}, and with plain autograd it is not"
        elif not torch.equal(mine, right):
            if mine.shape != right.shape:
                return f"{name} has shape {tuple(mine.shape)}, not {tuple(right.shape)}"
            error = (mine.double() - right.double()).norm() / right.double().norm()
            return f"{name} is off by {float(error):.2g} of itself"
    return ""


@contextlib.contextmanager
def _own_surroundings(seed: int) -> Iterator[None]:
    """A scope with seeded generators; afterwards generators and global settings are as before."""
    python, numpy = random.getstate(), np.random.get_state()
    dtype, deterministic = torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()
    try:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed)
            torch.set_default_dtype(torch.float32)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(deterministic)


def between(change: Callable[[Scene], Any]) -> Callable[[Scene], None]:
    """Forward, then the change, then backward."""

    def play(scene: Scene) -> None:
        scene.forward()
        if scene.changing:
            with torch.no_grad():
                change(scene)
        scene.loss.backward()

    return play


def around(
    forward: Callable[[], Any] = contextlib.nullcontext, backward: Callable[[], Any] = contextlib.nullcontext
) -> Callable[[Scene], None]:
    """The forward pass in one scope, the backward pass in another."""

    def play(scene: Scene) -> None:
        with forward():
            scene.forward()
        with backward():
            scene.loss.backward()

    return play


def in_another_thread(scene: Scene) -> None:
    """Backward in another thread. What it raises there is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            scene.loss.backward()
        except BaseException as error:
            raised.append(error)

    scene.forward()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


class Scaled(nn.Module):
    """Multiplies by a number that it asks for in every run."""

    def __init__(self, ask: Callable[[], Any]) -> None:
        super().__init__()
        self.ask = ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One tensor to one."""
        return x * (0.5 + self.ask())


class Drawing(nn.Module):
    """Multiplies by a number from a generator of its own."""

    def __init__(self, generator: Any, draw: Callable[[Any], Any]) -> None:
        super().__init__()
        self.generator, self.draw = generator, draw

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One tensor to one."""
        return x * (0.5 + self.draw(self.generator))


class Buffered(nn.Module):
    """Multiplies by a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.gain: torch.Tensor
        self.register_buffer("gain", torch.full((WIDTH,), 0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One tensor to one."""
        return x * self.gain


class InstanceNormed(nn.InstanceNorm1d):
    """An instance norm with running statistics, which takes the rows of a batch for channels."""

    def __init__(self) -> None:
        super().__init__(BATCH, track_running_stats=True)
