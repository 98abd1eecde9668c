"""Casts in the middle of a recurrence: the formula is right, but digits are lost that plain backprop keeps.

Sixty digits count a cast as exact. So these bugs test what the float claims detect alone: a cast at one step, at every
step, or only far from the start of a recurrence.
"""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import ROUNDING, bug
from gradgate.suites.bugs.edits import Edit

_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")
_TA, _JA = functools.partial(Edit, "in_torch.attention"), functools.partial(Edit, "in_jax.attention")
_BFLOAT16 = ("gradient_bfloat16",)
_BOTH = ("gradient_float32",)
"""The claims that must also refute a cast in any dtype, in addition to `ROUNDING`."""


def _t(x: str, to: str = "float16") -> str:
    """A PyTorch expression that is cast to a narrower dtype and back."""
    return f"({x}).to(torch.{to}).to(({x}).dtype)"


def _j(x: str, to: str = "float16") -> str:
    """A JAX expression that is cast to a narrower dtype and back."""
    return f"({x}).astype(jnp.{to}).astype(({x}).dtype)"


_SCANNED_J = "(a, matvec(jnp, c.mT, g)), reverse=True)"
_TOP_J = "a, top = xs\n            mu = top + mu\n"


def numbered(change: str) -> tuple[Edit, ...]:
    """An edit of the recurrence of μ in JAX whose step gets its token's number i; `change` is a line about mu."""
    return (
        _J(_TOP_J, f"a, top, i = xs\n            mu = top + mu\n            {change}\n"),
        _J(_SCANNED_J, "(a, matvec(jnp, c.mT, g), jnp.arange(len(x))), reverse=True)"),
    )


_recurrence = functools.partial(bug, "state_space", method="reverse_recurrence", source="new")
_CARRY_T = "mus.append(direct[i] + carry)\n"

STATE_SPACE = (
    *_recurrence(
        name="carry_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="Aᵀμ is cast to float16 between a slice and the slice before it",
        torch=_T("norm_vjp(g_x + g_state)[0], carry\n", f"norm_vjp(g_x + g_state)[0], {_t('carry')}\n"),
        jax=_J("b.mT, mus))[0], (before, dp)", f"b.mT, mus))[0], ({_j('before')}, dp)"),
    ),
    *_recurrence(
        name="start_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="the state at the start of a slice is kept in float16",
        torch=_T("[h[-1].clone() for _, _, h in trace]", f"[{_t('h[-1]')} for _, _, h in trace]"),
        jax=_J("return states[:, -1], h\n", f"return states[:, -1], {_j('h')}\n"),
    ),
    *_recurrence(
        name="decay_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="the backward recurrence reads the decay from float16",
        torch=_T("mus = []\n", f"mus = []\n    a = {_t('a')}\n"),
        jax=_J(_SCANNED_J, _SCANNED_J.replace("(a,", f"({_j('a')},")),
    ),
    *_recurrence(
        name="one_step_in_half",
        kill=("gradient_float32",),
        story="in float32, μ passes through bfloat16 at one token in the middle of a slice",
        torch=_T(
            _CARRY_T,
            f"{_CARRY_T}        if i == len(x) // 2 and carry.dtype == torch.float32:\n"
            f"            mus[-1] = {_t('mus[-1]', 'bfloat16')}\n",
        ),
        jax=numbered(f"mu = jnp.where((i == len(x) // 2) & (mu.dtype == jnp.float32), {_j('mu', 'bfloat16')}, mu)"),
    ),
    *(
        mutant
        for tile in (32, 64, 128)
        for mutant in _recurrence(
            name=f"half_beyond_{tile}",
            kill=("options",),
            story=f"μ passes through float16 at every token but the last {tile} of a slice",
            torch=_T(_CARRY_T, f"{_CARRY_T}        mus[-1] = {_t('mus[-1]')} if i < len(x) - {tile} else mus[-1]\n"),
            jax=numbered(f"mu = jnp.where(i < len(x) - {tile}, {_j('mu')}, mu)"),
        )
    ),
    *_recurrence(
        name="eight_bits_in_bfloat16",
        kill=_BFLOAT16,
        story="in bfloat16, μ passes through a float of eight bits at every token",
        torch=_T(
            _CARRY_T,
            f"{_CARRY_T}        if carry.dtype == torch.bfloat16:\n"
            f"            mus[-1] = {_t('mus[-1]', 'float8_e5m2')}\n",
        ),
        jax=_J(_TOP_J, f"{_TOP_J}            mu = {_j('mu', 'float8_e5m2')} if mu.dtype == jnp.bfloat16 else mu\n"),
    ),
    *bug(
        "state_space",
        "sums_in_bfloat16",
        "adjoint_sharding",
        kill=_BFLOAT16,
        source="new",
        story="in bfloat16, the gradients of all pairs of tokens are added up one by one, and not in float32",
        jax=(
            _J("leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))", "leaf"),
            _J("(*place, zeros, dx)", "(*place, grads, dx)"),
            _J("(*place, add(grads, part), dx)", "(*place, part, dx)"),
        ),
    ),
)

_kept = functools.partial(bug, "performer", method="slim_kept", source="new")
_NEXT_T = "            outs.append(out)\n"
_GRAD_J = "after, grad = grad, grad + summed(q, g)\n"

PERFORMER = (
    *_kept(
        name="block_state_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="the state is cast to float16 between blocks",
        torch=_TA(_NEXT_T, f"{_NEXT_T}            state = {_t('state')}\n"),
        jax=_JA("return after, (out, state)", f"return {_j('after')}, (out, state)"),
    ),
    *_kept(
        name="block_cotangent_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="the cotangent of the state is cast to float16 between blocks",
        torch=_TA("                grad = before\n", f"                grad = {_t('before')}\n"),
        jax=_JA(_GRAD_J, f"{_GRAD_J}    grad = {_j('grad')}\n"),
    ),
    *_kept(
        name="kept_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="states before slices are kept in bfloat16",
        torch=_T("kept[i] = states\n", f"kept[i] = [{_t('state', 'bfloat16')} for state in states]\n"),
        jax=_J("jnp.where(i % every == 0, states, kept", f"jnp.where(i % every == 0, {_j('states', 'bfloat16')}, kept"),
    ),
    *_kept(
        name="slice_cotangent_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="the cotangents of the states are cast to float16 between slices",
        torch=_T("earlier.insert(0, cotangent)", f"earlier.insert(0, {_t('cotangent')})"),
        jax=_J("return loss, states, cotangents, grads\n", f"return loss, states, {_j('cotangents')}, grads\n"),
    ),
    *_kept(
        name="eight_bits_in_bfloat16",
        kill=_BFLOAT16,
        story="in bfloat16, the state is cast to a float of eight bits between blocks",
        torch=_TA(
            _NEXT_T,
            f"{_NEXT_T}            state = {_t('state', 'float8_e5m2')} if q.dtype == torch.bfloat16 else state\n",
        ),
        jax=_JA(
            "return after, (out, state)",
            "narrow = prepared[0].dtype == jnp.bfloat16\n"
            f"        return {_j('after', 'float8_e5m2')} if narrow else after, (out, state)",
        ),
    ),
)

_reversible = functools.partial(bug, "invertible", method="reversible", source="new")
_mixed = functools.partial(bug, "invertible", method="moonwalk_mixed", source="new")
_L = functools.partial(Edit, "layers")


def _xp(x: str, to: str = "float16") -> str:
    """An Array API expression, within a layer, that is cast to a narrower dtype and back."""
    return f"self.xp.astype(self.xp.astype({x}, self.xp.{to}), ({x}).dtype)"


_REBUILT = "return self._join(x1, x2), self._join(h1, h2), dp"

INVERTIBLE = (
    *_reversible(
        name="rebuilt_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="an input that is rebuilt passes through bfloat16",
        both=_L(_REBUILT, _REBUILT.replace("x1, x2", "x1, " + _xp("x2", "bfloat16"))),
    ),
    *_reversible(
        name="cotangent_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="h passes through float16 at every coupling",
        both=_L(_REBUILT, _REBUILT.replace("h1, h2", _xp("h1") + ", h2")),
    ),
    *_mixed(
        name="half_between_blocks",
        kill=("options",),
        story="h passes through float16 before it is down-sampled",
        both=_L("return self(p, x), self(p, h), {}", f"return self(p, x), self(p, {_xp('h')}), {{}}"),
    ),
    *_mixed(
        name="solved_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="the matrix of a solve is cast to bfloat16 and back",
        both=Edit("matrices", "linalg.solve(matrix,", f"linalg.solve({_xp('matrix', 'bfloat16')},"),
    ),
    *_mixed(
        name="one_step_in_half",
        kill=("gradient_float32",),
        story="in float32, h_0 passes through bfloat16 once, between the two phases",
        torch=_T(
            "    h, handed = input_gradient_reverse(problem)\n",
            "    h, handed = input_gradient_reverse(problem)\n"
            f"    h = {_t('h', 'bfloat16')} if h.dtype == torch.float32 else h\n",
        ),
        jax=_J(
            "    h, handed = input_gradient_reverse(problem)\n",
            "    h, handed = input_gradient_reverse(problem)\n"
            f"    h = {_j('h', 'bfloat16')} if h.dtype == jnp.float32 else h\n",
        ),
    ),
)

_mixflow = functools.partial(bug, "bilevel", method="mixflow", source="new")
_RETURNED = "return _sum(d_theta, hessian), d_state, _sum(d_eta, d_eta_update, mixed)"
_TREE_T = f"torch.utils._pytree.tree_map(lambda leaf: {_t('leaf')}, "
_TREE_J = f"jax.tree.map(lambda leaf: {_j('leaf')}, "
_KEPT_T, _KEPT_J = "kept.append((x, carry, grad if save else None))", "(carry, grad if save else None)"

BILEVEL = (
    *_mixflow(
        name="saved_gradients_in_half",
        kill=("options",),
        story="inner gradients that are saved are kept in float16",
        torch=_T(_KEPT_T, _KEPT_T.replace("grad if", f"{_TREE_T}grad) if")),
        jax=_J(_KEPT_J, _KEPT_J.replace("grad if", f"{_TREE_J}grad) if")),
    ),
    *_mixflow(
        name="kept_states_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="θ and υ of every step are kept in float16",
        torch=_T(_KEPT_T, _KEPT_T.replace("carry", f"{_TREE_T}carry)")),
        jax=_J(_KEPT_J, _KEPT_J.replace("carry", f"{_TREE_J}carry)")),
    ),
    *_mixflow(
        name="state_cotangent_in_half",
        kill=ROUNDING,
        also=_BOTH,
        story="the cotangent of the optimiser's state passes through float16 at every step",
        torch=_T(_RETURNED, _RETURNED.replace("d_state", f"{_TREE_T}d_state)")),
        jax=_J(_RETURNED, _RETURNED.replace("d_state", f"{_TREE_J}d_state)")),
    ),
    *_mixflow(
        name="eight_bits_in_bfloat16",
        kill=_BFLOAT16,
        story="in bfloat16, θ and υ of every step are kept in floats of eight bits",
        torch=_T(
            _KEPT_T,
            "narrow = torch.utils._pytree.tree_map(lambda leaf: "
            f"{_t('leaf', 'float8_e5m2')} if leaf.dtype == torch.bfloat16 else leaf, carry)\n"
            f"        {_KEPT_T.replace('carry', 'narrow')}",
        ),
        jax=_J(
            _KEPT_J,
            "(jax.tree.map(lambda leaf: "
            f"{_j('leaf', 'float8_e5m2')} if leaf.dtype == jnp.bfloat16 else leaf, carry), grad if save else None)",
        ),
    ),
    *bug(
        "bilevel",
        "replayed_in_half",
        "gradient_replay",
        kill=ROUNDING,
        also=_BOTH,
        source="new",
        story="the inner gradients from which states are made again are kept in float16",
        torch=Edit("in_torch.replay", "problem.update(earlier,", f"problem.update({_TREE_T}earlier),"),
        jax=Edit("in_jax.replay", "(numbers, xs, grads))[0]", f"(numbers, xs, {_TREE_J}grads)))[0]"),
    ),
    *bug(
        "bilevel",
        "middle_in_half",
        "log_remat",
        kill=ROUNDING,
        also=_BOTH,
        source="new",
        story="the states in the middle from which steps are run again are kept in float16",
        torch=Edit(
            "in_torch.static",
            "runs.append((carry, batches[:half]))",
            f"runs.append(({_TREE_T}carry), batches[:half]))",
        ),
        jax=Edit(
            "in_jax.static",
            "jax.tree.map(lambda *leaves: jnp.stack(leaves), carry, middle)",
            f"jax.tree.map(lambda *leaves: {_j('jnp.stack(leaves)')}, carry, middle)",
        ),
    ),
)

_HANDED = "return (None, None, first, None, *others, *(gradients.get(id(p)) for p in ctx.parameters))"
_TIED_J = "lambda _, cotangents: jax.lax.optimization_barrier(cotangents))"

CHAIN = (
    *bug(
        "chain",
        "cotangent_in_half",
        "revolve",
        kill=ROUNDING,
        also=_BOTH,
        source="new",
        story="the cotangent is cast to float16 between stages",
        torch=Edit(
            "in_torch.executor",
            _HANDED,
            f"first = first if first is None else {_t('first')}\n        {_HANDED}",
        ),
        jax=_J(
            _TIED_J,
            "lambda _, cotangents: jax.lax.optimization_barrier("
            f"(cotangents[0], {_j('cotangents[1]').replace('jnp', 'jax.numpy')})))",
        ),
    ),
    *bug(
        "chain",
        "one_step_in_half",
        "sqrt_n",
        kill=("gradient_float32",),
        source="new",
        story="in float32, the cotangent passes through bfloat16 between the third stage and the second",
        torch=Edit(
            "in_torch.executor",
            _HANDED,
            "if ctx.number == 3 and first is not None and first.dtype == torch.float32:\n"
            f"            first = {_t('first', 'bfloat16')}\n        {_HANDED}",
        ),
    ),
    *bug(
        "chain",
        "eight_bits_in_bfloat16",
        "recursive",
        kill=_BFLOAT16,
        source="new",
        story="in bfloat16, the cotangent is cast to a float of eight bits between stages",
        torch=Edit(
            "in_torch.executor",
            _HANDED,
            "if first is not None and first.dtype == torch.bfloat16:\n"
            f"            first = {_t('first', 'float8_e5m2')}\n        {_HANDED}",
        ),
    ),
    *bug(
        "chain",
        "values_in_half",
        "uniform_dp",
        kill=ROUNDING,
        also=_BOTH,
        source="new",
        story="a value that is stored for a recomputation is stored in float16",
        torch=Edit(
            "in_torch.executor",
            "self.values[number], self.versions[number] = y, versions_of(y)\n",
            f"y = {_t('y')}\n        self.values[number], self.versions[number] = y, versions_of(y)\n",
        ),
    ),
)

MUTANTS = (*STATE_SPACE, *PERFORMER, *INVERTIBLE, *BILEVEL, *CHAIN)
