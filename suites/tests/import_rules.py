"""Checks the contracts about imports, with import-linter: ``python -m gradgate.suites.tests.import_rules``.

import-linter reads a package from one folder. gradgate is installed from several folders of the checkout, so links
arrange them as a wheel would.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hw_profiles", "references", "suites")


def link(folder: Path, root: Path = ROOT) -> Path:
    """Make the package ``gradgate`` in `folder` by links to a checkout, and return the package."""
    package = folder / "gradgate"
    package.mkdir()
    for name in FOLDERS:
        (package / name).symlink_to(root / name, target_is_directory=True)
    for module in (root / "suites" / "api").glob("*.py"):
        (package / module.name).symlink_to(module)
    return package


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the package in `folder` against the contracts of this checkout; status 1 if one is broken."""
    program = Path(sys.executable).parent / "lint-imports"
    command = [str(program), "--no-logo", "--no-cache", str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        link(Path(made))
        checked = check(Path(made))
    print(checked.stdout + checked.stderr)
    raise SystemExit(checked.returncode)
