"""Training on the copying task and on a text by different methods, whose curves must be the same up to rounding.

Two trainings with exact gradients are not equal bit for bit: rounding differs, and training amplifies it. How far they
may differ is measured, not guessed: the same training by plain backprop is run again from parameters moved by two units
in the last place. A training whose distance is more than `KAPPA` times as large has another gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references.backends import leaves, precision, to_backend, to_numpy, tree_map
from gradgate.references.contract import Tree
from gradgate.references.oracle import jittered
from gradgate.references.performer import tokens
from gradgate.references.performer.problem import PerformerProblem, PerformerSpec

KAPPA = 256.0
"""The allowed multiple of the distance that rounding alone makes: subtraction loses a few digits more than backprop."""
BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's constants, as in App. C."""

Gradient = Callable[[PerformerProblem], tuple[Any, Tree]]
Batches = Iterable[tuple[Any, Any]]
"""For each step the arguments of `tokens.arrange`: tokens, and the tokens that follow, both (L, batch)."""


@dataclass(frozen=True)
class Curve:
    """A training: the loss of each step before it is taken, and the parameters at the end."""

    losses: Any
    params: Tree


def train(
    spec: PerformerSpec,
    gradient: Gradient,
    steps: int,
    rate: float = 3e-3,
    *,
    then: Gradient | None = None,
    moved: bool = False,
    batches: Batches | None = None,
) -> Curve:
    """Train in JAX with Adam, on other sequences at each step, which are the same for every method.

    Args:
        spec: the Spec of the copying task, or of another.
        gradient: (problem) -> (loss, grads).
        steps: the number of steps.
        rate: the learning rate.
        then: the gradient for the second half of the steps: fine-tuning.
        moved: whether to start from parameters moved by 2u.
        batches: one batch per step; None: newly drawn ones.

    Cost: one compilation for each gradient, then `steps` calls.
    """
    import jax

    problem = spec.build("jax")
    with precision("jax", spec.dtype):
        params = tree_map(lambda leaf: leaf[1], jittered(problem, 2)) if moved else problem.params
        moments = [tree_map(lambda p: p * 0, params) for _ in BETAS]
        losses = []
        for step, (first, second) in enumerate(_sequences(spec, steps) if batches is None else batches):
            chosen = then if then is not None and 2 * step >= steps else gradient
            data = tokens.arrange(spec.task, first, second)
            data = {name: to_backend("jax", array) for name, array in data.items()}
            loss, params, *moments = _stepped(jax, chosen)(
                problem._replace(params=params, data={**problem.data, **data}), moments, float(step + 1), rate
            )
            losses.append(loss)
        return Curve(np.array([float(loss) for loss in losses]), params)


def distance(one: Curve, other: Curve) -> float:
    """The largest relative distance, over the leaves, of the final parameters of two trainings."""
    pairs = zip(leaves(one.params), leaves(other.params), strict=True)
    return max(float(np.linalg.norm(to_numpy(a) - to_numpy(b)) / np.linalg.norm(to_numpy(b))) for a, b in pairs)


def curves(
    length: int = 32, chunk: int = 8, steps: int = 1200, width: int = 64, batch: int = 16, dtype: str = "float32"
) -> dict[str, Any]:
    """The paper's experiment (§4.3, Fig. 3) at a size for two cores: losses of four trainings, and their distances.

    Returns:
        ``step``: every 10th; ``full``, ``moved`` (full again, from parameters moved by 2u), ``chunk`` and ``tuned``
        (full first, then in slices): mean losses over 10 steps each; ``distance_…`` of the last three to ``full``.
    """
    from gradgate.references.performer.in_jax.methods import full, slim

    spec = PerformerSpec(
        dtype=dtype,
        length=length,
        layers=2,
        heads=4,
        head_width=width // 4,
        expansion=4,
        vocabulary=8,
        batch=batch,
        task="copying",
        norm="pre",
        sharpness=1.0,
    )

    def sliced(problem: PerformerProblem) -> tuple[Any, Tree]:
        return slim(problem, chunk=chunk)

    found = {
        "full": train(spec, full, steps),
        "moved": train(spec, full, steps, moved=True),
        "chunk": train(spec, sliced, steps),
        "tuned": train(spec, full, steps, then=sliced),
    }
    result: dict[str, Any] = {"step": list(range(0, steps, 10))}
    for name, curve in found.items():
        result[name] = [float(np.mean(curve.losses[i : i + 10])) for i in range(0, steps, 10)]
    for name in ("moved", "chunk", "tuned"):
        result[f"distance_{name}"] = distance(found[name], found["full"])
    return result


def windows(spec: PerformerSpec, text: Any, steps: int) -> list[tuple[Any, Any]]:
    """Batches of windows of a text at random places, the same at every call.

    Args:
        spec: gives length, batch and seed; its task is ``window``.
        text: (n,) int32, longer than L.
        steps: the number of steps.

    Returns:
        For each step tokens (L, batch), and the token that follows each window, repeated L times: (L, batch).
    """
    rng = np.random.Generator(np.random.PCG64([spec.seed, 5]))
    found = []
    for _ in range(steps):
        places = rng.integers(0, len(text) - spec.length, spec.batch)
        window = np.stack([text[place : place + spec.length + 1] for place in places], axis=1)
        found.append((window[:-1], np.broadcast_to(window[-1:], window[:-1].shape)))
    return found


def on_text(
    length: int = 64, chunk: int = 16, steps: int = 40, gradient: Gradient | None = None, dtype: str = "float64"
) -> dict[str, Any]:
    """The paper's experiment on a text (§4.3, Fig. 3) at a size for two cores, on the help texts of Python.

    Args:
        length: L.
        chunk: C.
        steps: the number of Adam's steps.
        gradient: takes the place of `slim`.
        dtype: the dtype of all trainings.

    Returns:
        ``bits``: bits per character over the last tenth of the steps, of ``full``, ``chunk`` and ``tuned`` (full first,
        then in slices); ``distance``: the larger of the distances of the last two's final parameters from the first's.
    """
    from gradgate.references.performer.in_jax.methods import full, slim

    spec = PerformerSpec(
        dtype=dtype,
        length=length,
        layers=2,
        heads=2,
        head_width=16,
        expansion=4,
        vocabulary=128,
        batch=4,
        task="window",
        norm="pre",
        sharpness=1.0,
    )
    batches = windows(spec, tokens.python_topics(), steps)

    def sliced(problem: PerformerProblem) -> tuple[Any, Tree]:
        return slim(problem, chunk=chunk, prefix_sum="matrix")

    chosen = gradient or sliced
    found = {
        "full": train(spec, full, steps, batches=batches),
        "chunk": train(spec, chosen, steps, batches=batches),
        "tuned": train(spec, full, steps, then=chosen, batches=batches),
    }
    last = max(1, steps // 10)
    return {
        "bits": {name: float(np.mean(curve.losses[-last:]) / np.log(2)) for name, curve in found.items()},
        "distance": max(distance(found[name], found["full"]) for name in ("chunk", "tuned")),
    }


_STEPS: dict[Gradient, Any] = {}


def _stepped(jax: Any, gradient: Gradient) -> Any:
    """One step of Adam, jitted, one program per gradient and shape."""
    if gradient not in _STEPS:

        def step(problem: PerformerProblem, moments: list[Tree], number: Any, rate: Any) -> tuple[Any, ...]:
            loss, grads = gradient(problem)
            one, two = BETAS
            m = tree_map(lambda m, g: one * m + (1 - one) * g, moments[0], grads)
            v = tree_map(lambda v, g: two * v + (1 - two) * g * g, moments[1], grads)

            def moved(p: Any, m: Any, v: Any) -> Any:
                return p - rate * (m / (1 - one**number)) / ((v / (1 - two**number)) ** 0.5 + EPSILON)

            return loss, tree_map(moved, problem.params, m, v), m, v

        _STEPS[gradient] = jax.jit(step)
    return _STEPS[gradient]


def _sequences(spec: PerformerSpec, steps: int) -> Any:
    rng = np.random.Generator(np.random.PCG64([spec.seed, 3]))
    shape = (spec.length, spec.batch)
    for _ in range(steps):
        drawn = rng.integers(0, tokens.alphabet(spec.task, spec.vocabulary), shape)
        yield drawn, rng.integers(0, spec.vocabulary, shape)
