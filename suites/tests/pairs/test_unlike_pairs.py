"""The right pairs: they are many and different, and no claim refutes them."""

from __future__ import annotations

import random
from typing import Any

import pytest

import gradgate
from gradgate.references.contract import installed
from gradgate.suites.bugs.of_pairs import corpus, mutant
from gradgate.suites.bugs.of_pairs.corpus import pairs
from gradgate.suites.calibration.pairs import alarms
from gradgate.suites.tests.pairs import verdicts

QUICK = ("tree", "outputs", "gradient_exact", "gradient_float64", "cotangents", "not_finite", "layouts", "options")
"""Claims of the sample; ``python -m gradgate.suites.calibration.pairs --pairs`` judges all claims of all pairs."""


def sample(count: int) -> list[str]:
    return random.Random(20261).sample([name for name in pairs() if name.startswith("torch")], count)


def refuted(name: str, claims: tuple[str, ...], examples: int) -> list[str]:
    pair = mutant.unbroken(name)
    found = [mutant.judged(pair, claim.name, examples) for claim in pair.lowered.claims if claim.name in claims]
    assert found
    return [f"{verdict.task.claim}: {verdict.verdict}: {verdict.reason}" for verdict in found if not ok(verdict)]


def ok(verdict: mutant.Verdict) -> bool:
    return verdict.verdict == "upheld"


@pytest.mark.skipif(not (installed("jax") and installed("torch")), reason="counts the pairs of both frameworks")
def test_there_are_pairs_of_many_kinds_in_both_frameworks() -> None:
    for framework in ("jax", "torch"):
        assert len([name for name in pairs() if name.startswith(framework)]) >= 12


@pytest.mark.parametrize("number", range(4))
def test_no_claim_refutes_a_right_pair(number: int) -> None:
    pytest.importorskip("torch")
    assert refuted(sample(4)[number], QUICK, examples=8) == []


@pytest.mark.parametrize("name", ["jax_norms:gated", "jax_tables:embedded", "jax_sequences:filtered"])
def test_no_claim_refutes_a_right_pair_of_jax(name: str) -> None:
    pytest.importorskip("jax")
    assert refuted(name, ("tree", "gradient_exact", "not_finite"), examples=4) == []


@pytest.mark.parametrize("name", ["torch_norms:masked", "torch_tables:entropy"])
def test_a_gradient_that_is_exactly_zero_raises_no_alarm_in_sixty_digits(name: str) -> None:
    """The softmax of one number: the reference's zero, and only that one, is the difference of two equal numbers."""
    pytest.importorskip("torch")
    assert refuted(name, ("gradient_exact",), examples=24) == []


def test_an_empty_last_leaf_is_judged() -> None:
    pytest.importorskip("torch")
    assert refuted("torch_norms:gated", ("gradient_float64", "gradient_float32"), examples=4) == []


def test_a_nan_that_only_the_reference_spreads_raises_no_alarm() -> None:
    """A product with zeros and ones spreads a NaN over all rows; a gather does not."""
    pytest.importorskip("jax")
    assert refuted("jax_tables:embedded", ("not_finite",), examples=24) == []


def test_random_problems_raise_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(alarms, "pairs", lambda: ("torch_tables:routed",))
    [found] = alarms.measured(20)
    assert found["alarms"] == []
    assert alarms.judgements(found) >= 60


def test_a_bug_in_a_pair_raises_alarms_on_random_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(alarms, "pairs", lambda: ("torch_tables:routed",))
    monkeypatch.setattr(alarms, "unbroken", lambda name: corpus.corpus()["torch.routed.jacobian"].broken())
    [found] = alarms.measured(20)
    assert len(found["alarms"]) >= 40


@pytest.mark.parametrize(("exact", "verdict"), [(True, "upheld"), (False, "refuted")])
def test_a_solver_whose_number_of_steps_depends_on_its_numbers_is_judged_under_vmap(exact: bool, verdict: str) -> None:
    jax = pytest.importorskip("jax")

    def root(a: Any) -> Any:
        def halved(ends: Any) -> Any:
            middle = (ends[0] + ends[1]) / 2
            above = middle**3 + middle > a
            return jax.numpy.where(above, ends[0], middle), jax.numpy.where(above, middle, ends[1])

        low, _ = jax.lax.while_loop(lambda ends: ends[1] - ends[0] > 0.1, halved, (-3 - abs(a), 3 + abs(a)))
        x = jax.lax.stop_gradient(low)
        return x - (x**3 + x - a) / (3 * x * x + 1)

    def all_at_once(a: Any) -> Any:
        return jax.vmap(root)(a if exact else a + 1e-9 * (jax.lax.stop_gradient(a) - a))

    def one_by_one(a: Any) -> Any:
        return jax.numpy.stack([root(one) for one in a])

    pair = gradgate.Pair(
        all_at_once, reference=one_by_one, inputs={"a": gradgate.normal("T")}, dims={"T": (2, 3)}, framework="jax"
    )
    assert verdicts.judged(pair, ("gradient_exact",), examples=3)["gradient_exact"].verdict == verdict


def test_a_reference_that_raises_is_told_from_a_check_that_fails() -> None:
    torch = pytest.importorskip("torch")

    def factor(a: Any) -> Any:
        if raises and a.dtype == torch.bfloat16:
            raise ValueError("no such thing")
        return torch.linalg.cholesky(a @ a.mT + torch.eye(len(a), dtype=a.dtype))

    def pair(**how: Any) -> gradgate.Pair:
        inputs = {"a": gradgate.normal("N N")}
        return gradgate.Pair(
            lambda a: 1 * factor(a), reference=factor, inputs=inputs, dims={"N": (2,)}, framework="torch", **how
        )

    raises = True
    found = verdicts.judged(pair(), ("outputs", "gradient_float64", "not_finite"), examples=2)
    assert found["gradient_float64"].verdict == "upheld"
    assert found["outputs"].verdict == "error"
    assert found["outputs"].reason.startswith("the reference raised ValueError: no such thing")
    assert "in factor: raise ValueError(" in found["outputs"].reason
    assert found["not_finite"].verdict == "inapplicable"
    assert found["not_finite"].reason.startswith("with NaN in a[0], the reference raises ")
    raises = False  # PyTorch has no such kernel for bfloat16 on a CPU: nobody is to blame, and it is not judged
    narrow = verdicts.judged(pair(), ("outputs", "gradient_bfloat16"), examples=2)
    assert [narrow[name].verdict for name in ("outputs", "gradient_bfloat16")] == ["upheld", "inapplicable"]
    for verdict in narrow.values():
        assert "PyTorch cannot compute it on a CPU in this dtype" in verdict.reason
        assert 'leaves it out of dtypes=("float64", "float32", …)' in verdict.reason
    verdicts.upheld(pair(dtypes=("float64", "float32")), ("outputs",), examples=2)
