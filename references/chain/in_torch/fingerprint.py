"""What a recorded forward pass depends on besides the numbers in tensors.

Two calls with the same fingerprint share a plan. A fingerprint holds shapes, dtypes, devices and strides of arguments,
parameters and buffers, which of them are one tensor, which need gradients, all other arguments, the mode and every
plain attribute of every module, and the settings of PyTorch that decide what an operator computes. If an attribute is
not a plain value, its identity counts. If it is an object with attributes of its own, such as a configuration, those
attributes count, as deep as `DEPTH` says.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from gradgate.references.chain.in_torch.recorder import LEGAL, whole
from gradgate.references.chain.in_torch.replay import Surroundings

_OWN = frozenset(vars(nn.Module())) - {"training"}
DEPTH = 3


def of_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """The fingerprint of the arguments of one call."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    first: dict[int, int] = {}
    told = tuple(
        (first.setdefault(id(x), n), _of_tensor(x), x.stride()) if isinstance(x, torch.Tensor) else (type(x), _plain(x))
        for n, x in enumerate(leaves)
    )
    return told, str(spec)


def of_model(modules: Mapping[str, nn.Module], device: torch.device) -> Hashable:
    """The fingerprint of a model, whose modules are given by their names, and of PyTorch's settings."""
    objects: dict[int, Hashable] = {}
    first: dict[int, int] = {}
    found: list[Hashable] = []
    for name, module in modules.items():
        state = {**module._parameters, **module._buffers}
        tensors = tuple(
            (key, first.setdefault(id(t), len(first)), _of_tensor(t)) for key, t in state.items() if t is not None
        )
        own = tuple((key, _of_value(v, objects, DEPTH)) for key, v in vars(module).items() if key not in _OWN)
        found.append((name, type(module), whole(module), tensors, own))
    return tuple(found), Surroundings.now(device)


def _of_tensor(t: torch.Tensor) -> Hashable:
    return t.shape, t.dtype, t.device, t.requires_grad


def _plain(value: Any) -> Hashable:
    return value if isinstance(value, LEGAL) else id(value)


def _of_value(value: Any, objects: dict[int, Hashable], depth: int) -> Hashable:
    """The fingerprint of an attribute: a plain value, its parts down to `depth`, or else the identity of the object."""
    if isinstance(value, LEGAL):
        return type(value), value
    if isinstance(value, torch.Tensor) or not depth:
        return id(value)
    if id(value) in objects:
        return objects[id(value)]
    kind: Any = type(value)
    objects[id(value)] = kind  # for an object that contains itself
    if isinstance(value, (list, tuple)):
        told: Hashable = tuple(_of_value(x, objects, depth - 1) for x in value)
    elif isinstance(value, dict):
        told = tuple((str(key), _of_value(x, objects, depth - 1)) for key, x in value.items())
    elif isinstance(value, (nn.Module, type)) or callable(value) or not hasattr(value, "__dict__"):
        told = id(value)
    else:
        told = type(value), tuple((k, _of_value(x, objects, depth - 1)) for k, x in vars(value).items())
    objects[id(value)] = told
    return told


def difference(one: Any, other: Any) -> str:
    """Where two fingerprints of a model differ: the module, and the attribute."""
    for (name, *_, tensors, own), (_, *_, tensors_now, own_now) in zip(one[0], other[0], strict=False):
        for key, value in dict(own_now).items():
            if dict(own).get(key) != value:
                return f"attribute {key!r} of {name or 'the model'}"
        if tensors != tensors_now:
            return f"a parameter or buffer of {name or 'the model'}"
    return "the modules or PyTorch's settings"
