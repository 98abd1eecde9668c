"""What an author has, for tests: a new git repository in one of pytest's temporary folders, and a source."""

from __future__ import annotations

import subprocess
from pathlib import Path

SQUARE = """import torch

class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, upstream):
        x, = ctx.saved_tensors
        return 2 * upstream * x
"""
"""Source of the square as a function with a handwritten backward pass, as authors' files have it."""
SUM_OF_SQUARES = SQUARE.replace("return x * x", "return (x * x).sum()")


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
