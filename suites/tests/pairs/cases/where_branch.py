# Source: kornia/kornia#367: the gradient of a division that `where` guards is NaN.
"""Points divided by their last coordinate, unless it is near 0; the reference decides by an `if` on numbers."""

import torch

from gradgate import Pair, normal

EPS = 1e-8


def some_at_infinity(given):
    points = given["points"].copy()
    points[::2, 2] = 0.0
    return given | {"points": points}


def branching(points):
    rows = []
    for p in points:
        rows.append(p[:2] / p[2] if bool(p[2].detach().abs() > EPS) else p[:2])
    return torch.stack(rows)


def bug(points):
    z = points[:, 2:]
    return torch.where(z.abs() > EPS, points[:, :2] / z, points[:, :2])


def twin(points):
    z = points[:, 2:]
    far = z.abs() > EPS
    return torch.where(far, points[:, :2] / torch.where(far, z, torch.ones_like(z)), points[:, :2])


def declared(function, name):
    return Pair(
        function,
        reference=branching,
        inputs={"points": normal("T K")},
        dims={"T": (5, 1, 12), "K": (3,)},
        regimes={"at_infinity": some_at_infinity},
        name=name,
        framework="torch",
    )


branch_bug = declared(bug, "branch_bug")
branch_legit = declared(twin, "branch_legit")
