"""The suite on trial: bugs that were published, and bugs that any method can have, put into the reference methods.

`corpus` lists them, `declare` says how the tables are written, `edits` and `operators` are the two ways to break a
method, and there is a table per family. `gradgate.suites.selftest` judges them.
"""
