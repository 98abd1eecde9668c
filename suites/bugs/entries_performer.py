"""Bugs of `linear_attention`: mistakes that are easy to make in a chunked backward pass with a normaliser."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.entries import entry_bugs

_bug = functools.partial(entry_bugs, "performer:linear_attention", "linear_attention")
_favor = functools.partial(entry_bugs, "performer:linear_attention", "favor")
_carried = functools.partial(entry_bugs, "performer:linear_attention", "carried")
_grouped = functools.partial(entry_bugs, "performer:linear_attention", "grouped")
_layer = functools.partial(entry_bugs, "performer:linear_attention_module", "carried_layer_of")

MUTANTS = (
    *_bug(
        "normaliser_dropped",
        "the sum of weights is treated as a constant",
        "gradient_exact",
        torch=("of_D + torch.where(D.abs() > FLOOR, down,", "of_D + torch.where(D.abs() > FLOOR, 0 * down,"),
        jax=("-(g * wide(y)).sum(-1, keepdims=True)", "0 * (g * wide(y)).sum(-1, keepdims=True)"),
    ),
    *_bug(
        "normaliser_unscaled",
        "the cotangent of the sum of weights is not divided by it",
        "gradient_exact",
        torch=("down = -(g * wide(y))", "down = -(g * _safe(D) * wide(y))"),
        jax=("-(g * wide(y))", "-(g * _safe(D) * wide(y))"),
    ),
    *_bug(
        "sums_not_run_again",
        "every chunk's backward pass starts from a zero state",
        "gradient_exact",
        torch=("state = state + summed(*_held(given, cut(span), k[span], v[span], projection))\n", "pass\n"),
        jax=("return state + summed(key, value), state", "return state, state"),
    ),
    *_bug(
        "sums_one_late",
        "a chunk's backward pass starts from the state after the chunk",
        "gradient_exact",
        torch=(
            "        befores.append(state)\n",
            "",
            "v[span], projection))\n    rule",
            "v[span], projection))\n        befores.append(state)\n    rule",
        ),
        jax=("return state + summed(key, value), state", "return (state + summed(key, value),) * 2"),
    ),
    *_bug(
        "carry_dropped",
        "chunks do not get the cotangent of the state from later chunks",
        "gradient_exact",
        torch=("        after = before\n", ""),
        jax=("return (before, jax.tree.map", "return (after, jax.tree.map"),
    ),
    *_bug(
        "carry_replaced",
        "only the next chunk's part of the state's cotangent arrives",
        "gradient_exact",
        torch=("before = after + summed(prepared[0], here)", "before = summed(prepared[0], here)"),
        jax=("before = after + sums(", "before = sums("),
    ),
    *_bug(
        "zero_over_zero",
        "a query whose weights are all 0 gets NaN",
        "outputs",
        torch=("return torch.where(D.abs() > FLOOR, D, torch.ones_like(D))", "return D"),
        jax=("return jnp.where(jnp.abs(D) > FLOOR, D, jnp.ones_like(D))", "return D"),
    ),
    *_bug(
        "features_as_values",
        "the derivative of the feature map of keys is forgotten",
        "gradient_exact",
        torch=(
            "_prepared(given, there, q, k, v, None), *own)",
            "_prepared(given, there, q, k.detach(), v, None), *own)",
        ),
        jax=(
            "made = (mapped(jnp, given.feature_map, x, projection) for x in (q, k))",
            "made = (mapped(jnp, given.feature_map, x, projection) for x in (q, jax.lax.stop_gradient(k)))",
        ),
    ),
    *_bug(
        "kept_as_constant",
        "residuals of the forward pass are constants in a further derivative",
        "second_order_exact",
        torch=("else output[:2]))", "else [x.detach() for x in output[:2]]))"),
        jax=("projection, *kept)\n", "projection, *jax.lax.stop_gradient(kept))\n"),
    ),
    *_bug(
        "cotangent_narrow",
        "cotangents pass from chunk to chunk in half precision",
        "gradient_float64",
        torch=("        after = before\n", "        after = before.half().to(before.dtype)\n"),
        jax=("return (before, jax.tree.map", "return (before.astype(jnp.float16).astype(before.dtype), jax.tree.map"),
    ),
    *_favor(
        "projection_of_last_chunk",
        "the projection gets the gradient of only one chunk",
        "gradient_exact",
        torch=("total = extra if total is None or extra is None else total + extra", "total = extra"),
        jax=("jax.tree.map(jnp.add, total, part)", "jax.tree.map(lambda old, new: new + 0 * old, total, part)"),
    ),
    *_favor(
        "projection_constant",
        "the projection gets no gradient",
        "gradient_exact",
        torch=("return *joined, total,", "return *joined, None if total is None else 0 * total,"),
        jax=("return *of_own, None, total,", "return *of_own, None, jax.tree.map(jnp.zeros_like, total),"),
    ),
    *_carried(
        "last_state_has_no_cotangent",
        "the cotangent of the returned state is dropped",
        "cotangents",
        torch=(
            "(g, of_D, after) = operands, outputs, cotangents\n",
            "(g, of_D, after) = operands, outputs, cotangents\n    after = 0 * after\n",
        ),
        jax=("carry = _spread(given, of_after),", "carry = _spread(given, 0 * of_after),"),
    ),
    *_carried(
        "first_state_has_no_gradient",
        "the initial state gets no gradient",
        "gradient_exact",
        torch=("None if start is None else _over_heads(", "None if start is None else 0 * _over_heads("),
        jax=("None if start is None else _over_heads(", "None if start is None else 0 * _over_heads("),
    ),
    *_carried(
        "first_normaliser_forgotten",
        "earlier tokens are in the sums of values, but not in the sums of weights",
        "outputs",
        torch=("(S.mT, *(x[..., None, :] for x in z))", "(S.mT, *(0 * x[..., None, :] for x in z))"),
        jax=("*(x[..., None, :] for x in z))]", "*(0 * x[..., None, :] for x in z))]"),
    ),
    *_carried(
        "first_normaliser_constant",
        "the sum of weights of earlier tokens gets no gradient",
        "gradient_exact",
        torch=("(S.mT, *(x[..., None, :] for x in z))", "(S.mT, *((x.detach() + 0 * x)[..., None, :] for x in z))"),
        jax=("*(x[..., None, :] for x in z))]", "*(jax.lax.stop_gradient(x)[..., None, :] for x in z))]"),
    ),
    *_carried(
        "backward_from_zero",
        "the backward pass adds up again from a zero state",
        "gradient_exact",
        torch=(
            "    state, befores = _zeros(given, k, v, projection) if start is None else start, []\n",
            "    state, befores = _zeros(given, k, v, projection), []\n",
        ),
        jax=(
            "    first = _zeros(given, k, v, projection) if start is None else start\n",
            "    first = _zeros(given, k, v, projection)\n",
        ),
    ),
    *_carried(
        "filling_counted",
        "the tokens that fill up the last chunk are in the sum of weights",
        "outputs",
        jax=("v if there is None else v * (jnp.arange(len(v)) < there)[:, None]", "v"),
    ),
    *_grouped(
        "padding_in_the_sums",
        "padding is in the sums of weights, and not in those of values",
        "gradient_exact",
        torch=(
            "ones = torch.nn.functional.pad(v, (0, 1), value=1.0) if given.normalise else v\n",
            "v, there = _present(v, there), None\n"
            "    ones = torch.nn.functional.pad(v, (0, 1), value=1.0) if given.normalise else v\n",
        ),
        jax=(
            "return *made, _present(v, masked)",
            "return *made, v * _present(jnp.ones_like(v), masked).at[:, -1].set(1)",
        ),
    ),
    *_grouped(
        "padding_takes_gradients",
        "the cotangent of padding's output reaches the tokens before it",
        "gradient_exact",
        torch=("        here = _present(here, there)\n", ""),
        jax=("            g = _present(g, there if given.group == 1 else there[:, None])\n", "            pass\n"),
    ),
    *_grouped(
        "first_head_alone",
        "keys get the gradient of the first of the heads that share them",
        "gradient_exact",
        torch=("else x.sum(axis, keepdim=True)", "else x.narrow(axis, 0, 1)"),
        jax=("else x.sum(1)", "else x[:, 0]"),
    ),
    *_grouped(
        "state_counted_for_each_head",
        "the cotangent of the returned state arrives once for each head that shares it",
        "gradient_exact",
        torch=("torch.cat([after, after.new_zeros(more)], -3)", "torch.cat([after] * given.group, -3)"),
        jax=(
            "return jnp.pad(after[:, None], ((0, 0), (0, given.group - 1), (0, 0), (0, 0)))",
            "return jnp.repeat(after[:, None], given.group, 1)",
        ),
    ),
    *_layer(
        "state_not_read",
        "the module starts from zeros, whatever state it is given",
        "outputs",
        torch=("None, :], state=state, return_state=True", "None, :], state=None, return_state=True"),
        jax=("None, :], state=state, return_state=True", "None, :], state=None, return_state=True"),
    ),
    *_layer(
        "state_of_before",
        "the module returns the state that it was given",
        "outputs",
        torch=("return (made, after)", "return (made, state)"),
        jax=("return (made, after)", "return (made, state)"),
    ),
)
