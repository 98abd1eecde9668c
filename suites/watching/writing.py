"""Recorded calls as pairs in a file of the user's: what ``gradgate watch --write`` adds, and what it leaves alone.

A pair that the file has stays as it is, whatever its author has changed in it. So a second run adds the rules that are
new and changes nothing else.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import re
import string
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradgate.suites.watching import replay

HEAD = '''"""Pairs of the rules that gradgate watch saw, each against the derivative of its own forward pass.

Widen the sizes and the draws, or name a plain reference=: gradgate verify judges every pair in this file.
"""

import gradgate
'''
"""How a new file begins."""


@dataclasses.dataclass(frozen=True)
class Written:
    """A pair as text.

    Attributes:
        module: the module that it imports.
        folder: where that module's package is.
        rule: the rule as the function calls it, ``module.name``.
        variable: the name of the pair.
        draws: the draws that it uses, such as ``normal``.
        text: the function and the pair.
    """

    module: str
    folder: str
    rule: str
    variable: str
    draws: tuple[str, ...]
    text: str


def written(call: replay.Recorded) -> Written | None:
    """The pair of a call; None if its rule has no name to import, or an argument cannot be written down."""
    expression = call.expression()
    arrays = {name: call.flat[path] for name, path in call.names.items()}
    if not expression or any(array.values is None for array in arrays.values()):
        return None
    module, _, name = call.name.partition(":")
    variable = "".join(f"_{c.lower()}" if c.isupper() else c for c in name.rpartition(".")[2]).lstrip("_")
    sizes: dict[int, str] = {}
    for array in arrays.values():
        for size in array.shape:
            sizes.setdefault(size, _letter(len(sizes)))
    draws = {name: _draw(array, sizes) for name, array in arrays.items()}
    floats = [array.dtype for array in arrays.values() if array.differentiated]
    wide = next((dtype for dtype in floats if dtype in ("float64", "float32")), "float32")
    dtypes = ", ".join(f'"{dtype}"' for dtype in dict.fromkeys([wide, *floats]))
    lines = [
        f"def call_{variable}({', '.join(arrays)}):",
        f"    return {module}.{expression}",
        "",
        "",
        f"{variable} = gradgate.Pair(",
        f"    call_{variable},",
        "    reference=None,",
        f"    inputs={{{', '.join(f'{json.dumps(name)}: {draw}' for name, draw in draws.items())}}},",
        f"    dims={{{', '.join(f'{json.dumps(letter)}: ({size},)' for size, letter in sizes.items())}}},",
        f"    dtypes=({dtypes},),",
        f'    framework="{call.framework}",',
        ")",
    ]
    used = tuple(dict.fromkeys(draw.partition("(")[0] for draw in draws.values()))
    return Written(module, _folder(module), f"{module}.{name}", variable, used, "\n".join(lines) + "\n")


def _folder(module: str) -> str:
    """The folder that has to be on the path for an import of a module, which is loaded."""
    first = sys.modules[module.partition(".")[0]]
    places = [*getattr(first, "__path__", ())] or [str(first.__file__)]
    return str(Path(places[0]).parent)


def _letter(number: int) -> str:
    letters = string.ascii_uppercase
    return letters[number] if number < len(letters) else f"D{number}"


def _draw(array: Any, sizes: dict[int, str]) -> str:
    """A draw like the values of an array."""
    dims = json.dumps(" ".join(sizes[size] for size in array.shape))
    values = np.asarray(array.values)
    if values.dtype.kind == "b":
        return f"mask({dims})"
    if values.dtype.kind in "iu":
        least, most = (int(values.min()), int(values.max())) if values.size else (0, 0)
        return f"integers({dims}, below={most + 1}" + (f", low={least})" if least else ")")
    known = values[np.isfinite(values)].astype(float)
    low, high = (float(known.min()), float(known.max())) if known.size else (-1.0, 1.0)
    data = "" if array.differentiated else ", gradient=False"
    if low == high and data:
        return f"constant({low:.4g}, {dims}{data})"
    if low == high == 0:
        return f"normal({dims})"
    if low == high:  # of the same sign, because the rule may not be defined elsewhere
        low, high = sorted(((1 - replay.FEW) * low, (1 + replay.FEW) * low))
    if low >= 0 or high <= 0:
        return f"uniform({dims}, {low:.2g}, {high:.2g}{data})"
    mean, scale = float(f"{known.mean():.1g}"), float(f"{known.std():.2g}")
    about = f", mean={mean:g}" if abs(mean) > scale else ""
    return f"normal({dims}" + (f", scale={scale:g}" if scale != 1 else "") + f"{about}{data})"


def merged(text: str, pairs: Iterable[Written]) -> tuple[str, list[str]]:
    """The text of a file with the pairs that it has not, and the names of those.

    Args:
        text: the file as it is; "" if there is none.
        pairs: what was seen.

    Raises:
        SyntaxError: the file is no Python.
    """
    tree = ast.parse(text or HEAD)
    there = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    taken |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    added: dict[str, Written] = {}
    for one in pairs:
        if one.rule in there:
            continue
        tried = (f"{one.variable}{end}" for end in ("", f"_of_{one.module.rpartition('.')[2]}", *map(str, range(99))))
        free = next(name for name in tried if name not in taken and f"call_{name}" not in taken and name not in added)
        text_of_it = re.sub(rf"\b(call_)?{one.variable}(?= = gradgate|\(|,$)", rf"\g<1>{free}", one.text, flags=re.M)
        added[free] = dataclasses.replace(one, variable=free, text=text_of_it)
    if not added:
        return text, []
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    loaded = {alias.name for node in imports if isinstance(node, ast.Import) for alias in node.names}
    names = {alias.name for node in imports if isinstance(node, ast.ImportFrom) for alias in node.names}
    modules = [m for m in dict.fromkeys(one.module for one in added.values()) if m not in loaded]
    draws = sorted({draw for one in added.values() for draw in one.draws} - names)
    more = [f"import {module}" for module in sorted({*modules, *({"gradgate"} - loaded)})]
    more += [f"from gradgate import {', '.join(draws)}"] if draws else []
    lines = (text or HEAD).rstrip("\n").split("\n")
    last = imports[-1].end_lineno or 0 if imports else 0
    lines[last:last] = more
    body = "\n\n".join(f"\n{one.text.rstrip()}" for one in added.values())
    return "\n".join(lines).rstrip("\n") + f"\n\n{body}\n", list(added)


def main(places: Sequence[str]) -> None:
    """Print the pair of each rule as JSON, a line each; rules that have none are left out.

    Args:
        places: for each rule, the files of its calls, with commas between; the call with the most numbers is written.
    """
    for place in places:
        with contextlib.suppress(Exception):  # its rule cannot be loaded, as its verdict says
            calls = [replay.Recorded.read(one) for one in place.split(",")]
            largest = max(calls, key=_numbers)
            if (found := written(largest)) is not None:
                print(json.dumps(dataclasses.asdict(found)), flush=True)


def _numbers(call: replay.Recorded) -> int:
    arrays = [call.flat[path] for path in call.names.values()]
    return sum(array.values.size for array in arrays) if all(array.values is not None for array in arrays) else -1


if __name__ == "__main__":
    main(sys.argv[1:])
