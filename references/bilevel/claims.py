"""What the methods promise about memory and work: the paper's claims with their source, and the claims added here.

Sweeps over L use an MLP whose activations are larger than its parameters, as in the paper. Sweeps over T use the toy
map, whose parameters are larger than its activations. The paper's own sizes are in `paper`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gradgate.references.bilevel import grown as grown
from gradgate.references.bilevel.counts import claims as counted
from gradgate.references.bilevel.paper import printed as printed
from gradgate.references.bilevel.paper.laws import LINEAR_GAIN
from gradgate.references.contract import Claim
from gradgate.references.counts import joined
from gradgate.references.laws import figure, memory_law, per_device, work_law

HERE = "gradgate.references.bilevel.claims"
DEEP = (4, 8, 16, 32, 64)
LONG = (4, 16, 64, 256, 1024)
EAGER = (2, 4, 8, 16, 32)
"""Values of L and T in PyTorch, where every layer of every step is run."""
STATIC: dict[str, Any] = {"model": "toy", "optimiser": "adam", "layers": 2, "width": 64, "batch": 4}
"""A problem in which θ and υ take most of the memory."""
TILES: dict[str, Any] = {"model": "mlp", "optimiser": "sgd", "width": 128, "vocabulary": 16, "activation": "gelu"}
"""A problem whose arrays of shape (B, d) are padded on no device."""
LARGE: dict[str, Any] = {**STATIC, "optimiser": "momentum", "width": 512, "batch": 8}
"""The same with momentum, and with states larger than what every program needs, also on a TPU."""


def _deep(name: str, statement: str, **settings: Any) -> Claim:
    source = settings.pop("source", "§5.3, Eq. 12")
    given: dict[str, Any] = {"sizes": DEEP, "spec": {"optimiser": "adam"}, **settings}
    return memory_law(name, statement, source, variable="layers", **given)


def _long(statement: str, exponent: float, source: str = "App. A.2", **settings: Any) -> Claim:
    spec = {**STATIC, **settings.pop("spec", {})}
    given: dict[str, Any] = {"sizes": LONG, "exponent": exponent, "spec": spec, **settings}
    return memory_law("memory_law", statement, source, variable="steps", **given)


def _work(statement: str, exponent: float = 1, source: str = "§2.3, App. A.2", **settings: Any) -> Claim:
    given: dict[str, Any] = {"sizes": LONG, "exponent": exponent, "spec": STATIC, **settings}
    return work_law("work_law", statement, source, variable="steps", **given)


def log_remat_growth(profile: str) -> float:
    """Bytes by which `log_remat` grows from T = 1 to T = 1024, in percent of the bytes of 2·log2 1024 states.

    The growth of `momentum_inversion`, which keeps no state, is subtracted: copies of the batches (`batches_copied`).

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    from gradgate.references.bilevel.in_jax.static import log_remat, momentum_inversion

    kept, none = (
        _compiled(method, profile, **LARGE, steps=1024) - _compiled(method, profile, **LARGE, steps=1)
        for method in (log_remat, momentum_inversion)
    )
    return 100 * (kept - none) / (2 * 10 * _state(LARGE))


def batches_copied(profile: str) -> float:
    """Bytes by which `momentum_inversion` grows from T = 4 to T = 1024, over the bytes of its inputs x in bfloat16.

    Raises:
        LookupError: the compiler is not the TPU's: only that one copies the inputs, for its products of matrices.
    """
    from gradgate.hw_profiles.profile import load
    from gradgate.references.bilevel.in_jax.static import momentum_inversion

    if load(profile).compiler != "tpu":
        raise LookupError(f"{profile}: the claim is about what a TPU's compiler copies")
    few, many = (_compiled(momentum_inversion, profile, **LARGE, steps=T) for T in (4, 1024))
    return (many - few) / (2 * (1024 - 4) * LARGE["batch"] * LARGE["width"])


def _state(fields: dict[str, Any]) -> int:
    """Bytes of θ and υ of the toy map with momentum, float32."""
    return int(2 * 4 * fields["width"] ** 2)


def eager_log_remat_growth(profile: str) -> float:
    """`log_remat_growth` in PyTorch, from T = 1 to T = 32, over 5 states; the same on every profile."""
    from gradgate.references.bilevel.in_torch.static import log_remat

    one, many = (_eager(log_remat, **STATIC | {"optimiser": "momentum", "steps": T}) for T in (1, 32))
    return 100 * (many - one) / (5 * _state(STATIC))


def kept_of_a_layer(profile: str) -> float:
    """How many arrays (B, d) `mixflow` with rematerialised layers keeps per layer: the slope of its bytes over L and B.

    Raises:
        LookupError: the compiler is not the host's: nvidia-h100's keeps 1.75 of them, tpu-v5p's 3.53.
    """
    from gradgate.hw_profiles.profile import load
    from gradgate.references.bilevel.in_jax.methods import mixflow

    if load(profile).compiler != "host":
        raise LookupError(f"{profile}: what is kept of a layer is claimed of the host's compiler alone")

    def temporary(layers: int, batch: int) -> float:
        method = partial(mixflow, remat=True, save_inner_grads=True)
        return _compiled(method, profile, **TILES, layers=layers, batch=batch)

    few, many = ([temporary(layers, batch) for batch in (256, 512)] for layers in (8, 16))
    return (many[1] - many[0] - few[1] + few[0]) / (8 * 256 * 4 * TILES["width"])


def _compiled(method: Callable[..., Any], profile: str, **fields: Any) -> float:
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.bilevel.problem import BilevelSpec
    from gradgate.references.draws import shapes

    measured = measure(method, (shapes(BilevelSpec(dtype="float32", **fields)),), profile)
    if measured.temp_bytes is None:
        raise LookupError(f"{profile}: {measured.reason}")
    return measured.temp_bytes


def _eager(method: Callable[..., Any], **fields: Any) -> float:
    from gradgate.hw_profiles.torch_memory import peak
    from gradgate.references.backends import leaves
    from gradgate.references.bilevel.problem import BilevelSpec

    problem = BilevelSpec(dtype="float32", **fields).build("torch")
    measured = peak(method, (problem,), track=leaves([problem.params, problem.data]))
    return measured.total_bytes - measured.held_bytes


LINEAR = "its FLOPs grow linearly with T"
PRODUCTS = "its products of matrices grow linearly with T"
GROWING = "also with layers rematerialised, its temporary memory grows linearly with L"
PRINTED = "with layers rematerialised, its memory does not depend on the number of layers"
INPUTS = (
    "the reverse pass inside keeps every layer's input, and forward mode its tangent (`kept_of_a_layer` measures "
    "them): 2·L·B·S·d numbers, few beside the B·S² of one layer's attention, but not none"
)
OURS = "beyond the paper"
COPIED = "its compiler copies the batches of all T steps in bfloat16 for its products (claim batches_copied)"

JAX: dict[str, tuple[Claim, ...]] = {
    "truncated_bptt": (
        _deep("memory_law", GROWING, exponent=1, bound="equal"),
        _work(LINEAR),
    ),
    "mixflow": (
        _deep(
            "memory_law",
            "its temporary memory grows linearly with L at most, and at L = 64 is 3 times below truncated_bptt's",
            exponent=1,
            below=("truncated_bptt", 3.0),
        ),
        _deep("memory_law_printed", PRINTED, exponent=0, source="§5.3", expected="refuted", declared_reason=INPUTS),
        figure(
            "kept_of_a_layer",
            "with layers rematerialised it keeps two arrays of the size of a layer's input of each "
            "layer: the input and its tangent",
            "§5.3",
            printed=2,
            measured=f"{HERE}:kept_of_a_layer",
            unit="arrays",
            tolerance=0.05,
        ),
        LINEAR_GAIN,
        _work(LINEAR),
    ),
    "mixflow_drop_in": (
        _deep(
            "memory_law",
            "its temporary memory grows linearly with L at most, and at L = 64 is 3 times below truncated_bptt's",
            exponent=1,
            below=("truncated_bptt", 3.0),
            source="Listing 1",
        ),
    ),
    "momentum_inversion": (
        _long(
            "its temporary memory does not grow with T, and at T = 1024 is 50 times below mixflow's",
            0,
            spec={"optimiser": "momentum"},
            below=("mixflow", 50.0),
            not_by={"tpu": COPIED},
        ),
        figure(
            "batches_copied",
            "on a TPU all that grows with T is one copy of the inputs x in bfloat16 at most",
            OURS,
            printed=1,
            measured=f"{HERE}:batches_copied",
            unit="copies",
            bound="at most",
            tolerance=0.05,
        ),
    ),
    "compensated_inversion": (
        _long(
            "with Adam, its temporary memory does not grow with T, and at T = 1024 is 50 times below mixflow's",
            0,
            below=("mixflow", 50.0),
            not_by={"tpu": COPIED},
        ),
    ),
    "buffered_inversion": (
        _long(
            "its temporary memory grows linearly with T at most, and at T = 1024 is 3.5 times below mixflow's",
            1,
            spec={"optimiser": "momentum"},
            below=("mixflow", 3.5),
        ),
    ),
    "log_remat": (
        figure(
            "memory",
            "from T = 1 to T = 1024 its temporary memory grows by at most two states (θ, υ) per halving, in percent",
            "App. A.2",
            printed=100,
            measured=f"{HERE}:log_remat_growth",
            unit="%",
            bound="at most",
            tolerance=0.05,
        ),
        _work("its FLOPs grow like T·log T, here no faster than T^1.1", 1.1, bound="at most", tolerance=0.05),
    ),
    "bilevel_sharded": (
        per_device(
            "memory_per_device",
            "what grows with T is shared out: on each of 4 devices it grows 4 times less",
            "App. A.2",
            variable="steps",
            sizes=LONG,
            devices=4,
            spec=STATIC,
        ),
    ),
}

TORCH: dict[str, tuple[Claim, ...]] = {
    "truncated_bptt": (
        _deep("memory_law", GROWING, exponent=1, bound="equal", sizes=EAGER),
        _work(PRODUCTS, sizes=EAGER),
    ),
    "mixflow": (
        _deep(
            "memory_law",
            "its temporary memory grows linearly with L at most, and at L = 32 is 3 times below truncated_bptt's",
            exponent=1,
            sizes=EAGER,
            below=("truncated_bptt", 3.0),
        ),
        _deep(
            "memory_law_printed",
            PRINTED,
            exponent=0,
            sizes=EAGER,
            source="§5.3",
            expected="refuted",
            declared_reason=INPUTS,
        ),
        _work(PRODUCTS, sizes=EAGER),
    ),
    "mixflow_drop_in": (
        _deep(
            "memory_law",
            "its temporary memory grows linearly with L at most, and at L = 32 is 2.5 times below truncated_bptt's",
            exponent=1,
            below=("truncated_bptt", 2.5),
            source="Listing 2",
            sizes=EAGER,
        ),
    ),
    "momentum_inversion": (
        _long(
            "its temporary memory does not grow with T, and at T = 32 is at least 5 times below mixflow's",
            0,
            sizes=EAGER,
            spec={"optimiser": "momentum"},
            below=("mixflow", 5.0),
        ),
    ),
    "compensated_inversion": (
        _long(
            "with Adam, its temporary memory does not grow with T, and at T = 32 is 3 times below mixflow's",
            0,
            sizes=EAGER,
            below=("mixflow", 3.0),
        ),
    ),
    "buffered_inversion": (
        _long(
            "its temporary memory grows linearly with T at most, and at T = 32 is 2.5 times below mixflow's",
            1,
            sizes=EAGER,
            spec={"optimiser": "momentum"},
            below=("mixflow", 2.5),
        ),
    ),
    "log_remat": (
        figure(
            "memory",
            "from T = 1 to T = 32 its temporary memory grows by at most one state (θ, υ) per halving, in percent",
            "App. A.2",
            printed=100,
            measured=f"{HERE}:eager_log_remat_growth",
            unit="%",
            bound="at most",
            tolerance=0.05,
        ),
    ),
    "gradient_replay": (
        _long(
            "its temporary memory grows linearly with T at most, and at T = 32 is 2.5 times below mixflow's",
            1,
            OURS,
            sizes=EAGER,
            below=("mixflow", 2.5),
        ),
        _work(
            "its products of matrices grow linearly with T: what it runs again are updates alone", 1, OURS, sizes=EAGER
        ),
    ),
}

PROMISES = {
    "jax": joined(JAX, counted("jax"), printed.JAX, grown.JAX),
    "torch": joined(TORCH, counted("torch"), printed.TORCH, grown.TORCH),
}
"""Framework -> method -> its claims about memory, work and counts."""
