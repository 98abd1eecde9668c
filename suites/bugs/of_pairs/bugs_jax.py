"""Bugs of the pairs of JAX: name, mechanism, the claim that must refute it, and the edit."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.of_pairs.mutant import PairMutant


def _bug(module: str, pair: str, name: str, story: str, kill: str, *edits: str) -> PairMutant:
    two = tuple(zip(edits[::2], edits[1::2], strict=True))
    return PairMutant(f"jax.{pair}.{name}", story, f"{module}:{pair}", kill, two)


_norms = functools.partial(_bug, "jax_norms")
_gated, _summed, _normed = (functools.partial(_norms, pair) for pair in ("gated", "summed", "normed"))
_added, _grouped = functools.partial(_norms, "added"), functools.partial(_norms, "grouped")
_masked, _cumulative = functools.partial(_norms, "masked"), functools.partial(_norms, "cumulative")
_DX, _DGATE = "return dy * gate * slope,", "dy * 0.5 * x * (1 + t)\n"
_RULE = (
    "import jax.numpy as jnp\n",
    "import jax.numpy as jnp\n_same = jax.custom_batching.custom_vmap(lambda x: x)\n"
    "_same.def_vmap(lambda size, batched, x: (2 * x, True))\n",
)
"""The identity, with a wrong rule for vmap."""

NORMS = (
    _gated(
        "first_of_upstream",
        "everything is multiplied by grad_output[0]",
        "gradient_exact",
        "    x, gate = kept\n",
        "    x, gate = kept\n    dy = jnp.ones_like(dy) * dy.ravel()[:1].sum()\n",
    ),
    _gated(
        "upstream_dropped",
        "the upstream gradient is dropped in one leaf",
        "gradient_exact",
        _DX,
        "return gate * slope,",
    ),
    _gated(
        "factor_lost",
        "a factor is lost in the recomputation",
        "gradient_exact",
        "(1 - t * t) * (1 + 0.75 * x**2)\n",
        "(1 - t * t)\n",
    ),
    _gated(
        "eleventh_digit",
        "a factor of 1 + 1e-11 in one leaf",
        "gradient_float64",
        _DGATE,
        "(1 + 1e-11) * dy * 0.5 * x * (1 + t)\n",
    ),
    _gated(
        "fifth_digit",
        "a factor of 1 + 3e-5 in one leaf, only in float32",
        "gradient_float32",
        _DGATE,
        "(1 + 3e-5 * (x.dtype == jnp.float32)) * dy * 0.5 * x * (1 + t)\n",
    ),
    _gated(
        "percent_in_bfloat16",
        "one leaf is 4% too large, only in bfloat16",
        "gradient_bfloat16",
        _DGATE,
        "(1.04 if x.dtype == jnp.bfloat16 else 1.0) * dy * 0.5 * x * (1 + t)\n",
    ),
    _gated(
        "narrow_recomputation",
        "the recomputation is in bfloat16",
        "gradient_float32",
        "    t = jnp.tanh(x + 0.25 * x**3)\n    slope",
        "    t = jnp.tanh((x + 0.25 * x**3).astype(jnp.bfloat16)).astype(x.dtype)\n    slope",
    ),
    _gated(
        "single_recomputation",
        "the recomputation is in float32",
        "gradient_float64",
        "    t = jnp.tanh(x + 0.25 * x**3)\n    slope",
        "    t = jnp.tanh((x + 0.25 * x**3).astype(jnp.float32)).astype(x.dtype)\n    slope",
    ),
    _gated(
        "only_jitted",
        "wrong only under jax.jit",
        "jit",
        _DX,
        "return dy * gate * slope * (2 if isinstance(x, jax.core.Tracer) else 1),",
    ),
    _gated("only_vmapped", "wrong only under jax.vmap", "vmap", _DX, "return dy * gate * _same(slope),", *_RULE),
    _gated(
        "vmapped_value",
        "under jax.vmap, a custom batching rule makes the value wrong",
        "vmap",
        "lambda x, gate: (gelu_gate(x, gate), (x, gate))",
        "lambda x, gate: (_same(gelu_gate(x, gate)), (x, gate))",
        *_RULE,
    ),
    _gated(
        "second_stopped",
        "the backward pass is right and cut off from further derivatives",
        "second_order_exact",
        _DX,
        "return dy * gate * jax.lax.stop_gradient(slope),",
    ),
    _gated(
        "second_digits",
        "the derivative of the backward pass is 1e-9 too large",
        "second_order",
        _DX,
        "slope = (1 + 1e-9) * slope - 1e-9 * jax.lax.stop_gradient(slope)\n    return dy * gate * slope,",
    ),
    _gated(
        "nan_in_value",
        "a NaN is swallowed by the forward pass",
        "not_finite",
        "lambda x, gate: (gelu_gate(x, gate), (x, gate))",
        "lambda x, gate: (jnp.nan_to_num(gelu_gate(x, gate)), (x, gate))",
        'which keeps its inputs alone."""\n    return 0.5 * x * (1 + jnp.tanh(x + 0.25 * x**3)) * gate',
        'to change."""\n    return jnp.nan_to_num(0.5 * x * (1 + jnp.tanh(x + 0.25 * x**3)) * gate)',
    ),
    _gated(
        "nan_in_gradient",
        "a NaN is swallowed by the backward pass",
        "not_finite",
        "    x, gate = kept\n",
        "    x, gate = jnp.nan_to_num(kept[0]), jnp.nan_to_num(kept[1])\n",
    ),
    _gated(
        "counts_calls",
        "every call has a relative difference of 1e-7 from the last call",
        "deterministic",
        "    x, gate = kept\n",
        "    x, gate = kept\n    CALLS.append(0)\n    dy = dy * (1 + 1e-6 * len(CALLS))\n",
        "import jax.numpy as jnp\n",
        "import jax.numpy as jnp\nCALLS: list[int] = []\n",
    ),
    _summed(
        "one_axis",
        "wrong by half for one value of an option",
        "gradient_exact",
        "jnp.expand_dims(dy, axis),)",
        "jnp.expand_dims(dy, axis) * (0.5 if axis == 0 else 1.0),)",
    ),
    _summed(
        "clipped",
        "small probabilities are clipped",
        "stability",
        "(jnp.exp(x - jnp.expand_dims(y, axis))",
        "(jnp.exp(jnp.maximum(x - jnp.expand_dims(y, axis), -18))",
    ),
    _summed(
        "small_lost",
        "nothing below float32's smallest difference counts",
        "gradient_float64",
        "    return y, (x, y)\n",
        "    return y, (x, y.astype(jnp.float32).astype(x.dtype))\n",
    ),
    _normed(
        "second_factor",
        "a wrong factor only in the second derivative",
        "second_order_exact",
        "ug - 3 * r**2 * p * ux",
        "ug - 2 * r**2 * p * ux",
    ),
    _normed(
        "second_digits",
        "a relative error of 1e-9 only in the second derivative",
        "second_order",
        "dg = u * r - ux",
        "dg = (1 + 1e-9) * u * r - ux",
    ),
    _normed(
        "second_term",
        "a term is lost only in the derivative for the upstream gradient",
        "second_order",
        "dg * weight + v * x * r\n",
        "dg * weight\n",
    ),
    _normed(
        "last_token",
        "a weight's gradient is that of the last token",
        "gradient_exact",
        "(dy * x * r).sum(0)\n",
        "(dy * x * r)[-1]\n",
    ),
    _added(
        "one_output",
        "the cotangent of one output is dropped",
        "cotangents",
        ".mean(-1, keepdims=True)) + dh",
        ".mean(-1, keepdims=True))",
    ),
    _added(
        "bias_zero",
        "one leaf of a dict has no gradient, which JAX treats as zero",
        "gradient_exact",
        '"bias": dy.sum(0)}',
        '"bias": None}',
    ),
    _added(
        "swapped",
        "two leaves of a dict are swapped",
        "gradient_exact",
        '{"weight": (dy * hat).sum(0), "bias": dy.sum(0)}',
        '{"bias": (dy * hat).sum(0), "weight": dy.sum(0)}',
    ),
    _added(
        "crossed_outputs",
        "the cotangent of one output leaks into a leaf",
        "cotangents",
        '"bias": dy.sum(0)}',
        '"bias": (dy + 1e-7 * dh).sum(0)}',
    ),
    _added(
        "value_of_one",
        "an output is 1e-9 too large",
        "outputs",
        '"h": h}\n\n\ndef _add',
        '"h": h * (1 + 1e-9)}\n\n\ndef _add',
    ),
    _grouped(
        "group_forgotten",
        "the backward pass takes the mean over all groups",
        "gradient_exact",
        "(g * hats).mean(-1, keepdims=True)",
        "(g * hats).mean((-2, -1), keepdims=True)",
    ),
    _grouped(
        "one_group_size",
        "wrong for one group size",
        "gradient_exact",
        "return dx.reshape(x.shape), (dy",
        "return dx.reshape(x.shape) * (1 + 1e-7 * (groups == 4)), (dy",
    ),
    _masked(
        "shifted",
        "positions are shifted if a row is short",
        "gradient_exact",
        "lambda y, dy: (y * (dy -",
        "lambda y, dy: (y * (jnp.where(y[:, -1:] == 0, jnp.roll(dy, 1, 1), dy) -",
    ),
    _masked(
        "clipped",
        "probabilities are clipped before they are kept",
        "gradient_float64",
        "    return y, y\n",
        "    return y, jnp.minimum(y, 1 - 1e-7)\n",
    ),
    _cumulative(
        "direction",
        "the backward pass forgets the direction",
        "gradient_exact",
        "reverse=not reverse)",
        "reverse=True)",
    ),
    _cumulative(
        "empty_mean",
        "NaN if a dim is empty",
        "gradient_float64",
        "-(summed * x * w).sum(0)\n",
        "-(summed * x * w).mean(0) * len(x)\n",
    ),
)

_sequences = functools.partial(_bug, "jax_sequences")
_attending, _recurring = functools.partial(_sequences, "attending"), functools.partial(_sequences, "recurring")
_convolved, _filtered = functools.partial(_sequences, "convolved"), functools.partial(_sequences, "filtered")
_dropped = functools.partial(_sequences, "dropped")

SEQUENCES = (
    _attending(
        "mask_lost",
        "the causal mask is lost in the recomputation",
        "gradient_exact",
        "p = jnp.exp(_scores(q[rows], k, start, causal)",
        "p = jnp.exp(_scores(q[rows], k, start, False)",
    ),
    _attending(
        "scale_lost",
        "a factor is lost in the recomputation",
        "gradient_exact",
        "- delta[rows]) * q.shape[-1] ** -0.5",
        "- delta[rows])",
    ),
    _attending(
        "last_block",
        "the last block's dk replaces the sum",
        "gradient_exact",
        "dk += ds.T @ q[rows]",
        "dk = ds.T @ q[rows]",
    ),
    _attending(
        "one_block_size",
        "wrong for one block size",
        "options",
        "dv += p.T @ do[rows]",
        "dv += p.T @ do[rows] * (1 + 1e-6 * (block == 16))",
    ),
    _attending(
        "block_mask",
        "every block's mask starts at its first row",
        "gradient_exact",
        "p = jnp.exp(_scores(q[rows], k, start, causal)",
        "p = jnp.exp(_scores(q[rows], k, 0, causal)",
    ),
    _recurring(
        "last_dropped",
        "the cotangent of the last state is dropped",
        "cotangents",
        "step, dlast,",
        "step, jnp.zeros_like(dlast),",
    ),
    _recurring(
        "late_states",
        "the states are one step late",
        "gradient_exact",
        "before = jnp.concatenate([start[None], states[:-1]])",
        "before = states",
    ),
    _recurring(
        "second_stopped",
        "the backward pass is cut off from further derivatives",
        "second_order_exact",
        "before = jnp.concatenate([start[None], states[:-1]])",
        "before = jax.lax.stop_gradient(jnp.concatenate([start[None], states[:-1]]))",
    ),
    _convolved(
        "short_sequence",
        "sequences shorter than the kernel lose taps",
        "gradient_exact",
        "(weight[lag] * _earlier(dy, lag) for lag in range(len(weight)))",
        "(weight[lag] * _earlier(dy, lag) for lag in range(len(weight) if len(x) >= len(weight) else 1))",
    ),
    _convolved(
        "flipped",
        "the taps are read backwards in one leaf",
        "gradient_exact",
        "return dx, jnp.stack([(dy * _later(x, lag)).sum(0) for lag in range(len(weight))])",
        "return dx, jnp.stack([(dy * _later(x, lag)).sum(0) for lag in range(len(weight))])[::-1]",
    ),
    _filtered(
        "half_spectrum",
        "the conjugate half of the spectrum is forgotten",
        "gradient_float64",
        "== len(x)), 1, 2)",
        "== len(x)), 1, 1)",
    ),
    _filtered(
        "highest_frequency",
        "the highest frequency of an even length counts twice",
        "gradient_float64",
        "(places == 0) | (2 * places == len(x))",
        "(places == 0)",
    ),
    _filtered(
        "conjugate", "a conjugate is forgotten", "gradient_float64", "(waves * back.conj()).real", "(waves * back).real"
    ),
    _dropped(
        "mask_again",
        "the mask is drawn again in the recomputation",
        "gradient_float64",
        "    keep = _mask(seed, x)\n",
        "    keep = _mask(seed + 1, x)\n",
    ),
    _dropped(
        "scale_lost",
        "the factor of the kept share is lost in one leaf",
        "gradient_exact",
        "return dy @ weight * keep,",
        "return dy @ weight * (keep != 0),",
    ),
    _dropped(
        "key_ignored",
        "the mask is the same for every key",
        "outputs",
        "jax.random.wrap_key_data(seed), x.shape, jnp.float32)  #",
        "jax.random.wrap_key_data(0 * seed), x.shape, jnp.float32)  #",
    ),
)

_tables = functools.partial(_bug, "jax_tables")
_entropy, _embedded = functools.partial(_tables, "entropy"), functools.partial(_tables, "embedded")
_ordered, _solved, _layered = (functools.partial(_tables, pair) for pair in ("ordered", "solved", "layered"))

TABLES = (
    _entropy("upstream_dropped", "the upstream gradient is dropped", "gradient_exact", "* share * dy\n", "* share\n"),
    _entropy(
        "padding_learns",
        "ignored labels have a gradient",
        "gradient_exact",
        "d * (labels != IGNORED)[:, None] * share",
        "d * share",
    ),
    _entropy(
        "sum_averaged",
        "the gradient is that of the mean for every reduction",
        "gradient_exact",
        "* share * dy\n",
        "/ jnp.maximum((labels != IGNORED).sum(), 1) * dy\n",
    ),
    _entropy(
        "confident_only",
        "wrong only on confident logits",
        "stability",
        "p = jax.nn.softmax(x @ weight.T, -1)",
        "p = jnp.minimum(jax.nn.softmax(x @ weight.T, -1), 1 - 1e-5)",
    ),
    _entropy(
        "single_share",
        "the mean's factor is kept in float32",
        "gradient_float64",
        "(x, weight, labels, share)\n\n",
        "(x, weight, labels, share.astype(jnp.float32).astype(x.dtype))\n\n",
    ),
    _embedded(
        "repeated_rows",
        "a row that is read twice gets one gradient",
        "gradient_exact",
        ".at[kept[1]].add(",
        ".at[kept[1]].set(",
    ),
    _embedded(
        "scale_of_first",
        "a scalar's gradient is that of the first token",
        "gradient_exact",
        "(dy * kept[0][kept[1]]).sum()",
        "(dy * kept[0][kept[1]])[:1].sum()",
    ),
    _ordered(
        "not_inverted",
        "the order is used in place of its inverse",
        "gradient_exact",
        "inverse = jnp.argsort(order, -1)",
        "inverse = order",
    ),
    _ordered(
        "unsorted_weight",
        "a weight's gradient uses the unsorted numbers",
        "gradient_exact",
        "(dy * jnp.take_along_axis(x, order, -1)).sum(0)",
        "(dy * x).sum(0)",
    ),
    _ordered(
        "other_order",
        "an output of integers is wrong",
        "outputs",
        "return jnp.take_along_axis(x, order, -1) * weight, order",
        "return jnp.take_along_axis(x, order, -1) * weight, jnp.argsort(order, -1)",
    ),
    _solved(
        "not_transposed",
        "the adjoint system is not transposed",
        "gradient_exact",
        "dtype=A.dtype)).T, dx)",
        "dtype=A.dtype)), dx)",
    ),
    _solved("sign", "a wrong sign", "gradient_exact", "return -db @ x.T, db", "return db @ x.T, db"),
    _layered(
        "wrong_segment",
        "the recomputation starts one layer late",
        "gradient_exact",
        "weights[number - number % keep_every : number]",
        "weights[number - number % keep_every + (number % keep_every > 1) : number]",
    ),
    _layered(
        "one_interval",
        "wrong for one value of an option",
        "options",
        "grads[number] = (x.T @ dz,",
        "grads[number] = (x.T @ dz * (1 + 1e-8 * (keep_every == 3)),",
    ),
    _layered(
        "first_layer",
        "one leaf of many is 1e-10 too large",
        "gradient_exact",
        "grads[number] = (x.T @ dz,",
        "grads[number] = (x.T @ dz * (1 + 1e-10 * (number == 0)),",
    ),
    _layered(
        "not_transposed", "a matrix is not transposed", "gradient_exact", "dy = dz @ matrix.T", "dy = dz @ matrix"
    ),
)

MUTANTS = (*NORMS, *SEQUENCES, *TABLES)
