"""Calls of `gradgate.check` that are right, each in JAX and in PyTorch: every kind, order and tree of arguments."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gradgate.suites.calibration.check_calls import CALLS, Calls


class Point(NamedTuple):
    """A tree of the framework without registration."""

    y: Any
    x: Any


@dataclasses.dataclass
class Layer:
    """A dataclass; `situations` registers it with the framework."""

    w: Any
    b: Any


@dataclasses.dataclass
class Unknown:
    """A dataclass that is registered with no framework."""

    w: Any


@dataclasses.dataclass(frozen=True)
class Situation:
    """One call.

    Attributes:
        plain: the reference; takes the adapter first.
        args: the arguments, made by the adapter.
        leaves: the names of the floating leaves, in the framework's order; "" for a leaf without numbers.
        options: keywords of the call.
        frameworks: where the situation exists.
    """

    name: str
    plain: Callable[..., Any]
    args: Callable[[Calls], tuple[Any, ...]]
    leaves: tuple[str, ...]
    options: Callable[[Calls], dict[str, Any]] = lambda calls: {}
    frameworks: tuple[str, ...] = ("jax", "torch")


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(shape or 7).uniform(0.5, 1.5, shape)


@functools.cache
def _registered(framework: str) -> None:
    CALLS[framework]().register(Layer)


def situations(calls: Calls) -> list[Situation]:
    """The table for one framework."""
    xp, a = calls.xp, calls.array
    _registered(calls.name)

    def x(*shape: int, dtype: str = "float32") -> Any:
        return a(_numbers(*shape), dtype)

    def rms(x: Any, gain: Any, eps: float) -> Any:
        return x * gain * (((x * x).sum(-1) / x.shape[-1])[..., None] + eps) ** -0.5

    def picked(table: Any, rows: Any) -> Any:
        return table[rows] ** 2

    def masked(z: Any, keep: Any, a: Any) -> Any:
        return xp.where(keep, z * z, 3 * z) * a

    def many(*xs: Any) -> Any:
        return sum((i + 1) * leaf**2 for i, leaf in enumerate(xs))

    def of_tree(p: Any, b: Any) -> Any:
        return (p["z"] * p["a"][0] - 2 * b) ** 2 if p["n"] is None else b

    def counted(x: Any, n: int, s: float, kind: str, nothing: Any) -> Any:
        assert (kind, nothing, type(n)) == ("twice", None, int)
        return s * x**n

    def dropped(w: Any, key: Any) -> Any:
        return xp.where(calls.coins(key, tuple(w.shape)), 2 * w * w, 0 * w)

    def shared(m: Any, b: Any, *, weight: Any, power: int = 1) -> Any:
        return (m * weight) ** power - b

    def several(q: Any, k: Any) -> Any:
        return {"out": q * k, "count": q.shape[0], "more": [q.sum(), None], "index": xp.argmax(k)}

    def whole(x: Any, rows: Any, keep: Any, small: Any) -> Any:
        return xp.where(keep, x[rows], 0 * x[rows]) * (small + 1)

    table = [
        Situation("arguments in no alphabetical order", rms, lambda _: (x(4, 3), x(3), 1e-6), ("x", "gain")),
        Situation("subtraction in reverse order", lambda z, a: z - 2 * a * a, lambda _: (x(3), x(3)), ("z", "a")),
        Situation(
            "eleven arguments without names",
            many,
            lambda _: tuple(x(2) for _ in range(11)),
            tuple(f"args[{i}]" for i in range(11)),
        ),
        Situation("a lone scalar", lambda x: x**3, lambda _: (x(),), ("x",)),
        Situation("integers as indices", picked, lambda _: (x(5, 2), a([4, 0, 4], "int32")), ("table",)),
        Situation(
            "integers before floats",
            lambda rows, table: table[rows] ** 2,
            lambda _: (a([4, 0, 4], "int32"), x(5, 2)),
            ("table",),
        ),
        Situation("booleans", masked, lambda _: (x(3), a([True, False, True], "bool"), x()), ("z", "a")),
        Situation(
            "integers and booleans without dimensions",
            whole,
            lambda _: (x(4, 2), a(2, "int32"), a(True, "bool"), a(3, "uint8")),
            ("x",),
        ),
        Situation("Python numbers, a string and None", counted, lambda _: (x(3), 3, 0.5, "twice", None), ("x",)),
        Situation(
            "a dict in no alphabetical order, with None",
            of_tree,
            lambda _: ({"z": x(3), "n": None, "a": [x(3)]}, x(3)),
            ("p.a[0]", "p.z", "b") if calls.name == "jax" else ("p.z", "p.a[0]", "b"),
        ),
        Situation(
            "keys of a dict that read alike",
            lambda t: t["a.b"] * t["a"]["b"] ** 2,
            lambda _: ({"a.b": x(3), "a": {"b": x(3)}},),
            ("t['a']['b']", "t['a.b']")[:: 1 if calls.name == "jax" else -1],
        ),
        Situation(
            "a named tuple", lambda p, w: p.y * w - p.x**2, lambda _: (Point(x(3), x(3)), x(3)), ("p.y", "p.x", "w")
        ),
        Situation(
            "a registered dataclass",
            lambda layer, a: layer.w * a + layer.b**2,
            lambda _: (Layer(x(3), x(3)), x(3)),
            ("layer.w", "layer.b", "a"),
        ),
        Situation("a generator of random numbers", dropped, lambda _: (x(9), calls.key(3)), ("w",)),
        Situation("an empty array", lambda y, x: (y**2).sum() * x + x**2, lambda _: (x(0, 3), x(2)), ("", "x")),
        Situation("empty trees", lambda t, x, s: x**2, lambda _: ({}, x(3), [(), None]), ("x",)),
        Situation(
            "trees of scalars", lambda ts: ts[0] * ts[1][0] ** 2, lambda _: ([x(), (x(),)],), ("ts[0]", "ts[1][0]")
        ),
        Situation("one array as two arguments", lambda q, k: q * k**2, lambda _: (x(3),) * 2, ("q", "k")),
        Situation("float64", rms, lambda _: (x(4, 3, dtype="float64"), x(3, dtype="float64"), 1e-6), ("x", "gain")),
        Situation("bfloat16", lambda x, gain: x * x * gain, lambda _: (x(4, 64, dtype="bfloat16"),) * 2, ("x", "gain")),
        Situation(
            "bfloat16 beside float32",
            lambda x, gain: (x + 0 * gain) ** 2 * gain,
            lambda _: (x(4, 8, dtype="bfloat16"), x(8)),
            ("x", "gain"),
        ),
        Situation(
            "options, one of them an array",
            shared,
            lambda _: (x(3), x(3)),
            ("m", "b"),
            lambda _: {"weight": x(3), "power": 2},
        ),
        Situation("trees of outputs, with numbers and None", several, lambda _: (x(3), x(3)), ("q", "k")),
        Situation(
            "floats of NumPy beside arrays",
            lambda z, c: z * xp.asarray(c) ** 2,
            lambda _: (x(3), np.asarray(_numbers(3), np.float32)),
            ("z", "c") if calls.name == "jax" else ("z",),
        ),
        Situation("integers of NumPy", lambda z, rows: z[rows] ** 2, lambda _: (x(3), np.array([2, 0])), ("z",)),
        Situation("a transposed array", lambda m, a: m @ a, lambda _: (x(3, 2).T, x(3)), ("m", "a")),
    ]
    if calls.name == "jax":
        jax: Any = calls.jax  # type: ignore[attr-defined]
        table += [
            Situation("a key as two uint32", dropped, lambda _: (x(9), jax.random.PRNGKey(3)), ("w",)),
            Situation(
                "a batch of keys",
                lambda w, keys: dropped(w, keys[1]),
                lambda _: (x(9), jax.random.split(jax.random.key(0))),
                ("w",),
            ),
        ]
    else:
        torch: Any = calls.torch  # type: ignore[attr-defined]
        table += [
            Situation("the global generator", lambda w: torch.nn.functional.dropout(w) ** 2, lambda _: (x(9),), ("w",)),
            Situation(
                "tensors that require a gradient",
                lambda z, a: z - 2 * a * a,
                lambda _: (x(3).requires_grad_(), torch.nn.Parameter(x(3))),
                ("z", "a"),
            ),
            Situation(
                "a tensor that is no leaf",
                lambda z, a: z - 2 * a * a,
                lambda _: (x(3), 2 * x(3).requires_grad_()),
                ("z", "a"),
            ),
        ]
    return table
