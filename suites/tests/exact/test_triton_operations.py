"""Every operation of Triton's language that has a rule is right and its twin is refuted; the others are named."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradgate.suites.exact import balls
from gradgate.suites.tests.exact.kernel_judge import Judge

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed: pip install 'gradgate[triton]'"
)

TEXT = (Path(__file__).parent / "triton_operations.py").read_text(encoding="utf-8")
PLANTED = "def planted(y):\n    return y"
KNOWN = (
    "argmax",
    "argmin",
    "sort",
    "descending",
    "topk",
    "gather",
    "histogram",
    "reduce",
    "scans",
    "cummax",
    "shapes",
    "described",
    "on_the_host",
    "functions",
    "library",
    "atomics",
    "locked",
    "drawn",
    "cast",
)
UNKNOWN = {
    "assembly": "_assembly: NotImplementedError('inline_asm",
    "bits": "the Triton kernel _bits, operations.py:",
    "unknown": "libdevice.nextafter has no rule",
}
"""Pair -> what the reason of its inapplicable claim says."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    made = Judge()
    yield made
    made.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The kernels as they are, and with 1e-30 added to what each of them computes."""
    assert TEXT.count(PLANTED) == 1
    folder = tmp_path_factory.mktemp("kernels")
    texts = {"right": TEXT, "wrong": TEXT.replace(PLANTED, PLANTED.replace("return y", "return y + 1e-30"))}
    for name, text in texts.items():
        (folder / name).mkdir()
        (folder / name / "operations.py").write_text(text, encoding="utf-8")
    return {name: folder / name / "operations.py" for name in texts}


@pytest.mark.parametrize("name", KNOWN)
def test_an_operation_is_right_and_its_twin_is_refuted(name: str, judge: Judge, files: dict[str, Path]) -> None:
    right = judge.judge(files["right"], ("gradient_exact", "memory_safe"), (name,), examples=2)
    assert [verdict for verdict, _ in right.values()] == ["upheld", "upheld"], right
    [(verdict, reason)] = judge.judge(files["wrong"], ("gradient_exact",), (name,), examples=2).values()
    assert verdict == "refuted", reason


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_operation_without_a_rule_is_named(name: str, judge: Judge, files: dict[str, Path]) -> None:
    [(verdict, reason)] = judge.judge(files["right"], ("gradient_exact",), (name,), examples=1).values()
    assert verdict == "inapplicable"
    assert UNKNOWN[name] in reason


def test_a_cast_to_a_narrower_dtype_is_said(judge: Judge, files: dict[str, Path]) -> None:
    found = judge.judge(files["right"], ("gradient_exact",), ("cast", "sort"), examples=1)
    assert {name: reason.partition("; ")[2] for name, (_, reason) in found.items()} == {
        "cast gradient_exact": "casts to bfloat16 count as exact",
        "sort gradient_exact": "",
    }


def test_an_assertion_that_fails_is_refuted(judge: Judge, files: dict[str, Path]) -> None:
    found = judge.judge(files["right"], ("gradient_exact", "memory_safe"), ("asserted",), examples=1)
    assert found["asserted gradient_exact"][0] == "upheld"
    verdict, reason = found["asserted memory_safe"]
    assert verdict == "refuted"
    assert reason.startswith("_asserted, operations.py:")
    assert reason.endswith("asserts what is false: numbers below one half")


SPECIAL = {
    "rcbrt": lambda x: x ** (-1 / 3),
    "j0": lambda x: pytest.importorskip("scipy.special").j0(x),
    "j1": lambda x: pytest.importorskip("scipy.special").j1(x),
    "y0": lambda x: pytest.importorskip("scipy.special").y0(x),
    "y1": lambda x: pytest.importorskip("scipy.special").y1(x),
    "cyl_bessel_i0": lambda x: pytest.importorskip("scipy.special").i0(x),
    "cyl_bessel_i1": lambda x: pytest.importorskip("scipy.special").i1(x),
    "erfcinv": lambda x: pytest.importorskip("scipy.special").erfcinv(x),
    "sinpi": lambda x: math.sin(math.pi * x),
    "cospi": lambda x: math.cos(math.pi * x),
    "fast_log2f": math.log2,
    "exp2": lambda x: 2**x,
}


@pytest.mark.parametrize("name", SPECIAL)
def test_a_function_of_libdevice_is_that_function(name: str) -> None:
    from gradgate.suites.exact.on_triton.reductions import library

    with balls.digits(60):
        for x in (0.3, 0.8125):
            [found] = balls.floats(library(name, [np.array([x])]))
            assert found == pytest.approx(SPECIAL[name](x), rel=1e-13)


def test_functions_of_libdevice_of_several_numbers() -> None:
    from gradgate.suites.exact.on_triton.reductions import library

    def value(name: str, *numbers: float) -> float:
        [found] = balls.floats(library(name, [np.array([number]) for number in numbers]))
        return float(found)

    with balls.digits(60):
        assert value("norm4d", 1.0, 1.0, 1.0, 1.0) == 2
        assert (
            value("rnorm4d", 1.0, 1.0, 1.0, 1.0) == value("rhypot", 0.0, 2.0) == value("rnorm3d", 0.0, 0.0, 2.0) == 0.5
        )
        assert value("ldexp", 3.0, -2) == value("scalbn", 3.0, -2) == 0.75
        assert value("signbit", -2.0) == value("isinf", math.inf) == value("isfinited", 1.0) == 1
        with pytest.raises(balls.Unknown, match=r"libdevice\.ilogb has no rule"):
            value("ilogb", 1.0)
