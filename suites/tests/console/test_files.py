"""Results are written so that nothing is lost: neither the old file, nor a link, nor somebody else's text."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from gradgate.references.contract import UsageError
from gradgate.suites.console import files
from gradgate.suites.console.files import is_stream, need_own, write_atomically

posix = pytest.mark.skipif(os.name != "posix", reason="links, pipes and devices")


def test_a_file_and_its_folder_are_made_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "v.json"
    for text in ("first", "second – \ud800"):
        write_atomically(path, text)
    assert path.read_text(encoding="utf-8") == "second – \\ud800"
    assert list(path.parent.iterdir()) == [path]


@posix
def test_a_link_stays_a_link_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link, loose = tmp_path / "kept" / "v.json", tmp_path / "v.json", tmp_path / "w.json"
    target.parent.mkdir()
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    loose.symlink_to(tmp_path / "kept" / "new.json")
    write_atomically(link, "new")
    write_atomically(loose, "newer")
    assert link.is_symlink()
    assert loose.is_symlink()
    assert (target.read_text(), loose.read_text()) == ("new", "newer")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640, "a file that only some may read stays so"


@posix
def test_a_pipe_and_a_device_are_written_to_and_stay(tmp_path: Path) -> None:
    pipe, device, seen = tmp_path / "pipe", tmp_path / "null", []
    os.mkfifo(pipe)
    device.symlink_to(os.devnull)
    reader = threading.Thread(target=lambda: seen.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "text")
    reader.join(30)
    write_atomically(device, "text")
    write_atomically(Path(os.devnull), "text")
    assert seen == ["text"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert all(map(is_stream, (pipe, device, Path(os.devnull))))
    assert not any(map(is_stream, (tmp_path, tmp_path / "absent", tmp_path / "nul\0l")))


@pytest.mark.parametrize("name", ["folder", "file/below", "nul\0l", "x" * 300])
def test_what_cannot_be_written_is_wrong_usage(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    with pytest.raises(UsageError, match="cannot write"):
        write_atomically(tmp_path / name, "new")
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}
    assert (tmp_path / "file").read_text() == "old"


@pytest.mark.parametrize("name", ["folder", "x" * 300])
@pytest.mark.parametrize("lists", ["", "verdicts"])
def test_what_can_be_no_file_is_refused_before_a_run_begins(tmp_path: Path, name: str, lists: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot write"):
        need_own(tmp_path / name, lists)
    need_own(tmp_path / "absent", lists)


def test_a_write_that_fails_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.json"
    write_atomically(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", full)
    with pytest.raises(UsageError, match=r"cannot write .*: No space left on device"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


OURS = {
    "index.html": f"<!doctype html>\n<head>\n{files.MARK}\n",
    "old.html": "<!doctype html>\n<title>gradgate memory</title>",
    "junit.xml": '<?xml version="1.0"?>\n<testsuites name="gradgate" tests="1">',
    "plotly.min.js": "/**\n* plotly.js v3.0.1\n*/",
    "comment.md": "<!-- gradgate gate -->\n### fine",
    "empty.html": "",
}
THEIRS = {
    "index.html": "<!doctype html><title>My thesis about gradgate</title>",
    "junit.xml": '<testsuites name="pytest">',
    "plotly.min.js": "var a",
    "README.md": "# mine",
    "notes": "mine",
    "report.css": "body {}",
}


@pytest.mark.parametrize("name", OURS)
def test_a_page_of_gradgate_may_be_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(OURS[name])
    need_own(tmp_path / name)
    need_own(tmp_path / "absent.html")


@pytest.mark.parametrize("name", THEIRS)
def test_a_page_of_somebody_else_may_not(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(THEIRS[name])
    with pytest.raises(UsageError, match="gradgate did not write it"):
        need_own(tmp_path / name)


@pytest.mark.parametrize("text", ["{}", "[]", "3", '{"name": "package"}', "x = 3", "[" * 100_000, "\x00"])
def test_a_document_of_somebody_else_may_not_be_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "v.json").write_text(text)
    with pytest.raises(UsageError, match="gradgate did not write it"):
        need_own(tmp_path / "v.json", "verdicts")


def test_a_document_is_replaced_by_one_that_lists_the_same(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    path.write_text(json.dumps({"schema": 1, "verdicts": []}))
    need_own(path, "verdicts")
    with pytest.raises(UsageError, match="holds verdicts, which would be lost"):
        need_own(path, "mutants")
