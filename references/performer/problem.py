"""The Performer, a Transformer with linear attention, written once for NumPy, JAX and PyTorch.

Notation of the paper (SLiM Performers, §2–3): token l has X_l, and per head keys K̃_l = g(K_l) and queries Q̃_l =
g(Q_l). In layer r, T_l holds V_l K̃_lᵀ and K̃_l; U = PS(T) holds their sums over l' ≤ l, which are R and S; Γ_l is what
does not go through the sum. F computes T and Γ from X, and G computes the next X from U and Γ. T_l has D1 = M(d+1)k
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gradgate.references.backends import scan, stop_gradient, to_backend, to_numpy, tree_map
from gradgate.references.contract import Backend, Problem, Spec, Tree, UsageError, unknown, value_field
from gradgate.references.draws import Constant, Integers, Normal, draw
from gradgate.references.performer import tokens
from gradgate.references.performer.dropout import scaled_mask
from gradgate.references.performer.features import FEATURE_MAPS, orthogonal_rows, random_features
from gradgate.references.performer.once import gelu_once
from gradgate.references.performer.rowwise import sigmoid, sinusoids

CHOICES = {
    "feature_map": FEATURE_MAPS,
    "norm": ("sublayer", "pre", "post"),
    "residual": ("plain", "reversible", "gated"),
    "task": tokens.TASKS,
}
FLOOR = 1e-18
"""Denominators S·Q̃ of at most this count as zero: their squares, which a derivative divides by, underflow in float32.
It is the same in every dtype, so that the problem is the same in all dtypes."""


@dataclass(frozen=True)
class PerformerSpec(Spec):
    """Plain numbers that build a `PerformerProblem`.

    Attributes:
        length: L, tokens per sequence.
        layers: s.
        heads: k.
        head_width: d; the model is k·d = d_model wide.
        features: M, how many numbers g makes from a key; 0 means d, which the elementwise square needs.
        feature_map: ``square``, g(x)_i = x_i²; ``favor``, positive orthogonal random features (FAVOR+); or ``sum``, no
            attention but another layer of type (23): tanh(σ(mean of Q_l)·Σ_{l'≤l} σ(K_l')·V_l'), with M = 1.
        norm: where layer norm is: ``sublayer``, LN(f(x)) + x, as Eq. 5 and 6 print it; ``pre``, f(LN(x)) + x, as in
            GPT-2, which the paper says it follows; ``post``, LN(f(x) + x).
        residual: ``plain``, x + f(x); ``reversible``, two streams of which each half of a layer reads one and changes
            the other (Kitaev et al., 2020), both start from the embedding, and the head reads their mean; ``gated``,
            x + σ(xW + b)·f(x) (Parisotto et al., 2019).
        expansion: d_ff / d_model.
        task: ``next_token``, Eq. 10, where the last token has no target; ``copying``, input 0ω0ω of even length, loss
            on the second ω; ``window``, a window of a longer text, where every token has a target.
        vocabulary: |Σ|.
        batch: sequences.
        dropout: the probability with which an output of attention or of the feed-forward network is dropped.
        scale: factor of the first dense layer's weights.
        sharpness: factor of the weights that make queries and keys; with FAVOR+, features range over e^±sharpness².
    """

    length: int = 5
    layers: int = 2
    heads: int = 2
    head_width: int = 2
    features: int = 0
    feature_map: str = "square"
    norm: str = "sublayer"
    residual: str = "plain"
    expansion: int = 2
    task: str = "next_token"
    vocabulary: int = 5
    batch: int = 1
    dropout: float = 0.0
    scale: float = value_field(1.0)
    sharpness: float = value_field(0.5)

    @property
    def width(self) -> int:
        """d_model = k·d."""
        return self.heads * self.head_width

    @property
    def feature_count(self) -> int:
        """M."""
        return self.features or (1 if self.feature_map == "sum" else self.head_width)

    @property
    def state_numbers(self) -> int:
        """D1 = M(d+1)k, numbers in one layer's running state, per sequence."""
        return self.feature_count * (self.head_width + 1) * self.heads

    def validate(self) -> None:
        """Raise UsageError unless every size is at least 1, every choice in CHOICES and their combination possible."""
        for name, legal in CHOICES.items():
            if getattr(self, name) not in legal:
                raise unknown(name, getattr(self, name), legal)
        for name in ("length", "layers", "heads", "head_width", "expansion", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.vocabulary < 2:
            raise UsageError(f"vocabulary must be at least 2, not {self.vocabulary}")
        if self.features < 0:
            raise UsageError(f"features must be at least 1, or 0 for head_width, not {self.features}")
        if self.feature_map == "square" and self.feature_count != self.head_width:
            raise UsageError(f"the square makes head_width features: leave features at 0, not {self.features}")
        if self.feature_map == "sum" and self.feature_count != 1:
            raise UsageError(f"a layer that sums has one feature: leave features at 0, not {self.features}")
        if self.residual == "reversible" and self.norm == "post":
            raise UsageError("layer norm after the addition cannot be undone: norm must be pre or sublayer, not 'post'")
        if self.task == "copying" and (self.length < 4 or self.length % 2):
            raise UsageError(f"length of the copying task must be even and at least 4, not {self.length}")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        for name in ("scale", "sharpness"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} must be positive, not {getattr(self, name)}")

    def layout(self) -> tuple[type[PerformerProblem], Tree, dict[str, Any]]:
        """The draws of params and data, in the order in which they are drawn."""
        s, D, V, H = self.layers, self.width, self.vocabulary, self.expansion * self.width

        def dense(inputs: int, outputs: int, scale: float = 1.0) -> Normal:
            return Normal((s, inputs, outputs), scale / inputs**0.5)

        layers = {
            "attention": {
                "query": dense(D, D, self.sharpness), "key": dense(D, D, self.sharpness), "value": dense(D, D),
            },
            "norms": {
                "gain1": Normal((s, D), 0.1, 1.0), "shift1": Normal((s, D), 0.1),
                "gain2": Normal((s, D), 0.1, 1.0), "shift2": Normal((s, D), 0.1),
            },
            "feed_forward": {
                "w1": dense(D, H, self.scale), "b1": Normal((s, H), 0.1), "w2": dense(H, D), "b2": Normal((s, D), 0.1),
            },
        }  # fmt: skip
        if self.residual == "gated":
            weights, shifts = dense(D, D), Normal((s, D), 0.1)
            layers["gates"] = {"w1": weights, "b1": shifts, "w2": weights, "b2": shifts}
        params = {
            "layers": layers,
            "embedding": Normal((V, D)),
            "head": {"w": Normal((D, V), 1.0 / D**0.5), "b": Normal((V,), 0.1)},
        }
        shape = (self.length, self.batch)
        data: dict[str, Any] = {
            "tokens": Integers(shape, tokens.alphabet(self.task, V)),
            "targets": Integers(shape, V),
            "dropout_seed": Integers((), 2**31 - 1),
            "upstream": Constant(self.upstream),
        }
        if self.feature_map == "favor":
            data["projection"] = Normal((self.feature_count, self.head_width))
        return PerformerProblem, params, data

    def build(self, backend: Backend) -> PerformerProblem:
        """The Problem; `draws.draw` says how its numbers are rounded."""
        cls, params, data = self.layout()
        params, data = draw([params, data], self, backend)
        for name, array in tokens.arrange(self.task, to_numpy(data["tokens"]), to_numpy(data["targets"])).items():
            data[name] = to_backend(backend, array)
        if self.feature_map == "favor":
            data["projection"] = orthogonal_rows(data["projection"], backend, self.dtype)
        return cls(self, backend, params, data)


@dataclass(frozen=True)
class PerformerProblem(Problem):
    """Mean cross-entropy of a Performer over the tokens that have a target. All sequences are time-major.

    With D = d_model, V = vocabulary, H = expansion·D, M features, ``params`` is ``{"embedding": (V, D), "head": {"w":
    (D, V), "b": (V,)}, "layers": {"attention": {"query" | "key" | "value": (s, D, D)}, "norms": {"gain1" | "shift1" |
    "gain2" | "shift2": (s, D)}, "feed_forward": {"w1": (s, D, H), "b1": (s, H), "w2": (s, H, D), "b2": (s, D)}}}``;
    gated layers have ``"gates": {"w1" | "w2": (s, D, D), "b1" | "b2": (s, D)}`` besides. Head j reads columns
    j·d … (j+1)·d − 1 of the projections. ``data`` holds ``tokens`` and ``targets`` (L, batch) int32, a target of −1
    meaning none; ``dropout_seed`` () int32; ``upstream`` (), the factor of the loss; for FAVOR+ ``projection`` (M, d).

    A slice is the n tokens from number `start` on, counted from 0. Every map here except the prefix sum works row by
    row, so it may be applied to any slice; `start` may be traced by JAX, n may not. Masks of dropout depend on the
    position, not on the slice (see `dropout`).

    In reversible layers X has two streams, (n, batch, 2D): attention reads the second and changes the first, the
    feed-forward network reads the first and changes the second.

    A denominator S·Q̃ of at most `FLOOR` counts as 1. So if all features of a query, or of every key so far, are zero,
    the output of attention is (nearly) zero with a finite gradient, and never NaN.
    """

    spec: PerformerSpec
    backend: Backend
    params: Tree
    data: dict[str, Any] = field(default_factory=dict)

    stacked: ClassVar[tuple[str, ...]] = ("layers",)
    nets: ClassVar[Mapping[str, str]] = {"project": "F", "finish": "G"}

    @property
    def length(self) -> int:
        """L."""
        return self.spec.length

    def positions(self, net: str, *args: Any) -> int:
        """The number of tokens in X (n, batch, D)."""
        return int(args[1].shape[0])

    def embed(self, embedding: Any, start: Any, count: int) -> Any:
        """X^(0) of a slice, (count, batch, D): the tokens' embeddings plus sinusoids of their positions."""
        xp, spec = self.xp, self.spec
        ids = self.rows(self.data["tokens"], start, count)
        flat = xp.take(embedding, xp.reshape(ids, (-1,)), axis=0)
        angle = sinusoids(xp, start, count, spec.width, embedding.dtype)
        X = xp.reshape(flat, (count, spec.batch, spec.width)) + angle[:, None, :]
        return xp.concat([X, X], axis=-1) if spec.residual == "reversible" else X

    def F(self, params: Tree, r: Any, X: Any) -> tuple[Any, tuple[Any, Any]]:
        """X^(r) (n, batch, D) -> T (n, batch, k, d+1, M), and Γ: X and Q̃ (n, batch, k, M). Row by row (Eq. 11, 14).

        Rows 0 … d−1 of T_l are V_l K̃_lᵀ and row d is K̃_l, so that one prefix sum serves both.
        """
        q, k, v = self.project(self.layer(params, r), X)
        return outer(v, k), (X, q)

    def G(self, params: Tree, r: Any, U: Any, Gamma: tuple[Any, Any], start: Any = 0) -> Any:
        """U (n, batch, k, d+1, M) and Γ -> X^(r+1) (n, batch, D), row by row (Eq. 13, 15); dropout reads `start`."""
        X, q = Gamma
        return self.finish(self.layer(params, r), X, self.contract(U, q), r, start)

    def prefix_sum(self, T: Any) -> Any:
        """PS(T) over axis 0 (Eq. 12); sums of bfloat16 numbers are float32."""
        return self.xp.cumulative_sum(self.widen(T), axis=0)

    def slice_loss(self, params: Tree, X: Any, start: Any = 0) -> Any:
        """X^(s) (n, batch, D) of a slice -> its share of the loss, a scalar; the shares add up to the loss (Eq. 10)."""
        xp, head = self.xp, params["head"]
        targets = self.rows(self.data["targets"], start, X.shape[0])
        X = 0.5 * (X[..., : self.spec.width] + X[..., self.spec.width :]) if self.spec.residual == "reversible" else X
        out = xp.matmul(X, head["w"]) + head["b"]
        top = stop_gradient(self.backend, xp.max(out, axis=-1, keepdims=True))
        log_sum = xp.log(xp.sum(xp.exp(out - top), axis=-1)) + top[..., 0]
        classes = xp.arange(self.spec.vocabulary, dtype=targets.dtype)
        hot = xp.astype(classes == targets[..., None], out.dtype)
        counted = xp.astype(targets >= 0, out.dtype)
        each = counted * log_sum - xp.sum(out * hot, axis=-1)
        total = xp.sum(self.widen(each)) / (self.spec.batch * tokens.counted(self.spec.task, self.length))
        return self.data["upstream"] * xp.astype(total, out.dtype)

    def loss(self, params: Tree) -> Any:
        """The scalar loss over the whole sequence at once, with explicit prefix sums."""
        X = self.embed(params["embedding"], 0, self.length)

        def layer(X: Any, xs: tuple[Tree, Any]) -> tuple[Any, Tree]:
            p, r = xs
            q, k, v = self.project(p, X)
            return self.finish(p, X, self.contract(self.prefix_sum(outer(v, k)), q), r, 0), {}

        X, _ = scan(self.backend, layer, X, (params["layers"], self.layer_numbers()))
        return self.slice_loss(params, X)

    def loss_by_subtraction(self, params: Tree, amount: Any) -> Any:
        """`loss`; if `amount` is not 0, with the rounding of states that Eq. 19 rebuilds.

        𝓑^(n−1) = 𝓑^(n) − ΣT from 𝓑^(N) down gives U'_l = Σ_j T̄_j − Σ_{j>l} T_j at token l. T̄ is of the forward pass, T
        of the backward pass, from rebuilt states in the layers below; its error at a later token is one of this state.
        Two passes through the layers at once give both. U' has the derivative of the prefix sum of T, which it is in
        exact arithmetic. Where `amount` is below one half, only derivatives read U': in a slice N and D are not
        rebuilt, and terms that cancel in plain backprop do not. Sums scaled by 1 + amount round differently.
        """
        xp, backend = self.xp, self.backend
        factor = xp.astype(1 + amount, self.widen(params["embedding"]).dtype)

        def layer(both: Any, xs: tuple[Tree, Any]) -> tuple[Any, Tree]:
            (first, X), (p, r) = both, xs
            q, k, v = self.project(p, X)
            T, fixed = self.widen(outer(v, k)), tree_map(lambda leaf: stop_gradient(backend, leaf), p)
            old_q, old_k, old_v = self.project(fixed, first)
            old = self.widen(outer(old_v, old_k))
            U, again = self.prefix_sum(T), stop_gradient(backend, T) * factor
            later = xp.flip(self.prefix_sum(xp.flip(again, axis=0)), axis=0)
            later = xp.concat([later[1:], xp.zeros_like(later[:1])], axis=0)
            rebuilt = (xp.sum(old * factor, axis=0, keepdims=True) - later) / factor
            states = U + stop_gradient(backend, xp.where(amount > 0, rebuilt - U, xp.zeros_like(U)))
            out = self.contract(states, q)
            out = out + stop_gradient(backend, xp.where(amount < 0.5, self.contract(U, q) - out, xp.zeros_like(out)))
            first = self.finish(fixed, first, self.contract(self.prefix_sum(old), old_q), r, 0)
            return (first, self.finish(p, X, out, r, 0)), {}

        X = self.embed(params["embedding"], 0, self.length)
        start = stop_gradient(backend, X), X
        (_, X), _ = scan(backend, layer, start, (params["layers"], self.layer_numbers()))
        return self.slice_loss(params, X)

    def layer(self, params: Tree, r: Any) -> Tree:
        """Parameters of layer r, r = 0 … s−1."""
        return tree_map(lambda leaf: leaf[r], params["layers"])

    def layer_numbers(self) -> Any:
        """0 … s−1, int32, to scan together with the layers: dropout uses the number of the layer."""
        return self.xp.arange(self.spec.layers, dtype=self.xp.int32)

    def project(self, p: Tree, X: Any) -> tuple[Any, Any, Any]:
        """X (n, batch, D) -> Q̃ and K̃ (n, batch, k, M), and V with a last column of ones (n, batch, k, d+1).

        Reads ``p["attention"]`` and ``p["norms"]`` of one layer.
        """
        xp, spec = self.xp, self.spec
        shape = (*X.shape[:-1], spec.heads, spec.head_width)
        x = X[..., spec.width :] if spec.residual == "reversible" else X
        x = self._norm(p, x, 1) if spec.norm == "pre" else x
        q, k, v = (xp.reshape(xp.matmul(x, p["attention"][name]), shape) for name in ("query", "key", "value"))
        ones = xp.ones_like(v[..., :1])
        if spec.feature_map == "sum":
            gated = xp.concat([v * sigmoid(xp, k), ones], axis=-1)
            return sigmoid(xp, xp.mean(q, axis=-1, keepdims=True)), ones, gated
        return self._features(q), self._features(k), xp.concat([v, ones], axis=-1)

    def contract(self, U: Any, q: Any) -> Any:
        """U (…, d+1, M) and Q̃ (…, M) -> U Q̃ (…, d+1): numerator N and, last, denominator D (Eq. 4)."""
        return self.xp.matmul(U, self.widen(q)[..., None])[..., 0]

    def finish(self, p: Tree, X: Any, out: Any, r: Any, start: Any) -> Any:
        """X and U Q̃ (n, batch, k, d+1) -> the next X: N / D, and the rest of the layer (Eq. 5, 6, 9).

        Reads ``p["norms"]``, ``p["feed_forward"]`` and ``p["gates"]`` of one layer.
        """
        if self.spec.residual == "reversible":
            H = X[..., : self.spec.width] + self.attended(p, out, r, start)
            return self.xp.concat([H, X[..., self.spec.width :] + self.fed(p, H, r, start)], axis=-1)
        H = self._join(p, X, self.attended(p, out, r, start), 1)
        return self._join(p, H, self.fed(p, H, r, start), 2)

    def attended(self, p: Tree, out: Any, r: Any, start: Any) -> Any:
        """U Q̃ (n, batch, k, d+1) -> what attention adds to its stream, (n, batch, D): N / D (Eq. 5)."""
        xp, denominator = self.xp, out[..., -1:]
        if self.spec.feature_map == "sum":
            ratio = xp.tanh(out[..., :-1])
        else:
            ratio = out[..., :-1] / xp.where(denominator > FLOOR, denominator, xp.ones_like(denominator))
        Y = xp.astype(xp.reshape(ratio, (*out.shape[:-2], self.spec.width)), self.params["embedding"].dtype)
        return self._grown(p, Y, 1, r, start)

    def fed(self, p: Tree, H: Any, r: Any, start: Any) -> Any:
        """H (n, batch, D) -> what the feed-forward network adds to its stream (Eq. 6, 9)."""
        xp, f = self.xp, p["feed_forward"]
        x = self._norm(p, H, 2) if self.spec.norm == "pre" else H
        hidden = gelu_once(self.backend, gelu, xp, xp.matmul(x, f["w1"]) + f["b1"])
        return self._grown(p, xp.matmul(hidden, f["w2"]) + f["b2"], 2, r, start)

    def zero_states(self) -> Any:
        """U before the first token, of every layer: zeros (s, batch, k, d+1, M)."""
        spec = self.spec
        shape = (spec.layers, spec.batch, spec.heads, spec.head_width + 1, spec.feature_count)
        return self.widen(self.xp.zeros(shape, dtype=self.params["embedding"].dtype))

    def rows(self, array: Any, start: Any, count: int) -> Any:
        """``array[start : start + count]``; `start` may be traced."""
        if self.backend == "jax":
            import jax

            return jax.lax.dynamic_slice_in_dim(array, start, count)
        return array[start : start + count]

    def widen(self, x: Any) -> Any:
        """`x` in float32 if it is bfloat16, because sums in bfloat16 would soon stop growing; otherwise unchanged."""
        xp = self.xp
        return xp.astype(x, xp.float32) if self.dtype == "bfloat16" else x

    def _grown(self, p: Tree, f: Any, place: int, r: Any, start: Any) -> Any:
        """What is added: f, with the layer norm that belongs to it, and with dropout."""
        f = self._norm(p, f, place) if self.spec.norm == "sublayer" else f
        if not self.spec.dropout:
            return f
        return f * scaled_mask(self.xp, f, self.spec.dropout, self.data["dropout_seed"], 2 * r + place, start)

    def _join(self, p: Tree, X: Any, f: Any, place: int) -> Any:
        if self.spec.residual == "gated":
            f = f * sigmoid(self.xp, self.xp.matmul(X, p["gates"][f"w{place}"]) + p["gates"][f"b{place}"])
        return self._norm(p, X + f, place) if self.spec.norm == "post" else X + f

    def _norm(self, p: Tree, x: Any, place: int) -> Any:
        xp = self.xp
        x = x - xp.mean(x, axis=-1, keepdims=True)
        x = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
        return x * p["norms"][f"gain{place}"] + p["norms"][f"shift{place}"]

    def _features(self, x: Any) -> Any:
        if self.spec.feature_map == "square":
            return x * x
        return random_features(self.xp, x, self.data["projection"])


def gelu(xp: Any, x: Any) -> Any:
    """x·Φ(x) in the form with tanh of Hendrycks and Gimpel (2016): the Array API has no erf."""
    return 0.5 * x * (1.0 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def outer(left: Any, right: Any) -> Any:
    """(…, m) and (…, n) -> (…, m, n)."""
    return left[..., :, None] * right[..., None, :]
