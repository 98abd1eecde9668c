"""Pairs of every kind that authors write, and the known kinds of bugs in their backward passes.

Right functions and plain references are in ``torch_*.py`` and ``jax_*.py``, each with its declared `gradgate.Pair`. The
bugs are edits of those modules, in ``bugs_*.py``. `corpus` has all of them by name. ``python -m
gradgate.suites.bugs.of_pairs`` judges them by the claims and by the tools that people use today.
"""
