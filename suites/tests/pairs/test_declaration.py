"""A wrong declaration of a pair gives a message that says what is wrong and what is legal."""

from __future__ import annotations

from typing import Any

import pytest

import gradgate
from gradgate import integers, normal


def function(x: Any) -> Any:
    return x


def declared(**changes: Any) -> gradgate.Pair:
    given: dict[str, Any] = {
        "function": function,
        "reference": lambda x: 1 * x,
        "inputs": {"x": normal("T")},
        "dims": {"T": (1, 3)},
    }
    return gradgate.Pair(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reference": ""}, "needs a reference="),
        ({"inputs": {}}, "inputs maps names to draws"),
        ({"inputs": {"x": normal("S")}}, "unknown dim of function, input x 'S'; legal: T"),
        ({"inputs": {"x": normal("T", scale="H**-0.5")}}, "unknown dim of function, input x 'H'"),
        ({"inputs": {"x": integers("T", below=3)}}, "no input gets a gradient"),
        ({"inputs": {"x": 3}}, "input x is 3; a draw such as"),
        ({"dims": {"T": ()}}, "dim T lists the sizes to try"),
        ({"dims": {"T": (1.5,)}}, "dim T lists the sizes to try"),
        ({"dims": {"seed": (1,)}}, "no dim can be called 'seed'"),
        ({"options": {"T": (1,)}}, "option 'T' has the name of"),
        ({"options": {"mode": "mean"}}, "option mode lists its legal values"),
        ({"dtypes": ("float8",)}, "unknown dtype of function 'float8'; legal: bfloat16, float16, float32, float64"),
        ({"dtypes": ("float16",)}, "with float64 or float32 among them"),
        ({"inputs": {"x": normal("T", dtype="float8_e5m2")}}, "numbers of float8_e5m2 are data: gradient=False"),
        ({"dtypes": ("bfloat16",)}, "with float64 or float32 among them"),
        ({"kappa": 1e8}, "a bound says nothing"),
        ({"expected": {"jit": ""}}, "say why jit fails"),
        ({"framework": "tensorflow"}, "unknown framework of function 'tensorflow'"),
        ({"claims": ["fast"]}, "a claim is made by gradgate.grows"),
        ({"regimes": {"large": 3}}, "is a function of the inputs"),
    ],
)
def test_a_wrong_declaration_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(gradgate.UsageError, match=said.replace("(", r"\(")):
        declared(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"reference": function}, "function and reference are the same object"),
        ({"reference": "gradgate.suites.pairs.draws:nromal"}, "nearest: normal"),
        ({"composes": ("vmapp",)}, "nearest: vmap"),
        ({"valid": lambda T: False}, "leaves no combination of the dims"),
        ({"expected": {"gradient_flaot32": "it rounds"}}, "nearest: gradient_float32"),
    ],
)
def test_what_only_the_functions_can_tell_is_refused_when_the_pair_is_judged(
    changes: dict[str, Any], said: str
) -> None:
    pytest.importorskip("torch")
    with pytest.raises(gradgate.UsageError, match=said):
        _ = declared(framework="torch", **changes).lowered


def test_every_two_values_of_dims_options_and_regimes_meet() -> None:
    from gradgate.suites.pairs.vocabulary import combinations

    factors = {"T": (1, 3, 64), "V": (2, 127), "reduction": ("mean", "sum"), "regime": ("", "confident")}
    found = combinations(factors, lambda choice: True, lambda choice: choice["T"] * choice["V"])
    met = {frozenset([(a, x[a]), (b, x[b])]) for x in found for a in factors for b in factors if a < b}
    assert len(met) == 3 * 2 + 3 * 2 + 3 * 2 + 2 * 2 + 2 * 2 + 2 * 2
    assert found[0] == {"T": 1, "V": 2, "reduction": "mean", "regime": ""}
    assert len(found) < 3 * 2 * 2 * 2


def test_the_module_gradgate_names_what_it_has() -> None:
    assert set(gradgate.__all__) <= set(dir(gradgate))
    assert all(getattr(gradgate, name) is not None for name in gradgate.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'chekc'"):
        _ = gradgate.chekc
