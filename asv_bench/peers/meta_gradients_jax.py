"""`meta_gradient` of an nnx transformer compared with plain optax and jax.grad, compiled without the devices.

``python asv_bench/peers/meta_gradients_jax.py --profiles nvidia-h100 tpu-v5p``. The script compiles the gradient with
respect to θ_0 of the loss after T steps of Adam, in float32. Nothing is run. Bytes are the sum of arguments, results
and temporaries, reported by the compiler of the profile; FLOPs are counted. Every program rematerialises the same
layers; the plain programs also rematerialise each step.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import flax
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from gradgate import in_jax
from gradgate.hw_profiles import work
from gradgate.hw_profiles.compile import measure
from gradgate.hw_profiles.compiler_process import FLAGS
from gradgate.in_jax import meta_gradient, mixed_mode_grad

LIMIT = 1800.0
"""Seconds that one compilation may take."""
PLAIN = "plain optax and jax.grad, remat"


class Block(nnx.Module):
    """A pre-norm layer of a decoder: causal attention, and a GELU layer four times as wide."""

    def __init__(self, width: int, heads: int, rngs: nnx.Rngs) -> None:
        self.first, self.second = nnx.RMSNorm(width, rngs=rngs), nnx.RMSNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(heads, width, use_bias=False, decode=False, rngs=rngs)
        self.wide = nnx.Linear(width, 4 * width, use_bias=False, rngs=rngs)
        self.narrow = nnx.Linear(4 * width, width, use_bias=False, rngs=rngs)

    def __call__(self, h: Any) -> Any:
        """The layer's output."""
        mask = nnx.make_causal_mask(jnp.ones(h.shape[:2]))
        h = h + self.attention(self.first(h), mask=mask)
        return h + self.narrow(jax.nn.gelu(self.wide(self.second(h))))


class Decoder:
    """The decoder's losses as functions of its parameters, which are nnx states; stacked layers run in a scan.

    Attributes:
        theta: shapes of the parameters of the embedding (which is also the output layer), the layers and the last norm.
        xs, y: shapes of the batches of tokens.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        def parts() -> tuple[Any, ...]:
            @nnx.split_rngs(splits=args.layers)
            @nnx.vmap(in_axes=(0,), out_axes=0)
            def stacked(rngs: nnx.Rngs) -> Block:
                return Block(args.width, args.heads, rngs)

            rngs = nnx.Rngs(0)
            norm = nnx.RMSNorm(args.width, rngs=rngs)
            return nnx.Embed(args.vocabulary, args.width, rngs=rngs), stacked(rngs), norm

        split = [nnx.split(part, nnx.Param, ...) for part in nnx.eval_shape(parts)]
        assert not any(jax.tree.leaves(rest) for _, _, rest in split), "the layers have no state but parameters"
        self.graphs = [(graph, rest) for graph, _, rest in split]
        self.theta = tuple(params for _, params, _ in split)
        tokens = (args.batch, args.length + 1)
        self.xs = jax.ShapeDtypeStruct((args.steps, *tokens), jnp.int32)
        self.y = jax.ShapeDtypeStruct(tokens, jnp.int32)

    def loss(self, theta: Any, eta: Any, x: Any, *, block: Callable[..., Any] = lambda layer: layer) -> Any:
        """Mean cross entropy of the next token."""
        (embed, _), (layers, rest), (norm, _) = self.graphs
        embedding, last = nnx.merge(embed, theta[0], {}), nnx.merge(norm, theta[2], {})
        layer = block(lambda h, params: nnx.merge(layers, params, rest)(h))
        h, _ = jax.lax.scan(lambda h, params: (layer(h, params), None), embedding(x[:, :-1]), theta[1])
        head = block(lambda h, table: optax.softmax_cross_entropy_with_integer_labels(h @ table.T, x[:, 1:]).mean())
        return head(last(h), embedding.embedding[...])

    @property
    def parameters(self) -> int:
        """How many numbers θ has."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.theta))


def programs(decoder: Decoder, steps: int) -> dict[str, Callable[..., Any]]:
    """Name -> (θ_0, xs, y) -> loss and gradient by θ_0."""
    adam = optax.adam(1e-3, eps_root=1e-12)
    known = in_jax.adam(1e-3, eps_root=1e-12)

    def ours(adam: Any = adam, **options: Any) -> Callable[..., Any]:
        meta = meta_gradient(decoder.loss, adam, decoder.loss, argnums=1, remat=True, **options)
        return lambda theta, xs, y: meta((), theta, xs, y)

    def in_a_loop(grad: Callable[..., Any], block: Callable[..., Any]) -> Callable[..., Any]:
        def outer(theta: Any, xs: Any, y: Any) -> Any:
            @jax.checkpoint
            def step(carry: Any, x: Any) -> tuple[Any, None]:
                theta, state = carry
                grads = grad(lambda theta, x: decoder.loss(theta, (), x, block=block))(theta, x)
                updates, state = adam.update(grads, state, theta)
                return (optax.apply_updates(theta, updates), state), None

            (theta, _), _ = jax.lax.scan(step, (theta, adam.init(theta)), xs)
            return decoder.loss(theta, (), y, block=block)

        return jax.value_and_grad(outer)

    return {
        "gradgate meta_gradient": ours(),
        "  save_inner_grads": ours(save_inner_grads=True),
        "  gradients": ours(checkpointing="gradients"),
        "  logarithmic": ours(checkpointing="logarithmic"),
        "  inversion, adam of gradgate": ours(known, checkpointing="inversion"),
        "  inversion, clipped": ours(in_jax.chain(in_jax.clip_by_global_norm(1.0), known), checkpointing="inversion"),
        "gradgate mixed_mode_grad in a loop": in_a_loop(mixed_mode_grad, jax.checkpoint),
        PLAIN: in_a_loop(jax.grad, jax.checkpoint),
        "plain optax and jax.grad, steps alone": in_a_loop(jax.grad, lambda layer: layer),
    }


def main() -> None:
    """Print a table for each profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in (
        ("steps", 2),
        ("layers", 8),
        ("width", 512),
        ("heads", 8),
        ("batch", 4),
        ("length", 2048),
        ("vocabulary", 32000),
    ):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--profiles", nargs="+", default=["nvidia-h100", "tpu-v5p"])
    parser.add_argument("--rows", nargs="+", default=[""], help="only rows whose name contains one of these words")
    parser.add_argument("--xla-flags", default="", help="more flags for the compiler of NVIDIA profiles")
    args = parser.parse_args()
    FLAGS["cuda"]["XLA_FLAGS"] += f" {args.xla_flags}"
    decoder = Decoder(args)
    given = (decoder.theta, decoder.xs, decoder.y)
    print(
        f"JAX {jax.__version__}, flax {flax.__version__}, optax {optax.__version__}; {decoder.parameters / 1e6:.1f}M "
        f"parameters, T = {args.steps}, batch {args.batch} of {args.length} tokens, float32, Adam"
    )
    chosen = {
        name: program
        for name, program in programs(decoder, args.steps).items()
        if any(word in name for word in (*args.rows, PLAIN))
    }
    flops = {name: work.of(program, given).nominal_flops for name, program in chosen.items()}
    for profile in args.profiles:
        print(f"\n| {profile} | GB in all | plain over it | TFLOP | of plain |\n|---|--:|--:|--:|--:|", flush=True)
        sizes: dict[str, int] = {}
        for name in sorted(chosen, key=lambda name: name != PLAIN):
            found = measure(chosen[name], given, profile, limit=LIMIT)
            if found.required_bytes is None:
                print(f"| {name} | {found.status}: {found.reason[:100]} | | | |", flush=True)
                continue
            sizes[name] = found.required_bytes
            print(
                f"| {name} | {sizes[name] / 1e9:.2f} | {sizes.get(PLAIN, 0) / sizes[name]:.2f} | "
                f"{flops[name] / 1e12:.2f} | {flops[name] / flops[PLAIN]:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
