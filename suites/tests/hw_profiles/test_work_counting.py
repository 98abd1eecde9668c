import pytest

from gradgate.hw_profiles import work
from gradgate.hw_profiles.profile import load

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402

N, LAYERS, BATCH = 32, 6, 16


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def product(m, k, n):
    """The number of multiplications and additions: each of m·n results is a sum of k terms."""
    return m * n * (2 * k - 1)


def compiled_flops(program, *arguments):
    return jax.jit(program).lower(*arguments).compile().cost_analysis()["flops"]


def linear_scan(w, x):
    return jax.lax.scan(lambda c, wi: (c @ wi, None), x, w)[0]


def nested(w, x):
    return jax.lax.scan(lambda c, _: (linear_scan(w, c), None), x, None, length=5)[0]


def mlp_scan(w, x):
    return jnp.sum(jax.lax.scan(lambda c, wi: (jnp.tanh(c @ wi), None), x, w)[0] ** 2)


def mlp_unrolled(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.sum(x**2)


W, X = shape(LAYERS, N, N), shape(BATCH, N)
STEP = product(BATCH, N, N)
SQUARE = product(8, 8, 8)


def test_a_dense_product_counts_its_closed_form():
    counted = work.of(lambda a, b: a @ b, (shape(3, 5, 7), shape(3, 7, 11)))
    assert counted.flops == 3 * product(5, 7, 11)
    assert counted.nominal_flops == 3 * 2 * 5 * 7 * 11


@pytest.mark.parametrize(("depth", "flops"), [(0, 0), (1, 5 * 11), (2, 3 * 5 * 11)])
def test_a_sum_of_one_term_has_no_addition(depth, flops):
    counted = work.of(lambda a, b: a @ b, (shape(5, depth), shape(depth, 11)))
    assert (counted.flops, counted.nominal_flops) == (flops, 2 * 5 * depth * 11)


def test_complex_products_count_their_real_operations():
    a = shape(4, 4, dtype=jnp.complex64)
    assert work.of(lambda a: a @ a, (a,)).flops == 6 * 4**3 + 2 * 4 * 4 * 3
    assert work.of(lambda a: a * a, (a,)).flops == 6 * 16


def test_a_scan_counts_its_length_and_a_nested_scan_the_product():
    assert work.of(linear_scan, (W, X)).flops == LAYERS * STEP
    assert work.of(nested, (W, X)).flops == 5 * LAYERS * STEP


def test_reverse_mode_through_a_scan_counts_three_products_a_step():
    counted = work.of(jax.grad(lambda w, x: linear_scan(w, x).sum()), (W, X))
    # The first step's cotangent of x is also computed, though it is not needed: a scan does the same at every step.
    dense, outer = STEP, product(N, BATCH, N)  # dense: for c, and for its cotangent; outer: for wi's gradient
    assert counted.flops == LAYERS * (2 * dense + outer)


@pytest.mark.parametrize("derive", [lambda f: f, lambda f: jax.grad(f, (0, 1))])
def test_a_scan_agrees_with_the_compilers_count_of_the_unrolled_program(derive):
    counted = work.of(derive(mlp_scan), (W, X))
    assert counted.nominal_flops == pytest.approx(
        compiled_flops(derive(mlp_unrolled), [shape(N, N)] * LAYERS, X), rel=0.01
    )
    assert counted.transcendentals == LAYERS * BATCH * N
    assert counted.exact


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_and_their_gradients_agree_with_the_compiler(padding, stride):
    image, kernel = shape(2, 12, 12, 3), shape(3, 3, 3, 8)

    def conv(i, k):
        return jax.lax.conv_general_dilated(i, k, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(i, k):
        return jnp.sum(conv(i, k) ** 2)

    assert work.of(conv, (image, kernel)).nominal_flops == compiled_flops(conv, image, kernel)
    gradient = jax.grad(loss, (0, 1))
    counted = work.of(gradient, (image, kernel)).nominal_flops
    assert counted == pytest.approx(compiled_flops(gradient, image, kernel), rel=0.01)


def test_elementwise_work_and_reductions_agree_with_the_compiler():
    counted = work.of(jax.nn.softmax, (shape(32, 64),))
    analysis = jax.jit(jax.nn.softmax).lower(shape(32, 64)).compile().cost_analysis()
    assert counted.flops == analysis["flops"]
    assert counted.transcendentals == analysis["transcendentals"]


@pytest.mark.parametrize(
    ("start", "goes_on", "step", "trips"),
    [
        (0, lambda i: i < 10, 1, 10),
        (0, lambda i: i < 10, 3, 4),
        (0, lambda i: i <= 9, 3, 4),
        (10, lambda i: i > 0, -2, 5),
        (10, lambda i: i >= 0, -5, 3),
        (0, lambda i: i != 6, 2, 3),
        (5, lambda i: i < 5, 1, 0),
    ],
)
def test_a_while_loop_with_a_counter_counts_its_trips(start, goes_on, step, trips):
    def program(x):
        return jax.lax.while_loop(lambda c: goes_on(c[0]), lambda c: (c[0] + step, c[1] @ c[1]), (start, x))[1]

    counted = work.of(program, (shape(8, 8),))
    assert counted.flops == trips * SQUARE
    assert counted.exact


def test_fori_loops_with_known_bounds_count_exactly():
    for bound in (7, jnp.int32(7)):
        counted = work.of(lambda x, n=bound: jax.lax.fori_loop(0, n, lambda _, c: c @ c, x), (shape(8, 8),))
        assert (counted.flops, counted.exact) == (7 * SQUARE, True)


def test_a_loop_that_may_end_early_counts_its_bound_and_says_so():
    def program(x):
        return jax.lax.while_loop(lambda c: (c[0] < 9) & (c[1][0, 0] < 1), lambda c: (c[0] + 1, c[1] @ c[1]), (0, x))[1]

    counted = work.of(program, (shape(8, 8),))
    assert counted.flops - 9 * SQUARE <= 10  # the loop condition's comparisons
    assert not counted.exact
    assert "upper bound" in counted.notes[0]


def test_a_loop_of_unknown_length_is_refused_unless_a_number_is_stated():
    def program(n, x):
        return jax.lax.fori_loop(0, n, lambda _, c: c @ c, x)

    arguments = (shape(dtype=jnp.int32), shape(8, 8))
    with pytest.raises(work.WorkError, match="trips="):
        work.of(program, arguments)
    assert work.of(program, arguments, trips=4).flops == 4 * SQUARE


def test_a_cond_counts_its_most_expensive_branch_and_says_so():
    counted = work.of(lambda p, x: jax.lax.cond(p, lambda a: a @ a, lambda a: a, x), (shape(dtype=bool), shape(8, 8)))
    assert counted.flops == SQUARE
    assert not counted.exact
    assert "most expensive branch" in counted.notes[0]


def test_jit_remat_and_custom_rules_count_what_they_run():
    @jax.custom_vjp
    def custom(x):
        return x @ x

    custom.defvjp(lambda x: (x @ x, x), lambda x, g: (g @ x.T @ x,))
    assert work.of(jax.jit(lambda x: jax.jit(custom)(x)), (shape(8, 8),)).flops == SQUARE
    assert work.of(jax.vjp(custom, jnp.ones((8, 8)))[1], (shape(8, 8),)).flops == 2 * SQUARE

    def loss(wrap):
        return lambda w, x: jnp.sum(jax.lax.scan(wrap(lambda c, wi: (jnp.tanh(c @ wi), None)), x, w)[0])

    plain, remat = (work.of(jax.grad(loss(wrap)), (W, X)) for wrap in (lambda f: f, jax.checkpoint))
    assert remat.flops - plain.flops == pytest.approx(LAYERS * STEP, rel=0.01)


def test_results_that_nothing_uses_count_nothing():
    assert work.of(lambda a: (a @ a, a)[1], (shape(8, 8),)).flops == 0


def test_a_linear_solve_counts_one_factorisation_and_two_triangular_solves():
    counted = work.of(jnp.linalg.solve, (shape(30, 30), shape(30, 4)))
    assert counted.flops == pytest.approx(2 / 3 * 30**3 + 2 * 30 * 30 * 4, rel=0.01)


def test_a_primitive_without_a_rule_is_named():
    counted = work.of(jnp.linalg.eigvalsh, (shape(8, 8),))
    assert any("'eigh'" in note for note in counted.notes)


def test_fused_chains_move_what_enters_and_leaves_them():
    n = 1000
    assert work.of(lambda a, b: jnp.tanh(a * b + a), (shape(n), shape(n))).bytes_moved == 3 * 4 * n
    assert work.of(lambda a: jnp.where(a > 0, a, 0.0) * 2, (shape(n),)).bytes_moved == 2 * 4 * n
    assert work.of(lambda a, b: a @ b, (shape(8, 16), shape(16, 4))).bytes_moved == 4 * (8 * 16 + 16 * 4 + 8 * 4)


def test_sharded_programs_count_all_devices_together():
    mesh = jax.sharding.AbstractMesh((4,), ("x",))
    spec = jax.sharding.PartitionSpec

    def program(x, w):
        return jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(spec("x"), spec()), out_specs=spec("x"))(x, w)

    assert work.of(program, (shape(16, 8), shape(8, 8))).flops == product(16, 8, 8)


def test_roofline_is_the_longer_of_arithmetic_and_traffic():
    h100 = load("nvidia-h100")
    assert work.roofline(h100, 989.4e12, 1, "bfloat16") == pytest.approx(1)
    assert work.roofline(h100, 1, 3352.3e9, "bfloat16") == pytest.approx(1)
    assert work.roofline(load("tpu-v3"), 123e12, 1, "bfloat16") == pytest.approx(2)  # a device is half a chip
    assert work.roofline(load("cpu"), 1, 1, "float32") is None
    assert work.roofline(load("tpu-v5p"), 1, 1, "float64") is None
    with pytest.raises(ValueError, match="legal: float64"):
        work.roofline(h100, 1, 1, "int8")


def test_torch_counts_products_forward_and_backward():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def program(a, b):
        torch.autograd.grad((a @ b).sum(), (a, b))

    a, b = torch.ones(8, 16, requires_grad=True), torch.ones(16, 4, requires_grad=True)
    assert work.torch_flops(program, a, b) == product(8, 16, 4) + product(8, 4, 16) + product(16, 8, 4)
