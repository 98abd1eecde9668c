"""Publishing: results of machines are united, history only grows, a planted rise is a regression; in a real browser."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.tests.scratch import Scratch

ROOT = Path(__file__).resolve().parents[3]
ASV = ROOT / "asv_bench"
SHOTS = ROOT / "report" / "screenshots"
pytestmark = [
    pytest.mark.skipif(not ASV.exists(), reason="not a checkout"),
    pytest.mark.xdist_group("publication"),
]

METHODS = ["'f:one:jax'", "'f:two:jax'"]
NAME = "figures.Figures.track_temp_bytes"
COMMITS, PLANTED = 10, 6
COLUMNS = ["result", "params", "version", "started_at", "duration"]


def result(commit: str, place: int, machine: str, values: list[float | None]) -> dict[str, Any]:
    """A result file as asv writes it."""
    return {
        "commit_hash": commit, "env_name": "overlay-py3.11", "date": 1_700_000_000_000 + 60_000 * place,
        "params": {"machine": machine, "python": "3.11"}, "python": "3.11", "requirements": {}, "env_vars": {},
        "result_columns": COLUMNS, "results": {NAME: [values, [METHODS], "1", 1_700_000_000_000 + place, 0.1]},
        "durations": {}, "version": 2,
    }  # fmt: skip


def write_results(folder: Path, machine: str, commits: list[str]) -> None:
    """One point per commit, with a rise of 1% in the first method from PLANTED on."""
    (folder / machine).mkdir(parents=True)
    facts = {"machine": machine, "os": "", "arch": "", "cpu": "", "num_cpu": "", "ram": "", "version": 1}
    (folder / machine / "machine.json").write_text(json.dumps(facts))
    for place, commit in enumerate(commits):
        values = [101_000 if place >= PLANTED else 100_000, 50_000]
        path = folder / machine / f"{commit[:8]}-overlay-py3.11.json"
        path.write_text(json.dumps(result(commit, place, machine, values)))
    entry = {
        "name": NAME, "param_names": ["method"], "params": [METHODS], "unit": "bytes", "version": "1", "type": "track",
        "timeout": 60, "code": "",
    }  # fmt: skip
    (folder / "benchmarks.json").write_text(json.dumps({NAME: entry, "version": 2}))


class Site:
    """A scratch repository with ten commits, this repository's benchmark folder, and results of two profiles."""

    def __init__(self, folder: Path) -> None:
        self.repository = Scratch(folder / "repository")
        self.root = self.repository.root
        self.commits = [self.repository.commit({"count": f"{i}\n"}) for i in range(COMMITS)]
        shutil.copytree(ASV, self.root / "asv_bench", ignore=shutil.ignore_patterns(".asv", "__pycache__"))
        self.shards = [folder / "shards" / name for name in ("cpu", "nvidia-h100")]
        for shard in self.shards:
            write_results(shard, shard.name, self.commits)
        shutil.copytree(self.shards[0], self.results)

    @property
    def results(self) -> Path:
        """Where the published history is kept."""
        return self.root / "asv_bench" / ".asv" / "results"

    def publish(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the publication."""
        command = [sys.executable, str(self.root / "asv_bench" / "publish.py"), *map(str, arguments)]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site after one publication: results of the first profile were there before, those of the second are a shard."""
    pytest.importorskip("asv", reason="asv is not installed: pip install 'gradgate[asv]'")
    made = Site(tmp_path_factory.mktemp("site"))
    ran = made.publish(made.shards[1], "--report", _report(made.root / "report"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "published 40 points of 2 machines" in ran.stdout
    return made


def _report(folder: Path) -> Path:
    pytest.importorskip("plotly", reason="plotly is not installed: pip install 'gradgate[report]'")
    from gradgate.references import registry
    from gradgate.suites.judging.verdict import Task, Verdict
    from gradgate.suites.report import write

    method = registry.methods()[0]
    rows = [Verdict(Task.of(method, claim), "upheld", 5, 1e-15, 2e-15, "leaf").to_dict() for claim in method.claims[:3]]
    write({"schema": 1, "fingerprint": {}, "claims": 3, "verdicts": rows}, folder)
    return folder


def test_a_planted_rise_of_one_percent_is_a_regression_of_both_profiles(site: Site) -> None:
    found = json.loads((site.root / "site" / "history" / "regressions.json").read_text())["regressions"]
    assert {(row[0], row[2]["machine"]) for row in found} == {
        (f"{NAME}({METHODS[0]})", "cpu"), (f"{NAME}({METHODS[0]})", "nvidia-h100"),
    }  # fmt: skip
    assert all((row[4], row[5]) == (101_000, 100_000) for row in found)
    feed = (site.root / "site" / "history" / "regressions.xml").read_text()
    assert "1.00% " in feed
    assert site.commits[PLANTED] in feed


def test_the_index_shows_the_newest_figures_and_links_to_everything(site: Site) -> None:
    page = (site.root / "site" / "index.html").read_text()
    assert "101,000" in page
    for link in ("history/index.html#/regressions", "history/regressions.xml", "report/index.html"):
        assert link in page
    assert "Regressions (2)" in page


def test_the_guides_first_page_stays_and_the_figures_have_their_own(site: Site) -> None:
    folder = site.root / "site"
    first = (folder / "index.html").read_text()
    (folder / "index.html").write_text("the guide")
    (folder / "searchindex.js").write_text("")
    assert site.publish("--report", site.root / "report").returncode == 0
    assert (folder / "index.html").read_text() == "the guide"
    assert (folder / "bytes.html").read_text() == first
    (folder / "searchindex.js").unlink()
    (folder / "index.html").write_text(first)


def test_a_history_that_would_shrink_is_not_published(site: Site) -> None:
    [lost, *_] = sorted((site.results / "cpu").glob("*-overlay*.json"))
    kept = lost.read_text()
    lost.unlink()
    ran = site.publish()
    assert ran.returncode == 1
    assert "cpu: " in ran.stderr
    assert "had 20 points and has 18" in ran.stderr
    lost.write_text(kept)
    assert site.publish("--report", site.root / "report").returncode == 0


def test_a_shard_without_results_is_an_error(site: Site, tmp_path: Path) -> None:
    ran = site.publish(tmp_path)
    assert ran.returncode == 1
    assert "its job measured nothing" in ran.stderr


def test_a_shallow_clone_is_not_published(site: Site, tmp_path: Path) -> None:
    site.repository.git("clone", "--quiet", "--depth", "1", f"file://{site.root}", str(tmp_path / "shallow"))
    shutil.copytree(site.root / "asv_bench", tmp_path / "shallow" / "asv_bench", dirs_exist_ok=True)
    command = [sys.executable, str(tmp_path / "shallow" / "asv_bench" / "publish.py")]
    ran = subprocess.run(command, cwd=tmp_path / "shallow", capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 3
    assert "shallow" in ran.stderr


@pytest.fixture(scope="module")
def browser(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str, str], tuple[str, list[str]]]]:
    """Open a page of the site in Chromium; returns the DOM after the page's scripts ran, and the console's messages."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        pytest.skip("chromium is not installed")
    if not (site.root / "site" / "history" / "vendor").is_dir():
        pytest.skip("asv's scripts are not here: npm is missing, or cannot reach its registry")
    handler = functools.partial(_Quiet, directory=str(site.root / "site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    SHOTS.mkdir(parents=True, exist_ok=True)

    def open_page(path: str, shot: str) -> tuple[str, list[str]]:
        profile = tmp_path_factory.mktemp("chromium")
        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--window-size=1400,1000", "--virtual-time-budget=20000", "--enable-logging=stderr",
            f"--user-data-dir={profile}",
        ]  # fmt: skip
        address = f"http://127.0.0.1:{server.server_port}/{path}"
        runs = [
            subprocess.run([chromium, *flags, what, address], capture_output=True, text=True, timeout=180, check=False)
            for what in ("--dump-dom", f"--screenshot={SHOTS / shot}")
        ]
        assert (SHOTS / shot).stat().st_size > 5_000
        console = [line for line in runs[0].stderr.splitlines() if re.search(r":CONSOLE[:(]", line)]
        missing, _Quiet.missing = _Quiet.missing, []
        return runs[0].stdout, console + missing

    with server:
        yield open_page
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    missing: list[str] = []  # noqa: RUF012 - requests of the pages that failed; Chromium does not report them

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def send_error(self, code: int, *more: Any) -> None:
        _Quiet.missing.append(f"{code} {self.path}")
        super().send_error(code, *more)


@pytest.mark.parametrize(
    ("path", "shot", "said"),
    [
        ("index.html", "index.png", ["101,000", "Regressions (2)"]),
        ("history/index.html", "grid.png", ["track_temp_bytes", "benchmark-container"]),
        (
            f"history/index.html#{NAME}?machine=cpu&machine=nvidia-h100&p-method=%27f%3Aone%3Ajax%27", "graph.png",
            ["flot-base", "nvidia-h100", "cpu"],
        ),
        ("history/index.html#/regressions", "regressions.png", ["f:one:jax", "1.00", "nvidia-h100"]),
        ("report/index.html", "report.png", ["backprop", "plotly", "<svg"]),
    ],
)  # fmt: skip
def test_a_browser_shows_it_without_complaint(browser: Any, path: str, shot: str, said: list[str]) -> None:
    dom, console = browser(path, shot)
    assert console == []
    for text in said:
        assert text in dom, f"{text!r} is not on the page"


def test_a_script_that_fails_or_is_missing_is_a_complaint(browser: Any, site: Site) -> None:
    page = '<script src="nowhere.js"></script><script>undefined_function()</script>' + "x" * 200
    (site.root / "site" / "broken.html").write_text(page)
    _, console = browser("broken.html", "broken.png")
    assert any("undefined_function" in line for line in console)
    assert any("404" in line for line in console)
