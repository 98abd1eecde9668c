"""Cuts a recorded forward pass into a chain of stages.

Calls that need no gradient, draw no random numbers and depend on nothing of the chain, such as those that make a mask,
are done first, once in every step; what they give is kept, and any number of stages may read it. The other calls keep
their order. Between two of them is a *cut* if at most `CROSSING` tensors are made before it and read after it, and if
nothing after it writes to one of these: what crosses is x_k of the chain.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from gradgate.references.chain.in_torch.graph import Call, Graph, Read, last_reads
from gradgate.references.contract import UsageError

CROSSING = 32
"""Tensors that may cross a cut."""
STAGES = 48
"""Stages of a chain at most: the solver's work grows like their cube."""


@dataclass(frozen=True)
class Part:
    """One stage, in numbers only, so that models can be copied.

    Attributes:
        calls: in order.
        takes: numbers of the tensors that cross the cut before it.
        passes: those that cross the cut after it.
        sides: those that it reads and that are kept throughout: inputs, and results of the first calls.
    """

    calls: tuple[Call, ...]
    takes: tuple[int, ...]
    passes: tuple[int, ...]
    sides: tuple[int, ...]

    @functools.cached_property
    def done(self) -> list[tuple[int, ...]]:
        """`last_reads` of its calls."""
        return last_reads(self.calls, self.passes)

    @property
    def name(self) -> str:
        """First and last call, for messages."""
        first, last = self.calls[0].name, self.calls[-1].name
        return first if first == last else f"{first} … {last}"


@dataclass(frozen=True)
class Cutting:
    """A forward pass, cut.

    Attributes:
        first: calls that are done once, before the chain.
        kept: numbers of the tensors that these give and that the chain or the output reads.
        parts: of the chain.
    """

    first: tuple[Call, ...]
    retained: tuple[int, ...]
    parts: tuple[Part, ...]


def cut(graph: Graph) -> list[Cutting]:
    """The stages of a forward pass: with as many cuts as possible, and, if that differs, at the narrowest places alone.

    Where a tuple crosses, the costs count a tensor twice if a recording keeps it and a value holds it. Where one tensor
    crosses, they are exact. Only the solver can decide which of the two gives the better schedule.

    Raises:
        UsageError: a branch depends on what the chain computes; an input is overwritten; there is no cut; the message
            names the call after which the fewest tensors cross, and says how many.
    """
    _refuse_changed_inputs(graph)
    early = _early(graph)
    for number, call in enumerate(graph.calls):
        if call.decides and number not in early:
            raise UsageError(
                f"{call.name}: the forward pass branches by the numbers of a tensor that the model computes; a plan is "
                "valid for one branch only. Branch by an input, or compute both sides and select with torch.where"
            )
    first = tuple(call for number, call in enumerate(graph.calls) if number in early)
    chain = [call for number, call in enumerate(graph.calls) if number not in early]
    outputs = {leaf.number for leaf in graph.outputs if isinstance(leaf, Read)}
    made = {n for call in chain for n in call.gives if n is not None}
    lives = _Lives(graph, chain, outputs & made)
    found = [_chosen(graph, chain, lives, CROSSING, STAGES)]
    narrowest = min(len(lives.crossing[place]) for place in found[0])
    found.append(_chosen(graph, chain, lives, narrowest, STAGES))
    cuttings = []
    for bounds in found if found[0] != found[1] else found[:1]:
        parts = _parts(chain, lives, bounds, made)
        read = {n for part in parts for n in part.sides} | (outputs - made)
        given = {n for call in first for n in call.gives if n is not None}
        cuttings.append(Cutting(first, tuple(sorted(read & given)), tuple(parts)))
    return cuttings


def joined(cutting: Cutting, groups: Sequence[Sequence[int]]) -> Cutting:
    """The same forward pass with one stage for each group of stages; these have numbers from 1."""
    parts = []
    for group in groups:
        own = [cutting.parts[number - 1] for number in group]
        sides = sorted({n for part in own for n in part.sides})
        calls = tuple(call for part in own for call in part.calls)
        parts.append(Part(calls, own[0].takes, own[-1].passes, tuple(sides)))
    return Cutting(cutting.first, cutting.retained, tuple(parts))


def _parts(chain: Sequence[Call], lives: _Lives, bounds: Sequence[int], made: set[int]) -> list[Part]:
    """The stages between the cuts."""
    parts = []
    for start, end in zip([0, *bounds], [*bounds, len(chain)], strict=True):
        calls = chain[start:end]
        read = {n for call in calls for n in call.reads()}
        takes = lives.crossing[start] if start else ()
        parts.append(Part(tuple(calls), takes, lives.crossing[end], tuple(sorted(read - made))))
    return parts


def _refuse_changed_inputs(graph: Graph) -> None:
    inputs = {t.storage: t.name for t in graph.tensors if t.given}
    for call in graph.calls:
        for storage in call.changes & inputs.keys():
            raise UsageError(f"{call.name} overwrites {inputs[storage]}, which a second run would read: copy it before")


def _early(graph: Graph) -> set[int]:
    """Numbers of the calls that are done before the chain."""
    late_storages: set[int] = set()
    while True:
        early, known = set[int](), {n for n, t in enumerate(graph.tensors) if t.given and not t.needs}
        for number, call in enumerate(graph.calls):
            gives = [n for n in call.gives if n is not None]
            touches = {graph.tensors[n].storage for n in gives} | call.changes
            if (
                not call.random
                and not touches & late_storages
                and known.issuperset(call.reads())
                and not any(graph.tensors[n].needs for n in gives)
            ):
                early.add(number)
                known.update(gives)
        written = {s for n, call in enumerate(graph.calls) if n not in early for s in call.changes}
        if written <= late_storages:
            return early
        late_storages |= written


class _Lives:
    """Between which calls of the chain each tensor is needed.

    Attributes:
        crossing: for each place, after so many calls, the numbers of the tensors that cross it.
        legal: whether nothing after the place writes to one of them.
    """

    def __init__(self, graph: Graph, chain: Sequence[Call], outputs: set[int]) -> None:
        born, dies = dict[int, int](), dict[int, int]()
        written: dict[int, int] = {}
        for place, call in enumerate(chain, 1):
            for n in call.gives:
                if n is not None:
                    born.setdefault(n, place)
            for n in (*call.reads(), *(n for n in call.gives if n is not None)):
                dies[n] = place
            written |= dict.fromkeys(call.changes, place)
        dies |= dict.fromkeys(outputs, len(chain) + 1)
        places = range(len(chain) + 1)
        self.crossing = [tuple(n for n in sorted(born) if born[n] <= place < dies[n]) for place in places]
        self.legal = [
            all(written.get(graph.tensors[n].storage, 0) <= place for n in self.crossing[place]) for place in places
        ]
        self.bytes = [
            sum({graph.tensors[n].storage: graph.tensors[n].nbytes for n in self.crossing[place]}.values())
            for place in places
        ]


def _chosen(graph: Graph, chain: Sequence[Call], lives: _Lives, crossing: int, stages: int) -> list[int]:
    """The places of the cuts, each after so many calls; at most `stages` − 1 of them."""
    needed = [any(graph.tensors[n].needs for n in call.gives if n is not None) for call in chain]
    start = needed.index(True) + 1 if True in needed else len(chain)  # what needs no gradient joins the first stage
    inner = [p for p in range(start, len(chain)) if lives.legal[p] and lives.crossing[p]]
    found = [p for p in inner if len(lives.crossing[p]) <= crossing]
    if not found:
        if not inner:
            raise UsageError(
                f"there is no cut: the model is {len(chain)} call(s), from {chain[0].name} to {chain[-1].name}, and "
                "nothing lies between two of them that could be kept"
            )
        fewest = min(inner, key=lambda p: len(lives.crossing[p]))
        raise UsageError(
            f"there is no cut: at most {crossing} tensors may cross one, and at the best place, after "
            f"{chain[fewest - 1].name}, {len(lives.crossing[fewest])} do; checkpoint the parts of the model instead"
        )
    made, seen = [0], set[int]()
    for call in chain:
        new = {graph.tensors[n].storage: graph.tensors[n].nbytes for n in call.gives if n is not None}
        made.append(made[-1] + sum(size for storage, size in new.items() if storage not in seen))
        seen.update(new)
    return _thinned(found, made, lives.bytes, stages)


def _thinned(places: list[int], made: Sequence[int], crossing: Sequence[int], stages: int) -> list[int]:
    """Places that make at most `stages` stages: those where little crosses, with much made in between."""
    left = list(places)
    while len(left) > stages - 1:
        bounds = [0, *left, len(made) - 1]
        worth = [
            (made[c] - made[a]) / max(crossing[b], 1) for a, b, c in zip(bounds, bounds[1:], bounds[2:], strict=False)
        ]
        del left[worth.index(min(worth))]
    return left
