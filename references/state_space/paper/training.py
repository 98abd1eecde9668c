"""Results of training: the loss after equal steps by exact, sharded and truncated gradients, on a text of Python.

The text is the source of the module ``this``, which is the same in every Python; tokens are its characters.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from gradgate.references import registry
from gradgate.references.state_space.problem import StateSpaceSpec

LENGTH, BATCH, STEPS, RATE = 50, 8, 100, 1e-2


def text() -> Any:
    """The characters of the text as integers, and how many different ones there are."""
    spec = importlib.util.find_spec("this")  # the module itself would print
    characters = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
    known = sorted(set(characters))
    return np.array([known.index(one) for one in characters], "int32"), len(known)


@functools.lru_cache(maxsize=16)
def losses(method: str, window: int, decay: float) -> tuple[float, ...]:
    """Loss per token of each of `STEPS` steps of Adam, in float64, of two layers that read 50 characters.

    Args:
        method: the method that gives the gradient.
        window: T̄ of the truncated gradient; 0: the method has no window.
        decay: the initial mean input of the function that bounds A: the larger, the longer the memory.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.references.backends import precision

    characters, number = text()
    [declared] = registry.methods("state_space", method, "jax")
    options = {"window": window} if window else {}
    gradient = functools.partial(registry.load(declared.implementation), **options)
    spec = StateSpaceSpec(length=LENGTH, layers=2, state=16, width=16, batch=BATCH, vocabulary=number, decay=decay)
    with precision("jax", "float64"):
        problem = spec.build("jax")
        places = np.random.default_rng(0).integers(0, len(characters) - LENGTH - 1, (STEPS, BATCH))

        def step(carry: Any, place: Any) -> tuple[Any, Any]:
            params, first, second, count = carry
            read = jnp.asarray(characters)[place[None] + jnp.arange(LENGTH + 1)[:, None]]
            data = {**problem.data, "tokens": read[:-1], "targets": read[1:]}
            loss, grads = gradient(problem._replace(params=params, data=data))
            first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
            second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, grads)
            count = count + 1

            def moved(p: Any, m: Any, v: Any) -> Any:
                return p - RATE * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8)

            return (jax.tree.map(moved, params, first, second), first, second, count), loss / LENGTH

        zeros = jax.tree.map(jnp.zeros_like, problem.params)
        start = (problem.params, zeros, zeros, 0)
        return tuple(np.asarray(jax.jit(lambda: jax.lax.scan(step, start, places)[1])()).tolist())


def largest_difference(method: str, decay: float) -> float:
    """One plus the largest relative difference, over the steps, of a method's loss from backprop's."""
    ours, plain = (np.array(losses(name, 0, decay)) for name in (method, "backprop"))
    return 1 + float(np.max(np.abs(ours / plain - 1)))


def last_loss(window: int, decay: float) -> float:
    """The mean loss of the last 20 steps by the gradient truncated to `window`, over that by backprop."""
    ours, plain = losses("adjoint_truncated", window, decay), losses("backprop", 0, decay)
    return float(np.mean(ours[-20:]) / np.mean(plain[-20:]))


def curves(decay: float) -> dict[str, list[float]]:
    """Loss per token over the steps."""
    found = {"backprop": losses("backprop", 0, decay)} | {
        f"truncated to {window}": losses("adjoint_truncated", window, decay) for window in (1, 10)
    }
    steps = range(0, STEPS, 10)
    return {"steps": [float(i) for i in steps]} | {name: [found[name][i] for i in steps] for name in found}


def distance(window: int, decay: float) -> float:
    """How far the truncated gradient at the start is from the full one, relative, over all numbers."""
    import jax

    from gradgate.references.backends import precision

    spec = StateSpaceSpec(length=LENGTH, layers=2, state=16, width=16, batch=BATCH, decay=decay)
    grads = []
    for method, options in (("backprop", {}), ("adjoint_truncated", {"window": window})):
        [declared] = registry.methods("state_space", method, "jax")
        with precision("jax", "float64"):
            function = functools.partial(registry.load(declared.implementation), **options)
            found = jax.jit(function)(spec.build("jax"))[1]
            grads.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)]))
    return float(np.linalg.norm(grads[1] - grads[0]) / np.linalg.norm(grads[0]))
