"""Steps of the inner optimisers in words of several floats, and the same steps taken back (App. A.2), written once.

Momentum: θ_i = θ_{i+1} + α ⊙ υ_{i+1}, then υ_i = (υ_{i+1} − ∇L(θ_i))/μ. Adam is taken back in the same order, since its
step from θ_i to θ_{i+1} reads only m_{i+1} and v_{i+1}: they give θ_i, ∇L(θ_i) gives m_i = (m_{i+1} − (1 − β₁)∇L)/β₁
and v_i = (v_{i+1} − (1 − β₂)∇L²)/β₂. SGD's step reads ∇L at θ_i, which is not known yet, so it has no such order.

How errors grow, with u the unit roundoff of the stored states: per step taken back, errors of υ grow by 1/μ, of m by
1/β₁ and of v by 1/β₂. For v the error relative to v_i counts, (v_{i+1}/v_i)·u, and v_i may be far below v_{i+1}. In
floats Adam over 32 steps has an error of 2·10⁻⁸ to 6·10⁻⁵ at β₁ = 0.5, and of 10⁻⁶ at β₁ = 0.9 if a unit of ReLU is
inactive at first (`suites/tests/references/bilevel` measures both). In words of n parts the roundoff is uⁿ.

With two parts there is one more way to lose digits, where epsilon_root is 0. A v_i that was 0 comes back as u²·v_{i+1},
and m_i as u²·m_{i+1}. The step then moves by their quotient m/√v, about u, and θ may come back as a neighbouring float.
∇L differs in its last digits there, and so does the v_i before it, by u·(∇L_{i+1}/∇L_i)², which may be more than 1:
`test_bilevel_inversion` has a problem in float32. With three parts the step moves by about u^1.5. `meta_gradient` takes
two, for its memory, and refuses epsilon_root = 0 below float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.bilevel.inner import words
from gradgate.references.bilevel.inner.words import Word, Words
from gradgate.references.contract import Tree

State = dict[str, Words]
"""The state's trees by name, as words: ``velocity``, or ``m`` and ``v``."""
NUMBERS = ("momentum", "decay", "epsilon", "epsilon_root", "momentum_rest", "decay_rest")
"""What the optimisers read of a problem's ``data``; the last two are 1 − β₁ and 1 − β₂, where 1 − β has lost digits."""


@dataclass(frozen=True)
class Inverse:
    """An optimiser whose step can be taken back.

    Attributes:
        state: the problem's tree υ -> its trees by name.
        tree: the trees by name -> the problem's tree υ.
        advance: ``(backend, h, grad, state) -> state``, forward.
        retreat: ``(backend, h, grad, state) -> state``, backward.
    """

    state: Callable[[Tree], dict[str, Tree]]
    tree: Callable[[dict[str, Tree]], Tree]
    advance: Callable[..., State]
    retreat: Callable[..., State]


def _each(function: Callable[[Any, Word], Word], grad: Tree, tree: Words) -> Words:
    """Apply `function` to the gradient and the word of each leaf."""
    return words.mapped(lambda g, *word: function(g, word), len(tree), grad, *tree)


def _mixed(backend: str, factor: Any, word: Word, added: Word) -> Word:
    return words.plus(words.times(backend, word, factor), added)


def _unmixed(backend: str, factor: Any, word: Word, added: Word) -> Word:
    return words.over(backend, words.plus(word, words.minus(added)), (factor,))


def _less(backend: str, word: Word, share: Any) -> Word:
    """word·(1 − share)."""
    return words.plus(word, words.minus(words.times(backend, word, share)))


def _parts_of_adam(backend: str, h: dict[str, Any], turn: Callable[..., Word], grad: Tree, state: State) -> State:
    b1, b2 = h["momentum"], h["decay"]
    rest1, rest2 = h.get("momentum_rest", 1 - b1), h.get("decay_rest", 1 - b2)

    def first(g: Any, word: Word) -> Word:
        return turn(backend, b1, word, words.product_of(backend, g, rest1))

    def second(g: Any, word: Word) -> Word:
        return turn(backend, b2, word, words.times(backend, words.product_of(backend, g, g), rest2))

    return {"m": _each(first, grad, state["m"]), "v": _each(second, grad, state["v"])}


def _momentum_part(backend: str, h: dict[str, Any], turn: Callable[..., Word], grad: Tree, state: State) -> State:
    def one(g: Any, word: Word) -> Word:
        return turn(backend, h["momentum"], word, (g,))

    return {"velocity": _each(one, grad, state["velocity"])}


INVERSES = {
    "momentum": Inverse(
        state=lambda tree: {"velocity": tree},
        tree=lambda named: named["velocity"],
        advance=lambda backend, h, grad, state: _momentum_part(backend, h, _mixed, grad, state),
        retreat=lambda backend, h, grad, state: _momentum_part(backend, h, _unmixed, grad, state),
    ),
    "adam": Inverse(
        state=dict,
        tree=dict,
        advance=lambda backend, h, grad, state: _parts_of_adam(backend, h, _mixed, grad, state),
        retreat=lambda backend, h, grad, state: _parts_of_adam(backend, h, _unmixed, grad, state),
    ),
}
"""Name of an optimiser -> how its step is taken back."""


@dataclass(frozen=True)
class Steps:
    """The steps of one problem in words, forward and back.

    Attributes:
        problem: a BilevelProblem whose optimiser is in `INVERSES`, or what has its attributes, such as a `Loop`.
        parts: how many floats a word has.
    """

    problem: Any
    parts: int

    @property
    def inverse(self) -> Inverse:
        """The inverse of the problem's optimiser."""
        return INVERSES[self.problem.spec.optimiser]

    def start(self) -> tuple[Words, State]:
        """θ_0 and υ_0."""
        theta, state = self.problem.init(self.problem.params)
        backend = self.problem.backend
        return words.start(backend, theta, self.parts), {
            name: words.start(backend, tree, self.parts) for name, tree in self.inverse.state(state).items()
        }

    def rounded(self, carry: tuple[Words, State]) -> tuple[Tree, Tree]:
        """θ and υ as the problem's update has them, in its dtype."""
        highs = carry[0][0], self.inverse.tree({name: tree[0] for name, tree in carry[1].items()})
        found: tuple[Tree, Tree] = words.narrowed(self.problem.backend, highs, self.problem.params)
        return found

    def forward(self, grad: Tree, carry: tuple[Words, State], x: Tree) -> tuple[Words, State]:
        """A step. `grad` is ∇L at the rounded θ of `carry`."""
        problem, (theta, state) = self.problem, carry
        state = self.inverse.advance(problem.backend, self._h(), self._read(grad), state)
        return self._moved(theta, state, x, -1), state

    def theta_before(self, carry: tuple[Words, State], x: Tree) -> tuple[Words, State]:
        """θ_i and υ_{i+1} from θ_{i+1} and υ_{i+1}; x is x_i."""
        return self._moved(*carry, x, 1), carry[1]

    def state_before(self, grad: Tree, carry: tuple[Words, State]) -> tuple[Words, State]:
        """θ_i and υ_i from θ_i and υ_{i+1}; `grad` is ∇L at the rounded θ_i."""
        theta, state = carry
        return theta, self.inverse.retreat(self.problem.backend, self._h(), self._read(grad), state)

    def _read(self, grad: Tree) -> Tree:
        """What the state reads of ∇L, rounded in the same way forward and back."""
        return words.widened(self.problem.backend, words.read(self.problem, grad))

    def _h(self) -> dict[str, Any]:
        known = {name: self.problem.data[name] for name in NUMBERS if name in self.problem.data}
        found: dict[str, Any] = words.widened(self.problem.backend, known)
        return found

    def _moved(self, theta: Words, state: State, x: Tree, sign: int) -> Words:
        """θ + sign·α ⊙ direction, and weight decay; the product rounds in the same way forward and back."""
        problem = self.problem
        highs = self.inverse.tree({name: tree[0] for name, tree in state.items()})
        moves, shares = words.fixed(problem.backend, problem.moves(self._h(), theta[0], highs, x))
        if shares is not None and sign < 0:
            theta = _each(lambda s, word: _less(problem.backend, word, s), shares, theta)
        theta = _each(lambda d, word: words.plus(word, (sign * d,)), moves, theta)
        if shares is not None and sign > 0:
            theta = _each(lambda s, word: words.over_rest(problem.backend, word, s), shares, theta)
        return theta
