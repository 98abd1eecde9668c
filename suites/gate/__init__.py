"""The gate: no gated byte or FLOP of a change above its base's, and every gradient as claimed.

Read in this order: `command` (the run), `git` (revisions and trees), `overlay` (whose code is imported), `side` (the
process that measures one tree), `sources` (what a figure depends on), `compare` (the rule), `output`.
"""
