# /// script
# dependencies = ["pypose==0.9.5"]
#
# [tool.gradgate]
# home = "https://github.com/pypose/pypose"
# framework = "torch"
# no-deps = true
# seconds = 60
# limit = 900
#
# [tool.gradgate.by-design]
# "pypose.lietensor.operation:*" = "the gradient of an element of a group is that of its tangent space, with a zero in the last place"
# ///
"""Lie groups of pypose, whose gradients are those of the tangent space."""

import torch
from pypose.lietensor import operation

torch.manual_seed(0)


def group(kind):
    turn = torch.nn.functional.normalize(torch.randn(2, 4), dim=-1)
    shift, scale = torch.randn(2, 3), torch.rand(2, 1) + 0.5
    return torch.cat(
        {"SO3": [turn], "SE3": [shift, turn], "RxSO3": [turn, scale], "Sim3": [shift, turn, scale]}[kind], -1
    )


for kind, size in {"SO3": 3, "SE3": 6, "RxSO3": 4, "Sim3": 7}.items():
    rule = lambda name: getattr(operation, name).apply
    X, Y = (group(kind).requires_grad_() for _ in range(2))
    rule(f"{kind}_Log")(X), rule(f"{kind}_Inv")(X), rule(f"{kind}_Mul")(X, Y)
    rule(f"{kind.lower()}_Exp" if kind != "Sim3" else "sim3_Exp")(torch.randn(2, size, requires_grad=True))
    for name, width in (("AdjXa", size), ("AdjTXa", size), ("Act", 3), ("Act4", 4)):
        rule(f"{kind}_{name}")(X, torch.randn(2, width, requires_grad=True))
