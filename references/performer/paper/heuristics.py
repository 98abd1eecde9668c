"""Heuristics that §1 and §4.3 set against Algorithm 1: slices with the gradient stopped, or the state cleared, between.

Also plain backprop through the sliced forward pass, which is exact and stores what §3.3 says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.performer.problem import PerformerProblem, PerformerSpec
from gradgate.references.published import Published, equal, less_than, more_than, upheld

HERE = "gradgate.references.performer.paper.heuristics"
BETWEEN = ("nothing", "stopped", "cleared")
"""What happens to the states between two slices: nothing; no gradient passes; or they start from zero."""


def slice_losses(problem: PerformerProblem, params: Any, chunk: int, between: str, added: Any = 0.0) -> Any:
    """The losses of all slices by the sliced forward pass (Eq. 16–18) of Algorithm 1, in JAX, for backprop by JAX.

    Args:
        problem: any PerformerProblem of JAX arrays whose length is a multiple of `chunk`.
        params: like ``problem.params``.
        chunk: C.
        between: one of BETWEEN.
        added: a number for each slice that is added to its input, so that its derivative can be taken.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.references.performer.in_jax.attention import attention

    inside = attention("matrix")
    change: dict[str, Callable[[Any], Any]] = {
        "nothing": lambda states: states,
        "stopped": jax.lax.stop_gradient,
        "cleared": jnp.zeros_like,
    }

    def one(states: Any, given: Any) -> tuple[Any, Any]:
        start, offset = given

        def layer(X: Any, xs: Any) -> tuple[Any, Any]:
            p, r, state = xs
            out, state = inside.attend(inside.prepare(*problem.project(p, X)), state)
            return problem.finish(p, X, out, r, start), state

        X = problem.embed(params["embedding"], start, chunk) + offset
        X, states = jax.lax.scan(layer, X, (params["layers"], problem.layer_numbers(), states))
        return change[between](states), problem.slice_loss(params, X, start)

    starts = jnp.arange(0, problem.length, chunk, dtype=jnp.int32)
    offsets = jnp.broadcast_to(jnp.asarray(added, problem.spec.dtype), starts.shape)
    return jax.lax.scan(one, problem.zero_states(), (starts, offsets))[1]


def sliced_loss(problem: PerformerProblem, params: Any, chunk: int, between: str) -> Any:
    """The sum of `slice_losses`."""
    return slice_losses(problem, params, chunk, between).sum()


def gradient(problem: PerformerProblem, chunk: int, between: str) -> tuple[Any, Any]:
    """Loss and gradient of `sliced_loss` by JAX."""
    import jax

    return jax.value_and_grad(lambda params: sliced_loss(problem, params, chunk, between))(problem.params)


def distance(between: str) -> float:
    """‖∇ − ∇^(full)‖ / ‖∇^(full)‖ in float64 of a heuristic on the copying task, with slices of a quarter."""
    from gradgate.references.backends import precision
    from gradgate.references.performer.in_jax.methods import full
    from gradgate.references.performer.paper.measured import relative_error

    with precision("jax", "float64"):
        import jax

        problem: Any = PerformerSpec(length=16, task="copying", heads=2, head_width=4, vocabulary=8, seed=5).build(
            "jax"
        )
        _, ours = jax.jit(functools.partial(gradient, chunk=4, between=between))(problem)
        _, exact = jax.jit(full)(problem)
        return relative_error(ours, exact)


def across(between: str) -> float:
    """|∂ of the last slice's loss| over |∂ of the first slice's| by the first slice's input, in float64.

    Args:
        between: one of BETWEEN; the problem is that of `distance`.
    """
    from gradgate.references.backends import precision

    with precision("jax", "float64"):
        import jax

        problem: Any = PerformerSpec(length=16, heads=2, head_width=4, vocabulary=8, seed=5).build("jax")

        def losses(first: Any) -> Any:
            added = jax.numpy.zeros(4).at[0].set(first)
            return slice_losses(problem, problem.params, 4, between, added)

        slopes = jax.jit(jax.jacrev(losses))(0.0)
        return abs(float(slopes[-1] / slopes[0]))


def stored(first: int = 256, chunk: int = 64, profile: str = "cpu") -> float:
    """The exponent of L in the temporary bytes of backprop through the sliced forward pass, at a fixed C.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes
    from gradgate.references.performer.paper.alone import exponent

    def temporary(length: int) -> int:
        spec = PerformerSpec(dtype="float32", length=length, layers=2, heads=2, head_width=16)
        program = functools.partial(gradient, chunk=chunk, between="nothing")
        found = measure(program, (shapes(spec),), profile)
        if found.temp_bytes is None:
            raise LookupError(f"{profile}: {found.reason}")
        return found.temp_bytes

    return exponent(temporary, first)


STEPS = 600
"""Adam's steps on the copying task."""


def trained(between: str, steps: int = STEPS, length: int = 16, width: int = 32) -> float:
    """Mean loss over the last 20 steps of training on the copying task over ln 7, what a guess among 7 symbols costs.

    Args:
        between: one of BETWEEN, at slices of a quarter of the sequence; ``slim``: Algorithm 1 with these slices.
        steps, length, width: of the training.
    """
    import numpy as np

    from gradgate.references.performer.in_jax.methods import slim
    from gradgate.references.performer.paper.training import train

    spec = PerformerSpec(
        dtype="float32",
        length=length,
        layers=2,
        heads=4,
        head_width=width // 4,
        expansion=4,
        vocabulary=8,
        batch=32,
        task="copying",
        norm="pre",
        sharpness=1.0,
    )
    chunk = length // 4

    def by(problem: PerformerProblem) -> tuple[Any, Any]:
        if between == "slim":
            return slim(problem, chunk=chunk, prefix_sum="matrix")
        return gradient(problem, chunk, between)

    return float(np.mean(train(spec, by, steps).losses[-20:]) / np.log(7))


LOSS = "§4.3 / copying, last loss over that of a guess"

ROWS = (
    Published(
        "§3.3",
        "backprop through the sliced forward pass",
        "bytes, exponent of L",
        "1",
        f"{HERE}:stored",
        {},
        1.0,
        expects=upheld(equal(0.05, '"resulting in O(L) memory complexity"; the constant part drops out')),
    ),
    Published(
        "§4.3",
        "gradient of the heuristics",
        "nothing",
        "relative",
        f"{HERE}:distance",
        {"between": "nothing"},
        0.0,
        expects=upheld(equal(1e-10, "the sliced forward pass itself is exact, up to rounding in float64")),
    ),
    *(
        Published(
            "§4.3",
            "gradient of the last slice by the first slice's input, over the first's",
            between,
            "times",
            f"{HERE}:across",
            {"between": between},
            0.0,
            expects=upheld(equal(0.0, '"limit gradient propagation across the whole input": nothing comes back')),
        )
        for between in ("stopped", "cleared")
    ),
    Published(
        "§4.3",
        "copying, last loss over that of a guess",
        "slim",
        "times",
        f"{HERE}:trained",
        {"between": "slim"},
        1.0,
        expects=upheld(less_than('chunking would "fail to solve the task", and Algorithm 1 does not: below a guess')),
    ),
    Published(
        "§4.3",
        "copying, last loss over that of a guess",
        "cleared",
        "times",
        f"{HERE}:trained",
        {"between": "cleared"},
        1.0,
        expects=upheld(equal(0.05, '"chunking the input … would fail to solve the task": no better than a guess')),
    ),
    Published(
        "§4.3",
        "copying, last loss over that of a guess",
        "stopped",
        "times",
        f"{HERE}:trained",
        {"between": "stopped"},
    ),
    Published(
        "§4.3",
        "copying, last loss with the gradient stopped over Algorithm 1's",
        "600 steps",
        "times",
        "gradgate.references.derived:quotient",
        {"over": f"{LOSS} / stopped", "under": f"{LOSS} / slim", "take": "first"},
        1.0,
        expects=upheld(more_than('§1: "impair long-context pattern learning"')),
    ),
)
