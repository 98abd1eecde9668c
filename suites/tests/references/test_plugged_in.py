"""Declarations of a plug-in: its problems, the claims that fail, its dtypes, and its kappa, which has a maximum."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.contract import DTYPES, Claim, Method, UsageError, method
from gradgate.references.restriction import check_where
from gradgate.suites.checks import CHECKS
from gradgate.suites.engine.search import judge
from gradgate.suites.judging.run import Run
from gradgate.suites.judging.subject import Subject
from gradgate.suites.judging.verdict import Task, Verdict

SHAPES = registry.family("state_space").shapes
DEEP = sum(shape["layers"] == 2 for shape in SHAPES)


@pytest.fixture
def declared(plugin: Callable[..., str], tmp_path: Path) -> Callable[..., Method]:
    """A function that makes a PyTorch plug-in from a decorator and a body."""

    def write(decorator: str, body: str = "return good(problem)") -> Method:
        code = f"from gradgate.references.contract import Claim, method\n\n@method({decorator})\ndef mine(problem):\n"
        path = plugin(
            code + "".join(f"    {line}\n" for line in body.splitlines()),
            "torch",
            f"mine{len(list(tmp_path.iterdir()))}.py",
        )
        return registry.plugged_in(f"{path}:mine", "state_space", "torch")

    return write


def verdict(found: Method, claim: str, examples: int = 4) -> Verdict:
    return judge(Task.of(found, found.claim(claim), found.implementation), Subject.load(found), Run(examples=examples))


ONLY_TWO = "if problem.spec.layers != 2:\n    raise ValueError('two layers only')\nreturn good(problem)"


@pytest.mark.parametrize("claim", ["tree", "gradient_exact", "gradient_float32", "value", "upstream"])
def test_a_method_is_judged_on_the_problems_that_it_is_for(claim: str, declared: Callable[..., Method]) -> None:
    found = verdict(declared("where={'layers': 2}", ONLY_TWO), claim, 12)
    assert (found.verdict, found.task.statement.endswith(f"(on {DEEP} of {len(SHAPES)} shapes, layers=2)")) == (
        "upheld",
        True,
    )


def test_without_the_restriction_the_same_method_fails(declared: Callable[..., Method]) -> None:
    assert verdict(declared("", ONLY_TWO), "gradient_exact").verdict == "error"


def test_a_restriction_lists_alternatives_and_joins_a_claims_own(declared: Callable[..., Method]) -> None:
    own = "Claim('mine', 'gradient', 'is right', 'me', where={'layers': 1}, settings={'dtype': 'float64'})"
    found = declared(f"where={{'structure': ('scalar', 'diagonal')}}, claims=[{own}]")
    assert found.claim("mine").where == {"structure": ("scalar", "diagonal"), "layers": 1}
    assert found.claim("tree").where == {"structure": ("scalar", "diagonal")}
    assert "shapes, structure=scalar or diagonal)" in found.claim("tree").statement
    assert found.claim("stability").statement.endswith("(on 3 of 4 stress problems, structure=scalar or diagonal)")


@pytest.mark.parametrize(
    ("decorator", "message"),
    [
        ("where={'layrs': 2}", "unknown Spec field in where of state_space 'layrs'; legal: .*; nearest: layers"),
        ("where={'scale': 1.0}", "unknown Spec field in where of state_space 'scale'; legal: activation, batch, .*"),
        ("where={'structure': 'diag'}", "unknown structure in where of .* 'diag'; legal: .*; nearest: diagonal"),
        ("where={'layers': 7}", "where: no problem of state_space has layers=7; legal: 1, 2, 3, 4"),
        (
            "where={'layers': 4, 'norm': 'rms'}",
            "where: no problem of state_space has layers=4 and norm=rms together; restrict fewer fields",
        ),
        ("where=['layers']", r"where is a dict of Spec fields such as \{\"layers\": 2\}, not \['layers'\]"),
        (
            "claims=[Claim('mine', 'gradient', 'is right', 'me', where={'layrs': 1})]",
            "unknown Spec field in where of the claim mine 'layrs'; legal: .*; nearest: layers",
        ),
        (
            "expected={'gradient_float23': 'sums in half'}",
            "unknown claim in expected of .*:mine 'gradient_float23'; legal: .*; nearest: gradient_float32",
        ),
        ("expected={'value': ''}", "expected: say why value fails, such as .*, not ''"),
        ("expected=['value']", r"expected maps a claim to the reason why it fails, such as .*, not \['value'\]"),
        ("dtypes=('float64', 'float16')", "unknown dtype 'float16'; legal: bfloat16, float32, float64; nearest: .*"),
        ("dtypes=('float32',)", "dtypes must have float64 among them, not float32 alone: .*"),
        ("dtypes='float64'", r"dtypes is a tuple such as \('float64', 'float32'\), not 'float64'"),
        ("kappa='16'", "kappa must be a positive number, 16 for what loses no more than backprop, not '16'"),
        ("kappa=-1.0", "kappa must be a positive number, .*, not -1.0"),
        ("kappa=float('nan')", "kappa must be a positive number, .*, not nan"),
        (
            "kappa=1e8",
            r"kappa = 1e\+08 allows a relative error of 6 in float32: from 0.01 on a bound says nothing; legal: less "
            r"than 1.68e\+05; for a method that loses more, leave float32 out of dtypes, or declare that it fails, "
            r"expected=\{'gradient_float32': 'why'\}",
        ),
        (
            "kappa=1e10, dtypes=('float64',)",
            r"kappa = 1e\+10 allows a relative error of 1.1e-06 in float64: .* legal: less than 9.01e\+09; for .*, "
            r"declare that it fails, expected=\{'gradient_float64': 'why'\}",
        ),
        (
            "claims=[Claim('mine', 'gradient', 'is right', 'me', settings={'dtype': 'float64', 'kappa': 1e8})]",
            r"kappa of the claim mine = 1e\+08 allows a relative error of 6 in float32: .*",
        ),
    ],
)
def test_what_is_declared_wrongly_is_refused_in_words(
    decorator: str, message: str, declared: Callable[..., Method]
) -> None:
    with pytest.raises(UsageError) as caught:
        declared(decorator)
    assert re.fullmatch(message, str(caught.value)), caught.value


@pytest.mark.parametrize("asked", [{"kappa": 1e5}, {"kappa": 1e8, "dtypes": ("float64",)}, {"kappa": 1}])
def test_a_kappa_whose_bound_still_says_something_is_legal(asked: dict[str, Any]) -> None:
    assert method(**asked)(lambda problem: None).gradgate["kappa"] == asked["kappa"]


def test_every_reference_keeps_within_the_ceiling_of_kappa() -> None:
    for one in registry.methods():
        method(kappa=one.kappa, dtypes=one.dtypes, claims=one.claims)


HALF = "loss, grads = good(problem)\nreturn loss, {**grads, 'head': grads['head'] / 2}"


def test_a_known_failure_is_a_finding_and_upholding_it_contradicts(declared: Callable[..., Method]) -> None:
    reason = "the head is halved"
    broken = verdict(declared(f"expected={{'gradient_float32': {reason!r}}}", HALF), "gradient_float32")
    assert (broken.verdict, broken.as_expected, broken.task.declared_reason) == ("refuted", True, reason)
    assert not verdict(declared("", HALF), "gradient_float32").as_expected
    good = verdict(declared(f"expected={{'gradient_float32': {reason!r}}}"), "gradient_float32")
    assert (good.verdict, good.as_expected) == ("upheld", False)
    other = declared(f"expected={{'gradient_float32': {reason!r}}}").claim("gradient_float64")
    assert (other.expected, other.declared_reason) == ("upheld", "")


NOT_IN = "if problem.dtype == DTYPE:\n    raise ValueError('not in this dtype')\nreturn good(problem)"


@pytest.mark.parametrize(("dtypes", "absent"), [(("float64", "float32"), "bfloat16"), (("float64",), "float32")])
def test_a_method_is_judged_in_the_dtypes_that_it_supports(
    dtypes: tuple[str, ...], absent: str, declared: Callable[..., Method]
) -> None:
    found = declared(f"dtypes={dtypes!r}", NOT_IN.replace("DTYPE", repr(absent)))
    names = [claim.name for claim in found.claims]
    assert f"gradient_{absent}" not in names
    assert {f"gradient_{dtype}" for dtype in dtypes} <= set(names)
    for name in ("tree", "deterministic", "pure", "upstream", "gradient_exact"):
        assert verdict(found, name).verdict == "upheld", name


def test_a_plug_in_is_judged_in_bfloat16_unless_told(declared: Callable[..., Method]) -> None:
    found = declared("", NOT_IN.replace("DTYPE", "'bfloat16'"))
    assert found.dtypes == DTYPES
    assert verdict(found, "gradient_bfloat16").verdict == "error"
    assert verdict(declared("", "return good(problem)"), "gradient_bfloat16", 12).verdict != "error"


@pytest.mark.parametrize("one", registry.methods(), ids=lambda one: one.key)
def test_every_reference_claims_a_gradient_in_each_of_its_dtypes(one: Method) -> None:
    claimed = {claim.name for claim in one.claims}
    estimated = "unbiased" in claimed  # a random estimate: its mean is judged
    assert {dtype for dtype in DTYPES if f"gradient_{dtype}" in claimed} == (set() if estimated else set(one.dtypes))


def test_a_restriction_that_every_family_knows_is_legal() -> None:
    for family in registry.families().values():
        cls = registry.spec_class(family.name)
        for name, value in family.shapes[-1].items():
            if not cls.__dataclass_fields__[name].metadata.get("value"):
                check_where(family, cls, {name: value})


def test_a_claim_on_a_profile_is_not_restricted(declared: Callable[..., Method]) -> None:
    law = "memory_law('law', 'stores little', 'me', variable='length', sizes=(4, 8, 16, 32, 64), exponent=1)"
    found = declared(f"where={{'layers': 2}}, claims=[__import__('gradgate.references.laws', fromlist=['x']).{law}]")
    claim: Claim = found.claim("law")
    assert (CHECKS[claim.check].draws, claim.where, claim.statement) == ("profile", {}, "stores little")
