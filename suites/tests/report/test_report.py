"""The report of a run: the page, the JUnit file and the JSON file of verdicts next to them."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from gradgate.references.contract import UsageError
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.report import columns, power_section, write
from gradgate.suites.report.frame import SCRIPT
from gradgate.suites.report.model import clean
from gradgate.suites.report.page import POINTS, file_names

HOSTILE = "</script><script>alert(1)</script> \"'&]]> \x1b[31mred\x1b[0m\x00\x08\ud800\uffff"
SPEC = {"dtype": "float64", "seed": 7, "length": 3}


def verdict(claim: str, outcome: str = "upheld", expected: str = "upheld", family: str = "fam", **rest: Any) -> Verdict:
    declared_reason = rest.pop("declared_reason", "")
    task = Task(family, "meth", "jax", claim, "", f"statement of {claim}", "Prop. 1", expected, declared_reason)
    return Verdict(task, outcome, seconds=0.5, **rest)


EVERY_OUTCOME = (
    verdict("holds", error=0.0, noise=1e-16, leaf="w", spec=SPEC),
    verdict("holds_roughly", error=3e-16, noise=1e-16, leaf="w", spec=SPEC),
    verdict("broken", "refuted", error=0.25, noise=1e-16, leaf="layers[0].w", spec=SPEC, reason="w is off"),
    verdict(
        "found",
        "refuted",
        "refuted",
        declared_reason="a sign",
        error=1.5,
        noise=2e-16,
        spec=SPEC,
        reason="wrong gradient of w",
    ),
    verdict("too_good", "upheld", "refuted", declared_reason="a sign"),
    verdict("crashed", "error", reason="exit status 7"),
    verdict("absent", "inapplicable", reason="no bfloat16 here"),
    verdict("elsewhere", family="other"),
)


ENOUGH = tuple(verdict(f"drawn_{i}", error=3e-16, noise=1e-16, leaf="w") for i in range(POINTS))
"""So many points that there is a plot."""


def document(*verdicts: Verdict, claims: int | None = None) -> dict[str, Any]:
    rows = [v.to_dict() for v in verdicts]
    return {"schema": 1, "fingerprint": {"python": "3.11.7"}, "claims": claims or len(rows), "verdicts": rows}


def page(folder: Path, *verdicts: Verdict, claims: int | None = None) -> str:
    return write(document(*verdicts, claims=claims), folder).read_text(encoding="utf-8")


def text(page: str) -> str:
    """The page's text as a reader without JavaScript sees it."""
    shown = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", shown)).split())


def section(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">.*?\n</section>', page, flags=re.DOTALL)
    return text(found.group()) if found else ""


def junit(folder: Path, *verdicts: Verdict, claims: int | None = None) -> ElementTree.Element:
    write(document(*verdicts, claims=claims), folder)
    return ElementTree.parse(folder / "junit.xml").getroot()


def figure(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, flags=re.DOTALL)
    assert found
    return json.loads(found.group(1))["error-noise"]


def test_every_verdict_is_in_the_table_and_in_the_matrix_of_its_family(tmp_path: Path) -> None:
    shown = page(tmp_path, *EVERY_OUTCOME)
    for place, v in enumerate(EVERY_OUTCOME, 1):
        assert f'<tr id="v{place}"' in shown
        assert f'href="#v{place}"' in shown
        assert v.task.claim in section(shown, "verdicts")
        assert v.task.claim in section(shown, "matrices")


def test_what_is_wrong_comes_first_and_how_the_page_was_made_last(tmp_path: Path) -> None:
    shown = text(page(tmp_path, *EVERY_OUTCOME))
    assert shown.index("4 of 8 claims as declared, 1 inapplicable: NOT as claimed") < shown.index("Failures")
    assert (
        shown.index("Failures") < shown.index("Findings") < shown.index("All verdicts") < shown.index("python 3.11.7")
    )


def test_a_card_says_the_reason_before_the_claims_that_fail_for_it(tmp_path: Path) -> None:
    same = [verdict(name, "refuted", reason="NaN", spec=SPEC) for name in ("first", "second")]
    shown = section(page(tmp_path, *same), "failures")
    assert shown.index("reason: NaN") < shown.index("one cause, 2 claims") < shown.index("second")
    assert shown.count("reason: NaN") == 2, "the card, and the other claim"


def test_every_column_of_the_tables_is_explained(tmp_path: Path) -> None:
    shown = page(tmp_path, *EVERY_OUTCOME, *ENOUGH)
    table = shown.partition('<table class="all">')[2].partition("</thead>")[0]
    heads = [text(head) for head in re.findall(r"<th.*?</th>", table)]
    assert heads == list(columns.VERDICTS), "each has its sentence above the table"
    assert all(words in section(shown, "verdicts") for words in columns.VERDICTS.values())


def test_a_failure_says_what_where_and_how_to_see_it_again(tmp_path: Path) -> None:
    shown = section(page(tmp_path, *EVERY_OUTCOME), "failures")
    for part in ("broken", "statement of broken", "(Prop. 1)", "w is off", "length 3", "layers[0].w", "0.25", "1e-16"):
        assert part in shown
    assert EVERY_OUTCOME[2].reproduce in shown
    assert "exit status 7" in shown
    assert "too_good" in shown


def test_failures_of_one_method_for_one_reason_are_one_card_with_every_command(tmp_path: Path) -> None:
    same = [verdict(name, "refuted", reason="NaN", spec=SPEC | {"seed": i}) for i, name in enumerate("abc")]
    shown = page(tmp_path, *same)
    assert shown.count("<article") == 1
    assert all(v.reproduce in section(shown, "failures") for v in same)


def test_a_finding_is_no_failure(tmp_path: Path) -> None:
    found = EVERY_OUTCOME[3]
    shown = page(tmp_path, EVERY_OUTCOME[0], found)
    assert "2 of 2 claims as declared: as claimed" in text(shown)
    assert not section(shown, "failures")
    assert "declared false because: a sign" in section(shown, "findings")
    assert "wrong gradient of w" in section(shown, "findings")
    root = junit(tmp_path, EVERY_OUTCOME[0], found)
    assert root.get("failures") == root.get("errors") == "0"
    assert "a sign" in (root.findtext(".//system-out") or "")


def test_inapplicable_claims_stand_under_their_reason(tmp_path: Path) -> None:
    shown = section(page(tmp_path, *EVERY_OUTCOME), "inapplicable")
    assert "no bfloat16 here" in shown
    assert "absent" in shown


def test_hostile_text_is_only_text(tmp_path: Path) -> None:
    evil = Task(HOSTILE, HOSTILE, HOSTILE, HOSTILE, "", HOSTILE, HOSTILE, "upheld", HOSTILE)
    rest: dict[str, Any] = {"error": 1.0, "noise": 1e-16, "leaf": HOSTILE, "spec": {HOSTILE: HOSTILE}}
    hostile = [Verdict(evil, outcome, reason=HOSTILE, **rest) for outcome in ("refuted", "error", "inapplicable")]
    findings = verdict(
        HOSTILE, "refuted", "refuted", declared_reason=HOSTILE, reason=HOSTILE, options={HOSTILE: HOSTILE}
    )
    shown = page(tmp_path, *hostile, findings, *ENOUGH)
    assert "<script>alert" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert not re.search("[\x00\x08\x1b\uffff]", shown)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    message = root.find(".//failure")
    assert message is not None
    assert message.get("message") == "</script><script>alert(1)</script> \"'&]]> red"
    assert json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))["verdicts"][0]["reason"] == HOSTILE


def test_a_run_that_was_cut_off_says_so(tmp_path: Path) -> None:
    shown = text(page(tmp_path, verdict("holds"), claims=3))
    assert "1 of 3 claims as declared: not everything could be measured" in shown
    assert "This run was cut off. 1 of 3 claims have a verdict; 2 were never judged." in shown
    root = junit(tmp_path, verdict("holds"), claims=3)
    assert (root.get("tests"), root.get("errors")) == ("2", "1")
    error = root.find(".//error")
    assert error is not None
    assert "2 are missing" in (error.get("message") or "")


def test_a_run_without_one_verdict_is_still_a_page(tmp_path: Path) -> None:
    assert "0 of 3 claims" in text(page(tmp_path, claims=3))
    assert junit(tmp_path, claims=3).get("errors") == "1"


def test_junit_counts_are_those_of_its_cases(tmp_path: Path) -> None:
    root = junit(tmp_path, *EVERY_OUTCOME)
    assert [suite.get("name") for suite in root] == ["fam", "other"]
    for element in (root, *root):
        cases = list(element.iter("testcase"))
        assert element.get("tests") == str(len(cases))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert element.get(name) == str(len(list(element.iter(tag))))
    assert [root.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["8", "2", "1", "1"]
    case = root.find(".//testcase[@name='broken']")
    assert case is not None
    assert (case.get("classname"), case.get("time")) == ("fam.meth.jax", "0.500")
    assert EVERY_OUTCOME[2].reproduce in (case.findtext("failure") or "")


def test_every_error_is_drawn_a_zero_at_a_floor(tmp_path: Path) -> None:
    shown = page(tmp_path, *EVERY_OUTCOME, *ENOUGH)
    points = [y for trace in figure(shown)["data"] if trace["mode"] == "markers" for y in trace["y"]]
    assert sorted(set(points)) == [1e-17, 3e-16, 0.25, 1.5]
    assert len(points) == 4 + POINTS
    assert "1 error is exactly 0 and drawn with a hollow mark at 1e-17" in section(shown, "plot")


def test_an_error_that_is_not_finite_is_mentioned_where_it_is_not_drawn(tmp_path: Path) -> None:
    nan = verdict("nan", "refuted", error=float("nan"), noise=1e-16, reason="NaN")
    shown = page(tmp_path, *ENOUGH, nan)
    assert "error not finite, noise 1e-16" in section(shown, "failures")
    assert "1 refuted claim has an error that is not finite" in section(shown, "plot")


def test_a_few_points_are_no_plot_and_cost_no_plotting_library(tmp_path: Path) -> None:
    few, enough = (page(tmp_path / name, *rows) for name, rows in (("few", EVERY_OUTCOME), ("enough", ENOUGH)))
    assert section(few, "plot") == ""
    assert len(few) < 100_000
    assert not (tmp_path / "few" / SCRIPT).exists()
    assert f'<script src="{SCRIPT}">' in enough
    assert (tmp_path / "enough" / SCRIPT).stat().st_size > 1_000_000
    assert len(enough) < 200_000, "the library is a file beside the page"


SIXTY_DIGITS = (
    verdict("gradient_exact", digits=58, error=1e-59, reason="equal to 58 digits; casts to bfloat16 count as exact"),
    verdict("second_order_exact", digits=51, error=1e-52, reason="equal to 51 digits"),
    verdict("gradient_float64", error=2e-16, noise=1e-16, lost=0.25),
    verdict("gradient_float32", "refuted", error=0.1, noise=1e-7, reason="w is off"),
)
OTHER_FORMULA = verdict("gradient_exact", "refuted", error=1.25, noise=3e-59, leaf="w", reason="another formula: w 1.2")


def test_the_cell_of_an_exact_claim_shows_its_digits(tmp_path: Path) -> None:
    shown = page(tmp_path, *SIXTY_DIGITS)
    assert "gradient_exact 58" in section(shown, "matrices")
    assert "second_order_exact 51" in section(shown, "matrices")
    assert "✗" in section(page(tmp_path, OTHER_FORMULA), "matrices")


def test_the_tooltip_of_a_cell_says_digits_and_digits_lost(tmp_path: Path) -> None:
    shown = html.unescape(page(tmp_path, *SIXTY_DIGITS))
    assert "\nmeasured: equal to 58 digits\nreason: casts to bfloat16 count as exact" in shown
    assert "error 2e-16, noise 1e-16, 2 times the noise; 0.2 digits lost beyond plain backprop" in shown


def test_a_family_has_a_line_of_digits_and_digits_lost_for_each_method(tmp_path: Path) -> None:
    shown = page(tmp_path, *SIXTY_DIGITS)
    line = shown[shown.index('<table class="digits">') :].partition("<tbody>")[2].partition("</tr>")[0]
    method, *cells = re.findall(r"<t[hd].*?</t[hd]>", line, flags=re.DOTALL)
    assert [text(cell) for cell in cells] == ["jax", "51", "0.2", "✗", ""], "bfloat16 is not claimed"
    assert text(method) == "meth"
    assert not section(page(tmp_path, *EVERY_OUTCOME), "digits"), "without results in digits there is no such section"


def test_another_formula_has_an_error_and_no_noise(tmp_path: Path) -> None:
    shown = page(tmp_path, OTHER_FORMULA, *ENOUGH)
    assert "relative error 1.2 in w, known to within 3e-59" in section(shown, "failures")
    points = [y for trace in figure(shown)["data"] if trace["mode"] == "markers" for y in trace["y"]]
    assert len(points) == POINTS, "the plot is about floats"


def test_junit_has_digits_and_digits_lost_as_properties(tmp_path: Path) -> None:
    root = junit(tmp_path, *SIXTY_DIGITS)
    found = {
        case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in root.iter("testcase")
    }
    assert found["gradient_exact"] == {"digits": "58"}
    assert found["gradient_float64"] == {"lost": "0.25"}
    assert found["gradient_float32"] == {}
    failure = junit(tmp_path, OTHER_FORMULA).findtext(".//failure") or ""
    assert "measured: relative error 1.2 in w, known to within 3e-59" in failure


def test_the_page_asks_for_nothing_from_the_network(tmp_path: Path) -> None:
    shown = page(tmp_path, *EVERY_OUTCOME, *ENOUGH)
    assert "default-src 'none'" in shown
    assert re.findall(r"<script[^>]+src=[^>]*>", shown) == [f'<script src="{SCRIPT}">'], "a file beside the page"
    assert not re.search(r"https?://|<link[^>]+stylesheet|@import|url\(", shown)


def test_the_same_document_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(document(*EVERY_OUTCOME), tmp_path / folder)
    for name in ("index.html", "junit.xml", "failures.sarif", "verdicts.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_missing_folder_is_made_and_holds_four_files(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "yet"
    made = document(*EVERY_OUTCOME)
    assert write(made, folder) == folder / "index.html"
    names = ["failures.sarif", "index.html", "junit.xml", "verdicts.json"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert json.loads((folder / "verdicts.json").read_text(encoding="utf-8")) == made


def test_a_folder_that_cannot_be_written_to_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        write(document(*EVERY_OUTCOME), tmp_path / "file")


def test_the_page_shows_how_small_a_mistake_is_seen(tmp_path: Path) -> None:
    record = tmp_path / "calibration.json"
    dtype = {
        "worst": {"chain:revolve:torch": 1.9},
        "smallest_seen": {"revolve:torch": {"w": ["2e-06", "w[0]"], "b": ["5e-07", "b"]}},
    }
    empty: dict[str, Any] = {"worst": {}, "smallest_seen": {}}
    chain = {
        "date": "2026-11-22",
        "problems": 10,
        "judgements": 70,
        "false_alarms": 0,
        "methods": {"chain:revolve:torch": 10},
        "float64": empty,
        "float32": dtype,
        "bfloat16": empty,
    }
    record.write_text(json.dumps({"families": {"chain": chain}}))
    (section,) = power_section.of_families(["chain", "performer", "chain"], record)
    (line,) = section.lines
    assert (line.method, line.framework, line.judgements, line.worst) == ("revolve", "torch", 10, 1.9)
    assert line.seen == {"float64": "", "float32": "2e-06", "bfloat16": ""}
    assert ("b", ["", "5e-07", ""]) in line.kinds


LINK = re.compile(r"([A-Za-z0-9_-]+\.(html|css))?(#[\w-]+)?|data:,")
SAFE = re.compile(r"[A-Za-z0-9_-]+\.html")
NAMES = [
    *("index", "papers", "Index", "../../x", "/etc/passwd", "javascript:alert(1)//", "x", "X", "a/b", "a-b", "a b"),
    *(".", "..", "", " ", "con", "data:text/html,x", "<script>", "\ud800", "é", "m" * 300, "m" * 301, "a\x00b", "-x"),
    *("?q#f", "//evil.example/x"),
]


def test_every_class_has_a_safe_file_of_its_own(tmp_path: Path) -> None:
    found = file_names(NAMES)
    assert all(SAFE.fullmatch(name) for name in found.values()), found
    assert len({name.lower() for name in found.values()} - {"index.html", "papers.html"}) == len(NAMES)
    assert found["x"] == "x.html"
    assert all(len(name) < 100 for name in found.values())
    assert file_names([*found, found["a/b"].removesuffix(".html")]) | found == file_names(
        [*found, found["a/b"].removesuffix(".html")]
    ), "a class that is called like the file of another gets another file"


def test_hostile_names_of_classes_leave_the_overview_and_the_folder_alone(tmp_path: Path) -> None:
    names = [name for name in NAMES if clean(name) == name]
    rows = [verdict(f"broken_{i}", "refuted", family=name) for name in names for i in range(15)]
    folder = tmp_path / "deep" / "report"
    index = write(document(*rows), folder)
    assert write(document(*rows), folder) == index, "its own files are replaced"
    shown = index.read_text(encoding="utf-8")
    assert f"0 of {len(rows)} claims as declared: NOT as claimed" in text(shown)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != folder] == []
    texts = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}
    links = {html.unescape(link) for shown in texts.values() for link in re.findall(r'href="([^"]*)"', shown)}
    assert {link for link in links if not LINK.fullmatch(link)} == set()
    for name, file in file_names(names).items():
        assert texts[file].count('<tr id="v') == 15, name


def test_a_report_takes_bytes_in_proportion_to_its_rows(tmp_path: Path) -> None:
    sizes = {}
    for count in (40, 160):
        rows = [verdict(f"claim_{i}", family=f"class_{n}") for n in range(count) for i in range(20)]
        write(document(*rows), tmp_path / str(count))
        sizes[count] = sum(path.stat().st_size for path in (tmp_path / str(count)).glob("*.html"))
    assert sizes[160] < 4.1 * sizes[40]
    assert sizes[160] < 160 * 20 * 1000, "under 1,000 bytes for a verdict"


@pytest.mark.parametrize("name", ["index.html", "junit.xml", "verdicts.json"])
def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"name": "my thesis"}')
    with pytest.raises(UsageError, match=f"{name} is there and gradgate did not write it"):
        write(document(*EVERY_OUTCOME), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / name).unlink()
    write(document(*EVERY_OUTCOME), tmp_path)
    write(document(*EVERY_OUTCOME, *ENOUGH), tmp_path)
    assert "drawn_0" in (tmp_path / "index.html").read_text(encoding="utf-8"), "its own files are replaced"
