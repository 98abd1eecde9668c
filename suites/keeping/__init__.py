"""Figures and verdicts that are computed once and kept, under the hash of everything that they depend on.

Read in this order: `sources` (which files a method imports), `keys` (the hash), `store` (where values are stored),
`verdicts` (the verdicts of ``gradgate verify``). The gate keeps its figures and verdicts under the same keys.
"""
