import os

import pytest

from gradgate.hw_profiles.profile import availability, load

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    # The user's cache must neither help these tests nor keep what they measure.
    patch = pytest.MonkeyPatch()
    patch.setenv("GRADGATE_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture
def need():
    """A function that skips the test, with the reason, if the compiler of a profile is not installed."""

    def check(name):
        present = availability(load(name))
        if not present.available:
            pytest.skip(f"{name}: {present.reason}")
        return name

    return check


PROGRAMS = """
import os, sys, time

def dense(n, layers=4):
    import jax, jax.numpy as jnp
    def loss(w, x):
        return jnp.sum(jax.lax.scan(lambda c, wi: (jnp.tanh(c @ wi), None), x, w)[0] ** 2)
    shape = jax.ShapeDtypeStruct
    return jax.grad(loss), (shape((layers, n, n), jnp.float32), shape((8, n), jnp.float32))

def die():
    os._exit(3)

def die_once(flag):
    if not os.path.exists(flag):
        open(flag, "w").close()
        os._exit(3)
    return dense(8)

def hang():
    while True:
        time.sleep(0.1)

def leave():
    raise SystemExit(4)
"""


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """The name of a module of programs that worker processes can import."""
    (tmp_path / "gradgate_test_programs.py").write_text(PROGRAMS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    return "gradgate_test_programs"
