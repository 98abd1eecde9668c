"""A new git repository for tests, in one of pytest's temporary folders."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Scratch:
    """A git repository to which tests commit; branches start from its first commit, `base`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        """Run a git command in the repository; returns its output."""
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
        ran = subprocess.run(["git", *identity, *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        """Write files: path -> text."""
        for name, content in files.items():
            place = self.root / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)

    def replace(self, name: str, *pairs: tuple[str, str]) -> None:
        """Replace strings in a file; the file must contain each of them."""
        content = (self.root / name).read_text()
        for old, new in pairs:
            assert old in content, f"{old!r} is not in {name}"
            content = content.replace(old, new)
        (self.root / name).write_text(content)

    def commit(self, files: dict[str, str] | None = None) -> str:
        """Write files and commit everything; returns the commit's hash."""
        self.write(files or {})
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "change")
        return self.git("rev-parse", "HEAD")

    def branch(self) -> None:
        """Make a new branch that starts from `base`."""
        self.git("checkout", "--quiet", "--force", "-B", "change", "main")
        self.git("clean", "--quiet", "--force", "-d")
