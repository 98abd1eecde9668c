"""``gradgate --version``."""

from __future__ import annotations

from importlib import metadata

import pytest

from gradgate.suites.cli import main


def test_the_version_is_printed_and_nothing_else_happens(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"gradgate {metadata.version('gradgate')}\n"
