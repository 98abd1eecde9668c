"""A shell completes commands, options and files from what `gradgate completion` prints."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.commands import COMMANDS
from gradgate.suites.commands.completion import SHELLS

TRY = """
source "$1"; shift
words=("$@"); COMP_WORDS=("${words[@]}"); COMP_CWORD=$((${#words[@]} - 1)); COMPREPLY=()
$(complete -p gradgate | sed 's/.*-F \\([^ ]*\\).*/\\1/') gradgate "${words[-1]}" "${words[-2]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""A program of bash: complete the words that follow the name of a script."""


@pytest.fixture
def printed(gradgate: Callable[..., Any]) -> Callable[[str], str]:
    pytest.importorskip("shtab", reason="shtab is not installed: pip install 'gradgate[shell]'")

    def made(shell: str) -> str:
        ran = gradgate("completion", shell)
        assert ran.status == 0, ran.err
        return str(ran.out)

    return made


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("me",), {"memory"}),
        (("verify", "--exa"), {"--examples"}),
        (("verify", "pai"), {"pairs.py"}),
        (("report", "--nothing-like-it"), set()),
    ],
)
def test_bash_completes_commands_options_and_files(
    words: tuple[str, ...], completed: set[str], printed: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "script").write_text(printed("bash"))
    (tmp_path / "pairs.py").write_text("")
    command = ["bash", "-c", TRY, "bash", "./script", "gradgate", *words]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == completed


def test_every_shell_gets_every_command(printed: Callable[[str], str]) -> None:
    for shell in SHELLS:
        text = printed(shell)
        assert all(name in text for name in COMMANDS), shell


def test_an_unknown_shell_and_a_missing_package_are_one_line(
    gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = gradgate("completion", "fish")
    assert (ran.status, ran.err) == (3, "gradgate: unknown shell 'fish'; legal: bash, tcsh, zsh; nearest: zsh\n")
    monkeypatch.setitem(sys.modules, "shtab", None)
    ran = gradgate("completion", "bash")
    assert (ran.status, ran.err) == (3, "gradgate: completion needs shtab: pip install 'gradgate[shell]'\n")


def test_what_is_no_json_is_told_with_an_example(gradgate: Callable[..., Any]) -> None:
    for option, example in (("--spec", """'{"dtype": "float32", "seed": 1}'"""), ("--options", """'{"chunk": 4}'""")):
        for wrong in ("dtype=float32", "[1]"):
            more = ["--spec", "{}"] if option == "--options" else []
            ran = gradgate("verify", "--family", "chain", *more, option, wrong)
            assert ran.status == 3
            assert f"{option} is a JSON object, such as {example}" in ran.err
            assert ran.err.count("\n") == 1
