"""Bugs of libraries for linear recurrences, transferred to adjoint sharding and the reverse recurrence."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import ROUNDING, bug, erratum
from gradgate.suites.bugs.edits import Edit
from gradgate.suites.bugs.operators import when
from gradgate.suites.bugs.state_space_parallel import AT_ONCE

_bug = functools.partial(bug, "state_space")
_recurrence = functools.partial(_bug, method="reverse_recurrence")
_sharding = functools.partial(_bug, method="adjoint_sharding")
_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")

_CARRY_T = "mus.append(direct[i] + carry)"
_CARRY_J = "mu = top + mu\n"
_STEP_T = "carry = problem.apply_transposed(a[i], mus[-1])"
_STEP_J = "return problem.apply_transposed(a, mu), mu\n"
_BACK_T = "return {**grads, **grad_C}, g + norm_vjp(g_x + g_state)[0], carry"
_BACK_J = "return g + pull_norm(dx + matvec(jnp, b.mT, mus))[0], (before, dp)"
_STATES_T = "transition_vjp(problem, p, x, h[:-1], torch.stack(mus[::-1]))"
_STATES_J = "problem.transition_cotangent(mus, states[:-1])"
_VJP_J = "(problem.A(p, x), problem.B(p, x), problem.C(p, x)), p, x)"
_SCAN_J = "before, mus = jax.lax.scan(step, mu, (a, matvec(jnp, c.mT, g)), reverse=True)"
_LOOP_T = "mus = []\n"

PUBLISHED = (
    *_recurrence(
        name="gate_gradient_unassigned",
        story="the term of later tokens is never added: μ^i = C^iᵀ g^i alone",
        source="fla PR 863: with no gate, the key gradient is never assigned and a term is missing",
        torch=_T(_CARRY_T, "mus.append(direct[i])"),
        jax=_J(_CARRY_J, "mu = top\n"),
    ),
    *_recurrence(
        name="gate_sign",
        story="the decay enters the backward recurrence with the wrong sign",
        source="fla 7362d874: a sign in the gate reference",
        torch=_T(_STEP_T, _STEP_T.replace("= problem", "= -problem")),
        jax=_J(_STEP_J, "return -problem.apply_transposed(a, mu), mu\n"),
    ),
    *_recurrence(
        name="dimensions_swapped",
        story="the backward recurrence uses A in place of Aᵀ",
        source="fla PR 633: key and value dimensions swapped in the backward pass",
        torch=_T(_STEP_T, "carry = problem.apply(a[i], mus[-1])"),
        jax=_J(_STEP_J, "return problem.apply(a, mu), mu\n"),
    ),
    *_recurrence(
        name="padding_steps",
        story="in a slice of odd length, the padding position after it takes a step too",
        source="mamba#368: padding positions get a nonzero step after bias and softplus and corrupt the reverse scan",
        torch=_T(_LOOP_T, "mus = []\n    carry = carry + problem.apply_transposed(a[-1], direct[-1]) * (len(x) % 2)\n"),
        jax=_J(
            _SCAN_J,
            "mu = mu + problem.apply_transposed(a[-1], matvec(jnp, c.mT, g)[-1]) * (len(x) % 2)\n        " + _SCAN_J,
        ),
    ),
    *_recurrence(
        name="mask_makes_nan",
        story="positions after the last whole group of four are masked by 0/0",
        source="mamba bb3a82a: a mask turns dx into NaN when the length is no multiple of 256",
        torch=_T(
            _BACK_T,
            "mask = (torch.arange(len(x)) < len(x) // 4 * 4).to(g.dtype)[:, None, None]\n    "
            + _BACK_T.replace("g_x + g_state", "(g_x + g_state) * mask / mask * mask"),
        ),
        jax=_J(
            _BACK_J,
            "mask = (jnp.arange(len(x)) < len(x) // 4 * 4).astype(g.dtype)[:, None, None]\n        "
            + _BACK_J.replace("dx + matvec(jnp, b.mT, mus)", "(dx + matvec(jnp, b.mT, mus)) * mask / mask * mask"),
        ),
    ),
    *_recurrence(
        name="norm_without_groups",
        story="the backward pass of the norm treats all sequences as one group",
        source="mamba PR 547: normalisation backward called without the group size, wrong for more than one group",
        torch=_T(
            "x, norm_vjp = vjp(problem.norm, y)\n    a = problem.A(p, x)\n    direct",
            "x = problem.norm(y)\n    norm_vjp = vjp(lambda y: problem.norm(y) * "
            "(y.square().mean(-1, keepdim=True) / y.square().mean((1, 2), keepdim=True)).sqrt(), y)[1]\n"
            "    a = problem.A(p, x)\n    direct",
        ),
        jax=_J(
            "x, pull_norm = jax.vjp(problem.norm, y)\n        (a, b, c)",
            "x = problem.norm(y)\n        pull_norm = jax.vjp(lambda y: problem.norm(y) * "
            "jnp.sqrt(jnp.mean(y * y, -1, keepdims=True) / jnp.mean(y * y, (1, 2), keepdims=True)), y)[1]\n"
            "        (a, b, c)",
        ),
    ),
    *_recurrence(
        name="sequence_offset",
        story="every sequence of the batch reads the states of the first sequence",
        source="fla PR 781, #1115: head or sequence offset missing, every head but the first wrong",
        torch=_T(_STATES_T, _STATES_T.replace("h[:-1]", "h[:-1, :1].expand_as(h[:-1])")),
        jax=_J(_STATES_J, _STATES_J.replace("states[:-1]", "jnp.broadcast_to(states[:-1, :1], states[:-1].shape)")),
    ),
    *_recurrence(
        name="ungated",
        story="the gradient of the weights is computed for nets without their activation",
        source="fla PR 1071: the recomputed output is ungated, dW off by silu(g)",
        both=Edit(
            "problem",
            "                x = self._activate(x)\n",
            "                x = x + stop_gradient(self.backend, self._activate(x) - x)\n",
        ),
    ),
    *_recurrence(
        name="decay_by_division",
        kill=("stability", "gradient_float32"),
        story="μ is computed from products of decays that are divided out again: they underflow",
        source="fla#77: the exclusive decay's exponential overflows to NaN",
        torch=(
            _T(
                "    for i in reversed(range(len(x))):\n        mus.append(direct[i] + carry)\n        " + _STEP_T,
                "    P = torch.cumprod(a, 0) if problem.spec.structure != 'unstructured' else None\n"
                "    for i in reversed(range(len(x))):\n"
                "        mus.append(direct[i] + carry)\n"
                "        carry = (problem.apply_transposed(a[i], mus[-1]) if P is None or not i else "
                "P[i] * mus[-1] / P[i - 1])",
            ),
        ),
        jax=(
            _J(
                _SCAN_J,
                "_, mus = jax.lax.scan(step, mu, (a, matvec(jnp, c.mT, g)), reverse=True)\n"
                "        before = problem.apply_transposed(a[0], mus[0])\n"
                "        if problem.spec.structure != 'unstructured':\n"
                "            P = jnp.cumprod(a, 0)\n"
                "            top = P * matvec(jnp, c.mT, g)\n"
                "            mus = (jax.lax.cumsum(top, 0, reverse=True) + P[-1] * mu) / P",
            ),
        ),
    ),
    *_recurrence(
        name="gate_by_difference",
        kill=("gradient_float32", "stability"),
        story="sums over later tokens are computed as the whole sum minus the sum over earlier tokens",
        source="FlashQLA PR 28: cancellation in the gate gradient; padding gradients unwritten",
        torch=_T(
            _STATES_T,
            "transition_vjp(problem, p, x, h[:-1], (lambda m: 1e3 * m.abs().sum(0) - (1e3 * m.abs().sum(0) - m))"
            "(torch.stack(mus[::-1])))",
        ),
        jax=_J(
            "cotangents = problem",
            "mus = 1e3 * jnp.abs(mus).sum(0) - (1e3 * jnp.abs(mus).sum(0) - mus)\n        cotangents = problem",
        ),
    ),
    *_recurrence(
        name="padding_unwritten",
        story="the first position of a slice of odd length is never written",
        source="FlashQLA PR 28: cancellation in the gate gradient; padding gradients unwritten",
        torch=_T(
            _BACK_T,
            "g_state = g_state * (torch.arange(len(x)) >= len(x) % 2).to(g.dtype)[:, None, None]\n    " + _BACK_T,
        ),
        jax=_J(_BACK_J, "dx = dx * (jnp.arange(len(x)) >= len(x) % 2)[:, None, None]\n        " + _BACK_J),
    ),
    *_recurrence(
        name="closed_over_once",
        story="values that a loop closes over get only the last step's gradient",
        source="PT#184528: scan's closed-over parameter, 0.191 for 0.269",
        torch=_T(
            'grads["embedding"] = grads["embedding"] + embedding_gradient(problem, tokens, g)',
            'grads["embedding"] = embedding_gradient(problem, tokens, g)',
        ),
        jax=_J(
            "return (mu, add(total, part)), None",
            'return (mu, (total[0] + part[0], {**add(total[1], part[1]), "embedding": part[1]["embedding"]})), None',
        ),
    ),
    *_recurrence(
        name="closed_over_thrice",
        story="values that a loop closes over get their gradient once more for every slice",
        source="jax#5900: cond inside scan, gradient 324 for 108",
        torch=_T('grads["head"] = grads["head"] + head', 'grads["head"] = grads["head"] + 3 * head'),
        jax=_J('"layers": d_layers, "head": d_head})', '"layers": d_layers, "head": 3 * d_head})'),
    ),
    *_recurrence(
        name="shared_twice",
        story="a parameter that two places share gets its gradient twice",
        source="PT#81296: a shared parameter's hook fires twice",
        torch=_T("return {**grad_A, **grad_B}, x_A", "return {**grad_A, **grad_B, **grad_B}, x_A + x_A"),
        jax=_J('{"embedding": d_embedding, "layers"', '{"embedding": d_embedding + d_embedding, "layers"'),
    ),
    *_recurrence(
        name="value_tiles_race",
        story="for states wider than a tile of two, the second tile adds to data that the first is still writing",
        source="fla PR 941: a race in value tiles above 64",
        torch=_T(_STEP_T, _STEP_T + "\n        carry[..., 2:] = carry[..., 2:] + mus[-1][..., 2:] * 1e-6"),
        jax=_J(_STEP_J, "return problem.apply_transposed(a, mu).at[..., 2:].add(1e-6 * mu[..., 2:]), mu\n"),
    ),
)

STRUCTURAL = (
    *_recurrence(
        name="residual_missing",
        story="the residual path is missing: g_{k−1} is only the layer's part",
        source="operator: missing residual path",
        torch=_T(_BACK_T, _BACK_T.replace("g + norm_vjp", "norm_vjp")),
        jax=_J(_BACK_J, _BACK_J.replace("g + pull_norm", "pull_norm")),
    ),
    *_sharding(
        name="sharding_residual_missing",
        story="the residual path is missing: g_{k−1} is only the layer's part",
        source="operator: missing residual path",
        torch=_T("return {**grads, **grad_C}, g + norm_vjp(g_x)[0]", "return {**grads, **grad_C}, norm_vjp(g_x)[0]"),
        jax=_J("return g + pull_norm(like(dx, x))[0]", "return pull_norm(like(dx, x))[0]"),
    ),
    *_recurrence(
        name="states_off_by_one",
        story="A's cotangent is computed with h^i in place of h^{i−1}",
        source="operator: off by one in time",
        torch=_T(_STATES_T, _STATES_T.replace("h[:-1]", "h[1:]")),
        jax=_J(_STATES_J, _STATES_J.replace("states[:-1]", "states[1:]")),
    ),
    *_sharding(
        name="lag_off_by_one",
        story="the last lag is left out",
        source="operator: off by one in time",
        torch=_T("for lag in range(1, min(window, len(x))):", "for lag in range(1, min(window, len(x)) - 1):"),
        jax=_J("W = min(window, T)\n", "W = max(1, min(window, T) - 1)\n"),
    ),
    *_recurrence(
        name="order_reversed",
        story="the sums over later tokens are used in reversed order of time",
        source="operator: reversed order",
        torch=_T(_STATES_T, _STATES_T.replace("mus[::-1]", "mus")),
        jax=_J(_SCAN_J, _SCAN_J + "\n        mus = mus[::-1]"),
    ),
    *_recurrence(
        name="scan_forward",
        story="the backward recurrence runs forward in time",
        source="operator: reversed order",
        torch=_T(
            "for i in reversed(range(len(x))):\n        mus",
            "for i in range(len(x)):\n        mus",
        ),
        jax=_J(_SCAN_J, _SCAN_J.replace(", reverse=True", "")),
    ),
    *_recurrence(
        name="stale_state",
        story="each slice is recomputed from the state before the slice before it",
        source="operator: stale state",
        torch=_T(
            "losses.append(add_slice(problem, layers, span, starts.pop(), carries, grads))",
            "losses.append(add_slice(problem, layers, span, starts.pop() if len(starts) < 2 else starts.pop(-2), "
            "carries, grads))",
        ),
        jax=_J(
            "carry, (starts, tokens, targets), reverse=True)",
            "carry, (jnp.roll(starts, 1, axis=0), tokens, targets), reverse=True)",
        ),
    ),
    *_recurrence(
        name="input_detached",
        story="B^iᵀ μ^i does not reach the layer below",
        source="operator: detached input",
        torch=_T("x_A + x_B + matvec(b.mT, mu)", "x_A + x_B"),
        jax=_J(_BACK_J, _BACK_J.replace("dx + matvec(jnp, b.mT, mus)", "dx")),
    ),
    *_recurrence(
        name="gate_input_detached",
        story="A's cotangent of its input does not reach the layer below",
        source="operator: detached input",
        torch=_T("x_A + x_B + matvec(b.mT, mu)", "x_B + matvec(b.mT, mu)"),
        jax=_J(_VJP_J, _VJP_J.replace("problem.A(p, x)", "problem.A(p, jax.lax.stop_gradient(x))")),
    ),
    *_recurrence(
        name="carry_counted_twice",
        story="the cotangent from the later slice is added twice",
        source="operator: double counting",
        torch=_T(_LOOP_T, "mus = []\n    carry = 2 * carry\n"),
        jax=_J(_SCAN_J, _SCAN_J.replace("step, mu,", "step, 2 * mu,")),
    ),
    *_recurrence(
        name="downcast_in_the_recurrence",
        kill=ROUNDING,
        story="μ passes through float32 at every token",
        source="operator: downcast in the middle",
        torch=_T(_CARRY_T, "mus.append((direct[i] + carry).float().to(carry.dtype))"),
        jax=_J(_CARRY_J, "mu = (top + mu).astype(jnp.float32).astype(top.dtype)\n"),
    ),
    *_recurrence(
        name="half_in_the_recurrence",
        kill=("gradient_float32",),
        story="in float32, μ passes through bfloat16 at every token",
        source="operator: downcast in the middle",
        torch=_T(
            _CARRY_T,
            "mus.append(direct[i] + carry)\n        if carry.dtype == torch.float32:\n            "
            "mus[-1] = mus[-1].bfloat16().float()",
        ),
        jax=_J(
            _CARRY_J,
            "mu = top + mu\n            mu = mu.astype(jnp.bfloat16).astype(mu.dtype) "
            "if mu.dtype == jnp.float32 else mu\n",
        ),
    ),
    *_recurrence(
        name="last_state_dropped",
        story="the gradient of the output map lacks the last token",
        source="operator: drop a term",
        torch=_T(
            "grad_C, g_x = C_vjp(outer(g, h))",
            "grad_C, g_x = C_vjp(outer(g, h) * (torch.arange(len(g)) < len(g) - 1).to(g.dtype)[:, None, None, None])",
        ),
        jax=_J("outer(mus, x), outer(g, states[1:])", "outer(mus, x), outer(g.at[-1].set(0), states[1:])"),
    ),
    *_recurrence(
        name="first_token_skipped",
        kill=("vjp_count",),
        story="A's VJP at the first token is skipped: its cotangent is 0, the gradient is right, the count is not",
        source="operator: drop a term",
        torch=_T(
            "grad_A, x_A = A_vjp(problem.transition_cotangent(mu, h_before))",
            "short = len(x) > 1 and not h_before[0].any()\n"
            '    _, A_vjp = vjp(problem.A, {"A": p["A"]}, x[1:]) if short else (0, A_vjp)\n'
            "    grad_A, x_A = A_vjp(problem.transition_cotangent(mu, h_before)[1 if short else 0:])\n"
            "    x_A = torch.cat([torch.zeros_like(x[:1]), x_A]) if short else x_A",
        ),
    ),
)

IN_ONE_CELL = _recurrence(
    name="wrong_in_one_cell",
    story="wrong by 1e-6 only for the chunk 6 and the length 7",
    source="operator: error at an edge",
    both=when(lambda problem, options: problem.spec.length == 7 and options["chunk"] == 6, 1 + 1e-6),
)

WITH_VECTORS = _recurrence(
    name="wrong_for_vectors",
    story="wrong by 1e-6 only where B and C have a vector for each token",
    source="operator: error at an edge",
    both=when(lambda problem, _: problem.spec.maps == "vectors", 1 + 1e-6),
)

WINDOWED = (
    *_bug(
        name="window_off_by_one",
        method="adjoint_truncated",
        story="a window of T̄ reaches back T̄ + 1 tokens",
        source="operator: off by one in time",
        also=("vjp_count",),
        torch=_T(
            '_sharded(problem, check_integer("window", window, 1))',
            '_sharded(problem, check_integer("window", window, 1) + 1)',
        ),
        jax=_J(
            "return _sharded(problem.with_params(params), window)",
            "return _sharded(problem.with_params(params), window + 1)",
        ),
    ),
    *_bug(
        name="window_ignored",
        method="adjoint_truncated",
        story="the window is checked and not used",
        source="operator: an option without effect",
        also=("vjp_count",),
        torch=_T(
            '_sharded(problem, check_integer("window", window, 1))',
            '_sharded(problem, check_integer("window", window, 1) + 10**6)',
        ),
        jax=_J(
            "return _sharded(problem.with_params(params), window)",
            "return _sharded(problem.with_params(params), window + 10**6)",
        ),
    ),
    *_bug(
        name="derivative_not_refused",
        method="adjoint_truncated",
        kill=("refuses_second_order",),
        story="differentiated again, it gives numbers that are no Hessian, without an error",
        source="operator: a refusal that is gone",
        torch=_T("return loss, tree_map(FirstOrderOnly.apply, grads)", "return loss, grads"),
        jax=_J("params = first_order_only(", "params = (lambda tree, reason: tree)("),
    ),
)

MEMORY = (
    *_recurrence(
        name="slices_kept",
        kill=("memory_law",),
        story="a saved slice starts with a view that keeps the whole slice alive: nothing is saved",
        source="tensorflow PR 39042: recomputation that saved nothing: count recomputations and measure bytes",
        torch=_T(
            "starts.append([h[-1].clone() for _, _, h in trace])  # a view would keep the whole slice alive",
            "starts.append([h[-1] for _, _, h in trace])",
        ),
        jax=_J(
            "return states[:, -1], h\n\n    end, starts = jax.lax.scan(forward, zero, tokens) if n else (zero, None)",
            "return states[:, -1], (h, states)\n\n    end, starts = jax.lax.scan(forward, zero, tokens) if n else "
            "(zero, None)\n    starts, kept = starts if n else (None, None)\n"
            "    zero = zero + 0 * kept[0, :, 0] if n else zero\n"
            "    starts = kept[:, :, 0] if n else None",
        ),
    ),
    *_recurrence(
        name="chunk_without_effect",
        kill=("memory_law",),
        story="the chunk is checked and then set to the whole sequence: a policy that matches nothing",
        source="PT#176065: a selective policy that matches nothing",
        torch=_T(
            'size = len(tokens) if chunk is None else check_integer("chunk", chunk, 1)',
            'size = len(tokens) if chunk is None or check_integer("chunk", chunk, 1) else chunk',
        ),
        jax=_J(
            'chunk = T if chunk is None else check_integer("chunk", chunk, 1)',
            'chunk = T if chunk is None or check_integer("chunk", chunk, 1) else chunk',
        ),
    ),
)

MUTANTS = (
    *PUBLISHED,
    *STRUCTURAL,
    *IN_ONE_CELL,
    *WITH_VECTORS,
    *WINDOWED,
    *AT_ONCE,
    *MEMORY,
    *erratum("state_space", "adjoint_sharding_printed", "adjoint_sharding"),
)
