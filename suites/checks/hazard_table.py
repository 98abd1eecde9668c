"""The hazards of eager PyTorch, as a table. The check `protocol` runs every row."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from gradgate.suites.checks.hazards import (
    BATCH,
    WIDTH,
    Buffered,
    Drawing,
    Hazard,
    InstanceNormed,
    Scaled,
    Scene,
    around,
    between,
    in_another_thread,
)

Change = Callable[[Scene], Any]


def _norm() -> nn.Module:
    return nn.BatchNorm1d(WIDTH)


def _noisy() -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(WIDTH), nn.Dropout(0.4))


def _scaled(ask: Callable[[], Any]) -> Callable[[], nn.Module]:
    return lambda: Scaled(ask)


def _of(kind: type[Any], scene: Scene) -> list[Any]:
    return [m for m in scene.model.modules() if isinstance(m, kind)]


def _weight(scene: Scene) -> Any:
    return scene.parameters[0]


def _in_eval(change: Change) -> Callable[[Scene], None]:
    def play(scene: Scene) -> None:
        scene.model.eval()
        between(change)(scene)

    return play


def _with_one_in_eval(scene: Scene) -> None:
    norm = _of(nn.BatchNorm1d, scene)[0].eval()
    between(lambda _: norm.train())(scene)


def _optimizer_step(scene: Scene) -> None:
    for p in scene.parameters:
        p.grad = torch.ones_like(p)
    torch.optim.SGD(scene.parameters, 0.1).step()
    for p in scene.parameters:
        p.grad = None


def _another_forward_in_training(scene: Scene) -> None:
    scene.model.train()
    scene.model(torch.randn(BATCH, WIDTH))
    scene.model.eval()


def _ask(answer: Callable[[], Any]) -> Change:
    def change(scene: Scene) -> None:
        for module in _of(Scaled, scene):
            module.ask = answer

    return change


def _drop_less(scene: Scene) -> None:
    for module in _of(nn.Dropout, scene):
        module.p = 0.1


def _replace_weight(scene: Scene) -> None:
    layer = _of(nn.Linear, scene)[0]
    layer.weight = nn.Parameter(layer.weight.detach().clone())


def _replace_inner_module(scene: Scene) -> None:
    for block in _of(nn.Sequential, scene)[1:]:
        block[0] = nn.Linear(WIDTH, WIDTH)


def _swap_data(scene: Scene) -> None:
    _weight(scene).data = torch.randn(WIDTH, WIDTH)


def _with_other_parameters(scene: Scene) -> None:
    """Only the forward pass sees other tensors in place of the parameters."""
    others = {name: p.detach() * 2 for name, p in scene.model.named_parameters()}
    for tensor in others.values():
        tensor.requires_grad_()
    holder = nn.Module()
    holder.add_module("model", scene.model)
    holder.forward = lambda x: scene.forward(x)
    torch.func.functional_call(holder, {f"model.{name}": p for name, p in others.items()}, (scene.x,))
    scene.loss.backward()
    scene.seen += [torch.zeros(()) if p.grad is None else p.grad for p in others.values()]


def _hooked_activation(scene: Scene) -> None:
    _of(nn.Tanh, scene)[0].register_forward_hook(lambda *given: scene.tensors.append(given[-1]))
    between(lambda scene: scene.tensors[0].mul_(2))(scene)


def _hooked_parameter(scene: Scene) -> None:
    def hook(gradient: torch.Tensor) -> torch.Tensor:
        scene.seen.append(gradient.clone())
        return 2 * gradient

    _weight(scene).register_hook(hook)
    around()(scene)


def _accumulation_hook(scene: Scene) -> None:
    _weight(scene).register_post_accumulate_grad_hook(lambda p: scene.seen.append(p.grad.clone()))
    around()(scene)


def _twice_refused(scene: Scene) -> None:
    scene.forward()
    scene.loss.backward()
    if scene.changing:
        scene.loss.backward()


def _twice_retained(scene: Scene) -> None:
    scene.forward()
    scene.loss.backward(retain_graph=True)
    scene.loss.backward(retain_graph=True)
    scene.loss.backward()


def _part_then_all(scene: Scene) -> None:
    scene.forward()
    scene.seen += torch.autograd.grad(scene.loss, scene.parameters[-2:], retain_graph=True)
    scene.loss.backward()


def _two_forwards(scene: Scene) -> None:
    first = scene.forward()
    second = scene.forward(scene.x + 1)
    first.backward()
    second.backward()


def _smaller_batch(scene: Scene) -> None:
    scene.forward().backward()
    scene.forward(scene.x[:2]).backward()


def _second_derivative(scene: Scene) -> None:
    scene.forward()
    [gradient] = torch.autograd.grad(scene.loss, [scene.leaf], create_graph=True)
    gradient.square().sum().backward()


def _toggle(need: bool) -> Callable[[Scene], None]:
    def play(scene: Scene) -> None:
        _weight(scene).requires_grad_(not need)
        between(lambda scene: _weight(scene).requires_grad_(need))(scene)

    return play


def _generator_elsewhere(scene: Scene) -> None:
    generator = np.random.default_rng(3)  # made here, so that nothing draws from it while the function is made
    _ask(generator.random)(scene)
    around()(scene)


_BFLOAT = functools.partial(torch.autocast, "cpu", torch.bfloat16)
_ROWS: tuple[tuple[Any, ...], ...] = (
    # What autograd allows: the mode of the model, and random numbers.
    ("eval_between", "model.eval() in between", _noisy, between(lambda s: s.model.eval())),
    ("train_between", "model.train() in between", _noisy, _in_eval(lambda s: s.model.train())),
    ("submodule_mode", "a norm in eval mode is set to train mode in between", _norm, _with_one_in_eval),
    (
        "dropout",
        "dropout, and random numbers drawn in between",
        lambda: nn.Dropout(0.4),
        between(lambda s: torch.rand(9)),
    ),
    ("python_random", "Python's random decides what a layer does", _scaled(random.random), around()),
    (
        "numpy_random",
        "NumPy's global generator decides what a layer does",
        _scaled(lambda: np.random.random()),
        around(),
    ),
    (
        "torch_generator",
        "a layer draws from a torch.Generator of its own",
        lambda: Drawing(torch.Generator().manual_seed(3), lambda g: torch.rand(WIDTH, generator=g)),
        around(),
        "right",
        True,
    ),
    (
        "numpy_generator",
        "a layer draws from a numpy.random.Generator of its own",
        lambda: Drawing(np.random.default_rng(3), lambda g: g.random()),
        around(),
        "right",
        True,
    ),
    (
        "python_generator",
        "a layer draws from a random.Random of its own",
        lambda: Drawing(random.Random(3), lambda g: g.random()),
        around(),
        "right",
        True,
    ),
    (
        "generator_elsewhere",
        "a layer draws from a generator that nothing can find",
        _scaled(lambda: 0.0),
        _generator_elsewhere,
        "right",
        True,
    ),
    # Settings around the passes.
    ("autocast_forward", "autocast around the forward pass alone", nn.Tanh, around(_BFLOAT)),
    ("autocast_backward", "autocast around the backward pass alone", nn.Tanh, around(backward=_BFLOAT)),
    ("no_grad_backward", "backward under torch.no_grad", nn.Tanh, around(backward=torch.no_grad)),
    ("inference_backward", "backward under torch.inference_mode", nn.Tanh, around(backward=torch.inference_mode)),
    (
        "default_dtype",
        "torch.set_default_dtype in between",
        _scaled(lambda: torch.linspace(0.1, 1, WIDTH)),
        between(lambda s: torch.set_default_dtype(torch.bfloat16)),
    ),
    (
        "deterministic",
        "torch.use_deterministic_algorithms in between",
        _scaled(lambda: float(torch.are_deterministic_algorithms_enabled())),
        between(lambda s: torch.use_deterministic_algorithms(True)),
    ),
    ("other_thread", "backward in another thread, autocast around the forward pass", nn.Tanh, in_another_thread),
    # Tensors that change in between.
    ("input_overwritten", "the input is overwritten in between", nn.Tanh, between(lambda s: s.x.mul_(3)), "raises"),
    ("output_overwritten", "the output is overwritten in between", nn.Tanh, between(lambda s: s.y.mul_(3)), "raises"),
    (
        "activation_overwritten",
        "what a forward hook kept is overwritten in between",
        nn.Tanh,
        _hooked_activation,
        "raises",
    ),
    (
        "weight_changed",
        "a weight is changed in place in between",
        nn.Tanh,
        between(lambda s: _weight(s).mul_(3)),
        "raises",
    ),
    ("optimizer_step", "an optimiser makes a step in between", nn.Tanh, between(_optimizer_step), "raises"),
    (
        "buffer_changed",
        "a buffer is changed in place in between",
        Buffered,
        between(lambda s: [b.gain.mul_(3) for b in _of(Buffered, s)]),
        "raises",
    ),
    (
        "statistics_changed",
        "the running statistics of a norm in eval mode are changed in between",
        _norm,
        _in_eval(lambda s: [n.running_var.mul_(3) for n in _of(nn.BatchNorm1d, s)]),
        "raises",
    ),
    (
        "statistics_trained",
        "after a forward pass in eval mode, another one trains the norms",
        _norm,
        _in_eval(_another_forward_in_training),
        "wrong",
    ),
    ("data_swapped", "weight.data is exchanged in between", nn.Tanh, between(_swap_data), "wrong"),
    (
        "data_overwritten",
        "weight.data is changed in place in between",
        nn.Tanh,
        between(lambda s: _weight(s).data.mul_(3)),
        "wrong",
    ),
    (
        "weight_replaced",
        "a layer gets a new parameter with the same values in between",
        nn.Tanh,
        between(_replace_weight),
        "right",
        True,
    ),
    (
        "module_replaced",
        "a module within a layer is exchanged in between",
        lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()),
        between(_replace_inner_module),
        "right",
        True,
    ),
    (
        "functional_call",
        "torch.func.functional_call around the forward pass",
        nn.Tanh,
        _with_other_parameters,
        "right",
        True,
    ),
    # Changes after which a second run of a layer takes another path.
    (
        "flag_turned",
        "a flag that a layer reads is changed in between",
        _scaled(lambda: 0.0),
        between(_ask(lambda: 1.0)),
        "right",
        True,
    ),
    (
        "shape_turned",
        "a flag that decides a layer's output shape is changed in between",
        _scaled(lambda: 0.0),
        between(_ask(lambda: torch.ones(2, 1, 1))),
        "right",
        True,
    ),
    (
        "attribute_changed",
        "the p of every dropout is changed in between",
        lambda: nn.Dropout(0.4),
        between(_drop_less),
        "right",
        True,
    ),
    ("weight_unfrozen", "a weight starts to need a gradient in between", nn.Tanh, _toggle(True)),
    ("weight_frozen", "a weight stops needing a gradient in between", nn.Tanh, _toggle(False)),
    # What autograd promises about hooks, state and further passes.
    ("parameter_hook", "a hook on a parameter doubles its gradient", nn.Tanh, _hooked_parameter),
    ("accumulation_hook", "a hook sees each accumulated gradient", nn.Tanh, _accumulation_hook),
    (
        "shared_layer",
        "one layer is used at several places",
        lambda: nn.Linear(WIDTH, WIDTH),
        around(),
        "right",
        False,
        True,
    ),
    ("batch_norm_once", "batch norms update their statistics once", _norm, around()),
    ("instance_norm_once", "instance norms update their statistics once", InstanceNormed, around()),
    ("layer_in_place", "layers overwrite their input", lambda: nn.ReLU(inplace=True), around()),
    ("two_forwards", "two forward passes, then both backward passes", _noisy, _two_forwards),
    ("smaller_batch", "the last batch is smaller", nn.Tanh, _smaller_batch, "right", True),
    ("twice_refused", "backward a second time without retain_graph", nn.Tanh, _twice_refused, "raises"),
    ("twice_retained", "backward three times with retain_graph", _noisy, _twice_retained),
    ("part_then_all", "the gradient of the last layer, then of all", _noisy, _part_then_all),
    (
        "second_derivative",
        "create_graph=True, and backward through the gradient",
        nn.Tanh,
        _second_derivative,
        "right",
        True,
    ),
)


HAZARDS = tuple(Hazard(*row) for row in _ROWS)
