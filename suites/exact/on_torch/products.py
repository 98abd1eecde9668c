"""Products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import number, numbers


@numbers("mm", "bmm")
def mm(a: Any, b: Any, **_: Any) -> Any:
    """A·B, for each of a batch."""
    return balls.matmul(a, b)


@numbers("mv")
def mv(a: Any, x: Any) -> Any:
    """A·x."""
    return balls.matmul(a, x[:, None])[:, 0]


@numbers("dot")
def dot(x: Any, y: Any) -> Any:
    """Σ x·y."""
    return balls.matmul(x[None, :], y[:, None])[0, 0]


@numbers("vdot")
def vdot(x: Any, y: Any) -> Any:
    """Σ x̄·y."""
    return dot(balls.elementwise(lambda z: z.conjugate(), x) if balls.is_complex(x) else x, y)


def ger(x: Any, y: Any) -> Any:
    """The product of every element with every other."""
    return x[:, None] * y[None, :]


def _combined(base: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """β·base + α·product; a β of 0 ignores the base, even NaN."""
    scaled = product if alpha == 1 else product * number(alpha)
    if beta == 0:
        return scaled
    return (base if beta == 1 else base * number(beta)) + scaled


@numbers("addmm", "baddbmm")
def addmm(base: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1, **_: Any) -> Any:
    """Β·base + α·A·B."""
    return np.broadcast_to(_combined(base, balls.matmul(a, b), beta, alpha), (*a.shape[:-1], b.shape[-1]))


@numbers("addbmm")
def addbmm(base: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Β·base + α·Σ A·B over the batch."""
    return _combined(base, balls.total(balls.matmul(a, b), (0,)), beta, alpha)


@numbers("addmv")
def addmv(base: Any, a: Any, x: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Β·base + α·A·x."""
    return np.broadcast_to(_combined(base, mv(a, x), beta, alpha), a.shape[:1])


@numbers("addr")
def addr(base: Any, x: Any, y: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Β·base + α·x·yᵀ."""
    return _combined(base, ger(x, y), beta, alpha)


@numbers("_trilinear")
def trilinear(a: Any, b: Any, c: Any, expand_a: Any, expand_b: Any, expand_c: Any, summed: Any, unroll: int = 1) -> Any:
    """The sum over axes of the product of three arrays, to which axes were added."""
    wide = [np.expand_dims(each, tuple(axes)) for each, axes in ((a, expand_a), (b, expand_b), (c, expand_c))]
    return balls.total(wide[0] * wide[1] * wide[2], tuple(summed))
