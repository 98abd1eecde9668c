"""What is kept where: per generated token, and per device of the distributed method.

A stack that generates carries its states from token to token, N numbers per layer and sequence. A device of Alg. 1
keeps numbers of its own layers, which become fewer with more devices, and dL/dy_K, which does not.
"""

from __future__ import annotations

import functools
from typing import Any

from gradgate.references.published import Published, at_least, at_most, equal, less_than, more_than, upheld
from gradgate.references.state_space.problem import StateSpaceProblem, StateSpaceSpec

HERE = "gradgate.references.state_space.paper.stored_states"
LAYERS = 8
"""Layers of the measured stack: two on each of four devices, because a loop over one layer compiles to no loop."""


def generated(problem: StateSpaceProblem, states: Any, token: Any) -> tuple[Any, Any]:
    """One token of generation: states h (K, batch, N) and a token (batch,) -> the next states, and y_K (batch, P)."""
    xp, params = problem.xp, problem.params
    y, after = problem.embed(params["embedding"], token), []
    for k in range(problem.spec.layers):
        p = {net: {name: leaf[k] for name, leaf in own.items()} for net, own in params["layers"].items()}
        x = problem.norm(y)
        h = problem.apply(problem.A(p, x), states[k]) + _times(xp, problem.B(p, x), x)
        after.append(h)
        y = y + _times(xp, problem.C(p, x), h)
    return xp.stack(after), y


def _times(xp: Any, matrix: Any, vector: Any) -> Any:
    return xp.matmul(matrix, vector[..., None])[..., 0]


def outputs(problem: StateSpaceProblem) -> tuple[Any, int]:
    """y_K of every token (T, batch, P) by generation from the problem's own tokens, and the numbers carried on."""
    xp, spec = problem.xp, problem.spec
    states, found = xp.zeros((spec.layers, spec.batch, spec.state)), []
    for token in problem.data["tokens"]:
        states, y = generated(problem, states, token)
        found.append(y)
    return xp.stack(found), states.size


def carried(length: int) -> int:
    """Numbers that generation carries from token to token after T tokens, per layer and sequence."""
    spec = StateSpaceSpec(length=length, layers=3, state=6, width=4)
    _, numbers = outputs(spec.build("numpy"))
    return int(numbers) // (spec.layers * spec.batch)


def carried_over(long: int, short: int) -> float:
    """`carried` after a long sequence over that after a short one."""
    return carried(long) / carried(short)


def over_cache(length: int, state: int, width: int) -> float:
    """N over the 2·T·P numbers of attention's key-value cache, per layer and sequence."""
    return state / (2 * length * width)


@functools.cache
def per_token(devices: int, layers: int = LAYERS, profile: str = "cpu") -> float:
    """Temporary bytes of a device of `adjoint_distributed` per token of the whole batch: the slope over T.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes
    from gradgate.references.state_space.in_jax.distributed import on_profile

    found = []
    for length in (128, 256):
        problem: Any = shapes(_spec(length, layers))
        program, arguments, placed = on_profile(problem, devices=devices)
        measured = measure(program, arguments, profile, **placed)
        if measured.temp_bytes is None:
            raise LookupError(f"{profile}: {measured.reason}")
        found.append(measured.temp_bytes)
    return (found[1] - found[0]) / 128


def _spec(length: int, layers: int) -> StateSpaceSpec:
    return StateSpaceSpec(dtype="float32", length=length, layers=layers, state=16, width=32, batch=8, vocabulary=64)


# Bytes per token on each of Υ devices are own/Υ + fixed. So fixed = 2·per_token(4) − per_token(2) and
# own = 4·(per_token(2) − per_token(4)).
def fixed_over_cotangent() -> float:
    """Bytes per token that do not shrink with Υ, over the bs·P numbers of dL/dy_K."""
    spec = _spec(128, LAYERS)
    return (2 * per_token(4) - per_token(2)) / (4 * spec.batch * spec.width)


def own_numbers() -> float:
    """Numbers per token, layer and sequence that shrink with Υ, those of a device's own layers, over 2N + P."""
    spec = _spec(128, LAYERS)
    return (per_token(2) - per_token(4)) / (spec.layers * spec.batch) / (2 * spec.state + spec.width)


def overhead(length: int, devices: int = 2, repeats: int = 5) -> float:
    """Seconds of `adjoint_distributed` on several processes over those on one: the median of alternating runs."""
    import statistics
    import time
    from collections.abc import Callable

    from gradgate.references.state_space.in_torch.distributed import adjoint_distributed

    problem = StateSpaceSpec(length=length, layers=devices, state=8, width=8, batch=4).build("torch")

    def seconds(run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    many, one = (functools.partial(adjoint_distributed, problem, devices=count) for count in (devices, 1))
    many(), one()  # the processes start
    return statistics.median(seconds(many) / seconds(one) for _ in range(repeats))


SHORT, LONG = 2, 96
OVER = "Limitation / several processes over one"
ROWS = (
    Published(
        "§3.1",
        "numbers carried from token to token",
        "T = 256 over T = 16",
        "times",
        f"{HERE}:carried_over",
        {"long": 256, "short": 16},
        1.0,
        expects=upheld(equal(0.0, "a count: the states of the layers, whatever T is")),
    ),
    Published(
        "§3.1",
        "numbers carried over a key-value cache",
        "T = 10000, N = 225, P = 128",
        "times",
        f"{HERE}:over_cache",
        {"length": 10_000, "state": 225, "width": 128},
        1.0,
        expects=upheld(less_than('"decrease the large inference-time memory", at §4.5\'s sizes')),
    ),
    Published(
        "Alg. 1, line 15",
        "bytes per token that do not shrink with Υ",
        "over dL/dy_K",
        "times bs·P",
        f"{HERE}:fixed_over_cotangent",
        {},
        1.0,
        expects=upheld(at_least('"Store dl/dy_K on all Υ devices": it is among these bytes')),
    ),
    Published(
        "App. A.4",
        "numbers per token, layer and sequence on the layer's own device",
        "N = 16, P = 32",
        "times 2N + P",
        f"{HERE}:own_numbers",
        {},
        1.0,
        expects=upheld(at_most("Tables 2–5: A, h and ŷ take 2N + P numbers, and C no fewer; here h and y are kept")),
    ),
    *(
        Published(
            "Limitation",
            "several processes over one",
            length,
            "times",
            f"{HERE}:overhead",
            {"length": length},
        )
        for length in (SHORT, LONG)
    ),
    Published(
        "Limitation",
        "several processes over one, short",
        f"T = {SHORT}",
        "times",
        "gradgate.references.derived:value",
        {"of": OVER, "take": "first"},
        1.0,
        expects=upheld(more_than('"overweights the speedups … when length is small": slower than one process')),
    ),
    Published(
        "Limitation",
        "several processes over one, long over short",
        f"T = {LONG} over T = {SHORT}",
        "times",
        "gradgate.references.derived:quotient",
        {"over": f"{OVER} / {LONG}", "under": f"{OVER} / {SHORT}", "take": "first"},
        1.0,
        expects=upheld(less_than("what the processes cost weighs less the longer the sequence is")),
    ),
)
