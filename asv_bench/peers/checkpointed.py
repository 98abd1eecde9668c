"""`checkpointed` compared with other code: ``python asv_bench/peers/checkpointed.py [--model NAME]``.

Each row shows, for one peer, the peak of a training step and its FLOPs (forward and backward) as shares of plain
training, and then the same for `checkpointed` with the peer's peak as its budget. A peak is the largest number of bytes
that the step makes and that are alive at once, without gradients of parameters. FLOPs are those of convolutions and
products of matrices. ``--time`` gives processor time at the first peer's peak instead. Everything runs on CPUs in
float32.
"""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from sequences import in_turns
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from gradgate.in_torch import checkpointed
from gradgate.references.chain.in_torch.profile import LiveBytes
from gradgate.references.chain.paper.peers import Measured, _compiled, step_of
from gradgate.references.chain.schedules.solver import BudgetTooSmall

Loss = Callable[[Any], Any]
COMPILED = (0.5, 0.25)
WHY_COMPILE = "it runs elementwise operators again without the convolution or product that reads them; eager cannot"
WHY_EAGER = "it stops the second run before a last product whose output nothing saves; a stage here runs as a whole"


def main() -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS))
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--without-compile", action="store_true")
    parser.add_argument("--rows", nargs="+", default=[""], help="only peers whose name contains one of these words")
    parser.add_argument("--train", type=int, default=0, help="train for so many steps, in the place of the table")
    parser.add_argument("--time", type=int, default=0, help="the time of so many rounds, in the place of the table")
    parser.add_argument("--kept", action="store_true", help="what plain autograd keeps, in the place of the table")
    args = parser.parse_args()
    for name in [args.model] if args.model else MODELS:
        lines = table(name, args.batch, not args.without_compile, args.rows)
        lines = trained(name, args.batch, args.train) if args.train else lines
        lines = timed(name, args.batch, args.time) if args.time else lines
        for line in kept(name, args.batch) if args.kept else lines:
            print(line, flush=True)


class Operators(TorchDispatchMode):
    """Notes which operator made a storage."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[int, str] = {}
        self._alive: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, and keep its results alive so that no address is used twice."""
        found = function(*args, **(kwargs or {}))
        for leaf in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(leaf, torch.Tensor):
                self.names.setdefault(leaf.untyped_storage().data_ptr(), function._opname)
                self._alive.append(leaf)
        return found


def kept(name: str, batch: int) -> Iterator[str]:
    """The bytes that plain autograd keeps of a forward pass, and the share of each operator whose outputs they are."""
    torch.manual_seed(0)
    model, x, call, _ = MODELS[name](batch)
    own = {leaf.untyped_storage().data_ptr() for leaf in (*model.parameters(), *model.buffers())}
    sizes: dict[int, int] = {}

    def pack(leaf: Any) -> Any:
        sizes[leaf.untyped_storage().data_ptr()] = leaf.untyped_storage().nbytes()
        return leaf

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda leaf: leaf), Operators() as operators:
        loss = call(model, x)
    shares: collections.Counter[str] = collections.Counter()
    for place, size in sizes.items():
        if place not in own:
            shares[operators.names.get(place, "input")] += size
    del loss
    total = sum(shares.values())
    products = sum(size for operator, size in shares.items() if any(word in operator for word in PRODUCTS))
    told = ", ".join(f"{operator} {size / total:.3f}" for operator, size in shares.most_common(6))
    yield f"{name}, batch {batch}: {total:,} bytes kept, {1 - products / total:.3f} of them not of products ({told})"


PRODUCTS = ("convolution", "mm", "attention")
"""What the operators that multiply matrices have in their names."""
ASKED = 0.36
"""The budget of a training, as a share of the plain peak; the gradients of parameters come on top of it."""


def trained(name: str, batch: int, steps: int) -> Iterator[str]:
    """Trains a model with and without checkpointing by SGD with momentum: the peaks, and whether a bit differs."""
    torch.manual_seed(0)
    model, x, call, _ = MODELS[name](batch)
    batches = [x, x.flip(0)]
    plain = training(copy.deepcopy(model), batches, call, steps)
    lean = checkpointed(copy.deepcopy(model), None, budget=int(ASKED * plain[0]), compute="flops")
    found = training(lean, batches, call, steps)
    differ = [key for key, leaf in plain[1].items() if not torch.equal(leaf, found[1][key])]
    yield (
        f"{name}, batch {batch}, {steps} steps, PyTorch {torch.__version__}: peak of a step {found[0]:,} of "
        f"{plain[0]:,} bytes, {found[0] / plain[0]:.3f}; of {len(plain[1])} tensors of the state {len(differ)} differ "
        "in a bit"
    )


def training(model: Any, batches: list[Any], call: Any, steps: int) -> tuple[int, dict[str, Any]]:
    """The largest peak of a step, and the state afterwards. The first step, which plans, is not measured."""
    torch.manual_seed(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    peak = 0
    for number in range(steps):
        optimizer.zero_grad(set_to_none=False)
        with LiveBytes() as meter:
            call(model, batches[number % 2]).backward()
        peak = max(peak, meter.peak if number else 0)
        optimizer.step()
    return peak, {name: leaf.detach().clone() for name, leaf in model.state_dict().items()}


def table(name: str, batch: int, compiled: bool, words: Sequence[str] = ("",)) -> Iterator[str]:
    """The rows of one model; of the peers, those whose name contains one of `words`."""
    torch.manual_seed(0)
    model, x, call, peers = MODELS[name](batch)
    plain = measured(model, x, call)
    yield f"{name}, batch {batch}, PyTorch {torch.__version__}: plain peak {plain.peak:,} bytes"
    yield f"{'':44} {'peak':>6} {'FLOPs':>6}   checkpointed at that peak: peak, FLOPs"
    rows: Iterator[tuple[str, Callable[[], Measured]]] = (
        (who, functools.partial(measured, changed, x, run)) for who, changed, run in peers(model)
    )
    listed = list(rows)
    if compiled:
        listed += [
            (f"torch.compile, memory budget {s}", functools.partial(under_compile, model, x, call, s)) for s in COMPILED
        ]
    for who, run in listed:
        if not any(word in who for word in words):
            continue
        try:
            yield row(who, run(), plain, model, x, call)
        except (RuntimeError, LookupError) as error:
            yield f"{who:44} did not run: {str(error).splitlines()[0][:90]}"
    for share in (0.4, 0.25):
        yield ours(f"checkpointed, {share:.0%} of the plain peak", int(share * plain.peak), plain, model, x, call)
    yield ""


def timed(name: str, batch: int, rounds: int) -> Iterator[str]:
    """Processor time of a training step on one thread: the least of `rounds` runs, in which the methods take turns."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, x, call, peers = MODELS[name](batch)
    who, changed, run = next(peers(model))
    peer = measured(changed, x, run)
    steps = {"plain": (copy.deepcopy(model), call), who: (copy.deepcopy(changed), run)}
    told = {"plain": measured(model, x, call), who: peer}
    for compute in ("time", "flops"):
        lean: Any = checkpointed(copy.deepcopy(model), None, budget=peer.peak, compute=compute)
        steps[f"checkpointed, {compute}"] = lean, call
        told[f"checkpointed, {compute}"] = measured(lean, x, call)

    def step(own: Any, run: Callable[[Any, Any], Any]) -> None:
        own.zero_grad()
        run(own, x).backward()

    for own, each in steps.values():
        step(own, each)
    seconds = in_turns({who: functools.partial(step, *each) for who, each in steps.items()}, rounds)
    yield f"{name}, batch {batch}, PyTorch {torch.__version__}: plain {1000 * seconds['plain']:.1f} ms"
    yield f"{'':44} {'peak':>6} {'FLOPs':>6} {'time':>6} {'of the peer':>12}"
    for row, found in told.items():
        shares = found.peak / told["plain"].peak, found.flops / told["plain"].flops, seconds[row] / seconds["plain"]
        yield f"{row:44} {shares[0]:6.3f} {shares[1]:6.3f} {shares[2]:6.2f} {seconds[row] / seconds[who]:12.2f}"
    yield ""


def measured(model: Any, x: Any, call: Callable[[Any, Any], Any]) -> Measured:
    """Peak and FLOPs of a training step of a copy of the model."""
    own = copy.deepcopy(model)
    return step_of(lambda x: call(own, x), x, [p for p in own.parameters() if p.requires_grad])


def under_compile(model: Any, x: Any, call: Callable[[Any, Any], Any], share: float) -> Measured:
    """The same under PyTorch's activation memory budget."""
    own = copy.deepcopy(model)

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = own

        def forward(self, x: Any) -> Any:
            return call(self.own, x)

    run, within = _compiled(Step(), share, x)
    return step_of(run, x, [p for p in own.parameters() if p.requires_grad], within)


def row(who: str, peer: Measured, plain: Measured, model: Any, x: Any, call: Any) -> str:
    """The row of a peer, and of `checkpointed` within the peer's peak."""
    told = f"{who:44} {peer.peak / plain.peak:6.3f} {peer.flops / plain.flops:6.3f}  "
    try:
        own = measured(checkpointed(model, None, budget=peer.peak, compute="flops"), x, call)
    except BudgetTooSmall as error:
        why = WHY_COMPILE if "compile" in who else WHY_EAGER
        return f"{told} none: at least {error.minimum / plain.peak:.3f} are needed; {why}"
    told += f" {own.peak / plain.peak:6.3f} {own.flops / plain.flops:6.3f}"
    if own.flops > 1.0005 * peer.flops:
        told += f"  more work: {WHY_COMPILE if 'compile' in who else WHY_EAGER}"
    return told


def ours(who: str, budget: int, plain: Measured, model: Any, x: Any, call: Any) -> str:
    """The row of `checkpointed` within a budget."""
    try:
        own = measured(checkpointed(model, None, budget=budget, compute="flops"), x, call)
    except BudgetTooSmall as error:
        return f"{who:44} none: at least {error.minimum / plain.peak:.3f} are needed"
    return f"{who:44} {own.peak / plain.peak:6.3f} {own.flops / plain.flops:6.3f}"


# The models, and their peers


def square(model: Any, x: Any) -> Any:
    """A loss of the output of an image model."""
    return model(x).square().mean()


class Again(nn.Module):
    """A module under torch.utils.checkpoint."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The output of the module."""
        return checkpoint(self.inner, *args, use_reentrant=False, **kwargs)


def around(model: Any, kind: str) -> Any:
    """A copy with torch.utils.checkpoint around every module of one class."""
    model = copy.deepcopy(model)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__ == kind:
                module._modules[name] = Again(child)
    return model


def sequential(layers: list[nn.Module]) -> Iterator[tuple[str, Any, Any]]:
    """checkpoint_sequential with √N and other numbers of segments."""
    net = nn.Sequential(*layers)
    for count in sorted({round(math.sqrt(len(net))), len(net) // 2, len(net)}):

        def run(model: Any, x: Any, count: int = count) -> Any:
            return checkpoint_sequential(model, count, x, use_reentrant=False).square().mean()

        yield f"checkpoint_sequential, {count} segments", net, run


def resnet50(batch: int) -> Any:
    """The model of torchvision, on images of 64 pixels."""
    model = torchvision().resnet50(num_classes=10)

    def peers(model: Any) -> Iterator[tuple[str, Any, Any]]:
        yield "torch.utils.checkpoint, every block", around(model, "Bottleneck"), square
        blocks = [block for part in (model.layer1, model.layer2, model.layer3, model.layer4) for block in part]
        entry = [model.conv1, model.bn1, model.relu, model.maxpool]
        yield from sequential([*entry, *blocks, model.avgpool, nn.Flatten(), model.fc])

    return model, torch.randn(batch, 3, 64, 64), square, peers


def densenet121(batch: int) -> Any:
    """The model of torchvision, on images of 64 pixels."""
    model = torchvision().densenet121(num_classes=10)

    def peers(model: Any) -> Iterator[tuple[str, Any, Any]]:
        lean = torchvision().densenet121(num_classes=10, memory_efficient=True)
        lean.load_state_dict(model.state_dict())
        yield "torchvision's memory_efficient=True", lean, square
        yield "torch.utils.checkpoint, every block", around(model, "_DenseBlock"), square
        yield from sequential([*model.features, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), model.classifier])

    return model, torch.randn(batch, 3, 64, 64), square, peers


def vit(batch: int) -> Any:
    """A vision transformer with 8 blocks of width 96, on images of 32 pixels."""
    model = torchvision().VisionTransformer(
        image_size=32, patch_size=4, num_layers=8, num_heads=4, hidden_dim=96, mlp_dim=384, num_classes=10
    )

    def peers(model: Any) -> Iterator[tuple[str, Any, Any]]:
        yield "torch.utils.checkpoint, every block", around(model, "EncoderBlock"), square

    return model, torch.randn(batch, 3, 32, 32), square, peers


def gpt2(batch: int) -> Any:
    """GPT-2 of transformers with 8 blocks of width 96 and a vocabulary of 512, on 64 tokens."""
    torchvision()  # transformers imports it
    import transformers

    config = transformers.GPT2Config(
        n_layer=8,
        n_embd=96,
        n_head=4,
        vocab_size=512,
        n_positions=64,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )

    class Language(nn.Module):
        """The model with its loss, which transformers computes with a logger that torch.compile refuses."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = transformers.GPT2LMHeadModel(config)

        def forward(self, ids: Any) -> Any:
            logits = self.inner(input_ids=ids).logits
            return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    model = Language()

    def run(model: Any, ids: Any) -> Any:
        return model(ids)

    def peers(model: Any) -> Iterator[tuple[str, Any, Any]]:
        lean = copy.deepcopy(model)
        lean.inner.gradient_checkpointing_enable({"use_reentrant": False})
        yield "transformers' gradient_checkpointing_enable", lean, run

    return model, torch.randint(0, 512, (batch, 64)), run, peers


class Double(nn.Module):
    """Two convolutions, each with a batch norm."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        pairs = ((given, made), (made, made))
        layers = [(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in pairs]
        self.net = nn.Sequential(*(layer for each in layers for layer in each))

    def forward(self, x: Any) -> Any:
        """The image with other channels."""
        return self.net(x)


class UNet(nn.Module):
    """Halves an image three times, doubles it again, and concatenates images of one size."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(Double(a, b) for a, b in zip([3, *widths[:-2]], widths[:-1], strict=True))
        self.middle, self.pool = Double(*widths[-2:]), nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, stride=2) for a in reversed(widths[:-1]))
        self.join = nn.ModuleList(Double(2 * a, a) for a in reversed(widths[:-1]))
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x: Any) -> Any:
        """One channel of the same size."""
        sides = []
        for double in self.down:
            sides.append(double(x))
            x = self.pool(sides[-1])
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), sides.pop()], 1))
        return self.out(x)


def unet(batch: int) -> Any:
    """A U-Net of width 16, on images of 32 pixels."""

    def peers(model: Any) -> Iterator[tuple[str, Any, Any]]:
        yield "torch.utils.checkpoint, every block", around(model, "Double"), square

    return UNet(), torch.randn(batch, 3, 32, 32), square, peers


def torchvision() -> Any:
    """The models of torchvision; if its compiled operators cannot be loaded, two are declared so that it imports."""
    try:
        import torchvision.models
    except RuntimeError:
        KEPT.append(torch.library.Library("torchvision", "DEF"))
        for name in ("nms", "qnms"):
            KEPT[-1].define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision.models
    return torchvision.models


KEPT: list[Any] = []
MODELS: dict[str, Callable[[int], Any]] = {
    "resnet50": resnet50,
    "densenet121": densenet121,
    "vit": vit,
    "gpt2": gpt2,
    "unet": unet,
}

if __name__ == "__main__":
    main()
