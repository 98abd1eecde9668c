"""What a framework raises about the gradients that a handwritten rule returned, in words with the rule's own line."""

from __future__ import annotations

import contextlib
import dis
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from gradgate.suites.exact.lines import line_at, text_of
from gradgate.suites.pairs import captured
from gradgate.suites.pairs.pair import Pair

TYPE = r"(\w+)\[([\d,]*)\]"
JAX_SHAPE = re.compile(rf"at output\[(\d+)\](\S*) the bwd rule produced .* type {TYPE} .* to an input of type {TYPE}")
LEAVES = r"PyTreeDef\(\(((?:\*,? ?)*)\)\)"
JAX_COUNT = re.compile(rf"got bwd output structure {LEAVES} for primal input structure {LEAVES}")
TORCH_SHAPE = re.compile(r"[Ff]unction (\w+)Backward returned an .* at index (\d+) - got \[(.*)\] but .* \[(.*)\]")
TORCH_COUNT = re.compile(r"[Ff]unction (\w+)Backward returned an incorrect number of gradients .* (\d+), got (\d+)\)")
SUM = "sum over the axes over which it was broadcast"
NONE = "return None for an argument without a gradient"


@contextlib.contextmanager
def named(pair: Pair, role: str = "function") -> Iterator[None]:
    """The scope of a backward pass.

    Raises:
        TypeError, ValueError, RuntimeError: as the framework's error about what the one rule of `pair` returned, but
            with the names of the rule and of its argument, and the line that returns. Others pass unchanged.
    """
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        function = pair.loaded[role]
        held = [captured.owner(one) for one in (function, *(one for _, one in captured.held(function)))]
        said = (_of_jax if pair.where == "jax" else _of_torch)(str(error), held)
        if said:
            raise type(error)(said) from error
        raise


def _of_jax(message: str, held: list[Any]) -> str:
    kind = sys.modules["jax"].custom_vjp
    rules = {id(one): one for one in held if isinstance(one, kind)}
    if len(rules) != 1 or not message.startswith("Custom VJP bwd rule"):
        return ""
    [rule] = rules.values()
    names = [name for at, name in enumerate(_parameters(rule.fun)) if at not in rule.nondiff_argnums]
    if shape := JAX_SHAPE.search(message):
        at, more, *types = shape.groups()
        got, wanted = (f"{dtype}[{dims.replace(',', ', ')}]" for dtype, dims in (types[:2], types[2:]))
        wider = types[0] == types[2] and types[1].count(",") > types[3].count(",")
        return _said(rule.bwd, "", f"{got} for {_name(names, int(at))}{more}, which is {wanted}", SUM if wider else "")
    if count := JAX_COUNT.search(message):
        few, many = (text.count("*") for text in count.groups())
        return _said(rule.bwd, "", f"{few} of {many} gradients", NONE)
    return ""


def _of_torch(message: str, held: list[Any]) -> str:
    kind = sys.modules["torch"].autograd.Function
    found = TORCH_SHAPE.search(message) or TORCH_COUNT.search(message)
    named = (one for one in held if found and isinstance(one, type) and one.__name__ == found[1])
    rules: set[Any] = {one for one in named if issubclass(one, kind)}
    if not found or len(rules) != 1:
        return ""
    [rule] = rules
    if len(found.groups()) == 3:
        return _said(rule.backward, f"{rule.__name__}.", f"{found[3]} of {found[2]} gradients", NONE)
    setup = rule.setup_context is not kind.setup_context
    names = _parameters(rule.forward)[0 if setup else 1 :]
    _, at, got, wanted = found.groups()
    return _said(rule.backward, f"{rule.__name__}.", f"[{got}] for {_name(names, int(at))}, which is [{wanted}]", "")


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _name(names: list[str], at: int) -> str:
    return names[at] if at < len(names) else f"argument {at}"


def _said(rule: Callable[..., Any], of: str, what: str, remedy: str) -> str:
    """What a rule returns, what to do, and its last line that returns."""
    code = getattr(inspect.unwrap(rule), "__code__", None)
    lines = [one.positions for one in dis.get_instructions(code) if one.opname.startswith("RETURN")] if code else []
    last = lines[-1].lineno if lines and lines[-1] else None
    at = line_at(code.co_filename, last) if code and last else ""
    where = f"{at}: {text_of(at)}" if at else ""
    name = getattr(rule, "__name__", "the backward pass")
    return "; ".join(filter(None, [f"{of}{name} returns {what}", remedy, where]))
