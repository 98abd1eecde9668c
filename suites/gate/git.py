"""Revisions of a git repository, and their files in other folders.

The gate's trees are worktrees of git, so that no attribute such as ``export-ignore`` drops a file, and a build in them
finds its repository. They lie in one temporary folder. A process of its own removes it when this one ends, however it
ends. If that one is killed as well, the next run removes the folder, which it knows by a lock that nobody holds.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gradgate.references.contract import UsageError
from gradgate.suites.workers.posix import need_processes

CODE = (".py", ".toml")
"""Untracked files with these suffixes can change a figure, so they count as changes of the tree."""
BUILT = ("build", "dist", "__pycache__", ".eggs", ".tox", ".nox", ".venv", "venv", "node_modules")
"""Names of untracked folders that hold what a build or an installation has made."""
METADATA = (".egg-info", ".dist-info")
PREFIX = "gradgate-gate-"
"""How the name of a temporary folder with trees begins."""
LOCK = "lock"
"""The file in it that the process which made it keeps locked; it holds the path of the repository."""
REMOVER = """
cat > /dev/null
for tree in "$2"/trees/*; do git -C "$1" worktree remove --force --force "$tree"; done
for try in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$2" && exit; sleep 0.3; done
"""
"""A shell script that waits until its standard input is closed, and then removes a folder and the trees in it."""
OF_A_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
"""Environment variables that git sets for its hooks. In a worktree they would name another one."""
TRUSTED: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
"""Arguments for unpacking an archive made by git. Python before 3.11.4 has no filters."""


@dataclass(frozen=True)
class Repository:
    """A git repository, seen from one project inside it.

    Attributes:
        root: its top folder.
        project: the project's folder, relative to it.
    """

    root: Path
    project: PurePosixPath

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """The repository of a folder; the project is the nearest folder upwards that holds a pyproject.toml.

        Raises:
            UsageError: git is missing, or the folder is not in a repository.
        """
        if shutil.which("git") is None:
            raise UsageError("git is not installed, and the gate compares two revisions")
        found = subprocess.run(
            ["git", "rev-parse", "--show-toplevel"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            env=_environment(),
        )
        if found.returncode:
            raise UsageError(f"{folder} is not inside a git repository")
        root, folder = Path(found.stdout.rstrip("\n")).resolve(), folder.resolve()
        within = [folder, *folder.parents]
        near = [place for place in within[: within.index(root) + 1] if (place / "pyproject.toml").is_file()]
        return cls(root, PurePosixPath((near[0] if near else root).relative_to(root)))

    def commit(self, revision: str) -> str:
        """The full hash of a revision.

        Raises:
            UsageError: it is unknown.
        """
        asked = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}")
        if asked.returncode:
            shallow = " (the clone is shallow: git fetch --unshallow)" if self.shallow else ""
            raise UsageError(f"unknown revision {revision!r}{shallow}; give a commit, a branch or a tag of {self.root}")
        return asked.stdout.strip()

    @property
    def shallow(self) -> bool:
        """Whether history is cut off."""
        return self._run("rev-parse", "--is-shallow-repository").stdout.strip() == "true"

    def need_whole_history(self) -> None:
        """Raise UsageError in a shallow clone, where the merge base can be wrong."""
        if self.shallow:
            raise UsageError(
                "the clone is shallow, so the merge base cannot be trusted: git fetch --unshallow "
                "(with actions/checkout: fetch-depth: 0)"
            )

    def merge_base(self, one: str, other: str) -> str:
        """The best common ancestor of two commits.

        Raises:
            UsageError: there is none.
        """
        found = self._run("merge-base", one, other)
        if found.returncode:
            raise UsageError(f"{one[:10]} and {other[:10]} have no common ancestor: nothing to compare with")
        return found.stdout.split()[0]

    def need_clean(self) -> None:
        """Raise UsageError if the working tree differs from HEAD in what could change a figure."""
        changed = []
        for entry in self._run("status", "--porcelain", "-z", "--no-renames").stdout.split("\0"):
            state, name = entry[:2], entry[3:]
            if state.strip() and (state != "??" or (name.endswith((*CODE, "/")) and not self._built(name))):
                changed.append(name)
        # git names an untracked folder without its files, so look for code in it.
        changed = [name for name in changed if not name.endswith("/") or self._holds_code(name)]
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise UsageError(
                f"the working tree differs from HEAD ({', '.join(changed[:3])}{more}); the gate compares commits: "
                "commit, stash or ignore these"
            )

    @contextlib.contextmanager
    def trees(self, commits: Iterable[str]) -> Iterator[tuple[Path, dict[str, Path]]]:
        """The files of commits, each in a worktree that is removed at the end.

        Yields:
            A temporary folder, and commit -> the top of its tree in it.

        Raises:
            OSError: the disk is full, or a folder cannot be written.
            UsageError: git cannot make a worktree of the commit.
        """
        self.remove_leftovers()
        place = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        with _locked(place, self.root), _removed_at_the_end(self.root, place):
            found = {}
            for commit in dict.fromkeys(commits):
                found[commit] = place / "trees" / commit[:12]
                found[commit].parent.mkdir(exist_ok=True)
                made = self._run(
                    "-c",
                    "core.hooksPath=/dev/null",
                    "worktree",
                    "add",
                    "--quiet",
                    "--detach",
                    str(found[commit]),
                    commit,
                )
                if made.returncode:
                    raise UsageError(f"git cannot make a worktree of {commit[:10]}: {made.stderr.strip()}")
            yield place, found

    def remove_leftovers(self) -> None:
        """Remove the trees of runs that were killed. They are ours if they hold a lock file that nobody has locked."""
        need_processes()
        import fcntl  # Windows has none

        for place in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            try:
                with (place / LOCK).open(encoding="utf-8") as lock:
                    if place.stat().st_uid != os.getuid():
                        continue
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    root = lock.read()
            except OSError:  # no lock file, or another run holds it
                continue
            for tree in sorted(place.glob("trees/*")):
                subprocess.run(
                    ["git", "-C", root, "worktree", "remove", "--force", "--force", str(tree)],
                    capture_output=True,
                    check=False,
                    env=_environment(),
                )
            shutil.rmtree(place, ignore_errors=True)
        for tree in self.worktrees():
            if tree.parents[1].name.startswith(PREFIX) and not tree.parents[1].exists():
                self._run("worktree", "remove", "--force", "--force", str(tree))

    def worktrees(self) -> list[Path]:
        """The working trees of this repository, its own included."""
        listed = self._run("worktree", "list", "--porcelain").stdout.splitlines()
        return [Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree ")]

    def changed(self, base: str, head: str) -> frozenset[str]:
        """The files whose content differs between two commits, relative to the top folder."""
        rows = self._run("diff", "--raw", "--no-renames", "--no-abbrev", "-z", base, head).stdout.split("\0")
        pairs = zip(rows[::2], rows[1::2], strict=False)
        return frozenset(name for row, name in pairs if len(set(row.split()[2:4])) == 2)

    def files(self, folder: Path) -> list[Path]:
        """The tracked files below a folder, and the untracked code that no build has made."""
        tracked = self._run("ls-files", "-z", "--full-name", "--", str(folder.resolve())).stdout.split("\0")
        others = self._run("ls-files", "--others", "--exclude-standard", "-z", "--", str(folder.resolve())).stdout
        new = [name for name in others.split("\0") if name.endswith(CODE) and not self._built(name)]
        return [folder / (self.root / name).relative_to(folder.resolve()) for name in filter(None, [*tracked, *new])]

    def extract(self, commit: str, folder: Path) -> Path:
        """Write the files of a commit into a folder; returns the project's folder in it.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
            UsageError: git cannot read the commit.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as errors:
            archive = subprocess.Popen(
                ["git", "archive", "--format=tar", commit], cwd=self.root, stdout=subprocess.PIPE, stderr=errors
            )
            assert archive.stdout is not None
            with archive.stdout, tarfile.open(fileobj=archive.stdout, mode="r|") as tar:
                tar.extractall(folder, **TRUSTED)
                while archive.stdout.read(1 << 16):  # the padding after the last file
                    pass
            if archive.wait():
                errors.seek(0)
                raise UsageError(f"git cannot read {commit[:10]}: {errors.read().decode(errors='replace').strip()}")
        return folder / self.project

    def _built(self, name: str) -> bool:
        """Whether an untracked file or folder lies in what a build or an installation has made."""
        parts = PurePosixPath(name).parts
        if any(part in BUILT or part.endswith(METADATA) for part in parts):
            return True
        above = [self.root.joinpath(*parts[:n]) for n in range(1, len(parts) + 1)]
        return any((folder / "pyvenv.cfg").is_file() for folder in above)

    def _holds_code(self, folder: str) -> bool:
        listed = self._run("ls-files", "--others", "--exclude-standard", "-z", "--", folder).stdout
        return any(name.endswith(CODE) and not self._built(name) for name in listed.split("\0"))

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *arguments], cwd=self.root, capture_output=True, text=True, check=False, env=_environment()
        )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OF_A_REPOSITORY}


@contextlib.contextmanager
def _locked(place: Path, root: Path) -> Iterator[None]:
    """Hold the lock file of a folder. It appears only once it is locked."""
    import fcntl  # Windows has none

    with (place / f".{LOCK}").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(root))
        lock.flush()
        os.replace(lock.name, place / LOCK)
        yield


@contextlib.contextmanager
def _removed_at_the_end(root: Path, place: Path) -> Iterator[None]:
    """Remove the trees of a folder and the folder, also if this process is killed in between."""
    remover = subprocess.Popen(
        ["sh", "-c", REMOVER, "gradgate", str(root), str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=_environment(),
        cwd=root,
    )
    try:
        yield
    finally:
        assert remover.stdin is not None
        remover.stdin.close()
        remover.wait()
