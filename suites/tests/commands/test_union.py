"""Documents of shards are united: the totals are those of all shards; a missing or repeated shard is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.errors import UsageError
from gradgate.suites.commands.union import unite
from gradgate.suites.gate.code import identity
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.selftest import summary
from gradgate.suites.tests.scratch import Scratch


def verdicts(index: int, of: int, *claims: str, total: int = 3, **other: Any) -> dict[str, Any]:
    rows = [Verdict(Task("f", f"m{index}", "torch", claim), "upheld").to_dict() for claim in claims]
    shard = {"index": index, "of": of, "total": total}
    return {"schema": 1, "fingerprint": {"torch": "2"}, "claims": len(rows), "shard": shard, "verdicts": rows, **other}


def test_the_verdicts_of_all_shares_are_those_of_the_whole() -> None:
    united, missing = unite({"a": verdicts(1, 2, "tree", "value"), "b": verdicts(2, 2, "tree")})
    assert [(row["method"], row["claim"]) for row in united["verdicts"]] == [
        ("m1", "tree"),
        ("m1", "value"),
        ("m2", "tree"),
    ]
    assert united["claims"] == 3
    assert missing == ""
    assert "shard" not in united


def test_a_missing_share_is_said_and_its_claims_count() -> None:
    united, missing = unite({"a": verdicts(2, 3, "tree", "value")})
    assert united["claims"] == 3
    assert missing == "missing: share 1/3, 3/3"


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (verdicts(1, 2, "tree"), "both share 1/2"),
        (verdicts(2, 3, "tree"), "not shares of one piece of work"),
        (verdicts(2, 2, "tree", total=9), "not shares of one piece of work"),
        (verdicts(2, 2, "tree", fingerprint={"torch": "1"}), "their fingerprint differs"),
        (verdicts(2, 2, "tree", asked={"seed": 1}), "their asked differs"),
        (verdicts(2, 2, "tree", code="another"), "their code differs"),
        ({"schema": 1, "fingerprint": {"torch": "2"}, "cells": [], "laws": []}, "one lists verdicts, the other cells"),
        ({key: value for key, value in verdicts(2, 2, "tree").items() if key != "shard"}, "not shares of one piece"),
    ],
)
def test_documents_that_do_not_belong_together_are_refused(other: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        unite({"a": verdicts(1, 2, "tree"), "b": other})


def test_runs_that_are_no_shares_add_up_unless_they_hold_the_same() -> None:
    one, two = ({k: v for k, v in verdicts(i, 1, "tree").items() if k != "shard"} for i in (1, 2))
    assert unite({"a": one, "b": two})[0]["claims"] == 2
    with pytest.raises(UsageError, match="a and b both hold f:m1:torch:tree"):
        unite({"a": one, "b": one})


def test_cells_and_laws_add_up() -> None:
    def cells(profile: str) -> dict[str, Any]:
        return {"schema": 1, "cells": [{"family": "f", "profile": profile}], "laws": [{"profile": profile}]}

    united, _ = unite({"a": cells("cpu"), "b": cells("tpu")})
    assert len(united["cells"]) == len(united["laws"]) == 2


def test_pieces_of_a_calibration_and_seeds_of_a_repetition_add_up() -> None:
    one = {"seed": 1, "families": {"f": {"power:torch:a": 1}}}
    two = {"seed": 1, "families": {"f": {"power:torch:b": 2}, "g": {}}}
    assert unite({"a": one, "b": two})[0]["families"] == {"f": {"power:torch:a": 1, "power:torch:b": 2}, "g": {}}
    first = {"schema": 1, "judged": {"x": [1, 2]}, "flakes": [{"seed": 1}]}
    second = {"schema": 1, "judged": {"x": [3], "y": [1]}, "flakes": []}
    united, _ = unite({"a": first, "b": second})
    assert united == {"schema": 1, "judged": {"x": [1, 2, 3], "y": [1]}, "flakes": [{"seed": 1}]}
    first, second = first | {"silent": {}}, second | {"silent": {"x": [3]}}
    assert unite({"a": first, "b": second})[0] == united | {"silent": {"x": [3]}}


def test_a_figure_of_a_paper_is_that_of_the_share_that_measured_it() -> None:
    def paper(index: int, ours: int) -> dict[str, Any]:
        shard = {"index": index, "of": 2, "total": 2, "keys": [f"k{index}"]}
        rows = [{"key": key, "date": "2026-01-01", "ours": ours} for key in ("k1", "k2")]
        return {"schema": 1, "shard": shard, "results": rows}

    united, _ = unite({"a": paper(1, 10), "b": paper(2, 20)})
    assert {row["key"]: row["ours"] for row in united["results"]} == {"k1": 10, "k2": 20}


def test_mutants_add_up_and_their_summary_is_made_anew() -> None:
    row = {"status": "killed", "formula": False, "claim": "tree", "kill": ["tree"], "planted": None}
    row |= {"family": "f", "framework": "torch"}
    one, two = (summary.document([row | {"name": name}], {"schema": 2}) for name in ("x", "y"))
    united, _ = unite({"a": one, "b": two})
    assert united == summary.document([row | {"name": "x"}, row | {"name": "y"}], {"schema": 2})


def test_the_command_unites_and_says_what_is_missing(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(verdicts(1, 2, "tree", "value")))
    (tmp_path / "b.json").write_text(json.dumps(verdicts(2, 2, "tree")))
    ran = gradgate("report", tmp_path / "a.json", tmp_path / "b.json", "--json", tmp_path / "all.json")
    assert ran.status == 0, ran
    assert len(json.loads((tmp_path / "all.json").read_text())["verdicts"]) == 3
    ran = gradgate("report", tmp_path / "a.json", "--json", tmp_path / "all.json")
    assert ran.status == 2
    assert "missing: share 2/2" in ran.err


def test_shares_of_verify_are_the_whole(torch: Any, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    asked = ("verify", "--family", "chain", "--framework", "torch", "--claim", "tree", "--examples", 1, "--jobs", 1)
    files = [tmp_path / f"{index}.json" for index in (1, 2)]
    for index, file in enumerate(files, 1):
        assert gradgate(*asked, "--shard", f"{index}/2", "--json", file).status == 0
    assert gradgate("report", *files, "--json", tmp_path / "all.json").status == 0
    assert gradgate(*asked, "--json", tmp_path / "whole.json").status == 0
    united, whole = (json.loads((tmp_path / name).read_text()) for name in ("all.json", "whole.json"))
    names = [{row["method"] for row in document["verdicts"]} for document in (united, whole)]
    assert names[0] == names[1]
    assert united["claims"] == whole["claims"] == len(united["verdicts"])


@pytest.mark.parametrize("command", ["verify", "memory", "selftest", "calibrate", "repeat", "paper"])
def test_every_long_command_takes_a_share_and_refuses_a_wrong_one(command: str, gradgate: Callable[..., Any]) -> None:
    ran = gradgate(command, "--shard", "3/2")
    assert ran.status == 3
    assert "I/N with I from 1 to N, such as 2/4, not '3/2'" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("calibrate", "--family", "chain", "--problems", 2),
        ("selftest", "gate_sign", "--family", "state_space", "--framework", "torch"),
    ],
)
def test_a_share_with_nothing_to_do_is_a_share_too(
    words: tuple[object, ...], torch: Any, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    gradgate(*words, "--shard", "999/999", "--json", tmp_path / "s.json")
    document = json.loads((tmp_path / "s.json").read_text())
    assert (document["shard"]["index"], document["shard"]["of"]) == (999, 999)


def test_a_share_without_a_file_of_its_own_is_refused(gradgate: Callable[..., Any], torch: Any) -> None:
    assert "give --shard a --json" in gradgate("calibrate", "--shard", "1/2").err
    assert "--shard needs --json FILE" in gradgate("paper", "--family", "performer", "--shard", "1/2").err


def test_the_identity_of_code_follows_its_content_and_not_the_commit(tmp_path: Path) -> None:
    files = {"mine.py": "x = 1\n", "data.json": "{}"}
    made = Scratch(tmp_path / "repository")
    made.commit(files)
    first = identity(made.root)
    made.commit()
    made.write({"verdicts.json": "{}", "build/mine.py": "x = 1\n"})
    assert identity(made.root) == first, "the same content, a result, and what a build leaves"
    for name, text in (("mine.py", "x = 2\n"), ("data.json", "[]"), ("new.py", "")):
        made.branch()
        made.write({name: text})
        assert identity(made.root) != first
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "mine.py").write_text("x = 1\n")
    before = identity(plain)
    (plain / "mine.py").write_text("x = 2\n")
    assert identity(plain) != before
