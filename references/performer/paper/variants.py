"""Other layers run by the same method: gated, shared and reversible ones, and one of type (23) that is not attention.

Also what the printed division of Eq. 2 gives where the features are not positive, and which of Eq. 21–23 are linear in
the state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradgate.references.contract import Backend
from gradgate.references.performer.problem import PerformerSpec
from gradgate.references.published import Published, equal, less_than, more_than, refuted, upheld

HERE = "gradgate.references.performer.paper.variants"
LENGTH, CHUNK = 24, 5
"""Tokens, and tokens per slice, of the problems on which gradients are compared."""


def distance(framework: Backend, wrong: float = 0.0, **fields: Any) -> float:
    """‖∇^(C) − ∇‖ / ‖∇‖ in float64 of Algorithm 1 on a variant of the model; ∇ is plain backprop's.

    Args:
        framework: ``jax`` or ``torch``.
        wrong: a relative error of the values' gradient, so that a test can see the figure fail.
        fields: fields of the Spec, which choose the variant.
    """
    from gradgate.references.backends import precision
    from gradgate.references.performer.paper.measured import relative_error

    methods = _methods(framework)
    with precision(framework, "float64"):
        problem: Any = PerformerSpec(length=LENGTH, layers=3, seed=8, **fields).build(framework)
        _, ours = methods.slim(problem, chunk=CHUNK)
        _, exact = methods.full(problem)
        attention = ours["layers"]["attention"]
        attention["value"] = attention["value"] * (1 + wrong)
        return relative_error(ours, exact)


def _methods(framework: str) -> Any:
    import importlib

    return importlib.import_module(f"gradgate.references.performer.in_{framework}.methods")


def with_relu(framework: Backend, wrong: float = 0.0) -> float:
    """`distance` with ReLU in the place of GeLU (§2.2); arguments as there.

    Raises:
        AssertionError: the loss is that of GeLU, so that nothing was replaced.
    """
    from unittest import mock

    from gradgate.references.performer import problem

    def relu(backend: str, gelu: Callable[..., Any], xp: Any, x: Any) -> Any:
        return xp.where(x > 0, x, xp.zeros_like(x))

    def loss() -> float:
        given = PerformerSpec(length=LENGTH, layers=3, seed=8).build("numpy")
        return float(given.loss(given.params))

    with mock.patch.object(problem, "gelu_once", relu):
        replaced, found = loss(), distance(framework, wrong)
    assert abs(replaced - loss()) > 1e-3, "ReLU did not take the place of GeLU"
    return found


def shared(framework: Backend, wrong: float = 0.0) -> float:
    """`distance` with one layer's weights in all layers: the sum over layers, and backprop through the copies.

    Args:
        framework: ``jax`` or ``torch``.
        wrong: a relative error of the first layer's share.
    """
    from gradgate.references.backends import namespace, precision, tree_map
    from gradgate.references.performer.paper.measured import relative_error

    methods = _methods(framework)
    with precision(framework, "float64"):
        problem: Any = PerformerSpec(length=LENGTH, layers=3, seed=8).build(framework)
        xp, layers = namespace(framework), problem.spec.layers
        one = tree_map(lambda leaf: leaf[:1], problem.params["layers"])

        def loss(one: Any) -> Any:
            copies = tree_map(lambda leaf: xp.concat([leaf] * layers, axis=0), one)
            return problem.loss({**problem.params, "layers": copies})

        copies = tree_map(lambda leaf: xp.concat([leaf] * layers, axis=0), one)
        _, ours = methods.slim(problem.with_params({**problem.params, "layers": copies}), chunk=CHUNK)
        summed = tree_map(lambda leaf: leaf.sum(0)[None] + wrong * leaf[:1], ours["layers"])
        return relative_error(summed, _gradient(framework, loss, one))


def _gradient(framework: str, loss: Callable[[Any], Any], params: Any) -> Any:
    if framework == "jax":
        import jax

        return jax.grad(loss)(params)
    import torch

    return torch.func.grad(loss)(params)


def layer_bytes(framework: str, method: str, profile: str = "cpu") -> float:
    """What a layer adds per token of a slice to the bytes of the gradient: the mixed difference over s and C.

    The bytes of parameters, states and gradients do not depend on C, and those of the head do not on s: both drop out.

    Args:
        framework: ``jax``, by the compiler of the profile, or ``torch``, by the tensors of a run.
        method: ``slim``, ``slim_checkpointed`` or ``slim_reversible``.
        profile: a profile of JAX.
    """
    found = {}
    for layers in (2, 6):
        for chunk in (32, 96):
            spec = PerformerSpec(
                dtype="float32",
                length=96,
                layers=layers,
                heads=2,
                head_width=16,
                expansion=4,
                norm="pre",
                residual="reversible",
            )
            found[layers, chunk] = _bytes(framework, method, spec, chunk, profile)
    mixed = found[6, 96] - found[6, 32] - found[2, 96] + found[2, 32]
    return mixed / ((6 - 2) * (96 - 32))


def _bytes(framework: str, method: str, spec: PerformerSpec, chunk: int, profile: str) -> int:
    from gradgate.references import registry

    [declared] = registry.methods("performer", method, framework)
    program = functools.partial(registry.load(declared.implementation), chunk=chunk)
    if framework == "torch":
        from gradgate.hw_profiles.torch_memory import peak
        from gradgate.references.backends import leaves

        problem: Any = spec.build("torch")
        return int(peak(program, (problem,), leaves([problem.params, problem.data])).total_bytes)
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes

    measured = measure(program, (shapes(spec),), profile)
    if measured.temp_bytes is None:
        raise LookupError(f"{profile}: {measured.reason}")
    return measured.temp_bytes


def undone_over_kept(framework: str, method: str = "slim_reversible") -> float:
    """`layer_bytes` of a method over that of `slim`, in percent."""
    return 100 * layer_bytes(framework, method) / layer_bytes(framework, "slim")


def divided(zero: bool = True) -> float:
    """The share of finite numbers in Eq. 2 as printed, where the first key and query are zero and g(x)_i = x_i²."""
    import numpy as np

    rng = np.random.default_rng(2)
    q, k, v = rng.standard_normal((3, 4, 3))
    if zero:
        q[0] = k[0] = 0
    weights = np.tril((q**2) @ (k**2).T)
    with np.errstate(invalid="ignore"):
        out = weights @ v / weights.sum(1, keepdims=True)
    return float(np.isfinite(out[0]).mean())


def bends(kind: str) -> float:
    """How much ∂X_l/∂X_{l−1} of a recurrence differs between two states, relatively: 0 if X_l is linear in X_{l−1}.

    Args:
        kind: ``RNN`` (21), ``Residual`` (22) or ``Performer`` (23), with f(h, x) = tanh(Wh + Vx).
    """
    import numpy as np

    rng = np.random.default_rng(4)
    W, V = rng.standard_normal((2, 5, 5))
    x, first, second = rng.standard_normal((3, 5))

    def jacobian(h: Any) -> Any:
        inner = (1 - np.tanh(W @ h + V @ x) ** 2)[:, None] * W
        return {"RNN": inner, "Residual": np.eye(5) + inner, "Performer": np.eye(5)}[kind]

    one, other = jacobian(first), jacobian(second)
    return float(np.linalg.norm(one - other) / np.linalg.norm(one))


def _distances(place: str, series: str, words: str, function: str, **told: Any) -> list[Published]:
    return [
        Published(
            place,
            series,
            framework,
            "relative",
            f"{HERE}:{function}",
            {"framework": framework, **told},
            0.0,
            expects=upheld(equal(1e-10, f"{words}: in float64 up to rounding, of which Eq. 19 loses a few digits")),
        )
        for framework in ("jax", "torch")
    ]


SAID = "§3.1: written as F and G, so that Algorithm 1 applies"
ROWS = (
    *_distances("§3.1", "gated layers", SAID, "distance", residual="gated"),
    *_distances("§3.1", "shared weights", SAID, "shared"),
    *_distances("§2.2", "ReLU in the place of GeLU", '"can be easily extended to other modifications"', "with_relu"),
    *_distances("§3.1", "reversible layers", SAID, "distance", residual="reversible"),
    *_distances(
        "§3.4",
        "a layer of type (23) that is not attention",
        '"can be applied to any architecture of type (23)"',
        "distance",
        feature_map="sum",
    ),
    *(
        Published(
            "§5",
            "bytes of a layer in Φ^(n), undone over kept",
            framework,
            "%",
            f"{HERE}:undone_over_kept",
            {"framework": framework},
            100.0,
            expects=upheld(less_than('"one doesn\'t need to store the whole symbolic Φ": less than the whole')),
        )
        for framework in ("jax", "torch")
    ),
    *(
        Published(
            "§5",
            "bytes of a layer in Φ^(n), run again over kept",
            framework,
            "%",
            f"{HERE}:undone_over_kept",
            {"framework": framework, "method": "slim_checkpointed"},
            100.0,
            expects=upheld(less_than('"to reduce the memory consumption for storing" Φ')),
        )
        for framework in ("jax", "torch")
    ),
    Published(
        "§2.1",
        "Eq. 2 as printed",
        "a zero query and key",
        "share of finite numbers",
        f"{HERE}:divided",
        {},
        1.0,
        "g(x)_i = x_i² of §4 is 0 where x_i is 0, so the sum that divides is 0 too, and 0/0 is NaN; a query and keys "
        "that are not zero give numbers",
        expects=refuted(equal(0.0, '"well-defined": every quotient is a number'), instead=0.0),
    ),
    *(
        Published(
            "§3.4",
            "change of ∂X_l/∂X_{l−1} between two states",
            name,
            "relative",
            f"{HERE}:bends",
            {"kind": kind},
            printed,
            expects=upheld(agreement),
        )
        for name, kind, printed, agreement in (
            ("RNN (21)", "RNN", 0.0, more_than('"Performer is the only architecture": the Jacobian changes')),
            ("Residual (22)", "Residual", 0.0, more_than('"Performer is the only architecture": the Jacobian changes')),
            ("Performer (23)", "Performer", 0.0, equal(0.0, '"depends linearly": the Jacobian does not change')),
        )
    ),
)
