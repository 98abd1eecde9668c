"""Pairs that the suite judges: `checkpointed` in both frameworks, each with the plain model."""

from __future__ import annotations

from typing import Any

from gradgate import Pair, at_most, mask, module_pair, normal


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
    """The same model, checkpointed: by default with the least bytes with which it can be trained."""
    from gradgate.references.chain.in_torch.model import checkpointed

    return checkpointed(residual_torch(H), budget=budget, compute="flops")


def layer_jax(p: Any, x: Any, keep: Any) -> Any:
    """A residual layer that reads a mask."""
    import jax.numpy as jnp

    return x + jnp.tanh(x @ p["w"] + p["b"]) * keep


def plain_jax(w: Any, b: Any, x: Any, real: Any) -> Any:
    """Layer after layer."""
    keep = real.astype(x.dtype)[:, None]
    for n in range(w.shape[0]):
        x = layer_jax({"w": w[n], "b": b[n]}, x, keep)
    return x


def scheduled_jax(w: Any, b: Any, x: Any, real: Any, *, budget: Any = "least") -> Any:
    """The same, within a budget."""
    from gradgate.references.chain.in_jax.model import checkpointed

    layers, keep = [layer_jax] * w.shape[0], real.astype(x.dtype)[:, None]
    params = [{"w": w[n], "b": b[n]} for n in range(w.shape[0])]
    return checkpointed(layers, params, x, keep, budget=budget)(params, x, keep)


def residual_nnx(H: int, rngs: Any) -> Any:
    """Norms, dropout and dense layers of flax nnx."""
    import jax
    from flax import nnx

    return nnx.Sequential(
        nnx.Linear(H, 2 * H, rngs=rngs),
        nnx.BatchNorm(2 * H, rngs=rngs),
        jax.nn.silu,
        nnx.Dropout(0.25, rngs=rngs),
        nnx.Linear(2 * H, H, rngs=rngs),
        nnx.Dropout(0.25, rngs=rngs),
        nnx.Linear(H, 2, rngs=rngs),
    )


def checkpointed_nnx(H: int, rngs: Any, budget: Any = "least") -> Any:
    """The same model, called through its schedule."""
    from flax import nnx

    from gradgate.references.chain.in_jax.model import checkpointed

    class Scheduled(nnx.Sequential):
        def __call__(self, x: Any) -> Any:  # type: ignore[override]
            return checkpointed(self, budget=budget)(self, x)

    return Scheduled(*residual_nnx(H, rngs).layers)


DIMS = {"B": (6, 2, 9), "H": (4, 1, 7)}

STRIDED_NORM = (
    "PyTorch's batch norm on CPUs reads past a weight that is not contiguous in its backward pass (2.13), in the plain "
    "model as well"
)

model_torch = module_pair(
    checkpointed_torch,
    residual_torch,
    inputs={"x": normal("B H"), "real": mask("B", share=0.7)},
    dims=DIMS,
    options={"budget": ("least", 1.0)},
    random=True,
    framework="torch",
    name="checkpointed_torch",
    disclaims=("vmap", "second_order"),
    expected={"layouts": STRIDED_NORM},
)
functions_jax = Pair(
    scheduled_jax,
    plain_jax,
    inputs={"w": normal("N H H"), "b": normal("N H"), "x": normal("B H"), "real": mask("B", share=0.7)},
    dims={"N": (4, 1, 7), **DIMS},
    options={"budget": ("least", 1.0)},
    composes=("jit", "vmap", "second_order"),
    claims=[at_most("residual_bytes", of_reference=0.7, at={"N": 16, "B": 64, "H": 4})],
    framework="jax",
    name="checkpointed_jax",
)
model_jax = module_pair(
    checkpointed_nnx,
    residual_nnx,
    inputs={"x": normal("B H")},
    dims=DIMS,
    options={"budget": ("least", 1.0)},
    random=True,
    framework="jax",
    name="checkpointed_nnx",
)
