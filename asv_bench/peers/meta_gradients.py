"""`meta_gradient` of PyTorch compared with other code: ``python asv_bench/peers/meta_gradients.py``.

The script computes the gradient with respect to θ_0 of the loss after T steps of SGD with momentum or, with
``--optimiser adam``, of Adam, for a residual network in float32. Bytes are the peak of all tensors that are made;
FLOPs are counted. ``--time`` gives processor time on one thread instead. If a peer is not installed, its row says so.
The script for JAX is ``meta_gradients_jax.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import importlib
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from sequences import in_turns

from gradgate import UsageError
from gradgate.hw_profiles.torch_tracker import HELD, Tracker
from gradgate.hw_profiles.work import torch_flops
from gradgate.in_torch import adam, meta_gradient, mixed_mode_grad, sgd
from gradgate.references.bilevel.inner.pairs import HeavyBall

RATE, MOMENTUM = 1e-2, 0.9
PLAIN = "plain torch.autograd.grad, create_graph"


class Net(torch.nn.Module):
    """Residual layers h + tanh(h W) V."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.first = torch.nn.ModuleList(torch.nn.Linear(width, 2 * width) for _ in range(layers))
        self.second = torch.nn.ModuleList(torch.nn.Linear(2 * width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor, block: Callable[..., Any] = lambda layer: layer) -> torch.Tensor:
        """The last layer's outputs; `block` wraps the function of each layer."""
        for first, second in zip(self.first, self.second, strict=True):
            x = block(layer)(x, first.weight, first.bias, second.weight, second.bias)
        return x


def layer(x: torch.Tensor, *p: torch.Tensor) -> torch.Tensor:
    """One layer."""
    return x + torch.nn.functional.linear(torch.tanh(torch.nn.functional.linear(x, p[0], p[1])), p[2], p[3])


def distance(given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Sum of squared differences for each example, averaged over the batch."""
    return ((given - wanted) ** 2).sum(-1).mean()


class Case:
    """The network, its batches, and the loss of a step."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.pair = adam(RATE, eps_root=args.eps_root) if args.optimiser == "adam" else sgd(RATE, MOMENTUM)
        self.net = Net(args.layers, args.width)
        self.theta = {name: leaf.detach() for name, leaf in self.net.named_parameters()}
        self.xs = torch.randn(args.steps, 2, args.batch, args.width)
        self.y = torch.randn(2, args.batch, args.width)

    def loss(self, theta: Any, eta: Any, x: Any, *, block: Callable[..., Any] = lambda layer: layer) -> torch.Tensor:
        """The inner loss: `distance` of the network's output."""
        return distance(torch.func.functional_call(self.net, theta, (x[0],), {"block": block}), x[1])

    def ours(self, **options: Any) -> Any:
        """The gradient by `meta_gradient`."""
        meta = meta_gradient(self.loss, self.pair, self.loss_of_end, argnums=1, **options)
        return meta((), self.theta, self.xs, self.y)[1]

    def loss_of_end(self, theta: Any, eta: Any, y: Any, *, block: Callable[..., Any] = lambda layer: layer) -> Any:
        """The outer loss V."""
        return self.loss(theta, eta, y, block=block)

    def loop(self, grad: Callable[..., Any]) -> Any:
        """The gradient by ``torch.func.grad`` over a loop in Python, with any inner gradient."""
        return torch.func.grad(functools.partial(self.outer, grad))(self.theta)

    def graph(self, grad: Callable[..., Any] | None = None) -> Any:
        """The gradient by ``torch.autograd.grad`` over a loop; the default inner gradient uses ``create_graph``."""

        def recorded(loss: Callable[..., Any]) -> Callable[..., Any]:
            def found(theta: Any, *more: Any) -> Any:
                value = loss(theta, *more)
                return dict(
                    zip(theta, torch.autograd.grad(value, list(theta.values()), create_graph=True), strict=True)
                )

            return found

        theta = {name: leaf.clone().requires_grad_() for name, leaf in self.theta.items()}
        found = torch.autograd.grad(self.outer(grad or recorded, theta), list(theta.values()))
        return dict(zip(theta, found, strict=True))

    def outer(self, grad: Callable[..., Any], theta: Any) -> torch.Tensor:
        """V as a function of θ_0, by a loop in Python."""
        state = self.pair.init(theta)
        for x in self.xs:
            updates, state = self.pair.update(grad(self.loss)(theta, (), x), state, params=theta)
            theta = {name: theta[name] + updates[name] for name in theta}
        return self.loss(theta, (), self.y)

    def torchopt(self) -> Any:
        """The gradient by torchopt's optimiser in a differentiable loop with ``create_graph``."""
        peer = importlib.import_module("torchopt")
        pair = (
            peer.sgd(RATE, momentum=MOMENTUM)
            if isinstance(self.pair, HeavyBall)
            else peer.adam(RATE, eps_root=self.pair.eps_root)
        )
        theta = {name: leaf.clone().requires_grad_() for name, leaf in self.theta.items()}
        start, state = theta, pair.init(theta)
        for x in self.xs:
            loss = self.loss(theta, (), x)
            grads = dict(zip(theta, torch.autograd.grad(loss, list(theta.values()), create_graph=True), strict=True))
            updates, state = pair.update(grads, state, params=theta, inplace=False)
            theta = {name: theta[name] + updates[name] for name in theta}
        found = torch.autograd.grad(self.loss(theta, (), self.y), list(start.values()))
        return dict(zip(start, found, strict=True))

    def higher(self) -> Any:
        """The gradient by higher's differentiable optimiser."""
        peer = importlib.import_module("higher")
        parameters = list(self.net.parameters())
        optimiser: Any = torch.optim.Adam(parameters, lr=RATE)
        if isinstance(self.pair, HeavyBall):
            optimiser = torch.optim.SGD(parameters, lr=RATE, momentum=MOMENTUM)
        with peer.innerloop_ctx(self.net, optimiser, copy_initial_weights=False) as (net, steps):
            for x in self.xs:
                steps.step(distance(net(x[0]), x[1]))
            found = torch.autograd.grad(distance(net(self.y[0]), self.y[1]), list(self.net.parameters()))
        return dict(zip(self.theta, found, strict=True))


OTHER_WORK = "other work: its four hypergradients approximate the inverse of a Hessian at the last step"
"""Why betty has no figures: `darts`, `neumann`, `cg` and `reinforce` do not differentiate through the steps."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (("steps", 8), ("layers", 16), ("width", 64), ("batch", 256)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--optimiser", choices=("momentum", "adam"), default="momentum")
    parser.add_argument(
        "--eps-root", type=float, default=1e-8, help="what Adam adds under its root; higher's adds none"
    )
    parser.add_argument("--time", type=int, default=0, help="the time of so many rounds, in the place of the table")
    args = parser.parse_args()
    case = Case(args)
    rows: dict[str, Callable[[], Any]] = {
        "gradgate meta_gradient": case.ours,
        "  remat": lambda: case.ours(remat=True),
        "  remat, save_inner_grads": lambda: case.ours(remat=True, save_inner_grads=True),
        "  remat, gradients": lambda: case.ours(remat=True, checkpointing="gradients"),
        "  remat, logarithmic": lambda: case.ours(remat=True, checkpointing="logarithmic"),
        "  remat, inversion": lambda: case.ours(remat=True, checkpointing="inversion"),
        "gradgate mixed_mode_grad in a loop, autograd outside": lambda: case.graph(mixed_mode_grad),
        "  torch.func.grad outside": lambda: case.loop(mixed_mode_grad),
        PLAIN: case.graph,
        "plain torch.func.grad, twice": lambda: case.loop(torch.func.grad),
        f"torchopt {version('torchopt')}": case.torchopt,
        f"higher {version('higher')}": case.higher,
        f"betty {version('betty-ml')}": lambda: OTHER_WORK,
    }
    if args.time:
        print("\n".join(timed(rows, args.time)))
        return
    print(
        f"PyTorch {torch.__version__}, T = {args.steps}, {args.layers} layers of width {args.width}, batch "
        f"{args.batch}, float32, {args.optimiser}\n\n"
        "| | peak MB | of plain | GFLOP | of plain | difference |\n|---|--:|--:|--:|--:|--:|"
    )
    plain = outcome(case, rows[PLAIN])
    for name, run in rows.items():
        found = plain if name == PLAIN else outcome(case, run)
        if isinstance(found, str):
            print(f"| {name} | {found} | | | | |", flush=True)
            continue
        size, flops, grads = found
        away = max(float((grads[key] - leaf).abs().max() / leaf.abs().max()) for key, leaf in plain[2].items())
        print(
            f"| {name} | {size / 1e6:.1f} | {size / plain[0]:.2f} | {flops / 1e9:.2f} | {flops / plain[1]:.2f} "
            f"| {away:.0e} |",
            flush=True,
        )


def timed(rows: Mapping[str, Callable[[], Any]], rounds: int) -> Iterator[str]:
    """Processor time, as a ratio to plain reverse mode: the least of `rounds` runs, in which the rows take turns.

    Peers that are not installed, or do other work, have no row.
    """
    torch.set_num_threads(1)
    there = {}
    for name, run in rows.items():
        with contextlib.suppress(ImportError):
            if not isinstance(run(), str):
                there[name] = run
    work = {name: torch_flops(run) for name, run in there.items()}
    seconds = in_turns(there, rounds)
    yield "| | ms | of plain | FLOPs of plain |\n|---|--:|--:|--:|"
    for name, each in seconds.items():
        yield f"| {name} | {1000 * each:.0f} | {each / seconds[PLAIN]:.2f} | {work[name] / work[PLAIN]:.2f} |"


def outcome(case: Case, run: Callable[[], Any]) -> Any:
    """Peak bytes without the arguments, FLOPs and the gradient; or the reason why there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            grads = run()
        except ImportError as error:
            return f"not installed: {error}"
        except UsageError as error:
            return f"refused: {error}"
        except (RuntimeError, TypeError, AttributeError) as error:
            return f"raises {type(error).__name__}: {str(error).splitlines()[0][:100]}"
        if isinstance(grads, str):
            return grads
        gc.collect()
        with Tracker() as tracker:
            for given in (case.net, case.xs, case.y):
                tracker.hold(given)
            run()
        return sum(tracker.peak) - tracker.peak[HELD], torch_flops(run), grads


def version(peer: str) -> str:
    """The version of a peer, or an empty string."""
    try:
        return importlib.metadata.version(peer)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
