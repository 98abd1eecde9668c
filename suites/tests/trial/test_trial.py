"""The trial: counts grow over runs and codes and are published with a bound; a false alarm fails it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradgate.hw_profiles import processes
from gradgate.references.contract import installed
from gradgate.suites import cli
from gradgate.suites.trial import __main__ as trial
from gradgate.suites.trial import counts, seeds
from gradgate.suites.trial.counts import Row


def test_rows_that_follow_each_other_on_one_code_are_joined_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    rows = [
        Row("pairs jax", "new", 100, 150, {"120": "refuted"}, seconds=2.0, date="2026-01-02"),
        Row("pairs jax", "old", 0, 50, silent=1, date="2026-01-01"),
        Row("pairs jax", "old", 50, 100, date="2026-01-01"),
        Row("pairs torch", "new", 0, 50, date="2026-01-02"),
    ]
    counts.write(rows, path)
    found = counts.read(path)
    assert [(row.what, row.code, row.start, row.stop) for row in found] == [
        ("pairs jax", "old", 0, 100),
        ("pairs jax", "new", 100, 150),
        ("pairs torch", "new", 0, 50),
    ]
    assert counts.next_seed(found, "pairs jax") == 150
    assert counts.next_seed(found, "calls jax") == 0
    words = counts.summary(found, "pairs jax", {"pairs jax": "new"})
    assert words.startswith("pairs jax: 1 false alarm in 149 (rate below 0.031), 2026-01-01 to 2026-01-02; 1 false")
    assert counts.summary(found, "pairs torch", {"pairs torch": "other"}).endswith(
        "2026-01-02 to 2026-01-02; none on this code"
    )
    assert counts.summary(found, "calls jax", {}) == "calls jax: none judged yet"
    kinds = counts.kinds([*found, Row("seeds jax a:b", "new", 1, 6, each=3, date="2026-01-03")])
    assert kinds["pairs jax"] == counts.Counted(149, 1, "2026-01-01", "2026-01-02")
    assert kinds["seeds jax"] == counts.Counted(15, 0, "2026-01-03", "2026-01-03")


@pytest.mark.parametrize("judged", [1, 20, 1000])
def test_the_bound_is_the_exact_one(judged: int) -> None:
    assert counts.most_likely_below(0, judged) == pytest.approx(1 - 0.05 ** (1 / judged), rel=1e-9)
    for alarms in range(1, min(judged, 4)):
        assert counts._at_most(alarms, judged, counts.most_likely_below(alarms, judged)) == pytest.approx(0.05)
        assert counts.most_likely_below(alarms, judged) > counts.most_likely_below(alarms - 1, judged)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of one seed, judged in this process."""

    @contextlib.contextmanager
    def pool(jobs: int) -> Iterator[concurrent.futures.Executor]:
        with concurrent.futures.ThreadPoolExecutor(1) as executor:
            yield executor

    monkeypatch.setattr(processes, "pool", pool)
    monkeypatch.setattr(trial, "CHUNK", 1)


@pytest.mark.parametrize("wrong", [False, True])
def test_what_was_judged_is_counted_and_an_alarm_is_named(
    wrong: bool, tmp_path: Path, in_process: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, int]] = []

    def judge(framework: str, start: int, stop: int) -> tuple[dict[str, str], int]:
        asked.append((framework, start))
        return ({str(start): "refuted: too large"} if wrong and start == 1 else {}), 0

    judge.__module__ = trial.DRAWN["pairs"].__module__
    monkeypatch.setattr(trial, "DRAWN", {"pairs": judge})
    monkeypatch.setattr(seeds, "DRAWN", {"pairs": judge})
    monkeypatch.setattr(trial, "GOAL", 3)
    monkeypatch.setattr(counts, "TABLE", tmp_path / "counts.json")
    monkeypatch.setattr(trial, "_drawn", _with_path(trial._drawn, tmp_path / "counts.json"))
    monkeypatch.setattr(trial, "_code", lambda kind: "one")
    there = [framework for framework in ("jax", "torch") if installed(framework)]
    read = counts.read
    monkeypatch.setattr(counts, "read", lambda path=tmp_path / "counts.json": read(path))
    assert trial.main(["pairs", "--minutes", "1"]) == int(wrong)
    said = capsys.readouterr()
    for framework in there:
        assert sorted(seed for name, seed in asked if name == framework) == [0, 1, 2]
        alarms = "1 false alarm in 3" if wrong else "no false alarms in 3"
        assert f"pairs {framework}: {alarms} (rate below" in said.out
        assert (f"pairs {framework}, seed 1: refuted: too large" in said.err) == wrong
    asked.clear()
    assert trial.main(["pairs", "--minutes", "1"]) == 0, "this run judged nothing"
    assert asked == [], "the goal is reached on this code"
    monkeypatch.setattr(trial, "_code", lambda kind: "two")
    trial.main(["pairs", "--minutes", "1"])
    assert {seed for _, seed in asked} == {3, 4, 5}, "another code gets new seeds"


def _with_path(drawn: Callable[..., list[Row]], path: Path) -> Callable[..., list[Row]]:
    return lambda kind, seconds, jobs: drawn(kind, seconds, jobs, path)


def test_time_that_is_over_begins_nothing(tmp_path: Path, in_process: None) -> None:
    assert trial._drawn("pairs", -1.0, 1, tmp_path / "counts.json") == []
    assert not (tmp_path / "counts.json").exists()


def test_a_kind_that_does_not_exist_is_named_with_the_legal_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        trial.main(["pears"])
    assert "unknown kind 'pears'; legal: mutants, seeds, pairs, calls" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["pairs", "calls"])
def test_a_chunk_of_each_kind_is_judged(kind: str, framework: str) -> None:
    row = seeds.judged(kind, framework, "code", 7, 8)
    assert (row.what, row.start, row.stop, row.alarms) == (f"{kind} {framework}", 7, 8, {})
    assert row.seconds > 0


def test_processes_of_their_own_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(trial, "_there", lambda: ["torch"])
    monkeypatch.setattr(trial, "CHUNK", 1)
    monkeypatch.setattr(trial, "GOAL", 1)
    made = trial._drawn("calls", 60.0, 1, tmp_path / "counts.json")
    assert [(row.what, row.start, row.stop, row.alarms) for row in made] == [("calls torch", 0, 1, {})]
    assert counts.read(tmp_path / "counts.json") == made


FLAKE = {
    "family": "chain",
    "method": "revolve",
    "framework": "torch",
    "claim": "value",
    "verdict": "refuted",
    "expected": "upheld",
    "reason": "too large",
    "seed": 7,
}


@pytest.mark.parametrize(("status", "flakes"), [(0, []), (1, [FLAKE]), (2, [])], ids=["right", "wrong", "unfinished"])
def test_seeds_of_a_method_are_judged_by_repeat_and_a_flake_is_named(
    status: int, flakes: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        asked = cli._parser(words[3:]).parse_args(words[3:])
        assert (asked.runs, asked.first, asked.jobs) == (5, 6, 2)
        assert (asked.family, asked.method, asked.framework) == ("chain", "revolve", "torch")
        judged = {"one": [6, 7, 8, 9, 10], "two": [6, 7, 8, 9, 10]}
        asked.json.write_text(json.dumps({"flakes": flakes, "judged": judged, "silent": {"two": [6, 9]}}))
        return subprocess.CompletedProcess([], status)

    monkeypatch.setattr(seeds.subprocess, "run", run)
    row = seeds.repeated("seeds torch chain:revolve", "code", 6, 11, 2)
    assert (row is None) == (status == 2), "what is unfinished is not counted"
    if row:
        assert (row.what, row.start, row.stop, row.each, row.judged) == ("seeds torch chain:revolve", 6, 11, 2, 8)
        assert row.alarms == ({"7 chain:revolve:torch:value": "refuted: too large"} if flakes else {})


def test_the_method_with_the_fewest_seeds_on_this_code_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, asked = tmp_path / "counts.json", list[tuple[str, int, int]]()
    one, two = "seeds torch chain:one", "seeds torch chain:two"
    counts.write([Row(one, "old", 1, 6, each=3), Row(two, "new", 1, 6, each=4)], path)

    def repeated(what: str, code: str, start: int, stop: int, jobs: int) -> Row | None:
        asked.append((what, start, stop))
        return None if len(asked) == 2 else Row(what, code, start, stop, each=4)

    monkeypatch.setattr(trial, "_methods", lambda: {one: "new", two: "new"})
    monkeypatch.setattr(trial, "SEEDS", 10)
    monkeypatch.setattr(trial, "repeated", repeated)
    assert len(trial._repeated(60.0, 1, path)) == 2
    assert asked == [(one, 6, 11), (one, 11, 16), (two, 6, 11)], "one that is unfinished does not hold up the others"
    assert f"{one}: not all was judged" in capsys.readouterr().err, "what was not judged is said"
    kept = [(row.what, row.code, row.start, row.stop, row.each) for row in counts.read(path)]
    assert kept == [(one, "old", 1, 6, 3), (one, "new", 6, 11, 4), (two, "new", 1, 11, 4)]
    said = counts.summary(counts.read(path), "seeds torch", {one: "new", two: "new"})
    assert said.startswith("seeds torch: no false alarms in 75")
    assert "no false alarms in 60" in said.partition(";")[2]
    asked.clear()
    assert trial._repeated(-1.0, 1, path) == []
    assert asked == [], "when the time is over, nothing begins"


def test_the_mutants_take_the_time_that_they_get(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(
        trial.subprocess, "run", lambda words, **_: asked.append(words) or subprocess.CompletedProcess([], 0)
    )
    assert trial.main(["mutants", "--minutes", "0.5"]) == 0
    [words] = asked
    assert cli._parser(words[3:]).parse_args(words[3:]).minutes == 0.5
