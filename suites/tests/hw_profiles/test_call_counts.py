import pytest

from gradgate.hw_profiles import work
from gradgate.hw_profiles.calls import Calls, marked, torch_calls

LAYERS = 5


def test_jax_counts_evaluations_vjps_and_jvps_with_loops_and_remat():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jnp = jax.numpy
    layer = marked(lambda w, x: jnp.tanh(x @ w), "layer")
    w, x = jax.ShapeDtypeStruct((LAYERS, 8, 8), jnp.float32), jax.ShapeDtypeStruct((3, 8), jnp.float32)

    def loss(w, x, wrap=lambda f: f):
        return jnp.sum(jax.lax.scan(wrap(lambda c, wi: (layer(wi, c), None)), x, w)[0])

    def unrolled(w, x):
        for i in range(LAYERS):
            x = layer(w[i], x)
        return jnp.sum(x)

    def remat(w, x):
        return loss(w, x, jax.checkpoint)

    def forward(w, x):
        return jax.jvp(lambda w: loss(w, x), (w,), (w,))

    def counts(program):
        return work.of(program, (w, x)).calls["layer"]

    assert counts(loss) == Calls(LAYERS, 0, 0)
    assert counts(jax.grad(loss)) == Calls(LAYERS, 0, LAYERS)
    assert counts(jax.grad(unrolled)) == Calls(LAYERS, 0, LAYERS)  # the first layer's too: to its parameters
    assert counts(jax.grad(remat)) == Calls(2 * LAYERS, 0, LAYERS)
    assert counts(forward) == Calls(LAYERS, LAYERS, 0)
    assert counts(jax.vmap(jax.grad(loss), (None, 0))) == Calls(LAYERS, 0, LAYERS)


def test_a_mark_changes_no_value_and_no_flop():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jnp = jax.numpy

    def layer(w, x):
        return {"y": jnp.sin(x @ w), "n": 3}

    def loss(layer):
        return lambda w, x: layer(w, x)["y"].sum()

    w, x = jnp.eye(4), jnp.arange(8.0).reshape(2, 4)
    plain, with_marks = jax.grad(loss(layer)), jax.grad(loss(marked(layer, "layer")))
    assert (jax.jit(with_marks)(w, x) == plain(w, x)).all()
    assert work.of(with_marks, (w, x)).flops == work.of(plain, (w, x)).flops


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, on its first jvp
def test_torch_counts_evaluations_vjps_and_jvps():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.utils.checkpoint import checkpoint

    weights = [torch.eye(4, requires_grad=True) for _ in range(LAYERS)]
    x = torch.ones(2, 4)
    with torch_calls() as (counts, mark):
        layer = mark(lambda w, x: torch.sin(x @ w), "layer")

        def loss(weights, x, call=layer):
            for w in weights:
                x = call(w, x)
            return x.sum()

        torch.autograd.grad(loss(weights, x), weights)
        assert counts["layer"] == Calls(LAYERS, 0, LAYERS)
        rematted = loss(weights, x, lambda w, x: checkpoint(layer, w, x, use_reentrant=False))
        torch.autograd.grad(rematted, weights)
        assert counts["layer"] == Calls(3 * LAYERS, 0, 2 * LAYERS)
        torch.func.grad(loss)(weights, x)
        assert counts["layer"] == Calls(4 * LAYERS, 0, 3 * LAYERS)
        torch.func.jvp(lambda x: loss(weights, x), (x,), (x,))
        assert counts["layer"] == Calls(5 * LAYERS, LAYERS, 3 * LAYERS)
