"""How an operation of PyTorch is evaluated; decided once per overload.

A view needs nothing, a factory makes data, and a rule computes balls. An operation that is none of these is decomposed
by PyTorch's own decomposition. An operation without a decomposition is Unknown.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decomposition_table

from gradgate.suites.exact import balls
from gradgate.suites.exact.on_torch.rules import RULES

FACTORIES = frozenset(
    (
        "zeros",
        "ones",
        "empty",
        "empty_strided",
        "full",
        "eye",
        "rand",
        "randn",
        "randint",
        "randperm",
        "scalar_tensor",
        "zeros_like",
        "ones_like",
        "full_like",
        "empty_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
        "new_empty_strided",
        "tril_indices",
        "triu_indices",
        "_efficientzerotensor",
        "_new_zeros_with_same_feature_meta",
        "bernoulli",
        "multinomial",
        "poisson",
        "empty_permuted",
        "lift_fresh",
    )
)
"""Operations that make tensors without the values of any tensor: their results are data."""

DRAWS = frozenset(
    (
        "bernoulli_",
        "uniform_",
        "normal_",
        "exponential_",
        "geometric_",
        "log_normal_",
        "cauchy_",
        "random_",
        "zero_",
    )
)
"""Operations in place whose new values are data."""

QUERIES = frozenset(
    (
        "is_same_size",
        "_has_same_storage_numel",
        "promote_types",
        "result_type",
        "can_cast",
        "_linalg_check_errors",
        "_assert_async",
        "sym_size",
        "sym_numel",
        "sym_stride",
        "sym_storage_offset",
        "size",
        "stride",
        "numel",
        "dim",
        "is_contiguous",
        "is_strides_like_format",
        "is_non_overlapping_and_dense",
        "storage_offset",
        "_version",
        "is_pinned",
        "_is_all_true",
        "_is_any_true",
        "device",
        "layout",
        "is_complex",
        "_record_function_enter_new",
        "_record_function_exit",
        "_record_function_enter",
        "_backward",
        "record_stream",
        "_debug_has_internal_overlap",
        "_assert_tensor_metadata",
        "_functional_assert_async",
        "requires_grad_",
    )
)
"""Operations whose results do not depend on floating values."""

PLACES = frozenset(
    (
        "_unsafe_view",
        "_reshape_alias",
        "t_",
        "transpose_",
        "squeeze_",
        "unsqueeze_",
        "swapaxes_",
        "swapdims_",
        "as_strided_",
        "unsafe_split",
        "unsafe_split_with_sizes",
        "unsafe_chunk",
        "detach_",
    )
)
"""Views that their schema does not mark as views."""


PRIMITIVES = frozenset(
    (
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "exp",
        "log",
        "sin",
        "cos",
        "tanh",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "pow",
        "abs",
        "where",
        "maximum",
        "minimum",
        "erf",
        "expm1",
        "log1p",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    )
)
"""Primitives of PyTorch's decompositions that take the arguments of the operation of that name."""


@functools.cache
def name_of(func: Any) -> str:
    """The operation's name without namespace, overload and the mark of writing in place."""
    name = func._schema.name.partition("::")[2]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


@functools.cache
def outputs_of(func: Any) -> frozenset[str]:
    """The names of the arguments that are written as ``out=``."""
    return frozenset(arg.name for arg in func._schema.arguments if arg.is_out)


@functools.cache
def functional_of(func: Any) -> Any:
    """The operation itself, or the operation that returns what this one writes.

    Raises:
        Unknown: there is none.
    """
    if not any(arg.alias_info is not None and arg.alias_info.is_write for arg in func._schema.arguments):
        return func
    inputs = [(arg.name, str(arg.type)) for arg in func._schema.arguments if not arg.is_out]
    packet = getattr(getattr(torch.ops, func.namespace), name_of(func), None)
    for overload in packet.overloads() if packet is not None else ():
        other = getattr(packet, overload)
        writes = any(arg.alias_info is not None and arg.alias_info.is_write for arg in other._schema.arguments)
        if not writes and [(arg.name, str(arg.type)) for arg in other._schema.arguments][: len(inputs)] == inputs:
            return other
    raise balls.Unknown(f"{func}: no operation returns what it writes")


@dataclass(frozen=True, slots=True)
class Known:
    """What is decided once of an overload.

    Attributes:
        func: the overload itself, so that its id is of no other one.
        text: the overload as a watch is told of it.
        name, way, outputs: `name_of`, `way_of` and `outputs_of` it.
    """

    func: Any
    text: str
    name: str
    way: str
    outputs: frozenset[str]


_KNOWN: dict[int, Known] = {}


def known(func: Any) -> Known:
    """What is decided once of an overload; found by its id, because PyTorch hashes an overload in Python."""
    found = _KNOWN.get(id(func))
    if found is None:
        found = _KNOWN[id(func)] = Known(func, str(func), name_of(func), way_of(func), outputs_of(func))
    return found


def way_of(func: Any) -> str:
    """How calls of an overload are evaluated: the name of a method of `mode.BallMode`."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        raise balls.Unknown(f"{func}: an operation of higher order")
    space, _, bare = schema.name.partition("::")
    name = name_of(func)
    if bare in FACTORIES and name not in RULES:
        return "make"
    if bare in PLACES or (func.is_view and name not in RULES and bare != "view" and not _implicit(func)):
        return "view"
    if bare == "view":
        return "reinterpret" if func._overloadname == "dtype" else "view"
    if bare in ("set_", "copy_"):
        return "adopt" if bare == "set_" else "copy"
    if bare == "_local_scalar_dense":
        return "leave"
    if space in ("profiler", "prim") or bare in QUERIES:
        return "view"
    if bare in DRAWS:
        return "draw"
    if name in RULES and (space == "aten" or (space == "prims" and bare in PRIMITIVES)):
        return "compute"
    if bare == "normal" and func._overloadname in ("float_float", "float_float_out"):
        return "make"
    if space == "prims":
        return "run_prim"
    if name.startswith("_foreach_"):
        return "run_foreach"
    return _apart(func)


def _implicit(func: Any) -> bool:
    return bool(func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))


def _apart(func: Any) -> str:
    """How an operation without a rule is taken apart."""
    if _implicit(func):
        return "decompose"
    try:
        functional = functional_of(func)
    except balls.Unknown:
        return "unknown"
    if functional is not func:
        return "take_apart_in_place" if functional in decomposition_table else "unknown"
    return "take_apart" if func in decomposition_table else "unknown"
