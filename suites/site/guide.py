"""The pages of the guide that are written by hand, as Sphinx reads them."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import gradgate.suites.guide

FOLDER = Path(gradgate.suites.guide.__file__).parent
NAMED = re.compile(r"^```(\w+) (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
"""A block that is a file: its language, the file's name, its text."""
OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)\s]+)\)")
"""A link to a file of the repository that is not a page of the guide."""


def copy(target: Path) -> list[str]:
    """Copy the guide's pages, pictures and examples; returns the names of the pages.

    A block that names its file becomes a captioned one. A link that leaves the guide becomes the file's path, because
    the site does not know where the repository is hosted.
    """
    shutil.copytree(
        FOLDER,
        target,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", "*.md", "__init__.py", "changes"),
    )
    names = []
    for page in sorted(FOLDER.glob("*.md")):
        name = page.stem.lower()
        (target / f"{name}.md").write_text(readable(page.read_text(encoding="utf-8")), encoding="utf-8")
        names.append(name)
    return names


def gallery() -> dict[str, str]:
    """The pages of the examples: a list, and one for each with its docstring and its whole text."""
    told = [
        "# Examples\n",
        "Files of pairs to start from. `gradgate verify suites/guide/examples/NAME.py` judges one, in a checkout.\n",
        "| example | what it shows |\n|---|---|",
    ]
    pages = {}
    for path in sorted((FOLDER / "examples").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name != "__init__.py" and (said := ast.get_docstring(ast.parse(text))):
            block = f"```{{literalinclude}} examples/{path.name}\n:language: python\n```\n"
            pages[f"example_{path.stem}"] = f"# {path.stem}\n\n{said}\n\n{block}"
            first = " ".join(said.partition("\n\n")[0].split())
            told.append(f"| [{path.stem}](example_{path.stem}.md) | {first} |")
    tree = "\n".join(pages)
    return {"examples": "\n".join(told) + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"} | pages


def readable(text: str) -> str:
    """One page as Sphinx reads it.

    >>> print(readable("[the rule](../judging/tolerance.py)"))
    the rule (`suites/judging/tolerance.py`)
    """
    text = NAMED.sub(r"```{code-block} \1\n:caption: \2\n\n\3```", text)
    return OUTSIDE.sub(lambda found: f"{found[1]} (`{_path(found[2])}`)", text)


def _path(link: str) -> str:
    whole = (FOLDER / link.partition("#")[0]).resolve()
    return whole.relative_to(FOLDER.parents[1]).as_posix()
