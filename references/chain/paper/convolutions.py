"""Three algorithms of one 3 × 3 convolution, with what each multiplies and holds (§5.4.2).

One image (n, n) and one kernel (3, 3), without padding: the output is (n − 2, n − 2). Channels would multiply both
counts alike. Sums by NumPy; the counts are sizes of the arrays that the algorithms make.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from gradgate.references.published import Published, at_least, equal, upheld

Algorithm = Literal["direct", "matrix", "winograd"]
SIDE = 34
"""n: the output is made of 16 × 16 tiles of 2 × 2."""
DRAWN = 20
AFTER = np.array([[1, 1, 1, 0], [0, 1, -1, -1]])
BEFORE = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
KERNEL = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]]) / 2
"""Matrices of F(2 × 2, 3 × 3): of products, tiles and kernel. The first two hold no number but 0 and ±1."""


def convolved(algorithm: Algorithm, image: Any, kernel: Any) -> tuple[Any, int, int]:
    """The output, the multiplications of an image number, and the numbers held besides image, kernel and output.

    Args:
        algorithm: ``direct``: a sum over the kernel's places; ``matrix``: a product with the matrix of all patches;
            ``winograd``: tiles of 2 × 2 by 16 products each.
        image: (n, n), n even.
        kernel: (3, 3).
    """
    n = len(image) - 2
    patches = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
    if algorithm == "direct":
        shifted = ((kernel[a, b], image[a : a + n, b : b + n]) for a in range(3) for b in range(3))
        return sum(factor * part for factor, part in shifted), 9 * n * n, 0
    if algorithm == "matrix":
        matrix = patches.reshape(n * n, 9).copy()
        return (matrix @ kernel.ravel()).reshape(n, n), matrix.size, matrix.size
    tiles = np.lib.stride_tricks.sliding_window_view(image, (4, 4))[::2, ::2]
    moved = BEFORE @ tiles @ BEFORE.T
    products = moved * (KERNEL @ kernel @ KERNEL.T)
    out = AFTER @ products @ AFTER.T
    return out.swapaxes(1, 2).reshape(n, n), products.size, moved.size


def agree(flipped: bool = False) -> float:
    """Percent of drawn images and kernels whose output is the same by all three.

    Args:
        flipped: Winograd's kernel is turned round, so that a test sees the figure fail.
    """
    told = []
    for seed in range(DRAWN):
        rng = np.random.default_rng(seed)
        image, kernel = rng.normal(size=(SIDE, SIDE)), rng.normal(size=(3, 3))
        direct, matrix = (convolved(name, image, kernel)[0] for name in ("direct", "matrix"))
        winograd = convolved("winograd", image, kernel[::-1, ::-1] if flipped else kernel)[0]
        told.append(np.allclose(direct, matrix) and np.allclose(direct, winograd))
    return 100 * sum(told) / len(told)


def quotient(what: Literal["multiplications", "numbers"], over: Algorithm, under: Algorithm = "winograd") -> float:
    """Multiplications, or numbers held, of one algorithm over those of another."""
    image, kernel = np.ones((SIDE, SIDE)), np.ones((3, 3))
    place = 1 if what == "multiplications" else 2
    return convolved(over, image, kernel)[place] / convolved(under, image, kernel)[place]


HERE = "gradgate.references.chain.paper.convolutions"
PLACE, VARY = "§5.4.2, a 3 × 3 convolution", at_least("'large variation in space and time': by half")
ROWS = (
    Published(
        PLACE,
        "directly, by one product and by tiles",
        f"{DRAWN} drawn images",
        "% with equal outputs",
        f"{HERE}:agree",
        {},
        100.0,
        expects=upheld(equal(0.0, "algorithms of the same convolution")),
    ),
    Published(
        PLACE,
        "multiplications",
        "directly over Winograd",
        "times",
        f"{HERE}:quotient",
        {"what": "multiplications", "over": "direct"},
        1.5,
        expects=upheld(VARY),
    ),
    Published(
        PLACE,
        "numbers held",
        "one product over Winograd",
        "times",
        f"{HERE}:quotient",
        {"what": "numbers", "over": "matrix"},
        1.5,
        expects=upheld(VARY),
    ),
)
