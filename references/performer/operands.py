"""The checks of the arguments of `linear_attention`, for both frameworks: shapes, dtypes and options."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gradgate.references.errors import UsageError, unknown

MAPS = ("identity", "relu", "elu", "favor")
"""Feature maps that `linear_attention` knows by name."""
CHUNK = 64
"""Tokens of a chunk by default."""
BIDIRECTIONAL = (
    "linear_attention is causal: it walks along prefix sums, and without causality there are none. With features "
    "fq = g(q) and fk = g(k), use y = fq @ (mT(fk) @ v) / (fq @ mT(sum(fk, -2, keepdims))): plain autograd keeps no "
    "length × length array of that"
)


@dataclass(frozen=True)
class How:
    """How a call is computed: plain values, by which JAX caches compiled programs.

    Attributes:
        feature_map: one of MAPS.
        normalise: whether the output is divided by Σ g(q)·g(k).
        chunk: tokens of a chunk, at least 1 and at most the length.
        group: how many heads of queries share a head of keys and values, one after another.
        form: ``matrix`` or ``block``, by which sums inside a chunk are computed.
    """

    feature_map: str
    normalise: bool
    chunk: int
    group: int
    form: str


def form_of(chunk: int, features: int, width: int) -> str:
    """``matrix``, which holds chunk² numbers per head, or ``block``, which holds chunk·features·width: the smaller one.

    Both do about as many products as they hold numbers.

    >>> form_of(64, 64, 65), form_of(64, 2, 3)
    ('matrix', 'block')
    """
    return "matrix" if chunk <= features * width else "block"


def how(
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
    feature_map: str | Callable[..., Any],
    projection: tuple[int, ...] | None,
    chunk: int,
    normalise: bool,
    causal: bool,
) -> How:
    """How a call is computed.

    Args:
        shapes: the shapes of q, k and v.
        dtypes: the names of their dtypes.
        feature_map: as given by the user.
        projection: its shape; None: none was given.
        chunk, normalise, causal: as given by the user.

    Returns:
        The `How`. Its feature map is ``identity`` for a callable, whose features have been computed already.

    Raises:
        UsageError: something does not fit; the message says what is legal.
    """
    if causal is not True:
        raise UsageError(BIDIRECTIONAL)
    if not isinstance(feature_map, str) and not callable(feature_map):
        raise UsageError(f"feature_map is a name ({', '.join(MAPS)}) or a function of an array, not {feature_map!r}")
    if isinstance(feature_map, str) and feature_map not in MAPS:
        raise unknown("feature_map", feature_map, MAPS)
    if not isinstance(normalise, bool):
        raise UsageError(f"normalise is True or False, not {normalise!r}")
    _check_operands(shapes, dtypes)
    _check_projection(shapes[0][-1], feature_map, projection)
    length, width = shapes[0][-2], shapes[2][-1] + normalise
    features = projection[0] if projection else shapes[0][-1]
    size = min(check_chunk(chunk), max(1, length))
    name = feature_map if isinstance(feature_map, str) else "identity"
    return How(name, normalise, size, _group(shapes), form_of(size, features, width))


def _group(shapes: tuple[tuple[int, ...], ...]) -> int:
    q, k, _ = shapes
    return q[-3] // k[-3] if q[:-2] != k[:-2] else 1


def check_mask(mask: Any, keys: tuple[int, ...]) -> None:
    """Check a mask of tokens.

    Args:
        mask: as given by the user.
        keys: the shape of k.

    Raises:
        UsageError: it is no array of booleans, or cannot be broadcast to the tokens of k.
    """
    there = hasattr(mask, "shape") and hasattr(mask, "dtype")
    told = f"{tuple(mask.shape)}, {str(mask.dtype).removeprefix('torch.')}" if there else type(mask).__name__
    sizes = tuple(mask.shape)[::-1] if there else ()
    wanted = keys[-2::-1]
    fits = 1 <= len(sizes) <= len(wanted) and sizes[0] == wanted[0]
    fits = fits and all(size in (1, whole) for size, whole in zip(sizes, wanted, strict=False))
    if not fits or not str(mask.dtype).endswith("bool"):
        raise UsageError(
            f"mask is {told}; legal: booleans (..., {keys[-2]}), False where a token is padding, with leading sizes 1 "
            f"or those of k, {keys[:-2]}, such as mask[:, None, :] where the heads of a batch have the same padding"
        )


def check_width(width: int, shape: tuple[int, ...]) -> None:
    """Check the input of a layer.

    Raises:
        UsageError: it is not (..., length, width).
    """
    if len(shape) < 2 or shape[-1] != width:
        raise UsageError(
            f"the input has shape {shape}; legal: (..., length, {width}), because the layer has width {width}"
        )


def check_projection_size(features: Any, width: Any) -> None:
    """Check the sizes of `favor_projection`.

    Raises:
        UsageError: one of them is not a whole number of at least 1.
    """
    for name, size in (("features", features), ("width", width)):
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise UsageError(f"{name} is a whole number of at least 1, not {size!r}")


def check_layer(width: int, heads: int, key_heads: int | None, feature_map: str, features: int | None) -> int:
    """The width of a head.

    Raises:
        UsageError: the sizes or the feature map of a layer do not fit.
    """
    if isinstance(feature_map, str) and feature_map not in MAPS:
        raise unknown("feature_map", feature_map, MAPS)
    if not isinstance(feature_map, str):
        raise UsageError(f"a layer's feature_map is a name ({', '.join(MAPS)}), not {feature_map!r}")
    if not (isinstance(width, int) and isinstance(heads, int)) or width < 1 or heads < 1 or width % heads:
        raise UsageError(
            f"heads must divide width, and both be whole numbers of at least 1; not heads={heads!r}, width={width!r}"
        )
    if key_heads is not None and (not isinstance(key_heads, int) or key_heads < 1 or heads % key_heads):
        raise UsageError(f"key_heads must divide heads={heads}, and be a whole number of at least 1, not {key_heads!r}")
    if features is not None and (feature_map != "favor" or features < 1):
        raise UsageError(
            f"features={features!r} is for feature_map='favor' alone, at least 1: the others make as many features as "
            "a head is wide"
        )
    return width // heads


def check_features(given: tuple[tuple[int, ...], ...], made: tuple[Any, Any], fits: Callable[[Any], bool]) -> None:
    """Check the features that the user's function made from q and k.

    Args:
        given: the shapes of q, k and v.
        made: their features.
        fits: an object -> whether it is an array.

    Raises:
        UsageError: the features are not arrays (..., length, M).
    """
    for x in made:
        if not fits(x):
            raise UsageError(
                f"feature_map returned a {type(x).__name__}; legal: a function that makes an array "
                f"{(*given[0][:-1], 'M')} of q, such as an instance of a module and not its class"
            )
    q, k = (tuple(x.shape) for x in made)
    if q[:-1] != given[0][:-1] or k[:-1] != given[1][:-1] or q[-1:] != k[-1:] or len(q) != len(given[0]):
        raise UsageError(
            f"feature_map made {q} of q {given[0]} and {k} of k {given[1]}; legal: a function that makes "
            f"{(*given[0][:-1], 'M')} of q and {(*given[1][:-1], 'M')} of k, one token at a time"
        )


def check_state(state: Any, normalise: bool, leading: tuple[int, ...], features: int, values: int) -> tuple[Any, ...]:
    """The arrays of the state before the first token: S, and z if `normalise`.

    Args:
        state: as given by the user: the pair (S, z), or S if not `normalise`.
        normalise: whether the output is divided by Σ g(q)·g(k).
        leading: the leading sizes of q.
        features: M, the features of a token after the feature map.
        values: the last size of v.

    Raises:
        UsageError: `state` has another form, shape or dtype; the message says what is legal.
    """
    wanted = {"S": (*leading, features, values), **({"z": (*leading, features)} if normalise else {})}
    legal = ", ".join(f"{name} {shape}" for name, shape in wanted.items())
    legal = f"the pair (S, z) with {legal}" if normalise else f"with normalise=False {legal} alone, an array"
    arrays = tuple(state) if normalise and isinstance(state, (tuple, list)) else (state,)
    if len(arrays) != len(wanted) or not all(hasattr(x, "shape") and hasattr(x, "dtype") for x in arrays):
        told = f"{type(state).__name__} ({', '.join(type(x).__name__ for x in arrays)})"
        raise UsageError(f"state is a {told}; legal: {legal}, such as return_state=True returns")
    shapes = {name: tuple(x.shape) for name, x in zip(wanted, arrays, strict=True)}
    if shapes != wanted:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UsageError(f"the state does not fit: {told}; legal: {legal}")
    dtypes = [str(x.dtype).removeprefix("torch.") for x in arrays]
    if not all(kind.startswith(("float", "bfloat")) for kind in dtypes):
        raise UsageError(f"the state is {', '.join(dtypes)}; legal: floating numbers")
    return arrays


def check_chunk(chunk: Any) -> int:
    """`chunk` as an int.

    Raises:
        UsageError: it is not a whole number of at least 1.
    """
    try:
        size = 0 if isinstance(chunk, bool) else operator.index(chunk)
    except TypeError:
        size = 0
    if size < 1:
        raise UsageError(f"chunk is a whole number of tokens, at least 1, such as chunk={CHUNK}; not {chunk!r}")
    return size


def _check_operands(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> None:
    q, k, v = shapes
    if min(map(len, shapes)) < 2 or k[:-1] != v[:-1] or q[-2:] != k[-2:] or not _leading_fit(q[:-2], k[:-2]):
        raise UsageError(
            f"the shapes do not fit: q {q}, k {k}, v {v}; legal: q and k (..., length, features), v (..., length, "
            "values), with the same leading sizes; or q (..., heads, length, features), where the heads of k and v "
            "divide those of q, which then share them"
        )
    if len(set(dtypes)) > 1:
        raise UsageError(f"q, k and v have the dtypes {', '.join(dtypes)}; legal: one dtype; cast them first")
    if not dtypes[0].startswith(("float", "bfloat")):
        raise UsageError(f"q, k and v are {dtypes[0]}; legal: floating numbers")


def _leading_fit(q: tuple[int, ...], k: tuple[int, ...]) -> bool:
    """Whether the leading sizes are the same, or those of q have a multiple of the heads of k."""
    return q == k or (len(q) == len(k) and q[:-1] == k[:-1] and k[-1] > 0 and q[-1] > 0 and q[-1] % k[-1] == 0)


def _check_projection(features: int, feature_map: str | Callable[..., Any], projection: tuple[int, ...] | None) -> None:
    if feature_map != "favor":
        if projection is not None:
            raise UsageError(f"projection is for feature_map='favor' alone, not for {feature_map!r}: leave it out")
        return
    if projection is None:
        raise UsageError(
            f"feature_map='favor' needs projection=, an array (features, {features}) of normal numbers, such as "
            "the projection that `favor_projection` draws"
        )
    if len(projection) != 2 or projection[1] != features or projection[0] < 1:
        raise UsageError(f"projection has the shape {projection}; legal: (features, {features}), features at least 1")
