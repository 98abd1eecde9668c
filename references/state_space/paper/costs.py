"""What §4.5 and Table 1 count, counted here: FLOPs from traced programs, bytes from compiled ones, arrays by shape.

A net is one dense layer, as the paper says; by default P = 128, N = 225, and a batch has 8 sequences. In Table 1 its
output is N² (unstructured A), N·P (unstructured B and C), 1 (scalar A) or N numbers (all others).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WIDTH, STATE, BATCH = 128, 225, 8
OUTPUTS = {
    "unstructured": {"A": STATE**2, "B": STATE * WIDTH, "C": STATE * WIDTH},
    "diagonal": {"A": STATE, "B": STATE, "C": STATE},
    "scalar": {"A": 1, "B": STATE, "C": STATE},
}
"""Structure -> net -> the size of its output for one token (Table 1)."""
Program = tuple[Callable[..., Any], tuple[Any, ...]]


def _dense(outputs: int) -> tuple[Callable[[Any, Any], Any], Any, Any, Any]:
    """A dense layer (p, x) -> outputs, and the shapes of its parameters, of x, and of a cotangent."""
    import jax

    def shape(*sizes: int) -> Any:
        return jax.ShapeDtypeStruct(sizes, "float32")

    p = {"w": shape(WIDTH, outputs), "b": shape(outputs)}
    return (lambda p, x: x @ p["w"] + p["b"]), p, shape(BATCH, WIDTH), shape(BATCH, outputs)


def _by_parameters(outputs: int) -> Program:
    """A VJP by the parameters, as in Prop. 2."""
    import jax

    net, p, x, cotangent = _dense(outputs)
    return (lambda p, x, g: jax.vjp(lambda p: net(p, x), p)[1](g)), (p, x, cotangent)


def _by_all(outputs: int) -> Program:
    """A VJP by the parameters and by the input, without which nothing reaches the layer below."""
    import jax

    net, p, x, cotangent = _dense(outputs)
    return (lambda p, x, g: jax.vjp(net, p, x)[1](g)), (p, x, cotangent)


def _each_sequence(outputs: int) -> Program:
    """A VJP by the parameters for each sequence of the batch separately: as many gradients as sequences."""
    import jax

    net, p, x, cotangent = _dense(outputs)

    def program(p: Any, x: Any, g: Any) -> Any:
        return jax.vmap(lambda x, g: jax.vjp(lambda p: net(p, x), p)[1](g)[0])(x, g)

    return program, (p, x, cotangent)


def _forward(outputs: int) -> Program:
    net, p, x, _ = _dense(outputs)
    return net, (p, x)


def _jacobian(outputs: int) -> Program:
    """The Jacobian by the parameters, for each sequence separately."""
    import jax

    net, p, x, _ = _dense(outputs)
    return jax.vmap(jax.jacrev(net), (None, 0)), (p, x)


PROGRAMS = {
    "parameters": _by_parameters,
    "all": _by_all,
    "each sequence": _each_sequence,
    "forward": _forward,
    "jacobian": _jacobian,
}


def flops(structure: str, net: str, of: str = "parameters") -> float:
    """FLOPs of one VJP, or of another of `PROGRAMS`; a multiply-add is 2, as in Table 1."""
    from gradgate.hw_profiles import work

    return float(work.of(*PROGRAMS[of](OUTPUTS[structure][net])).nominal_flops)


def flops_ratio(structure: str, net: str, of: str, over: str) -> float:
    """FLOPs of one of `PROGRAMS` over those of another."""
    return flops(structure, net, of) / flops(structure, net, over)


def numbers(structure: str, net: str, of: str = "parameters", profile: str = "cpu") -> float:
    """Numbers that one VJP holds, compiled: arguments, results and temporaries, at four bytes a number.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    from gradgate.hw_profiles.compile import measure

    found = measure(*PROGRAMS[of](OUTPUTS[structure][net]), profile)
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.required_bytes / 4


def _layer(outputs: int) -> dict[str, Any]:
    import jax

    shape = jax.ShapeDtypeStruct
    return {"w": shape((WIDTH, outputs), "float32"), "b": shape((outputs,), "float32")}


def _parameters(layers: int) -> Any:
    """Parameters of K layers of a diagonal SSM, as shapes."""
    import jax

    one = {net: _layer(outputs) for net, outputs in OUTPUTS["diagonal"].items()}
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((layers, *leaf.shape), leaf.dtype), one)


def _size(tree: Any) -> int:
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def stored(length: int, layers: int, parameters: bool) -> float:
    """Numbers that Alg. 1 stores for one sequence of a diagonal SSM, from the shapes of the arrays that it makes.

    They are {A, C, h, y} of every layer and token, and dl/dy_K; with `parameters` also the parameters of all layers. B
    and C are N numbers, as in Table 1, and act on the first of N and P numbers.
    """
    import jax
    import jax.numpy as jnp

    def net(p: Any, y: Any) -> Any:
        return y @ p["w"] + p["b"]

    def layer(y: Any, p: Any) -> tuple[Any, Any]:
        def token(h: Any, y: Any) -> tuple[Any, Any]:
            a, c = net(p["A"], y), net(p["C"], y)
            few = min(STATE, WIDTH)
            h = a * h + jnp.zeros(STATE).at[:few].set(net(p["B"], y)[:few] * y[:few])
            return h, {"A": a, "C": c, "h": h, "y": y + jnp.zeros(WIDTH).at[:few].set((c * h)[:few])}

        kept = jax.lax.scan(token, jnp.zeros(STATE), y)[1]
        return kept["y"], kept

    def forward(p: Any, y: Any) -> Any:
        y, kept = jax.lax.scan(layer, y, p)
        return kept, jax.grad(lambda y: (y**2).sum())(y)

    p = _parameters(layers)
    kept = jax.eval_shape(forward, p, jax.ShapeDtypeStruct((length, WIDTH), "float32"))
    return float(_size(kept) + (_size(p) if parameters else 0))


def parameters_of_one_net() -> float:
    """Parameters of a net of a diagonal SSM."""
    return float(_size(_layer(OUTPUTS["diagonal"]["A"])))


def adjoint_states(length: int, average: bool) -> float:
    """FLOPs of all adjoint states of a diagonal SSM, or of one of the (1+T)T/2 on average.

    λ^{t,t} is C^t, which is known; each of the T(T − 1)/2 others is the one before it times A^i.
    """
    import jax

    from gradgate.hw_profiles import work

    def program(c: Any, a: Any) -> Any:
        return jax.lax.scan(lambda state, _: (state * a, None), c, None, length * (length - 1) // 2)[0]

    shapes = jax.ShapeDtypeStruct((WIDTH, STATE), "float32"), jax.ShapeDtypeStruct((STATE,), "float32")
    found = work.of(program, shapes).flops
    return found / (length * (length + 1) // 2) if average else float(found)


def over_printed_states(length: int) -> float:
    """FLOPs of all adjoint states of a diagonal SSM, over the printed N(2P+1)(1+T)T/2."""
    return adjoint_states(length, average=False) / (STATE * (2 * WIDTH + 1) * (1 + length) * length / 2)


def products_first(structure: str, length: int) -> float:
    """FLOPs of the adjoint states of one token by Alg. 2, over those of multiplying C by one A after another.

    Alg. 2 first computes ζ = (A…A, …, A, 𝕀), whose entries are as large as A, and then multiplies by C.
    """
    import jax

    from gradgate.hw_profiles import work

    full = structure == "unstructured"
    c = jax.ShapeDtypeStruct((WIDTH, STATE), "float32")
    a = jax.ShapeDtypeStruct((length, *((STATE, STATE) if full else (STATE,))), "float32")

    def times(left: Any, right: Any) -> Any:
        return left @ right if full else left * right

    def printed(c: Any, a: Any) -> Any:
        zeta = jax.lax.scan(lambda state, a: (times(state, a),) * 2, a[0], a[1:])[1]
        return jax.lax.map(lambda z: times(c, z), zeta)

    def in_turn(c: Any, a: Any) -> Any:
        return jax.lax.scan(lambda state, a: (times(state, a),) * 2, times(c, a[0]), a[1:])[1]

    return work.of(printed, (c, a)).flops / work.of(in_turn, (c, a)).flops


def saved_vjps(length: int, window: int, printed: bool) -> float:
    """Percent of the VJPs of A and B that truncation saves, by the counts that the claims judge."""
    from gradgate.references import state_space
    from gradgate.references.state_space.problem import StateSpaceSpec

    spec = StateSpaceSpec(length=length, layers=1)
    count = state_space.truncated_count_printed if printed else state_space.truncated_count
    return 100 * (1 - count(spec, window=window)["A"] / state_space.quadratic_count(spec)["A"])


def per_second(amount: str, profile: str = "nvidia-h100") -> float:
    """How many batches of VJPs of 0.6 MB and 1,798,144 FLOPs a device runs or holds, by its profile.

    Args:
        amount: ``bandwidth`` and ``compute``: how many in a second; ``memory``: how many at once.
        profile: name of the device.

    Raises:
        LookupError: the profile does not have this figure.
    """
    from gradgate.hw_profiles.profile import load

    device = load(profile)
    if amount == "compute":
        return float(device.peak["float16"] / 1_798_144)
    found = device.bandwidth if amount == "bandwidth" else device.memory_bytes
    if found is None:
        raise LookupError(f"{profile}: its {amount} is not known")
    return found / 0.6e6


def quotient(over: float, under: float) -> float:
    """What the paper divides."""
    return over / under


def vjp_curves(window: int) -> dict[str, list[float]]:
    """VJPs of A and B of one layer over T, by the counts that the claims judge."""
    from gradgate.references import state_space
    from gradgate.references.state_space.problem import StateSpaceSpec

    specs = [StateSpaceSpec(length=T, layers=1) for T in (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)]
    return {
        "tokens": [float(spec.length) for spec in specs],
        "adjoint sharding": [2.0 * state_space.quadratic_count(spec)["A"] for spec in specs],
        f"truncated to {window}": [2.0 * state_space.truncated_count(spec, window=window)["A"] for spec in specs],
    }


def _hundred(length: int) -> Any:
    """The shapes of a problem of 100 diagonal layers."""
    from gradgate.references.draws import shapes
    from gradgate.references.state_space.problem import StateSpaceSpec

    sizes: dict[str, Any] = {"layers": 100, "state": STATE, "width": WIDTH, "batch": BATCH, "vocabulary": 16}
    return shapes(StateSpaceSpec(dtype="float32", activation="identity", length=length, **sizes))


def _work(method: str, length: int, options: dict[str, Any]) -> int:
    """FLOPs of loss and gradient of 100 diagonal layers of the class's problems, in which B and C are N·P numbers."""
    from gradgate.hw_profiles import work
    from gradgate.references import registry

    [declared] = registry.methods("state_space", method, "jax")
    function = registry.load(declared.implementation)
    return work.of(lambda problem: function(problem, **options), (_hundred(length),)).nominal_flops


def training_work() -> dict[str, list[float]]:
    """FLOPs of one sequence over T; those of adjoint sharding are divided by 280, as Fig. 6 assumes."""
    lengths = (1_000, 5_000, 10_000, 50_000, 100_000)
    return {
        "tokens": [float(T) for T in lengths],
        "backprop": [float(_work("backprop", T, {})) for T in lengths],
        "adjoint sharding / 280": [_work("adjoint_sharding", T, {}) / 280 for T in lengths],
        "truncated to 15, / 280": [_work("adjoint_truncated", T, {"window": 15}) / 280 for T in lengths],
        "truncated to 2500, / 280": [_work("adjoint_truncated", T, {"window": 2500}) / 280 for T in lengths],
    }


def backward_share(method: str, length: int) -> float:
    """Percent of the FLOPs of loss and gradient that come in addition to those of the loss."""
    from gradgate.hw_profiles import work

    problem = _hundred(length)
    forward = work.of(lambda problem: problem.loss(problem.params), (problem,)).nominal_flops
    return 100 * (1 - forward / _work(method, length, {}))


ATTENDED = (2048, 8192)
"""Lengths between which growth is measured."""


def _attention(length: int) -> tuple[Any, tuple[Any, ...]]:
    """The gradient of softmax attention of one head of 64, and the shapes of its arguments."""
    import jax

    def loss(q: Any, k: Any, v: Any) -> Any:
        return (jax.nn.softmax(q @ k.T) @ v).sum()

    return jax.grad(loss, (0, 1, 2)), (jax.ShapeDtypeStruct((length, 64), "float32"),) * 3


def attention_work_exponent(profile: str = "cpu") -> float:
    """The power of T with which the FLOPs of softmax attention and its gradient grow, from 2048 to 8192."""
    import math

    from gradgate.hw_profiles import work

    few, many = (work.of(*_attention(length)).flops for length in ATTENDED)
    return math.log(many / few, 4)


def attention_exponent(profile: str = "cpu") -> float:
    """The power of T with which the compiled bytes of softmax attention and its gradient grow, from 2048 to 8192.

    Raises:
        LookupError: the profile's compiler gives no bytes; says why.
    """
    import math

    from gradgate.hw_profiles.compile import measure

    found = []
    for length in ATTENDED:
        measured = measure(*_attention(length), profile)
        if measured.temp_bytes is None:
            raise LookupError(f"{profile}: {measured.reason}")
        found.append(measured.temp_bytes)
    return math.log(found[1] / found[0], 4)


def saving_of_structure(structure: str, length: int, layers: int, profile: str) -> float:
    """Bytes of backprop over those of adjoint sharding on a model of §3.1, whose B and C are N·P numbers per token.

    Args:
        structure: that of A, ``unstructured`` or ``diagonal``.
        length, layers: T and K; P, N are those of §4.5, the batch is 2, in float32.
        profile: the profile whose compiler is used.

    Raises:
        LookupError: the compiler gives no bytes; says why.

    Cost: half a minute of a core.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes
    from gradgate.references.state_space.in_jax import methods
    from gradgate.references.state_space.problem import StateSpaceSpec

    spec = StateSpaceSpec(
        dtype="float32", structure=structure, length=length, layers=layers, state=STATE, width=WIDTH, batch=2
    )
    found = [measure(method, (shapes(spec),), profile) for method in (methods.backprop, methods.adjoint_sharding)]
    backprop, ours = (one.required_bytes for one in found)
    if backprop is None or ours is None:
        raise LookupError(f"{profile}: {found[0].reason or found[1].reason}")
    return backprop / ours
