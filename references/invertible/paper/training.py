"""Error curves: gradients over depth, and trainings by backprop, reversing backprop and mixed Moonwalk; CIFAR-10."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradgate.references.backends import leaves, precision, to_backend, to_numpy
from gradgate.references.contract import Tree, UsageError, unknown
from gradgate.references.invertible.paper.steps import adam, adam_state
from gradgate.references.invertible.problem import InvertibleProblem, InvertibleSpec

Gradient = Callable[[InvertibleProblem], tuple[Any, Tree]]
RECORD = 3073
"""Bytes of one image in CIFAR-10's binary files: a label and 3 channels of 32×32."""


def distance(ours: Tree, exact: Tree) -> float:
    """‖ours − exact‖ / ‖exact‖ over all leaves (Fig. 5); infinite if ours is not finite."""
    pairs = [(to_numpy(a), to_numpy(b)) for a, b in zip(leaves(ours), leaves(exact), strict=True)]
    off, size = sum(float(np.sum((a - b) ** 2)) for a, b in pairs), sum(float(np.sum(b**2)) for _, b in pairs)
    return (off / size) ** 0.5 if np.isfinite(off) else float("inf")


def errors_over_depth(unit: str, scale: float, bias: float, depths: tuple[int, ...], seeds: int = 5) -> dict[str, Any]:
    """Relative error of float32 gradients against the float64 oracle, the median over seeds.

    Returns:
        ``depth``, and a list per method: ``backprop`` is the noise that the others are compared with; None where the
        gradient is not finite.
    """
    from gradgate.references.invertible.in_torch import methods as torch_impl

    found: dict[str, Any] = {"depth": list(depths)}
    for name in ("backprop", "reversible", "moonwalk_mixed"):
        found[name] = []
        for depth in depths:
            errors = []
            for seed in range(seeds):
                spec = InvertibleSpec(
                    dtype="float32", unit=unit, layers=depth, channels=6, batch=3, scale=scale, bias=bias, seed=seed
                )
                exact = torch_impl.backprop(dataclasses.replace(spec, dtype="float64").build("torch"))[1]
                errors.append(distance(getattr(torch_impl, name)(spec.build("torch"))[1], exact))
            middle = float(np.median(errors))
            found[name].append(middle if np.isfinite(middle) else None)
    return found


def examples(spec: InvertibleSpec, count: int) -> tuple[Any, Any]:
    """Generated images x (count, side, side, channels) and classes (count,): a smooth pattern per class, and noise."""
    rng = np.random.default_rng([spec.seed, 5])
    grid = np.arange(spec.side) / spec.side * 2 * np.pi
    waves = rng.integers(1, 3, (spec.classes, 2, spec.channels))
    phase = rng.uniform(0, 2 * np.pi, (spec.classes, spec.channels))
    angle = grid[None, :, None, None] * waves[:, None, None, 0] + grid[None, None, :, None] * waves[:, None, None, 1]
    level = rng.standard_normal((spec.classes, 1, 1, spec.channels))
    patterns = np.cos(angle + phase[:, None, None]) + level
    classes = rng.integers(0, spec.classes, count)
    noise = 0.5 * rng.standard_normal((count, spec.side, spec.side, spec.channels))
    return spec.spread * (patterns[classes] + noise), classes


def curves(
    steps: int = 600, layers: int = 6, scale: float = 0.3, spread: float = 0.5, rate: float = 1e-3
) -> dict[str, Any]:
    """Three trainings on the same batches (Fig. 4), and at each step their gradient's error (Fig. 5), in float32.

    The error is against plain float32 backprop at the same parameters, as the paper's, recorded every 20th step.

    Returns:
        ``step``, and per method ``accuracy_…`` and ``error_…``; None where it is not finite.
    """
    from gradgate.references.invertible.in_jax import methods as jax_impl

    spec = InvertibleSpec(
        dtype="float32",
        unit="additive tanh",
        layers=layers,
        blocks=2,
        side=8,
        channels=6,
        batch=32,
        residual="conv",
        activation="relu",
        norm="batch",
        classes=5,
        scale=scale,
        spread=spread,
    )
    xs, classes = examples(spec, 512)
    result: dict[str, Any] = {"step": list(range(0, steps, 20))}
    for name in ("backprop", "reversible", "moonwalk_mixed"):
        accuracies, errors = train(spec, getattr(jax_impl, name), xs, classes, steps, rate)
        result[f"accuracy_{name}"], result[f"error_{name}"] = accuracies, errors
    return result


def train(
    spec: InvertibleSpec, gradient: Gradient, xs: Any, classes: Any, steps: int, rate: float = 1e-3, every: int = 20
) -> tuple[list[float], list[float | None]]:
    """Adam with one method's gradients; accuracy on a batch and error of the gradient every so many steps.

    Cost: two compilations, then `steps` steps.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.references.invertible.in_jax.methods import backprop

    def step(problem: InvertibleProblem, state: Tree, number: Any) -> tuple[Tree, Tree]:
        _, grads = gradient(problem)
        visit = adam(rate, number)
        moved = {key: visit(problem.params[key], grads[key], state[key]) for key in grads}
        return {key: p for key, (p, _) in moved.items()}, {key: left for key, (_, left) in moved.items()}

    def judged(problem: InvertibleProblem) -> tuple[Any, Tree, Tree]:
        head = problem.params["head"]
        out = jnp.mean(problem.body(problem.params, problem.x), axis=(1, 2)) @ head["w"] + head["b"]
        right = jnp.mean(jnp.argmax(out, axis=-1) == problem.data["targets"])
        return right, gradient(problem)[1], backprop(problem)[1]

    stepped, judge = jax.jit(step), jax.jit(judged)
    accuracies: list[float] = []
    errors: list[float | None] = []
    with precision("jax", spec.dtype):
        problem = spec.build("jax")
        state = adam_state(problem.params)
        rng = np.random.default_rng([spec.seed, 6])
        for number in range(steps):
            chosen = rng.integers(0, len(xs), spec.batch)
            targets = to_backend("jax", classes[chosen].astype(np.int32))
            data = {"x": to_backend("jax", xs[chosen], spec.dtype), "targets": targets}
            problem = problem._replace(data={**problem.data, **data})
            if number % every == 0:
                right, ours, exact = judge(problem)
                error = distance(ours, exact)
                accuracies.append(float(right))
                errors.append(error if np.isfinite(error) else None)
            params, state = stepped(problem, state, float(number + 1))
            problem = problem.with_params(params)
    return accuracies, errors


def cifar10(folder: Path, split: str = "train", channels: int = 3) -> tuple[Any, Any]:
    """CIFAR-10 from a copy that you have: images (count, 32, 32, channels) in 0 … 1, float32, and classes, int32.

    Args:
        folder: holds ``data_batch_1.bin`` … ``data_batch_5.bin`` and ``test_batch.bin`` (the binary version).
        split: train or test.
        channels: at least 3; those beyond the three colours are zero (§6.1 pads to 8 and to 18).

    Raises:
        UsageError: a file is missing or of another form; says which is expected.
    """
    names = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    if split not in names:
        raise unknown("split", split, names)
    if channels < 3:
        raise UsageError(f"channels must be at least 3, the colours, not {channels}")
    raw = []
    for name in names[split]:
        path = Path(folder) / name
        try:
            found = np.frombuffer(path.read_bytes(), np.uint8)
        except OSError as error:
            raise UsageError(f"cannot read {path} ({error.strerror}): expected is CIFAR-10, binary version") from None
        if not found.size or found.size % RECORD:
            raise UsageError(f"{path} has {found.size:,} bytes; CIFAR-10's files are records of {RECORD:,} bytes")
        raw.append(found.reshape(-1, RECORD))
    records = np.concatenate(raw)
    if int(records[:, 0].max()) > 9:
        raise UsageError(f"{folder}: a label is {records[:, 0].max()}; CIFAR-10 has classes 0 … 9")
    colours = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype(np.float32) / 255
    padded = np.zeros((*colours.shape[:3], channels), np.float32)
    padded[..., :3] = colours
    return padded, records[:, 0].astype(np.int32)
