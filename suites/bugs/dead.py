"""Dead units and other zeros: 0·∞, √0, 0/0, log 0, and a `where` whose branch that is not taken is not finite.

The formula is right if no number is zero. If a number is zero, the derivative is NaN or a wrong number.
"""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.edits import Edit

_O, _P = functools.partial(Edit, "inner.optimisers"), functools.partial(Edit, "problem")
_R, _M = functools.partial(Edit, "residual"), functools.partial(Edit, "inner.models")
_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")

_bilevel = functools.partial(bug, "bilevel", source="new")
_ROOT = "return xp.where(positive, xp.sqrt(xp.where(positive, x, xp.ones_like(x))), xp.zeros_like(x))"
_STEP = 'm / first / (safe_root(xp, v / second + h["epsilon_root"]) + h["epsilon"])'
_RELU = "return xp.where(x > 0, x, xp.zeros_like(x))"

BILEVEL = (
    *_bilevel(
        "root_of_zero",
        "mixflow",
        "Adam's √v̂ is differentiated at v̂ = 0, where its derivative is infinite",
        both=_O(_ROOT, "return xp.sqrt(x)"),
    ),
    *_bilevel(
        "root_in_a_branch",
        "truncated_bptt",
        "Adam's √v̂ is in a branch of a where that is not taken at 0; its infinite derivative times 0 is NaN",
        both=_O(_ROOT, "return xp.where(positive, xp.sqrt(x), xp.zeros_like(x))"),
    ),
    *_bilevel(
        "root_shifted",
        "log_remat",
        "10^-30 is added under Adam's root, to make it differentiable at 0",
        both=_O(_ROOT, "return xp.sqrt(x + 1e-30)"),
    ),
    *_bilevel(
        "step_by_sign",
        "mixflow",
        "Adam's step is divided by |m| and multiplied by it again: 0/0 for a dead unit",
        both=_O(_STEP, f"m / abs(m) * abs({_STEP})"),
    ),
    *_bilevel(
        "step_by_logarithm",
        "reverse_over_forward",
        "Adam's step is the exponential of a sum of logarithms: log 0",
        both=_O(_STEP, f"xp.exp(xp.log(abs({_STEP}))) * xp.sign(m)"),
    ),
    *_bilevel(
        "clipped_by_its_norm",
        "mixflow",
        "a gradient is divided by its norm and multiplied by it again: 0/0 in a dead unit",
        both=_O(
            '(1 - b1) * g, state["m"], grad)',
            '(1 - b1) * (g / xp.sqrt(xp.sum(g * g, axis=0)) * xp.sqrt(xp.sum(g * g, axis=0))), state["m"], grad)',
        ),
    ),
    *_bilevel(
        "relu_in_a_branch",
        "truncated_bptt",
        "ReLU is exp log x, in a branch of a where that is not taken for x ≤ 0 and that has no value there",
        both=_M(_RELU, "return xp.where(x > 0, xp.exp(xp.log(x)), xp.zeros_like(x))"),
    ),
    *_bilevel(
        "relu_by_infinity",
        "gradient_replay",
        "dead units are made by dividing by 0 and multiplying by 0",
        both=_M(_RELU, "return x / xp.astype(x > 0, x.dtype) * xp.astype(x > 0, x.dtype)"),
    ),
    *_bilevel(
        "epsilon_dropped_going_back",
        "mixflow",
        "the derivative of Adam's step lacks ϵ: it is right unless √v̂ is small",
        source="torchopt: accelerated Adam's backward pass drops ϵ",
        both=(
            _O(_STEP, 'without_epsilon(xp, m / first, safe_root(xp, v / second + h["epsilon_root"]), h["epsilon"])'),
            _O(
                "def safe_root(xp: Any, x: Any) -> Any:\n",
                "def without_epsilon(xp: Any, m: Any, root: Any, epsilon: Any) -> Any:\n"
                "    from gradgate.references.backends import stop_gradient\n"
                '    backend, alive = "torch" if hasattr(m, "detach") else "jax", root > 0\n'
                "    right, wrong = m / (root + epsilon), m / xp.where(alive, root, xp.ones_like(root))\n"
                "    moving = xp.where(alive, wrong, right)\n"
                "    moved = moving - stop_gradient(backend, moving)\n"
                "    return stop_gradient(backend, right) + moved\n\n\n"
                "def safe_root(xp: Any, x: Any) -> Any:\n",
            ),
        ),
    ),
)

_recurrence = functools.partial(bug, "state_space", method="reverse_recurrence", source="new")
_COTANGENT = "        product = mu * h\n"

STATE_SPACE = (
    *_recurrence(
        name="states_by_sign",
        story="the decay's cotangent takes the state's sign from h/|h|, which is 0/0 before the first token",
        both=_P(_COTANGENT, "        product = mu * (h / self.xp.abs(h)) * self.xp.abs(h)\n"),
    ),
    *_recurrence(
        name="zero_state_shifted",
        story="10^-30 is added to states, so that their logarithm exists at 0",
        both=_P(_COTANGENT, "        product = mu * (h + 1e-30)\n"),
    ),
    *_recurrence(
        name="zero_state_skipped",
        story="a position whose state is 0 is treated as padding, and its input gets no cotangent",
        torch=_T(
            "norm_vjp(g_x + g_state)[0], carry\n",
            "norm_vjp(g_x + g_state * h[:-1].abs().sum(-1, True).ne(0))[0], carry\n",
        ),
        jax=_J(
            "pull_norm(dx + matvec(jnp, b.mT, mus))[0]",
            "pull_norm(dx + matvec(jnp, b.mT, mus) * (jnp.abs(states[:-1]).sum(-1, keepdims=True) != 0))[0]",
        ),
    ),
    *_recurrence(
        name="confident_logits",
        story="the head's exponentials are not scaled by the largest, and overflow",
        source="Liger-Kernel#1329: 100% error on confident logits",
        kill=("stability", "gradient_float32"),
        both=_P(
            "            top = stop_gradient(self.backend, xp.max(out, axis=-1, keepdims=True))\n",
            "            top = 0 * stop_gradient(self.backend, xp.max(out, axis=-1, keepdims=True))\n",
        ),
    ),
    *_recurrence(
        name="log_of_a_probability",
        story="the head's loss is the logarithm of a probability, which underflows to 0",
        source="Liger-Kernel#1329: 100% error on confident logits",
        kill=("stability", "gradient_float32"),
        both=_P(
            "            each = log_sum - xp.sum(out * hot, axis=-1)\n",
            "            each = -xp.log(xp.sum(hot * xp.exp(out - log_sum[..., None]), axis=-1))\n",
        ),
    ),
)

_mixed = functools.partial(bug, "invertible", method="moonwalk_mixed", source="new")
_DEVIATION = "return centred, mean, xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True) + EPSILON)"

INVERTIBLE = (
    *_mixed(
        name="relu_in_a_branch",
        story="ReLU is exp log z, in a branch of a where that has no value for z ≤ 0",
        both=_R("xp.where(z > 0, z, xp.zeros_like(z))", "xp.where(z > 0, xp.exp(xp.log(z)), xp.zeros_like(z))"),
    ),
    *_mixed(
        name="dead_channel",
        story="batch norm's deviation is in a branch of a where with √0, for a channel in which no sample is alive",
        both=_R(
            _DEVIATION,
            "variance = xp.mean(centred * centred, axis=axes, keepdims=True)\n"
            "    positive = xp.sqrt(variance) * xp.sqrt(1 + EPSILON / variance)\n"
            "    return centred, mean, xp.where(variance > 0, positive, EPSILON**0.5)",
        ),
    ),
    *_mixed(
        name="leaky_by_logarithm",
        story="the leaky ReLU is sign(x)·exp log |slope·x|, whose two branches are both computed",
        both=Edit(
            "layers",
            "self.xp.where(x > 0, x, SLOPE * x)",
            "self.xp.where(x > 0, self.xp.exp(self.xp.log(x)), -self.xp.exp(self.xp.log(-SLOPE * x)))",
        ),
    ),
)

_kept = functools.partial(bug, "performer", method="slim_kept", source="new")

PERFORMER = (
    *_kept(
        name="dropped_by_infinity",
        story="a number is dropped by dividing it by 0 and multiplying it by 0",
        both=_P(
            'return f * scaled_mask(self.xp, f, self.spec.dropout, self.data["dropout_seed"], 2 * r + place, start)',
            'mask = scaled_mask(self.xp, f, self.spec.dropout, self.data["dropout_seed"], 2 * r + place, start)\n'
            "        return f / mask * mask * mask",
        ),
    ),
    *_kept(
        name="log_of_a_probability",
        story="the loss is the logarithm of a probability, which underflows to 0",
        source="Liger-Kernel#1329: 100% error on confident logits",
        kill=("stability", "gradient_float32"),
        both=_P(
            "        each = counted * log_sum - xp.sum(out * hot, axis=-1)\n",
            "        each = -counted * xp.log(xp.sum(hot * xp.exp(out - log_sum[..., None]), axis=-1) + 1 - counted)\n",
        ),
    ),
)

MUTANTS = (*BILEVEL, *STATE_SPACE, *INVERTIBLE, *PERFORMER)
