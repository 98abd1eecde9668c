"""Pullbacks that leave the weights out, so that a scan over layers does not copy them.

`jax.vjp` returns a pytree of what it keeps, which includes some of the arguments. If a scan stacked it, the weights of
all layers would be in memory once more. So they are removed here, and put back from the parameters.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from gradgate.references.contract import Tree


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lean:
    """A pullback without the weights that it keeps: a pytree, so that `jax.lax.scan` can stack it.

    Attributes:
        kept: the leaves of the pullback that are not weights, in order.
        structure: the structure of the pullback.
        places: for every leaf of the pullback, which weight it is; −1 for none.
    """

    residuals: list[Any]
    structure: Any = dataclasses.field(metadata={"static": True})
    places: tuple[int, ...] = dataclasses.field(metadata={"static": True})

    def __call__(self, weights: Tree, cotangents: Any) -> Any:
        """Call the pullback with `cotangents`; `weights` replace the weights that were removed."""
        own, kept = jax.tree.leaves(weights), iter(self.residuals)
        leaves = [next(kept) if place < 0 else own[place] for place in self.places]
        return jax.tree.unflatten(self.structure, leaves)(cotangents)


def without(weights: Tree, pull: Any) -> Lean:
    """A pullback without the leaves that are `weights`.

    Args:
        weights: the argument of `jax.vjp` that is available again when the pullback is called.
        pull: what `jax.vjp` returned.

    Returns:
        The pullback, which takes the weights again.
    """
    leaves, structure = jax.tree.flatten(pull)
    own = jax.tree.leaves(weights)
    places = tuple(next((i for i, w in enumerate(own) if w is leaf), -1) for leaf in leaves)
    return Lean([leaf for leaf, place in zip(leaves, places, strict=True) if place < 0], structure, places)
