"""Bugs of libraries for linear attention, and of recomputation under dropout, transferred to SLiM."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import ROUNDING, bug, erratum, impostor
from gradgate.suites.bugs.edits import Edit
from gradgate.suites.bugs.operators import on_data

_bug = functools.partial(bug, "performer")
_slim = functools.partial(_bug, method="slim")
_kept = functools.partial(_bug, method="slim_kept")
_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")
_TA, _JA = functools.partial(Edit, "in_torch.attention"), functools.partial(Edit, "in_jax.attention")
_P = functools.partial(Edit, "problem")

_RULE_T = "return transposed(U, g), transposed(suffix, v), contract(suffix, k)"
_RULE_J = _RULE_T + "  # of q, k, v"
_SUFFIX_T = "suffix = after + torch.cumsum(outer(g, q).flip(0), 0).flip(0)"
_SUFFIX_J = "suffix = after + reverse_cumsum(outer(g, q))"
_U_T = "U = state + torch.cumsum(outer(v, k), 0)\n    suffix"
_U_J = "U = state + jnp.cumsum(outer(v, k), axis=0)\n    suffix"
_SCORES = "s, t = scores(q, k), scores(g, v)"
_SECOND_T = "problem.finish(p, X, out, r, start), second, X, out)"
_SECOND_J = "return problem.finish(p, X, out, r, start), after\n"

PUBLISHED = (
    *_slim(
        name="masks_drawn_again",
        story="the backward pass draws new dropout masks",
        source="PT#190758: with a memory budget below 1 the dropout masks are drawn again in the backward pass",
        both=on_data(lambda problem, data: data | {"dropout_seed": data["dropout_seed"] + 1}),
    ),
    *_slim(
        name="generator_not_restored",
        story="the recomputation of a slice has the generator one position on",
        source="OLMo-core PR 828: checkpointing with preserve_rng_state=False under dropout; guided-diffusion#167",
        torch=_T(_SECOND_T, _SECOND_T.replace("start", "start + 1")),
        jax=_J(_SECOND_J, _SECOND_J.replace("start", "start + 1")),
    ),
    *_kept(
        name="normaliser_sum_cut",
        story="in the suffix sums, the row of the normaliser is not summed",
        source="fla PR 875: an unvectorised cumulative sum cuts the key gradient in the normaliser",
        torch=_TA(
            _RULE_T,
            "suffix = torch.cat([suffix[..., :-1, :], (after + outer(g, q))[..., -1:, :]], -2)\n    " + _RULE_T,
        ),
        jax=_JA(_RULE_J, "suffix = suffix.at[..., -1, :].set((after + outer(g, q))[..., -1, :])\n    " + _RULE_J),
    ),
    *_slim(
        name="normaliser_dropped",
        story="the gradient of K̃ lacks the normaliser's part",
        source="fla PR 863: with no gate, the key gradient is never assigned and a term is missing",
        torch=_TA(_RULE_T, _RULE_T.replace("transposed(suffix, v)", "transposed(suffix[..., :-1, :], v[..., :-1])")),
        jax=_JA(_RULE_J, _RULE_J.replace("transposed(suffix, v)", "transposed(suffix[..., :-1, :], v[..., :-1])")),
    ),
    *_kept(
        name="head_offset",
        story="every head reads the state of the first head",
        source="fla PR 781, #1115: head or sequence offset missing, every head but the first wrong",
        torch=_TA(_U_T, _U_T.replace("= state", "= state[:, :1]")),
        jax=_JA(_U_J, _U_J.replace("= state", "= state[:, :1]")),
    ),
    *_kept(
        name="key_for_query",
        story="key and query are exchanged in the sums of the backward pass",
        source="fla PR 633: key and value dimensions swapped in the backward pass",
        torch=_TA(_SUFFIX_T, _SUFFIX_T.replace("outer(g, q)", "outer(g, k)")),
        jax=_JA(_SUFFIX_J, _SUFFIX_J.replace("outer(g, q)", "outer(g, k)")),
    ),
    *_kept(
        name="ungated",
        story="the feed-forward network's gradient is that without its gate",
        source="fla PR 1071: the recomputed output is ungated, dW off by silu(g)",
        both=_P(
            'hidden = gelu_once(self.backend, gelu, xp, xp.matmul(x, f["w1"]) + f["b1"])',
            'before = xp.matmul(x, f["w1"]) + f["b1"]\n'
            "        hidden = before + stop_gradient(self.backend, gelu(xp, before) - before)",
        ),
    ),
    *_kept(
        name="norm_mean_constant",
        story="layer norm's backward pass treats the mean as a constant",
        source="mamba PR 547: normalisation backward called without the group size, wrong for more than one group",
        both=_P(
            "x = x - xp.mean(x, axis=-1, keepdims=True)\n",
            "x = x - stop_gradient(self.backend, xp.mean(x, axis=-1, keepdims=True))\n",
        ),
    ),
    *_kept(
        name="closed_over_once",
        story="values that a loop over slices closes over get only the last step's gradient",
        source="PT#184528: scan's closed-over parameter, 0.191 for 0.269",
        torch=_T('_add(grads["embedding"], pull_embedding(g)[0])', 'grads["embedding"].copy_(pull_embedding(g)[0])'),
        jax=_J('"embedding": grads["embedding"] + d_embedding', '"embedding": d_embedding + 0 * grads["embedding"]'),
    ),
    *_slim(
        name="subtraction_skipped",
        story="the state before a block is not rebuilt: the state after it is used",
        source="fla PR 781, #1115: head or sequence offset missing, every head but the first wrong",
        torch=_TA("else state - summed(block[1], block[2])", "else state"),
        jax=_JA("state = state - summed(k, v) if kept is None else kept", "state = state if kept is None else kept"),
    ),
)

STRUCTURAL = (
    *_kept(
        name="residual_missing",
        story="the residual path around attention is missing in the backward pass",
        source="operator: missing residual path",
        torch=_T("        g = g + g_first\n", "        g = g_first\n"),
        jax=_J("return (g + g_first, grads), cotangent", "return (g_first, grads), cotangent"),
    ),
    *_kept(
        name="carry_dropped",
        story="blocks do not get the cotangent of the state from later blocks",
        source="operator: drop a term",
        torch=_TA("                grad = before\n", ""),
        jax=_JA("return (state, grad), rule(state, after,", "return (state, after), rule(state, after,"),
    ),
    *_kept(
        name="carries_reversed",
        story="the layers' cotangents of the state are in reversed order",
        source="operator: reversed order",
        torch=_T("earlier.insert(0, cotangent)", "earlier.append(cotangent)"),
        jax=_J("return loss, states, cotangents, grads\n", "return loss, states, cotangents[::-1], grads\n"),
    ),
    *_kept(
        name="stale_state",
        story="a slice starts from a zero state in place of the kept one",
        source="operator: stale state",
        torch=_T("kept[i] = states\n", "kept[i] = [torch.zeros_like(state) for state in states]\n"),
        jax=_J("jnp.where(i % every == 0, states, kept", "jnp.where(i % every == 0, 0 * states, kept"),
    ),
    *_kept(
        name="sum_exclusive",
        story="the suffix sums leave out the position itself",
        source="operator: off by one in time",
        torch=_TA(_SUFFIX_T, _SUFFIX_T + " - outer(g, q)"),
        jax=_JA(_SUFFIX_J, _SUFFIX_J + " - outer(g, q)"),
    ),
    *_kept(
        name="sum_forward",
        story="the suffix sums run forward in time",
        source="operator: reversed order",
        torch=_TA(_SUFFIX_T, "suffix = after + torch.cumsum(outer(g, q), 0)"),
        jax=_JA(_SUFFIX_J, "suffix = after + jnp.cumsum(outer(g, q), axis=0)"),
    ),
    *_slim(
        name="sign_of_queries",
        story="the gradient of Q̃ has the wrong sign",
        source="operator: flip a sign",
        torch=_TA(_RULE_T, _RULE_T.replace("return transposed", "return -transposed")),
        jax=_JA(_RULE_J, _RULE_J.replace("return transposed", "return -transposed")),
    ),
    *_kept(
        name="mask_off_by_one",
        story="one mask of the masked products leaves out the position itself",
        source="operator: off by one in time",
        torch=_TA(_SCORES, "s, t = scores(q, k), torch.tril(scores(g, v), -1)"),
        jax=_JA(_SCORES, "s, t = scores(q, k), jnp.tril(scores(g, v), -1)"),
    ),
    *_kept(
        name="state_added_twice",
        story="the state after the block is added to the masked products: its tokens count twice",
        source="operator: double counting",
        torch=_TA("turned(state, g)", "turned(state + summed(k, v), g)"),
        jax=_JA("turned(state, g)", "turned(state + summed(k, v), g)"),
    ),
    *_kept(
        name="values_detached",
        story="the first half of each head's values gets no gradient",
        source="operator: detached input",
        torch=_TA(
            _RULE_T,
            _RULE_T.replace(
                "contract(suffix, k)", "contract(suffix, k) * (torch.arange(v.shape[-1]) >= v.shape[-1] // 2)"
            ),
        ),
        jax=_JA(
            _RULE_J,
            _RULE_J.replace(
                "contract(suffix, k)", "contract(suffix, k) * (jnp.arange(v.shape[-1]) >= v.shape[-1] // 2)"
            ),
        ),
    ),
    *_kept(
        name="head_counted_twice",
        story="the head's gradient is added twice in every slice",
        source="operator: double counting",
        torch=_T('_add(grads["head"], d_head)', '_add(grads["head"], tree_map(lambda d: 2 * d, d_head))'),
        jax=_J(
            'jax.tree.map(jnp.add, grads["head"], d_head)',
            'jax.tree.map(lambda a, b: a + 2 * b, grads["head"], d_head)',
        ),
    ),
    *_kept(
        name="downcast_in_the_state",
        kill=ROUNDING,
        story="the suffix sums pass through float32",
        source="operator: downcast",
        torch=_TA(_SUFFIX_T, _SUFFIX_T + "\n    suffix = suffix.float().to(g.dtype)"),
        jax=_JA(_SUFFIX_J, _SUFFIX_J + "\n    suffix = suffix.astype(jnp.float32).astype(g.dtype)"),
    ),
    *_kept(
        name="half_in_the_state",
        kill=("gradient_float32",),
        story="in float32, the suffix sums pass through bfloat16",
        source="operator: downcast",
        torch=_TA(
            _SUFFIX_T, _SUFFIX_T + "\n    suffix = suffix.bfloat16().float() if g.dtype == torch.float32 else suffix"
        ),
        jax=_JA(
            _SUFFIX_J,
            _SUFFIX_J + "\n    suffix = suffix.astype(jnp.bfloat16).astype(g.dtype) "
            "if g.dtype == jnp.float32 else suffix",
        ),
    ),
    *_kept(
        name="last_slice_of_mask",
        story="targets of the last token count although there are none",
        source="operator: error at an edge",
        both=_P("counted = xp.astype(targets >= 0, out.dtype)", "counted = xp.astype(targets >= -1, out.dtype)"),
    ),
)

MEMORY = (
    *_slim(
        name="states_kept",
        kill=("memory_law",),
        story="all states that should be rebuilt are kept",
        source="MemCNN#41: memory not constant in depth",
        torch=_T(
            "chunk, 1), attention(check_prefix_sum(prefix_sum)), None)",
            "chunk, 1), attention(check_prefix_sum(prefix_sum), keep=True), 1)",
        ),
        jax=_J(
            "attention(check_prefix_sum(prefix_sum)), every=None)",
            "attention(check_prefix_sum(prefix_sum), keep=True), every=1)",
        ),
    ),
    *impostor(
        "performer",
        "nothing_saved",
        "full",
        "slim",
        ("memory_law",),
        options=("chunk", "prefix_sum"),
        story="the slices that the option requests are not made: backprop with all activations",
        source="tensorflow PR 39042: recomputation that saved nothing: count recomputations and measure bytes",
    ),
)

CHECKPOINTED = (
    *_bug(
        method="slim_checkpointed",
        name="other_input_again",
        story="the layers of a slice run again from a wrong input",
        source="operator: stale state",
        torch=_T("given if again else pulls", "(kept[0] if kept else given) if again else pulls"),
        jax=_J("layer(kept, p, r, state)[2:]", "layer(X, p, r, state)[2:]"),
    ),
)

_undone = functools.partial(_bug, method="slim_reversible")
_TR, _JR = functools.partial(Edit, "in_torch.reversible"), functools.partial(Edit, "in_jax.reversible")

REVERSIBLE = (
    *_undone(
        name="undone_from_the_output",
        story="attention is undone at the second stream of the layer's output",
        source="operator: reversed order",
        torch=_TR("vjp(project, first, X_second)", "vjp(project, first, Y[..., D:])"),
        jax=_JR("jax.vjp(attended, p, second, state)", "jax.vjp(attended, p, Y[..., D:], state)"),
    ),
    *_undone(
        name="undone_with_other_masks",
        story="a layer is undone with the dropout masks of the next position",
        source="OLMo-core PR 828: checkpointing with preserve_rng_state=False under dropout; guided-diffusion#167",
        torch=_TR("problem.fed(p, H, r, start)", "problem.fed(p, H, r, start + 1)"),
        jax=_JR("problem.fed(p, H, r, start)", "problem.fed(p, H, r, start + 1)"),
    ),
    *_undone(
        name="stream_without_its_path",
        story="the first stream's cotangent lacks what the feed-forward network reads",
        source="operator: missing residual path",
        torch=_TR("g_first = g[..., :D] + d_H", "g_first = g[..., :D]"),
        jax=_JR("g_first = g[..., :D] + d_H", "g_first = g[..., :D]"),
    ),
)

MUTANTS = (
    *CHECKPOINTED,
    *REVERSIBLE,
    *PUBLISHED,
    *STRUCTURAL,
    *MEMORY,
    *erratum("performer", "block_printed", "slim", without=("chunk", "prefix_sum")),
    *erratum("performer", "one_by_one_printed", "slim", without=("chunk", "prefix_sum")),
    *(
        mutant
        for term in ("key", "query", "suffix")
        for mutant in erratum(
            "performer", "block_printed", "slim", without=("chunk", "prefix_sum"), given={"term": term}
        )
    ),
)
