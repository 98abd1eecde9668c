"""Commits of a repository with our pairs and settings added, in a scratch clone. The user's clone is only read."""

from __future__ import annotations

import json
import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.references.errors import UsageError

PAIRS = "gradgate_pairs.py"
"""The file of pairs in the scratch clone."""
WHO = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "gradgate"), ("EMAIL", "gradgate@example.org"), ("DATE", "2000-01-01T00:00:00Z"))
}
"""The author of the scratch commits: the same commit has the same hash in every run."""


class Scratch:
    """A scratch clone that shares the objects of the user's clone."""

    def __init__(self, clone: Path, folder: Path) -> None:
        """Make the clone, without a working tree.

        Raises:
            UsageError: the user's clone is no git repository.
        """
        if not clone.is_dir():
            raise UsageError(f"{clone} is no folder; give a clone of the repository")
        self.root = folder
        self._git("clone", "--quiet", "--shared", "--no-checkout", str(clone.resolve()), str(folder), cwd=Path.cwd())

    def commit(self, revision: str) -> str:
        """The full hash of a revision.

        Raises:
            UsageError: the clone does not have it.
        """
        return self._git("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}").strip()

    def title(self, commit: str) -> tuple[str, str]:
        """The date and the first line of the message of a commit."""
        date, _, title = self._git("show", "--no-patch", "--format=%cs %s", commit).strip().partition(" ")
        return date, title

    def with_ours(self, commit: str, pairs: str, settings: Mapping[str, Any], parents: Sequence[str] = ()) -> str:
        """A commit with the files of another one, a file of pairs, and settings; returns its hash.

        Args:
            commit: whose files.
            pairs: the text of the file of pairs.
            settings: the table ``[tool.gradgate]``.
            parents: the parents of the new commit.

        Raises:
            UsageError: the commit has such a table already.
        """
        index = {"GIT_INDEX_FILE": str(self.root / ".git" / "scratch-index")}
        self._git("read-tree", commit, env=index)
        self._drop_missing(index)
        there = self._git("ls-files", "--", "pyproject.toml", env=index)
        project = self._git("show", f"{commit}:pyproject.toml") if there else ""
        if "gradgate" in tomllib.loads(project).get("tool", {}):
            raise UsageError(f"{commit[:10]} has a table [tool.gradgate] already")
        table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
        for name, text in ((PAIRS, pairs), ("pyproject.toml", f"{project}\n[tool.gradgate]\n{table}")):
            blob = self._git("hash-object", "-w", "--stdin", text=text).strip()
            self._git("update-index", "--add", "--cacheinfo", f"100644,{blob},{name}", env=index)
        tree = self._git("write-tree", env=index).strip()
        above = [word for parent in parents for word in ("-p", parent)]
        return self._git("commit-tree", tree, *above, "-m", f"{commit[:10]} with pairs", env=WHO).strip()

    def check_out(self, commit: str) -> None:
        """Put the files of a commit into the working tree."""
        self._git("checkout", "--quiet", "--force", "--detach", commit)

    def _drop_missing(self, index: Mapping[str, str]) -> None:
        """Take files out of an index whose content the clone lacks: large files that a mirror has left out."""
        listed = self._git("ls-files", "--stage", "-z", env=index).split("\0")
        entries = [line.partition("\t") for line in listed if line and not line.startswith("160000")]
        asked = "".join(about.split()[1] + "\n" for about, _, _ in entries)
        found = self._git("cat-file", "--batch-check", text=asked).splitlines()
        gone = [name for (_, _, name), line in zip(entries, found, strict=True) if line.endswith(" missing")]
        if gone:
            self._git("update-index", "--force-remove", "-z", "--stdin", text="\0".join([*gone, ""]), env=index)

    def _git(
        self, *arguments: str, text: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> str:
        """Run git; returns its output.

        Raises:
            UsageError: it fails, in its words.
        """
        ran = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", *arguments],
            cwd=cwd or self.root,
            env={**os.environ, **(env or {})},
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
        if ran.returncode:
            raise UsageError(f"git {' '.join(arguments[:2])} failed: {ran.stderr.strip() or 'it says nothing'}")
        return ran.stdout
