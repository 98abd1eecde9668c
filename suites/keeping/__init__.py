"""Figures and verdicts that are computed once and used again while nothing that they depend on has changed.

Read in this order: `gradgate.hw_profiles.recording` (what a process has read), `present` (whether that is still so),
`sources` (which modules of gradgate judge a method), `keys` (the hash of a question), `answers` (answers with their
records), `store` (where they are stored), `verdicts` and `figures`. ``gradgate verify``, ``memory`` and the gate keep
their answers under the same keys.
"""
