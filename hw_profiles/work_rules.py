"""Arithmetic of one primitive operation: how many FLOPs a JAX equation without inner programs performs."""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One operation per element of the result, on floating-point operands (comparisons and selections included, as the
# compilers count them). Complex numbers take 6 real operations for a product and 2 for the rest.
ARITHMETIC = _words(
    """
    add sub mul div rem neg max min abs sign floor ceil round nextafter clamp is_finite select_n square add_any eq
    ne lt le gt ge eq_to le_to lt_to mulhi
    """
)
# One call per element; counted apart from FLOPs, as the compilers do.
TRANSCENDENTAL = _words(
    """
    exp exp2 log log1p expm1 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh atan2 sqrt rsqrt cbrt
    logistic pow erf erfc erf_inv lgamma digamma polygamma igamma igammac bessel_i0e bessel_i1e zeta
    regularized_incomplete_beta
    """
)
# No floating-point work, and nothing moved that a fused loop would not move anyway.
FREE = _words(
    """
    broadcast_in_dim reshape squeeze expand_dims transpose rev convert_element_type bitcast_convert_type
    reduce_precision iota copy stop_gradient real imag complex conj and or xor not shift_left shift_right_logical
    shift_right_arithmetic population_count clz optimization_barrier tie pvary pbroadcast axis_index
    sharding_constraint reshard mesh_cast random_wrap random_unwrap create_token after_all empty empty2 to_edtype
    from_edtype debug_callback name
    """
)
# No floating-point work, but data that moves.
MOVING = _words(
    """
    gather dynamic_slice dynamic_update_slice scatter slice concatenate pad sort top_k argsort split tile unstack
    random_bits random_seed random_fold_in random_split threefry2x32 rng_bit_generator rng_uniform all_gather
    all_gather_invariant all_to_all ppermute all_gather_reduced pure_callback io_callback
    """
)
# These touch only the part of their big operand that they read or write.
SLICING = _words("gather dynamic_slice slice")
UPDATING = _words("dynamic_update_slice scatter scatter-add scatter-mul scatter-min scatter-max scatter-sub")
FUSIBLE = ARITHMETIC | TRANSCENDENTAL | FREE | {"integer_pow"}


def is_known(name: str) -> bool:
    """Whether the primitive has a rule here."""
    return name in FUSIBLE or name in MOVING or name in _RULES


def flops(eqn: Any) -> int:
    """Floating-point operations of one equation; 0 for transcendental functions and for what has no rule."""
    name = eqn.primitive.name
    if name in ARITHMETIC:
        return _elements(eqn.outvars[0]) * _weight(eqn.invars[-1], product=name in ("mul", "div", "square"))
    rule = _RULES.get(name)
    return rule(eqn) if rule else 0


def transcendentals(eqn: Any) -> int:
    """Count the calls of exp, log, tanh and the like in one equation."""
    name = eqn.primitive.name
    if name in TRANSCENDENTAL or name == "cumlogsumexp":
        return _elements(eqn.outvars[0])
    return 0


def nbytes(var: Any) -> int:
    """Bytes of a variable's value; 0 for tokens and the like."""
    itemsize = getattr(getattr(var.aval, "dtype", None), "itemsize", 0)
    return _elements(var) * int(itemsize)


def _elements(var: Any) -> int:
    return prod(getattr(var.aval, "shape", ()))


def _weight(var: Any, product: bool = False) -> int:
    """Real operations per element: 0 for integers and booleans."""
    from jax.dtypes import issubdtype
    from numpy import complexfloating, inexact

    dtype = getattr(var.aval, "dtype", None)
    if dtype is None or not issubdtype(dtype, inexact):
        return 0
    if issubdtype(dtype, complexfloating):
        return 6 if product else 2
    return 1


def _dot(eqn: Any) -> int:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    depth = prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    return _multiply_adds(eqn, _elements(eqn.outvars[0]) * depth)


def _ragged_dot(eqn: Any) -> int:
    return _multiply_adds(eqn, _elements(eqn.invars[0]) * int(eqn.invars[1].aval.shape[-1]))


def _multiply_adds(eqn: Any, count: int) -> int:
    return count * (_weight(eqn.invars[0], product=True) + _weight(eqn.invars[0]))


def _conv(eqn: Any) -> int:
    """2 × (products that meet a real input element); padding and holes of a dilation cost nothing."""
    params, (lhs, rhs) = eqn.params, eqn.invars
    numbers = params["dimension_numbers"]
    taps = 1
    for axis, (low, _) in enumerate(params["padding"]):
        size = lhs.aval.shape[numbers.lhs_spec[2 + axis]]
        kernel = rhs.aval.shape[numbers.rhs_spec[2 + axis]]
        out = eqn.outvars[0].aval.shape[numbers.out_spec[2 + axis]]
        stride, hole, spread = (params[k][axis] for k in ("window_strides", "lhs_dilation", "rhs_dilation"))
        at = [o * stride + k * spread - low for k in range(kernel) for o in range(out)]
        taps *= sum(1 for place in at if place % hole == 0 and 0 <= place // hole < size)
    batch = lhs.aval.shape[numbers.lhs_spec[0]] // params["batch_group_count"]
    channels_in = rhs.aval.shape[numbers.rhs_spec[1]]  # already per feature group
    channels_out = rhs.aval.shape[numbers.rhs_spec[0]]
    return _multiply_adds(eqn, taps * batch * channels_in * channels_out)


def _reduce(eqn: Any) -> int:
    inputs = _elements(eqn.invars[0]) - _elements(eqn.outvars[0])
    return max(0, inputs) * _weight(eqn.invars[0])


def _cumulative(eqn: Any) -> int:
    return _elements(eqn.invars[0]) * _weight(eqn.invars[0])


def _window(eqn: Any) -> int:
    window = prod(eqn.params["window_dimensions"])
    return _elements(eqn.outvars[0]) * (window - 1) * _weight(eqn.invars[0])


def _update(eqn: Any) -> int:
    return _elements(eqn.invars[2]) * _weight(eqn.invars[0])


def _collective(eqn: Any) -> int:
    return sum(_elements(var) * _weight(var) for var in eqn.outvars)


def _power(eqn: Any) -> int:
    """Products by repeated squaring, and one division for a negative power."""
    power = abs(eqn.params["y"])
    products = max(0, power.bit_length() + power.bit_count() - 2) + (eqn.params["y"] < 0)
    return products * _elements(eqn.outvars[0]) * _weight(eqn.invars[0], product=True)


def _matrices(eqn: Any) -> tuple[int, int, int]:
    """Return the number of matrices in the first operand, their rows and columns."""
    *batch, rows, columns = eqn.invars[0].aval.shape
    return prod(batch), rows, columns


def _cholesky(eqn: Any) -> int:
    batch, n, _ = _matrices(eqn)
    return batch * n**3 // 3


def _lu(eqn: Any) -> int:
    batch, m, n = _matrices(eqn)
    return batch * (max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 // 3)


def _qr(eqn: Any) -> int:
    batch, m, n = _matrices(eqn)
    return batch * 2 * (max(m, n) * min(m, n) ** 2 - min(m, n) ** 3 // 3)


def _triangular_solve(eqn: Any) -> int:
    return _elements(eqn.outvars[0]) * int(eqn.invars[0].aval.shape[-1])


def _fft(eqn: Any) -> int:
    points = prod(eqn.params["fft_lengths"])
    elements = max(_elements(eqn.invars[0]), _elements(eqn.outvars[0]))
    return int(5 * elements * log2(points)) if points > 1 else 0


_RULES: dict[str, Callable[[Any], int]] = {
    "dot_general": _dot,
    "ragged_dot": _ragged_dot,
    "conv_general_dilated": _conv,
    "integer_pow": _power,
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "argmax", "argmin"), _reduce),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor"), lambda _: 0),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), _window),
    **dict.fromkeys(("scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub"), _update),
    **dict.fromkeys(("psum", "psum_invariant", "pmax", "pmin", "reduce_scatter"), _collective),
    "cholesky": _cholesky,
    "lu": _lu,
    "qr": _qr,
    "geqrf": _qr,
    "householder_product": _qr,
    "triangular_solve": _triangular_solve,
    "fft": _fft,
}
