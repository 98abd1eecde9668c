"""An input that the search found, and that refutes, becomes the simplest one that is still refuted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate import Pair, integers, normal, positive
from gradgate.references.contract import FRAMEWORKS
from gradgate.suites.engine.simpler import EACH, Simpler
from gradgate.suites.pairs.spec import PairSpec
from gradgate.suites.tests.engine import behind_decisions
from gradgate.suites.tests.engine.behind_decisions import RULES, Rule, cubic
from gradgate.suites.tests.pairs.verdicts import judged


def refuted_at(framework: str, rule: Rule) -> dict[str, Any]:
    """The Spec at which a function with a fault is refuted."""
    pytest.importorskip(framework)
    made = {"jax": behind_decisions.in_jax, "torch": behind_decisions.in_torch}[framework]
    pair = Pair(
        made(rule, rule.wrong),
        behind_decisions.reference(framework, rule.forward),
        inputs={"x": normal("N")},
        dims={"N": (5, 4, 2)},
        framework=framework,
        name="made_simpler",
    )
    found = judged(pair, ("gradient_exact",))["gradient_exact"]
    assert found.verdict == "refuted", found.reason
    assert found.spec is not None
    assert str(found.spec["regime"]) in found.reason
    return found.spec


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("rule", "size", "regime"),
    [
        (RULES["above a number"], 2, "unseen: is 0 30 in x"),
        (RULES["exactly three"], 2, "unseen: is 3 0 in x"),
        (RULES["all equal"], 2, "unseen: all 0"),
        (cubic(lambda xp, x: (xp.max(x) > 20) & (len(x) > 3)), 4, "unseen: is 0 0 0 30 in x"),
    ],
)
def test_the_failure_is_the_simplest_problem(framework: str, rule: Rule, size: int, regime: str) -> None:
    spec = refuted_at(framework, rule)
    assert spec["N"] == size
    assert sorted(spec["regime"].split()) == sorted(regime.split())


def simplest(inputs: dict[str, Any], regime: str, refuted: Callable[[dict[str, Any]], bool], **dims: Any) -> PairSpec:
    """The simplest problem of a pair at which `refuted` of the inputs holds, from the first shape of the dims."""
    pair = Pair("a:f", "a:g", inputs=inputs, dims=dims, framework="torch", name="simplest")
    first = pair.spec(regime=regime)
    assert refuted(pair.drawn(first)), "the problem to begin with is refuted"
    made = Simpler(pair, first, lambda spec: refuted(pair.drawn(spec)))
    made.search([dict.fromkeys(dims, size) for size in sorted(*dims.values())])
    assert refuted(pair.drawn(made.spec))
    assert pair.spec(**{name: getattr(made.spec, name) for name in (*dims, "regime")}).unseen
    return made.spec


def test_an_input_that_does_not_matter_is_zero_and_the_other_keeps_what_matters() -> None:
    inputs = {"x": normal("N"), "w": normal("N")}
    spec = simplest(inputs, "unseen: times 1000 in x; sorted in w", lambda given: given["x"].max() > 100, N=(4,))
    assert spec.regime.endswith("in x; is 0 in w") or spec.regime.startswith("unseen: is 0 in w; is "), spec
    x = spec.pair.drawn(spec)["x"]
    assert sorted(x)[:3] == [0, 0, 0]
    assert f"{x.max():.0e}" == f"{x.max():.0e}".replace(".", "")
    assert len(np.unique(x)) == 2


def test_a_large_input_is_named_by_its_change_or_by_one_number() -> None:
    """No name has more than EACH numbers."""
    large = EACH + 1
    spec = simplest({"x": normal("N")}, "unseen: times 30", lambda given: given["x"].max() > 20, N=(large,))
    assert spec.regime == "unseen: times 30"
    spec = simplest({"x": normal("N")}, "unseen: times 30", lambda given: bool(abs(given["x"]).max() < 99), N=(large,))
    assert spec.regime == "unseen: is 0 in x"


def test_numbers_stay_legal_and_integers_stay_as_they_are() -> None:
    inputs = {"rate": positive("N"), "index": integers("N", below=9)}
    spec = simplest(
        inputs, "unseen: times 1000 in rate; equal in index", lambda given: len(given["rate"]) > 1, N=(3, 2)
    )
    assert spec.N == 2  # type: ignore[attr-defined]
    assert spec.regime == "unseen: equal in index; is 1 in rate"


def test_what_nothing_makes_simpler_stays() -> None:
    only = []

    def refuted(given: dict[str, Any]) -> bool:
        only[:] = only or [given["x"]]
        return bool(np.array_equal(given["x"], only[0]))

    assert simplest({"x": normal("N")}, "unseen: times 30", refuted, N=(4, 2)).regime == "unseen: times 30"
