"""False statements of the papers, derived a second time: by NumPy, arithmetic and PyTorch, with no code of the classes.

The ledgers say which claims and figures are refuted, also those of statements that hold in part. The last tests compare
this file with them.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gradgate.references import ledger, registry
from gradgate.references.published import Judged, Published, equal, judge, refuted, upheld
from gradgate.suites.measuring import paper_results

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


def test_models_with_rotary_positions_have_fewer_parameters_than_table_6_prints() -> None:
    """MixFlow §5 names RoPE, which has no weights; Table 6's numbers have d · h · k more a layer, as in Chinchilla."""
    for millions, d, ffw, hk, layers in ((44, 512, 2048, 8 * 64, 8), (16_183, 5120, 20_480, 40 * 128, 47)):
        rotary = 32_000 * d + layers * (4 * d * hk + 2 * d * ffw)
        assert rotary / 1e6 < 0.95 * millions
        assert math.isclose((rotary + layers * d * hk) / 1e6, millions, rel_tol=0.01)


def _pebbles(order: list[str], uses: Mapping[str, tuple[str, ...]]) -> int:
    """The most values in memory, each freed as soon as all that read it are computed."""
    left = {name: sum(name in read for read in uses.values()) for name in order}
    live: set[str] = set()
    most = 0
    for name in order:
        live.add(name)
        most = max(most, len(live))
        for read in uses.get(name, ()):
            left[read] -= 1
        live -= {one for one in live if one != name and not left[one]}
    return most


def test_counting_references_frees_values_but_does_not_order_them() -> None:
    """Thesis §2.4.2: counts "will find" the strategy of three pebbles; with all leaves first they free, and take n."""
    n = 100
    uses = {"s1": ("x0", "x1"), **{f"s{i}": (f"s{i - 1}", f"x{i}") for i in range(2, n)}}
    lazy = ["x0", "x1", "s1", *(name for i in range(2, n) for name in (f"x{i}", f"s{i}"))]
    first = [f"x{i}" for i in range(n)] + [f"s{i}" for i in range(1, n)]
    assert (_pebbles(lazy, uses), _pebbles(first, uses)) == (3, n + 1)


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


def _sweep(f: tuple[int, ...], i: int, k: int) -> int:
    """The most slots of the forwards from f_i to f_k; f_i is counted elsewhere."""
    return max(f[x] + (f[x - 1] if x > i + 1 else 0) for x in range(i + 1, k + 1))


def _by_parts(f: tuple[int, ...], b: tuple[int, ...], cost: tuple[int, ...], slots: int) -> float:
    """The least cost of the forwards from b_N to b_1, by the thesis' recursion: f_k stays until it is used."""

    @functools.cache
    def least(i: int, j: int, m: int) -> float:
        return min(
            (
                sum(cost[i + 1 : k + 1]) + least(k, j, m - f[k]) + least(i, k, m)
                for k in range(i + 1, j)
                if max(b[j] + _sweep(f, i, k), f[k] + b[k + 1] + b[k]) <= m
            ),
            default=0 if j == i + 1 else math.inf,
        )

    return least(0, len(f) - 1, slots)


def test_dropping_a_stored_value_can_cost_less_than_the_optimum() -> None:
    """Thesis, abstract and chapter 6: the policy is "truly optimal"; a search through all states is cheaper."""
    f, b, cost, slots = (0, 2, 3, 2, 2), (0, 2, 1, 3, 1), (0, 5, 4, 1, 7), 8

    def free() -> float:
        heap: list[tuple[int, tuple[int, ...], int]] = [(0, (), 4)]
        seen = set()
        while heap:
            spent, live, j = heapq.heappop(heap)
            if j == 1:
                return spent
            if (live, j) in seen:
                continue
            seen.add((live, j))
            left = slots - b[j] - sum(f[x] for x in live)
            for x in live:
                heapq.heappush(heap, (spent, tuple(y for y in live if y != x), j))
            for x in range(1, 4):
                if x not in live and (x == 1 or x - 1 in live) and f[x] <= left:
                    heapq.heappush(heap, (spent + cost[x], tuple(sorted((*live, x))), j))
            if j - 1 in live and b[j - 1] <= left:
                heapq.heappush(heap, (spent, live, j - 1))
        return math.inf

    assert (_by_parts(f, b, cost, slots), free()) == (24, 19)


def test_one_policy_for_each_part_does_not_compute_least() -> None:
    """Thesis §5.3 leaves m out of the state: each (i, j) then has one policy, chosen for the whole budget."""
    f, b, cost, slots = (0, 4, 3, 3, 3), (0, 4, 2, 2, 2), (0, 7, 1, 1, 2), 12
    one: dict[tuple[int, int], tuple[int, int]] = {(i, i + 1): (0, 0) for i in range(4)}
    for length in range(2, 5):
        for i in range(5 - length):
            j, tried = i + length, []
            for k in range(i + 1, j):
                (after, high), (before, low) = one[k, j], one[i, k]
                peak = max(b[j] + _sweep(f, i, k), f[k] + b[k + 1] + b[k], f[k] + high, low)
                tried.append((sum(cost[i + 1 : k + 1]) + after + before, peak))
            within = [pair for pair in tried if pair[1] <= slots]
            one[i, j] = min(within) if within else min(tried, key=lambda pair: pair[1])
    spent, peak = one[0, 4]
    assert peak <= slots
    assert (spent, _by_parts(f, b, cost, slots)) == (16, 10)


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
    """Thesis §4.1 reads just under 100 at 60 slots, flat from 40 slots on at 20 stages, and 30% at just over 10.

    100 stages cost 40% more at 10 slots than at 60, as printed, and 40 to 10 slots are a reduction by 60%.
    """
    free = 40 + 41  # every forward once, and a backward of each stage and of the loss
    assert _forwards(40, 39) + 1 + 41 == free == 81
    assert _forwards(20, 19) + 1 == 20  # 19 values, the input and three for the current step: 23 slots and not 40
    assert (_forwards(40, 11) + 1 + 41) / free > 1.3
    few, many = (_forwards(100, slots - 4) + 1 + 101 for slots in (10, 60))
    assert few / many > 1.44
    assert 100 * (40 - 10) / 40 == 75


def test_the_uniform_optimum_recomputes_whole_segments() -> None:
    """Thesis §4.3 says that the uniform solver uses its quadratic base case in the extreme case only."""

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


def test_a_value_that_the_next_layer_saves_is_not_freed() -> None:
    """Thesis §3.2.3: the output of a wrapped layer, "computed with no grad", would be freed."""
    import torch

    weight = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        output = weight.sin()
    storage, saved = output.untyped_storage().data_ptr(), []

    def seen(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.untyped_storage().data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, seen):
        output.requires_grad_() * weight
    assert storage in saved


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


def test_going_forward_by_inverse_jacobians_loses_what_the_gradient_of_the_input_lost() -> None:
    """Moonwalk §6.6 expects vijp to be stable: h_i = h_{i−1} J_i⁻¹ from h_0 in float32, over 24 layers tanh(A x)."""
    rng = np.random.default_rng(0)
    layers, x, jacobians = [rng.standard_normal((4, 4)) for _ in range(24)], rng.standard_normal(4), []
    for a in layers:
        x = np.tanh(a @ x)
        jacobians.append((1 - x * x)[:, None] * a)
    true = [x]
    for jacobian in reversed(jacobians):
        true.append(true[-1] @ jacobian)

    def last(dtype: Any) -> Any:
        h = true[-1].astype(dtype)
        for jacobian in jacobians[:-1]:
            h = np.linalg.solve(jacobian.T.astype(dtype), h)
        return h

    backwards = x.astype(np.float32)
    for jacobian in reversed(jacobians):
        backwards = backwards @ jacobian.astype(np.float32)
    assert np.allclose(backwards, true[-1], rtol=1e-2)
    assert np.linalg.norm(last(np.float32) - true[1]) > 0.5 * np.linalg.norm(true[1])


def test_a_flat_tanh_leaves_nothing_to_divide() -> None:
    """Moonwalk §6.6, saturated tanh: its derivative is 0 in float32, so that h_{i−1} is 0 and vijp divides 0 by 0."""
    y = np.tanh(np.float32(12))
    slope = 1 - y * y
    assert slope == 0
    with np.errstate(invalid="ignore"):
        assert np.isnan(np.float32(3) * slope / slope)


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


def test_states_of_all_heads_are_those_of_3_4_where_features_are_as_many_as_a_head_is_wide() -> None:
    """Performer: D_1 = M(d + 1)k of §3.1 makes 2 s D_1 floats, and §3.4 has 2 s d_model (M + 1), of d_model = d k."""
    s, d, k = 6, 64, 8

    def apart(features: int) -> int:
        return 2 * s * features * (d + 1) * k - 2 * s * d * k * (features + 1)

    assert [apart(features) == 0 for features in (16, 64, 256)] == [False, True, False]


def test_a_sum_that_later_terms_dwarf_has_no_digits_of_earlier_ones() -> None:
    """Performer, Eq. 19: 𝓑^(n−1) = 𝓑^(n) − Σ T; §4.2 expects errors of 1e-6 that grow slightly."""
    early, later = np.float32(1), np.float32(1e9) * np.arange(1, 4, dtype=np.float32)
    total = early
    for term in later:
        total = total + term
    back = total
    for term in later[::-1]:
        back = back - term
    assert abs(back - early) / early > 0.5


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
    assert math.isclose(1979e12 / 1_798_144, 1.1e9, rel_tol=0.01)  # without the factor 3.76
    # 132 multiprocessors of 4 tensor cores, 512 multiplications and additions each, at 1.83 GHz: without sparsity.
    assert math.isclose(132 * 4 * 512 * 2 * 1.83e9, 1979e12 / 2, rel_tol=0.01)

    def flops(P: int, N: int) -> int:
        return 8 * (7 * N * P + 3 * N)

    assert flops(P, N) == 1_618_200
    assert flops(125, 256) == 1_798_144

    def megabytes(P: int, N: int) -> float:
        parameters = N * (P + 1)
        return 2e-6 * (8 * (N + parameters) + parameters)

    assert [round(megabytes(*size), 2) for size in ((P, N), (125, 256))] == [0.53, 0.58]


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


def test_jax_differentiates_by_no_tokens() -> None:
    """MixFlow, Listing 1: argnums=range(len(inputs) + 1) names every input, and those of a language model are whole."""
    import jax
    import jax.numpy as jnp

    def loss(p: Any, tokens: Any) -> Any:
        return p[tokens].sum()

    given = jnp.ones(3), jnp.array([0, 2])
    assert jax.grad(loss)(*given).tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(TypeError, match="int32"):
        jax.grad(loss, argnums=(0, 1))(*given)


def test_torch_differentiates_by_no_tokens_and_a_name_without_a_value_is_an_error() -> None:
    """MixFlow, Listing 2: argnums as in Listing 1, of `loss`, which has no value anywhere in the listing."""
    import torch

    def inner(p: Any, tokens: Any) -> Any:
        return p[tokens].sum()

    given = torch.ones(3), torch.tensor([0, 2])
    assert torch.func.grad(inner)(*given).tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(RuntimeError, match="floating point"):
        torch.func.grad(inner, argnums=(0, 1))(*given)
    with pytest.raises(NameError, match="'loss'"):
        exec("def backward(inner_loss_fn):\n    return loss", found := {}) or found["backward"](inner)


def test_a_step_of_a_scan_returns_a_pair_and_cannot_read_the_name_that_it_is_given() -> None:
    """MixFlow, Listing 3: inner_step returns nothing, and outer_step assigns to inner_step what it makes of it."""
    import jax
    import jax.numpy as jnp

    with pytest.raises(TypeError, match="pair"):
        jax.lax.scan(lambda carry, x: None, 0.0, jnp.ones(2))
    with pytest.raises(UnboundLocalError, match="step"):
        exec("def outer():\n    step = len(step)\nouter()", {"step": "step"})
    with pytest.raises(ValueError, match="unpack"):
        (_,) = jax.lax.scan(lambda carry, x: (carry + x, None), 0.0, jnp.ones(2))


def test_the_older_constructor_takes_no_device_and_what_moves_is_no_leaf() -> None:
    """Thesis, Listing 2.1: torch.Tensor(…, device='cuda'), and b = torch.randn(…, requires_grad=True).cuda()."""
    import torch

    with pytest.raises(RuntimeError, match="device"):
        torch.Tensor([[1.0, 2.0]], device="meta")
    assert torch.tensor([[1.0, 2.0]], device="meta").device.type == "meta"
    assert not torch.randn(2, 2, requires_grad=True).to("meta").is_leaf


def test_a_module_without_its_base_holds_no_module() -> None:
    """Thesis, Listing 3.4: LossLayer.__init__ stores a loss, and does not call super().__init__()."""
    import torch

    module = torch.nn.Module.__new__(torch.nn.Module)
    with pytest.raises(AttributeError, match="__init__"):
        module.loss = torch.nn.MSELoss()


def test_a_name_without_a_slash_is_one_of_the_index() -> None:
    """Thesis, Listing 3.1: pip install pytorch-autograd-checkpointing, beside the clone of that name."""
    from packaging.requirements import InvalidRequirement, Requirement

    name = "pytorch-autograd-checkpointing"
    assert Requirement(name).url is None
    with pytest.raises(InvalidRequirement):
        Requirement(f"./{name}")


def test_a_tangent_of_a_layer_weighs_more_than_all_gradients_and_grows_with_the_channels() -> None:
    """Moonwalk §6.3: forward mode's memory "consists only of" gradients, and does not depend on the size of layers.

    A batch of 512 images of 32 × 32; 3 blocks of 10 couplings, a convolution 3 × 3 of half the channels in each, and
    four times the channels after each block.
    """

    def layer(channels: int) -> int:
        return 512 * 32 * 32 * channels

    gradients = sum(10 * 9 * (8 * 4**block // 2) ** 2 for block in range(3))
    assert gradients / (gradients + 2 * layer(8)) < 0.1
    assert 2 * layer(18) / (2 * layer(8)) == 18 / 8


def test_parameters_alone_make_memory_grow_slower_than_the_slice() -> None:
    """Performer §4.1: "slower than O(C)" is laid to PyTorch. II has s = 3 layers, d = 512 and d_ff = 2048.

    11 s d² parameters (§3.4), each with its gradient, do not depend on C. Of a token a layer keeps its input, query,
    key, value, two features, attention, two norms and residuals (10 d) and two of d_ff (8 d), with cotangents.
    """
    d, s = 512, 3

    def numbers(C: int) -> int:
        return 2 * 11 * s * d * d + 2 * 18 * s * d * C

    exponent = math.log(numbers(256) / numbers(1)) / math.log(256)
    assert 0.05 < exponent < 0.75


PROPOSITION_3 = "test_proposition_3_of_adjoint_sharding_leaves_out_the_paths_through_the_layers_above"
BLOCK = "test_the_printed_backward_of_a_block_is_not_the_gradient"
SLOTS = "test_forty_uniform_stages_cost_81_operations_and_a_third_more_at_eleven_slots"
LONGER = "test_a_longer_subproblem_fits_where_a_shorter_one_fails"
LEFT_OUT = "test_the_printed_sums_of_adjoint_sharding_leave_out_an_array_and_three_zeros"
GAIN = "test_a_gain_of_25_at_47_layers_contradicts_a_smaller_constant_of_mixed_mode"
PRODUCT = "test_forward_over_reverse_keeps_an_input_and_a_tangent_of_every_layer"
HALF = "test_the_forward_pass_of_a_layer_by_layer_count_is_half_of_its_backward"
SIGN = "test_the_printed_sign_of_truncated_vjps_contradicts_the_printed_64_percent"
DEVICE = "test_the_next_device_begins_with_the_layer_after_the_last_one"
MIXING = "test_going_forward_by_inverse_jacobians_loses_what_the_gradient_of_the_input_lost"
TANGENT = "test_a_tangent_of_a_layer_weighs_more_than_all_gradients_and_grows_with_the_channels"
AGAIN = {
    ("bilevel", "mixflow_drop_in:listing_1_printed"): "test_jax_differentiates_by_no_tokens",
    ("bilevel", "mixflow_drop_in:listing_2_printed"): (
        "test_torch_differentiates_by_no_tokens_and_a_name_without_a_value_is_an_error"
    ),
    ("bilevel", "truncated_bptt:listing_3_printed"): (
        "test_a_step_of_a_scan_returns_a_pair_and_cannot_read_the_name_that_it_is_given"
    ),
    ("chain", "Listing 2.1 /"): "test_the_older_constructor_takes_no_device_and_what_moves_is_no_leaf",
    ("chain", "§3.2.1, Listing 3.1 /"): "test_a_name_without_a_slash_is_one_of_the_index",
    ("chain", "§3.2.1, Listing 3.4 /"): "test_a_module_without_its_base_holds_no_module",
    ("invertible", "§6.3, Forward and the size of layers /"): TANGENT,
    ("invertible", "§6.3, what forward takes /"): TANGENT,
    ("performer", "§4.1, cause of the slow growth /"): ("test_parameters_alone_make_memory_grow_slower_than_the_slice"),
    ("bilevel", "mixflow:memory_law_printed"): PRODUCT,
    ("bilevel", "mixflow:constants"): GAIN,
    ("bilevel", "Eq. 12 and Fig. 7, in words /"): GAIN,
    ("bilevel", "Table 2, 489M, bytes live at the peak by kind, GPU, in words /"): PRODUCT,
    ("bilevel", "Table 6, in words /"): "test_models_with_rotary_positions_have_fewer_parameters_than_table_6_prints",
    ("chain", "precise_dp:optimal_of_all"): "test_dropping_a_stored_value_can_cost_less_than_the_optimum",
    ("chain", "§2.1.1, gradient descent / loss"): "test_gradient_descent_from_a_saddles_axis_ends_at_the_saddle",
    ("chain", "§2.2.1, finite differences /"): "test_a_difference_of_a_program_without_a_formula_is_its_derivative",
    ("chain", "§2.4.2, reference counting /"): "test_counting_references_frees_values_but_does_not_order_them",
    ("chain", "§2.4.3, weights of a dense layer /"): "test_the_weights_of_a_dense_layer_grow_as_a_power",
    ("chain", "precise_dp:failure_printed"): LONGER,
    ("chain", "precise_dp:m_min_printed"): "test_a_part_of_a_chain_fits_below_what_the_whole_chain_needs",
    ("chain", "precise_dp:m_min_least_printed"): LONGER,
    ("chain", "§3.2.3, a wrapped layer's output /"): "test_a_value_that_the_next_layer_saves_is_not_freed",
    ("chain", "§3.2.3, nested checkpoints /"): "test_a_tensor_that_two_nodes_save_takes_its_bytes_once",
    ("chain", "§3.2.4, no_grad /"): "test_a_value_made_without_gradients_has_no_graph_to_detach",
    ("chain", "Fig. 4.1, uniform networks /"): SLOTS,
    ("chain", "§4.1, slots taken away /"): SLOTS,
    ("chain", "§4.3, the uniform solver /"): "test_the_uniform_optimum_recomputes_whole_segments",
    ("chain", "§5.1, recomputation by .backward() /"): (
        "test_one_autograd_function_runs_a_whole_chain_in_its_own_backward"
    ),
    ("chain", "§5.3, m not in the state /"): "test_one_policy_for_each_part_does_not_compute_least",
    ("invertible", "reversible:stability"): "test_inverting_a_chain_of_tanh_in_float32_leaves_no_digit",
    ("invertible", "moonwalk:stability_flat"): "test_a_flat_tanh_leaves_nothing_to_divide",
    ("invertible", "moonwalk:stability_mixing"): MIXING,
    ("invertible", "moonwalk_mixed:stability_mixing"): MIXING,
    ("performer", "§2.1 / Eq. 2 as printed /"): "test_squares_are_features_that_can_be_zero",
    ("performer", "§2.2 / GPT-2's layer norm"): "test_a_norm_before_a_half_is_another_function_than_one_after_it",
    ("performer", "slim:states_printed_general"): (
        "test_states_of_all_heads_are_those_of_3_4_where_features_are_as_many_as_a_head_is_wide"
    ),
    ("performer", "slim:stability_sharp"): "test_a_sum_that_later_terms_dwarf_has_no_digits_of_earlier_ones",
    ("performer", "§3.4 / a forward pass"): "test_a_product_of_matrices_adds_as_often_as_it_multiplies",
    ("performer", "§3.4 / backward over forward pass"): HALF,
    ("performer", "one_by_one_printed:"): BLOCK,
    ("performer", "block_printed:"): BLOCK,
    ("state_space", "adjoint_sharding_printed:"): PROPOSITION_3,
    ("state_space", "adjoint_sharding:layers_at_once_printed"): PROPOSITION_3,
    ("state_space", "§1, Vector-Jacobian product /"): HALF,
    ("state_space", "adjoint_sharding:initial_state_printed"): (
        "test_a_first_state_that_depends_on_the_parameters_needs_its_derivative"
    ),
    ("state_space", "§4.1 / checkpointing every layer"): "test_a_layers_input_alone_gives_its_gradient",
    ("state_space", "adjoint_truncated:vjp_count_printed"): SIGN,
    ("state_space", "§4.3, T = 10000, T̄ = 2000 / VJPs saved"): SIGN,
    ("state_space", "adjoint_distributed:ranges_printed"): DEVICE,
    ("state_space", "adjoint_distributed:passed_printed"): DEVICE,
    ("state_space", "Table 1, "): "test_a_product_of_matrices_sums_the_gradient_over_the_batch",
    ("state_space", "adjoint_sharding:vjp_memory_printed"): LEFT_OUT,
    ("state_space", "adjoint_sharding:vjp_flops_printed"): LEFT_OUT,
    ("state_space", "§4.5, "): LEFT_OUT,
    ("state_space", "associative_scan:chain_law_printed"): (
        "test_a_linear_recurrence_is_computed_in_as_many_steps_as_its_length_has_binary_digits"
    ),
}
"""Class and beginning of a refuted name, ``method:claim`` or that of a figure -> the test that derives it again."""


def _false(one: ledger.Ledger, judged: Mapping[str, Judged]) -> set[tuple[str, str]]:
    """Class and name of every refuted claim and figure of its statements; those of misprints are left out."""
    refuted = {(row.name, row.reason) for entry in one.entries for row in entry.rows if _is_refuted(row, judged)}
    refuted |= {
        (f"{method.name}:{claim.name}", claim.declared_reason)
        for entry in one.entries
        for method, claim in entry.claims
        if claim.expected == "refuted"
    }
    return {(one.family, name) for name, why in refuted if not why.startswith("a misprint")}


def _is_refuted(row: Published, judged: Mapping[str, Judged]) -> bool:
    return row.key in judged and judged[row.key].outcome == "refuted as declared"


def _covers(listed: tuple[str, str], name: tuple[str, str]) -> bool:
    return listed[0] == name[0] and name[1].startswith(listed[1])


def _underived(found: set[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(name for name in found if not any(_covers(listed, name) for listed in AGAIN))


def test_all_that_is_refuted_is_derived_twice() -> None:
    found: set[tuple[str, str]] = set()
    for family in registry.families():
        one = ledger.of_family(family)
        found |= _false(one, paper_results.judged(paper_results.stored(family)) if one.entries else {})
    assert len(found) > 60
    assert _underived(found) == []
    assert [listed for listed in AGAIN if not any(_covers(listed, name) for name in found)] == []


@pytest.mark.parametrize(
    ("reason", "ours", "found"),
    [("tested", 9.0, [("chain", "§0 / a")]), ("a misprint of Eq. 1", 9.0, []), ("tested", 2.0, [])],
)
def test_a_false_statement_that_is_not_derived_again_is_found(
    reason: str, ours: float, found: list[tuple[str, str]]
) -> None:
    """Also where another figure of the statement is upheld, so that it holds in part."""
    row = Published("§0", "a", "", "", "m:f", {}, 2.0, reason, expects=refuted(equal(0.1, "one digit"), 9.0))
    other = dataclasses.replace(row, series="b", reason="", expects=upheld(equal(0.1, "one digit")))
    entry = ledger.Entry(ledger.Statement("§0", "it is two", figures=("§0",)), (), (row, other))
    verdicts = {one.key: verdict for one, at in ((row, ours), (other, 2.0)) if (verdict := judge(one, at))}
    assert _underived(_false(ledger.Ledger("chain", "A paper", (entry,)), verdicts)) == found


def test_every_second_derivation_is_a_test_of_this_file() -> None:
    assert [name for name in AGAIN.values() if not callable(globals().get(name))] == []
