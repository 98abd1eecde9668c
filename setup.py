"""Maps the three top-level folders onto one distribution.

The package list is computed, because an explicit list silently drops a new problem class from the wheel.
"""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FOLDERS = ("hw_profiles", "references", "suites")
API = "suites/api"
"""The folder of the module ``gradgate`` itself."""
DATA = [
    "py.typed",
    "startup/*.py",
    "*.toml",
    "devices/*.toml",
    "history/*/*.json",
    "*.json",
    "*.html",
    "*.css",
    "*.js",
    "*.md",
    "*.svg",
]


CHECKOUT = ("bugs", "calibration", "gallery", "guide", "releases", "selftest", "site", "tests")
"""Rooms of ``suites`` that only a checkout has: the trial of gradgate, and its site. `suites/cli.py` has the same."""


def packages() -> list[str]:
    """``gradgate``, and the dotted names below it of every other folder that holds an ``__init__.py``, but CHECKOUT."""
    left_out = [ROOT / "suites" / room for room in CHECKOUT]
    found = [init.parent for folder in FOLDERS for init in (ROOT / folder).rglob("__init__.py")]
    found = [path for path in found if not any(path.is_relative_to(room) for room in left_out)]
    names = ["gradgate." + ".".join(path.relative_to(ROOT).parts) for path in found if path != ROOT / API]
    return ["gradgate", *sorted(names)]


setup(
    packages=packages(),
    package_dir={"gradgate": API, **{f"gradgate.{folder}": folder for folder in FOLDERS}},
    package_data=dict.fromkeys(packages(), DATA),
)
