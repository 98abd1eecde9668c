"""How often the methods evaluate F and G, the halves of a layer: the formulas of their claims about counts.

s layers, L tokens; a call is one of F (``project``) or G (``finish``) of one layer at one token of the whole batch.
"""

from __future__ import annotations

from typing import Any

from gradgate.hw_profiles.calls import Calls
from gradgate.references.contract import Claim
from gradgate.references.counts import claim

HERE = "gradgate.references.performer.counts"


def plain(spec: Any, **_: Any) -> dict[str, Calls]:
    """One forward and one backward pass: s·L evaluations and VJPs of F and G."""
    every = spec.layers * spec.length
    return dict.fromkeys("FG", Calls(every, 0, every))


# Algorithm 1 runs every slice forward for its states, and Algorithm 2 runs it once more before the backward pass. The
# states before the last slice are known when the first pass gets there, so the last slice is run once. The first pass
# needs no output of the last layer's G: PyTorch leaves it out; in JAX all layers are steps of one scan, which runs it.
def sliced(spec: Any, *, framework: str, chunk: int, **_: Any) -> dict[str, Calls]:
    """Two forward passes, except one for the last slice, and one backward pass (§3.4)."""
    every = spec.layers * spec.length
    before = chunk * ((spec.length - 1) // chunk)
    swept = spec.layers - 1 if framework == "torch" else spec.layers
    return {"F": Calls(every + spec.layers * before, 0, every), "G": Calls(every + swept * before, 0, every)}


def checkpointed(spec: Any, *, framework: str, chunk: int, **_: Any) -> dict[str, Calls]:
    """`sliced`, and each layer of a slice once more (§5)."""
    every = spec.layers * spec.length
    once = sliced(spec, framework=framework, chunk=chunk)
    return {net: Calls(calls.evaluations + every, 0, calls.vjps) for net, calls in once.items()}


def claims(framework: str) -> dict[str, tuple[Claim, ...]]:
    """Method -> its claim about all counts."""

    def counted(formula: str, statement: str, source: str) -> tuple[Claim, ...]:
        return (claim("counts", statement, source, formula=f"{HERE}:{formula}", given={"framework": framework}),)

    once = "runs F and G of each layer once per token forward, and once back"
    slices = "runs F and G of each layer twice per token forward, but once in the last slice, and once back"
    return {
        "full": counted("plain", once, "Eq. 5–10"),
        "full_iterative": counted("plain", once, "Eq. 5–10"),
        "slim": counted("sliced", slices, "§3.4"),
        "slim_checkpointed": counted("checkpointed", "as slim, and F and G of each layer once more per token", "§5"),
        "slim_kept": counted("sliced", slices, "beyond the paper"),
        "block_printed": counted("plain", once, "App. B"),
        "one_by_one_printed": counted("plain", once, "App. B"),
    }
