"""Fragments of the changelog are read, shown and released; wrong ones are refused with a message."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.site import changes

DAY = datetime.date(2026, 11, 22)


@pytest.fixture
def guide(tmp_path: Path) -> Path:
    (tmp_path / "changes").mkdir()
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nWords.\n\n## 0.1.0\n\n- first\n")
    (tmp_path / "changes" / "b.fixed.md").write_text("A bug is\ngone.\n")
    (tmp_path / "changes" / "a.added.md").write_text("A thing.\n")
    return tmp_path


def test_the_fragments_of_this_repository_are_in_order() -> None:
    changes.fragments(changes.GUIDE / "changes")


def test_a_release_moves_the_fragments_below_its_version(guide: Path) -> None:
    changes.release("1.0.0rc1", guide, DAY)
    assert (guide / "CHANGELOG.md").read_text() == (
        "# Changelog\n\nWords.\n\n## 1.0.0rc1 (2026-11-22)\n\n### Added\n\n- A thing.\n\n### Fixed\n\n"
        "- A bug is gone.\n\n## 0.1.0\n\n- first\n"
    )
    assert list((guide / "changes").iterdir()) == []
    with pytest.raises(UsageError, match="nothing to release"):
        changes.release("1.0.0", guide, DAY)


def test_a_version_that_is_none_or_is_there_is_refused(guide: Path) -> None:
    with pytest.raises(UsageError, match=r"'next' is no version: write 1\.2\.3"):
        changes.release("next", guide, DAY)
    with pytest.raises(UsageError, match=r"has a section 0\.1\.0 already"):
        changes.release("0.1.0", guide, DAY)


@pytest.mark.parametrize("name", ["a.better.md", "a.md", "a.added.txt"])
def test_a_fragment_of_another_name_is_refused(guide: Path, name: str) -> None:
    (guide / "changes" / name).write_text("x")
    with pytest.raises(UsageError, match="kinds are added, changed, fixed, removed"):
        changes.fragments(guide / "changes")


def test_an_empty_fragment_is_refused(guide: Path) -> None:
    (guide / "changes" / "c.added.md").write_text(" \n")
    with pytest.raises(UsageError, match="say in a sentence what changed"):
        changes.fragments(guide / "changes")


def test_each_release_has_a_page_and_a_long_one_has_parts() -> None:
    log = (
        "# Changelog\n\nWords.\n\n## Not released yet\n\n### Added\n\n- one two\n- three\n  four\n\n"
        "### Fixed\n\n- five\n\n## 0.1.0\n\nIt has\n\n- first\n"
    )
    found = changes.pages(log)
    assert list(found) == ["changelog", "changelog_not_released_yet", "changelog_0.1.0"]
    assert found["changelog"].startswith(
        "# Changelog\n\nWords.\n\n- [Not released yet](changelog_not_released_yet.md)\n- [0.1.0](changelog_0.1.0.md)\n"
    )
    assert found["changelog_not_released_yet"] == (
        "# Changes: Not released yet\n\n[All releases](changelog.md)\n\n"
        "### Added\n\n- one two\n- three\n  four\n\n### Fixed\n\n- five\n"
    )
    assert found["changelog_0.1.0"].endswith("It has\n\n- first\n")
    split = changes.pages(log, most=4)
    assert list(split) == [
        "changelog",
        *(f"changelog_{name}" for name in ("not_released_yet", "not_released_yet_2", "0.1.0")),
    ]
    assert (
        "[Not released yet](changelog_not_released_yet.md), [part 2](changelog_not_released_yet_2.md)"
        in split["changelog"]
    )
    assert split["changelog_not_released_yet"].endswith(".md)\n\n### Added\n\n- one two\n")
    assert split["changelog_not_released_yet_2"] == (
        "# Changes: Not released yet, part 2\n\n[All releases](changelog.md)\n\n"
        "### Added, continued\n\n- three\n  four\n\n### Fixed\n\n- five\n"
    )
