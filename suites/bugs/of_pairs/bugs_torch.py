"""Bugs of the pairs of PyTorch: name, mechanism, the claim that must refute it, and the edit."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.of_pairs.mutant import PairMutant

_AGAIN = "dy = torch.as_strided(dy, dy.shape, torch.empty(dy.shape).stride())"
"""Reads a tensor as if it were contiguous, like a kernel that gets a pointer and no strides."""


def _bug(module: str, pair: str, name: str, story: str, kill: str, *edits: str) -> PairMutant:
    two = tuple(zip(edits[::2], edits[1::2], strict=True))
    return PairMutant(f"torch.{pair}.{name}", story, f"{module}:{pair}", kill, two)


_norms = functools.partial(_bug, "torch_norms")
_gated, _summed, _normed = (functools.partial(_norms, pair) for pair in ("gated", "summed", "normed"))
_added, _grouped = functools.partial(_norms, "added"), functools.partial(_norms, "grouped")
_masked, _ragged = functools.partial(_norms, "masked"), functools.partial(_norms, "ragged")
_SAVED = "x, gate = ctx.saved_tensors"

NORMS = (
    _gated(
        "first_of_upstream",
        "everything is multiplied by grad_output[0]",
        "gradient_exact",
        _SAVED,
        f"{_SAVED}\n        dy = dy.reshape(-1)[:1].sum() * torch.ones_like(dy)",
    ),
    _gated(
        "upstream_dropped",
        "the upstream gradient is dropped in one leaf",
        "gradient_exact",
        "dx = dy * gate * s",
        "dx = gate * s",
    ),
    _gated("gate_none", "a weight's gradient is None", "tree", "return dx, dgate", "return dx, None"),
    _gated("factor_lost", "a factor is lost", "gradient_exact", "s * (1 + x * (1 - s))\n", "s * (1 + x)\n"),
    _gated(
        "large_only",
        "wrong by a millionth where inputs are large",
        "stability",
        "dgate = dy * x * s",
        "dgate = dy * x * s * torch.where(x.abs() > 30, 1 + 1e-6, 1.0).to(x.dtype)",
    ),
    _gated(
        "eleventh_digit",
        "a factor of 1 + 1e-11 in one leaf",
        "gradient_float64",
        "dgate = dy * x * s",
        "dgate = dy * x * s * (1 + 1e-11)",
    ),
    _gated(
        "fifth_digit",
        "a factor of 1 + 3e-5 in one leaf, only in float32",
        "gradient_float32",
        "dgate = dy * x * s",
        "dgate = dy * x * s * (1 + 3e-5 * (x.dtype == torch.float32))",
    ),
    _gated(
        "narrow_recomputation",
        "the recomputation is in bfloat16",
        "gradient_float32",
        "s = torch.sigmoid(x)\n",
        "s = torch.sigmoid(x.bfloat16()).to(x.dtype)\n",
    ),
    _gated(
        "single_recomputation",
        "the recomputation is in float32",
        "gradient_float64",
        "s = torch.sigmoid(x)\n",
        "s = torch.sigmoid(x.float()).to(x.dtype)\n",
    ),
    _gated(
        "percent_in_bfloat16",
        "one leaf is 4% too large, only in bfloat16",
        "gradient_bfloat16",
        "dgate = dy * x * s",
        "dgate = dy * x * s * (1.04 if x.dtype == torch.bfloat16 else 1)",
    ),
    _gated("dy_misread", "a strided dy is read as if contiguous", "layouts", _SAVED, f"{_SAVED}\n        {_AGAIN}"),
    _gated(
        "x_misread",
        "a strided x is read as if contiguous",
        "layouts",
        _SAVED,
        f"{_SAVED}\n        x = torch.as_strided(x, x.shape, torch.empty(x.shape).stride())",
    ),
    _gated(
        "only_compiled",
        "wrong only under torch.compile",
        "compile",
        "dgate = dy * x * s",
        "dgate = dy * x * s * (2 if torch.compiler.is_compiling() else 1)",
    ),
    _gated(
        "only_vmapped",
        "wrong only under torch.func.vmap",
        "vmap",
        "dgate = dy * x * s",
        "dgate = dy * x * s\n"
        "        stack = torch._C._functorch.get_interpreter_stack() or []\n"
        "        vmapped = torch._C._functorch.TransformType.Vmap in [level.key() for level in stack]\n"
        "        dgate = dgate * (2 if vmapped else 1)",
    ),
    _gated(
        "vmapped_value",
        "under vmap, the forward pass uses the first lane's gate for all lanes",
        "vmap",
        "    generate_vmap_rule = True\n",
        "    @staticmethod\n    def vmap(info: Any, in_dims: Any, x: Any, gate: Any) -> Any:\n"
        "        return _SiluGate.apply(x, gate[:1].expand_as(gate)), 0\n",
    ),
    _gated(
        "second_stopped",
        "the backward pass is right and cut off from further derivatives",
        "second_order_exact",
        "s = torch.sigmoid(x)\n",
        "s = torch.sigmoid(x.detach())\n",
    ),
    _gated(
        "nan_in_value",
        "a NaN is swallowed by the forward pass",
        "not_finite",
        "return x * torch.sigmoid(x) * gate",
        "return torch.nan_to_num(x * torch.sigmoid(x) * gate)",
    ),
    _gated(
        "nan_in_gradient",
        "a NaN is swallowed by the backward pass",
        "not_finite",
        "return dx, dgate",
        "return torch.nan_to_num(dx), torch.nan_to_num(dgate)",
    ),
    _gated(
        "nan_dropped",
        "rows with a NaN are left out of the output",
        "not_finite",
        "return x * torch.sigmoid(x) * gate",
        "y = x * torch.sigmoid(x) * gate\n        return y[~y.isnan().any(-1)] if y.isnan().any() else y",
    ),
    _summed(
        "one_axis",
        "wrong by half for one value of an option",
        "gradient_exact",
        "dy.unsqueeze(ctx.dim), None",
        "dy.unsqueeze(ctx.dim) * (1 if ctx.dim else 0.5), None",
    ),
    _summed(
        "no_maximum",
        "overflows on confident logits",
        "stability",
        "top = x.amax(dim, keepdim=True)",
        "top = 0 * x.amax(dim, keepdim=True)",
    ),
    _summed(
        "clipped",
        "small probabilities are clipped",
        "stability",
        "return (x - y).exp() * dy",
        "return (x - y).clamp_min(-18).exp() * dy",
    ),
    _summed(
        "state_on_class",
        "the state is kept on the function between calls",
        "autograd",
        "ctx.save_for_backward(x, y)",
        "_LogSumExp.kept = (x, y)",
        "x, y = ctx.saved_tensors\n        return (x",
        "x, y = _LogSumExp.kept\n        return (x",
    ),
    _summed(
        "unsaved",
        "the input is kept without save_for_backward, and may be overwritten",
        "autograd",
        "ctx.save_for_backward(x, y)",
        "ctx.x, ctx.y = x.detach(), y",
        "x, y = ctx.saved_tensors\n        return (x",
        "x, y = ctx.x, ctx.y\n        return (x",
    ),
    _summed(
        "freed_never",
        "a second backward pass is not refused, and doubles the gradient",
        "autograd",
        "ctx.save_for_backward(x, y)",
        "ctx.save_for_backward(x)\n        ctx.y, ctx.calls = y.detach(), 0",
        "x, y = ctx.saved_tensors\n        return (x",
        "x, y = *ctx.saved_tensors, ctx.y\n        ctx.calls += 1\n        return ctx.calls * (x",
    ),
    _normed(
        "eps_fixed",
        "wrong for one value of an option",
        "gradient_exact",
        "r = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)",
        "r = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)",
    ),
    _normed(
        "last_token",
        "a weight's gradient is that of the last token",
        "gradient_exact",
        "return dx, (dy * x * r).sum(0)",
        "return dx, (dy * x * r)[-1]",
    ),
    _normed(
        "second_factor",
        "a wrong factor only in the second derivative",
        "second_order_exact",
        "ug - 3 * r**2 * p * ux",
        "ug - 2 * r**2 * p * ux",
    ),
    _normed(
        "second_term",
        "a term is lost only in the derivative for the upstream gradient",
        "second_order",
        "dg * weight + v * x * r, None",
        "dg * weight, None",
    ),
    _normed(
        "second_digits",
        "a relative error of 1e-9 only in the second derivative",
        "second_order",
        "dg = u * r - ux",
        "dg = (1 + 1e-9) * u * r - ux",
    ),
    _normed(
        "mean_dropped",
        "a correction term is lost",
        "gradient_exact",
        "dx = r * g - x * r**3 * (g * x).mean(-1, keepdim=True)",
        "dx = r * g",
    ),
    _added(
        "one_output",
        "the cotangent of one output is dropped",
        "cotangents",
        ".mean(-1, keepdim=True)) + dh",
        ".mean(-1, keepdim=True))",
    ),
    _added(
        "crossed_outputs",
        "the cotangent of one output leaks into a leaf",
        "cotangents",
        "dbias = dy.sum(0)",
        "dbias = (dy + 1e-7 * dh).sum(0)",
    ),
    _added(
        "alone_none",
        "a weight gets no gradient if only it requires one",
        "each_leaf_alone",
        "return dx, dx, dweight, dbias",
        "return dx, dx, dweight if ctx.needs_input_grad[0] else None, dbias",
    ),
    _added(
        "alone_wrong",
        "a leaf gets half of its gradient if only it requires one",
        "each_leaf_alone",
        "return dx, dx, dweight, dbias",
        "return dx, dx * (1 if ctx.needs_input_grad[0] else 0.5), dweight, dbias",
    ),
    _added(
        "random_moved",
        "a call draws from the global generator",
        "pure",
        "        h = x + residual\n        centred = h - h.mean(-1, keepdim=True)\n        r = torch.rsqrt((centred",
        "        torch.rand(1)\n        h = x + residual\n        centred = h - h.mean(-1, keepdim=True)\n"
        "        r = torch.rsqrt((centred",
    ),
    _added("prints", "a call prints", "pure", "dbias = dy.sum(0)", "dbias = dy.sum(0)\n        print(dbias.shape)"),
    _added(
        "input_changed",
        "the sum is written into an input",
        "pure",
        "        h = x + residual\n        centred = h - h.mean(-1, keepdim=True)\n        r = torch.rsqrt((centred",
        "        h = residual.add_(x).clone()\n        centred = h - h.mean(-1, keepdim=True)\n"
        "        r = torch.rsqrt((centred",
    ),
    _added(
        "narrow_kept",
        "the residuals are kept in bfloat16",
        "gradient_float32",
        "ctx.save_for_backward(h, r, weight)",
        "ctx.save_for_backward(h.bfloat16().to(h.dtype), r, weight)",
    ),
    _added(
        "mean_lost",
        "the mean of the gradient is not subtracted",
        "gradient_exact",
        "dx = r * (g - g.mean(-1, keepdim=True) - hat",
        "dx = r * (g - hat",
    ),
    _added(
        "noise",
        "the last digits are random",
        "deterministic",
        "dbias = dy.sum(0)",
        "dbias = dy.sum(0) * (1 + 1e-6 * torch.rand(()).to(dy.dtype))",
    ),
    _grouped(
        "group_forgotten",
        "the backward pass takes the mean over all groups",
        "gradient_exact",
        "(g * hat).mean(-1, keepdim=True))).flatten(-2)",
        "(g * hat).mean((-2, -1), keepdim=True))).flatten(-2)",
    ),
    _grouped(
        "gate_forgotten",
        "wrong for one value of a switch",
        "gradient_exact",
        "return dh if ctx.first else dh * silu",
        "return dh",
    ),
    _grouped(
        "two_options",
        "wrong for one combination of two options",
        "gradient_exact",
        "return dh if",
        "dh = dh * (1 + 1e-7 * (ctx.groups == 4 and not ctx.first))\n        return dh if",
    ),
    _masked(
        "empty_row",
        "a row that keeps nothing is uniform",
        "gradient_exact",
        "y = (masked - masked.amax(-1, keepdim=True)).exp() * keep",
        "y = (masked - masked.amax(-1, keepdim=True)).exp()",
    ),
    _masked(
        "clipped",
        "probabilities are clipped before they are kept",
        "gradient_float64",
        "ctx.save_for_backward(y)",
        "ctx.save_for_backward(y.clamp_max(1 - 1e-7))",
    ),
    _ragged(
        "shifted",
        "the slots of short lengths are shifted by one",
        "gradient_exact",
        "* keep[..., None]\n",
        "* keep.roll(1, 1)[..., None]\n",
    ),
    _ragged(
        "full_length",
        "the mean divides by the padded length",
        "gradient_exact",
        "dx = (dy / lengths[:, None])",
        "dx = (dy / keep.shape[1])",
    ),
)

_sequences = functools.partial(_bug, "torch_sequences")
_attending, _recurring = functools.partial(_sequences, "attending"), functools.partial(_sequences, "recurring")
_cumulative, _convolved = functools.partial(_sequences, "cumulative"), functools.partial(_sequences, "convolved")
_dropped = functools.partial(_sequences, "dropped")

SEQUENCES = (
    _attending(
        "mask_lost", "the causal mask is lost in the recomputation", "gradient_exact", "if ctx.causal:", "if False:"
    ),
    _attending(
        "scale_lost",
        "a factor is lost in the recomputation",
        "gradient_exact",
        "- delta[start:stop]) * scale",
        "- delta[start:stop])",
    ),
    _attending(
        "last_block",
        "the last block's dk replaces the sum",
        "gradient_exact",
        "dk += ds.T @ q[start:stop]",
        "dk = ds.T @ q[start:stop]",
    ),
    _attending(
        "one_block_size",
        "wrong for one block size",
        "options",
        "dv += p.T @ do[start:stop]",
        "dv += p.T @ do[start:stop] * (1 + 1e-6 * (ctx.block == 16))",
    ),
    _attending(
        "narrow_kept",
        "the sums are kept in float32",
        "gradient_float64",
        "ctx.save_for_backward(q, k, v, out, lse)",
        "ctx.save_for_backward(q, k, v, out, lse.float().to(lse.dtype))",
    ),
    _attending(
        "clamped",
        "scores are clamped in the recomputation",
        "stability",
        "p = (scores - lse[start:stop]).exp()",
        "p = (scores.clamp(-25, 25) - lse[start:stop]).exp()",
    ),
    _attending(
        "ragged_block",
        "the last, shorter block is left out of dv",
        "gradient_exact",
        "dv += p.T @ do[start:stop]",
        "dv += p.T @ do[start:stop] if len(p) == ctx.block or not start else 0",
    ),
    _recurring(
        "last_dropped",
        "the cotangent of the last state is dropped",
        "cotangents",
        "torch.empty_like(b), dlast",
        "torch.empty_like(b), torch.zeros_like(dlast)",
    ),
    _recurring(
        "boundary",
        "the carry is not decayed at the boundary of a chunk",
        "gradient_exact",
        "carry = carry * a[t]",
        "carry = carry * (a[t] if t % ctx.chunk else 1)",
    ),
    _recurring(
        "one_chunk",
        "wrong for one chunk size",
        "options",
        "db[t] = carry",
        "db[t] = carry * (1 + 1e-8 * (ctx.chunk == 3))",
    ),
    _recurring(
        "short_chunk",
        "the states of the last, shorter chunk are shifted",
        "gradient_exact",
        "da[t] = carry * before[t - first]",
        "da[t] = carry * before[(t - first) if len(before) == ctx.chunk or t == first else t - first - 1]",
    ),
    _cumulative(
        "direction",
        "the backward pass forgets the direction",
        "gradient_exact",
        "summed = dy.cumsum(0) if ctx.reverse else dy.flip(0).cumsum(0).flip(0)",
        "summed = dy.flip(0).cumsum(0).flip(0)",
    ),
    _cumulative(
        "empty_mean",
        "NaN if a dim is empty",
        "gradient_float64",
        "-(summed * x * w).sum(0), None",
        "-(summed * x * w).mean(0) * len(x), None",
    ),
    _cumulative("sign", "a sign", "gradient_exact", "-(summed * x * w).sum(0), None", "(summed * x * w).sum(0), None"),
    _convolved(
        "short_sequence",
        "sequences shorter than the kernel lose taps",
        "gradient_exact",
        "torch.zeros_like(weight)\n        for lag in range(min(len(weight), len(x))):",
        "torch.zeros_like(weight)\n        for lag in range(len(weight) if len(x) >= len(weight) else 1):",
    ),
    _convolved(
        "constant_upstream",
        "dy is treated as the same everywhere",
        "gradient_exact",
        "return dx, dweight, dy.sum(0)",
        "return dx, dweight, dy[0] * len(dy)",
    ),
    _convolved(
        "dy_misread",
        "a strided dy is read as if contiguous",
        "layouts",
        "        x, weight = ctx.saved_tensors\n        dx, dweight =",
        f"        x, weight = ctx.saved_tensors\n        {_AGAIN}\n        dx, dweight =",
    ),
    _dropped(
        "mask_again",
        "the mask is drawn again in the recomputation",
        "gradient_float64",
        "torch.set_rng_state(ctx.state)",
        "ctx.state",
    ),
    _dropped(
        "fixed_seed",
        "the mask is the same in every call",
        "outputs",
        "ctx.state = torch.get_rng_state()",
        "torch.manual_seed(0)\n        ctx.state = torch.get_rng_state()",
    ),
    _dropped(
        "state_left",
        "the backward pass leaves the generator reset",
        "pure",
        "with torch.random.fork_rng(devices=[]):",
        "if True:",
    ),
    _dropped(
        "scale_lost",
        "the factor of the kept share is lost in one leaf",
        "gradient_exact",
        "return dy @ weight * keep / KEPT,",
        "return dy @ weight * keep,",
    ),
)

_tables = functools.partial(_bug, "torch_tables")
_entropy, _rowwise = functools.partial(_tables, "entropy"), functools.partial(_tables, "rowwise")
_embedded, _routed, _solved = (functools.partial(_tables, pair) for pair in ("embedded", "routed", "solved"))

TABLES = (
    _entropy(
        "upstream_dropped",
        "the upstream gradient is dropped",
        "gradient_exact",
        "return dx * dy, dweight * dy,",
        "return dx, dweight,",
    ),
    _entropy(
        "silent_twice",
        "the gradient is a constant in further derivatives, without an error",
        "autograd",
        "    @torch.autograd.function.once_differentiable\n    def backward(ctx: Any, dy: Any) -> Any:\n"
        "        dx, dweight = ctx",
        "    def backward(ctx: Any, dy: Any) -> Any:\n        dx, dweight = ctx",
    ),
    _entropy("weight_none", "a weight's gradient is None", "tree", "dweight * dy,", "None,"),
    _entropy(
        "padding_counted",
        "ignored labels count in the mean",
        "gradient_exact",
        "1 / kept.sum().clamp_min(1)",
        "1 / kept.numel() * torch.ones((), dtype=torch.int64)",
    ),
    _entropy(
        "padding_learns",
        "ignored labels have a gradient",
        "gradient_exact",
        "d = d * here[:, None] * share",
        "d = d * share",
    ),
    _entropy(
        "sum_averaged",
        "the gradient is that of the mean for every reduction",
        "gradient_exact",
        "d = d * here[:, None] * share",
        "d = d * here[:, None] / kept.sum().clamp_min(1)",
    ),
    _entropy(
        "last_chunk",
        "the last chunk's dweight replaces the sum",
        "gradient_exact",
        "dweight += d.T @ x[rows]",
        "dweight = d.T @ x[rows]",
    ),
    _entropy(
        "single_share",
        "the mean's factor is a float32",
        "gradient_float64",
        "1 / kept.sum().clamp_min(1).to(x.dtype)",
        "1 / kept.sum().clamp_min(1)",
    ),
    _rowwise(
        "first_row",
        "every row is multiplied by grad_output[0]",
        "gradient_exact",
        "return d * dy[:, None], None",
        "return d * dy[:1, None], None",
    ),
    _rowwise(
        "overwritten",
        "a saved tensor is overwritten in the backward pass",
        "autograd",
        "d = p.scatter_add(1, at",
        "d = p.data.scatter_add_(1, at",
    ),
    _rowwise(
        "confident_only",
        "wrong only on confident logits",
        "stability",
        "ctx.save_for_backward(p, labels)",
        "ctx.save_for_backward(p.clamp(max=1 - 1e-5), labels)",
    ),
    _embedded(
        "repeated_rows",
        "a row that is read twice gets one gradient",
        "gradient_exact",
        "torch.zeros_like(table).index_add(0, ids.long(), moved)",
        "torch.zeros_like(table).index_copy(0, ids.long(), moved)",
    ),
    _embedded(
        "padding_learns",
        "the option is forgotten in the backward pass",
        "gradient_exact",
        "if ctx.padding is not None:",
        "if False:",
    ),
    _embedded(
        "scale_none", "a scalar's gradient is None", "tree", "(dy * table[ids.long()]).sum(), None", "None, None"
    ),
    _routed(
        "jacobian",
        "the softmax's normalisation is not differentiated",
        "gradient_exact",
        "dtop = weights * (dweights - inner)",
        "dtop = weights * dweights",
    ),
    _routed(
        "one_k",
        "wrong for one number of experts",
        "gradient_exact",
        "dtop = weights *",
        "dtop = (1 + 1e-9 * (weights.shape[-1] == 3)) * weights *",
    ),
    _routed(
        "other_places",
        "an output of integers is wrong",
        "outputs",
        "return weights, places\n\n    @staticmethod",
        "return weights, places.sort(-1)[0]\n\n    @staticmethod",
    ),
    _solved(
        "not_transposed",
        "the adjoint system is not transposed",
        "gradient_exact",
        "dtype=A.dtype)).T, dx)",
        "dtype=A.dtype)), dx)",
    ),
    _solved("sign", "a wrong sign", "gradient_exact", "return -db @ x.T, db", "return db @ x.T, db"),
)

MUTANTS = (*NORMS, *SEQUENCES, *TABLES)
