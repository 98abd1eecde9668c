"""Pairs of every kind that authors write, and the bugs by which their backward passes are known to fail.

Right functions and plain references are in ``torch_*.py`` and ``jax_*.py``, each with its declared `gradgate.Pair`. The
bugs, edits of those modules, are in ``bugs_*.py``. `corpus` has all of them by name, and
``python -m gradgate.suites.bugs.of_pairs`` puts them to the claims and to the tools that people use today.
"""
