"""Figs. 4 and 5 on a real data set: trainings on scikit-learn's digits from 20 starts; drift and overflow are separate.

The network is the one of §6.1 at 8×8 with tanh on the outputs (§6.6): two blocks of additive couplings, each followed
by tanh, with convolution, ReLU and batch norm inside. Adam, batches of 64, float32.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradgate.references.backends import leaves, precision, to_backend, to_numpy, tree_map
from gradgate.references.contract import Tree
from gradgate.references.invertible.paper.steps import adam, adam_state
from gradgate.references.invertible.problem import InvertibleProblem, InvertibleSpec

METHODS = ("backprop", "reversible", "moonwalk_mixed")
SEEDS = 20
EVERY = 25
"""Steps between two records."""
LOST = 1.0
"""The relative error from which a gradient counts as drifted away: it is then no better than 0."""


def digits(channels: int) -> tuple[Any, Any]:
    """Images (1797, 8, 8, channels) in 0 … 1, float32, and classes (1797,), int32; all channels but the first are 0.

    Raises:
        LookupError: scikit-learn, which has the images in its package, is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise LookupError(f"the digits are scikit-learn's ({error}): pip install scikit-learn") from None
    images, classes = load_digits(return_X_y=True)
    xs = np.zeros((len(images), 8, 8, channels), np.float32)
    xs[..., 0] = images.reshape(-1, 8, 8) / 16
    return xs, classes.astype(np.int32)


def network(seed: int, scale: float, layers: int = 3) -> InvertibleSpec:
    """The Spec of the network of one start; `scale` is that of weights and of batch norm's gain."""
    return InvertibleSpec(
        dtype="float32",
        unit="additive tanh",
        layers=layers,
        blocks=2,
        side=8,
        channels=4,
        batch=64,
        residual="patches",
        activation="relu",
        norm="batch",
        classes=10,
        scale=scale,
        seed=seed,
    )


def curves(method: str, scale: float = 0.3, steps: int = 400, seeds: int = SEEDS) -> dict[str, Any]:
    """One method's trainings from `seeds` starts, recorded at every `EVERY`-th step.

    Returns:
        ``step``; mean and standard deviation of the ``accuracy`` on the batch over the starts; the median ``error`` of
        the gradient, relative to plain backprop's at the same parameters, over the starts where it is finite; and how
        many starts have ``drifted``, their error `LOST` or more, and ``overflowed``, their gradient not finite.
    """
    trained = _trained(method, scale, steps, seeds)
    accuracy, error = trained["accuracy"], trained["error"]
    finite = np.isfinite(error)
    middle = [float(np.median(row[ok])) if ok.any() else None for row, ok in zip(error, finite, strict=True)]
    return {
        "step": list(range(0, steps, EVERY)),
        "accuracy": accuracy.mean(1).tolist(),
        "spread": accuracy.std(1).tolist(),
        "error": middle,
        "drifted": (finite & (error >= LOST)).sum(1).tolist(),
        "overflowed": (~finite).sum(1).tolist(),
    }


def final_accuracy(method: str, scale: float = 0.3, steps: int = 400, seeds: int = SEEDS) -> float:
    """Accuracy on all images after the last step, the mean over the starts, in percent."""
    return 100 * float(_trained(method, scale, steps, seeds)["final"].mean())


def lost(method: str, scale: float = 0.3, steps: int = 400, seeds: int = SEEDS) -> float:
    """Starts, in percent, whose gradient was at some recorded step no better than 0, or not finite."""
    error = _trained(method, scale, steps, seeds)["error"]
    return 100 * float((~(error < LOST)).any(0).mean())


def apart(method: str, scale: float = 0.3, steps: int = 400, seeds: int = SEEDS) -> float:
    """How far from backprop's the parameters end up, over how far backprop's are from the start: the median (§6.6)."""
    ours, other = (_trained(name, scale, steps, seeds) for name in (method, "backprop"))
    gap = np.linalg.norm(ours["end"] - other["end"], axis=1)
    return float(np.median(gap / np.linalg.norm(other["end"] - other["start"], axis=1)))


@functools.cache
def _trained(method: str, scale: float, steps: int, seeds: int) -> dict[str, Any]:
    """Records (steps / EVERY, seeds) of ``accuracy`` and ``error``, ``final`` (seeds,), ``start``, ``end`` (seeds, P).

    Cost: two compilations; every step takes `seeds` gradients at once.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.references.invertible.in_jax import methods

    gradient, template = getattr(methods, method), network(0, scale)
    xs, classes = digits(template.channels)
    rng = np.random.default_rng(7)
    chosen = rng.integers(0, len(xs), (steps, template.batch))

    def problem(given: InvertibleProblem, params: Tree, x: Any, targets: Any) -> InvertibleProblem:
        return given._replace(params=params, data={**given.data, "x": x, "targets": targets})

    def step(given: InvertibleProblem, params: Tree, state: Tree, x: Any, targets: Any, number: Any) -> tuple[Any, Any]:
        _, grads = gradient(problem(given, params, x, targets))
        visit = adam(1e-3, number)
        moved = {key: visit(params[key], grads[key], state[key]) for key in grads}
        return {key: p for key, (p, _) in moved.items()}, {key: left for key, (_, left) in moved.items()}

    def right(given: InvertibleProblem, params: Tree, x: Any, targets: Any) -> Any:
        out = jnp.mean(given.body(params, x), axis=(1, 2)) @ params["head"]["w"] + params["head"]["b"]
        return jnp.mean(jnp.argmax(out, axis=-1) == targets)

    def judged(given: InvertibleProblem, params: Tree, x: Any, targets: Any) -> tuple[Any, Any]:
        here = problem(given, params, x, targets)
        ours, exact = (leaves(run(here)[1]) for run in (gradient, methods.backprop))
        off = sum(jnp.sum((a - b) ** 2) for a, b in zip(ours, exact, strict=True))
        return right(given, params, x, targets), jnp.sqrt(off / sum(jnp.sum(b**2) for b in exact))

    def flat(params: Tree) -> Any:
        return np.concatenate([to_numpy(leaf).reshape(seeds, -1) for leaf in leaves(params)], axis=1)

    with precision("jax", template.dtype):
        given = template.build("jax")
        starts = [network(seed, scale).build("jax").params for seed in range(seeds)]
        params = tree_map(lambda *parts: jnp.stack(parts), *starts)
        start, state = flat(params), jax.vmap(adam_state)(params)
        stepped = jax.jit(jax.vmap(functools.partial(step, given), in_axes=(0, 0, None, None, None)))
        judge = jax.jit(jax.vmap(functools.partial(judged, given), in_axes=(0, None, None)))
        score = jax.jit(jax.vmap(functools.partial(right, given), in_axes=(0, None, None)))
        records = []
        for number, batch in enumerate(chosen):
            x, targets = to_backend("jax", xs[batch], template.dtype), to_backend("jax", classes[batch])
            if number % EVERY == 0:
                records.append([to_numpy(found) for found in judge(params, x, targets)])
            params, state = stepped(params, state, x, targets, float(number + 1))
        final = to_numpy(score(params, to_backend("jax", xs, template.dtype), to_backend("jax", classes)))
    accuracy, error = (np.stack(rows) for rows in zip(*records, strict=True))
    return {"accuracy": accuracy, "error": error, "final": final, "start": start, "end": flat(params)}
