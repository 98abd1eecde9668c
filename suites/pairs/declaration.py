"""Checks the declaration of a pair before either function is imported, and says what is wrong."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradgate.references.backends import NARROW
from gradgate.references.contract import FRAMEWORKS, Claim, UsageError, unknown
from gradgate.references.plugged import check_expected, check_kappa
from gradgate.suites.pairs import approximate, devices
from gradgate.suites.pairs.declared import LEFT_OUT, RESERVED, TRANSFORMATIONS, DeclaredPair
from gradgate.suites.pairs.draws import WIDTHS, Draw


def check_declaration(pair: DeclaredPair) -> None:
    """Check everything of a pair that needs neither function.

    Raises:
        UsageError: says what is wrong, what is legal and which name is nearest.
    """
    who = pair.called
    if not pair.reference and pair.reference is not None:
        raise UsageError(
            f"{who}: a pair needs a reference=: the plain function that the function must agree with, or None for the "
            "derivative of its own forward pass"
        )
    if not isinstance(pair.inputs, Mapping) or not pair.inputs:
        raise UsageError(f"{who}: inputs maps names to draws, such as {{'x': normal('T H')}}, not {pair.inputs!r}")
    for field in ("dims", "options", "regimes"):
        value = getattr(pair, field)
        if not isinstance(value, Mapping):
            raise UsageError(f"{who}: {field} maps names to values, as a dict does; it is {value!r}")
    for name, sizes in pair.dims.items():
        if name in RESERVED or not name.isidentifier():
            raise UsageError(f"{who}: no dim can be called {name!r}; reserved are {', '.join(RESERVED)}")
        _check_sizes(who, name, sizes)
    paths = Counter(path for name, tree in pair.inputs.items() for path, _ in _paths(tree, name))
    for path, times in paths.items():
        if times > 1:
            raise UsageError(f"{who}: {times} inputs have the path {path}; rename a key")
    for path, leaf in pair.leaves.items():
        if not isinstance(leaf, Draw):
            raise UsageError(
                f"{who}: input {path} is {leaf!r}; a draw such as normal('T H') or integers('T', below='V')"
            )
        leaf.check(pair.dims, f"{who}, input {path}")
    if not pair.differentiated:
        raise UsageError(f"{who}: no input gets a gradient; at least one must be floating, such as normal('T H')")
    _check_options(who, pair)
    for name, change in pair.regimes.items():
        if not callable(change) or not name:
            raise UsageError(f"{who}: regime {name!r} is a function of the inputs that returns them changed")
    for field, example in (("dtypes", "('float32',)"), ("composes", "('vmap',)"), ("disclaims", "('vmap',)")):
        if isinstance(getattr(pair, field), str):
            raise UsageError(f"{who}: {field} is a tuple of names, such as {example}, not {getattr(pair, field)!r}")
    for dtype in pair.dtypes:
        if dtype not in WIDTHS:
            raise unknown(f"dtype of {who}", str(dtype), WIDTHS)
    if not set(pair.dtypes) & {"float64", "float32"}:
        raise UsageError(f"{who}: dtypes is a tuple with float64 or float32 among them, not {pair.dtypes!r}")
    if pair.by_backward and pair.reference is None:
        raise UsageError(f"{who}: by_backward needs a reference=, whose gradient torch.autograd.grad can take")
    if pair.accumulates not in ("", "float32"):
        raise UsageError(f"{who}: accumulates is 'float32' or '', not {pair.accumulates!r}")
    if pair.accumulates and not NARROW & set(pair.dtypes):
        raise UsageError(f"{who}: accumulates is about bfloat16 and float16; dtypes has neither")
    devices.check(who, pair.devices)
    check_kappa(pair.kappa, pair.dtypes)
    check_expected(pair.expected)
    _check_approximation(who, pair)
    for claim in pair.promises:
        if not isinstance(claim, Claim):
            raise UsageError(f"{who}: a claim is made by gradgate.grows, gradgate.at_most and so on, not {claim!r}")
    _check_promises(who, pair)
    _check_measured(who, pair)
    _check_unmeasured(who, pair)
    if isinstance(pair.donates, str):
        raise UsageError(f"{who}: donates is a tuple of names of inputs, such as ('w',), not {pair.donates!r}")
    for name in pair.donates:
        if name not in pair.inputs:
            raise unknown(f"input in donates of {who}", str(name), pair.inputs)
    if pair.framework and pair.framework not in FRAMEWORKS:
        raise unknown(f"framework of {who}", pair.framework, FRAMEWORKS)


def _paths(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, leaf) of every leaf, as `named_leaves` calls them, which keeps one leaf of each path."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            yield from _paths(item, f"{path}.{key}")
    elif isinstance(tree, (list, tuple)):
        for i, item in enumerate(tree):
            yield from _paths(item, f"{path}[{i}]")
    else:
        yield path, tree


def check_transformations(pair: DeclaredPair) -> None:
    """Check what a pair composes with and disclaims, which depends on its framework.

    Raises:
        UsageError: names the wrong one.
    """
    if pair.devices and pair.where == "jax":
        raise UsageError(
            f"{pair.called}: devices are for PyTorch; a Pallas kernel is interpreted if the function passes "
            "interpret=True to pallas_call"
        )
    if pair.donates and pair.where != "jax":
        raise UsageError(f"{pair.called}: donates is for JAX; a function of PyTorch that changes inputs is refuted")
    if pair.where == "torch" and any(draw.kind == "key" for draw in pair.leaves.values()):
        raise UsageError(f"{pair.called}: a key is JAX's; in PyTorch, random=True seeds the global generator")
    declared = pair.approximates
    if isinstance(declared, approximate.Convergence) and declared.option in pair.shared:
        raise UsageError(f"{pair.called}: the reference takes {declared.option}, too; an order is that of the function")
    for name in (*pair.composes, *pair.disclaims):
        if name not in TRANSFORMATIONS[pair.where]:
            raise unknown(f"transformation of {pair.called} ({pair.where})", name, TRANSFORMATIONS[pair.where])


def _check_promises(who: str, pair: DeclaredPair) -> None:
    """Check that promises are about declared dims, and that no two have one name."""
    seen: set[str] = set()
    for claim in pair.promises:
        if claim.name in seen:
            raise UsageError(f"{who}: {claim.name} is claimed twice; one promise about it is enough")
        seen.add(claim.name)
        swept = [over for over in (getattr(claim.law, "over", None), getattr(claim.law, "never", None)) if over]
        for over in swept:
            if over.variable not in pair.dims:
                raise unknown(f"dim in the claims of {who}", over.variable, pair.dims)
        for name, value in getattr(claim.law, "spec", {}).items():
            legal = (*pair.dims, *pair.options, *RESERVED)
            if name not in legal:
                raise unknown(f"field in at= of the claims of {who}", name, legal)
            values = pair.options.get(name)
            if values is not None and not callable(values) and value not in list(values):
                listed = ", ".join(map(repr, values))
                raise UsageError(f"{who}: at= of {claim.name} sets {name}={value!r}; the option's values are {listed}")


def _check_measured(who: str, pair: DeclaredPair) -> None:
    """Check the problems at which a pair is measured.

    Raises:
        UsageError: names the wrong dim, option or value and the nearest legal one.
    """
    if isinstance(pair.measured, (Mapping, str)) or not isinstance(pair.measured, Sequence):
        raise UsageError(f"{who}: measured is a list of mappings, such as [{{'T': 1024}}], not {pair.measured!r}")
    for place, entry in enumerate(pair.measured):
        if not isinstance(entry, Mapping):
            raise UsageError(f"{who}: measured[{place}] maps dims and options to values, not {entry!r}")
        if entry in pair.measured[:place]:
            raise UsageError(f"{who}: measured lists {dict(entry)!r} twice")
        for name, value in entry.items():
            if name in pair.dims:
                _check_sizes(who, name, (value,))
            elif name == "dtype":
                if value not in pair.dtypes:
                    raise unknown(f"dtype in measured of {who}", str(value), pair.dtypes)
            elif name not in pair.options:
                raise unknown(f"dim or option in measured of {who}", str(name), (*pair.dims, *pair.options, "dtype"))
            elif not callable(pair.options[name]) and value not in pair.options[name]:
                legal = ", ".join(map(repr, pair.options[name]))
                raise UsageError(f"{who}: measured sets {name} to {value!r}; legal are {legal}")


def _check_unmeasured(who: str, pair: DeclaredPair) -> None:
    """Check what a pair leaves out, and that it promises nothing about it.

    Raises:
        UsageError: names the wrong quantity, and lists the legal ones.
    """
    if not isinstance(pair.unmeasured, Mapping):
        raise UsageError(f"{who}: unmeasured maps quantities to reasons, not {pair.unmeasured!r}")
    for quantity, reason in pair.unmeasured.items():
        if quantity not in LEFT_OUT:
            raise unknown(f"quantity in unmeasured of {who}", str(quantity), LEFT_OUT)
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError(f"{who}: unmeasured[{quantity!r}] says in a sentence why it is left out, not {reason!r}")
    for claim in pair.promises:
        quantity = getattr(claim.law, "quantity", "")
        if quantity in pair.unmeasured or (quantity and "temp_bytes" in pair.unmeasured):
            raise UsageError(f"{who} claims {claim.name}, and unmeasured leaves {quantity} out: remove one of the two")


def _check_sizes(who: str, name: str, sizes: Any) -> None:
    whole = isinstance(sizes, Sequence) and all(
        isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in sizes
    )
    if not whole or not sizes:
        raise UsageError(f"{who}: dim {name} lists the sizes to try, such as (1, 3, 64), not {sizes!r}")


def _check_options(who: str, pair: DeclaredPair) -> None:
    for name, values in pair.options.items():
        if name in (*RESERVED, *pair.dims, *pair.inputs):
            raise UsageError(
                f"{who}: option {name!r} has the name of a dim, of an input, or of a field of every problem"
            )
        if callable(values):
            taken = list(inspect.signature(values).parameters)
            if len(taken) != 1:
                raise UsageError(f"{who}: values of {name} are a list, or a function of the dims (name -> size)")
        elif isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UsageError(f"{who}: option {name} lists its legal values, such as ('mean', 'sum'), not {values!r}")


def _check_approximation(who: str, pair: DeclaredPair) -> None:
    """Check what a pair declares about its error.

    Raises:
        UsageError: it is neither a bound nor an order, or the option of an order has no values that show it.
    """
    declared: Any = pair.approximates
    if declared is None or isinstance(declared, approximate.ErrorBound):
        return
    if not isinstance(declared, approximate.Convergence):
        raise UsageError(f"{who}: approximates is made by gradgate.within or gradgate.order, not {declared!r}")
    if declared.option not in pair.options:
        raise unknown(f"option of approximates= of {who}", declared.option, pair.options)
    values: Sequence[Any] | Callable[..., Any] = pair.options[declared.option]
    numbers = () if callable(values) else tuple(values)
    if not numbers or not all(isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0 for v in numbers):
        raise UsageError(f"{who}: {declared.option} lists steps, such as (0.1, 0.05, 0.025), not {values!r}")
    steps = [step for step, _ in declared.steps(numbers)]
    if len(set(steps)) < approximate.FEWEST_STEPS or steps[0] < approximate.SPAN * steps[-1]:
        raise UsageError(
            f"{who}: an order is fitted over at least {approximate.FEWEST_STEPS} steps that span a factor of "
            f"{approximate.SPAN:g}; {declared.option} has {numbers!r}"
        )
    if "second_order" in pair.composes:
        raise UsageError(f"{who}: with an order of convergence, second derivatives are not judged: do not claim them")
