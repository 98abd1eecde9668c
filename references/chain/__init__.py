"""chain: optimal checkpointing for precise costs per layer, and the executor that the thesis could not build.

Paper: Butt, "Precise optimal checkpointing for memory-efficient deep learning" (MEng thesis, Imperial College London,
2019). `schedules.schedule` has the one type of schedule. `schedules.simulate` computes what a schedule costs.
`schedules.classic` and `schedules.solver` make schedules. `in_torch.model` is the interface for models in PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from gradgate.references.chain.claims import PROMISES
from gradgate.references.claims import COMPOSITIONS, ORACLE_CLAIMS, reference_method
from gradgate.references.contract import Claim, Family, Method, Option, Trial

PAPER = "Butt, Precise optimal checkpointing for memory-efficient deep learning, MEng thesis, Imperial College, 2019"
HERE = "gradgate.references.chain"
ILLEGAL = (0, -1, 1.5, "all", None, True, 1)


@functools.lru_cache(maxsize=512)
def _budgets(framework: str, method: str, spec: Any) -> tuple[int, ...]:
    """Budgets in falling order, from the peak of saving everything to the least with which the method works."""
    import importlib

    from gradgate.references.chain.schedules import classic
    from gradgate.references.chain.schedules.simulate import simulate
    from gradgate.references.chain.schedules.solver import minimum_budget

    costs = importlib.import_module(f"{HERE}.in_{framework}.methods").costs_of(spec)
    most = simulate(classic.save_all(costs.stages), costs).peak
    least = minimum_budget(costs)
    if method == "uniform_dp":
        least = simulate(classic.uniform_least(costs), costs).peak
    return tuple(sorted({most, (most + least) // 2, (most + 3 * least) // 4, least}, reverse=True))


def _budget(framework: str, method: str) -> Option:
    def values(spec: Any) -> Sequence[int]:
        return [budget for budget in _budgets(framework, method, spec.static()) if budget >= _least(spec)]

    def _least(spec: Any) -> int:
        return _budgets(framework, method, spec.static())[-1]

    return Option(
        "budget",
        "an integer, bytes, at least the minimum that the chain needs; the refusal states that minimum",
        values,
        illegal=ILLEGAL,
        usual=lambda spec: values(spec)[-2 if len(values(spec)) > 1 else 0],
    )


PROTOCOL = Claim(
    "protocol",
    "protocol",
    "as a module, under every hazard of eager PyTorch, it gives the bits of plain backprop, or an error that says why",
    "torch.utils.checkpoint",
)


CHECKPOINTED: dict[str, tuple[tuple[Claim, ...], tuple[str, ...]]] = {
    "jax": ((), ()),
    "torch": ((PROTOCOL,), COMPOSITIONS["torch"]),
}
"""Framework -> the further claims of every checkpointed method, and what these methods refuse."""


def _methods(framework: str) -> tuple[Method, ...]:
    claims, refused = CHECKPOINTED[framework]
    plain = functools.partial(reference_method, "chain", framework, PROMISES[framework])

    def declare(name: str, source: str, *options: Option) -> Method:
        return plain(name, *claims, source=source, disclaims=refused, options=options)

    return (
        plain("backprop", *ORACLE_CLAIMS, source="§2.1.4"),
        declare("sqrt_n", "§2.5.1, Chen et al. 2016"),
        declare("recursive", "§2.5.2"),
        declare("recompute_all", "§2.5.2"),
        declare("revolve", "§2.5.3, Griewank and Walther 2000"),
        declare("uniform_dp", "§2.5.5, Alg. 2.1", _budget(framework, "uniform_dp")),
        declare("precise_dp", "§3.1, Alg. 3.4 mended", _budget(framework, "precise_dp")),
    )


def _shape(layers: int, width: int, batch: int, profile: str) -> dict[str, Any]:
    return {"layers": layers, "width": width, "batch": batch, "profile": profile}


# A chain has no time axis. No shape has 131 layers: plain backprop in JAX would take 55 s of one core to compile, and
# recompute_all would recurse too deep. Kernels may cut the rows into tiles of 128, so a batch of each profile has more
# rows than that.
SHAPES = (
    _shape(1, 1, 1, "uniform"),
    _shape(1, 2, 1, "varied"),
    _shape(2, 2, 2, "varied"),
    _shape(3, 1, 2, "varied"),
    _shape(4, 2, 131, "varied"),
    _shape(5, 2, 3, "varied"),
    _shape(7, 3, 2, "varied"),
    _shape(9, 2, 2, "uniform"),
    _shape(12, 4, 2, "varied"),
    _shape(1, 1, 131, "uniform"),
)

STRESS = (
    {**SHAPES[8], "scale": 3.0},
    {**SHAPES[8], "scale": 0.1},
    {**SHAPES[7], "scale": 6.0},
    _shape(24, 3, 2, "varied"),
)

TRIAL = Trial(
    clever="uniform_dp",
    lossy="revolve",
    leaves=("layers[0].w", "layers[0].b"),
    turns=("layers[0].w", "layers[0].b", "layers[1]"),
    target="target",
    state="x",
    single=("layers",),
    large=("params.layers", 4.0),
    ragged=("layers", 2),
)

FAMILY = Family(
    name="chain",
    paper=PAPER,
    spec=f"{HERE}.problem:ChainSpec",
    methods=_methods("jax") + _methods("torch"),
    shapes=SHAPES,
    values={"scale": (0.2, 3.0)},
    stress=STRESS,
    letters={"N": "layers", "B": "batch"},
    measured={"dtype": "float32", "layers": 16, "width": 8, "batch": 256, "profile": "uniform"},
    eager={"batch": 32},
    trial=TRIAL,
)
