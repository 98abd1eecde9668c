"""Bugs that lose something in recomputation: a flag, a mask, a counter, an option, or half of the digits.

A recomputation must repeat the first pass exactly. Every bug here changes only the second pass.
"""

from __future__ import annotations

import functools
from typing import Any

from gradgate.suites.bugs.declare import ROUNDING, bug
from gradgate.suites.bugs.edits import Edit

_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")
_BOTH = ("gradient_float32",)

_slim = functools.partial(bug, "performer", method="slim")
_kept = functools.partial(bug, "performer", method="slim_kept")
_SECOND_T = "problem.finish(p, X, out, r, start), second, X, out)"
_SECOND_J = "return problem.finish(p, X, out, r, start), after\n"
_EVALUATED = 'problem._replace(spec=__import__("dataclasses").replace(problem.spec, {}))'


def _again(change: str) -> dict[str, Any]:
    """Edits that run the second half of a layer, in the second pass, with another value of a field of the Spec."""
    other = _EVALUATED.format(change)
    return {
        "torch": _T(_SECOND_T, _SECOND_T.replace("problem", other)),
        "jax": _J(_SECOND_J, _SECOND_J.replace("problem", other)),
    }


PERFORMER = (
    *_slim(
        name="evaluated_again_without_dropout",
        source="new",
        story="the second pass runs in evaluation mode: nothing is dropped",
        **_again("dropout=0.0"),
    ),
    *_kept(
        name="half_of_the_dropout_again",
        source="new",
        story="the second pass drops half as many numbers as the first",
        **_again("dropout=problem.spec.dropout / 2"),
    ),
    *_slim(
        name="norm_forgotten",
        source="new",
        story="the second pass normalises before each sublayer, even if the first pass does so after it",
        **_again('norm="pre"'),
    ),
    *_kept(
        name="one_mask_for_all_layers",
        source="PT#190758: with a memory budget below 1 the dropout masks are drawn again in the backward pass",
        story="in the second pass, every layer uses the dropout mask of the first layer",
        torch=_T(_SECOND_T, _SECOND_T.replace("out, r, start", "out, 0, start")),
        jax=_J(_SECOND_J, _SECOND_J.replace("out, r, start", "out, 0 * r, start")),
    ),
    *_slim(
        name="recomputed_in_half",
        source="Liger-Kernel#986: a cast lost in recomputation",
        kill=ROUNDING,
        also=_BOTH,
        story="the second pass reads embeddings that were cast to float16",
        torch=_T(
            "vjp(lambda e: problem.embed(e, start, count), params",
            "vjp(lambda e: problem.embed(e, start, count).to(torch.float16).to(e.dtype), params",
        ),
        jax=_J(
            "jax.vjp(lambda e: problem.embed(e, start, count), params",
            "jax.vjp(lambda e: problem.embed(e, start, count).astype(jnp.float16).astype(e.dtype), params",
        ),
    ),
)

_recurrence = functools.partial(bug, "state_space", method="reverse_recurrence")
_SLICE_T = 'y, trace = run_layers(problem, layers, problem.embed(problem.params["embedding"], tokens), starts)'
_RMS = 'norm="rms" if problem.spec.norm == "layer" else problem.spec.norm'
_SLICE_J = "y, saved = _run_slice(problem, params, start, tokens)\n"

STATE_SPACE = (
    *_recurrence(
        name="recomputed_in_half",
        source="Liger-Kernel#986: a cast lost in recomputation",
        kill=ROUNDING,
        also=_BOTH,
        story="the second pass over a slice starts from embeddings in float16",
        torch=_T(
            _SLICE_T,
            _SLICE_T.replace('["embedding"]', '["embedding"].to(torch.float16).to(starts[0].dtype)'),
        ),
        jax=_J(
            _SLICE_J,
            'half = params["embedding"].astype(jnp.float16).astype(mu.dtype)\n'
            '    y, saved = _run_slice(problem, {**params, "embedding": half}, start, tokens)\n',
        ),
    ),
    *_recurrence(
        name="norm_forgotten",
        source="new",
        story="the second pass over a slice computes root-mean-square norm in place of layer norm",
        torch=_T(_SLICE_T, _SLICE_T.replace("run_layers(problem", f"run_layers({_EVALUATED.format(_RMS)}")),
        jax=_J(_SLICE_J, _SLICE_J.replace("problem", _EVALUATED.format(_RMS))),
    ),
    *_recurrence(
        name="start_not_of_this_sequence",
        source="new",
        story="in the second pass, sequences of a batch start from each other's states",
        torch=_T(_SLICE_T, _SLICE_T.replace("starts)", "[h.flip(0) for h in starts])")),
        jax=_J(_SLICE_J, _SLICE_J.replace("start,", "start[:, ::-1],")),
    ),
)

_bilevel = functools.partial(bug, "bilevel", source="new")
_S, _R = functools.partial(Edit, "in_torch.static"), functools.partial(Edit, "in_torch.replay")
_JS, _JR = functools.partial(Edit, "in_jax.static"), functools.partial(Edit, "in_jax.replay")
_AGAIN_T = "carry = problem.update(earlier, *carry, eta, before)"
_AGAIN_J = "after = problem.update(grad, *carry, eta, x)\n"

BILEVEL = (
    *_bilevel(
        "state_reset",
        "gradient_replay",
        "each update that is run again starts with a new optimiser state",
        torch=_R(_AGAIN_T, "carry = problem.update(earlier, carry[0], problem.init(eta)[1], eta, before)"),
        jax=_JR(_AGAIN_J, "after = problem.update(grad, carry[0], start[1], eta, x)\n"),
    ),
    *_bilevel(
        "weights_forgotten",
        "log_remat",
        "steps that are run again do not weight the losses of their data points",
        torch=_S(
            "    for x in batches:\n        carry = problem.update(gradient(inner, carry[0], eta, x)",
            "    unweighed = torch.utils._pytree.tree_map(lambda leaf: 0 * leaf, eta)\n"
            "    for x in batches:\n        carry = problem.update(gradient(inner, carry[0], unweighed, x)",
        ),
        jax=_JS(
            "problem.update(jax.grad(inner)(carry[0], problem.eta, x)",
            "problem.update(jax.grad(inner)(carry[0], jax.tree.map(lambda leaf: 0 * leaf, problem.eta), x)",
        ),
    ),
    *_bilevel(
        "rematerialised_in_half",
        "mixflow",
        "inputs of a rematerialised layer are kept in float16",
        kill=("options",),
        torch=Edit(
            "in_torch.remat",
            "return tuple(leaf.view_as(leaf) if wrapped(leaf) else leaf for leaf in ctx.saved_tensors)",
            "return tuple(leaf.to(torch.float16).to(leaf.dtype) for leaf in ctx.saved_tensors)",
        ),
    ),
)

MUTANTS = (*PERFORMER, *STATE_SPACE, *BILEVEL)
