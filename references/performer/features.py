"""Feature maps g of linear attention: the elementwise square, and FAVOR+ with fixed draws."""

from __future__ import annotations

import math
from typing import Any

from gradgate.references.backends import precision, to_backend, to_numpy

FEATURE_MAPS = ("square", "favor", "sum")
"""``sum`` is no feature map: a layer of type (23) that is not attention."""


def random_features(xp: Any, x: Any, projection: Any) -> Any:
    """Positive random features: x (…, d), projection (M, d) -> (…, M); E[g(q)·g(k)] = exp(q·k/√d).

    g(x) = exp(Wx̂ − ‖x̂‖²/2)/√M with x̂ = x/d^¼. Source: Choromanski et al. (2020), Lemma 1. Every feature lies in
    (0, exp(‖w‖²/2)/√M], so nothing overflows. So no maximum over the sequence has to be subtracted, which a slice could
    not know.
    """
    x = x / x.shape[-1] ** 0.25
    exponent = xp.matmul(x, xp.matrix_transpose(projection)) - 0.5 * xp.sum(x * x, axis=-1, keepdims=True)
    return xp.exp(exponent) / math.sqrt(projection.shape[0])


def mapped(xp: Any, name: str, x: Any, projection: Any) -> Any:
    """Features of x (…, d) by the name of their map: ``identity``, ``relu``, ``elu`` or ``favor``.

    Args:
        xp: Array API.
        name: ``elu`` is elu(x) + 1, positive everywhere; the derivative of ``relu`` at 0 is 0.
        x: (…, d), in at least float32.
        projection: (M, d), used by ``favor`` only.

    Returns:
        (…, d), or (…, M) for ``favor``.

    Source:
        elu(x) + 1: Katharopoulos et al. (2020); ``favor``: `random_features`.
    """
    if name == "favor":
        return random_features(xp, x, projection)
    if name == "relu":
        return xp.where(x > 0, x, xp.zeros_like(x))
    if name == "elu":
        above = xp.where(x > 0, x, xp.zeros_like(x))
        return above + xp.exp(x - above)
    return x


def orthogonal_rows(drawn: Any, backend: str, dtype: str) -> Any:
    """Normal draws (M, d) -> rows orthogonal within each block of d, each as long as it was drawn; on the host."""
    import numpy as np

    rows = to_numpy(drawn).astype(np.float64)
    blocks = []
    for first in range(0, len(rows), rows.shape[1]):
        block = rows[first : first + rows.shape[1]]
        q, r = np.linalg.qr(block.T)
        # The signs make the rows those of Gram and Schmidt, with any LAPACK.
        blocks.append((q * np.sign(np.diag(r))).T * np.linalg.norm(block, axis=1, keepdims=True))
    made = np.concatenate(blocks).astype(np.float32)
    with precision(backend, dtype):
        return to_backend(backend, made, dtype)
