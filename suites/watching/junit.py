"""Watched rules as JUnit XML, for continuous integration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from gradgate.suites.watching.results import STATES, Judged, place

TAGS = {"refuted": "failure", "not judged": "error"}
"""State of a rule -> the element that says so."""


def render(judged: Sequence[Judged], here: Path) -> str:
    """One testsuite for each file, one testcase for each rule."""
    root = ElementTree.Element("testsuites", name="gradgate")
    suites: dict[str, list[Judged]] = {}
    for one in judged:
        suites.setdefault(place(one.rule, here).rpartition(":")[0], []).append(one)
    for file, rules in suites.items():
        suite = ElementTree.SubElement(root, "testsuite", name=file)
        for one in rules:
            seconds = sum(verdict.seconds for rows in one.verdicts.values() for verdict in rows)
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=one.rule.name.replace(":", "."),
                name=one.rule.kind,
                file=file,
                line=str(one.rule.line),
                time=f"{seconds:.3f}",
            )
            if tag := TAGS.get(one.state):
                ElementTree.SubElement(case, tag, type=one.state, message=one.reason).text = one.explained.test
            elif one.state in ("acknowledged", "elsewhere"):
                words = one.acknowledged or one.reason
                ElementTree.SubElement(case, "system-out").text = f"{STATES[one.state].words}: {words}"
        _count(suite, rules)
    _count(root, judged)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _count(element: ElementTree.Element, rules: Sequence[Judged]) -> None:
    tags = [TAGS.get(one.state) for one in rules]
    element.set("tests", str(len(rules)))
    element.set("failures", str(tags.count("failure")))
    element.set("errors", str(tags.count("error")))
