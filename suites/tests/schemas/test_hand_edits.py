"""Documents that were edited by hand end `gradgate report` with 3 and one line that names the field, never a traceback.

The document is a real one of each framework: a law of bytes, a gradient in floats, one in sixty digits.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.references.contract import installed

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

CLAIMS = ("memory_law", "gradient_float64", "gradient_exact")
Document = dict[str, Any]


@pytest.fixture(scope="module", params=["jax", "torch"])
def real(request: pytest.FixtureRequest, process: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What verify wrote on three claims of plain backprop."""
    if not installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    folder = tmp_path_factory.mktemp("real")
    asked = [word for claim in CLAIMS for word in ("--claim", claim)]
    ran = process(
        "-m",
        "gradgate.suites.cli",
        "verify",
        "--family",
        "chain",
        "--method",
        "backprop",
        "--framework",
        request.param,
        "--examples",
        2,
        "--json",
        "v.json",
        *asked,
        cwd=folder,
        env={"GRADGATE_CACHE": str(folder / "cache")},
    )
    assert ran.status == 0, ran.out + ran.err
    return (folder / "v.json").read_text(encoding="utf-8")


def put(*place: str | int, value: Any) -> Callable[[Document], None]:
    """An edit that replaces what is at a place; a place that begins with ``laws`` is in the verdict that has laws."""

    def edit(document: Document) -> None:
        inner: Any = document
        if place[0] == "laws":
            inner = next(row for row in document["verdicts"] if row.get("laws"))
        for word in place[:-1]:
            inner = inner[word]
        inner[place[-1]] = value

    return edit


def drop(*place: str | int) -> Callable[[Document], None]:
    """An edit that removes what is at a place."""

    def edit(document: Document) -> None:
        inner: Any = document
        for word in place[:-1]:
            inner = inner[word]
        del inner[place[-1]]

    return edit


def twice(document: Document) -> None:
    document["verdicts"].append(copy.deepcopy(document["verdicts"][0]))


ROW = ("verdicts", 0)
EDITS: dict[str, tuple[Callable[[Document], None], str]] = {
    "no schema": (drop("schema"), "the key 'schema' is missing; legal: 1"),
    "another schema": (put("schema", value=2), "schema must be 1, not 2"),
    "a schema in words": (put("schema", value="1"), "schema must be 1, not '1'"),
    "no verdicts": (drop("verdicts"), "exactly one of the keys verdicts, cells"),
    "two lists": (put("cells", value=[]), "it has 'verdicts' and 'cells'"),
    "verdicts are a dict": (put("verdicts", value={}), "verdicts must be a list"),
    "verdicts are null": (put("verdicts", value=None), "verdicts must be a list of tables of names and values"),
    "a verdict is a list": (put(*ROW, value=[]), "verdicts[0] must be a table of names and values, not []"),
    "a verdict is text": (put(*ROW, value="upheld"), "verdicts[0] must be a table of names and values, not 'upheld'"),
    "a verdict is empty": (put(*ROW, value={}), "the key 'verdicts[0].family' is missing"),
    "no family": (drop(*ROW, "family"), "the key 'verdicts[0].family' is missing"),
    "no method": (drop(*ROW, "method"), "the key 'verdicts[0].method' is missing"),
    "no framework": (drop(*ROW, "framework"), "the key 'verdicts[0].framework' is missing"),
    "no claim": (drop(*ROW, "claim"), "the key 'verdicts[0].claim' is missing"),
    "no verdict": (drop(*ROW, "verdict"), "the key 'verdicts[0].verdict' is missing"),
    "an unknown verdict": (put(*ROW, "verdict", value="right"), "error, inapplicable, refuted or upheld, not 'right'"),
    "a verdict is true": (put(*ROW, "verdict", value=True), "verdicts[0].verdict must be"),
    "an unknown declaration": (put(*ROW, "expected", value="maybe"), "refuted or upheld, not 'maybe'"),
    "an unknown framework": (put(*ROW, "framework", value="numpy"), "jax or torch, not 'numpy'"),
    "an empty family": (put(*ROW, "family", value=""), "family must be a string that is not empty"),
    "a family is a number": (put(*ROW, "family", value=7), "family must be a string that is not empty, not 7"),
    "a method is null": (put(*ROW, "method", value=None), "method must be a string that is not empty, not null"),
    "a claim is a list": (put(*ROW, "claim", value=["a"]), "claim must be a string that is not empty"),
    "a statement is null": (put(*ROW, "statement", value=None), "statement must be a string, not null"),
    "a reason is a dict": (put(*ROW, "reason", value={}), "reason must be a string"),
    "a leaf is null": (put(*ROW, "leaf", value=None), "leaf must be a string"),
    "negative examples": (put(*ROW, "examples", value=-1), "examples must be a whole number of at least 0, not -1"),
    "half an example": (put(*ROW, "examples", value=1.5), "examples must be a whole number of at least 0, not 1.5"),
    "an error in words": (put(*ROW, "error", value="1e-9"), "error must be a number of at least 0 or null, not '1e-9'"),
    "a negative error": (put(*ROW, "error", value=-1e-9), "error must be a number of at least 0 or null"),
    "a noise is a list": (put(*ROW, "noise", value=[1]), "noise must be a number of at least 0 or null"),
    "seconds are null": (put(*ROW, "seconds", value=None), "seconds must be a number of at least 0, not null"),
    "digits are a number with a point": (put(*ROW, "digits", value=40.5), "digits must be a whole number"),
    "lost digits in words": (put(*ROW, "lost", value="none"), "lost must be a number or null"),
    "options are a list": (put(*ROW, "options", value=[]), "options must be a table"),
    "options are null": (put(*ROW, "options", value=None), "options must be a table"),
    "a spec is text": (put(*ROW, "spec", value="T=3"), "spec must be a table"),
    "a run is a list": (put(*ROW, "run", value=[1]), "run must be a table"),
    "a run is nested": (put(*ROW, "run", value={"seed": {}}), "run.seed must be a whole number"),
    "a coverage is null": (put(*ROW, "coverage", value=None), "coverage must be a table"),
    "a coverage lacks a field": (put(*ROW, "coverage", value={"tried": 1, "possible": 2}), "coverage.missing"),
    "decisions are null": (put(*ROW, "decisions", value=None), "decisions must be a table"),
    "decisions lack a field": (put(*ROW, "decisions", value={"decisions": 3}), "decisions.both"),
    "lines are a dict": (put(*ROW, "lines", value={}), "lines must be a list"),
    "lines lack a digest": (put(*ROW, "lines", value=[{"path": "ops.py"}]), "lines[0].digest"),
    "a line is negative": (
        put(*ROW, "lines", value=[{"path": "ops.py", "digest": "", "ran": [[-1, 2]]}]),
        "lines[0].ran[0][0] must be a whole number of at least 0, not -1",
    ),
    "laws are a dict": (put("laws", value={}), "laws must be a list"),
    "laws are null": (put("laws", value=None), "laws must be a list"),
    "a law is text": (put("laws", 0, "law", value="linear"), "law must be a table"),
    "a law lacks its exponent": (put("laws", 0, "law", value={"constant": 1.0}), "law.exponent' is missing"),
    "a law without sizes": (put("laws", 0, "sizes", value=[]), "values must have one for each of 0 sizes"),
    "sizes are negative": (put("laws", 0, "sizes", 0, value=-1), "sizes[0] must be a number"),
    "sizes are null": (put("laws", 0, "sizes", value=None), "sizes must be a list"),
    "a quantity is markup": (put("laws", 0, "quantity", value="<b>"), "quantity must be a name of letters"),
    "claims are missing": (drop("claims"), "the key 'claims' is missing"),
    "claims are text": (put("claims", value="3"), "claims must be a whole number of at least 0, not '3'"),
    "claims are negative": (put("claims", value=-3), "claims must be a whole number of at least 0, not -3"),
    "a fingerprint is a list": (put("fingerprint", value=[]), "fingerprint must be a table"),
    "a version is a number": (put("fingerprint", "python", value=3.11), "fingerprint.python must be a string"),
    "a shard is text": (put("shard", value="1/2"), "shard must be a table"),
    "a shard that is not there": (put("shard", value={"index": 3, "of": 2, "total": 9}), "index must be at most 2"),
    "a shard of none": (put("shard", value={"index": 0, "of": 0, "total": 9}), "shard.index must be a whole number of"),
    "a verdict twice": (twice, "twice; keep one of them"),
    "NaN": (put(*ROW, "error", value=float("nan")), "NaN is not a finite number"),
    "infinity": (put(*ROW, "noise", value=float("inf")), "Infinity is not a finite number"),
}
RAW: dict[str, tuple[Callable[[str], bytes], str]] = {
    "empty": (lambda text: b"", "is not JSON: Expecting value"),
    "only space": (lambda text: b" \n", "is not JSON: Expecting value"),
    "a byte order mark": (lambda text: b"\xef\xbb\xbf" + text.encode(), "is not JSON: Unexpected UTF-8 BOM"),
    "UTF-16": (lambda text: text.encode("utf-16"), "is not UTF-8: invalid start byte at byte 0"),
    "cut off": (lambda text: text[: len(text) // 2].encode(), "is not JSON"),
    "a comma too many": (lambda text: text.replace("{", "{,", 1).encode(), "is not JSON"),
    "two documents": (lambda text: (text + text).encode(), "is not JSON: Extra data"),
    "a comment": (lambda text: ("// mine\n" + text).encode(), "is not JSON"),
    "a list": (lambda text: b"[]", "exactly one of the keys verdicts, cells"),
    "null": (lambda text: b"null", "exactly one of the keys verdicts, cells"),
    "a number": (lambda text: b"1", "exactly one of the keys verdicts, cells"),
    "nested deeply": (lambda text: b"[" * 100_000, "is nested too deeply"),
    "a key twice": (lambda text: text.replace("{", '{"schema": 1,', 1).encode(), "the key 'schema' is there twice"),
    "a number of 5,000 digits": (
        lambda text: text.replace('"schema": 1', '"schema": ' + 5000 * "1").encode(),
        "is not",
    ),
    "a number beyond floats": (lambda text: text.replace('"seconds": ', '"seconds": 1e999, "s": ').encode(), "1e999"),
}
"""Name -> an edit of the file's text, and what the message says."""


def refused(gradgate: Callable[..., Any], file: Path, said: str) -> None:
    ran = gradgate("report", file, "--report", file.parent / "page")
    assert ran.status == 3, ran.out + ran.err
    assert ran.err.count("\n") == 1
    assert ran.err.startswith(f"gradgate: {file}")
    assert said in ran.err
    assert not (file.parent / "page").exists()


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_field_is_named(real: str, gradgate: Callable[..., Any], tmp_path: Path, name: str) -> None:
    edit, said = EDITS[name]
    document = json.loads(real)
    edit(document)
    (tmp_path / "v.json").write_text(json.dumps(document))
    refused(gradgate, tmp_path / "v.json", said)


@pytest.mark.parametrize("name", RAW)
def test_a_file_that_is_not_such_json_is_named(
    real: str, gradgate: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    edit, said = RAW[name]
    (tmp_path / "v.json").write_bytes(edit(real))
    refused(gradgate, tmp_path / "v.json", said)


def test_the_document_itself_and_fields_of_a_later_version_are_read(
    real: str, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    def widen(value: Any) -> Any:
        if isinstance(value, dict):
            return {"of_later": {"x": [1]}, **{key: widen(item) for key, item in value.items()}}
        return [widen(item) for item in value] if isinstance(value, list) else value

    document = json.loads(real)
    by_name = ("fingerprint", "readings")  # their keys are not fields
    widened = {**widen(document), **{name: document[name] for name in by_name}}
    for name, content in (("real", document), ("widened", widened)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
        ran = gradgate("report", tmp_path / f"{name}.json", "--report", tmp_path / name)
        assert ran.status == 0, ran.err
        assert (tmp_path / name / "index.html").exists()


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document; of a list, its first and last item."""
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if isinstance(value, dict) or key in (0, len(value) - 1):
            yield from places(item, (*place, key))


WRONG: tuple[Any, ...] = (None, -1, "", [], {}, [[]], 1e300, True)


def test_whatever_is_removed_or_replaced_the_page_is_written_or_one_line_says_why_not(
    real: str, gradgate: Callable[..., Any], tmp_path: Path
) -> None:
    """A sample of 60 edits of about 700 in each framework; all of them take a minute and a half."""
    document, file, ends = json.loads(real), tmp_path / "v.json", []
    every = [drop(*place) for place in places(document)]
    every += [put(*place, value=wrong) for n, place in enumerate(places(document)) for wrong in WRONG[n % 4 :: 4]]
    for edit in random.Random(0).sample(every, 60):
        edited = copy.deepcopy(document)
        edit(edited)
        file.write_text(json.dumps(edited))
        ran = gradgate("report", file, "--report", tmp_path / "page")
        ends.append(ran.status)
        if ran.status == 3:
            assert ran.err.count("\n") == 1
        else:
            assert ran.out.endswith("index.html\n"), ran.err
    assert ends.count(3) > len(ends) / 4
