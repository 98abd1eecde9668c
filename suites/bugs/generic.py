"""The bugs that any method can have, in the methods of every class in both frameworks.

There is no list of classes here. A class that is added gets its mutants automatically (`facts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gradgate.references.backends import transforms
from gradgate.references.contract import Family
from gradgate.suites.bugs import operators as op
from gradgate.suites.bugs.declare import GRADIENT, ROUNDING, bug
from gradgate.suites.bugs.facts import Facts, facts
from gradgate.suites.bugs.mutant import Answer, Function, Mutant

PLANTED = (2, 3, 5, 7, 9, 10, 11)
"""k of the relative errors 10^-k that are planted, each in one leaf; the float claims alone must detect them too."""
ULP = 2.0**-52
"""One unit in the last place of 1.0 in float64, planted in one leaf."""
TERM = 1e-30
"""Share of a leaf that is added to the leaf; this changes no float."""


def mutants(family: Family) -> Iterator[Mutant]:
    """The mutants of one class, for the bugs that can occur in it.

    A bug is left out if the method does not make the claims that would refute it.
    """
    known = facts(family)
    for mutant in (*_of_gradient(known), *_at_an_edge(known), *_of_state(known), *_of_form(known), *_planted(known)):
        claims = {claim.name: claim.expected for claim in mutant._claims()}
        if all(claims.get(name) == "upheld" for name in (*mutant.kill, *mutant.also)):
            yield mutant


def evaluated_again(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """The loss is evaluated once more, although the method returns it."""
    return problem.loss(problem.params), method(problem, **options)[1]


def pushed_too(method: Function, problem: Any, options: Mapping[str, Any]) -> Answer:
    """A JVP of the loss is computed, and its result is not used."""
    loss, grads = method(problem, **options)
    _, slope = transforms(problem.backend).jvp(problem.loss, (problem.params,), (problem.params,))
    return loss + (slope - slope), grads


def _made(known: Facts) -> Callable[..., tuple[Mutant, ...]]:
    """`bug`, for the plain method of a class; takes name, story, operator, change and the claims that refute it."""

    def on_plain(name: str, story: str, operator: str, change: op.Operator, *kill: str, **more: Any) -> tuple[Any, ...]:
        return bug(
            known.family, name, known.plain, story, f"operator: {operator}", both=change, kill=kill or GRADIENT, **more
        )

    return on_plain


def _leaf(known: Facts, number: int) -> op.Chosen:
    path = known.leaves[number % len(known.leaves)]
    return lambda name: name.startswith(path)


def _of_gradient(known: Facts) -> Iterator[Mutant]:
    """Gradients that are wrong on every problem, if the shapes of its leaves allow the bug."""
    on_plain, first, head = _made(known), _leaf(known, 0), _leaf(known, 1)
    shapes = known.shapes
    yield from on_plain("sign_of_a_leaf", "one leaf has the wrong sign", "flip a sign", op.scaled(-1.0, head))
    yield from on_plain("leaf_twice", "one leaf is counted twice", "double counting", op.scaled(2.0, first))
    yield from on_plain("leaf_detached", "one leaf gets no gradient", "detached input", op.zeroed(first))
    if any(len(shape) > 1 and shape[-1] == shape[-2] > 1 for shape in shapes):
        yield from on_plain("square_transposed", "square leaves are transposed", "transpose", op.transposed())
    if any(shape and shape[-1] > 1 for shape in shapes):
        yield from on_plain(
            "half_written", "half of the columns are right, the rest 0", "one head only", op.one_head_only()
        )
    if any(len(shape) > 1 and shape[-2] > 1 for shape in shapes):
        yield from on_plain("row_dropped", "the last row is left out", "drop a term", op.row_dropped())
    if known.stacked:
        yield from on_plain(
            "layers_reversed",
            "the gradients of the layers are in reversed order",
            "reversed order",
            op.layers_reversed,
        )
    if known.target:
        yield from on_plain(
            "targets_shifted",
            "the gradient is computed with targets shifted by one place",
            "off by one in time",
            op.shifted(known.target),
        )
    yield from on_plain("parameters_stale", "the gradient at parameters one step old", "stale state", op.stale(1e-6))
    yield from on_plain("downcast", "the gradient was cast to float32 and back", "downcast", op.downcast(), *ROUNDING)
    yield from on_plain(
        "half_in_float32",
        "in float32 only, the gradient was cast to bfloat16 and back",
        "downcast",
        op.elsewhere_only("float32", op.narrow),
        "gradient_float32",
    )
    yield from on_plain(
        "second_order_zero",
        "differentiated again, the gradient is a constant",
        "jaxopt#141: second order through a custom root is zero",
        op.detached,
        "second_order_exact",
        also=("second_order",),
    )


def _at_an_edge(known: Facts) -> Iterator[Mutant]:
    """Gradients that are wrong on some problems only."""
    on_plain = _made(known)
    if known.single:
        yield from on_plain(
            "wrong_at_size_one",
            "wrong by 1e-6 if a size is 1",
            "error at an edge",
            op.when(op.single(known.single), 1 + 1e-6),
        )
    if known.large:
        yield from on_plain(
            "wrong_where_large",
            "wrong by 1e-6 if a decay, a weight or an input is large",
            "error where numbers are large",
            op.when(known.large, 1 + 1e-6),
        )
    if known.upstream:
        yield from on_plain(
            "upstream_ignored",
            "the upstream cotangent is treated as 1",
            "a scalar without effect: deepwave#120",
            op.constant("upstream", 1.0),
            "upstream",
        )
    if known.ragged:
        yield from bug(
            known.family,
            "wrong_where_ragged",
            known.clever,
            "wrong by 1e-6 if sizes do not divide evenly",
            "operator: error at an edge",
            both=op.when(known.ragged, 1 + 1e-6),
        )


def _of_state(known: Facts) -> Iterator[Mutant]:
    """Bugs with a right gradient: a wrong loss, a changed state of the process, wasted work."""
    on_plain = _made(known)
    yield from on_plain(
        "loss_off", "the loss is off by 1e-11", "an error in the value", op.loss_off(1 + 1e-11), also=("value",)
    )
    if known.state:
        yield from on_plain(
            "state_updated_twice",
            "the gradient is right, but an input is changed",
            "PT#96136: BatchNorm statistics updated twice: gradients equal, state wrong",
            op.input_changed(known.state),
            "pure",
        )
    yield from on_plain(
        "generator_reseeded", "the global generators are left at a fixed seed", "state that leaks", op.reseeded, "pure"
    )
    yield from on_plain("prints", "something is printed", "state that leaks", op.chatty, "pure")
    yield from on_plain(
        "race",
        "every other call differs by 1e-5",
        "fla PR 941: a race in value tiles above 64",
        op.racing(1e-5),
        "deterministic",
    )
    for name, story, operator in (
        ("evaluated_again", "the loss is evaluated once more, although the backward pass has it", evaluated_again),
        ("pushed_too", "a JVP of the loss is computed, and its result is not used", pushed_too),
    ):
        yield from bug(known.family, name, known.plain, story, "new", both=operator, kill=("counts",))


def _of_form(known: Facts) -> Iterator[Mutant]:
    """Answers of the wrong form."""
    on_plain = _made(known)
    yield from on_plain(
        "none_for_a_leaf",
        "a leaf is None",
        "DeepSpeed PR 8455: stray None gradients after non-tensor arguments",
        op.a_leaf_is_none,
        "tree",
    )
    yield from on_plain("flat_leaf", "a leaf has another shape", "wrong form", op.a_wrong_shape, "tree")
    yield from on_plain(
        "float32_for_float64",
        "the gradient comes back in float32",
        "downcast",
        op.a_wrong_dtype,
        "tree",
    )


def _planted(known: Facts) -> Iterator[Mutant]:
    """A series of relative errors, each in one leaf, from 10^-2 down to an error that no float shows."""
    for number, k in enumerate(PLANTED):
        method = known.plain if k < 10 else known.lossy
        yield from bug(
            known.family,
            f"planted_1e{k}",
            method,
            f"one leaf has a relative error of 10^-{k}",
            "operator: relative error 10^-k",
            both=op.scaled(1 + 10.0**-k, _leaf(known, number)),
            also=ROUNDING,
            planted=10.0**-k,
        )
    yield from bug(
        known.family,
        "planted_ulp",
        known.lossy,
        "one leaf is multiplied by 1 + 2^-52",
        "operator: relative error 2^-52",
        both=op.scaled(1 + ULP, _leaf(known, len(PLANTED))),
        planted=ULP,
    )
    yield from bug(
        known.family,
        "planted_1e30",
        known.lossy,
        "10^-30 of one leaf is added to it",
        "operator: a term that no float shows",
        both=op.added(TERM, _leaf(known, len(PLANTED) + 1)),
        planted=TERM,
    )
    yield from bug(
        known.family,
        "planted_1e17",
        known.plain,
        "every leaf is multiplied by 1 + 10^-17",
        "operator: relative error 10^-k",
        both=op.scaled(1 + 1e-17),
        kill=(*GRADIENT, "gradient_float64", "gradient_float32", "same_bits"),
        equivalent="1 + 10^-17 is nearer to 1 than to any other number of the dtype, and IEEE 754's x·1 is x",
    )
