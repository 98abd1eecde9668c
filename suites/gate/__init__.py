"""The gate: is a change's every gated byte and FLOP at most its base's, and every gradient still as claimed?

Read in this order: `command` (the run), `git` (revisions and trees), `overlay` (whose code is imported), `side` (the
process that measures one tree), `sources` (what a figure depends on), `compare` (the rule), `output`.
"""
