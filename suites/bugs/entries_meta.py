"""Bugs of `mixed_mode_grad` and `meta_gradient`: mistakes that are easy to make in a rule or a loop."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from gradgate.suites.bugs.entries import ROOM, EntryMutant, entry_bugs
from gradgate.suites.bugs.of_pairs.mutant import edited_module
from gradgate.suites.pairs.pair import Pair

INNER = f"{ROOM}.bilevel.inner"
LOOP, PAIRS, REVERSAL = (f"{INNER}.{name}" for name in ("loop", "pairs", "reversal"))


@dataclass(frozen=True)
class LoopMutant(EntryMutant):
    """A bug in `inner.loop`, or in `inner.pairs` below it, which `meta_gradient` of both frameworks imports.

    Attributes:
        place: the module that the edits are of.
    """

    place: str = LOOP

    def broken(self) -> Pair:
        """The pair with the bug; its reference is unchanged."""
        pair, entry = self.unbroken(), f"{ROOM}.{self.module}"
        optimisers = entry.replace("meta_gradient", "optimisers")
        importlib.import_module(entry)  # what is first imported under the patches below is forgotten after them
        made = {self.place: edited_module(self.place, self.edits, self.name)}
        for module in (REVERSAL, LOOP, entry) if self.place == PAIRS else (entry,):
            with mock.patch.dict(sys.modules, made):
                made[module] = edited_module(module, (), self.name)
        if ".in_torch." in entry:
            importlib.import_module(optimisers)
            with mock.patch.dict(sys.modules, made):
                made[optimisers] = edited_module(optimisers, (), self.name)
        function: Any = pair.function

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            with mock.patch.dict(sys.modules, made):  # the pair's function imports them when it is called
                return function(*args, **options)

        return dataclasses.replace(pair, function=call, name=self.name.replace(".", "_"))


def _loop(
    name: str, story: str, kill: str, old: str, new: str, pair: str = "meta_gradient", place: str = LOOP
) -> tuple[LoopMutant, ...]:
    return tuple(
        LoopMutant(
            f"bilevel.{framework}.loop.{name}",
            story,
            f"bilevel:{pair}_{framework}",
            kill,
            f"bilevel.in_{framework}.meta_gradient",
            ((old, new),),
            place,
        )
        for framework in ("jax", "torch")
    )


_mixed = functools.partial(entry_bugs, "bilevel:mixed_mode", "mixed_mode")
_meta = functools.partial(entry_bugs, "bilevel:meta_gradient", "meta_gradient")

GRADIENT = (
    *_mixed(
        "others_cut",
        "arguments that the inner gradient is not taken for get no cotangent",
        "gradient_exact",
        torch=("*(found.get(i) for i in range(len(others)))", "*(None for _ in others)"),
        jax=("dict(zip(places, by_floats,", "dict(zip(places, map(jnp.zeros_like, by_floats),"),
    ),
    *_mixed(
        "aux_cut",
        "the auxiliary output of the function has no derivative",
        "gradient_exact",
        torch=("(amount * sum(parts))", "(0 * amount * sum(parts))"),
        jax=("(amount * _inner(v_aux, aux))", "(0 * amount * _inner(v_aux, aux))"),
    ),
    *_mixed(
        "aux_counted_twice",
        "the cotangent of aux is counted twice",
        "gradient_exact",
        torch=("(amount * sum(parts))", "(2 * amount * sum(parts))"),
        jax=("(amount * _inner(v_aux, aux))", "(2 * amount * _inner(v_aux, aux))"),
    ),
    *_mixed(
        "by_first_alone",
        "only the first leaf of the inner gradient's argument has a tangent",
        "gradient_exact",
        torch=("(list(v[:number]), torch", "([a if i == 0 else 0 * a for i, a in enumerate(v[:number])], torch"),
        jax=("(v, jnp.ones_like(zero))", "([a if i == 0 else 0 * a for i, a in enumerate(v)], jnp.ones_like(zero))"),
    ),
    *_mixed(
        "hessian_lost",
        "the VJP of the gradient reaches only the other arguments",
        "gradient_exact",
        torch=("return None, None, *by_leaves,", "return None, None, *(0 * leaf for leaf in by_leaves),"),
        jax=("return by_leaves, list(", "return [0 * leaf for leaf in by_leaves], list("),
    ),
    *_mixed(
        "half_the_product",
        "the product is cast to float32 and back",
        "gradient_float64",
        torch=("return None, None, *by_leaves,", "return None, None, *(a.float().to(a.dtype) for a in by_leaves),"),
        jax=("return by_leaves, list(", "return [a.astype(jnp.float32).astype(a.dtype) for a in by_leaves], list("),
    ),
    *_mixed(
        "graph_kept",
        "reverse mode computes the gradient, and keeps all it reads",
        "residual_bytes_of_reference",
        torch=(
            "        flat = _Gradient.apply(run, len(leaves), *leaves, *(rest[i] for i in tensors))\n",
            "        flat, aux = torch.func.grad(run, has_aux=True)(leaves, [rest[i] for i in tensors])\n"
            "        flat = [*flat, *aux]\n",
        ),
        jax=(
            "    gradient.defvjp(forward, backward)\n    return gradient\n",
            "    return lambda leaves, consts: jax.grad(run, has_aux=True)(leaves, consts)\n",
        ),
    ),
)

LOOPS = (
    *_loop(
        "optimiser_of_constants",
        "learning rates in η are treated as constants",
        "gradient_exact",
        "pair, frame = self._pair(eta), self",
        "pair, frame = self._pair(self.flat['eta']), self",
    ),
    *_loop(
        "eta_of_the_outer_loss_cut",
        "the outer loss's own dependence on η has no derivative",
        "gradient_exact",
        'loss, given = self.asked.outer_loss, (self._tree("theta", theta), self._known(eta), self.y)',
        'loss, given = self.asked.outer_loss, (self._tree("theta", theta), self._known(self.eta), self.y)',
    ),
    *_loop(
        "start_anew",
        "θ_0 is treated as a constant",
        "gradient_exact",
        'params.get("theta", self.flat["theta"]), self.state',
        'self.flat["theta"], self.state',
    ),
    *_loop(
        "decay_forgotten",
        "the optimiser gets the gradient in place of θ",
        "outputs",
        'state, x), self._tree("theta", theta)',
        'state, x), self._tree("theta", grad)',
    ),
    *_loop(
        "step_doubled",
        "the update is added to θ twice",
        "outputs",
        "frame.added(p, move) for p, move",
        "frame.added(p, 2 * move) for p, move",
    ),
    *_loop(
        "rate_of_the_inverse",
        "a step is inverted with another rate than that of the step",
        "gradient_exact",
        "self.asked.frame.number(a, p) for a, p",
        "1.001 * self.asked.frame.number(a, p) for a, p",
        "inversion",
    ),
    *_loop(
        "number_of_the_step_after",
        "Adam's step is differentiated with the bias correction of the step after it",
        "gradient_exact",
        '"step": x[-1] - 1',
        '"step": x[-1]',
        "adam_inversion",
    ),
    *_loop(
        "schedule_of_the_step_after",
        "a step of Adam in double words reads the learning rate of the step after",
        "outputs",
        "pair.rates(theta, x[-1] - 1)",
        "pair.rates(theta, x[-1])",
        "adam_inversion",
    ),
    *_loop(
        "share_of_the_other_moment",
        "in double words the squared gradient has the share of the first moment",
        "outputs",
        '"decay_rest": 1 - pair.b2',
        '"decay_rest": 1 - pair.b1',
        "adam_inversion",
    ),
    *_loop(
        "moment_of_the_step_before",
        "the derivative of Adam's step reads the second moment before this gradient",
        "gradient_exact",
        'found = state["step"] + 1, self.directions(m, v,',
        'found = state["step"] + 1, self.directions(m, self.frame.flatten(state["v"])[0],',
        "adam_inversion",
        PAIRS,
    ),
    *_loop(
        "rate_left_out_of_the_decay",
        "in double words the weight decay is not multiplied by the learning rate",
        "outputs",
        "number(a * pair.weight_decay, p)",
        "number(pair.weight_decay, p)",
        "adam_inversion",
    ),
    *_loop(
        "schedule_late",
        "a schedule is read one step late",
        "outputs",
        'self.rates(leaves, state["step"])',
        "self.rates(leaves, step)",
        place=PAIRS,
    )[1:],
    *_loop(
        "decay_coupled",
        "weight decay is divided by the root of the second moment",
        "outputs",
        "        leaves, structure = self.frame.flatten(grads)\n        m, v =",
        "        leaves, structure = self.frame.flatten(grads)\n"
        "        leaves = [g + 0.25 * p for g, p in zip(leaves, self.frame.flatten(params)[0], strict=True)]\n"
        "        m, v =",
        place=PAIRS,
    )[1:],  # the pair's AdamW is ours in PyTorch alone
)

_clip = functools.partial(_loop, pair="adam_inversion", place=PAIRS)
_NORM = "sum(squares[1:], squares[0]))"
_ORDER = """zip(self.parts, state, strict=True):
            grads, after = self.frame.update(part, grads, before, params)
            states.append(after)"""
_REVERSED = """zip(self.parts[::-1], state[::-1], strict=True):
            grads, after = self.frame.update(part, grads, before, params)
            states.insert(0, after)"""

OPTIMISERS = (
    *_clip(
        "norm_of_a_leaf", "gradients are clipped by the norm of the first leaf", "gradient_exact", _NORM, "squares[0])"
    ),
    *_loop(
        "norm_of_a_leaf_in_a_chain",
        "gradients are clipped by the norm of the first leaf",
        "outputs",
        _NORM,
        "squares[0])",
        place=PAIRS,
    )[1:],  # the pair's chain is ours in PyTorch alone
    *_clip(
        "norm_detached",
        "the norm by which gradients are clipped is treated as a constant",
        "gradient_exact",
        _NORM,
        f'__import__("{ROOM}.backends", fromlist=["x"]).stop_gradient(backend, {_NORM[:-1]}))',
    ),
    *_clip(
        "chain_reversed",
        "the derivative of a chain's step has its parts in reversed order",
        "gradient_exact",
        _ORDER,
        _REVERSED,
    ),
    *_loop(
        "order_of_a_chain",
        "the parts of a chain are applied in reversed order",
        "outputs",
        _ORDER,
        _REVERSED,
        place=PAIRS,
    )[1:],
    *_loop(
        "clip_not_read",
        "in double words the state of Adam reads the gradient without clipping",
        "gradient_exact",
        "return self.asked.frame.flatten(tree)[0]",
        "return grad",
        "adam_inversion",
    ),
    *_loop(
        "clip_not_read_by_momentum",
        "on the grid the velocity reads an unclipped gradient",
        "gradient_exact",
        "return self.asked.frame.flatten(tree)[0]",
        "return grad",
        "inversion",
    ),
)

MUTANTS = (*GRADIENT, *LOOPS, *OPTIMISERS)
