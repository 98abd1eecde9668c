"""The bugs that are put into pairs: each is refuted by the claim that it names, and existing tools find fewer bugs."""

from __future__ import annotations

import dataclasses
import random
import sys

import pytest

from gradgate.references.contract import installed
from gradgate.suites.bugs.of_pairs import rivals
from gradgate.suites.bugs.of_pairs.corpus import MUTANTS, corpus
from gradgate.suites.bugs.of_pairs.mutant import PairMutant, judged, unbroken
from gradgate.suites.calibration import power
from gradgate.suites.calibration.pairs import __main__ as command

SLOW = ("compile",)
THERE = [mutant for mutant in MUTANTS if installed(mutant.framework)]


def sample(framework: str, count: int) -> list[PairMutant]:
    """Some mutants, the same in every run; ``python -m gradgate.suites.calibration.pairs`` judges the whole corpus."""
    chosen = [mutant for mutant in THERE if mutant.framework == framework and mutant.kill not in SLOW]
    return random.Random(20262).sample(chosen, min(count, len(chosen)))


SAMPLE = [*sample("torch", 12), *sample("jax", 4)]


def test_there_are_bugs_for_every_kind_of_claim() -> None:
    assert len(corpus()) >= 140
    claims = {mutant.kill for mutant in MUTANTS}
    assert claims >= {
        "tree",
        "outputs",
        "gradient_exact",
        "gradient_float64",
        "gradient_float32",
        "gradient_bfloat16",
        "stability",
        "cotangents",
        "options",
        "layouts",
        "each_leaf_alone",
        "autograd",
        "not_finite",
        "pure",
        "deterministic",
        "jit",
        "compile",
        "vmap",
        "second_order_exact",
        "second_order",
    }


@pytest.mark.parametrize("mutant", SAMPLE, ids=lambda mutant: mutant.name)
def test_the_claim_refutes_the_bug_and_not_the_pair_without_it(mutant: PairMutant) -> None:
    found = judged(mutant.broken(), mutant.kill)
    assert found.verdict == "refuted", f"{mutant.story}: {found.verdict} {found.reason}"
    right = judged(unbroken(mutant.pair), mutant.kill, examples=6)
    assert right.verdict == "upheld", right.reason


@pytest.mark.parametrize(
    "name",
    [
        "torch.gated.vmapped_value",  # the value is wrong under vmap, the gradient is right
        "torch.normed.second_term",  # the derivative by the upstream gradient is wrong, H·v is right
        "torch.entropy.silent_twice",  # an eager second derivative of a function that claims none
        "torch.gated.nan_dropped",  # the output has another shape where the reference's is NaN
    ],
)
def test_what_no_gradient_shows_is_refuted(name: str) -> None:
    pytest.importorskip("torch")
    mutant = corpus()[name]
    assert judged(mutant.broken(), mutant.kill, examples=8).verdict == "refuted"
    assert judged(unbroken(mutant.pair), mutant.kill, examples=8).verdict == "upheld"


def test_the_text_of_every_edit_of_torch_occurs_once() -> None:
    pytest.importorskip("torch")
    for mutant in THERE:
        if mutant.framework == "torch":
            pair = mutant.broken()
            assert pair.loaded["function"].__code__.co_filename == f"<{module_of(mutant)}, {mutant.name}>"


def module_of(mutant: PairMutant) -> str:
    return f"gradgate.suites.bugs.of_pairs.{mutant.pair.partition(':')[0]}"


def test_an_edit_whose_text_is_gone_is_told() -> None:
    pytest.importorskip("torch")
    gone = dataclasses.replace(corpus()["torch.gated.gate_none"], edits=(("no such text", ""),))
    with pytest.raises(
        LookupError, match=r"'no such text' occurs 0 times, not once: carry torch\.gated\.gate_none over"
    ):
        gone.broken()


def test_tools_of_today_find_a_lost_factor_and_nothing_in_the_right_pair() -> None:
    pytest.importorskip("torch")
    found = rivals.detected_by(corpus()["torch.gated.factor_lost"].broken())
    assert found["gradcheck"]
    assert found["allclose_1e-2"]
    assert not any(rivals.detected_by(unbroken("torch_norms:gated")).values())


def test_a_cotangent_of_ones_does_not_find_a_dropped_upstream_gradient() -> None:
    pytest.importorskip("torch")
    mutant = corpus()["torch.gated.upstream_dropped"]
    assert not rivals.detected_by(mutant.broken())["allclose_1e-3"]
    assert judged(mutant.broken(), mutant.kill).verdict == "refuted"


def test_the_tool_of_jax_finds_a_lost_factor_and_nothing_in_the_right_pair() -> None:
    pytest.importorskip("jax")
    assert rivals.detected_by(corpus()["jax.ordered.not_inverted"].broken())["check_grads"]
    assert not any(rivals.detected_by(unbroken("jax_tables:ordered")).values())


def test_the_command_prints_mutants_and_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["of_pairs", "--only", "torch.gated.gate_none", "--no-rivals"])
    assert command.main() == 0
    printed = capsys.readouterr().out
    assert "torch.gated.gate_none" in printed
    assert "+ gradgate: tree" in printed
    assert "gradgate                  1 of 1" in printed


def test_the_command_fails_where_a_bug_survives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    unseen = dataclasses.replace(corpus()["torch.gated.gate_none"], edits=())
    monkeypatch.setattr(command, "MUTANTS", (unseen,))
    monkeypatch.setattr(sys, "argv", ["of_pairs", "--no-rivals"])
    assert command.main() == 1
    assert "survived: torch.gated.gate_none: upheld" in capsys.readouterr().out


@pytest.mark.parametrize(("smallest", "status"), [(2e-15, 0), (1e-3, 1)])
def test_a_planted_error_that_passes_in_a_leaf_fails_the_run(
    smallest: float, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(sys, "argv", ["of_pairs", "--planted", "--only", "torch_norms:grouped"])
    monkeypatch.setattr(command.power, "smallest", lambda *_: {"x": power.Smallest(smallest, "x")})
    assert command.main() == status
