"""bilevel: MixFlow-MG, meta-gradients by mixed-mode differentiation.

Paper: Kemaev, Calian, Zintgraf, Farquhar, van Hasselt, "Scalable Meta-Learning via Mixed-Mode Differentiation" (2025).
"""

from __future__ import annotations

from gradgate.references.claims import COMPOSITIONS, ORACLE_CLAIMS, contract_claims
from gradgate.references.contract import Family, Method, Option

PAPER = "Kemaev et al., Scalable meta-learning via mixed-mode differentiation, 2025"
HERE = "gradgate.references.bilevel"

REMAT = Option("remat", "True or False", lambda spec: (False, True), illegal=(1, None, "yes"), usual=lambda spec: True)
SAVE = Option(
    "save_inner_grads", "True or False", lambda spec: (True, False) if spec.steps % 2 else (False, True),
    illegal=(0, None, "no"), usual=lambda spec: True,
)  # fmt: skip


def _methods(framework: str) -> tuple[Method, ...]:
    every = COMPOSITIONS[framework]

    def declare(name: str, *claims, options: tuple[Option, ...] = (), **contract) -> Method:
        own = contract_claims(composes=every, options=options, **contract)
        return Method(
            "bilevel", name, framework, f"{HERE}.{framework}_impl:{name}", own + claims, options, composes=every
        )

    return (
        declare("truncated_bptt", *ORACLE_CLAIMS, options=(REMAT, SAVE), source="Algorithm 1"),
        declare("mixflow", options=(REMAT, SAVE), source="Algorithm 2"),
        declare("reverse_over_forward", source="Proposition 3.1"),
    )


MEASURED = {
    "dtype": "float32", "task": "maml", "model": "mlp", "optimiser": "adam", "steps": 2, "batch": 64, "layers": 8,
    "width": 64, "vocabulary": 16, "activation": "gelu",
}  # fmt: skip

FAMILY = Family(
    name="bilevel",
    paper=PAPER,
    spec=f"{HERE}.problem:BilevelSpec",
    methods=_methods("jax"),
    shapes=({"steps": 1, "layers": 1},),
    values={"learning_rate": (0.01, 0.3), "momentum": (0.5, 0.99)},
    letters={"T": "steps", "L": "layers", "B": "batch", "S": "sequence"},
    measured=MEASURED,
)
