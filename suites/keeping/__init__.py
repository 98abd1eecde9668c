"""What is measured or judged once and kept: under the hash of everything that it depends on.

Read in this order: `sources` (which files a method imports), `keys` (the hash), `store` (where values lie), `verdicts`
(the verdicts of ``gradgate verify``). The gate keeps its figures and verdicts by the same keys.
"""
