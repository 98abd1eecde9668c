"""The thesis' false statements and misprints that change results, as claims that must be refuted.

Each quotes the sentence, and would be upheld if the sentence were true. A statement that is ambiguous, or that changes
nothing, is no claim: its reason is in the ledger. All are about the thesis' own algorithms, so only the methods of one
framework carry them.
"""

from __future__ import annotations

from gradgate.references.contract import Claim
from gradgate.references.laws import figure

MEASURED = "gradgate.references.chain.paper.errata"
PAIRS = "on each of 600 drawn pairs of a chain and a budget it states the least compute and the peak of its policy"


def _erratum(name: str, statement: str, source: str, measured: str, reason: str, unit: str = "% of the pairs") -> Claim:
    return figure(
        name,
        statement,
        source,
        printed=100.0,
        measured=f"{MEASURED}:{measured}",
        unit=unit,
        tolerance=0.0,
        expected="refuted",
        declared_reason=reason,
    )


PRECISE = (
    _erratum(
        "line_8_printed",
        f"Alg. 3.4 with 'c ← β_i^b': {PAIRS}",
        "Alg. 3.4, line 8",
        "memory_for_compute",
        "a misprint: it prints the memory of a backward where the compute α_i^b is meant",
    ),
    _erratum(
        "line_50_printed",
        f"Alg. 3.4 with 'peak_L ← B[i][j][m − 1]': {PAIRS}",
        "Alg. 3.1, line 21; Alg. 3.4, line 50",
        "left_read_at_j",
        "a misprint: the left subproblem is (i, k), so the peak of (i, k) is meant",
    ),
    _erratum(
        "failure_printed",
        f"'all i', j' where i' ≤ i and j' ≥ j must fail too', and so does Alg. 3.4: {PAIRS}",
        "§3.1.9; Alg. 3.4, line 65",
        "failure_propagated",
        "a sweep past (i, j) can store a value while a cotangent smaller than b_j is held, so that (i, j') fits",
    ),
    _erratum(
        "m_min_printed",
        f"'every (i, j, m) subproblem for m ≤ m_min is guaranteed to fail', and Alg. 3.4 starts there: {PAIRS}",
        "§3.1.10",
        "started_at_m_min",
        "a shorter subproblem needs less than the whole chain, and the whole chain is built from shorter ones",
    ),
    _erratum(
        "m_min_least_printed",
        "'m_min is the absolute minimum memory required': on every one of 600 drawn chains, "
        "no schedule fits into less than recomputing everything takes",
        "§3.1.10",
        "least_is_recompute_all",
        "storing a value can avoid a sweep while a large cotangent is held",
        "% of the chains",
    ),
    _erratum(
        "equation_3_4_first_printed",
        "Eq. 3.4 with its last term over 'i ≤ l < j' is the peak of recomputing "
        "everything, f_i excluded, on every segment of 600 drawn chains",
        "Eq. 3.4",
        "first_value_counted",
        "a misprint: at l = i it counts f_i, which 'we will exclude'",
        "% of the segments",
    ),
    _erratum(
        "equation_3_4_sweep_printed",
        "Eq. 3.4 with its sweep over 'i + 1 < l < j'' is the peak of recomputing "
        "everything, f_i excluded, on every segment of 600 drawn chains",
        "Eq. 3.4",
        "sweep_cut_short",
        "a misprint: l ≤ j' is meant, because the sweep ends at f_j'",
        "% of the segments",
    ),
    _erratum(
        "algorithm_3_3_printed",
        "Alg. 3.3 with 'compute_quad ← fcompute_quad + α_{j−1}^b' states the compute of "
        "recomputing everything on every segment of 600 drawn chains",
        "Alg. 3.3, line 6; Alg. 3.4, line 23",
        "quadratic_overwritten",
        "a misprint: each j overwrites the sum that it must add to",
        "% of the segments",
    ),
)
"""Errors in the thesis' own solver."""

UNIFORM = (
    _erratum(
        "line_8_printed",
        "Alg. 2.1 with 't ∈ {m + 1, …, m_max}' states the least forwards for every t up to 12 and m up to 5",
        "Alg. 2.1, line 8",
        "table_bounded_by_slots",
        "a misprint: t must run to t_max; else no sequence longer than the number of slots is solved",
        "% of the pairs (t, m)",
    ),
)
"""Errors in the solver for uniform costs."""

FALLBACK = figure(
    "fallback",
    "'only if the recursive case failed … do we resort to this': Alg. 3.4 states the same on 600 drawn "
    "pairs of a chain and a budget if it never does so, because k = j − 1 recomputes everything too",
    "§3.1.11",
    printed=100.0,
    measured=f"{MEASURED}:fallback_unneeded",
    unit="% of the pairs",
    tolerance=0.0,
)
"""Why the misprint of Alg. 3.3 changes nothing in Alg. 3.4."""

PEAKS = figure(
    "peaks",
    "'we need to track a B(i, j, m)': only to mark what has failed. Alg. 3.4 states the same compute on 600 "
    "drawn pairs of a chain and a budget if it compares no peak, because C(i, j, m) fits m already",
    "§3.1.4",
    printed=100.0,
    measured=f"{MEASURED}:peaks_unneeded",
    unit="% of the pairs",
    tolerance=0.0,
)
"""The comparison of peaks, which §3.1.4 requires and which the solver here leaves out."""

UNNEEDED = (FALLBACK, PEAKS)
"""What the thesis requires although its solver does not need it."""
