"""The reference: pages made from docstrings, the help of the commands, and the registry."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from gradgate.references import registry
from gradgate.references.contract import Claim, Method
from gradgate.suites.commands import COMMANDS
from gradgate.suites.report import power_section
from gradgate.suites.trial import counts

PUBLIC = ("gradgate", "gradgate.in_jax", "gradgate.in_torch")
"""The modules whose names are documented and stable."""


def write(target: Path) -> list[str]:
    """Write all pages of the reference below `target`/reference; returns their names."""
    (target / "reference").mkdir(parents=True, exist_ok=True)
    pages: dict[str, str] = {
        "reference/index": api(),
        "reference/commands": commands(),
        "reference/classes": classes(),
        "reference/calibration": calibration(),
    }
    for module in PUBLIC:
        pages |= {f"reference/{name}": page for name, page in names(module).items()}
    for one in registry.families():
        pages |= {f"reference/{name}": page for name, page in family(one).items()}
    for name, text in pages.items():
        (target / f"{name}.md").write_text(text, encoding="utf-8")
    return list(pages)


def api() -> str:
    """What the public modules export: a table for each, whose names lead to their pages."""
    told = [
        "# The Python module\n\nWhat is listed here is documented and stable. Everything else may change.\n",
    ]
    tree = []
    for name in PUBLIC:
        module = importlib.import_module(name)
        told.append(f"## {name}\n\n{inspect.getdoc(module)}\n")
        found = exported(name)
        if not found:
            told.append("It exports no names yet.\n")
            continue
        told.append("| name | what it is |\n|---|---|")
        for entry in found:
            said = (inspect.getdoc(getattr(module, entry)) or "").partition("\n\n")[0]
            told.append(f"| [{entry}]({name}.{entry}.md) | {_cell(said)} |")
            tree.append(f"{name}.{entry}")
        told.append("")
    return "\n".join(told) + "\n```{toctree}\n:hidden:\n\n" + "\n".join(tree) + "\n```\n"


def exported(name: str) -> list[str]:
    """The public names of a module."""
    module = importlib.import_module(name)
    return [entry for entry in sorted(module.__all__) if not entry.startswith("__")]


def names(module: str) -> dict[str, str]:
    """A page for each public name of a module, by the page's name."""
    found = importlib.import_module(module)
    return {f"{module}.{name}": documented(f"{module}.{name}", getattr(found, name)) for name in exported(module)}


def documented(name: str, thing: object) -> str:
    """A heading and the docstring of one public name."""
    place = f"{thing.__module__}.{thing.__qualname__}" if hasattr(thing, "__qualname__") else name
    kind = "autoexception" if _is_error(thing) else "autoclass" if inspect.isclass(thing) else "autofunction"
    members = "   :members:\n" if kind == "autoclass" else ""
    return f"# {name}\n\n[All names](index.md)\n\n```{{eval-rst}}\n.. {kind}:: {place}\n{members}```\n"


def _is_error(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def commands() -> str:
    """The help of every command, as it is printed."""
    told = [
        "# The command line\n\nEvery command ends with the same exit status: 0 as claimed, 1 refuted or regressed, "
        "2 could not be measured, 3 wrong usage. `gradgate --version` prints the version.\n"
    ]
    told += [f"## gradgate {name}\n\n```text\n{printed(name)}```\n" for name in COMMANDS]
    return "\n".join(told)


def printed(command: str) -> str:
    """What ``gradgate COMMAND --help`` prints in a terminal of 80 columns."""
    env = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "PYTHON_COLORS": "0"}
    ran = subprocess.run(
        [sys.executable, "-m", "gradgate.suites.cli", command, "--help"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def calibration() -> str:
    """How small an error is refuted, and how many alarms are false, from the record of ``gradgate calibrate``."""
    told = [
        "# How small an error is refuted\n",
        "From `suites/report/calibration.json`, which `nox -s calibrate` writes. *Worst* is the largest error "
        "over noise of a right method. The last three columns are the smallest relative error, planted in one leaf, "
        "that is refuted in every kind of leaf. Beside it is the bound that is derived for a common factor in this "
        "leaf: twice the bias of plain backprop, or eight standard deviations of the mean.\n",
    ]
    sections = power_section.of_families(registry.families())
    for one in sections:
        told.append(
            f"## {one.family}\n\nMeasured {one.date}: {one.problems:,} problems, {one.judgements:,} judgements, each "
            f"in three dtypes; {one.false_alarms} false alarms.\n"
        )
        told.append("| method | framework | worst | float64 | float32 | bfloat16 |\n|---|---|---|---|---|---|")
        for line in one.lines:
            worst = "" if line.worst is None else f"{line.worst:.2g}"
            seen = " | ".join(line.seen[dtype] or "–" for dtype in power_section.DTYPES)
            told.append(f"| `{line.method}` | {line.framework} | {worst} | {seen} |")
        told.append("")
    if missing := [name for name in registry.families() if name not in {one.family for one in sections}]:
        told.append(f"Not measured yet under these rules: {', '.join(missing)}.\n")
    return "\n".join([*told, *right()])


RIGHT = {
    "pairs": "random right pairs",
    "calls": "random right calls of `gradgate.check`",
    "seeds": "verdicts on claims of the reference methods under other seeds, 12 problems each, inapplicable ones too",
}
"""Kind of what ``nox -s trial`` judges and counts -> in words."""


def right() -> list[str]:
    """What is right and was judged, and how much of it was refuted."""
    lines = [
        "## False alarms\n\nFrom `suites/trial/counts.json`, to which each `nox -s trial` adds. The last "
        "column is the upper end of a one-sided exact interval at 95%.\n",
        "| judged | framework | how many | false alarms | dates | rate below |\n|---|---|--:|--:|---|--:|",
    ]
    for kind, found in sorted(counts.kinds(counts.read()).items()):
        name, framework = kind.split()
        dates = found.first if found.first == found.last else f"{found.first} to {found.last}"
        row = f"{found.judged:,} | {found.alarms or 'none'} | {dates} | {found.rate:.2g}"
        lines.append(f"| {RIGHT[name]} | {framework} | {row} |")
    return [*lines, ""]


def classes() -> str:
    """The table of the classes, and their pages."""
    found = registry.families()
    lines = [
        "# The classes of problems and their methods\n",
        "A class of problems is a kind of computation whose gradient is hard to compute in little memory. Each is the "
        "subject of one paper.\n",
        "| class | paper | methods | claims |\n|---|---|---|---|",
    ]
    for name, declared in found.items():
        methods = {method.name for method in declared.methods}
        claims = sum(len(method.claims) for method in declared.methods)
        lines.append(f"| [{name}]({name}.md) | {declared.paper} | {len(methods)} | {claims} |")
    tree = "\n".join(found)
    return "\n".join(lines) + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"


def family(name: str) -> dict[str, str]:
    """The pages of a class: its methods, and one for each with its docstring, options and claims."""
    declared = registry.families()[name]
    told = [
        f"# The class {name}\n\n{declared.paper}. The results for the paper's statements are in [the atlas](../atlas/"
        f"{name}.md).\n\nThe claims of a method are declared. `gradgate verify --family {name}` judges them, and fails "
        "if one is not as declared.\n",
        "| method | frameworks | claims |\n|---|---|---|",
    ]
    pages = {}
    for method in dict.fromkeys(one.name for one in declared.methods):
        rows = [one for one in declared.methods if one.name == method]
        pages[f"{name}.{method}"] = _method(name, method, rows)
        frameworks = ", ".join(row.framework for row in rows)
        told.append(f"| [{_cell(method)}]({name}.{method}.md) | {frameworks} | {len(_claims(rows))} |")
    tree = "\n".join(pages)
    return {name: "\n".join(told) + f"\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n"} | pages


def _method(family_name: str, name: str, rows: Sequence[Method]) -> str:
    told = [
        f"# {_cell(name)} ({_cell(family_name)})\n\nA method of the class [{family_name}]({family_name}.md). "
        f"Frameworks: {', '.join(row.framework for row in rows)}.\n"
    ]
    if options := {option.name: option.legal for row in rows for option in row.options}:
        told.append("| option | legal values |\n|---|---|")
        told.append("\n".join(f"| `{option}` | {_cell(legal)} |" for option, legal in options.items()) + "\n")
    told.append(f"```console\n$ gradgate verify --family {family_name} --method {name}\n```\n")
    module, _, function = rows[0].implementation.partition(":")
    told.append(f"```{{eval-rst}}\n.. autofunction:: {module}.{function}\n```\n")
    told.append("| claim | it says | source | expected |\n|---|---|---|---|")
    told.append("\n".join(_claims(rows)) + "\n")
    return "\n".join(told)


def _claims(rows: Iterable[Method]) -> list[str]:
    """A line for each claim; a claim that both frameworks make has one line."""
    found: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        for claim in row.claims:
            found.setdefault((claim.name, claim.statement, claim.source, _expected(claim)), []).append(row.framework)
    frameworks = {row.framework for row in rows}
    return [
        f"| `{name}`{'' if set(own) == frameworks else f' ({own[0]})'} | "
        f"{_cell(says)} | {_cell(source)} | {_cell(word)} |"
        for (name, says, source, word), own in found.items()
    ]


def _expected(claim: Claim) -> str:
    return f"{claim.expected}: {claim.declared_reason}" if claim.declared_reason else claim.expected


def _cell(text: str) -> str:
    """Text for a cell of a Markdown table."""
    for sign in "\\|*_`<>[]$":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", " ")
