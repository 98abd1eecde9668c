"""Sphinx's configuration for the site; `build` copies it next to the pages."""

import re
from importlib import metadata
from typing import Any

project = "gradgate"
version = release = metadata.version("gradgate")
html_title = f"gradgate {version}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["examples/*", "extra"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]
default_role = "code"
nitpicky = False
add_module_names = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = [
    "Source",
    "Stores",
    "Computes",
    "Not for",
    "Cost",
    "When not to use it",
    "Limits",
]
html_theme = "furo"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_extra_path = ["extra"]  # feeds and JSON, copied as they are
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_sourcelink = False
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_favicon = "_static/icon.svg"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b57b0", "color-brand-content": "#0b57b0"},
    "dark_css_variables": {"color-brand-primary": "#7db4f5", "color-brand-content": "#7db4f5"},
    "navigation_with_keys": True,
}
pygments_style = "xcode"  # its colours are those of WCAG AA on their ground
pygments_dark_style = "monokai"


def plain_bars(_app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Escape docstrings: |θ| is not a substitution, and `a`·P is code followed by text, as the papers write them."""
    text = re.sub(r"(?<![`:\w])`([^`\n]+)`(?!`)", r"\\ ``\1``\\ ", "\n".join(lines))
    parts = re.split(r"(``[^`]+``)", text)
    parts = [f"``{part[2:-2].strip(' ')}``" if part[:2] == "``" else part.replace("|", "\\|") for part in parts]
    lines[:] = "".join(parts).split("\n")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", plain_bars, priority=900)  # after napoleon
