"""`gradgate.parametrize` in a user's test file, which pytest runs in a separate process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.scratch import SUM_OF_SQUARES

FUNCTIONS = f"""
import pytest
{SUM_OF_SQUARES}
import gradgate
from gradgate import at_most, normal

def plain(x):
    return (x * x).sum()

class Dropped(Square):
    @staticmethod
    def backward(ctx, upstream):
        return 2 * ctx.saved_tensors[0]

def square(x):
    return Square.apply(x)

def dropped(x):
    return Dropped.apply(x)

def pair(function, **more):
    return gradgate.Pair(function, plain, {{"x": normal("T")}}, {{"T": (2, 3)}}, dtypes=("float64",), **more)
"""
EVERY = """
wrong = ("gradient_exact", "gradient_float64", "upstream", "cotangents")
why = dict.fromkeys(wrong, "the upstream gradient is dropped")

@gradgate.parametrize(pair(square), pair(dropped), examples=2)
def test_plain(check):
    check()

@gradgate.parametrize(pair(dropped, name="known", expected=why), examples=2)
def test_known(check):
    check()

@gradgate.parametrize(pair(square, name="mended", expected={"upstream": "it was dropped once"}), examples=2)
def test_mended(check):
    check()

@gradgate.parametrize(pair(square, name="unseen", claims=[at_most("peak_bytes", of_reference=9)]), examples=2)
def test_unseen(check):
    check()
"""


@pytest.fixture(scope="module")
def printed(process: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints about all tests of the file."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("parametrize")
    (folder / "test_mine.py").write_text(FUNCTIONS + EVERY)
    ran = process("-m", "pytest", "-rA", "-p", "no:cacheprovider", "-p", "no:randomly", "test_mine.py", cwd=folder)
    assert ran.status == 1, ran.out + ran.err
    return str(ran.out)


def outcomes(printed: str, test: str, pair: str) -> dict[str, str]:
    """Claim -> PASSED, FAILED, XFAIL and so on, of the tests of a pair."""
    found = re.findall(rf"^(\w+) test_mine.py::{test}\[{pair}-(\w+)\]", printed, re.MULTILINE)
    return {claim: outcome for outcome, claim in found}


def test_every_claim_of_a_right_function_passes(printed: str) -> None:
    found = outcomes(printed, "test_plain", "square")
    assert {"tree", "outputs", "gradient_exact", "gradient_float64", "autograd", "layouts"} <= found.keys()
    assert set(found.values()) == {"PASSED"}


def test_a_wrong_gradient_fails_in_words(printed: str) -> None:
    found = outcomes(printed, "test_plain", "dropped")
    failed = {claim for claim, outcome in found.items() if outcome == "FAILED"}
    assert {"gradient_exact", "gradient_float64", "upstream", "cotangents"} <= failed
    assert found["outputs"] == found["tree"] == "PASSED"
    assert "wrong gradient of x" in printed
    assert "problem: dtype=float64" in printed
    assert "Traceback" not in printed


def test_a_known_failure_is_an_expected_one_with_its_reason(printed: str) -> None:
    found = outcomes(printed, "test_known", "known")
    assert {found[claim] for claim in ("gradient_exact", "gradient_float64", "upstream", "cotangents")} == {"XFAIL"}
    assert "the upstream gradient is dropped" in printed


def test_a_known_failure_that_passes_fails(printed: str) -> None:
    found = outcomes(printed, "test_mended", "mended")
    assert found.pop("upstream") == "FAILED"
    assert set(found.values()) == {"PASSED"}
    assert "it was dropped once" in printed


def test_what_cannot_be_judged_is_skipped_with_its_reason(
    process: Callable[..., Any], tmp_path: Path, torch: Any
) -> None:
    body = """
@gradgate.parametrize(pair(square, claims=[at_most("temp_bytes", of_reference=9)]), examples=1)
def test_bytes(check):
    if check.args[2].name == "temp_bytes_of_reference":
        gradgate.suites.checks.quantities.KNOWN.clear()
        pytest.MonkeyPatch().setattr("gradgate.suites.checks.quantities.measure_cell", refused)
        check()

def refused(cell):
    from types import SimpleNamespace
    return SimpleNamespace(status="unavailable", reason="no compiler is here", ok=False)
"""
    (tmp_path / "test_mine.py").write_text(FUNCTIONS + "import gradgate.suites.checks.quantities\n" + body)
    ran = process("-m", "pytest", "-rs", "-q", "-p", "no:cacheprovider", "test_mine.py", cwd=tmp_path)
    assert ran.status == 0, ran.out
    assert "cpu: no compiler is here" in ran.out
    assert "1 skipped" in ran.out


def test_a_wrong_declaration_is_told_when_tests_are_collected(
    process: Callable[..., Any], tmp_path: Path, torch: Any
) -> None:
    body = "\n@gradgate.parametrize(pair(square, composes=('vmapp',)))\ndef test_it(check):\n    check()\n"
    (tmp_path / "test_mine.py").write_text(FUNCTIONS + body)
    ran = process("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py", cwd=tmp_path)
    assert ran.status == 2
    assert "unknown transformation of square (torch) 'vmapp'" in ran.out


def test_the_number_of_problems_is_checked() -> None:
    import gradgate

    with pytest.raises(gradgate.UsageError, match="examples is a whole number of at least 1, not 0"):
        gradgate.parametrize(examples=0)
    with pytest.raises(gradgate.UsageError, match=r"parametrize takes gradgate\.Pair, not a function"):
        gradgate.parametrize(lambda x: x)  # type: ignore[arg-type]
