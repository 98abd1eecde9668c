"""The pages of the gallery: a table of libraries, a page and a badge for each, and the same as JSON."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.suites.gallery import badge, judge, results
from gradgate.suites.gallery.metadata import FOLDER

Row = Mapping[str, Any]
TONES = {"upheld": "upheld", "refuted": "finding", "inapplicable": "inapplicable", "error": "error"}
"""Verdict -> class of its colour."""
FILTER = """<script>
(() => {
  const input = document.getElementById("gallery-filter"), count = document.getElementById("gallery-count");
  const lines = [...document.querySelectorAll("#libraries tbody tr")];
  const filter = () => {
    const words = input.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const line of lines) {
      const text = line.textContent.toLowerCase() + " " + line.dataset.words;
      line.hidden = !words.every((word) => text.includes(word));
      shown += !line.hidden;
    }
    count.textContent = `${shown} of ${lines.length}`;
  };
  input.addEventListener("input", filter);
  document.getElementById("gallery-filter-line").hidden = false;
  filter();
})();
</script>
"""
"""Every word must occur in a line of the table, or in its further words."""
HEAD = """# Real libraries

What gradgate found in public libraries, each judged in an environment of its own. [The gallery](gallery.md) says how to
read this page, how to repeat it and how to add a library. *Finding* means that a claim is refuted, that its cause is
known, and that a script of at most 20 lines without gradgate shows the same.
"""
KINDS = (
    "wrong gradient",
    "another function than the one it names",
    "loses digits",
    "crashes",
    "keeps more memory than it says",
)
"""Kinds of findings, the gravest first: in this order libraries are listed."""
HEADS = ("library", "what was found", "judged", "problems", "verdicts", "kept / plain")
"""The columns of the table. On a narrow screen each line is a block, and its cells bear these names."""
SHOWN = 3
"""Findings of a library that the table says in words."""
LENGTH = 45
"""Words of a finding's first sentence, above which it ends at a semicolon."""
NOTHING = "No run of the gallery is kept in this copy: `nox -s gallery -- --keep` makes one.\n"


def write(target: Path, folder: Path = FOLDER) -> list[str]:
    """Write the pages, the badges and the JSON below a folder of Sphinx sources; returns the names of the pages.

    Args:
        target: the folder; files below ``target/extra`` are copied as they are.
        folder: where the kept rows are.
    """
    rows = results.stored(folder)
    extra, pages = target / "extra" / "gallery", target / "libraries"
    for made in (extra, pages):
        made.mkdir(parents=True, exist_ok=True)
    names = ["libraries"]
    (target / "libraries.md").write_text(overview(rows), encoding="utf-8")
    document = {"schema": judge.SCHEMA, "rows": [short(row) for row in rows]}
    (extra / "gallery.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for row in rows:
        name = row["name"]
        (pages / f"{name}.md").write_text(library(row), encoding="utf-8")
        (extra / f"{name}.svg").write_text(badge.svg("gradgate", *message(row)), encoding="utf-8")
        shield = badge.endpoint("gradgate", *message(row))
        (extra / f"{name}.json").write_text(json.dumps(shield) + "\n", encoding="utf-8")
        names.append(f"libraries/{name}")
    return names


def message(row: Row) -> tuple[str, str]:
    """The words and the colour of a library's badge."""
    if row["state"] != judge.JUDGED:
        return row["state"], "grey"
    if judge.faults(row):
        return "not as declared", "red"
    count = len(row["findings"])
    if count:
        return f"{count} finding{'s' if count > 1 else ''}", "amber"
    return f"{row['verdicts'].get('upheld', 0)} claims upheld", "green"


def short(row: Row) -> dict[str, Any]:
    """A row as in gallery.json: what the table shows, and its findings."""
    fields = (
        "name",
        "library",
        "version",
        "framework",
        "home",
        "state",
        "reason",
        "date",
        "examples",
        "seeds",
        "seconds",
        "claims",
        "problems",
        "verdicts",
        "pairs",
        "findings",
        "refuted",
    )
    return {name: row[name] for name in fields}


def overview(rows: Sequence[Row]) -> str:
    """The page with the table of all libraries."""
    if not rows:
        return f"{HEAD}\n{NOTHING}"
    judged = [row for row in rows if row["state"] == judge.JUDGED]
    problems, findings = sum(row["problems"] for row in rows), sum(len(row["findings"]) for row in judged)
    dates = sorted({row["date"] for row in rows})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    told = f"{len(judged)} of {len(rows)} libraries judged on {problems:,} problems, {when}: "
    told += f'{findings} findings, the gravest first. The same as <a href="gallery/gallery.json">JSON</a>.\n'
    rows = sorted(rows, key=gravity)
    lines = "\n".join(_line(row) for row in rows)
    tree = "\n".join(f"libraries/{row['name']}" for row in rows)
    head = "".join(f"<th>{name}</th>" for name in HEADS)
    return f"""{HEAD}
{told}
<p id="gallery-filter-line" hidden><label>filter <input type="search" id="gallery-filter" autocomplete="off"
spellcheck="false" placeholder="such as: jax crashes"></label> <output id="gallery-count"></output></p>
<div class="table-wrapper docutils container">
<table class="docutils align-default" id="libraries">
<thead><tr>{head}</tr></thead>
<tbody>
{lines}
</tbody>
</table>
</div>

*kept / plain* is what the pairs of a library keep between the forward and the backward pass, as a share of what plain
references keep: the smallest and the largest of its pairs.

{FILTER}
```{{toctree}}
:hidden:

{tree}
```
"""


def _line(row: Row) -> str:
    """A library as a line of the table."""
    version = f"{_text(row['library'])} {_text(row['version'])}"
    name = f'<a href="libraries/{row["name"]}.html">{_text(row["name"])}</a><br>{version}<br>{row["framework"]}'
    further = " ".join([row["state"], *(finding["kind"] for finding in row["findings"])]).lower()
    if row["state"] != judge.JUDGED:
        state = f'<span class="badge error">{_text(row["state"])}</span> {_text(row["reason"])}'
        cells = [name, state, "", str(row["problems"]), "", ""]
    else:
        pairs = "<br>".join(_text(pair["name"]) for pair in row["pairs"].values())
        judged = f"<details><summary>{len(row['pairs'])} pairs</summary>{pairs}</details>"
        counts = verdicts(row["verdicts"])
        cells = [name, _found(row), judged, f"{row['problems']:,}", counts, ratios(row["pairs"])]
    told = "".join(f'<td data-head="{head}">{cell}</td>' for head, cell in zip(HEADS, cells, strict=True))
    return f'<tr data-words="{_text(further)}">{told}</tr>'


def gravity(row: Row) -> tuple[int, ...]:
    """The place of a library in the table: those with the gravest kind and the most findings of it first.

    Then come libraries without a finding, and last those that could not be judged.
    """
    kinds = [finding["kind"] for finding in row["findings"]]
    return (row["state"] != judge.JUDGED, *(-kinds.count(kind) for kind in KINDS), not kinds)


def _found(row: Row) -> str:
    """The findings of a library in words: the kind of each, and the first sentence of its cause."""
    ordered = sorted(row["findings"], key=lambda finding: KINDS.index(finding["kind"]))
    told = [
        f'<li><span class="badge failure">{_text(finding["kind"].partition(" than ")[0])}</span> '
        f"{_text(first_sentence(finding['cause']))}</li>"
        for finding in ordered[:SHOWN]
    ]
    if len(ordered) > SHOWN:
        told.append(f'<li><a href="libraries/{row["name"]}.html">and {len(ordered) - SHOWN} more</a></li>')
    if judge.faults(row):
        told.append('<li><span class="badge error">not as declared</span></li>')
    return f'<ul class="found">{"".join(told)}</ul>' if told else "nothing: every claim is upheld or inapplicable"


def first_sentence(words: str) -> str:
    """The first sentence of a text; a long one ends at its first semicolon.

    >>> first_sentence("It copies x; so y is wrong. More.")
    'It copies x; so y is wrong.'
    """
    first = words.partition(". ")[0]
    if len(first.split()) > LENGTH:
        first = first.partition("; ")[0]
    return f"{first.rstrip('. ')}."


def verdicts(counts: Mapping[str, int]) -> str:
    """How often each verdict was given, as badges."""
    return " ".join(f'<span class="badge {TONES[name]}">{count} {name}</span>' for name, count in counts.items())


def ratios(pairs: Mapping[str, Row]) -> str:
    """The smallest and the largest share that pairs keep; "" if none could be counted."""
    found = sorted(pair["kept"] / pair["plain"] for pair in pairs.values() if pair.get("plain"))
    if not found:
        return ""
    return f"{found[0]:.2g}" if found[0] == found[-1] else f"{found[0]:.2g} – {found[-1]:.2g}"


def library(row: Row) -> str:
    """The page of one library: what was found, and then what was judged and how."""
    badge_line = f'<img src="../gallery/{row["name"]}.svg" alt="gradgate: {_text(message(row)[0])}">\n'
    told = [f"# {row['name']}\n", f"{_mark(row['title'])}\n", badge_line]
    if row["state"] != judge.JUDGED:
        told.append(f"\n**{row['state'].capitalize()}**: {_mark(row['reason'])}\n")
    told += [_finding(row, place) for place in range(len(row["findings"]))]
    for name, title in (("unexplained", "Not declared"), ("gone", "Declared, but not refuted")):
        if row[name]:
            told.append(f"\n## {title}\n")
            told += [f"- `{one['pair']}` {one['claim']}: {_mark(one['reason'])}" for one in row[name]]
    told += ["\n## What was judged\n", *_facts(row)]
    if row["pairs"]:
        told.append(_pairs(row["pairs"]))
    return "\n".join(told) + "\n"


def _facts(row: Row) -> list[str]:
    name = row["name"]
    told = [
        f"- library: [{_mark(row['library'])}]({row['home']}) {row['version']}, in {row['framework']}",
        f"- judged on {row['date']}: {row['claims']} claims on {row['problems']:,} problems, {row['examples']} for "
        f"each claim, {row['seeds']} seed{'s' if row['seeds'] > 1 else ''}, {row['judging_seconds']:.0f} s of judging",
    ]
    shared = row.get("toolchain", {})
    known = [f"{one} {shared[one]}" for one in ("python", "jax", "torch", "triton") if one in shared]
    told += [f"- with {', '.join(known)}"] if known else []
    told += [f"- note: {_mark(row['notes'])}"] if row["notes"] else []
    return [*told, f"- again: `nox -s gallery -- {name}`", f"- file: `suites/gallery/{name}.py`\n"]


def _pairs(pairs: Mapping[str, Row]) -> str:
    told = ["| pair | problems | verdicts | keeps | the reference keeps | at |", "|---|---|---|---|---|---|"]
    for name, pair in pairs.items():
        kept = [f"{pair[one]:,} B" if one in pair else "" for one in ("kept", "plain")]
        sizes = ", ".join(f"{dim} {size}" for dim, size in pair.get("spec", {}).items() if size not in ("", None))
        called = f"`{name}`" if name == pair["name"] else f"`{name}`: {_mark(pair['name'])}"
        cells = (called, f"{pair['problems']:,}", verdicts(pair["verdicts"]), *kept, _mark(sizes))
        told.append(f"| {' | '.join(cells)} |")
    return "\n".join(told) + "\n"


def _finding(row: Row, place: int) -> str:
    """A finding: its cause, what was refuted, and the script with what it printed."""
    finding = row["findings"][place]
    told = [f"\n## {finding['kind'].capitalize()}: {', '.join(finding['pairs'])}\n", f"{_mark(finding['cause'])}\n"]
    told.append(f"Documented by the library: {_mark(finding['documented'])}.\n")
    for one in row["refuted"]:
        if one["finding"] == place:
            told.append(f"- `{one['pair']}`, {one['claim']}: {_mark(one['reason'])}")
    scripts = {one["script"]: one for one in row["scripts"]}
    if found := scripts.get(finding["script"]):
        shown = "shows it" if found["shown"] else f"does not show it: {found['status']}"
        told.append(f"\n`suites/gallery/{finding['script']}` {shown}:\n")
        told += [_fenced("python", found["text"]), _fenced("text", found["output"][-1500:] or "(no output)")]
    return "\n".join(told)


def _fenced(language: str, text: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````\n"


def _text(words: str) -> str:
    return html.escape(str(words))


def _mark(words: str) -> str:
    """Text for Markdown, in which nothing is markup."""
    escaped = html.escape(str(words), quote=False)
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]|$#" else letter for letter in escaped).replace("\n", " ")
