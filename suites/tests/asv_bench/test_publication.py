"""Publishing: results of machines are united, history only grows, a planted rise is a regression; in a real browser."""

from __future__ import annotations

import datetime
import functools
import http.server
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradgate.suites.site import browser as in_browser
from gradgate.suites.tests.scratch import Scratch

ROOT = Path(__file__).resolve().parents[3]
ASV = ROOT / "asv_bench"
SHOTS = ROOT / "report" / "screenshots"
pytestmark = [
    pytest.mark.skipif(not ASV.exists(), reason="not a checkout"),
    pytest.mark.xdist_group("publication"),
]

METHODS = ["'f:one:jax~ab12'", "'f:two:torch~cd34'", "'g:three:jax~ef56'"]
NAME = "figures.Figures.track_temp_bytes"
COMMITS, PLANTED = 10, 6
COLUMNS = ["result", "params", "version", "started_at", "duration"]
ALLOWED = 3
"""The commit at which the third method's rise is allowed, and the one at which a first rise comes and goes."""
ALLOWANCE = """[[allow]]
cell = "g:three:jax@{profile}"
quantity = "temp_bytes"
ceiling = 80_000
reason = "keeps the norm's denominator <b>for</b> 20% less work"
expires = 2999-03-31
"""


def figures_at(place: int) -> dict[str, list[float | None]]:
    """Benchmark -> values of the methods at a commit.

    The first method rises by 1% at PLANTED. The second one rises at 2 and falls at 4 and 8, below where it was. The
    third one rises at ALLOWED, and fails at 5.
    """
    second = 50_000 if place < 2 else 60_000 if place < 4 else 50_000 if place < 8 else 40_000
    third = None if place == 5 else 70_000 if place < ALLOWED else 80_000
    return {
        NAME: [101_000 if place >= PLANTED else 100_000, second, third],
        "figures.Figures.track_flops": [7_000, 8_000, 9_000],
    }


def result(commit: str, place: int, machine: str) -> dict[str, Any]:
    """A result file as asv writes it."""
    rows = {
        name: [values, [METHODS], "1", 1_700_000_000_000 + place, 0.1] for name, values in figures_at(place).items()
    }
    return {
        "commit_hash": commit,
        "env_name": "overlay-py3.11",
        "date": 1_700_000_000_000 + 60_000 * place,
        "params": {"machine": machine, "python": "3.11"},
        "python": "3.11",
        "requirements": {},
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": rows,
        "durations": {},
        "version": 2,
    }


def write_results(folder: Path, machine: str, commits: list[str]) -> None:
    """One point per commit; nvidia-h100 lacks the fifth one. A benchmark without points is listed too."""
    (folder / machine).mkdir(parents=True)
    facts = {"machine": machine, "os": "", "arch": "", "cpu": "", "num_cpu": "", "ram": "", "version": 1}
    (folder / machine / "machine.json").write_text(json.dumps(facts))
    for place, commit in enumerate(commits):
        if (machine, place) != ("nvidia-h100", 4):
            path = folder / machine / f"{commit[:8]}-overlay-py3.11.json"
            path.write_text(json.dumps(result(commit, place, machine)))
    entry = {
        "param_names": ["method"],
        "params": [METHODS],
        "unit": "bytes",
        "version": "1",
        "type": "track",
        "timeout": 60,
        "code": "",
    }
    arrays = {METHODS[0].strip("'"): "f32[10,32,64] 81,920 bytes (fusion.2)"}
    load("history")._write_alive(folder / machine, {commits[PLANTED]: arrays})
    names = [*figures_at(0), "figures.Figures.track_nothing"]
    (folder / "benchmarks.json").write_text(json.dumps({**{n: {"name": n, **entry} for n in names}, "version": 2}))


def verdicts_at(place: int) -> dict[str, Any]:
    """A verdicts.json; at the newest commit, one claim is not as declared."""
    row = {"family": "f", "method": "one", "framework": "jax"}
    rows = [{**row, "as_expected": place < COMMITS - 1, "digits": 41}, {**row, "as_expected": True, "lost": 0.2}]
    return {"verdicts": rows}


def load(name: str) -> Any:
    """A module of the benchmark folder."""
    import importlib

    sys.path.insert(0, str(ASV))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ASV))


class Site:
    """A scratch repository with ten commits, this repository's benchmark folder, and results of two profiles."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.repository = Scratch(folder / "repository")
        self.root = self.repository.root
        allowance = "".join(ALLOWANCE.format(profile=profile) for profile in ("cpu", "nvidia-h100"))
        self.commits = []
        for place in range(COMMITS):
            files = {"count": f"{place}\n"}
            files |= {"asv_bench/allow.toml": allowance if place == ALLOWED else ""} if place >= ALLOWED else {}
            self.commits.append(self.repository.commit(files))
        self.repository.git("remote", "add", "origin", "git@github.com:someone/something.git")
        (self.root / "asv_bench" / "allow.toml").unlink()
        shutil.copytree(
            ASV, self.root / "asv_bench", ignore=shutil.ignore_patterns(".asv", "__pycache__"), dirs_exist_ok=True
        )
        self.shards = [folder / "shards" / name for name in ("cpu", "nvidia-h100")]
        for shard in self.shards:
            write_results(shard, shard.name, self.commits)
        shutil.copytree(self.shards[0], self.results)
        history = load("history")
        for place in (COMMITS - 2, COMMITS - 1):
            shard = folder / "shards" / f"verdicts-{place}"
            history.write_verdicts(verdicts_at(place), self.commits[place], 1_700_000_000_000 + 60_000 * place, shard)
            self.shards.append(shard)

    @property
    def results(self) -> Path:
        """Where the published history is kept."""
        return self.root / "asv_bench" / ".asv" / "results"

    def publish(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the publication."""
        command = [sys.executable, str(self.root / "asv_bench" / "publish.py"), *map(str, arguments)]
        environment = {**os.environ, "HOME": str(self.home)}
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=240, check=False
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site after one publication: results of the first profile were there before, those of the second are a shard."""
    pytest.importorskip("asv", reason="asv is not installed: pip install 'gradgate[asv]'")
    made = Site(tmp_path_factory.mktemp("site"))
    ran = made.publish(*made.shards[1:], "--report", _report(made.root / "report"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "published 118 points of 3 machines" in ran.stdout
    assert "3 rises are not acknowledged" in ran.stdout
    return made


def test_one_rise_is_one() -> None:
    pytest.importorskip("asv", reason="asv is not installed: pip install 'gradgate[asv]'")
    said = [load("publish").acknowledged(rises) for rises in (0, 1, 2)]
    assert said == ["every rise is acknowledged", "1 rise is not acknowledged", "2 rises are not acknowledged"]


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
    of_first = [row for row in found if row[0] == f"{NAME}({METHODS[0]})"]
    assert {row[2]["machine"] for row in of_first} == {"cpu", "nvidia-h100"}
    assert all((row[4], row[5]) == (101_000, 100_000) for row in of_first)
    feed = (site.root / "site" / "history" / "regressions.xml").read_text()
    assert "1.00% " in feed
    assert f"https://github.com/someone/something/commit/{site.commits[PLANTED]}" in feed.replace("../compare/", "")


def test_a_publication_writes_nothing_into_the_home_folder(site: Site) -> None:
    assert {path.name for path in site.home.iterdir()} <= {".cache"}


def test_a_benchmark_without_points_has_no_tile(site: Site) -> None:
    listed = json.loads((site.root / "site" / "history" / "index.json").read_text())["benchmarks"]
    assert set(listed) == {*figures_at(0), *load("history").OF_VERDICTS}
    for name in listed:
        assert (site.root / "site" / "history" / "graphs" / "summary" / f"{name}.json").is_file()


def changes_of(site: Site, method: str, quantity: str = "temp_bytes") -> list[dict[str, Any]]:
    """The changes of a method on the page's data, with the profile of each."""
    data = json.loads((site.root / "site" / "dashboard" / "figures.json").read_text())
    rows = data["series"]
    return [
        {**change, "p": rows[change["s"]]["p"]}
        for change in data["changes"]
        if (rows[change["s"]]["m"], rows[change["s"]]["q"]) == (method, quantity)
    ]


def test_a_rise_is_open_until_it_is_acknowledged_or_undone(site: Site) -> None:
    assert [(c["p"], c["at"], c["state"]) for c in changes_of(site, "one")] == [
        ("cpu", PLANTED, "open"),
        ("nvidia-h100", PLANTED, "open"),
    ]
    assert {c["alive"] for c in changes_of(site, "one")} == {"f32[10,32,64] 81,920 bytes (fusion.2)"}
    assert not any("alive" in c for c in changes_of(site, "two"))
    assert [(c["at"], c["state"]) for c in changes_of(site, "two") if c["p"] == "cpu"] == [
        (2, "undone"),
        (4, "better"),
        (8, "better"),
    ]
    for change in changes_of(site, "three"):
        assert (change["at"], change["state"]) == (ALLOWED, "acknowledged")
        assert change["reason"] == "keeps the norm's denominator <b>for</b> 20% less work"
        assert change["by"] == site.commits[ALLOWED], "the entry was removed later; its reason stays"
    [wrong] = changes_of(site, "one", "verdicts")
    assert (wrong["at"], wrong["new"], wrong["state"]) == (COMMITS - 1, 1, "open")


def test_a_commit_that_was_not_measured_is_not_taken_for_equal(site: Site) -> None:
    data = json.loads((site.root / "site" / "dashboard" / "figures.json").read_text())
    assert data["measured"]["cpu"] == list(range(COMMITS))
    assert data["measured"]["nvidia-h100"] == [place for place in range(COMMITS) if place != 4]
    [fall] = [c for c in changes_of(site, "two") if c["p"] == "nvidia-h100" and c["at"] == 5]
    assert fall["from"] == 3
    [third] = [row for row in data["series"] if (row["m"], row["p"], row["q"]) == ("three", "cpu", "temp_bytes")]
    assert third["v"] == [[0, 70_000], [3, 80_000], [5, None], [6, 80_000]]


@pytest.mark.parametrize(
    ("day", "since", "until", "ceiling", "found"),
    [
        ("2026-01-01", 3, math.inf, 80, True),
        ("2026-01-01", 3, math.inf, 79, False),  # above the ceiling
        ("2026-01-01", 9, 12, 80, True),  # written after the rise, and removed since
        ("2026-01-01", 3, 5, 80, False),  # removed before the rise
        ("2027-01-01", 3, math.inf, 80, False),  # expired before the rise
        ("2027-01-01", 9, math.inf, 80, True),  # written after it
    ],
)
def test_an_entry_acknowledges_a_rise_below_its_ceiling(
    day: str, since: int, until: float, ceiling: int, found: bool
) -> None:
    pytest.importorskip("asv", reason="asv is not installed: pip install 'gradgate[asv]'")
    from gradgate.suites.gate.allow import Entry

    entry = Entry("f:m:jax@cpu", "flops", ceiling, "why", datetime.date(2026, 6, 1))
    known = load("dashboard").Allowed(entry, "abc", since, until)
    asked = (6, datetime.date.fromisoformat(day))
    assert known.acknowledges(*asked, "f:m:jax@cpu", "flops", 80) == found
    assert not known.acknowledges(*asked, "f:m:jax@tpu-v5p", "flops", 80)
    assert not known.acknowledges(*asked, "f:m:jax@cpu", "temp_bytes", 80)


@pytest.mark.parametrize(
    ("origin", "link"),
    [
        ("git@github.com:a/b.git", "https://github.com/a/b/commit/"),
        ("https://token@example.org/a/b-c.d", "https://example.org/a/b-c.d/commit/"),
        ("/srv/git/b.git", ""),
    ],
)
def test_commits_are_linked_to_if_origin_is_a_server(origin: str, link: str, tmp_path: Path) -> None:
    pytest.importorskip("asv", reason="asv is not installed: pip install 'gradgate[asv]'")
    repository = Scratch(tmp_path / "r")
    assert load("dashboard").commit_link(repository.root) == ""
    repository.git("remote", "add", "origin", origin)
    assert load("dashboard").commit_link(repository.root) == link


def test_the_page_links_to_everything_and_the_badge_says_how_it_stands(site: Site) -> None:
    page = (site.root / "site" / "index.html").read_text()
    for link in ("history/index.html", "history/regressions.xml", "report/index.html"):
        assert f'href="{link}"' in page
    said = f"At {site.commits[-1][:8]} of "
    assert said in page
    assert "the claims of 1 method were judged: 1 is not as declared." in page
    assert json.loads((site.root / "site" / "badge.json").read_text())["message"] == "1 not as declared"
    assert "1 not as declared" in (site.root / "site" / "badge.svg").read_text()
    assert "{{" not in page


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
    assert "had 30 points and has 27" in ran.stderr
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
    chromium = in_browser.chromium()
    if chromium is None:
        pytest.skip("chromium is not installed, and CHROMIUM names none")
    if not (site.root / "site" / "history" / "vendor").is_dir():
        pytest.skip("asv's scripts are not here: npm is missing, or cannot reach its registry")
    handler = functools.partial(_Quiet, directory=str(site.root / "site"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    SHOTS.mkdir(parents=True, exist_ok=True)

    def open_page(path: str, shot: str) -> tuple[str, list[str]]:
        profile = tmp_path_factory.mktemp("chromium")
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--window-size=1400,1000",
            "--virtual-time-budget=20000",
            "--enable-logging=stderr",
            f"--user-data-dir={profile}",
        ]
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
        ("index.html", "index.png", ["101,000", "+1.00%", "2 acknowledged, 2 taken back"]),
        ("history/index.html", "grid.png", ["track_temp_bytes", "benchmark-container"]),
        (
            f"history/index.html#{NAME}?machine=cpu&machine=nvidia-h100&p-method=%27f%3Aone%3Ajax~ab12%27",
            "graph.png",
            ["flot-base", "nvidia-h100", "cpu"],
        ),
        ("history/index.html#/regressions", "regressions.png", ["f:one:jax", "1.00", "nvidia-h100"]),
        ("report/index.html", "report.png", ["backprop", "plotly", "<svg"]),
    ],
)
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


CHOOSE = """(() => {{ for (const [name, value] of Object.entries({chosen})) {{
    const field = document.getElementById("choice").elements[name];
    if (field.type === "checkbox") field.checked = value; else field.value = value;
  }}
  document.getElementById("choice").dispatchEvent(new Event("input", {{bubbles: true}}));
  return [document.getElementById("summary").textContent,
          [...document.querySelectorAll("#rows tbody tr")].map((row) => row.innerText.replace(/\\s+/g, " ").trim()),
          location.search];
}})()"""
LAYOUT = """(() => {
  const table = document.querySelector("#rows table"), cells = table.querySelector("tbody tr").cells;
  const align = (cell) => getComputedStyle(cell).textAlign, fields = document.getElementById("choice").elements;
  return [[...table.tHead.rows[0].cells].map((head, place) => [align(head), align(cells[place])]),
          fields.base.offsetWidth > 1.5 * fields.class.offsetWidth];
})()"""
OPEN = """[...document.querySelectorAll("#open tbody tr")].map((row) => row.innerText.replace(/\\s+/g, " ").trim())"""


@pytest.mark.parametrize("width", [400, 1200])
def test_any_two_commits_are_compared_and_filtered_and_a_rise_is_acknowledged(site: Site, width: int) -> None:
    pytest.importorskip("tornado")
    if in_browser.chromium() is None:
        pytest.skip("chromium is not installed, and CHROMIUM names none")
    first, allowed, newest = (site.commits[place][:8] for place in (0, ALLOWED, COMMITS - 1))
    turned = {"base": newest, "head": allowed, "framework": "", "method": "", "class": "g"}
    acknowledge = """(() => {
      [...document.querySelectorAll("#open button")][0].click();
      const form = document.querySelector("dialog form");
      form.elements.reason.value = 'it is "worth" it'; form.elements.expires.value = "2999-01-31";
      form.dispatchEvent(new Event("input"));
      return [document.querySelector("dialog").open, document.getElementById("lines").textContent,
              document.getElementById("edit").href];
    })()"""
    scripts = [
        OPEN,
        CHOOSE.format(chosen=json.dumps({"base": first, "head": newest})),
        LAYOUT,
        CHOOSE.format(chosen=json.dumps({"profile": "cpu", "class": "f"})),
        CHOOSE.format(chosen=json.dumps({"framework": "torch", "method": "tw", "quantity": "temp_bytes"})),
        CHOOSE.format(chosen=json.dumps(turned)),
        CHOOSE.format(chosen=json.dumps({"all": True, "quantity": ""})),
        acknowledge,
        f"document.querySelector('dialog [name=hide]').click() || {OPEN}",
        f"[...document.querySelectorAll('#open p button')][0].click() || {OPEN}",
        CHOOSE.format(chosen=json.dumps({"base": first, "head": site.commits[4][:8], "profile": "nvidia-h100"})),
        "document.getElementById('badge').textContent",
        "document.documentElement.scrollWidth",
    ]
    opened, whole, layout, of_cpu, one, back, equal, dialog, hidden, again, lacking, badge, wide, complaints = (
        in_browser.on_page(site.root / "site", "bytes.html", scripts, width, SHOTS / "dashboard")
    )
    assert complaints == []
    assert wide <= width
    assert len(opened) == 3
    assert "from 0" in opened[0], "the worst one is first"
    assert whole[0] == "4 worse, 2 better, 6 equal. Not measured: verdicts at " + first + "."
    assert ["three" in row for row in whole[1]] == [True, True] + 7 * [False]
    assert "allowed: keeps the norm's denominator <b>for</b> 20% less work" in whole[1][0]
    assert site.commits[ALLOWED][:8] in whole[1][0]
    [falling, *_] = [row for row in whole[1] if row.startswith("two")]
    assert "50,000 → 60,000" in falling, "each step of several has its figures"
    assert sum("(1 commit before it was not measured)" in row for row in whole[1]) == 1
    assert layout[1], "a commit has room for its date and subject"
    if width == 1200:  # on a narrow screen each cell has its own name
        assert all(head == cell for head, cell in layout[0]), "the name of a column stands above its numbers"
    assert of_cpu[0].startswith("1 worse, 1 better, 2 equal.")
    assert of_cpu[2] == f"?base={first}&head={newest}&class=f&profile=cpu"
    assert len(one[1]) == 1
    assert "50,000 40,000 -20.00%" in one[1][0].replace("base ", "").replace("head ", "").replace("change ", "")
    assert back[0].startswith("0 worse, 0 better, 1 equal.")
    assert (back[1], len(equal[1])) == ([], 2)
    assert dialog[0]
    assert tomllib.loads(dialog[1])["allow"] == [
        {
            "cell": "f:one:jax@cpu",
            "quantity": "temp_bytes",
            "ceiling": 101_000,
            "reason": 'it is "worth" it',
            "expires": datetime.date(2999, 1, 31),
        }
    ]
    assert dialog[2] == "https://github.com/someone/something/edit/main/asv_bench/allow.toml"
    assert (len(hidden), len(again)) == (2, 3)
    assert re.fullmatch(r"\[!\[claims\]\(http://\S+/badge.svg\)\]\(http://\S+/bytes.html\)", badge)
    assert f"nvidia-h100 at {site.commits[4][:8]}" in lacking[0]
