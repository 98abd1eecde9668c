"""Arithmetic of one primitive operation: how many FLOPs a JAX equation without inner programs takes.

A sum of n terms has n − 1 additions, whether in a product of matrices, a convolution, a reduction or a prefix sum.
Factorisations count the leading terms of their textbook algorithms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import log2, prod
from typing import Any

from gradgate.hw_profiles.contraction import Contraction, Convolution, axis


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
    exp exp2 log log2 log1p expm1 tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh atan2 sqrt rsqrt cbrt
    logistic pow erf erfc erf_inv lgamma digamma polygamma igamma igammac bessel_i0e bessel_i1e zeta
    regularized_incomplete_beta
    """
)
# No floating-point work, and no traffic beyond that of a fused loop.
FREE = _words(
    """
    broadcast_in_dim reshape squeeze expand_dims transpose rev convert_element_type bitcast_convert_type
    reduce_precision iota copy stop_gradient real imag complex conj and or xor not shift_left shift_right_logical
    shift_right_arithmetic population_count clz optimization_barrier tie pvary pbroadcast axis_index
    sharding_constraint reshard mesh_cast random_wrap random_unwrap create_token after_all empty empty2 to_edtype
    from_edtype debug_callback name
    """
)
# No floating-point work, but traffic.
MOVING = _words(
    """
    gather dynamic_slice dynamic_update_slice scatter slice concatenate pad sort top_k argsort split tile stack unstack
    random_bits random_seed random_fold_in random_split threefry2x32 rng_bit_generator rng_uniform all_gather
    all_gather_invariant all_to_all ppermute all_gather_reduced pure_callback io_callback
    """
)
# These access only the part of their large operand that they read or write.
SLICING = _words("gather dynamic_slice slice")
UPDATING = _words("dynamic_update_slice scatter scatter-add scatter-mul scatter-min scatter-max scatter-sub")
FUSIBLE = ARITHMETIC | TRANSCENDENTAL | FREE | {"integer_pow", "one_minus_square"}


def is_known(name: str) -> bool:
    """Whether the primitive has a rule here."""
    return name in FUSIBLE or name in MOVING or name in _RULES or name in _CONTRACTIONS or name in _COLLECTIVE


def flops(eqn: Any, devices: Mapping[Any, int]) -> int | Fraction:
    """Floating-point operations of one equation; 0 for transcendental functions and for what has no rule.

    Args:
        eqn: the equation.
        devices: size of every mesh axis that the program is divided over. A sum over n devices takes n − 1 additions;
            each device's share of them may be a fraction.
    """
    name = eqn.primitive.name
    if name in ARITHMETIC:
        return _elements(eqn.outvars[0]) * _weight(eqn.invars[-1], product=name in ("mul", "div", "square"))
    if name in _CONTRACTIONS:
        return _CONTRACTIONS[name](eqn).operations(*_product_and_addition(eqn))
    if name in _COLLECTIVE:
        return _collective(eqn, devices)
    rule = _RULES.get(name)
    return rule(eqn) if rule else 0


def convention(eqn: Any) -> int:
    """What papers, compilers and peak rates count beyond `flops`: one more addition for each sum of products."""
    rule = _CONTRACTIONS.get(eqn.primitive.name)
    if rule is None:
        return 0
    product, addition = _product_and_addition(eqn)
    return rule(eqn).nominal(product, addition) - rule(eqn).operations(product, addition)


def transcendentals(eqn: Any) -> int:
    """Count the calls of exp, log, tanh and the like in one equation."""
    name = eqn.primitive.name
    if name in TRANSCENDENTAL or name == "cumlogsumexp":
        return _elements(eqn.outvars[0])
    return 0


def nbytes(var: Any) -> int:
    """Bytes of a variable's value; 0 for values without a dtype, such as tokens."""
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


def _product_and_addition(eqn: Any) -> tuple[int, int]:
    """Real operations of one product and of one addition of an equation's operands."""
    return _weight(eqn.invars[0], product=True), _weight(eqn.invars[0])


def _dot(eqn: Any) -> Contraction:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    depth = prod(eqn.invars[0].aval.shape[axis] for axis in contracted)
    return Contraction.of_matrices(_elements(eqn.outvars[0]), depth)


def _ragged_dot(eqn: Any) -> Contraction:
    """Each row, or each place of a ragged contracted axis, is multiplied with the matrix of its group."""
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (_, contracted), (_, batch) = numbers.dot_dimension_numbers
    bound = {*contracted, *batch, *numbers.rhs_group_dimensions}
    free = prod(size for place, size in enumerate(eqn.invars[1].aval.shape) if place not in bound)
    products = _elements(eqn.invars[0]) * free
    return Contraction(products, min(products, _elements(eqn.outvars[0])))


def _conv(eqn: Any) -> Contraction:
    """Products with an element of the input; padding and the holes of a dilation cost nothing."""
    params, (lhs, rhs) = eqn.params, eqn.invars
    numbers = params["dimension_numbers"]
    axes = []
    for place, (low, _) in enumerate(params["padding"]):
        size = lhs.aval.shape[numbers.lhs_spec[2 + place]]
        kernel = rhs.aval.shape[numbers.rhs_spec[2 + place]]
        results = eqn.outvars[0].aval.shape[numbers.out_spec[2 + place]]
        stride, hole, spread = (params[k][place] for k in ("window_strides", "lhs_dilation", "rhs_dilation"))
        axes.append(axis(size, kernel, results, stride, low, hole, spread))
    batch = lhs.aval.shape[numbers.lhs_spec[0]] // params["batch_group_count"]
    channels_in = rhs.aval.shape[numbers.rhs_spec[1]]  # already per feature group
    channels_out = rhs.aval.shape[numbers.rhs_spec[0]]
    return Convolution(axes, batch, channels_in, channels_out).result


def _reduce(eqn: Any) -> int:
    inputs = _elements(eqn.invars[0]) - _elements(eqn.outvars[0])
    return max(0, inputs) * _weight(eqn.invars[0])


def _cumulative(eqn: Any) -> int:
    """Each element of a row, except the first, is added to the sum before it."""
    elements = _elements(eqn.invars[0])
    rows = elements // max(1, eqn.invars[0].aval.shape[eqn.params["axis"]])
    return (elements - rows) * _weight(eqn.invars[0])


def _window(eqn: Any) -> int:
    """In the same way as a convolution: padding is no term of a window's sum."""
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    axes = []
    for place, (low, _) in enumerate(eqn.params["padding"]):
        window, stride, hole, spread = (eqn.params[name][place] for name in names)
        sizes = (eqn.invars[0].aval.shape[place], window, eqn.outvars[0].aval.shape[place])
        axes.append(axis(*sizes, stride, low, hole, spread))
    terms, sums = prod(each.pairs for each in axes), prod(each.results for each in axes)
    return (terms - sums) * _weight(eqn.invars[0])


def _one_minus_square(eqn: Any) -> int:
    """(1 + x)(1 − x)."""
    return _elements(eqn.outvars[0]) * (_weight(eqn.invars[0], product=True) + 2 * _weight(eqn.invars[0]))


def _update(eqn: Any) -> int:
    return _elements(eqn.invars[2]) * _weight(eqn.invars[0])


def _collective(eqn: Any, devices: Mapping[Any, int]) -> Fraction:
    """A device's share of the n − 1 additions for every element of a sum over n devices."""
    groups = eqn.params.get("axis_index_groups")
    names = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    n = len(groups[0]) if groups else prod(devices.get(name, 1) for name in names)
    sums = sum(_elements(var) * _weight(var) for var in eqn.outvars)
    # After an all-reduce, every device holds all sums; after a reduce-scatter, only its own sums.
    return Fraction(sums * (n - 1), 1 if eqn.primitive.name == "reduce_scatter" else n)


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


_CONTRACTIONS: dict[str, Callable[[Any], Contraction]] = {
    "dot_general": _dot,
    "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": _conv,
}
_COLLECTIVE = _words("psum psum_invariant pmax pmin reduce_scatter")
_RULES: dict[str, Callable[[Any], int]] = {
    "integer_pow": _power,
    "one_minus_square": _one_minus_square,
    **dict.fromkeys(("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "argmax", "argmin"), _reduce),
    **dict.fromkeys(("reduce_and", "reduce_or", "reduce_xor"), lambda _: 0),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), _window),
    **dict.fromkeys(("scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub"), _update),
    "cholesky": _cholesky,
    "lu": _lu,
    "qr": _qr,
    "geqrf": _qr,
    "householder_product": _qr,
    "triangular_solve": _triangular_solve,
    "fft": _fft,
}
