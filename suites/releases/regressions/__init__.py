"""Public memory regressions of JAX and XLA as small programs of our own, and what the gate makes of them.

``rows.toml`` says what each thread reports. `programs` and `gated` have the programs, `probe` compiles one under any
release, and ``measured.json`` has what was measured.
"""
