"""The operator `one_side` in JAX: the backward pass is a jaxpr, which is evaluated with one equation changed."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jax.interpreters import partial_eval

from gradgate.hw_profiles import trip_count
from gradgate.suites.bugs.of_pairs.one_side import Side, Site, altered, choice, compared

Function = Callable[..., Any]
At = Callable[[str, int, tuple[Side, ...], Any, Callable[[Any], bool]], Any]
"""(operation, number, sides, result, whether a value is zero) -> another result."""
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Calls that are replaced by their body -> the parameter that holds it."""
BODIES = ("jaxpr", "cond_jaxpr", "body_jaxpr", "branches")
"""Parameters of control structures that hold programs."""
PASSED = ("broadcast_in_dim", "reshape", "convert_element_type", "copy", "neg", "squeeze", "transpose")
"""Operations that make zeros of zeros."""


class _Zero:
    """Knows which values of a program are zero for every input."""

    def __init__(self) -> None:
        self._known: list[Any] = []

    def add(self, value: Any) -> None:
        """Enter a value that is zero."""
        self._known.append(value)

    def __call__(self, value: Any) -> bool:
        """Whether a value is zero for every input."""
        if any(value is each for each in self._known):
            return True
        return not isinstance(value, jax.core.Tracer) and not np.any(np.asarray(value))


def _sides(name: str, equation: Any, values: Sequence[Any], result: Any) -> tuple[Side, ...]:
    """The sides of an equation; () if it decides nothing."""
    floating = hasattr(result, "dtype") and jnp.issubdtype(result.dtype, jnp.floating)
    if not floating:
        return ()
    if name == "select_n" and len(values) == 3:
        which, no, yes = values
        return choice(jnp.broadcast_to(which, result.shape), yes, no)
    if name == "convert_element_type" and values[0].dtype == jnp.bool_:
        return choice(values[0], result, jnp.ones_like(result))
    if name in ("max", "min"):
        one, other = values
        return compared(one, other, *((one, other) if name == "max" else (other, one)))
    if name == "clamp":
        low, x, high = values
        return Side("below", lambda: x < low, low, x), Side("above", lambda: x > high, high, x)
    if name in ("abs", "sign"):
        return compared(values[0], 0, result, result)
    return ()


def _run(jaxpr: Any, consts: Sequence[Any], given: Sequence[Any], at: At, counts: Any, zero: _Zero) -> list[Any]:
    """Evaluate a jaxpr, with the results that `at` gives for its decisions."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, given, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        name, inputs = equation.primitive.name, [read(atom) for atom in equation.invars]
        if name in CALLS:
            body = equation.params[CALLS[name]]
            inner, held = (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, ())
            outputs = _run(inner, held, inputs, at, counts, zero)
        else:
            outputs = _bound(equation, inputs, at, counts, zero)
            if name == "cond":
                outputs = _chosen(equation, inputs, outputs, at, counts)
            sides = _sides(name, equation, inputs, outputs[0]) if len(outputs) == 1 else ()
            if sides:
                outputs = [at(name, _number(counts, name), sides, outputs[0], zero)]
            elif (name in PASSED and zero(inputs[0])) or (name == "mul" and any(map(zero, inputs))):
                zero.add(outputs[0])
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _number(counts: Any, name: str) -> int:
    counts[name] += 1
    return int(counts[name] - 1)


def _bound(equation: Any, inputs: Sequence[Any], at: At, counts: Any, zero: _Zero) -> list[Any]:
    """The outputs of an equation, whose bodies are changed, too."""
    params = dict(equation.params)
    same = trip_count.passed_to_scan(params)[0] if equation.primitive.name == "scan" else 0  # in every turn
    fixed = [zero(each) for each in inputs[:same]]
    if equation.primitive.name in ("scan", "while", "cond"):
        for key in BODIES:
            if key in params:
                many = isinstance(params[key], tuple)
                made = [_body(each, at, counts, fixed) for each in (params[key] if many else [params[key]])]
                params[key] = tuple(made) if many else made[0]
    bound = equation.primitive.get_bind_params(params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # JAX before 0.10 gives functions, too
    with equation.ctx.manager:
        found = equation.primitive.bind(*functions, *inputs, **params)
    return list(found) if equation.primitive.multiple_results else [found]


def _body(closed: Any, at: At, counts: Any, zeros: Sequence[bool]) -> Any:
    """A body, evaluated as `_run` does; `zeros` says which of its first inputs are zero."""

    def run(*given: Any) -> list[Any]:
        zero = _Zero()
        for each, known in zip(given, zeros, strict=False):
            if known:
                zero.add(each)
        return _run(closed.jaxpr, closed.consts, given, at, counts, zero)

    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in closed.jaxpr.invars))


def _chosen(equation: Any, inputs: Sequence[Any], outputs: list[Any], at: At, counts: Any) -> list[Any]:
    """The outputs of a `cond` of two branches, changed where it takes one of them."""
    number = _number(counts, "cond")
    if len(equation.params["branches"]) != 2:
        return outputs
    which = inputs[0] != 0
    return [
        at("cond", number, choice(jnp.broadcast_to(which, out.shape), out, out), out, lambda _: False)
        if jnp.issubdtype(out.dtype, jnp.floating)
        else out
        for out in outputs
    ]


def broken(function: Function, site: Site, share: float) -> Function:
    """The function with a gradient that is changed by a share at one site."""

    def at(name: str, number: int, sides: tuple[Side, ...], result: Any, zero: Callable[[Any], bool]) -> Any:
        side = _wanted(site, name, number, sides)
        return result if side is None else altered(jnp, result, side, zero, share).astype(result.dtype)

    return _hooked(function, lambda _: at)


def reaching(function: Function, site: Site) -> Function:
    """The function with a gradient that is twice as large if a side is taken anywhere; not for bodies of loops."""

    def started(factors: list[Any]) -> At:
        def at(name: str, number: int, sides: tuple[Side, ...], result: Any, zero: Callable[[Any], bool]) -> Any:
            side = _wanted(site, name, number, sides)
            if side is not None:
                factors.append(jnp.where(jnp.any(side.taken()), 2.0, 1.0))
            return result

        return at

    return _hooked(function, started)


def _wanted(site: Site, name: str, number: int, sides: tuple[Side, ...]) -> Side | None:
    """The side of a site, if this decision is the site's."""
    if (name, number) != (site.operation, site.number):
        return None
    return next((side for side in sides if side.name == site.side), None)


def poisoned(function: Function, site: Site) -> Function:
    """The function with a gradient for which one decision gives NaN."""

    def at(name: str, number: int, sides: tuple[Side, ...], result: Any, zero: Callable[[Any], bool]) -> Any:
        return jnp.full_like(result, jnp.nan) if (name, number) == (site.operation, site.number) else result

    return _hooked(function, lambda _: at)


def recording(function: Function, seen: list[Site]) -> Function:
    """The function, whose gradient enters the sites of its decisions into a list."""

    def at(name: str, number: int, sides: tuple[Side, ...], result: Any, zero: Callable[[Any], bool]) -> Any:
        seen.extend(site for side in sides if (site := Site(name, number, side.name)) not in seen)
        return result

    return _hooked(function, lambda _: at)


def _hooked(function: Function, start: Callable[[list[Any]], At]) -> Function:
    """The function with the gradient of a program in which `at` gets every decision on which the gradient depends.

    Args:
        start: gives `at`, from a list for factors of the whole gradient.
    """

    def run(*args: Any, **options: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        places = [i for i, leaf in enumerate(leaves) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
        plain = functools.partial(function, **options)

        @jax.custom_vjp
        def hooked(leaves: list[Any]) -> Any:
            return plain(*jax.tree.unflatten(tree, leaves))

        def backward(leaves: list[Any], cotangents: Any) -> Any:
            def pulled(floats: list[Any], cotangents: Any) -> list[Any]:
                def of_floats(floats: list[Any]) -> Any:
                    filled = list(leaves)
                    for i, value in zip(places, floats, strict=True):
                        filled[i] = value
                    return plain(*jax.tree.unflatten(tree, filled))

                return list(jax.vjp(of_floats, floats)[1](cotangents)[0])

            given = [leaves[i] for i in places]
            kinds, shape = jax.tree.flatten(cotangents)
            fixed = [i for i, each in enumerate(kinds) if each.dtype == jax.dtypes.float0]
            free = [each for i, each in enumerate(kinds) if i not in fixed]

            def program(floats: list[Any], free: list[Any]) -> list[Any]:
                rest = iter(free)
                filled = [each if i in fixed else next(rest) for i, each in enumerate(kinds)]
                return pulled(floats, jax.tree.unflatten(shape, filled))

            closed = jax.make_jaxpr(program)(given, free)
            jaxpr, used = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(places))
            inputs = [value for value, use in zip([*given, *free], used, strict=True) if use]
            factors: list[Any] = []
            grads = _run(jaxpr, closed.consts, inputs, start(factors), collections.Counter(), _Zero())
            found: list[Any] = [np.zeros(np.shape(leaf), jax.dtypes.float0) for leaf in leaves]
            for i, grad in zip(places, grads, strict=True):
                found[i] = functools.reduce(lambda one, factor: one * factor.astype(one.dtype), factors, grad)
            return (found,)

        hooked.defvjp(lambda leaves: (hooked(leaves), leaves), backward)
        return hooked(leaves)

    return run
