"""What a rule keeps, how a wrong gradient relates to the right one, and a short test; in a process of its own.

The right gradient is found by central differences of the forward pass in float64. That is good enough to recognise a
multiple of it. It judges nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from gradgate.references.backends import precision, to_backend, to_numpy
from gradgate.suites.watching import differences, replay
from gradgate.suites.watching.results import AGREES

NUMBERS = 256
"""Most numbers of the inputs, of which each takes two forward passes."""
STEP = 1e-6
NEAR = 1e-5
"""Largest difference, relative to the largest number of a leaf, that counts as none."""
SEEDS = 3
"""Draws of cotangents in which a gradient must relate to the right one in the same way."""
DIGITS = 2
"""Decimal places of the numbers in a test, if it fails with these."""
FEW = 64
"""Most numbers of the inputs in a test."""
FLAT = "its forward pass is flat where the rule passes a gradient on, as a straight-through estimator does"
Leaves = dict[str, Any]


def likeness(pair: replay.SeenPair, spec: Any) -> str:
    """In which simple way the rule's gradient relates to the derivative of its forward pass; "" if in none.

    Args:
        pair: the pair of a call.
        spec: the problem on which it is refuted.
    """
    if sum(leaf.array.size for leaf in pair.leaves.values()) > NUMBERS:
        return ""
    found = set()
    for seed in range(spec.seed, spec.seed + SEEDS):
        own, right = _gradients(pair, dataclasses.replace(spec, seed=seed, dtype="float64"))
        found |= {_likeness(own[path], right[path]) for path in own}
    if len(found) > 1:
        found.discard(AGREES)  # the other inputs are differentiated as they should be
    return found.pop() if len(found) == 1 else ""


def _likeness(own: Any, right: Any) -> str:
    size = max(float(np.abs(right).max(initial=0)), float(np.abs(own).max(initial=0)))
    if not np.isfinite(size):
        return ""
    small = NEAR * size

    def same(a: Any, b: Any) -> Any:
        return np.abs(a - b) <= small

    if same(own, right).all():
        return AGREES
    if np.abs(right).max() <= small:
        return FLAT
    if np.abs(own).max() <= small:
        return "the rule stops the gradient: it is zero"
    factor = float(f"{(own * right).sum() / (right * right).sum():.2g}")  # what somebody would choose
    if same(own, factor * right).all():
        return f"the rule gives {factor:g} times the gradient" + (", a reversal" if factor == -1 else "")
    unlike = ~same(own, right)
    if (np.abs(right[unlike]) <= small).all():
        return FLAT
    if (np.abs(own[unlike]) <= small).all():
        return "the rule gives the gradient masked: some of its numbers are zero in place of what they should be"
    bound = np.abs(own[unlike])
    if (
        same(bound, bound.max()).all()
        and (np.abs(own) <= np.abs(right) + small).all()
        and (own * right >= -small).all()
    ):
        return f"the rule gives the gradient clipped to {bound.max():.3g}"
    return ""


def _gradients(pair: replay.SeenPair, spec: Any) -> tuple[Leaves, Leaves]:
    """The rule's gradient, and the derivative of its forward pass."""
    problem = spec.build(pair.where)
    with precision(pair.where, "float64"):
        own = {path: to_numpy(leaf) for path, leaf in pair.gradient("function", problem, {})[1].items()}

        def value(params: Leaves) -> float:
            given = {path: to_backend(pair.where, array, "float64") for path, array in params.items()}
            if pair.where == "torch":  # some rules look whether an input requires a gradient
                given = {path: leaf.requires_grad_() for path, leaf in given.items()}
            return float(problem.inner(pair.outputs("function", problem, given)))

        start = {path: to_numpy(leaf).astype(float) for path, leaf in problem.params.items()}
        right = {}
        for path, array in start.items():
            slope = np.zeros(array.shape)
            for place in np.ndindex(array.shape):
                ends = []
                for sign in (1, -1):
                    moved = array.copy()
                    moved[place] += sign * STEP
                    ends.append(value({**start, path: moved}))
                slope[place] = (ends[0] - ends[1]) / (2 * STEP)
            right[path] = slope
    return own, right


# Bytes that are kept --------------------------------------------------------------------------------------------------


def kept_bytes(pair: replay.SeenPair, spec: Any) -> dict[str, int]:
    """The bytes that the rule keeps for its backward pass, and those that are kept without it.

    Args:
        pair: the pair of a call.
        spec: any of its problems.

    Raises:
        Exception: of any kind: these bytes cannot be counted.
    """
    ours = pair.residual_bytes(spec, {}, "function")
    with _rules_left_out() if pair.against_itself else contextlib.nullcontext():
        return {"rule": ours, "plain": pair.residual_bytes(spec, {}, "reference")}


@contextlib.contextmanager
def _rules_left_out() -> Iterator[None]:
    """A scope in which autograd differentiates the forward pass of every `torch.autograd.Function`."""
    from torch.autograd import function

    single: Any = function._SingleLevelFunction

    class Context:
        """What a forward pass gets in place of autograd's context."""

        def __getattr__(self, name: str) -> Any:
            return lambda *_: None

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        separate = cls.setup_context is not function.Function.setup_context
        return cls.forward(*args, **kwargs) if separate else cls.forward(Context(), *args, **kwargs)

    single.apply = classmethod(apply)
    try:
        yield
    finally:
        del single.apply


# A short test ---------------------------------------------------------------------------------------------------------


def short_test(pair: replay.SeenPair, spec: Any, call: replay.Recorded) -> str:
    """A test of about ten lines without gradgate, at the smallest inputs that are found to fail.

    Args:
        pair: the pair of a call.
        spec: the problem on which it is refuted.
        call: the recorded call.

    Returns:
        The text; "" if the rule has no name to import, if an argument cannot be written down, or if the framework's own
        checker of gradients finds nothing wrong.
    """
    written = call.expression()
    if not written:
        return ""
    wanted = [path for path, leaf in pair.leaves.items() if leaf.gradient]
    drawn = pair.drawn(spec)
    arrays = {name: np.asarray(drawn.get(name, array.values)) for name, array in pair.inputs.items()}

    def fails(tried: Leaves) -> bool:
        return _fails(pair, tried, wanted)

    if not fails(arrays):
        return ""
    arrays = smallest(arrays, fails)
    plain = {name: np.round(array, DIGITS) if array.dtype.kind == "f" else array for name, array in arrays.items()}
    arrays = plain if fails(plain) else arrays
    if sum(array.size for array in arrays.values()) > FEW:
        return ""
    return _text(pair.where, call, written, arrays, wanted)


def _text(where: str, call: replay.Recorded, written: str, arrays: Leaves, wanted: Sequence[str]) -> str:
    module, _, name = call.name.partition(":")
    names, given = ", ".join(arrays), ", ".join(wanted)
    lines = [f"from {module} import {name.partition('.')[0]}", "", "", "def test_gradient():"]
    if where == "torch":
        for leaf, array in arrays.items():
            grad = ", requires_grad=True" if leaf in wanted else ""
            dtype = "dtype=torch.float64" if array.dtype.kind == "f" else f"dtype=torch.{array.dtype}"
            lines.append(f"    {leaf} = torch.tensor({array.tolist()}, {dtype}{grad})")
        lines.append(f"    assert torch.autograd.gradcheck(lambda {names}: {written}, ({names},))")
        return "\n".join(["import torch", *lines]) + "\n"
    lines.append('    jax.config.update("jax_enable_x64", True)')
    for leaf, array in arrays.items():
        lines.append(f"    {leaf} = jnp.array({array.tolist()}, {str(array.dtype)!r})")
    lines.append(
        f'    check_grads(lambda {given}: {written}, ({given},), order=1, modes=["rev"], atol=1e-4, rtol=1e-4)'
    )
    head = ["import jax", "import jax.numpy as jnp", "from jax.test_util import check_grads"]
    return "\n".join([*head, *lines]) + "\n"


def _fails(pair: replay.SeenPair, arrays: Leaves, wanted: Sequence[str]) -> bool:
    """Whether the framework's own checker of gradients fails at these inputs; False if the rule refuses them."""
    function = pair.loaded["function"]
    try:
        if pair.where == "torch":
            import torch

            given = {
                name: torch.tensor(a, requires_grad=name in wanted) if a.dtype.kind == "f" else torch.tensor(a)
                for name, a in arrays.items()
            }
            function(*given.values())
            return not torch.autograd.gradcheck(function, tuple(given.values()), raise_exception=False)
        from jax.test_util import check_grads

        fixed = {name: a for name, a in arrays.items() if name not in wanted}
        names = [name for name in arrays if name in wanted]

        def of_wanted(*leaves: Any) -> Any:
            return function(*({**fixed, **dict(zip(names, leaves, strict=True))}[name] for name in arrays))

        of_wanted(*(arrays[name] for name in names))
        try:
            check_grads(of_wanted, tuple(arrays[n] for n in names), order=1, modes=["rev"], atol=1e-4, rtol=1e-4)
        except AssertionError:
            return True
    except Exception:
        return False
    return False


def smallest(arrays: Leaves, fails: Callable[[Leaves], bool]) -> Leaves:
    """The arrays with every length that several axes share made as small as the failure allows."""
    while True:
        lengths = sorted({n for array in arrays.values() for n in array.shape if n > 1}, reverse=True)
        for length, shorter in itertools.product(lengths, (1, 2)):
            if shorter >= length:
                continue
            cut = {
                name: array[tuple(slice(0, shorter) if n == length else slice(None) for n in array.shape)]
                for name, array in arrays.items()
            }
            if fails(cut):
                arrays = cut
                break
        else:
            return arrays


def main() -> None:
    """Print what is known of each line of standard input.

    A line is a list of the files of calls, whether their rule is wrong, the Spec of the problem that is refuted or
    null, and whether differences judge the gradient: then it is refuted if they refute one of the calls.
    """
    for line in sys.stdin:
        places, wrong, fields, differs = json.loads(line)
        found = [_known(place, wrong, fields, differs) for place in places]
        print(json.dumps(min(found, key=lambda one: VERDICTS.index(one.get("agrees")))), flush=True)


VERDICTS = (False, True, None)
"""What differences say of a call, those first that say most about the rule."""


def _known(place: str, wrong: bool, fields: dict[str, Any] | None, differs: bool) -> dict[str, Any]:
    """What is known of the rule at one of its calls: fields of `Explained`."""
    answer: dict[str, Any] = {"likeness": "", "test": ""}
    with contextlib.suppress(Exception):  # what fails here only explains
        call = replay.Recorded.read(place)
        pair = call.pair()
        pair.lowered  # registers the class of its problems  # noqa: B018
        spec = pair.spec.from_json(json.dumps(fields or {}))
        with contextlib.suppress(Exception):
            answer["kept_bytes"] = kept_bytes(pair, spec)
        if differs:
            answer |= dataclasses.asdict(differences.judged(pair, spec)) | {"call": call.stem}
        if wrong or differs:
            with contextlib.suppress(Exception):
                answer["likeness"] = likeness(pair, spec)
            with precision(pair.where, "float64"):
                answer["test"] = short_test(pair, spec, call)
    return answer


if __name__ == "__main__":
    main()
