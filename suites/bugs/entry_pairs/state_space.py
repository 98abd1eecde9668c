"""`selective_scan` with a plain loop as reference, as pairs that the suite judges: both forms, and with steps."""

from __future__ import annotations

import functools
from typing import Any

from gradgate import Pair, at_most, grows, integers, normal, uniform
from gradgate.references.backends import namespace

PACKED = ("one", "lengths", "segments")
"""How sequences are packed in the pairs."""


def packed(how: str, length: int, segments: Any) -> dict[str, Any]:
    """The arguments of `selective_scan` for one of PACKED."""
    if how == "lengths" and length > 2:
        return {"lengths": (2, length - 2)}
    return {"segments": segments} if how == "segments" else {}


def plain(backend: str, a: Any, b: Any, c: Any, x: Any, state: Any, begins: Any, delta: Any = None) -> Any:
    """The states one after another; for bfloat16 inputs they are float32.

    Args:
        backend: the backend of the arrays.
        a, b, c, x, state, delta: as for `selective_scan`.
        begins: (token, row) -> whether a packed sequence begins there, an array (batch,).
    """
    xp, kind = namespace(backend), x.dtype

    def wide(leaf: Any) -> Any:
        return xp.astype(leaf, xp.float32) if leaf is not None and leaf.dtype == xp.bfloat16 else leaf

    h: Any
    a, b, c, x, h = (wide(leaf) for leaf in (a, b, c, x, state))
    delta = wide(delta)
    if x.ndim == 4:
        b, c = (xp.repeat(leaf, x.shape[2] // leaf.shape[2], axis=2) for leaf in (b, c))
    ys = []
    for t in range(x.shape[1]):
        drive = x[:, t]
        if delta is None:
            decay = a[:, t]
        else:
            step = delta[:, t]
            decay = xp.exp(step * a if x.ndim == 4 else step[..., None] * a)
            drive = drive * (step[..., None] if x.ndim == 4 else step)
        decay = decay[..., None, None] if x.ndim == 4 else decay
        fresh = xp.reshape(begins(t), (-1, *(1,) * (h.ndim - 1)))
        h = xp.where(fresh, xp.zeros_like(h), decay * h) + drive[..., None] * b[:, t][..., None, :]
        ys.append(xp.sum(h * c[:, t][..., None, :], axis=-1))
    y = xp.stack(ys, axis=1) if ys else xp.zeros_like(x)
    return xp.astype(y, kind), h


def _plain(backend: str, form: str, *arrays: Any, pack: str = "one") -> Any:
    *operands, segments = arrays
    xp, x = namespace(backend), operands[3]

    def begins(t: int) -> Any:
        none = xp.zeros(x.shape[0], dtype=xp.bool)
        if t == 0 or pack == "one":
            return none
        if pack == "lengths":
            return none | (t == 2 and x.shape[1] > 2)
        return segments[:, t] != segments[:, t - 1]

    if form == "steps":
        a, b, c, x, state, delta = operands
        return plain(backend, a, b, c, x, state, begins, delta)
    a, b, c, x, state = operands
    return plain(backend, a, b, c, x, state, begins)


def _own(backend: str, form: str, *arrays: Any, pack: str = "one", **options: Any) -> Any:
    import importlib

    place = f"gradgate.references.state_space.in_{backend}.selective_scan"
    selective_scan = importlib.import_module(place).selective_scan
    *operands, segments = arrays
    a, b, c, x, state, *delta = operands
    more = packed(pack, x.shape[1], segments) | ({"delta": delta[0]} if delta else {})
    return selective_scan(a, b, c, x, state=state, return_state=True, **more, **options)


def diagonal(backend: str, form: str = "plain") -> tuple[Any, Any]:
    """The function under test and the plain one; the names of their inputs are those of the pair."""

    def scan(
        a: Any,
        b: Any,
        c: Any,
        x: Any,
        state: Any,
        segments: Any,
        *,
        pack: str = "one",
        chunk: int | None = None,
        associative: bool = False,
    ) -> Any:
        return _own(backend, form, a, b, c, x, state, segments, pack=pack, chunk=chunk, associative=associative)

    def loop(a: Any, b: Any, c: Any, x: Any, state: Any, segments: Any, *, pack: str = "one") -> Any:
        return _plain(backend, form, a, b, c, x, state, segments, pack=pack)

    return scan, loop


def with_steps(backend: str) -> tuple[Any, Any]:
    """As `diagonal`, with delta before segments."""

    def scan(
        a: Any,
        b: Any,
        c: Any,
        x: Any,
        state: Any,
        delta: Any,
        segments: Any,
        *,
        pack: str = "one",
        chunk: int | None = None,
        associative: bool = False,
    ) -> Any:
        return _own(
            backend, "steps", a, b, c, x, state, delta, segments, pack=pack, chunk=chunk, associative=associative
        )

    def loop(a: Any, b: Any, c: Any, x: Any, state: Any, delta: Any, segments: Any, *, pack: str = "one") -> Any:
        return _plain(backend, "steps", a, b, c, x, state, delta, segments, pack=pack)

    return scan, loop


LARGE: dict[str, Any] = {"B": 1, "N": 4}
SIZES = {"T": (64, 128, 256, 512, 1024)}
OPTIONS: dict[str, Any] = {"pack": PACKED, "chunk": (None, 1, 3, 64), "associative": (False, True)}
SEGMENTS = {"segments": integers("B T", below=3)}


def _claims(wide: dict[str, int], share: float) -> tuple[Any, ...]:
    at = {**LARGE, **wide}
    return (
        at_most("residual_bytes", of_reference=share, at={**at, "T": 256}),
        grows("residual_bytes", T=0.5, at=at, sizes=SIZES),
    )


def _pairs(backend: str) -> tuple[Pair, Pair, Pair]:
    """The pairs of a framework: diagonal, scalar per head, and diagonal with steps."""
    declared = functools.partial(
        Pair,
        framework=backend,
        composes=("vmap", "second_order", *(("jit",) if backend == "jax" else ())),
        options=OPTIONS,
    )
    (one, loop), (steps, loop_steps) = diagonal(backend), with_steps(backend)
    first = declared(
        one,
        loop,
        name=f"scan_diagonal_{backend}",
        dims={"B": (2,), "T": (7, 1, 10), "C": (2, 1), "N": (3, 1)},
        inputs={
            "a": uniform("B T C N", -0.5, 1.0),
            "b": normal("B T N"),
            "c": normal("B T N"),
            "x": normal("B T C"),
            "state": normal("B C N"),
            **SEGMENTS,
        },
        claims=_claims({"C": 4}, 0.15),
    )
    second = declared(
        diagonal(backend, "heads")[0],
        diagonal(backend, "heads")[1],
        name=f"scan_scalar_{backend}",
        dims={"B": (2, 1), "T": (7, 1, 10), "G": (2, 1), "H": (2, 1), "P": (2, 1), "N": (3, 1)},
        inputs={
            "a": uniform("B T G*H", -0.5, 1.0),
            "b": normal("B T G N"),
            "c": normal("B T G N"),
            "x": normal("B T G*H P"),
            "state": normal("B G*H P N"),
            **SEGMENTS,
        },
        claims=_claims({"G": 1, "H": 2, "P": 4}, 0.15),
    )
    third = declared(
        steps,
        loop_steps,
        name=f"scan_steps_{backend}",
        dims={"B": (2, 1), "T": (7, 1, 10), "C": (2, 1), "N": (3, 1)},
        inputs={
            "a": uniform("C N", -1.5, -0.2),
            "b": normal("B T N"),
            "c": normal("B T N"),
            "x": normal("B T C"),
            "state": normal("B C N"),
            "delta": uniform("B T C", 0.05, 1.0),
            **SEGMENTS,
        },
        claims=_claims({"C": 4}, 0.1),
    )
    return first, second, third


scan_diagonal_jax, scan_scalar_jax, scan_steps_jax = _pairs("jax")
scan_diagonal_torch, scan_scalar_torch, scan_steps_torch = _pairs("torch")
