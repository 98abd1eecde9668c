"""Programs of the paper's configurations, and what is measured of them.

Configurations (L, d_model): I (512, 256), II (1024, 512), III (4096, 1024), IV (16384, 1024); all with s = 3, heads of
64, d_ff = 4·d_model, g the elementwise square, |Σ| = 256, batch 1, float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.performer.problem import PerformerSpec

CONFIGURATIONS = {"I": (512, 256), "II": (1024, 512), "III": (4096, 1024), "IV": (16384, 1024)}


def configuration(name: str, **fields: Any) -> PerformerSpec:
    """The Spec of a configuration, some fields replaced."""
    length, width = CONFIGURATIONS[name]
    chosen: dict[str, Any] = {
        "dtype": "float32",
        "length": length,
        "layers": 3,
        "heads": width // 64,
        "head_width": 64,
        "expansion": 4,
        "vocabulary": 256,
        "sharpness": 1.0,
    }
    return PerformerSpec(**chosen | fields)


def states_square(profile: str) -> float:
    """The printed count of state numbers over the true one, in percent, where M = d."""
    return _states(configuration("III"))


def states_favor(profile: str) -> float:
    """The same where M is not d."""
    return _states(configuration("III", feature_map="favor", features=16))


def _states(spec: PerformerSpec) -> float:
    from gradgate.references.draws import shapes

    printed = 2 * spec.layers * spec.width * (spec.feature_count + 1)
    problem: Any = shapes(spec)
    import jax

    state = jax.eval_shape(problem.zero_states)
    return 100 * printed / (2 * state.size)


def one_token(profile: str) -> float:
    """All bytes of Algorithm 1 at C = 1, L = 16384 over those of a length-1 run plus two states, in percent.

    Raises:
        LookupError: the profile's compiler gives no bytes; the message says why.
    """
    spec = configuration("IV")
    ours = _bytes("slim", spec, profile, chunk=1)
    single = _bytes("full", configuration("IV", length=1), profile)
    return 100 * ours / (single + 4 * 2 * spec.layers * spec.state_numbers)


def work_at_512(profile: str) -> float:
    """The work of Algorithm 1 at C = 512 over the paper's count, in percent."""
    return 100 * work_ratio(configuration("III"), 512)


def work_at_1(profile: str) -> float:
    """The same at C = 1."""
    return 100 * work_ratio(configuration("III"), 1)


def work_ratio(spec: PerformerSpec, chunk: int, prefix_sum: str = "explicit") -> float:
    """FLOPs of `slim` over those of two forward passes, one backward pass and L·s·D1 additions."""
    from gradgate.references.performer.in_jax import methods as jax_impl

    def forward(problem: Any) -> Any:
        return problem.loss(problem.params)

    once, both = flops(forward, spec), flops(jax_impl.full, spec)
    additions = spec.length * spec.layers * spec.state_numbers
    slim = functools.partial(jax_impl.slim, chunk=chunk, prefix_sum=prefix_sum)
    return flops(slim, spec) / (once + both + additions)


def flops(program: Callable[..., Any], spec: PerformerSpec) -> int:
    """FLOPs of a program on the problem of a Spec."""
    from gradgate.hw_profiles import work
    from gradgate.references.draws import shapes

    return work.of(program, (shapes(spec),)).flops


def _bytes(method: str, spec: PerformerSpec, profile: str, **options: Any) -> int:
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes
    from gradgate.references.performer.in_jax import methods as jax_impl

    found = measure(functools.partial(getattr(jax_impl, method), **options), (shapes(spec),), profile)
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.required_bytes


def jax_bytes(method: str, name: str, profile: str, length: int = 0, **options: Any) -> int:
    """All bytes of a method on a configuration; with `length`, at that length instead of the configuration's."""
    spec = configuration(name, **({"length": length} if length else {}))
    return _bytes(method, spec, profile, **options)


def jax_step_bytes(method: str, name: str, profile: str, **options: Any) -> int:
    """`jax_bytes` plus the two moments of Adam, which are in memory while the gradient is computed."""
    return jax_bytes(method, name, profile, **options) + moment_bytes(name)


def torch_over_short(name: str, chunk: int) -> float:
    """Peak bytes of Algorithm 1 in PyTorch over those of the full algorithm on C tokens, without Adam's moments."""
    from gradgate.hw_profiles.torch_memory import peak
    from gradgate.references.backends import leaves
    from gradgate.references.performer.in_torch import methods as torch_impl

    def bytes_of(method: Callable[..., Any], length: int) -> int:
        problem: Any = configuration(name, length=length).build("torch")
        chosen = functools.partial(method, prefix_sum="matrix")
        return int(peak(chosen, (problem,), leaves([problem.params, problem.data])).total_bytes)

    slim = functools.partial(torch_impl.slim, chunk=chunk)
    return bytes_of(slim, configuration(name).length) / bytes_of(torch_impl.full_iterative, chunk)


def moment_bytes(name: str) -> int:
    """Twice the bytes of the parameters."""
    from gradgate.references.backends import leaves
    from gradgate.references.draws import shapes

    problem: Any = shapes(configuration(name))
    return 2 * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves(problem.params))


def time_ratio(name: str, chunk: int, repeats: int = 5) -> float:
    """Time of `slim` over that of `full_iterative`, both with blocks, alternating in this process; the median."""
    import statistics
    import time

    from gradgate.references.performer.in_torch import methods as torch_impl

    problem: Any = configuration(name).build("torch")

    def seconds(method: Callable[..., Any]) -> float:
        start = time.perf_counter()
        method(problem, prefix_sum="block")
        return time.perf_counter() - start

    slim = functools.partial(torch_impl.slim, chunk=chunk)
    seconds(slim)
    return statistics.median(seconds(slim) / seconds(torch_impl.full_iterative) for _ in range(repeats))


def flops_ratio(name: str, chunk: int, prefix_sum: str) -> float:
    """`work_ratio` of a configuration."""
    return work_ratio(configuration(name), chunk, prefix_sum)


def discrepancy(name: str, chunk: int) -> float:
    """‖∇^(C) − ∇^(full)‖ / ‖∇^(full)‖ in float32 (Fig. 2, right), both with blocks."""
    from gradgate.references.performer.in_torch import methods as torch_impl

    problem: Any = configuration(name).build("torch")
    _, ours = torch_impl.slim(problem, chunk=chunk, prefix_sum="block")
    _, theirs = torch_impl.full_iterative(problem, prefix_sum="block")
    return relative_error(ours, theirs)


def discrepancy_at_64(profile: str = "", gradient: Callable[..., Any] | None = None, length: int = 512) -> float:
    """`discrepancy` at C = 64 and configuration I, both by products of matrices, which a CPU computes faster.

    Args:
        profile: the profile of the claim; the programs run on the CPU with every profile.
        gradient: takes the place of `slim`.
        length: L.
    """
    from gradgate.references.backends import precision
    from gradgate.references.performer.in_jax import methods as jax_impl

    with precision("jax", "float32"):
        import jax

        problem: Any = configuration("I", length=length).build("jax")
        chosen = gradient or functools.partial(jax_impl.slim, chunk=64, prefix_sum="matrix")
        _, ours = jax.jit(chosen)(problem)
        _, theirs = jax.jit(functools.partial(jax_impl.full_iterative, prefix_sum="matrix"))(problem)
        return relative_error(ours, theirs)


def drift(length: int, chunk: int, every: int | None, sharpness: float = 0.5, feature_map: str = "square") -> float:
    """Relative error of a float32 gradient against plain float64 backprop, with every m-th state kept, or none."""
    import dataclasses

    from gradgate.references.performer.in_torch import methods as torch_impl

    spec = configuration(
        "I",
        length=length,
        heads=2,
        head_width=8,
        layers=2,
        vocabulary=16,
        sharpness=sharpness,
        feature_map=feature_map,
    )
    problem: Any = spec.build("torch")
    _, exact = torch_impl.full(dataclasses.replace(spec, dtype="float64").build("torch"))
    if every is None:
        _, ours = torch_impl.slim(problem, chunk=chunk)
    else:
        _, ours = torch_impl.slim_kept(problem, chunk=chunk, every=every)
    return relative_error(ours, exact)


def relative_error(ours: Any, exact: Any) -> float:
    """The norm of the difference of two trees over the norm of the second."""
    from gradgate.references.backends import leaves, to_numpy

    pairs = [(to_numpy(a), to_numpy(b)) for a, b in zip(leaves(ours), leaves(exact), strict=True)]
    off, size = sum(((a - b) ** 2).sum() for a, b in pairs), sum((b**2).sum() for _, b in pairs)
    return float((off / size) ** 0.5)


def copying(length: int = 32, chunk: int = 8, steps: int = 1200) -> dict[str, Any]:
    """The curves of the copying task (Fig. 3, left); see `training.curves`."""
    from gradgate.references.performer.paper.training import curves

    return curves(length, chunk, steps)


def text_distance() -> float:
    """The distance of trainings in slices on a text from full ones (Fig. 3); see `training.on_text`."""
    from gradgate.references.performer.paper.training import on_text

    return float(on_text(steps=TEXT_STEPS)["distance"])


TEXT_STEPS = 100
