"""Decisions that no problem took both ways: ``--fail-under``, the setting, and the source in the report."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BODY = """
def function(x):
    y = x * x
    y = {xp}.where(x > {above}, y, 0 * x + y)
    if len(x) > 100:
        return y + 0
    return y


pair = gradgate.Pair(
    function, lambda x: x * x, {{"x": gradgate.normal("N", mean=4.0)}}, {{"N": (5, 4)}}, framework="{framework}"
)
"""
IMPORTS = {"torch": ("import torch", "torch"), "jax": ("import jax", "jax.numpy")}


@pytest.fixture
def run(tmp_path: Path, gradgate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Judge the formula of a pair whose one comparison is with a number that is drawn rarely, or often."""

    def judged(framework: str, above: float, *more: str, settings: str = "") -> Any:
        pytest.importorskip(framework)
        monkeypatch.chdir(tmp_path)
        imported, xp = IMPORTS[framework]
        text = BODY.format(xp=xp, above=above, framework=framework)
        (tmp_path / "ops.py").write_text(f"{imported}\nimport gradgate\n{text}")
        (tmp_path / "pyproject.toml").write_text(f"[tool.gradgate]\n{settings}")
        return gradgate("verify", "ops.py:pair", "--claim", "gradient_exact", "--examples", 6, "--jobs", 1, *more)

    return judged


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_share_below_the_limit_is_not_judged_enough(framework: str, run: Callable[..., Any]) -> None:
    """The mean stays where it is, so `x > 300` is never true: status 2, by the option or by the setting."""
    assert run(framework, 300).status == 0
    short = run(framework, 300, "--fail-under", "60")
    assert short.status == 2, short.out + short.err
    assert "0 of 1 decisions went both ways (0.0%), and at least 60% must" in short.err
    assert run(framework, 300, settings="fail_under = 60").status == 2
    assert run(framework, 300, "--fail-under", "0", settings="fail_under = 60").status == 0
    assert run(framework, 4, "--fail-under", "100").status == 0


def test_no_percentage_is_wrong_usage(run: Callable[..., Any]) -> None:
    assert run("torch", 4, "--fail-under", "101").status == 3
    assert run("torch", 4, settings="fail_under = -1").status == 3


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_the_report_shows_the_source(framework: str, run: Callable[..., Any], tmp_path: Path) -> None:
    """Each line of the function has its mark and its words; after a change of the file the lines are not shown."""
    pytest.importorskip("jinja2")
    report = pytest.importorskip("gradgate.suites.report")
    run(framework, 300, "--report", "report")
    shown = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert states(shown) == {5: "ran", 6: "half", 7: "ran", 8: "never", 9: "ran"}
    assert "0 of 1 both ways; never" in html.unescape(shown)
    assert "true" in spoken(shown, 6)
    assert spoken(shown, 8) == "no problem ran it"
    assert re.search(r"not found in \d+ tries; nearest 29\d", spoken(shown, 6)), spoken(shown, 6)
    [side] = sides(tmp_path)
    assert (side["at"], side["what"], side["tied"], side["above"]) == ("ops.py:6", "… > 300", False, None)
    assert 290 < side["below"] < 300
    run(framework, 4, "--report", "report")
    [side] = sides(tmp_path)
    assert 0 < side["below"] < 4, "how near it came on each side"
    assert 0 < side["above"] < 4, "how near it came on each side"
    assert states((tmp_path / "report" / "index.html").read_text(encoding="utf-8"))[6] == "decided"
    with (tmp_path / "ops.py").open("a") as file:
        file.write("# changed\n")
    document = json.loads((tmp_path / "report" / "verdicts.json").read_text(encoding="utf-8"))
    report.write(document, tmp_path / "report")
    changed = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert states(changed) == {}
    assert "it has changed since it was judged" in changed


def sides(folder: Path) -> list[dict[str, Any]]:
    """The sides of each decision of the one verdict."""
    [verdict] = json.loads((folder / "report" / "verdicts.json").read_text(encoding="utf-8"))["verdicts"]
    found: list[dict[str, Any]] = verdict["decisions"]["sides"]
    return found


def states(page: str) -> dict[int, str]:
    """The state of each line that has one."""
    return {
        int(number): state for state, number in re.findall(r'<tr class="line-(\w+)"><td class="n">(\d+)</td>', page)
    }


def spoken(page: str, number: int) -> str:
    """What a screen reader says of a line."""
    [words] = re.findall(rf'<td class="n">{number}</td>.*?<span class="hidden">(.*?)</span>', page)
    return html.unescape(words)
