"""`linear_attention` as pairs: upheld without edits, refuted with each bug. Wrong use raises a clear error."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

import pytest

from gradgate.references.contract import FRAMEWORKS, installed
from gradgate.references.errors import UsageError
from gradgate.references.performer.operands import form_of
from gradgate.suites.bugs.entries import EntryMutant
from gradgate.suites.bugs.entries_performer import MUTANTS
from gradgate.suites.bugs.entry_pairs import performer
from gradgate.suites.tests.pairs.verdicts import judged, refuted, upheld

THERE = [framework for framework in FRAMEWORKS if installed(framework)]
USUAL = ("tree", "outputs", "gradient_exact", "gradient_float64", "gradient_bfloat16", "options", "residual_bytes_L")


def entry(framework: str) -> Any:
    return importlib.import_module(f"gradgate.in_{framework}")


def ones(framework: str, *shape: int, dtype: str = "float32") -> Any:
    xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")
    return xp.ones(shape, dtype=getattr(xp, dtype))


@pytest.mark.parametrize("framework", THERE)
@pytest.mark.parametrize("name", ["linear_attention", "favor", "grouped"])
def test_a_pair_is_upheld(name: str, framework: str) -> None:
    upheld(getattr(performer, f"{name}_{framework}"), USUAL)


@pytest.mark.parametrize("framework", THERE)
@pytest.mark.parametrize(("feature_map", "heads"), [("elu", 4), ("elu", 2), (lambda x: x * x + 0.5, 4)])
def test_padding_counts_as_if_it_were_not_there_whatever_its_numbers_are(
    feature_map: Any, heads: int, framework: str
) -> None:
    import numpy as np

    xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")
    rng = np.random.default_rng(0)
    q = rng.standard_normal((heads, 9, 3)).astype(np.float32)
    k, v = rng.standard_normal((2, 2, 9, 3)).astype(np.float32)
    real = np.array([False, True, True, False, False, True, True, False, True])
    spoilt = [np.where(real[:, None], x, np.nan).astype(np.float32) for x in (q, k, v)]
    short = [x[:, real] for x in (q, k, v)]
    more = {"feature_map": feature_map, "chunk": 4, "return_state": True}

    def run(x: Any, y: Any, z: Any, **mask: Any) -> Any:
        y, (S, z) = entry(framework).linear_attention(x, y, z, **more, **mask)
        return y, S, z

    def with_gradients(arrays: Any, **mask: Any) -> list[Any]:
        given = [xp.asarray(x) for x in arrays]
        if framework == "jax":
            out, pull = importlib.import_module("jax").vjp(lambda *x: run(*x, **mask), *given)
            return [np.asarray(x) for x in (*out, *pull(out))]
        given = [x.requires_grad_() for x in given]
        out = run(*given, **mask)
        grads = xp.autograd.grad(out, given, [y.detach() for y in out])
        return [x.detach().numpy() for x in (*out, *grads)]

    masked, plain = with_gradients(spoilt, mask=xp.asarray(real)), with_gradients(short)
    for n, (one, other) in enumerate(zip(masked, plain, strict=True)):
        if n in (1, 2):  # the state
            assert abs(one - other).max() < 1e-5
        else:
            assert abs(one[:, real] - other).max() < 1e-5
            assert not one[:, ~real].any()
    unmasked = with_gradients([np.nan_to_num(x) for x in spoilt])
    assert abs(unmasked[0][:, real] - plain[0]).max() > 1e-3


@pytest.mark.parametrize("framework", THERE)
def test_a_layer_with_fewer_heads_of_keys_repeats_them(framework: str) -> None:
    import numpy as np

    rngs = {"rngs": pytest.importorskip("flax.nnx").Rngs(0)} if framework == "jax" else {}

    def make(**more: Any) -> Any:
        return entry(framework).LinearAttention(8, heads=4, chunk=3, **rngs, **more)

    xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")
    x = xp.asarray(np.random.default_rng(0).standard_normal((2, 7, 8)).astype(np.float32))
    real = xp.asarray(np.arange(7) != 2)
    few, many = make(key_heads=2), make()
    for name in ("query", "key", "value", "out"):
        one, other = getattr(few, name), getattr(many, name)
        if framework == "torch":
            weight = one.weight.detach()
            repeated = weight.unflatten(0, (-1, 2)).repeat_interleave(2, 0).flatten(0, 1)
            other.weight.data = repeated if name in ("key", "value") else weight
        else:
            weight = one.kernel[...]
            repeated = xp.repeat(weight.reshape(8, -1, 2), 2, axis=1).reshape(8, -1)
            other.kernel[...] = repeated if name in ("key", "value") else weight
    assert few.key_heads == 2

    def numbers(y: Any) -> Any:
        return np.asarray(y if framework == "jax" else y.detach())

    for more in ({}, {"mask": real}):
        assert abs(numbers(few(x, **more)) - numbers(many(x, **more))).max() < 1e-5
    assert abs(numbers(few(x, mask=real)) - numbers(few(x))).max() > 1e-3
    with pytest.raises(UsageError, match="key_heads must divide heads=4"):
        make(key_heads=3)


@pytest.mark.parametrize("framework", THERE)
def test_a_layer_is_upheld(framework: str) -> None:
    if framework == "jax":
        pytest.importorskip("flax")
    upheld(getattr(performer, f"layer_of_{framework}"), ("tree", "gradient_exact"))


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if installed(m.framework)], ids=lambda mutant: mutant.name)
def test_a_bug_is_refuted(mutant: EntryMutant) -> None:
    refuted(mutant.broken(), mutant.kill, examples=12)


@pytest.mark.parametrize("framework", THERE)
def test_plain_attention_does_not_keep_the_promise_about_bytes(framework: str) -> None:
    right: Any = getattr(performer, f"linear_attention_{framework}")
    plain: Any = getattr(performer, f"plain_{framework}")
    keeps = dataclasses.replace(
        right,
        function=lambda q, k, v, *, feature_map="elu", chunk=64: plain(q, k, v, feature_map=feature_map),
        name="plain_keeps",
    )
    found = judged(keeps, ("residual_bytes_of_reference", "residual_bytes_L"))
    assert {verdict.verdict for verdict in found.values()} == {"refuted"}
    upheld(right, ("residual_bytes_of_reference", "residual_bytes_L"))


@pytest.mark.parametrize("framework", THERE)
class TestRefusals:
    def test_bidirectional_prefix_sums(self, framework: str) -> None:
        x = ones(framework, 5, 2)
        with pytest.raises(UsageError, match=r"without causality there are none.*use y = fq @ \(mT\(fk\) @ v\)"):
            entry(framework).linear_attention(x, x, x, causal=False)

    def test_an_unknown_feature_map(self, framework: str) -> None:
        x = ones(framework, 5, 2)
        with pytest.raises(UsageError, match=r"unknown feature_map 'elo'; legal: elu, favor, .*; nearest: elu"):
            entry(framework).linear_attention(x, x, x, feature_map="elo")
        with pytest.raises(UsageError, match=r"is a name .* or a function of an array, not 3"):
            entry(framework).linear_attention(x, x, x, feature_map=3)

    def test_a_feature_map_that_makes_another_length(self, framework: str) -> None:
        x = ones(framework, 5, 2)
        with pytest.raises(UsageError, match=r"feature_map made \(4, 2\) of q .* one token at a time"):
            entry(framework).linear_attention(x, x, x, feature_map=lambda x: x[1:])

    def test_shapes_that_do_not_fit(self, framework: str) -> None:
        q, k = ones(framework, 4, 5, 2), ones(framework, 2, 5, 2)
        with pytest.raises(UsageError, match=r"q \(2, 5, 2\), k \(4, 5, 2\).*the heads of k and v divide those of q"):
            entry(framework).linear_attention(k, q, q)

    def test_a_mask_that_does_not_fit(self, framework: str) -> None:
        q, real = ones(framework, 2, 3, 5, 2), ones(framework, 2, 5, dtype="bool")
        with pytest.raises(UsageError, match=r"mask is \(2, 5\), bool; legal: booleans \(..., 5\).*mask\[:, None, :\]"):
            entry(framework).linear_attention(q, q, q, mask=real)
        with pytest.raises(UsageError, match=r"mask is \(5,\), float32; legal: booleans"):
            entry(framework).linear_attention(q, q, q, mask=ones(framework, 5))

    def test_dtypes_that_differ_or_are_no_floats(self, framework: str) -> None:
        q, k = ones(framework, 5, 2), ones(framework, 5, 2, dtype="bfloat16")
        with pytest.raises(UsageError, match="float32, bfloat16, bfloat16; legal: one dtype"):
            entry(framework).linear_attention(q, k, k)
        whole = ones(framework, 5, 2, dtype="int32")
        with pytest.raises(UsageError, match="are int32; legal: floating numbers"):
            entry(framework).linear_attention(whole, whole, whole)

    @pytest.mark.parametrize("chunk", [0, -1, 1.5, None, True])
    def test_a_chunk_that_is_no_number_of_tokens(self, framework: str, chunk: Any) -> None:
        x = ones(framework, 5, 2)
        with pytest.raises(UsageError, match="chunk is a whole number of tokens, at least 1"):
            entry(framework).linear_attention(x, x, x, chunk=chunk)

    def test_a_projection_that_is_missing_misplaced_or_misshapen(self, framework: str) -> None:
        x, call = ones(framework, 5, 2), entry(framework).linear_attention
        with pytest.raises(UsageError, match=r"needs projection=, an array \(features, 2\).*favor_projection"):
            call(x, x, x, feature_map="favor")
        with pytest.raises(UsageError, match="for feature_map='favor' alone, not for 'elu'"):
            call(x, x, x, projection=x)
        with pytest.raises(UsageError, match=r"shape \(3, 3\); legal: \(features, 2\)"):
            call(x, x, x, feature_map="favor", projection=ones(framework, 3, 3))

    def test_a_layer_whose_heads_do_not_divide_its_width(self, framework: str) -> None:
        extra = {}
        if framework == "jax":
            extra = {"rngs": pytest.importorskip("flax.nnx").Rngs(0)}
        with pytest.raises(UsageError, match="heads must divide width"):
            entry(framework).LinearAttention(6, heads=4, **extra)
        with pytest.raises(UsageError, match="features=3 is for feature_map='favor' alone"):
            entry(framework).LinearAttention(6, features=3, **extra)


@pytest.mark.parametrize("framework", THERE)
class TestOtherTypes:
    def test_operands_that_are_no_arrays(self, framework: str) -> None:
        x = ones(framework, 5, 2)
        with pytest.raises(UsageError, match="k is a list; legal: "):
            entry(framework).linear_attention(x, [1.0], x)

    def test_a_feature_map_that_returns_no_array(self, framework: str) -> None:
        x = ones(framework, 5, 2)
        with pytest.raises(
            UsageError, match=r"feature_map returned a NoneType.* an instance of a module and not its class"
        ):
            entry(framework).linear_attention(x, x, x, feature_map=lambda x: None)

    def test_an_input_of_another_width(self, framework: str) -> None:
        extra = {"rngs": pytest.importorskip("flax.nnx").Rngs(0)} if framework == "jax" else {}
        layer = entry(framework).LinearAttention(6, **extra)
        with pytest.raises(UsageError, match=r"shape \(5, 4\); legal: \(..., length, 6\)"):
            layer(ones(framework, 5, 4))
        with pytest.raises(UsageError, match=r"whole numbers of at least 1; not heads=1, width=6\.0"):
            entry(framework).LinearAttention(6.0, **extra)

    def test_a_projection_without_rows(self, framework: str) -> None:
        key = (importlib.import_module("jax").random.key(0),) if framework == "jax" else ()
        with pytest.raises(UsageError, match="features is a whole number of at least 1, not 0"):
            entry(framework).favor_projection(*key, 0, 8)


@pytest.mark.parametrize("framework", THERE)
def test_padding_behind_the_last_token_changes_nothing_before_it(framework: str) -> None:
    import numpy as np

    xp = importlib.import_module("jax.numpy" if framework == "jax" else "torch")
    x = xp.asarray(np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32))
    short, whole = (entry(framework).linear_attention(y, y, y, chunk=4) for y in (x[:6], x))
    assert float(abs(short - whole[:6]).max()) < 1e-6
    changed = entry(framework).linear_attention(x, x[::1] * 2, x, chunk=4)
    assert float(abs(short - changed[:6]).max()) > 1e-3


def test_the_form_is_the_one_that_holds_fewer_numbers() -> None:
    assert form_of(64, 64, 65) == "matrix"
    assert form_of(64, 3, 2) == "block"


def test_without_flax_the_layer_of_jax_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    pytest.importorskip("jax")
    place = "gradgate.references.performer.in_jax.linear_attention_module"
    monkeypatch.delitem(sys.modules, place, raising=False)
    monkeypatch.setitem(sys.modules, "flax", None)
    with pytest.raises(UsageError, match=r"pip install flax; or call gradgate\.in_jax\.linear_attention"):
        importlib.import_module(place)
