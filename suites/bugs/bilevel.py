"""Bugs of libraries for meta-learning and implicit differentiation, transferred to MixFlow-MG and its alternatives."""

from __future__ import annotations

import functools
from typing import Any

from gradgate.suites.bugs.declare import ROUNDING, bug, impostor
from gradgate.suites.bugs.edits import Edit
from gradgate.suites.bugs.mutant import Mutant

_mixflow = functools.partial(bug, "bilevel", method="mixflow")
_inversion = functools.partial(bug, "bilevel", method="momentum_inversion")
_compensated = functools.partial(bug, "bilevel", method="compensated_inversion")
_buffered = functools.partial(bug, "bilevel", method="buffered_inversion")
_drop_in = functools.partial(bug, "bilevel", method="mixflow_drop_in")
_forward = functools.partial(bug, "bilevel", method="forward_mode")
_sharded = functools.partial(bug, "bilevel", method="bilevel_sharded")
_autograd = functools.partial(bug, "bilevel", method="autograd_checkpoint")
_I = functools.partial(Edit, "inner.inverses")
_T, _J, _O = (functools.partial(Edit, module) for module in ("in_torch.methods", "in_jax.methods", "inner.optimisers"))

_RETURNED = "return _sum(d_theta, hessian), d_state, _sum(d_eta, d_eta_update, mixed)"
_PRODUCT_T, _PRODUCT_J = "hessian, mixed = products(v)\n", "hessian, mixed = product(inner, theta, eta, x, v)\n"
_KEPT_T = (
    "kept.append((x, carry, grad if save else None))\n        carry = problem.update(grad, *carry, problem.eta, x)"
)
_KEPT_J = "return problem.update(grad, *carry, eta, x), (carry, grad if save else None)"
_START = "        return theta, floats(state), eta\n"
_BACK_J = "jax.lax.scan(backward, cotangents, (problem.xs, kept), reverse=True)"


def _both(old: str, new: str) -> dict[str, Any]:
    """The same edit in the recursion of either framework."""
    return {"torch": _T(old, new), "jax": _J(old, new)}


PUBLISHED = (
    *_mixflow(
        name="silently_first_order",
        story="the Hessian's product is never added: first-order MAML",
        source="mrcl#15: create_graph missing, silently first order",
        **_both(_RETURNED, _RETURNED.replace("_sum(d_theta, hessian)", "d_theta")),
    ),
    *_mixflow(
        name="inner_gradient_detached",
        story="the inner gradient is detached from η",
        source="higher#129, #102: inner gradients detached from the parameters",
        **_both(_RETURNED, _RETURNED.replace("d_eta_update, mixed", "d_eta_update")),
    ),
    *_mixflow(
        name="epsilon_inside_the_root",
        story="Adam's epsilon is added under the root and not after it",
        source="higher#71: Adam's epsilon in the wrong place",
        both=_O(
            'safe_root(xp, v / second + h["epsilon_root"]) + h["epsilon"])',
            'safe_root(xp, v / second + h["epsilon_root"] + h["epsilon"]))',
        ),
    ),
    *_mixflow(
        name="unperturbed_in_the_loop",
        story="η is treated as a constant inside the loop over steps",
        source="jax#9567, diffrax#64: the perturbed-inputs test goes wrong inside scan, implicit gradients wrong",
        **_both(_RETURNED, _RETURNED.replace("_sum(d_eta, d_eta_update, mixed)", "d_eta")),
    ),
    *_mixflow(
        name="closed_over_once",
        story="values that the loop closes over get only the first step's gradient",
        source="PT#184528: scan's closed-over parameter, 0.191 for 0.269",
        **_both(_RETURNED, _RETURNED.replace("_sum(d_eta, d_eta_update, mixed)", "_sum(d_eta_update, mixed)")),
    ),
    *_inversion(
        name="velocity_explodes",
        story="the velocity is inverted with 1/μ² in place of 1/μ",
        source="diffrax#596: backward-in-time solve explodes",
        both=_O("(v - g) / momentum, velocity", "(v - g) / momentum / momentum, velocity"),
    ),
)

_D = (functools.partial(Edit, "in_torch.mixed_mode"), functools.partial(Edit, "in_jax.mixed_mode"))

STRUCTURAL = (
    *_drop_in(
        name="rule_without_eta",
        story="the rule gives η no cotangent, as if ∇L did not depend on it",
        source="Listing 1: a custom rule has to return a cotangent for every input",
        torch=_D[0]("*(found.get(i) for i in range(len(others)))", "*(None for _ in others)"),
        jax=_D[1]("dict(zip(places, by_floats,", "dict(zip(places, map(jnp.zeros_like, by_floats),"),
    ),
    *_compensated(
        name="beta_forgotten",
        story="m and v are inverted without the division by β",
        source="operator: drop a factor",
        both=_I(
            "words.over(backend, words.plus(word, words.minus(added)), (factor,))",
            "words.plus(word, words.minus(added))",
        ),
    ),
    *_buffered(
        name="bits_of_the_step_before",
        story="the bytes for inverting the steps are read in reversed order",
        source="operator: off by one in time",
        torch=Edit(
            "in_torch.buffered",
            "grid.velocity_before(grad, buffer.pop(), carry)",
            "grid.velocity_before(grad, buffer.pop(0), carry)",
        ),
        jax=Edit(
            "in_jax.buffered",
            "cotangents), (xs, buffer), reverse=True)",
            "cotangents), (xs, jax.tree.map(lambda leaf: leaf[::-1], buffer)), reverse=True)",
        ),
        kill=("stability",),
    ),
    *_forward(
        name="direction_of_two",
        story="the direction of forward mode has length 2 and not 1",
        source="operator: a wrong factor",
        jax=Edit("in_jax.forward", ".at[i].set(1)", ".at[i].set(2)"),
        torch=Edit("in_torch.forward", "chosen] = 1", "chosen] = 2"),
    ),
    *_autograd(
        name="no_graph_of_the_gradient",
        story="inner gradients are taken without a graph, so the Hessian is lost",
        source="mrcl#15: create_graph missing, silently first order",
        torch=Edit("in_torch.autograd", "flat, create_graph=True)", "flat)"),
    ),
    *_sharded(
        name="first_part_for_all",
        story="every device keeps the first device's part of a sum",
        source="operator: a wrong index",
        jax=Edit("in_jax.sharded", "psum_scatter(flat, AXIS) / devices", "psum(flat, AXIS)[0] / devices"),
    ),
    *_mixflow(
        name="hessian_sign",
        story="the Hessian's product enters with the wrong sign",
        source="operator: flip a sign",
        torch=_T(_RETURNED, "hessian = tree_map(torch.neg, hessian)\n    " + _RETURNED),
        jax=_J(_RETURNED, "hessian = jax.tree.map(jnp.negative, hessian)\n    " + _RETURNED),
    ),
    *_mixflow(
        name="state_path_missing",
        story="no cotangent of the optimiser's state reaches the step before",
        source="operator: missing residual path",
        torch=_T(_RETURNED, _RETURNED.replace("d_state,", "tree_map(torch.zeros_like, d_state),")),
        jax=_J(_RETURNED, _RETURNED.replace("d_state,", "jax.tree.map(jnp.zeros_like, d_state),")),
    ),
    *_mixflow(
        name="update_counted_twice",
        story="the direct dependence of the update on η is added twice",
        source="operator: double counting",
        **_both(_RETURNED, _RETURNED.replace("d_eta_update, mixed", "d_eta_update, d_eta_update, mixed")),
    ),
    *_mixflow(
        name="initial_path_dropped",
        story="the dependence of θ_0 on η is not added",
        source="operator: drop a term",
        torch=_T(_START, _START.replace("theta,", "tree_map(torch.Tensor.detach, theta),")),
        jax=_J(_START, _START.replace("theta,", "jax.lax.stop_gradient(theta),")),
    ),
    *_mixflow(
        name="steps_off_by_one",
        story="the VJP of each step is computed at the parameters after the step",
        source="operator: off by one in time",
        torch=_T(
            _KEPT_T,
            "grad_kept = grad if save else None\n        carry = problem.update(grad, *carry, problem.eta, x)\n"
            "        kept.append((x, carry, grad_kept))",
        ),
        jax=_J(
            _KEPT_J,
            "new = problem.update(grad, *carry, eta, x)\n        return new, (new, grad if save else None)",
        ),
    ),
    *_mixflow(
        name="steps_in_order",
        story="the VJPs of the steps are computed from the first step to the last",
        source="operator: reversed order",
        torch=_T("x, before, grad = kept.pop()", "x, before, grad = kept.pop(0)"),
        jax=_J(_BACK_J, _BACK_J.replace(", reverse=True", "")),
    ),
    *_mixflow(
        name="batch_stale",
        story="the VJP of each step is computed with the batch of the step before it",
        source="operator: stale state",
        torch=_T(
            "kept.append((x, carry, grad if save else None))",
            "kept.append((kept[-1][0] if kept else x, carry, grad if save else None))",
        ),
        jax=_J(
            _BACK_J,
            _BACK_J.replace("(problem.xs,", "(jax.tree.map(lambda leaf: jnp.roll(leaf, 1, 0), problem.xs),"),
        ),
    ),
    *_mixflow(
        name="downcast_of_the_vector",
        kill=ROUNDING,
        story="the vector of the second derivatives is cast to float32 and back",
        source="operator: downcast in the middle",
        torch=_T(_PRODUCT_T, "hessian, mixed = products(tree_map(lambda leaf: leaf.float().to(leaf.dtype), v))\n"),
        jax=_J(
            _PRODUCT_J,
            "v = jax.tree.map(lambda leaf: leaf.astype(jnp.float32).astype(leaf.dtype), v)\n    " + _PRODUCT_J,
        ),
    ),
    *_inversion(
        name="step_not_taken_back",
        story="θ_i is rebuilt without its step",
        source="operator: stale state",
        both=_O(
            "lambda a, v, p: p + a * v, rate, velocity, theta", "lambda a, v, p: p + 0 * a * v, rate, velocity, theta"
        ),
    ),
)


def _storing(name: str, other: str, method: str, story: str, source: str) -> tuple[Mutant, ...]:
    """Another method in place of one that saves memory; only in JAX: there are no claims about PyTorch's bytes."""
    both = impostor("bilevel", name, other, method, ("memory_law",), story=story, source=source)
    return tuple(mutant for mutant in both if mutant.framework == "jax")


MEMORY = (
    *_storing(
        "nothing_saved",
        "truncated_bptt",
        "mixflow",
        "reverse mode over reverse mode, independent of the options",
        "tensorflow PR 39042: recomputation that saved nothing: count recomputations and measure bytes",
    ),
    *_storing(
        "grows_with_the_steps",
        "mixflow",
        "momentum_inversion",
        "states are stored although the inverse gives them",
        "MemCNN#41: memory not constant in depth",
    ),
    *_mixflow(
        name="policy_matches_nothing",
        kill=("memory_law",),
        story="layers are rematerialised by a policy that saves everything",
        source="PT#176065: a selective policy that matches nothing",
        jax=_J(
            "functools.partial(jax.checkpoint, prevent_cse=False)",
            "functools.partial(jax.checkpoint, prevent_cse=False, policy=jax.checkpoint_policies.everything_saveable)",
        ),
    ),
)

MUTANTS = (*PUBLISHED, *STRUCTURAL, *MEMORY)
