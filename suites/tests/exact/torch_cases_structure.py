"""Cases of rules that only move numbers, such as views, copies and indexing."""

from __future__ import annotations

from typing import Any

import torch

from gradgate.suites.tests.exact.torch_inputs import INDEX, MASK, A, F, dropped, r

STRUCTURE: dict[str, Any] = {
    "cat": (lambda x, y: torch.cat([x, y * 2, x], 1), (r(2, 3), r(2, 1))),
    "stack": (lambda x, y: A.stack([x, y], 1), (r(2, 3), r(2, 3))),
    "clone": (lambda x: x.clone() * x.mT.contiguous().mT, (r(2, 3),)),
    "copy": (lambda x, y: torch.zeros(2, 3, dtype=x.dtype).copy_(x) * y, (r(3), r(2, 3))),
    "_to_copy": (lambda x: torch.arange(3).double() * x.to(torch.complex128).real, (r(3),)),
    "index": (lambda x: x[INDEX[0], 1:][:, [0, 0, 1]], (r(3, 4),)),
    "_unsafe_index": (lambda x: A._unsafe_index(x, [INDEX, None]), (r(3, 2),)),
    "index_select": (lambda x: x.index_select(0, INDEX[0]), (r(3, 4),)),
    "gather": (lambda x: x.gather(1, INDEX), (r(2, 3),)),
    "scatter": [
        (lambda x, y: x.scatter(1, INDEX, y), (r(2, 3), r(2, 3))),
        (lambda x: x.scatter(1, INDEX[:, :1], 0.1), (r(2, 3),)),
    ],
    "scatter_add": (lambda x, y: x.scatter_add(0, INDEX, y), (r(3, 3), r(2, 3))),
    "index_put": [
        (lambda x, y: x.index_put((INDEX[0],), y), (r(3, 4), r(3, 4))),
        (lambda x, y: x.index_put((torch.tensor([0, 1, 0]),), y, accumulate=True), (r(3, 4), r(3, 4))),
    ],
    "_unsafe_index_put": (lambda x, y: A._unsafe_index_put(x, [INDEX[0]], y), (r(3, 4), r(3, 4))),
    "index_add": (lambda x, y: x.index_add(1, torch.tensor([0, 0]), y, alpha=0.3), (r(2, 3), r(2, 2))),
    "index_copy": (lambda x, y: x.index_copy(0, torch.tensor([2, 0]), y), (r(3, 2), r(2, 2))),
    "index_fill": (lambda x: x.index_fill(0, torch.tensor([2, 0]), 0.1), (r(3, 2),)),
    "roll": (lambda x: x.roll(1, 0) * x, (r(3, 2),)),
    "rot90": (lambda x: torch.rot90(x) * 2, (r(3, 2),)),
    "flip": (lambda x: x.flip(0, 1) * x, (r(3, 2),)),
    "constant_pad_nd": (lambda x: F.pad(x, (1, 2, 0, -1), value=0.1), (r(3, 2),)),
    "repeat": (lambda x: x.repeat(2, 2, 1), (r(3, 2),)),
    "where": (lambda x, y: torch.where(MASK, x, y) + torch.where(MASK, x, 0.1), (r(2, 3), r(3))),
    "masked_fill": [
        (lambda x: x.masked_fill(MASK, 0.1), (r(2, 3),)),
        (lambda x, y: x.masked_fill(MASK, y), (r(2, 3), r())),
    ],
    "masked_scatter": (lambda x, y: x.masked_scatter(MASK, y), (r(2, 3), r(4))),
    "masked_scatter_backward": (lambda x, y: x.masked_scatter(MASK, y), (r(2, 3), r(7))),
    "masked_select": (lambda x: x.masked_select(MASK), (r(2, 3),)),
    "take": (lambda x: torch.take(x, INDEX), (r(2, 3),)),
    "put": (lambda x, y: torch.put(x, torch.tensor([0, 3]), y), (r(2, 3), r(2))),
    "select_scatter": (lambda x, y: torch.select_scatter(x, y, 0, 1), (r(2, 3), r(3))),
    "slice_scatter": (lambda x, y: torch.slice_scatter(x, y, 0, 1, 3), (r(3, 3), r(2, 3))),
    "diagonal_scatter": (lambda x, y: torch.diagonal_scatter(x, y), (r(3, 3), r(3))),
    "select_backward": (lambda x: A.select_backward(x, (2, 3), 0, 1), (r(3),)),
    "slice_backward": (lambda x: A.slice_backward(x, (3, 3), 0, 1, 3, 1), (r(2, 3),)),
    "diagonal_backward": (lambda x: A.diagonal_backward(x, (3, 3), 0, 0, 1), (r(3),)),
    "unfold_backward": (lambda x: torch.func.grad(lambda y: y.unfold(0, 3, 2).square().sum())(x), (r(7),)),
    "_unsafe_masked_index_put_accumulate": (
        lambda x, y: A._unsafe_masked_index_put_accumulate(x, torch.tensor([True, False, True]), [INDEX[1]], y),
        (r(3), r(3)),
    ),
    "_unsafe_masked_index": (
        lambda x: A._unsafe_masked_index(x, torch.tensor([True, False, True]), [INDEX[1]], 0.5),
        (r(3),),
    ),
    "diag_embed": (torch.diag_embed, (r(2, 3),)),
    "tril": (lambda x: x.tril(1), (r(3, 4),)),
    "triu": (lambda x: x.triu(1), (r(3, 4),)),
    "trace": (torch.trace, (r(3, 3),)),
    "linspace": (lambda x: torch.linspace(0, 1, 4, dtype=x.dtype) * x, (r(4),)),
    "arange": (lambda x: torch.arange(0.5, 2.0, 0.1, dtype=x.dtype) * x, (r(15),)),
    "fill": (lambda x, y: torch.empty_like(x).fill_(y) * x + torch.empty_like(x).fill_(0.1), (r(3), r())),
    **{
        f"{how}_pad{d}d{end}": (lambda x, d=d, to=to: F.pad(x, (1, 1) * d, to), (r(1, 1, *(3,) * d),))
        for d in (1, 2, 3)
        for how, to in (("reflection", "reflect"), ("replication", "replicate"))
        for end in ("", "_backward")
    },
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (r(1, 4, 2, 2),)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (r(1, 1, 4, 2),)),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), (r(1, 4, 2, 2),)),
    "embedding": (lambda x: F.embedding(INDEX, x), (r(3, 4),)),
    "embedding_dense_backward": (lambda x: A.embedding_dense_backward(x, INDEX[0], 4, 2, False), (r(3, 2),)),
    **{
        name: (function, (r(3, 4),))
        for name, function in {
            "expand_copy": lambda x: torch.expand_copy(x[:1], (3, 4)),
            "permute_copy": lambda x: torch.permute_copy(x, (1, 0)),
            "transpose_copy": lambda x: torch.transpose_copy(x, 0, 1),
            "t_copy": torch.t_copy,
            "squeeze_copy": lambda x: torch.squeeze_copy(x[:1]),
            "unsqueeze_copy": lambda x: torch.unsqueeze_copy(x, 0),
            "select_copy": lambda x: torch.select_copy(x, 0, 1),
            "slice_copy": lambda x: torch.slice_copy(x, 0, 1),
            "view_copy": lambda x: torch.view_copy(x, (12,)),
            "_reshape_copy": lambda x: A._reshape_copy(x, (12,)),
            "as_strided_copy": lambda x: torch.as_strided_copy(x, (2, 2), (1, 3)),
            "diagonal_copy": torch.diagonal_copy,
            "unfold_copy": lambda x: torch.unfold_copy(x, 0, 2, 1),
            "alias_copy": torch.alias_copy,
            "split_copy": lambda x: torch.split_copy(x, 2)[0],
            "unbind_copy": lambda x: torch.unbind_copy(x)[1],
            "split_with_sizes_copy": lambda x: torch.split_with_sizes_copy(x, [1, 2])[1],
            "narrow_copy": lambda x: A.narrow_copy(x, 0, 1, 2),
            "lift": lambda x: A.lift(x),
        }.items()
    },
    "native_dropout": (dropped, (r(8),)),
    "native_dropout_backward": (lambda x: A.native_dropout_backward(x, MASK, 1.25), (r(2, 3),)),
    **{
        f"{how}{d}d_backward": (
            lambda x, d=d, how=how: torch.func.grad(
                lambda y: (
                    F.interpolate(y, scale_factor=2, mode="nearest-exact" if "exact" in how else "nearest")
                    .square()
                    .sum()
                )
            )(x),
            (r(1, 1, *(2,) * d),),
        )
        for how in ("upsample_nearest", "_upsample_nearest_exact")
        for d in (1, 2, 3)
    },
}
