"""Steps of momentum on a grid, taken back bit for bit with a buffer of lost bits (Maclaurin et al., 2015).

Multiplying υ by μ < 1 loses log2(1/μ) bits per step, and the step back needs these bits. Maclaurin, Duvenaud and Adams
(Algorithm 3) keep θ and υ as integers and the lost bits in a buffer. Here θ and υ are multiples of δ, one power of two
per leaf, kept in floats. The buffer has the last eight bits of every υ_i/δ: υ_i is the number with these bits that is
nearest to (υ_{i+1} − ∇L(θ_i))/μ. So ∇L need not have the same bits in the backward pass, which no
compiler promises; the error in υ_i that a different ∇L causes may be up to 64δ.

    forward     υ_{i+1} = ⌊μυ_i + ∇L(θ_i)⌉,  θ_{i+1} = θ_i − ⌊α ⊙ υ_{i+1}⌉,  k_i = υ_i/δ mod 256
    back        θ_i = θ_{i+1} + ⌊α ⊙ υ_{i+1}⌉,  υ_i = the one near (υ_{i+1} − ∇L(θ_i))/μ with υ_i/δ mod 256 = k_i

δ is as small as the floats allow for the largest number of a leaf. That is known from running the steps once before.
Then υ_i has an error of δ/2, which is at most two roundoffs of the largest υ of the leaf in any step, for a small
number too. In bfloat16 δ is coarser than float32 allows, because 64δ has to be well above the rounding error of ∇L.

⌊x⌉ rounds to the grid by computing (x + C) − C with C = ±2^(p−1)·δ, where p is the number of digits of a float. In
exact arithmetic it is x itself, and the formulas above are the plain formulas.

θ is the sum of two numbers, each on its own grid: what a step subtracts from θ is rounded to the first grid, and the
remainder to a second grid, `FINER` times as fine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import leaves, namespace, scan, stop_gradient, tree_map
from gradgate.references.bilevel.inner import words
from gradgate.references.contract import Tree

PLACES = 256.0
"""How many values a byte of the buffer distinguishes."""
MARGIN = 64.0
"""By how many units of δ a step taken back may miss; at 128 the bits are misread."""
DIGITS = {"float64": 52, "float32": 23, "bfloat16": 9}
"""Dtype -> log2 of the largest number of a leaf over δ, for υ. θ has one digit less, because it may not be larger than
`HALF` times δ, and on the grid it may become a little larger than in the run that the grid was chosen from."""
HALF = {"float64": 2.0**52, "float32": 2.0**23}
"""Dtype that θ and υ are kept in -> C/δ, and the largest θ/δ up to which sums are exact."""
FINER = {"float64": 2.0**24, "float32": 2.0**12}
"""Dtype -> δ of θ's first grid over δ of its second. Sums of T steps of at most δ/2 are exact to T = 2^29 and 2^12."""
Carry = tuple[Tree, Tree, Tree]
"""θ_i as a sum of two, and υ_i: each a multiple of its δ."""


@dataclass(frozen=True)
class Grid:
    """The steps of one problem on its grid.

    Attributes:
        problem: a BilevelProblem with the optimiser momentum.
        theta: δ of θ's first grid, a tree like θ of () arrays.
        velocity: δ of υ, likewise.
    """

    problem: Any
    theta: Tree
    velocity: Tree

    @classmethod
    def of(cls, problem: Any, gradient: Callable[[Tree, Tree], Tree]) -> Grid:
        """The grid of a problem, whose steps are run once for it; `gradient` is (θ_i, x_i) ↦ ∇L(θ_i)."""
        dtype = words.dtype_of(leaves(problem.init(problem.params)[0])[0])

        def units(largest: Tree, digits: int) -> Tree:
            return tree_map(lambda most: _power_of_two(problem.backend, most) * 2.0**-digits, largest)

        theta, velocity = _largest(problem, gradient)
        return cls(problem, units(theta, max(DIGITS[dtype], DIGITS["float32"]) - 1), units(velocity, DIGITS[dtype]))

    def start(self) -> Carry:
        """θ_0 and υ_0, rounded."""
        theta, velocity = words.widened(self.problem.backend, self.problem.init(self.problem.params))
        return *self._parts(theta), self._rounded(velocity, self.velocity)

    def narrowed(self, carry: Carry) -> tuple[Tree, Tree]:
        """θ and υ in the problem's dtype."""
        theta = tree_map(lambda p, rest: p + rest, carry[0], carry[1])
        found: tuple[Tree, Tree] = words.narrowed(self.problem.backend, (theta, carry[2]), self.problem.params)
        return found

    def forward(self, grad: Tree, carry: Carry) -> tuple[Carry, Tree, Any]:
        """A step with ∇L_i: θ_{i+1} and υ_{i+1}; the bytes k_i; and whether the step can be taken back, a () bool."""
        grad, momentum = self._constants(grad)
        *theta, velocity = carry
        after = self._rounded(tree_map(lambda v, g: momentum * v + g, velocity, grad), self.velocity)
        moved, rest = (tree_map(lambda p, d: p - d, *part) for part in zip(theta, self._moves(after), strict=True))
        read = tree_map(lambda v, unit: self._byte(v / unit), velocity, self.velocity)
        return (moved, rest, after), read, self._sound((moved, rest, after), velocity, grad, momentum)

    def theta_before(self, carry: Carry) -> Carry:
        """θ_i and υ_{i+1} from θ_{i+1} and υ_{i+1}."""
        *theta, velocity = carry
        theta, rest = (tree_map(lambda p, d: p + d, *part) for part in zip(theta, self._moves(velocity), strict=True))
        return theta, rest, velocity

    def velocity_before(self, grad: Tree, read: Tree, carry: Carry) -> Carry:
        """θ_i and υ_i from θ_i and υ_{i+1}; grad is ∇L at θ_i, read the bytes k_i."""
        grad, momentum = self._constants(grad)
        *theta, after = carry
        near = self._rounded(tree_map(lambda v, g: (v - g) / momentum, after, grad), self.velocity)

        def one(v: Any, unit: Any, byte: Any) -> Any:
            missed = namespace(self.problem.backend).astype(byte, v.dtype) - self._place(v / unit)
            return v + unit * (_modulo(self.problem.backend, missed + PLACES / 2) - PLACES / 2)

        return *theta, tree_map(one, near, self.velocity, read)

    def _constants(self, grad: Tree) -> tuple[Tree, Any]:
        given = words.read(self.problem, grad), self.problem.data["momentum"]
        found: tuple[Tree, Any] = words.widened(self.problem.backend, given)
        return found

    def _moves(self, velocity: Tree) -> tuple[Tree, Tree]:
        """⌊α ⊙ υ⌉ on the first grid of θ, and the rest of α ⊙ υ on the second."""
        problem = self.problem
        rates = words.widened(problem.backend, problem.rates(velocity, problem.params))
        return self._parts(words.fixed(problem.backend, tree_map(lambda a, v: a * v, rates, velocity)))

    def _parts(self, tree: Tree) -> tuple[Tree, Tree]:
        """A tree like θ as a sum of two, on θ's two grids."""
        coarse = self._rounded(tree, self.theta)
        rest = tree_map(lambda x, part: x - part, tree, coarse)
        return coarse, self._rounded(rest, tree_map(lambda x, unit: unit / FINER[words.dtype_of(x)], rest, self.theta))

    def _rounded(self, tree: Tree, units: Tree) -> Tree:
        backend = self.problem.backend
        xp = namespace(backend)

        def one(x: Any, unit: Any) -> Any:
            large = HALF[words.dtype_of(x)] * unit
            large = xp.where(x < unit / 3, -large, large)  # near 0 either sign is right; balls decide none
            return words.fixed(backend, x + large) - large

        return tree_map(one, tree, units)

    def _place(self, count: Any) -> Any:
        """υ/δ mod 256, a float."""
        xp = namespace(self.problem.backend)
        return _modulo(self.problem.backend, xp.round(stop_gradient(self.problem.backend, count)))

    def _byte(self, count: Any) -> Any:
        xp = namespace(self.problem.backend)
        return xp.astype(self._place(count), xp.uint8)

    def _sound(self, carry: Carry, velocity: Tree, grad: Tree, momentum: Any) -> Any:
        """Whether both parts of θ are within their grids, and υ can be recovered with a margin."""
        xp = namespace(self.problem.backend)

        def one(p: Any, rest: Any, w: Any, v: Any, g: Any, fine: Any, unit: Any) -> Any:
            within = xp.maximum(xp.abs(p), FINER[words.dtype_of(p)] * xp.abs(rest)) <= HALF[words.dtype_of(p)] * fine
            return xp.all(within & (xp.abs((w - g) / momentum - v) <= MARGIN * unit))

        each = tree_map(one, *carry, velocity, grad, self.theta, self.velocity)
        return xp.all(xp.stack(leaves(each)))


def _largest(problem: Any, gradient: Callable[[Tree, Tree], Tree]) -> tuple[Tree, Tree]:
    """The largest absolute number of each leaf of θ and υ in all steps, as trees like θ of () arrays."""
    backend, xp = problem.backend, namespace(problem.backend)
    first = problem.init(problem.params)
    start = words.widened(backend, first)
    rates, momentum = words.widened(backend, (problem.rates(first[0], problem.params), problem.data["momentum"]))

    def constant(tree: Tree) -> Tree:
        return tree_map(lambda leaf: stop_gradient(backend, leaf), tree)

    def step(carry: tuple[Tree, Tree], x: Tree) -> tuple[tuple[Tree, Tree], tuple[()]]:
        (theta, velocity), most = carry
        grad = words.widened(backend, problem.read(gradient(words.narrowed(backend, theta, problem.params), x)))
        velocity = tree_map(lambda v, g: momentum * v + g, velocity, grad)
        theta = tree_map(lambda p, a, v: p - a * v, theta, rates, velocity)
        now = tree_map(lambda leaf: xp.max(xp.abs(leaf)), (theta, velocity))
        return constant(((theta, velocity), tree_map(xp.maximum, most, now))), ()

    most = tree_map(lambda leaf: xp.max(xp.abs(leaf)), start)
    (_, found), _ = scan(backend, step, constant((start, most)), problem.xs)
    return found


def _modulo(backend: str, x: Any) -> Any:
    return x - PLACES * namespace(backend).floor(x / PLACES)


def _power_of_two(backend: str, x: Any) -> Any:
    """The power of two at or next above x ≥ 0; 1 for 0."""
    xp = namespace(backend)
    some = xp.where(x > 0, x, xp.ones_like(x))
    power = 2.0 ** xp.ceil(xp.log2(some))
    return words.halves(backend, power)[0]  # libraries compute the power with an error of one or two roundoffs
