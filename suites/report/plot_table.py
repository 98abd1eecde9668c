"""The numbers of a plot as a table that stands beside it, for readers without scripts and for copying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PlotTable:
    """A line for each series, a column for each size.

    Attributes:
        head: what the columns are, such as ``T``.
        sizes: the sizes in words, smallest first; words in the order in which they come.
        lines: name of a series -> its values in words; "" at a size that it lacks.
    """

    head: str
    sizes: list[str]
    lines: list[tuple[str, list[str]]]

    @classmethod
    def of(
        cls,
        head: str,
        series: Sequence[tuple[str, Sequence[float | str], Sequence[float]]],
        amount: Callable[[float], str],
    ) -> PlotTable:
        """The table of some series.

        Args:
            head: what the columns are.
            series: (name, sizes, values) of each; a size may be a word, such as the name of a model.
            amount: a value in words, with its unit.

        >>> PlotTable.of("T", [("a", [1, 2], [3.0, 0.0]), ("b", [2], [5.0])], "{:g} B".format).lines
        [('a', ['3 B', '0 B']), ('b', ['', '5 B'])]
        >>> PlotTable.of("model", [("a", ["small", "big"], [1.0, 2.0])], "{:g}".format).sizes
        ['small', 'big']
        """
        every = list(dict.fromkeys(size for _, sizes, _ in series for size in sizes))
        if not any(isinstance(size, str) for size in every):
            every.sort()
        lines = []
        for name, sizes, values in series:
            known = dict(zip(sizes, values, strict=True))
            lines.append((name, [amount(known[size]) if size in known else "" for size in every]))
        return cls(head, [size if isinstance(size, str) else f"{size:,.12g}" for size in every], lines)
