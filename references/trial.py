"""What a class of problems declares for the trial of the suite: where the trial plants bugs in its methods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Leaf = str | tuple[str, ...]
"""The beginning of the paths of leaves, or several of them where no problem has all."""


@dataclass(frozen=True)
class Trial:
    """Where the bugs that any method can have are planted (`gradgate.suites.bugs`).

    A class need not declare any of this. What is left out is derived from its methods, its shapes and its smallest
    problems (`gradgate.suites.bugs.facts`). A bug that cannot occur in the class is then left out: without a size that
    can be 1, there is none at size 1.

    Attributes:
        plain: its backprop; by default the method that has the claims about the oracles.
        clever: a method that saves memory; by default the last of the exact ones, with options if one has any.
        lossy: the method that may lose most digits; by default the exact one whose κ is largest.
        leaves: beginnings of paths of leaves that every problem has. Errors are planted in them in turn.
        turns: the same, for the errors that are planted in one dtype alone; by default `leaves`.
        coarse: a leaf or a method -> the relative error that can be detected there in bfloat16, if 0.05 cannot be.
        target: key of the data that the loss is compared with. Its first axis is time or samples.
        state: key of the data that a method could overwrite.
        single: Spec fields of sizes that are 1 on the smallest problems.
        large: an array whose numbers are large on some problems, as ``params.`` or ``data.`` and a part of a path, and
            the number from which on they count as large.
        ragged: a Spec field, and what does not always divide it: a number, or an option of the clever method.
    """

    plain: str = ""
    clever: str = ""
    lossy: str = ""
    leaves: tuple[str, ...] = ()
    turns: tuple[Leaf, ...] = ()
    coarse: Mapping[str, float] = field(default_factory=dict)
    target: str = ""
    state: str = ""
    single: tuple[str, ...] = ()
    large: tuple[str, float] | None = None
    ragged: tuple[str, str | int] | None = None
