"""The rest of Fig. 2 and 5: averages over ten seeds, configurations III and IV, and bits per character."""

from __future__ import annotations

import functools
import math
import statistics
from typing import Any

from gradgate.references.published import Published, at_most, equal, more_than, upheld

HERE = "gradgate.references.performer.paper.seeds"
SEEDS = 10
P100 = "nvidia-p100"


@functools.cache
def discrepancies(name: str, chunk: int, seeds: int = SEEDS, length: int = 0) -> tuple[float, ...]:
    """‖∇^(C) − ∇^(full)‖ / ‖∇^(full)‖ in float32 for several seeds, both by products of matrices, in JAX on the CPU.

    Args:
        name: the configuration.
        chunk: C.
        seeds: the number of problems.
        length: L, if not 0.
    """
    from gradgate.references.backends import precision
    from gradgate.references.performer.in_jax import methods
    from gradgate.references.performer.paper.measured import configuration, relative_error

    found = []
    with precision("jax", "float32"):
        import jax

        full = jax.jit(functools.partial(methods.full_iterative, prefix_sum="matrix"))
        sliced = jax.jit(functools.partial(methods.slim, chunk=chunk, prefix_sum="matrix"))
        for seed in range(seeds):
            fields: dict[str, Any] = {"seed": seed, **({"length": length} if length else {})}
            problem: Any = configuration(name, **fields).build("jax")
            found.append(relative_error(sliced(problem)[1], full(problem)[1]))
    return tuple(found)


def mean(name: str, chunk: int, seeds: int = SEEDS, length: int = 0) -> float:
    """The mean of `discrepancies`."""
    return statistics.mean(discrepancies(name, chunk, seeds, length))


def standard_error(name: str, chunk: int, seeds: int = SEEDS, length: int = 0) -> float:
    """The standard error of that mean."""
    return statistics.stdev(discrepancies(name, chunk, seeds, length)) / math.sqrt(seeds)


def memory(profile: str) -> float:
    """Bytes of a device.

    Raises:
        LookupError: they are not known.
    """
    from gradgate.hw_profiles import profile as profiles

    found = profiles.load(profile).memory_bytes
    if found is None:
        raise LookupError(f"{profile}: its memory is not known")
    return float(found)


def bits_apart(steps: int = 40, gradient: Any = None) -> float:
    """The largest relative difference of bits per character after training on a text, in slices or tuned, from full.

    Args:
        steps: of training.
        gradient: takes the place of Algorithm 1.
    """
    from gradgate.references.performer.paper.training import on_text

    bits = on_text(steps=steps, gradient=gradient)["bits"]
    return max(abs(bits[name] / bits["full"] - 1) for name in ("chunk", "tuned"))


ROWS_HERE = "gradgate.references.performer.paper.rows"
OVERFLOW = more_than('"resulted in memory overflow": more than a P100 has')
FITS = (
    "only explicit sums overflow: with blocks the compiled program takes 5.5 GB, and at III PyTorch takes a sixth more "
    "than compiled programs do, so that four times the tokens still fit. The paper does not say that blocks overflow: "
    "its caption has IV, PS and IV, full"
)
AVERAGED = "Fig. 2, discrepancy over 10 seeds"
ROWS = (
    *(
        Published(
            AVERAGED,
            "I, mean",
            chunk,
            "relative",
            f"{HERE}:mean",
            {"name": "I", "chunk": chunk},
            1e-5,
            expects=upheld(at_most('§4.2: "of order 1e-6–1e-5"')),
        )
        for chunk in (64, 8)
    ),
    *(
        Published(
            AVERAGED,
            "I, standard error",
            chunk,
            "relative",
            f"{HERE}:standard_error",
            {"name": "I", "chunk": chunk},
            drawn=True,
        )
        for chunk in (64, 8)
    ),
    Published(
        "Fig. 2, discrepancy",
        "III, iter.",
        512,
        "relative",
        f"{HERE}:mean",
        {"name": "III", "chunk": 512, "seeds": 1},
        1e-5,
        expects=upheld(at_most('§4.2: "of order 1e-6–1e-5"')),
    ),
    *(
        Published(
            "Fig. 2, overflow",
            f"IV, {label}",
            x,
            "B",
            f"{ROWS_HERE}:jax_bytes",
            {"name": "IV", "profile": P100, **told},
            None,
            FITS if label == "full, iter." else "",
        )
        for label, x, told in (
            ("full, PS", "L = 16384", {"method": "full_iterative", "prefix_sum": "explicit"}),
            ("full, iter.", "L = 16384", {"method": "full_iterative", "prefix_sum": "block"}),
            ("PS", "C = 8192", {"method": "slim", "chunk": 8192, "prefix_sum": "explicit"}),
        )
    ),
    Published("Fig. 2, the device", "memory", P100, "B", f"{HERE}:memory", {"profile": P100}),
    *(
        Published(
            "Fig. 2, overflow",
            f"IV, {label}, over the device",
            x,
            "times",
            "gradgate.references.derived:quotient",
            {"over": f"Fig. 2, overflow / IV, {label} / {x}", "under": "Fig. 2, the device / memory", "take": "first"},
            1.0,
            expects=upheld(OVERFLOW),
        )
        for label, x in (("full, PS", "L = 16384"), ("PS", "C = 8192"))
    ),
    Published(
        "Fig. 5",
        "bits per character, largest difference from full training",
        "40 steps",
        "relative",
        f"{HERE}:bits_apart",
        {},
        0.0,
        expects=upheld(equal(1e-6, '"almost indistinguishable", in float64, on the text that is trained on')),
    ),
)
