"""The paper's programs at its own sizes: all bytes and dynamic bytes (Eq. 10), FLOPs and roofline time.

Nothing here is run: programs are traced, and compiled for accelerators that need not be present. A configuration is a
row of Table 6, with some Spec fields replaced. Optimisations are three signs in the order of Table 2: mixed mode, block
rematerialisation, saved inner gradients. So ``"-+-"`` is the paper's default and ``"+++"`` its method.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

from gradgate.references.bilevel.inner.transformer import SIZES, VOCABULARY
from gradgate.references.bilevel.problem import BilevelSpec

GiB = 2**30
PROFILES = {"GPU": "nvidia-h100", "TPU": "tpu-v5p"}
"""The paper's devices -> their profiles."""
DEFAULT, MIXFLOW, REPLAY = "-+-", "+++", "replay"
FITTING = {"batch": 3, "sequence": 4096}
"""B and S of Tables 2 and 3, which name neither: those at which most of their figures come out (`rows.hbm`)."""
LIMIT = 7200.0
"""Seconds that one compilation may take; on a quiet machine none of those here takes more than 130."""
RATE = {"gpu": "tensorfloat32", "tpu": "float32"}
"""Kind of profile -> the peak rate at which its compiler multiplies float32 matrices by default."""


def configuration(millions: int, **fields: Any) -> BilevelSpec:
    """A model of Table 6 with the paper's batch of 4 and T = 2, Adam, float32, maml, and a context of 2048."""
    size = SIZES[millions]
    chosen: dict[str, Any] = {
        "dtype": "float32",
        "task": "maml",
        "model": "transformer",
        "optimiser": "adam",
        "steps": 2,
        "batch": 4,
        "sequence": 2048,
        "vocabulary": VOCABULARY,
        "layers": size.layers,
        "width": size.width,
        "ffw": size.ffw,
        "heads": size.heads,
        "key_size": size.key_size,
    }
    return BilevelSpec(**chosen | fields)


def toy(transformations: int, **fields: Any) -> BilevelSpec:
    """The motivating example (§3.2): M transformations, B = 1024, D = 4096, T = 2, plain gradient descent."""
    chosen: dict[str, Any] = {
        "dtype": "float32",
        "task": "maml",
        "model": "toy",
        "optimiser": "sgd",
        "steps": 2,
        "batch": 1024,
        "width": 4096,
        "layers": transformations,
    }
    return BilevelSpec(**chosen | fields)


def program(optimisations: str) -> Callable[..., Any]:
    """The method that three signs stand for; ``"replay"``: `gradient_replay` with block rematerialisation."""
    from gradgate.references.bilevel.in_jax import methods as jax_impl
    from gradgate.references.bilevel.in_jax import replay as jax_replay

    if optimisations == REPLAY:
        return functools.partial(jax_replay.gradient_replay, remat=True)
    mixed, remat, save = (sign == "+" for sign in optimisations)
    method = jax_impl.mixflow if mixed else jax_impl.truncated_bptt
    return functools.partial(method, remat=remat, save_inner_grads=save)


@functools.lru_cache(maxsize=256)
def total(spec: BilevelSpec, optimisations: str, profile: str) -> float:
    """All bytes: temporaries, arguments and results; for a program too large for the device, the bytes it requires.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes

    found = measure(program(optimisations), (shapes(spec),), profile, limit=LIMIT)
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return float(found.required_bytes)


# §4 and A.2 call these static: inputs and outputs, the parameters and states kept of every inner step, and the
# gradients saved of every step. Everything else is dynamic, also what the backward pass accumulates.
def static(spec: BilevelSpec, optimisations: str) -> int:
    """Static bytes: arguments and results, T·(|θ| + |υ|), and with saved inner gradients T·|θ| more."""
    import jax

    from gradgate.references.draws import shapes

    problem: Any = shapes(spec)
    theta, state = jax.eval_shape(problem.init, problem.params)
    replayed = optimisations == REPLAY
    kept = (0 if replayed else _bytes((theta, state))) + (_bytes(theta) if replayed or optimisations[2] == "+" else 0)
    return _bytes(problem) + _bytes(problem.params) + spec.steps * kept


def dynamic(spec: BilevelSpec, optimisations: str, profile: str) -> float:
    """Dynamic bytes (Eq. 10). Raises as `total`."""
    return total(spec, optimisations, profile) - static(spec, optimisations)


# A program keeps more arrays of the size of θ than A.2 lists: the backward pass carries cotangents of θ and υ, and
# holds a tangent and a product. The paper's gains at 16 billion parameters cannot be reached unless these count as
# static too. So static memory is also measured, as the memory of a program with almost no activations.
def activation(spec: BilevelSpec, optimisations: str, profile: str) -> float:
    """Bytes beyond those of the same program for one data point of 8 tokens: dynamic, with static memory measured."""
    return total(spec, optimisations, profile) - total(
        dataclasses.replace(spec, batch=1, sequence=8), optimisations, profile
    )


def flops(spec: BilevelSpec, optimisations: str) -> float:
    """Floating-point operations of a meta step, recomputation included; the program is only traced."""
    return _work(spec, optimisations).flops


def nominal_flops(spec: BilevelSpec, optimisations: str) -> float:
    """`flops` as peak rates count them, 2 for a multiply-add."""
    return _work(spec, optimisations).nominal_flops


def seconds(spec: BilevelSpec, optimisations: str, profile: str) -> float:
    """Least seconds of a meta step on a device: its FLOPs, or its traffic with perfect fusion, at full rate.

    Raises:
        LookupError: the profile has no such rate.
    """
    from gradgate.hw_profiles.profile import load
    from gradgate.hw_profiles.work import roofline

    device, work = load(profile), _work(spec, optimisations)
    found = roofline(device, work.nominal_flops, work.bytes_moved, RATE.get(device.kind, "float32"))
    if found is None:
        raise LookupError(f"{profile} knows no rate for float32 products")
    return found


@functools.lru_cache(maxsize=256)
def _work(spec: BilevelSpec, optimisations: str) -> Any:
    from gradgate.hw_profiles import work
    from gradgate.references.draws import shapes

    return work.of(program(optimisations), (shapes(spec),))


def _bytes(tree: Any) -> int:
    import jax

    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
