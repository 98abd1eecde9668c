"""`mixed_mode_grad`, a gradient with a custom rule that replaces `grad`: its cotangents for every input."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate import UsageError
from gradgate.references.backends import leaves, namespace, precision, to_numpy, transforms


def parts(framework: str) -> tuple[Any, Any, Any, Any]:
    """An inner loss of (θ, η, x), and values for its arguments; x contains integers and a tree."""
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


def weighed(tree: Any) -> Any:
    """A scalar that depends on all floating leaves of a tree, each with a different weight."""
    found = [leaf for leaf in leaves(tree) if "int" not in str(leaf.dtype)]
    return sum(((1 + 0.5 * i + 0.25 * leaf) * leaf).sum() for i, leaf in enumerate(found))


def pulled(framework: str, grad: Any, theta: Any, eta: Any, x: Any) -> list[Any]:
    """The cotangents of θ, of η and of the floating leaves of x, through a gradient function."""
    classes = x["class"]

    def slope(theta: Any, eta: Any, inputs: Any) -> Any:
        return weighed(grad(theta, eta, {"inputs": inputs, "class": classes}))

    found = transforms(framework).grad(slope, argnums=(0, 1, 2))(theta, eta, x["inputs"])
    return [to_numpy(leaf) for leaf in leaves(found)]


def drop_in(framework: str) -> Callable[..., Any]:
    """`mixed_mode_grad`."""
    found: Callable[..., Any] = importlib.import_module(f"gradgate.in_{framework}").mixed_mode_grad
    return found


def with_aux(inner: Any) -> Callable[..., Any]:
    """`inner` that also returns a tree: one leaf of the tree has integers, and another one depends on η alone."""
    return lambda theta, eta, x: (
        inner(theta, eta, x),
        {"doubled": 2 * theta["w"] * eta[0], "class": x["class"], "eta": [eta[1] * 1.0]},
    )


VARIANTS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "by θ": (lambda inner: inner, {}),
    "by η": (lambda inner: inner, {"argnums": 1}),
    "by both": (lambda inner: inner, {"argnums": (0, 1)}),
    "counted from behind": (lambda inner: inner, {"argnums": (-2,)}),
    "with aux": (with_aux, {"has_aux": True}),
    "with aux, by both": (with_aux, {"argnums": (1, 0), "has_aux": True}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_values_and_cotangents_are_those_of_grad(framework: str, variant: str) -> None:
    change, options = VARIANTS[variant]
    with precision(framework, "float64"):
        inner, *numbers = parts(framework)
        ours, plain = drop_in(framework)(change(inner), **options), transforms(framework).grad(change(inner), **options)
        for one, other in zip(leaves(ours(*numbers)), leaves(plain(*numbers)), strict=True):
            np.testing.assert_allclose(to_numpy(one), to_numpy(other), rtol=1e-14)
        found = list(zip(pulled(framework, ours, *numbers), pulled(framework, plain, *numbers), strict=True))
    assert len(found) == 6
    for one, other in found:
        assert np.abs(other).max() > 0
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_a_first_order_gradient_is_seen(framework: str) -> None:
    stop = (lambda leaf: leaf.detach()) if framework == "torch" else importlib.import_module("jax").lax.stop_gradient
    with precision(framework, "float64"):
        inner, *numbers = parts(framework)
        cut = drop_in(framework)(lambda theta, eta, x: inner(theta, tuple(map(stop, eta)), x))
        plain = pulled(framework, transforms(framework).grad(inner), *numbers)
        assert any(not np.allclose(*pair) for pair in zip(pulled(framework, cut, *numbers), plain, strict=True))


def test_other_arguments_may_be_any_objects_and_keywords_are_passed_on(framework: str) -> None:
    def loss(theta: Any, kind: str, function: Any, *, power: int) -> Any:
        assert kind == "sum"
        return function(theta**power)

    with precision(framework, "float64"):
        theta = namespace(framework).asarray(np.array([1.0, 2.0]))
        found = drop_in(framework)(loss)(theta, "sum", lambda leaf: leaf.sum(), power=3)
    np.testing.assert_allclose(to_numpy(found), [3.0, 12.0])


def test_wrong_use_is_refused_in_words(framework: str) -> None:
    grad = drop_in(framework)
    with precision(framework, "float64"):
        xp = namespace(framework)
        theta, whole = xp.asarray(np.array([1.0, 2.0])), xp.asarray(np.array([1, 2]))
        for given, argnums, words in (
            ((theta,), 1, "names an argument that is not given: 1 are given by position"),
            ((theta,), (0, -1), "names an argument twice"),
            ((theta,), "theta", "argnums is an integer or a tuple of integers"),
            ((whole,), 0, "gradient is by floating"),
        ):
            with pytest.raises(UsageError, match=words):
                grad(lambda leaf: (leaf * 1.0).sum(), argnums)(*given)
        with pytest.raises(UsageError, match=r"must return a floating scalar, not .*say has_aux=True"):
            grad(lambda leaf: leaf)(theta)
        with pytest.raises(UsageError, match="returns a pair"):
            grad(lambda leaf: leaf.sum(), has_aux=True)(theta)
        with pytest.raises(UsageError, match="fun must be a function, not a int"):
            grad(3)


def test_in_pytorch_it_works_with_backward_too(torch: Any) -> None:
    inner, theta, eta, x = parts("torch")
    for leaf in (*leaves(theta), *leaves(eta)):
        leaf.requires_grad_()
    found = drop_in("torch")(inner)(theta, eta, x)
    (found["b"].sum() + found["w"].sum()).backward()
    plain = torch.func.grad(lambda e: sum(leaf.sum() for leaf in leaves(torch.func.grad(inner)(theta, e, x))))(eta)
    for leaf, other in zip(leaves(eta), leaves(plain), strict=True):
        torch.testing.assert_close(leaf.grad, other.detach())


@pytest.mark.parametrize("outer", ["torch.func", "backward"])
def test_in_pytorch_closing_over_what_is_differentiated_is_refused(torch: Any, outer: str) -> None:
    inner, theta, eta, x = parts("torch")

    def slope(eta: Any) -> Any:
        return weighed(drop_in("torch")(lambda theta: inner(theta, eta, x))(theta))

    with pytest.raises(UsageError, match=r"closes over a tensor of shape \(\) that requires a gradient"):
        torch.func.grad(slope)(eta) if outer == "torch.func" else slope([leaf.requires_grad_() for leaf in eta])


def test_in_pytorch_shapes_of_parameters_may_be_read_and_their_values_detached(torch: Any) -> None:
    known = torch.ones(2, requires_grad=True)
    found = drop_in("torch")(lambda theta: (theta * known.shape[0] + known.detach()).sum())(torch.ones(2))
    assert found.tolist() == [2.0, 2.0]


def test_in_jax_what_a_loss_closes_over_gets_its_cotangent(jax: Any) -> None:
    with precision("jax", "float64"):
        inner, theta, eta, x = parts("jax")

        def pulled_by(grad: Any) -> Any:
            def step(carry: Any, row: Any) -> Any:
                order = jax.numpy.argsort(row[:, 0])

                def closing(theta: Any) -> Any:
                    return inner(theta, carry, {"inputs": [row, x["inputs"][1]], "class": order})

                return carry, weighed(grad(closing)(theta))

            rows = jax.numpy.stack([x["inputs"][0], 2 * x["inputs"][0]])
            return jax.grad(lambda eta: jax.lax.scan(step, eta, rows)[1].sum())(eta)

        for one, other in zip(leaves(pulled_by(drop_in("jax"))), leaves(pulled_by(jax.grad)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_in_jax_integers_get_a_cotangent_of_no_numbers(jax: Any) -> None:
    with precision("jax", "float64"):
        inner, theta, eta, x = parts("jax")
        found, pull = jax.vjp(drop_in("jax")(inner), theta, eta, x)
        assert pull(found)[2]["class"].dtype == jax.dtypes.float0


def test_in_jax_the_printed_rule_refuses_a_loss_that_closes_over_what_is_differentiated(jax: Any) -> None:
    from gradgate.references.bilevel.paper.printed_jax import _listing1

    with precision("jax", "float64"):
        inner, theta, eta, x = parts("jax")
        with pytest.raises(jax.errors.UnexpectedTracerError):
            jax.grad(lambda eta: weighed(_listing1(lambda theta: inner(theta, eta, x))(theta)))(eta)
