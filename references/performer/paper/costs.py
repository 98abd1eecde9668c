"""Quantities that the paper counts or mentions, counted here: sizes, work, features and batches."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from gradgate.references.performer.problem import PerformerSpec
from gradgate.references.published import Published, equal, refuted, upheld

HERE = "gradgate.references.performer.paper.costs"
SEEDS, WIDTH = 200, 8


def _spec(**fields: Any) -> PerformerSpec:
    from gradgate.references.performer.paper.measured import configuration

    return configuration("III", **fields)


def skipping() -> int:
    """Numbers in Γ of one token and layer, at configuration III."""
    import jax

    from gradgate.references.draws import shapes

    spec = _spec(length=1)
    problem: Any = shapes(spec)
    X = jax.ShapeDtypeStruct((1, 1, spec.width), "float32")
    _, gamma = jax.eval_shape(lambda params, X: problem.F(params, 0, X), problem.params, X)
    return sum(leaf.size for leaf in jax.tree.leaves(gamma))


def parameters_over_states() -> float:
    """Numbers in the matrices of all layers over those in 𝓑 and 𝓖, at configuration III."""
    from gradgate.references.backends import leaves
    from gradgate.references.draws import shapes

    spec = _spec()
    problem: Any = shapes(spec)
    matrices = sum(leaf.size for leaf in leaves(problem.params["layers"]) if len(leaf.shape) == 3)
    return matrices / (2 * spec.layers * spec.state_numbers)


def forward_over_formula() -> float:
    """FLOPs of a forward pass over 11·L·s·d_model², at configuration III."""
    spec = _spec()
    return _forward(spec) / (11 * spec.length * spec.layers * spec.width**2)


def backward_over_forward() -> float:
    """FLOPs of the backward pass over those of the forward pass, at configuration III."""
    from gradgate.references.performer.in_jax import methods
    from gradgate.references.performer.paper.measured import flops

    spec = _spec()
    return flops(methods.full, spec) / _forward(spec) - 1


def _forward(spec: PerformerSpec) -> int:
    from gradgate.references.performer.paper.measured import flops

    return flops(lambda problem: problem.loss(problem.params), spec)


def accumulated(wrong: float = 0.0) -> float:
    """‖Σ_b ∇_b − ∇‖ / ‖∇‖: the sequences of a batch one by one, and at once; both by Algorithm 1, in float64.

    Args:
        wrong: a relative error of one sequence's share, so that a test can see the figure fail.
    """
    from gradgate.references.backends import tree_map
    from gradgate.references.performer.in_torch.methods import slim
    from gradgate.references.performer.paper.measured import relative_error

    spec = PerformerSpec(length=24, layers=2, batch=3, seed=8)
    whole: Any = spec.build("torch")
    _, together = slim(whole, chunk=5)
    total = tree_map(lambda leaf: leaf * 0, whole.params)
    for b in range(spec.batch):
        data = {name: whole.data[name][:, b : b + 1] for name in ("tokens", "targets")}
        alone = dataclasses.replace(whole, spec=dataclasses.replace(spec, batch=1), data=whole.data | data)
        share = (1 + wrong * (b == 0)) / spec.batch
        total = tree_map(lambda t, g, share=share: t + share * g, total, slim(alone, chunk=5)[1])
    return relative_error(total, together)


@functools.cache
def _estimates(features: int) -> Any:
    """g(q)·g(k) over exp(q·k/√d) for one q and k, for several seeds of FAVOR+'s draws: (SEEDS,)."""
    import numpy as np

    from gradgate.references.performer.features import orthogonal_rows, random_features

    rng = np.random.default_rng(3)
    q, k = 0.5 * rng.standard_normal((2, WIDTH))
    truth = np.exp(q @ k / WIDTH**0.5)
    found = []
    for _ in range(SEEDS):
        rows = orthogonal_rows(rng.standard_normal((features, WIDTH)), "numpy", "float64")
        found.append(random_features(np, q[None], rows)[0] @ random_features(np, k[None], rows)[0] / truth)
    return np.array(found)


def favor_mean() -> float:
    """The mean of FAVOR+'s estimates over what they estimate."""
    return float(_estimates(1024).mean())


def favor_error(features: int) -> float:
    """The root of the mean squared relative error of FAVOR+'s estimates."""
    return float(((_estimates(features) - 1) ** 2).mean() ** 0.5)


def gpt_2() -> float:
    """The loss with layer norm before each half, as in GPT-2, over that of Eq. 5 and 6 with the same parameters."""
    pre, printed = (PerformerSpec(length=16, norm=norm, seed=9).build("numpy") for norm in ("pre", "sublayer"))
    return float(pre.loss(pre.params) / printed.loss(printed.params))


def one_token_over_parameters(profile: str) -> float:
    """Bytes of Algorithm 1 at C = 1 over those of the parameters and their gradient, at configuration II."""
    from gradgate.references.performer.paper.measured import jax_bytes, moment_bytes

    return jax_bytes("slim", "II", profile, chunk=1, prefix_sum="block") / moment_bytes("II")


def _counted(place: str, series: str, x: str, unit: str, name: str, printed: float, **more: Any) -> Published:
    return Published(place, series, x, unit, f"{HERE}:{name}", more.pop("told", {}), printed, **more)


ROWS = (
    _counted(
        "§3.1",
        "D_2 = Mk + d_model",
        "III",
        "numbers",
        "skipping",
        2048.0,
        expects=upheld(equal(0.0, "a count")),
    ),
    _counted(
        "§3.4",
        "matrix parameters over states",
        "III",
        "times",
        "parameters_over_states",
        11 * 1024 / (2 * 65),
        expects=upheld(equal(0.001, "11sd²_model and 2sd_model(M+1) are counts; biases and norms are left out")),
    ),
    _counted(
        "§3.4",
        "a forward pass over 11Lsd²_model",
        "III",
        "times",
        "forward_over_formula",
        1.0,
        reason="11Lsd²_model counts multiplications: each has its addition, and attention and the norms are 4% more",
        expects=refuted(equal(0.1, "what is left out is called much smaller"), instead=2.04, spread=0.02),
    ),
    _counted(
        "§3.4",
        "backward over forward pass",
        "III",
        "times",
        "backward_over_forward",
        5.0,
        reason="each product of matrices has two in the backward pass, and hardly anything else counts",
        expects=refuted(equal(0.25, '"roughly 5 times"'), instead=2.0, spread=0.02),
    ),
    _counted(
        "§5",
        "gradient accumulation",
        "3 sequences",
        "relative",
        "accumulated",
        0.0,
        expects=upheld(equal(1e-12, '"also compatible with Algorithm 1": in float64 up to rounding')),
    ),
    _counted(
        "§2.1",
        "FAVOR+, mean",
        "M = 1024",
        "times exp(q·k)",
        "favor_mean",
        1.0,
        expects=upheld(equal(0.01, '"unbiased": over 200 draws the mean strays by a tenth of one draw\'s error')),
    ),
    *(
        Published("§2.1", "FAVOR+, error", M, "relative", f"{HERE}:favor_error", {"features": M})
        for M in (16, 64, 256, 1024)
    ),
    Published(
        "§2.1",
        "FAVOR+, error",
        "exponent of M",
        "1",
        "gradgate.references.derived:growth",
        {"of": "§2.1 / FAVOR+, error"},
        -0.5,
        expects=upheld(equal(0.1, "an unbiased mean of M draws: its error falls like 1/√M")),
    ),
    _counted(
        "§2.2",
        "GPT-2's layer norm over Eq. 5 and 6",
        "loss",
        "times",
        "gpt_2",
        1.0,
        reason="GPT-2 is X + f(LN(X)), and Eq. 5 and 6 are X + LN(f(X))",
        expects=refuted(equal(0.01, "printed as the same"), instead=0.688, spread=0.01),
    ),
    _counted(
        "§4.1",
        "C = 1 over parameters and gradient",
        "II",
        "times",
        "one_token_over_parameters",
        1.0,
        told={"profile": "nvidia-p100"},
        expects=upheld(equal(0.1, '"the remaining memory consumption can be attributed to … parameters"')),
    ),
)
