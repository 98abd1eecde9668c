"""Revisions of a git repository, and copies of their files in other folders. The repository is only read."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from gradgate.references.contract import UsageError

CODE = (".py", ".toml")
"""Untracked files with these suffixes can change a figure, so they count as changes of the tree."""
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
            ["git", "rev-parse", "--show-toplevel"], cwd=folder, capture_output=True, text=True, check=False
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
            if state.strip() and (state != "??" or name.endswith((*CODE, "/"))):
                changed.append(name)
        # git names an untracked folder without its files, so look for code in it.
        changed = [name for name in changed if not name.endswith("/") or self._holds_code(name)]
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise UsageError(
                f"the working tree differs from HEAD ({', '.join(changed[:3])}{more}); the gate compares commits: "
                "commit, stash or ignore these"
            )

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

    def _holds_code(self, folder: str) -> bool:
        listed = self._run("ls-files", "--others", "--exclude-standard", "-z", "--", folder).stdout
        return any(name.endswith(CODE) for name in listed.split("\0"))

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=False)
