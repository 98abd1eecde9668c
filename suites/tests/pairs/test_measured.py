"""What a pair declares about its measurement: where, what is left out, what is donated; in both frameworks."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import gradgate
from gradgate import at_most, normal
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.sweep import Cell, measure_cell
from gradgate.references.contract import UsageError
from gradgate.suites.engine import search
from gradgate.suites.gate import manifest
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.measuring import cells

FLOAT32 = 4


def squares(x: Any, w: Any, *, chunk: int = 1, reduction: str = "mean") -> Any:
    y = (x @ w.T) ** 2
    return y.mean() if reduction == "mean" else y.sum()


def plain(x: Any, w: Any, reduction: str = "mean") -> Any:
    return squares(x, w, reduction=reduction)


def pair(framework: str, **how: Any) -> gradgate.Pair:
    return gradgate.Pair(
        squares,
        plain,
        {"x": normal("T H"), "w": normal("V H")},
        {"T": (3, 16), "H": (4,), "V": (5, 64)},
        options={"chunk": (1, 7), "reduction": ("mean", "sum")},
        dtypes=("float32",),
        framework=framework,
        name="squares",
        **how,
    )


def measured(declared: gradgate.Pair) -> dict[str, tuple[cells.MethodCell, Measurement]]:
    """Name in the gate -> cell and measurement."""
    method, found = declared.lowered, {}
    for cell in manifest.Gated(method).cells(("cpu",)):
        made = functools.partial(cells.of_method, method, declared, cell.spec, cell.options)
        found[manifest.name(cell.to_dict())] = cell, measure_cell(Cell(made, "cpu", None, framework=method.framework))
    return found


def test_the_gate_measures_every_problem_that_is_declared(framework: str) -> None:
    found = measured(pair(framework, measured=[{"T": 128}, {"T": 64, "chunk": 7, "reduction": "sum"}]))
    key = f"squares:squares:{framework}@cpu"
    assert list(found) == [f"{key} T=128", f"{key} T=64 chunk=7 reduction=sum"]
    (first, large), (second, small) = found.values()
    assert (first.spec.T, first.spec.V, second.spec.T, second.spec.reduction) == (128, 64, 64, "sum")
    assert (first.options, second.options) == ({"chunk": 1}, {"chunk": 7})
    assert manifest.identity(first.to_dict()) != manifest.identity(second.to_dict())
    assert (large.residual_bytes, small.residual_bytes) == (128 * 64 * FLOAT32, 64 * 64 * FLOAT32)


def test_one_problem_that_is_declared_needs_no_name(framework: str) -> None:
    declared = pair(framework, measured=[{"T": 32}])
    [cell] = manifest.Gated(declared.lowered).cells(("cpu",))
    assert manifest.name(cell.to_dict()) == f"squares:squares:{framework}@cpu"
    assert cell.spec.T == declared.family.measured["T"] == 32


def test_what_is_left_out_is_said(framework: str) -> None:
    [(cell, found)] = measured(pair(framework, unmeasured={"residual_bytes": "it reads values"})).values()
    assert found.residual_bytes is None
    assert found.status == "measured"
    assert "residual_bytes is left out: it reads values" in cells.row(cell, found)["reason"]
    declared = pair(framework, unmeasured={"temp_bytes": "it reads values"})
    assert not list(manifest.Gated(declared.lowered).cells(("cpu",)))
    assert declared.lowered.left_out == {"temp_bytes": "it reads values"}


def test_a_cell_that_cannot_be_measured_says_what_to_declare(framework: str) -> None:
    declared = pair(framework)
    [cell] = manifest.Gated(declared.lowered).cells(("cpu",))
    reason = cells.row(cell, Measurement("cpu", "refused", "it reads a number"))["reason"]
    assert reason.startswith("it reads a number; in the pair, measured=")
    assert "unmeasured=" in reason


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"measured": {"T": 4}}, "measured is a list of mappings"),
        ({"measured": [{"TT": 4}]}, "unknown dim or option in measured of squares 'TT'; .*nearest: T"),
        ({"measured": [{"T": "4"}]}, "dim T lists the sizes"),
        ({"measured": [{"chunk": 3}]}, "measured sets chunk to 3; legal are 1, 7"),
        ({"measured": [{"dtype": "float64"}]}, "unknown dtype in measured"),
        ({"measured": [{"T": 4}, {"T": 4}]}, "twice"),
        ({"unmeasured": {"residual": "why"}}, "unknown quantity in unmeasured of squares 'residual'"),
        ({"unmeasured": {"residual_bytes": ""}}, "says in a sentence why"),
        (
            {"unmeasured": {"temp_bytes": "why"}, "claims": at_most("flops", of_reference=1.0)},
            "claims flops_of_reference, and unmeasured leaves flops out",
        ),
        ({"donates": ("v",)}, "unknown input in donates of squares 'v'"),
        ({"donates": "w"}, "donates is a tuple"),
    ],
)
def test_a_wrong_declaration_is_refused(framework: str, how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        pair(framework, **how)


def judged(declared: gradgate.Pair, claim: str, profile: str = "cpu") -> Verdict:
    method = declared.lowered
    task = Task.of(method, method.claim(claim), profile=profile)
    return search.judge(task, Subject(method, declared), Run(examples=1))


@pytest.mark.parametrize(("share", "verdict"), [(1.0, "upheld"), (0.9, "refuted")])
def test_peak_bytes_are_judged_in_pytorch(share: float, verdict: str) -> None:
    pytest.importorskip("torch")
    found = judged(pair("torch", claims=at_most("peak_bytes", of_reference=share)), "peak_bytes_of_reference")
    assert found.verdict == verdict, found.reason


def test_peak_bytes_of_jax_on_a_cpu_are_inapplicable_in_words() -> None:
    pytest.importorskip("jax")
    found = judged(pair("jax", claims=at_most("peak_bytes", of_reference=1.0)), "peak_bytes_of_reference")
    assert found.verdict == "inapplicable"
    assert "ignores recomputation" in found.reason


@pytest.mark.parametrize(("share", "verdict"), [(1.0, "upheld"), (0.5, "refuted")])
@pytest.mark.parametrize("profile", ["nvidia-h100", "tpu-v5p"])
def test_peak_bytes_of_jax_are_judged_on_devices(profile: str, share: float, verdict: str) -> None:
    pytest.importorskip("jax")
    claim = at_most("peak_bytes", of_reference=share, at={"T": 256, "V": 512})
    found = judged(pair("jax", claims=claim), "peak_bytes_of_reference", profile)
    if found.verdict == "inapplicable" and "not installed" in found.reason:
        pytest.skip(found.reason)
    assert found.verdict == verdict, found.reason


def step(w: Any, m: Any, x: Any) -> Any:
    m = 0.9 * m + x.T @ (x @ w)
    return w - 0.1 * m, m


def donating(arguments: tuple[int, ...]) -> gradgate.Pair:
    """Steps of momentum descent, which donate some of their arguments, as pairs that promise to donate w and m."""
    import jax

    return gradgate.Pair(
        jax.jit(step, donate_argnums=arguments),
        lambda w, m, x: step(w, m, x),
        {"w": normal("D O"), "m": normal("D O"), "x": normal("B D", gradient=False)},
        {"B": (3, 1), "D": (4, 1), "O": (2, 1)},
        framework="jax",
        name="step",
        donates=("w", "m"),
    )


@pytest.mark.parametrize(
    ("arguments", "verdict", "said"),
    [
        ((0, 1), "upheld", ""),
        ((), "refuted", "m, w not donated"),
        ((0,), "refuted", "m not donated"),
        ((0, 1, 2), "refuted", "x donated, and donates= does not name it"),
    ],
)
def test_donation_is_judged(arguments: tuple[int, ...], verdict: str, said: str) -> None:
    pytest.importorskip("jax")
    found = judged(donating(arguments), "donation")
    assert found.verdict == verdict, found.reason
    assert said in found.reason


@pytest.mark.parametrize("donates", [True, False])
@pytest.mark.parametrize(("claim", "verdict"), [("deterministic", "error"), ("pure", "refuted")])
def test_a_function_that_donates_and_does_not_say_so_is_told_how_to(claim: str, verdict: str, donates: bool) -> None:
    jax = pytest.importorskip("jax")

    def step(w: Any, m: Any) -> Any:
        return w - m, 2 * m

    declared = gradgate.Pair(
        jax.jit(step, donate_argnums=(0, 1)) if donates else lambda w, m: step(w, m),
        step,
        {"w": normal("D"), "m": normal("D")},
        {"D": (4,)},
        framework="jax",
        name="double",
    )
    found = judged(declared, claim)
    assert found.verdict == (verdict if donates else "upheld"), found
    assert ('donates=("x",)' in found.reason) == donates
    assert ("the call deleted its input" in found.reason) == (donates and claim == "pure")


def test_donated_memory_that_no_output_can_reuse_is_refuted() -> None:
    jax = pytest.importorskip("jax")
    declared = gradgate.Pair(
        jax.jit(lambda w: w.sum(), donate_argnums=0),
        lambda w: w.sum(),
        {"w": normal("D")},
        {"D": (4,)},
        framework="jax",
        name="total",
        donates=("w",),
    )
    found = judged(declared, "donation")
    assert found.verdict == "refuted"
    assert "outputs reuse 0 of the 32 bytes" in found.reason


def test_a_function_that_donates_leaves_the_problem_as_it_is() -> None:
    pytest.importorskip("jax")
    for claim in ("pure", "deterministic", "gradient_exact"):
        found = judged(donating((0, 1)), claim)
        assert found.verdict == "upheld", found.reason


def test_pytorch_has_no_donation() -> None:
    pytest.importorskip("torch")
    with pytest.raises(UsageError, match="donates is for JAX"):
        _ = pair("torch", donates=("w",)).lowered
