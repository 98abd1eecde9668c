import pytest

from gradgate.hw_profiles import call_count, trip_count, work
from gradgate.hw_profiles.calls import Calls, OnCall, marked, torch_marked

LAYERS = 5
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # from PyTorch's first jvp


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
        return call_count.of(program, (w, x)).calls["layer"]

    assert counts(loss) == Calls(LAYERS, 0, 0)
    assert counts(jax.grad(loss)) == Calls(LAYERS, 0, LAYERS)
    assert counts(jax.grad(unrolled)) == Calls(LAYERS, 0, LAYERS)  # the first layer has a VJP too, to its parameters
    assert counts(jax.grad(remat)) == Calls(2 * LAYERS, 0, LAYERS)
    assert counts(forward) == Calls(LAYERS, LAYERS, 0)
    assert counts(jax.vmap(jax.grad(loss), (None, 0))) == Calls(3 * LAYERS, 0, 3 * LAYERS)


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


def test_what_a_vmap_leaves_alone_is_computed_once_in_both_frameworks(jax, torch):
    def program(frame, layer, w, tangents):
        return frame.vmap(lambda t: frame.jvp(lambda w: layer(w).sum(), (w,), (t,))[1])(tangents)

    layer = marked(jax.numpy.sin, "layer")
    found = call_count.of(lambda w, t: program(jax, layer, w, t), (jax.numpy.ones(3), jax.numpy.ones((7, 3)))).calls
    assert found["layer"] == Calls(1, 7, 0)
    told = collected()
    program(torch.func, torch_marked(torch.sin, "layer", told), torch.ones(3), torch.ones(7, 3))
    assert told.calls == Calls(1, 7, 0)


def test_second_derivatives_count_as_derivatives_of_the_first_in_both_frameworks(jax, torch):
    def programs(frame, layer):
        def loss(x):
            return (layer(x) ** 2).sum()

        first = frame.grad(loss)
        return (
            (lambda x: frame.jvp(first, (x,), (x,))[1], Calls(1, 2, 1)),  # two JVPs: of the layer, and of its VJP
            (frame.grad(lambda x: (first(x) ** 2).sum()), Calls(1, 0, 3)),
            (frame.grad(lambda x: frame.jvp(loss, (x,), (x,))[1]), Calls(1, 1, 2)),
        )

    for program, expected in programs(jax, marked(jax.numpy.sin, "layer")):
        assert call_count.of(program, (jax.numpy.ones(3),)).calls["layer"] == expected
    told = collected()
    for program, expected in programs(torch.func, torch_marked(torch.sin, "layer", told)):
        told.calls = Calls()
        program(torch.ones(3))
        assert told.calls == expected


def test_a_vjp_counts_though_its_cotangent_is_a_constant(jax):
    layer = marked(lambda x: jax.numpy.sin(x).sum(), "layer")

    @jax.checkpoint
    def step(x, _):
        return x - jax.grad(layer)(x), None

    loss = jax.grad(lambda x: jax.lax.scan(step, x, None, LAYERS)[0].sum())
    assert call_count.of(loss, (jax.numpy.ones(3),)).calls["layer"].vjps >= 2 * LAYERS


def test_where_values_decide_the_text_says_that_it_does_not_tell(jax):
    layer = marked(jax.numpy.sin, "layer")

    def branch(x):
        return jax.lax.cond(x[0] > 0, layer, lambda x: x, x)

    def loop(x):
        return jax.lax.while_loop(lambda x: x[0] < 1, lambda x: layer(x) + 1, x)

    def either(x):
        return jax.lax.cond(x[0] > 0, lambda x: layer(x), lambda x: layer(x) + 1, x)

    def hidden(x):
        return jax.lax.while_loop(lambda x: x[0] < 1, lambda x: x + 1, layer(x))

    x = jax.numpy.ones(3)
    assert call_count.of(branch, (x,)).uncertain == ("which branch of a cond runs depends on values",)
    assert call_count.of(loop, (x,)).uncertain == ("how often a while loop runs depends on values",)
    for program in (either, hidden):
        found = call_count.of(program, (x,))
        assert (found.uncertain, found.calls["layer"]) == ((), Calls(1, 0, 0))


def test_branches_that_the_programs_own_integers_decide_are_known(jax):
    jnp, layer = jax.numpy, marked(jax.numpy.sin, "layer")
    wanted = jnp.asarray([True, False, True, True, False])

    def steps(x):
        def step(x, given):
            i, use = given
            x = jax.lax.cond(use, layer, lambda x: x, x)
            return jax.lax.cond(i == 2, lambda x: layer(layer(x)), lambda x: x, x), None

        return jax.lax.scan(step, x, (jnp.arange(5), wanted))[0]

    def counted(x):
        def step(carry, _):
            x, i = carry
            return (jax.lax.cond(i % 2 == 0, layer, lambda x: x, x), i + 1), None

        return jax.lax.scan(step, (x, 0), None, length=7, reverse=True)[0][0]

    def backward(x):
        return jax.grad(lambda x: steps(x).sum())(x)

    def beside_random_numbers(x):
        key = jax.random.key(jnp.asarray(3) + 4)
        return steps(x + jax.random.normal(key, (3,)) * jax.random.bits(key))

    x, five = jnp.ones(3), Calls(5)
    for program, expected in (
        (steps, five),
        (counted, Calls(4)),
        (backward, Calls(5, 0, 5)),
        (beside_random_numbers, five),
    ):
        found = call_count.of(program, (x,))
        assert (found.uncertain, found.calls["layer"]) == ((), expected)


def test_every_device_is_walked_through_where_its_number_decides(jax):
    mesh = jax.sharding.AbstractMesh((3,), ("device",))
    layer = marked(jax.numpy.sin, "layer")

    def on_device(x):
        def stage(x, s):
            mine = jax.lax.axis_index("device") <= s
            return jax.lax.cond(mine, layer, lambda x: x, x), None

        return jax.lax.scan(stage, x, jax.numpy.arange(3))[0]

    with jax.sharding.use_abstract_mesh(mesh):
        spec = jax.P("device")
        mapped = jax.shard_map(on_device, in_specs=spec, out_specs=spec, check_vma=False)
        found = call_count.of(mapped, (jax.ShapeDtypeStruct((6,), "float32"),))
    assert (found.uncertain, found.calls["layer"]) == ((), Calls(1 + 2 + 3))


def collected():
    """An `on_call` function that adds up the calls of one name."""

    class Collected:
        def __init__(self):
            self.calls = Calls()

        def __call__(self, name, kind, number):
            setattr(self.calls, kind, getattr(self.calls, kind) + number)

    made: OnCall = Collected()
    return made


def test_torch_counts_evaluations_vjps_and_jvps():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.utils.checkpoint import checkpoint

    weights = [torch.eye(4, requires_grad=True) for _ in range(LAYERS)]
    x = torch.ones(2, 4)
    told = collected()
    layer = torch_marked(lambda w, x: torch.sin(x @ w), "layer", told)

    def loss(weights, x, call=layer):
        for w in weights:
            x = call(w, x)
        return x.sum()

    torch.autograd.grad(loss(weights, x), weights)
    assert told.calls == Calls(LAYERS, 0, LAYERS)
    rematted = loss(weights, x, lambda w, x: checkpoint(layer, w, x, use_reentrant=False))
    torch.autograd.grad(rematted, weights)
    assert told.calls == Calls(3 * LAYERS, 0, 2 * LAYERS)
    torch.func.grad(loss)(weights, x)
    assert told.calls == Calls(4 * LAYERS, 0, 3 * LAYERS)
    torch.func.jvp(lambda x: loss(weights, x), (x,), (x,))
    assert told.calls == Calls(5 * LAYERS, LAYERS, 3 * LAYERS)


def test_what_a_scan_is_passed_is_read_in_both_of_jaxs_ways():
    class Tree:
        def unpack(self):
            return ("a", "b"), ("c",), ()

    assert trip_count.passed_to_scan({"num_consts": 2, "num_carry": 1}) == (2, 1)
    assert trip_count.passed_to_scan({"ft_in": Tree()}) == (2, 1)
