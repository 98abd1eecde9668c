"""Bugs of libraries for reversible networks, transferred to reversing backprop and Moonwalk."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import ROUNDING, bug, impostor
from gradgate.suites.bugs.edits import Edit

_bug = functools.partial(bug, "invertible")
_reversible = functools.partial(_bug, method="reversible")
_mixed = functools.partial(_bug, method="moonwalk_mixed")
_moonwalk = functools.partial(_bug, method="moonwalk")
_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")
_L, _P, _R = functools.partial(Edit, "layers"), functools.partial(Edit, "problem"), functools.partial(Edit, "residual")
_H = functools.partial(Edit, "halves")
_M, _JP = functools.partial(Edit, "matrices"), functools.partial(Edit, "in_jax.phases")

_ADVANCE = "return moved(xp, found, x2), h1 - d1, h2, dp"
_RETREAT = "return x2, h1 + d1, h2, dp"
_BACK = "x2, h1, h2, dp = halves.retreat(self.xp, vjp, self._back, p, x1, y2, h1, h2)"
_DIVIDED = "h / self.xp.where(flat, self.xp.ones_like(slope), slope)"
_RANDOM = "direction = random_direction(problem, seed)\n"

PUBLISHED = (
    *_reversible(
        name="inputs_freed",
        also=("value",),
        story="the input is freed before the loss is computed from it",
        source="MemCNN#16, #29: inputs freed too early, NaN loss",
        torch=_T("x = problem.body(params, problem.x)", "x = problem.body(params, problem.x * float('nan'))"),
        jax=_J("x = problem.body(params, problem.x)", "x = problem.body(params, problem.x * float('nan'))"),
    ),
    *_reversible(
        name="noise_not_saved",
        story="the inverse of the leaky ReLU uses another slope than the forward pass",
        source="PT#193671: RReLU under checkpointing saves uninitialised noise",
        both=_L("self.xp.where(y > 0, y, y / SLOPE)", "self.xp.where(y > 0, y, y / (1.5 * SLOPE))"),
    ),
    *_reversible(
        name="statistics_differ",
        story="in the inverse, the batch's statistics are those of another batch",
        source="RevGAN and others: state of normalisation differs on the way back",
        both=_L(
            _BACK,
            "other = lambda p, x: tuple(f[: x.shape[0]] for f in self._back(p, self.xp.concat([x, x[:1]], axis=0)))\n"
            "        " + _BACK.replace("self._back", "other"),
        ),
    ),
    *impostor(
        "invertible",
        "solved_backward",
        "reversible",
        "moonwalk",
        ("stability",),
        options=("tangents",),
        story="the chain is solved backward from its end, while moonwalk goes forward",
        source="diffrax#596: backward-in-time solve explodes",
    ),
    *_reversible(
        name="first_input_frozen",
        story="the input needs no gradient, so the parameters of the first layer get none",
        source="PT#7617, RevTorch#11: no input requires a gradient, so parameters get none",
        torch=_T(
            "return loss, stacked(problem, reversed(parts), d_head)",
            "parts[-1] = tree_map(torch.zeros_like, parts[-1])\n"
            "    return loss, stacked(problem, reversed(parts), d_head)",
        ),
        jax=_J(
            "return loss, grads\n\n\ndef moonwalk(",
            'first = next(iter(grads["block0"]))\n'
            '    zeroed = jax.tree.map(lambda leaf: leaf.at[0].set(0), grads["block0"][first])\n'
            '    return loss, {**grads, "block0": {**grads["block0"], first: zeroed}}\n\n\ndef moonwalk(',
        ),
    ),
    *_moonwalk(
        name="forward_through_custom_rule",
        kill=("tree",),
        verdict="error",
        story="the loss has a custom VJP, which forward mode cannot differentiate",
        source="jax PR 6127: a forward-mode derivative through a custom reverse rule is a TypeError",
        jax=_JP(
            'return problem.head_losses(params["head"], problem.body(params, x))',
            'rule = jax.custom_vjp(lambda x: problem.head_losses(params["head"], problem.body(params, x)))\n'
            "        rule.defvjp(lambda x: (rule(x), x), lambda x, g: (x,))\n        return rule(x)",
        ),
    ),
)

STRUCTURAL = (
    *_mixed(
        name="sign_of_the_step",
        story="h_y1 = h_x1 + F'ᵀ h_y2: the step of reversing backprop in a walk forward",
        source="operator: flip a sign",
        both=_H(_ADVANCE, _ADVANCE.replace("h1 - d1", "h1 + d1")),
    ),
    *_reversible(
        name="coupling_term_dropped",
        story="h_x1 lacks the term from the residual function",
        source="operator: drop a term",
        both=_H(_RETREAT, _RETREAT.replace("h1 + d1", "h1")),
    ),
    *_reversible(
        name="residual_missing",
        story="h_x1 is only the term from the residual function",
        source="operator: missing residual path",
        both=_H(_RETREAT, _RETREAT.replace("h1 + d1", "d1")),
    ),
    *_reversible(
        name="inverse_sign",
        story="the inverse computes x2 = y2 + F(x1)",
        source="operator: flip a sign",
        both=_H("if scale else y2 - shift", "if scale else y2 + shift"),
    ),
    *_mixed(
        name="halves_exchanged",
        story="the halves of h change places",
        source="operator: one head only",
        both=_L("self._join(y2, x1), self._join(h2, h1), dp", "self._join(y2, x1), self._join(h1, h2), dp"),
    ),
    *_mixed(
        name="scale_inverted",
        story="an affine coupling's h is multiplied by the scale, not divided by it",
        source="operator: flip a sign",
        both=_H("h2 * xp.exp(-found[1])", "h2 * xp.exp(found[1])"),
    ),
    *_mixed(
        name="derivative_multiplied",
        story="vijp of an elementwise function multiplies by its derivative",
        source="operator: transpose",
        both=(
            _L(_DIVIDED, _DIVIDED.replace("h /", "h *")),
            _L("return y, h / slope, {}", "return y, h * slope, {}"),
        ),
    ),
    *_mixed(
        name="matrix_transposed",
        story="vijp of a matrix solves with its transpose",
        source="operator: transpose",
        both=_M(
            'h = self._solved(p["w"], self._rows(h), h.shape)',
            'h = self._solved(self.xp.matrix_transpose(p["w"]), self._rows(h), h.shape)',
        ),
    ),
    *_reversible(
        name="bias_kept",
        story="the inverse of a matrix layer does not subtract the bias",
        source="operator: drop a term",
        both=_M('self._rows(y) - p["b"], y.shape)', "self._rows(y), y.shape)"),
    ),
    *_mixed(
        name="places_in_order_of_x",
        story="h is not down-sampled with x: its positions keep their order",
        source="operator: stale state",
        both=_L(
            "return self(p, x), self(p, h), {}",
            "y = self(p, x)\n        return y, self.xp.reshape(h, y.shape), {}",
        ),
    ),
    *_mixed(
        name="h_of_the_step_before",
        story="a layer's gradient is computed with the h of its input",
        source="operator: off by one in time",
        both=(
            _M(
                'h = self._solved(p["w"], self._rows(h), h.shape)',
                'before, h = h, self._solved(p["w"], self._rows(h), h.shape)',
            ),
            _M("return y, h, pull(h)[0]\n\n    def _rows", "return y, h, pull(before)[0]\n\n    def _rows"),
        ),
    ),
    *_moonwalk(
        name="samples_one_for_all",
        story="one JVP is computed for all samples, although batch norm couples them",
        source="operator: double counting",
        both=_P(
            'return self.norm == "batch" and bool({"additive", "affine"} & set(self.words))',
            "return False",
        ),
    ),
    *_mixed(
        name="downcast_in_the_walk",
        kill=ROUNDING,
        story="h passes through float32 at every coupling",
        source="operator: downcast in the middle",
        both=_H(_ADVANCE, "h1 = xp.astype(xp.astype(h1, xp.float32), h2.dtype)\n    " + _ADVANCE),
    ),
    *_mixed(
        name="input_gradient_twice",
        story="h_0 is counted twice",
        source="operator: double counting",
        torch=_T("walk(problem, h, advance, handed))", "walk(problem, 2 * h, advance, handed))"),
        jax=_J("walk(problem, h, advance=advance,", "walk(problem, 2 * h, advance=advance,"),
    ),
    *_mixed(
        name="kernel_not_turned",
        story="the VJP of a convolution does not flip its kernel",
        source="operator: transpose",
        both=_R("xp.matrix_transpose(xp.flip(w, axis=(0, 1)))", "xp.matrix_transpose(w)"),
    ),
    *_mixed(
        name="statistics_constant",
        story="the VJP of batch norm treats mean and deviation as constants",
        source="operator: drop a term",
        both=_R("return (h - xp.mean(h, axis=axes, keepdims=True) - along) * ", "return h * "),
    ),
    *_mixed(
        name="scale_without_gradient",
        story="the VJP of an affine coupling leaves out the log-scale",
        source="operator: drop a term",
        both=_L('h2 * kept["x2"] * (0.5 - 2 * s * s)', '0 * h2 * kept["x2"] * (0.5 - 2 * s * s)'),
    ),
    *_mixed(
        name="nothing_handed_over",
        kill=("stability_flat",),
        story="if tanh is flat, h is 0 divided by 0",
        source="the method itself in an earlier version of this project",
        both=_L("self.xp.where(kept >= FLAT, self.xp.zeros_like(h), h)", "self.xp.zeros_like(h)"),
    ),
    *_mixed(
        name="way_without_effect",
        kill=("refusal",),
        story="the option that selects the vijp is not checked any more",
        source="operator: an option without effect",
        both=Edit("inverse_products", "    if way not in WAYS:\n", "    if way not in WAYS and False:\n"),
    ),
    *_bug(
        method="projected_forward",
        name="seed_without_effect",
        kill=("unbiased",),
        story="every estimate uses the same direction",
        source="operator: stale state",
        torch=_T(_RANDOM, "direction = random_direction(problem, 0 * check_integer('seed', seed, 0))\n"),
        jax=_J(_RANDOM, "direction = random_direction(problem, 0)\n"),
    ),
    *_bug(
        method="projected_forward",
        name="directions_positive",
        kill=("unbiased",),
        story="directions have only positive numbers: E[u uᵀ] is not the identity",
        source="operator: flip a sign",
        torch=_T(_RANDOM, "direction = tree_map(torch.abs, random_direction(problem, seed))\n"),
        jax=_J(_RANDOM, "direction = jax.tree.map(jnp.abs, random_direction(problem, seed))\n"),
    ),
)

MEMORY = (
    *_mixed(
        name="input_kept",
        kill=("memory_law_unit",),
        story="phase 1 also keeps the input of the layer after batch norm, as autograd does for every convolution",
        source="autograd's conv2d, which keeps its input",
        torch=_R("kept.append(needed)", 'kept.append({**needed, "next": 1 * z})'),
    ),
    *impostor(
        "invertible",
        "memory_grows_with_depth",
        "backprop",
        "reversible",
        ("memory_law",),
        story="what the inverse can recompute is stored",
        source="MemCNN#41: memory not constant in depth",
    ),
    *impostor(
        "invertible",
        "everything_stored",
        "backprop",
        "moonwalk",
        ("memory_law",),
        options=("tangents",),
        story="backprop in place of the walk",
        source="tensorflow PR 39042: recomputation that saved nothing: count recomputations and measure bytes",
    ),
)

MUTANTS = (
    *PUBLISHED,
    *STRUCTURAL,
    *MEMORY,
)
