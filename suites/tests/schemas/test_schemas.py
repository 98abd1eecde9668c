"""The published schemas: they are generated, real outputs of every command fit them, and changed outputs do not."""

from __future__ import annotations

import copy
import datetime
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import pytest

from gradgate.hw_profiles.measurement import STATUSES
from gradgate.references.contract import UsageError
from gradgate.references.ledger import KINDS
from gradgate.suites.commands.schema import SCHEMAS, text
from gradgate.suites.gate.allow import Quantity, Row
from gradgate.suites.judging.outcomes import VERDICTS
from gradgate.suites.measuring.cells import OF_PASSES
from gradgate.suites.schemas import documents
from gradgate.suites.schemas.checking import checked, legal
from gradgate.suites.settings import Settings, Target

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(documents.__file__).parent


def fits(name: str, document: Any) -> None:
    """Raise if a document does not fit its published schema, or not its type."""
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(document, json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
    checked(document, SCHEMAS[name], name)


def refuses(name: str, document: Any) -> None:
    """Fail unless the published schema and the type both refuse a document."""
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
    with pytest.raises(UsageError):
        checked(document, SCHEMAS[name], name)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_published_file_is_the_generated_one(name: str, gradgate: Callable[..., Any]) -> None:
    published = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert published == text(name), f"gradgate schema {name} > suites/schemas/{name}.json"
    assert gradgate("schema", name).out == published
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(json.loads(published))


def test_no_published_file_is_left_over_and_the_command_lists_all(gradgate: Callable[..., Any]) -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == SCHEMAS.keys()
    assert [line.split()[0] for line in gradgate("schema").out.splitlines()] == list(SCHEMAS)
    ran = gradgate("schema", "verdict")
    assert ran.status == 3
    assert ran.err.endswith("nearest: verdicts\n")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("list", "list --json"),
        ("list", "list --family chain --json"),
        ("statements", "list --paper --json"),
        ("profiles", "profiles --json"),
    ],
)
def test_what_a_command_prints_fits(name: str, command: str, gradgate: Callable[..., Any]) -> None:
    ran = gradgate(*command.split())
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    fits(name, document)
    [rows] = [value for value in document.values() if isinstance(value, list)]
    for key in list(rows[0]):
        changed = copy.deepcopy(document)
        rest = next(value for value in changed.values() if isinstance(value, list))
        del rest[0][key]
        refuses(name, changed)
    refuses(name, {**document, "schema": 0})


def test_what_memory_writes_fits(framework: str, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    ran = gradgate(
        "memory",
        "--family",
        "chain",
        "--method",
        "backprop",
        "--framework",
        framework,
        "--sweep",
        "N=9:18",
        "--json",
        tmp_path / "m.json",
    )
    assert ran.status == 0, ran.err
    document = documents.read(tmp_path / "m.json", "memory")
    fits("memory", document)
    for key, wrong in (("temp_bytes", -1), ("status", "fine"), ("spec", None), ("family", "")):
        refuses("memory", {**document, "cells": [{**document["cells"][0], key: wrong}]})
    refuses("memory", {**document, "laws": {}})


def test_what_verify_and_repeat_write_fits(framework: str, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    asked = ("--family", "chain", "--method", "backprop", "--framework", framework, "--examples", 1)
    ran = gradgate("verify", *asked, "--claim", "value", "--claim", "tree", "--json", tmp_path / "v.json")
    assert ran.status == 0, ran.err
    document = documents.read(tmp_path / "v.json", "verdicts")
    fits("verdicts", document)
    row = document["verdicts"][0]
    repeated = {
        "schema": 1,
        "fingerprint": document["fingerprint"],
        "examples": 1,
        "judged": {"chain:backprop": [1, 2]},
        "flakes": [{**row, "seed": 2}],
    }
    fits("repeat", repeated)
    fits("repeat", {**repeated, "silent": {"chain:backprop": [1]}})
    refuses("repeat", {**repeated, "flakes": [row]})
    refuses("repeat", {**repeated, "judged": {"chain:backprop": 1}})
    for key, wrong in (("verdict", "right"), ("examples", -1), ("options", []), ("error", -0.5)):
        refuses("verdicts", {**document, "verdicts": [{**row, key: wrong}]})


def test_what_selftest_writes_fits(torch: Any, gradgate: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    asked = ("selftest", "chain.torch.planted_1e11", "--family", "chain", "--framework", "torch", "--examples", 4)
    assert gradgate(*asked, "--json", file).status in (0, 1)
    document = documents.read(file, "selftest")
    fits("selftest", document)
    refuses("selftest", {**document, "mutants": [{**document["mutants"][0], "status": "dead"}]})
    refuses("selftest", {**document, "schema": 1})


def test_what_calibrate_keeps_fits_and_a_changed_piece_is_refused(gradgate: Callable[..., Any], tmp_path: Path) -> None:
    alarms = {
        "asked": 2,
        "problems": 2,
        "judged": {"chain:backprop:jax": 2},
        "alarms": [],
        "digits": [53, 55],
        "ratios": {"float64": [0.4]},
        "worst": {"float64": {"chain:backprop:jax": 0.4}},
    }
    power = {"float64": {"layers[].b": ["2e-15", "layers[6].b", "1e-15"]}}
    pieces = {"alarms:jax:0": alarms, "power:jax:backprop": power}
    document = {"seed": 1, "problems": 4, "fingerprint": {}, "families": {"chain": pieces}}
    fits("calibrate", document)
    file = tmp_path / "c.json"
    for piece, wrong, said in (
        ("alarms:jax:0", {**alarms, "ratios": []}, "ratios must be a table"),
        ("alarms:jax:0", {}, "'problems' is missing"),
        ("power:jax:backprop", {"float64": []}, "float64 must be a table"),
        ("figures:jax", {}, "is no piece of work"),
    ):
        file.write_text(json.dumps({**document, "families": {"chain": {**pieces, piece: wrong}}}))
        ran = gradgate("report", file, "--json", tmp_path / "all.json")
        assert ran.status == 3
        assert said in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize("path", sorted((ROOT / "references").glob("*/paper.json")), ids=lambda path: path.parent.name)
def test_what_paper_keeps_fits(path: Path) -> None:
    document = documents.read(path, "paper")
    fits("paper", document)
    row = document["results"][0]
    refuses("paper", {**document, "results": [{key: value for key, value in row.items() if key != "ours"}]})
    refuses("paper", {**document, "results": [{**row, "fingerprint": None}]})


def test_the_figures_of_calibrate_fit() -> None:
    kept = documents.read(ROOT / "suites" / "report" / "calibration.json", "summary")
    fits("summary", kept)
    refuses("summary", {**kept, "families": []})


def test_the_settings_of_the_guide_fit_their_schema() -> None:
    table = tomllib.loads((ROOT / "suites" / "guide" / "settings.md").read_text().split("```toml\n")[1].split("```")[0])
    fits("settings", table["tool"]["gradgate"])
    refuses("settings", {**table["tool"]["gradgate"], "profile": ["cpu"]})
    refuses("settings", {**table["tool"]["gradgate"], "examples": 0})


def test_the_page_of_settings_says_what_the_types_say() -> None:
    page = (ROOT / "suites" / "guide" / "settings.md").read_text(encoding="utf-8")
    for kind in (Settings, Target, Row):
        assert table(kind) in page, f"the table of {kind.__name__} is:\n{table(kind)}"


def table(kind: Any) -> str:
    """The reference table of a type: each key with what is legal, its default and its meaning."""
    lines = ["| key | legal | default | what it is |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(kind):
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        shown = "" if default in (msgspec.NODEFAULT, msgspec.UNSET) else f"`{json.dumps(msgspec.to_builtins(default))}`"
        shown = "must be given" if field.required else shown
        described = msgspec.inspect.type_info(field.type).extra_json_schema["description"]
        lines.append(f"| `{field.name}` | {legal(field.type)} | {shown} | {described} |")
    return "\n".join(lines)


def test_a_key_without_a_row_on_the_page_is_seen() -> None:
    class More(Settings, frozen=True):
        workers: Annotated[int, msgspec.Meta(description="how many")] = 2

    page = (ROOT / "suites" / "guide" / "settings.md").read_text(encoding="utf-8")
    assert table(More) not in page
    assert table(More).splitlines()[-1] == "| `workers` | a whole number | `2` | how many |"


def test_an_allowed_rise_fits_its_schema() -> None:
    row = {"cell": "f:m:jax@cpu", "ceiling": 5, "reason": "why", "expires": "2030-01-01"}
    fits("allow", {"allow": [row]})
    refuses("allow", {"allow": [{**row, "ceiling": 0}]})
    refuses("allow", {"allow": [{**row, "reason": " "}]})
    checked({"allow": [{**row, "expires": datetime.date(2030, 1, 1)}]}, SCHEMAS["allow"], "as TOML gives it")


def test_words_that_a_schema_lists_are_those_of_the_code() -> None:
    verdict, status = (documents.Verdict.__annotations__["verdict"], documents.Cell.__annotations__["status"])
    assert set(get_args(eval(verdict, vars(documents)))) == set(VERDICTS)
    assert set(get_args(eval(status, vars(documents)))) == {*STATUSES, "inapplicable"}
    assert set(get_args(eval(documents.Statement.__annotations__["kind"], vars(documents)))) == set(KINDS)
    assert set(OF_PASSES) < set(get_args(Quantity))
    assert Settings().profiles
