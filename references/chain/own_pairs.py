"""`checkpointed`, in both frameworks, beside the plain models, as pairs that the suite judges."""

from __future__ import annotations

from typing import Any

from gradgate import mask, module_pair, normal


def residual_torch(H: int) -> Any:
    """Three residual blocks with a norm, dropout, an operation in place and a mask that all of them read."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = nn.BatchNorm1d(H), nn.Linear(H, 2 * H), nn.Linear(2 * H, H)
            self.drop = nn.Dropout(0.25)

        def forward(self, x: Any, keep: Any) -> Any:
            y = self.drop(nn.functional.silu(self.up(self.norm(x)), inplace=True))
            return x + self.down(y) * keep

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.head = nn.ModuleList(Block() for _ in range(3)), nn.Sequential(nn.Linear(H, 2), nn.Tanh())

        def forward(self, x: Any, real: Any) -> Any:
            keep = real.to(x.dtype)[:, None]
            for block in self.blocks:
                x = block(x, keep)
            return torch.sin(self.head(x))

    return Residual()


def checkpointed_torch(H: int, budget: Any = "least") -> Any:
    """The same model, with the least bytes that it can be trained with."""
    from gradgate.references.chain.in_torch import model

    return model.checkpointed(residual_torch(H), budget=budget, compute="flops")


DIMS = {"B": (6, 2, 9), "H": (4, 1, 7)}

STRIDED_NORM = (
    "PyTorch's batch norm on CPUs reads past a weight that is not contiguous in its backward pass (2.13), in the plain "
    "model as well"
)

model_torch = module_pair(
    checkpointed_torch, residual_torch, inputs={"x": normal("B H"), "real": mask("B", share=0.7)}, dims=DIMS,
    options={"budget": ("least", 1.0)}, random=True, framework="torch", name="checkpointed_torch",
    disclaims=("vmap", "second_order"), expected={"layouts": STRIDED_NORM},
)  # fmt: skip
