"""The tools with which people check gradients today, run on the pairs and their mutants in the usual way.

Each tool gets one problem, with the usual shape, the first values of the options, and inputs drawn with seed 0.
`gradcheck`, `gradgradcheck` and `check_grads` are run in float64 with their own defaults. The comparisons that are
common in kernel repositories are in float32, with a cotangent of ones, against the plain function's gradient.
`torch.library.opcheck` is left out: it judges registered operators, and none of these functions is one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gradgate.references.backends import precision, to_numpy
from gradgate.suites.pairs.pair import Pair

LOOSE, TIGHT = 1e-2, 1e-3


def detected_by(pair: Pair) -> dict[str, bool]:
    """Tool -> whether it reports an error in the pair's function. Tools of the other framework are left out.

    Cost: 0.1 to 5 s.
    """
    tools = _TOOLS[pair.where]
    result: dict[str, bool] = {}
    for name, tool in tools.items():
        if name.endswith("_second") and "second_order" not in pair.composes:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                tool(pair)
            except Exception:
                result[name] = True
            else:
                result[name] = False
    return result


def _usual(pair: Pair, dtype: str) -> tuple[Any, dict[str, Any]]:
    """The problem with the usual sizes, and the first values of the options."""
    method = pair.lowered
    spec = pair.spec(dtype=dtype)
    return spec.build(pair.where), {option.name: option.values(spec)[0] for option in method.options}  # type: ignore[arg-type]


def _of_leaves(pair: Pair, problem: Any, options: Mapping[str, Any], role: str = "function") -> Callable[..., Any]:
    def function(*leaves: Any) -> Any:
        params = dict(zip(problem.params, leaves, strict=True))
        return tuple(pair.outputs(role, problem, params, options if role == "function" else {}).values())

    return function


def _gradcheck(pair: Pair, *, fast: bool = False, second: bool = False) -> None:
    import torch

    problem, options = _usual(pair, "float64")
    leaves = [leaf.detach().clone().requires_grad_() for leaf in problem.params.values()]
    check = torch.autograd.gradgradcheck if second else torch.autograd.gradcheck
    check(_of_leaves(pair, problem, options), leaves, fast_mode=fast)


def _check_grads(pair: Pair, order: int = 1) -> None:
    from jax.test_util import check_grads

    problem, options = _usual(pair, "float64")
    with precision("jax", "float64"):
        check_grads(_of_leaves(pair, problem, options), tuple(problem.params.values()), order=order, modes=("rev",))


def _of_ones(pair: Pair, role: str) -> list[Any]:
    """The gradient of the sum of all outputs, in float32."""
    problem, options = _usual(pair, "float32")
    function = _of_leaves(pair, problem, options, role)
    if pair.where == "jax":
        import jax

        with precision("jax", "float32"):
            places = tuple(range(len(problem.params)))
            grads = jax.grad(lambda *leaves: sum(out.sum() for out in function(*leaves)), places)(
                *problem.params.values()
            )
            return [to_numpy(grad) for grad in grads]

    leaves = [leaf.detach().clone().requires_grad_() for leaf in problem.params.values()]
    sum(out.sum() for out in function(*leaves)).backward()
    return [np.zeros(leaf.shape) if leaf.grad is None else to_numpy(leaf.grad.detach()) for leaf in leaves]


def _allclose(pair: Pair, tolerance: float) -> None:
    for got, exact in zip(_of_ones(pair, "function"), _of_ones(pair, "reference"), strict=True):
        np.testing.assert_allclose(got, exact, rtol=tolerance, atol=tolerance)


def _loose(pair: Pair) -> None:
    _allclose(pair, LOOSE)


def _tight(pair: Pair) -> None:
    _allclose(pair, TIGHT)


_TOOLS: Mapping[str, Mapping[str, Callable[[Pair], None]]] = {
    "torch": {
        "gradcheck": _gradcheck,
        "gradcheck_fast": lambda pair: _gradcheck(pair, fast=True),
        "gradgradcheck_second": lambda pair: _gradcheck(pair, second=True),
        "allclose_1e-3": _tight,
        "allclose_1e-2": _loose,
    },
    "jax": {
        "check_grads": _check_grads,
        "check_grads_second": lambda pair: _check_grads(pair, order=2),
        "allclose_1e-3": _tight,
        "allclose_1e-2": _loose,
    },
}
"""Framework -> tool -> a function that raises if the tool reports an error; ``_second`` needs a second derivative."""
