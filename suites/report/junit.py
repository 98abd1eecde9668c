"""The report as JUnit XML, for continuous integration."""

from __future__ import annotations

from xml.etree import ElementTree

from gradgate.suites.report.model import Report, Row

CUT_OFF = "every claim was judged"
_TAG = {"failure": "failure", "unexpected": "failure", "error": "error", "inapplicable": "skipped"}


def render(report: Report) -> str:
    """One testsuite per family, one testcase per claim. A finding passes, and its explanation is its output.

    Properties of a testcase are `digits`, the digits to which the formulas agree, and `lost`, the digits lost beyond
    plain backprop. A run that was cut off has one more suite, whose only case is an error.
    """
    root = ElementTree.Element("testsuites", name="gradgate")
    for rows in report.families:
        suite = ElementTree.SubElement(root, "testsuite", name=rows[0].verdict.task.family)
        for row in rows:
            _case(suite, row)
        _count(suite, [row.outcome for row in rows], sum(row.verdict.seconds for row in rows))
    outcomes = [row.outcome for row in report.rows]
    if report.missing:
        suite = ElementTree.SubElement(root, "testsuite", name="gradgate")
        case = ElementTree.SubElement(suite, "testcase", classname="gradgate", name=CUT_OFF, time="0.000")
        message = f"cut off: {len(report.rows)} of {report.claims} claims have a verdict, {report.missing} are missing"
        ElementTree.SubElement(case, "error", type="cut_off", message=message)
        _count(suite, ["error"], 0.0)
        outcomes.append("error")
    _count(root, outcomes, sum(row.verdict.seconds for row in report.rows))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, row: Row) -> None:
    verdict, task = row.verdict, row.verdict.task
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=f"{task.family}.{task.method}.{task.framework}",
        name=task.claim,
        time=f"{verdict.seconds:.3f}",
    )
    known = {name: value for name, value in (("digits", verdict.digits), ("lost", verdict.lost)) if value is not None}
    if known:
        properties = ElementTree.SubElement(case, "properties")
        for name, value in known.items():
            ElementTree.SubElement(properties, "property", name=name, value=str(value))
    tag = _TAG.get(row.outcome)
    if tag == "skipped":
        ElementTree.SubElement(case, "skipped", message=verdict.reason or "inapplicable")
    elif tag:
        message = row.explanation.reason or row.explanation.outcome
        ElementTree.SubElement(case, tag, type=row.outcome, message=message).text = _explained(row)
    elif row.outcome == "finding":
        ElementTree.SubElement(case, "system-out").text = _explained(row)


def _explained(row: Row) -> str:
    return "\n" + "".join(f"{line}\n" for line in row.explanation.lines())


def _count(element: ElementTree.Element, outcomes: list[str], seconds: float) -> None:
    tags = [_TAG.get(outcome) for outcome in outcomes]
    element.set("tests", str(len(outcomes)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(name, str(tags.count(tag)))
    element.set("time", f"{seconds:.3f}")
