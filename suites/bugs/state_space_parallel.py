"""Bugs of the parallel methods of the class state_space: joined walks, colliding writes, composed maps."""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.edits import Edit

_PT, _PJ = functools.partial(Edit, "in_torch.parallel"), functools.partial(Edit, "in_jax.parallel")
_parallel = functools.partial(bug, "state_space", method="adjoint_parallel")
_distributed = functools.partial(bug, "state_space", method="adjoint_distributed_truncated")
_DJ = functools.partial(Edit, "in_jax.distributed")  # PyTorch's ranks cannot unpickle objects of an edited module
_scan = functools.partial(bug, "state_space", method="associative_scan")

AT_ONCE = (
    *_parallel(
        name="walk_not_started_anew",
        story="the second token's walk continues with the adjoint state of the first",
        source="new: carries of joined loops",
        torch=_PT("if token == reached]", "if token == reached and not step]"),
        jax=_PJ(
            "jnp.where((i == t)[:, None, None], tops[t], mu)",
            "jnp.where(((i == t) & (t == first - 1))[:, None, None], tops[t], mu)",
        ),
    ),
    *_parallel(
        name="writes_collide",
        story="if two instances are at one token, the cotangent of one is lost",
        source="fla PR 941: a race in value tiles above 64",
        torch=_PT("g_x = g_x.index_add(0, i, g_i)", "g_x = g_x.index_copy(0, i, g_x[i] + g_i)"),
        jax=_PJ(
            "dx = dx.at[i].add(dx_nets + matvec(jnp, b.mT, mu))",
            "dx = dx.at[i].set(dx[i] + dx_nets + matvec(jnp, b.mT, mu))",
        ),
    ),
    *_parallel(
        name="last_group_left_out",
        kill=("options",),
        also=("vjp_count",),
        story="walks that do not fill a whole group of instances are left out",
        source="operator: the remainder of a division",
        torch=_PT(
            "for group in walks.groups(instances):",
            "for group in [g for g in walks.groups(instances) if len(g) == len(walks.groups(instances)[0])]:",
        ),
        jax=_PJ(
            "return stacks + [(len(group), jnp.asarray([list(group)])) for group in groups[len(full) :]]",
            "return stacks",
        ),
    ),
    *_parallel(
        name="gradients_kept",
        kill=("memory_law",),
        story="the gradients of C for all batches of tokens are kept, and added up at the end",
        source="new: this suite's own law of memory found it in the first version of adjoint_parallel",
        torch=_PT(
            'grads = tree_map(torch.add, grads, part["C"])',
            'grads = [*(grads if start else []), part["C"]]\n'
            "        if start + instances >= len(x):\n"
            "            grads = tree_map(lambda *each: torch.stack(each).sum(0), *grads)",
        ),
    ),
    *_distributed(
        name="window_not_sent",
        kill=("options",),
        also=("vjp_count",),
        story="the devices ignore the window: each token reaches all others",
        source="operator: an option without effect",
        jax=_DJ("pull_layer(problem, p, saved, g, window or T)", "pull_layer(problem, p, saved, g, T)"),
    ),
    *_scan(
        name="maps_in_the_wrong_order",
        story="two maps are composed in the wrong order: A₁A₂, A₁b₂ + b₁",
        source="operator: reversed order",
        torch=_PT("(a, b), (c, d) = first, then", "(c, d), (a, b) = first, then"),
        jax=_PJ("(a, b), (c, d) = first, then", "(c, d), (a, b) = first, then"),
    ),
    *_scan(
        name="last_of_an_odd_length",
        story="if the number of tokens is odd, the state of the last token is zero",
        source="mamba bb3a82a: a mask turns dx into NaN when the length is no multiple of 256",
        torch=_PT("return torch.cat([both, even[len(odd) :]])", "return torch.cat([both, 0 * even[len(odd) :]])"),
        jax=_PJ(
            "return y + matvec(jnp, problem.C(p, x), states)",
            "states = states.at[-1].multiply(1 - len(states) % 2 * (len(states) > 1))\n"
            "    return y + matvec(jnp, problem.C(p, x), states)",
        ),
    ),
)
