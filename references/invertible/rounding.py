"""Losses that equal `loss` in exact arithmetic but round as reversing backprop and Moonwalk do, without their code.

A method may be as far off as plain backprop of such a loss is. So nothing here may call what the methods call:
otherwise a bug of a method would raise its own allowance. Of a layer, only y = f(θ, x) is used, which is the problem
itself, and what its kind says about f:

- Coupling. y = (y2, x1), y2 = x2·e^s(x1) + t(x1), s = 0 where it is additive. f at x2 = 0 is t, and e^s is what a
  cotangent of ones of y2 becomes at x2. So x2 = (y2 − t)/e^s. For a cotangent h of y, that of x is w = (h1 + (∂y2/∂x1)ᵀ
  h2, e^s·h2), h2 that of y2; hence h2 = w2/e^s and h1 = w1 − (∂y2/∂x1)ᵀ h2, a VJP of f again.
- Elementwise. A cotangent of ones becomes f'(x), so h = w/f'(x). The inverse of tanh is ½ ln(1+y) − ½ ln(1−y), that of
  the leaky ReLU divides by its slope left of 0.
- Linear. y = xW + b: x = (y − b) W⁻¹ and w = h Wᵀ, two linear systems.
- Submersion. w = h Wᵀ with W of full column rank; W = QR gives w Q = h Rᵀ. There is no inverse.
- Down-sampling. f permutes numbers, so its Jacobian P has P⁻¹ = Pᵀ: x is the VJP of f for y, and h is f(w).
"""

from __future__ import annotations

import functools
import math
from typing import Any, Protocol

from gradgate.references.backends import scan, stop_gradient, transforms, tree_map
from gradgate.references.contract import Tree
from gradgate.references.invertible.layers import SLOPE, Coupling, Downsampling, Elementwise, Layer, Linear, Submersion


class Chain(Protocol):
    """The attributes of an `InvertibleProblem` that are used here."""

    @property
    def backend(self) -> Any:
        """``jax`` or ``torch``."""

    @property
    def spec(self) -> Any:
        """The Spec."""

    @property
    def blocks(self) -> Any:
        """The chain, block by block."""

    @property
    def x(self) -> Any:
        """x_0."""

    @property
    def xp(self) -> Any:
        """The Array API namespace."""

    def head_loss(self, head: Tree, y: Any) -> Any:
        """x_L -> J."""

    def body(self, params: Tree, x: Any) -> Any:
        """x_0 -> x_L."""


SOLVED = 128
"""The most numbers of a batch for which vijp is tried by a solve: it builds and solves the Jacobian of all of them."""


def by_reversing(problem: Chain, params: Tree, amount: Any) -> Any:
    """`loss`; where `amount` is not 0, with the rounding of states that inverses rebuild.

    It runs to x_L, back to x_0 by the inverses, and from there forward again: what is lost from x_L down to x_i reaches
    x_i from x_0 too. The x_0 that comes back is a constant, like x_0 itself, so every derivative is that of `loss`. The
    input of a submersive layer is kept. Cost: L layers and L inverses, without derivatives, more than `loss`.
    """
    xp, backend = problem.xp, problem.backend
    fixed = tree_map(lambda leaf: stop_gradient(backend, leaf), params)
    x, read = problem.x, {}
    for block in problem.blocks:
        x, _ = scan(backend, functools.partial(_step, block.unit), x, fixed[block.key])
        for key, layer in block.after.items():
            read[key], x = x, layer(fixed[key], x)
    for block in reversed(problem.blocks):
        for key, layer in reversed(block.after.items()):
            x = read[key] if isinstance(layer, Submersion) else _undone(layer, fixed[key], x)

        def unit(x: Any, p: Tree, block: Any = block) -> tuple[Any, Tree]:
            for key, layer in reversed(block.unit.items()):
                x = _undone(layer, p[key], x)
            return x, {}

        x, _ = scan(backend, unit, x, tree_map(lambda leaf: xp.flip(leaf, axis=0), fixed[block.key]))
    return problem.head_loss(params["head"], problem.body(params, xp.where(amount > 0, x, problem.x)))


def by_vijp(problem: Chain, params: Tree, amount: Any) -> Any:
    """`loss`; where `amount` is not 0, with the rounding of h_i that Eq. 10 finds from h_0.

    Let w_0 = h_0, and let w_i solve w_{i−1} = w_i ∂f_i/∂x. The loss gets the terms ⟨w_i − h_i, f_i(θ_i, x_{i−1})⟩,
    where x_{i−1} is held constant. So the cotangent that θ_i gets is w_i, not h_i. Every w_i − h_i is 0 except for
    rounding, whatever the parameters are, and counts as a constant: every derivative is that of `loss`. Cost: about two
    gradients more than the one of `loss`, and no less memory.
    """
    xp, vjp = problem.xp, transforms(problem.backend).vjp

    def constant(leaf: Any) -> Any:
        return stop_gradient(problem.backend, leaf)

    chain = list(_layers(problem, params))
    states = [problem.x]
    for layer, p in chain:
        states.append(layer(p, states[-1]))
    loss = problem.head_loss(params["head"], states[-1])
    *states, end = (constant(x) for x in states)
    fixed = [(layer, tree_map(constant, p)) for layer, p in chain]
    head = tree_map(constant, params["head"])

    def moved(x: Any, shifts: Any) -> Any:
        """The loss with a shift added to every state but x_0: the shift's cotangent is then that state's."""
        for (layer, p), shift in zip(fixed, shifts, strict=True):
            x = layer(p, x) + shift
        return problem.head_loss(head, x)

    value, pull = vjp(moved, problem.x, [xp.zeros_like(x) for x in (*states[1:], end)])
    w, cotangents = pull(xp.ones_like(value))
    for (layer, p), (_, q), x, h in zip(fixed, chain, states, cotangents, strict=True):
        w = _above(layer, p, x, w)
        term = xp.sum(constant(xp.where(amount > 0, w - h, xp.zeros_like(h))) * layer(q, x))
        loss = loss + term - constant(term)
    return loss


def _layers(problem: Chain, params: Tree) -> Any:
    """Every layer in order with its own parameters."""
    for block in problem.blocks:
        for i in range(problem.spec.layers):
            for key, layer in block.unit.items():
                yield layer, tree_map(lambda leaf, i=i: leaf[i], params[block.key][key])
        for key, layer in block.after.items():
            yield layer, params[key]


def _step(unit: dict[str, Layer], x: Any, p: Tree) -> tuple[Any, Tree]:
    """`_through` as a step of `scan`."""
    return _through(unit, p, x), {}


def _through(unit: dict[str, Layer], p: Tree, x: Any) -> Any:
    for key, layer in unit.items():
        x = layer(p[key], x)
    return x


def _pulled(layer: Layer, p: Tree, x: Any) -> tuple[Any, Any]:
    """Y = f(x), and the map of a cotangent of y to that of x."""
    y, pull = transforms(layer.backend).vjp(lambda x: layer(p, x), x)
    return y, lambda h: pull(h)[0]


def _undone(layer: Layer, p: Tree, y: Any) -> Any:
    """The x with y = f(x)."""
    xp, size = layer.xp, layer.shape
    if isinstance(layer, Coupling):
        cut = size.channels - size.channels // 2
        y2, x1 = y[..., :cut], y[..., cut:]
        at_zero, pull = _pulled(layer, p, xp.concat([x1, xp.zeros_like(y2)], axis=-1))
        x2 = y2 - at_zero[..., :cut]
        if layer.affine:
            x2 = x2 / pull(xp.concat([xp.ones_like(y2), xp.zeros_like(x1)], axis=-1))[..., size.channels // 2 :]
        return xp.concat([x1, x2], axis=-1)
    if isinstance(layer, Elementwise):
        if layer.function == "tanh":
            return 0.5 * (xp.log1p(y) - xp.log1p(-y))
        return xp.where(y < 0, y / SLOPE, y)
    if isinstance(layer, Linear):
        rows = xp.reshape(y, (-1, p["w"].shape[-1])) - p["b"]
        return xp.reshape(_row_solution(xp, p["w"], rows), y.shape)
    x_shape = (y.shape[0], size.side, size.side, size.channels)
    return _pulled(layer, p, xp.reshape(xp.zeros_like(y), x_shape))[1](y)


def _above(layer: Layer, p: Tree, x: Any, w: Any) -> Any:
    """The cotangent h of y = f(x) whose VJP by x is w: from the whole Jacobian where a method may build that, too."""
    xp = layer.xp
    if math.prod(x.shape) <= SOLVED and not isinstance(layer, Submersion) and "bfloat16" not in str(x.dtype):
        return _solved(layer, p, x, w)
    if isinstance(layer, Downsampling):
        return layer(p, w)
    if isinstance(layer, Submersion):
        q, r = xp.linalg.qr(p["w"])
        rows = xp.matmul(xp.reshape(w, (-1, q.shape[0])), q)
        return xp.reshape(_row_solution(xp, xp.matrix_transpose(r), rows), (*w.shape[:-1], q.shape[1]))
    if isinstance(layer, Linear):
        rows = xp.reshape(w, (-1, p["w"].shape[0]))
        return xp.reshape(_row_solution(xp, xp.matrix_transpose(p["w"]), rows), w.shape)
    y, pull = _pulled(layer, p, x)
    if isinstance(layer, Elementwise):
        return w / pull(xp.ones_like(y))
    kept = layer.shape.channels // 2
    w1, h2 = w[..., :kept], w[..., kept:]
    assert isinstance(layer, Coupling)
    if layer.affine:
        h2 = h2 / pull(xp.concat([xp.ones_like(h2), xp.zeros_like(w1)], axis=-1))[..., kept:]
    through_y2 = pull(xp.concat([h2, xp.zeros_like(w1)], axis=-1))[..., :kept]
    return xp.concat([h2, w1 - through_y2], axis=-1)


def _solved(layer: Layer, p: Tree, x: Any, w: Any) -> Any:
    """H from the matrix ∂f/∂x, row by row, and one linear solve: it rounds as `layers.vijp_by_solve` does."""
    xp, count = layer.xp, math.prod(x.shape)
    y, pull = _pulled(layer, p, x)
    rows = xp.reshape(xp.eye(count, dtype=x.dtype), (count, *y.shape))
    jacobian = xp.reshape(transforms(layer.backend).vmap(pull)(rows), (count, count))
    q, r = xp.linalg.qr(xp.matrix_transpose(jacobian))
    return xp.reshape(xp.linalg.solve(r, xp.matmul(xp.reshape(w, (1, count)), q)[0]), y.shape)


def _row_solution(xp: Any, matrix: Any, rows: Any) -> Any:
    """Z with Z A = rows."""
    turn = xp.matrix_transpose
    return turn(xp.linalg.solve(turn(matrix), turn(rows)))
