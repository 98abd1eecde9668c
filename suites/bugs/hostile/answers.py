"""Methods whose answer is not (loss, grads), or is wrong."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from gradgate.references.contract import Problem
from gradgate.suites.bugs.hostile.fault import TORCH_ALONE, Answer, altered, fault, good


@fault("refuted", "the method returned None; a method returns (loss, grads)")
def returns_none(problem: Problem) -> None:
    """Returns nothing."""


@fault("refuted", "the method returned …; a method returns (loss, grads)")
def returns_loss(problem: Problem) -> Any:
    """Returns only the loss."""
    return good(problem)[0]


@fault("refuted", "the method returned a tuple of 3; a method returns (loss, grads)")
def returns_three(problem: Problem) -> Any:
    """Returns three things."""
    return (*good(problem), 1)


@fault("refuted", "the method returned a list of 2; a method returns (loss, grads)")
def returns_list(problem: Problem) -> Any:
    """Returns a list."""
    return list(good(problem))


@fault("refuted", "the method returned None for grads; expected a tree like problem.params")
def no_grads(problem: Problem) -> Answer:
    """Returns no gradient."""
    return good(problem)[0], None


@fault(
    "refuted", "wrong tree: grads lacks embedding, … and has [0], [1] besides; expected the leaves of problem.params"
)
def leaves_only(problem: Problem) -> Answer:
    """Returns a list of leaves."""
    loss, grads = good(problem)
    return loss, [grads["embedding"], grads["head"]]


@fault("refuted", "wrong tree: grads lacks head; expected the leaves of problem.params")
def lacks_a_leaf(problem: Problem) -> Answer:
    """Leaves out a leaf."""
    loss, grads = good(problem)
    return loss, {name: leaf for name, leaf in grads.items() if name != "head"}


@fault("refuted", "wrong tree: grads has bias besides; expected the leaves of problem.params")
def an_extra_leaf(problem: Problem) -> Answer:
    """Adds a leaf."""
    loss, grads = good(problem)
    return loss, {**grads, "bias": grads["head"]}


@fault("refuted", "head has no gradient; None came in place of an array of shape …")
def a_none_leaf(problem: Problem) -> Answer:
    """Returns None for a leaf."""
    return altered(problem, head=lambda leaf: None)


@fault("refuted", "wrong shape: head has shape …; expected …")
def wrong_shape(problem: Problem) -> Answer:
    """Returns a leaf of another shape."""
    return altered(problem, head=lambda leaf: leaf.reshape(-1))


@fault("refuted", "wrong dtype: head is …float32; expected …float64")
def wrong_dtype(problem: Problem) -> Answer:
    """Returns a leaf of another dtype."""
    return altered(problem, head=lambda leaf: problem.xp.astype(leaf, problem.xp.float32))


@fault("refuted", "head is array(…) of numpy; expected an array of …")
def numpy_leaf(problem: Problem) -> Answer:
    """Returns a NumPy array for a leaf."""
    return altered(problem, head=np.asarray)


class _Lazy:
    def __init__(self, leaf: Any) -> None:
        self.leaf = leaf

    shape = property(lambda self: self.leaf.shape)
    dtype = property(lambda self: self.leaf.dtype)

    def __repr__(self) -> str:
        raise ValueError


@fault("refuted", "head is a _Lazy of gradgate; expected an array of …")
def lazy_leaf(problem: Problem) -> Answer:
    """Returns an object that only behaves like an array."""
    return altered(problem, head=_Lazy)


@fault("refuted", "head is … of gradgate; expected an array of torch", not_in={"jax": "jax.Array cannot be subclassed"})
def subclass_leaf(problem: Problem) -> Answer:
    """Returns a tensor of a subclass."""
    import torch

    own = type("Own", (torch.Tensor,), {"__module__": __name__})
    return altered(problem, head=lambda leaf: leaf.as_subclass(own))


@fault("refuted", "head is torch.strided on meta; expected torch.strided on cpu", not_in=TORCH_ALONE)
def meta_leaf(problem: Problem) -> Answer:
    """Returns a tensor without values, on the meta device."""
    return altered(problem, head=lambda leaf: leaf.to("meta"))


@fault("refuted", "loss is … of builtins; expected an array of …")
def a_number_as_loss(problem: Problem) -> Answer:
    """Returns a Python number as loss."""
    loss, grads = good(problem)
    return float(loss), grads


@fault("refuted", "wrong shape: loss has shape (1,); expected ()")
def a_vector_as_loss(problem: Problem) -> Answer:
    """Returns a vector as loss."""
    loss, grads = good(problem)
    return loss.reshape(1), grads


@fault("refuted", "wrong gradient of head (NaN), exact in embedding, …", "gradient_float64")
def nan_leaf(problem: Problem) -> Answer:
    """Returns NaN in a leaf."""
    return altered(problem, head=lambda leaf: leaf * float("nan"))


@fault("refuted", "wrong gradient of head (infinite), exact in …", "gradient_float32")
def infinite_leaf(problem: Problem) -> Answer:
    """Returns infinity in a leaf."""
    return altered(problem, head=lambda leaf: leaf + float("inf"))


@fault("refuted", "returned the loss nan, plain evaluation …", "value")
def nan_loss(problem: Problem) -> Answer:
    """Returns NaN as loss."""
    loss, grads = good(problem)
    return loss * float("nan"), grads


@fault("refuted", "wrong gradient of head (50%), exact in embedding, …", "gradient_float64")
def half(problem: Problem) -> Answer:
    """Returns half of a leaf."""
    return altered(problem, head=lambda leaf: leaf / 2)


_calls = itertools.count(1)


@fault("refuted", "two calls on one problem differ in …head", "deterministic")
def wavers(problem: Problem) -> Answer:
    """Returns something different every time."""
    factor = 1 + next(_calls) * 1e-3
    return altered(problem, head=lambda leaf: leaf * factor)
