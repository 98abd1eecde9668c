"""The page "Memory by release": which release raised whose bytes, with plots, and the same as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradgate.suites.releases import feed, history, known, plots, rises
from gradgate.suites.releases.history import Step
from gradgate.suites.releases.rises import Change

NAME = "memory_by_release"
FEED, DATA = "releases.xml", "releases.json"
SMALL = 0.001
"""Changes below this part of a figure are only counted: the page says how many there are, the JSON lists them."""


NAMED = 3
"""Methods that a line names if several were not measured for one reason."""


def write(target: Path, folder: Path = history.FOLDER) -> list[str]:
    """Write the page for Sphinx, and the feed and the JSON for the site's top folder; returns the page's name.

    Args:
        target: the folder of the site's sources. What is below ``extra/`` there is copied to the site as it is.
        folder: the history.

    Raises:
        UsageError: the history is damaged; says which file.
    """
    found = list(history.steps(folder))
    changes = rises.changes(found)
    (target / f"{NAME}.md").write_text(text(found, changes), encoding="utf-8")
    extra = target / "extra"
    extra.mkdir(exist_ok=True)
    (extra / FEED).write_text(feed.atom(changes), encoding="utf-8")
    (extra / DATA).write_text(json.dumps(document(found, changes), indent=1), encoding="utf-8")
    return [NAME]


def document(steps: Sequence[Step], changes: Sequence[Change]) -> dict[str, Any]:
    """All that the page is made of, as plain JSON types."""
    return {
        "steps": [step.to_json() for step in steps],
        "changes": [
            {
                "release": c.release.name,
                "before": c.before.name,
                "profile": c.profile,
                "name": c.name,
                "quantity": c.quantity,
                "old": c.old,
                "new": c.new,
                "confirmed": c.confirmed,
            }
            for c in changes
        ],
    }


def text(steps: Sequence[Step], changes: Sequence[Change]) -> str:
    """The page as Markdown."""
    if not steps:
        return "# Memory by release\n\nNothing is measured yet: `nox -s releases -- jax 0.9.2 0.10.2` does it.\n"
    cells = sum(len(step.figures) + len(step.reasons) for step in steps)
    told = [
        "# Memory by release\n",
        f"What releases of JAX and PyTorch do to the bytes and the work of the reference methods: {cells} cells under "
        f"{len({s.release for s in steps})} releases. Methods, problems and options are the same under every release; "
        "only the framework and its compilers differ. [How it is measured](releases.md).\n",
        f'<a href="{FEED}">Feed of the rises</a> · <a href="{DATA}">all figures as JSON</a>\n',
        _verdicts(steps, changes),
        _rises(changes),
        _falls(changes),
        _plots(steps),
        _gone(steps),
        known.table(),
        _versions(steps),
    ]
    return "\n".join(part for part in told if part)


def _verdicts(steps: Sequence[Step], changes: Sequence[Change]) -> str:
    """For every release but the first: how many methods need more, fewer and as many bytes."""
    rows = ["| release | profile | more bytes | fewer bytes | the same | other FLOPs |", "|---|---|---|---|---|---|"]
    before: dict[tuple[str, str], Step] = {}
    for step in steps:
        key = (step.release.framework, step.profile)
        old = before.get(key)
        before[key] = step
        if old is None:
            continue
        mine = [c for c in changes if c.release == step.release and c.profile == step.profile]
        moved = [c for c in mine if c.quantity == "required_bytes"]
        up = sum(c.rise for c in moved)
        both = len(old.figures.keys() & step.figures.keys())
        rows.append(
            f"| {_whole(step.release.name)}, after {_whole(old.release.version)} | {_whole(step.profile)} | {up} | "
            f"{len(moved) - up} | {both - len(moved)} | {len(mine) - len(moved)} |"
        )
    return "\n".join(["## In short\n", *rows, ""]) if len(rows) > 2 else ""


def _rises(changes: Sequence[Change]) -> str:
    """Every confirmed rise that can be seen, largest first, and how many are not shown."""
    up = [c for c in changes if c.rise]
    shown = [c for c in up if c.confirmed and c.ratio > 1 + SMALL]
    small = sum(c.confirmed for c in up) - len(shown)
    open_ = [c for c in up if not c.confirmed]
    told = [
        "## Rises\n",
        "A rise is shown if both figures came out again, to the byte, when the program was compiled a second time "
        "under both releases, in new processes with an empty cache.\n",
    ]
    if shown:
        told += ["| release | profile | method | | from | to | change |", "|---|---|---|---|---|---|---|"]
        told += [_row(change) for change in shown]
    else:
        told.append("No release raised a figure by more than 0.1%.")
    if small:
        told.append(f"\n{small} further rises are below 0.1%; the JSON has them.")
    if open_:
        told.append(f"\n{len(open_)} rises are not shown, because no second compilation has confirmed them.")
    return "\n".join([*told, ""])


def _falls(changes: Sequence[Change]) -> str:
    down = [c for c in reversed(changes) if not c.rise]
    shown = [c for c in down if c.ratio < 1 - SMALL]
    if not shown:
        return ""
    told = ["## Falls\n", "| release | profile | method | | from | to | change |", "|---|---|---|---|---|---|---|"]
    told += [_row(change) for change in shown]
    if len(down) > len(shown):
        told.append(f"\n{len(down) - len(shown)} further falls are below 0.1%.")
    return "\n".join([*told, ""])


def _row(change: Change) -> str:
    percent = f"{100 * (change.ratio - 1):+.1f}%" if change.old else "from nothing"
    return (
        f"| {_whole(change.release.name)} | {_whole(change.profile)} | {_method(change.name)} | "
        f"{feed.WORDS[change.quantity]} | {change.old:,} | {change.new:,} | {percent} |"
    )


def _method(name: str) -> str:
    """Which method a cell is about, without what the release says: the framework.

    >>> _method("chain:sqrt_n:jax~8f3"), _method("optax/adam:adam:jax~8f3")
    ('`chain:sqrt_n`', '`optax/adam`')
    """
    owner, method, _ = name.partition("~")[0].split(":")
    return f"`{owner}`" if owner.endswith(f"/{method}") else f"`{owner}:{method}`"


def _whole(words: str) -> str:
    """Words that do not wrap at their hyphens."""
    return f'<span class="whole">{words}</span>'


def _plots(steps: Sequence[Step]) -> str:
    """A plot per class and profile: required bytes relative to the first release."""
    rows: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        rows.setdefault((step.release.framework, step.profile), []).append(step)
    told = []
    for (framework, profile), row in sorted(rows.items()):
        names = sorted({name for step in row for name in step.figures})
        for family in dict.fromkeys(_group(name) for name in names):
            lines = {
                _label(name): [step.figures.get(name, {}).get("required_bytes") for step in row]
                for name in names
                if _group(name) == family
            }
            label = f"{family} in {framework} on {profile}: bytes relative to {row[0].release.version}"
            if drawn := plots.over_releases(lines, [step.release.version for step in row], label):
                told.append(f"### {family}, {framework}, {profile}\n\n{drawn}\n")
    head = (
        "## Bytes over releases\n\nRelative to the first release, on a logarithmic axis. Grey lines did not move. A "
        "class without a plot did not move on that profile.\n"
    )
    return "\n".join([head, *told]) if told else ""


def _group(name: str) -> str:
    """The class of a method, or the library of a pair."""
    return name.partition("/")[0] if "/" in name else name.partition(":")[0]


def _label(name: str) -> str:
    """The method, or the pair."""
    return name.partition("/")[2].partition(":")[0] or name.split(":")[1]


def _gone(steps: Sequence[Step]) -> str:
    missing = rises.gone(steps)
    if not missing:
        return ""
    told = ["## Not measured\n", "| release | profile | why | methods |", "|---|---|---|---|"]
    alike: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
    for step, name, reason in missing:
        said = textwrap.shorten(reason, 240, placeholder=" …").replace("|", "\\|")
        profiles, names = alike.setdefault((step.release.name, said), ({}, {}))
        profiles[step.profile] = names[_method(name)] = None
    for (release, said), (profiles, names) in alike.items():
        more = f" and {len(names) - NAMED} more, which the JSON lists" if len(names) > NAMED else ""
        told.append(f"| {release} | {', '.join(profiles)} | {said} | {', '.join(list(names)[:NAMED])}{more} |")
    return "\n".join([*told, ""])


def _versions(steps: Sequence[Step]) -> str:
    """What was installed under each release."""
    told = ["## Installed\n"]
    for name, versions in {step.release.name: step.versions for step in steps}.items():
        listed = ", ".join(f"{package} {version}" for package, version in sorted(versions.items()))
        told.append(f"- **{name}**: {listed}")
    return "\n".join([*told, ""])
