"""Merge the machines' results, publish the history, and build the dashboard: ``python asv_bench/publish.py``.

The pages are static: ``bytes.html`` with the newest figures, the report of ``nox -s verify`` if there is one, and asv's
grid, graphs, regressions and feed. ``nox -s site`` adds the guide. ``--preview`` serves all pages on this machine.
"""

import argparse
import functools
import http.server
import shutil
import subprocess
import sys
from pathlib import Path

import dashboard
import history
import local

from gradgate.references.contract import UsageError
from gradgate.suites.gate.git import Repository

HERE = Path(__file__).resolve().parent
RESULTS, HTML = HERE / ".asv" / "results", HERE / ".asv" / "html"


def main():
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


def publish(chosen):
    """Build the site."""
    Repository.around(HERE).need_whole_history()  # asv publishes a part of it with exit status 0
    history.unite(chosen.shards, RESULTS)
    points = history.check_and_record(RESULTS)
    ran = subprocess.run(
        [sys.executable, "-m", "asv", "publish", *filter(None, [chosen.commits])], cwd=HERE, check=False
    )
    if ran.returncode:
        return 2
    if not local.localize(HTML):
        print("publish: without npm, the page loads its scripts from other servers", file=sys.stderr)
    for name in ("history", "results", "report"):
        shutil.rmtree(chosen.site / name, ignore_errors=True)
    shutil.copytree(HTML, chosen.site / "history")
    shutil.copytree(RESULTS, chosen.site / "results")  # the next publication continues from these
    if (chosen.report / "index.html").exists():
        shutil.copytree(chosen.report, chosen.site / "report")
    written = dashboard.page(RESULTS, HTML, chosen.site / "report")
    guide = (chosen.site / "searchindex.js").exists()  # then nox -s site has made the first page
    for name in ("bytes.html",) if guide else ("bytes.html", "index.html"):
        (chosen.site / name).write_text(written, encoding="utf-8")
    total = sum(sum(benchmarks.values()) for benchmarks in points.values())
    print(f"published {total} points of {len(points)} machines: {chosen.site / 'bytes.html'}")
    return 0


def preview(chosen):
    """Serve the site until interrupted."""
    if not (chosen.site / "index.html").exists():
        raise UsageError(f"there is no {chosen.site / 'index.html'}: nox -s publish makes it")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=chosen.site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", chosen.port), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/  (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0


if __name__ == "__main__":
    sys.exit(main())
