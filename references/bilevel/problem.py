"""Bilevel optimisation over T inner steps, written once for NumPy, JAX and PyTorch.

Notation of the paper (MixFlow-MG, §2–3): η are the meta-parameters, which are ``params``; θ the inner parameters, υ the
inner optimiser's state, x_i the batch of inner step i = 0 … T−1, y that of the outer loss. L(θ, η, x) is the inner
loss, Υ(∇L, θ, υ, η, x) the update (Eq. 4), V(θ_T, y) the outer loss (Eq. 3), whose gradient by η is the method's task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.references.backends import namespace, scan, to_backend, tree_map
from gradgate.references.bilevel.inner.gradient import gradient
from gradgate.references.bilevel.inner.models import ACTIVATIONS, MODELS, Block, as_it_is, score_draws
from gradgate.references.bilevel.inner.optimisers import DIRECTIONS, OPTIMISERS
from gradgate.references.bilevel.rounding import loss_by_inversion, loss_on_a_grid, nudged
from gradgate.references.contract import Backend, Problem, Spec, Tree, UsageError, counting, unknown, value_field
from gradgate.references.draws import Constant, Integers, Normal, draw

TASKS = ("maml", "learning_lr", "loss_weighting")
CHOICES = {"task": TASKS, "model": tuple(MODELS), "optimiser": tuple(OPTIMISERS), "activation": tuple(ACTIVATIONS)}
HYPERPARAMETERS = ("momentum", "decay", "epsilon", "epsilon_root")


@dataclass(frozen=True)
class BilevelSpec(Spec):
    """Plain numbers that build a `BilevelProblem`.

    Attributes:
        task: where η enters (§5.2): ``maml``, η is θ_0; ``learning_lr``, η are learning rates, one per inner parameter;
            ``loss_weighting``, η are the parameters of a network with the inner model's architecture that weighs the
            loss of every data point.
        model: ``toy``, the map of Eq. 9, which with ``maml`` and ``sgd`` is the motivating example; ``mlp``; or
            ``transformer``, whose inputs are integers.
        optimiser: ``sgd``, ``momentum`` or ``adam``.
        steps: T.
        batch: B, data points per inner step and in the outer loss.
        layers: L; for the toy map, M.
        width: D, d_model.
        ffw, heads, key_size: of the transformer only.
        sequence: S, tokens per data point, of the transformer only.
        vocabulary: V; classes of the MLP.
        activation: of the MLP: ``tanh``, ``gelu``, or ``relu``. The second derivative of ``relu`` is 0 away from its
            kink, so a gradient through it is claimed only if it is applied to no 0.
        learning_rate: α; in ``learning_lr`` the mean of η.
        momentum: μ of momentum, β₁ of Adam.
        decay: β₂ of Adam.
        epsilon: ϵ of Adam, added to √v̂.
        epsilon_root: added to v̂ under the root; 0 in Adam as published.
        scale: of the weights of MLP and toy map.
    """

    task: str = "maml"
    model: str = "mlp"
    optimiser: str = "sgd"
    steps: int = 2
    batch: int = 2
    layers: int = 2
    width: int = 3
    ffw: int = 4
    heads: int = 1
    key_size: int = 2
    sequence: int = 3
    vocabulary: int = 3
    activation: str = "tanh"
    learning_rate: float = value_field(0.1)
    momentum: float = value_field(0.9)
    decay: float = value_field(0.999)
    epsilon: float = value_field(1e-8)
    epsilon_root: float = value_field(0.0)
    scale: float = value_field(0.5)

    def validate(self) -> None:
        """Raise UsageError unless every size is at least 1, every choice known and every number in its range."""
        for name, legal in CHOICES.items():
            if getattr(self, name) not in legal:
                raise unknown(name, getattr(self, name), legal)
        for name in ("steps", "batch", "layers", "width", "ffw", "heads", "key_size", "sequence"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.vocabulary < 2:
            raise UsageError(f"vocabulary must be at least 2, not {self.vocabulary}")
        if self.model == "transformer" and self.key_size % 2:
            raise UsageError(f"key_size must be even, since RoPE turns pairs of numbers, not {self.key_size}")
        for name in ("momentum", "decay"):
            if not 0 < getattr(self, name) < 1:
                raise UsageError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name in ("learning_rate", "epsilon", "scale"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive, not {getattr(self, name)}")
        if self.epsilon_root < 0:
            raise UsageError(f"epsilon_root must be at least 0, not {self.epsilon_root}")

    def layout(self) -> tuple[type[BilevelProblem], Tree, dict[str, Any]]:
        """The draws of params and data, in the order in which they are drawn."""
        model, T = MODELS[self.model], self.steps
        theta = model.draws(self)
        data: dict[str, Any] = {
            "xs": {**model.batch(self, (T,)), "step": Integers((T,), T + 1)},
            "y": model.batch(self, ()),
            "upstream": Constant(self.upstream),
            "learning_rate": Constant(self.learning_rate),
            **{name: Constant(getattr(self, name)) for name in HYPERPARAMETERS},
        }
        if self.task == "maml":
            return BilevelProblem, theta, data
        data["theta"] = theta
        if self.task == "learning_lr":
            rate = self.learning_rate
            return BilevelProblem, tree_map(lambda leaf: Normal(leaf.shape, 0.3 * rate, rate), theta), data
        return BilevelProblem, {**theta, **score_draws(self)}, data

    def build(self, backend: Backend) -> BilevelProblem:
        """The Problem; `draws.draw` says how its numbers are rounded."""
        cls, params, data = self.layout()
        params, data = draw([params, data], self, backend)
        import numpy as np

        data["xs"]["step"] = to_backend(backend, np.arange(1, self.steps + 1, dtype=np.int32))
        return cls(self, backend, params, data)


@dataclass(frozen=True)
class BilevelProblem(Problem):
    """The outer loss after T inner steps, as a function of η.

    ``params`` is η: a tree like θ in the tasks maml and learning_lr; in loss_weighting a tree like θ that also has
    ``"score": {"w": (D,), "b": ()}``. θ is ``{"weights": (D, D)}`` for the toy map, ``{"layers": {"w": (L, D, D), "b":
    (L, D)}, "readout": {"w": (D, V), "b": (V,)}}`` for the MLP, and as in `transformer.draws` for the transformer. υ is
    a tree like θ (momentum), ``{"m", "v"}`` with two such trees (Adam), or ``()``.

    ``data`` holds `xs`, `y`, ``upstream`` (the factor of the loss), ``learning_rate`` and the hyperparameters of the
    optimiser, all of shape (), and ``theta``, θ_0, except in maml. A batch is ``{"inputs", "targets"}``: floating (B,
    D) and (B, D) for the toy map; floating (B, D) and int32 (B,) for the MLP; both int32 (B, S) for the transformer.
    """

    spec: BilevelSpec
    backend: Backend
    params: Tree
    data: dict[str, Any] = field(default_factory=dict)

    has_aux: ClassVar[bool] = False
    """Whether `outer` returns a pair of the loss and something else."""
    stacked: ClassVar[tuple[str, ...]] = ("layers",)
    nets: ClassVar[Mapping[str, str]] = {"inner_loss": "inner loss", "outer_loss": "outer loss"}
    """Besides these, each layer is counted as ``layer``, also in a network that weighs losses: see `_counted`."""

    @property
    def xs(self) -> Tree:
        """The batches of the inner steps, stacked on axis 0: a batch, and ``step``, int32, counted from 1."""
        return self.data["xs"]

    @property
    def y(self) -> Tree:
        """The batch of the outer loss."""
        return self.data["y"]

    def rerounded(self, amount: Any) -> BilevelProblem:
        """The same problem with θ_0 moved by roundoffs, and computed in another way.

        Some numbers of θ_0 are moved by two roundoffs. The oracle moves the parameters alone, so where θ_0 is none of
        them, the first steps would have the same roundings in every sample.

        `amount` is subtracted from all scores of attention and from the logits of the MLP. Softmax stays the same. But
        without it the largest score counts as 0 and its exponential is 1. So the largest probability p is rounded in
        the same way every time, and 1 − p, which is all that the gradient of a sure prediction has, is off by the same.
        Forward mode has other roundings there. In attention the first token attends only to itself, with a gradient of
        0 as the difference of two terms, which reverse mode over reverse mode has equal in every bit.
        """
        data = dict(self.data)
        if "theta" in data:
            data["theta"] = nudged(self.xp, data["theta"], amount, self.spec.dtype)
        if self.spec.model != "toy":
            steps = amount * self.xp.ones((self.spec.steps,), dtype=amount.dtype)
            data |= {"xs": {**self.xs, "shift": steps}, "y": {**self.y, "shift": amount}}
        return self._replace(data=data)

    def init(self, eta: Tree) -> tuple[Tree, Tree]:
        """θ_0 and υ_0."""
        theta = eta if self.spec.task == "maml" else self.data["theta"]
        return theta, OPTIMISERS[self.spec.optimiser].init(self.xp, theta)

    @property
    def eta(self) -> Tree:
        """η, as the inner steps and the outer loss read it."""
        return self.params

    def start(self, params: Tree) -> tuple[Tree, Tree, Tree]:
        """θ_0, υ_0 and η as functions of `params`."""
        return *self.init(params), params

    def inner_loss(self, theta: Tree, eta: Tree, x: Tree, *, block: Block = as_it_is) -> Any:
        """L(θ, η, x), a scalar: the mean over data points, each weighed by 1 + tanh of its score in loss_weighting.

        Args:
            theta: θ.
            eta: η.
            x: one element of `xs`.
            block: wraps the function of each layer, for block rematerialisation; also in a network that weighs losses.
        """
        model, xp, block = MODELS[self.spec.model], namespace(self.backend), self._counted(block)
        each = model.losses(self.spec, self.backend, theta, x, block)
        if self.spec.task == "loss_weighting":
            each = each * (1 + xp.tanh(model.scores(self.spec, self.backend, eta, x, block)))
        return xp.mean(each)

    def update(self, grad: Tree, theta: Tree, state: Tree, eta: Tree, x: Tree) -> tuple[Tree, Tree]:
        """Υ: gradient of the inner loss, θ_i, υ_i -> θ_{i+1}, υ_{i+1}, elementwise."""
        rule = OPTIMISERS[self.spec.optimiser].update
        return rule(self.xp, self.data, self.rates(theta, eta), x["step"], grad, theta, state)

    def rates(self, theta: Tree, eta: Tree) -> Tree:
        """The learning rates, a tree like θ whose leaves are arrays like it, or ()."""
        return eta if self.spec.task == "learning_lr" else tree_map(lambda _: self.data["learning_rate"], theta)

    def read(self, grad: Tree) -> Tree:
        """What υ reads of a gradient of the inner loss: the gradient itself; a `Loop` may clip it."""
        return grad

    def moves(self, h: dict[str, Any], theta: Tree, state: Tree, x: Tree) -> tuple[Tree, None]:
        """What a step of momentum or Adam subtracts from θ: α ⊙ a direction that reads only υ_{i+1}, which is `state`.

        The second result is the share of θ that weight decay subtracts: none.

        Args:
            h: the optimiser's numbers, as in ``data``, perhaps in a wider dtype.
            theta: a tree like θ; its numbers are not read.
            state: υ_{i+1}.
            x: the batch of the step.
        """
        direction = DIRECTIONS[self.spec.optimiser](self.xp, h, x["step"], state)
        return tree_map(lambda a, d: a * d, self.rates(theta, self.params), direction), None

    def outer_loss(self, theta: Tree, y: Tree, *, block: Block = as_it_is) -> Any:
        """V(θ_T, y), a scalar, times ``upstream``; `block` as in `inner_loss`."""
        each = MODELS[self.spec.model].losses(self.spec, self.backend, theta, y, self._counted(block))
        return self.data["upstream"] * self.xp.mean(each)

    def outer(self, theta: Tree, eta: Tree, *, block: Block = as_it_is) -> Any:
        """V(θ_T, y), which depends on η only through θ_T."""
        return self.outer_loss(theta, self.y, block=block)

    def positions(self, net: str, *args: Any) -> int:
        """The number of data points: those of the batch, the last argument, or those that a layer reads."""
        return int((args[1] if net == "layer" else args[-1]["targets"]).shape[0])

    def _counted(self, block: Block) -> Block:
        """`block` around layers that are counted, so that evaluations by rematerialisation are counted too."""
        return lambda layer: block(counting(self, layer, "layer"))

    def loss(self, params: Tree) -> Any:
        """V(θ_T(η), y) by T inner steps (Eq. 3), each with the gradient of the inner loss by plain backprop.

        In NumPy that gradient comes from complex steps (`inner_gradient`), so that the Taylor check knows no reverse
        mode.
        """

        def step(carry: tuple[Tree, Tree], x: Tree) -> tuple[tuple[Tree, Tree], Tree]:
            theta, state = carry
            grad = gradient(self.backend, lambda theta: self.inner_loss(theta, params, x), theta)
            return self.update(grad, theta, state, params, x), ()

        (theta, _), _ = scan(self.backend, step, self.init(params), self.xs)
        return self.outer_loss(theta, self.y)

    def loss_by_inversion(self, params: Tree, amount: Any) -> Any:
        """`loss` with the rounding of inner states rebuilt from the last one; the optimiser must be momentum."""
        return loss_by_inversion(self, params, amount)

    def loss_on_a_grid(self, params: Tree, amount: Any) -> Any:
        """`loss` with every inner state υ_i rounded to a grid; the optimiser must be momentum."""
        return loss_on_a_grid(self, params, amount)
