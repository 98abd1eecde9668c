"""The feed of confirmed rises: one entry per release and profile, in Atom."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from gradgate.suites.releases.rises import Change

PAGE = "memory_by_release.html"
"""The page that an entry leads to, in the same folder as the feed."""
WORDS = {"required_bytes": "bytes", "flops": "FLOPs"}
"""Quantity -> its unit in sentences."""


def atom(changes: Iterable[Change]) -> str:
    """The feed as text. Only rises that a second compilation confirmed are in it."""
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        if change.rise and change.confirmed:
            groups.setdefault((change.release.name, change.profile), []).append(change)
    newest = max((change.measured for group in groups.values() for change in group), default=0)
    entries = "".join(_entry(*key, group) for key, group in sorted(groups.items()))
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        "<title>gradgate: what releases of JAX and PyTorch raised</title>\n"
        f"<id>tag:gradgate,2026:releases</id>\n<updated>{_time(newest)}</updated>\n"
        f"<author><name>gradgate</name></author>\n<link href={quoteattr(PAGE)}/>\n{entries}</feed>\n"
    )


def _entry(release: str, profile: str, group: list[Change]) -> str:
    count = f"{len(group)} figures" if len(group) > 1 else "a figure"
    lines = "\n".join(sentence(change) for change in group)
    return (
        f"<entry>\n<title>{escape(release)} raises {count} on {escape(profile)}</title>\n"
        f"<id>tag:gradgate,2026:releases/{escape(release)}/{escape(profile)}</id>\n"
        f"<updated>{_time(max(change.measured for change in group))}</updated>\n<link href={quoteattr(PAGE)}/>\n"
        f'<content type="text">{escape(lines)}</content>\n</entry>\n'
    )


def sentence(change: Change) -> str:
    """A change in one sentence."""
    percent = f"{100 * (change.ratio - 1):+.2f}%" if change.old else "from nothing"
    return (
        f"{change.name.partition('~')[0]}: {change.old:,} → {change.new:,} {WORDS[change.quantity]} ({percent}) from "
        f"{change.before.version} to {change.release.version}"
    )


def _time(milliseconds: int) -> str:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
