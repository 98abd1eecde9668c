"""Candidates that are paid for passing: each is wrong, and tries to be upheld. A court must uphold none of them.

``python -m gradgate.suites.bugs.strangers`` judges all of them in both frameworks; tests judge some.
"""
