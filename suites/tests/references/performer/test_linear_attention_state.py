"""`linear_attention` with a state in and out: pieces with the carried state are the whole, in values and gradients."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate.references.backends import precision, to_backend, to_numpy
from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.references.errors import UsageError
from gradgate.suites.bugs.entry_pairs import performer
from gradgate.suites.tests.pairs.verdicts import judged, upheld

THERE = [framework for framework in FRAMEWORKS if installed(framework)]
CLAIMS = (
    "tree",
    "outputs",
    "gradient_exact",
    "gradient_float64",
    "gradient_bfloat16",
    "cotangents",
    "options",
    "second_order_exact",
    "residual_bytes_L",
)
LEADING, LENGTH, WIDTH, VALUES, M = (2, 3), 9, 4, 5, 6
MAPS = ("elu", "identity", "favor")


def attention(framework: str) -> Callable[..., Any]:
    found: Callable[..., Any] = importlib.import_module(f"gradgate.in_{framework}").linear_attention
    return found


def operands(feature_map: str) -> list[Any]:
    """q, k, v, and the projection of ``favor``, in float64."""
    draws = np.random.default_rng(0)
    made = [draws.standard_normal((*LEADING, LENGTH, size)) for size in (WIDTH, WIDTH, VALUES)]
    return [*made, draws.standard_normal((M, WIDTH))] if feature_map == "favor" else made


def options(feature_map: str, projection: tuple[Any, ...], chunk: int) -> dict[str, Any]:
    more = {"projection": projection[0]} if projection else {}
    return {"feature_map": feature_map, "normalise": feature_map != "identity", "chunk": chunk, **more}


def flat(y: Any, state: Any) -> list[Any]:
    return [y, *(state if isinstance(state, tuple) else (state,))]


def whole(framework: str, feature_map: str) -> Callable[..., list[Any]]:
    def call(q: Any, k: Any, v: Any, *projection: Any) -> list[Any]:
        return flat(*attention(framework)(q, k, v, return_state=True, **options(feature_map, projection, 64)))

    return call


def pieces(
    framework: str, feature_map: str, cut: int = 5, between: Callable[[Any], Any] = lambda state: state
) -> Callable[..., list[Any]]:
    """Two calls, with `between` applied to each array of the state on its way."""
    xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")

    def call(q: Any, k: Any, v: Any, *projection: Any) -> list[Any]:
        given = options(feature_map, projection, 2)
        start, end = (tuple(x[..., span, :] for x in (q, k, v)) for span in (slice(cut), slice(cut, None)))
        first, state = attention(framework)(*start, return_state=True, **given)
        state = tuple(map(between, state)) if isinstance(state, tuple) else between(state)
        rest, last = attention(framework)(*end, state=state, return_state=True, **given)
        return flat(xp.concatenate([first, rest], -2), last)

    return call


def outcome(framework: str, function: Callable[..., list[Any]], arrays: list[Any]) -> tuple[list[Any], list[Any]]:
    """The values of `function` and, for fixed cotangents, its gradients; as NumPy arrays of float64."""
    draws = np.random.default_rng(1)
    with precision(framework, "float64"):
        own = [to_backend(framework, x, "float64") for x in arrays]
        if framework == "jax":
            import jax

            found, pull = jax.vjp(function, *own)
            pulled = pull([to_backend("jax", draws.standard_normal(x.shape), "float64") for x in found])
        else:
            import torch

            own = [x.requires_grad_() for x in own]
            found = function(*own)
            cotangents = [to_backend("torch", draws.standard_normal(tuple(x.shape)), "float64") for x in found]
            pulled = torch.autograd.grad(found, own, cotangents)
        return [to_numpy(x) for x in found], [to_numpy(x) for x in pulled]


def difference(first: list[Any], second: list[Any]) -> float:
    assert [x.shape for x in first] == [x.shape for x in second]
    assert {x.dtype for x in (*first, *second)} == {np.dtype(np.float64)}
    return max(float(abs(x - y).max()) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("framework", THERE)
class TestPieces:
    @pytest.mark.parametrize("feature_map", MAPS)
    @pytest.mark.parametrize("cut", [5, 0, LENGTH])
    def test_two_pieces_are_the_whole(self, framework: str, feature_map: str, cut: int) -> None:
        arrays = operands(feature_map)
        values, gradients = outcome(framework, whole(framework, feature_map), arrays)
        found = outcome(framework, pieces(framework, feature_map, cut), arrays)
        assert difference(values, found[0]) < 1e-12
        assert difference(gradients, found[1]) < 1e-11

    def test_a_state_without_gradient_is_found_in_the_gradients(self, framework: str) -> None:
        stop: Callable[[Any], Any] = lambda x: x.detach()  # noqa: E731 - a twin of two frameworks
        if framework == "jax":
            import jax

            stop = jax.lax.stop_gradient
        values, gradients = outcome(framework, whole(framework, "elu"), operands("elu"))
        found = outcome(framework, pieces(framework, "elu", between=stop), operands("elu"))
        assert difference(values, found[0]) < 1e-12
        assert difference(gradients, found[1]) > 1e-2

    def test_a_state_that_is_lost_is_found_in_the_values(self, framework: str) -> None:
        values, _ = outcome(framework, whole(framework, "elu"), operands("elu"))
        lost, _ = outcome(framework, pieces(framework, "elu", between=lambda x: 0 * x), operands("elu"))
        assert difference(values, lost) > 1e-2


@pytest.mark.parametrize("framework", THERE)
class TestPairs:
    def test_a_pair_is_upheld(self, framework: str) -> None:
        upheld(getattr(performer, f"carried_{framework}"), CLAIMS)

    def test_plain_attention_with_a_state_does_not_keep_the_promise_about_bytes(self, framework: str) -> None:
        plain = performer.carried(framework)[1]

        def keeps(*arrays: Any, feature_map: str = "elu", chunk: int = 64) -> Any:
            return plain(*arrays, feature_map=feature_map)

        pair = dataclasses.replace(getattr(performer, f"carried_{framework}"), function=keeps, name="carried_keeps")
        found = judged(pair, ("residual_bytes_of_reference", "residual_bytes_L"))
        assert {verdict.verdict for verdict in found.values()} == {"refuted"}


# With one positive feature, y = (Σ k v)/(Σ k) does not depend on q: its gradient is 0 but for roundings.
@pytest.mark.parametrize("framework", THERE)
def test_bfloat16_outputs_do_not_make_the_gradient_coarse(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.random.default_rng(2)
    arrays = [draws.uniform(0.01, 1, (50, size)).astype(np.float32) for size in (1, 1, 3)]

    def slope() -> float:
        q, k, v = (to_backend(framework, x, "bfloat16") for x in arrays)
        if framework == "jax":
            import jax

            found = jax.grad(lambda q: attention("jax")(q, k, v, feature_map="relu").astype("float32").sum())(q)
        else:
            import torch

            q = q.requires_grad_()
            y = attention("torch")(q, k, v, feature_map="relu").float()
            (found,) = torch.autograd.grad(y.sum(), q)
        return float(abs(to_numpy(found).astype(np.float32)).max())

    assert slope() < 1e-4
    place = importlib.import_module(f"gradgate.references.performer.in_{framework}.linear_attention")
    monkeypatch.setattr(place, "_again", lambda given, v: False)
    assert slope() > 1e-2


@pytest.mark.parametrize("framework", THERE)
class TestRefusals:
    def given(self, framework: str, *shapes: tuple[int, ...], dtype: str = "float32") -> list[Any]:
        return [to_backend(framework, np.ones(shape, np.float32), dtype) for shape in shapes]

    def test_shapes_that_do_not_fit(self, framework: str) -> None:
        q, v, S, z = self.given(framework, (2, 7, 3), (2, 7, 4), (2, 3, 4), (2, 3))
        attention(framework)(q, q, v, state=(S, z))
        legal = r"legal: the pair \(S, z\) with S \(2, 3, 4\), z \(2, 3\)"
        with pytest.raises(UsageError, match=rf"the state does not fit: S \(2, 3, 4\), z \(2, 3, 4\); {legal}"):
            attention(framework)(q, q, v, state=(S, S))
        with pytest.raises(UsageError, match=rf"S \(3, 4\), z \(3,\); {legal}"):
            attention(framework)(q, q, v, state=(S[0], z[0]))

    def test_the_features_of_a_function_or_a_projection_count(self, framework: str) -> None:
        q, v, S, z, projection = self.given(framework, (7, 3), (7, 4), (3, 4), (3,), (5, 3))
        for more in ({"feature_map": "favor", "projection": projection}, {"feature_map": lambda x: x[..., :1] ** 2}):
            with pytest.raises(UsageError, match=r"S \(3, 4\), z \(3,\); legal: .* with S \([15], 4\), z \([15],\)"):
                attention(framework)(q, q, v, state=(S, z), **more)

    def test_no_pair_or_a_pair_too_many(self, framework: str) -> None:
        q, v, S, z = self.given(framework, (7, 3), (7, 4), (3, 4), (3,))
        with pytest.raises(UsageError, match=r"state is a \w+ \(\w+\); legal: the pair \(S, z\) with S \(3, 4\)"):
            attention(framework)(q, q, v, state=S)
        with pytest.raises(UsageError, match=r"state is a tuple \(\w+, NoneType\); legal: the pair"):
            attention(framework)(q, q, v, state=(S, None))
        attention(framework)(q, q, v, state=S, normalise=False)
        with pytest.raises(
            UsageError, match=r"legal: with normalise=False S \(3, 4\) alone, an array, such as return_s"
        ):
            attention(framework)(q, q, v, state=(S, z), normalise=False)

    def test_a_state_that_is_no_floats(self, framework: str) -> None:
        q, v, S = self.given(framework, (7, 3), (7, 4), (3, 4))
        (z,) = self.given(framework, (3,), dtype="int32")
        with pytest.raises(UsageError, match="the state is float32, int32; legal: floating numbers"):
            attention(framework)(q, q, v, state=(S, z))


def layer_of(framework: str, feature_map: str) -> Callable[..., Any]:
    """A `LinearAttention` of width 8 with two heads, in float32."""
    module = importlib.import_module(f"gradgate.in_{framework}").LinearAttention
    if framework == "jax":
        made = module(8, heads=2, feature_map=feature_map, chunk=4, rngs=pytest.importorskip("flax.nnx").Rngs(0))
    else:
        importlib.import_module("torch").manual_seed(0)
        made = module(8, heads=2, feature_map=feature_map, chunk=4)
    return made


def far(found: Any, wanted: Any) -> float:
    """The largest difference, relative to the largest number wanted."""
    one, other = to_numpy(found), to_numpy(wanted)
    return float(abs(one - other).max() / abs(other).max())


@pytest.mark.parametrize("framework", THERE)
class TestLayer:
    @pytest.mark.parametrize("feature_map", MAPS)
    def test_a_prompt_and_then_token_by_token_is_the_whole(self, framework: str, feature_map: str) -> None:
        layer, x = layer_of(framework, feature_map), self.tokens(framework)
        wanted, last = layer(x, return_state=True)
        assert far(layer(x), wanted) == 0
        y, state = layer(x[:, :5], return_state=True)
        found = [y]
        for token in range(5, LENGTH):
            y, state = layer(x[:, token : token + 1], state=state, return_state=True)
            found.append(y)
        for token, y in zip((0, *range(5, LENGTH)), found, strict=True):
            assert far(y, wanted[:, token : token + y.shape[1]]) < 1e-6
        for one, other in zip(flat(0, state)[1:], flat(0, last)[1:], strict=True):
            assert far(one, other) < 1e-6

    def test_without_the_state_it_is_not(self, framework: str) -> None:
        layer, x = layer_of(framework, "elu"), self.tokens(framework)
        assert far(layer(x[:, 5:]), layer(x)[:, 5:]) > 1e-2

    @pytest.mark.parametrize(
        ("feature_map", "legal"), [("elu", r"S \(2, 2, 4, 4\), z \(2, 2, 4\)"), ("identity", "alone")]
    )
    def test_a_state_of_another_layer_is_refused(self, framework: str, feature_map: str, legal: str) -> None:
        x = self.tokens(framework)
        with pytest.raises(UsageError, match=legal):
            layer_of(framework, feature_map)(x, state=(x, x))

    @staticmethod
    def tokens(framework: str) -> Any:
        return to_backend(framework, np.random.default_rng(2).standard_normal((2, LENGTH, 8)), "float32")


@pytest.mark.parametrize("framework", THERE)
def test_a_layer_with_state_is_upheld(framework: str) -> None:
    if framework == "jax":
        pytest.importorskip("flax")
    upheld(getattr(performer, f"carried_layer_of_{framework}"), ("tree", "outputs", "gradient_exact", "cotangents"))
