"""A sequence of the user's own modules, with its gradient by reversing or by Moonwalk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.utils import _pytree

from gradgate.references.contract import UsageError, unknown
from gradgate.references.invertible.in_torch import run
from gradgate.references.invertible.in_torch.couplings import Coupling
from gradgate.references.invertible.in_torch.steps import of_layer, steps

METHODS = ("reversible", "moonwalk_mixed", "moonwalk")
Visit = Callable[[dict[str, torch.Tensor]], None]


class InvertibleSequential(nn.Module):
    """The user's layers in order. The backward pass rebuilds what plain backprop keeps.

    It is called with one tensor and returns one, of any shapes and floating dtype. Parameters, buffers, state_dict,
    optimisers and `to` are those of `torch.nn.Sequential`. Derivatives are taken with `backward` or
    `torch.autograd.grad`, once.

    A layer is a `torch.nn.Module` from a tensor to a tensor:

    - an `AdditiveCoupling` or an `AffineCoupling` of two modules F and G of the user's own;
    - a module with a method ``inverse(y)`` that gives x back;
    - for Moonwalk, a module with a method ``vijp(x, h)`` that takes ∂J/∂x to ∂J/∂y; its Jacobian has to be surjective;
    - `Keep` of a module that has neither;
    - another `InvertibleSequential`, whose layers then take its place.

    A layer runs again in the backward pass as it ran forward: with the same random numbers, buffers, mode and autocast.
    Buffers such as running statistics change once, in the forward pass. Forward hooks of what runs again run again;
    hooks of parameters run once, with the whole gradient.

    Args:
        layers: one or more.
        method: ``reversible`` rebuilds each layer's input from its output by the inverse. ``moonwalk_mixed`` finds the
            gradient of the input by reverse mode with parameters held constant, and from it the others forward, layer
            by layer. ``moonwalk`` finds the gradient of the input by forward mode.
        check: whether the first call with a gradient checks every layer: that its inverse gives its input back to half
            of the dtype's digits, or for Moonwalk that its step forward gives the cotangent back. This costs once about
            what a backward pass costs.
        visit: called with {name: gradient} as soon as parameters have their whole gradient. The gradients are then
            dropped, and no ``grad`` is set. It may step the parameters: they are not read again.
        coupled: whether a sample's output depends on other samples, as with batch norm. Only ``moonwalk`` reads this.

    Raises:
        UsageError: no layers; an unknown method; a layer that lacks what the method needs; functions of a coupling that
            do not fit its halves; a layer that changes its input in place; a second derivative. Says what is legal.
        NotInvertible: at the first call, a layer's inverse does not give its input back; names the layer's place and
            class.

    Source:
        RevBackprop: Gomez et al. (2017). Moonwalk: Krylov, Karamzade, Fox (2024), Algorithm 1, §4.1 and §4.2.

    Stores:
        From the forward to the backward pass, besides parameters: ``reversible`` the output; ``moonwalk`` the input;
        ``moonwalk_mixed`` the input and what VJPs by x alone need of every layer. In the backward pass, what one
        layer's VJP needs, and the gradients, unless `visit` takes them.

    Computes:
        Beyond plain backprop: ``reversible`` an inverse of every layer, and of a layer that is no coupling one more
        evaluation. ``moonwalk_mixed`` an evaluation, a VJP by x and a vijp of every layer. ``moonwalk`` an evaluation
        and a vijp of every layer, and a JVP through all layers for each number of a sample; if `coupled`, for each
        number of the batch.

    Not for:
        ``reversible``: layers with an ill-conditioned inverse; errors grow from layer to layer. ``moonwalk``: inputs of
        more than a few hundred numbers. All: second derivatives, torch.func transformations, a network that fits in
        memory anyway.
    """

    def __init__(
        self,
        *layers: nn.Module,
        method: str = "reversible",
        check: bool = True,
        visit: Visit | None = None,
        coupled: bool = True,
    ) -> None:
        super().__init__()
        if method not in METHODS:
            raise unknown("method", str(method), METHODS)
        if len(layers) == 1 and not isinstance(layers[0], nn.Module) and isinstance(layers[0], Iterable):
            layers = tuple(layers[0])
        for i, layer in enumerate(layers):
            if not isinstance(layer, nn.Module):
                raise UsageError(f"layer {i} is a {type(layer).__name__}; legal: torch.nn.Module")
            self.add_module(str(i), layer)
        self.method, self.check, self.visit, self.coupled = method, check, visit, coupled
        self._checked = False
        if not layers:
            raise UsageError("there are no layers; legal: one or more")
        self._check_abilities()

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.children_in_order())

    def children_in_order(self) -> Sequence[nn.Module]:
        """The layers; one that is used twice occurs twice."""
        return [layer for layer in self._modules.values() if layer is not None]

    def flat(self) -> list[nn.Module]:
        """The layers; a nested `InvertibleSequential` is replaced by its layers."""
        found: list[nn.Module] = []
        for layer in self.children_in_order():
            found += layer.flat() if isinstance(layer, InvertibleSequential) else [layer]
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x -> y."""
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            got = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            raise UsageError(f"the input is {got}; legal: one tensor of floating numbers")
        if torch._C._are_functorch_transforms_active():
            raise UsageError(
                "InvertibleSequential does not work within torch.func; take its gradient with backward or "
                "torch.autograd.grad; within torch.func use torch.nn.Sequential of the same layers"
            )
        shared = {id(leaf): leaf for leaf in self.parameters()}
        wanted = x.requires_grad or any(leaf.requires_grad for leaf in shared.values())
        if not (torch.is_grad_enabled() and wanted):
            for i, layer in enumerate(self.flat()):
                with of_layer(f"layer {i} ({type(layer).__name__})"):
                    x = layer(x)
            return x
        self._check_statistics()
        plan = run.Run(steps(self.flat()), self.method, list(shared), self._names(), self.visit, self.coupled)
        plan.check = self.check and not self._checked
        y: torch.Tensor = run.Backward.apply(plan, x, *shared.values())
        self._checked = True
        return y

    def inverse(self, y: torch.Tensor) -> torch.Tensor:
        """y -> x: the inverses of the layers, the last first.

        It is an ordinary function with autograd's own derivative. Where layers draw numbers or keep statistics, call
        `eval()` before; else they draw and count anew.

        Raises:
            UsageError: a layer has no inverse, such as `Keep`; names its place and class.

        Stores:
            With a gradient what plain backprop keeps; without one, one layer.
        """
        for i, layer in reversed(list(enumerate(self.flat()))):
            function = getattr(layer, "inverse", None)
            if not callable(function):
                raise UsageError(f"layer {i} ({type(layer).__name__}) has no inverse; legal: a method inverse(y) -> x")
            with of_layer(f"layer {i} ({type(layer).__name__})"):
                y = function(y)
        return y

    def with_log_det(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x -> (y, log |det ∂y/∂x|), as the density of a normalising flow needs it.

        Args:
            x: samples along axis 0.

        Returns:
            y, and a tensor (batch,). Both have autograd's own derivative, in place of that by `method`.

        Raises:
            UsageError: a layer is no coupling, and has no method ``log_det(x)`` that gives (batch,); names its place.

        Stores:
            With a gradient what plain backprop keeps.
        """
        total = x.reshape(x.shape[0], -1)[:, :0].sum(1)
        for i, layer in enumerate(self.flat()):
            with of_layer(f"layer {i} ({type(layer).__name__})"):
                if isinstance(layer, Coupling):
                    x, more = layer.with_log_det(x)
                else:
                    log_det = getattr(layer, "log_det", None)
                    if not callable(log_det):
                        raise UsageError(
                            "it has no log-determinant; legal: a coupling, or a method log_det(x) -> (batch,)"
                        )
                    more, x = log_det(x), layer(x)
                if more.shape != total.shape:
                    raise UsageError(f"its log_det has shape {tuple(more.shape)}; legal: {tuple(total.shape)}")
            total = total + more
        return x, total

    def _names(self) -> dict[int, str]:
        return {id(leaf): name for name, leaf in self.named_parameters()}

    def _check_abilities(self) -> None:
        for step in steps(self.flat()):
            if self.method == "reversible" and not step.invertible:
                raise UsageError(
                    f"{step.name} has no inverse, which reversible needs; legal: layers with a method inverse(y) -> x, "
                    "couplings; or wrap it in Keep, which keeps its input"
                )
            if self.method != "reversible" and not step.walkable:
                raise UsageError(
                    f"{step.name} has neither a vijp nor an inverse, and Moonwalk needs one of them; legal: layers "
                    "with a method vijp(x, h) or inverse(y), couplings; with moonwalk_mixed you can also wrap it in "
                    "Keep, which keeps the cotangent of its output"
                )
            if self.method == "moonwalk" and step.hands_over:
                raise UsageError(
                    f"{step.name}: moonwalk has no reverse phase that could keep a cotangent; use "
                    "method='moonwalk_mixed'"
                )

    def _check_statistics(self) -> None:
        if self.coupled or self.method != "moonwalk":
            return
        for name, part in self.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
                raise UsageError(
                    f"{name} is a batch norm that trains, so samples depend on each other; use coupled=True"
                )


def check_inverse(layers: Iterable[nn.Module], x: torch.Tensor, digits: float = 0.5) -> float:
    """Run every layer and its inverse at its own input, and compare.

    Nothing changes: no buffer, no generator, no gradient.

    Args:
        layers: modules with an ``inverse``, or an `InvertibleSequential`.
        x: the input of the first one.
        digits: the share of the dtype's digits that a round trip through one layer must keep.

    Returns:
        The largest relative error of a round trip.

    Raises:
        NotInvertible: names the first layer whose inverse raises, is not finite, or misses its input by more than
            u^digits, where u is the unit roundoff of the dtype.

    Computes:
        A forward pass and every inverse once; one layer is in memory.
    """
    modules = layers.flat() if isinstance(layers, InvertibleSequential) else list(layers)
    chain = [(i, step, _pytree.tree_map(torch.detach, step.parameters)) for i, step in enumerate(steps(modules))]
    with torch.no_grad():
        return run.checked_inverses(chain, x.detach(), digits, recorded=False)
