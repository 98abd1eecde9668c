"""``gradgate watch``: every handwritten derivative that a program calls, judged against its own forward pass.

Begin with `recorder`: it runs inside the watched program and writes each distinct call into a folder; `in_torch` and
`in_jax` find the calls. `portable` makes a rule and its arguments a file, and `replay` makes a pair of that file, in a
worker. `judging` has the pairs judged, and `results` says what the verdicts mean for a rule.
"""
