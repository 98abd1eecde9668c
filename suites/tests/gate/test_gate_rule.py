"""The comparison without repositories, and what a figure depends on."""

from __future__ import annotations

import dataclasses
import datetime
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from gradgate import Pair, normal, order, within
from gradgate.hw_profiles import torch_memory, traced
from gradgate.references.loading import load
from gradgate.suites.commands import gate
from gradgate.suites.console.plain import one_line
from gradgate.suites.gate.allow import Entry
from gradgate.suites.gate.benchmarks import names
from gradgate.suites.gate.compare import Finding, Half, compare, decisions
from gradgate.suites.gate.declared import narrower, of_pair, otherwise
from gradgate.suites.gate.manifest import identity
from gradgate.suites.gate.output import Document, markdown, text
from gradgate.suites.imports import Imports, named
from gradgate.suites.judging.verdict import Task, Verdict

TODAY = datetime.date(2026, 1, 1)


def cell(method: str = "m", profile: str = "cpu", **spec: Any) -> dict[str, Any]:
    return {
        "family": "f",
        "method": method,
        "framework": "jax",
        "target": "",
        "profile": profile,
        "spec": {"n": 4, **spec},
        "options": {},
    }


def half(*cells: dict[str, Any], **figure: Any) -> Half:
    found = {
        "status": "measured",
        "reason": "",
        "temp_bytes": 100,
        "required_bytes": 140,
        "flops": 7,
        "memory_bytes": 1000,
        "roofline_seconds": 1.0,
        **figure,
    }
    methods = sorted({f"f:{row['method']}:jax" for row in cells})
    described = {"methods": methods, "cells": list(cells), "tasks": []}
    return Half(described, {identity(row): {**found, "cell": row} for row in cells})


def kinds(base: Half, head: Half) -> list[str]:
    return [finding.kind for finding in compare(base, head, (), TODAY)]


def test_equal_figures_say_nothing_and_one_byte_more_is_a_rise() -> None:
    assert kinds(half(cell()), half(cell())) == []
    [rise] = compare(half(cell()), half(cell(), temp_bytes=101, required_bytes=141), (), TODAY)
    assert (rise.kind, rise.quantity, rise.base, rise.head) == ("rise", "temp_bytes", 100, 101)


def test_state_and_flops_are_gated_and_time_is_advisory() -> None:
    assert kinds(half(cell()), half(cell(), required_bytes=141)) == ["rise"]
    assert kinds(half(cell()), half(cell(), flops=8)) == ["rise"]
    assert kinds(half(cell()), half(cell(), flops=None)) == ["rise"]
    assert kinds(half(cell()), half(cell(), roofline_seconds=2.0)) == ["time"]


def test_a_program_that_no_longer_fits_the_device_is_a_rise() -> None:
    head = half(cell(), status="too_large", temp_bytes=None, required_bytes=2000)
    [rise] = compare(half(cell()), head, (), TODAY)
    assert (rise.kind, rise.quantity, rise.head) == ("rise", "required_bytes", 2000)


def test_what_was_not_measured_is_never_passed_over() -> None:
    head = half(cell())
    head.figures.clear()
    assert kinds(half(cell()), head) == ["unmeasured"]
    assert kinds(half(cell()), half(cell(), status="timeout", reason="slow")) == ["unmeasured"]
    assert kinds(half(cell(), status="failed", reason="broken"), half(cell())) == ["unmeasured"]
    assert kinds(half(cell()), half(cell(), status="failed", reason="broken")) == ["failed"]


def test_kept_bytes_that_rise_fail_and_those_that_are_lost_are_not_passed_over() -> None:
    base = half(cell(), residual_bytes=64)
    assert kinds(base, half(cell(), residual_bytes=64)) == []
    assert kinds(base, half(cell(), residual_bytes=65)) == ["rise"]
    assert kinds(half(cell()), base) == []
    [lost] = compare(base, half(cell(), reason="residual_bytes cannot be counted: it reads a number"), (), TODAY)
    assert (lost.kind, lost.quantity) == ("unmeasured", "residual_bytes")
    assert lost.sentence.startswith("was 64 on the base")
    assert "it reads a number" in lost.sentence


def test_a_new_cell_is_new_and_a_dropped_profile_is_missing() -> None:
    two = (cell(), cell(profile="tpu-v5p"))
    assert kinds(half(two[0]), half(*two)) == ["new"]
    assert kinds(half(*two), half(two[0])) == ["missing"]


def test_a_rename_that_hides_a_rise_is_a_missing_method() -> None:
    assert kinds(half(cell("a")), half(cell("b"))) == ["renamed", "new"]
    assert kinds(half(cell("a")), half(cell("b"), temp_bytes=101)) == ["missing", "new"]


def document(*findings: Finding, cells: tuple[int, int] = (1, 1)) -> Document:
    return Document("b" * 40, "a" * 40, "main", ({}, {}), cells, (0, 2), (1, 1), 0, 1.0, findings)


def test_fewer_cells_than_the_manifest_has_and_no_cell_at_all_are_status_2() -> None:
    assert document().status == 0
    assert document(cells=(1, 2)).status == 2
    assert document(cells=(0, 0)).status == 2
    assert "no cell is gated" in document(cells=(0, 0)).verdict
    assert document(Finding("rise", "x", cell(), "flops", 1, 2), cells=(1, 2)).status == 1


HOSTILE = (
    "a | b\n<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "![x](https://evil.example/x.png)",
    "@everyone see @some-body",
    "`code` and ``` fences",
    "https://evil.example www.evil.example",
    "fixes #1",
    ":tada: **bold** _em_ ~~gone~~",
    "\x1b[31mred\x1b[0m \u202e",
    "```\n# title\n```",
    "</details><b>",
    "\\| x",
    "<!-- a",
    "`",
    "||",
    "a\r\nb",
    "&lt;b&gt; &#64;all",
)


@pytest.mark.parametrize("said", HOSTILE)
def test_markdown_cannot_be_broken_by_what_a_method_says(said: str) -> None:
    row = cell() | {"options": {"name": said}}
    made = markdown(document(Finding("failed", said, row, sentence=said, reproduce=f"gradgate verify {said!r} {said}")))
    assert made.startswith("<!-- gradgate gate -->\n### ❌")
    shown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(made)
    assert not re.search(r"<(a|img|script|b|strong|em|s|h1)\b", shown), shown
    assert shown.count("<tr>") == 2, "the head, and one finding"
    assert shown.count("<td>") == 4
    assert shown.count("<pre>") == 1, "the commands"
    assert shown.count("</details>") == 1
    assert not re.search("[\x1b\u202e]", made)
    *_, figures = re.findall("<td>(.*?)</td>", shown, re.DOTALL)
    assert html.unescape(figures).replace("\u200b", "") == one_line(said)
    assert not re.search(r"@\w|https?://|www\.|#\d|:tada:", html.unescape(figures)), "GitHub would recognise it"
    code = re.findall(r"<code>(.*?)</code>", shown, re.DOTALL)
    assert html.unescape(code[0]).strip() == one_line(said).strip()


def test_what_a_method_says_does_not_steer_the_terminal() -> None:
    shown = text(document(Finding("failed", "x\x1b]0;title\x07", cell(), sentence="\x1b[2J\x9b31m gone \u202e")))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_one_verdict_line_ends_the_text() -> None:
    assert text(document()).endswith("\nPASS: every gated figure is the same\n")


def test_a_finding_survives_json() -> None:
    row = document(Finding("rise", "x", cell(), "temp_bytes", 100, 150, 1000)).to_dict()["findings"][0]
    assert row["share_of_memory"] == 0.15
    assert row["reproduce"].startswith("gradgate memory --family f --method m --framework jax --profile cpu")
    assert {f.name for f in dataclasses.fields(Finding)} <= row.keys()


def write(folder: Path, **files: str) -> Imports:
    for name, content in files.items():
        place = folder / (name.replace("__dot__", "/") + ".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    return Imports({"top": folder})


def test_a_closure_follows_imports_inside_functions_and_through_packages(tmp_path: Path) -> None:
    files = {
        "a": "def f():\n    from top.pack import inner\n",
        "pack__dot____init__": "from . import other\n",
        "pack__dot__inner": "import numpy\n",
        "pack__dot__other": "",
        "bystander": "",
    }
    before = write(tmp_path, **files).closure(["top.a"])
    assert set(before) == {"top.a", "top.pack", "top.pack.inner", "top.pack.other"}
    assert write(tmp_path, bystander="x = 1").closure(["top.a"]) == before
    assert write(tmp_path, pack__dot__other="x = 1").closure(["top.a"]) != before


def test_names_in_a_declaration_are_followed() -> None:
    found = set(named({"a": ["pkg.mod:fn", "dir/file.py:fn"], "b": "a sentence: with a colon", "c": 3}))
    assert found == {"pkg.mod", "dir/file.py"}


def test_benchmarks_are_named_as_asv_names_them(tmp_path: Path) -> None:
    (tmp_path / "figures.py").write_text("class A:\n    def track_x(self): ...\n    def help(self): ...\n")
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "plain.py").write_text("def time_y(): ...\n")
    assert names(tmp_path) == {"figures.A.track_x", "plain.time_y"}
    assert names(tmp_path / "none") == frozenset()


def declaring(half: Half, facts: dict[str, Any] | None = None, examples: int = 20, seed: int = 0) -> Half:
    declared = {
        "f:m:jax": {"dims": {"T": [1, 3, 64]}, "dtypes": ["float64", "float32"], "kappa": 16.0, **(facts or {})}
    }
    return Half({**half.description, "declared": declared, "run": {"examples": examples, "seed": seed}}, half.figures)


LEGAL = [f'{{"T": {size}}}' for size in (1, 3, 64)]


@pytest.mark.parametrize(
    ("facts", "kind", "named", "said"),
    [
        ({"dims": {"T": [1, 64]}}, "narrowed", "f:m:jax:dims", "fewer sizes of T: without 3"),
        ({"dims": {}}, "narrowed", "f:m:jax:dims", "without 1, 3, 64"),
        ({"dtypes": ["float64"]}, "narrowed", "f:m:jax:dtypes", "without float32"),
        ({"regimes": []}, "narrowed", "f:m:jax:regimes", "without large"),
        ({"options": {"mode": ["sum"]}}, "narrowed", "f:m:jax:options", "values of the option mode: without mean"),
        ({"legal": LEGAL[:2]}, "narrowed", "f:m:jax:legal", 'without {"T": 64}'),
        ({"kappa": 64.0}, "narrowed", "f:m:jax:kappa", "kappa is 64, and was 16"),
        ({"share": {"residual_bytes": 0.9}}, "narrowed", "f:m:jax:share", "is 0.9, and was 0.1"),
        ({"accumulates": []}, "narrowed", "f:m:jax:accumulates", "without float32"),
        ({"error": {"relative": 0.1}}, "narrowed", "f:m:jax:error", "the relative error that `approximates` declares"),
        ({"order": 1.0}, "narrowed", "f:m:jax:order", "the order of convergence is 1, and was 2"),
        ({"error": {"relative": 0.0}, "order": 3.0}, "", "", ""),
        ({"reference": "plain:cube"}, "declared", "f:m:jax:reference", "was plain:square, and is plain:cube"),
        ({"inputs": {"x": "uniform"}}, "declared", "f:m:jax:inputs", "inputs x was normal, and is uniform"),
        ({"origin": "b.py:m"}, "declared", "f:m:jax:origin", "was a.py:m, and is b.py:m"),
        ({"dims": {"T": [1, 3, 64, 128]}, "kappa": 8.0, "share": {"residual_bytes": 0.05}}, "", "", ""),
        ({"dims": {"T": [1, 3]}, "legal": LEGAL[:2]}, "narrowed", "f:m:jax:dims", "without 64"),
    ],
)
def test_a_narrower_declaration_fails_and_another_change_of_it_is_shown(
    facts: dict[str, Any], kind: str, named: str, said: str
) -> None:
    whole = {
        "regimes": ["large"],
        "options": {"mode": ["sum", "mean"]},
        "legal": LEGAL,
        "inputs": {"x": "normal"},
        "origin": "a.py:m",
        "share": {"residual_bytes": 0.1},
        "accumulates": ["float32"],
        "error": {"relative": 0.01},
        "order": 2.0,
        "reference": "plain:square",
    }
    found = compare(declaring(half(cell()), whole), declaring(half(cell()), {**whole, **facts}), (), TODAY)
    assert [(one.kind, one.name) for one in found] == ([(kind, named)] if kind else [])
    assert all(said in one.sentence for one in found)
    allowed = (Entry(named, "", None, "on purpose", datetime.date(2030, 1, 1)),)
    again = compare(declaring(half(cell()), whole), declaring(half(cell()), {**whole, **facts}), allowed, TODAY)
    if kind == "narrowed":
        assert [one.kind for one in again] == ["allowed"]


WHOLE: dict[str, Any] = {
    "reference": "plain:square",
    "inputs": {"x": normal("T")},
    "dims": {"T": (1, 3)},
    "dtypes": ("float32", "bfloat16"),
    "options": {"h": (0.4, 0.2, 0.1)},
    "accumulates": "float32",
    "framework": "torch",
}


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        ({}, {"approximates": within(0.05)}, "error"),
        ({}, {"approximates": within(absolute=1.0)}, "error"),
        ({"approximates": within(0.01)}, {"approximates": within(0.05)}, "error"),
        ({"approximates": within(0.05)}, {}, ""),
        ({"approximates": order(2, "h")}, {"approximates": order(1, "h")}, "order"),
        ({"approximates": order(1, "h")}, {"approximates": order(2, "h")}, ""),
        ({}, {"accumulates": ""}, "accumulates"),
        ({"accumulates": ""}, {}, ""),
        ({}, {"reference": "plain:square"}, ""),
    ],
)
def test_whatever_makes_a_pair_promise_less_is_narrower(
    before: dict[str, Any], after: dict[str, Any], fact: str
) -> None:
    old, new = (of_pair(Pair("ops:square", **{**WHOLE, **facts})) for facts in (before, after))
    assert json.loads(json.dumps(new)) == new
    assert [name for name, _ in narrower(old, new)] == ([fact] if fact else [])


def test_another_reference_is_shown_whichever_way_it_is_declared() -> None:
    def plain(x: Any) -> Any:
        return x

    kept = of_pair(Pair("ops:square", **WHOLE))
    for reference in (plain, None, "plain:cube"):
        changed = of_pair(Pair("ops:square", **{**WHOLE, "reference": reference}))
        assert [fact for fact, _ in otherwise(kept, changed)] == ["reference"]
        assert changed["reference"] == of_pair(Pair("ops:square", **{**WHOLE, "reference": reference}))["reference"]


def test_a_reference_in_a_file_of_pairs_has_one_name_in_both_trees(tmp_path: Path) -> None:
    names = []
    for tree, function in (("base", "plain"), ("head", "plain"), ("head", "other")):
        place = tmp_path / tree / "my_pairs.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text("def plain(x):\n    return x\n\n\ndef other(x):\n    return x\n")
        found = load(f"{place}:{function}")
        names.append(of_pair(Pair("ops:square", **{**WHOLE, "reference": found}))["reference"])
    assert names == ["my_pairs.py:plain", "my_pairs.py:plain", "my_pairs.py:other"]


def reached(both: int, every: int) -> dict[str, dict[str, Any]]:
    """The decisions of one method; none at all is {}."""
    never = [f"`… > {n}` true at ops.py:{n}" for n in range(every - both)]
    return {"f:m:jax": {"both": both, "decisions": every, "never": never} if every else {}}


@pytest.mark.parametrize(
    ("was", "now", "fails"),
    [
        ((41, 43), (41, 43), False),
        ((41, 43), (42, 44), False),
        ((5, 6), (4, 5), False),
        ((5, 6), (4, 6), True),
        ((80, 100), (99, 120), False),
        ((41, 41), (41, 42), True),
        ((0, 0), (0, 1), True),
        ((0, 0), (1, 1), False),
        ((41, 43), (0, 0), False),
    ],
)
def test_more_decisions_and_a_larger_share_that_never_go_both_ways_fail(
    was: tuple[int, int], now: tuple[int, int], fails: bool
) -> None:
    found = decisions(reached(*was), reached(*now), (), TODAY)
    assert [(one.kind, one.name) for one in found] == [("narrowed", "f:m:jax:decisions")] * fails
    for one in found:
        assert one.sentence.startswith(
            f"{now[0]} of {now[1]} decisions both ways, and {was[0]} of {was[1]} on the base"
        )
        assert "ops.py:0" in one.sentence
    entry = Entry("f:m:jax:decisions", "", None, "on purpose", datetime.date(2030, 1, 1))
    assert [one.kind for one in decisions(reached(*was), reached(*now), (entry,), TODAY)] == [
        "allowed" if fails else "unused"
    ]
    assert compare(half(cell()), half(cell()), (entry,), TODAY) == [], "it is said once, after the base was judged"
    late = dataclasses.replace(entry, expires=datetime.date(2020, 1, 1))
    assert [one.kind for one in compare(half(cell()), half(cell()), (late,), TODAY)] == ["expired"]
    assert [one.kind for one in decisions(reached(*was), reached(*now), (late,), TODAY)] == ["narrowed"] * fails


def test_fewer_examples_fail_and_another_seed_is_shown() -> None:
    base = declaring(half(cell()))
    assert kinds(base, declaring(half(cell()), examples=5)) == ["narrowed"]
    assert kinds(base, declaring(half(cell()), examples=50, seed=1)) == ["declared"]


def judged(claim: str, verdict: str, expected: str = "upheld", origin: str = "a.py:m", check: str = "") -> Verdict:
    task = Task("f", "m", "jax", claim, origin=origin, expected=expected, declared_reason="so", check=check)
    return Verdict(task, verdict, reason=f"{verdict} for a reason")


def keyed(*verdicts: Verdict) -> dict[tuple[str, str], Verdict]:
    return {(one.task.name, one.task.profile): one for one in verdicts}


@pytest.mark.parametrize(
    ("was", "now", "expected", "kind", "said"),
    [
        ("upheld", "refuted", "upheld", "refuted", ("upheld on the base", 'expected={"gradient": "<the reason>"}')),
        ("refuted", "refuted", "upheld", "refuted", ("the base was refuted as well", "expected=")),
        ("refuted", "upheld", "upheld", "fixed", ("refuted on the base: refuted for a reason",)),
        ("upheld", "upheld", "upheld", "", ()),
        ("refuted", "upheld", "refuted", "unexpected", ("is upheld, though declared false: so", 'take "gradient"')),
        ("error", "error", "upheld", "unmeasured", ("on the base either", 'expected={"gradient": "<the reason>"}')),
        ("error", "error", "refuted", "known", ("declared: so",)),
        ("upheld", "inapplicable", "upheld", "", ()),
    ],
)
def test_a_verdict_is_told_beside_that_of_the_base(
    was: str, now: str, expected: str, kind: str, said: tuple[str, ...]
) -> None:
    found = gate._gradients(keyed(judged("gradient", now, expected)), keyed(judged("gradient", was, expected)), {})
    assert [one.kind for one in found] == ([kind] if kind else [])
    assert all(words in one.sentence for one in found for words in said)
    assert kind != "unexpected" or "upheld, declared false" in document(*found).verdict
    assert document(*found).status == {"": 0, "fixed": 0, "known": 0, "unmeasured": 2}.get(kind, 1)


def of_a_failing_program(framework: str) -> str:
    """What a framework's measurement says of a program that raises."""
    pytest.importorskip(framework)

    def failing(x: Any) -> Any:
        raise TypeError("one argument too many")

    measure = {"jax": traced.trace, "torch": torch_memory.bytes_alone}[framework]
    with pytest.raises((traced.LoweringError, torch_memory.ProgramError)) as raised:
        measure(failing, (1.0,))
    return str(raised.value)


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_a_method_that_raised_on_the_base_is_fixed_and_its_figure_is_new(framework: str) -> None:
    was = dataclasses.replace(judged("gradient", "error"), reason="the method raised TypeError: one argument too many")
    [fixed] = gate._gradients(keyed(judged("gradient", "upheld")), keyed(was), {})
    assert (fixed.kind, fixed.sentence) == ("fixed", f"the base could not be judged: {was.reason}")
    late = dataclasses.replace(was, reason="the call did not end within 60 s")
    assert gate._gradients(keyed(judged("gradient", "upheld")), keyed(late), {}) == []
    sentence = f"failed on the base: {of_a_failing_program(framework)}"
    failed = Finding("unmeasured", "f:m:jax@cpu", cell(), sentence=sentence)
    fixed = dataclasses.replace(fixed, owner="f:m:jax")
    said = text(document(*gate._beside_fixes([failed, fixed])))
    assert said.endswith("PASS: only improvements, 1 claim is fixed by this change, 1 new cell\n")
    assert document(*gate._beside_fixes([failed])).status == 2
    killed = dataclasses.replace(failed, sentence="failed on the base: the compiler did not end within 300 s")
    assert document(*gate._beside_fixes([killed, fixed])).status == 2


def test_an_error_is_as_declared_for_a_pair_and_not_for_a_method_of_gradgate() -> None:
    assert judged("gradient", "error", "refuted").outcome == "finding"
    assert judged("gradient", "error", "refuted", origin="").outcome == "error"
    assert judged("gradient", "error").outcome == "error"


def test_a_method_without_a_verdict_on_its_gradient_is_not_a_pass() -> None:
    after = half(cell())
    none = [judged(name, "inapplicable") for name in ("gradient_exact", "gradient_float32")]
    [found] = gate._unjudged(after, keyed(*none, judged("tree", "upheld")))
    assert (found.kind, found.name) == ("unmeasured", "f:m:jax")
    assert document(found).status == 2
    assert not gate._unjudged(after, keyed(none[0], judged("gradient_float32", "upheld")))
    assert not gate._unjudged(after, keyed(judged("value", "refuted")))


COSTS = {
    "f:m:jax@cpu\n  temp_bytes 100 → 150 B": Finding("rise", "f:m:jax@cpu", cell(), "temp_bytes", 100, 150),
    "f:m:jax:decisions\n  1 of 2": Finding("narrowed", "f:m:jax:decisions", sentence="1 of 2", owner="f:m:jax"),
}


@pytest.mark.parametrize("words", COSTS)
def test_what_a_fix_costs_is_shown_and_does_not_fail(words: str) -> None:
    cost = COSTS[words]
    fixed, refuted = (Finding(kind, f"f:m:jax:{kind}", owner="f:m:jax") for kind in ("fixed", "refuted"))
    assert document(*gate._beside_fixes([cost, fixed])).status == 0
    said = text(document(*gate._beside_fixes([cost, fixed])))
    assert "fixed by this change f:m:jax:fixed" in said
    assert f"comes with the fix {words}" in said
    assert said.endswith("PASS: 1 claim is fixed by this change, 1 finding comes with the fix\n")
    assert document(*gate._beside_fixes([cost])).status == 1
    assert document(*gate._beside_fixes([cost, fixed, refuted])).status == 1
    other = Finding("fixed", "f:n:jax:fixed", owner="f:n:jax")
    assert document(*gate._beside_fixes([cost, other])).status == 1
    narrower = Finding("narrowed", "f:m:jax:examples", sentence="fewer examples", owner="f:m:jax")
    assert document(*gate._beside_fixes([narrower, fixed])).status == 1, "a narrower declaration is no cost of a fix"


def test_the_document_names_the_files_that_ran_and_the_laws() -> None:
    ran = {side: {"mylib.ops": "src/mylib/ops.py"} for side in ("base", "head")}
    found = dataclasses.replace(document(), ran=ran, laws=(1, 1, 0), inapplicable=1, built={"mylib._v": "/x/_v.py"})
    said = text(found)
    assert "ran from the tree of the base: src/mylib/ops.py" in said
    assert "1 of 1 claims about bytes and work judged on the head" in said
    assert "inapplicable: 1" in said
    assert "made by a build, in neither commit: mylib._v (/x/_v.py)" in said
    assert found.to_dict()["ran"] == ran
    assert dataclasses.replace(found, laws=(0, 1, 0)).status == 2
