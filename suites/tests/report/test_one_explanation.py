"""A verdict reads the same in the terminal, on the page, in JUnit and in pytest, and each shows its command."""

from __future__ import annotations

import dataclasses
import html
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

import gradgate.suites.report
from gradgate.suites import test_methods
from gradgate.suites.console import terminal
from gradgate.suites.judging.explain import LABELS, by_cause, explain, listed
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.report import selftest_page, write
from gradgate.suites.selftest import table
from gradgate.suites.selftest.judging import everything
from gradgate.suites.tests.report.test_report import text

SPEC = {"dtype": "float64", "seed": 7, "length": 3}
FINDING = Verdict(
    Task("fam", "printed", "jax", "gradient_float64", "", "equals backprop", "Eq. 3", "refuted", "a sign is wrong"),
    "refuted",
    12,
    1.5,
    2e-16,
    "layers[0].w",
    SPEC,
    {"chunk": 2},
    reason="wrong gradient of layers[0].w (150%)",
)
FAILURE = Verdict(
    Task("fam", "mended", "torch", "counts", "", "runs two passes", "§4"),
    "refuted",
    3,
    leaf="head",
    spec=SPEC | {"seed": 8},
    reason="three passes ran",
)
SECOND = Verdict(
    Task("fam", "printed", "torch", "stability", "", "keeps digits", "Eq. 3", "refuted", "a sign is wrong"),
    "refuted",
    4,
    0.5,
    1e-16,
    "head",
    SPEC | {"seed": 9},
    reason="head 0.5",
)
"""This verdict is shown in one group with FINDING: the method and the declared reason are the same."""


def shown_in_terminal(verdicts: tuple[Verdict, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    terminal.table(verdicts)
    return capsys.readouterr().out


def shown_on_page(verdicts: tuple[Verdict, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    page = write({"claims": len(verdicts), "verdicts": [v.to_dict() for v in verdicts]}, folder)
    sections = re.findall(r'<section id="f[^"]+">.*?\n</section>', page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(sections) == len({v.outcome for v in verdicts}), "the failures and the findings"
    return html.unescape(re.sub(r"<[^>]+>", " ", " ".join(sections)))


def shown_in_junit(verdicts: tuple[Verdict, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    shown_on_page(verdicts, folder, capsys)
    return "".join(ElementTree.parse(folder / "junit.xml").getroot().itertext())


def shown_in_pytest(verdicts: tuple[Verdict, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    class Judge:
        def judge(self, task: Task) -> Verdict:
            return next(v for v in verdicts if v.task == task)

    said = []
    for verdict in verdicts:
        try:
            test_methods.test_claim(verdict.task, Judge(), lambda name, value: None)  # type: ignore[arg-type]
        except pytest.fail.Exception as failure:
            said.append(str(failure))
    return capsys.readouterr().out + "\n".join(said)


SURFACES = (shown_in_terminal, shown_on_page, shown_in_junit, shown_in_pytest)
Shown = Callable[[tuple[Verdict, ...], Path, pytest.CaptureFixture[str]], str]


def words(text: str) -> str:
    """`text` without its layout: line breaks, and the colon or equals sign between a name and its value."""
    return " ".join(re.sub("[:=]", " ", text).split())


@pytest.mark.parametrize("shown", SURFACES, ids=lambda function: function.__name__)
def test_every_line_of_the_explanation_is_on_every_surface(
    shown: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = words(shown((FINDING, FAILURE), tmp_path, capsys))
    for verdict in (FINDING, FAILURE):
        for line in explain(verdict).lines():
            assert words(line.removeprefix(f"{LABELS['reason']}: ")) in found
    assert words(explain(SECOND).reason) not in found, "a verdict that is not in the run is not shown"


@pytest.mark.parametrize("shown", SURFACES, ids=lambda function: function.__name__)
def test_every_refutation_of_a_group_has_its_command(
    shown: Shown, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = words(shown((FINDING, SECOND), tmp_path, capsys))
    assert all(words(f"reproduce: {verdict.reproduce}") in found for verdict in (FINDING, SECOND))


def test_the_explanation_has_everything_that_is_known_of_a_finding() -> None:
    assert explain(FINDING).lines() == [
        "reason: wrong gradient of layers[0].w (150%)",
        "measured: error 1.5 in layers[0].w, noise 2e-16, 7.5e+15 times the noise",
        "problem: dtype=float64 seed=7 length=3",
        "options: chunk=2",
        "declared false because: a sign is wrong",
        "claim: gradient_float64: equals backprop (Eq. 3)",
        "outcome: finding: refuted, as declared",
        f"reproduce: {FINDING.reproduce}",
    ]


def test_claims_that_a_wrong_formula_refutes_are_one_cause_and_others_are_not() -> None:
    def failure(claim: str, reason: str, method: str = "op") -> Verdict:
        return Verdict(Task("fam", method, "torch", claim), "refuted", reason=reason)

    exact, floats = failure("gradient_exact", "wrong gradient of w (2%)"), failure("gradient_float32", "of w (3%)")
    again = failure("autograd", "differentiated again: wrong gradient of w (9%)")
    leak, other = failure("autograd", "its graph is never freed"), failure("gradient_float32", "of w (3%)", "other")
    groups = by_cause([again, leak, floats, exact, other], lambda verdict: verdict)
    assert groups == [[exact, floats, again], [leak], [other]]
    assert by_cause([again, leak], lambda verdict: verdict) == [[again], [leak]], "its formula is not refuted"


def test_what_a_function_fails_that_draws_random_numbers_is_one_cause() -> None:
    def failure(claim: str, error: float | None = None) -> Verdict:
        return Verdict(Task("fam", "op", "torch", claim), "refuted", reason=f"{claim} is wrong", error=error)

    twice, alone, pure = failure("deterministic"), failure("each_leaf_alone", 0.1), failure("pure")
    assert by_cause([pure, alone, twice], lambda verdict: verdict) == [[pure], [twice, alone]]
    assert by_cause([pure, alone], lambda verdict: verdict) == [[pure], [alone]]


def refuted(claim: str, reason: str, error: float | None = None, leaf: str = "") -> Verdict:
    return Verdict(
        Task("fam", "op", "torch", claim, origin="pairs.py:op"), "refuted", reason=reason, error=error, leaf=leaf
    )


def test_a_leaf_without_a_gradient_is_one_cause_whatever_the_shape_and_no_random_number() -> None:
    said = "b has no gradient; None came in place of an array of shape ({},)"
    tree, twice = refuted("tree", said.format(1), leaf="b"), refuted("deterministic", said.format(1), leaf="b")
    float64, layouts = refuted("gradient_float64", said.format(5), leaf="b"), refuted("layouts", said.format(3))
    other = refuted("layouts", "transposed inputs: wrong gradient of x (3%)", 0.03)
    groups = by_cause([twice, float64, other, tree, layouts], lambda verdict: verdict)
    assert [sorted(group, key=id) for group in groups] == [
        sorted([twice, float64, tree, layouts], key=id),
        [other],
    ]
    assert groups[0][0] is tree, "the claim about the tree comes first"
    assert explain(twice).remedy == "", "no random number is drawn"


def test_other_outputs_are_one_cause_in_every_shape_and_nothing_to_declare() -> None:
    shape = "another function: output has shape ({},), the reference's (1, {})"
    tree, outputs = refuted("tree", shape.format(4, 4)), refuted("outputs", shape.format(4, 4))
    forward = refuted("forward_mode", shape.format(12, 12))
    none = refuted("pure", "another function: it returns no array, and the reference one array")
    loss = refuted("gradient_float64", "another function: its loss is -1.0, not -2.0")
    assert by_cause([forward, outputs, loss, tree, none], lambda verdict: verdict) == [
        [tree, outputs, forward, none],
        [loss],
    ]
    assert {explain(one).remedy for one in (tree, outputs, forward, none)} == {""}


def test_an_exception_that_every_claim_meets_is_one_card_with_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "the method raised NameError: name 'y' is not defined"
    claims = ("tree", "outputs", "layouts")
    terminal.table(
        [Verdict(Task("fam", "op", "torch", claim, origin="pairs.py:op"), "error", reason=reason) for claim in claims]
    )
    out = capsys.readouterr().out
    assert (out.count("•"), out.count("reproduce:"), "what to do" in out) == (1, 1, False)
    assert "the same cause: outputs, layouts" in out


def test_what_could_not_be_measured_stands_below_what_is_wrong() -> None:
    failed = refuted("gradient_exact", "wrong gradient of x (50%)", 0.5)
    raised = dataclasses.replace(refuted("outputs", "the method raised KeyError: bfloat16"), verdict="error")
    assert by_cause([raised, failed], lambda verdict: verdict) == [[failed], [raised]]


def test_random_numbers_that_nobody_declared_are_one_cause_with_one_remedy() -> None:
    twice = refuted("deterministic", "two calls on one problem differ in the gradient of x")
    moved = refuted("pure", "the call moved or reseeded the global random state of torch")
    printed = refuted("pure", "the call printed 3 characters to standard output: 'abc'")
    assert by_cause([moved, twice], lambda verdict: verdict) == [[twice, moved]]
    assert by_cause([printed, twice], lambda verdict: verdict) == [[printed], [twice]]
    assert "random=True" in explain(twice).remedy
    assert "random=True" in explain(moved).remedy
    assert explain(printed).remedy == ""


def test_a_function_that_writes_into_what_it_was_given_is_one_cause_and_a_wrong_formula_is_another() -> None:
    twice = refuted("deterministic", "two calls on one problem differ in the loss")
    changed = refuted("pure", "the call changed its upstream gradient")
    layouts = refuted("layouts", "transposed cotangents: wrong gradient of x (40%)", 0.4)
    formula = refuted("gradient_exact", "wrong gradient of x (50%)", 0.5)
    assert by_cause([twice, layouts, changed], lambda verdict: verdict) == [[changed, twice, layouts]]
    assert by_cause([twice, layouts, changed, formula], lambda verdict: verdict) == [
        [changed, twice, layouts],
        [formula],
    ]
    assert ".clone()" in explain(changed).remedy


def test_forward_mode_follows_the_formula_and_is_its_own_cause_alone() -> None:
    formula = refuted("gradient_exact", "wrong gradient of x (5%)", 0.05)
    forward = refuted("forward_mode", "in forward mode: wrong gradient of output (5%)", 0.05)
    assert by_cause([forward, formula], lambda verdict: verdict) == [[formula, forward]]
    assert by_cause([forward], lambda verdict: verdict) == [[forward]]


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (refuted("autograd", "inputs overwritten before the backward pass: wrong gradient of x (3%)"), "ctx.save_for"),
        (refuted("autograd", "its graph is never freed"), ""),
        (refuted("layouts", "transposed inputs: wrong gradient of x (3%)", 0.03), ".contiguous()"),
        (refuted("each_leaf_alone", "if only x requires a gradient, it gets none"), "ctx.needs_input_grad"),
        (refuted("outputs", "another function: in float32, wrong output (3%)", 0.03), "look for a cast"),
        (refuted("outputs", "another function: output has shape (3,), the reference's (4,)"), ""),
    ],
    ids=lambda value: getattr(value, "reason", value)[:40],
)
def test_a_failure_names_the_way_out_that_fits(verdict: Verdict, words: str) -> None:
    found = explain(verdict).remedy
    assert words in found if words else not found


def test_an_error_where_the_truth_is_zero_is_no_multiple_of_it() -> None:
    assert listed({"x": 2.3e60}) == "x (where 0 is right)"
    assert listed({"x": 14.0}) == "x (14 times its size)"


def test_a_leaf_without_numbers_has_its_own_line_and_what_is_unknown_has_none() -> None:
    lines = explain(FAILURE).lines()
    assert "leaf: head" in lines
    assert not any(line.startswith((LABELS["declared_reason"], LABELS["measured"])) for line in lines)


def test_what_the_digits_say_is_not_said_again() -> None:
    upheld = Verdict(FINDING.task, "upheld", digits=58, reason="equal to 58 digits; casts count as exact")
    found = explain(upheld)
    assert (found.measured, found.reason) == ("equal to 58 digits", "casts count as exact")
    assert found.outcome == "failure: upheld, declared false"


def test_the_way_from_a_claim_to_the_page_is_eight_files_that_are_there() -> None:
    steps = re.findall(r"^\d\. .*?``([^`:]+)", inspect.getdoc(gradgate.suites.report) or "", flags=re.MULTILINE)
    named = re.findall(r"``(suites/[^`:]+)", inspect.getdoc(gradgate.suites.report) or "")
    there = Path(gradgate.suites.report.__file__).parents[2]
    assert len(steps) == 8
    assert all((there / path).is_file() for path in named)
    assert {"suites/judging/explain.py", "suites/report/refuted.html"} <= set(named)


def test_a_mutant_that_survives_has_its_command_on_the_selftest_page() -> None:
    name, mutant = next(iter(everything().items()))
    row = {
        "name": name,
        "family": mutant.family,
        "framework": mutant.framework,
        "method": mutant.method,
        "story": "a bug",
        "source": "",
        "kill": ["value"],
        "also": [],
        "equivalent": "",
        "formula": False,
        "planted": 0.0,
        "status": "survived",
        "claim": "value",
        "examples": 3,
        "seconds": 1.0,
        "leaf": "",
        "error": None,
        "reason": "",
        "rivals": {},
    }
    document = {"examples": 3, "fingerprint": {}, "date": "", "mutants": [row]}
    assert table.command(row) in text(selftest_page.render(document, 1))
    killed = {**document, "mutants": [row | {"status": "killed"}]}
    assert table.command(row) not in text(selftest_page.render(killed, 1))
