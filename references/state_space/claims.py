"""What the methods promise about memory and work: the paper's claims with their source, and the claims added here.

The problems are small if a claim must hold on the smallest device too, and what grows is larger than the parameters.
The sizes are powers of 4, so that the best chunk, √T, is an integer.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.contract import Claim
from gradgate.references.counts import joined
from gradgate.references.laws import figure, memory_law, per_device, work_law
from gradgate.references.state_space.counts import claims as counted

PAPER = "gradgate.references.state_space.paper.rows"
MISPRINTS = "gradgate.references.state_space.paper.misprints"
OURS = "beyond the paper"
SMALL = {"layers": 2, "batch": 2, "vocabulary": 16}
WIDE = {"layers": 2, "batch": 8, "vocabulary": 16, "width": 64, "state": 32}
EAGER = {"layers": 1, "batch": 4, "vocabulary": 8, "width": 16, "state": 16}
LONG = (256, 1024, 4096, 16384, 65536)
LONGEST = (1024, 4096, 16384, 65536, 262144)
SQUARES = (64, 256, 1024, 4096, 16384)


def _work(exponent: int, statement: str, source: str, sizes: tuple[int, ...] = LONGEST, **settings: Any) -> Claim:
    return work_law("work_law", statement, source, variable="length", sizes=sizes, exponent=exponent, **settings)


def _memory(name: str, statement: str, source: str, sizes: tuple[int, ...], exponent: float, **settings: Any) -> Claim:
    return memory_law(name, statement, source, variable="length", sizes=sizes, exponent=exponent, **settings)


ROOT = "at a chunk of about √T, temporary memory grows like √T or slower"
LINEAR_WORK = "its FLOPs grow linearly with T"
EVERYTHING = "temporary memory grows linearly with T: every activation is stored"

CHAIN = "its longest chain of operations grows linearly with T: doubling T again adds twice as much"
LEVELS = "its longest chain of operations grows like log T: doubling T adds as much each time"


def _chain(method: str, framework: str, growth: int, statement: str, source: str, **claim: Any) -> Claim:
    """A claim: what a second doubling of T adds to the longest chain, over the first: 2 if linear, 1 if log T."""
    return figure(
        claim.pop("name", "chain_law"),
        statement,
        source,
        printed=growth,
        unit="times",
        tolerance=0.05,
        measured=f"{PAPER}:doubling_{method}_{framework}",
        **claim,
    )


def _literal(name: str, statement: str, source: str, measured: str, reason: str = "") -> Claim:
    """A claim: what the paper prints over what is right is 1; with a reason it is expected to be refuted."""
    return figure(
        name,
        statement,
        source,
        printed=1,
        measured=f"{MISPRINTS}:{measured}",
        unit="times",
        tolerance=1e-9,
        expected="refuted" if reason else "upheld",
        declared_reason=reason,
    )


def _faster(name: str, instances: int, framework: str, which: str, source: str) -> Claim:
    return figure(
        name,
        f"{which} leave {instances} times fewer batches of VJPs one after another, at T = {2 * instances}",
        source,
        printed=instances,
        measured=f"{PAPER}:acceleration_{instances}_{framework}",
        unit="times",
    )


NO_VJP_WAITS = "no VJP of a net waits for another: at K = 4 the longest chain of them is 1"
LAYERS = {
    "adjoint_sharding": (
        figure(
            "layers_at_once_printed",
            NO_VJP_WAITS,
            "§4.4",
            printed=1,
            measured=f"{PAPER}:chain_of_vjps",
            unit="VJPs",
            expected="refuted",
            declared_reason="the cotangent of a layer comes through the VJPs of all layers above "
            "it: the chain is 4, as in backprop",
        ),
        figure(
            "nets_at_once",
            "A, B and C of a layer do not wait for each other: at K = 4 the longest chain of their evaluations is 4",
            "§4.4: Υ > K devices",
            printed=4,
            measured=f"{PAPER}:chain_of_evaluations",
            unit="evaluations",
        ),
    ),
    "adjoint_sharding_printed": (
        figure(
            "layers_at_once",
            f"{NO_VJP_WAITS}, of the gradient that Prop. 3 prints",
            "§4.4",
            printed=1,
            measured=f"{PAPER}:chain_of_vjps_printed",
            unit="VJPs",
        ),
    ),
}


def _at_once(framework: str) -> dict[str, tuple[Claim, ...]]:
    """Method -> its claims about what can run at once."""
    parallel = [
        _chain("adjoint_parallel", framework, 2, f"on as many instances as can be used, {CHAIN}", OURS),
        _faster("acceleration_7", 7, framework, "7 instances", "§4.5"),
    ]
    layers: dict[str, tuple[Claim, ...]] = {}
    if framework == "jax":  # PyTorch would run 157,080 VJPs for the last
        layers = LAYERS
        parallel.append(_faster("acceleration_56", 56, framework, "7 instances on each of 8 GPUs", "§4.5"))
        parallel.append(_faster("acceleration_280", 280, framework, "five times as many", "Fig. 6, caption"))
    return layers | {
        "backprop": (_chain("backprop", framework, 2, CHAIN, "§4.5: its sequential nature"),),
        "adjoint_parallel": tuple(parallel),
        "associative_scan": (
            _chain("associative_scan", framework, 1, LEVELS, OURS),
            _chain(
                "associative_scan",
                framework,
                2,
                f"backpropagation is sequential: {CHAIN}",
                "§4.5",
                name="chain_law_printed",
                expected="refuted",
                declared_reason="a linear recurrence composes affine maps, and composition is associative: it is a "
                "parallel prefix, and so is its derivative",
            ),
        ),
    }


JAX: dict[str, tuple[Claim, ...]] = {
    "backprop": (
        _memory("memory_law", EVERYTHING, "§1: the baseline", LONG, 1, bound="equal", spec=SMALL),
        _work(1, LINEAR_WORK, "§1: the baseline", spec=SMALL),
    ),
    "adjoint_sharding": (
        _memory(
            "memory_law",
            "a VJP at a time, temporary memory grows with T through y and h alone: linearly at most, and at "
            "T = 65536 it is at least 3 times below backprop's",
            "Prop. 2, Fig. 1",
            LONG,
            1,
            spec=SMALL,
            below=("backprop", 3.0),
        ),
        _work(2, "its FLOPs grow like T²: (1+T)T/2 VJPs of A and of B", "§4.3", spec=SMALL),
        figure(
            "vjp_flops",
            "three passes of its net, bs·N(2P+1) FLOPs each, make a VJP of A, at P = 128, N = 225, bs = 8",
            "Table 1, §4.5 without the adjoint state",
            printed=1_387_800,
            measured=f"{PAPER}:vjp_flops",
            unit="FLOPs",
        ),
        figure(
            "vjp_flops_printed",
            "bs(7NP+3N), FLOPs of a VJP with its adjoint state, is 1,798,144 at P = 128, N = 225, bs = 8",
            "§4.5",
            printed=1_798_144,
            measured=f"{PAPER}:formula_flops",
            unit="FLOPs",
            expected="refuted",
            declared_reason="the formula gives 1,618,200 there; 1,798,144 is its value, to the last digit, "
            "at P = 125, N = 256",
        ),
        figure(
            "vjp_memory",
            "a VJP of A takes no more than 0.6 MB at P = 128, N = 225, bs = 8, in two bytes a number",
            "§4.5",
            printed=600_000,
            measured=f"{PAPER}:vjp_bytes",
            unit="bytes",
            bound="at most",
        ),
        figure(
            "vjp_memory_printed",
            "bs(N+|θ|)+|θ| numbers of two bytes are around 0.6 MB, ±10%, at P=128, N=225, bs=8",
            "Table 1, §4.5",
            printed=600_000,
            measured=f"{PAPER}:formula_bytes",
            unit="bytes",
            tolerance=0.1,
            expected="refuted",
            declared_reason="the formula gives 0.52 MB there, and 0.58 MB at P = 125, N = 256, "
            "whose FLOPs the paper prints",
        ),
        _literal(
            "initial_state",
            "∂y/∂θ + λ⁰ ∂b/∂θ + Σ λⁱ ∂f/∂θ is the derivative of a recurrence that starts from b(θ)",
            "Prop. 1, Eq. 4 mended",
            "initial_state_mended",
        ),
        _literal(
            "initial_state_printed",
            "∂y/∂θ + λ⁰ b(θ) + Σ λⁱ ∂f/∂θ is the derivative of a recurrence that starts from b(θ)",
            "Prop. 1, Eq. 4",
            "initial_state_printed",
            "b(θ) is the first state, but its derivative is needed; the two agree only where both are 0",
        ),
    ),
    "adjoint_truncated": (
        _work(1, "at a fixed window its FLOPs grow linearly with T", "§4.3, Eq. 7", spec=SMALL, options={"window": 16}),
    ),
    "reverse_recurrence": (
        _memory("memory_law", ROOT, OURS, SQUARES, 0.5, spec=WIDE),
        _memory(
            "memory_law_fixed_chunk",
            "at a chunk of 32, temporary memory grows linearly with T at most, as T/c states and the tokens, and at "
            "T = 262144 it is at least 500 times below backprop's",
            OURS,
            LONGEST,
            1,
            spec=WIDE,
            options={"chunk": 32},
            below=("backprop", 500.0),
        ),
        _work(1, LINEAR_WORK, OURS, spec=SMALL),
    ),
    "adjoint_parallel": (
        _memory(
            "memory_law",
            "on 56 instances, temporary memory grows linearly with T at most, and at T = 65536 it is at least 3 times "
            "below backprop's",
            "§4.5",
            LONG,
            1,
            spec=SMALL,
            below=("backprop", 3.0),
        ),
        _work(2, "its FLOPs grow like T²: (1+T)T/2 VJPs of A and of B", "§4.3", spec=SMALL),
    ),
    "associative_scan": (
        _memory("memory_law", EVERYTHING, OURS, LONG, 1, bound="equal", spec=SMALL),
        _work(1, LINEAR_WORK, OURS, spec=SMALL),
    ),
    "adjoint_distributed": (
        per_device(
            "memory_per_device",
            "what grows with the layers is shared out: on each of Υ = 4 devices it is Mem/Υ",
            "§4.4",
            variable="layers",
            sizes=(8, 16, 32, 64, 128),
            devices=4,
            spec={"length": 256, "batch": 8, "vocabulary": 16},
        ),
        _literal(
            "ranges",
            "Alg. 1 on K = 3 and Υ = 2, the last device with the rest of the layers, computes the loss",
            "Alg. 1, Tables 2–6",
            "forward_mended",
        ),
        _literal(
            "ranges_printed",
            "Alg. 1 with k = (υ−1)(K//Υ)+1, …, υ(K//Υ) on K = 3 and Υ = 2 computes the loss",
            "Alg. 1, lines 3 and 10",
            "ranges_printed",
            "where Υ does not divide K, no device computes the last K mod Υ layers; Tables 2–6 give them to the last",
        ),
        _literal(
            "passed_printed",
            "Alg. 1 that passes y_{υ(K//Υ)−1} to device υ+1 computes the loss, on K = 4 and Υ = 2",
            "Alg. 1, line 11",
            "passed_printed",
            "one layer too low: the next device begins with layer υ(K//Υ)+1, which reads y_{υ(K//Υ)}",
        ),
    ),
}

TORCH: dict[str, tuple[Claim, ...]] = {
    "backprop": (
        _memory("memory_law", EVERYTHING, "§1: the baseline", (4, 8, 16, 32, 64), 1, bound="equal", spec=EAGER),
        _work(1, LINEAR_WORK, "§1: the baseline", (4, 8, 16, 32, 64), spec=EAGER),
    ),
    "adjoint_sharding": (
        _memory(
            "memory_law",
            "temporary memory grows linearly with T at most, through y, h and the two nets of one layer",
            "Prop. 2",
            (4, 8, 16, 32, 64),
            1,
            spec=EAGER,
        ),
        _work(
            2,
            "its products of matrices grow like T²: (1+T)T/2 VJPs of A and of B",
            "§4.3",
            (8, 16, 32, 64, 128),
            spec=EAGER,
            tolerance=0.15,
        ),
    ),
    "adjoint_truncated": (
        _work(
            1,
            "at a fixed window its FLOPs grow linearly with T",
            "§4.3, Eq. 7",
            (8, 16, 32, 64, 128),
            spec=EAGER,
            options={"window": 4},
        ),
    ),
    "adjoint_parallel": (
        _memory(
            "memory_law",
            "on one instance, temporary memory grows linearly with T at most, through y, h and the nets of one layer, "
            "and at T = 48 it is at least 3 times below backprop's",
            "§4.5",
            (12, 16, 24, 32, 48),
            1,
            spec=EAGER,
            options={"instances": 1},
            below=("backprop", 3.0),
        ),
        _work(
            2,
            "its products of matrices grow like T²: (1+T)T/2 VJPs of A and of B",
            "§4.3",
            (8, 16, 32, 64, 128),
            spec=EAGER,
            tolerance=0.15,
        ),
    ),
    "associative_scan": (
        _memory("memory_law", EVERYTHING, OURS, (4, 8, 16, 32, 64), 1, bound="equal", spec=EAGER),
        _work(1, LINEAR_WORK, OURS, (4, 8, 16, 32, 64), spec=EAGER),
    ),
    "reverse_recurrence": (
        _memory("memory_law", ROOT, OURS, (4, 16, 64, 256, 1024), 0.5, spec=EAGER),
        _work(1, LINEAR_WORK, OURS, (4, 16, 64, 256, 1024), spec=EAGER),
    ),
}

PROMISES = {
    "jax": joined(JAX, _at_once("jax"), counted("jax")),
    "torch": joined(TORCH, _at_once("torch"), counted("torch")),
}
"""Framework -> method -> its claims about memory, work and counts."""
