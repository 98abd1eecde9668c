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

GUIDE = Path(gradgate.suites.guide.__file__).parent
KINDS = ("added", "changed", "fixed", "removed")
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


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
