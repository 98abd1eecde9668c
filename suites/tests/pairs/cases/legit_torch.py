"""Right functions: every pair here should be upheld, or honestly inapplicable."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gradgate import Pair, integers, mask, module_pair, normal, uniform, within


# --- complex numbers inside, real numbers outside ---------------------------------------------------------------------
def complex_plain(re, im, wre, wim):
    return torch.stack([re @ wre - im @ wim, re @ wim + im @ wre], -1)


class ComplexLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.conj().T, x.conj().T @ g


class ComplexNoConj(ComplexLinear):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.T, x.T @ g


def complex_inside(re, im, wre, wim):
    return torch.view_as_real(ComplexLinear.apply(torch.complex(re, im), torch.complex(wre, wim)))


def complex_no_conj(re, im, wre, wim):
    return torch.view_as_real(ComplexNoConj.apply(torch.complex(re, im), torch.complex(wre, wim)))


def complex_pair(f, name):
    return Pair(
        f,
        reference=complex_plain,
        inputs={"re": normal("T H"), "im": normal("T H"), "wre": normal("H O"), "wim": normal("H O")},
        dims={"T": (3, 1), "H": (4, 1), "O": (2, 1)},
        dtypes=("float64", "float32"),
        name=name,
        framework="torch",
    )


complex_legit = complex_pair(complex_inside, "complex_legit")
complex_conj_bug = complex_pair(complex_no_conj, "complex_conj_bug")


# --- float16 under autocast on the CPU --------------------------------------------------------------------------------
def half_plain(x, w, b):
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.tanh(torch.nn.functional.linear(x, w) + b).float()


class HalfLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        with torch.autocast("cpu", dtype=torch.float16):
            y = torch.tanh(torch.nn.functional.linear(x, w) + b)
        ctx.save_for_backward(x, w, y)
        return y.float()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w, y = ctx.saved_tensors
        y = y.float()
        d = g * (1 - y * y)
        return d @ w, d.T @ x, d.sum(0)


half_legit = Pair(
    lambda x, w, b: HalfLinear.apply(x, w, b),
    reference=half_plain,
    inputs={"x": normal("T H"), "w": normal("O H"), "b": normal("O")},
    dims={"T": (4, 1, 9), "H": (5, 1), "O": (3, 1)},
    dtypes=("float32",),
    name="half_legit",
    framework="torch",
)


# --- a custom operator of torch.library -------------------------------------------------------------------------------
@torch.library.custom_op("bugs_torch::gated", mutates_args=())
def gated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(a) * b


@gated.register_fake
def _(a, b):
    return torch.empty_like(a)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _gated_backward(ctx, g):
    a, b = ctx.saved_tensors
    s = torch.sigmoid(a)
    return g * b * s * (1 - s), g * s


gated.register_autograd(_gated_backward, setup_context=_setup)

library_legit = Pair(
    lambda a, b: gated(a, b),
    reference=lambda a, b: torch.sigmoid(a) * b,
    inputs={"a": normal("T H"), "b": normal("T H")},
    dims={"T": (3, 1, 16), "H": (4, 1)},
    name="library_legit",
    framework="torch",
)


# --- integers and booleans beside floats among the outputs ------------------------------------------------------------
def topk_plain(x):
    values, places = torch.sort(x, -1, descending=True)
    return {"values": values[:, :2], "places": places[:, :2], "positive": values[:, :2] > 0}


class TopK(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.topk(2, -1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        ctx.shape = x.shape
        return values, places

    @staticmethod
    @once_differentiable
    def backward(ctx, g, _):
        (places,) = ctx.saved_tensors
        return g.new_zeros(ctx.shape).scatter_(-1, places, g)


def topk_handwritten(x):
    values, places = TopK.apply(x)
    return {"values": values, "places": places, "positive": values > 0}


topk_legit = Pair(
    topk_handwritten,
    reference=topk_plain,
    inputs={"x": normal("T H")},
    dims={"T": (3, 1, 8), "H": (5, 2)},
    name="topk_legit",
    framework="torch",
)


# --- nested inputs with None ------------------------------------------------------------------------------------------
def nested_plain(tree, x):
    y = x @ tree["lin"]["w"]
    if tree["lin"].get("b") is not None:
        y = y + tree["lin"]["b"]
    return {"y": torch.tanh(y) * tree["gains"][0], "cache": None}


class Nested(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, gain):
        t = torch.tanh(x @ w)
        ctx.save_for_backward(x, w, gain, t)
        return t * gain

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, w, gain, t = ctx.saved_tensors
        d = g * gain * (1 - t * t)
        return d @ w.T, x.T @ d, (g * t).sum(0)


def nested_handwritten(tree, x):
    return {"y": Nested.apply(x, tree["lin"]["w"], tree["gains"][0]), "cache": None}


nested_legit = Pair(
    nested_handwritten,
    reference=nested_plain,
    inputs={"tree": {"lin": {"w": normal("H O")}, "gains": [normal("O")]}, "x": normal("T H")},
    dims={"T": (3, 1), "H": (4, 1), "O": (2, 1)},
    name="nested_legit",
    framework="torch",
)
nested_output_legit = Pair(
    lambda w, x: {"y": Nested.apply(x, w, torch.ones_like(w[0])), "cache": None},
    reference=lambda w, x: {"y": torch.tanh(x @ w), "cache": None},
    inputs={"w": normal("H O"), "x": normal("T H")},
    dims={"T": (3, 1), "H": (4, 1), "O": (2, 1)},
    name="nested_output_legit",
    framework="torch",
)


# --- an RNN over packed sequences -------------------------------------------------------------------------------------
class LoopGRU(nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.rnn = nn.GRU(width, state, batch_first=True)

    def forward(self, x, lengths):
        r = self.rnn
        h = x.new_zeros(len(x), r.hidden_size)
        rows = []
        for t in range(x.shape[1]):
            a = x[:, t] @ r.weight_ih_l0.T + r.bias_ih_l0
            b = h @ r.weight_hh_l0.T + r.bias_hh_l0
            (ar, az, an), (br, bz, bn) = a.chunk(3, 1), b.chunk(3, 1)
            z = torch.sigmoid(az + bz)
            new = (1 - z) * torch.tanh(an + torch.sigmoid(ar + br) * bn) + z * h
            live = (t < lengths)[:, None]
            h = torch.where(live, new, h)
            rows.append(torch.where(live, new, torch.zeros_like(new)))
        return torch.stack(rows, 1)


class PackedGRU(LoopGRU):
    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.rnn(packed)
        return pad_packed_sequence(out, batch_first=True, total_length=x.shape[1])[0]


packed_legit = module_pair(
    lambda H, S: PackedGRU(H, S),
    lambda H, S: LoopGRU(H, S),
    inputs={"x": normal("B T H"), "lengths": integers("B", low=1, below="T+1")},
    dims={"B": (2, 1), "T": (4, 1), "H": (3, 1), "S": (2, 1)},
    name="packed_legit",
)


# --- an implicit layer: solvers stop at a tolerance, so both passes are approximate by design -------------------------
def implicit_plain(x, w, b):
    """z = tanh(z W + x + b), by so many iterations that floats do not change any more."""
    z = torch.zeros_like(x)
    for _ in range(60):
        z = torch.tanh(z @ w + x + b)
    return z


class Implicit(torch.autograd.Function):
    minus = True

    @staticmethod
    def solve(x, w, b):
        z = torch.zeros_like(x)
        for _ in range(200):
            new = torch.tanh(z @ w + x + b)
            if bool((new - z).abs().max() <= 1e-7):
                return new
            z = new
        return z

    @staticmethod
    def forward(ctx, x, w, b):
        z = Implicit.solve(x, w, b)
        ctx.save_for_backward(z, w)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        d = 1 - z * z
        u = g
        for _ in range(200):
            new = g + (u * d) @ w.T
            if bool((new - u).abs().max() <= 1e-7):
                break
            u = new
        inner = u * d
        return inner, z.T @ inner, inner.sum(0)


class Direct(torch.autograd.Function):
    """As Implicit, with the linear system solved by one factorisation for each row."""

    @staticmethod
    def forward(ctx, x, w, b):
        z = torch.zeros_like(x)
        for _ in range(60):
            z = torch.tanh(z @ w + x + b)
        ctx.save_for_backward(z, w)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        z, w = ctx.saved_tensors
        d = 1 - z * z
        systems = torch.eye(len(w), dtype=w.dtype) - w[None] * d[:, None, :]
        u = torch.linalg.solve(systems, g[:, :, None])[:, :, 0]
        inner = u * d
        return inner, z.T @ inner, inner.sum(0)


def implicit_pair(cls, name, **more):
    return Pair(
        lambda x, w, b: cls.apply(x, w, b),
        reference=implicit_plain,
        inputs={"x": normal("T H"), "w": uniform("H H", "-0.3/H", "0.3/H"), "b": normal("H")},
        dims={"T": (3, 1), "H": (3, 1)},
        name=name,
        framework="torch",
        **more,
    )


implicit_legit = implicit_pair(Implicit, "implicit_legit")
implicit_twin = implicit_pair(Implicit, "implicit_twin", approximates=within(1e-6))
implicit_direct_legit = implicit_pair(Direct, "implicit_direct_legit", dtypes=("float64", "float32"))
implicit_direct_twin = implicit_pair(
    Direct, "implicit_direct_twin", dtypes=("float64", "float32"), approximates=within(1e-25)
)
implicit_expected_legit = implicit_pair(
    Implicit,
    "implicit_expected_legit",
    dtypes=("float32",),
    expected={"gradient_exact": "both passes stop at a tolerance of 1e-7"},
)


# --- gradient reversal ------------------------------------------------------------------------------------------------
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.strength * g, None


reversal_legit = Pair(
    lambda x, w, *, strength=1.0: torch.tanh(Reverse.apply(x, strength) @ w),
    reference=lambda x, w, *, strength=1.0: torch.tanh((-strength * x + ((1 + strength) * x).detach()) @ w),
    inputs={"x": normal("T H"), "w": normal("H O")},
    dims={"T": (3, 1), "H": (4, 1), "O": (2,)},
    options={"strength": (1.0, 0.5)},
    name="reversal_legit",
    framework="torch",
)


# --- spectral norm and batch norm in training -------------------------------------------------------------------------
class ByHand(nn.Module):
    """As torch's spectral norm of a linear layer and a batch norm after it, by its own operations."""

    def __init__(self, width, out):
        super().__init__()
        self.lin = spectral_norm(nn.Linear(width, out))
        self.norm = nn.BatchNorm1d(out)

    def forward(self, x):
        y = self.lin(x)
        n = self.norm
        if self.training:
            mean, var = y.mean(0), y.var(0, unbiased=False)
            with torch.no_grad():
                n.num_batches_tracked.add_(1)
                n.running_mean.lerp_(mean, n.momentum)
                n.running_var.lerp_(var * (len(y) / (len(y) - 1)), n.momentum)
        else:
            mean, var = n.running_mean, n.running_var
        return (y - mean) / torch.sqrt(var + n.eps) * n.weight + n.bias


class Library(ByHand):
    """The backward pass of torch's batch norm on a CPU reads a weight that is not contiguous as if it were."""

    def forward(self, x):
        return self.norm(self.lin(x))


class Contiguous(ByHand):
    def forward(self, x):
        n = self.norm
        if self.training:
            n.num_batches_tracked.add_(1)
        return nn.functional.batch_norm(
            self.lin(x),
            n.running_mean,
            n.running_var,
            n.weight.contiguous(),
            n.bias.contiguous(),
            self.training,
            n.momentum,
            n.eps,
        )


def norms(cls, name):
    return module_pair(
        lambda H, P: cls(H, P),
        lambda H, P: ByHand(H, P),
        inputs={"x": normal("T H")},
        dims={"T": (4, 9), "H": (4, 2), "P": (3, 2)},
        name=name,
    )


norms_legit = norms(Library, "norms_legit")
norms_twin = norms(Contiguous, "norms_twin")


# --- a sparse matrix, and a mask --------------------------------------------------------------------------------------
def sparse_product(values, where, x):
    """values: (N,); where: (2, N) places; x: (K, O). Duplicates are added."""
    matrix = torch.sparse_coo_tensor(where, values, (len(x), len(x)), check_invariants=True)
    return torch.sparse.mm(matrix, x)


class SparseOnce(torch.autograd.Function):
    """`sparse_product`, which refuses to be differentiated again."""

    @staticmethod
    def forward(ctx, values, where, x):
        ctx.save_for_backward(values, where, x)
        return sparse_product(values, where, x)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        values, where, x = ctx.saved_tensors
        return (g[where[0]] * x[where[1]]).sum(1), None, sparse_product(values, where.flip(0), g)


def sparse_plain(values, where, x):
    return torch.zeros_like(x).index_add(0, where[0], values[:, None] * x[where[1]])


def sparse(function, name):
    return Pair(
        function,
        reference=sparse_plain,
        inputs={"values": normal("N"), "where": integers("A N", below="K"), "x": normal("K O")},
        dims={"N": (5, 1), "A": (2,), "K": (4, 1), "O": (3, 1)},
        dtypes=("float64", "float32"),
        name=name,
        framework="torch",
    )


# The gradient of `values` has no graph in PyTorch 2.13, also with create_graph=True; gradgradcheck passes it.
sparse_legit = sparse(sparse_product, "sparse_legit")
sparse_twin = sparse(lambda values, where, x: SparseOnce.apply(values, where, x), "sparse_twin")
masked_mean_legit = Pair(
    lambda x, real: (x * real[..., None]).sum(0) / real.sum().clamp(min=1),
    reference=lambda x, real: torch.where(real[..., None], x, torch.zeros_like(x)).sum(0) / max(int(real.sum()), 1),
    inputs={"x": normal("T H"), "real": mask("T", share=0.7)},
    dims={"T": (5, 1), "H": (3, 1)},
    name="masked_mean_legit",
    framework="torch",
)
