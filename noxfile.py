"""The sessions. All of them share one environment, so that the heavy packages are installed once.

``nox -s verify`` is the main job; ``nox -s lint types wheel tests`` is what CI runs. ``nox -l`` lists the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["verify"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
GROUPS = nox.project.dependency_groups(PROJECT, "history", "test", "lint", "build", "site")
EXTRAS = "jax,torch,triton,cuda,tpu,report,dask,asv"
JUDGED = {"jax": "cross_entropy.py", "torch": "rms_norm.py"}
"""Framework -> the example that is judged with the oldest and the newest supported version."""
SHARED = ROOT / ".nox" / "shared"
INSTALL = ("-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-compile")
"""Of the 19,000 files of all packages, most are never imported; Python compiles the others when they are."""


def shared(session: nox.Session) -> Path:
    """The one environment's interpreter, made or brought up to date if the declared dependencies have changed.

    Cost: minutes and a few GB the first time, nothing after that.
    """
    python = SHARED / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    tables = [PROJECT[name] for name in ("build-system", "project", "dependency-groups")]  # no settings of linters
    declared = json.dumps(tables) + (ROOT / "setup.py").read_text()
    wanted = hashlib.sha256((declared + EXTRAS).encode()).hexdigest()
    stamp = SHARED / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        session.run(sys.executable, "-m", "venv", "--clear", str(SHARED), external=True)
        pip = (str(python), *INSTALL)
        # PyTorch is installed first and alone, with its version pinned and no index named: if pip's configured index
        # offers a build without CUDA, that build is used.
        torch = [pin for pin in GROUPS if pin.startswith("torch==")]
        session.run(*pip, "setuptools>=80", "wheel", *torch, external=True)
        session.run(*pip, "--editable", f"{ROOT}[{EXTRAS}]", *GROUPS, external=True)
        stamp.write_text(wanted)
    return python


def run(session: nox.Session, *command: str, **options: object) -> None:
    """Run ``python -m …`` in the shared environment."""
    session.run(str(shared(session)), "-m", *command, external=True, **options)  # type: ignore[arg-type]


@nox.session(venv_backend="none")
def verify(session: nox.Session) -> None:
    """Judge every claim of every reference; writes report/index.html, report/verdicts.json and report/junit.xml."""
    run(session, "gradgate.suites.cli", "verify", "--report", "report", *session.posargs)


BESIDE = ("-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder", "--durations", "40", "--durations-min", "5")
"""Two tests at once, those that share programs on one of two processes, in the order of `tests/conftest.py`."""
METHODS = "reverse_recurrence or slim: or moonwalk: or mixflow: or precise_dp"
"""One method of each class, whose claims are judged through the pytest plugin, as a part of the nightly tests."""
AT_A_PUSH = (
    "(reverse_recurrence:jax or slim:torch or moonwalk:torch or mixflow:torch or precise_dp:jax) and not stability"
)
"""Of these methods, what a push judges: each in one framework, and not their stability, the most expensive claim."""


def first_part(words: list[str]) -> bool:
    """Whether a session runs its tests whole, or the first of its parts, which does what is not divided."""
    return "--part" not in words or words[words.index("--part") + 1].startswith("1/")


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """What a push has to pass: the project's own tests, and every claim of one method of each class on few problems.

    Left out are expensive tests (suites/tests/nightly.toml), which ``nox -s nightly`` runs, and the claims of all other
    methods, which ``nox -s verify`` judges. ``-- --part I/N`` runs one of N parts; other words are pytest's own.
    """
    if session.posargs and session.posargs[0] != "--part":
        run(session, "pytest", *BESIDE, *session.posargs)
        return
    run(session, "pytest", *BESIDE, "-m", "not nightly", *session.posargs, "suites/tests")
    if first_part(session.posargs):
        run(session, "pytest", "-q", *BESIDE, "suites/test_methods.py", "--examples", "12", "-k", AT_A_PUSH)


@nox.session(venv_backend="none")
def nightly(session: nox.Session) -> None:
    """All of the project's own tests: ``nox -s nightly [-- --part I/N]``. Cost: two hours of one core.

    ``-- --since REV`` runs what a push leaves out in the folders that have changed; there may be nothing.
    """
    since = "--since" in session.posargs
    report = ("--junitxml", "report/nightly.xml")
    nothing = [5] if since else []
    run(session, "pytest", *BESIDE, *report, *session.posargs, "suites/tests", success_codes=[0, *nothing])
    if not since and first_part(session.posargs):
        run(session, "pytest", "-q", *BESIDE, "suites/test_methods.py", "--examples", "12", "-k", METHODS)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style, formatting, what the workflows let a stranger do, and the order of imports."""
    run(session, "ruff", "check", ".")
    run(session, "ruff", "format", "--check", ".")
    zizmor = shared(session).parent / "zizmor"
    workflows = (".github/workflows", ".github/dependabot.yml", "action.yml")
    session.run(str(zizmor), "--offline", "--quiet", *workflows, external=True)
    run(session, "gradgate.suites.tests.import_rules")


@nox.session(venv_backend="none")
def types(session: nox.Session) -> None:
    """Static types of the package as it is installed, and of the rooms that only a checkout has."""
    with tempfile.TemporaryDirectory() as folder:
        linked = (
            f"from pathlib import Path; from gradgate.suites.tests.import_rules import link; link(Path({folder!r}))"
        )
        session.run(str(shared(session)), "-c", linked, external=True)
        session.chdir(folder)
        config = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
        places = [
            "--namespace-packages",
            "--explicit-package-bases",
            "--exclude",
            "suites/(tests|gallery/findings)/",
            "gradgate",
        ]
        run(session, "mypy", *config, *places)
        session.chdir(ROOT)


@nox.session(venv_backend="none")
def wheel(session: nox.Session) -> None:
    """Build the wheel and the source distribution into dist/; what setuptools says is shown if it fails."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    run(session, "build", "--no-isolation", "--outdir", "dist", silent=True)


@nox.session(venv_backend="none")
def calibrate(session: nox.Session) -> None:
    """Measure the rules on 4,000 problems of every class: false alarms, and the smallest planted error that is seen.

    It takes hours on two cores, resumes where it was stopped, and writes suites/report/calibration.json.
    """
    keep = ["--json", "report/calibration.json", "--summary", "suites/report/calibration.json"]
    run(session, "gradgate.suites.cli", "calibrate", *(session.posargs or keep))


@nox.session(venv_backend="none")
def repeat(session: nox.Session) -> None:
    """Judge the claims that draw problems under seeds 1 to 20: no verdict may depend on the seed. Resumes.

    ``nox -s repeat -- 20``.
    """
    run(session, "gradgate.suites.cli", "repeat", "--json", "report/repeat.json", *session.posargs)


@nox.session(venv_backend="none")
def selftest(session: nox.Session) -> None:
    """Put the suite on trial: every broken method must be refuted. Resumes; ``-- --tools`` compares other tools."""
    keep = ["--json", "report/selftest.json", "--report", "report"]
    run(session, "gradgate.suites.cli", "selftest", *keep, *session.posargs)


@nox.session(venv_backend="none")
def trial(session: nox.Session) -> None:
    """What is due of gradgate's own trial, in 40 minutes; goes on where the last run stopped: ``-- --minutes 10``."""
    run(session, "gradgate.suites.trial", *session.posargs)


@nox.session(venv_backend="none")
def gate(session: nox.Session) -> None:
    """Compare HEAD with its base, exactly: ``nox -s gate -- --base origin/main``."""
    run(session, "gradgate.suites.cli", "gate", *session.posargs)


@nox.session(venv_backend="none")
def toolchain(session: nox.Session) -> None:
    """Compare two toolchains on the same code: the one that a base pins in its pyproject.toml, and the current one.

    ``nox -s toolchain -- origin/main``. Cost: another environment of a few GB, made again each time.
    """
    base = session.posargs[0] if session.posargs else "origin/main"
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder) / "python"
        session.run(sys.executable, "-m", "venv", str(old), external=True)
        python = old / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        tree = Path(folder) / "tree"
        session.run("git", "worktree", "add", "--detach", "--quiet", str(tree), base, external=True)
        try:
            pins = _pins(nox.project.load_toml(tree / "pyproject.toml"))
            pip = (str(python), *INSTALL)
            session.run(*pip, *(pin for pin in pins if pin.startswith("torch==")), external=True)
            session.run(*pip, f"{tree}[{EXTRAS}]", *pins, external=True)
        finally:
            session.run("git", "worktree", "remove", "--force", str(tree), external=True)
        run(
            session, "gradgate.suites.cli", "gate", "--base", "HEAD", "--base-python", str(python), *session.posargs[1:]
        )


def _pins(project: dict[str, Any]) -> list[str]:
    """The pins of a pyproject.toml that decide bytes: in its group ``history``, or in its extras if it is older."""
    if "history" in project.get("dependency-groups", {}):
        return list(nox.project.dependency_groups(project, "history"))
    extras = project["project"]["optional-dependencies"]
    return [pin for name in ("jax", "torch", "tpu", "cuda") for pin in extras[name] if "==" in pin]


@nox.session(venv_backend="none")
def ends(session: nox.Session) -> None:
    """Judge pairs with the oldest and the newest JAX and PyTorch that the extras allow: ``nox -s ends -- jax``.

    The newest is that for this Python; JAX 0.11 needs 3.12. Each version has a separate environment. Cost: a few GB and
    minutes for each.
    """
    for name in session.posargs or ["jax", "torch"]:
        low, high = PROJECT["project"]["optional-dependencies"][name][0].removeprefix(name).split(",")
        for pin in (f"{name}=={low.removeprefix('>=')}.*", f"{name}{high}"):
            with tempfile.TemporaryDirectory() as folder:
                session.run(sys.executable, "-m", "venv", folder, external=True)
                python = Path(folder) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
                pip = (str(python), *INSTALL)
                session.run(*pip, pin, f"{ROOT}[{name}]", external=True)
                example = str(ROOT / "suites" / "guide" / "examples" / JUDGED[name])
                session.run(str(python), "-m", "gradgate.suites.cli", "verify", example, external=True)


@nox.session(venv_backend="none")
def releases(session: nox.Session) -> None:
    """Measure the methods under releases of JAX or PyTorch: ``nox -s releases -- jax 0.8.3 0.9.2 0.10.2``. Resumes.

    Each release has an environment in .nox/releases. ``-- known`` runs the known regressions. Cost: 1.4 GB and about 10
    minutes of a core for each release of JAX, half of this for each release of PyTorch.
    """
    run(session, "gradgate.suites.releases", *session.posargs)


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Benchmark commits per profile: ``nox -s bench -- --profiles cpu,nvidia-h100 --commits main~5..main --full``.

    ``nox -s bench -- --missing`` measures the commits that a profile lacks. ``nox -s history`` fetches what is kept.
    """
    _asv(session, "bench.py", *session.posargs)


@nox.session(venv_backend="none")
def history(session: nox.Session) -> None:
    """Fetch the results on the branch benchmark-history, or add one's own: ``nox -s history [-- keep]``."""
    _asv(session, "branch.py", *(session.posargs or ["fetch"]))


@nox.session(venv_backend="none")
def gallery(session: nox.Session) -> None:
    """Judge public libraries, each in its own environment: ``nox -s gallery [-- NAME… --shard I/N]``. Resumes.

    The rows are written to report/gallery; ``--keep`` also puts them into suites/gallery/results.json, from which ``nox
    -s site`` makes pages. Cost: about an hour on two cores; a library that has not changed takes seconds.
    """
    run(session, "gradgate.suites.gallery.run", *session.posargs)


@nox.session(venv_backend="none")
def newer(session: nox.Session) -> None:
    """Look for newer versions of the gallery's libraries, JAX and PyTorch, and judge them: ``nox -s newer [-- NAME…]``.

    What changed is written to report/newer.md; the session fails if there is something. Cost: minutes for each library.
    """
    run(session, "gradgate.suites.gallery.newer", *session.posargs)


@nox.session(venv_backend="none")
def census(session: nox.Session) -> None:
    """Judge every handwritten derivative of public packages with gradgate watch: ``nox -s census [-- NAME…]``.

    The rows are written to report/census; ``--keep`` also writes suites/guide/census.md. Cost: about an hour on two
    cores; ``--scripts`` judges nothing, and compares the last verdicts with what is declared.
    """
    run(session, "gradgate.suites.gallery.census.run", *session.posargs)


@nox.session(venv_backend="none")
def fieldhistory(session: nox.Session) -> None:
    """Gate the commits of a public repository, of which you have a clone: ``-- NAME --repository PATH``. Resumes.

    The rows are written to report/history; ``--keep`` also writes suites/guide/adopted.md. Cost: one to five minutes of
    a core for each commit; a commit that was gated takes nothing.
    """
    run(session, "gradgate.suites.gallery.history.run", *session.posargs)


@nox.session(venv_backend="none")
def publish(session: nox.Session) -> None:
    """Unite the results of machines, check that history did not shrink, and put bytes and verdicts into site/.

    ``nox -s site`` then adds the guide. The first page of the guide is the first page of the site.
    """
    _asv(session, "publish.py", *session.posargs)


@nox.session(venv_backend="none")
def site(session: nox.Session) -> None:
    """Build the guide, the reference and the atlas of claims into site/, and check links and sizes.

    What ``nox -s publish`` put there before (bytes.html, history, report) stays, and the site links to it. ``nox -s
    site -- browser`` then opens every page in Chromium.
    """
    run(session, "gradgate.suites.site.build", "--out", "site")
    if "browser" in session.posargs:
        run(session, "gradgate.suites.site.browser", "--site", "site", "--shots", "report/screenshots")


@nox.session(venv_backend="none")
def preview(session: nox.Session) -> None:
    """Serve site/ on this machine."""
    _asv(session, "publish.py", "--preview", *session.posargs)


def _asv(session: nox.Session, script: str, *arguments: str) -> None:
    session.run(str(shared(session)), str(ROOT / "asv_bench" / script), *arguments, external=True)
