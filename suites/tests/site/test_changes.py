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
