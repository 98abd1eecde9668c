"""Arithmetic in named dims: ``"2*H + 1"``, ``"H**-0.5"``."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gradgate.references.contract import UsageError, unknown

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}

LEGAL = (ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp)
"""Kinds of nodes that an expression may have."""


def evaluate(text: str | float, dims: Mapping[str, int]) -> Any:
    """The number that an expression of dims stands for.

    Args:
        text: a number, or an expression of names of dims, numbers, ``+ - * / // % **`` and parentheses.
        dims: name -> size.

    Raises:
        UsageError: it is no such expression, or names a dim that is not declared; the nearest name is given.
    """
    return text if isinstance(text, (int, float)) else _value(_parsed(text), dims, text)


def names(text: str | float) -> set[str]:
    """The dims that an expression names."""
    return (
        set()
        if isinstance(text, (int, float))
        else {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)}
    )


def check(text: str | float, dims: Iterable[str], what: str) -> None:
    """Check that an expression names declared dims only.

    Raises:
        UsageError: it does not, or is no expression.
    """
    if not isinstance(text, (int, float)):
        for node in ast.walk(_parsed(text)):
            if isinstance(node, ast.expr) and not isinstance(node, LEGAL):
                raise UsageError(f"{what}: {text!r} is not an expression of dims; dims are separated by spaces: 'T H'")
    for name in sorted(names(text)):
        if name not in set(dims):
            wrong = unknown(f"dim of {what}", name, dims)
            raise UsageError(f'{wrong}; a new dim needs sizes, as in dims={{"{name}": (4, 1, 7)}}')


@functools.lru_cache(maxsize=512)
def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, TypeError):
        raise UsageError(f"{text!r} is not an expression of dims such as 'T', '2*H + 1' or 'H**-0.5'") from None


def _value(node: ast.expr, dims: Mapping[str, int], text: str) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name):
        if node.id not in dims:
            raise unknown(f"dim in {text!r}", node.id, dims)
        return dims[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, dims, text)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = (_value(side, dims, text) for side in (node.left, node.right))
        try:
            return _OPERATORS[type(node.op)](left, right)
        except ZeroDivisionError:
            return 0.0  # of an empty dim, as in H**-0.5 with H = 0: there are no numbers to scale
    raise UsageError(f"{text!r} is not an expression of dims; legal: names, numbers, + - * / // % ** and parentheses")
