"""The ledgers agree with the claims and the measured figures. The error for a wrong ledger says what is wrong."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Any

import pytest

from gradgate.references import ledger, published, registry
from gradgate.references.contract import Claim
from gradgate.references.errors import UsageError
from gradgate.references.law_kinds import Figure, Within
from gradgate.references.ledger import NO_NUMBER, Statement
from gradgate.references.published import (
    OUTCOMES,
    Judged,
    Published,
    at_most,
    equal,
    more_than,
    refuted,
    unexplained,
    upheld,
)
from gradgate.suites import cli
from gradgate.suites.console import paper_table

METHOD = registry.methods("bilevel", "mixflow", "jax")[0]
CLAIMS = (
    Claim("gradient_exact", "gradient_exact", "its formula is right", "Eq. 1"),
    Claim("gradient_float64", "gradient", "equals backprop", "Eq. 1", "refuted", "it does not"),
    Claim("memory_law", "memory_law", "memory is constant", "§2"),
    Claim("tree", "tree", "returns a tree", "contract"),
    Claim("batches", "figure", "copies them", "beyond the paper; §2"),
)
METHODS = (dataclasses.replace(METHOD, claims=CLAIMS),)
ROWS = (
    Published("Table 1", "bytes, GPU", "44M", "GiB", "m:f", {}, 1.0),
    Published("Table 1", "bytes, TPU", "44M", "GiB", "m:f", {}, 2.0),
    Published("Table 10", "bytes, GPU", "44M", "GiB", "m:f"),
)


def has_ledger(family: str) -> bool:
    """Whether the family has a ledger file. It is not parsed here: a wrong ledger fails only the tests that read it."""
    package = registry.package(family)
    return bool(package) and (resources.files(package) / "paper" / ledger.FILE).is_file()


WITH_LEDGER = sorted(filter(has_ledger, registry.families()))


def made(*listed: dict[str, Any]) -> ledger.Ledger:
    statements = ledger.parse({"statement": list(listed)}, "ledger.toml")
    return ledger.Ledger("any", "A paper", tuple(ledger.entry(one, METHODS, ROWS) for one in statements))


def given(**fields: Any) -> dict[str, Any]:
    return {"place": "§1", "words": "it is small", **fields}


@pytest.mark.parametrize("family", WITH_LEDGER)
def test_every_claim_from_the_paper_and_every_printed_figure_has_a_statement(family: str) -> None:
    found = ledger.unnamed(ledger.of_family(family), registry.methods(family), ledger.rows(registry.package(family)))
    assert not found, f"the ledger of {family} does not name these: {', '.join(found)}"


def unfair(rows: Iterable[Published]) -> list[str]:
    """Figures whose verdict rests on another quantity or on a bound that the paper does not name."""
    found = []
    for row in rows:
        if row.printed is None or row.expects is None:
            continue
        one_sided, words = row.expects.agreement.how != "equal", row.expects.agreement.because
        settled = row.expects.verdict in ("upheld", "refuted")
        if row.unlike and (row.expects.verdict == "refuted" or (row.expects.verdict == "upheld" and one_sided)):
            found.append(f"{row.name}: unlike")
        compared = row.printed in (0, 100 if row.unit.startswith("%") else 1)
        if settled and one_sided and not compared and row.printed not in named(words):
            found.append(f"{row.name}: a bound of our own")
    return found


WORDS = {"ten": 10, "one order": 10, "order of": 10, "orders of": 100, "hundreds": 100, "thousands": 1000}
WORDS |= {"several": 3, "most ": 50, "mostly": 50}


def named(words: str) -> set[float]:
    """The numbers that the quoted words name, and the quotients of any two of them."""
    quoted = " ".join(part for mark in "\"'" for part in re.findall(f"{mark}([^{mark}]*){mark}", words)).replace(
        ",", ""
    )
    found = {float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", quoted)}
    found |= {float(number) for word, number in WORDS.items() if word in quoted}
    return found | {one / other for one in found for other in found if other}


def unfair_claims(claims: Iterable[Claim]) -> list[str]:
    """Claims that another quantity than the printed one refutes, or upholds one-sidedly."""
    return [
        claim.name
        for claim in claims
        if isinstance(claim.law, Figure)
        and claim.law.unlike
        and (claim.expected == "refuted" or claim.law.within.bound != "equal")
    ]


@pytest.mark.parametrize("family", WITH_LEDGER)
def test_no_verdict_rests_on_another_quantity_or_on_a_bound_of_our_own(family: str) -> None:
    entries = ledger.of_family(family).entries
    assert unfair(row for one in entries for row in one.rows) == []
    assert unfair_claims(claim for one in entries for _, claim in one.claims) == []


def test_a_planted_unfair_claim_is_found() -> None:
    seconds = Figure(2, "m:f", "times", Within("equal", 0.25), "printed are seconds")
    fair = dataclasses.replace(CLAIMS[4], law=seconds)
    one_sided = dataclasses.replace(fair, name="one_sided", law=dataclasses.replace(seconds, within=Within("at most")))
    off = dataclasses.replace(fair, name="off", expected="refuted", declared_reason="seconds")
    assert unfair_claims([fair, one_sided, off]) == ["one_sided", "off"]


PLANTED = [
    ({"unlike": "printed are seconds", "expects": upheld(at_most('"2 at most"'))}, "uphold nothing at most"),
    ({"unlike": "printed are seconds", "expects": refuted(equal(0.1, "'2'"), 9.0)}, "refute nothing"),
    ({"expects": refuted(at_most('"at most 20"'), 9.0)}, "chosen here refutes nothing"),
    ({"expects": refuted(at_most('"hardly visible": 2 would be'), 9.0)}, "chosen here refutes nothing"),
    (
        {"printed": 1.0, "unit": "%", "expects": refuted(at_most('"hardly visible"'), 9.0)},
        "chosen here refutes nothing",
    ),
    ({"unlike": "printed are seconds", "expects": upheld(more_than('"more than 2"'))}, "uphold nothing more than"),
    ({"expects": upheld(at_most('"hardly visible": 2 would be'))}, "chosen here upholds nothing"),
    ({"printed": 0.9, "expects": upheld(at_most('"fails to converge": below 90%'))}, "chosen here upholds nothing"),
]


@pytest.mark.parametrize(("planted", "said"), PLANTED)
def test_a_planted_unfair_verdict_is_refused_and_found(planted: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        dataclasses.replace(ROWS[1], reason="tested", **planted)
    row = copy.copy(ROWS[1])
    for name, value in planted.items():
        object.__setattr__(row, name, value)
    assert len(unfair([row])) == 1


def test_unlike_figures_that_are_equal_and_bounds_that_the_paper_names_have_a_verdict() -> None:
    fair = (
        dataclasses.replace(ROWS[1], unlike="printed are seconds", expects=upheld(equal(0.1, "quotients"))),
        dataclasses.replace(ROWS[1], reason="tested", expects=refuted(at_most('"at most 2"'), 9.0)),
        dataclasses.replace(ROWS[0], reason="tested", expects=refuted(at_most('"no more"'), 9.0)),
        dataclasses.replace(ROWS[1], expects=upheld(at_most('"at most 2"'))),
        dataclasses.replace(ROWS[0], expects=upheld(more_than("slower"))),
        dataclasses.replace(ROWS[1], printed=50.0, unit="%", expects=upheld(more_than('"most of it"'))),
    )
    assert unfair(fair) == []


def test_there_is_a_ledger() -> None:
    assert WITH_LEDGER


def test_a_claim_or_a_printed_figure_without_a_statement_is_found() -> None:
    one = made(given(claims=["mixflow:*:gradient*"], figures=["Table 1 / bytes, GPU"]))
    assert ledger.unnamed(one, METHODS, ROWS) == ["mixflow:jax:memory_law", "Table 1 / bytes, TPU / 44M"]


def test_claims_of_the_contract_and_beyond_the_paper_and_figures_without_a_number_need_no_statement() -> None:
    one = made(given(claims=["mixflow:jax:gradient*", "mixflow:jax:memory_law"], figures=["Table 1"]))
    assert ledger.unnamed(one, METHODS, ROWS) == []
    assert [row.place for row in one.entries[0].rows] == ["Table 1", "Table 1"]


def test_a_statement_becomes_a_claim_a_figure_or_neither_for_a_reason() -> None:
    one = made(
        given(claims=["mixflow:jax:memory_law"], figures=["Table 1"]),
        given(words="b", figures=["Table 10 / bytes, GPU / 44M"]),
        given(words="n", reason="note: of a textbook"),
        given(words="c", reason="needs a week"),
        given(words="d", reason="not covered yet: a sweep over B"),
    )
    assert [entry.statement.kind for entry in one.entries] == list(ledger.KINDS)
    assert one.counts == dict.fromkeys(ledger.KINDS, 1)
    assert one.summary == "1 claim, 1 figure, 1 note, 1 not measurable, 1 not covered yet"
    assert made().summary == "0 claims, 0 figures, 0 notes, 0 not measurable, 0 not covered yet"


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (["mixflow:jax:memory_law"], "upheld"),
        (["mixflow:jax:gradient_float64"], "refuted"),
        (["mixflow:*:gradient_*"], "upheld and refuted"),
    ],
)
def test_what_is_expected_is_what_the_claims_declare(claims: list[str], expected: str) -> None:
    assert made(given(claims=claims)).entries[0].expected == expected


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (given(claims=["mixflow:jax:memory_lw"]), "nearest: mixflow:jax:memory_law"),
        (given(claims=["mixflow:torch:memory_law"]), "nearest: mixflow:jax:memory_law"),
        (given(claims=["mixflow:memory_law"]), "method:framework:claim"),
        (given(figures=["Table 1 / bytes, GPUs"]), "nearest: Table 1 / bytes, GPU"),
        (given(figures=["Table 2"]), "legal: Table 1, Table 10"),
        (given(), "neither claims nor figures nor a reason"),
        (given(figures=["Table 1"], reason="too long"), "and a reason too"),
        (given(words=" ".join("a" * 13), reason="r"), "at most 12"),
        (given(words=" ", reason="r"), "words must be text and not empty"),
        (given(place="", reason="r"), "place must be text and not empty"),
        (given(claims="mixflow:jax:memory_law"), "must be a list of names"),
        (given(reason="r", page=3), "unknown field of ledger.toml, statement 1 'page'"),
    ],
)
def test_a_wrong_statement_is_refused_in_words(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=r"\A[^\n]*\Z") as error:
        made(fields)
    assert said in str(error.value)


def test_the_same_statement_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="statement 2 repeats statement 1"):
        made(given(reason="r"), given(reason="s"))


def test_another_table_than_statement_is_refused() -> None:
    with pytest.raises(UsageError, match="nearest: statement"):
        ledger.parse({"statements": []}, "ledger.toml")


def test_twelve_words_are_legal_and_dots_are_none() -> None:
    assert made(given(words=" ".join("aaaaaa…aaaaaa"), reason="r")).entries[0].statement == Statement(
        "§1", "a a a a a a … a a a a a a", reason="r"
    )


@pytest.mark.parametrize("family", WITH_LEDGER)
def test_the_ledger_is_part_of_the_package(family: str) -> None:
    file = resources.files(registry.package(family)) / "paper" / ledger.FILE
    assert len(tomllib.loads(file.read_text(encoding="utf-8"))["statement"]) == len(ledger.of_family(family).entries)


def test_list_paper_prints_every_statement_with_what_became_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    family = WITH_LEDGER[0]
    assert cli.main(["list", "--paper", "--family", family]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    one = ledger.of_family(family)
    assert all(" ".join(f"“{entry.statement.words}”".split()) in printed for entry in one.entries)
    assert f"{len(one.entries)} statements: {one.summary}" in printed


def test_list_paper_names_what_is_refuted_where_a_statement_has_both(capsys: pytest.CaptureFixture[str]) -> None:
    statement = Statement("§1", "it is small", ("mixflow:*:gradient_*",))
    one = ledger.Ledger("any", "A paper", (ledger.entry(statement, METHODS, ()),))
    paper_table.statements([one], {})
    assert "refuted is mixflow:jax:gradient_float64" in capsys.readouterr().out


def test_list_paper_as_json_has_the_expectation_of_every_claim(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--paper", "--json"]) == 0
    papers = json.loads(capsys.readouterr().out)["papers"]
    assert [paper["family"] for paper in papers] == [name for name in registry.families() if name in WITH_LEDGER]
    for paper in papers:
        kinds = [statement["kind"] for statement in paper["statements"]]
        assert paper["counts"] == {kind: kinds.count(kind) for kind in ledger.KINDS}
        assert all(c["expected"] in ("upheld", "refuted") for s in paper["statements"] for c in s["claims"])


def test_list_paper_of_one_method_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--paper", "--method", "mixflow"]) == 3
    assert "leave out --method and --framework" in capsys.readouterr().err


CLOSE = equal(0.1, "two digits are printed")


def judged(*outcomes: tuple[Published, float]) -> dict[str, Judged]:
    """The key of each row -> its verdict, if the row is declared unexplained and the given value is measured."""
    found = {}
    for row, ours in outcomes:
        declared = dataclasses.replace(row, expects=unexplained(CLOSE), reason="tested")
        one = published.judge(declared, ours)
        assert one is not None
        found[row.key] = one
    return found


def test_a_statement_whose_printed_figures_are_all_unexplained_is_shown_so(capsys: pytest.CaptureFixture[str]) -> None:
    one = made(given(figures=["Table 1"]), given(words="drawn", figures=["Table 10"]), given(words="r", reason="r"))
    known = judged((ROWS[0], 9.0), (ROWS[1], 9.0))
    first, drawn, reason = one.entries
    assert (first.rests_on(known), drawn.rests_on(known), reason.rests_on(known)) == ("unexplained", NO_NUMBER, "")
    assert (first.verdict(known), drawn.verdict(known)) == ("all unexplained", NO_NUMBER)
    assert one.unsettled(known) == (
        "1 rests on unexplained figures alone, 1 rests on figures without a printed number alone"
    )
    paper_table.statements([one], {"any": known})
    shown = " ".join(capsys.readouterr().out.split())
    assert "2 figures, all unexplained: Table 1" in shown
    assert f"of the statements {one.unsettled(known)}" in shown


def test_list_paper_says_how_many_figures_have_a_printed_number(capsys: pytest.CaptureFixture[str]) -> None:
    one = made(given(figures=["Table 1", "Table 10"]))
    paper_table.statements([one], {"any": judged((ROWS[0], 9.0), (ROWS[1], 9.0))})
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 figures, 2 with a printed number, all unexplained: Table 1; Table 10" in shown


def test_one_figure_that_is_not_unexplained_or_a_claim_settles_a_statement(capsys: pytest.CaptureFixture[str]) -> None:
    one = made(given(figures=["Table 1"]), given(words="c", figures=["Table 1"], claims=["mixflow:jax:memory_law"]))
    known = judged((ROWS[0], 9.0), (ROWS[1], 2.0))
    assert [entry.rests_on(known) for entry in one.entries] == ["", ""]
    assert one.entries[0].verdict(known) == "1 unexplained, 1 not as declared"
    assert one.unsettled(known) == ""
    paper_table.statements([one], {"any": known})
    shown = " ".join(capsys.readouterr().out.split())
    assert "not as declared: Table 1 / bytes, TPU / 44M" in shown
    assert "of the statements" not in shown


def test_list_paper_as_json_has_the_verdict_of_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--paper", "--family", "invertible", "--json"]) == 0
    (paper,) = json.loads(capsys.readouterr().out)["papers"]
    figures = [figure for statement in paper["statements"] for figure in statement["figures"]]
    assert figures
    assert all((figure["outcome"] in OUTCOMES) == (figure["printed"] is not None) for figure in figures)
    assert sum(len(entry.rows) for entry in ledger.of_family("invertible").entries) == len(figures)
