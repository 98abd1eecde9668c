"""The index of the published site: the newest figures of every profile, with links to history, report and feed."""

import html
import json
from urllib.parse import quote

import history

BENCHMARK = "figures.Figures.track_temp_bytes"
STYLE = """
:root {
  color-scheme: light dark;
  --line: #d9dde3; --faint: #5c6570; --rise: #c8202f; --fall: #1a7f4b; --link: #0b57b0;
}
@media (prefers-color-scheme: dark) {
  :root { --line: #363d46; --faint: #9aa4b0; --rise: #ff7078; --fall: #4cc38a; --link: #7db4f5; }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
nav a { margin-right: 1.5rem; } a { color: var(--link); } .faint { color: var(--faint); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td a { text-decoration: none; }
.rise { color: var(--rise); } .fall { color: var(--fall); }
"""


def page(results, published, report):
    """The page as text.

    Args:
        results: folder of asv's results.
        published: folder that ``asv publish`` wrote, for the order of commits.
        report: folder of the report; if it has no index.html, the report is not linked.
    """
    order = {commit: int(place) for place, commit in _json(published / "index.json")["revision_to_hash"].items()}
    series = _series(results, order)
    machines = sorted({machine for row in series.values() for machine in row}, key=lambda m: (m != "cpu", m))
    regressions = len(_json(published / "regressions.json")["regressions"])
    links = ['<a href="index.html">Guide</a>', '<a href="history/index.html">History</a>']
    links += [f'<a href="history/index.html#/regressions">Regressions ({regressions})</a>']
    links += ['<a href="history/regressions.xml">Feed</a>']
    if (report / "index.html").exists():
        links.append('<a href="report/index.html">Verdicts</a>')
    head = "".join(f"<th>{html.escape(machine)}</th>" for machine in machines)
    rows = "".join(_row(method, series[method], machines) for method in sorted(series))
    commits = {commit for row in series.values() for points in row.values() for _, commit, _ in points}
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>gradgate</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        '<link rel="alternate" type="application/atom+xml" title="Regressions" href="history/regressions.xml">'
        f"<style>{STYLE}</style><h1>gradgate</h1><nav>{''.join(links)}</nav>"
        "<h2>Temporary bytes</h2>"
        f'<p class="faint">Newest of {len(commits)} commits, and the change against the commit measured before it. '
        "Exact, compiled for each profile; each figure opens its history.</p>"
        f'<div class="scroll"><table><thead><tr><th>method</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n'
    )


def _series(results, order):
    """Method -> machine -> [(place in history, commit, value)], oldest first."""
    found = {}
    for path in history.result_files(results):
        document = _json(path)
        row = document["results"].get(BENCHMARK)
        if not row or document["commit_hash"] not in order:
            continue
        columns = document["result_columns"]
        values, params = row[columns.index("result")] or [], row[columns.index("params")][0]
        for method, value in zip(params, values, strict=False):
            if value is not None and value == value:
                points = found.setdefault(method.strip("'"), {}).setdefault(path.parent.name, [])
                points.append((order[document["commit_hash"]], document["commit_hash"], value))
    return {method: {machine: sorted(points) for machine, points in row.items()} for method, row in found.items()}


def _row(method, row, machines):
    cells = "".join(_cell(method, machine, row.get(machine)) for machine in machines)
    return f"<tr><td>{html.escape(method)}</td>{cells}</tr>"


def _cell(method, machine, points):
    if not points:
        return '<td class="faint">–</td>'
    now, before = points[-1][2], points[-2][2] if len(points) > 1 else points[-1][2]
    address = f"history/index.html#{BENCHMARK}?machine={quote(machine)}&p-method={quote(repr(method))}"
    change = ""
    if now != before and before:
        kind = "rise" if now > before else "fall"
        change = f' <span class="{kind}">{100 * (now - before) / before:+.2f}%</span>'
    return f'<td><a href="{html.escape(address)}">{now:,.0f}</a>{change}</td>'


def _json(path):
    return json.loads(path.read_text(encoding="utf-8"))
