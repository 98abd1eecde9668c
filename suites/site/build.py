"""Build the site: ``python -m gradgate.suites.site.build --out site``.

The pages are assembled in a temporary folder, Sphinx makes HTML of them, and the result is checked. What ``nox -s
publish`` put into the output folder (`KEPT`) stays there, and the site links to it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from gradgate.references.errors import UsageError
from gradgate.suites.gallery import page as libraries
from gradgate.suites.releases import page as releases
from gradgate.suites.site import atlas, changes, checking, guide, navigation, reference

HERE = Path(__file__).parent
PUBLISHED = {
    "bytes.html": "bytes, work and digits of every method on every profile, of any two commits",
    "history/index.html": "the same in asv's pages, with the times",
    "report/index.html": "the newest verdicts",
}
"""File that ``nox -s publish`` makes -> what it shows. It is not removed when the site is built again."""
KEPT = ("bytes.html", "dashboard", "badge.svg", "badge.json", "history", "report")


def assemble(target: Path, out: Path) -> list[str]:
    """Put every page of the site into a folder, with Sphinx's configuration; returns their names.

    Raises:
        UsageError: the navigation lacks a page of the guide; says which.
    """
    pages = guide.copy(target)
    pages += reference.write(target) + atlas.write(target) + releases.write(target)
    (target / "published.md").write_text(published(out), encoding="utf-8")
    for name, text in guide.gallery().items():
        (target / f"{name}.md").write_text(text, encoding="utf-8")
    pages += ["published", "examples", *libraries.write(target)]
    if forgotten := navigation.missing(pages):
        raise UsageError(f"the navigation lacks {', '.join(forgotten)}: name them in suites/site/navigation.py")
    log = target / "changelog.md"
    unreleased = changes.section("Not released yet", changes.fragments(changes.GUIDE / "changes"))
    for name, text in changes.pages(changes.with_section(log.read_text(encoding="utf-8"), unreleased)).items():
        (target / f"{name}.md").write_text(text, encoding="utf-8")
    index = target / "index.md"
    index.write_text(index.read_text(encoding="utf-8") + "\n" + navigation.toctrees(pages), encoding="utf-8")
    shutil.copy(HERE / "conf.py", target / "conf.py")
    for folder, names in (("_static", ("site.css", "site.js", "icon.svg")), ("_templates", ("search.html",))):
        (target / folder).mkdir(exist_ok=True)
        for name in names:
            shutil.copy(HERE / name, target / folder / name)
    return pages


def published(out: Path) -> str:
    """The page that links to the files of ``nox -s publish``; it says which of them are missing."""
    told = ["# Bytes, history and verdicts\n", "These pages are made by machines after every change.\n"]
    for path, what in PUBLISHED.items():
        there = (out / path).exists()
        told.append(
            f'- <a href="{path}">{what}</a>' if there else f"- {what}: not published with this copy of the site"
        )
    if (out / "badge.svg").exists():
        told.append('\n<a href="bytes.html"><img src="badge.svg" alt="claims of the newest commit"></a>')
    told.append("\n`nox -s publish` makes them from the records of `nox -s bench` and `nox -s verify`.\n")
    return "\n".join(told)


def build(out: Path) -> list[str]:
    """Build the site into a folder; returns Sphinx's warnings.

    Raises:
        UsageError: Sphinx is not installed, or fails; says what to do.
    """
    try:
        from sphinx.application import Sphinx
    except ImportError:
        raise UsageError("the site needs Sphinx: pip install furo myst-parser linkify-it-py sphinx") from None
    told = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "source", Path(folder) / "html"
        source.mkdir()
        assemble(source, out)
        with _quiet():
            app = Sphinx(
                str(source),
                str(source),
                str(made),
                str(Path(folder) / "doctrees"),
                "html",
                status=None,
                warning=told,
                parallel=1,
            )
            app.build()
        if app.statuscode:
            raise UsageError(f"Sphinx failed:\n{told.getvalue()}")
        _replace(made, out)
    return [line for line in told.getvalue().splitlines() if line.strip()]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """A scope without warnings, in which JAX looks for no accelerator when a documented module is imported."""
    before = os.environ.get("JAX_PLATFORMS")
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if before is None:
            del os.environ["JAX_PLATFORMS"]
        else:
            os.environ["JAX_PLATFORMS"] = before


def _replace(made: Path, out: Path) -> None:
    """Replace the pages in `out` by the new ones, and keep there what was published."""
    out.mkdir(parents=True, exist_ok=True)
    for old in out.iterdir():
        if old.name not in KEPT:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    shutil.copytree(
        made, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".buildinfo*", "objects.inv", "*.doctree")
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and check; returns 0, or 1 if there is a warning or a wrong link or size, or 3 for wrong usage."""
    parser = argparse.ArgumentParser(description="Build the guide, the reference and the atlas of claims.")
    parser.add_argument("--out", type=Path, default=Path("site"), help="the folder to write (default: site/)")
    chosen = parser.parse_args(arguments)
    try:
        found = build(chosen.out)
    except UsageError as error:
        print(f"site: {error}", file=sys.stderr)
        return 3
    wrong = found + checking.faults(chosen.out)
    for line in wrong:
        print(line, file=sys.stderr)
    print(checking.summary(chosen.out))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
