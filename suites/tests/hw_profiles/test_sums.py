"""A sum of n terms counts n − 1 additions, for every operation that sums and in both frameworks."""

import itertools
import random

import pytest

from gradgate.hw_profiles import work
from gradgate.hw_profiles.contraction import Contraction, Convolution, axis

jax = pytest.importorskip("jax", reason="JAX is not installed")
import jax.numpy as jnp  # noqa: E402


def shape(*sizes, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(sizes, dtype)


def flops(program, *arguments):
    return work.of(program, arguments).flops


def met(size, window, results, stride, low, hole, spread):
    """Every (position of the window, position in the window, element) where a window meets an element."""
    for place, tap in itertools.product(range(results), range(window)):
        at = place * stride + tap * spread - low
        if at % hole == 0 and 0 <= at // hole < size:
            yield place, tap, at // hole


def test_an_axis_counts_what_a_window_meets():
    draw = random.Random(0)
    for _ in range(2000):
        sizes = [draw.randint(*r) for r in ((0, 7), (1, 6), (0, 7), (1, 4), (-3, 5), (1, 4), (1, 4))]
        places = list(met(*sizes))
        distinct = [len({each[i] for each in places}) for i in range(3)]
        found = axis(*sizes)
        assert (found.pairs, found.results, found.taps, found.inputs) == (len(places), *distinct), sizes


def test_a_contraction_counts_by_both_conventions():
    assert Contraction.of_matrices(6, 5).operations() == 6 * (5 + 4)
    assert Contraction.of_matrices(6, 5).nominal() == 6 * (5 + 5)
    assert Contraction.of_matrices(6, 0) == Contraction(0, 0)
    assert Contraction(12, 4).operations(product=6, addition=2) == 12 * 6 + 8 * 2


def test_a_convolution_and_its_gradients_are_sums_of_the_same_products():
    # Along an axis of 4 elements with a padding of one, the 4 positions of a window of 3 meet 2 + 3 + 3 + 2 elements.
    one = Convolution([axis(4, 3, 4, low=1)], batch=2, inputs=6, outputs=5, groups=1)
    assert one.result == Contraction(10 * 2 * 6 * 5, 4 * 2 * 5)
    assert one.input_gradient == Contraction(10 * 2 * 6 * 5, 4 * 2 * 6)
    assert one.kernel_gradient == Contraction(10 * 2 * 6 * 5, 3 * 6 * 5)
    assert Convolution([axis(4, 3, 4, low=1)], 2, 6, 5, groups=3).products == one.products // 3


@pytest.mark.parametrize(
    ("program", "additions"),
    [
        (jnp.sum, 11),
        (lambda x: x.sum(0), 8),
        (jnp.max, 11),
        (lambda x: jnp.cumsum(x, 1), 9),
        (lambda x: jax.lax.cumsum(x, 0, reverse=True), 8),
        (lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2), (1, 1), "VALID"), 9),
        (lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 3), (1, 1), "SAME"), 3 * (1 + 2 + 2 + 1)),
    ],
)
def test_reductions_prefix_sums_and_windows_count_one_less_than_their_terms(program, additions):
    assert flops(program, shape(3, 4)) == additions


def test_a_sum_over_devices_counts_one_less_than_these():
    mesh, spec = jax.sharding.AbstractMesh((4,), ("x",)), jax.sharding.PartitionSpec

    def over(reduce, out):
        return jax.shard_map(reduce, mesh=mesh, in_specs=spec("x"), out_specs=out, check_vma=False)

    x = shape(16, 5)  # each of 4 devices holds 4·5 numbers
    assert flops(over(lambda a: jax.lax.psum(a, "x"), spec()), x) == 3 * 4 * 5
    assert flops(over(lambda a: jax.lax.psum_scatter(a, "x", tiled=True), spec("x")), x) == 3 * 4 * 5
    assert flops(over(lambda a: jax.lax.psum(a[0, 0], "x"), spec()), x) == 3


def test_a_ragged_product_counts_each_row_with_one_matrix():
    groups = shape(2, dtype=jnp.int32)
    assert flops(jax.lax.ragged_dot, shape(8, 4), shape(2, 4, 3), groups) == 8 * 3 * (2 * 4 - 1)


CONVOLUTIONS = [
    {"stride": 1, "padding": 1, "dilation": 1, "groups": 1},
    {"stride": 2, "padding": 0, "dilation": 1, "groups": 1},
    {"stride": 2, "padding": 3, "dilation": 2, "groups": 1},
    {"stride": 1, "padding": 1, "dilation": 1, "groups": 2},
]


@pytest.mark.parametrize("setting", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_torch_and_jax_count_a_convolution_and_its_gradients_alike(setting, transposed):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, kernel = (2, 4, 9, 7), (6, 4 // setting["groups"], 3, 3)

    def of_jax(i, k):
        two = [setting["padding"]] * 2, [setting["dilation"]] * 2
        return jax.lax.conv_general_dilated(
            i,
            k,
            [setting["stride"]] * 2,
            [(p, p) for p in two[0]],
            rhs_dilation=two[1],
            feature_group_count=setting["groups"],
        )

    y = jax.eval_shape(of_jax, shape(*x), shape(*kernel))
    forward = flops(of_jax, shape(*x), shape(*kernel))
    by_x = flops(lambda i, k, g: jax.vjp(lambda i: of_jax(i, k), i)[1](g), shape(*x), shape(*kernel), y)
    by_kernel = flops(lambda i, k, g: jax.vjp(lambda k: of_jax(i, k), k)[1](g), shape(*x), shape(*kernel), y)

    def ours(*wanted):
        def run():
            first = torch.ones(y.shape if transposed else x, requires_grad=wanted[0])
            second = torch.ones(kernel, requires_grad=wanted[1])
            if transposed:
                more = [size - smaller for size, smaller in zip(x[2:], _least(y.shape[2:], setting), strict=True)]
                made = torch.nn.functional.conv_transpose2d(first, second, output_padding=more, **setting)
            else:
                made = torch.nn.functional.conv2d(first, second, **setting)
            if any(wanted):
                made.sum().backward()

        return work.torch_flops(run)

    forwards, backwards = (by_x, forward) if transposed else (forward, by_x)
    assert ours(False, False) == forwards
    assert ours(True, False) - forwards == backwards
    assert ours(False, True) - forwards == by_kernel


def _least(sizes, setting):
    """Sizes of a transposed convolution's result without output padding."""
    reach = setting["dilation"] * 2 + 1
    return [(size - 1) * setting["stride"] - 2 * setting["padding"] + reach for size in sizes]


def test_torch_counts_products_with_vectors_and_none_of_integers():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b, v = torch.ones(4, 5), torch.ones(5, 6), torch.ones(5)
    for program, expected in (
        (lambda: a @ v, 4 * 9),
        (lambda: v @ v, 9),
        (lambda: a @ b, 4 * 6 * 9),
        (lambda: torch.addbmm(torch.ones(4, 6), a.expand(3, 4, 5), b.expand(3, 5, 6)), 4 * 6 * 29),
        (lambda: torch.nn.functional.linear(a, b.T, torch.ones(6)), 4 * 6 * 9),
        (lambda: torch.ones(4, 1) @ torch.ones(1, 6), 4 * 6),
        (lambda: a.to(torch.complex64) @ b.to(torch.complex64), 4 * 6 * (5 * 6 + 4 * 2)),
        (lambda: a.int() @ b.int(), 0),
    ):
        assert work.torch_flops(program) == expected


def test_torch_counts_attention_as_the_products_it_is_made_of():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def written_out(q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2), -1) @ v

    q, k, v = (torch.ones(2, 3, rows, 4, requires_grad=True) for rows in (5, 7, 7))
    fused = work.torch_flops(torch.nn.functional.scaled_dot_product_attention, q, k, v)
    assert fused == work.torch_flops(written_out, q, k, v) == 2 * 3 * (5 * 7 * 7 + 5 * 4 * 13)

    def gradients(attention):
        return work.torch_flops(lambda: torch.autograd.grad(attention(q, k, v).sum(), (q, k, v)))

    again = 2 * 3 * 5 * 7 * 7  # fused attention recomputes the scores
    assert gradients(torch.nn.functional.scaled_dot_product_attention) == gradients(written_out) + again
