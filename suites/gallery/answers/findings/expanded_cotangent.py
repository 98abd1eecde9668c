"""A backward pass in place, by the strides of its cotangent: that of a sum is one number, and the rows lie outside."""

import sys

import torch


class Twice(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: 2 * x)

    @staticmethod
    def backward(ctx, dy):
        rows = dy.reshape(-1, dy.shape[-1])  # copies what cannot be viewed; an expanded number can
        needed, there = (len(rows) - 1) * rows.stride(0) + rows.shape[-1], rows.untyped_storage().nbytes() // 4
        print(f"a kernel that writes each row, number after number, needs memory of {needed} numbers; it has {there}")
        sys.exit(needed <= there)


Twice.apply(torch.ones(3, 4, 5, requires_grad=True)).sum().backward()
