"""The entry points for a user's own layers, as pairs with the same layers by plain backprop."""

from __future__ import annotations

import gradgate
from gradgate import at_most, key, normal

TORCH = "gradgate.references.invertible.in_torch.own_nets"
JAX = "gradgate.references.invertible.in_jax.own_nets"
METHODS = ("reversible", "moonwalk_mixed", "moonwalk")
SOLVING = ("float64", "float32")
"""Dtypes of layers whose inverse solves a linear system: PyTorch solves none in narrower dtypes. Also those of batch
norm of few numbers, which is too ill-conditioned for a meaningful comparison in bfloat16."""

revnet_torch = gradgate.module_pair(
    f"{TORCH}:revnet",
    f"{TORCH}:plain_revnet",
    inputs={"x": normal("B C N N")},
    dims={"B": (2, 1), "C": (4, 3), "N": (2, 3)},
    options={"method": METHODS[:2], "affine": (False, True)},
    claims=[at_most("residual_bytes", of_reference=0.6)],
)

normed_torch = gradgate.module_pair(
    f"{TORCH}:revnet",
    f"{TORCH}:plain_revnet",
    inputs={"x": normal("B C N N")},
    dims={"B": (2, 3), "C": (4, 3), "N": (2, 3)},
    options={"method": METHODS[:2], "affine": (False, True), "normed": (True,)},
    random=True,
    dtypes=SOLVING,
)

own_layers_torch = gradgate.module_pair(
    f"{TORCH}:own_layers",
    f"{TORCH}:plain_own_layers",
    inputs={"x": normal("B width")},
    dims={"B": (3, 1), "width": (4, 3)},
    options={"method": METHODS[:2]},
    dtypes=SOLVING,
)

walked_torch = gradgate.module_pair(
    f"{TORCH}:walked",
    f"{TORCH}:plain_walked",
    inputs={"x": normal("B width")},
    dims={"B": (3, 1), "width": (4, 3)},
    options={"method": METHODS[1:], "coupled": (True, False)},
    dtypes=SOLVING,
)


def functions(into: str, hidden: str, out: str) -> dict[str, object]:
    """Draws of what `own_nets.inner` takes."""
    return {"w": normal(f"{into} {hidden}", scale=0.5), "b": normal(hidden), "v": normal(f"{hidden} {out}", scale=0.5)}


BLOCK = {"f": functions("C", "H", "C"), "g": functions("C", "H", "C")}
SCALED = {"f": functions("C", "H", "D"), "g": functions("C", "H", "D")}

revnet_jax = gradgate.Pair(
    f"{JAX}:revnet",
    f"{JAX}:plain_revnet",
    inputs={"params": {"shift": BLOCK, "scale": SCALED}, "x": normal("B D")},
    dims={"B": (2, 1), "C": (2, 1, 3), "D": (4, 2, 6), "H": (3, 1)},
    valid=lambda B, C, D, H: D == 2 * C,
    options={"method": METHODS},
    composes=("jit", "vmap", "second_order"),
    claims=[at_most("residual_bytes", of_reference=0.9)],
)

noisy_jax = gradgate.Pair(
    f"{JAX}:noisy",
    f"{JAX}:plain_noisy",
    inputs={"params": BLOCK, "x": normal("B D"), "mean": normal("H", gradient=False), "key": key()},
    dims={"B": (3, 1), "C": (2, 1), "D": (4, 2), "H": (3, 1)},
    valid=lambda B, C, D, H: D == 2 * C,
    options={"method": METHODS[:2]},
    composes=("jit",),
    dtypes=SOLVING,
)

own_layers_jax = gradgate.Pair(
    f"{JAX}:own_layers",
    f"{JAX}:plain_own_layers",
    inputs={
        "params": {
            "one": {"a": normal("N"), "b": normal("N")},
            "other": {"a": normal("M"), "b": normal("M")},
        },
        "x": normal("B N"),
    },
    dims={"B": (3, 1), "N": (4, 2), "M": (3, 1)},
    valid=lambda B, N, M: N == M + 1,
    options={"method": METHODS, "coupled": (True, False), "tangents": (1, 3)},
    composes=("jit", "vmap", "second_order"),
)
