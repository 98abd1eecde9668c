"""`meta_gradient` compared with reverse mode through the same loop, for every optimiser and checkpointing option."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradgate import UsageError
from gradgate.references.backends import leaves, namespace, precision, to_numpy, transforms, tree_map
from gradgate.references.contract import NotComposable

T = 3
"""Inner steps."""
KEPT: tuple[dict[str, Any], ...] = (
    {},
    {"save_inner_grads": True},
    {"remat": True},
    {"checkpointing": "gradients"},
    {"checkpointing": "logarithmic"},
    {"checkpointing": "logarithmic", "remat": True},
)
"""Options that work with every optimiser."""


def of(framework: str) -> Any:
    """The public names of a framework."""
    return importlib.import_module(f"gradgate.in_{framework}")


def losses(framework: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """An inner loss of two layers, weighted by η, and an outer loss that also reads η."""
    xp = namespace(framework)

    def inner(theta: Any, eta: Any, x: Any, *, block: Any = lambda layer: layer) -> Any:
        hidden = x["inputs"]
        for w in theta["w"]:
            hidden = block(lambda w, h: xp.tanh(xp.matmul(h, w)))(w, hidden)
        return xp.mean(xp.take(hidden, x["class"], axis=0) ** 2 * eta["weight"]) + eta["bias"] * xp.sum(theta["b"] ** 2)

    def outer(theta: Any, eta: Any, y: Any) -> Any:
        return xp.mean(xp.matmul(y, theta["w"][0]) ** 3) + xp.sum(theta["b"] * eta["weight"])

    return inner, outer


def arrays(framework: str, dtype: str = "float64") -> tuple[Any, ...]:
    """η, θ_0, the inner batches (each with two classes) and the batch of the outer loss."""
    xp, rng = namespace(framework), np.random.default_rng(1)

    def array(*shape: int) -> Any:
        return xp.asarray(rng.standard_normal(shape).astype(dtype))

    theta = {"w": [array(3, 3), array(3, 3)], "b": array(3)}
    eta = {"weight": array(3), "bias": array()}
    xs = {"inputs": array(T, 4, 3), "class": xp.asarray(rng.integers(0, 4, (T, 2)))}
    return eta, theta, xs, array(2, 3)


def optimisers(framework: str) -> dict[str, Any]:
    """Name -> optimiser: from optax in JAX, and ours in PyTorch. The last one depends on η."""
    if framework == "jax":
        optax = pytest.importorskip("optax")
        schedule = optax.cosine_decay_schedule(0.2, 5)
        chained = optax.chain(optax.clip_by_global_norm(0.05), optax.adamw(schedule, weight_decay=0.1, eps_root=1e-6))
        return {
            "sgd": optax.sgd(0.3),
            "momentum": optax.sgd(0.3, 0.8, nesterov=True),
            "chain": chained,
            "of η": lambda eta: optax.sgd(eta["bias"] ** 2),
        }
    ours = of("torch")
    chained = ours.chain(
        ours.clip_by_global_norm(0.05), ours.adamw(lambda step: 0.2 / (1 + step), weight_decay=0.1, eps_root=1e-6)
    )
    return {
        "sgd": ours.sgd(0.3),
        "momentum": ours.sgd(0.3, 0.8, weight_decay=0.1, nesterov=True),
        "chain": chained,
        "of η": lambda eta: ours.sgd(eta["bias"] ** 2),
    }


def plain(framework: str, inner: Any, optimiser: Any, outer: Any) -> Callable[..., Any]:
    """The loss and the gradient with respect to η and θ_0, by reverse mode over a loop in Python."""
    grad = transforms(framework).grad

    def loss(eta: Any, theta: Any, xs: Any, y: Any) -> Any:
        pair = optimiser if hasattr(optimiser, "init") else optimiser(eta)
        state = pair.init(theta)
        for i in range(T):
            x = tree_map(lambda leaf: leaf[i], xs)  # noqa: B023 - called at once
            updates, state = pair.update(grad(inner)(theta, eta, x), state, params=theta)
            theta = tree_map(lambda p, move: p + move, theta, updates)
        return outer(theta, eta, y)

    return lambda *given: (loss(*given), grad(loss, argnums=(0, 1))(*given))


def jitted(framework: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled in JAX."""
    found: Callable[..., Any] = importlib.import_module("jax").jit(function) if framework == "jax" else function
    return found


def check_alike(ours: Any, other: Any, digits: float = 1e-11) -> None:
    """Check that two trees have the same leaves, up to rounding."""
    for one, known in zip(leaves(ours), leaves(other), strict=True):
        np.testing.assert_allclose(to_numpy(one), to_numpy(known), rtol=digits, atol=digits)


@pytest.mark.parametrize("name", ["sgd", "momentum", "chain", "of η"])
def test_every_way_of_keeping_steps_gives_the_gradient_of_reverse_mode(framework: str, name: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        optimiser = optimisers(framework)[name]
        known = jitted(framework, plain(framework, inner, optimiser, outer))(*arrays(framework))
        assert min(np.abs(to_numpy(leaf)).max() for leaf in leaves(known[1])) > 0
        for options in KEPT if name == "chain" else KEPT[:1]:
            meta = of(framework).meta_gradient(inner, optimiser, outer, argnums=(0, 1), **options)
            check_alike(jitted(framework, meta)(*arrays(framework)), known)


@pytest.mark.parametrize("chained", [False, True])
def test_an_optimiser_that_works_in_place_unless_told_is_told(chained: bool) -> None:
    pytest.importorskip("torch", reason="optimisers of torchopt are PyTorch's")
    inner, outer = losses("torch")
    pair = of("torch").sgd(0.3, 0.5)

    class InPlace:
        init = staticmethod(pair.init)

        def update(self, grads: Any, state: Any, params: Any = None, inplace: bool = True) -> Any:
            assert not inplace
            return pair.update(grads, state, params=params)

    made = [of("torch").chain(each) if chained else each for each in (InPlace(), pair)]
    found = [of("torch").meta_gradient(inner, each, outer, argnums=(0, 1))(*arrays("torch")) for each in made]
    check_alike(*found, digits=0.0)


def test_steps_of_momentum_are_taken_back_exactly(framework: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        optimiser = of(framework).sgd(0.3, 0.5)
        known = jitted(framework, plain(framework, inner, optimiser, outer))(*arrays(framework))
        for argnums, expected in (((0, 1), known[1]), (1, known[1][1])):
            meta = of(framework).meta_gradient(inner, optimiser, outer, argnums=argnums, checkpointing="inversion")
            check_alike(jitted(framework, meta)(*arrays(framework)), (known[0], expected))


def test_learning_rates_of_each_parameter_are_learned(framework: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        eta, theta, xs, y = arrays(framework)
        rates = tree_map(lambda leaf: 0.1 + 0.01 * leaf, theta)

        def optimiser(given: Any) -> Any:
            return of(framework).sgd(given["rates"], 0.5)

        known = jitted(framework, plain(framework, inner, optimiser, outer))(eta | {"rates": rates}, theta, xs, y)
        for checkpointing in ("states", "inversion"):
            meta = of(framework).meta_gradient(inner, optimiser, outer, checkpointing=checkpointing)
            check_alike(jitted(framework, meta)(eta | {"rates": rates}, theta, xs, y), (known[0], known[1][0]))


def test_the_outer_loss_may_tell_more_and_a_state_may_be_given(framework: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        eta, theta, xs, y = arrays(framework)
        optimiser = of(framework).sgd(0.3, 0.5)
        meta = of(framework).meta_gradient(inner, optimiser, lambda *given: (outer(*given), given[0]), has_aux=True)
        (loss, last), grads = meta(eta, theta, xs, y, theta)
        (start, _), _ = meta(eta, theta, xs, y)
        assert abs(float(loss) - float(start)) > 1e-3
        assert abs(float(outer(last, eta, y)) - float(loss)) < 1e-12
        assert set(grads) == {"weight", "bias"}


def test_it_is_differentiated_again(framework: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        given = arrays(framework)
        optimiser = optimisers(framework)["momentum"]
        meta = of(framework).meta_gradient(inner, optimiser, outer)

        backprop = plain(framework, inner, optimiser, outer)

        def again(gradient: Callable[..., Any]) -> Any:
            def slope(eta: Any) -> Any:
                return (gradient(eta, *given[1:])["weight"] ** 2).sum()

            return jitted(framework, transforms(framework).grad(slope))(given[0])

        check_alike(again(lambda *a: meta(*a)[1]), again(lambda *a: backprop(*a)[1][0]))


def test_an_inner_gradient_that_is_cut_is_seen(framework: str) -> None:
    stop = (lambda leaf: leaf.detach()) if framework == "torch" else importlib.import_module("jax").lax.stop_gradient
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        optimiser = of(framework).sgd(0.3, 0.5)
        known = plain(framework, inner, optimiser, outer)(*arrays(framework))
        cut = of(framework).meta_gradient(
            lambda theta, eta, x: inner(theta, tree_map(stop, eta), x), optimiser, outer, argnums=(0, 1)
        )
        with pytest.raises(AssertionError):
            check_alike(cut(*arrays(framework)), known)


class Wrong:
    """An optimiser whose update returns what it is given here."""

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    def init(self, theta: Any) -> tuple[()]:
        return ()

    def update(self, grads: Any, state: Any, params: Any = None) -> Any:
        return self.returned


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"checkpointing": "some"}, "checkpointing must be one of states, gradients, logarithmic, inversion, not 'some'"),
    ({"checkpointing": "gradients", "save_inner_grads": True}, "goes with checkpointing='states', not 'gradients'"),
    ({"remat": 1}, "remat must be True or False, not 1"),
    ({"argnums": 2}, "argnums is 0 for η, 1 for θ_0, or (0, 1) for both, not 2"),
    ({"optimiser": object()}, "optimiser must have init and update"),
    (
        {"inner_loss": lambda theta, eta, x: 0.0, "remat": True},
        "remat=True needs an inner_loss(theta, eta, x, *, block)",
    ),
    ({"checkpointing": "inversion", "optimiser": "sgd"}, "'logarithmic', which needs no inverse"),
    ({"checkpointing": "inversion", "momentum": 1.0}, "momentum must lie between 0 and 1"),
    ({"optimiser": lambda eta: 3}, "must give an object with init and update, not a int"),
    (
        {"inner_loss": lambda theta, eta, x: theta["b"]},
        "inner_loss must return a floating scalar, not an array of shape (3,)",
    ),
    ({"outer_loss": lambda theta, eta, y: y}, "outer_loss must return a floating scalar, not an array of shape (2, 3)"),
    ({"has_aux": True}, "with has_aux=True, outer_loss returns a pair"),
    (
        {"outer_loss": lambda theta, y: y},
        "outer_loss is called as outer_loss(theta, eta, y), which outer_loss(theta, y) does not accept: too many",
    ),
    (
        {"inner_loss": lambda: 0.0},
        "inner_loss is called as inner_loss(theta, eta, x), which inner_loss() does not accept",
    ),
    (
        {"optimiser": lambda eta: Wrong(None)},
        "the optimiser's update returned a NoneType; legal: the pair (updates, state)",
    ),
    ({"optimiser": lambda eta: Wrong((0.0, ()))}, "the optimiser's update has 1 leaves and θ 3"),
    ({"learning_rate": [0.1, 0.2]}, "learning_rate has 2 leaves and θ 3: give one number, or a tree like θ"),
)


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_wrong_use_is_refused_in_words(framework: str, options: dict[str, Any], words: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        ball = of(framework).sgd(options.get("learning_rate", 0.1), options.get("momentum", 0.5))
        given: dict[str, Any] = {"inner_loss": inner, "optimiser": ball, "outer_loss": outer} | {
            name: value for name, value in options.items() if name not in ("learning_rate", "momentum")
        }
        if given["optimiser"] == "sgd":
            given["optimiser"] = optimisers(framework)["sgd"]
        with pytest.raises(UsageError) as told:
            of(framework).meta_gradient(**given)(*arrays(framework))
    assert words in str(told.value)


def test_arrays_that_do_not_fit_are_refused_in_words(framework: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        meta = of(framework).meta_gradient(inner, of(framework).sgd(0.1, 0.5), outer)
        eta, theta, xs, y = arrays(framework)
        whole = xs["class"]
        for wrong, words in (
            ((eta, theta, {**xs, "inputs": xs["inputs"][:1]}, y), "here they have [1, 3]"),
            ((eta, theta, {}, y), "here they have no array"),
            ((eta, {**theta, "n": whole}, xs, y), "theta has a leaf of"),
            (((), theta, xs, y), "eta has no leaf"),
        ):
            with pytest.raises(UsageError) as told:
                meta(*wrong)
            assert words in str(told.value)


def test_an_update_of_another_shape_is_refused(framework: str) -> None:
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        eta, theta, xs, y = arrays(framework)
        for lead, refused in (((), False), ((1,), True)):
            found = tree_map(lambda leaf: 0 * leaf.reshape((*lead, *leaf.shape)), theta)  # noqa: B023 - called at once
            meta = of(framework).meta_gradient(inner, Wrong((found, ())), outer)
            if not refused:
                meta(eta, theta, xs, y)
                continue
            with pytest.raises(UsageError, match=r"of the optimiser's update has shape .* they must be trees alike"):
                meta(eta, theta, xs, y)


def test_a_state_of_another_optimiser_is_refused_before_steps_are_taken_back(framework: str) -> None:
    ours = of(framework)
    with precision(framework, "float64"):
        inner, outer = losses(framework)
        given = arrays(framework)
        for pair in (ours.adam(0.1), ours.chain(ours.clip_by_global_norm(1.0), ours.adam(0.1))):
            with pytest.raises(UsageError, match="state is no state of this optimiser; legal: a tree such as"):
                ours.meta_gradient(inner, pair, outer, checkpointing="inversion")(*given, ())
            state = pair.init(given[1])
            ours.meta_gradient(inner, pair, outer, checkpointing="inversion")(*given, state)


def test_modules_in_the_place_of_parameters_are_refused_with_the_way_out(torch: Any) -> None:
    ours = of("torch")
    inner, outer = losses("torch")
    eta, _, xs, y = arrays("torch")
    with pytest.raises(UsageError, match=r"pass dict\(module\.named_parameters\(\)\)"):
        ours.meta_gradient(inner, ours.sgd(0.1), outer)(eta, torch.nn.Linear(3, 3), xs, y)
    with pytest.raises(UsageError, match=r"the class Adam is neither"):
        ours.meta_gradient(inner, torch.optim.Adam, outer)


def test_in_jax_a_module_with_functions_is_refused_with_the_way_out(jax: Any) -> None:
    eqx = pytest.importorskip("equinox")
    inner, outer = losses("jax")
    eta, _, xs, y = arrays("jax")
    model = eqx.nn.MLP(3, 3, 4, 1, key=jax.random.key(0))
    with pytest.raises(UsageError, match=r"eqx\.partition\(module, eqx\.is_inexact_array\)"):
        of("jax").meta_gradient(inner, of("jax").sgd(0.1, 0.5), outer)(eta, model, xs, y)


def test_in_jax_an_optimiser_with_counters_and_keys_in_its_state_is_differentiated(jax: Any) -> None:
    optax = pytest.importorskip("optax")
    with precision("jax", "float64"):
        inner, outer = losses("jax")
        noisy = optax.chain(optax.add_noise(0.01, 0.5, key=jax.random.key(3)), optax.sgd(0.3, 0.8))
        known = jax.jit(plain("jax", inner, noisy, outer))(*arrays("jax"))
        for options in ({}, {"checkpointing": "gradients"}, {"checkpointing": "logarithmic"}):
            meta = of("jax").meta_gradient(inner, noisy, outer, argnums=(0, 1), **options)
            check_alike(jax.jit(meta)(*arrays("jax")), known)


def test_in_pytorch_the_optimisers_move_parameters_as_torch_optim_does(torch: Any) -> None:
    ours = of("torch")
    pairs = (
        (ours.sgd(0.1), torch.optim.SGD, {"lr": 0.1}),
        (ours.sgd(0.1, 0.9), torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (
            ours.sgd(0.1, 0.9, weight_decay=0.01, nesterov=True),
            torch.optim.SGD,
            {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True},
        ),
        (ours.adam(0.1), torch.optim.Adam, {"lr": 0.1}),
        (
            ours.adamw(0.1, 0.8, 0.95, weight_decay=0.2),
            torch.optim.AdamW,
            {"lr": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.2},
        ),
    )
    for pair, optim, options in pairs:
        theta = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
        moved = theta.clone().requires_grad_()
        theirs, state = optim([moved], **options), pair.init(theta)
        for _ in range(4):
            theirs.zero_grad()
            (moved**3).sum().backward()
            theirs.step()
            updates, state = pair.update(3 * theta**2, state, params=theta)
            theta = theta + updates
        torch.testing.assert_close(theta, moved.detach(), rtol=1e-12, atol=0)


def test_in_pytorch_clipping_is_that_of_the_utilities_and_a_chain_is_in_order(torch: Any) -> None:
    ours, theta = of("torch"), torch.tensor([3.0, 4.0], dtype=torch.float64)
    known = theta.clone().requires_grad_()
    known.grad = theta.clone()
    torch.nn.utils.clip_grad_norm_([known], 0.5)
    updates, _ = ours.clip_by_global_norm(0.5).update([theta], ())
    torch.testing.assert_close(updates[0], known.grad, rtol=1e-5, atol=0)
    both = ours.chain(ours.sgd(2.0), ours.clip_by_global_norm(0.5))
    moves, _ = both.update([theta], both.init([theta]))
    assert abs(float(moves[0].norm()) - 0.5) < 1e-12
    with pytest.raises(UsageError, match="chain takes pairs of init and update"):
        ours.chain(torch.optim.SGD)
    with pytest.raises(UsageError, match="weight_decay reads θ"):
        ours.adamw(0.1).update([theta], ours.adamw(0.1).init([theta]))


def test_in_pytorch_parameters_that_require_a_gradient_are_taken_and_backward_is_refused(torch: Any) -> None:
    inner, outer = losses("torch")
    eta, theta, xs, y = arrays("torch")
    meta = of("torch").meta_gradient(inner, of("torch").sgd(0.3, 0.5), outer)
    known = meta(eta, theta, xs, y)
    for leaf in leaves(theta):
        leaf.requires_grad_()
    loss, grads = meta(eta, theta, xs, y)
    check_alike((loss.detach(), tree_map(torch.Tensor.detach, grads)), known)
    for told in (loss, grads["bias"]):
        with pytest.raises(NotComposable, match=r"torch\.func\.grad in the place of backward"):
            told.backward()
    with torch.no_grad():
        assert not meta(eta, theta, xs, y)[0].requires_grad


def test_in_pytorch_adam_is_finite_where_a_parameter_never_had_a_gradient(torch: Any) -> None:
    def inner(theta: Any, eta: Any, x: Any) -> Any:
        return (theta[:2] ** 2 * eta * x).sum()

    given = (torch.ones(2), torch.ones(3), torch.ones(T, 1), torch.ones(3))
    meta = of("torch").meta_gradient(inner, of("torch").adam(0.1), lambda theta, eta, y: (theta**2 * y).sum())
    assert bool(torch.isfinite(meta(*given)[1]).all())
