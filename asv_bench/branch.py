"""The history on the branch ``benchmark-history`` of ``origin``: ``python asv_bench/branch.py fetch``, or ``keep``.

``fetch`` puts the results of the branch into ``asv_bench/.asv/results``, merged with those that are there. ``keep
FOLDER…`` adds results to the branch, as one commit. If another job was quicker, its results are fetched, and these are
added to them. So no job waits for another one, and the points of a profile are kept whatever happens to the others.
Only Python and git are needed: the job that may write runs nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import history

HERE = Path(__file__).resolve().parent
RESULTS = HERE / ".asv" / "results"
BRANCH = "benchmark-history"
TRIES = 20
"""How often results are added to a branch that others change meanwhile."""
IDENTITY = ("-c", "user.name=gradgate", "-c", "user.email=gradgate@users.noreply.github.com")


class GitError(Exception):
    """A command of git failed; the message has its words."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch or keep; the exit status: 0, 1 if the history would shrink, 2 if git failed, 3 for wrong usage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("fetch", "keep"))
    parser.add_argument("folders", nargs="*", type=Path, help="keep: results folders (default: asv_bench/.asv/results)")
    parser.add_argument(
        "--verdicts", type=Path, metavar="FILE", help="keep: in place of folders, the verdicts.json of HEAD"
    )
    parser.add_argument("--message", default="Results", help="keep: the message of the commit")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.what == "fetch":
            print(fetch(RESULTS))
        elif chosen.verdicts:
            print(keep_verdicts(chosen.verdicts, chosen.message))
        else:
            print(keep(chosen.folders or [RESULTS], chosen.message))
    except OSError as error:
        print(f"history: {error}", file=sys.stderr)
        return 3
    except history.ShrunkError as error:
        print(f"history: {error}", file=sys.stderr)
        return 1
    except GitError as error:
        print(f"history: {error}", file=sys.stderr)
        return 2
    return 0


def fetch(results: Path) -> str:
    """Merge the branch's results into a folder; returns a sentence that says what came.

    Raises:
        GitError: the branch cannot be fetched.
        ShrunkError: a result file cannot be merged.
    """
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        if not _clone(Path(folder)):
            return f"origin has no branch {BRANCH} yet"
        history.unite([Path(folder)], results)
        shutil.copy(Path(folder) / history.RECORD, results / history.RECORD)
    counted = history.count(results)
    return f"fetched the history of {', '.join(sorted(counted))}"


def keep(
    folders: Sequence[Path], message: str, before_push: Callable[[], None] = lambda: None, pause: float = 1.0
) -> str:
    """Add results to the branch; returns a sentence that says what was added.

    Args:
        folders: results folders.
        message: the message of the commit.
        before_push: called before each push; tests change the branch here.
        pause: about how many seconds to wait before another try; each wait is longer than the one before.

    Raises:
        GitError: git failed, or others changed the branch `TRIES` times meanwhile.
        ShrunkError: a folder has no results, or the branch would lose points.
    """
    for attempt in range(TRIES):
        with tempfile.TemporaryDirectory(dir=_scratch()) as name:
            folder = Path(name)
            if not _clone(folder):
                _git(folder, "init", "--quiet", f"--initial-branch={BRANCH}")
                _git(folder, "remote", "add", "origin", _origin())
            history.unite(folders, folder)
            counted = history.check_and_record(folder)
            _git(folder, "add", "--all")
            if not _git(folder, "status", "--porcelain"):
                return f"{BRANCH} has these results already"
            _git(folder, *IDENTITY, "-c", "commit.gpgsign=false", "commit", "--quiet", "--message", message)
            before_push()
            pushed = _run(folder, "push", "--quiet", "origin", f"HEAD:refs/heads/{BRANCH}")
            if pushed.returncode == 0:
                total = sum(sum(benchmarks.values()) for benchmarks in counted.values())
                return f"{BRANCH} has {total} points of {len(counted)} machines"
            if not any(word in pushed.stderr for word in ("fetch first", "non-fast-forward", "cannot lock ref")):
                raise GitError(f"git push failed: {pushed.stderr.strip()}")
        wait = pause * (1 + attempt) * random.uniform(0.5, 1.5)
        print(f"history: {BRANCH} was changed meanwhile; another try in {wait:.0f} s", flush=True)
        time.sleep(wait)
    raise GitError(f"{BRANCH} was changed {TRIES} times meanwhile: run this again")


def keep_verdicts(file: Path, message: str) -> str:
    """Add what ``gradgate verify`` found at HEAD to the branch; returns a sentence that says what was added.

    Raises:
        GitError, ShrunkError: as `keep`.
        OSError: there is no such file.
    """
    document = json.loads(file.read_text(encoding="utf-8"))
    commit, seconds = _git(HERE, "show", "--no-patch", "--format=%H %ct", "HEAD").split()
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        history.write_verdicts(document, commit, 1000 * int(seconds), Path(folder))
        return keep([Path(folder)], message)


def _scratch() -> Path:
    folder = HERE / ".asv"
    folder.mkdir(exist_ok=True)
    return folder


def _origin() -> str:
    return _git(HERE, "remote", "get-url", "origin")


def _clone(folder: Path) -> bool:
    """Clone the branch into an empty folder; False if origin has no such branch."""
    asked = _run(HERE, "ls-remote", "--exit-code", "--heads", "origin", BRANCH)
    if asked.returncode == 2:  # git's status for: nothing matches
        return False
    if asked.returncode:
        raise GitError(f"origin does not answer: {asked.stderr.strip()}")
    _git(HERE, "clone", "--quiet", "--depth", "1", "--branch", BRANCH, _origin(), str(folder))
    return True


def _git(folder: Path, *words: str) -> str:
    ran = _run(folder, *words)
    if ran.returncode:
        raise GitError(f"git {next(word for word in words if word.isalpha())} failed: {ran.stderr.strip()}")
    return ran.stdout.strip()


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}  # the words of a refused push are read
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False, env=environment)


if __name__ == "__main__":
    sys.exit(main())
