"""`gradgate.check`: two functions at given arguments, in one line of any test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgate.references.backends import to_numpy
from gradgate.references.contract import UsageError
from gradgate.suites.pairs import trees
from gradgate.suites.pairs.draws import WIDTHS
from gradgate.suites.pairs.pair import Pair

SEEDS = 3
"""Number of draws of cotangents that are tried."""
CLAIMS = (
    "tree",
    "outputs",
    "gradient_exact",
    "gradient_float64",
    "gradient_float32",
    "gradient_bfloat16",
    "cotangents",
)
"""Claims that a check judges, in order."""


@dataclass(frozen=True)
class Given:
    """An argument's leaf: given numbers in the place of a draw."""

    array: Any
    floating: bool
    gradient: bool = True
    kind: str = "given"
    dtype: str = ""

    def check(self, dims: Any, what: str) -> None:
        """Nothing is declared, so nothing can be wrong."""

    def shape(self, dims: Any) -> tuple[int, ...]:
        """The shape of the array."""
        return tuple(self.array.shape)

    def count(self, dims: Any) -> int:
        """The number of elements of the array."""
        return int(np.prod(self.array.shape, dtype=int))


@dataclass(frozen=True, eq=False)
class GivenPair(Pair):
    """A pair whose inputs are given and not drawn; seeds change only the cotangents."""

    def __post_init__(self) -> None:
        """Nothing to check: `check` made it."""

    @functools.cached_property
    def _flat(self) -> tuple[dict[str, Any], Callable[[dict[str, Any]], Any]]:
        return trees.flatten(self.framework, dict(self.inputs))

    @functools.cached_property
    def leaves(self) -> dict[str, Any]:
        """Path -> given array."""
        return {path: leaf for path, leaf in self._flat[0].items() if isinstance(leaf, Given)}

    def drawn(self, spec: Any) -> dict[str, Any]:
        """Path -> NumPy array."""
        return {path: leaf.array for path, leaf in self.leaves.items()}

    def arguments(self, leaves: Mapping[str, Any]) -> list[Any]:
        """The positional arguments; whatever is not an array is as it was given."""
        flat, put = self._flat
        return list(put({**flat, **leaves}).values())

    @staticmethod
    def rounded(array: Any, dtype: str) -> Any:
        """Given numbers stay as they are."""
        return array if dtype == "float64" else Pair.rounded(array, dtype)


def check(
    function: Callable[..., Any],
    reference: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    *,
    kappa: float = 16.0,
    seed: int = 0,
) -> None:
    """Check that a function and its gradient are those of a plain reference, at these arguments.

    Both are called as ``function(*args, **options)``; the reference gets only the options that it takes. Every floating
    leaf of the arguments gets a gradient, integers and booleans are data, and every floating output gets a random
    cotangent. The formula is compared in sixty digits where it can be traced and is small enough. The numbers are
    judged in the dtype of the arguments: an error may be `kappa` times the rounding error of the reference's own
    gradient, which is measured.

    Args:
        function: the function under test, in JAX or PyTorch.
        reference: the plain function, in the same framework; another object.
        args: arrays of JAX or tensors of PyTorch, or any trees of them.
        options: keywords of the calls.
        kappa: how many times the rounding error of the reference is allowed.
        seed: the seed of the cotangents.

    Raises:
        AssertionError: they differ; the message names the claim, the leaf, its error and the noise, and the call that
            repeats the check. Or the gradient cannot be judged at these arguments; the message says why.
        UsageError: the arguments have no floating array, or both functions are the same object.

    Cost: about ten calls of the function and thirty of the reference, and in JAX some ten compilations.

    Not for: arguments of millions of numbers, since gradients are compared on the host; options, layouts of memory and
    transformations, which `gradgate.Pair` tries.

    Example::

        gradgate.check(fused_cross_entropy, plain_cross_entropy, (x, weight, labels), {"reduction": "sum"})
    """
    framework = _framework(args)
    names = _names(reference, len(args))
    inputs = {name: _given(framework, arg) for name, arg in zip(names, args, strict=True)}
    dtype = _narrowest(inputs, framework)
    pair = GivenPair(
        function, reference, inputs, options={name: (value,) for name, value in (options or {}).items()},
        dtypes=(dtype,), kappa=kappa, framework=framework,
    )  # fmt: skip
    _judged(pair, seed)


def _judged(pair: Pair, seed: int) -> None:
    """Judge CLAIMS on SEEDS problems.

    Raises:
        AssertionError: a claim is refuted or gives no answer, or no claim could tell anything about the gradient.
    """
    from gradgate.references import registry
    from gradgate.suites.judging.engine import judge
    from gradgate.suites.judging.explain import explain
    from gradgate.suites.judging.run import Run
    from gradgate.suites.judging.subject import Subject
    from gradgate.suites.judging.verdict import Task

    method = pair.lowered
    subject = Subject(method, pair)
    options = {option.name: option.values(None)[0] for option in method.options}
    told_nothing: dict[str, str] = {}
    upheld: set[str] = set()
    try:
        for number in range(seed, seed + SEEDS):
            spec = pair.spec(dtype="float64", seed=number)
            for claim in method.claims:
                if claim.name in CLAIMS and not (claim.name == "gradient_exact" and number > seed):
                    verdict = judge(Task.of(method, claim), subject, Run(spec=spec.to_json(), options=options))
                    if verdict.verdict in ("refuted", "error"):
                        told = explain(verdict).lines("claim", "reason", "measured", "leaf")
                        raise AssertionError("\n".join([*told, f"repeat: gradgate.check(…, seed={number})"]))
                    if verdict.verdict == "upheld":
                        upheld.add(claim.name)
                    elif claim.name.startswith("gradient_"):
                        told_nothing[claim.name] = f"{claim.name}: {verdict.reason}"
        if not any(name.startswith("gradient_") for name in upheld):
            raise AssertionError("\n".join(["nothing could be said about the gradient here", *told_nothing.values()]))
    finally:
        registry.forget(method.family)


def _framework(args: Sequence[Any]) -> str:
    """The framework whose arrays are among the arguments.

    Raises:
        UsageError: there are none, or of both.
    """
    import sys

    if not isinstance(args, (tuple, list)):
        raise UsageError(
            f"args is a tuple of the functions' arguments, such as (x, weight), not a {type(args).__name__}"
        )
    seen = set()
    for name, known in (("torch", "Tensor"), ("jax", "Array")):
        if name in sys.modules:
            kind = getattr(sys.modules[name], known)
            if any(isinstance(leaf, kind) for leaf in trees.flatten(name, list(args))[0].values()):
                seen.add(name)
    if len(seen) != 1:
        raise UsageError(f"the arguments have arrays of {' and '.join(sorted(seen)) or 'neither JAX nor PyTorch'}")
    return seen.pop()


def _names(function: Callable[..., Any], count: int) -> list[str]:
    """Names of the positional arguments: those of the function's signature, if it has one."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = ()  # type: ignore[assignment]
    own = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return own[:count] if len(own) >= count else [f"args[{i}]" for i in range(count)]


def _given(framework: str, arg: Any) -> Any:
    """An argument with `Given` for its arrays."""
    flat, put = trees.flatten(framework, arg)

    def one(leaf: Any) -> Any:
        if not trees.is_array(framework, leaf):
            return leaf
        floating = trees.is_floating(framework, leaf)
        name = str(leaf.dtype).removeprefix("torch.")
        if floating and name not in WIDTHS:
            raise UsageError(f"an argument is of {name}; legal: {', '.join(WIDTHS)}, integers and booleans")
        return Given(to_numpy(leaf) if floating else _plain(leaf), floating, floating, dtype=name if floating else "")

    return put({path: one(leaf) for path, leaf in flat.items()})


def _plain(leaf: Any) -> Any:
    return leaf.detach().cpu().numpy() if hasattr(leaf, "detach") else np.asarray(leaf)


def _narrowest(inputs: Mapping[str, Any], framework: str) -> str:
    """The narrowest dtype of a floating argument.

    Raises:
        UsageError: there is none.
    """
    flat = trees.flatten(framework, dict(inputs))[0].values()
    found = {leaf.dtype for leaf in flat if isinstance(leaf, Given) and leaf.floating}
    if not found:
        raise UsageError("no argument has a floating array, so there is no gradient to check")
    return min(found, key=list(WIDTHS).index)
