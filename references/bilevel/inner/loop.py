"""An inner loop of a user's functions, with the interface of `BilevelProblem` that the methods of this class use.

θ, η and the batches are lists of leaves here, so that any tree is accepted: modules, named tuples, parameters of nnx.
The user's functions get the user's trees. υ stays the optimiser's tree; its counters and keys have no cotangent.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from gradgate.references.bilevel.inner.pairs import Adam, Chain, Frame, HeavyBall, is_pair, parted
from gradgate.references.bilevel.inner.reversal import INVERTIBLE, check
from gradgate.references.contract import Tree, UsageError

CHECKPOINTING = ("states", "gradients", "logarithmic", "inversion")
"""What can be kept in memory of the inner steps; see `meta_gradient`."""
ARGUMENTS = ("eta", "theta")
"""What a meta-gradient can be taken by, in the order of the arguments."""


@dataclass(frozen=True)
class Functions:
    """The user's functions, and what the meta-gradient is taken by.

    Attributes:
        frame: the framework's `Frame`.
        inner_loss: (θ, η, x) -> scalar.
        optimiser: an (init, update) pair, or η -> one.
        outer_loss: (θ_T, η, y) -> scalar.
        argnums: 0 for η, 1 for θ_0, or a tuple of these.
        has_aux: whether the outer loss returns a pair.
        remat: whether the layers are rematerialised.
        checkpointing: one of `CHECKPOINTING`.
        save_inner_grads: whether ∇L_i is kept next to θ_i and υ_i.
    """

    frame: Frame
    inner_loss: Callable[..., Any]
    optimiser: Any
    outer_loss: Callable[..., Any]
    argnums: Any
    has_aux: bool
    remat: bool
    checkpointing: str
    save_inner_grads: bool

    def __post_init__(self) -> None:
        """Check what can be checked without arrays.

        Raises:
            UsageError: something is wrong; the message says what, and what is legal.
        """
        for name in ("has_aux", "remat", "save_inner_grads"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} must be True or False, not {getattr(self, name)!r}")
        for name in ("inner_loss", "outer_loss"):
            if not callable(getattr(self, name)):
                raise UsageError(f"{name} must be a function, not a {type(getattr(self, name)).__name__}")
        if self.checkpointing not in CHECKPOINTING:
            raise UsageError(f"checkpointing must be one of {', '.join(CHECKPOINTING)}, not {self.checkpointing!r}")
        if self.argnums not in (0, 1, (0,), (1,), (0, 1)):
            raise UsageError(f"argnums is 0 for η, 1 for θ_0, or (0, 1) for both, not {self.argnums!r}")
        if self.save_inner_grads and self.checkpointing != "states":
            raise UsageError(
                f"save_inner_grads=True goes with checkpointing='states', not {self.checkpointing!r}: 'gradients' "
                "saves them and nothing else, and the other two keep nothing of every step"
            )
        if self.remat and not takes_block(self.inner_loss):
            raise UsageError(
                "remat=True needs an inner_loss(theta, eta, x, *, block) that wraps the function of each layer, "
                "block(layer)(parameters, hidden): only the model knows its layers. Or rematerialise them in "
                "inner_loss itself and leave remat=False"
            )
        self._check_arguments("inner_loss", "theta", "eta", "x")
        self._check_arguments("outer_loss", "theta", "eta", "y")
        if not is_pair(self.optimiser) and (not callable(self.optimiser) or _of_torch_optim(self.optimiser)):
            raise UsageError(
                "optimiser must have init and update, as those of optax and torchopt, or be a function of η that gives "
                f"one; {_a(self.optimiser)} is neither. Optimisers of torch.optim change θ in place: use "
                "sgd, adam or adamw of gradgate.in_torch"
            )

    def _check_arguments(self, name: str, *given: str) -> None:
        try:
            signature = inspect.signature(getattr(self, name))
        except (TypeError, ValueError):  # a builtin that does not tell
            return
        try:
            signature.bind(*given)
        except TypeError as error:
            raise UsageError(
                f"{name} is called as {name}({', '.join(given)}), which {name}{signature} does not accept: {error}"
            ) from None

    @functools.cached_property
    def wrapping(self) -> frozenset[str]:
        """Those of the two losses that take ``block``."""
        return frozenset(name for name in ("inner_loss", "outer_loss") if takes_block(getattr(self, name)))

    @property
    def chosen(self) -> tuple[str, ...]:
        """What the gradient is by."""
        places = self.argnums if isinstance(self.argnums, tuple) else (self.argnums,)
        return tuple(ARGUMENTS[place] for place in places)

    def loop(self, eta: Tree, theta: Tree, xs: Tree, y: Tree, state: Tree | None) -> Loop:
        """The loop over given arrays.

        Raises:
            UsageError: θ, η or the batches do not fit.
        """
        flat = {name: self.frame.flatten(tree) for name, tree in (("eta", eta), ("theta", theta), ("xs", xs))}
        for name in {"theta", *self.chosen}:
            self._check_floating(name, flat[name][0])
        lengths = {int(leaf.shape[0]) if getattr(leaf, "ndim", 0) else 0 for leaf in flat["xs"][0]}
        if len(lengths) != 1 or lengths == {0}:
            raise UsageError(
                "every array of xs has one entry of axis 0 for each inner step; here they have "
                f"{sorted(lengths) or 'no array'}. With one batch for all steps, let inner_loss close over it and give "
                "xs = arange(T)"
            )
        found = Loop(
            self,
            lengths.pop(),
            {name: leaves for name, (leaves, _) in flat.items()},
            {name: structure for name, (_, structure) in flat.items()},
            y,
            state,
        )
        if self.checkpointing == "inversion":
            check(found, found._pair(found.eta))
        return found

    def _check_floating(self, name: str, leaves: Sequence[Any]) -> None:
        wrong = [
            str(getattr(leaf, "dtype", type(leaf).__name__)) for leaf in leaves if not self.frame.is_floating(leaf)
        ]
        if wrong or not leaves:
            told = f"a leaf of {wrong[0]}" if wrong else "no leaf"
            raise UsageError(
                f"{name} has {told}; it must be a tree of floating arrays: pass integers and keys in xs or y, or let "
                f"the losses close over them{_of_a_module(leaves)}"
            )


@dataclass(frozen=True)
class Loop:
    """The loop over given arrays, with the attributes of a problem that the methods read.

    Attributes:
        told: the user's functions.
        steps: T.
        flat: the leaves of ``eta``, ``theta`` (θ_0) and ``xs``.
        structure: how their trees are put together.
        y: the batch of the outer loss.
        state: υ_0; None: the optimiser's own start.
    """

    asked: Functions
    steps: int
    flat: dict[str, list[Any]]
    structure: dict[str, Any]
    y: Tree
    state: Tree | None

    @property
    def backend(self) -> str:
        """``jax`` or ``torch``."""
        return self.asked.frame.backend

    @property
    def spec(self) -> Any:
        """``steps``, T, and ``optimiser``, the name of one whose steps can be taken back, or an empty name."""
        last = self._last(self.eta)
        return SimpleNamespace(
            steps=self.steps, optimiser=next((name for kind, name in INVERTIBLE.items() if isinstance(last, kind)), "")
        )

    @property
    def has_aux(self) -> bool:
        """Whether `outer` gives a pair."""
        return self.asked.has_aux

    @property
    def params(self) -> dict[str, list[Any]]:
        """What the gradient is taken by."""
        return {name: self.flat[name] for name in self.asked.chosen}

    @property
    def eta(self) -> list[Any]:
        """What the steps and the outer loss read and the gradient is taken by: η's leaves, or none."""
        return self._eta(self.params)

    @property
    def xs(self) -> list[Any]:
        """The batches of the inner steps, stacked on axis 0; and if steps of Adam are taken back, their numbers."""
        if not self._numbered(self._pair(self.eta)):
            return self.flat["xs"]
        begun = 0 if self.state is None else self._state_of_last(self._pair(self.eta), self.state)["step"]
        return [*self.flat["xs"], self.asked.frame.counted(begun, self.steps)]

    def init(self, params: dict[str, list[Any]]) -> tuple[list[Any], Tree]:
        """θ_0 and υ_0."""
        theta, state = params.get("theta", self.flat["theta"]), self.state
        pair = self._pair(self._eta(params))
        if state is None:
            state = pair.init(self._tree("theta", theta))
        return theta, self._flat_state(pair, state)

    def start(self, params: dict[str, list[Any]]) -> tuple[list[Any], Tree, list[Any]]:
        """θ_0, υ_0 and η."""
        return *self.init(params), self._eta(params)

    def inner_loss(self, theta: list[Any], eta: list[Any], x: list[Any], **block: Any) -> Any:
        """L(θ, η, x)."""
        given = self._tree("theta", theta), self._known(eta), self._tree("xs", x[: len(self.flat["xs"])])
        more = block if "inner_loss" in self.asked.wrapping else {}
        return _scalar(self.asked.inner_loss(*given, **more), "inner_loss", self.asked)

    def outer(self, theta: list[Any], eta: list[Any], **block: Any) -> Any:
        """V(θ_T, η, y); with `has_aux`, a pair of it and the outer loss's second result."""
        more = block if "outer_loss" in self.asked.wrapping else {}
        found = self.asked.outer_loss(self._tree("theta", theta), self._known(eta), self.y, **more)
        if self.has_aux and not (isinstance(found, tuple) and len(found) == 2):
            raise UsageError(
                f"with has_aux=True, outer_loss returns a pair (scalar, aux), not a {type(found).__name__}"
            )
        _scalar(found[0] if self.has_aux else found, "outer_loss", self.asked)
        return found

    def update(self, grad: list[Any], theta: list[Any], state: Tree, eta: list[Any], x: Any) -> tuple[list[Any], Tree]:
        """The optimiser's step."""
        pair, frame = self._pair(eta), self.asked.frame
        trees = self._tree("theta", grad), self._user_state(pair, state, x), self._tree("theta", theta)
        found = frame.update(pair, *trees)
        if not isinstance(found, tuple) or len(found) != 2:
            raise UsageError(
                f"the optimiser's update returned a {type(found).__name__}; legal: the pair (updates, state), where "
                "updates are added to θ; nothing is changed in place"
            )
        updates, state = found
        moves = frame.flatten(updates)[0]
        if len(moves) != len(theta):
            raise UsageError(
                f"the optimiser's update has {len(moves)} leaves and θ {len(theta)}: they must be trees alike"
            )
        for i, (p, move) in enumerate(zip(theta, moves, strict=True)):
            if tuple(getattr(move, "shape", ())) != tuple(p.shape):
                raise UsageError(
                    f"leaf {i} of the optimiser's update has shape {tuple(getattr(move, 'shape', ()))}, and θ's has "
                    f"{tuple(p.shape)}: they must be trees alike"
                )
        moved = [frame.added(p, move) for p, move in zip(theta, moves, strict=True)]
        return moved, self._flat_state(pair, state)

    def rates(self, theta: list[Any], params: dict[str, list[Any]]) -> list[Any]:
        """The learning rates of `HeavyBall`, for its inverse."""
        rates = self._last(self._eta(params)).rates(theta)
        return [self.asked.frame.number(a, p) for a, p in zip(rates, theta, strict=True)]

    def moves(
        self, h: dict[str, Any], theta: list[Any], state: Tree, x: list[Any]
    ) -> tuple[list[Any], list[Any] | None]:
        """What a step of `Adam` subtracts from θ, and what share of θ, for its inverse.

        `state` is υ_{i+1}, and `h` is not read.
        """
        pair = self._last(self.eta)
        directions, rates = pair.directions(state["m"], state["v"], x[-1]), pair.rates(theta, x[-1] - 1)
        subtracted = [a * d for a, d in zip(rates, directions, strict=True)]
        if not pair.decays:
            return subtracted, None
        return subtracted, [
            self.asked.frame.number(a * pair.weight_decay, p) for a, p in zip(rates, theta, strict=True)
        ]

    def read(self, grad: list[Any]) -> list[Any]:
        """What the state of the optimiser reads of a gradient: the gradient itself, or the clipped one in a chain."""
        before, _ = parted(self._pair(self.eta))
        if not before:
            return grad
        tree = self._tree("theta", grad)
        for part in before:
            tree, _ = self.asked.frame.update(part, tree, (), None)
        return self.asked.frame.flatten(tree)[0]

    @property
    def data(self) -> dict[str, Any]:
        """μ of `HeavyBall`, or β₁, β₂, 1 − β₁ and 1 − β₂ of `Adam`, for their inverses."""
        pair, first = self._last(self.eta), self.flat["theta"][0]
        if isinstance(pair, HeavyBall):
            return {"momentum": self.asked.frame.number(pair.momentum, first)}
        given = {"momentum": pair.b1, "decay": pair.b2, "momentum_rest": 1 - pair.b1, "decay_rest": 1 - pair.b2}
        return {name: self.asked.frame.number(value, first) for name, value in given.items()}

    def gathered(self, grads: dict[str, list[Any]]) -> Tree:
        """The gradient in the user's trees: that of one argument, or a tuple of both."""
        found = tuple(self._tree(name, grads[name]) for name in self.asked.chosen)
        return found if isinstance(self.asked.argnums, tuple) else found[0]

    def _tree(self, name: str, leaves: Sequence[Any]) -> Tree:
        return self.asked.frame.unflatten(self.structure[name], leaves)

    def _numbered(self, pair: Any) -> bool:
        """Whether the number of a step is in x and not in υ, as in `BilevelProblem`."""
        return self.asked.checkpointing == "inversion" and isinstance(parted(pair)[1], Adam)

    def _flat_state(self, pair: Any, state: Tree) -> Tree:
        """υ as the methods have it: what can be taken back has lists of leaves."""
        flatten = self.asked.frame.flatten
        last = self._state_of_last(pair, state)
        if self._numbered(pair):
            return {name: flatten(last[name])[0] for name in ("m", "v")}
        return flatten(last)[0] if self._bare(pair) else state

    def _user_state(self, pair: Any, state: Tree, x: list[Any]) -> Tree:
        """υ as the optimiser has it."""
        if self._numbered(pair):
            last: Tree = {"step": x[-1] - 1, **{name: self._tree("theta", state[name]) for name in ("m", "v")}}
        elif self._bare(pair):
            last = self._tree("theta", state)
        else:
            return state
        return (*(() for _ in parted(pair)[0]), last) if isinstance(pair, Chain) else last

    def _bare(self, pair: Any) -> bool:
        """Whether υ is kept as the leaves of the velocity: of momentum alone, and of a chain if it is taken back."""
        chained = isinstance(pair, Chain)
        return isinstance(parted(pair)[1], HeavyBall) and (not chained or self.asked.checkpointing == "inversion")

    def _state_of_last(self, pair: Any, state: Tree) -> Tree:
        """The state of the last part of a chain; of any other pair the state."""
        return state[-1] if isinstance(pair, Chain) else state

    def _eta(self, params: dict[str, list[Any]]) -> list[Any]:
        return params.get("eta", [])

    def _known(self, eta: list[Any]) -> Tree:
        """The user's η, even if no gradient is taken by it."""
        return self._tree("eta", eta if "eta" in self.asked.chosen else self.flat["eta"])

    def _last(self, eta: list[Any]) -> Any:
        """The part of the optimiser whose step is taken back."""
        return parted(self._pair(eta))[1]

    def _pair(self, eta: list[Any]) -> Any:
        given = self.asked.optimiser
        found = given if is_pair(given) else given(self._known(eta))
        if not is_pair(found):
            raise UsageError(
                f"optimiser, called with η, must give an object with init and update, not a {type(found).__name__}"
            )
        return found


def takes_block(function: Any) -> bool:
    """Whether a function takes ``block``, which wraps its layers."""
    return "block" in inspect.signature(function).parameters


def _of_torch_optim(optimiser: Any) -> bool:
    """Whether this is a class of ``torch.optim``, which a function of η might be taken for."""
    return isinstance(optimiser, type) and optimiser.__module__.startswith("torch.optim")


def _a(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"


def _of_a_module(leaves: Sequence[Any]) -> str:
    """What to do about a leaf that is a module, or one of its functions."""
    if any(hasattr(leaf, "named_parameters") for leaf in leaves):
        return ". Of a torch.nn.Module pass dict(module.named_parameters()), and call it by torch.func.functional_call"
    if any(callable(leaf) for leaf in leaves):
        return ". Of a module of equinox pass the first part of eqx.partition(module, eqx.is_inexact_array)"
    return ""


def _scalar(value: Any, name: str, told: Functions) -> Any:
    """`value`.

    Raises:
        UsageError: it is not a floating scalar.
    """
    if not told.frame.is_floating(value) or getattr(value, "shape", None) != ():
        shape = getattr(value, "shape", None)
        kind = type(value).__name__ if shape is None else f"an array of shape {tuple(shape)} and {value.dtype}"
        raise UsageError(f"{name} must return a floating scalar, not {kind}: take the mean over the batch")
    return value
