"""``gradgate paper``: measured figures are kept, and an interrupted run can be continued."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references import registry
from gradgate.references.errors import UsageError
from gradgate.references.performer.paper import rows as paper
from gradgate.references.published import Expectation, Published, equal, refuted, unexplained, upheld
from gradgate.suites.commands import paper as paper_command
from gradgate.suites.measuring import paper_results

ITEMS = (
    Published("Table 1", "a", 1, "B", "operator:add", {}, 4.0),
    Published("Table 1", "a", 2, "B", "math:nothing", {}, 4.0),
)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paper has two figures: the first measures 6, the second cannot be measured. The list records each try."""
    seen: list[str] = []

    class Pool:
        def __init__(self, *arguments: Any, **more: Any) -> None:
            pass

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, function: Any, target: str, arguments: Any) -> Any:
            import concurrent.futures

            seen.append(target)
            future: Any = concurrent.futures.Future()
            lost = "it is not here"
            known = target == "operator:add"
            future.set_result({"ours": 6.0 if known else None, "problem": "" if known else lost, "seconds": 0.1})
            return future

    monkeypatch.setattr(paper_command.processes, "pool", Pool)
    monkeypatch.setattr(paper, "PUBLISHED", ITEMS)
    return seen


def test_results_are_kept_with_ratio_and_fingerprint_and_only_missing_ones_measured_again(
    listed: list[str], gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "paper.json"
    ran = gradgate("paper", "--family", "performer", "--json", path)
    assert ran.status == 2, ran.err
    first, second = json.loads(path.read_text())["results"]
    assert (first["ours"], first["printed"], first["ratio"]) == (6.0, 4.0, 1.5)
    assert first["fingerprint"]["python"]
    assert (second["ours"], second["problem"]) == (None, "it is not here")
    gradgate("paper", "--family", "performer", "--json", path)
    assert listed == ["operator:add", "math:nothing", "math:nothing"]
    gradgate("paper", "--family", "performer", "--json", path, "--again")
    assert len(listed) == 5


def test_a_figure_that_moved_since_it_was_kept_is_told(
    listed: list[str], gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "paper.json"
    gradgate("paper", "--family", "performer", "--json", path)
    same = gradgate("paper", "--family", "performer", "--json", path, "--again")
    assert "it was" not in same.err
    kept = json.loads(path.read_text())
    kept["results"][0]["ours"] = 5.0
    path.write_text(json.dumps(kept))
    ran = gradgate("paper", "--family", "performer", "--json", path, "--again")
    assert "Table 1, a, 1: 6 B, printed 4, ratio 1.5; it was 5" in ran.err


def test_a_reason_that_was_rewritten_is_that_of_kept_results_too(
    listed: list[str], gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "paper.json"
    gradgate("paper", "--family", "performer", "--json", path)
    monkeypatch.setattr(paper, "PUBLISHED", [dataclasses.replace(item, reason="tested") for item in ITEMS])
    gradgate("paper", "--family", "performer", "--json", path)
    assert [result["reason"] for result in json.loads(path.read_text())["results"]] == ["tested", "tested"]
    assert listed.count("operator:add") == 1


CLOSE = equal(0.1, "two digits are printed")
OFF = "tested: another compiler"


@pytest.mark.parametrize(
    ("expects", "ours", "status", "said"),
    [
        (upheld(CLOSE), 4.1, 0, "1 printed figure: 1 upheld; as declared"),
        (upheld(CLOSE), 6.0, 1, "1 printed figure: 1 not as declared; NOT as declared"),
        (refuted(CLOSE, instead=6.0), 6.0, 0, "1 printed figure: 1 refuted as declared; as declared"),
        (refuted(CLOSE, instead=6.0), 7.0, 1, "its reason is about 6 within 5%"),
        (refuted(CLOSE, instead=6.0), 4.0, 1, "declared refuted, but it agrees"),
        (unexplained(CLOSE), 6.0, 0, "1 printed figure: 1 unexplained; as declared"),
        (unexplained(CLOSE), 4.0, 1, "declared unexplained, but it agrees"),
        (None, 4.0, 2, "1 printed figure: 1 undeclared; not everything was measured and declared"),
        (upheld(CLOSE), None, 2, "1 printed figure: 1 not measured here; not everything was measured and declared"),
    ],
)
def test_the_verdict_on_a_figure_decides_the_exit_status_also_of_what_is_kept(
    expects: Expectation | None,
    ours: float | None,
    status: int,
    said: str,
    gradgate: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    item = Published("Table 1", "a", 1, "B", "operator:add", {}, 4.0, OFF, expects=expects)
    monkeypatch.setattr(paper, "PUBLISHED", [item])
    path = tmp_path / "paper.json"
    found = paper_command.row(item, {"ours": ours, "problem": "" if ours else "no compiler", "seconds": 1.0}, {})
    path.write_text(json.dumps({"schema": 1, "results": [found]}))
    before = path.read_bytes()
    ran = gradgate("paper", "--family", "performer", "--json", path, "--kept")
    assert ran.status == status, ran.out
    assert said in ran.out
    assert path.read_bytes() == before, "--kept judges the file and does not write it"


def test_a_figure_that_is_measured_now_is_judged_now(
    listed: list[str], gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "paper.json"
    for expects, status, outcome in ((upheld(CLOSE), 1, "not as declared"), (unexplained(CLOSE), 0, "unexplained")):
        item = dataclasses.replace(ITEMS[0], expects=expects, reason=OFF)
        monkeypatch.setattr(paper, "PUBLISHED", [item])
        ran = gradgate("paper", "--family", "performer", "--json", path)
        assert ran.status == status
        (result,) = json.loads(path.read_text())["results"]
        assert (result["outcome"], result["expected"]) == (outcome, expects.verdict)
        assert (result["agreement"], result["because"]) == ("equal within 10%", "two digits are printed")
    assert listed == ["operator:add"], "a new declaration needs no new measurement"


def test_a_failure_outweighs_what_could_not_be_measured(
    listed: list[str], gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "PUBLISHED", [dataclasses.replace(item, expects=upheld(CLOSE)) for item in ITEMS])
    ran = gradgate("paper", "--family", "performer", "--json", tmp_path / "paper.json")
    assert ran.status == 1
    assert "Table 1 / a / 1: printed 4 B, measured 6 B, ratio 1.5; agreement: equal within 10%; declared upheld" in (
        ran.out
    )
    assert "Table 1 / a / 2: it is not here" in ran.out
    assert "2 printed figures: 1 not as declared, 1 not measured here; NOT as declared" in ran.out


def test_an_undeclared_figure_is_listed_and_a_plot_is_only_counted(
    gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = Published("Fig. 1", "b", 1, "B", "operator:add", drawn=True)
    monkeypatch.setattr(paper, "PUBLISHED", [ITEMS[0], plot])
    path = tmp_path / "paper.json"
    results = [paper_command.row(item, {"ours": 4.0, "problem": "", "seconds": 1.0}, {}) for item in (ITEMS[0], plot)]
    path.write_text(json.dumps({"schema": 1, "results": results}))
    ran = gradgate("paper", "--family", "performer", "--json", path, "--kept")
    assert ran.status == 2
    assert " ".join(next(line for line in ran.out.splitlines() if "a, 1" in line).split()) == "a, 1 4 4 1 B undeclared"
    assert "1 printed figure: 1 undeclared; 1 without a printed number" in ran.out


def test_a_figure_that_follows_from_others_is_judged_and_not_measured(
    listed: list[str], gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"of": "Table 1 / a", "take": "largest"}
    told = Published("Table 1", "most", "", "B", "gradgate.references.derived:value", asked, 4.0, expects=upheld(CLOSE))
    monkeypatch.setattr(paper, "PUBLISHED", [told, dataclasses.replace(ITEMS[0], printed=None)])
    path = tmp_path / "paper.json"
    ran = gradgate("paper", "--family", "performer", "--json", path)
    assert ran.status == 1
    assert "Table 1 / most: printed 4 B, measured 6 B" in ran.out
    assert listed == ["operator:add"]
    assert len(json.loads(path.read_text())["results"]) == 1, "the file keeps only what was measured"
    share = gradgate("paper", "--family", "performer", "--json", path, "--shard", "1/2", "--kept")
    assert "Table 1 / most" not in share.out, "this needs the figures of all shares"


def test_a_plot_that_could_not_be_measured_is_named_with_its_problem(
    gradgate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot = Published("Fig. 1", "b", 1, "B", "operator:add", drawn=True)
    monkeypatch.setattr(paper, "PUBLISHED", [plot])
    path = tmp_path / "paper.json"
    ran = gradgate("paper", "--family", "performer", "--json", path, "--kept")
    assert ran.status == 2
    assert "Fig. 1 / b / 1: not measured yet (no number is printed)" in ran.out
    found = paper_command.row(plot, {"ours": 3.0, "problem": "", "seconds": 1.0}, {})
    path.write_text(json.dumps({"schema": 1, "results": [found]}))
    ran = gradgate("paper", "--family", "performer", "--json", path, "--kept")
    assert (ran.status, "not measured" in ran.out) == (0, False)


def test_kept_without_a_family_judges_all_papers_and_takes_no_option_of_one(gradgate: Callable[..., Any]) -> None:
    ran = gradgate("paper", "--kept", "--place", "Table 1")
    assert ran.status == 3
    assert "are about one paper: say --family too" in ran.err
    assert gradgate("paper", "--kept", "--again").status == 3


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("§4.1", ["§4.1, slots", "§4.1: tables"]),
        ("§4.10", ["§4.10"]),
        ("Table 2", ["Table 2"]),
        ("Fig. 2, time (s)", ["Fig. 2, time (s), TPU"]),
        (None, ["§4.1, slots", "§4.1: tables", "§4.10", "§4.1.2", "Table 2", "Table 2, 44M", "Fig. 2, time (s), TPU"]),
    ],
)
def test_a_place_is_that_alone_or_all_that_begin_with_its_words(asked: str | None, found: list[str]) -> None:
    every = ["§4.1, slots", "§4.1: tables", "§4.10", "§4.1.2", "Table 2", "Table 2, 44M", "Fig. 2, time (s), TPU"]
    assert paper_command._places(asked, every) == found
    with pytest.raises(UsageError, match="unknown place"):
        paper_command._places("§4.100", every)


def test_wrong_names_are_refused_with_what_is_legal(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    for arguments, message in (
        ((), "say which paper: --family"),
        (("--family", "performer", "--place", "Table 9"), "unknown place 'Table 9'; legal: .*Table 2"),
    ):
        ran = gradgate("paper", *arguments)
        assert ran.status == 3
        assert message.partition(": .*")[0] in ran.err
    (tmp_path / "broken.json").write_text("{}")
    ran = gradgate("paper", "--family", "performer", "--json", tmp_path / "broken.json")
    assert ran.status == 3
    assert "does not fit gradgate schema paper" in ran.err


def test_every_listed_figure_names_a_function_that_is_there_and_is_listed_once() -> None:
    keys = [item.key for item in paper.PUBLISHED]
    assert len(set(keys)) == len(keys)
    assert all(callable(registry.load(item.measured)) for item in paper.PUBLISHED)


def test_table_2_of_performer_has_the_papers_nine_rows() -> None:
    rows = [item for item in paper.PUBLISHED if item.place == "Table 2" and item.series == "PyTorch"]
    assert [item.printed for item in rows][:2] == [0.0449, 0.0425]
    assert len(rows) == 9


def test_the_report_shows_curves_points_and_what_could_not_be_measured() -> None:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    from gradgate.suites.report import paper_section

    def result(x: float | str, ours: Any, problem: str = "") -> dict[str, Any]:
        item = Published("Fig. 1", "a", x, "B", "operator:add", {}, 2.0, "another device")
        return paper_command.row(item, {"ours": ours, "problem": problem, "seconds": 1.0}, {})

    found = paper_section.place(
        "performer", "Fig. 1", "p", [result(1, 2.0), result(2, 4.0), result(4, None, "too big")]
    )
    assert found.figure is not None
    assert (found.figure["data"][0]["x"], found.figure["data"][0]["y"]) == ([1, 2], [2.0, 4.0])
    assert [row["problem"] for row in found.rows] == ["", "", "too big"]
    curve = paper_section.place(
        "performer", "Fig. 3", "p", [result("L", {"step": [0, 1], "full": [3.0, 1.0], "d": 1e-6})]
    )
    assert curve.figure is not None
    assert [trace["name"] for trace in curve.figure["data"]] == ["full"]
    assert curve.notes == {"d": 1e-6}


def test_the_report_shows_text_as_a_drawing() -> None:
    from gradgate.suites.report import paper_section

    row = {"place": "Fig. 1", "series": "a", "x": "9 stages", "unit": "", "ours": "|─ ●\n ◄", "date": "2025-01-01"}
    found = paper_section.place("performer", "Fig. 1", "anchor", [row])
    assert (found.drawings, found.rows, found.figure) == ([row], [], None)


def _family_in(folder: Path, name: str, rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the registry find the class performer in a package with these rows of its paper."""
    (folder / name / "paper").mkdir(parents=True)
    for place in ("__init__.py", "paper/__init__.py"):
        (folder / name / place).write_text("")
    (folder / name / "paper" / "rows.py").write_text(rows)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(registry, "package", lambda _: name)


def test_a_paper_without_figures_is_wrong_usage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _family_in(tmp_path, "without_figures", "", monkeypatch)
    with pytest.raises(UsageError, match="performer lists no figures of its paper to measure"):
        paper_results.published("performer")


def test_figures_that_import_a_module_that_is_missing_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _family_in(tmp_path, "with_a_gap", "import no_such_module\nPUBLISHED = (1,)\n", monkeypatch)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        paper_results.published("performer")


def test_a_class_in_one_file_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "package", lambda _: "")
    with pytest.raises(UsageError, match="performer lists no figures of its paper to measure"):
        paper_results.published("performer")
