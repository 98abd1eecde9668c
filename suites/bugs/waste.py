"""Wasted work: the gradient is right, but a net is evaluated or has JVPs or VJPs more often than its method declares.

No gradient shows these bugs. The claims about counts detect them.
"""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import bug, impostor
from gradgate.suites.bugs.edits import Edit

COUNTS = ("counts",)
_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")
_L, _P = functools.partial(Edit, "layers"), functools.partial(Edit, "problem")
_wasted = functools.partial(bug, kill=COUNTS, source="new")

_recurrence = functools.partial(_wasted, "state_space", method="reverse_recurrence")
_sharding = functools.partial(_wasted, "state_space", method="adjoint_sharding")
_SWEEP_T = (
    '_, trace = run_layers(problem, layers, problem.embed(problem.params["embedding"], tokens[span]), starts[-1])'
)
_SWEEP_J = "_, (_, states) = _run_slice(problem, params, h, tokens)\n"
_PULLED_T = "grads_lag, g_lag = transition_vjp(problem, p, x[:n], h[:n], mu)\n"
_PULLED_J = "dp, dx_nets = pull((problem.transition_cotangent(mu, states[i]), outer(mu, x[i])))\n"

STATE_SPACE = (
    *_recurrence(
        name="swept_twice",
        story="every slice is run forward twice before its VJP",
        torch=_T(_SWEEP_T, f"{_SWEEP_T}\n        {_SWEEP_T}"),
        jax=_J(_SWEEP_J, f"{_SWEEP_J}        states = (states + _run_slice(problem, params, h, tokens)[1][1]) / 2\n"),
    ),
    *_recurrence(
        name="last_slice_swept",
        story="the last slice is run forward for a state that nothing uses",
        torch=(
            _T("for span in spans[:-1]:", "for span in spans:"),
            _T(
                'grads = tree_map(torch.zeros_like, {**problem.params, "layers": layers})',
                'starts.pop()\n    grads = tree_map(torch.zeros_like, {**problem.params, "layers": layers})',
            ),
        ),
        jax=_J(
            "mu, total = _pull_slice(problem, end, zero, last_tokens, last_targets)\n",
            "end = end + 0 * _run_slice(problem, params, end, last_tokens)[1][1][:, -1]\n"
            "    mu, total = _pull_slice(problem, end, zero, last_tokens, last_targets)\n",
        ),
    ),
    *_recurrence(
        name="net_evaluated_again",
        story="C is evaluated once more for Cᵀg, although its VJP has it",
        torch=_T("return matvec(c.mT, g), grad_C, g_x", "return matvec(problem.C(p, x).mT, g), grad_C, g_x"),
        jax=_J("(a, matvec(jnp, c.mT, g)), reverse=True)", "(a, matvec(jnp, problem.C(p, x).mT, g)), reverse=True)"),
    ),
    *_sharding(
        name="pulled_in_halves",
        also=("vjp_count",),
        story="each cotangent is split into two halves, so that there are twice as many VJPs",
        torch=_T(
            _PULLED_T,
            "grads_lag, g_lag = transition_vjp(problem, p, x[:n], h[:n], mu / 2)\n"
            "        more, g_more = transition_vjp(problem, p, x[:n], h[:n], mu / 2)\n"
            "        grads_lag, g_lag = tree_map(torch.add, grads_lag, more), g_lag + g_more\n",
        ),
        jax=_J(
            _PULLED_J,
            "half = problem.transition_cotangent(mu / 2, states[i]), outer(mu / 2, x[i])\n"
            "        dp, dx_nets = jax.tree.map(jnp.add, pull(half), pull(half))\n",
        ),
    ),
    *_wasted(
        "state_space",
        "window_by_zeros",
        "adjoint_truncated",
        also=("vjp_count",),
        story="lags beyond the window get a VJP with a cotangent of zero, and are not left out",
        torch=(
            _T("for lag in range(1, min(window, len(x))):", "for lag in range(1, len(x)):"),
            _T(
                "mu = problem.apply_transposed(a[1 : n + 1], mu[1:])",
                "mu = problem.apply_transposed(a[1 : n + 1], mu[1:]) * (lag < window)",
            ),
        ),
        jax=(
            _J("W = min(window, T)\n", "W = T\n"),
            _J("last = (i == 0) | (i == t - window + 1)\n", "last = i == 0\n"),
            _J("mu = jnp.where(i == t, tops[t], mu)\n", "mu = jnp.where(i == t, tops[t], mu) * (i > t - window)\n"),
        ),
    ),
)

_slim = functools.partial(_wasted, "performer", method="slim")
_GRADS_T = "grads = tree_map(lambda leaf: wide(torch.zeros_like(leaf)), problem.params)"
_GRADS_J = "grads = jax.tree.map(lambda leaf: wide(jnp.zeros_like(leaf)), problem.params)"

PERFORMER = (
    *_slim(
        name="last_slice_swept",
        story="the last slice is run forward for states that nothing uses",
        torch=_T(
            _GRADS_T,
            "advance(problem, layers, inside, states, starts[-1], problem.length - starts[-1])\n    " + _GRADS_T,
        ),
        jax=_J(
            _GRADS_J,
            "states = states + 0 * _advance(problem, inside, states, n * chunk, problem.length - n * chunk)\n    "
            + _GRADS_J,
        ),
    ),
    *_slim(
        name="last_layer_finished",
        story="in the first pass, G of the last layer is run for an output that nothing reads",
        torch=_T("        if r < len(layers) - 1:\n", "        if True:\n"),
    ),
    *_slim(
        name="projected_again",
        story="F is evaluated once more for the terms that are subtracted from the state",
        torch=_T("state = before(r, k, v) if", "state = before(r, *problem.project(first, X)[1:]) if"),
        jax=_J(
            "state = before(r, lambda: inside.total(prepared))",
            "state = before(r, lambda: inside.total(inside.prepare(*problem.project(p, X))))",
        ),
    ),
)

_mixed = functools.partial(_wasted, "invertible", method="moonwalk_mixed")

INVERTIBLE = (
    *_wasted(
        "invertible",
        "residual_run_twice",
        "reversible",
        story="the residual function of a coupling is run for its inverse, and again for its VJP",
        both=_L(
            "(y2, x1), (h2, h1) = self._parts(y), self._parts(h)\n        x2,",
            "if True:\n            return super().retreat(vjp, p, y, h)\n"
            "        (y2, x1), (h2, h1) = self._parts(y), self._parts(h)\n        x2,",
        ),
    ),
    *_wasted(
        "invertible",
        "jvps_for_every_sample",
        "moonwalk",
        story="each number of a batch gets its own JVP, although samples do not depend on each other",
        both=_P('return self.norm == "batch" and bool({"additive", "affine"} & set(self.words))', "return True"),
    ),
    *_wasted(
        "invertible",
        "last_group_filled",
        "forward",
        story="the last group of tangents is filled up with tangents that have been computed before",
        torch=(
            Edit(
                "in_torch.phases",
                "numbers = torch.arange(first, min(first + tangents, size))",
                "numbers = torch.arange(first, first + tangents).clamp(max=size - 1)",
            ),
            Edit("in_torch.phases", "return torch.cat(found)\n", "return torch.cat(found)[:size]\n"),
        ),
        jax=(
            _J(
                "jax.lax.map(derivative, jnp.arange(flat.size), batch_size",
                "jax.lax.map(derivative, jnp.minimum(jnp.arange(-(-flat.size // tangents) * tangents), flat.size - 1), "
                "batch_size",
            ),
            _J("(problem.params), unravel(found)", "(problem.params), unravel(found[: flat.size])"),
        ),
    ),
    *_mixed(
        name="layer_evaluated_twice",
        story="in the walk, a matrix product that the VJP has computed is computed again",
        both=Edit(
            "matrices", "return y, h, pull(h)[0]\n\n    def _rows", "return self(p, x), h, pull(h)[0]\n\n    def _rows"
        ),
    ),
)

_mixflow = functools.partial(_wasted, "bilevel", method="mixflow")
_SLOPE_T = "found: tuple[Tree, Tree] = value_and_gradients(slope, theta, eta)[1]"
_JVP_T = "found: tuple[Tree, Tree] = jvp(both, (theta,), (v,))[1]"
_JVP_J = "found: tuple[Tree, Tree] = jax.jvp(lambda theta: gradients(theta, eta, x), (theta,), (v,))[1]"

BILEVEL = (
    *_mixflow(
        name="rematerialised_unasked",
        story="layers are always rematerialised",
        torch=_T('(problem, check_flag("remat", remat))\n', '(problem, check_flag("remat", remat) or True)\n'),
        jax=_J('if check_flag("remat", remat) else', 'if check_flag("remat", remat) or True else'),
    ),
    *_mixflow(
        name="saved_and_taken_again",
        story="inner gradients are saved, but computed again",
        torch=_T("kept.append((x, carry, grad if save else None))", "kept.append((x, carry, None))"),
    ),
    *_mixflow(
        name="one_jvp_each",
        story="the products for θ and for η take one JVP each, although one JVP gives both",
        torch=_T(
            _JVP_T,
            "found = (jvp(lambda theta: both(theta)[0], (theta,), (v,))[1], "
            "jvp(lambda theta: both(theta)[1], (theta,), (v,))[1])",
        ),
        jax=_J(
            _JVP_J,
            "found = tuple(jax.jvp(lambda theta: gradients(theta, eta, x)[k], (theta,), (v,))[1] for k in (0, 1))",
        ),
    ),
    *_wasted(
        "bilevel",
        "one_slope_each",
        "reverse_over_forward",
        story="the products for θ and for η take one slope each, although one slope gives both",
        torch=_T(
            _SLOPE_T,
            "found = (value_and_gradients(lambda theta: slope(theta, eta), theta)[1][0], "
            "value_and_gradients(lambda eta: slope(theta, eta), eta)[1][0])",
        ),
        jax=_J(
            "found: tuple[Tree, Tree] = jax.grad(slope, argnums=(0, 1))(theta, eta)",
            "found = tuple(jax.grad(slope, argnums=k)(theta, eta) for k in (0, 1))",
        ),
    ),
    *_wasted(
        "bilevel",
        "taken_back_and_again",
        "momentum_inversion",
        story="the inner gradient that inverts a step is computed again for its products",
        torch=Edit(
            "in_torch.static",
            "forward_over_reverse, (theta, velocity), grad, x, cotangents)",
            "forward_over_reverse, (theta, velocity), None, x, cotangents)",
        ),
    ),
    *_wasted(
        "bilevel",
        "unequal_halves",
        "log_remat",
        story="steps are run again from the start, and not from the middle",
        torch=Edit("in_torch.static", "half = len(batches) // 2\n", "half = len(batches) - 1\n"),
    ),
    *_wasted(
        "bilevel",
        "runs_from_the_start",
        "log_remat",
        story="the start of a run is kept, but computed again from θ_0",
        jax=Edit(
            "in_jax.static",
            "        cotangents = _pull_halves(problem, inner, *run, cotangents)\n",
            "        again = _advance(problem, inner, problem.init(problem.params), 0, run[1])\n"
            "        cotangents = _pull_halves(problem, inner, again, *run[1:], cotangents)\n",
        ),
    ),
    *_wasted(
        "bilevel",
        "replayed_and_taken_again",
        "gradient_replay",
        story="inner gradients are kept, but computed again for their products",
        torch=Edit("in_torch.replay", "carry, grad, x, cotangents)", "carry, None, x, cotangents)"),
        jax=Edit("in_jax.replay", "carry, grad, x, cotangents), None", "carry, None, x, cotangents), None"),
    ),
)

_chain = functools.partial(_wasted, "chain")
_C, _E = functools.partial(Edit, "schedules.classic"), functools.partial(Edit, "in_torch.executor")
_REVOLVE = "classic.revolve(stages, classic.usual_checkpoints(stages))"
_FEWER = "classic.revolve(stages, max(1, classic.usual_checkpoints(stages) - 1))"
_SOLVED = "return by_schedule(problem, _solved(problem.spec.static(), budget))"
_TIGHTER = (
    "from gradgate.references.chain.schedules.solver import minimum_budget\n"
    "    budget = max(minimum_budget(costs_of(problem.spec)), budget // 2)\n    "
)

CHAIN = (
    *_chain(
        "slot_unused",
        "revolve",
        "one of the values that may be stored is never stored",
        torch=_T(_REVOLVE, _FEWER),
        jax=_J(_REVOLVE, _FEWER),
    ),
    *_chain(
        "three_quarters",
        "recursive",
        "a chain is cut at three quarters of its length, not in halves",
        both=_C("i + (j - i + 1) // 2", "i + max(1, 3 * (j - i) // 4)"),
    ),
    *_chain(
        "cut_off_by_one",
        "uniform_dp",
        "the first stored value is one stage after the optimal place",
        both=_C("each[best], best + 1\n", "each[best], min(best + 2, t - 1)\n"),
    ),
    *_chain(
        "too_many_segments",
        "sqrt_n",
        "there are twice as many segments as √N, so that fewer stages run only once",
        both=_C(
            'max(1, round(math.sqrt(check_integer("stages", stages, 1))))',
            'min(stages, max(1, round(2 * math.sqrt(check_integer("stages", stages, 1)))))',
        ),
    ),
    *_chain(
        "stage_run_twice",
        "sqrt_n",
        "a stage that is run forward is run twice",
        torch=_E("y = plain(stage, x)\n", "plain(stage, x)\n            y = plain(stage, x)\n"),
    ),
    *_chain(
        "recorded_after_a_run",
        "recompute_all",
        "a stage that is recorded is run forward before that",
        torch=_E("y, recording = record(", "plain(stage, x)\n            y, recording = record("),
    ),
    *bug(
        "chain",
        "budget_not_used_up",
        "precise_dp",
        source="new",
        story="half of the budget is not used, so more is run again",
        kill=("compute",),
        jax=_J(_SOLVED, f"{_TIGHTER}{_SOLVED}"),
    ),
    *impostor(
        "chain",
        "uniform_for_precise",
        "uniform_dp",
        "precise_dp",
        ("compute",),
        source="new",
        story="the uniform policy in place of the schedule of least compute",
    ),
)

MUTANTS = (*STATE_SPACE, *PERFORMER, *INVERTIBLE, *BILEVEL, *CHAIN)
