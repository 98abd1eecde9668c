"""The tables of the page "What is judged of a pair", from the code.

``python -m gradgate.suites.tests.guide.judged_page`` prints the page as it should be.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import gradgate
from gradgate.suites.cli import STATUS
from gradgate.suites.pairs.claims import contract
from gradgate.suites.pairs.declared import TRANSFORMATIONS
from gradgate.suites.pairs.draws import Draw
from gradgate.suites.pairs.lowering import _options
from gradgate.suites.pairs.pair import Pair

HEAD = """# What is judged of a pair

Every claim, draw, field and exit status of a [pair](pairs.md), in the words of the code. [What a claim
is](claims.md#the-claims-of-a-pair) says what is tried for each claim. [Settings](settings.md) are of a project.

"""


def with_option(x: Any, chunk: int = 1) -> Any:
    """A function with an option that its reference does not take."""
    return x * 1


def plain(x: Any) -> Any:
    """The reference of `own`."""
    return 1 * x


def widest(framework: str) -> Pair:
    """A pair that declares everything from which a claim comes."""
    more: dict[str, Any] = {"donates": ("x",)} if framework == "jax" else {"devices": ("interpreter",)}
    return Pair(
        with_option,
        reference=plain,
        inputs={"x": gradgate.normal("T")},
        dims={"T": (3, 1)},
        options={"chunk": (1, 2)},
        regimes={"large": lambda given: given},
        dtypes=("float64", "float32", "bfloat16", "float16"),
        composes=TRANSFORMATIONS[framework],
        framework=framework,
        **more,
    )


def claims() -> Iterator[str]:
    """A row for each claim that a pair can have, but for those that it promises about bytes and work."""
    found: dict[str, list[str]] = {}
    statements: dict[str, str] = {}
    for framework, shown in (("jax", "JAX"), ("torch", "PyTorch")):
        pair = widest(framework)
        refusing = dataclasses.replace(pair, composes=(), disclaims=TRANSFORMATIONS[framework])
        for each in (pair, refusing):
            for claim in contract(each, _options(each)):
                statements.setdefault(claim.name, claim.statement)
                if shown not in found.setdefault(claim.name, []):
                    found[claim.name].append(shown)
    for name, statement in statements.items():
        yield f"| `{name}` | {statement} | {', '.join(found[name])} |"


def draws() -> Iterator[str]:
    """A row for each draw, in the order of the public module."""
    for name in gradgate.__all__:
        made: Callable[..., Any] = getattr(gradgate, name)
        if inspect.isfunction(made) and made.__annotations__.get("return") in ("Draw", Draw):
            yield f"| `{name}{_arguments(made)}` | {_first(made)} |"


def fields() -> Iterator[str]:
    """A row for each field of a pair."""
    text = inspect.getdoc(Pair) or ""
    attributes = text[text.index("Attributes:") : text.index("Raises:")]
    for field in dataclasses.fields(Pair):
        found = re.search(rf"^    {field.name}: (.*?)(?=^    \w+: |\Z)", attributes, re.MULTILINE | re.DOTALL)
        assert found, f"the docstring of Pair does not have {field.name}"
        words = " ".join(found[1].split()).replace("``", "`")
        yield f"| `{field.name}` | {words} |"


def statuses() -> Iterator[str]:
    """A row for each exit status."""
    for entry in STATUS.splitlines()[1:]:
        number, meaning = entry.split(maxsplit=1)
        yield f"| {number} | {meaning} |"


def _arguments(made: Callable[..., Any]) -> str:
    shown = str(inspect.signature(made).replace(return_annotation=inspect.Signature.empty))
    return re.sub(r"'(\w[^']*)'", r"\1", shown).replace(" | ", " or ")  # a bar would end the cell of the table


def _first(made: Callable[..., Any]) -> str:
    paragraph = (inspect.getdoc(made) or "").partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "`")


def page() -> str:
    """The whole page."""
    parts = [
        ("Claims", "| claim | the function | framework |\n|---|---|---|", claims()),
        ("Draws", "| draw | what is drawn |\n|---|---|", draws()),
        ("Fields", "| field | what it is |\n|---|---|", fields()),
        ("Exit status", "| status | meaning |\n|---|---|", statuses()),
    ]
    notes = {
        "Claims": "A claim about bytes or work is judged if the pair declares it, by `gradgate.grows` or "
        "`gradgate.at_most`.\nWhere a dtype is not declared, its claim is left out.\n\n",
        "Draws": '`dims` are names of dims or expressions of them, separated by spaces: `"T 2*H"`.\n\n',
    }
    made = HEAD
    for title, head, rows in parts:
        made += f"## {title}\n\n{notes.get(title, '')}{head}\n" + "\n".join(rows) + "\n\n"
    return made.rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
