"""What is wrong with a built site: broken links, titles, pages too large or too long, other servers' files."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FIRST = 200_000
"""Bytes that the first page may take with all that it loads."""
PAGE = 1_000_000
"""Bytes that any page may have."""
WORDS = 3_000
"""Words that a page may have."""
NOT_OURS = ("history", "results")
"""Folders that other programs make; their pages are not checked."""


COUNTED = ("article", "script", "style", "svg", "nav")
"""Tags that begin or interrupt what is counted in words."""


class Page(HTMLParser):
    """The links, ids and loaded files of a page.

    Attributes:
        links: the targets of ``a`` tags.
        loads: what the browser fetches by itself: scripts, styles, pictures, icons.
        ids: the possible targets of ``#…``.
        titles: how many ``h1`` it has.
        words: how many words its main article has; a report's cards have none, nor have drawings, scripts, and signs
            without a letter or digit.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.titles = self.words = 0
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the links, loaded files and ids of a tag."""
        given = {name: value or "" for name, value in attrs}
        if tag in COUNTED and (tag != "article" or given.get("role") == "main"):
            self._inside.append(tag)
        self.titles += tag == "h1"
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and set(given.get("rel", "").split()) & {"stylesheet", "icon", "preload"}:
            self.loads.append(given["href"])

    def handle_endtag(self, tag: str) -> None:
        """Leave an article or what is no text of it."""
        if tag in self._inside:
            self._inside.remove(tag)

    def handle_data(self, data: str) -> None:
        """Count the words of the article."""
        if self._inside == ["article"]:
            self.words += sum(any(map(str.isalnum, word)) for word in data.split())


def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site outside `NOT_OURS`."""
    found = [path for path in sorted(site.rglob("*.html")) if path.relative_to(site).parts[0] not in NOT_OURS]
    return {path: Page(path.read_text(encoding="utf-8")) for path in found}


def faults(site: Path) -> list[str]:
    """Everything that is wrong, one sentence each."""
    found = pages(site)
    return [
        *(fault for path, page in found.items() for fault in _links(site, path, page, found)),
        *(fault for path, page in found.items() for fault in _foreign(site, path, page)),
        *(
            f"{path.relative_to(site)} has {page.titles} titles; h1 is one"
            for path, page in found.items()
            if page.titles != 1
        ),
        *_sizes(site, found),
    ]


def _links(site: Path, path: Path, page: Page, found: dict[Path, Page]) -> list[str]:
    wrong = []
    for link in dict.fromkeys(page.links + page.loads):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link == "#":
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        name = path.relative_to(site)
        if not target.exists():
            wrong.append(f"{name}: broken link {link}")
        elif parts.fragment and target in found and unquote(parts.fragment) not in found[target].ids:
            wrong.append(f"{name}: {link} leads to a page that has no such place")
    return wrong


def _foreign(site: Path, path: Path, page: Page) -> list[str]:
    foreign = [link for link in page.loads if urlsplit(link).netloc]
    return [f"{path.relative_to(site)}: loads {link} from another server" for link in foreign]


def weight(site: Path, path: Path, page: Page) -> int:
    """Bytes of a page together with what it loads."""
    loaded = {
        (path.parent / unquote(urlsplit(link).path)).resolve() for link in page.loads if not urlsplit(link).scheme
    }
    return path.stat().st_size + sum(file.stat().st_size for file in loaded if file.is_file())


def _sizes(site: Path, found: dict[Path, Page]) -> list[str]:
    wrong = []
    first = site / "index.html"
    if first in found and (n := weight(site, first, found[first])) > FIRST:
        wrong.append(f"index.html takes {n:,} bytes with what it loads; legal are {FIRST:,}")
    for path, page in found.items():
        name = path.relative_to(site).as_posix()
        if page.words > WORDS:
            wrong.append(f"{name} has {page.words:,} words; legal are {WORDS:,}: split it")
        if (n := path.stat().st_size) > PAGE:
            wrong.append(f"{name} has {n:,} bytes; legal are {PAGE:,}")
    return wrong


def summary(site: Path) -> str:
    """How many pages and links there are, and how large, in one line."""
    found = pages(site)
    links = sum(len(page.links) for page in found.values())
    largest = max(found, key=lambda path: path.stat().st_size)
    first = site / "index.html"
    return (
        f"{len(found)} pages, {links:,} links; the first page takes {weight(site, first, found[first]):,} bytes with "
        f"what it loads; the largest is {largest.relative_to(site)} with {largest.stat().st_size:,}"
    )
