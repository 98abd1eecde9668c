"""Functions of PyTorch as they are given to `gradgate.check`: modules with parameters, and captured tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from gradgate.references.contract import UsageError
from gradgate.suites.pairs import captured
from gradgate.suites.pairs.modules_torch import TorchModule, _Recorder
from gradgate.suites.pairs.pair import Pair
from gradgate.suites.pairs.spec import PairProblem


class GivenModule(TorchModule):
    """A module that exists, called as the user calls it: itself, one of its methods, or through `functools.partial`.

    Attributes:
        leaves: name -> parameter that requires a gradient.
    """

    def __init__(self, function: Callable[..., Any], module: nn.Module) -> None:
        super().__init__(module)
        self.leaves = {_plain(name): leaf for name, leaf in module.named_parameters() if leaf.requires_grad}
        self._own = {_plain(name): name for name in self.parameters}
        self._run = function
        self._recorder = _Recorder(module, function)
        self._before = [(held, last, held[last]) for places in self._places.values() for held, last in places]

    def __call__(self, parameters: Mapping[str, Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """What the function returns with these parameters; its buffers are those with which it was given."""
        own = {self._own[name]: leaf for name, leaf in parameters.items()}
        return self.call(own, {}, arguments, keywords, None)[0]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """The scope after which the module has the parameters and buffers that it had before."""
        try:
            yield
        finally:
            for held, last, leaf in self._before:
                held[last] = leaf


def module_of(who: str, function: Callable[..., Any]) -> GivenModule | None:
    """The module that a callable is, or belongs to; None if there is none.

    Raises:
        UsageError: it has no parameters yet.
    """
    module = captured.owner(function)
    if not isinstance(module, nn.Module):
        return None
    if any(isinstance(leaf, nn.parameter.UninitializedParameter) for leaf in module.parameters()):
        raise UsageError(f"the {who} is a module without parameters; call it once before it is checked")
    return GivenModule(function, module)


def _plain(name: str) -> str:
    """The name of a parameter, without what `torch.compile` puts in front of it."""
    return name.replace("_orig_mod.", "")


def requiring(outputs: Sequence[Any], known: Sequence[Any]) -> list[Any]:
    """The leaves of autograd's graph that outputs depend on, without the known ones."""
    found: dict[int, Any] = {}
    nodes = [out.grad_fn for out in outputs if out.grad_fn is not None]
    found |= {id(out): out for out in outputs if out.requires_grad and out.grad_fn is None}
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found[id(leaf)] = leaf
        more = {parent for parent, _ in node.next_functions if parent is not None} - seen
        seen |= more
        nodes += more
    return [leaf for key, leaf in found.items() if key not in set(map(id, known))]


def names_of(function: Callable[..., Any], leaves: Sequence[Any], given: Mapping[str, Any]) -> list[str]:
    """What a function calls the tensors that it captures, such as ``layer.weight``.

    Args:
        given: name -> argument or option, in which such a tensor may be too.
    """
    named: dict[int, str] = {}
    for name, one in [*captured.held(function), *given.items()]:
        if isinstance(one, nn.Module):
            named |= {id(leaf): f"{name}.{_plain(own)}" for own, leaf in one.named_parameters()}
        else:
            parts = _pytree.tree_flatten_with_path(one)[0]
            named |= {id(leaf): name + _pytree.keystr(at) for at, leaf in parts if isinstance(leaf, torch.Tensor)}
    return list(dict.fromkeys(named.get(id(leaf), f"a tensor of shape {tuple(leaf.shape)}") for leaf in leaves))


def captured_by(
    pair: Pair, role: str, function: Callable[..., Any], problem: PairProblem, given: Mapping[str, Any] | None = None
) -> list[str]:
    """Names of what a function uses that requires a gradient, besides the inputs of its pair, by autograd's graph.

    Args:
        given: name -> argument or option, in which such a tensor may be too.

    Cost: a forward pass. If that raises, there are no names: the claims tell what the function raises.

    Raises:
        UsageError: the function is called wrongly.
    """
    params = {path: leaf.detach().requires_grad_() for path, leaf in problem.params.items()}
    try:
        with torch.enable_grad():
            found = pair.outputs(role, problem, params)
    except UsageError:
        raise
    except Exception:
        return []
    return names_of(function, requiring(list(found.values()), list(params.values())), given or {})


def check_captured(pair: Pair, problem: PairProblem) -> None:
    """Check that the function and the reference depend on nothing that requires a gradient but the pair's inputs.

    Cost: a forward pass of each.

    Raises:
        UsageError: names the tensor that one of them uses.
    """
    if type(pair).all_outputs is not Pair.all_outputs:  # a pair of modules has their parameters as inputs
        return
    for role in ("function", "reference"):
        if names := captured_by(pair, role, pair.loaded[role], problem):
            raise UsageError(
                f"{pair.called}: the {role} uses {', '.join(names)}, whose gradients would not be judged: make them "
                "inputs, or declare a gradgate.module_pair; if they are data, detach them"
            )
