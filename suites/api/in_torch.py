"""The papers' methods for functions and modules of your own, in PyTorch.

Each name is one documented entry point: a method of one of the five papers that takes your own functions, layers or
models. The suite judges each of them as it judges a pair of yours. Its module is imported when a name is first used.
"""

from __future__ import annotations

from gradgate._lazy import lookup

_PLACES: dict[str, str] = {
    "checkpointed": "gradgate.references.chain.in_torch.model",
    "sgd": "gradgate.references.bilevel.in_torch.optimisers",
    "clip_by_global_norm": "gradgate.references.bilevel.in_torch.optimisers",
    "chain": "gradgate.references.bilevel.in_torch.optimisers",
    "adamw": "gradgate.references.bilevel.in_torch.optimisers",
    "adam": "gradgate.references.bilevel.in_torch.optimisers",
    "meta_gradient": "gradgate.references.bilevel.in_torch.meta_gradient",
    "mixed_mode_grad": "gradgate.references.bilevel.in_torch.mixed_mode",
    "linear_attention": "gradgate.references.performer.in_torch.linear_attention",
    "favor_projection": "gradgate.references.performer.in_torch.linear_attention",
    "LinearAttention": "gradgate.references.performer.in_torch.linear_attention_module",
    "InvertibleSequential": "gradgate.references.invertible.in_torch.sequential",
    "check_inverse": "gradgate.references.invertible.in_torch.sequential",
    "AdditiveCoupling": "gradgate.references.invertible.in_torch.couplings",
    "AffineCoupling": "gradgate.references.invertible.in_torch.couplings",
    "Keep": "gradgate.references.invertible.in_torch.couplings",
    "selective_scan": "gradgate.references.state_space.in_torch.selective_scan",
}
"""Name -> the module that defines it."""

__all__ = list(_PLACES)
__getattr__ = lookup(__name__, "gradgate.in_torch", _PLACES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
