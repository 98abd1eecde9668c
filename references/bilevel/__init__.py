"""bilevel: MixFlow-MG, meta-gradients by mixed-mode differentiation.

Paper: Kemaev, Calian, Zintgraf, Farquhar, van Hasselt, "Scalable meta-learning via mixed-mode differentiation" (2025).

Two cases where second derivatives are delicate. Adam with epsilon_root = 0 has no second derivative where v̂ = 0. The
meta-gradient needs only the first derivative, which exists there and is claimed (`optimisers`). No further derivative
is claimed: a problem on which the oracle is not finite is not judged. ReLU's second derivative is 0 on both sides of
its kink. The claim is about points where no argument of ReLU is 0; drawn numbers are never 0.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from gradgate.references.bilevel.claims import PROMISES
from gradgate.references.claims import KAPPA_OF_ROUNDING, ORACLE_CLAIMS, reference_method
from gradgate.references.contract import Claim, Family, Method, Option, Trial

PAPER = "Kemaev et al., Scalable meta-learning via mixed-mode differentiation, 2025"
HERE = "gradgate.references.bilevel"
TEN_BITS = {"kappa": 1024.0, "rounding": ""}
"""For a method that must keep its digits: with plain noise, log2 κ = 10 bits of 53 (float64) or 24 (float32) may go."""


def flags(spec: Any) -> Sequence[bool]:
    """Both values of a flag; for the transformer, whose programs are large, only the paper's value."""
    return (True,) if spec.model == "transformer" else (False, True)


REMAT = Option("remat", "True or False", flags, illegal=(1, 0, None, "yes"), usual=lambda spec: True)
SAVE = Option("save_inner_grads", "True or False", flags, illegal=(1, 0, None, "no"), usual=lambda spec: True)


def pushed(spec: Any) -> Sequence[int]:
    """How many JVPs are pushed forward together: one on the smallest problem, few in ragged groups, or all."""
    if spec.model != "toy":
        return (1000,)
    return (1, 1000) if spec.width == 1 else (7, 1000)


TANGENTS = Option(
    "tangents", "an integer of at least 1", pushed, illegal=(0, -1, 1.5, None, "all", True), usual=lambda spec: 1
)


def divisors(spec: Any) -> Sequence[int]:
    """Numbers of devices, at most 4, that the batch can be divided among."""
    return [devices for devices in range(1, 5) if spec.batch % devices == 0]


DEVICES = Option(
    "devices",
    "an integer that divides the batch; in JAX at most the number of its devices",
    divisors,
    illegal=(0, -1, 1.5, 10**6, None),
    usual=lambda spec: divisors(spec)[-1],
)

MOMENTUM = {"optimiser": "momentum"}
TAKEN_BACK = {"optimiser": ("momentum", "adam")}
DRIFT = Claim(
    "stability",
    "stability",
    "over 32 steps at μ = 0.9, keeps all but ten bits of its digits",
    "App. A.2",
    where={"optimiser": "momentum", "momentum": 0.9},
    settings=TEN_BITS,
)
"""For momentum taken back in floats, without a buffer: at μ = 0.3, 32 steps lose 56 bits, more than a float has."""
SECOND_ORDER = Claim(
    "second_order",
    "second_order",
    "differentiated again with momentum, gives the oracle's H·v but for ten bits",
    "contract",
    where=MOMENTUM,
    settings=TEN_BITS,
)
"""For steps taken back in words: tangents of rebuilt states are floats, and lose as much as states in floats."""
COMPENSATED = Claim(
    "stability",
    "stability",
    "keeps its digits over 32 steps at μ = 0.9 and β₁ = 0.9",
    "App. A.2",
    where={**TAKEN_BACK, "momentum": 0.9},
)
BYTE_BFLOAT16 = Claim(
    "gradient_bfloat16",
    "gradient",
    "equals the gradient of backprop in bfloat16",
    "contract",
    where=MOMENTUM,
    settings={"dtype": "bfloat16", "kappa": 16.0, "rounding": ""},
)
"""For a grid that is finer than bfloat16: the noise of bfloat16 is allowed, and no more."""
SHARDED: dict[str, dict[str, Any]] = {
    "jax": {"sharded": f"{HERE}.in_jax.sharded:on_profile"},
    "torch": {
        "unmeasured": "it runs in processes of its own, which the tracker of bytes does not see",
        "disclaims": ("vmap", "second_order"),
    },
}
"""Framework -> how the method over several devices is measured, and which transformations it refuses."""


FEW_ENTRIES = {"layers": 1, "width": 4}
"""For forward mode, which runs once for each entry of η: at the usual problem, eager PyTorch takes ten minutes."""


def _methods(framework: str) -> tuple[Method, ...]:
    """The methods of a framework; PyTorch also has the baseline of its users, by autograd."""
    declare = functools.partial(reference_method, "bilevel", framework, PROMISES[framework])
    here = f"in_{framework}"
    return (
        declare("truncated_bptt", *ORACLE_CLAIMS, options=(REMAT, SAVE), source="Algorithm 1"),
        declare("mixflow", options=(REMAT, SAVE), source="Algorithm 2, Eq. 7, 8"),
        declare(
            "mixflow_drop_in",
            options=(REMAT,),
            module=f"{here}.drop_in",
            source="Listings 1 and 2, mended",
            disclaims=("second_order",) if framework == "jax" else (),
        ),
        declare("reverse_over_forward", source="Proposition 3.1"),
        declare(
            "forward_mode",
            options=(TANGENTS,),
            module=f"{here}.forward",
            source="§2.3",
            measured=FEW_ENTRIES if framework == "torch" else {},
        ),
        declare(
            "momentum_inversion",
            module=f"{here}.static",
            kappa=KAPPA_OF_ROUNDING,
            rounding="loss_by_inversion",
            where=MOMENTUM,
            source="App. A.2, Maclaurin et al. 2015",
            replaced=(DRIFT,),
        ),
        declare(
            "compensated_inversion",
            module=f"{here}.compensated",
            where=TAKEN_BACK,
            source="App. A.2",
            replaced=(COMPENSATED, SECOND_ORDER),
        ),
        declare(
            "buffered_inversion",
            module=f"{here}.buffered",
            kappa=KAPPA_OF_ROUNDING,
            rounding="loss_on_a_grid",
            where=MOMENTUM,
            source="App. A.2, Maclaurin et al. 2015, Algorithm 3",
            replaced=(BYTE_BFLOAT16,),
        ),
        declare("log_remat", module=f"{here}.static", source="App. A.2, Griewank 1992"),
        declare("gradient_replay", options=(REMAT,), module=f"{here}.replay", source="beyond the paper; §4"),
        declare(
            "bilevel_sharded",
            options=(DEVICES,),
            module=f"{here}.sharded",
            source="App. A.2, Rajbhandari et al. 2020",
            **SHARDED[framework],
        ),
        *(
            (
                declare(
                    "autograd_checkpoint",
                    options=(REMAT,),
                    module=f"{here}.autograd",
                    source="Listing 2, the baseline",
                    disclaims=("vmap", "second_order"),
                ),
            )
            if framework == "torch"
            else ()
        ),
    )


def _shape(choices: str, T: int, L: int, B: int, D: int, V: int, **more: Any) -> dict[str, Any]:
    task, model, optimiser = choices.split()
    return {
        "task": task,
        "model": model,
        "optimiser": optimiser,
        "steps": T,
        "layers": L,
        "batch": B,
        "width": D,
        "vocabulary": V,
        **more,
    }


# Every task, model and optimiser occurs, and every size at its edge. With one data point, half of ReLU's units give 0:
# their weights have no gradient, which is Adam's trap. A NaN there reaches η only from the second layer on: in the
# first layer the dead unit itself keeps it from the parameters. Programs of the transformer take long to compile, and
# twice as long with Adam. `strategies.pick_options` goes by the sum of the sizes: with these sizes all four settings of
# remat and save_inner_grads occur. One batch with each task, model and optimiser has more rows than the usual tiles of
# 32, 64 and 128, and is no multiple of any, even when four devices share it. There are few inner steps: with 131 of
# them, PyTorch in sixty digits takes 9 s per problem.
SHAPES = (
    _shape("maml toy sgd", 1, 1, 1, 1, 2),
    _shape("learning_lr mlp adam", 2, 2, 1, 4, 2, activation="relu"),
    _shape("maml mlp momentum", 1, 2, 4, 2, 3),
    _shape("loss_weighting mlp sgd", 2, 2, 132, 2, 3),
    _shape("maml transformer sgd", 2, 1, 2, 2, 3, ffw=2, sequence=2),
    _shape("loss_weighting toy momentum", 5, 2, 3, 5, 2),
    _shape("maml toy momentum", 1, 1, 132, 1, 2),
    _shape("learning_lr transformer adam", 1, 2, 132, 2, 3, ffw=2, sequence=2, activation="relu"),
)

# Except for the length of three of them, these are shapes from above, so that no more programs are compiled.
STRESS = (
    {**SHAPES[2], "steps": 32, "momentum": 0.9},
    {**SHAPES[2], "steps": 32, "momentum": 0.3},
    {**SHAPES[1], "epsilon": 1e-12},
    {**SHAPES[1], "steps": 32},
    {**SHAPES[3], "scale": 3.0, "learning_rate": 1.0},
)

MEASURED = {
    "dtype": "float32",
    "task": "maml",
    "model": "mlp",
    "optimiser": "momentum",
    "steps": 2,
    "batch": 256,
    "layers": 8,
    "width": 16,
    "vocabulary": 16,
    "activation": "gelu",
}

TRIAL = Trial(
    clever="mixflow",
    lossy="momentum_inversion",
    leaves=("",),
    turns=(("layers", "weights"), ("readout", "score")),
    coarse={"momentum_inversion": 0.2},
    target="targets",
    state="learning_rate",
    single=("batch",),
    large=("data.learning_rate", 0.2),
    ragged=("steps", 2),
)

FAMILY = Family(
    name="bilevel",
    paper=PAPER,
    spec=f"{HERE}.problem:BilevelSpec",
    methods=_methods("jax") + _methods("torch"),
    shapes=SHAPES,
    values={
        "learning_rate": (0.01, 0.3),
        "momentum": (0.5, 0.99),
        "epsilon": (1e-8, 1e-2),
        "scale": (0.2, 1.0),
    },
    stress=STRESS,
    letters={"T": "steps", "L": "layers", "B": "batch", "S": "sequence"},
    measured=MEASURED,
    trial=TRIAL,
)
