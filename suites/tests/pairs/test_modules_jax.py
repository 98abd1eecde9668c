"""`gradgate.module_pair` with flax nnx, flax linen and equinox: right modules are upheld, and mistakes are found."""

from __future__ import annotations

from typing import Any

import pytest

import gradgate
from gradgate.references.backends import to_numpy
from gradgate.suites.tests.pairs.verdicts import refuted, upheld

jax = pytest.importorskip("jax")
jnp = jax.numpy

DIMS = {"B": (3, 4), "H": (2, 5)}
X = {"x": gradgate.normal("B H")}
EPS = 1e-6


def plain_norm(x: Any, w: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS) * w


@jax.custom_vjp
def by_hand(x: Any, w: Any) -> Any:
    return plain_norm(x, w)


def _forward(x: Any, w: Any) -> Any:
    r = jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS)
    return x * r * w, (x * r, r, w)


def _backward(kept: Any, g: Any) -> Any:
    y, r, w = kept
    gy = g * w
    return r * (gy - y * (gy * y).mean(-1, keepdims=True)), (g * y).sum(0)


by_hand.defvjp(_forward, _backward)


@jax.custom_vjp
def without_gain(x: Any, w: Any) -> Any:
    return plain_norm(x, w)


without_gain.defvjp(_forward, lambda kept, g: (_backward(kept, g)[0], jnp.zeros_like(kept[2])))


class TestNnx:
    """flax.nnx: normalise, batch norm, dropout."""

    nnx = pytest.importorskip("flax.nnx")

    def pair(self, norm: Any, name: str = "gain", average: bool = False, **how: Any) -> Any:
        nnx = self.nnx

        class Module(nnx.Module):  # type: ignore[misc, name-defined]
            def __init__(self, H: int, name: str, norm: Any, average: bool, rngs: Any) -> None:
                setattr(self, name, nnx.Param(jnp.ones(H)))
                self.name, self.norm = name, norm
                self.batch = nnx.BatchNorm(H, rngs=rngs, momentum=1.0 if average else 0.9)
                self.at = "drop" if name == "scale" else "mask"
                setattr(self, self.at, nnx.Dropout(0.5, rngs=rngs))

            def __call__(self, x: Any) -> Any:
                return getattr(self, self.at)(self.norm(self.batch(x), getattr(self, self.name)[...]))

        def function(H: int, rngs: Any) -> Any:
            return Module(H, name, norm, average, rngs)

        def reference(H: int, rngs: Any) -> Any:
            return Module(H, "scale", plain_norm, False, rngs)

        given = {"random": True, "dtypes": ("float64", "float32"), **how}
        return gradgate.module_pair(function, reference, X, DIMS, {"scale": name, "drop": "mask"}, **given)

    def test_a_right_module_is_upheld_in_every_claim(self) -> None:
        upheld(self.pair(by_hand, composes=("jit",)))

    def test_a_gain_without_a_gradient_is_refuted(self) -> None:
        assert "module.scale" in refuted(self.pair(without_gain), "gradient_exact")

    def test_running_statistics_that_are_not_updated_are_refuted(self) -> None:
        assert "after the call" in refuted(self.pair(by_hand, average=True), "outputs")

    def test_parameters_and_statistics_are_inputs_of_their_own(self) -> None:
        pair = self.pair(by_hand)
        problem = pair.spec(B=3, H=2).build("jax")
        assert {"x", "module.scale", "module.batch.scale", "module.batch.bias"} == set(problem.params)
        assert {"module.batch.mean", "module.batch.var", "random_key"} == set(problem.data["given"])
        assert (to_numpy(problem.data["given"]["module.batch.mean"]) != 0).all()
        assert (to_numpy(problem.params["module.scale"]) != 1).all()


class TestLinen:
    """flax.linen: normalise, batch norm, dropout, in one compact call."""

    linen = pytest.importorskip("flax.linen")

    def pair(self, norm: Any, name: str = "gain", evaluates: bool = True, **how: Any) -> Any:
        nn = self.linen

        class Module(nn.Module):  # type: ignore[misc, name-defined]
            gain: str
            norm: Any
            evaluates: bool = True

            @nn.compact
            def __call__(self, x: Any, train: bool) -> Any:
                w = self.param(self.gain, nn.initializers.ones, (x.shape[-1],))
                average = not train and self.evaluates
                y = nn.BatchNorm(use_running_average=average, name="batch")(x)
                y = self.norm(y, w.astype(y.dtype))
                return nn.Dropout(0.5, deterministic=not train, name="drop")(y)

        given = {"random": True, "dtypes": ("float64", "float32"), **how}
        return gradgate.module_pair(
            lambda: Module(name, norm, evaluates),
            lambda: Module("scale", plain_norm),
            X,
            DIMS,
            {"scale": name},
            **given,
        )

    def test_a_right_module_is_upheld_in_every_claim(self) -> None:
        upheld(self.pair(by_hand, composes=("jit",)))

    def test_a_gain_without_a_gradient_is_refuted(self) -> None:
        assert "module.scale" in refuted(self.pair(without_gain), "gradient_exact")

    def test_batch_statistics_in_eval_mode_are_refuted(self) -> None:
        refuted(self.pair(by_hand, evaluates=False), "gradient_exact")


class TestEquinox:
    """equinox: normalise, batch norm with its state, dropout with its key."""

    eqx = pytest.importorskip("equinox")

    def pair(self, norm: Any, name: str = "gain", updates: bool = True, **how: Any) -> Any:
        eqx = self.eqx

        def call(module: Any, x: Any, state: Any, key: Any) -> Any:
            batch = jax.vmap(module.batch, axis_name="rows", in_axes=(0, None), out_axes=(0, None))
            y, after = batch(x, state)
            return module.drop(module.norm(y, module.weight), key=key), after if module.updates else state

        class Reference(eqx.Module):  # type: ignore[misc, name-defined]
            weight: Any
            batch: Any
            drop: Any
            norm: Any = eqx.field(static=True)
            updates: bool = eqx.field(static=True)

            def __init__(self, H: int, norm: Any, updates: bool) -> None:
                self.weight, self.norm, self.updates = jnp.ones(H), norm, updates
                self.batch = eqx.nn.BatchNorm(H, axis_name="rows", mode="batch")
                self.drop = eqx.nn.Dropout(0.5)

            def __call__(self, x: Any, state: Any, key: Any) -> Any:
                return call(self, x, state, key)

        given = {"random": True, "dtypes": ("float64", "float32"), **how}
        return gradgate.module_pair(
            lambda H: Reference(H, norm, updates), lambda H: Reference(H, plain_norm, True), X, DIMS, **given
        )

    def test_a_right_module_is_upheld_in_every_claim(self) -> None:
        pair = self.pair(by_hand, composes=("jit",))
        upheld(pair, besides=("gradient_exact",))  # sixty digits have no rule for a mean over a named axis

    def test_a_gain_without_a_gradient_is_refuted(self) -> None:
        assert "gradient of module.weight" in refuted(self.pair(without_gain), "gradient_float64")

    def test_state_that_is_not_updated_is_refuted(self) -> None:
        assert "after the call" in refuted(self.pair(by_hand, updates=False), "outputs")

    def test_a_module_without_state_is_called_without(self) -> None:
        eqx = self.eqx

        def linear(H: int, key: Any) -> Any:
            return eqx.nn.Linear(H, H, key=key)

        class Mine(eqx.nn.Linear):  # type: ignore[misc, name-defined]
            def __call__(self, x: Any, *, key: Any = None) -> Any:
                return self.weight @ x + self.bias

        pair = gradgate.module_pair(
            lambda H, key: Mine(H, H, key=key), linear, {"x": gradgate.normal("H")}, {"H": (2, 5)}, dtypes=("float64",)
        )
        upheld(pair, ("tree", "outputs", "gradient_exact"))


def test_the_mask_of_dropout_is_one_in_every_dtype() -> None:
    pair = TestNnx().pair(by_hand)
    masks = []
    for dtype in ("float64", "float32"):
        problem = pair.spec(dtype=dtype, B=4, H=5, seed=3, training=True).build("jax")
        with jax.enable_x64(dtype == "float64"):
            masks.append(pair.outputs("reference", problem, problem.params)["output"] == 0)
    assert (masks[0] == masks[1]).all()
    assert 0 < masks[0].sum() < 20


def test_what_is_no_module_is_refused_in_words() -> None:
    pair = gradgate.module_pair(lambda H: print, lambda H: sum, X, DIMS, framework="jax")
    with pytest.raises(gradgate.UsageError, match=r"made a builtin_function_or_method; legal: a torch\.nn\.Module"):
        _ = pair.kind


def test_a_builder_that_needs_more_than_dims_is_refused_in_words() -> None:
    def build(H: int, depth: int) -> Any:
        raise AssertionError

    with pytest.raises(gradgate.UsageError, match="needs 'depth', which is neither a dim"):
        _ = gradgate.module_pair(lambda H: build(H, 1), build, X, DIMS).kind
