"""Merge the machines' results, publish the history, and build the dashboard: ``python asv_bench/publish.py``.

The pages are static: ``bytes.html``, which compares any two commits, a badge, the report of ``nox -s verify`` if there
is one, and asv's grid, graphs, regressions and feed. ``nox -s site`` adds the guide. ``--preview`` serves all pages on
this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import json
import shutil
import subprocess
import sys
from pathlib import Path

import dashboard
import history
import local
from asv.util import load_json

from gradgate.references.contract import UsageError
from gradgate.suites.gate.git import Repository

HERE = Path(__file__).resolve().parent
RESULTS, HTML = HERE / ".asv" / "results", HERE / ".asv" / "html"


def main() -> int:
    """Publish; the exit status: 0, 1 if the history would shrink, 2 if asv failed, 3 for wrong usage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shards", nargs="*", type=Path, help="results folders of other machines, which are merged")
    parser.add_argument("--site", type=Path, default=HERE.parent / "site", help="the folder to write (default: site/)")
    parser.add_argument("--report", type=Path, default=HERE.parent / "report", help="the report of nox -s verify")
    parser.add_argument("--commits", metavar="RANGE", help="publish only these commits")
    parser.add_argument("--preview", action="store_true", help="serve the pages that exist")
    parser.add_argument("--port", type=int, default=8765)
    chosen = parser.parse_args()
    try:
        return preview(chosen) if chosen.preview else publish(chosen)
    except history.ShrunkError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 1
    except UsageError as error:
        print(f"publish: {error}", file=sys.stderr)
        return 3


def publish(chosen: argparse.Namespace) -> int:
    """Build the site; the exit status as `main`."""
    Repository.around(HERE).need_whole_history()  # asv publishes a part of it with exit status 0
    history.unite(chosen.shards, RESULTS)
    points = history.check_and_record(RESULTS)
    command = [sys.executable, "-m", "asv", "publish", "--config", str(asv_configuration(HERE / ".asv"))]
    if subprocess.run([*command, *filter(None, [chosen.commits])], cwd=HERE, check=False).returncode:
        return 2
    if not local.localize(HTML):
        print("publish: without npm, the page loads its scripts from other servers", file=sys.stderr)
    for name in ("history", "results", "report"):
        shutil.rmtree(chosen.site / name, ignore_errors=True)
    shutil.copytree(HTML, chosen.site / "history")
    if (chosen.report / "index.html").exists():
        shutil.copytree(chosen.report, chosen.site / "report")
    rises = dashboard.write(RESULTS, chosen.site, HERE.parent)
    if not (chosen.site / "searchindex.js").exists():  # otherwise nox -s site has made the first page
        shutil.copy(chosen.site / "bytes.html", chosen.site / "index.html")
    total = sum(sum(benchmarks.values()) for benchmarks in points.values())
    print(f"published {total} points of {len(points)} machines: {chosen.site / 'bytes.html'}")
    print(acknowledged(rises))
    return 0


def acknowledged(rises: int) -> str:
    """What the last line says about the rises that nobody has acknowledged."""
    if not rises:
        return "every rise is acknowledged"
    return f"{rises} {'rise is' if rises == 1 else 'rises are'} not acknowledged"


def asv_configuration(folder: Path) -> Path:
    """Write a configuration for ``asv publish`` into a folder; returns its path.

    asv shows a tile for each benchmark in its list, also if there is no point, so the list is cut to those with points.
    The addresses of commits come from origin.
    """
    shown = folder / "shown"
    shutil.rmtree(shown, ignore_errors=True)
    shutil.copytree(RESULTS, shown, ignore=shutil.ignore_patterns(".git"))
    counted = history.count(shown)
    there = {name for benchmarks in counted.values() for name, points in benchmarks.items() if points} | {"version"}
    listed = json.loads((shown / "benchmarks.json").read_text(encoding="utf-8"))
    (shown / "benchmarks.json").write_text(json.dumps({name: listed[name] for name in listed if name in there}))
    settings = load_json(str(HERE / "asv.conf.json"), 1, js_comments=True)
    settings |= {"version": 1, "repo": str(HERE.parent), "plugins": [], "results_dir": str(shown)}
    settings |= {
        "html_dir": str(HTML),
        "benchmark_dir": str(HERE / "benchmarks"),
        "env_dir": str(HERE / ".asv" / "env"),
    }
    settings |= {"show_commit_url": dashboard.commit_link(HERE) or "#"}
    (folder / "publish.conf.json").write_text(json.dumps(settings))
    return folder / "publish.conf.json"


def preview(chosen: argparse.Namespace) -> int:
    """Serve the site until interrupted."""
    if not (chosen.site / "index.html").exists():
        raise UsageError(f"there is no {chosen.site / 'index.html'}: nox -s publish makes it")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=chosen.site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", chosen.port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
