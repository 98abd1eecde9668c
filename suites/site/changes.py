"""The changelog: fragments about unreleased changes, which a release moves into one section.

``python -m gradgate.suites.site.changes 1.0.0rc1`` moves all fragments of ``suites/guide/changes`` into
``suites/guide/CHANGELOG.md``, below a heading with that version and today's date.
"""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import gradgate.suites.guide
from gradgate.references.errors import UsageError
from gradgate.suites.site import splitting

GUIDE = Path(gradgate.suites.guide.__file__).parent
KINDS = ("added", "changed", "fixed", "removed")
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")
ENTRY = re.compile(r"(?<!\n)\n(?=- )|\n+(?=### )")
"""Where one entry ends and the next begins; a heading belongs to the entry below it."""


def fragments(folder: Path) -> dict[str, list[str]]:
    """Kind -> the texts of its fragments, in the order of their file names.

    Raises:
        UsageError: a file is not ``<name>.<kind>.md``, or is empty; says what is legal.
    """
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in sorted(folder.glob("*")):
        parts = path.name.split(".")
        if len(parts) != 3 or parts[1] not in KINDS or parts[2] != "md":
            raise UsageError(f"{path}: a fragment is named <name>.<kind>.md; kinds are {', '.join(KINDS)}")
        if not (said := " ".join(path.read_text(encoding="utf-8").split())):
            raise UsageError(f"{path} is empty: say in a sentence what changed for a user")
        found[parts[1]].append(said)
    return found


def section(heading: str, found: dict[str, list[str]]) -> str:
    """The fragments as a section of the changelog; "" if there are none."""
    if not any(found.values()):
        return ""
    told = [f"## {heading}\n"]
    for kind, said in found.items():
        if said:
            told.append(f"### {kind.capitalize()}\n")
            told.append("\n".join(f"- {sentence}" for sentence in said) + "\n")
    return "\n".join(told)


def with_section(changelog: str, added: str) -> str:
    """The changelog with a new section above the existing ones."""
    head, mark, rest = changelog.partition("\n## ")
    return f"{head}\n{added}{mark}{rest}" if added else changelog


def pages(changelog: str, most: int = splitting.WORDS) -> dict[str, str]:
    """The changelog as pages of the site: a list of the releases, and for each a page, or several if it is long.

    Args:
        changelog: its whole text.
        most: how many words a page has at most.

    Returns:
        Name of the page -> its text; the list comes first.
    """
    head, *releases = re.split(r"^## ", changelog, flags=re.MULTILINE)
    lines: list[str] = []
    made: dict[str, str] = {}
    for told in releases:
        title, _, body = told.partition("\n")
        first = f"changelog_{title.partition(' (')[0].lower().replace(' ', '_')}"
        found = splitting.parts(ENTRY.split(body.strip()), most)
        links = []
        kind = ""
        for number, part in enumerate(found, 1):
            name, which = (f"{first}_{number}", f", part {number}") if number > 1 else (first, "")
            again = f"{kind}, continued\n\n" if kind and not part[0].startswith("### ") else ""
            entries = "\n".join(f"\n{entry}" if entry.startswith("### ") else entry for entry in part).strip()
            made[name] = f"# Changes: {title}{which}\n\n[All releases](changelog.md)\n\n{again}{entries}\n"
            links.append(f"[{f'part {number}' if number > 1 else title}]({name}.md)")
            kind = next((entry.partition("\n")[0] for entry in reversed(part) if entry.startswith("### ")), kind)
        lines.append(f"- {', '.join(links)}")
    tree = "\n".join(made)
    return {"changelog": head + "\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"} | made


def release(version: str, guide: Path, today: datetime.date) -> None:
    """Move the fragments into the changelog.

    Raises:
        UsageError: the version is malformed or has a section already, or there is nothing to release.
    """
    if not VERSION.fullmatch(version):
        raise UsageError(f"{version!r} is no version: write 1.2.3, or 1.2.3rc1")
    path = guide / "CHANGELOG.md"
    text = path.read_text(encoding="utf-8")
    if re.search(rf"^## {re.escape(version)}\b", text, re.MULTILINE):
        raise UsageError(f"{path} has a section {version} already")
    added = section(f"{version} ({today.isoformat()})", fragments(guide / "changes"))
    if not added:
        raise UsageError(f"{guide / 'changes'} has no fragments: there is nothing to release")
    path.write_text(with_section(text, added), encoding="utf-8")
    for fragment in (guide / "changes").glob("*.md"):
        fragment.unlink()


def main(arguments: Sequence[str] | None = None) -> int:
    """Move the fragments; returns 0, or 3 for wrong usage."""
    parser = argparse.ArgumentParser(description="Move the fragments of the changelog below a new version.")
    parser.add_argument("version", help="the version that is released, such as 1.0.0rc1")
    try:
        release(parser.parse_args(arguments).version, GUIDE, datetime.datetime.now(datetime.UTC).date())
    except UsageError as error:
        print(f"changes: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
