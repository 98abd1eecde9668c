"""The functions inside a coupling, which need not be invertible: dense or convolutional, with batch norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradgate.references.backends import namespace
from gradgate.references.contract import Tree
from gradgate.references.draws import Normal

KERNEL = 3
EPSILON = 1e-5
"""Added to the variance in batch norm."""


@dataclass(frozen=True)
class Residual:
    """𝓕: linear maps, each followed by its activation and batch norm, in this order (§6.1).

    Attributes:
        backend: of the arrays.
        kind: ``conv``, 3×3 over the places with zeros around; ``patches``, the same as one product of matrices; or
            ``dense`` over all numbers of the sample.
        activation: ``relu`` or ``tanh``.
        norm: ``batch`` or ``none``.
        side: places along each side.
        widths: channels in, of each hidden map, and out.
    """

    backend: str
    kind: str
    activation: str
    norm: str
    side: int
    widths: tuple[int, ...]

    def layout(self, count: int, scale: float) -> dict[str, Any]:
        """The draws of `count` such functions' parameters, stacked."""
        found: dict[str, Any] = {}
        for i, (into, out) in enumerate(zip(self.widths[:-1], self.widths[1:], strict=True)):
            if self.kind != "dense":
                shape: tuple[int, ...] = (count, KERNEL, KERNEL, into, out)
                fan = into * min(KERNEL, self.side) ** 2
            else:
                into, out = into * self.side**2, out * self.side**2
                shape, fan = (count, into, out), into
            found[f"w{i}"] = Normal(shape, scale / fan**0.5)
            found[f"b{i}"] = Normal((count, out), 0.1 * scale)
            if self.norm == "batch":
                found[f"gain{i}"] = Normal((count, out), 0.1 * scale, scale)
                found[f"shift{i}"] = Normal((count, out), 0.1 * scale)
        return found

    def __call__(self, p: Tree, x: Any) -> Any:
        """(batch, side, side, widths[0]) -> (batch, side, side, widths[-1])."""
        xp = namespace(self.backend)
        z = xp.reshape(x, (x.shape[0], -1)) if self.kind == "dense" else x
        for i in range(len(self.widths) - 1):
            z = self._activate(self._linear(z, p[f"w{i}"]) + p[f"b{i}"])
            if self.norm == "batch":
                z = batch_norm(xp, z, p[f"gain{i}"], p[f"shift{i}"])
        return xp.reshape(z, (*x.shape[:-1], self.widths[-1]))

    def push(self, p: Tree, x: Any) -> tuple[Any, list[Tree]]:
        """The output, and for each linear map what `pull` needs besides the parameters.

        With batch norm that is z, the activation's output, from which the ReLU's mask follows, and two numbers per
        channel. Without batch norm it is the mask alone, or for tanh the output. The input of a linear map is not kept:
        its pull-back by the input needs W alone.
        """
        xp, kept = namespace(self.backend), []
        z = xp.reshape(x, (x.shape[0], -1)) if self.kind == "dense" else x
        for i in range(len(self.widths) - 1):
            z = self._activate(self._linear(z, p[f"w{i}"]) + p[f"b{i}"])
            needed = {"z": z if self.activation == "tanh" or self.norm == "batch" else z > 0}
            if self.norm == "batch":
                centred, needed["mean"], needed["deviation"] = statistics(xp, z)
                z = centred * (p[f"gain{i}"] / needed["deviation"]) + p[f"shift{i}"]
            kept.append(needed)
        return xp.reshape(z, (*x.shape[:-1], self.widths[-1])), kept

    def pull(self, p: Tree, kept: list[Tree], h: Any) -> Any:
        """The cotangent of x from that of the output and what `push` kept; as many products as in one evaluation."""
        xp, places = namespace(self.backend), h.shape[:-1]
        h = xp.reshape(h, (h.shape[0], -1)) if self.kind == "dense" else h
        for i in reversed(range(len(self.widths) - 1)):
            z = kept[i]["z"]
            if self.norm == "batch":
                h = batch_norm_pulled(xp, z - kept[i]["mean"], kept[i]["deviation"], p[f"gain{i}"], h)
            if self.activation == "tanh":
                h = h * (1 - z * z)
            else:
                h = xp.where(z > 0 if self.norm == "batch" else z, h, xp.zeros_like(h))
            h = self._linear(h, self._turned(p[f"w{i}"]))
        return xp.reshape(h, (*places, self.widths[0]))

    def _turned(self, w: Any) -> Any:
        """The weights of the transposed map: of a convolution, inputs and outputs exchanged and the kernel turned."""
        xp = namespace(self.backend)
        return xp.matrix_transpose(w) if self.kind == "dense" else xp.matrix_transpose(xp.flip(w, axis=(0, 1)))

    def _linear(self, z: Any, w: Any) -> Any:
        if self.kind == "dense":
            return z @ w
        return (
            convolve(self.backend, z, w) if self.kind == "conv" else product_of_patches(namespace(self.backend), z, w)
        )

    def _activate(self, z: Any) -> Any:
        xp = namespace(self.backend)
        return xp.tanh(z) if self.activation == "tanh" else xp.where(z > 0, z, xp.zeros_like(z))


def batch_norm(xp: Any, z: Any, gain: Any, shift: Any) -> Any:
    """Over all axes but the last: the samples of a batch and the places.

    The gain is multiplied by 1/σ first, both of one number per channel. So the pull-back by the gain needs no array of
    z's size that the pull-back by z does not need as well.
    """
    centred, _, deviation = statistics(xp, z)
    return centred * (gain / deviation) + shift


def statistics(xp: Any, z: Any) -> tuple[Any, Any, Any]:
    """Z less its mean, its mean and its standard deviation over all axes but the last, which have length 1."""
    axes = tuple(range(len(z.shape) - 1))
    mean = xp.mean(z, axis=axes, keepdims=True)
    centred = z - mean
    return centred, mean, xp.sqrt(xp.mean(centred * centred, axis=axes, keepdims=True) + EPSILON)


# y = c·gain/σ + shift with c = z − mean z and σ² = mean c² + ε. The cotangent of c is h·gain/σ − c·gain·mean(h c)/σ³;
# z gets it less its mean, and the mean of c is 0.
def batch_norm_pulled(xp: Any, centred: Any, deviation: Any, gain: Any, h: Any) -> Any:
    """The cotangent of `batch_norm`'s z from that of its result."""
    axes = tuple(range(len(h.shape) - 1))
    along = centred * (xp.mean(h * centred, axis=axes, keepdims=True) / (deviation * deviation))
    return (h - xp.mean(h, axis=axes, keepdims=True) - along) * (gain / deviation)


def convolve(backend: str, x: Any, w: Any) -> Any:
    """X (batch, side, side, in), w (3, 3, in, out) -> (batch, side, side, out), zeros around, no stride.

    JAX and PyTorch take their own convolution; elsewhere it is `product_of_patches`.
    """
    if backend == "jax":
        import jax

        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    if backend == "torch":
        import torch

        kernel = w.permute(3, 2, 0, 1)
        if len(kernel) == 1:  # else PyTorch takes it for channels_last, and refuses its own gradient on CPUs
            kernel = kernel.contiguous()
        moved = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), kernel, padding=KERNEL // 2)
        return moved.permute(0, 2, 3, 1)
    return product_of_patches(namespace(backend), x, w)


def product_of_patches(xp: Any, x: Any, w: Any) -> Any:
    """`convolve` by functions of the Array API alone: each place's 3×3 patch, 9·in numbers, times a matrix.

    Stores nine times x. Vectorised over weights it costs half of what XLA's convolution with a batch of kernels does.
    """
    side = x.shape[1]
    column = xp.zeros((x.shape[0], side, 1, x.shape[3]), dtype=x.dtype)
    wide = xp.concat([column, x, column], axis=2)
    row = xp.zeros((x.shape[0], 1, side + 2, x.shape[3]), dtype=x.dtype)
    wide = xp.concat([row, wide, row], axis=1)
    shifted = [wide[:, i : i + side, j : j + side, :] for i in range(KERNEL) for j in range(KERNEL)]
    return xp.matmul(xp.concat(shifted, axis=-1), xp.reshape(w, (-1, w.shape[-1])))
