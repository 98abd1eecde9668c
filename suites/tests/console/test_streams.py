"""Output that cannot be written changes neither what a command finds nor its files."""

from __future__ import annotations

import errno
import io
import os
import sys

import pytest

from gradgate.suites.console import streams, terminal
from gradgate.suites.console.plain import one_line, plain


class Broken(io.StringIO):
    """A stream that fails from the second write on."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error, self.writes = error, 0

    def write(self, text: str) -> int:
        self.writes += 1
        if self.writes > 1:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (ValueError("I/O operation on closed file"), "I/O operation on closed file"),
    ],
)
def test_a_stream_that_fails_takes_the_rest_in_silence(error: BaseException, failed: str) -> None:
    inner = Broken(error)
    stream = streams.Stream(inner)
    for text in ("first", "second", "third"):
        assert stream.write(text) == len(text)
        stream.flush()
    assert inner.getvalue() == "first"
    assert stream.failed == failed


def test_a_stream_that_is_closed_takes_everything() -> None:
    closed = io.StringIO()
    closed.close()
    for inner in (None, closed):
        stream = streams.Stream(inner)
        stream.write("text")
        stream.flush()
        assert stream.failed == "", "nobody wanted to read it"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_letter_that_the_encoding_lacks_is_written_as_its_number(encoding: str) -> None:
    raw = io.BytesIO()
    stream = streams.Stream(io.TextIOWrapper(raw, encoding=encoding))
    stream.write("a – \ud800")
    stream.flush()
    dash = "–" if encoding == "utf-8" else "\\u2013"
    assert raw.getvalue().decode(encoding) == f"a {dash} \\ud800"


def test_the_streams_of_the_process_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.stdout, sys.stderr
    with streams.safe() as (out, err):
        assert (sys.stdout, sys.stderr) == (out, err)
    assert (sys.stdout, sys.stderr) == before


def test_what_is_printed_is_shown_as_it_is_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    data = ":leaves:leaves:torch [red]x[/red] [/bold] \x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J\u202e end"
    terminal.console().print(data, soft_wrap=True)
    terminal.note(data)
    captured = capsys.readouterr()
    for shown in (captured.out, captured.err):
        assert shown == ":leaves:leaves:torch [red]x[/red] [/bold] red ]0;title 2J end\n" or shown == f"{plain(data)}\n"
        assert not set(shown) & set("\x1b\x07\x9b\u202e")


def test_plain_text_keeps_letters_of_every_script_and_the_shape_of_lines() -> None:
    kept = "a\tb\nκ = 16 · 日本 العربية ✓ 🍃"
    assert plain(kept) == kept
    assert one_line(f" {kept}\r\n\x00") == kept.replace("\t", " ").replace("\n", " ")


def test_logs_of_native_code_are_left_out_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    logged = (
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
        "I0000 00:00:1795768487.679105   12464 cudart_stub.cc:31] Could not find cuda drivers on your machine\n"
        "W1127 08:25:29.679105 12464 cpu_client.cc:9] slow\n"
    )
    said = "WARNING: mine\nE0000 00:00:1795768487.679105   12464 stub.cc:31] an error stays\nI0000 of mine"
    with streams.without_native_logs():
        os.write(2, logged.encode())
        print(said, file=sys.stderr)
    assert capfd.readouterr().err == said + "\n"
    os.write(2, logged.encode())
    assert capfd.readouterr().err == logged, "outside of the scope everything is shown"
