"""The progress display: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gradgate.suites.console import progress as module
from gradgate.suites.console.progress import progress


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines on standard error; standard output must be empty, since it is for results."""
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_a_line_appears_at_each_tenth_of_the_work(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(40, "verdicts") as show:
        for _ in range(40):
            show.advance()
    assert lines(capsys) == [f"verdicts: {done} of 40" for done in range(4, 41, 4)]


def test_a_line_names_the_part_that_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(2) as show:
        show.advance("first")
        show.advance("[second]")
    assert lines(capsys) == ["[1/2] first", "[2/2] [second]"]


def test_a_command_chooses_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(2) as show:
        show.advance("first", line=False)
        show.advance("second", line=True)
    assert lines(capsys) == ["[2/2] second"]


def test_work_of_unknown_length_counts_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(None, "figures") as show:
        show.advance("first", line=True)
        show.advance("second")
    assert lines(capsys) == ["first (1 done)"], "without a total there are no tenths"


def test_work_that_goes_on_counts_what_was_done_before(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(20, done=10) as show:
        show.advance("eleventh")
        show.advance("twelfth")
    assert lines(capsys) == ["[12/20] twelfth"]


def test_no_work_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(0, "verdicts") as show:
        show.advance(count=0)
    assert lines(capsys) == []


def test_the_time_left_follows_from_what_this_run_has_done(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(100, done=40) as show:
        assert show.left(seconds=60.0) == ""
        show.advance(count=10, line=False)
        assert show.left(seconds=60.0) == "about 5 min left", "the forty earlier ones do not count"
        assert show.left(seconds=10.0) == "about 50 s left"
        assert show.left(seconds=1.0) == "", "too early to tell"
        show.advance(count=50, line=False)
        assert show.left(seconds=60.0) == ""
    with progress(None) as show:
        show.advance(line=False)
        assert show.left(seconds=60.0) == ""


def test_what_is_being_done_is_shown_only_beside_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress(1) as show:
        show.doing("the first problem")
    assert lines(capsys) == []
    drawn = _drawn(monkeypatch, "the first problem")
    assert "the first problem" in drawn


def test_a_note_stays_above_the_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with progress(1) as show:
        show.note("found something")
    assert lines(capsys) == ["found something"]
    assert _drawn(monkeypatch, "doing", note="found something").count("found something\n") == 1


def _drawn(monkeypatch: pytest.MonkeyPatch, doing: str, note: str = "") -> str:
    """What a terminal receives while one part of two is done."""
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(module, "console", lambda *, stderr: terminal)
    with progress(2, "parts") as show:
        show.doing(doing)
        if note:
            show.note(note)
        show.advance(doing)
    assert "1/2" in file.getvalue()
    return file.getvalue()
