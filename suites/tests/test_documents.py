"""The instructions of the README work, and the README stays short."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _blocks(document: str, heading: str) -> list[str]:
    section = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)
    assert section, f"{document} has no section {heading}"
    return re.findall(r"^```(?:python)?\n(.*?)^```", section.group(1), re.M | re.S)


@pytest.mark.parametrize("heading", ["Verify", "Test"])
def test_readme_gives_exactly_one_command(heading: str) -> None:
    [command] = _blocks("README.md", heading)
    assert command.count("\n") == 1
    assert "nox -s" in command


def test_the_readme_is_short_and_shows_a_refutation_on_its_first_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert any("AssertionError: wrong gradient" in line for line in lines[:45])


def test_the_numbers_beside_the_findings_in_the_readme_are_those_of_the_kept_results() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    rows = json.loads((ROOT / "suites" / "gallery" / "results.json").read_text(encoding="utf-8"))["rows"]
    assert f"{sum(len(row['findings']) for row in rows)} findings in {len(rows)} [public libraries]" in text
    printed = {
        Path(each["script"]).stem: [float(number) for number in re.findall(r"-?\d+\.\d+", each["output"])]
        for row in rows
        for each in row["scripts"]
    }
    assert f"gradients in place of inputs: {printed['liger_gated_second_backward'][0]:.0%} off" in text
    got, *_, right = printed["liger_strided_logits"][:5]
    assert f"as their own gradient: {got:.3g}, not {right:.3g};".replace("-", "−") in text
    assert f"as if it were contiguous: {printed['torch_batch_norm_strided'][0]:.0%} off" in text


def test_the_first_example_of_the_readme_prints_what_it_shows(process: Callable[..., Any], tmp_path: Path) -> None:
    """The page index of the guide has the same example, and its twin in JAX; a test runs both."""
    pytest.importorskip("torch")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.M | re.S)
    assert found is not None
    (tmp_path / "mine.py").write_text(found[1])
    ran = process("mine.py", cwd=tmp_path)
    assert ran.status == 1
    for line in found[2].splitlines():
        assert line.partition("…")[0].strip() in ran.err


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_every_link_within_the_repository_leads_somewhere(document: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", (ROOT / document).read_text(encoding="utf-8")):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    assert cited is not None
    assert cited[1] == project
    log = (ROOT / "suites" / "guide" / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(project)}\b", log, re.M), f"CHANGELOG.md has no section {project}"


def test_the_page_of_the_gate_lists_every_input_of_the_action() -> None:
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    page = (ROOT / "suites" / "guide" / "gate.md").read_text(encoding="utf-8")
    for name in (*action["inputs"], *action["outputs"]):
        assert f"| `{name}` |" in page, name
