"""Statements of chapter 2 that a few lines can check: descent, backprop by hand, differences, pebbles, sums.

Plain NumPy and arithmetic. Derivatives that serve as the truth are complex steps: f'(x) = Im f(x + ih)/h, exact to the
last digits for h = 1e-30.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from gradgate.references.chain.paper import as_printed, errata
from gradgate.references.chain.schedules import classic
from gradgate.references.chain.schedules.costs import Costs
from gradgate.references.chain.schedules.simulate import simulate
from gradgate.references.chain.schedules.solver import precise_dp

Misprint = Literal["", "2.5", "2.14"]
NETS = 20
"""Drawn networks."""
WIDTHS = (3, 4, 4, 2)
STEP = 1e-30


def _descend(sign: float, start: tuple[float, float], steps: int = 400, rate: float = 0.05) -> list[tuple[float, ...]]:
    """(x, y, L) of gradient descent on L = x² + (y² − 1)², whose minima are (0, ±1), and which has a saddle at 0."""
    x, y = start
    found: list[tuple[float, ...]] = []
    for _ in range(steps):
        found.append((x, y, x**2 + (y**2 - 1) ** 2))
        x, y = x + sign * rate * 2 * x, y + sign * rate * 4 * y * (y**2 - 1)
        if not abs(x) + abs(y) < 1e100:
            break
    return found


def falling(sign: float) -> float:
    """Percent of steps on which the loss does not rise, of the update θ + sign · η∇L."""
    losses = [each[2] for each in _descend(sign, (0.7, 0.4))]
    return 100 * sum(b <= a for a, b in itertools.pairwise(losses)) / (len(losses) - 1)


def limit_loss(y: float) -> float:
    """The loss at which descent from (1, y) ends; the local minima have 0."""
    return round(_descend(-1.0, (1.0, y))[-1][2], 9)


def above_chord(hidden: bool, drawn: int = 200) -> float:
    """Percent of drawn pairs of parameters between which the mean square error lies above their chord (§2.1.2).

    A convex loss lies there nowhere. The data are 8 pairs of 3 and 2 numbers.

    Args:
        hidden: a layer of 4 tanh comes before the linear function of §2.1.1.
        drawn: pairs.
    """
    rng = np.random.default_rng(0)
    x, y, width = rng.normal(size=(8, 3)), rng.normal(size=(8, 2)), 4 if hidden else 3

    def loss(theta: Any) -> float:
        first, last = theta[: 3 * width].reshape(3, width), theta[3 * width :].reshape(width + 1, 2)
        inside = np.tanh(x @ first) if hidden else x
        return float(((inside @ last[:-1] + last[-1] - y) ** 2).mean())

    told = []
    for _ in range(drawn):
        a, b = 2 * rng.normal(size=(2, 3 * width + 2 * (width + 1)))
        told.append(loss((a + b) / 2) > (loss(a) + loss(b)) / 2)
    return 100 * sum(told) / drawn


def _network(rng: Any) -> tuple[list[Any], list[Any], Any]:
    weights = [rng.normal(size=(b, a)) for a, b in itertools.pairwise(WIDTHS)]
    return weights, [rng.normal(size=w) for w in WIDTHS[1:]], rng.normal(size=WIDTHS[0])


def _loss(weights: list[Any], biases: list[Any], x: Any, misprint: Misprint = "") -> Any:
    """Half the squared norm of the output; by Eq. 2.5 as printed, layers after the first add the bias before theirs."""
    for n, w in enumerate(weights):
        b = biases[n]
        if misprint == "2.5" and n:
            b = np.resize(biases[n - 1], b.shape)  # b_m^l has another length, where widths differ
        x = np.tanh(w @ x + b)
    return (x * x).sum() / 2


def _by_hand(weights: list[Any], biases: list[Any], x: Any, misprint: Misprint) -> list[Any]:
    """∂L/∂b^l by Eqs. 2.11, 2.13 and 2.14."""
    values = [x]
    for w, b in zip(weights, biases, strict=True):
        values.append(np.tanh(w @ values[-1] + b))
    slopes = [1 - y * y for y in values[1:]]
    delta = slopes[-1] * (1 if misprint == "2.14" else values[-1])
    deltas = [delta]
    for n in range(len(weights) - 2, -1, -1):
        delta = weights[n + 1].T @ delta * slopes[n]
        deltas.insert(0, delta)
    return deltas


def backprop_by_hand(misprint: Misprint = "") -> float:
    """Percent of drawn networks on which the formulas of §2.1.5 give the derivatives by all biases."""
    right = 0
    for seed in range(NETS):
        weights, biases, x = _network(np.random.default_rng(seed))
        truth = [_complex_step(weights, biases, x, n) for n in range(len(biases))]
        if misprint == "2.5":
            right += bool(np.isclose(_loss(weights, biases, x, misprint), _loss(weights, biases, x)))
        else:
            right += all(map(np.allclose, _by_hand(weights, biases, x, misprint), truth))
    return 100 * right / NETS


def weights_by_hand(transposed: bool = False) -> float:
    """Percent of drawn networks on which Eq. 2.18, ∂L/∂w_kj^l = δ_k^l y_j^{l-1}, gives the derivatives by all weights.

    Args:
        transposed: deltas and inputs change places where they fit, so that a test sees the figure fail.
    """
    right = 0
    for seed in range(NETS):
        weights, biases, x = _network(np.random.default_rng(seed))
        inputs = [x]
        for w, b in zip(weights[:-1], biases, strict=False):
            inputs.append(np.tanh(w @ inputs[-1] + b))
        found = [np.outer(d, y) for d, y in zip(_by_hand(weights, biases, x, ""), inputs, strict=True)]
        if transposed:
            found = [one.T if one.shape[0] == one.shape[1] else one for one in found]
        right += all(np.allclose(one, _by_weights(weights, biases, x, n)) for n, one in enumerate(found))
    return 100 * right / NETS


def updated_in_place(early: bool) -> float:
    """Percent of drawn networks whose deltas are right although weights are updated in place on the way back (§2.1.5).

    Args:
        early: whether W^{l+1} is updated before δ^l is computed with it, or just after that.
    """
    right = 0
    for seed in range(NETS):
        weights, biases, x = _network(np.random.default_rng(seed))
        truth = _by_hand(weights, biases, x, "")
        values = [x]
        for w, b in zip(weights, biases, strict=True):
            values.append(np.tanh(w @ values[-1] + b))
        delta, deltas = truth[-1], [truth[-1]]
        for n in range(len(weights) - 2, -1, -1):
            step = 0.1 * np.outer(delta, values[n + 1])
            used = weights[n + 1] - step if early else weights[n + 1]
            delta = used.T @ delta * (1 - values[n + 1] ** 2)
            weights[n + 1] = weights[n + 1] - step
            deltas.insert(0, delta)
        right += all(map(np.allclose, deltas, truth))
    return 100 * right / NETS


def batch_by_hand(coupled: bool = False, size: int = 5) -> float:
    """Percent of drawn networks whose batch has the outputs of its inputs one by one, and the sum of their derivatives.

    Args:
        coupled: the mean over the batch is subtracted before the last tanh, as a batch norm does, so that a test sees
            the figure fail.
        size: inputs in a batch.
    """

    def outputs(weights: list[Any], biases: list[Any], x: Any) -> Any:
        for n, (w, b) in enumerate(zip(weights, biases, strict=True)):
            z = w @ x + b[:, None]
            x = np.tanh(z - z.mean(1, keepdims=True) if coupled and n == len(weights) - 1 else z)
        return x

    right = 0
    for seed in range(NETS):
        rng = np.random.default_rng(seed)
        weights, biases, _ = _network(rng)
        batch = rng.normal(size=(WIDTHS[0], size))
        alone = [outputs(weights, biases, one[:, None])[:, 0] for one in batch.T]
        same = np.allclose(outputs(weights, biases, batch), np.stack(alone, axis=1))
        summed = sum(_by_hand(weights, biases, one, "")[0] for one in batch.T)
        told = []
        for k in range(len(biases[0])):
            moved = [b.astype(complex) for b in biases]
            moved[0][k] += 1j * STEP
            told.append(((outputs(weights, moved, batch) ** 2).sum() / 2).imag / STEP)
        right += bool(same and np.allclose(summed, told))
    return 100 * right / NETS


def _by_weights(weights: list[Any], biases: list[Any], x: Any, layer: int) -> Any:
    told = np.zeros(weights[layer].shape)
    for at in np.ndindex(told.shape):
        moved = [w.astype(complex) for w in weights]
        moved[layer][at] += 1j * STEP
        told[at] = _loss(moved, biases, x).imag / STEP
    return told


def _complex_step(weights: list[Any], biases: list[Any], x: Any, layer: int) -> Any:
    told = []
    for k in range(len(biases[layer])):
        moved = [b.astype(complex) for b in biases]
        moved[layer][k] += 1j * STEP
        told.append(_loss(weights, moved, x).imag / STEP)
    return np.array(told)


def difference_error() -> float:
    """The error of forward differences in float32 at their best step over that of backprop, the median of networks."""
    ratios = []
    for seed in range(NETS):
        weights, biases, x = _network(np.random.default_rng(seed))
        truth = _complex_step(weights, biases, x, 0)
        low, bias = ([a.astype(np.float32) for a in each] for each in (weights, biases))
        x32 = x.astype(np.float32)
        ours = np.abs(_by_hand(low, bias, x32, "")[0] - truth).max()
        best = min(np.abs(_differences(low, bias, x32, 2.0**-n) - truth).max() for n in range(1, 23))
        ratios.append(best / ours)
    return float(np.median(ratios))


def difference_slope(rounding: bool) -> float:
    """The exponent of the step in the error of forward differences in float32, the median of networks.

    Args:
        rounding: steps of 2⁻¹⁸ to 2⁻¹², below the best one, where rounding is divided by the step; else of 2⁻⁸ to 2⁻⁴,
            above it, where what is left out of the Taylor series is multiplied by it.
    """
    small, large = (18, 12) if rounding else (8, 4)
    errors = []
    for seed in range(NETS):
        weights, biases, x = _network(np.random.default_rng(seed))
        truth = _complex_step(weights, biases, x, 0)
        low, bias = ([a.astype(np.float32) for a in each] for each in (weights, biases))
        told = [_differences(low, bias, x.astype(np.float32), 2.0**-n) - truth for n in (small, large)]
        errors.append([np.abs(error).mean() for error in told])
    first, last = np.median(errors, axis=0)
    return float(np.log2(last / first) / (small - large))


def _differences(weights: list[Any], biases: list[Any], x: Any, step: float) -> Any:
    base, told = _loss(weights, biases, x), []
    for k in range(len(biases[0])):
        moved = [b.copy() for b in biases]
        moved[0][k] += np.float32(step)
        told.append((_loss(weights, moved, x) - base) / np.float32(step))
    return np.array(told)


def trace(what: str) -> float:
    """Fig. 2.9: f = ln x_1 + x_1 x_2 − sin x_2 at (2, 5), and its derivatives by complex steps.

    Args:
        what: ``y``, ``x_1``, ``x_2``; ``v_4``, a primal; or the share of one operator in an adjoint: ``v_-1 by v_2``,
            ``v_0 by v_3``.
    """

    def product(a: complex, b: complex) -> complex:
        return a * b

    def sine(a: complex, b: complex) -> complex:
        return complex(-np.sin(b))

    def v_4(a: complex, b: complex) -> complex:
        return complex(np.log(a)) + product(a, b)

    def f(a: complex, b: complex) -> complex:
        return v_4(a, b) + sine(a, b)

    first, second = (2 + 1j * STEP, 5), (2, 5 + 1j * STEP)
    values: dict[str, Callable[[], float]] = {
        "y": lambda: f(2, 5).real,
        "v_4": lambda: v_4(2, 5).real,
        "x_1": lambda: f(*first).imag / STEP,
        "x_2": lambda: f(*second).imag / STEP,
        "v_-1 by v_2": lambda: product(*first).imag / STEP,
        "v_0 by v_3": lambda: sine(*second).imag / STEP,
    }
    return values[what]()


def pebbles(leaves: int, lazy: bool) -> int:
    """The most pebbles at once on a chain of two-input nodes: all leaves placed first, or each when it is needed."""
    placed = 0 if lazy else leaves
    most = placed
    for node in range(leaves - 1):
        placed += (2 if node == 0 else 1) if lazy else 0
        placed += 1  # the node
        most = max(most, placed)
        placed -= 2  # its inputs
    return most


def weights_growth(width: int) -> float:
    """By how many times more the logarithm of a dense layer's weights rises from width 2w to 4w than from w to 2w."""
    numbers = [w * w + w for w in (width, 2 * width, 4 * width)]
    return math.log(numbers[2] / numbers[1]) / math.log(numbers[1] / numbers[0])


def saving_all() -> float:
    """Percent of the drawn chains of `errata` on which Eq. 2.19 is the peak of a walk that stores every f."""
    told = []
    for p, _ in errata.drawn():
        stated = max(sum(p.beta_f[: i + 1]) + p.beta_b[i + 1] + p.beta_b[i] for i in range(p.N + 1))
        held, peak = sum(p.beta_f[: p.N + 1]), 0
        for i in range(p.N, -1, -1):  # f_0 … f_i and b_{i + 1} are held, b_i is made
            peak = max(peak, held + p.beta_b[i + 1] + p.beta_b[i])
            held -= p.beta_f[i]
        told.append(peak == stated and as_printed.solve(p, peak).compute == sum(p.alpha_f[1:-1]) + sum(p.alpha_b[:-1]))
    return 100 * sum(told) / len(told)


def segments_peak(stages: int) -> float:
    """The simulated peak of √N segments of a uniform chain, in units of √N."""
    costs = Costs.uniform(stages)
    return simulate(classic.sqrt_n(stages), costs).peak / math.sqrt(stages)


def segments_overhead(stages: int) -> float:
    """Percent of compute beyond plain backprop's of √N segments, a backward twice as long as a forward."""
    return 100 * (sum(classic.sqrt_n(stages).runs()) - stages) / (3 * stages)


def recurrence(printed: bool) -> float:
    """Percent of n and k for which g = k log_{k+1} n solves g(n) = k + g(n/(k + 1)), or g(n) = k + g(n/k + 1)."""
    cases = [(n, k) for k in (1, 2, 3) for n in (10, 100, 1000)]

    def g(n: float, k: int) -> float:
        return k * math.log(n, k + 1)

    right = sum(math.isclose(g(n, k), k + g(n / k + 1 if printed else n / (k + 1), k)) for n, k in cases)
    return 100 * right / len(cases)


def recursion_depth() -> float:
    """Percent of n up to 40 and s up to 6 for which no stage runs more often under our REVOLVE than the least depth.

    The bound is the least r with C(s + r, r) ≥ n, and one more run: the recorded one.
    """
    cases = [(n, s) for n in range(1, 41) for s in range(1, 7)]

    def least(n: int, s: int) -> int:
        return next(r for r in range(n + 1) if math.comb(s + r, r) >= n)

    return 100 * sum(max(classic.revolve(n, s).runs()) <= least(n, s) + 1 for n, s in cases) / len(cases)


def longest_quadratic(stages: int, slots: int) -> int:
    """The longest segment on which the uniform solver's optimum recomputes everything: with one slot left."""
    policy, longest = classic.uniform_policy(stages), 1
    todo = [(stages, slots)]
    while todo:
        length, left = todo.pop()
        if left == 1:
            longest = max(longest, length)
        elif length > 1:
            offset = policy.offset(length, min(left, length))
            todo += [(offset, left), (length - offset, left - 1)]
    return longest


def segments_over_solver(stages: int) -> float:
    """Compute of √N segments over that of the solver within their own peak, on a uniform chain."""
    costs = Costs.uniform(stages)
    found = simulate(classic.sqrt_n(stages), costs)
    return found.compute / simulate(precise_dp(costs, found.peak, slot=1), costs).compute


def nested_drops(deepest: int) -> float:
    """Percent of depths 1 … `deepest` at which a layer under so many nested checkpoints runs once more than that."""
    import torch
    from torch.utils.checkpoint import checkpoint

    right = 0
    for depth in range(1, deepest + 1):
        runs: list[int] = []

        def layer(x: Any, runs: list[int] = runs) -> Any:
            runs.append(1)
            return x.sin()

        run = layer
        for _ in range(depth):
            run = functools.partial(checkpoint, run, use_reentrant=True)
        run(torch.ones(2, requires_grad=True)).sum().backward()
        right += len(runs) == depth + 1
    return 100 * right / deepest


def listing_3_4() -> float:
    """Percent of two losses, a module and a function, for which the loss layer of Listing 3.4 computes its loss."""
    import torch

    class LossLayer(torch.nn.Module):
        def __init__(self, loss: Any, targets_cpu: Any, device: str) -> None:
            self.loss = loss  # as printed: without super().__init__()
            self.targets_cpu = targets_cpu
            self.device = device

        def forward(self, x: Any) -> Any:
            return self.loss(x, self.targets_cpu.to(self.device))

    right = 0
    for loss in (torch.nn.MSELoss(), torch.nn.functional.mse_loss):
        with contextlib.suppress(AttributeError):
            right += float(LossLayer(loss, torch.zeros(3), "cpu")(torch.ones(3))) == 1.0
    return 100 * right / 2
