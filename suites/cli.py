"""The command line: ``gradgate verify | memory | paper | list | profiles | cache | report | calibrate | …``."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradgate.hw_profiles import profile as hardware
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.references import laws, registry
from gradgate.references.contract import UsageError, unknown
from gradgate.suites.commands import gate as gating
from gradgate.suites.commands import memory as memory_command
from gradgate.suites.commands import paper as paper_command
from gradgate.suites.commands import repeat
from gradgate.suites.commands import selftest as trial
from gradgate.suites.commands.arguments import json_object, need_report
from gradgate.suites.console import terminal
from gradgate.suites.console.files import write_atomically
from gradgate.suites.console.progress import progress
from gradgate.suites.judging.engine import Run
from gradgate.suites.judging.verdict import SCHEMA, Task, Verdict, exit_status
from gradgate.suites.workers.supervisor import Limits, Supervisor

STATUS = "exit status: 0 as claimed, 1 refuted or regressed, 2 could not be measured, 3 wrong usage or configuration"
EXAMPLES = {
    "verify": [
        "  gradgate verify                                                   every reference method, every claim",
        "  gradgate verify --family state_space --method reverse_recurrence  one of them",
        "  gradgate verify mine.py:my_gradient --family state_space          your own: (problem) -> (loss, grads)",
    ],
    "list": [
        "  gradgate list --method reverse_recurrence   what one method claims",
        "  gradgate list --json                        all of them, for machines",
    ],
    "profiles": ["  gradgate profiles          which compilers are installed, and what installs the others"],
    "report": ["  gradgate report verdicts.json --report page   index.html and junit.xml from earlier verdicts"],
    "calibrate": ["  gradgate calibrate --json kept.json --summary figures.json   goes on where it stopped"],
    "repeat": [
        "  gradgate repeat 20 --json report/repeat.json        twenty seeds; goes on where it stopped",
        "  gradgate repeat 5 --family chain --framework torch  five seeds of one class",
    ],
    "memory": [
        "  gradgate memory --family state_space --method backprop --sweep T=64:4096   bytes and the fitted law",
        "  gradgate memory --family state_space --profile nvidia-h100,tpu-v5p         on devices that are not here",
    ],
    "paper": ["  gradgate paper --family performer --place 'Table 2'   the paper's figures beside ours"],
    "selftest": [
        "  gradgate selftest                                        the whole corpus",
        "  gradgate selftest --json report/selftest.json            goes on where an earlier run stopped",
        "  gradgate selftest --family chain --framework torch       the mutants of one family",
        "  gradgate selftest gate_sign planted_1e11                 some of them, by parts of their names",
    ],
    "cache": ["  gradgate cache --clear     throw away what was measured"],
    "gate": [
        "  gradgate gate --base origin/main                   what a pull request does to bytes, FLOPs and gradients",
        "  gradgate gate --base main --markdown comment.md    the same as a comment",
        "  gradgate gate --base HEAD --base-python old/bin/python  two toolchains on the same code",
    ],
}
EPILOG = "\n".join(["examples:", *EXAMPLES["verify"], "", STATUS])


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"{message}; see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    try:
        chosen = _parser().parse_args(arguments)
        status = int(chosen.command(chosen))
        sys.stdout.flush()  # here, where a broken pipe is no error, and not at exit
        return status
    except (UsageError, hardware.ProfileError) as error:
        print(f"gradgate: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("gradgate: interrupted; what was measured is kept", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gradgate", description="Verify memory-efficient gradients: is it the gradient, are the promises kept?",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = parser.add_subparsers(title="commands", required=True, metavar="command")

    verify = _command(commands, "verify", _verify, "judge every claim of the references, or of your own method")
    verify.add_argument("target", nargs="?", help="package.module:function or file.py:function of your own method")
    _selection(verify)
    verify.add_argument("--claim", help="judge this claim only (see gradgate list)")
    verify.add_argument("--examples", type=_positive, default=100, metavar="N", help="problems per claim (default 100)")
    verify.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default 0)")
    verify.add_argument("--spec", default="", metavar="JSON", help="judge this one problem, as printed by a failure")
    verify.add_argument("--options", metavar="JSON", help="options of the method, with --spec")
    verify.add_argument(
        "--profile",
        default="cpu",
        help="on another profile than cpu (default) the claims about memory and work alone are judged",
    )
    verify.add_argument("--jobs", type=_positive, default=2, help="worker processes (default 2)")
    verify.add_argument(
        "--timeout", type=float, default=60.0, metavar="S", help="limit per call in seconds (default 60)"
    )
    verify.add_argument("--json", type=Path, metavar="FILE", help="write the verdicts here, after each one")
    verify.add_argument("--report", type=Path, metavar="DIR", help="write index.html, verdicts.json and junit.xml here")

    listing = _command(commands, "list", _list, "list the methods and what they claim")
    _selection(listing)
    listing.add_argument("--json", action="store_true", help="as JSON")

    profiles = _command(commands, "profiles", _profiles, "list the hardware profiles")
    profiles.add_argument("--json", action="store_true", help="as JSON")

    report = _command(commands, "report", _report, "render verdicts.json as a page")
    report.add_argument("verdicts", type=Path, nargs="?", default=Path("report/verdicts.json"))
    report.add_argument("--report", type=Path, metavar="DIR", help="where to (default: beside the verdicts)")

    calibrate = _command(commands, "calibrate", _calibrate, "measure the rule: false alarms, smallest planted error")
    calibrate.add_argument(
        "--problems",
        type=_positive,
        default=4000,
        metavar="N",
        help="drawn of each class, half of them in each framework; each is put to every method (default 4000)",
    )
    calibrate.add_argument("--family", metavar="F", help="problem class (default: all)")
    calibrate.add_argument("--seed", type=int, default=1)
    calibrate.add_argument("--jobs", type=_positive, default=2)
    calibrate.add_argument("--json", type=Path, metavar="FILE", help="keep the results here and resume from them")
    calibrate.add_argument("--summary", type=Path, metavar="FILE", help="write the figures here, family by family")

    memory = _command(commands, "memory", memory_command.main, "measure bytes and work over a sweep, and fit the law")
    memory.add_argument("target", nargs="?", help="package.module:function or file.py:function of your own method")
    _selection(memory)
    memory_command.add_arguments(memory)

    paper = _command(commands, "paper", paper_command.main, "measure again what a paper printed; resumes")
    paper_command.add_arguments(paper)

    again = _command(commands, "repeat", repeat.main, "judge every claim that draws problems under many seeds; resumes")
    repeat.add_arguments(again)

    selftest = _command(commands, "selftest", trial.main, "put the suite on trial: it must refute every broken method")
    selftest.description = trial.DESCRIPTION
    trial.add_arguments(selftest)

    cache = _command(commands, "cache", memory_command.clear_or_show, "show the size of the measurement cache")
    cache.add_argument("--clear", action="store_true", help="remove every measurement")

    gate = _command(commands, "gate", gating.main, "compare a change with its base, exactly, on every profile")
    gating.add_arguments(gate)
    return parser


def _command(commands: Any, name: str, function: Any, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text, epilog="\n".join(["examples:", *EXAMPLES[name], "", STATUS]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.set_defaults(command=function)
    return made


def _selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--family", metavar="F", help="problem class, for example state_space")
    parser.add_argument("--method", metavar="M", help="reference method, for example reverse_recurrence")
    parser.add_argument("--framework", metavar="X", help="jax or torch")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def _verify(chosen: argparse.Namespace) -> int:
    hardware.load(chosen.profile)
    if not chosen.timeout > 0:
        raise UsageError(f"--timeout must be positive, not {chosen.timeout:g}")
    if chosen.options and not chosen.spec:
        raise UsageError("--options belong to one problem: give it with --spec")
    options = json_object(chosen.options, "--options")
    limit = 0.75 * chosen.timeout  # a compilation ends before the call that it is part of
    run = Run(chosen.examples, chosen.seed, chosen.spec, options, limit)
    with Supervisor(run, chosen.jobs, Limits(chosen.timeout)) as supervisor:
        tasks = _tasks(chosen, supervisor)
        if chosen.spec:
            for name in {task.family for task in tasks}:
                registry.spec_class(name).from_json(chosen.spec)
        if chosen.report:
            need_report()
        verdicts: list[Verdict] = []
        left = collections.Counter(task.owner for task in tasks)
        with progress(len(tasks), "claims") as show:

            def judging(task: Task, judged: int) -> None:
                show.doing(f"{task.method} {task.framework} {task.claim}: {judged}")

            for verdict in supervisor.judge_all(tasks, judging):
                verdicts.append(verdict)
                left[verdict.task.owner] -= 1
                show.advance(f"{verdict.task.owner} done", line=not left[verdict.task.owner])
                _write(chosen, _document(tasks, verdicts))
    terminal.table(_ordered(tasks, verdicts))
    document = _document(tasks, verdicts)
    if chosen.report:
        from gradgate.suites.report import write

        terminal.note(f"report: {write(document, chosen.report)}")
    return exit_status(verdicts)


def _tasks(chosen: argparse.Namespace, supervisor: Supervisor) -> list[Task]:
    if chosen.target:
        if not chosen.family:
            raise UsageError(f"say which problems {chosen.target} solves: --family {' | '.join(registry.families())}")
        registry.family(chosen.family)
        tasks = supervisor.describe(chosen.target, chosen.family, chosen.framework)
    else:
        found = registry.methods(chosen.family, chosen.method, chosen.framework)
        tasks = [Task.of(method, claim) for method in found for claim in method.claims]
        if not chosen.method:
            for family, target in registry.entry_points():
                if chosen.family in (None, family):
                    tasks += supervisor.describe(target, family, None)
            tasks = [task for task in tasks if chosen.framework in (None, task.framework)]
    tasks = [dataclasses.replace(task, profile=chosen.profile) for task in tasks]
    if hardware.load(chosen.profile).compiler != "host":  # what the gradient is, no profile changes
        tasks = [task for task in tasks if task.check in laws.CHECKS]
        if not tasks:
            raise UsageError(f"nothing is claimed about memory or work, which is all that {chosen.profile} can judge")
    if chosen.claim:
        legal = sorted({task.claim for task in tasks})
        tasks = [task for task in tasks if task.claim == chosen.claim]
        if not tasks:
            raise unknown("claim", chosen.claim, legal)
    return tasks


def _ordered(tasks: list[Task], verdicts: list[Verdict]) -> list[Verdict]:
    place = {(task.name, task.target): i for i, task in enumerate(tasks)}
    return sorted(verdicts, key=lambda verdict: place[verdict.task.name, verdict.task.target])


def _document(tasks: list[Task], verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "fingerprint": fingerprint(),
        "claims": len(tasks),
        "verdicts": [verdict.to_dict() for verdict in _ordered(tasks, verdicts)],
    }


def _write(chosen: argparse.Namespace, document: dict[str, Any]) -> None:
    targets = [chosen.json] if chosen.json else []
    targets += [chosen.report / "verdicts.json"] if chosen.report else []
    for path in targets:
        write_atomically(path, json.dumps(document, indent=1) + "\n")


def _list(chosen: argparse.Namespace) -> int:
    found = registry.methods(chosen.family, chosen.method, chosen.framework)
    if not chosen.json:
        terminal.methods(found)
        return 0
    rows = [
        {
            "family": m.family,
            "method": m.name,
            "framework": m.framework,
            "claims": [
                {"name": c.name, "statement": c.statement, "source": c.source, "expected": c.expected} for c in m.claims
            ],
            "options": [{"name": option.name, "legal": option.legal} for option in m.options],
        }
        for m in found
    ]
    print(json.dumps({"methods": rows}, indent=1))
    return 0


def _profiles(chosen: argparse.Namespace) -> int:
    rows = []
    for profile in hardware.load_all():
        available, extra, reason = hardware.availability(profile)
        rows.append(
            {
                "name": profile.name, "kind": profile.kind, "memory_bytes": profile.memory_bytes,
                "bandwidth": profile.bandwidth, "compiler": profile.compiler, "available": available, "extra": extra,
                "reason": reason,
            }
        )  # fmt: skip
    if chosen.json:
        print(json.dumps({"profiles": rows}, indent=1))
    else:
        terminal.profiles(rows)
    return 0


def _report(chosen: argparse.Namespace) -> int:
    need_report()
    from gradgate.suites.report import write

    try:
        document = json.loads(chosen.verdicts.read_text(encoding="utf-8"))
        [Verdict.from_dict(row) for row in document["verdicts"]]
    except OSError as error:
        raise UsageError(
            f"cannot read {chosen.verdicts}: {error.strerror}; gradgate verify --report DIR writes it"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{chosen.verdicts} is no verdicts.json of schema {SCHEMA}: {error!r}") from None
    print(write(document, chosen.report or chosen.verdicts.parent))
    return 0


def _calibrate(chosen: argparse.Namespace) -> int:
    from gradgate.suites.commands import calibrate

    families = [registry.family(chosen.family).name] if chosen.family else list(registry.families())
    return calibrate.main(families, chosen.problems, chosen.seed, chosen.jobs, chosen.json, chosen.summary)


if __name__ == "__main__":
    sys.exit(main())
