"""The gate: a change passes if no gated byte or FLOP count is above its base's, and every gradient is as claimed.

Read in this order: `suites.commands.gate` (the run), `git` (revisions and trees), `overlay` and `guard` (whose code is
imported), `side` (the process that measures one tree), `ran` (which files ran), `compare` and `declared` (the rule),
`output`. What a figure depends on is in
`suites.keeping`.
"""
