"""The paper's figures, each beside what is measured or computed here.

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
        "dtype": "float32", "length": length, "layers": 3, "heads": width // 64, "head_width": 64, "expansion": 4,
        "vocabulary": 256, "sharpness": 1.0,
    }  # fmt: skip
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
        LookupError: the profile's compiler gives no bytes; says why.
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
    from gradgate.references.performer import jax_impl

    def forward(problem: Any) -> Any:
        return problem.loss(problem.params)

    once, both = _flops(forward, spec), _flops(jax_impl.full, spec)
    additions = spec.length * spec.layers * spec.state_numbers
    slim = functools.partial(jax_impl.slim, chunk=chunk, prefix_sum=prefix_sum)
    return _flops(slim, spec) / (once + both + additions)


def _flops(program: Callable[..., Any], spec: PerformerSpec) -> int:
    from gradgate.hw_profiles import work
    from gradgate.references.draws import shapes

    return work.of(program, (shapes(spec),)).flops


def _bytes(method: str, spec: PerformerSpec, profile: str, **options: Any) -> int:
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes
    from gradgate.references.performer import jax_impl

    found = measure(functools.partial(getattr(jax_impl, method), **options), (shapes(spec),), profile)
    if found.required_bytes is None:
        raise LookupError(f"{profile}: {found.reason}")
    return found.required_bytes
