"""What all pages of a report share: one template around them, one style, one plotting library beside them."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.engine.coverage import Coverage
from gradgate.suites.judging.explain import number

OPTION = re.compile(r"(?<!\S)--[a-z][\w-]*")
"""An option of a command."""
SCRIPT = "plotly.min.js"
"""The file of the plotting library. It is larger than all pages together, so they load it where they have a plot."""
SHARED = {"report.css": "style.css", "plots.js": "plots.html", "report.js": "script.html"}
"""File that the pages of a large run share -> its template. Any other page has these texts inside."""


def page(template: str, figures: Mapping[str, Any] | None = None, *, shared: bool = False, **given: Any) -> str:
    """The text of one page, made from a template that extends ``base.html``.

    Args:
        template: a file of this folder.
        figures: id of a place on the page -> the Plotly figure that is drawn there.
        shared: load style and scripts from the files of `SHARED` in place of holding them.
        given: what the template shows.
    """
    return (
        environment().get_template(template).render(figures=dict(figures or {}), shared=shared, library=SCRIPT, **given)
    )


def with_library(pages: Mapping[str, str]) -> dict[str, str]:
    """Pages, and the plotting library if one of them has a plot: name -> text."""
    plotted = any(f'src="{SCRIPT}"' in text for text in pages.values())
    return dict(pages) | ({SCRIPT: get_plotlyjs()} if plotted else {})


def write(folder: Path, pages: Mapping[str, str]) -> None:
    """Write pages into a folder, with the plotting library if one needs it; each file is replaced in one step.

    Raises:
        UsageError: somebody else's file has the name of one of these; then nothing is written.
    """
    made = with_library(pages)
    for name in made:
        need_own(folder / name)
    for name, text in made.items():
        write_atomically(folder / name, text)


@functools.cache
def environment() -> jinja2.Environment:
    """The templates of this folder. They are compiled once, however many pages there are."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": number,
        "breakable": _breakable,
        "plain": _plain,
        "unique": _unique,
        "covered": _covered,
        "unbroken": _unbroken,
    }
    made.filters |= filters
    return made


def _breakable(name: str) -> Markup:
    """An identifier that may wrap after an underscore."""
    return escape(name).replace("_", Markup("_<wbr>"))


def _unbroken(command: str) -> Markup:
    """A command whose options do not wrap at their hyphens.

    >>> _unbroken("verify --claim 'a<b'")
    Markup('verify <span class="whole">--claim</span> &#39;a&lt;b&#39;')
    """
    return Markup(OPTION.sub(r'<span class="whole">\g<0></span>', str(escape(command))))


def _plain(value: Any) -> str:
    """A field's value: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _covered(found: dict[str, Any]) -> str:
    """Which pairs of (field, value) were tried, in words."""
    known = {name: found[name] for name in ("tried", "possible", "enough") if name in found}
    return Coverage(**known, missing=tuple(found["missing"])).sentence()


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))
