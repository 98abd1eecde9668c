"""`linear_attention` and `LinearAttention`, each with a plain reference, as pairs that the suite judges."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from gradgate import Pair, at_most, grows, integers, module_pair, normal, uniform
from gradgate.references.backends import namespace
from gradgate.references.performer.features import mapped
from gradgate.references.performer.problem import FLOOR

MAPS = ("elu", "relu", "identity", "squared")
"""Feature maps that are tried; the last is a function."""


def squared(x: Any) -> Any:
    """A feature map given as a function: positive, and a polynomial."""
    return x * x + 0.5


def arguments(feature_map: str) -> dict[str, Any]:
    """The arguments of `linear_attention` for one of MAPS."""
    return {"feature_map": squared if feature_map == "squared" else feature_map, "normalise": feature_map != "identity"}


def _wide(xp: Any, x: Any) -> Any:
    return xp.astype(x, xp.float32) if x is not None and x.dtype == xp.bfloat16 else x


def plain(backend: str, q: Any, k: Any, v: Any, projection: Any = None, *, feature_map: str) -> Any:
    """The matrix of all weights, masked, and its product with v; sums of bfloat16 numbers are float32."""
    xp = namespace(backend)
    wide = functools.partial(_wide, xp)
    q, k, value, projection = wide(q), wide(k), wide(v), wide(projection)
    q, k = (squared(x) if feature_map == "squared" else mapped(xp, feature_map, x, projection) for x in (q, k))
    weights = xp.tril(xp.matmul(q, xp.matrix_transpose(k)))
    y = xp.matmul(weights, value)
    if feature_map != "identity":
        D = xp.sum(weights, axis=-1, keepdims=True)
        y = y / xp.where(xp.abs(D) > FLOOR, D, xp.ones_like(D))
    return xp.astype(y, v.dtype)


def plain_jax(q: Any, k: Any, v: Any, *, feature_map: str = "elu") -> Any:
    """`plain` in JAX."""
    return plain("jax", q, k, v, feature_map=feature_map)


def plain_torch(q: Any, k: Any, v: Any, *, feature_map: str = "elu") -> Any:
    """`plain` in PyTorch."""
    return plain("torch", q, k, v, feature_map=feature_map)


def plain_favor_jax(q: Any, k: Any, v: Any, projection: Any) -> Any:
    """`plain` with random features in JAX."""
    return plain("jax", q, k, v, projection, feature_map="favor")


def plain_favor_torch(q: Any, k: Any, v: Any, projection: Any) -> Any:
    """`plain` with random features in PyTorch."""
    return plain("torch", q, k, v, projection, feature_map="favor")


def in_jax(q: Any, k: Any, v: Any, *, feature_map: str = "elu", chunk: int = 64) -> Any:
    """`linear_attention` in JAX, with one of MAPS."""
    from gradgate.references.performer.in_jax.linear_attention import linear_attention

    return linear_attention(q, k, v, chunk=chunk, **arguments(feature_map))


def in_torch(q: Any, k: Any, v: Any, *, feature_map: str = "elu", chunk: int = 64) -> Any:
    """`linear_attention` in PyTorch, with one of MAPS."""
    from gradgate.references.performer.in_torch.linear_attention import linear_attention

    return linear_attention(q, k, v, chunk=chunk, **arguments(feature_map))


def favor_in_jax(q: Any, k: Any, v: Any, projection: Any, *, chunk: int = 64) -> Any:
    """`linear_attention` in JAX with random features."""
    from gradgate.references.performer.in_jax.linear_attention import linear_attention

    return linear_attention(q, k, v, feature_map="favor", projection=projection, chunk=chunk)


def favor_in_torch(q: Any, k: Any, v: Any, projection: Any, *, chunk: int = 64) -> Any:
    """`linear_attention` in PyTorch with random features."""
    from gradgate.references.performer.in_torch.linear_attention import linear_attention

    return linear_attention(q, k, v, feature_map="favor", projection=projection, chunk=chunk)


def plain_carried(backend: str, q: Any, k: Any, v: Any, S: Any, z: Any, *, feature_map: str) -> Any:
    """As `plain`, after tokens whose sums are S and z, and the sums after the last token."""
    xp, kind = namespace(backend), v.dtype
    q, k, v, S, z = (_wide(xp, x) for x in (q, k, v, S, z))
    q, k = (squared(x) if feature_map == "squared" else mapped(xp, feature_map, x, None) for x in (q, k))
    weights = xp.tril(xp.matmul(q, xp.matrix_transpose(k)))
    y = xp.matmul(weights, v) + xp.matmul(q, S)
    after = S + xp.matmul(xp.matrix_transpose(k), v)
    if feature_map == "identity":
        return xp.astype(y, kind), after, z
    D = xp.sum(weights, axis=-1, keepdims=True) + xp.matmul(q, z[..., None])
    y = y / xp.where(xp.abs(D) > FLOOR, D, xp.ones_like(D))
    return xp.astype(y, kind), after, z + xp.sum(k, axis=-2)


def carried(backend: str) -> tuple[Any, Any]:
    """`linear_attention` with state in and out, and the plain reference."""

    def attention(
        q: Any, k: Any, v: Any, S: Any, z: Any, *, feature_map: str = "elu", chunk: int = 64
    ) -> tuple[Any, Any, Any]:
        place = f"gradgate.references.performer.in_{backend}.linear_attention"
        linear_attention = importlib.import_module(place).linear_attention
        more = {**arguments(feature_map), "chunk": chunk, "return_state": True}
        if feature_map == "identity":
            return *linear_attention(q, k, v, state=S, **more), _wide(namespace(backend), z)
        y, state = linear_attention(q, k, v, state=(S, z), **more)
        return y, *state

    def matrix(q: Any, k: Any, v: Any, S: Any, z: Any, *, feature_map: str = "elu") -> Any:
        return plain_carried(backend, q, k, v, S, z, feature_map=feature_map)

    return attention, matrix


LEAN = (
    at_most("residual_bytes", of_reference=0.02, at={"L": 1024, "B": 1, "D": 8, "V": 8}),
    grows("residual_bytes", L=1, at={"B": 1, "D": 8, "V": 8}),
    grows("temp_bytes", L=1, at={"B": 1, "D": 8, "V": 8}),
)
"""Between the passes one number per token is kept; at no time an array that grows faster than the sequence."""
SHARED: dict[str, Any] = {
    "dims": {"B": (2, 1), "L": (7, 1, 66, 0), "D": (3, 1), "V": (2, 5)},
    "claims": LEAN,
}
_plain_map: Callable[..., Pair] = functools.partial(
    Pair,
    inputs={"q": normal("B L D"), "k": normal("B L D"), "v": normal("B L V")},
    options={"feature_map": MAPS, "chunk": (4, 1, 64)},
    regimes={"large": lambda given: {**given, "q": 6 * given["q"]}},
    **SHARED,
)
_favor: Callable[..., Pair] = functools.partial(
    Pair,
    inputs={"q": normal("B L D"), "k": normal("B L D"), "v": normal("B L V"), "projection": normal("4 D")},
    options={"chunk": (4, 1, 64)},
    **SHARED,
)

linear_attention_jax = _plain_map(
    in_jax,
    reference=plain_jax,
    framework="jax",
    composes=("jit", "vmap", "second_order"),
    name="linear_attention_jax",
)
linear_attention_torch = _plain_map(
    in_torch,
    reference=plain_torch,
    framework="torch",
    composes=("vmap", "second_order"),
    name="linear_attention_torch",
)
favor_jax = _favor(
    favor_in_jax,
    reference=plain_favor_jax,
    framework="jax",
    composes=("jit", "vmap", "second_order"),
    name="favor_jax",
)
favor_torch = _favor(
    favor_in_torch,
    reference=plain_favor_torch,
    framework="torch",
    composes=("vmap", "second_order"),
    name="favor_torch",
)


def _carried(backend: str) -> Pair:
    function, reference = carried(backend)
    return Pair(
        function,
        reference=reference,
        framework=backend,
        name=f"carried_{backend}",
        inputs={
            "q": normal("B L D"),
            "k": normal("B L D"),
            "v": normal("B L V"),
            "S": normal("B D V"),
            "z": uniform("B D", 0.5, 4.0),
        },
        options={"feature_map": MAPS, "chunk": (4, 1, 64)},
        composes=("vmap", "second_order", *(("jit",) if backend == "jax" else ())),
        **SHARED,
    )


carried_jax, carried_torch = _carried("jax"), _carried("torch")


def grouped(backend: str) -> tuple[Any, Any]:
    """`linear_attention` with padding, and with heads that share keys; and the plain reference, which repeats them."""
    xp = namespace(backend)

    def attention(q: Any, k: Any, v: Any, real: Any, *, feature_map: str = "elu", chunk: int = 64) -> tuple[Any, Any]:
        place = f"gradgate.references.performer.in_{backend}.linear_attention"
        linear_attention = importlib.import_module(place).linear_attention
        more = {**arguments(feature_map), "chunk": chunk, "return_state": True}
        y, state = linear_attention(q, k, v, mask=(real > 0)[:, None, :], **more)
        return y, state if feature_map == "identity" else state[0]

    def matrix(q: Any, k: Any, v: Any, real: Any, *, feature_map: str = "elu") -> tuple[Any, Any]:
        there = (real > 0)[:, None, :]
        shared = q.shape[1] // k.shape[1]
        q, k, value = (_wide(xp, x) for x in (q, k, v))
        q, k = (squared(x) if feature_map == "squared" else mapped(xp, feature_map, x, None) for x in (q, k))
        k, value = (xp.where(there[..., None], x, xp.zeros_like(x)) for x in (k, value))
        after = xp.matmul(xp.matrix_transpose(k), value)
        k, value = (xp.repeat(x, shared, axis=1) for x in (k, value))
        weights = xp.tril(xp.matmul(q, xp.matrix_transpose(k)))
        y = xp.matmul(weights, value)
        if feature_map != "identity":
            D = xp.sum(weights, axis=-1, keepdims=True)
            y = y / xp.where(xp.abs(D) > FLOOR, D, xp.ones_like(D))
        return xp.astype(xp.where(there[..., None], y, xp.zeros_like(y)), v.dtype), after

    return attention, matrix


def _grouped(backend: str) -> Pair:
    function, reference = grouped(backend)
    return Pair(
        function,
        reference=reference,
        framework=backend,
        name=f"grouped_{backend}",
        inputs={
            "q": normal("B G*R L D"),
            "k": normal("B G L D"),
            "v": normal("B G L V"),
            "real": integers("B L", below=3),
        },
        dims={"B": (2, 1), "G": (2, 1), "R": (3, 2), "L": (7, 1, 66, 0), "D": (3, 1), "V": (2, 5)},
        options={"feature_map": MAPS, "chunk": (4, 1, 64)},
        composes=("vmap", "second_order", *(("jit",) if backend == "jax" else ())),
        claims=(
            at_most("residual_bytes", of_reference=0.02, at={"L": 1024, "B": 1, "G": 1, "R": 4, "D": 8, "V": 8}),
            grows("residual_bytes", L=1, at={"B": 1, "G": 1, "R": 4, "D": 8, "V": 8}),
        ),
    )


grouped_jax, grouped_torch = _grouped("jax"), _grouped("torch")


def layer_torch(heads: int) -> Any:
    """The module in PyTorch."""
    from gradgate.references.performer.in_torch.linear_attention_module import LinearAttention

    return LinearAttention(4, heads=heads, chunk=3)


def plain_layer_torch(heads: int) -> Any:
    """The same layer with the matrix of all weights, in PyTorch."""
    import torch

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (torch.nn.Linear(4, 4, bias=False) for _ in range(4))

        def forward(self, x: Any) -> Any:
            q, k, v = (f(x).unflatten(-1, (heads, -1)).movedim(-2, -3) for f in (self.query, self.key, self.value))
            return self.out(plain_torch(q, k, v).movedim(-3, -2).flatten(-2))

    return Plain()


def layer_jax(heads: int, rngs: Any) -> Any:
    """The module in JAX."""
    from gradgate.references.performer.in_jax.linear_attention_module import LinearAttention

    return LinearAttention(4, heads=heads, chunk=3, rngs=rngs)


def plain_layer_jax(heads: int, rngs: Any) -> Any:
    """The same layer with the matrix of all weights, in JAX."""
    import jax.numpy as jnp
    from flax import nnx

    class Plain(nnx.Module):
        def __init__(self) -> None:
            self.query, self.key, self.value, self.out = (nnx.Linear(4, 4, use_bias=False, rngs=rngs) for _ in range(4))

        def __call__(self, x: Any) -> Any:
            shape = (*x.shape[:-1], heads, 4 // heads)
            q, k, v = (jnp.swapaxes(f(x).reshape(shape), -2, -3) for f in (self.query, self.key, self.value))
            return self.out(jnp.swapaxes(plain_jax(q, k, v), -2, -3).reshape(x.shape))

    return Plain()


def carried_layer_torch(heads: int) -> Any:
    """The module in PyTorch with its state as an argument and a result."""
    from gradgate.references.performer.in_torch.linear_attention_module import LinearAttention

    class Carried(LinearAttention):
        def forward(self, x: Any, S: Any, z: Any) -> Any:  # type: ignore[override]
            y, state = super().forward(x, state=(S, z), return_state=True)
            return y, *state

    return Carried(4, heads=heads, chunk=3)


def plain_carried_layer_torch(heads: int) -> Any:
    """The same layer with the matrix of all weights and with the state, in PyTorch."""
    import torch

    class Plain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.out = (torch.nn.Linear(4, 4, bias=False) for _ in range(4))

        def forward(self, x: Any, S: Any, z: Any) -> Any:
            q, k, v = (f(x).unflatten(-1, (heads, -1)).movedim(-2, -3) for f in (self.query, self.key, self.value))
            y, *state = plain_carried("torch", q, k, v, S, z, feature_map="elu")
            return self.out(y.movedim(-3, -2).flatten(-2)), *state

    return Plain()


def carried_layer_jax(heads: int, rngs: Any) -> Any:
    """The module in JAX with its state as an argument and a result."""
    from gradgate.references.performer.in_jax.linear_attention_module import LinearAttention

    class Carried(LinearAttention):
        def __call__(self, x: Any, S: Any, z: Any) -> Any:  # type: ignore[override]
            y, state = super().__call__(x, state=(S, z), return_state=True)
            return y, *state

    return Carried(4, heads=heads, chunk=3, rngs=rngs)


def plain_carried_layer_jax(heads: int, rngs: Any) -> Any:
    """The same layer with the matrix of all weights and with the state, in JAX."""
    import jax.numpy as jnp
    from flax import nnx

    class Plain(nnx.Module):
        def __init__(self) -> None:
            self.query, self.key, self.value, self.out = (nnx.Linear(4, 4, use_bias=False, rngs=rngs) for _ in range(4))

        def __call__(self, x: Any, S: Any, z: Any) -> Any:
            shape = (*x.shape[:-1], heads, 4 // heads)
            q, k, v = (jnp.swapaxes(f(x).reshape(shape), -2, -3) for f in (self.query, self.key, self.value))
            y, *state = plain_carried("jax", q, k, v, S, z, feature_map="elu")
            return self.out(jnp.swapaxes(y, -2, -3).reshape(x.shape)), *state

    return Plain()


_layer = functools.partial(
    module_pair,
    inputs={"x": normal("B L 4")},
    dims={"B": (2, 1), "L": (5, 1, 8), "heads": (2, 1)},
    modes=("train",),
)
layer_of_torch = _layer(layer_torch, plain_layer_torch, framework="torch", name="linear_attention_layer_torch")
layer_of_jax = _layer(
    layer_jax,
    plain_layer_jax,
    framework="jax",
    composes=("jit",),
    name="linear_attention_layer_jax",
)
_carried_layer = functools.partial(
    module_pair,
    inputs={
        "x": normal("B L 4"),
        "S": normal("B heads 4//heads 4//heads"),
        "z": uniform("B heads 4//heads", 0.5, 4.0),
    },
    dims={"B": (2, 1), "L": (5, 1, 8), "heads": (2, 1)},
    modes=("train",),
)
carried_layer_of_torch = _carried_layer(
    carried_layer_torch, plain_carried_layer_torch, framework="torch", name="carried_layer_torch"
)
carried_layer_of_jax = _carried_layer(
    carried_layer_jax, plain_carried_layer_jax, framework="jax", composes=("jit",), name="carried_layer_jax"
)
