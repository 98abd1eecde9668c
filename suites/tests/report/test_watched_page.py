"""The report of ``gradgate watch``: what its page and its SARIF say of a document."""

from __future__ import annotations

import json
from typing import Any

from gradgate.suites.report import watched


def call(state: str = "upheld", **verdict: Any) -> dict[str, Any]:
    made = {"claim": "gradient_exact", "verdict": state, "reproduce": f"gradgate verify {state}"} | verdict
    return {"arguments": ["float32[3]"], "traced": False, "test": "", "calls": 2, "state": state, "verdicts": [made]}


def rule(state: str = "upheld", *seen: dict[str, Any]) -> dict[str, Any]:
    return {
        "framework": "torch",
        "kind": "autograd.Function",
        "name": "mylib:Rule",
        "file": "mylib.py",
        "line": 3,
        "state": state,
        "reason": "<wrong>" if state == "refuted" else "",
        "acknowledged": "",
        "likeness": "",
        "test": "",
        "warnings": [],
        "kept_bytes": {"rule": 24, "plain": 48},
        "calls": 2,
        "more": 0,
        "seen": list(seen or (call(state),)),
    }


def document(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"schema": 1, "fingerprint": {"torch": "2"}, "rules": list(rules), "notes": ["a note"]}


def test_a_decision_that_two_calls_reach_counts_once() -> None:
    half = call(decisions={"both": 1, "decisions": 3, "lines": {"a.py:1": [1, 2], "a.py:2": [0, 1]}})
    other = call(decisions={"both": 2, "decisions": 3, "lines": {"a.py:1": [1, 2], "a.py:2": [1, 1]}})
    assert "2 of 3" in watched.page(document(rule("upheld", half, other)), "1 rule", 0)
    assert " of 3" not in watched.page(document(rule()), "1 rule", 0)


def test_the_page_says_what_was_seen_and_escapes_it() -> None:
    page = watched.page(document(rule("refuted"), rule()), "2 rules: 1 refuted, 1 upheld", 1)
    for words in ("2 rules: 1 refuted", "a note", "&lt;wrong&gt;", "24, plain 48", "(float32[3])", "verify refuted"):
        assert words in page
    assert "verify upheld" not in page


def test_only_wrong_rules_are_results() -> None:
    states = ("refuted", "elsewhere", "upheld", "acknowledged", "not judged")
    [run] = json.loads(watched.log(document(*map(rule, states))))["runs"]
    assert [one["level"] for one in run["results"]] == ["error", "warning"]
    assert [one["ruleId"] for one in run["results"]] == ["gradient_exact", "gradient"]
