"""Promises of pairs about bytes and work: true ones are upheld and false ones are refuted, in both frameworks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gradgate
from gradgate import at_most, grows, normal
from gradgate.suites.engine import search
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict

FLOAT32 = 4


def plain_torch(x: Any, w: Any) -> Any:
    return (x @ w.T).exp().sum()


def careful_torch(x: Any, w: Any) -> Any:
    """As `plain_torch`, but row by row and recomputed in the backward pass: no array has size T × V."""
    from torch.utils.checkpoint import checkpoint

    total = x.new_zeros(())
    for row in x:
        total = total + checkpoint(lambda row: (w @ row).exp().sum(), row, use_reentrant=False)
    return total


def plain_jax(x: Any, w: Any) -> Any:
    import jax.numpy as jnp

    return jnp.exp(x @ w.T).sum()


def careful_jax(x: Any, w: Any) -> Any:
    """As `careful_torch`."""
    import jax
    import jax.numpy as jnp

    @jax.checkpoint
    def row(total: Any, one: Any) -> Any:
        return total + jnp.exp(w @ one).sum(), None

    return jax.lax.scan(row, jnp.zeros((), x.dtype), x)[0]


def keeps_twice_torch(x: Any, w: Any) -> Any:
    z = x @ w.T
    return z.exp().sum() + z.sin().sum() * 0


def keeps_twice_jax(x: Any, w: Any) -> Any:
    import jax.numpy as jnp

    z = x @ w.T
    return jnp.exp(z).sum() + jnp.sin(z).sum() * 0


FUNCTIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "torch": {"plain": plain_torch, "careful": careful_torch, "twice": keeps_twice_torch},
    "jax": {"plain": plain_jax, "careful": careful_jax, "twice": keeps_twice_jax},
}


def pair(framework: str, name: str, *claims: Any) -> gradgate.Pair:
    return gradgate.Pair(
        FUNCTIONS[framework][name],
        reference=FUNCTIONS[framework]["plain" if name != "plain" else "careful"],
        inputs={"x": normal("T H"), "w": normal("V H", scale=0.1)},
        dims={"T": (3, 16), "H": (4,), "V": (5, 64)},
        dtypes=("float32",),
        claims=claims,
        framework=framework,
    )


def judged(declared: gradgate.Pair, claim: str, profile: str = "cpu") -> Verdict:
    [wanted] = [known for known in declared.promises if known.name == claim]
    method = declared.lowered
    return search.judge(Task.of(method, wanted, profile=profile), Subject(method, declared), Run(examples=1))


SIZES = {"T": (16, 32, 64, 128, 256), "V": (16, 32, 64, 128, 256)}


@pytest.mark.parametrize(
    ("name", "claim", "exponent", "verdict"),
    [
        ("plain", "residual_bytes_T", 1.0, "upheld"),
        ("plain", "residual_bytes_T", 0.5, "refuted"),
        ("careful", "flops_T", 1.0, "upheld"),
        ("plain", "flops_T", 0.0, "refuted"),
    ],
)
def test_growth_with_a_dim_is_judged(framework: str, name: str, claim: str, exponent: float, verdict: str) -> None:
    quantity, _, dim = claim.rpartition("_")
    found = judged(pair(framework, name, grows(quantity, sizes=SIZES, **{dim: exponent})), claim)
    assert found.verdict == verdict, found.reason
    assert verdict == "upheld" or f"claimed at most T^{exponent:g}" in found.reason


@pytest.mark.parametrize("quantity", ["residual_bytes", "temp_bytes"])
@pytest.mark.parametrize(("name", "verdict"), [("careful", "upheld"), ("plain", "refuted")])
def test_an_array_of_the_size_of_two_dims_is_found(framework: str, quantity: str, name: str, verdict: str) -> None:
    found = judged(pair(framework, name, grows(quantity, never="T*V", sizes=SIZES)), f"{quantity}_never_T_V")
    assert found.verdict == verdict, found.reason
    assert verdict == "upheld" or "per element of T·V; claimed none" in found.reason


def test_the_bytes_for_each_element_of_a_product_are_told() -> None:
    pytest.importorskip("torch")
    claim = grows("residual_bytes", never="T*V", sizes=SIZES)
    found = judged(pair("torch", "plain", claim), "residual_bytes_never_T_V")
    assert f"{FLOAT32} residual bytes per element of T·V" in found.reason


@pytest.mark.parametrize(("share", "verdict"), [(2.0, "upheld"), (1.9, "refuted")])
def test_a_share_of_the_reference_is_judged_at_the_largest_sizes(framework: str, share: float, verdict: str) -> None:
    claim = at_most("residual_bytes", of_reference=share)
    found = judged(pair(framework, "twice", claim), "residual_bytes_of_reference")
    assert found.verdict == verdict, found.reason
    assert 2 * 16 * 64 * FLOAT32 == 8192
    assert "8.19 kB, the reference 4.1 kB: 2 times" in found.reason


def test_a_share_of_the_reference_is_judged_at_the_sizes_that_are_asked_for() -> None:
    pytest.importorskip("torch")
    claim = at_most("residual_bytes", of_reference=0.5, at={"T": 8, "V": 8})
    found = judged(pair("torch", "twice", claim), "residual_bytes_of_reference")
    assert f"the reference {8 * 8 * FLOAT32}" in found.reason


@pytest.mark.parametrize("profile", ["nvidia-h100", "tpu-v5p"])
def test_a_law_is_judged_on_a_device_that_is_not_there(profile: str) -> None:
    pytest.importorskip("jax")
    sizes = {"T": (128, 256, 512, 1024, 2048), "V": (256, 384, 512, 768, 1024)}
    claim = grows("temp_bytes", never="T*V", sizes=sizes, at={"H": 128})
    found = judged(pair("jax", "careful", claim), "temp_bytes_never_T_V", profile)
    if found.verdict == "inapplicable" and "not installed" in found.reason:
        pytest.skip(found.reason)
    assert found.verdict == "upheld", found.reason


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: grows("temp_byte", T=1), "unknown quantity 'temp_byte'; legal: .*nearest: temp_bytes"),
        (lambda: grows("temp_bytes"), "names a dim, as in T=1, or a product"),
        (lambda: grows("temp_bytes", never="T"), "a product of two dims, such as 'T\\*V', not 'T'"),
        (lambda: grows("temp_bytes", never="T*T"), "a product of two dims"),
        (lambda: grows("temp_bytes", T="linear"), "T='linear' is no power: a number of 0 to 4, such as 1"),
        (lambda: grows("temp_bytes", T=1, sizes={"T": (64, 128)}), "sizes of T .* at least 5 .* factor of 4"),
        (lambda: at_most("residual_bytes", of_reference=0), "a positive share, such as 0.25, not 0"),
        (lambda: at_most("residual_bytes", of_reference="half"), "a positive share, such as 0.25, not 'half'"),
        (lambda: at_most("bytes", of_reference=1), "unknown quantity 'bytes'"),
    ],
)
def test_a_promise_that_makes_no_sense_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(gradgate.UsageError, match=said):
        make()


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (lambda: grows("temp_bytes", S=1), "unknown dim .*'S'; legal: H, T, V"),
        (lambda: grows("temp_bytes", never="T*W"), "unknown dim .*'W'; legal: H, T, V"),
        (lambda: at_most("temp_bytes", of_reference=1, at={"W": 3}), "unknown .*'W'; legal: "),
        (lambda: [grows("temp_bytes", T=1), grows("temp_bytes", T=2)], "temp_bytes_T is claimed twice"),
    ],
)
def test_a_promise_about_a_dim_that_is_not_declared_is_refused(claim: Callable[[], Any], said: str) -> None:
    found = claim()
    with pytest.raises(gradgate.UsageError, match=said):
        pair("torch", "plain", *(found if isinstance(found, list) else [found]))


def layered_jax(w: Any, x: Any, *, remat: bool = True) -> Any:
    """Many elementwise layers, one after the other; with `remat` all of them are computed again."""
    import jax
    import jax.numpy as jnp

    def every(x: Any) -> Any:
        for layer in range(24):
            x = jnp.sin(x * w[0] + layer)
        return x

    return (jax.checkpoint(every) if remat else every)(x).sum()


@pytest.mark.parametrize(("remat", "verdict"), [(True, "inapplicable"), (False, "refuted")])
def test_a_law_whose_rematerialisation_xla_undoes_on_a_cpu_is_inapplicable_there(remat: bool, verdict: str) -> None:
    pytest.importorskip("jax")
    declared = gradgate.Pair(
        lambda w, x: layered_jax(w, x, remat=remat),
        reference=lambda w, x: layered_jax(x=x, w=w, remat=False),
        inputs={"w": normal("H"), "x": normal("T")},
        dims={"H": (1,), "T": (1 << 16,)},
        dtypes=("float32",),
        claims=[at_most("temp_bytes", of_reference=0.001)],
        framework="jax",
        name="layered",
    )
    found = judged(declared, "temp_bytes_of_reference")
    assert found.verdict == verdict, found.reason
    assert ("XLA for CPUs drops the barriers" in found.reason) == remat


def in_buckets(x: Any, w: Any, *, buckets: int = 1) -> Any:
    """As `plain`, and keeps one more array for each bucket."""
    return sum(((x + i) @ w.T) ** 2 for i in range(buckets)).sum()


@pytest.mark.parametrize(("buckets", "verdict"), [(1, "upheld"), (4, "refuted")])
def test_a_promise_may_set_an_option(framework: str, buckets: int, verdict: str) -> None:
    claim = at_most("residual_bytes", of_reference=1.5, at={"buckets": buckets, "T": 16})
    declared = gradgate.Pair(
        in_buckets,
        reference=lambda x, w: ((x @ w.T) ** 2).sum(),
        inputs={"x": normal("T H"), "w": normal("V H")},
        dims={"T": (16,), "H": (4,), "V": (64,)},
        options={"buckets": (1, 4)},
        dtypes=("float32",),
        claims=[claim],
        framework=framework,
        name="bucketed",
    )
    found = judged(declared, "residual_bytes_of_reference")
    assert found.verdict == verdict, found.reason
    assert found.options == {"buckets": buckets}


def test_a_promise_at_a_value_that_an_option_does_not_have_is_refused() -> None:
    with pytest.raises(gradgate.UsageError, match="sets buckets=16; the option's values are 1, 4"):
        gradgate.Pair(
            in_buckets,
            reference=plain_torch,
            inputs={"x": normal("T")},
            dims={"T": (4,)},
            options={"buckets": (1, 4)},
            claims=[at_most("residual_bytes", of_reference=1, at={"buckets": 16})],
        )
