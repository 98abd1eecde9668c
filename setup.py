"""Maps the three top-level folders onto one distribution.

The package list is computed, because an explicit list silently drops a new problem class from the wheel.
"""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FOLDERS = ("hw_profiles", "references", "suites")
DATA = ["py.typed", "devices/*.toml", "*.json", "*.html", "*.css", "*.md", "*.svg"]


def packages() -> list[str]:
    """Dotted names below ``gradgate`` of every folder that holds an ``__init__.py``."""
    found = [init.parent for folder in FOLDERS for init in (ROOT / folder).rglob("__init__.py")]
    return sorted("gradgate." + ".".join(path.relative_to(ROOT).parts) for path in found)


setup(
    packages=packages(),
    package_dir={f"gradgate.{folder}": folder for folder in FOLDERS},
    package_data=dict.fromkeys(packages(), DATA),
)
