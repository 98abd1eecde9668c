"""Bugs of the chain's PyTorch executor that show only if something happens between forward and backward pass.

The executor has two defences against most of these hazards: it keeps or compares the inputs of a stage, and it compares
the outputs. If both would have to fail, a mutant breaks both; `BLIND` removes the second defence.
"""

from __future__ import annotations

import functools

from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.edits import Edit

_bug = functools.partial(bug, "chain", kill=("protocol",))
_E, _S = functools.partial(Edit, "in_torch.executor"), functools.partial(Edit, "in_torch.stages")
_G, _R = functools.partial(Edit, "in_torch.guard"), functools.partial(Edit, "in_torch.replay")

BLIND = _G(
    "        if self.kind != again.kind:\n            return True\n",
    "        if self.kind:\n            return False\n",
)
_KEPT = "(PYTHON, NUMPY, TORCH, *_device_generators(device), *_own_generators(modules))"
_CHECK = "            self.held.check(stage.name, stage.parameters, stage.modules)\n"
_STORAGES = "            if _storage(tensor) != storage:\n"

READ = (
    *_bug(
        name="mode_forgotten",
        method="revolve",
        story="a stage is run again in the current mode, for example after eval()",
        source="hazard of torch.utils.checkpoint: checkpoint recomputes in the mode of the backward pass",
        torch=_E("with in_modes(stage.modules, self.training):", "with contextlib.nullcontext():"),
    ),
    *_bug(
        name="mode_left",
        method="sqrt_n",
        story="modules whose mode a further run sets stay in that mode",
        source="operator: state that leaks",
        torch=_R("            module.training = found\n", "            pass\n"),
    ),
    *_bug(
        name="input_unguarded",
        method="recompute_all",
        story="it is not checked whether the input was overwritten, nor whether a further run gives the same outputs",
        source="hazard of torch.utils.checkpoint: an input changed in place between forward and backward",
        torch=(BLIND, _E('        check_version(f"the input of {stage.name}", x, version)\n', "")),
    ),
    *_bug(
        name="weights_unguarded",
        method="recursive",
        story="it is not checked whether weights and buffers changed, nor whether a further run gives the same outputs",
        source="hazard of torch.utils.checkpoint: an optimiser's step between forward and the recomputation",
        torch=(BLIND, _E(_CHECK, "            pass\n")),
    ),
    *_bug(
        name="statistics_unguarded",
        method="uniform_dp",
        story="it is not checked whether buffers changed, nor whether a further run gives the same outputs",
        source="operator: stale state",
        torch=(BLIND, _G("([] if trains else module._buffers.items())", "[]")),
    ),
    *_bug(
        name="data_unguarded",
        method="precise_dp",
        story="it is not checked whether a weight's data was replaced, nor whether a further run gives equal outputs",
        source="operator: stale state",
        torch=(BLIND, _G(_STORAGES, "            if False:\n")),
    ),
    *_bug(
        name="replaced_unguarded",
        method="revolve",
        story="a parameter that replaces another gets its gradient, and the other gets none",
        source="operator: stale state",
        torch=(
            _G("            if found is not tensor:\n", "            if False:\n"),
            _G("        if len(now.rows) != len(self.rows):\n", "        if False:\n"),
        ),
    ),
    *_bug(
        name="module_unguarded",
        method="sqrt_n",
        story="a module that replaces another is run in its place, and its outputs are not checked",
        source="operator: stale state",
        torch=(BLIND, _E("        if stage.rebuilt():\n", "        if False:\n")),
    ),
    *_bug(
        name="course_unguarded",
        method="precise_dp",
        story="it is not checked whether a further run gives the same outputs",
        source="PT checkpoint: determinism_check compares shapes and not values",
        torch=BLIND,
    ),
    *_bug(
        name="course_by_shape",
        method="recompute_all",
        story="a further run is compared with the first only by shape and dtype",
        source="PT checkpoint: determinism_check compares shapes and not values",
        torch=_G("        if self.sample is None or again.sample is None:\n", "        if self.kind == again.kind:\n"),
    ),
)

REPLAYED = (
    *_bug(
        name="python_random_forgotten",
        method="recompute_all",
        story="Python's generator is not kept",
        source="PT checkpoint: preserve_rng_state keeps PyTorch's generators alone",
        torch=_R(_KEPT, _KEPT.replace("PYTHON, ", "")),
    ),
    *_bug(
        name="numpy_random_forgotten",
        method="revolve",
        story="NumPy's generator is not kept",
        source="PT checkpoint: preserve_rng_state keeps PyTorch's generators alone",
        torch=_R(_KEPT, _KEPT.replace("NUMPY, ", "")),
    ),
    *_bug(
        name="torch_random_forgotten",
        method="sqrt_n",
        story="PyTorch's generator is not kept",
        source="PT checkpoint: preserve_rng_state=False",
        torch=_R(_KEPT, _KEPT.replace("TORCH, ", "")),
    ),
    *_bug(
        name="own_generators_forgotten",
        method="recursive",
        story="generators that modules own are not kept, and the outputs of a further run are not checked",
        source="PT checkpoint: preserve_rng_state keeps the global generators alone",
        torch=(BLIND, _R(_KEPT, _KEPT.replace(", *_own_generators(modules)", ""))),
    ),
    *_bug(
        name="random_left",
        method="uniform_dp",
        story="a further run moves the generators that it draws from",
        source="operator: state that leaks",
        torch=_R("            found.put_back()\n", "            pass\n"),
    ),
    *_bug(
        name="autocast_forgotten",
        method="precise_dp",
        story="a further run computes without the autocast of the first",
        source="PT#71124, fairscale#1199: bf16 autocast recomputed as fp16",
        torch=_R("for kind, enabled, dtype in self.autocasts:", "for kind, enabled, dtype in ():"),
    ),
    *_bug(
        name="flags_forgotten",
        method="revolve",
        story="a further run uses the current default dtype and flags",
        source="operator: stale state",
        torch=_R("                if found != value:\n", "                if False:\n"),
    ),
    *_bug(
        name="inference_mode_kept",
        method="recompute_all",
        story="under inference mode nothing is recorded",
        source="operator: detached input",
        torch=_R("            if torch.is_inference_mode_enabled():\n", "            if False:\n"),
    ),
    *_bug(
        name="batch_statistics_twice",
        method="sqrt_n",
        story="batch norms update their statistics in every run",
        source="PT#96136: BatchNorm statistics updated twice: gradients equal, state wrong",
        torch=_E("with self.random.again(), statistics_kept(stage.modules):", "with self.random.again():"),
    ),
    *_bug(
        name="instance_statistics_twice",
        method="recursive",
        story="instance norms update their statistics in every run",
        source="gradgate 2abbe62: found by this check",
        torch=_R("for norm in norms if isinstance(norm, _InstanceNorm)]", "for norm in norms if False]"),
    ),
)

PROMISED = (
    *_bug(
        name="second_backward_allowed",
        method="revolve",
        story="a second backward pass without retain_graph adds the gradient again",
        source="operator: double counting",
        torch=(
            _E("        _ = ctx.saved_tensors  # raises if they are freed\n", ""),
            _E("retain = torch._C._autograd._get_current_graph_task_keep_graph()", "retain = True"),
        ),
    ),
    *_bug(
        name="nothing_retained",
        method="precise_dp",
        story="retain_graph keeps nothing of the chain",
        source="gradgate until 2abbe62: retain_graph kept nothing of a checkpointed chain",
        torch=_E("retain = torch._C._autograd._get_current_graph_task_keep_graph()", "retain = False"),
    ),
    *_bug(
        name="hooks_of_shares",
        method="uniform_dp",
        story="a hook on a parameter runs on every stage's part of the gradient, and again on the sum",
        source="PT#81296: a shared parameter's hook fires twice",
        torch=_S("    for hooks, _ in kept:\n        hooks.clear()\n", ""),
    ),
)

BROKEN = (*READ, *REPLAYED, *PROMISED)
