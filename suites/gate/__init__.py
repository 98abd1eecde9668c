"""The gate: no gated byte or FLOP of a change above its base's, and every gradient as claimed.

Read in this order: `command` (the run), `git` (revisions and trees), `overlay` (whose code is imported), `side` (the
process that measures one tree), `compare` (the rule), `output`. What a figure depends on is in `suites.keeping`.
"""
