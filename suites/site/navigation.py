"""The pages of the site in the order of its navigation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """One heading of the navigation.

    Attributes:
        caption: the heading.
        pages: names of pages without ``.md``; one that does not exist is left out.
    """

    caption: str
    pages: tuple[str, ...]


SECTIONS = (
    Section("Start", ("tutorial", "tutorial_jax")),
    Section(
        "How to",
        (
            "watch",
            "pairs",
            "jax_op",
            "torch_module",
            "kernels",
            "pallas",
            "own_method",
            "own_model",
            "own_class",
            "own_profile",
            "gate",
            "adopt",
            "judged",
            "strangers",
            "settings",
            "clusters",
            "examples",
        ),
    ),
    Section(
        "The papers' methods for your code",
        (
            "methods",
            "meta_gradients",
            "linear_attention",
            "selective_scan",
            "reversible_layers",
            "checkpointed_models",
        ),
    ),
    Section("Explanations", ("claims", "sixty_digits", "digits_lost", "bytes", "trial", "releases")),
    Section("The atlas of claims", ("atlas/index",)),
    Section("Real libraries", ("libraries", "gallery", "public_kernels", "adopted", "answers", "census")),
    Section(
        "Reference",
        ("reference/index", "reference/commands", "reference/classes", "reference/calibration", "glossary", "where"),
    ),
    Section("The project", ("published", "memory_by_release", "changelog")),
)


def missing(pages: Collection[str]) -> list[str]:
    """Pages that the navigation does not name. Pages in a folder do not count: the folder's ``index`` links to them.

    Args:
        pages: every page that exists, without ``.md``.
    """
    named = {page for section in SECTIONS for page in section.pages} | {"index"}
    return sorted(page for page in pages if page not in named and "/" not in page)


def toctrees(pages: Collection[str]) -> str:
    """The navigation as Sphinx directives in Markdown, with the pages that exist."""
    told = []
    for section in SECTIONS:
        if found := [page for page in section.pages if page in pages]:
            lines = "\n".join(found)
            told.append(f"```{{toctree}}\n:hidden:\n:caption: {section.caption}\n\n{lines}\n```\n")
    return "\n".join(told)
