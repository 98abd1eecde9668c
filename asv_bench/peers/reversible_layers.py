"""`InvertibleSequential` compared with other code: ``python asv_bench/peers/reversible_layers.py``.

The network is a RevNet of additive blocks in float32 on the CPU. Each block has two functions, which are linear, ReLU,
linear. Bytes are those of PyTorch's allocator, read from its profiler. *Kept* is what is alive after the forward pass,
without inputs, parameters and the output. *Peak* is the most during both passes, including gradients. If a peer is not
installed, its row says so. Put peers on PYTHONPATH: ``pip install --no-deps --target DIR memcnn revlib FrEIA``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradgate.hw_profiles.work import torch_flops
from gradgate.in_torch import AdditiveCoupling, InvertibleSequential

PROFILES = ("cpu", "nvidia-h100")
"""The profiles for which the gradient in JAX is compiled."""
Functions = list[tuple[nn.Module, nn.Module]]


def functions(args: argparse.Namespace, noisy: bool) -> Functions:
    """F and G of every block, the same in every call."""
    torch.manual_seed(0)
    half = args.width // 2

    def net() -> nn.Module:
        middle = [nn.BatchNorm1d(half), nn.ReLU(), nn.Dropout(0.2)] if noisy else [nn.ReLU()]
        return nn.Sequential(nn.Linear(half, half), *middle, nn.Linear(half, half))

    return [(net(), net()) for _ in range(args.depth)]


class Block(nn.Module):
    """A block under plain autograd."""

    def __init__(self, f: nn.Module, g: nn.Module) -> None:
        super().__init__()
        self.f, self.g = f, g

    def forward(self, x: Any) -> Any:
        """x -> y."""
        x1, x2 = x.chunk(2, 1)
        y1 = x1 + self.f(x2)
        return torch.cat([y1, x2 + self.g(y1)], 1)


class Checkpointed(nn.Sequential):
    """Every block under torch.utils.checkpoint."""

    def forward(self, x: Any) -> Any:
        """x -> y."""
        for block in self:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def memcnn_of(nets: Functions, **more: Any) -> nn.Module:
    """Blocks of memcnn."""
    import memcnn

    wrapped = (memcnn.InvertibleModuleWrapper(memcnn.AdditiveCoupling(f, g), **more) for f, g in nets)
    return nn.Sequential(*wrapped)


def revlib_of(nets: Functions) -> nn.Module:
    """Blocks of revlib."""
    import revlib

    return revlib.ReversibleSequential(*(net for f_and_g in nets for net in f_and_g))  # type: ignore[no-any-return]


def freia_of(nets: Functions) -> nn.Module:
    """Blocks of FrEIA."""
    import FrEIA.framework
    import FrEIA.modules

    width = 2 * nets[0][0][0].in_features  # type: ignore[index]
    chain = FrEIA.framework.SequenceINN(int(width))  # type: ignore[arg-type]
    for f, g in nets:
        given = iter([f, g])
        chain.append(FrEIA.modules.NICECouplingBlock, subnet_constructor=lambda a, b, given=given: next(given))

    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.chain = chain

        def forward(self, x: Any) -> Any:
            return self.chain(x)[0]

    return First()


ROWS: dict[str, Callable[[Functions], nn.Module]] = {
    "plain autograd": lambda nets: nn.Sequential(*(Block(f, g) for f, g in nets)),
    "torch.utils.checkpoint": lambda nets: Checkpointed(*(Block(f, g) for f, g in nets)),
    "reversible": lambda nets: InvertibleSequential(*(AdditiveCoupling(f, g) for f, g in nets)),
    "moonwalk_mixed": lambda nets: InvertibleSequential(
        *(AdditiveCoupling(f, g) for f, g in nets), method="moonwalk_mixed"
    ),
    "memcnn": memcnn_of,
    "memcnn, preserve_rng_state": lambda nets: memcnn_of(nets, preserve_rng_state=True),
    "revlib": revlib_of,
    "FrEIA": freia_of,
}


def step(model: nn.Module, x: Any) -> Any:
    """Run one forward and backward pass, and return the gradient of x."""
    torch.manual_seed(1)
    leaf = x.clone().requires_grad_()
    model.zero_grad()
    (model(leaf * 1) ** 2).sum().backward()  # memcnn empties the input of the first block
    return leaf.grad


def gradients(make: Callable[[Functions], nn.Module], nets: Functions, x: Any) -> list[Any]:
    """The gradients of x and of the parameters of F and G, in an order that does not depend on the model."""
    dx = step(make(nets), x)
    return [dx, *(p.grad for f_and_g in nets for net in f_and_g for p in net.parameters())]


def events(program: Callable[[], Any]) -> list[int]:
    """The allocator's events while a program runs and its result is alive: bytes, negative if they are freed."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        alive = program()
    del alive
    found = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]  # type: ignore[union-attr]
    return [e.nbytes() for e in sorted(found, key=lambda e: e.start_ns())]


def row(model: nn.Module, x: Any) -> dict[str, Any]:
    """Figures of a model without random numbers."""
    step(model, x)  # the first call checks the layers
    leaf = x.clone().requires_grad_()
    kept = sum(events(lambda: model(leaf))) - x.nbytes
    model.zero_grad()
    total, peak = 0, 0
    for size in events(lambda: step(model, x)):
        total += size
        peak = max(peak, total)
    return {"kept": kept, "peak": peak, "flops": torch_flops(lambda: step(model, x))}


def in_turns(models: dict[str, nn.Module], x: Any, repeats: int) -> dict[str, float]:
    """Name -> least seconds of several steps; models take turns, so that a busy machine slows down all rows equally."""
    least = dict.fromkeys(models, float("inf"))
    for _ in range(repeats):
        for name, model in models.items():
            begun = time.perf_counter()
            step(model, x)
            least[name] = min(least[name], time.perf_counter() - begun)
    return least


def off(found: list[Any], exact: list[Any]) -> float:
    """The largest difference of a gradient, relative to the norm of the largest gradient."""
    scale = max(float(b.norm()) for b in exact)
    return max(float((a - b).norm()) / scale for a, b in zip(found, exact, strict=True))


def in_jax(args: argparse.Namespace) -> None:
    """Print the table for JAX: residual bytes, temporaries of the compiled gradient, FLOPs of the program."""
    import jax
    import jax.numpy as jnp

    from gradgate.hw_profiles import work
    from gradgate.hw_profiles.compile import measure
    from gradgate.hw_profiles.residuals import of_jax
    from gradgate.in_jax import additive_coupling, invertible_sequential

    half = args.width // 2

    def net(p: Any, x: Any) -> Any:
        return jax.nn.relu(x @ p["w"] + p["b"]) @ p["v"] + p["c"]

    def drawn(key: Any) -> dict[str, Any]:
        w, v = jax.random.normal(key, (2, half, half)) / half**0.5
        return {"w": w, "b": jnp.zeros(half), "v": 0.5 * v, "c": jnp.zeros(half)}

    def block(p: Any, x: Any) -> Any:
        x1, x2 = jnp.split(x, 2, -1)
        y1 = x1 + net(p["f"], x2)
        return jnp.concatenate([y1, x2 + net(p["g"], y1)], -1)

    def plain(params: Any, x: Any, step: Any = block) -> Any:
        for p in params:
            x = step(p, x)
        return x

    layers = [additive_coupling(net, net)] * args.depth
    rows = {
        "plain autograd": plain,
        "jax.checkpoint": lambda params, x: plain(params, x, jax.checkpoint(block)),
        "reversible": invertible_sequential(layers),
        "moonwalk_mixed": invertible_sequential(layers, method="moonwalk_mixed"),
    }
    keys = jax.random.split(jax.random.key(0), 2 * args.depth)
    params = [{"f": drawn(keys[2 * i]), "g": drawn(keys[2 * i + 1])} for i in range(args.depth)]
    x = jax.random.normal(jax.random.key(1), (args.batch, args.width))
    print(
        f"\njax {jax.__version__}, {args.depth} blocks, width {args.width}, batch {args.batch}, compiled for the CPU\n"
    )
    print(f"| | kept | {' | '.join(f'temporaries, {p}' for p in PROFILES)} | FLOPs | gradient off by |")
    print(f"|---|---:|{'---:|' * len(PROFILES)}---:|---:|")
    exact: Any = None
    base = 0.0
    for name, row in rows.items():
        gradient = jax.grad(lambda params, x, row=row: (row(params, x) ** 2).sum(), (0, 1))
        found = jax.tree.leaves(jax.jit(gradient)(params, x))
        exact, flops = exact or found, float(work.of(gradient, (params, x)).flops)
        base = base or flops
        scale = max(float(jnp.linalg.norm(leaf)) for leaf in exact)
        wrong = max(float(jnp.linalg.norm(a - b)) for a, b in zip(found, exact, strict=True)) / scale
        kept = of_jax(row, (params, x))
        temps = [measure(gradient, (params, x), profile) for profile in PROFILES]
        told = " | ".join(f"{m.temp_bytes / 1e6:.2f} MB" if m.temp_bytes is not None else m.reason for m in temps)
        print(f"| {name} | {kept / 1e6:.2f} MB | {told} | {flops / base:.2f} | {wrong:.0e} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--framework", choices=("jax", "torch"), help="only this one")
    args = parser.parse_args()
    if args.framework != "jax":
        in_torch(args)
    if args.framework != "torch":
        in_jax(args)


def in_torch(args: argparse.Namespace) -> None:
    """Print the table of PyTorch."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(2)
    x = torch.randn(args.batch, args.width)
    versions = [f"torch {torch.__version__}"]
    for name in ("memcnn", "revlib", "FrEIA"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{name} not installed")
    print(f"{args.depth} blocks, width {args.width}, batch {args.batch}; {', '.join(versions)}\n")
    print("| | kept | peak | FLOPs | time | gradient off by | with dropout | batches counted |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    exact = {noisy: gradients(ROWS["plain autograd"], functions(args, noisy), x) for noisy in (False, True)}
    models: dict[str, nn.Module] = {}
    missing: dict[str, str] = {}
    for name, make in ROWS.items():
        try:
            models[name] = make(functions(args, False))
        except ImportError as error:
            missing[name] = f"not installed: {error.name}"
    found = {name: row(model, x) for name, model in models.items()}
    seconds = in_turns(models, x, args.repeats)
    base, first = found["plain autograd"]["flops"], seconds["plain autograd"]
    for name, make in ROWS.items():
        if name in missing:
            print(f"| {name} | {missing[name]} | | | | | | |")
            continue
        noisy = functions(args, True)
        wrong = off(gradients(make, functions(args, False), x), exact[False])
        wrong_noisy = off(gradients(make, noisy, x), exact[True])
        counted = {int(b) for nets in noisy for net in nets for n, b in net.named_buffers() if n.endswith("tracked")}
        f = found[name]
        print(
            f"| {name} | {f['kept'] / 1e6:.2f} MB | {f['peak'] / 1e6:.2f} MB | {f['flops'] / base:.2f} | "
            f"{seconds[name] / first:.2f} | {wrong:.0e} | {wrong_noisy:.0e} | {', '.join(map(str, sorted(counted)))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
