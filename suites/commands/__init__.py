"""The commands. Each has a module, which declares its arguments and has a main, and a row in this table.

``gradgate --help`` prints the table. Only the module of the command that runs is imported.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Command:
    """What ``--help`` says about a command.

    Attributes:
        summary: one line, without a full stop.
        examples: pairs of a command line and what it does.
    """

    summary: str
    examples: tuple[tuple[str, str], ...]


COMMANDS = {
    "init": Command(
        "write a first file of pairs, the settings and a workflow",
        (
            ("gradgate init", "what is not there yet; it overwrites nothing"),
            ("gradgate init --framework torch --pairs tests/gradients.py", "without a question"),
        ),
    ),
    "verify": Command(
        "judge every claim of your own functions, or of the references",
        (
            ("gradgate verify", "what pyproject.toml names, or ours"),
            ("gradgate verify --family state_space --method reverse_recurrence", "one of ours"),
            ("gradgate verify mine.py:my_gradient --family state_space", "your own: (problem) -> (loss, grads)"),
            ("gradgate verify gradients.py", "every gradgate.Pair declared there"),
            ("gradgate verify --shard 2/4 --json b.json", "the second of four shares"),
        ),
    ),
    "watch": Command(
        "judge every handwritten derivative that a command calls, with nothing declared",
        (
            ("gradgate watch pytest tests", "what your tests call, each rule against its forward pass"),
            ("gradgate watch train.py --steps 2", "or those of a script"),
            ("gradgate watch --write pairs.py pytest", "add pairs of them to a file, for gradgate verify and the gate"),
            ("gradgate watch --json rules.json pytest", "the results for machines; --junit for continuous integration"),
        ),
    ),
    "judge": Command(
        "judge candidates of strangers against a task; their code runs behind a wall",
        (
            ("gradgate judge task.py:norm candidate.py", "one candidate, in processes of its own"),
            ("gradgate judge task.py:norm candidates/*.py --json", "many; one JSON object with all answers"),
            ("gradgate judge task.py:norm *.py --lines answers.jsonl", "each answer as soon as it is known"),
        ),
    ),
    "gate": Command(
        "compare a change with its base, exactly, on every profile",
        (
            ("gradgate gate --base origin/main", "what a pull request does to bytes, FLOPs and gradients"),
            ("gradgate gate --base main --markdown comment.md", "the same as a comment"),
            ("gradgate gate --base HEAD --base-python old/bin/python", "two toolchains on the same code"),
        ),
    ),
    "memory": Command(
        "measure bytes and work over a sweep, and fit the law",
        (
            ("gradgate memory --family state_space --method backprop --sweep T=64:4096", "bytes and the fitted law"),
            ("gradgate memory --family state_space --profile nvidia-h100,tpu-v5p", "on devices that are not here"),
            ("gradgate memory --problem mine.py:Model --family bilevel", "which method for your model"),
        ),
    ),
    "domain": Command(
        "show at which scales of its inputs a pair's gradient keeps its digits",
        (
            ("gradgate domain gradients.py:softplus", "a table for each input, from 1e-8 to 1e8"),
            ("gradgate domain gradients.py:softplus --svg domain.svg", "a picture for a paper"),
        ),
    ),
    "report": Command(
        "render verdicts.json as a page, or unite the results of shares",
        (
            ("gradgate report verdicts.json --report page", "index.html and junit.xml from earlier verdicts"),
            ("gradgate report a.json b.json --json all.json", "what the shares of one run wrote, as one document"),
        ),
    ),
    "list": Command(
        "list the methods and what they claim",
        (
            ("gradgate list --method reverse_recurrence", "what one method claims"),
            ("gradgate list --json", "all of them, for machines"),
            ("gradgate list --paper --family bilevel", "what the paper says, and what became of it"),
        ),
    ),
    "profiles": Command(
        "list the hardware profiles",
        (("gradgate profiles", "which compilers are installed, and what installs the others"),),
    ),
    "schema": Command(
        "print the JSON schema of a document or of the settings",
        (
            ("gradgate schema", "the names"),
            ("gradgate schema verdicts", "what verify writes and report reads"),
            ("gradgate schema settings", "the table [tool.gradgate] of pyproject.toml"),
        ),
    ),
    "completion": Command(
        "print what makes a shell complete commands, options and files",
        (
            ('eval "$(gradgate completion bash)"', "in ~/.bashrc"),
            ("gradgate completion zsh > ~/.zfunc/_gradgate", "where zsh looks for functions"),
        ),
    ),
    "cache": Command(
        "show the size of the measurement cache",
        (("gradgate cache --clear", "throw away what was measured and judged"),),
    ),
    "paper": Command(
        "measure again what a paper printed, and judge it; resumes",
        (
            ("gradgate paper --family performer --place 'Table 2'", "the paper's figures next to ours"),
            ("gradgate paper --kept", "judge kept results of all papers; measures nothing"),
        ),
    ),
    "calibrate": Command(
        "measure the suite itself: false alarms, smallest planted error",
        (("gradgate calibrate --json kept.json --summary figures.json", "resumes where it stopped"),),
    ),
    "repeat": Command(
        "judge every claim that draws problems under many seeds; resumes",
        (
            ("gradgate repeat 20 --minutes 30", "twenty seeds; the next run goes on where it stopped"),
            ("gradgate repeat 5 --family chain --framework torch", "five seeds of one class"),
        ),
    ),
    "selftest": Command(
        "put the suite on trial: it must refute every broken method",
        (
            ("gradgate selftest", "the whole corpus"),
            ("gradgate selftest --minutes 30", "the next run goes on where this one stops"),
            ("gradgate selftest --family chain --framework torch", "the mutants of one family"),
            ("gradgate selftest gate_sign planted_1e11", "some of them, by parts of their names"),
        ),
    ),
}
