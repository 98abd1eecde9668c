"""Matches the parameters of one module with the parameters of another."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gradgate.references.contract import UsageError
from gradgate.suites.pairs.modules_bound import Bound

SHOWN = 12
"""Number of names that a message lists of one side."""


@dataclass(frozen=True)
class Names:
    """Name in the reference -> name in the function.

    Attributes:
        parameters: of all parameters.
        state: of the buffers and statistics that both have.
        who: the pair's name.
        others: the names of the function's state: what it has in addition to its parameters.
    """

    parameters: Mapping[str, str]
    state: Mapping[str, str]
    who: str
    others: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[str, ...]:
        """Names in the reference, of parameters and of state."""
        return (*self.parameters, *self.state)

    def missing(self, name: str) -> UsageError:
        """The error for a training call that changes state of the reference which the function does not have."""
        return UsageError(
            f"{self.who}: a training call changes {name} of the reference, and the function has nothing of that name "
            f"and shape; it has {_listed(self.others)}{_nearest(name, self.others)}: rename={{{name!r}: …}}"
        )


def matched(who: str, reference: Bound, function: Bound, rename: Mapping[str, str]) -> Names:
    """The function's name of every parameter of the reference, and of the state that both have.

    Raises:
        UsageError: a parameter has no partner, or another shape, or a name in `rename` does not exist; the message
            lists both sides and the nearest names.
    """
    ours = {name: renamed(name, rename) for name in (*reference.parameters, *reference.state)}
    for name in rename:
        if not any(old == name or old.startswith(name + ".") for old in (*ours, *reference.draws)):
            raise UsageError(
                f"{who}: rename has {name!r}, which the reference does not; it has {_listed(ours)}"
                f"{_nearest(name, ours)}"
            )
    parameters = {name: ours[name] for name in reference.parameters}
    lacking = [name for name, own in parameters.items() if own not in function.parameters]
    extra = [own for own in function.parameters if own not in parameters.values()]
    if lacking or extra:
        wanted = [parameters[name] for name in lacking]
        near = "".join(_nearest(name, function.parameters) for name in wanted[:3])
        raise UsageError(
            f"{who}: parameters do not match. The reference has {_listed(reference.parameters)}; the function has "
            f"{_listed(function.parameters)}. Without a partner: {_listed([*lacking, *extra])}{near}; "
            "rename={'name in the reference': 'name in the function'} pairs them"
            + _stacked(lacking, reference, extra, function)
        )
    for name, own in parameters.items():
        mine, theirs = tuple(function.parameters[own].shape), tuple(reference.parameters[name].shape)
        if mine != theirs:
            raise UsageError(
                f"{who}: parameter {own} of the function has shape {mine}; {name} of the reference {theirs}"
            )
    state = {
        name: ours[name]
        for name, leaf in reference.state.items()
        if ours[name] in function.state and tuple(function.state[ours[name]].shape) == tuple(leaf.shape)
    }
    return Names(parameters, state, who, tuple(function.state))


def _stacked(lacking: Iterable[str], reference: Bound, extra: Iterable[str], function: Bound) -> str:
    """A hint, if one side has a list of layers and the other side the same layers stacked; else ""."""
    for many, few, alone in ((lacking, extra, False), (extra, lacking, True)):
        singles, stacks = (function, reference) if alone else (reference, function)
        for name in few:
            count, *shape = tuple(stacks.parameters[name].shape) or (0,)
            last = name.rpartition(".")[2]
            same = [one for one in many if one.rpartition(".")[2] == last]
            same = [one for one in same if list(singles.parameters[one].shape) == shape]
            if len(same) == count > 1:
                return (
                    f". {name} looks like {count} stacked layers, {same[0]} and so on; rename pairs arrays alike: "
                    "let a builder wrap its module so that both have a list of layers, or both have them stacked"
                )
    return ""


def renamed(name: str, rename: Mapping[str, str]) -> str:
    """A name after renaming: by its own entry, or else by the entry of the longest submodule that contains it."""
    for old in sorted(rename, key=len, reverse=True):
        if name == old or name.startswith(old + "."):
            return rename[old] + name[len(old) :]
    return name


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return (", ".join(every[:SHOWN]) or "none") + more


def _nearest(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1, 0.4)
    return f"; nearest to {name} is {near[0]}" if near else ""
