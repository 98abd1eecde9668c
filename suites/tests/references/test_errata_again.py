"""False statements of the papers, derived a second time: by NumPy, arithmetic and PyTorch, with no code of the classes.

The ledgers say which statements do not hold, and the last two tests compare this file with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gradgate.references import ledger, registry
from gradgate.references.published import Judged, Published, equal, judge, refuted
from gradgate.suites.measuring import paper_results
from gradgate.suites.site.atlas import standing

Numbers = npt.NDArray[np.float64]
LAYERS = ((0.7, 0.9, 1.1), (0.5, 0.8, 1.3))
"""a, b and c of two layers of one state: h^t = a h^(t−1) + b y^t, and y^t + c h^t goes on."""


def _states(a: float, b: float, y: Numbers) -> Numbers:
    h, states = 0.0, []
    for value in y:
        h = a * h + b * value
        states.append(h)
    return np.array(states)


def _loss(c_first: float, x: Numbers) -> float:
    y = x
    for (a, b, _), mine in zip(LAYERS, (c_first, LAYERS[1][2]), strict=True):
        y = y + mine * _states(a, b, y)
    return float(0.5 * (y**2).sum())


def test_proposition_3_of_adjoint_sharding_leaves_out_the_paths_through_the_layers_above() -> None:
    """Eq. 6 takes dl/dy_K of the last layer for every layer: for c of the first it is Σ_t dl/dy_K^t · h^t."""
    x, c = np.array([1.0, -0.4, 0.8, 0.3]), LAYERS[0][2]
    true = (_loss(c + 1e-5, x) - _loss(c - 1e-5, x)) / 2e-5
    h = _states(*LAYERS[0][:2], x)
    middle = x + c * h
    out = middle + LAYERS[1][2] * _states(*LAYERS[1][:2], middle)
    printed = float(out @ h)
    assert abs(printed / true - 1) > 0.3
    # Corrected: dl/dy_1^i has a term c_2 a_2^(t−i) b_2 of every later token t of the layer above.
    a, b, c_above = LAYERS[1]
    carried = [out[i] + sum(out[t] * c_above * a ** (t - i) * b for t in range(i, len(x))) for i in range(len(x))]
    assert math.isclose(float(np.array(carried) @ h), true, rel_tol=1e-8)


def test_the_printed_sign_of_truncated_vjps_contradicts_the_printed_64_percent() -> None:
    length, window = 10_000, 2_000
    every = length * (length + 1) // 2
    counted = sum(min(t, window) for t in range(1, length + 1))
    assert counted == window * length - window * (window - 1) // 2
    assert round(100 * (1 - counted / every)) == 64
    assert round(100 * (1 - (window * length + window * (window - 1) // 2) / every)) == 56


def test_gradient_descent_from_a_saddles_axis_ends_at_the_saddle() -> None:
    """x² + (y² − 1)² from (1, 0), thesis §2.1.1: the gradient by y is 0 there, and the minima have y = ±1."""
    x, y = 1.0, 0.0
    for _ in range(500):
        x, y = x - 0.05 * 2 * x, y - 0.05 * 4 * y * (y * y - 1)
    assert math.isclose(x * x + (y * y - 1) ** 2, 1.0, rel_tol=1e-9)


def test_the_weights_of_a_dense_layer_grow_as_a_power() -> None:
    """Thesis §2.4.3 calls it exponential: the logarithm would rise twice as much from 2w to 4w as from w to 2w."""
    rises = [math.log((2 * w) ** 2 / w**2) for w in (1000, 2000)]
    assert math.isclose(rises[0], rises[1])


def test_the_forward_pass_of_a_layer_by_layer_count_is_half_of_its_backward() -> None:
    """Performer §3.4 has 5 times: a product of (n, k) and (k, m) has two of the same size in its backward pass."""
    n, k, m = 7, 11, 13
    forward = 2 * n * k * m
    backward = 2 * n * m * k + 2 * k * n * m
    assert backward / forward == 2.0


def test_a_gain_of_25_at_47_layers_contradicts_a_smaller_constant_of_mixed_mode() -> None:
    """MixFlow §5.3: the limit of Eq. 12 is L·k/k̂; Fig. 7 prints 23 to 25 times, at models of 47 layers."""
    ratio = [gain / 47 for gain in (10, 23, 25)]
    assert all(k_over_its_own < 1 for k_over_its_own in ratio)
    assert 1 / ratio[-1] > 1.8  # k̂ is nearly twice k, and not smaller


def _products(layers: int, keep: int) -> tuple[Numbers, int]:
    """A Hessian-vector product of Σ x_L² through x + sin(x), forward over reverse; at most `keep` inputs are kept.

    Returns the product and how many arrays of inputs and tangents were held at once.
    """
    x, v = np.array([0.3, -0.8, 1.1]), np.array([1.0, 0.5, -0.2])
    held: list[tuple[Numbers, Numbers]] = []
    for _ in range(layers):
        held = [*held, (x, v)][-keep:]
        x, v = x + np.sin(x), v + np.cos(x) * v
    most, g, dg = 2 * len(held), 2 * x, 2 * v
    while held:
        x, v = held.pop()
        g, dg = g * (1 + np.cos(x)), dg * (1 + np.cos(x)) - g * np.sin(x) * v
    return dg, most


def test_forward_over_reverse_keeps_an_input_and_a_tangent_of_every_layer() -> None:
    """MixFlow §5.3 has one buffer for all layers: with fewer kept inputs the product is another one."""
    v, step = np.array([1.0, 0.5, -0.2]), 1e-6

    def gradient(x: Numbers) -> Numbers:
        inputs = [x]
        for _ in range(5):
            inputs.append(inputs[-1] + np.sin(inputs[-1]))
        g = 2 * inputs.pop()
        for x in reversed(inputs):
            g = g * (1 + np.cos(x))
        return np.asarray(g)

    x = np.array([0.3, -0.8, 1.1])
    true = (gradient(x + step * v) - gradient(x - step * v)) / (2 * step)
    product, held = _products(5, 5)
    assert held == 2 * 5
    assert np.allclose(product, true, rtol=1e-6)
    assert not np.allclose(_products(5, 1)[0], true, rtol=0.1)


def test_a_difference_of_a_program_without_a_formula_is_its_derivative() -> None:
    """Thesis §2.2.1 says that numerical derivatives need a closed form: this is Newton's iteration for √x."""

    def root(x: float) -> float:
        y = x
        while abs(y * y - x) > 1e-15 * x:
            y = (y + x / y) / 2
        return y

    assert math.isclose((root(2 + 1e-6) - root(2 - 1e-6)) / 2e-6, 0.5 / math.sqrt(2), rel_tol=1e-8)


# f_0 … f_4 and b_1 … b_4 of a chain, in slots. A step needs what it reads and what it makes; f_0 is not counted.
F, B = (0, 5, 1, 1, 0), (0, 1, 1, 5, 1)
WITH_SWEEP = [
    {"b3": B[3], "f1": F[1]},  # from f_0, while b_3 is held: nothing else was given
    {"b3": B[3], "f1": F[1], "f2": F[2]},
    {"b3": B[3], "f2": F[2], "b2": B[2]},
    {"b2": B[2], "f1": F[1], "b1": B[1]},
]
"""What is live from b_3 to b_1 where every f is computed again."""
WITH_STORED = [
    {"b4": B[4], "f1": F[1], "f2": F[2]},  # f_2 is stored before b_3 exists
    {"b4": B[4], "f2": F[2], "f3": F[3], "b3": B[3]},
    {"b3": B[3], "f2": F[2], "b2": B[2]},
    {"b2": B[2], "f1": F[1], "b1": B[1]},
]
"""What is live from b_4 to b_1 where f_2 is stored."""


def _peak(walk: list[dict[str, int]]) -> int:
    return max(sum(live.values()) for live in walk)


def test_a_longer_subproblem_fits_where_a_shorter_one_fails() -> None:
    """Thesis §3.1.9 says that if (i, j) fails, (i, j') fails for every j' ≥ j: here (0, 3) needs 11 slots and (0, 4) 8.

    §3.1.10 says that what recomputing everything needs is the least: at (0, 4) it sweeps past b_3 too, so it needs 11.
    """
    assert _peak(WITH_SWEEP) == F[1] + F[2] + B[3] == 11
    assert _peak(WITH_STORED) == 8


def test_a_part_of_a_chain_fits_below_what_the_whole_chain_needs() -> None:
    """Thesis §3.1.10: every subproblem fails at m_min of the whole chain; the last stage has f_3, b_4 and b_3."""
    assert F[3] + B[4] + B[3] < _peak(WITH_STORED)


def _forwards(steps: int, values: int) -> int:
    """The least forwards of a chain with so many values kept besides the input, by the dynamic program itself."""
    least = [[step * (step - 1) // 2 for step in range(steps + 1)]]
    for _ in range(values):
        below, row = least[-1], [0, 0]
        for step in range(2, steps + 1):
            row.append(min(k + below[step - k] + row[k] for k in range(1, step)))
        least.append(row)
    return least[-1][steps]


def test_forty_uniform_stages_cost_81_operations_and_a_third_more_at_eleven_slots() -> None:
    """Thesis §4.1 reads just under 100 at 60 slots, flat from 40 slots on at 20 stages, and 30% at just over 10."""
    free = 40 + 41  # every forward once, and a backward of each stage and of the loss
    assert _forwards(40, 39) + 1 + 41 == free == 81
    assert _forwards(20, 19) + 1 == 20  # 19 values, the input and three for the current step: 23 slots and not 40
    assert (_forwards(40, 11) + 1 + 41) / free > 1.3


def test_the_uniform_optimum_recomputes_whole_segments() -> None:
    """Thesis §4.3 says that the uniform solver uses its quadratic base case in the extreme only, and cannot find it."""

    def split(steps: int, values: int) -> int:
        return min(range(1, steps), key=lambda k: k + _forwards(steps - k, values - 1) + _forwards(k, values))

    steps, values = 30, 4
    while values:
        steps, values = steps - split(steps, values), values - 1
    assert steps > 2  # this many stages are left to the base case of the best schedule


def test_a_tensor_that_two_nodes_save_takes_its_bytes_once() -> None:
    """Thesis §3.2.3 saves an input at one depth only, so that it is not stored repeatedly."""
    import torch

    x = torch.ones(4, requires_grad=True)
    saved: list[torch.Tensor] = []

    def seen(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, seen):
        (x.sin() + x.cos()).sum()
    assert len(saved) == 2
    assert len({tensor.untyped_storage().data_ptr() for tensor in saved}) == 1


def test_a_value_made_without_gradients_has_no_graph_to_detach() -> None:
    """Thesis §3.2.4 detaches f_k, "because, otherwise," a backward pass would follow it further back."""
    import torch

    weight = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        value = weight.sin()
    assert value.grad_fn is None
    assert not value.requires_grad


def test_one_autograd_function_runs_a_whole_chain_in_its_own_backward() -> None:
    """Thesis §5.1 calls it impossible in PyTorch to avoid detaching the output of every layer by hand."""
    import torch

    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(w * x)

    class Chain(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, *ws: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, *ws)
            for w in ws:
                x = step(x, w)
            return x

        @staticmethod
        def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, ...]:
            x, *ws = ctx.saved_tensors
            g, grads = upstream[0], []
            for n in reversed(range(len(ws))):
                here = x
                for w in ws[:n]:
                    here = step(here, w)
                with torch.enable_grad():
                    given = here.detach().requires_grad_(), ws[n].detach().requires_grad_()
                    g, grad = torch.autograd.grad(step(*given), given, g)
                grads.append(grad)
            return (g, *reversed(grads))

    leaves = [torch.tensor([value], dtype=torch.float64, requires_grad=True) for value in (0.4, 0.7, -1.2, 0.9)]
    x, *ws = leaves
    plain = x
    for w in ws:
        plain = step(plain, w)
    ours = torch.autograd.grad(Chain.apply(*leaves), leaves)
    for mine, other in zip(ours, torch.autograd.grad(plain, leaves), strict=True):
        assert torch.equal(mine, other)


def test_inverting_a_chain_of_tanh_in_float32_leaves_no_digit() -> None:
    """Moonwalk §6.6 calls it possibly unstable; each inverse magnifies errors by 1/(a(1 − y²)), 34 at the end."""
    a, first = np.float32(3), np.float32(0.4)
    y = first
    for _ in range(12):
        y = np.tanh(a * y, dtype=np.float32)
    back = y
    for _ in range(12):
        with np.errstate(invalid="ignore", divide="ignore"):
            back = np.arctanh(back, dtype=np.float32) / a
    assert 1 / (3 * (1 - float(y) ** 2)) > 30
    assert not abs(back - first) < 0.1


def test_squares_are_features_that_can_be_zero() -> None:
    """Performer, Eq. 2: "positive elements"; where a query's squares meet no key's, 0 is divided by 0."""
    query, key = np.array([1.0, 0.0]) ** 2, np.array([0.0, 2.0]) ** 2
    assert query @ key == 0.0
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.divide(query @ key, query @ key))


def _normed(x: Numbers) -> Numbers:
    centred = x - x.mean()
    return np.asarray(centred / np.sqrt((centred**2).mean()))


def test_a_norm_before_a_half_is_another_function_than_one_after_it() -> None:
    """Performer §2.2: Eq. 5 and 6 are X + LN(f(X)), and GPT-2 is X + f(LN(X))."""
    x, f = np.array([1.0, -2.0, 4.0, 0.5]), lambda x: 3 * np.maximum(x, 0)
    assert np.abs((x + _normed(f(x))) - (x + f(_normed(x)))).max() > 1


def test_a_product_of_matrices_adds_as_often_as_it_multiplies() -> None:
    """Performer §3.4 counts 11·L·s·d² FLOPs: these are multiplications, and there are as many additions."""
    d, multiplications, additions = 64, 0, 0
    for k, m in [(d, d)] * 3 + [(d, 4 * d), (4 * d, d)]:
        multiplications += k * m
        additions += (k - 1) * m
    assert multiplications == 11 * d * d
    assert round((multiplications + additions) / (11 * d * d), 1) == 2.0


def _attention(q: Numbers, k: Numbers, v: Numbers) -> float:
    """Σ of squares of N_l / D_l over tokens; R_l = Σ v k^T and S_l = Σ k up to l."""
    total = 0.0
    for t in range(len(q)):
        R, S = v[: t + 1].T @ k[: t + 1], k[: t + 1].sum(0)
        total += float((((R @ q[t]) / (S @ q[t])) ** 2).sum())
    return total


def test_the_printed_backward_of_a_block_is_not_the_gradient() -> None:
    """Performer, App. B: ∇K̃ lacks gradS, ∇Q̃ takes curR, and suffix sums leave out the position's own term."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.uniform(0.2, 1.0, (4, 3)) for _ in range(3))

    def slope(name: int) -> Numbers:
        found = np.zeros((4, 3))
        for place in np.ndindex(4, 3):
            values = []
            for sign in (1, -1):
                given = [x.copy() for x in (q, k, v)]
                given[name][place] += sign * 1e-6
                values.append(_attention(*given))
            found[place] = (values[0] - values[1]) / 2e-6
        return found

    dN, dD, R, S = [], [], [], []
    for t in range(4):
        R.append(v[: t + 1].T @ k[: t + 1])
        S.append(k[: t + 1].sum(0))
        n, d = R[t] @ q[t], S[t] @ q[t]
        dN.append(2 * n / d**2)
        dD.append(-2 * float(n @ n) / d**3)

    def keys(own: bool, with_S: bool) -> Numbers:
        """∇K̃ from the sums over later positions, with the position's own term, and with gradS, or without."""
        found = []
        for t in range(4):
            later = range(t if own else t + 1, 4)
            grad_R = sum((np.outer(dN[s], q[s]) for s in later), np.zeros((3, 3)))
            grad_S = sum((dD[s] * q[s] for s in later), np.zeros(3))
            found.append(grad_R.T @ v[t] + (grad_S if with_S else 0))
        return np.array(found)

    queries = np.array([R[t].T @ dN[t] + dD[t] * S[t] for t in range(4)])
    before = np.array([(R[t - 1] if t else 0 * R[0]).T @ dN[t] + dD[t] * S[t] for t in range(4)])
    assert np.allclose(keys(True, True), slope(1), rtol=1e-5, atol=1e-7)
    assert np.allclose(queries, slope(0), rtol=1e-5, atol=1e-7)
    for printed, name in ((keys(True, False), 1), (keys(False, True), 1), (before, 0)):
        assert not np.allclose(printed, slope(name), rtol=0.1)


def test_the_next_device_begins_with_the_layer_after_the_last_one() -> None:
    """Adjoint sharding, Alg. 1: with K layers on Υ devices, device υ + 1 reads y_{υ(K//Υ)}; printed is one less.

    Where Υ does not divide K, ranges of K//Υ layers leave the last ones out.
    """
    K, devices = 12, 4
    of = {v: list(range((v - 1) * (K // devices) + 1, v * (K // devices) + 1)) for v in range(1, devices + 1)}
    for v in range(1, devices):
        needed = of[v + 1][0] - 1  # layer k reads y_{k−1}
        assert needed == v * (K // devices) == of[v][-1]
    assert len([layer for v in range(1, 5) for layer in range((v - 1) * (14 // 4) + 1, v * (14 // 4) + 1)]) < 14


def test_a_product_of_matrices_sums_the_gradient_over_the_batch() -> None:
    """Adjoint sharding, Table 1: bs·(N + |θ|) + |θ| numbers; the sum over sequences needs no gradient for each."""
    rng = np.random.default_rng(0)
    cotangent, x = rng.standard_normal((8, 5)), rng.standard_normal((8, 3))
    each = np.einsum("bn,bp->bnp", cotangent, x)
    assert np.allclose(cotangent.T @ x, each.sum(0))
    assert each.size == 8 * (cotangent.T @ x).size


def test_the_printed_sums_of_adjoint_sharding_leave_out_an_array_and_three_zeros() -> None:
    """§4.5: A, C and h have N numbers each and y has P; 80 GB are 80,000 MB; the FLOPs are those of another width."""
    T, K, P, N = 10_000, 100, 128, 225
    stored = sum(T * K * size for size in (N, N, N, P)) + T * P
    assert stored / (T * K * (2 * N + P) + T * P) > 1.3
    assert round(80_000 / 0.6) == 133_333

    def flops(P: int, N: int) -> int:
        return 8 * (7 * N * P + 3 * N)

    assert flops(P, N) == 1_618_200
    assert flops(125, 256) == 1_798_144


def test_a_linear_recurrence_is_computed_in_as_many_steps_as_its_length_has_binary_digits() -> None:
    """Adjoint sharding §4.5 calls it sequential: (a, b) ∘ (a', b') = (a a', a b' + b) is associative."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 1.0, 16), rng.standard_normal(16)
    true, h = [], 0.0
    for rate, added in zip(a, b, strict=True):
        h = rate * h + added
        true.append(h)
    steps, reach = 0, 1
    while reach < len(a):
        b = np.concatenate([b[:reach], a[reach:] * b[:-reach] + b[reach:]])
        a = np.concatenate([a[:reach], a[reach:] * a[:-reach]])
        steps, reach = steps + 1, 2 * reach
    assert steps == 4
    assert np.allclose(b, true)


def test_a_layers_input_alone_gives_its_gradient() -> None:
    """Adjoint sharding §4.1: the cost of checkpoints "is still high"; they keep y, and the adjoint method y and h."""
    y, a = np.array([1.0, -0.4, 0.8, 0.3]), 0.7
    kept = {"checkpoints": [y], "adjoint": [y, _states(a, 1.0, y)]}

    def gradient(arrays: list[Numbers]) -> float:
        h = arrays[1] if len(arrays) > 1 else _states(a, 1.0, arrays[0])
        mu, found = 0.0, 0.0
        for t in reversed(range(len(h))):
            mu = a * mu + h[t]
            found += mu * (h[t - 1] if t else 0.0)
        return float(found)

    def loss(a: float) -> float:
        return float(0.5 * (_states(a, 1.0, y) ** 2).sum())

    true = (loss(a + 1e-6) - loss(a - 1e-6)) / 2e-6
    assert all(math.isclose(gradient(arrays), true, rel_tol=1e-7) for arrays in kept.values())
    assert sum(x.size for x in kept["checkpoints"]) < sum(x.size for x in kept["adjoint"])


def test_a_first_state_that_depends_on_the_parameters_needs_its_derivative() -> None:
    """Adjoint sharding, Prop. 1: the sum begins with λ⁰ b(θ), printed, in place of λ⁰ b'(θ); here b(θ) = θ²."""

    def last(theta: float, steps: int = 4) -> tuple[float, list[float]]:
        h = [theta**2]
        for _ in range(steps):
            h.append(theta * h[-1])
        return h[-1], h

    theta = 0.8
    _, h = last(theta)
    true = (last(theta + 1e-6)[0] - last(theta - 1e-6)[0]) / 2e-6
    later = sum(theta ** (4 - t) * h[t - 1] for t in range(1, 5))
    assert math.isclose(theta**4 * 2 * theta + later, true, rel_tol=1e-7)
    assert not math.isclose(theta**4 * theta**2 + later, true, rel_tol=0.1)


MEASURED = {
    ("bilevel", "A.3, Listing 1, as printed"): "a program that ends with an error, and what it says",
    ("bilevel", "A.3, Listing 2, as printed"): "a program that ends with an error, and what it says",
    ("bilevel", "A.4, Listing 3, as printed"): "a program that ends with an error, and what it says",
    ("chain", "§2.3, p. 20, Listing 2.1"): "a program that ends with an error",
    ("chain", "§3.2.1, p. 58, Listing 3.4"): "a program that ends with an error",
    ("chain", "§3.1.8, p. 48"): "seconds of two solvers",
    ("invertible", "Abstract"): "bytes of compiled programs",
    ("invertible", "§6.3"): "bytes of compiled programs",
    ("invertible", "§6.5"): "bytes of compiled programs",
    ("performer", "§4.1"): "bytes of compiled programs",
}
"""Class and place of what is refuted by running or compiling a program -> what is measured; nothing to derive."""
PROPOSITION_3 = "test_proposition_3_of_adjoint_sharding_leaves_out_the_paths_through_the_layers_above"
BLOCK = "test_the_printed_backward_of_a_block_is_not_the_gradient"
SLOTS = "test_forty_uniform_stages_cost_81_operations_and_a_third_more_at_eleven_slots"
LONGER = "test_a_longer_subproblem_fits_where_a_shorter_one_fails"
RECOMPUTES = "test_the_uniform_optimum_recomputes_whole_segments"
ONE_FUNCTION = "test_one_autograd_function_runs_a_whole_chain_in_its_own_backward"
SUMMED = "test_a_product_of_matrices_sums_the_gradient_over_the_batch"
LEFT_OUT = "test_the_printed_sums_of_adjoint_sharding_leave_out_an_array_and_three_zeros"
AGAIN = {
    ("bilevel", "§5.3"): "test_a_gain_of_25_at_47_layers_contradicts_a_smaller_constant_of_mixed_mode",
    ("bilevel", "§5.3, on the paper's devices"): (
        "test_forward_over_reverse_keeps_an_input_and_a_tangent_of_every_layer"
    ),
    ("chain", "§2.2.1, p. 16"): "test_a_difference_of_a_program_without_a_formula_is_its_derivative",
    ("chain", "§2.4.3, p. 28"): "test_the_weights_of_a_dense_layer_grow_as_a_power",
    ("chain", "§3.1.9, p. 48"): LONGER,
    ("chain", "§3.1.10, p. 49"): LONGER,
    ("chain", "§3.2.3, p. 60"): "test_a_tensor_that_two_nodes_save_takes_its_bytes_once",
    ("chain", "§3.2.4, p. 61"): "test_a_value_made_without_gradients_has_no_graph_to_detach",
    ("chain", "§4.1, p. 64"): SLOTS,
    ("chain", "§4.3, p. 66–67"): RECOMPUTES,
    ("chain", "§4.3, p. 67"): RECOMPUTES,
    ("chain", "§5.1, p. 69"): ONE_FUNCTION,
    ("chain", "§5.1, p. 70"): ONE_FUNCTION,
    ("invertible", "§6.6"): "test_inverting_a_chain_of_tanh_in_float32_leaves_no_digit",
    ("performer", "§2.1, Eq. 2, and §4"): "test_squares_are_features_that_can_be_zero",
    ("performer", "§2.2"): "test_a_norm_before_a_half_is_another_function_than_one_after_it",
    ("performer", "§3.4"): "test_a_product_of_matrices_adds_as_often_as_it_multiplies",
    ("performer", "App. B, block, backward, ∇K̃"): BLOCK,
    ("performer", "App. B, block, backward, ∇Q̃"): BLOCK,
    ("performer", "App. B, block, backward, suffix sums"): BLOCK,
    **{
        ("state_space", place): PROPOSITION_3
        for place in (
            "§1, Vector-Jacobian product", "§3.2", "§4.2", "§4.4", "Conclusion", "App. A.2, Eq. 11",
        )
    },
    ("state_space", "§4.1"): "test_a_layers_input_alone_gives_its_gradient",
    ("state_space", "Alg. 1, line 11"): "test_the_next_device_begins_with_the_layer_after_the_last_one",
    **{
        ("state_space", f"Table 1, {kind}"): SUMMED
        for kind in ("unstructured, memory", "diagonal, memory", "diagonal, memory of B and C")
    },
    ("state_space", "§4.5"): LEFT_OUT,
}  # fmt: skip
"""Class and place of a false statement -> the test that derives it a second time."""


def _false(one: ledger.Ledger, judged: Mapping[str, Judged]) -> list[tuple[str, str]]:
    """Class and place of every statement that does not hold, and that is no misprint."""
    found = []
    for entry in one.entries:
        reasons = {row.reason for row in entry.rows} | {claim.declared_reason for _, claim in entry.claims}
        if standing(entry, judged) == "does not hold" and not any(why.startswith("a misprint") for why in reasons):
            found.append((one.family, entry.statement.place))
    return found


def _underived(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [one for one in found if one not in AGAIN and one not in MEASURED]


def test_every_statement_that_does_not_hold_is_derived_twice_or_is_measured() -> None:
    found = []
    for family in registry.families():
        one = ledger.of_family(family)
        found += _false(one, paper_results.judged(paper_results.stored(family)) if one.entries else {})
    assert len(found) > 40
    assert _underived(found) == []
    assert [one for one in {**AGAIN, **MEASURED} if one not in found] == []


@pytest.mark.parametrize(
    ("reason", "ours", "found"),
    [("tested", 9.0, [("chain", "§0")]), ("a misprint of Eq. 1", 9.0, []), ("tested", 2.0, [])],
)
def test_a_false_statement_that_is_not_derived_again_is_found(
    reason: str, ours: float, found: list[tuple[str, str]]
) -> None:
    row = Published("§0", "a", "", "", "m:f", {}, 2.0, reason, expects=refuted(equal(0.1, "one digit"), 9.0))
    entry = ledger.Entry(ledger.Statement("§0", "it is two", figures=("§0",)), (), (row,))
    verdict = judge(row, ours)
    assert verdict is not None
    assert _underived(_false(ledger.Ledger("chain", "A paper", (entry,)), {row.key: verdict})) == found


def test_every_second_derivation_is_a_test_of_this_file() -> None:
    assert [name for name in AGAIN.values() if not callable(globals().get(name))] == []
