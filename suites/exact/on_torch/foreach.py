"""Operations on lists of tensors, as optimisers use them: one tensor after the other."""

from __future__ import annotations

from typing import Any

import torch

from gradgate.suites.exact import balls


def run(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation on one tensor, for each tensor of a list."""
    bare = func._schema.name.partition("::")[2].removeprefix("_foreach_")
    tensors = args[0]
    rest = [_each(value, len(tensors)) for value in args[1:]]
    named = {name: _each(value, len(tensors)) for name, value in kwargs.items()}
    results = [
        _one(bare, tensor, [each[i] for each in rest], {name: each[i] for name, each in named.items()})
        for i, tensor in enumerate(tensors)
    ]
    return None if bare.endswith("_") else results


def _each(value: Any, count: int) -> list[Any]:
    """An argument as a list of one for each tensor."""
    return list(value) if isinstance(value, (list, tuple)) and len(value) == count else [value] * count


def _one(bare: str, tensor: Any, rest: list[Any], named: dict[str, Any]) -> Any:
    if bare in ("addcmul", "addcmul_", "addcdiv", "addcdiv_"):
        value = rest[2] if len(rest) > 2 else named.get("value", 1)
        return getattr(tensor, bare)(rest[0], rest[1], value=value)
    if bare == "norm":
        return torch.linalg.vector_norm(tensor, *rest, **named)
    if bare in ("maximum", "minimum", "maximum_", "minimum_", "clamp_max", "clamp_min", "clamp_max_", "clamp_min_"):
        other = {"maximum": "clamp_min", "minimum": "clamp_max"}.get(bare.rstrip("_"), bare.rstrip("_"))
        return getattr(tensor, other + ("_" if bare.endswith("_") else ""))(*rest)
    method = getattr(tensor, bare, None)
    if method is None:
        raise balls.Unknown(f"aten._foreach_{bare}: no operation of one tensor has that name")
    return method(*rest, **named)
