"""None, typed keys, complex and narrow numbers, sparse tensors: each works, or one sentence says what to do."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import gradgate
from gradgate import key, normal
from gradgate.suites.pairs.modules_bound import Bound
from gradgate.suites.pairs.modules_names import matched
from gradgate.suites.tests.pairs.verdicts import judged, upheld

CLAIMS = ("tree", "outputs", "gradient_exact", "gradient_float32", "pure")


def numpy_of(framework: str) -> Any:
    pytest.importorskip(framework)
    return importlib.import_module("torch" if framework == "torch" else "jax.numpy")


def pair(framework: str, function: Any, reference: Any, **inputs: Any) -> gradgate.Pair:
    return gradgate.Pair(
        function,
        reference,
        inputs or {"x": normal("T H")},
        {"T": (3, 1), "H": (4,)},
        dtypes=("float32",),
        framework=framework,
        name="unusual",
    )


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize(("factor", "right"), [(2.0, True), (2.1, False)])
def test_none_in_a_tree_stays_where_it_is(framework: str, factor: float, right: bool) -> None:
    xp = numpy_of(framework)

    def function(tree: Any) -> Any:
        assert tree["bias"] is None
        return {"y": factor * xp.tanh(tree["x"]), "cache": None}

    def reference(tree: Any) -> Any:
        return {"y": xp.tanh(tree["x"]) + xp.tanh(tree["x"]), "cache": tree["bias"]}

    found = pair(framework, function, reference, tree={"bias": None, "x": normal("T H")})
    if right:
        upheld(found, CLAIMS)
    else:
        assert judged(found, ("gradient_exact",))["gradient_exact"].verdict == "refuted"


@pytest.mark.parametrize(("shift", "verdict"), [(0, "upheld"), (1, "refuted")])
def test_a_typed_key_is_an_input_of_jax(shift: int, verdict: str) -> None:
    jax = pytest.importorskip("jax")

    def noisy(x: Any, k: Any, shift: int = 0) -> Any:
        assert jax.numpy.issubdtype(k.dtype, jax.dtypes.prng_key)
        return x * jax.random.normal(jax.random.fold_in(k, shift), x.shape, x.dtype)

    found = pair("jax", lambda x, k: noisy(x, k, shift), noisy, x=normal("T H"), k=key(typed=True))
    assert judged(found, ("gradient_exact",))["gradient_exact"].verdict == verdict


@pytest.mark.parametrize("framework", ["jax", "torch"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda y: y + 1j, r"output output of the reference is complex: let both functions return its real and imag"),
        (lambda y: y.to_sparse() if hasattr(y, "to_sparse") else y + 1j, "is (sparse|complex): let both functions"),
    ],
)
def test_an_output_that_cannot_be_judged_is_refused_in_words(framework: str, change: Any, said: str) -> None:
    numpy_of(framework)
    with pytest.raises(gradgate.UsageError, match=said):
        judged(pair(framework, lambda x: change(2 * x), lambda x: change(x + x)), ("outputs",))
    wrong = judged(pair(framework, lambda x: change(2 * x), lambda x: x + x), ("outputs",))["outputs"]
    assert wrong.verdict == "refuted"
    assert "another function: output output is" in wrong.reason


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_outputs_in_float16_are_judged(framework: str) -> None:
    xp = numpy_of(framework)

    def half(y: Any) -> Any:
        return y.half() if framework == "torch" else y.astype(xp.float16)

    upheld(pair(framework, lambda x: half(2 * x), lambda x: half(x + x)), ("outputs", "gradient_exact"))


@pytest.mark.parametrize("dtype", ["float8_e3m4", "complex64"])
def test_a_dtype_that_is_not_drawn_is_refused_in_words(dtype: str) -> None:
    with pytest.raises(
        gradgate.UsageError, match=f"no numbers of {dtype} are drawn; legal: bfloat16, float16, float32"
    ):
        pair("torch", lambda x: 2 * x, lambda x: x + x, x=normal("T", dtype=dtype))


def test_a_key_in_pytorch_is_refused_in_words() -> None:
    pytest.importorskip("torch")
    with pytest.raises(gradgate.UsageError, match="in PyTorch, random=True seeds"):
        judged(pair("torch", lambda x, k: 2 * x, lambda x, k: x + x, x=normal("T"), k=key()), ("tree",))


class Held(Bound):
    """A module with these parameters, which nobody calls."""

    def __init__(self, **shapes: tuple[int, ...]) -> None:
        import numpy as np

        self.parameters = {name.replace("_", "."): np.zeros(shape) for name, shape in shapes.items()}
        self.state: dict[str, Any] = {}

    def call(self, *given: Any) -> Any:
        """Nothing."""
        raise NotImplementedError


def test_stacked_layers_against_a_list_of_layers_are_named() -> None:
    listed, stacked = Held(layers_0_w=(4, 4), layers_1_w=(4, 4)), Held(layers_w=(2, 4, 4))
    for reference, function in ((listed, stacked), (stacked, listed)):
        with pytest.raises(gradgate.UsageError, match=r"layers.w looks like 2 stacked layers, layers.0.w and so on"):
            matched("mine", reference, function, {})
    with pytest.raises(gradgate.UsageError) as error:
        matched("mine", listed, Held(layers_w=(3, 4, 4)), {})
    assert "stacked layers" not in str(error.value)
