"""The atlas of claims: pages for each paper, made from its ledger and from the kept results of its figures.

A paper has a first page with its headlines, and further pages with its statements, by their results, and its figures.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gradgate.references import ledger, registry
from gradgate.references.contract import Claim, Method
from gradgate.references.ledger import NOT_YET, NOTE, Entry, Ledger
from gradgate.references.published import HOW, Judged
from gradgate.suites.measuring import paper_results
from gradgate.suites.site import drawing, splitting

Row = Mapping[str, Any]
TONES = {
    "upheld": "upheld",
    "refuted as declared": "failure",
    "refuted": "failure",
    "unexplained": "inapplicable",
    "not as declared": "inapplicable",
    "not measured here": "inapplicable",
    "undeclared": "inapplicable",
}
"""Verdict of a claim or figure -> class of its colour, that of the state to which it leads."""
STATES = {
    "holds": ("Holds", "upheld", "every claim and every printed figure that the statement names is upheld"),
    "in part": ("Holds in part", "finding", "some of them are upheld, and others are refuted or differ"),
    "against": ("Does not hold", "failure", "they are refuted, for a reason that was tested"),
    "open": ("No verdict", "inapplicable", "there is nothing to compare, or nobody knows why ours differs"),
}
"""State of a statement -> its name, the class of its colour, and what it means. Nothing else has a colour."""
STANDINGS = {
    "does not hold": ("Does not hold", "against"),
    "holds in part": ("Holds in part", "in part"),
    "holds": ("Holds", "holds"),
    "differs": ("Differs, not explained", "open"),
    "no number": ("Measured here, without a printed number", "open"),
    "not covered": ("Not covered yet", "open"),
    "note": ("Background, claims nothing of this paper", "open"),
    "not measurable": ("Cannot be measured here", "open"),
}
"""The result for a statement -> heading and state, findings first."""
REASON = 40
"""Words of a reason that an overview shows."""
INLINE = 8
"""A statement shows up to this many figures; if it has more, it links to the page of figures."""
HYPHENS = re.compile(r"(?<!\w)([-+]{2,}>?(?!\w)|--\w[\w-]*)")
"""A setting such as ``--+``, an arrow, or an option of a command."""
HEADLINES = 4
"""A headline shows up to this many figures and claims."""


def standing(entry: Entry, judged: Mapping[str, Judged]) -> str:
    """The result for a statement, a name in `STANDINGS`.

    A statement with a refuted claim or figure does not hold. If others are upheld, it holds in part.

    Args:
        entry: the statement with its claims and figures.
        judged: key of a printed figure -> its verdict.
    """
    kind = entry.statement.kind
    if kind in ("note", "not measurable", "not covered yet"):
        return "not covered" if kind == "not covered yet" else kind
    outcomes = [judged[row.key].outcome for row in entry.rows if row.key in judged]
    words = {claim.expected for _, claim in entry.claims} | set(outcomes)
    against, unknown = words & {"refuted", "refuted as declared"}, words - {"upheld", "refuted", "refuted as declared"}
    if against:
        return "holds in part" if "upheld" in words else "does not hold"
    if unknown:
        return "holds in part" if "upheld" in words else "differs"
    return "holds" if "upheld" in words else "no number"


def tone(name: str) -> str:
    """The class of the colour of a standing: that of its state."""
    return STATES[STANDINGS[name][1]][1]


def write(target: Path) -> list[str]:
    """Write every page of the atlas below `target`/atlas; returns their names."""
    (target / "atlas").mkdir(parents=True, exist_ok=True)
    ledgers = [found for found in map(ledger.of_family, registry.families()) if found.entries]
    kept = {one.family: paper_results.stored(one.family) for one in ledgers}
    pages = {"index": overview(ledgers, kept)}
    for one in ledgers:
        pages |= paper(one, kept[one.family]) | figures(one, kept[one.family])
    for name, text in pages.items():
        (target / "atlas" / f"{name}.md").write_text(text, encoding="utf-8")
    return [f"atlas/{name}" for name in pages]


def overview(ledgers: Sequence[Ledger], kept: Mapping[str, Sequence[Row]]) -> str:
    """The page about all papers: what holds, and what does not, with the reason."""
    told = [
        "# What holds, what does not\n",
        "Five papers propose methods that compute a gradient in less memory. This atlas takes every statement of them "
        "that can be measured, and gives the result here. A statement is judged by claims of the methods, which "
        "`gradgate verify` judges again in every run, or by figures, which are measured and compared with the printed "
        "ones.\n",
        legend(),
    ]
    told.append(":::{container} by-paper\n")
    told.append("| paper | " + " | ".join(name for name, _, _ in STATES.values()) + " |")
    told.append("|---|" + "---|" * len(STATES))
    for one in ledgers:
        found = [STANDINGS[name][1] for name in _standings(one, kept[one.family])]
        counts = " | ".join(str(found.count(state)) for state in STATES)
        told.append(f"| [{text(one.paper)}]({one.family}.md) | {counts} |")
    findings = [_findings(one, kept[one.family]) for one in ledgers]
    told += [":::\n", _how(), "## What does not hold, paper by paper\n", *findings]
    return "\n".join(told) + _tree(one.family for one in ledgers)


def legend() -> str:
    """The four states with their colours, as a list."""
    lines = [f"- {_badge(name, colour)} {meaning}" for name, colour, meaning in STATES.values()]
    return "\n".join(lines) + "\n"


def _tree(names: Iterable[str]) -> str:
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


def _standings(one: Ledger, rows: Sequence[Row]) -> list[str]:
    judged = paper_results.judged(rows)
    return [standing(entry, judged) for entry in one.entries]


def _findings(one: Ledger, rows: Sequence[Row]) -> str:
    """The statements of one paper that do not hold, each with its reason, as a section of the overview."""
    found = _standings(one, rows)
    known = {row["key"]: row for row in rows}
    worst = [entry for entry, name in zip(one.entries, found, strict=True) if name == "does not hold"]
    told = [f"\n### {text(one.paper)}\n\n{_bar(found)}"]
    told += [
        f"- {text(entry.statement.place)}, “{text(entry.statement.words)}”: {because(entry, known)}".rstrip(": ")
        for entry in worst
    ]
    if not worst:
        told.append("Every statement that has a verdict holds, at least in part.")
    return "\n".join(told) + f"\n\n[All statements, with claims and figures]({one.family}.md)\n"


def because(entry: Entry, known: Mapping[str, Row]) -> str:
    """Why a statement does not hold, as a sentence of at most `REASON` words; "" if no reason is declared."""
    reasons = [claim.declared_reason for _, claim in entry.claims if claim.expected == "refuted"]
    reasons += [known[row.key]["reason"] for row in entry.rows if row.key in known]
    reason = next(filter(None, reasons), "")
    first = reason.split(". ")[0].split()
    return sentence(" ".join(first) if len(first) <= REASON else f"{' '.join(first[:REASON])} …")


def _how() -> str:
    return (
        "*No verdict* has five causes, and each has its own heading: our figure differs, and we have not found out "
        "why, so it may be our fault or the paper's; the paper draws a curve or says it in words, so there is no "
        "number; it is not covered yet; it is background; it cannot be measured here.\n\n"
        "`gradgate list --paper` prints all of this, `gradgate paper --kept` judges every figure again from kept "
        "results, and `gradgate paper --family F --again` measures a paper again.\n"
    )


def _bar(found: Sequence[str]) -> str:
    states = [STANDINGS[name][1] for name in found]
    parts = {name: (states.count(state), colour) for state, (name, colour, _) in STATES.items() if state in states}
    said = "; ".join(f"{name.lower()}: {n}" for name, (n, _) in parts.items())
    return f"{raw(drawing.bar(parts, said))}\n{len(found)} statements: {said}.\n"


def paper(one: Ledger, rows: Sequence[Row]) -> dict[str, str]:
    """The pages of one paper, name -> text: its headlines, and then its statements by their results, findings first."""
    judged = paper_results.judged(rows)
    known = {row["key"]: row for row in rows}
    found = [(entry, standing(entry, judged)) for entry in one.entries]
    places = _places(one, rows)
    pages: dict[str, str] = {}
    lines = ["## Every statement\n", "| result | statements | pages |", "|---|---|---|"]
    for name, (heading, _) in STANDINGS.items():
        pieces = [_statement(one.family, entry, judged, known, places) for entry, which in found if which == name]
        chunks = splitting.parts(pieces)
        links = []
        for number, chunk in enumerate(chunks, 1):
            file = f"{one.family}_{name.replace(' ', '_')}" + (f"_{number}" if number > 1 else "")
            title = f"{heading}: {text(one.paper)}" + (f", part {number} of {len(chunks)}" if len(chunks) > 1 else "")
            links.append(f"[{'read' if len(chunks) == 1 else number}]({file}.md)")
            around = f"[The paper]({one.family}.md) · [its figures]({one.family}_figures.md)\n"
            pages[file] = "\n".join((f"# {title}\n", around, *chunk))
        if pieces:
            lines.append(f"| {_badge(heading, tone(name))} | {len(pieces)} | {' '.join(links)} |")
    told = [
        f"# {text(one.paper)}\n",
        f"{_bar([name for _, name in found])}",
        legend(),
        _headlines(found, judged, known),
        "\n".join(lines) + "\n",
        f"The class is [{one.family}](../reference/{one.family}.md); every figure is on [its page of figures]"
        f"({one.family}_figures.md). Quotes are parts of the paper's sentences.\n",
        f"```console\n$ gradgate list --paper --family {one.family}\n$ gradgate verify --family {one.family}\n"
        f"$ gradgate paper --family {one.family} --kept\n```\n",
        _tree((*pages, f"{one.family}_figures")),
    ]
    return {one.family: "\n".join(told)} | pages


def _headlines(found: Sequence[tuple[Entry, str]], judged: Mapping[str, Judged], known: Mapping[str, Row]) -> str:
    """What the abstract promises, as a table: the words, whether they hold, and by what, at which settings.

    Sentences of the abstract that claim nothing of this paper, or that cannot be measured here, are left out.
    """
    told = ["## Headlines\n", "| the abstract says | result | judged by, at these settings |", "|---|---|---|"]
    for entry, name in found:
        if not entry.statement.place.startswith("Abstract") or name in ("note", "not measurable"):
            continue
        heading = STANDINGS[name][0]
        settings = [
            *(_in_words(row) for row in _printed_first(entry, known)),
            *dict.fromkeys(_promise(method, claim) for method, claim in entry.claims),
        ]
        lines = [text(words) for words in settings[:HEADLINES]]
        lines += [f"and {len(settings) - HEADLINES} more below"] if len(settings) > HEADLINES else []
        shown = "".join(f'<span class="line">{line}</span>' for line in lines)
        told.append(f"| “{text(entry.statement.words)}” | {_badge(heading, tone(name))} | {shown} |")
    return "\n".join(told) + "\n" if len(told) > 3 else ""


def _printed_first(entry: Entry, known: Mapping[str, Row]) -> list[Row]:
    """The measured figures of a statement, those with a printed number first."""
    rows = [known[row.key] for row in entry.rows if is_number(known.get(row.key, {}).get("ours"))]
    return sorted(rows, key=lambda row: row["printed"] is None)


def _in_words(row: Row) -> str:
    """A figure in a line: its settings, what is printed and measured, and the verdict if it is not upheld."""
    settings = ", ".join(str(part) for part in (row["place"], row["series"], row["x"]) if part != "")
    bound = next((f"{how} " for how in HOW if row["agreement"].startswith(how) and how != "equal"), "")
    printed = f"printed {bound}{row['printed']:.3g}, " if is_number(row["printed"]) else ""
    verdict = f" ({row['outcome']})" if row["outcome"] not in ("", "upheld") else ""
    return f"{settings}: {printed}here {row['ours']:.3g} {row['unit']}".rstrip() + verdict


def _promise(method: Method, claim: Claim) -> str:
    """A claim in a line: the method, its sentence, the settings that it is restricted to, and what is refuted."""
    where = ", ".join(f"{name} {value}" for name, value in claim.where.items())
    refuted = " (refuted)" if claim.expected == "refuted" else ""
    return f"{method.name}: {claim.statement}{f' ({where})' if where else ''}{refuted}"


def _statement(
    family: str, entry: Entry, judged: Mapping[str, Judged], known: Mapping[str, Row], places: Mapping[str, str]
) -> str:
    said = entry.statement
    told = [f"**{text(said.place)}**: “{text(said.words)}”\n"]
    if entry.claims:
        told += _claims(family, entry.claims)
    if rows := [known[row.key] for row in entry.rows if row.key in known]:
        told += _figures(family, entry, rows, judged, places)
    if said.reason:
        told.append(f"{sentence(said.reason.removeprefix(NOT_YET).removeprefix(NOTE))}\n")
    body = "\n".join(told)
    return f":::{{container}} statement {tone(standing(entry, judged))}\n\n{body}\n:::\n"


def _claims(family: str, claims: Sequence[tuple[Method, Claim]]) -> list[str]:
    """The claims of a statement, the refuted ones first, methods and frameworks together."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for method, claim in claims:
        key = (method.name, claim.name, claim.expected, claim.declared_reason)
        found.setdefault(key, []).append(method.framework)
    lines: list[str] = []
    upheld: dict[str, list[str]] = {}
    for (method_name, name, expected, reason), frameworks in found.items():
        if expected == "refuted":
            which = frameworks[0] if len(frameworks) == 1 else "*"
            command = f"gradgate verify --family {family} --method {method_name} --claim {name}"
            lines.append(f"- {badge('refuted')} `{method_name}:{which}:{name}`: {sentence(reason)}\n  `{command}`")
        else:
            upheld.setdefault(method_name, []).append(name)
    for method_name, names in upheld.items():
        unique = list(dict.fromkeys(names))
        shown = ", ".join(f"`{name}`" for name in unique[:INLINE])
        more = f" and {len(unique) - INLINE} more" if len(unique) > INLINE else ""
        only = f" --claim {unique[0]}" if len(unique) == 1 else ""
        command = f"gradgate verify --family {family} --method {method_name}{only}"
        lines.append(f"- {badge('upheld')} {method_name}: {shown}{more}\n  `{command}`")
    return ["\n".join(lines) + "\n"]


def _figures(
    family: str, entry: Entry, rows: Sequence[Row], judged: Mapping[str, Judged], places: Mapping[str, str]
) -> list[str]:
    """The figures of a statement: their verdict and a link, and a plot and a table if they are few."""
    place = rows[0]["place"]
    command = f"`gradgate paper --family {family} --place '{place}'`" if len({r["place"] for r in rows}) == 1 else ""
    verdict = entry.verdict(judged)
    printed = [row for row in rows if row["outcome"]]
    many = f"{len(rows)} {'figure' if len(rows) == 1 else 'figures'}, {verdict}"
    told = [f"[{text(many)}]({places[place]}.md#{anchor(family, place)}). {command}\n"]
    if 0 < len(printed) <= INLINE:
        told.append(table(printed))
        told.append(ratio_plot(printed))
        told += [f"{text(row['series'])}: {sentence(row['reason'])}\n" for row in _reasons(printed)]
    return told


def _reasons(rows: Iterable[Row]) -> list[Row]:
    """The rows with a reason, each reason once."""
    return list({row["reason"]: row for row in rows if row["reason"]}.values())


def figures(one: Ledger, rows: Sequence[Row]) -> dict[str, str]:
    """The pages of a paper's figures, name -> text; the first has the places in order and links to all."""
    places = _places(one, rows)
    pages: dict[str, list[str]] = {}
    for place, name in places.items():
        pages.setdefault(name, []).append(_place(one.family, place, rows))
    first = f"{one.family}_figures"
    made = {}
    for number, (name, pieces) in enumerate(pages.items(), 1):
        title = f"# Figures: {text(one.paper)}" + (f", part {number} of {len(pages)}" if len(pages) > 1 else "")
        lead = [
            f"{title}\n",
            "What the paper printed, and what was measured here. The statements that they belong to are on [the page "
            f"of the paper]({one.family}.md). A plot shows measured over printed: 1 is agreement.\n",
        ]
        if number == 1 and len(pages) > 1:
            links = [f"[{text(place)}]({file}.md#{anchor(one.family, place)})" for place, file in places.items()]
            summary = f"All {len(links)} places of the paper that have figures"
            opened = f'<details class="places"><summary>{summary}</summary>'
            lead += [raw(opened), *(f"- {link}" for link in links), "", raw("</details>")]
        further = [_tree([file for file in pages if file != first])] if number == 1 and len(pages) > 1 else []
        made[name] = "\n".join((*lead, *pieces, *further))
    return made or {first: f"# Figures: {text(one.paper)}\n\nNo figure of this paper is listed.\n"}


def _places(one: Ledger, rows: Sequence[Row]) -> dict[str, str]:
    """Place of a paper's figures -> the name of the page that has it."""
    names = list(dict.fromkeys(row["place"] for row in rows))
    pieces = {_place(one.family, name, rows): name for name in names}
    found: dict[str, str] = {}
    for number, part in enumerate(splitting.parts(list(pieces)), 1):
        file = f"{one.family}_figures" + (f"_{number}" if number > 1 else "")
        found |= {pieces[piece]: file for piece in part}
    return found


def _place(family: str, place: str, rows: Sequence[Row]) -> str:
    """The figures of one place of a paper: plots, numbers, and why they differ."""
    own = [row for row in rows if row["place"] == place]
    told = [f"({anchor(family, place)})=\n## {text(place)}\n"]
    dates = sorted({row["date"] for row in own if row["date"]})
    if dates:
        told.append(
            f"Measured {dates[0] if dates[0] == dates[-1] else f'{dates[0]} to {dates[-1]}'}. "
            f"`gradgate paper --family {family} --place '{place}'`\n"
        )
    told.append(ratio_plot([row for row in own if row["outcome"]]))
    told += [curve_plot(row) for row in own if isinstance(row["ours"], dict)]
    told.append(series_plot([row for row in own if not row["outcome"]], place))
    told.append(table([row for row in own if not isinstance(row["ours"], (dict, str))]))
    told += [f"{text(row['series'])}: {sentence(row['reason'])}\n" for row in _reasons(own)]
    return "\n".join(told)


def table(rows: Sequence[Row]) -> str:
    """Figures as a Markdown table: which, printed, measured, ratio, verdict; "" without rows."""
    if not rows:
        return ""
    lines = ["| figure | printed | measured | ratio | verdict |", "|---|---|---|---|---|"]
    for row in rows:
        which = f"{row['series']}, {row['x']}" if row["x"] != "" else row["series"]
        unit = f" {row['unit']}" if row["unit"] else ""
        numbers = [f"{value:.4g}{unit}" if is_number(value) else "" for value in (row["printed"], row["ours"])]
        ratio = f"{row['ratio']:.3g}" if is_number(row.get("ratio")) else ""
        verdict = badge(row["outcome"]) if row["outcome"] else ""
        lines.append(f"| {text(which)} | {text(numbers[0])} | {text(numbers[1])} | {ratio} | {verdict} |")
    return "\n".join(lines) + "\n"


def ratio_plot(rows: Sequence[Row], most: int = 24) -> str:
    """A plot of measured over printed, for the first `most` rows that have both; "" if there are none."""
    marks = []
    for row in rows:
        ratio = row.get("ratio")
        if ratio is not None and is_number(ratio) and ratio > 0:
            which = f"{row['series']}, {row['x']}" if row["x"] != "" else row["series"]
            said = f"printed {row['printed']:.4g}, measured {row['ours']:.4g} {row['unit']}: {row['outcome']}"
            marks.append(drawing.Mark(which, ratio, TONES.get(row["outcome"], "inapplicable"), said))
    if not marks:
        return ""
    return raw(drawing.ratios(marks[:most], "measured over printed; 1 is agreement"))


def curve_plot(row: Row) -> str:
    """The curves of one row, a dict of lists, of which the first is the axis; "" if there are none."""
    lists = {name: values for name, values in row["ours"].items() if isinstance(values, list)}
    if len(lists) < 2:
        return ""
    axis, *names = lists
    lines = {name: (lists[axis], lists[name]) for name in names}
    drawn = drawing.curves(lines, f"{row['series']}: {', '.join(names)} over {axis}")
    return f"{text(row['series'])}, {text(str(row['x']))}; across: {text(axis)}\n\n{raw(drawn)}" if drawn else ""


def series_plot(rows: Sequence[Row], place: str) -> str:
    """Numbers over a numeric x, a curve for each series of at least two points; "" if there are none."""
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        if is_number(row["x"]) and is_number(row["ours"]):
            xs, ys = lines.setdefault(row["series"], ([], []))
            xs.append(row["x"])
            ys.append(row["ours"])
    chosen = {name: line for name, line in lines.items() if len(line[0]) > 1}
    return raw(drawing.curves(chosen, f"{place}: {', '.join(chosen)}")) if chosen else ""


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def badge(verdict: str) -> str:
    """A verdict in its colour."""
    return _badge(verdict, TONES.get(verdict, "inapplicable"))


def _badge(words: str, colour: str) -> str:
    return f'<span class="badge {colour}">{html.escape(words)}</span>'


def raw(drawn: str) -> str:
    """HTML as a block of a Markdown page."""
    return f"```{{raw}} html\n{drawn}\n```\n" if drawn else ""


def anchor(family: str, place: str) -> str:
    """The link target of a place of a paper; different papers have different ones."""
    return f"{family.replace('_', '-')}-" + "-".join("".join(c if c.isalnum() else " " for c in place.lower()).split())


def sentence(words: str) -> str:
    """A reason as a sentence: a full stop, and a capital letter unless it begins with code."""
    words = words.strip()
    if not words:
        return ""
    first = words.partition(" ")[0]
    code = any(sign in "_=()[]." or sign.isdigit() for sign in first[:-1])
    start = words[0] if code else words[0].upper()
    return coded(f"{start}{words[1:]}{'' if words.endswith(('.', '!', '?')) else '.'}")


def coded(words: str) -> str:
    r"""Text as `text`, in which what stands between two backticks is code.

    >>> coded("`a_b` is a_b")
    '`a_b` is a\\_b'
    """
    parts = words.split("`")
    if len(parts) % 2 == 0:
        return text(words)
    return " ".join("".join(f"`{part}`" if place % 2 else escaped(part) for place, part in enumerate(parts)).split())


def escaped(words: str) -> str:
    r"""Text with all signs of Markdown escaped. Hyphens in a row are code: Sphinx would make a dash of them.

    >>> escaped("HBM_GPU, --+")
    'HBM\\_GPU, `--+`'
    """
    parts = HYPHENS.split(words)
    for sign in "\\`*_[]<>|$#{}~":
        parts[::2] = [part.replace(sign, f"\\{sign}") for part in parts[::2]]
    parts[1::2] = [f"`{part}`" for part in parts[1::2]]
    return "".join(parts)


def text(words: str) -> str:
    """Text on one line with all signs of Markdown escaped."""
    return " ".join(escaped(words).split())
