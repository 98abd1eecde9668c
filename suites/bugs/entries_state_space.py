"""Bugs of `selective_scan`: mistakes that are easy to make in a chunked recurrence with resets and step sizes."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.entries import entry_bugs

_bug = functools.partial(entry_bugs, "state_space:selective_scan", "scan_diagonal")
_scalar = functools.partial(entry_bugs, "state_space:selective_scan", "scan_scalar")
_steps = functools.partial(entry_bugs, "state_space:selective_scan", "scan_steps")

MUTANTS = (
    *_bug(
        "late_states",
        "the cotangent of a decay reads the state after its token",
        "gradient_exact",
        torch=("torch.cat([start[None], h[:-1]])", "h"),
        jax=("jnp.concatenate([start[None], h[:-1]])", "h"),
    ),
    *_bug(
        "chunk_starts_from_zero",
        "the first token of a chunk has a zero state in the backward pass",
        "gradient_exact",
        torch=("torch.cat([start[None], h[:-1]])", "torch.cat([0 * start[None], h[:-1]])"),
        jax=("jnp.concatenate([start[None], h[:-1]])", "jnp.concatenate([0 * start[None], h[:-1]])"),
    ),
    *_bug(
        "carry_without_decay",
        "the next token's cotangent arrives without its decay",
        "gradient_exact",
        torch=("        carry = one * found[-1]\n", "        carry = found[-1]\n"),
        jax=("return xs[0] * mu, mu", "return mu, mu"),
    ),
    *_bug(
        "carry_dropped",
        "chunks do not get the cotangent of the state from later chunks",
        "gradient_exact",
        torch=("starts[i], here, carry)", "starts[i], here, 0 * carry)"),
        jax=(
            "mu, part, pulled = _pull_chunk(given, xs[0], shared, xs[1], xs[2], xs[3], mu)",
            "mu, part, pulled = _pull_chunk(given, xs[0], shared, xs[1], xs[2], xs[3], 0 * mu)",
        ),
    ),
    *_bug(
        "last_state_has_no_cotangent",
        "the cotangent of the returned state is dropped",
        "cotangents",
        torch=(
            "    g, carry, of_starts = cotangents\n",
            "    g, carry, of_starts = cotangents\n    carry = 0 * carry\n",
        ),
        jax=("    carry = cotangents[1]\n", "    carry = 0 * cotangents[1]\n"),
    ),
    *_bug(
        "first_state_has_no_gradient",
        "the initial state gets no gradient",
        "gradient_exact",
        torch=('found["state"] = carry.to(start.dtype)', 'found["state"] = 0 * carry.to(start.dtype)'),
        jax=("total, carry, None\n", "total, 0 * carry, None\n"),
    ),
    *_bug(
        "reset_not_undone",
        "the backward pass does not stop where a packed sequence begins",
        "gradient_exact",
        torch=("_pull_chunk(given, tokens, shared, begins,", "_pull_chunk(given, tokens, shared, None,"),
        jax=("_pull_chunk(given, xs[0], shared, xs[1], xs[2],", "_pull_chunk(given, xs[0], shared, xs[1], None,"),
    ),
    *_bug(
        "one_row_resets_all",
        "all rows of a batch use the sequence boundaries of the first row",
        "gradient_exact",
        torch=(
            "rows = segments.expand(x.shape[:2]).movedim(1, 0)",
            "rows = segments.expand(x.shape[:2])[:1].expand(x.shape[:2]).movedim(1, 0)",
        ),
        jax=(
            "rows = jnp.broadcast_to(segments, x.shape[:2]).T",
            "rows = jnp.broadcast_to(jnp.broadcast_to(segments, x.shape[:2])[:1], x.shape[:2]).T",
        ),
    ),
    *_bug(
        "prefix_reversed_late",
        "the parallel form of the reverse recurrence takes each token's own decay",
        "options",
        torch=("torch.cat([torch.zeros_like(decay[:1]), decay[1:].flip(0)])", "decay.flip(0)"),
        jax=("later = jnp.concatenate([decay[1:], jnp.zeros_like(decay[:1])])", "later = decay"),
    ),
    *_bug(
        "odd_prefix",
        "the parallel prefix of an odd number of tokens loses the last one's past",
        "options",
        torch=(
            "torch.cat([drive[:1], torch.addcmul(drive[2::2], decay[2::2], before[1])])",
            "torch.cat([drive[:1], torch.addcmul(drive[2::2], decay[2::2], torch.cat([before[1][:-1], "
            "0 * before[1][-1:]]))])",
        ),
    ),
    *_bug(
        "kept_as_constant",
        "kept states are constants in a further derivative",
        "second_order_exact",
        torch=("inputs[:-1], output[2])", "inputs[:-1], output[2].detach())"),
        jax=(
            "return (_joined(ys, y), after), (tokens, shared, starts,",
            "return (_joined(ys, y), after), (tokens, shared, jax.lax.stop_gradient(starts),",
        ),
    ),
    *_bug(
        "kept_cotangent_dropped",
        "a further derivative does not pass through the states that were kept",
        "second_order_exact",
        torch=("        carry = carry + of_starts[i]\n", ""),
    ),
    *_scalar(
        "decay_of_last_state",
        "a head's decay gets the cotangent of one of its states",
        "gradient_exact",
        torch=(
            "(products.sum(alone, keepdim=True) if alone else products, mus)",
            "(products[tuple(slice(-1, None) if a > 1 and a in alone else slice(None) for a in "
            "range(products.ndim))], mus)",
        ),
        jax=(
            "products.sum(alone, keepdims=True)",
            "products[tuple(slice(-1, None) if a > 1 and a in alone else slice(None) for a in range(products.ndim))]",
        ),
    ),
    *_scalar(
        "groups_in_turn",
        "heads use the groups in turn and not in blocks",
        "outputs",
        torch=("return array.repeat_interleave(times, -2)", "return torch.cat([array] * times, -2)"),
        jax=("return jnp.repeat(array, times, axis=-2)", "return jnp.concatenate([array] * times, -2)"),
    ),
    *_steps(
        "steps_of_last_chunk",
        "the shared decays get the gradient of only one chunk",
        "gradient_exact",
        torch=("total = part if total is None or part is None else total + part", "total = part"),
        jax=("jax.tree.map(jnp.add, total, part)", "jax.tree.map(lambda old, new: new + 0 * old, total, part)"),
    ),
    *_steps(
        "narrow_carry",
        "the cotangent of the state is passed between chunks in half precision",
        "gradient_float64",
        torch=("carry = carry + of_starts[i]\n", "carry = (carry + of_starts[i]).half().to(carry.dtype)\n"),
        jax=("return (mu, jax.tree.map", "return (mu.astype(jnp.float16).astype(mu.dtype), jax.tree.map"),
    ),
)
