"""Steps of momentum on a grid, taken back bit for bit with a buffer of lost bits (Maclaurin et al., 2015).

Multiplying υ by μ < 1 loses log2(1/μ) bits per step, which taking the step back has to find again. Maclaurin, Duvenaud
and Adams (Algorithm 3) keep θ and υ as integers and the lost bits in a buffer. Here θ and υ are multiples of δ, one
power of two per leaf, kept in floats. The buffer has the last eight bits of every υ_i/δ: υ_i is the one number with
these bits that is next to (υ_{i+1} − ∇L(θ_i))/μ. So ∇L need not come out the same in every bit on the way back, which
no compiler promises: it may be off by what 64δ leave.

    forward     υ_{i+1} = ⌊μυ_i + ∇L(θ_i)⌉,  θ_{i+1} = θ_i − ⌊α ⊙ υ_{i+1}⌉,  k_i = υ_i/δ mod 256
    back        θ_i = θ_{i+1} + ⌊α ⊙ υ_{i+1}⌉,  υ_i = the one near (υ_{i+1} − ∇L(θ_i))/μ with υ_i/δ mod 256 = k_i

⌊x⌉ rounds to the grid as (x + C) − C does with C = ±2^(p−1)·δ, p the digits of a float: in exact arithmetic it is x
itself, and all that stands here the plain formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import leaves, namespace, stop_gradient, tree_map
from gradgate.references.bilevel.inner import words
from gradgate.references.contract import Tree

PLACES = 256.0
"""Numbers that a byte of the buffer tells apart, in units of δ."""
MARGIN = 64.0
"""Units of δ by which a step taken back may miss, of the 128 at which the bits are misread."""
DIGITS = {"float64": 50, "float32": 21, "bfloat16": 8}
"""Dtype -> log2 of the largest number of a leaf at the start over δ, for υ."""
HALF = {"float64": 2.0**52, "float32": 2.0**23}
"""Dtype that θ and υ are kept in -> C/δ, and the largest θ/δ that sums are exact to."""
ROOM = 64.0
"""Times α·∇L_0 that θ may move without outgrowing its grid, where it starts near 0."""
Carry = tuple[Tree, Tree]
"""θ_i and υ_i, multiples of their δ."""


@dataclass(frozen=True)
class Grid:
    """The steps of one problem on their grid.

    Attributes:
        problem: a BilevelProblem with the optimiser momentum.
        theta: δ of θ, a tree like θ of () arrays.
        velocity: δ of υ, likewise.
    """

    problem: Any
    theta: Tree
    velocity: Tree

    @classmethod
    def of(cls, problem: Any, grad: Tree) -> Grid:
        """The grid of a problem whose first inner gradient is `grad`."""
        backend, xp = problem.backend, namespace(problem.backend)
        theta, _ = problem.init(problem.params)
        dtype = words.dtype_of(leaves(theta)[0])
        moves = tree_map(lambda a, g: ROOM * a * g, problem.rates(theta, problem.params), grad)

        def spacing(digits: int, *parts: Any) -> Any:
            largest = xp.max(xp.stack([xp.max(xp.abs(words.widened(backend, part))) for part in parts]))
            return _power_of_two(backend, stop_gradient(backend, largest)) * 2.0**-digits

        fine = max(DIGITS[dtype], DIGITS["float32"])
        return cls(
            problem,
            tree_map(lambda p, d: spacing(fine, p, d), theta, moves),
            tree_map(lambda g: spacing(DIGITS[dtype], g), grad),
        )

    def start(self) -> Carry:
        """θ_0 and υ_0, rounded."""
        carry = words.widened(self.problem.backend, self.problem.init(self.problem.params))
        return self._rounded(carry[0], self.theta), self._rounded(carry[1], self.velocity)

    def narrowed(self, carry: Carry) -> Carry:
        """θ and υ in the problem's dtype."""
        found: Carry = words.narrowed(self.problem.backend, carry, self.problem.params)
        return found

    def forward(self, grad: Tree, carry: Carry) -> tuple[Carry, Tree, Any]:
        """A step from ∇L_i: θ_{i+1} and υ_{i+1}; the bytes k_i; and whether all of it can be taken back, () bool."""
        grad, momentum = self._constants(grad)
        theta, velocity = carry
        after = self._rounded(tree_map(lambda v, g: momentum * v + g, velocity, grad), self.velocity)
        moved = tree_map(lambda p, d: p - d, theta, self._moves(theta, after))
        read = tree_map(lambda v, unit: self._byte(v / unit), velocity, self.velocity)
        return (moved, after), read, self._sound(moved, velocity, after, grad, momentum)

    def theta_before(self, carry: Carry) -> Carry:
        """θ_i and υ_{i+1} from θ_{i+1} and υ_{i+1}."""
        return tree_map(lambda p, d: p + d, carry[0], self._moves(*carry)), carry[1]

    def velocity_before(self, grad: Tree, read: Tree, carry: Carry) -> Carry:
        """θ_i and υ_i from θ_i and υ_{i+1}; grad is ∇L at θ_i, read the bytes k_i."""
        grad, momentum = self._constants(grad)
        near = self._rounded(tree_map(lambda v, g: (v - g) / momentum, carry[1], grad), self.velocity)

        def one(v: Any, unit: Any, byte: Any) -> Any:
            missed = namespace(self.problem.backend).astype(byte, v.dtype) - self._place(v / unit)
            return v + unit * (_modulo(self.problem.backend, missed + PLACES / 2) - PLACES / 2)

        return carry[0], tree_map(one, near, self.velocity, read)

    def _constants(self, grad: Tree) -> tuple[Tree, Any]:
        found: tuple[Tree, Any] = words.widened(self.problem.backend, (grad, self.problem.data["momentum"]))
        return found

    def _moves(self, theta: Tree, velocity: Tree) -> Tree:
        """⌊α ⊙ υ⌉ on the grid of θ."""
        rates = words.widened(self.problem.backend, self.problem.rates(theta, self.problem.params))
        moves = words.fixed(self.problem.backend, tree_map(lambda a, v: a * v, rates, velocity))
        return self._rounded(moves, self.theta)

    def _rounded(self, tree: Tree, units: Tree) -> Tree:
        backend = self.problem.backend
        xp = namespace(backend)

        def one(x: Any, unit: Any) -> Any:
            large = HALF[words.dtype_of(x)] * unit
            large = xp.where(x < unit / 3, -large, large)  # next to 0 either sign will do, and 0 decides none in balls
            return words.fixed(backend, x + large) - large

        return tree_map(one, tree, units)

    def _place(self, count: Any) -> Any:
        """υ/δ mod 256, a float."""
        xp = namespace(self.problem.backend)
        return _modulo(self.problem.backend, xp.round(stop_gradient(self.problem.backend, count)))

    def _byte(self, count: Any) -> Any:
        xp = namespace(self.problem.backend)
        return xp.astype(self._place(count), xp.uint8)

    def _sound(self, theta: Tree, velocity: Tree, after: Tree, grad: Tree, momentum: Any) -> Any:
        """Whether θ is within its grid, and υ is found again with a margin."""
        xp = namespace(self.problem.backend)

        def one(p: Any, v: Any, w: Any, g: Any, fine: Any, unit: Any) -> Any:
            within = xp.abs(p) <= HALF[words.dtype_of(p)] * fine
            return xp.all(within & (xp.abs((w - g) / momentum - v) <= MARGIN * unit))

        each = tree_map(one, theta, velocity, after, grad, self.theta, self.velocity)
        return xp.all(xp.stack(leaves(each)))


def _modulo(backend: str, x: Any) -> Any:
    return x - PLACES * namespace(backend).floor(x / PLACES)


def _power_of_two(backend: str, x: Any) -> Any:
    """The power of two at or next above x ≥ 0; 1 for 0."""
    xp = namespace(backend)
    some = xp.where(x > 0, x, xp.ones_like(x))
    power = 2.0 ** xp.ceil(xp.log2(some))
    return words.halves(backend, power)[0]  # libraries miss the power itself by a roundoff or two
