"""Bugs of checkpointing libraries, transferred to the executor and the schedules of the chain."""

from __future__ import annotations

import dataclasses
import functools

from gradgate.references.chain import errata
from gradgate.references.contract import Claim
from gradgate.suites.bugs import chain_executor
from gradgate.suites.bugs.declare import bug, impostor
from gradgate.suites.bugs.edits import Edit
from gradgate.suites.bugs.mutant import Mutant

_bug = functools.partial(bug, "chain")
_revolve = functools.partial(_bug, method="revolve")
_sqrt = functools.partial(_bug, method="sqrt_n")
_E, _S = functools.partial(Edit, "in_torch.executor"), functools.partial(Edit, "in_torch.stages")
_T, _J = functools.partial(Edit, "in_torch.methods"), functools.partial(Edit, "in_jax.methods")

_HANDED = "return (None, None, first, None, *others, *(gradients.get(id(p)) for p in ctx.parameters))"
_SAVE_J = "x, plan = layers[plan.start](*_tied(params[plan.start], x)), plan.rest"
_SPLIT_J = "x, plan = jax.checkpoint(functools.partial(_run, layers, plan.left))(own, x), plan.right"
_TIED_J = "lambda _, cotangents: jax.lax.optimization_barrier(cotangents))"
_PLAIN_T = "y = plain(stage, x)\n"

PUBLISHED = (
    *_revolve(
        name="first_input_frozen",
        story="the input needs no gradient, so the parameters of the first stage get none",
        source="PT#7617, RevTorch#11: no input requires a gradient, so parameters get none",
        torch=(
            _T("tuple(leaves(p)), name=", "tuple(leaves(p)) if number > 1 or problem.spec.layers == 1 else (), name="),
            _T(
                '[leaf for p in params["layers"] for leaf in p.values()]))',
                '[leaf for p in params["layers"] for leaf in p.values()], allow_unused=True, materialize_grads=True))',
            ),
        ),
        jax=_J(
            'return _run(layers, plan, [*params["layers"], {}], problem.x)',
            'first, *others = params["layers"]\n'
            "        return _run(layers, plan, [jax.lax.stop_gradient(first), *others, {}], problem.x)",
        ),
    ),
    *_revolve(
        name="recomputed_in_half",
        kill=("gradient_float64",),
        story="a stage that is run again runs in a lower precision than the first time",
        source="PT#71124, fairscale#1199: bf16 autocast recomputed as fp16",
        torch=(
            _E(
                _PLAIN_T,
                "y = plain(stage, x)\n            if number in self.first:\n"
                "                y = y.to({torch.float64: torch.float32}.get(y.dtype, torch.bfloat16)).to(y.dtype)\n",
            ),
            chain_executor.BLIND,
        ),
        jax=_J(
            _SPLIT_J,
            "lower = {'float64': 'float32'}.get(str(x.dtype), 'bfloat16')\n            x, plan = jax.checkpoint("
            "functools.partial(_run, layers, plan.left))(own, x.astype(lower).astype(x.dtype)), plan.right",
        ),
    ),
    *_revolve(
        name="shared_twice",
        story="the gradient of the first parameter of every stage is counted twice",
        source="PT#81296: a shared parameter's hook fires twice",
        torch=_E(
            _HANDED,
            "own = [gradients.get(id(p)) for p in ctx.parameters]\n"
            "        return (None, None, first, None, *others, "
            "*(2 * g if g is not None and n == 0 else g for n, g in enumerate(own)))",
        ),
        jax=_J(
            _TIED_J,
            "lambda _, cotangents: (jax.tree.map(lambda leaf: 2 * leaf, cotangents[0]), cotangents[1]))",
        ),
    ),
    *_revolve(
        name="first_order_in_silence",
        kill=("refuses_second_order",),
        story="with create_graph, the gradients are constants, and there is no error",
        source="mrcl#15: create_graph missing, silently first order",
        torch=(
            _E("        if torch.is_grad_enabled():\n", "        if False:\n"),
            _E("    if torch._C._functorch.peek_interpreter_stack() is not None:\n", "    if False:\n"),
            _T(
                "params = tree_map(lambda p: p.detach().requires_grad_(), problem.params)\n    loss = execute",
                "from torch._functorch.eager_transforms import _unwrap_for_grad\n"
                "    params = tree_map(lambda p: torch.tensor(p.tolist(), dtype=p.dtype).requires_grad_(), "
                "problem.params)\n    loss = execute",
            ),
        ),
    ),
    *_revolve(
        name="refuses_by_accident",
        kill=("refuses_vmap",),
        story="under vmap it fails somewhere inside, and not with a message that refuses vmap",
        source="jax PR 6127: a forward-mode derivative through a custom reverse rule is a TypeError",
        torch=_E("    if torch._C._functorch.peek_interpreter_stack() is not None:\n", "    if False:\n"),
    ),
)

STRUCTURAL = (
    *_revolve(
        name="cotangent_detached",
        story="no cotangent passes from the third stage to the second",
        source="operator: detached input",
        torch=_E(_HANDED, _HANDED.replace("first,", "first * (ctx.number != 3) if first is not None else first,")),
    ),
    *_sqrt(
        name="cotangent_detached",
        story="no cotangent passes from the third stage to the second",
        source="operator: detached input",
        jax=_J(
            _SAVE_J,
            "x = jax.lax.stop_gradient(x) if plan.start == 2 else x\n            " + _SAVE_J,
        ),
    ),
    *_sqrt(
        name="segment_detached",
        story="no cotangent passes from one segment to the one before",
        source="operator: detached input",
        jax=_J(_SPLIT_J, _SPLIT_J.replace("(own, x)", "(own, jax.lax.stop_gradient(x))")),
    ),
    *_sqrt(
        name="wrong_sign_at_the_head",
        story="the cotangent of the head enters the chain with the wrong sign",
        source="operator: flip a sign",
        torch=_E(_HANDED, _HANDED.replace("first,", "-first if ctx.number == len(ctx.run.stages) else first,")),
        jax=_J(
            "layers, plan = stages(problem), schedule.plan()",
            "layers, plan = stages(problem), schedule.plan()\n    head = layers[-1]\n"
            "    layers = [*layers[:-1], lambda p, x: head(p, 2 * jax.lax.stop_gradient(x) - x)]",
        ),
    ),
    *_revolve(
        name="stale_value",
        story="the third stage is recorded with the input of the second if their shapes agree",
        source="operator: stale state",
        torch=_E(
            "y, recording = record(stage, x, number > 1 or self.needs_input_grad)",
            "old = self.values.get(number - 2, x)\n            y, recording = record(stage, old if "
            "number == 3 and old.shape == x.shape else x, number > 1 or self.needs_input_grad)\n"
            "            y = plain(stage, x)",
        ),
    ),
    *_revolve(
        name="bias_dropped",
        story="biases get the gradient of the first example only",
        source="operator: drop a term",
        both=Edit(
            "problem",
            'return self.xp.tanh(self.xp.matmul(x, p["w"]) + p["b"])',
            "from gradgate.references.backends import stop_gradient\n        first = self.xp.reshape(self.xp.asarray("
            "self.xp.arange(x.shape[0]) == 0, dtype=x.dtype), (-1, 1))\n"
            '        bias = first * p["b"] + (1 - first) * stop_gradient(self.backend, p["b"])\n'
            '        return self.xp.tanh(self.xp.matmul(x, p["w"]) + bias)',
        ),
    ),
    *_revolve(
        name="norm_constant",
        story="the root mean square is treated as a constant in the backward pass",
        source="mamba PR 547: normalisation backward called without the group size, wrong for more than one group",
        both=Edit(
            "problem",
            'return x / self.xp.sqrt(self.xp.mean(x * x, axis=-1, keepdims=True) + 1e-3) * p["g"]',
            "from gradgate.references.backends import stop_gradient\n        root = self.xp.sqrt(self.xp.mean(x * x, "
            'axis=-1, keepdims=True) + 1e-3)\n        return x / stop_gradient(self.backend, root) * p["g"]',
        ),
    ),
    *_bug(
        name="budget_not_refused",
        method="uniform_dp",
        kill=("refusal",),
        story="a budget that is too small is exceeded and not refused",
        source="operator: a refusal that is gone",
        both=Edit(
            "schedules.classic",
            "    if not fitting:\n        raise",
            "    if not fitting:\n        return tried[0][1]\n        raise",
        ),
    ),
    *_bug(
        name="sweeps_for_nothing",
        method="precise_dp",
        kill=("optimal_called",),
        story="the solver counts no compute for a sweep to a stored value",
        source="operator: drop a term",
        both=Edit("schedules.solver", "np.add(row, forward[n - 1], out=swept[n])", "swept[n] = row"),
    ),
    *_bug(
        name="stores_the_nearest_value_only",
        method="precise_dp",
        kill=("optimal_called",),
        story="the solver tries only the split at the first stage",
        source="operator: a loop cut short",
        both=(
            Edit("schedules.solver", "both.min(axis=0)", "both[0]"),
            Edit("schedules.solver", "for k in range(i + 1, j):\n            if", "for k in (i + 1,):\n            if"),
        ),
    ),
)

_PROFILES = {"jax": "nvidia-h100"}
"""XLA for CPUs removes the barriers of a rematerialised program, so bytes are judged as compiled for a device."""

MEMORY = (
    *(
        mutant
        for method in ("uniform_dp", "precise_dp")
        for mutant in impostor(
            "chain",
            f"budget_ignored_by_{method}",
            "backprop",
            method,
            ("memory_law",),
            options=("budget",),
            story="the budget is accepted, and everything is stored",
            source="tensorflow PR 39042: recomputation that saved nothing: count recomputations and measure bytes",
            profiles=_PROFILES,
        )
    ),
    *impostor(
        "chain",
        "nothing_matches",
        "backprop",
        "sqrt_n",
        ("memory_law",),
        story="the policy that should drop all values except √N matches no value",
        source="PT#176065: a selective policy that matches nothing",
        profiles=_PROFILES,
    ),
    *impostor(
        "chain",
        "grows_after_all",
        "backprop",
        "recompute_all",
        ("memory_law",),
        story="all values that should be recomputed are kept",
        source="MemCNN#41: memory not constant in depth",
        profiles=_PROFILES,
    ),
    *_sqrt(
        name="merged_away",
        kill=("memory_law",),
        story="nothing separates the recomputation from the first run: a compiler may merge them and store values",
        source="jax#27748: bytes of rematerialised programs change between versions",
        profiles=_PROFILES,
        jax=_J(_SPLIT_J, _SPLIT_J.replace("plan.left))", "plan.left), prevent_cse=False)")),
    ),
)


def _misprint(method: str, claim: Claim) -> Mutant:
    """The thesis as printed: the statement is about a figure and not about a gradient, and must be refuted."""
    [made] = impostor(
        "chain",
        f"{method}_{claim.name}",
        method,
        method,
        (claim.name,),
        story=f"{claim.source}: {claim.declared_reason}",
        source="an erratum, the thesis as printed",
    )[1:]
    return dataclasses.replace(made, claims=(dataclasses.replace(claim, expected="upheld", declared_reason=""),))


MISPRINTS = tuple(
    _misprint(method, claim)
    for method, claims in (("precise_dp", errata.PRECISE), ("uniform_dp", errata.UNIFORM))
    for claim in claims
)

MUTANTS = (*PUBLISHED, *STRUCTURAL, *MEMORY, *MISPRINTS, *chain_executor.BROKEN)
