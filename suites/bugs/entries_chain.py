"""Bugs of `checkpointed`: mistakes that are easy to make when a model is recorded, cut and run again by a plan.

Several modules make a plan. The edited module is loaded again, together with all modules that import it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from dataclasses import dataclass
from types import ModuleType
from unittest import mock

from gradgate.suites.bugs.entries import ROOM, entry_bugs
from gradgate.suites.bugs.replacing import replaced

FOLDER = f"{ROOM}.chain.in_torch"
LAYERS = (
    "replay",
    "stages",
    "guard",
    "executor",
    "profile",
    "graph",
    "recorder",
    "cuts",
    "fingerprint",
    "plan",
    "model",
)
"""Modules of the entry point in PyTorch; each module comes after those that it imports."""


@dataclass(frozen=True)
class PlanMutant:
    """`checkpointed` in PyTorch with one bug in one of its modules.

    Attributes:
        name: unique.
        story: the mechanism in a sentence.
        module: one of LAYERS.
        edits: (old, new): text that occurs once in the module, and the text that replaces it.
    """

    name: str
    story: str
    module: str
    edits: tuple[tuple[str, str], ...]

    def loaded(self) -> dict[str, ModuleType]:
        """The edited module and its importers, by name; LookupError if an edit's text does not occur exactly once."""
        made: dict[str, ModuleType] = {}
        package = importlib.import_module(FOLDER)
        for layer in LAYERS[LAYERS.index(self.module) :]:
            name = f"{FOLDER}.{layer}"
            text = inspect.getsource(importlib.import_module(name))
            for old, new in self.edits if layer == self.module else ():
                try:
                    text = replaced(text, old, new)
                except LookupError as error:
                    raise LookupError(f"{name}: {error}: carry {self.name} over") from None
            module = made[name] = ModuleType(name)
            with mock.patch.dict(sys.modules, made), mock.patch.dict(vars(package)):
                vars(package).update({place.rpartition(".")[2]: each for place, each in made.items()})
                exec(compile(text, f"<{name}, {self.name}>", "exec"), module.__dict__)
        return made


def _bug(name: str, story: str, module: str, *edits: str) -> PlanMutant:
    return PlanMutant(name, story, module, tuple(zip(edits[::2], edits[1::2], strict=True)))


_functions = functools.partial(entry_bugs, "chain:model", "functions")
_model = functools.partial(entry_bugs, "chain:model", "model")

TORCH = (
    _bug(
        "another_shape",
        "the plan of another batch is used again",
        "fingerprint",
        "return t.shape, t.dtype,",
        "return t.dim(), t.dtype,",
    ),
    _bug(
        "mode_forgotten",
        "the plan of training is used in evaluation, including its dropout",
        "fingerprint",
        '_OWN = frozenset(vars(nn.Module())) - {"training"}',
        "_OWN = frozenset(vars(nn.Module()))",
    ),
    _bug(
        "mask_dropped",
        "values that are kept next to the chain are read as ones",
        "plan",
        "sides = {n: env[n] for n in part.sides}",
        "sides = {n: torch.ones_like(env[n]) if env[n].dim() == 2 and env[n].shape[1] == 1 else env[n] "
        "for n in part.sides}",
    ),
    _bug(
        "mask_of_the_plan",
        "masks are those of the example input, not those of the call",
        "plan",
        "        return around, begun(self.graph, self.cutting, around, args, kwargs)",
        "        env = begun(self.graph, self.cutting, around, args, kwargs)\n"
        "        kept = self.__dict__.setdefault('first', env)\n"
        "        return around, {**env, **{n: kept[n] for n in self.cutting.retained}}",
    ),
    _bug(
        "random_state_not_restored",
        "a stage that is run again draws other numbers, and its outputs are not checked",
        "executor",
        "with self.random.again(), statistics_kept(stage.modules):",
        "with statistics_kept(stage.modules):",
        "self.doubts.add(first.output.differs(again), refuse)",
        "self.doubts.add(False, refuse)",
    ),
    _bug(
        "statistics_twice",
        "batch norms update their statistics in every run",
        "executor",
        "with self.random.again(), statistics_kept(stage.modules):",
        "with self.random.again():",
    ),
    _bug(
        "cut_before_a_write",
        "a value is kept that a later in-place operation overwrites",
        "cuts",
        "all(written.get(graph.tensors[n].storage, 0) <= place for n in self.crossing[place])",
        "True",
    ),
    _bug(
        "handed_on_lost",
        "of the cotangents of a stage's outputs, only the first is used",
        "stages",
        "return [e for e, _ in both], [c for _, c in both]",
        "return [e for e, _ in both][:1], [c for _, c in both][:1]",
    ),
    _bug(
        "no_grad_lost",
        "what the model computes under no_grad is recorded with gradients",
        "recorder",
        "with torch.no_grad() if tensors or module is not None else contextlib.nullcontext():",
        "with torch.no_grad():",
    ),
    _bug(
        "attribute_forgotten",
        "a number read from a module is that of the plan",
        "fingerprint",
        "for key, v in vars(module).items() if key not in _OWN)",
        "for key, v in ())",
    ),
    _bug(
        "decision_forgotten",
        "a branch that depends on an input is not taken again",
        "graph",
        "            if result != call.result:\n",
        "            if False:\n",
    ),
    _bug(
        "planning_leaves_statistics",
        "planning runs the model, and the changed statistics of the model remain",
        "plan",
        "        restore(kept)\n",
        "        pass\n",
    ),
    _bug(
        "planning_moves_random_state",
        "planning runs the model, and the random generators are not restored",
        "plan",
        "        state.put_back()\n",
        "        pass\n",
    ),
)
"""Mutants in PyTorch; each of them trains differently from the plain model."""

JAX = (
    *_functions(
        "side_forgotten",
        "layers that are run again read a mask of ones",
        "options",
        jax=(
            "            x, inner = jax.checkpoint(again)(own, x, side)",
            "            x, inner = jax.checkpoint(again)(own, x, jax.tree.map(jnp.ones_like, side))",
        ),
    ),
    *_functions(
        "order_exchanged",
        "a segment is run with the parameters of its layers in reverse",
        "options",
        jax=(
            "own = {n: arrays[n] for n in range(plan.start, left.end)}",
            "own = {n: arrays[plan.start + left.end - 1 - n] for n in range(plan.start, left.end)}",
        ),
    ),
    *_model(
        "state_forgotten",
        "changes of the state of nnx modules are not written back",
        "outputs",
        jax=("                nnx.update(modules[number], state)", "                pass"),
    ),
    *_model(
        "inner_state_forgotten",
        "changes of modules in a segment that is run again are not written back",
        "outputs",
        jax=("            states |= inner\n", ""),
    ),
)
"""Mutants in JAX, as pairs."""

MUTANTS = (*TORCH, *JAX)
