"""What hosts and tools of contributors read: hooks before a commit, updates of dependencies, forms of issues."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.cli import _parser

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
pytestmark = pytest.mark.skipif(not GITHUB.exists(), reason="not a checkout")
ECOSYSTEMS = {"action.yml": "github-actions", "pyproject.toml": "pip", "package.json": "npm"}
"""File -> the ecosystem whose updates it needs."""


def read(path: Path) -> dict[str, Any]:
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def other_versions(hooks: dict[str, Any], pins: list[str]) -> list[str]:
    """Requirements of hooks that are not among the pins of the lint group."""
    needed = [need for repo in hooks["repos"] for hook in repo["hooks"] for need in hook["additional_dependencies"]]
    return [need for need in needed if need not in pins]


def without_updates(root: Path, updates: list[dict[str, Any]]) -> list[str]:
    """Folders with a file of dependencies for which no updates are asked."""
    covered = {(update["package-ecosystem"], update["directory"]) for update in updates}
    folders = {"": "/", ".github/lint": "/.github/lint"}
    return [
        f"{place}: {ecosystem}"
        for folder, place in folders.items()
        for file, ecosystem in ECOSYSTEMS.items()
        if (root / folder / file).exists() and (ecosystem, place) not in covered
    ]


def test_hooks_run_the_versions_that_ci_runs() -> None:
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["lint"]
    hooks = read(ROOT / ".pre-commit-config.yaml")
    assert other_versions(hooks, pins) == []
    assert len(hooks["repos"][0]["hooks"]) >= 3


def test_a_hook_of_another_version_is_found() -> None:
    hooks = {"repos": [{"hooks": [{"additional_dependencies": ["ruff==1"]}]}]}
    assert other_versions(hooks, ["ruff==2"]) == ["ruff==1"]


def test_whatever_pins_versions_gets_updates() -> None:
    assert without_updates(ROOT, read(GITHUB / "dependabot.yml")["updates"]) == []


def test_pins_without_updates_are_found(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "action.yml"):
        (tmp_path / name).touch()
    updates = [{"package-ecosystem": "pip", "directory": "/"}]
    assert without_updates(tmp_path, updates) == ["/: github-actions"]


def test_pins_that_decide_bytes_are_not_updated_without_a_measurement() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    [pip] = [one for one in read(GITHUB / "dependabot.yml")["updates"] if one["package-ecosystem"] == "pip"]
    left_out = [entry["dependency-name"] for entry in pip["ignore"]]
    for pin in groups["history"]:
        name = pin.partition("==")[0]
        assert any(name.startswith(prefix.rstrip("*")) for prefix in left_out), f"{name} would be updated"


FORMS = [path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_of_an_issue_has_what_its_host_requires(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_the_hook_that_others_use_is_a_command_of_ours_and_the_guide_names_it() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *words = shlex.split(hook["entry"])
    assert program == "gradgate"
    assert _parser([*words, "gradients.py"]).parse_args([*words, "gradients.py"]).target == "gradients.py"
    page = (ROOT / "suites" / "guide" / "gate.md").read_text(encoding="utf-8")
    shown = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(# \.pre-commit.*?)^```", page, re.M | re.S)]
    assert [each["id"] for block in shown for repo in block["repos"] for each in repo["hooks"]] == [hook["id"]]
