"""What every release of JAX and PyTorch does to the bytes and the work of the reference methods.

Read in this order: `environments` (a release and its compilers, installed), `measuring` (one release, by the gate's
process), `history` (the figures on disk, as asv keeps results), `rises` (which release raised what), `page`, `plots`
and `feed` (what is published), `known` (public regressions as a test of the gate), `__main__` (the commands).
"""
