"""A git repository for tests, made anew in a folder of pytest's."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Scratch:
    """A git repository that tests commit to; branches start from its first commit, `base`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        """The output of a git command in it."""
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        ran = subprocess.run(["git", *identity, *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        """Write files, by path."""
        for name, content in files.items():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)

    def replace(self, name: str, *pairs: tuple[str, str]) -> None:
        """Replace strings in a file; each must be there."""
        content = (self.root / name).read_text()
        for old, new in pairs:
            assert old in content, f"{old!r} is not in {name}"
            content = content.replace(old, new)
        (self.root / name).write_text(content)

    def commit(self, files: dict[str, str] | None = None) -> str:
        """Write files and commit everything; the hash."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")
        return self.git("rev-parse", "HEAD")

    def branch(self) -> None:
        """Start over from the base, on a new branch."""
        self.git("checkout", "--quiet", "--force", "-B", "change", "main")
        self.git("clean", "--quiet", "--force", "-d")
