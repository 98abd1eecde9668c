"""`mixed_mode_grad`: a gradient in PyTorch whose own derivative is by forward over reverse mode (Listing 2)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree
from torch.utils.weak import WeakTensorKeyDictionary

from gradgate.references.bilevel.in_torch.methods import jvp, value_and_gradients
from gradgate.references.bilevel.in_torch.remat import living
from gradgate.references.bilevel.options import chosen_arguments
from gradgate.references.contract import Tree, UsageError


def mixed_mode_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """``torch.func.grad(fun, argnums, has_aux)``, whose own derivative is by forward over reverse mode.

    Put it in the place of the inner `torch.func.grad` of a meta-gradient, of a gradient penalty, or of any other loss
    that reads a gradient. The outer derivative, by ``backward()`` or by `torch.func`, is then a forward pass through
    the gradient: it does not store what a reverse pass through a reverse pass stores. Take it by ``backward()`` or
    `torch.autograd.grad`, because `torch.func.grad` also records its reverse pass and keeps all its results in memory.

    Args:
        fun: (arguments …) -> a floating scalar, or with `has_aux` the scalar and a tree with tensors. Every tensor that
            the outer derivative is taken by must be an argument.
        argnums: the arguments that the gradient is taken by, trees of floating tensors.
        has_aux: whether `fun` returns a pair.

    Returns:
        A function of `fun`'s arguments; those not in `argnums` may be any objects. It returns the gradient, a tree like
        the argument, or a tuple of these if `argnums` is a sequence; with `has_aux`, a pair of the gradient and the
        tree. Tensors of integers or booleans have no cotangent.

    Raises:
        UsageError: `argnums` names no argument, or one without floating numbers; `fun` returns no floating scalar; or
            it closes over a tensor that requires a gradient, which would get none.

    Source:
        Listing 2, corrected: as printed it names ``loss``, which nothing binds, saves trees as if they were tensors,
        and differentiates by every input.

    Stores:
        The arguments until the backward pass; then the activations of one gradient and their tangents, or with
        rematerialised layers the input of every layer and its tangent.

    Computes:
        One gradient; in the backward pass one gradient with tangents, which costs about two.

    Not for:
        A `fun` with an operation that has no formula for forward mode: PyTorch's error in the backward pass names it,
        and `torch.func.grad` works. Dropout in `fun`, which would draw a new mask in the backward pass: pass the mask
        as an argument.

    Example::

        grads = mixed_mode_grad(loss)(params, batch)   # in the inner loop, in the place of torch.func.grad(loss)
    """
    if not callable(fun):
        raise UsageError(f"fun must be a function, not a {type(fun).__name__}")

    @functools.wraps(fun)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        places = chosen_arguments(argnums, len(args))
        leaves, structure = _pytree.tree_flatten([args[place] for place in places])
        rest, layout = _pytree.tree_flatten(([None if i in places else arg for i, arg in enumerate(args)], kwargs))
        _check_floating(leaves, argnums)
        tensors = [i for i, leaf in enumerate(rest) if isinstance(leaf, torch.Tensor)]
        shapes: list[Any] = []

        def run(leaves: Sequence[Any], others: Sequence[Any]) -> tuple[torch.Tensor, list[torch.Tensor]]:
            given = dict(enumerate(rest)) | dict(zip(tensors, others, strict=True))
            fixed, keywords = _pytree.tree_unflatten(list(given.values()), layout)
            for place, tree in zip(places, _pytree.tree_unflatten(list(leaves), structure), strict=True):
                fixed[place] = tree
            value, aux = _checked(fun(*fixed, **keywords), has_aux)
            parts, shape = _pytree.tree_flatten(aux)
            found = [part for part in parts if isinstance(part, torch.Tensor)]
            shapes[:] = [shape, [None if isinstance(part, torch.Tensor) else part for part in parts]]
            return value, found

        flat = _Gradient.apply(run, len(leaves), *leaves, *(rest[i] for i in tensors))
        grads = tuple(_pytree.tree_unflatten(list(flat[: len(leaves)]), structure))
        grads = grads[0] if isinstance(argnums, int) else grads
        return (grads, _aux(shapes, flat[len(leaves) :])) if has_aux else grads

    return gradient


class _Gradient(torch.autograd.Function):
    """The gradient of ``run(leaves, others)`` by its leaves, with the product by forward mode over reverse mode.

    It takes `run`, the number of leaves, the leaves and the others. It returns the gradient and the aux of `run`.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(run: Any, number: int, *flat: torch.Tensor) -> tuple[torch.Tensor, ...]:
        def watched(leaves: list[torch.Tensor]) -> Any:
            if torch.compiler.is_compiling():
                return run(leaves, flat[number:])
            with _Closures([*leaves, *flat]):
                return run(leaves, flat[number:])

        (_, aux), (grads,) = value_and_gradients(watched, list(flat[:number]), has_aux=True)
        return (*grads, *(part.clone() for part in aux))

    @staticmethod
    def setup_context(context: Any, inputs: tuple[Any, ...], output: Any) -> None:
        context.run, context.number, *flat = inputs
        context.mark_non_differentiable(*(part for part in output if not part.is_floating_point()))
        context.save_for_backward(*flat)

    @staticmethod
    def backward(context: Any, *v: torch.Tensor) -> Any:
        flat, number = list(living(context)), context.number
        leaves, others, v_aux = flat[:number], flat[number:], v[number:]
        places = [i for i, leaf in enumerate(others) if leaf.is_floating_point()]

        def tilted(amount: torch.Tensor, leaves: list[torch.Tensor], floats: list[torch.Tensor]) -> torch.Tensor:
            merged = dict(enumerate(others)) | dict(zip(places, floats, strict=True))
            value, aux = context.run(leaves, list(merged.values()))
            parts = [(a * b).sum() for a, b in zip(v_aux, aux, strict=True) if b.is_floating_point()]
            found: torch.Tensor = value + (amount * sum(parts)).to(value.dtype) if parts else value
            return found

        # The derivative of ∇(f + amount·⟨v_aux, aux⟩) by `amount` is ∇⟨v_aux, aux⟩, so one product does both.
        def gradients(leaves: list[torch.Tensor], amount: torch.Tensor) -> Any:
            floats = [others[i] for i in places]
            return value_and_gradients(functools.partial(tilted, amount), leaves, floats)[1]

        zero = leaves[0].new_zeros(())
        _, (by_leaves, by_floats) = jvp(gradients, (leaves, zero), (list(v[:number]), torch.ones_like(zero)))
        found = dict(zip(places, by_floats, strict=True))
        return None, None, *by_leaves, *(found.get(i) for i in range(len(others)))


def _aux(shapes: list[Any], parts: Sequence[torch.Tensor]) -> Tree:
    """The aux of `fun`, with its tensors in their places."""
    structure, known = shapes
    given = iter(parts)
    return _pytree.tree_unflatten([next(given) if part is None else part for part in known], structure)


def _checked(found: Any, has_aux: bool) -> tuple[torch.Tensor, Tree]:
    """The scalar that a function returns, and its aux.

    Raises:
        UsageError: it is not a floating scalar, or not a pair although `has_aux` is set.
    """
    if has_aux and not (isinstance(found, tuple) and len(found) == 2):
        raise UsageError(f"with has_aux=True, fun returns a pair (scalar, aux), not a {type(found).__name__}")
    value, aux = found if has_aux else (found, ())
    if not isinstance(value, torch.Tensor) or value.ndim or not value.is_floating_point():
        is_tensor = isinstance(value, torch.Tensor)
        told = f"a tensor of {value.dtype} and shape {tuple(value.shape)}" if is_tensor else f"a {type(value).__name__}"
        more = "" if has_aux else "; if it returns more than the scalar, say has_aux=True"
        raise UsageError(f"fun must return a floating scalar, not {told}{more}")
    return value, aux


def _check_floating(leaves: Sequence[Any], argnums: Any) -> None:
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            kind = leaf.dtype if isinstance(leaf, torch.Tensor) else type(leaf).__name__
            raise UsageError(
                f"argnums={argnums!r} names an argument with a leaf of {kind}; a gradient is by floating tensors "
                "alone: pass this leaf in another argument, or close over it"
            )
    if not leaves:
        raise UsageError(f"argnums={argnums!r} names an argument without tensors, and there is no gradient by none")


_CUTS = (torch.Tensor.detach, torch.Tensor.data.__get__)  # type: ignore[attr-defined]
"""The operations that a derivative does not pass through."""


class _Closures(TorchFunctionMode):
    """Refuses operations on tensors that a derivative is taken by but that were not passed as arguments."""

    def __init__(self, given: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.known = WeakTensorKeyDictionary()
        self.add(given)

    def add(self, tree: Any) -> None:
        """Add the tensors of a tree to the known ones."""
        for leaf in _tensors(tree):
            self.known[leaf] = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not _tensors(found):  # such as a shape
            return found
        for leaf in _tensors((args, kwargs)):
            if func not in _CUTS and self._outside(leaf):
                raise UsageError(
                    f"fun closes over a tensor of shape {tuple(leaf.shape)} that requires a gradient, and would give "
                    "it none: pass it as an argument of fun, or close over its detach()"
                )
        self.add(found)
        return found

    def _outside(self, leaf: torch.Tensor) -> bool:
        """Whether a transform or a graph records this tensor; False if it is or wraps a known tensor."""
        records = False
        while leaf not in self.known:
            records = records or leaf.requires_grad
            if not torch._C._functorch.is_functorch_wrapped_tensor(leaf):
                return records
            leaf = torch._C._functorch.get_unwrapped(leaf)
        return False


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
