"""Public repositories whose own history is gated, to see whether the gate says what each commit did.

Begin with `commits` (what is declared). Then read `scratch` (the commits that are gated), `judge` (one commit, gated
forwards and backwards) and `run` (``nox -s fieldhistory -- NAME --repository PATH``).
"""
