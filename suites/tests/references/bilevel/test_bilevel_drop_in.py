"""The gradient with a rule of its own that users put in the place of `grad`: its cotangents, input by input."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from gradgate.references.backends import leaves, namespace, precision, to_numpy, transforms, tree_map


def parts(framework: str) -> tuple[Any, Any, Any, Any]:
    """An inner loss of (θ, η, x), x with integers and a tree, and numbers for it."""
    xp = namespace(framework)
    rng = np.random.default_rng(3)

    def array(*shape: int) -> Any:
        return xp.asarray(rng.standard_normal(shape))

    def inner(theta: Any, eta: Any, x: Any) -> Any:
        hidden = xp.tanh(xp.matmul(x["inputs"][0], theta["w"]) + theta["b"] * eta[0])
        picked = xp.take(hidden, x["class"], axis=0)
        return xp.sum(picked * picked * eta[1]) * x["inputs"][1]

    theta, eta = {"w": array(3, 2), "b": array(2)}, (array(), array(2))
    return inner, theta, eta, {"inputs": [array(4, 3), array()], "class": xp.asarray(np.array([2, 0, 0]))}


def pulled(framework: str, grad: Any, theta: Any, eta: Any, x: Any) -> list[Any]:
    """The cotangents that a gradient sends to θ, η and x's floats, of one vector."""
    classes = x["class"]

    def slope(theta: Any, eta: Any, inputs: Any) -> Any:
        found = grad(theta, eta, {"inputs": inputs, "class": classes})
        return sum(((1 + 0.5 * known) * leaf).sum() for leaf, known in zip(leaves(found), leaves(theta), strict=True))

    found = transforms(framework).grad(slope, argnums=(0, 1, 2))(theta, eta, x["inputs"])
    return [to_numpy(leaf) for leaf in leaves(found)]


def module(framework: str) -> Any:
    """The module of the drop-in."""
    return importlib.import_module(f"gradgate.references.bilevel.in_{framework}.drop_in")


def test_every_input_gets_the_cotangent_of_reverse_mode(framework: str) -> None:
    with precision(framework, "float64"):
        inner, *numbers = parts(framework)
        ours = pulled(framework, module(framework).fwdrev_grad(inner), *numbers)
        plain = pulled(framework, transforms(framework).grad(inner), *numbers)
    assert len(ours) == len(plain) == 6
    for one, other in zip(ours, plain, strict=True):
        assert np.abs(other).max() > 0
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_a_rule_by_the_parameters_alone_is_seen(framework: str) -> None:
    with precision(framework, "float64"):
        inner, theta, eta, x = parts(framework)
        constant = tree_map(lambda leaf: leaf if framework == "jax" else leaf.detach(), eta)
        ours = pulled(framework, module(framework).fwdrev_grad(lambda p, e, x: inner(p, constant, x)), theta, eta, x)
        plain = pulled(framework, transforms(framework).grad(inner), theta, eta, x)
    assert any(not np.allclose(one, other) for one, other in zip(ours, plain, strict=True))


def test_in_pytorch_it_works_with_backward_too(torch: Any) -> None:
    inner, theta, eta, x = parts("torch")
    for leaf in (*leaves(theta), *leaves(eta)):
        leaf.requires_grad_()
    found = module("torch").fwdrev_grad(inner)(theta, eta, x)
    (found["b"].sum() + found["w"].sum()).backward()
    plain = torch.func.grad(lambda e: sum(leaf.sum() for leaf in leaves(torch.func.grad(inner)(theta, e, x))))(eta)
    for leaf, other in zip(leaves(eta), leaves(plain), strict=True):
        torch.testing.assert_close(leaf.grad, other.detach())


def test_in_jax_integers_get_a_cotangent_of_no_numbers(jax: Any) -> None:
    with precision("jax", "float64"):
        inner, theta, eta, x = parts("jax")
        found, pull = jax.vjp(module("jax").fwdrev_grad(inner), theta, eta, x)
        assert pull(found)[2]["class"].dtype == jax.dtypes.float0


def test_in_jax_an_inner_loss_that_closes_over_what_is_differentiated_is_refused(jax: Any) -> None:
    with precision("jax", "float64"):
        inner, theta, eta, x = parts("jax")

        def outer(eta: Any) -> Any:
            return module("jax").fwdrev_grad(lambda theta: inner(theta, eta, x))(theta)["b"].sum()

        with pytest.raises(jax.errors.UnexpectedTracerError):
            jax.grad(outer)(eta)
