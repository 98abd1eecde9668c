"""Triton kernels in sixty digits: the interpreter's operations on arrays of balls, and memory as shadows of storages.

A kernel is run by Triton's own interpreter, unchanged. Floats are balls, whole numbers and masks stay as they are, and
an address is an element of the shadow that the evaluator of PyTorch has for the storage (`on_torch.shadows`). So
kernels and the operations of PyTorch between them have one formula. No dtype rounds here: a cast to a narrower float
changes nothing, `tl.dot` multiplies in every input precision alike, and a float argument is the number that was passed.
"""
