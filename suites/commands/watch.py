"""``gradgate watch``: judge every handwritten derivative that a command calls, with nothing declared."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references.errors import UsageError
from gradgate.references.loading import need_file, shortest
from gradgate.suites.commands import arguments
from gradgate.suites.console import watch_table
from gradgate.suites.console.files import need_own, write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.judging.verdict import Task, Verdict
from gradgate.suites.keeping.keys import Keys
from gradgate.suites.keeping.verdicts import Verdicts
from gradgate.suites.settings import Settings
from gradgate.suites.watching import folders, junit, recorder, results, writing
from gradgate.suites.watching.judging import judge, pairs_of, run_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``gradgate watch``."""
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="pytest, script.py, or any command")
    arguments.add(parser, "--seed", "--jobs", "--timeout")
    fresh = "judge everything again; without it, verdicts on the same calls with the same values are reused"
    parser.add_argument("--fresh", action="store_true", help=fresh)
    arguments.add(parser, "--json", help="write the rules and their verdicts here")
    add = "add pairs of the rules that were called to this file, for gradgate verify and the gate; it changes none"
    parser.add_argument("--write", type=Path, metavar="FILE", help=add)
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML here: one case for each rule")
    arguments.add(parser, "--report", help="write index.html, rules.json, junit.xml and failures.sarif here")


def main(chosen: argparse.Namespace) -> int:
    """Run the command, judge what it called, show and write the results; returns the exit status.

    Returns:
        0 every rule is upheld, or acknowledged in the settings · 1 one is refuted · 2 one could not be judged, none was
        called, or the command itself failed.

    Raises:
        UsageError: there is no such command, or the settings are wrong.
    """
    words = chosen.words[1:] if chosen.words[:1] == ["--"] else chosen.words
    if not words:
        raise UsageError("watch needs a command, such as: gradgate watch pytest tests")
    need_file(words[0])
    settings = Settings.read(Path.cwd())
    if chosen.json:
        need_own(chosen.json, "rules")
    if chosen.junit:
        need_own(chosen.junit)
    if chosen.report:
        _need_report(chosen.report)
    folder = folders.fresh()
    ended = _run(words, folder)
    status = conclude(
        folder,
        settings,
        seed=chosen.seed,
        jobs=chosen.jobs,
        seconds=chosen.timeout,
        json_file=chosen.json,
        junit_file=chosen.junit,
        pairs_file=chosen.write,
        report=chosen.report,
        fresh=chosen.fresh,
    )
    if ended:
        watch_table.note(f"the command itself ended with exit status {ended}")
    return status or (2 if ended else 0)


def _need_report(folder: Path) -> None:
    """Check that a report can be written into a folder, before anything long is run.

    Raises:
        UsageError: a package of the extra `report` is missing, or somebody else's file is there.
    """
    arguments.need_report()
    from gradgate.suites.report.watched import FILES

    for name, lists in FILES.items():
        need_own(folder / name, lists)


_FOLDERS: list[Path] = []
"""The folder of a run of pytest with ``--gradgate-watch``."""


def begin(*, is_worker: bool) -> None:
    """Record in this process, and in those that it starts, until `end`; a worker of pytest records for its parent."""
    if not is_worker and not recorder.is_recording():
        folder = folders.fresh()
        _FOLDERS.append(folder)
        os.environ.update(folders.environment(folder))
    recorder.start()


def end() -> int:
    """Judge what was recorded since `begin`, and show it; returns the exit status. 0 within ``gradgate watch``."""
    if not _FOLDERS:
        return 0
    recorder.stop()
    os.environ.pop(recorder.FOLDER, None)  # the processes that judge record nothing
    print()
    return conclude(_FOLDERS.pop(), Settings.read(Path.cwd()))


class _Reused(Verdicts):
    """Kept verdicts, with the number of those that were used again."""

    count = 0

    def get(self, task: Task) -> Verdict | None:
        """The kept verdict on a claim; None if the claim has to be judged."""
        found = super().get(task)
        self.count += found is not None
        return found


def conclude(
    folder: Path,
    settings: Settings,
    *,
    seed: int = 0,
    jobs: int = 2,
    seconds: float = 60.0,
    json_file: Path | None = None,
    junit_file: Path | None = None,
    pairs_file: Path | None = None,
    report: Path | None = None,
    fresh: bool = False,
) -> int:
    """Judge what a folder holds, show and write the results; returns the exit status of `main`."""
    calls, notes = results.read(folder)
    kept = _Reused(run_of(seed), Keys(Path.cwd(), settings.depends), fresh=fresh)
    with progress(len(calls), "calls") as show, kept.keys.parsing():
        judged = judge(
            folder,
            calls,
            acknowledged=settings.by_design,
            jobs=jobs,
            seconds=seconds,
            seed=seed,
            progress=lambda name: show.advance(name),
            kept=kept,
        )
    here = Path.cwd()
    names = {one.rule.name for one in judged}
    notes += [f"by_design names {name}, which was not called" for name in settings.by_design if name not in names]
    notes += [
        f"by_design names {one.rule.name}, which is upheld at what was seen"
        for one in judged
        if one.rule.name in settings.by_design and one.state in ("upheld", "in floats")
    ]
    if not judged:
        notes.append(
            "no handwritten derivative was called with a gradient"
            if results.was_watched(folder)
            else "no Python process was watched: the command's Python has no gradgate, or ignores PYTHONPATH"
        )
    watch_table.show(judged, notes, here, folder)
    if kept.count:
        watch_table.note(f"{kept.count} verdicts reused: what they depend on is unchanged; --fresh judges all again")
    document = results.document(judged, notes, here, fingerprint())
    if json_file:
        write_atomically(json_file, json.dumps(document, indent=1) + "\n")
    if junit_file:
        write_atomically(junit_file, junit.render(judged, here))
    if pairs_file:
        _write_pairs(folder, judged, pairs_file)
    if report:
        from gradgate.suites.report import watched

        watch_table.note(f"report: {watched.write(judged, document, here, report)}")
    if os.environ.get("GITHUB_ACTIONS") == "true":
        watch_table.annotate(judged, here)
    return results.exit_status(judged) if judged else 2


def _write_pairs(folder: Path, judged: Sequence[results.Judged], file: Path) -> None:
    """Add the pairs of the rules to a file.

    Raises:
        UsageError: the file is no Python, or cannot be written.
    """
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    pairs = pairs_of(folder, [one for one in judged if one.state != "acknowledged"])
    try:
        after, added = writing.merged(text, pairs)
    except SyntaxError as error:
        raise UsageError(f"{file} is no Python: {error.msg} in line {error.lineno}") from None
    if added:
        write_atomically(file, after)
    watch_table.note(f"{file}: added {', '.join(added)}" if added else f"{file}: nothing to add")
    unfound = [one.folder for one in pairs if importlib.util.find_spec(one.module.partition(".")[0]) is None]
    if added and unfound:  # such as src, if only pytest's settings name it
        path = os.pathsep.join(shortest(Path(place)) for place in dict.fromkeys(unfound))
        watch_table.note(f"{file}: gradgate verify finds what it imports with PYTHONPATH={path}")


def _run(words: Sequence[str], folder: Path) -> int:
    """Run a command whose Python processes record into a folder; returns its exit status.

    It finds the programs of this environment first. When it is interrupted, what was recorded is judged all the same.

    Raises:
        UsageError: there is no such command, or it cannot be started.
    """
    env = folders.environment(folder)
    program = _program(words, env["PATH"])
    try:
        process = subprocess.Popen(program, env=env)
    except (OSError, ValueError) as error:
        raise UsageError(f"the command {words[0]!r} cannot be started: {error}") from error
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:  # the command got it, too, and ends in its own way
            continue


def _program(words: Sequence[str], path: str) -> list[str]:
    """The command with a program of this environment, if there is one of its name.

    A script of this environment runs without its file, which a virtual environment on top of another one does not have.

    Raises:
        UsageError: there is no such command.
    """
    first, *rest = words
    if first.endswith(".py"):
        return [sys.executable, *words]
    if first in ("python", "python3"):
        return [sys.executable, *rest]
    for script in metadata.entry_points(group="console_scripts", name=first):
        called = (
            f"import sys; sys.argv[0] = {first!r}; from {script.module} import {script.attr} as main; sys.exit(main())"
        )
        return [sys.executable, "-P", "-c", called, *rest]
    program = shutil.which(first, path=path)
    if program is None:
        raise UsageError(f"there is no command {first!r}")
    return [program, *rest]
