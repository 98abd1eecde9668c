"""What a process may do after it has cut itself off, and what `gradgate verify --wall` makes of it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TRIES = """
import ctypes, os, socket, sys
from pathlib import Path
from gradgate.suites.workers import landlock
inside, outside, port, walled = sys.argv[1:]
if walled == "True" and not landlock.enter([inside]):
    sys.exit(9)
def tried(what):
    try:
        what()
        return "done"
    except OSError:
        return "refused"
print(tried(lambda: Path(inside, "new").write_text("x")), tried(lambda: Path(outside, "new").write_text("x")),
      tried(lambda: Path(outside, "old").read_text()), tried(lambda: Path(outside, "old").unlink()),
      tried(lambda: socket.create_connection(("127.0.0.1", int(port)), 2).close()),
      tried(lambda: os.kill(os.getppid(), 0)))
print(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) >= landlock.SIGNALS)
"""


@pytest.mark.parametrize(
    ("walled", "wanted"), [(False, "done done done done done"), (True, "done refused done refused refused")]
)
def test_a_process_behind_the_wall_writes_in_its_folders_alone_and_reaches_no_network_and_no_process(
    walled: bool, wanted: str, tmp_path: Path
) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "old").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = [str(inside), str(outside), str(server.getsockname()[1]), str(walled)]
        ran = subprocess.run([sys.executable, "-c", TRIES, *arguments], capture_output=True, text=True, check=False)
    if ran.returncode == 9:
        pytest.skip("this system offers no Landlock, or no namespaces to everybody")
    found, signals = ran.stdout.splitlines()
    assert found == f"{wanted} {'refused' if walled and signals == 'True' else 'done'}", ran.stderr


WRITES = """
from pathlib import Path


def thief(problem):
    (Path(__file__).parent / "left.txt").write_text("x")
    return good(problem)
"""


@pytest.mark.parametrize("wall", [False, True])
def test_a_method_behind_the_wall_leaves_nothing_beside_itself(
    wall: bool, plugin: Callable[..., str], process: Any, tmp_path: Path
) -> None:
    path = plugin(WRITES)
    (tmp_path / "scratch").mkdir()
    told = ["--family", "state_space", "--claim", "tree", "--examples", "2", "--jobs", "1", "--fresh"]
    command = ("-m", "gradgate.suites.cli", "verify", f"{path}:thief", *told, *["--wall"] * wall)
    ran = process(*command, cwd=tmp_path, env={"TMPDIR": str(tmp_path / "scratch")})
    if ran.status == 3 and "Landlock" in ran.err:
        pytest.skip("this system offers no Landlock, or no namespaces to everybody")
    assert (tmp_path / "left.txt").exists() != wall, ran.out + ran.err
    assert ran.status == (2 if wall else 0), ran.out + ran.err
    assert ("Permission" in ran.out) == wall
