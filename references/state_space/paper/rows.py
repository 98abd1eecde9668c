"""Single figures of the paper, each next to what is measured or computed here.

§4.5: "a selective diagonal SSM with P=128, N=225 and bs=8, while storing and performing computations in FP16, computing
vjp_A, vjp_B and vjp_C each takes around 0.6MB memory and 1798144 FLOPs". One net is a single dense layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.published import Published, at_least, at_most, equal, less_than, more_than, refuted, upheld
from gradgate.references.state_space.paper import identities, stored_states
from gradgate.references.state_space.paper.costs import BATCH, OUTPUTS, STATE, WIDTH

DEPTH = {"jax": 256, "torch": 8}
"""Framework -> the T at which doublings start: PyTorch's programs are traced operator by operator."""


def doubling(method: str, framework: str, profile: str = "") -> float:
    """What a second doubling of T adds to a method's longest chain of operations, over what the first one adds."""
    from gradgate.references.state_space.paper import depth
    from gradgate.references.state_space.problem import StateSpaceSpec

    options = {"instances": 4 * DEPTH[framework]} if method == "adjoint_parallel" else {}
    chains = [
        depth.of_method(method, framework, StateSpaceSpec(length=factor * DEPTH[framework], layers=1), **options)
        for factor in (1, 2, 4)
    ]
    return (chains[2] - chains[1]) / (chains[1] - chains[0])


def acceleration(instances: int, framework: str, profile: str = "") -> float:
    """Batches of VJPs of A that run one after another on one instance, over those on several, at T = 2·instances."""
    from gradgate.references.state_space.paper import depth
    from gradgate.references.state_space.problem import StateSpaceSpec

    spec = StateSpaceSpec(length=2 * instances, layers=1, state=1, width=1, batch=1)
    alone, together = (depth.batches("adjoint_parallel", framework, spec, instances=m)["A"] for m in (1, instances))
    return alone / together


def chain_of_nets(method: str, kind: str, profile: str = "") -> int:
    """The longest chain of evaluations or VJPs of the nets of four layers in JAX."""
    from gradgate.references.state_space.paper import depth
    from gradgate.references.state_space.problem import StateSpaceSpec

    return depth.of_nets(method, StateSpaceSpec(length=4, layers=4), kind)


chain_of_vjps = functools.partial(chain_of_nets, "adjoint_sharding", "vjps")
chain_of_vjps_printed = functools.partial(chain_of_nets, "adjoint_sharding_printed", "vjps")
chain_of_evaluations = functools.partial(chain_of_nets, "adjoint_sharding", "evaluations")
doubling_backprop_jax = functools.partial(doubling, "backprop", "jax")
doubling_backprop_torch = functools.partial(doubling, "backprop", "torch")
doubling_adjoint_parallel_jax = functools.partial(doubling, "adjoint_parallel", "jax")
doubling_adjoint_parallel_torch = functools.partial(doubling, "adjoint_parallel", "torch")
doubling_associative_scan_jax = functools.partial(doubling, "associative_scan", "jax")
doubling_associative_scan_torch = functools.partial(doubling, "associative_scan", "torch")
acceleration_7_jax = functools.partial(acceleration, 7, "jax")
acceleration_7_torch = functools.partial(acceleration, 7, "torch")
acceleration_56_jax = functools.partial(acceleration, 7 * 8, "jax")
acceleration_280_jax = functools.partial(acceleration, 5 * 8 * 7, "jax")


def chain(method: str, length: int) -> float:
    """The longest chain of operations of loss and gradient of one layer in JAX, on as many instances as can be used."""
    from gradgate.references.state_space.paper import depth
    from gradgate.references.state_space.problem import StateSpaceSpec

    options = {"instances": length} if method == "adjoint_parallel" else {}
    return float(depth.of_method(method, "jax", StateSpaceSpec(length=length, layers=1), **options))


PRINTED_FLOPS, PRINTED_BYTES = 1_798_144, 600_000


def flops_formula(width: int = WIDTH, state: int = STATE, batch: int = BATCH) -> int:
    """bs(7NP + 3N): three passes of the net, bs·N(2P+1) each by Table 1, and NP for the adjoint state (§4.5)."""
    return batch * (7 * state * width + 3 * state)


def memory_formula(width: int = WIDTH, state: int = STATE, batch: int = BATCH) -> int:
    """Numbers that a VJP of A holds by Table 1, diagonal: bs(N + |θ_A|*) + |θ_A|, the bias left out."""
    return batch * (state + state * width) + state * width


def formula_flops(profile: str) -> int:
    """The paper's formula at the sizes that the paper names."""
    return flops_formula()


def formula_bytes(profile: str) -> int:
    """Table 1 at the sizes that §4.5 names, with two bytes per number."""
    return 2 * memory_formula()


def net_passes() -> int:
    """FLOPs of three passes of the net A, bs·N(2P+1) each: Table 1 without the adjoint state."""
    return 3 * BATCH * STATE * (2 * WIDTH + 1)


def vjp_flops(profile: str) -> int:
    """FLOPs of one VJP of A, forward pass included, counted from its program, 2 per multiply-add as Table 1 counts."""
    from gradgate.hw_profiles import work

    program, arguments = _vjp_of_a("float32")
    return work.of(program, arguments).nominal_flops


def vjp_bytes(profile: str) -> int:
    """Bytes that one VJP of A takes in bfloat16: arguments, results and temporaries.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure

    found = measure(*_vjp_of_a("bfloat16"), profile)
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.required_bytes


def _vjp_of_a(dtype: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One VJP of A at §4.5's sizes, by its parameters and its input, and the shapes of its arguments."""
    import jax

    from gradgate.references.draws import shapes
    from gradgate.references.state_space.problem import StateSpaceSpec

    problem: Any = shapes(
        StateSpaceSpec(dtype=dtype, length=1, layers=1, state=STATE, width=WIDTH, batch=BATCH, activation="identity")
    )

    def vjp(p: Any, x: Any, cotangent: Any) -> Any:
        return jax.vjp(lambda p, x: problem.A({"A": p}, x), p, x)[1](cotangent)

    layer = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), problem.params["layers"]["A"])
    x, cotangent = (jax.ShapeDtypeStruct((BATCH, n), dtype) for n in (WIDTH, STATE))
    return vjp, (layer, x, cotangent)


HERE = "gradgate.references.state_space.paper.rows"
COSTS = "gradgate.references.state_space.paper.costs"
DIAGONAL = "gradgate.references.state_space.paper.diagonal"
FORMULA = "a formula, which sizes determine; biases and sums of n terms by n − 1 additions are less than this"
ONE_GRADIENT = (
    "the formula keeps a gradient for every sequence; products of matrices sum over them, so that ŷ, the cotangent and "
    "one gradient are left"
)
TRAINING = "gradgate.references.state_space.paper.training"
SAME = equal(0.05, '"while maintaining performance": a twentieth more loss is not maintained')
MAINTAINED = {1.0: ("", upheld(SAME)), 4.0: ("", upheld(SAME))}
"""Decay -> why the loss differs, and what is declared of it."""
MILLION = 1_000_000


def _table_1() -> list[Published]:
    rows = []
    for structure, nets in OUTPUTS.items():
        for net, outputs in nets.items():
            told = {"structure": structure, "net": net}
            weights = WIDTH * outputs
            printed = BATCH * (outputs + weights) + weights
            left = BATCH * (WIDTH + outputs) + weights + outputs
            agreement = equal(0.15, "the compiler may add a temporary of the size of the smaller operand")
            alike = abs(left / printed - 1) < 0.15
            rows += [
                Published(
                    f"Table 1, {structure}, memory",
                    "by the parameters, compiled",
                    net,
                    "numbers",
                    f"{COSTS}:numbers",
                    told,
                    printed,
                    "one number of output: a gradient for each sequence is as large as ŷ, which the formula leaves out"
                    if alike
                    else ONE_GRADIENT,
                    expects=upheld(agreement) if alike else refuted(agreement, instead=left),
                ),
                Published(
                    f"Table 1, {structure}, FLOPs",
                    "by the parameters",
                    net,
                    "FLOPs",
                    f"{COSTS}:flops",
                    told,
                    BATCH * outputs * (2 * WIDTH + 1),
                    "the gradient of the parameters alone, without that of the input, which the layers below need",
                    expects=upheld(equal(0.01, FORMULA)),
                ),
                Published(
                    f"Table 1, {structure}, FLOPs",
                    "by the parameters and the input",
                    net,
                    "FLOPs",
                    f"{COSTS}:flops",
                    told | {"of": "all"},
                ),
            ]
    return sorted(rows, key=lambda row: (row.place, row.series))


def _vjps() -> list[Published]:
    place, ratio, one = "§1, Vector-Jacobian product", f"{COSTS}:flops_ratio", {"structure": "diagonal", "net": "A"}
    fast = equal(0.05, '"as fast as a forward function call"; biases and sums are less than 5%')
    parameters, both = {"of": "parameters", "over": "forward"}, {"of": "all", "over": "forward"}
    jacobian = {"of": "jacobian", "over": "parameters"}
    return [
        Published(
            place,
            "FLOPs over a forward call's",
            "by the parameters",
            "times",
            ratio,
            one | parameters,
            1.0,
            expects=upheld(fast),
        ),
        Published(
            place,
            "FLOPs over a forward call's",
            "by the parameters and the input",
            "times",
            ratio,
            one | both,
            1.0,
            "the cotangent of the input is a product of matrices as large as the forward call's, and so is "
            "the gradient of the parameters",
            expects=refuted(fast, instead=2.0),
        ),
        Published(place, "FLOPs of the Jacobian over a VJP's", "diagonal", "times", ratio, one | jacobian),
        Published(
            place,
            "FLOPs of the Jacobian over a VJP's",
            "unstructured",
            "times",
            ratio,
            {"structure": "unstructured", "net": "A"} | jacobian,
            1000.0,
            expects=upheld(at_least('"can be thousands of times faster"')),
        ),
    ]


def _stored() -> list[Published]:
    T, K, place = 10_000, 100, "§4.5, T = 10000, K = 100"
    kept, all_of_it = {"length": T, "layers": K, "parameters": False}, {"length": T, "layers": K, "parameters": True}
    exact = equal(0.01, "numbers of arrays, which sizes determine")
    lacks = "A, C and h are N numbers each, and y is P: 3N + P a layer and token, where 2N + P is printed"
    states = f"{COSTS}:adjoint_states"
    truth = T * K * (3 * STATE + WIDTH) + T * WIDTH
    return [
        Published(
            place,
            "TK(2N+P)+TP",
            "A, C, h, y and dl/dy",
            "numbers",
            f"{COSTS}:stored",
            kept,
            T * K * (2 * STATE + WIDTH) + T * WIDTH,
            lacks,
            expects=refuted(exact, instead=truth),
        ),
        Published(
            place,
            "T(2NK+PK+P)+3N(P+1)",
            "and the parameters",
            "numbers",
            f"{COSTS}:stored",
            all_of_it,
            T * (2 * STATE * K + WIDTH * K + WIDTH) + 3 * STATE * (WIDTH + 1),
            f"{lacks}; and 3N(P+1) are the parameters of one layer of K",
            expects=refuted(exact, instead=truth + 3 * K * STATE * (WIDTH + 1)),
        ),
        Published(
            "§4.5",
            "PN+N",
            "parameters of a net",
            "numbers",
            f"{COSTS}:parameters_of_one_net",
            {},
            WIDTH * STATE + STATE,
            expects=upheld(exact),
        ),
        Published(
            place,
            "N(2P+1)(1+T)T/2",
            "all adjoint states over it",
            "times",
            f"{COSTS}:over_printed_states",
            {"length": T},
            1.0,
            "A diagonal takes N·P products and no sums, half of it",
            expects=upheld(at_most('"takes up to"')),
        ),
        Published(
            place,
            "NP(1+T)/T",
            "one adjoint state on average",
            "FLOPs",
            states,
            {"length": T, "average": True},
            STATE * WIDTH * (1 + T) / T,
            "the printed sum over the (1+T)T/2 states is N(2P+1) for each; NP is "
            "what one takes, and the first of each token takes none",
            expects=upheld(exact),
        ),
    ]


def _devices() -> list[Published]:
    digits = equal(0.01, "three digits are printed")
    rate, divided = f"{COSTS}:per_second", f"{COSTS}:quotient"
    sparse = "1,979 tera FLOPs are those of the device with structured sparsity; its dense rate is 989"
    place = "§4.5, one H100"
    return [
        Published(
            place,
            "batches of VJPs per second by bandwidth",
            "0.6 MB",
            "1/s",
            rate,
            {"amount": "bandwidth"},
            5.58e6,
            expects=upheld(digits),
        ),
        Published(
            place,
            "1979 tera / 1798144",
            "quotient",
            "1/s",
            divided,
            {"over": 1979e12, "under": 1_798_144},
            1.1e9,
            expects=upheld(digits),
        ),
        Published(
            place,
            "1979 tera / 1798144",
            "with the factor 3.76",
            "1/s",
            divided,
            {"over": 1979e12, "under": 1_798_144},
            3.76 * 1.1e9,
            "the quotient has no factor 3.76",
            expects=refuted(digits, instead=1.1e9),
        ),
        Published(
            place,
            "batches of VJPs per second by FLOPs",
            "dense FP16",
            "1/s",
            rate,
            {"amount": "compute"},
            1.1e9,
            sparse,
            expects=refuted(digits, instead=5.5e8),
        ),
        Published(
            place,
            "80 GB / 0.6 MB",
            "VJPs at once",
            "VJPs",
            divided,
            {"over": 80e9, "under": 0.6e6},
            133.0,
            "80 GB are 80,000 MB",
            expects=refuted(digits, instead=133_333.0),
        ),
    ]


def _truncated() -> list[Published]:
    told, two = {"length": 10_000, "window": 2_000}, equal(0.005, "two digits are printed")
    place, saved = "§4.3, T = 10000, T̄ = 2000", f"{COSTS}:saved_vjps"
    return [
        Published(
            place, "VJPs saved", "T̄T − T̄(T̄−1)/2", "%", saved, told | {"printed": False}, 64.0, expects=upheld(two)
        ),
        Published(
            place,
            "VJPs saved",
            "T̄T + T̄(T̄−1)/2, as printed",
            "%",
            saved,
            told | {"printed": True},
            64.0,
            "with the printed sign the paper's own example is 56%",
            expects=refuted(two, instead=56.0),
        ),
        Published("§4.3, VJPs of one layer", "curves", "tokens", "VJPs", f"{COSTS}:vjp_curves", {"window": 2_000}),
        Published(
            "§4.3, VJPs of one layer",
            "in all over truncated",
            "10,000 tokens",
            "times",
            "gradgate.references.derived:quotient",
            {
                "over": "§4.3, VJPs of one layer / curves / tokens / adjoint sharding",
                "under": "§4.3, VJPs of one layer / curves / tokens / truncated to 2000",
                "take": "last",
                "between": [10_000, 10_000],
            },
            1 / 0.36,
            expects=upheld(equal(0.02, '"64%" fewer, two digits')),
        ),
        Published("Fig. 6, work of one sequence", "curves", "tokens", "FLOPs", f"{COSTS}:training_work", drawn=True),
        Published(
            "§4.4, gradient's share of the FLOPs",
            "backprop",
            "T = 1000",
            "%",
            f"{COSTS}:backward_share",
            {"method": "backprop", "length": 1_000},
            50.0,
            expects=upheld(more_than('"most of the budget"')),
        ),
        Published(
            "§4.4, gradient's share of the FLOPs",
            "adjoint_sharding",
            "T = 1000",
            "%",
            f"{COSTS}:backward_share",
            {"method": "adjoint_sharding", "length": 1_000},
            50.0,
            expects=upheld(more_than('"most of the budget"')),
        ),
        *(
            Published(
                "Alg. 2, line 4",
                "products of A first, over C first",
                structure,
                "times the FLOPs",
                f"{COSTS}:products_first",
                {"structure": structure, "length": 1_000},
            )
            for structure in ("unstructured", "diagonal")
        ),
        Published(
            "§1, softmax attention",
            "exponent of bytes over the length",
            "2048 to 8192",
            "",
            f"{COSTS}:attention_exponent",
            {},
            2.0,
            expects=upheld(equal(0.05, '"growing quadratically"')),
        ),
        Published(
            "§1, softmax attention",
            "exponent of FLOPs over the length",
            "2048 to 8192",
            "",
            f"{COSTS}:attention_work_exponent",
            {},
            2.0,
            expects=upheld(equal(0.05, '"the L² scaling of transformers"')),
        ),
    ]


def _training() -> list[Published]:
    place = "Fig. 1, a step of training with Adam, batch 2, 100 diagonal layers"
    at = {"model": "1.27B", "length": MILLION}
    rows = [
        Published(place, model, "tokens", "GB", f"{DIAGONAL}:curves", {"model": model}, drawn=True)
        for model in ("32M", "63M", "127M", "225M", "1.27B")
    ]
    return [
        *rows,
        Published(
            "Abstract",
            "backprop over adjoint sharding",
            "1.27B, 1M tokens, nvidia-a100-40",
            "times",
            f"{DIAGONAL}:saving",
            at | {"profile": "nvidia-a100-40"},
            3.0,
            "the GPU of a P4 instance; the widths are chosen to fit the printed number of parameters",
            expects=upheld(equal(0.17, "one digit is printed: 2.5 to 3.5")),
        ),
        Published(
            "Abstract",
            "backprop over adjoint sharding",
            "1.27B, 1M tokens",
            "times",
            f"{DIAGONAL}:saving",
            at,
            None,
            "by the CPU's compiler",
        ),
        *(
            Published(
                "Abstract",
                "orders of magnitude",
                f"{structure} A, 10 layers, 10,000 tokens, nvidia-a100-40",
                "times",
                f"{COSTS}:saving_of_structure",
                {"structure": structure, "length": 10_000, "layers": 10, "profile": "nvidia-a100-40"},
                100.0,
                "a model of §3.1: backprop keeps B and C of every token, N·P numbers each, and an unstructured A, N²; "
                "adjoint sharding keeps y and h, P + N",
                expects=upheld(at_least('"orders of magnitude": two at least')),
            )
            for structure in ("unstructured", "diagonal")
        ),
        Published(
            "Abstract",
            "orders of magnitude",
            "the most of five models at 1M tokens",
            "times",
            f"{DIAGONAL}:largest_saving",
            {"length": MILLION},
            None,
            "with B and C diagonal too, as in Table 1, "
            "backprop keeps about seven numbers where adjoint sharding keeps y and h",
        ),
        Published(
            "Abstract, five P4 instances",
            "longest context, adjoint sharding over backprop",
            "1.27B, nvidia-a100-40",
            "times",
            f"{DIAGONAL}:more_tokens",
            {"profile": "nvidia-a100-40"},
            100 / 35,
            "how the tokens are spread falls out of the quotient",
            expects=upheld(more_than('"from 35K tokens to above 100K"')),
        ),
        *(
            Published(
                "Abstract, five P4 instances",
                "longest context",
                f"{told}, nvidia-a100-40",
                "tokens",
                f"{DIAGONAL}:longest",
                {"method": method, "profile": "nvidia-a100-40"},
                None,
                f"printed {printed}; ours is shared out evenly, the best there is, and the paper does not "
                "say how it spreads tokens: such a bound would hold of any printed number below it",
            )
            for told, method, printed in (
                ("backprop", "backprop", "35K"),
                ("adjoint sharding", "adjoint_sharding", "above 100K"),
            )
        ),
        Published(
            "§1",
            "parameters, gradients and moments over backprop's other bytes",
            "1.27B, 1M tokens",
            "times",
            f"{DIAGONAL}:states_over_rest",
            at,
            1.0,
            expects=upheld(
                less_than('"only a small fraction of the total memory", without a number: less than the rest')
            ),
        ),
        Published(
            "§1",
            "parameters, gradients and moments over backprop's other bytes",
            "1.27B, 10000 tokens",
            "times",
            f"{DIAGONAL}:states_over_rest",
            {"model": "1.27B", "length": 10_000},
        ),
        Published(
            "§4.1",
            "checkpointing every layer over adjoint sharding",
            "1.27B, 1M tokens",
            "times",
            f"{DIAGONAL}:saving",
            at | {"method": "checkpointed"},
            1.0,
            "of each layer y is kept, and the rest is computed again once; adjoint sharding keeps y and h",
            expects=refuted(
                at_least('"the memory cost is still high"; the adjoint method is "to further reduce" it'), instead=0.549
            ),
        ),
    ]


def _losses() -> list[Published]:
    fifth, longer = {"window": 10}, {1.0: "decay 1", 4.0: "decay 4"}
    rows = [
        Published(
            "Conclusion",
            "largest difference of the losses of training",
            "100 steps, decay 1",
            "times",
            f"{TRAINING}:largest_difference",
            {"method": "adjoint_sharding", "decay": 1.0},
            1.0,
            expects=upheld(equal(1e-6, '"the same training results": float64, and 100 steps from each other')),
        ),
    ]
    for decay, told in longer.items():
        rows.append(
            Published(
                "Abstract",
                "loss by the gradient truncated to a fifth, over backprop's",
                f"100 steps, {told}",
                "times",
                f"{TRAINING}:last_loss",
                fifth | {"decay": decay},
                1.0,
                MAINTAINED[decay][0],
                expects=MAINTAINED[decay][1],
            )
        )
    rows += [
        Published(
            "§4.3, distance of the truncated from the full gradient",
            told,
            window,
            "relative",
            f"{TRAINING}:distance",
            {"window": window, "decay": decay},
        )
        for decay, told in longer.items()
        for window in (1, 5, 10, 25)
    ]
    place, told_of = "§4.3, losses of training", {"decay": 1.0}
    return [*rows, Published(place, "curves", "steps", "nats", f"{TRAINING}:curves", told_of)]


def _chains() -> list[Published]:
    place = "Longest chain of operations, one layer (ours)"
    return [
        Published(place, method, length, "operations", f"{HERE}:chain", {"method": method, "length": length})
        for method in ("backprop", "associative_scan", "adjoint_sharding", "adjoint_parallel")
        for length in (256, 1024, 4096)
    ]


PUBLISHED = (
    *identities.ROWS,
    *stored_states.ROWS,
    *_training(),
    *_losses(),
    *_vjps(),
    *_truncated(),
    *_table_1(),
    *_stored(),
    *_devices(),
    *_chains(),
)
