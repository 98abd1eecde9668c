"""The entry points for a user's own layers as pairs: the same layers by plain backprop."""

from __future__ import annotations

import gradgate
from gradgate import at_most, normal

TORCH = "gradgate.references.invertible.in_torch.own_nets"
METHODS = ("reversible", "moonwalk_mixed", "moonwalk")
SOLVING = ("float64", "float32")
"""Dtypes of layers whose inverse solves a linear system, which PyTorch does in no narrower one, and of batch norm of few
numbers, which is too ill-conditioned for bfloat16 to say anything."""

revnet_torch = gradgate.module_pair(
    f"{TORCH}:revnet", f"{TORCH}:plain_revnet",
    inputs={"x": normal("B C N N")}, dims={"B": (2, 1), "C": (4, 3), "N": (2, 3)},
    options={"method": METHODS[:2], "affine": (False, True)},
    claims=[at_most("residual_bytes", of_reference=0.6)],
)  # fmt: skip

normed_torch = gradgate.module_pair(
    f"{TORCH}:revnet", f"{TORCH}:plain_revnet",
    inputs={"x": normal("B C N N")}, dims={"B": (2, 3), "C": (4, 3), "N": (2, 3)},
    options={"method": METHODS[:2], "affine": (False, True), "normed": (True,)}, random=True, dtypes=SOLVING,
)  # fmt: skip

own_layers_torch = gradgate.module_pair(
    f"{TORCH}:own_layers", f"{TORCH}:plain_own_layers",
    inputs={"x": normal("B width")}, dims={"B": (3, 1), "width": (4, 3)},
    options={"method": METHODS[:2]}, dtypes=SOLVING,
)  # fmt: skip

walked_torch = gradgate.module_pair(
    f"{TORCH}:walked", f"{TORCH}:plain_walked",
    inputs={"x": normal("B width")}, dims={"B": (3, 1), "width": (4, 3)},
    options={"method": METHODS[1:], "coupled": (True, False)}, dtypes=SOLVING,
)  # fmt: skip
