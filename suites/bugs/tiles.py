"""Tiles of 32, 64 and 128: the ragged end is dropped, a border is off by one, or nothing is passed across it.

Kernels cut a sequence, or a batch, into tiles of these sizes. Bugs in this do not show on problems that fit into one
tile. Every bug is declared once for each size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from gradgate.suites.bugs.casts import numbered
from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.edits import Edit
from gradgate.suites.bugs.mutant import Mutant

SIZES = (32, 64, 128)
_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")
_TA, _JA = functools.partial(Edit, "in_torch.attention"), functools.partial(Edit, "in_jax.attention")


def _each(made: Callable[[int], tuple[Mutant, ...]]) -> tuple[Mutant, ...]:
    """The mutants of one bug at every size."""
    return tuple(mutant for size in SIZES for mutant in made(size))


_recurrence = functools.partial(bug, "state_space", method="reverse_recurrence")
_CARRY_T = "mus.append(direct[i] + carry)\n"
_STATES_T = "transition_vjp(problem, p, x, h[:-1], torch.stack(mus[::-1]))"
_STATES_J = "problem.transition_cotangent(mus, states[:-1])"


def _carry_lost(size: int) -> tuple[Mutant, ...]:
    border = f"(i + 1) % {size} == 0"
    return _recurrence(
        name=f"carry_lost_at_{size}",
        source="new",
        story=f"within a slice, a tile of {size} tokens does not get the cotangent of its last state",
        torch=_T(_CARRY_T, f"mus.append(direct[i] + carry * (not ({border} and i + 1 < len(x))))\n"),
        jax=numbered(f"mu = jnp.where(({border}) & (i + 1 < len(x)), top, mu)"),
    )


def _tail_dropped(size: int) -> tuple[Mutant, ...]:
    kept = f"len(x) // {size} * {size} or len(x)"
    return _recurrence(
        name=f"tail_dropped_{size}",
        source="new",
        story=f"in a slice longer than a tile of {size} tokens, the ragged last tile adds no cotangent",
        torch=_T(_CARRY_T, f"mus.append(direct[i] * (i < ({kept})) + carry)\n"),
        jax=numbered(f"mu = jnp.where(i < ({kept}), mu, mu - top)"),
    )


def _border_off(size: int) -> tuple[Mutant, ...]:
    return _recurrence(
        name=f"border_off_by_one_{size}",
        source="fla PR 781, #1115: head or sequence offset missing",
        story=f"the first token of every tile of {size} except the first reads the state after it, not before it",
        torch=_T(
            _STATES_T,
            "transition_vjp(problem, p, x, torch.stack([h[t + (0 < t and t % "
            f"{size} == 0)] for t in range(len(x))]), torch.stack(mus[::-1]))",
        ),
        jax=_J(
            _STATES_J,
            "problem.transition_cotangent(mus, states[jnp.arange(len(x)) + ((jnp.arange(len(x)) > 0) & "
            f"(jnp.arange(len(x)) % {size} == 0))])",
        ),
    )


def _border_off_in(structure: str, size: int) -> tuple[Mutant, ...]:
    return _recurrence(
        name=f"border_off_by_one_{size}_if_{structure}",
        source="fla PR 781, #1115: head or sequence offset missing",
        story=f"as border_off_by_one_{size}, but only if A is {structure}",
        torch=_T(
            _STATES_T,
            f"transition_vjp(problem, p, x, torch.stack([h[t + (0 < t and t % {size} == 0 and "
            f"problem.spec.structure == '{structure}')] for t in range(len(x))]), torch.stack(mus[::-1]))",
        ),
        jax=_J(
            _STATES_J,
            "problem.transition_cotangent(mus, states[jnp.arange(len(x)) + ((jnp.arange(len(x)) > 0) & "
            f"(jnp.arange(len(x)) % {size} == 0) & (problem.spec.structure == '{structure}'))])",
        ),
    )


def _mask_forgets(size: int) -> tuple[Mutant, ...]:
    cut = f"len(x) // {size} * {size}"
    return _recurrence(
        name=f"remainder_unmasked_{size}",
        source="mamba bb3a82a: a mask turns dx into NaN when the length is no multiple of 256",
        story=f"after the last whole tile of {size} tokens, values beyond the end are NaN and multiplied by 0",
        torch=_T(
            "return {**grads, **grad_C}, g + norm_vjp(g_x + g_state)[0], carry",
            f"read = torch.where(torch.arange(len(x)) < ({cut} or len(x)), 1.0, float('nan')).to(g)[:, None, None]\n"
            "    return {**grads, **grad_C}, g + norm_vjp(g_x + g_state * read)[0], carry",
        ),
        jax=_J(
            "return g + pull_norm(dx + matvec(jnp, b.mT, mus))[0]",
            f"read = jnp.where(jnp.arange(len(x)) < ({cut} or len(x)), 1.0, jnp.nan).astype(g.dtype)[:, None, None]\n"
            "        return g + pull_norm((dx + matvec(jnp, b.mT, mus)) * read)[0]",
        ),
    )


def _window_capped(size: int) -> tuple[Mutant, ...]:
    return bug(
        "state_space",
        f"lags_beyond_{size}",
        "adjoint_sharding",
        source="new",
        story=f"lags of at least {size} tokens, beyond the first tile, are left out",
        torch=_T("for lag in range(1, min(window, len(x))):", f"for lag in range(1, min(window, len(x), {size})):"),
        jax=_J("W = min(window, T)\n", f"W = min(window, T, {size})\n"),
    )


STATE_SPACE = (
    *_each(_carry_lost),
    *_each(_tail_dropped),
    *_each(_border_off),
    *_each(_mask_forgets),
    *_each(_window_capped),
    *_border_off_in("diagonal", 64),
    *_border_off_in("scalar", 128),
)

_slim = functools.partial(bug, "performer", method="slim", source="new")


def _sums_restart(size: int) -> tuple[Mutant, ...]:
    """Edits of the prefix sums over the tokens of a slice, in PyTorch and JAX; `at` are the numbers of the tokens."""
    begun = (
        f"U - U[jnp.maximum(at // {size} * {size} - 1, 0)] * (at >= {size}).astype(U.dtype)[:, None, None, None, None]"
    )
    in_torch = begun.replace("jnp.maximum", "torch.clamp_min").replace("astype", "to")
    return _slim(
        name=f"sums_restart_at_{size}",
        story=f"explicit prefix sums within a slice start again after every tile of {size} tokens",
        torch=_TA(
            "        return contract(U, q), U[-1].clone()",
            f"        at = torch.arange(len(U))\n        U = {in_torch}\n        return contract(U, q), U[-1].clone()",
        ),
        jax=_JA(
            "return contract(U, q), U[-1]\n",
            f"at = jnp.arange(len(U))\n        U = {begun}\n        return contract(U, q), U[-1]\n",
        ),
    )


def _slice_dropped(size: int) -> tuple[Mutant, ...]:
    return _slim(
        name=f"last_slice_dropped_{size}",
        story=f"tokens after the last whole tile of {size} do not count in the loss of their slice",
        both=Edit(
            "problem",
            "counted = xp.astype(targets >= 0, out.dtype)\n",
            f"whole = self.length // {size} * {size} or self.length\n"
            "        at = (start + xp.arange(X.shape[0], dtype=xp.int32))[:, None]\n"
            "        counted = xp.astype((targets >= 0) & (at < whole), out.dtype)\n"
            "        hot = hot * counted[..., None]\n",
        ),
    )


def _stride_lost(size: int) -> tuple[Mutant, ...]:
    return _slim(
        name=f"stride_lost_{size}",
        story=f"a slice that starts after the first tile of {size} tokens counts positions from the tile's start",
        both=Edit(
            "rowwise",
            "position = xp.astype(start + 1 + xp.arange(count, dtype=xp.int32), wide)",
            f"position = xp.astype(start % {size} + 1 + xp.arange(count, dtype=xp.int32), wide)",
        ),
    )


PERFORMER = (*_each(_sums_restart), *_each(_slice_dropped), *_each(_stride_lost))


def _batch_tail(size: int) -> tuple[Mutant, ...]:
    """Edits that treat samples after the last whole tile as constants."""
    cut = f"x.shape[0] // {size} * {size} or x.shape[0]"
    return bug(
        "chain",
        f"batch_tail_dropped_{size}",
        "recompute_all",
        source="new",
        story=f"weights get no gradient from samples after the last whole tile of {size}",
        both=Edit(
            "problem",
            'return self.xp.matmul(self.xp.tanh(self.xp.matmul(x, p["v"])), p["w"])',
            "from gradgate.references.backends import stop_gradient\n"
            '        inner = self.xp.tanh(self.xp.matmul(x, p["v"]))\n'
            f"        cut = {cut}\n"
            '        tail = self.xp.matmul(inner[cut:], stop_gradient(self.backend, p["w"]))\n'
            '        return self.xp.concat([self.xp.matmul(inner[:cut], p["w"]), tail], axis=0)',
        ),
    )


def _points_tail(size: int) -> tuple[Mutant, ...]:
    cut = f"each.shape[0] // {size} * {size} or each.shape[0]"
    return bug(
        "bilevel",
        f"batch_tail_dropped_{size}",
        "mixflow",
        source="new",
        story=f"data points after the last whole tile of {size} do not count in the gradient of the inner loss",
        both=Edit(
            "problem",
            "        return xp.mean(each)\n",
            "        from gradgate.references.backends import stop_gradient\n"
            f"        cut = {cut}\n"
            "        return xp.mean(xp.concat([each[:cut], stop_gradient(self.backend, each[cut:])], axis=0))\n",
        ),
    )


OVER_BATCHES = (*_each(_batch_tail), *_each(_points_tail))

MUTANTS = (*STATE_SPACE, *PERFORMER, *OVER_BATCHES)
