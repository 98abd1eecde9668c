"""The generic operators, applied to a method of every family in both frameworks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gradgate.suites.bugs import operators as op
from gradgate.suites.bugs.declare import GRADIENT, ROUNDING, bug
from gradgate.suites.bugs.mutant import Mutant

PLANTED = (2, 3, 5, 7, 9, 10, 11)
"""k of the relative errors 10^-k that are planted, each in one leaf; floats alone have to find them too."""
ULP = 2.0**-52
"""One unit in the last place of 1.0 in float64, planted in one leaf."""
TERM = 1e-30
"""Share of a leaf that is added to it; no float changes by it."""


@dataclass(frozen=True)
class Facts:
    """What the operators have to know of a family.

    Attributes:
        plain: its backprop: an operator on the gradient needs no more.
        clever: a method that saves memory, of options where operators ask for them.
        lossy: the method that may stray farthest from the oracle, whose κ is largest.
        leaves: paths of leaves that every problem has; errors are planted in them in turn.
        target: key of the data that the loss is compared with, its first axis time or samples.
        single: sizes that are 1 on the smallest problems.
        hard: a problem with large decay, weights or input.
        ragged: a problem, and options, that do not divide evenly.
        state: key of the data that a method could overwrite.
    """

    family: str
    plain: str
    clever: str
    lossy: str
    leaves: tuple[str, ...]
    target: str
    single: tuple[str, ...]
    hard: Callable[[Any, Mapping[str, Any]], Any]
    ragged: Callable[[Any, Mapping[str, Any]], bool]
    state: str


def _chunks(problem: Any, options: Mapping[str, Any]) -> bool:
    return bool(problem.spec.length % options["chunk"])


def _odd_layers(problem: Any, options: Mapping[str, Any]) -> bool:
    return bool(problem.spec.layers > 1 and problem.spec.layers % 2)


def _large_input(problem: Any, options: Mapping[str, Any]) -> Any:
    return problem.xp.max(problem.data["x"]) > 2.5


def _large_rate(problem: Any, options: Mapping[str, Any]) -> Any:
    return problem.data["learning_rate"] > 0.2


def _odd_steps(problem: Any, options: Mapping[str, Any]) -> bool:
    return bool(problem.spec.steps > 1 and problem.spec.steps % 2)


FACTS = (
    Facts(
        "state_space", "backprop", "reverse_recurrence", "reverse_recurrence",
        ("embedding", "head", "layers.A.b0", "layers.A.w0", "layers.B.b0", "layers.B.w0", "layers.C.b0", "layers.C.w0"),
        "targets", ("length",), op.largest("layers.A.b", 4.5), _chunks, "targets",
    ),
    Facts(
        "performer", "full", "slim_kept", "slim",
        ("embedding", "head.b", "head.w", "layers.attention.value", "layers.feed_forward.w1", "layers.feed_forward.b2",
         "layers.norms.gain2", "layers.norms.shift2"),
        "targets", ("length",), op.largest("feed_forward.w1", 8.0), _chunks, "targets",
    ),
    Facts(
        "invertible", "backprop", "moonwalk_mixed", "reversible", ("head.w", "head.b", "block0"),
        "targets", ("batch",), _large_input, _odd_layers, "x",
    ),
    Facts(
        "chain", "backprop", "uniform_dp", "revolve", ("layers[0].w", "layers[0].b"),
        "target", ("layers",), op.largest("layers", 4.0), _odd_layers, "x",
    ),
    Facts(
        "bilevel", "truncated_bptt", "mixflow", "momentum_inversion", ("",),
        "targets", ("batch",), _large_rate, _odd_steps, "learning_rate",
    ),
)  # fmt: skip


def _of(facts: Facts) -> Iterator[Mutant]:
    make = functools.partial(bug, facts.family)

    def on_plain(name: str, story: str, operator: str, change: op.Operator, *kill: str, **more: Any) -> tuple[Any, ...]:
        return make(name, facts.plain, story, f"operator: {operator}", both=change, kill=kill or GRADIENT, **more)

    def leaf(number: int) -> op.Chosen:
        path = facts.leaves[number % len(facts.leaves)]
        return lambda name: name.startswith(path)

    first, head = leaf(0), leaf(1)
    yield from on_plain("sign_of_a_leaf", "one leaf has the wrong sign", "flip a sign", op.scaled(-1.0, head))
    yield from on_plain("leaf_twice", "one leaf is counted twice", "double counting", op.scaled(2.0, first))
    yield from on_plain("leaf_detached", "one leaf gets no gradient", "detached input", op.zeroed(first))
    yield from on_plain("square_transposed", "square leaves are transposed", "transpose", op.transposed())
    yield from on_plain(
        "half_written", "half of the columns are right, the rest 0", "one head only", op.one_head_only()
    )
    yield from on_plain("row_dropped", "the last row is left out", "drop a term", op.row_dropped())
    yield from on_plain(
        "layers_reversed", "layers get each other's gradients, from last to first", "reversed order", op.layers_reversed
    )
    yield from on_plain(
        "targets_shifted", "the gradient is that with targets one place on", "off by one in time",
        op.shifted(facts.target),
    )  # fmt: skip
    yield from on_plain("parameters_stale", "the gradient at parameters of a step ago", "stale state", op.stale(1e-6))
    yield from on_plain("downcast", "the gradient went through float32", "downcast", op.downcast(), *ROUNDING)
    yield from on_plain(
        "half_in_float32", "in float32 alone, the gradient went through bfloat16", "downcast",
        op.elsewhere_only("float32", op.narrow), "gradient_float32",
    )  # fmt: skip
    yield from on_plain(
        "wrong_at_size_one", "wrong by 1e-6 where a size is 1", "error at an edge",
        op.when(op.single(facts.single), 1 + 1e-6),
    )  # fmt: skip
    yield from on_plain(
        "wrong_where_large", "wrong by 1e-6 where a decay, a weight or an input is large",
        "error where numbers are large",
        op.when(facts.hard, 1 + 1e-6),
    )  # fmt: skip
    yield from on_plain(
        "upstream_ignored", "the upstream cotangent is taken for 1", "a scalar without effect: deepwave#120",
        op.constant("upstream", 1.0), "upstream",
    )  # fmt: skip
    yield from on_plain(
        "second_order_zero", "differentiated again, it is a constant",
        "jaxopt#141: second order through a custom root is zero", op.detached, "second_order_exact",
        also=("second_order",),
    )  # fmt: skip
    yield from on_plain(
        "loss_off", "the loss is off by 1e-11", "an error in the value", op.loss_off(1 + 1e-11), also=("value",)
    )
    yield from on_plain(
        "state_updated_twice", "the gradient is right, an input is changed",
        "PT#96136: BatchNorm statistics updated twice: gradients equal, state wrong", op.input_changed(facts.state),
        "pure",
    )  # fmt: skip
    yield from on_plain(
        "generator_reseeded", "the global generators are left at a fixed seed", "state that leaks", op.reseeded, "pure"
    )
    yield from on_plain("prints", "something is printed", "state that leaks", op.chatty, "pure")
    yield from on_plain(
        "race", "every other call differs by 1e-5", "fla PR 941: a race in value tiles above 64", op.racing(1e-5),
        "deterministic",
    )  # fmt: skip
    yield from on_plain(
        "none_for_a_leaf", "a leaf is None", "DeepSpeed PR 8455: stray None gradients after non-tensor arguments",
        op.a_leaf_is_none, "tree",
    )  # fmt: skip
    yield from on_plain("flat_leaf", "a leaf has another shape", "wrong form", op.a_wrong_shape, "tree")
    yield from on_plain(
        "float32_for_float64", "the gradient comes back in float32", "downcast", op.a_wrong_dtype, "tree",
    )  # fmt: skip
    yield from make(
        "wrong_where_ragged", facts.clever, "wrong by 1e-6 where sizes do not divide evenly",
        "operator: error at an edge",
        both=op.when(facts.ragged, 1 + 1e-6),
    )  # fmt: skip
    yield from _planted(facts, make, leaf)


def _planted(
    facts: Facts, make: Callable[..., tuple[Mutant, ...]], leaf: Callable[[int], op.Chosen]
) -> Iterator[Mutant]:
    """A ladder of relative errors, each in one leaf, from 10^-2 to what no float shows."""
    for number, k in enumerate(PLANTED):
        method = facts.plain if k < 10 else facts.lossy
        yield from make(
            f"planted_1e{k}", method, f"one leaf is off by 10^-{k} of itself", "operator: relative error 10^-k",
            both=op.scaled(1 + 10.0**-k, leaf(number)), also=ROUNDING, planted=10.0**-k,
        )  # fmt: skip
    yield from make(
        "planted_ulp", facts.lossy, "one leaf is multiplied by 1 + 2^-52", "operator: relative error 2^-52",
        both=op.scaled(1 + ULP, leaf(len(PLANTED))), planted=ULP,
    )  # fmt: skip
    yield from make(
        "planted_1e30", facts.lossy, "10^-30 of one leaf is added to it", "operator: a term that no float shows",
        both=op.added(TERM, leaf(len(PLANTED) + 1)), planted=TERM,
    )  # fmt: skip
    yield from make(
        "planted_1e17", facts.plain, "every leaf is multiplied by 1 + 10^-17", "operator: relative error 10^-k",
        both=op.scaled(1 + 1e-17), kill=(*GRADIENT, "gradient_float64", "gradient_float32", "same_bits"),
        equivalent="1 + 10^-17 is nearer to 1 than to any other number of the dtype, and IEEE 754's x·1 is x",
    )  # fmt: skip


MUTANTS = tuple(mutant for facts in FACTS for mutant in _of(facts))
