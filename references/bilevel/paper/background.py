"""What §1, §2 and §5.3 say of derivatives in general, as figures that can fail."""

from __future__ import annotations

from typing import Any

from gradgate.references.bilevel.inner.transformer import SIZES
from gradgate.references.bilevel.paper import growth
from gradgate.references.bilevel.paper.scale import PROFILES
from gradgate.references.published import Published, equal, figures_of, less_than, more_than, refuted, upheld

HERE = "gradgate.references.bilevel.paper.background"
APPROXIMATE = "gradgate.references.bilevel.paper.approximate"
OUTPUTS = (8, 16, 32, 64, 128)
"""Numbers of outputs m."""


def jacobian_work(rows: int, reverse: bool = True) -> float:
    """FLOPs of the Jacobian of a network of 128 inputs, of whose outputs the first are kept.

    Args:
        rows: m, the number of outputs that are kept.
        reverse: by reverse mode, a VJP for each output; else by forward mode, a JVP for each input.
    """
    import jax
    import jax.numpy as jnp

    from gradgate.hw_profiles import work

    def network(x: Any) -> Any:
        for _ in range(4):
            x = jnp.tanh(jnp.outer(x, x) @ x)
        return x[:rows]

    mode = jax.jacrev if reverse else jax.jacfwd
    return float(work.of(mode(network), (jax.ShapeDtypeStruct((max(OUTPUTS),), jnp.float32),)).flops)


def jacobian_by_rows() -> float:
    """The exponent with which the FLOPs of a Jacobian in reverse mode grow with its m rows, the network unchanged."""
    from gradgate.hw_profiles.fit import fit

    return fit(list(OUTPUTS), [jacobian_work(rows) for rows in OUTPUTS], "times").exponent


def squares_over_heads() -> float:
    """The coefficient of S² in the default's dynamic bytes, in arrays of scores: with 8 heads over that with 4."""
    from gradgate.references.bilevel.paper import scale

    return growth.squares("cpu", scale.DEFAULT, 8) / growth.squares("cpu", scale.DEFAULT, 4)


def printed_over_layers() -> float:
    """The largest gain that Fig. 7 has for the largest model of Table 6, over its L."""
    return 25 / SIZES[max(SIZES)].layers


_row = figures_of(HERE)


def _rows() -> tuple[Published, ...]:
    on = {"profile": PROFILES["GPU"], "millions": 44}
    place = "§1, implicit differentiation by 8 products"
    alike = upheld(equal(1e-12, '"seamlessly incorporated": equal to rounding'))
    fewer = upheld(less_than('"seamlessly incorporated": its bytes fall here too'))
    differ = upheld(
        more_than('"hidden constants can substantially differ in practice": equal ones have a quotient of 1')
    )
    return (
        _row(
            "§2.3, hidden constants",
            "bytes of the largest over the smallest of the three products",
            f"{growth.DEEP['layers']} layers, CPU",
            "times",
            f"{growth.__name__}:constants_of_products",
            {"profile": "cpu"},
            1.0,
            differ,
        ),
        _row(
            "§2.2, a Jacobian by rows",
            "exponent of m",
            "8 to 128 rows",
            "",
            f"{HERE}:jacobian_by_rows",
            {},
            1.0,
            upheld(equal(0.1, '"in total requiring O(m) forward passes"; the first pass is done once')),
        ),
        *(
            _row(
                place,
                "difference by the mixed gradient, float64",
                framework,
                "relative",
                f"{APPROXIMATE}:apart",
                {"framework": framework},
                0.0,
                alike,
            )
            for framework in ("jax", "torch")
        ),
        _row(
            place,
            "bytes, mixed gradient over default",
            "44M, GPU",
            "times",
            f"{APPROXIMATE}:bytes_quotient",
            on,
            1.0,
            fewer,
        ),
        _row(
            place,
            "bytes, mixed gradient over default",
            "MLP of 32 layers, PyTorch",
            "times",
            f"{APPROXIMATE}:eager_bytes_quotient",
            {},
            1.0,
            fewer,
        ),
        _row(
            "§5.3, where S² comes from",
            "arrays of scores per S², 8 heads / 4 heads",
            "-+-, this CPU",
            "times",
            f"{HERE}:squares_over_heads",
            {},
            1.0,
            upheld(equal(0.05, '"arises from the self-attention blocks": its bytes are those of scores')),
        ),
        _row(
            "Eq. 12 and Fig. 7, in words",
            "printed gain over L",
            "16183M, TPU",
            "times",
            f"{HERE}:printed_over_layers",
            {},
            1.0,
            refuted(more_than('"k̂ … is significantly smaller than k": by Eq. 12 the gain then exceeds L'), 25 / 47),
            "by the paper's own numbers, if Eq. 12 is about the bytes of Fig. 7: 25 times at 47 layers, so k/k̂ is "
            "0.53 at most. What is measured here agrees (claim constants)",
        ),
    )


ROWS = _rows()
