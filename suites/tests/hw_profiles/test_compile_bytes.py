import json
import subprocess
import sys
import time

import pytest

from gradgate.hw_profiles import compiler_process
from gradgate.hw_profiles import profile as profiles
from gradgate.hw_profiles.compile import measure
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.profile import availability, load_all

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402

SPEC = jax.sharding.PartitionSpec


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def loss(w, x):
    return jnp.sum(jax.lax.scan(lambda c, wi: (jnp.tanh(c @ wi), None), x, w)[0] ** 2)


def test_the_host_measures_bytes_work_and_a_fingerprint():
    found = measure(jax.grad(loss), (shape(8, 64, 64), shape(32, 64)), "cpu")
    assert found.status == "measured"
    assert found.argument_bytes == (8 * 64 * 64 + 32 * 64) * 4
    assert found.output_bytes == 8 * 64 * 64 * 4
    # What backprop must keep: the input of every layer.
    assert found.temp_bytes >= 8 * 32 * 64 * 4
    assert found.required_bytes == found.temp_bytes + found.argument_bytes + found.output_bytes
    assert found.peak_bytes is None  # the host compiler's figure ignores rematerialisation
    assert found.fits is None  # how much memory the host has is not known
    assert found.nominal_flops == pytest.approx(3 * 8 * 2 * 32 * 64 * 64, rel=0.02)
    assert 0 < found.nominal_flops - found.flops == 8 * (2 * 32 * 64 + 64 * 64)  # one addition per sum of products
    assert found.fingerprint["profile_hash"]


def test_the_text_that_is_compiled_has_the_bytes_of_jits_own_compilation():
    arguments = (shape(8, 64, 64), shape(32, 64))
    own = jax.jit(jax.grad(loss)).lower(*arguments).compile().memory_analysis()
    found = measure(jax.grad(loss), arguments, "cpu")
    assert (found.temp_bytes, found.argument_bytes) == (own.temp_size_in_bytes, own.argument_size_in_bytes)


def test_a_measurement_survives_json():
    found = measure(loss, (shape(2, 8, 8), shape(4, 8)), "cpu")
    assert Measurement.from_json(json.loads(json.dumps(found.to_json()))) == found
    with pytest.raises(ValueError, match="not a measurement"):
        Measurement.from_json({"profile": "cpu", "status": "fine"})


def test_the_second_time_the_bytes_come_from_the_cache():
    arguments = (shape(3, 24, 24), shape(4, 24))
    first, second = (measure(jax.grad(loss), arguments, "cpu") for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert second.temp_bytes == first.temp_bytes
    assert not measure(jax.grad(loss), arguments, "cpu", use_cache=False).cached


def test_donated_arguments_are_aliases():
    found = measure(lambda x: x + 1, (shape(256),), "cpu", donate=(0,))
    assert found.alias_bytes == found.output_bytes == 1024
    assert found.required_bytes == found.temp_bytes + 1024


def test_x64_is_set_for_the_cell_and_the_global_flag_stays():
    before = jax.config.jax_enable_x64
    wide = measure(jnp.sin, (shape(100, dtype="float64"),), "cpu", x64=True)
    assert (wide.output_bytes, wide.x64) == (800, True)
    narrow = measure(jnp.sin, (shape(100, dtype="float64"),), "cpu")
    assert narrow.status == "failed"
    assert "float64 needs x64=True" in narrow.reason
    assert jax.config.jax_enable_x64 == before


def test_static_options_are_bound_before_tracing():
    found = measure(lambda x, times: jnp.tile(x, times), (shape(10),), "cpu", static={"times": 3})
    assert found.output_bytes == 120


def test_remat_that_works_is_seen_in_the_bytes(need):
    need("nvidia-h100")

    def temp(wrap):
        def deep(w, x):
            step = wrap(lambda c, wi: (jnp.tanh(jnp.sin(jnp.tanh(c @ wi)) @ wi.T), None))
            return jnp.sum(jax.lax.scan(step, x, w)[0])

        return measure(jax.grad(deep), (shape(16, 64, 64), shape(512, 64)), "nvidia-h100").temp_bytes

    assert temp(jax.checkpoint) < 0.6 * temp(lambda f: f)


@pytest.mark.parametrize("name", ["nvidia-h100", "tpu-v5e"])
def test_a_program_that_does_not_fit_is_a_result_with_the_bytes_it_wants(need, name):
    batch = 2**29  # one activation is 2**37 bytes
    found = measure(jax.grad(loss), (shape(2, 64, 64), shape(batch, 64)), need(name))
    assert found.fits is False
    assert found.ok
    assert found.required_bytes > 2 * batch * 64 * 4


def test_a_tpu_topology_gives_the_bytes_of_one_chip(need):
    need("tpu-v5p")
    n = 1024

    def program(x, w):
        def local(x, w):
            return jax.lax.psum(jnp.sum(jnp.tanh(x @ w)), "x")

        return jax.shard_map(local, in_specs=(SPEC("x"), SPEC()), out_specs=SPEC())(x, w)

    def chips(number):
        specs = (SPEC("x"), SPEC())
        return measure(jax.grad(program), (shape(n, n), shape(n, n)), "tpu-v5p", mesh={"x": number}, in_specs=specs)

    one, four = chips(1), chips(4)
    assert (one.argument_bytes, four.argument_bytes) == (2 * n * n * 4, (n // 4 + n) * n * 4)
    assert four.output_bytes == n * n  # a quarter of the gradient of x
    assert four.devices == 4
    assert four.flops == pytest.approx(one.flops, rel=0.01)
    refused = chips(8)
    assert refused.status == "refused"
    assert "the topology 4" in refused.reason


def test_a_mesh_on_a_profile_of_one_device_is_refused():
    assert "need a TPU profile" in measure(jnp.sin, (shape(8),), "nvidia-h100", mesh={"x": 4}).reason


def test_a_profile_without_compiler_still_counts_work():
    found = measure(lambda a: a @ a, (shape(8, 8),), "nvidia-k80")
    assert (found.status, found.flops) == ("unavailable", 8 * 8 * (2 * 8 - 1))
    assert "no compiler of today" in found.reason


def test_a_compiler_that_is_not_installed_is_a_status_that_names_the_extra(monkeypatch):
    monkeypatch.setattr(profiles, "installed", lambda packages: {"jax": "1", "jaxlib": "1"})
    found = measure(jnp.sin, (shape(8),), "tpu-v5p")
    assert found.status == "unavailable"
    assert "pip install 'gradgate[tpu]'" in found.reason


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), RecursionError()])
def test_a_program_that_cannot_be_traced_is_a_status_with_its_error(error):
    def program(x):
        raise error

    found = measure(program, (shape(8),), "cpu")
    assert found.status == "failed"
    assert type(error).__name__ in found.reason


def test_work_that_cannot_be_counted_leaves_the_bytes():
    found = measure(
        lambda n, x: jax.lax.fori_loop(0, n, lambda _, c: c @ c, x), (shape(dtype="int32"), shape(8, 8)), "cpu"
    )
    assert found.status == "measured"
    assert found.flops is None
    assert "trip" in found.reason


def test_work_that_is_not_exact_is_told_with_the_bytes():
    found = measure(jnp.linalg.eigvalsh, (shape(8, 8),), "cpu")
    assert found.status == "measured"
    assert "'eigh' has no rule" in found.reason


def test_a_compiler_that_crashes_takes_nothing_with_it(monkeypatch):
    compiler_process.close_all()
    # XLA ends its process if it does not know a flag.
    monkeypatch.setitem(compiler_process.FLAGS, "host", {"XLA_FLAGS": "--xla_no_such_flag=1"})
    crashed = measure(jnp.cos, (shape(8),), "cpu", use_cache=False)
    assert crashed.status == "crashed"
    assert "xla_no_such_flag" in crashed.reason
    monkeypatch.undo()
    assert measure(jnp.cos, (shape(8),), "cpu", use_cache=False).status == "measured"


def test_a_compiler_that_takes_too_long_is_ended():
    compiler_process.close_all()
    start = time.monotonic()
    late = measure(jnp.cos, (shape(9),), "cpu", use_cache=False, limit=0.05)  # starting takes longer
    assert late.status == "timeout"
    assert "0.05 s" in late.reason
    assert time.monotonic() - start < 5
    assert measure(jnp.cos, (shape(9),), "cpu", use_cache=False).status == "measured"


BYTES_OF_EVERY_PROFILE = """
import json, sys
import jax, jax.numpy as jnp
from gradgate.hw_profiles.compile import measure
from gradgate.hw_profiles.profile import availability, load_all

def loss(w, x):
    def layer(c, wi):
        return jnp.tanh(jax.lax.conv(c, wi, (1, 1), "SAME")), None
    return jnp.sum(jax.lax.scan(layer, x, w)[0] ** 2)

shape = jax.ShapeDtypeStruct
found = {}
for profile in load_all()[:: int(sys.argv[1])]:
    if availability(profile).available:
        arguments = (shape((4, 8, 8, 3, 3), jnp.float32), shape((8, 8, 32, 32), jnp.float32))
        record = measure(jax.grad(loss), arguments, profile, use_cache=False).to_json()
        assert record["status"] == "measured", record
        found[profile.name] = record
print(json.dumps(found))
"""


def test_every_profile_gives_the_same_bytes_in_two_processes():
    # In opposite orders: an effect of what the compiler process did before would give different bytes.
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", BYTES_OF_EVERY_PROFILE, step], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for step in ("1", "-1")
    ]
    one, other = (json.loads(run.communicate()[0]) for run in runs)
    assert one == other
    assert set(one) == {each.name for each in load_all() if availability(each).available}
    for name, record in one.items():
        assert record["required_bytes"] > 0, name
        assert record["peak_bytes"] or name == "cpu"
