"""What the figures about whole sweeps of MixFlow-MG make of bytes: Table 4, Table 1, and techniques combined."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gradgate.references.backends import precision
from gradgate.references.bilevel.inner import transformer
from gradgate.references.bilevel.paper import buffers, combined, listings, regimes, sample, scale, sizes
from gradgate.references.bilevel.problem import BilevelSpec
from gradgate.references.errors import UsageError

STACK = "f32[2,32000,512]"


@pytest.fixture
def gains(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the gain of a setting (B, T, S) in place of a compiled one."""

    def put(gain: Any) -> None:
        monkeypatch.setattr(
            sizes, "gain_of", lambda spec, profile: gain(spec.batch, spec.steps, spec.sequence, profile)
        )

    return put


def test_a_sweep_holds_the_other_axes_at_their_largest_values(gains: Any) -> None:
    gains(lambda B, T, S, profile: 1e6 * B + 1e4 * T + S)
    found = regimes.sweep("nvidia-h100", "batch")
    assert list(found) == ["batch", *(f"{millions}M" for millions in regimes.MODELS)]
    assert found["106M"] == [1e6 * B + 8e4 + 8192 for B in (2, 4, 6, 8)]
    assert regimes.sweep("nvidia-h100", "sequence")["4516M"][0] == 8e6 + 8e4 + 1024


def test_exponents_tell_linear_growth_from_growth_towards_a_limit(gains: Any) -> None:
    gains(lambda B, T, S, profile: 1e-3 * S)
    assert regimes.exponents("nvidia-h100", "last over first") == pytest.approx(1)
    gains(lambda B, T, S, profile: 8 * (1 + 1e-3 * S) / (1 + 4e-3 * S) + S / (S + 2000))
    assert regimes.exponents("nvidia-h100", "last over first") < 1
    with pytest.raises(UsageError, match="legal: last over first"):
        regimes.exponents("nvidia-h100", "least")


def test_scatter_on_one_device_is_seen_beside_none_on_the_other(gains: Any) -> None:
    gains(lambda B, T, S, profile: 5 + (0.1 if profile == "nvidia-h100" else 0.4) * (B % 4 == 0))
    assert regimes.noisier() == pytest.approx(4, rel=0.1)


def test_the_share_that_fits_and_the_gain_that_most_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"gain": [float(i) for i in range(1, 16)], "total GiB of -+-": [79.0] * 3 + [81.0] * 12}
    monkeypatch.setattr(sizes, "table_1", lambda profile, task, configurations: found)
    assert sample.fitting("nvidia-h100", "-+-") == 20
    assert sample.fitting("tpu-v5p", "-+-") == 100
    assert sample.for_80_percent("nvidia-h100") == 4


def written(*writers: str) -> buffers.Assignment:
    """An assignment with one stack, and the instructions that write to it."""
    one = buffers.Buffer(STACK, 100, (1, 0), 0, 9)
    return buffers.Assignment(200, 9, tuple(dataclasses.replace(one, writer=writer) for writer in writers))


@pytest.mark.parametrize(("kinds", "gain"), [(True, 8.0), (False, 2.0)])
def test_arrays_like_the_parameters_are_static_by_their_kind(
    kinds: bool, gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peaks of 90 and 20 have 10 in arguments and arrays like θ; by the formula given here 70 and 10 are static."""
    named = dict.fromkeys(sizes.NAMES, 0)
    parts = {
        signs: {"total": 10 + scores, "named": named | {"like θ": 6, "arguments and results": 4, "scores": scores}}
        for signs, scores in ((scale.DEFAULT, 80), (scale.MIXFLOW, 10))
    }
    static = {scale.DEFAULT: 70, scale.MIXFLOW: 10}
    monkeypatch.setattr(sizes, "assigned", lambda spec, signs, profile: parts[signs])
    monkeypatch.setattr(scale, "static", lambda spec, signs: static[signs])
    found = sizes.ladder("tpu-v5p", [44], 64, kinds)
    assert found["dynamic of -+- over +++"] == [gain]


def test_an_update_besides_the_loops_own_is_counted(jax: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    filled = ("loop_broadcast_fusion", "", "loop_dynamic_update_slice_fusion.37")
    for writers, count in ((filled, 1), ((*filled, "copy.3"), 2)):
        monkeypatch.setattr(sizes, "_assignment", lambda *_, writers=writers: written(*writers))
        assert sizes.updates("nvidia-h100", 44) == count


def test_inverted_steps_on_four_devices_give_the_gradient_of_kept_ones_on_one(jax: Any) -> None:
    from jax.sharding import NamedSharding

    from gradgate.references.bilevel.in_jax.methods import mixflow
    from gradgate.references.bilevel.in_jax.static import momentum_inversion

    fields = combined.LARGE | {"dtype": "float64", "width": 8, "steps": 4, "momentum": 0.9}
    with precision("jax", "float64"):
        problem = BilevelSpec(**fields).build("jax")
        placed = combined.shared(problem, 4)
        mesh = jax.make_mesh((4,), ("device",))
        where = jax.tree.map(lambda spec: NamedSharding(mesh, spec), placed["in_specs"][0].params)
        loss, found = momentum_inversion(problem._replace(params=jax.device_put(problem.params, where)))
        right = mixflow(problem)
        assert {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(found)} == {4}
        assert loss == pytest.approx(float(right[0]), rel=1e-12)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(right[1]), strict=True):
            assert abs(one - other).max() < 1e-10 * abs(other).max()


def test_the_settings_of_table_4_are_legal_problems() -> None:
    size = sizes.TABLE_1[106]
    assert sizes.of_size(size, batch=8, steps=8, sequence=8192).width == 640
    assert scale.configuration(278).width == 1024


def test_programs_of_the_listings_have_the_sizes_of_the_table_and_layers_in_a_loop(
    monkeypatch: pytest.MonkeyPatch, jax: Any
) -> None:
    seen: dict[str, Any] = {}

    def recorded(program: Any, arguments: Any, spec: BilevelSpec, profile: str) -> dict[str, Any]:
        seen.update(tokens=arguments[1][0].shape, spec=spec, looped=transformer.scan is listings._loop)
        return {"total": 3 * scale.GiB}

    monkeypatch.setattr(sizes, "_kept", recorded)
    assert sizes.by_listings("tpu-v5p", "-++", 44, batch=3, sequence=4096) == 3
    assert seen["tokens"] == (2, 3, 4096)
    assert (seen["spec"].batch, seen["spec"].sequence, seen["spec"].layers) == (3, 4096, 8)
    assert seen["looped"]
    assert transformer.scan is not listings._loop


def test_layers_that_a_compiler_would_merge_are_refused_in_a_loop() -> None:
    with pytest.raises(UsageError, match="by_listings"):
        sizes.live_otherwise("nvidia-h100", "+++", 44, "unrolled")
