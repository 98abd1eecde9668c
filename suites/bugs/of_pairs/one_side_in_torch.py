"""The operator `one_side` in PyTorch: the backward pass runs the function again, with one decision changed."""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from gradgate.suites.bugs.of_pairs.one_side import Side, Site, altered, choice, compared

Function = Callable[..., Any]


class _Counting(TorchDispatchMode):
    """Counts decisions, and calls `at` with each one."""

    def __init__(self, at: Callable[[str, int, tuple[Side, ...], Any], Any]) -> None:
        super().__init__()
        self._at = at
        self._counts: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and replace the result of a decision."""
        name = func._schema.name.partition("::")[2]
        sides = _sides(name.removesuffix("_"), func, args, kwargs or {}) if func.namespace == "aten" else None
        if not sides:
            result = func(*args, **(kwargs or {}))
            if name == "_local_scalar_dense" and isinstance(result, bool):
                self._at("item", self._number("item"), choice(result, None, None), result)
            return result
        before = [each.clone() if name.endswith("_") else each for each in args if isinstance(each, torch.Tensor)]
        result = func(*args, **(kwargs or {}))
        if name.endswith("_"):
            given = iter(before)
            args = [next(given) if isinstance(each, torch.Tensor) else each for each in args]
        short = name.removesuffix("_")
        changed = self._at(short, self._number(short), sides(args, result), result)
        if changed is result or not name.endswith("_"):
            return changed
        return result.copy_(changed)

    def _number(self, name: str) -> int:
        self._counts[name] += 1
        return self._counts[name] - 1


def _sides(name: str, func: Any, args: Any, kwargs: Any) -> Callable[[Any, Any], tuple[Side, ...]] | None:
    """(arguments, result) -> the sides of a call; None if it decides nothing."""
    if not args:
        return None
    floats = [isinstance(each, torch.Tensor) and each.is_floating_point() for each in args]
    booleans = [isinstance(each, torch.Tensor) and each.dtype == torch.bool for each in args]
    if name == "where" and len(args) == 3 and any(floats):
        return lambda given, _: choice(*given)
    if name == "masked_fill" and floats[0]:
        return lambda given, _: choice(given[1], given[2], given[0])
    if name == "mul" and any(floats) and any(booleans):
        return lambda given, _: _product(*given)
    if name == "_to_copy" and booleans[0] and getattr(kwargs.get("dtype"), "is_floating_point", False):
        return lambda given, result: choice(given[0], result, torch.ones_like(result))
    if name in ("maximum", "minimum") and all(floats):
        return lambda given, _: compared(*given, *(given if name == "maximum" else given[::-1]))
    if name == "clamp_min" and floats[0]:
        return lambda given, _: compared(given[0], given[1], given[0], given[1])
    if name == "clamp_max" and floats[0]:
        return lambda given, _: compared(given[0], given[1], given[1], given[0])
    if name == "clamp" and floats[0]:
        return lambda given, _: _clamped(*given, **kwargs)
    if name == "relu" and floats[0]:
        return lambda given, _: compared(given[0], 0, given[0], 0)
    if name == "threshold_backward":
        return lambda given, _: compared(given[1], given[2], given[0], 0)
    if name in ("abs", "sgn", "sign") and floats[0]:
        return lambda given, result: compared(given[0], 0, result, result)
    return None


def _product(one: Any, other: Any) -> tuple[Side, ...]:
    which, number = (one, other) if one.dtype == torch.bool else (other, one)
    return choice(which, number, 0)


def _clamped(x: Any, low: Any = None, high: Any = None, **named: Any) -> tuple[Side, ...]:
    low, high = named.get("min", low), named.get("max", high)
    found = []
    if low is not None:
        found.append(Side("below", lambda: x < low, low, x))
    if high is not None:
        found.append(Side("above", lambda: x > high, high, x))
    return tuple(found)


def _zero(value: Any) -> bool:
    """Whether a number or a tensor is zero; the floats of a tensor are looked at outside of any evaluation."""
    if not isinstance(value, torch.Tensor):
        return bool(value == 0)
    with _disable_current_modes():
        return not bool(value.detach().any())


def broken(function: Function, site: Site, share: float) -> Function:
    """The function with a gradient that is changed by a share at one site."""

    def at(state: list[Any], name: str, number: int, sides: tuple[Side, ...], result: Any) -> Any:
        side = _wanted(site, name, number, sides)
        if side is None:
            return result
        if name == "item":
            state.append(1 + share * (result == (site.side == "true")))
            return result
        return altered(torch, result, side, _zero, share)

    return _hooked(function, at)


def reaching(function: Function, site: Site) -> Function:
    """The function with a gradient that is twice as large if a side is taken anywhere."""

    def at(state: list[Any], name: str, number: int, sides: tuple[Side, ...], result: Any) -> Any:
        side = _wanted(site, name, number, sides)
        if side is not None:
            taken = torch.as_tensor(result == (site.side == "true")) if name == "item" else side.taken().any()
            state.append(torch.where(taken, 2.0, 1.0))
        return result

    return _hooked(function, at)


def _wanted(site: Site, name: str, number: int, sides: tuple[Side, ...]) -> Side | None:
    """The side of a site, if this decision is the site's."""
    if (name, number) != (site.operation, site.number):
        return None
    return next((side for side in sides if side.name == site.side), None)


def poisoned(function: Function, site: Site) -> Function:
    """The function with a gradient for which one decision gives NaN."""

    def at(state: list[Any], name: str, number: int, sides: tuple[Side, ...], result: Any) -> Any:
        return torch.full_like(result, torch.nan) if (name, number) == (site.operation, site.number) else result

    return _hooked(function, at)


def recording(function: Function, seen: list[Site]) -> Function:
    """The function, whose gradient enters the sites of its decisions into a list."""

    def at(state: list[Any], name: str, number: int, sides: tuple[Side, ...], result: Any) -> Any:
        seen.extend(Site(name, number, side.name) for side in sides)
        return result

    return _hooked(function, at)


def _hooked(function: Function, at: Callable[..., Any]) -> Function:
    """The function with the gradient of another run of it, in which `at` gets every decision.

    Args:
        at: as for `_Counting`, after a list of factors of the whole gradient.
    """

    def run(*args: Any, **options: Any) -> Any:
        leaves, tree = tree_flatten(args)
        tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
        structure: list[Any] = []

        def plain(given: Any) -> list[Any]:
            rest = iter(given)
            filled = [next(rest) if isinstance(each, torch.Tensor) else each for each in leaves]
            outputs, shape = tree_flatten(function(*tree_unflatten(filled, tree), **options))
            structure[:] = [shape]
            return list(outputs)

        class Hooked(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                ctx.save_for_backward(*given)
                ctx.random = torch.get_rng_state()
                outputs = tuple(plain(given))
                ctx.mark_non_differentiable(*(each for each in outputs if not each.is_floating_point()))
                return outputs

            @staticmethod
            def backward(ctx: Any, *cotangents: Any) -> Any:
                state: list[Any] = []
                wanted = [i for i, needs in enumerate(ctx.needs_input_grad) if needs]
                with (
                    torch.random.fork_rng(devices=[]),
                    torch.enable_grad(),
                    _Counting(lambda *each: at(state, *each)),
                ):
                    torch.set_rng_state(ctx.random)
                    given = [each.detach() for each in ctx.saved_tensors]
                    for i in wanted:
                        given[i].requires_grad_()
                    pairs = [
                        (out, by)
                        for out, by in zip(plain(given), cotangents, strict=True)
                        if out.requires_grad and by is not None
                    ]
                    outputs, upstream = zip(*pairs, strict=True)
                    grads = torch.autograd.grad(outputs, [given[i] for i in wanted], upstream, allow_unused=True)
                found: list[Any] = [None] * len(ctx.needs_input_grad)
                for i, grad in zip(wanted, grads, strict=True):
                    found[i] = grad if grad is None else functools.reduce(operator.mul, state, grad)
                return tuple(found)

        return tree_unflatten(list(Hooked.apply(*tensors)), structure[0])

    return run
