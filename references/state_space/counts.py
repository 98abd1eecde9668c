"""How often the methods evaluate the nets A, B and C, pass by pass: the formulas of their claims about counts.

K layers, T tokens; a call is one of a net at one token of the whole batch. The numbers of VJPs are the paper's (§4.3).
"""

from __future__ import annotations

from typing import Any

from gradgate.hw_profiles.calls import Calls
from gradgate.references.contract import Claim
from gradgate.references.counts import claim

HERE = "gradgate.references.state_space.counts"
OURS = "beyond the paper"


def plain(spec: Any, **_: Any) -> dict[str, Calls]:
    """One forward and one backward pass: K·T evaluations and VJPs of each net."""
    tokens = spec.layers * spec.length
    return {net: Calls(tokens, 0, tokens) for net in "ABC"}


# The forward pass evaluates each net once per token. In the backward pass, each token t that reaches token i has a VJP
# of A and B at i. It evaluates the net at i again, because a VJP needs the intermediate numbers of its net; so does the
# VJP of C at t. In PyTorch the VJPs of all tokens at one lag are one batch, and λ is advanced by A^t from one more
# evaluation per layer and token; in JAX, and on several instances, by the A that the previous VJP has evaluated.
def sharded(spec: Any, *, framework: str, window: int | None = None, **_: Any) -> dict[str, Calls]:
    """Adjoint sharding, in which each token reaches back `window` tokens, or all."""
    tokens, reach = spec.layers * spec.length, window or spec.length
    pairs = spec.layers * sum(min(t, reach) for t in range(1, spec.length + 1))
    own = tokens if framework == "torch" else 0
    return {
        "A": Calls(tokens + own + pairs, 0, pairs),
        "B": Calls(tokens + pairs, 0, pairs),
        "C": Calls(2 * tokens, 0, tokens),
    }


# A slice is run forward to get its states, and once more by the VJPs of its nets. Every slice except the last, which
# has T mod `chunk` or `chunk` tokens, has been run before that to compute the state from which the next slice starts.
# In PyTorch μ is advanced by A from one more evaluation; in JAX by the A of the VJP.
def recurrence(spec: Any, *, framework: str, chunk: int, **_: Any) -> dict[str, Calls]:
    """The reverse recurrence in slices of `chunk` tokens: one VJP per token, two evaluations, and a sweep."""
    tokens = spec.layers * spec.length
    swept = spec.layers * chunk * ((spec.length - 1) // chunk)
    own = tokens if framework == "torch" else 0
    return {net: Calls(2 * tokens + swept + (own if net == "A" else 0), 0, tokens) for net in "ABC"}


def claims(framework: str) -> dict[str, tuple[Claim, ...]]:
    """Method -> its claim about all counts."""

    def counted(formula: str, statement: str, source: str) -> tuple[Claim, ...]:
        return (claim("counts", statement, source, formula=f"{HERE}:{formula}", given={"framework": framework}),)

    more = ", and A once more" if framework == "torch" else ""
    once = "evaluates each net once forward, and once more for each VJP"
    adjoint = f"{once}{more}"
    batched = claim("counts", once, "§4.5", formula=f"{HERE}:sharded", given={"framework": "jax"})
    plainly = "evaluates each net once per layer and token, and pulls it back once"
    return {
        "backprop": counted("plain", plainly, "Eq. 1"),
        "adjoint_sharding": counted("sharded", adjoint, "Alg. 1–4"),
        "adjoint_sharding_printed": counted("sharded", adjoint, "Alg. 1–4"),
        "adjoint_truncated": counted("sharded", adjoint, "Eq. 7"),
        "adjoint_distributed": counted("sharded", f"{adjoint}, on all devices together", "§4.4"),
        "adjoint_distributed_truncated": counted("sharded", f"{adjoint}, on all devices together", "Alg. 4"),
        "adjoint_parallel": (batched,),
        "associative_scan": counted("plain", plainly, OURS),
        "reverse_recurrence": counted(
            "recurrence",
            "evaluates each net twice, and a third time in every slice but the last, per layer and token" + more,
            OURS,
        ),
    }
