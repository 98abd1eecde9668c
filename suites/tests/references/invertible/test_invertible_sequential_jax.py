"""`invertible_sequential` as users call it: what it keeps, keys and states, modules, and which use it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gradgate.references.backends import precision
from gradgate.references.contract import IllegalOption, UsageError
from gradgate.references.invertible.layer import NotInvertible

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402 - after the skip

from gradgate.in_jax import (  # noqa: E402
    additive_coupling,
    affine_coupling,
    check_inverse,
    functional,
    invertible_layer,
    invertible_sequential,
    keep,
)

METHODS = ("reversible", "moonwalk_mixed", "moonwalk")


@pytest.fixture(autouse=True)
def float64() -> Iterator[None]:
    with precision("jax", "float64"):
        yield


def inner(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"]) @ p["v"]


def drawn(seed: int, hidden: int = 8) -> dict[str, Any]:
    w, v = jax.random.split(jax.random.key(seed))
    return {"w": jax.random.normal(w, (3, hidden)), "v": 0.3 * jax.random.normal(v, (hidden, 3))}


def stack(depth: int) -> tuple[list[Any], list[Any]]:
    layers = [additive_coupling(inner, inner)] * depth
    return layers, [{"f": drawn(2 * i), "g": drawn(2 * i + 1)} for i in range(depth)]


def plain(layers: Any, params: Any, x: Any) -> Any:
    for layer, p in zip(layers, params, strict=True):
        x1, x2 = x[..., :3], x[..., 3:]
        y1 = x1 + layer.forward(p["f"], x2)
        x = jnp.concatenate([y1, x2 + layer.inverse(p["g"], y1)], -1)
    return x


X = [[0.1, -0.4, 1.0, 0.7, -0.2, 0.3]] * 2


def close(one: Any, other: Any, rtol: float = 1e-9) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(
        jnp.allclose(a, b, rtol=rtol, atol=rtol) for a, b in pairs if not jnp.issubdtype(a.dtype, jax.dtypes.prng_key)
    )


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_plain_backprop_under_jit(method: str) -> None:
    layers, params = stack(3)
    apply, x = invertible_sequential(layers, method=method), jnp.asarray(X)
    exact = jax.grad(lambda p, x: (plain(layers, p, x) ** 3).sum(), (0, 1))(params, x)
    assert close(jax.jit(jax.grad(lambda p, x: (apply(p, x) ** 3).sum(), (0, 1)))(params, x), exact)


def growth(make: Any) -> int:
    from gradgate.hw_profiles.residuals import of_jax

    def of(depth: int) -> int:
        layers, params = stack(depth)
        return of_jax(make(layers), (params, jnp.ones((64, 6))), x64=True)

    return (of(6) - of(3)) // 3


def test_what_is_kept_grows_with_depth_for_plain_and_mixed_alone() -> None:
    of_plain = growth(lambda layers: lambda p, x: plain(layers, p, x))
    assert of_plain >= 64 * 6 * 8
    assert growth(lambda layers: invertible_sequential(layers)) == 0
    assert growth(lambda layers: invertible_sequential(layers, method="moonwalk")) == 0
    assert 0 < growth(lambda layers: invertible_sequential(layers, method="moonwalk_mixed")) < of_plain


@pytest.mark.parametrize("method", METHODS)
def test_every_layer_of_the_backward_pass_is_tied_so_that_no_compiler_computes_all_of_them_first(method: str) -> None:
    layers, params = stack(5)
    apply = invertible_sequential(layers, method=method)
    text = str(jax.make_jaxpr(jax.grad(lambda p: apply(p, jnp.asarray(X)).sum()))(params))
    assert text.count("optimization_barrier") >= 5
    assert "optimization_barrier" not in str(jax.make_jaxpr(lambda p: apply(p, jnp.asarray(X)))(params))


def test_an_integer_among_the_parameters_is_left_alone() -> None:
    def scaled(p: Any, x: Any) -> Any:
        return x * p["a"] ** p["n"]

    apply = invertible_sequential([invertible_layer(scaled, lambda p, y: y / p["a"] ** p["n"])])
    x = jnp.asarray(X)
    grad = jax.grad(lambda a: apply([{"a": a, "n": jnp.asarray(2)}], x).sum())(jnp.asarray(3.0))
    assert jnp.allclose(grad, 6 * x.sum())


def batch_normed(p: Any, x: Any, *, state: Any) -> Any:
    mean = x.mean(0)
    return inner(p, x - mean), {"mean": 0.9 * state["mean"] + mean, "calls": state["calls"] + 1}


def test_a_state_changes_once_and_is_no_part_of_the_gradient() -> None:
    block = additive_coupling(batch_normed, batch_normed, stateful=True)
    apply, (_, params), x = invertible_sequential([block]), stack(1), jnp.asarray(X) * jnp.arange(1, 3)[:, None]
    state = [{name: {"mean": jnp.zeros(3), "calls": 0} for name in "fg"}]
    (_, after), grads = jax.value_and_grad(
        lambda p: ((found := apply(p, x, state=state))[0].sum(), found[1]), has_aux=True
    )(params)
    assert after[0]["f"]["calls"] == after[0]["g"]["calls"] == 1
    assert jnp.allclose(after[0]["f"]["mean"], x[:, 3:].mean(0))
    assert any(jnp.any(leaf != 0) for leaf in jax.tree.leaves(grads))
    zeros = jax.grad(lambda p: apply(p, x, state=state)[1][0]["g"]["mean"].sum())(params)
    assert not any(jnp.any(leaf != 0) for leaf in jax.tree.leaves(zeros))


def test_modules_of_equinox_are_functions() -> None:
    eqx = pytest.importorskip("equinox")
    f, g = (functional(eqx.nn.MLP(3, 3, 8, 1, key=jax.random.key(i))) for i in range(2))
    wide = [lambda p, x, h=h: jax.vmap(lambda row: h.function(p, row))(x) for h in (f, g)]
    layers, params, x = [additive_coupling(*wide)], [{"f": f.params, "g": g.params}], jnp.asarray(X)
    apply = invertible_sequential(layers)
    exact = jax.grad(lambda p: (plain(layers, p, x) ** 3).sum())(params)
    assert close(jax.grad(lambda p: (apply(p, x) ** 3).sum())(params), exact)


def test_modules_of_nnx_bring_their_statistics_and_generators() -> None:
    nnx = pytest.importorskip("flax.nnx")

    def made(seed: int) -> Any:
        rngs = nnx.Rngs(seed)
        return nnx.Sequential(nnx.Linear(3, 3, rngs=rngs), nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs))

    modules = [made(i) for i in range(2)]
    f, g = map(functional, modules)
    apply = invertible_sequential([additive_coupling(f.function, g.function, stateful=True)])
    x = jax.random.normal(jax.random.key(5), (7, 6), jnp.float32)
    params, state = [{"f": f.params, "g": g.params}], [{"f": f.state, "g": g.state}]
    (loss, after), grads = jax.value_and_grad(
        lambda p: (((found := apply(p, x, state=state))[0] ** 3).sum(), found[1]), has_aux=True
    )(params)

    def plainly(parts: Any) -> Any:
        one, two = parts
        y1 = x[:, :3] + one(x[:, 3:])
        return (jnp.concatenate([y1, x[:, 3:] + two(y1)], -1) ** 3).sum()

    exact, wanted = nnx.value_and_grad(plainly)(nnx.List(modules))
    assert jnp.allclose(loss, exact)
    assert close(grads, [{"f": wanted[0], "g": wanted[1]}], 1e-4)
    assert close(after[0]["f"], nnx.split(modules[0], nnx.Param, ...)[2], 1e-5)
    with pytest.raises(UsageError, match=r"function is no module of equinox or flax\.nnx"):
        functional(inner)


def test_a_wrong_or_ill_conditioned_inverse_is_found_by_check_inverse() -> None:
    layers, params = stack(2)
    x = jnp.asarray(X, jnp.float32)
    assert check_inverse(layers, params, x.astype(jnp.float64)) < 1e-14
    shifted = invertible_layer(lambda p, x: x + 1e6, lambda p, y: y - 1e6)
    with pytest.raises(NotInvertible, match=r"layer 0 \(<lambda>\): its inverse is off.*too ill-conditioned"):
        check_inverse([shifted], [{}], x)
    with pytest.raises(UsageError, match=r"within jax\.jit there are none"):
        jax.jit(lambda x: check_inverse([shifted], [{}], x))(x)


def backward(layer: Any, x: Any, method: str = "reversible") -> Any:
    """The gradient by x of one layer without parameters."""
    return jax.grad(lambda x: invertible_sequential([layer], method=method)([{}], x).sum())(x)


def test_inverses_and_vijps_of_another_shape_are_refused() -> None:
    x, double = jnp.asarray(X), lambda p, x: 2 * x
    with pytest.raises(NotInvertible, match=r"layer 0 .* its inverse gives shape \(2, 4\), from which the layer makes"):
        backward(invertible_layer(double, lambda p, y: y[:, :4] / 2), x)
    with pytest.raises(NotInvertible, match=r"layer 0 .* its vijp gives shape \(2, 3\); expected \(2, 6\)"):
        backward(invertible_layer(double, vijp=lambda p, x, h: h[:, :3]), x, "moonwalk_mixed")
    assert float(abs(backward(invertible_layer(double, lambda p, y: y / 2), x) - 2).max()) == 0


def test_an_error_of_a_function_says_which_half_it_was_given() -> None:
    layers, params = stack(1)
    whole = additive_coupling(lambda p, x: x @ jnp.ones((6, 6)), inner)
    with pytest.raises(TypeError, match="contracting dimensions") as told:
        invertible_sequential([*layers, whole])([*params, {"f": {}, "g": {}}], jnp.asarray(X))
    note = (
        "raised by F of layer 1 (additive coupling), which was given the second half, of shape (2, 3), of an input of"
    )
    assert note in told.value.__notes__[0]


def test_wrong_use_is_refused_in_words() -> None:
    layers, params = stack(1)
    x = jnp.asarray(X)
    only = invertible_layer(lambda p, x: x)
    cases = [
        (lambda: invertible_sequential([]), "there are no layers"),
        (lambda: invertible_sequential(layers[0]), "layers is one layer; legal: a list"),
        (lambda: additive_coupling(inner, None), "G is a NoneType; legal: a function"),
        (lambda: affine_coupling("f", inner), "F is a str; legal: a function"),
        (lambda: keep(None), "forward is a NoneType; legal: a function"),
        (lambda: invertible_sequential(layers)([(1, 2)], x), r'layer 0 \(additive coupling\) are a tuple; legal: {"f"'),
        (lambda: invertible_sequential(layers)([{"f": 1}], x), r"are a dict with \['f'\]; legal: {\"f\""),
        (lambda: invertible_sequential([keep(lambda p, x: (x, x))])([{}], x), r"returned a tuple; legal: one array"),
        (lambda: backward(invertible_layer(lambda p, x: 2 * x, lambda p, y: None), x), "inverse that gives a NoneType"),
        (lambda: invertible_sequential(layers, method="backprop"), "unknown method"),
        (lambda: invertible_sequential([inner]), "layer 0 is a function; legal: what invertible_layer"),
        (lambda: invertible_sequential([only]), "layer 0 has no inverse, which reversible needs"),
        (lambda: invertible_sequential([only], method="moonwalk"), "neither a vijp nor an inverse"),
        (lambda: invertible_sequential([keep(inner)], method="moonwalk"), "moonwalk has no reverse phase"),
        (lambda: invertible_layer(3), "forward is a int; legal: a function"),
        (lambda: invertible_sequential(layers)(params * 2, x), "params are 2 trees; legal: a list of 1 trees"),
        (lambda: invertible_sequential(layers)(params, x.astype(int)), "the input is not of floating numbers"),
        (
            lambda: invertible_sequential(layers)(params, x[:, :5]),
            r"F of layer 0 \(additive coupling\) returned shape \(2, 3\); legal: ",
        ),
        (lambda: invertible_sequential(layers)(params, x[:, :1]), "splits axis -1, and its input has shape"),
        (
            lambda: invertible_sequential([affine_coupling(inner, inner)])(params, x),
            r"legal: shape \(2, 6\), the shift t and then",
        ),
    ]
    random = [additive_coupling(inner, inner, random=True)]
    cases.append((lambda: invertible_sequential(random)(params, x), r"give key=jax\.random\.key"))
    stateful = [additive_coupling(inner, inner, stateful=True)]
    cases.append((lambda: invertible_sequential(stateful)(params, x), "has a state; give state="))
    for call, words in cases:
        with pytest.raises(UsageError, match=words):
            call()
    with pytest.raises(IllegalOption, match="tangents"):
        invertible_sequential(layers, tangents=0)
