"""The gate: a change passes if no gated byte or FLOP count is above its base's, and every gradient is as claimed.

Read in this order: `suites.commands.gate` (the run), `git` (revisions and trees), `overlay` (whose code is imported),
`side` (the process that measures one tree), `compare` (the rule), `output`. What a figure depends on is in
`suites.keeping`.
"""
