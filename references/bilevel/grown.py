"""Claims about how bytes and FLOPs grow with B, S, T, the width and |η|, and about the three second-order products."""

from __future__ import annotations

from typing import Any

from gradgate.references.bilevel.paper.growth import SMALL, WIDE
from gradgate.references.contract import Claim
from gradgate.references.laws import figure, memory_law, work_law

HERE = "gradgate.references.bilevel.paper.growth"


def _law(name: str, statement: str, source: str, variable: str, sizes: tuple[int, ...], **more: Any) -> Claim:
    return memory_law(name, statement, source, variable=variable, sizes=sizes, **more)


def _figure(name: str, statement: str, source: str, printed: float, unit: str = "times", **more: Any) -> Claim:
    measured = f"{HERE}:{more.pop('measured', name)}"
    return figure(name, statement, source, printed=printed, unit=unit, measured=measured, **more)


PADDED = {"tpu": "its compiler pads the last axis of an array to 128, so small widths take as much as 128"}
BATCH = _law(
    "memory_law_batch",
    "its temporary memory grows linearly with B",
    "§5.3, Eq. 12",
    "batch",
    (64, 128, 256, 512, 1024),
    exponent=1,
    bound="equal",
    spec={"layers": 16},
)
WIDTH = _law(
    "memory_law_width",
    "its temporary memory grows like |θ|, the square of the width: no Hessian, |θ|², is made",
    "§2.3",
    "width",
    (16, 32, 64, 128, 256),
    exponent=2,
    spec=WIDE,
    not_by=PADDED,
)
STEP = _figure(
    "kept_of_a_step",
    "with a checkpoint per step it keeps one (θ, υ) of each inner step",
    "§4",
    1,
    "(θ, υ)",
    tolerance=0.02,
)
DYNAMIC = _figure(
    "dynamic_over_steps",
    "its dynamic memory is used again at every inner step: at T = 16 it is that at T = 4",
    "§4",
    1,
    tolerance=0.05,
)
COLLECTIVES = (
    "two collectives per inner step forward, four back, whatever the number of leaves",
    "its collectives move no more numbers than two gradients and a product read and sum",
)
K_HAT = (
    "k̂ is what one layer's product takes, with tangents: about 8 arrays of scores (B, h, S, S); the default keeps "
    "fewer than 5 of each layer. The gain comes from the factor L alone; were k̂ smaller, Eq. 12 would give more than "
    "L, and Fig. 7 prints 25 at 47 layers"
)

JAX: dict[str, tuple[Claim, ...]] = {
    "truncated_bptt": (
        BATCH,
        WIDTH,
        STEP,
        DYNAMIC,
        _figure(
            "activations_of_a_bare_step",
            "without a checkpoint per step it keeps at least one (θ, υ) and the "
            "activations of each step: T·(|A| + |θ| + |υ|)",
            "§4",
            1,
            bound="at most",
            tolerance=0.0,
        ),
    ),
    "mixflow": (
        BATCH,
        WIDTH,
        STEP,
        DYNAMIC,
        _figure(
            "over_reverse_over_reverse",
            "its product takes at most as many bytes as reverse over reverse mode",
            "§2.2",
            1,
            bound="at most",
            tolerance=0.0,
        ),
        _figure(
            "over_reverse_over_forward",
            "its product takes at most as many bytes as reverse over forward mode",
            "§2.2",
            1,
            bound="at most",
            tolerance=0.0,
        ),
        _figure(
            "jvp_memory",
            "a JVP of the inner gradient takes 3 times more memory than the forward pass: 3 or 4 "
            "times as much, by how one reads it",
            "§4",
            3.5,
            tolerance=0.15,
        ),
        _figure(
            "constants",
            "k̂ of mixed mode is smaller than k of the default",
            "§5.3, Eq. 12",
            1,
            bound="at most",
            tolerance=0.0,
            expected="refuted",
            declared_reason=K_HAT,
        ),
    ),
    "reverse_over_forward": (
        _law(
            "memory_law",
            "its temporary memory grows linearly with L",
            "§2.2",
            "layers",
            (4, 8, 16, 32, 64),
            exponent=1,
        ),
        work_law(
            "work_law",
            "its FLOPs grow linearly with T",
            "Proposition 3.1",
            variable="steps",
            sizes=(4, 16, 64, 256, 1024),
            exponent=1,
            spec=WIDE,
        ),
        _figure(
            "other_over_default",
            "its product takes at most as many bytes as reverse over reverse mode",
            "Proposition 3.1",
            1,
            bound="at most",
            tolerance=0.0,
        ),
        _figure(
            "work_of_products",
            "the three products take the same FLOPs to 1%",
            "§2.3, §3",
            1,
            bound="at most",
            tolerance=0.01,
        ),
        _figure(
            "bytes_of_products",
            "compiled, the bytes of the three products grow alike with L: the largest over the "
            "smallest is at 64 layers what it is at 16",
            "§2.3, §3",
            1,
            tolerance=0.05,
        ),
    ),
    "forward_mode": (
        _law(
            "memory_law",
            "its temporary memory does not grow with T, and at T = 1024 is 20 times below mixflow's",
            "§2.3",
            "steps",
            (4, 16, 64, 256, 1024),
            exponent=0,
            spec={**WIDE, "width": 16},
            below=("mixflow", 20.0),
            not_by={"tpu": "its compiler copies the batches of all T steps in bfloat16 for its products"},
        ),
        work_law(
            "work_law",
            "its FLOPs grow like |η|·|θ|: for η like θ, like the fourth power of the width",
            "§2.3",
            variable="width",
            sizes=(64, 128, 256, 512, 1024),
            exponent=4,
            spec=SMALL,
        ),
        _figure(
            "crossing",
            "it takes the FLOPs of mixflow where η is a single number, and more for any larger η",
            "§2.3",
            1,
            "numbers",
            tolerance=0.5,
        ),
        _figure(
            "jvp_work",
            "the FLOPs of a JVP of the inner loss are proportional to those of an evaluation: from 4 to 16 layers both "
            "grow alike, to 5%",
            "§2.2",
            1,
            tolerance=0.05,
        ),
        _figure(
            "rematerialised_jvp",
            "in forward mode a rematerialised layer takes no FLOPs and no bytes more",
            "§2.2",
            1,
            bound="at most",
            tolerance=0.0,
        ),
        _figure(
            "forward_over_forward",
            "a product by forward over forward mode costs |θ| times as much as mixflow's",
            "§2.2",
            1,
            "exponent",
            tolerance=0.1,
        ),
    ),
    "gradient_replay": (
        _law(
            "memory_law",
            "it grows linearly with T at most, and at T = 1024 takes 3.5 times fewer bytes than mixflow",
            "beyond the paper",
            "steps",
            (4, 16, 64, 256, 1024),
            exponent=1,
            spec=WIDE,
            below=("mixflow", 3.5),
        ),
    ),
    "bilevel_sharded": (
        _figure("collectives", COLLECTIVES[0], "App. A.2", 6, "per step", tolerance=0.0),
        _figure("moved", COLLECTIVES[1], "App. A.2", 1, bound="at most", tolerance=0.01),
    ),
}

EAGER = (2, 4, 8, 16, 32)
TORCH: dict[str, tuple[Claim, ...]] = {
    "mixflow": (
        _law(
            "below_autograd",
            "at L = 32 it takes 3 times fewer bytes than autograd with checkpoints",
            "Listing 2",
            "layers",
            EAGER,
            exponent=1,
            spec={"optimiser": "adam"},
            below=("autograd_checkpoint", 3.0),
        ),
    ),
    "reverse_over_forward": (
        _law("memory_law", "its temporary memory grows linearly with L", "§2.2", "layers", EAGER, exponent=1),
        work_law(
            "work_law",
            "its products of matrices grow linearly with T",
            "Proposition 3.1",
            variable="steps",
            sizes=EAGER,
            exponent=1,
            spec=WIDE,
        ),
    ),
    "forward_mode": (
        _law(
            "memory_law",
            "its temporary memory does not grow with T, and at T = 32 is 5 times below mixflow's",
            "§2.3",
            "steps",
            EAGER,
            exponent=0,
            spec={**WIDE, "width": 4, "batch": 1},
            below=("mixflow", 5.0),
        ),
        work_law(
            "work_law",
            "its products of matrices grow like |η|·|θ|: for η like θ, like the fourth power of the width",
            "§2.3",
            variable="width",
            sizes=(2, 4, 6, 8, 12),
            exponent=4,
            spec=SMALL,
        ),
    ),
    "autograd_checkpoint": (
        _law(
            "memory_law",
            "with layers checkpointed too, its temporary memory grows linearly with L, as the default's",
            "Listing 2",
            "layers",
            EAGER,
            exponent=1,
            bound="equal",
        ),
    ),
    "bilevel_sharded": (
        _figure(
            "memory_per_device",
            "what grows with T is shared out: on each of 4 ranks it grows 4 times less",
            "App. A.2",
            4,
            tolerance=0.1,
            measured="per_rank",
        ),
        _figure("collectives", COLLECTIVES[0], "App. A.2", 6, "per step", tolerance=0.0, measured="torch_collectives"),
        _figure("moved", COLLECTIVES[1], "App. A.2", 1, bound="at most", tolerance=0.01, measured="torch_moved"),
    ),
}
