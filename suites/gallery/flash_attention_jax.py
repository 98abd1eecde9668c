# /// script
# dependencies = ["flash-attention-jax==0.3.1"]
#
# [tool.gradgate]
# home = "https://github.com/lucidrains/flash-attention-jax"
# framework = "jax"
# seconds = 150
# ///
"""The attentions of flash-attention-jax 0.3.1 against softmax attention written out."""

import flash_attention_jax as lib
import jax
import jax.numpy as jnp

import gradgate
from gradgate import mask, normal


def attention(q, k, v, seen=None, scale=None):
    """Softmax attention. q, k, v: (B, H, T, D); seen: what each query may see, or None."""
    logits = jnp.einsum("bhid,bhjd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if seen is not None:
        logits = jnp.where(seen, logits, -1e9)
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(logits), v)


def flash(q, k, v, real):
    """flash_attention with a mask of keys."""
    return lib.flash_attention(q, k, v, keys(real))


def keys(real):
    """The mask of keys (B, T), whose first key is real."""
    return real.at[:, 0].set(True)


def plain_flash(q, k, v, real):
    """The reference for `flash`."""
    return attention(q, k, v, keys(real)[:, None, None, :])


def causal(q, k, v):
    """causal_flash_attention."""
    return lib.causal_flash_attention(q, k, v)


def plain_causal(q, k, v):
    """The reference for `causal`."""
    return attention(q, k, v, jnp.tril(jnp.ones((q.shape[2], q.shape[2]), bool)))


def cosine(q, k, v, real):
    """cosine_sim_flash_attention, which has no batches and heads, and whose scale is 10. q, k, v: (T, D)."""
    return lib.cosine_sim_flash_attention(q, k, v, keys(real[None])[0])


def plain_cosine(q, k, v, real):
    """The reference for `cosine`: softmax attention of rows that are divided by their lengths."""
    q, k = (x / jnp.sqrt(jnp.sum(x * x, -1, keepdims=True)) for x in (q, k))
    return attention(*(x[None, None] for x in (q, k, v)), keys(real[None])[0], 10.0)[0, 0]


def long_flash(q, k, v):
    """flash_attention of more tokens than a chunk has, 1,024."""
    return lib.flash_attention(q, k, v, jnp.ones((q.shape[0], q.shape[2]), bool))


HEADS = {"q": normal("B H T D"), "k": normal("B H T D"), "v": normal("B H T D")}
SIZES = {"T": (3, 1, 5), "D": (2, 4), "H": (1, 2), "B": (1, 2)}
LONG = {"T": (1024, 2048, 4096, 8192, 16384)}
AT = {"B": 1, "H": 1, "D": 16}
KEPT = gradgate.grows("residual_bytes", T=1, sizes=LONG, at=AT)
EPSILON = "1e-10 is added to the sum of each row, in which float64 sees it"
CAST = "the row sums of the forward pass are float32, and so the carry of the backward pass changes its dtype"
OTHER = ("outputs", "gradient_exact", "gradient_float64")
masked = gradgate.Pair(
    flash,
    reference=plain_flash,
    inputs={**HEADS, "real": mask("B T", share=0.7)},
    dims=SIZES,
    claims=[KEPT],
    composes=("jit", "vmap"),
    name="flash_attention_jax_masked",
    expected={**dict.fromkeys(OTHER, EPSILON), "gradient_bfloat16": CAST},
)
causal_pair = gradgate.Pair(
    causal,
    reference=plain_causal,
    inputs=HEADS,
    dims=SIZES,
    claims=[KEPT],
    composes=("jit", "vmap"),
    name="flash_attention_jax_causal",
    expected={**dict.fromkeys(OTHER, EPSILON), "gradient_bfloat16": CAST},
)
WHOLE = "each array is divided by the length of the whole array, in place of each row by its own length"
cosine_pair = gradgate.Pair(
    cosine,
    reference=plain_cosine,
    dims={"T": (3, 2, 5), "D": (2, 4)},
    composes=("jit",),
    inputs={"q": normal("T D"), "k": normal("T D"), "v": normal("T D"), "real": mask("T", share=0.7)},
    dtypes=("float64", "float32"),
    name="flash_attention_jax_cosine",
    expected=dict.fromkeys((*OTHER, "gradient_float32"), WHOLE),
)
CHUNKS = "the last chunk of 1024 is not shortened, so 1025 tokens give 2048 rows, and 1023 keys count twice"
SHAPED = (
    "tree",
    "outputs",
    "gradient_exact",
    "gradient_float32",
    "cotangents",
    "upstream",
    "not_finite",
    "deterministic",
    "pure",
)
long_pair = gradgate.Pair(
    long_flash,
    reference=attention,
    inputs=HEADS,
    dims={"T": (1025,), "D": (1,), "H": (1,), "B": (1,)},
    dtypes=("float32",),
    name="flash_attention_jax_long",
    expected=dict.fromkeys(SHAPED, CHUNKS),
)
