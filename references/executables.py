"""Compiled programs of JAX, shared by all functions that give the same program.

`gradgate.check` makes its functions anew in each call, so JAX, which tells its compiled programs apart by their
functions, would compile the same ones again. Each call is traced and lowered, because a function may read what has
changed since; the text of the lowered program, with its constants in it, is what tells programs apart here.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MOST = 64
"""Number of programs that are kept, those last used."""
_PROGRAMS: OrderedDict[str, Any] = OrderedDict()


def shared(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of trees of arrays under jit.

    Returns:
        What ``jax.jit(function)`` is, without its attributes. Arrays that are committed to a device are given to that.

    Cost: tracing, lowering and, for a program that is not kept, compiling, once for each structure, shapes and dtypes;
        some 50 µs a call.
    """
    import jax

    jitted = jax.jit(function)
    flat: dict[Any, Any] = {}
    made: dict[int, tuple[Any, Any, Any]] = {}

    def call(*trees: Any) -> Any:
        given, structure = jax.tree.flatten(trees)
        if any(getattr(leaf, "committed", False) for leaf in given):
            return jitted(*trees)
        if structure not in flat:
            # What a program does not use stays an argument, so that two programs with one text have the same ones.
            flat[structure] = jax.jit(functools.partial(_unflattened, function, structure), keep_unused=True)
        traced = flat[structure].trace(*given)
        if id(traced.jaxpr) not in made:
            made[id(traced.jaxpr)] = traced.jaxpr, _compiled(traced, len(given)), jax.tree.structure(traced.out_info)
        _, program, outputs = made[id(traced.jaxpr)]
        return jax.tree.unflatten(outputs, jax.tree.leaves(program(*given)))

    return call


def forget() -> None:
    """Drop the programs that are kept."""
    _PROGRAMS.clear()


def _unflattened(function: Callable[..., Any], structure: Any, *given: Any) -> Any:
    import jax

    return function(*jax.tree.unflatten(structure, given))


def _compiled(traced: Any, arguments: int) -> Any:
    """The compiled program, a kept one if there is one with the same text.

    One that calls back into Python is its own, and so is one whose text lacks constants: they are arguments then.
    """
    lowered = traced.lower()
    text = lowered.as_text()
    head = re.search(r"@main\((.*)\) *->", text)
    if "callback" in text or head is None or len(re.findall(r"%arg\d+:", head[1])) != arguments:
        return lowered.compile()
    key = hashlib.sha256(text.encode()).hexdigest()
    if key not in _PROGRAMS:
        _PROGRAMS[key] = lowered.compile()
        while len(_PROGRAMS) > MOST:
            _PROGRAMS.popitem(last=False)
    _PROGRAMS.move_to_end(key)
    return _PROGRAMS[key]
