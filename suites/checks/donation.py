"""Judges whether a call of a pair's function gives the memory of its inputs to its outputs, in JAX."""

from __future__ import annotations

import warnings
from typing import Any

from gradgate.references.draws import shapes
from gradgate.suites.checks.base import Case
from gradgate.suites.judging.subject import Inapplicable, Refuted


def donation(case: Case) -> None:
    """The function donates exactly the inputs that the pair names, and XLA for a CPU reuses their memory.

    The call is traced and compiled over shapes, and never run.

    Raises:
        Refuted: an input is not donated, its memory is not reused, or an input is donated that is not named.
        Inapplicable: the function is no pair, or its inputs are empty.
    """
    import jax

    pair: Any = case.subject.function
    if not getattr(pair, "donates", ()):
        raise Inapplicable("only a pair with donates= claims donation")
    problem = shapes(case.spec)
    leaves = {**problem.data["given"], **problem.params}

    def call(given: dict[str, Any], rest: dict[str, Any]) -> Any:
        every = {**given, **rest}
        data = {**problem.data, "given": {path: every[path] for path in problem.data["given"]}}
        params = {path: every[path] for path in problem.params}
        return pair.all_outputs("function", problem._replace(data=data), params, case.options)

    named = {path: leaves[path] for path in pair.donated}
    rest = {path: leaf for path, leaf in leaves.items() if path not in named}
    with jax.enable_x64(case.spec.dtype == "float64"):
        traced = jax.make_jaxpr(call)(named, rest)
        donated = _donated(traced.jaxpr, [*sorted(named), *sorted(rest)])
        if absent := sorted(named.keys() - donated):
            raise Refuted(
                f"{', '.join(absent)} not donated: a call keeps the memory of the input beside that of the output; "
                "jax.jit(…, donate_argnums=…) around the function donates it",
                absent[0],
            )
        if more := sorted(donated - named.keys()):
            raise Refuted(f"{', '.join(more)} donated, and donates= does not name it: a call deletes it", more[0])
        asked = sum(leaf.size * leaf.dtype.itemsize for leaf in named.values())
        if not asked:
            raise Inapplicable("the inputs have no numbers at these sizes")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of what is judged below
            compiled = jax.jit(call, donate_argnums=0).lower(named, rest).compile()
    analysis: Any = compiled.memory_analysis()
    reused = analysis.alias_size_in_bytes
    if reused < asked:
        raise Refuted(f"outputs reuse {reused:,} of the {asked:,} bytes that are donated: no output has such a shape")


def _donated(jaxpr: Any, paths: list[str]) -> set[str]:
    """Paths of the arguments of a jaxpr that one of its calls donates."""
    names = {id(var): path for var, path in zip(jaxpr.invars, paths, strict=True)}
    found = set()
    for equation in jaxpr.eqns:
        for var, given in zip(equation.invars, equation.params.get("donated_invars", ()), strict=False):
            if given and id(var) in names:
                found.add(names[id(var)])
    return found
