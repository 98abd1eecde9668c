"""The papers' methods for functions and modules of your own, in JAX.

Each name is one documented entry point: a method of one of the five papers that takes your own functions, layers or
models. The suite judges each of them as it judges a pair of yours. Its module is imported when a name is first used.
"""

from __future__ import annotations

from gradgate._lazy import lookup

_PLACES: dict[str, str] = {
    "checkpointed": "gradgate.references.chain.in_jax.model",
    "sgd": "gradgate.references.bilevel.in_jax.meta_gradient",
    "clip_by_global_norm": "gradgate.references.bilevel.in_jax.meta_gradient",
    "chain": "gradgate.references.bilevel.in_jax.meta_gradient",
    "adam": "gradgate.references.bilevel.in_jax.meta_gradient",
    "adamw": "gradgate.references.bilevel.in_jax.meta_gradient",
    "meta_gradient": "gradgate.references.bilevel.in_jax.meta_gradient",
    "mixed_mode_grad": "gradgate.references.bilevel.in_jax.mixed_mode",
    "linear_attention": "gradgate.references.performer.in_jax.linear_attention",
    "favor_projection": "gradgate.references.performer.in_jax.linear_attention",
    "LinearAttention": "gradgate.references.performer.in_jax.linear_attention_module",
    "invertible_sequential": "gradgate.references.invertible.in_jax.sequential",
    "check_inverse": "gradgate.references.invertible.in_jax.sequential",
    "inverse_of": "gradgate.references.invertible.in_jax.sequential",
    "with_log_det": "gradgate.references.invertible.in_jax.sequential",
    "functional": "gradgate.references.invertible.in_jax.sequential",
    "invertible_layer": "gradgate.references.invertible.in_jax.own_layers",
    "additive_coupling": "gradgate.references.invertible.in_jax.own_layers",
    "affine_coupling": "gradgate.references.invertible.in_jax.own_layers",
    "keep": "gradgate.references.invertible.in_jax.own_layers",
    "selective_scan": "gradgate.references.state_space.in_jax.selective_scan",
}
"""Name -> the module that defines it."""

__all__ = list(_PLACES)
__getattr__ = lookup(__name__, "gradgate.in_jax", _PLACES)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
