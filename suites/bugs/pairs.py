"""Bugs that need two settings: wrong by 1e-6 if both settings have certain values, and right otherwise.

One setting is an option of the method. The other is another option or a field of the Spec. Trying every value of each
option alone does not detect these bugs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from gradgate.suites.bugs.declare import bug
from gradgate.suites.bugs.mutant import Mutant
from gradgate.suites.bugs.operators import when


def _pair(family: str, method: str, **wanted: Any) -> tuple[Mutant, ...]:
    """The mutants of both frameworks that are wrong if every named setting has the given value, or satisfies it."""

    def met(problem: Any, options: Mapping[str, Any]) -> bool:
        spec = problem.spec
        values = {name: options[name] if name in options else getattr(spec, name) for name in wanted}
        return all(
            want(values[name], spec) if callable(want) else values[name] == want for name, want in wanted.items()
        )

    said = {name: want.__name__ if callable(want) else str(want) for name, want in wanted.items()}
    return bug(
        family,
        "_and_".join(f"{name}_{word}" for name, word in said.items()),
        method,
        "wrong by 1e-6 where " + " and ".join(f"{name} is {word.replace('_', ' ')}" for name, word in said.items()),
        "new",
        both=when(met, 1 + 1e-6),
    )


def beyond_the_end(value: Any, spec: Any) -> bool:
    """Whether a chunk or window is longer than the sequence."""
    return bool(value > spec.length)


def many(value: Any, spec: Any) -> bool:
    """Whether a value is above one."""
    return bool(value > 1)


def not_zero(value: Any, spec: Any) -> bool:
    """Whether a value, such as the dropout rate, is not zero."""
    return bool(value)


def with_affine(value: Any, spec: Any) -> bool:
    """Whether a unit has an affine coupling."""
    return "affine" in str(value)


_recurrence = functools.partial(_pair, "state_space", "reverse_recurrence")
_truncated = functools.partial(_pair, "state_space", "adjoint_truncated")
_slim, _kept = functools.partial(_pair, "performer", "slim"), functools.partial(_pair, "performer", "slim_kept")
_mixed = functools.partial(_pair, "invertible", "moonwalk_mixed")
_moonwalk = functools.partial(_pair, "invertible", "moonwalk")
_mixflow, _bptt = functools.partial(_pair, "bilevel", "mixflow"), functools.partial(_pair, "bilevel", "truncated_bptt")
_replay = functools.partial(_pair, "bilevel", "gradient_replay")

STATE_SPACE = (
    *_recurrence(chunk=1, norm="layer"),
    *_recurrence(chunk=beyond_the_end, head="squared_error"),
    *_recurrence(chunk=64, layers=many),
    *_truncated(window=1, structure="unstructured"),
    *_truncated(window=2, depth=2),
    *_truncated(window=beyond_the_end, activation="silu"),
)

PERFORMER = (
    *_slim(prefix_sum="explicit", feature_map="favor"),
    *_slim(prefix_sum="iterative", norm="post"),
    *_slim(prefix_sum="block", dropout=not_zero),
    *_slim(prefix_sum="iterative", chunk=beyond_the_end),
    *_slim(prefix_sum="explicit", chunk=64),
    *_slim(chunk=1, feature_map="favor"),
    *_kept(every=2, prefix_sum="iterative"),
    *_kept(every=2, prefix_sum="explicit"),
    *_kept(every=1, chunk=beyond_the_end),
    *_kept(every=2, task="copying"),
)

INVERTIBLE = (
    *_mixed(vijp="solve", residual="conv"),
    *_mixed(vijp="inverse", unit=with_affine),
    *_mixed(vijp="closed", norm="batch"),
    *_moonwalk(tangents=7, norm="batch"),
    *_moonwalk(tangents=many, blocks=2),
)

BILEVEL = (
    *_mixflow(remat=True, save_inner_grads=False),
    *_mixflow(remat=False, save_inner_grads=True),
    *_mixflow(remat=True, save_inner_grads=True),
    *_mixflow(remat=False, save_inner_grads=False),
    *_mixflow(remat=True, model="toy"),
    *_mixflow(save_inner_grads=True, optimiser="adam"),
    *_mixflow(save_inner_grads=False, optimiser="momentum"),
    *_bptt(save_inner_grads=True, task="learning_lr"),
    *_bptt(layers=2, optimiser="adam"),
    *_replay(remat=False, optimiser="momentum"),
)

MUTANTS = (*STATE_SPACE, *PERFORMER, *INVERTIBLE, *BILEVEL)
