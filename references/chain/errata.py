"""The thesis' false statements and misprints that change results, as claims that must be refuted.

Each quotes the sentence, and would be upheld if the sentence were true. What is ambiguous, or changes nothing, has its
reason in the ledger. All are about the thesis' own algorithms, so only the methods of one framework carry them.
"""

from __future__ import annotations

from gradgate.references.contract import Claim
from gradgate.references.laws import figure

MEASURED = "gradgate.references.chain.paper.errata"
PAIRS = "of 600 drawn pairs of a chain and a budget it states the least compute and its policy's peak on every one"


def _erratum(name: str, statement: str, source: str, measured: str, reason: str, unit: str = "% of the pairs") -> Claim:
    return figure(
        name, statement, source, printed=100.0, measured=f"{MEASURED}:{measured}", unit=unit, tolerance=0.0,
        expected="refuted", declared_reason=reason,
    )  # fmt: skip


PRECISE = (
    _erratum(
        "line_8_printed", f"Alg. 3.4 with 'c ← β_i^b': {PAIRS}", "Alg. 3.4, line 8", "memory_for_compute",
        "a misprint: the memory of a backward stands where its compute α_i^b is meant",
    ),
    _erratum(
        "line_50_printed", f"Alg. 3.4 with 'peak_L ← B[i][j][m − 1]': {PAIRS}", "Alg. 3.1, line 21; Alg. 3.4, line 50",
        "left_read_at_j", "a misprint: the left subproblem is (i, k); the peak that it needs is left out",
    ),
    _erratum(
        "failure_printed", f"'all i', j' where i' ≤ i and j' ≥ j must fail too', and so does Alg. 3.4: {PAIRS}",
        "§3.1.9; Alg. 3.4, line 65", "failure_propagated",
        "a value may be stored in a sweep past (i, j) while a smaller cotangent than b_j is held, so that (i, j') fits",
    ),
    _erratum(
        "m_min_printed", "'every (i, j, m) subproblem for m ≤ m_min is guaranteed to fail', and Alg. 3.4 starts there: "
        f"{PAIRS}", "§3.1.10", "started_at_m_min",
        "a shorter subproblem needs less than the whole chain, and the whole chain is built from those",
    ),
    _erratum(
        "m_min_least_printed", "'m_min is the absolute minimum memory required': on every one of 600 drawn chains, "
        "nothing fits into less than recomputing everything takes", "§3.1.10", "least_is_recompute_all",
        "a stored value can save a sweep under a large cotangent", "% of the chains",
    ),
    _erratum(
        "equation_3_4_first_printed", "Eq. 3.4 with its last term over 'i ≤ l < j' is the peak of recomputing "
        "everything, f_i excluded, on every segment of 600 drawn chains", "Eq. 3.4", "first_value_counted",
        "a misprint: at l = i it counts f_i, which 'we will exclude'", "% of the segments",
    ),
    _erratum(
        "equation_3_4_sweep_printed", "Eq. 3.4 with its sweep over 'i + 1 < l < j'' is the peak of recomputing "
        "everything, f_i excluded, on every segment of 600 drawn chains", "Eq. 3.4", "sweep_cut_short",
        "a misprint: l ≤ j' is meant, as the sweep goes on to f_j'", "% of the segments",
    ),
    _erratum(
        "algorithm_3_3_printed", "Alg. 3.3 with 'compute_quad ← fcompute_quad + α_{j−1}^b' states the compute of "
        "recomputing everything on every segment of 600 drawn chains", "Alg. 3.3, line 6; Alg. 3.4, line 23",
        "quadratic_overwritten", "a misprint: each j overwrites what it must be added to", "% of the segments",
    ),
)  # fmt: skip
"""Of the thesis' own solver."""

UNIFORM = (
    _erratum(
        "line_8_printed", "Alg. 2.1 with 't ∈ {m + 1, …, m_max}' states the least forwards for every t up to 12 and m "
        "up to 5", "Alg. 2.1, line 8", "table_bounded_by_slots",
        "a misprint: t runs to t_max, or no sequence longer than the number of slots is solved",
        "% of the pairs (t, m)",
    ),
)  # fmt: skip
"""Of the solver for uniform costs."""

FALLBACK = figure(
    "fallback", "'only if the recursive case failed … do we resort to this': Alg. 3.4 states the same on 600 drawn "
    "pairs of a chain and a budget if it never resorts to it, as k = j − 1 recomputes everything too", "§3.1.11",
    printed=100.0, measured=f"{MEASURED}:fallback_unneeded", unit="% of the pairs", tolerance=0.0,
)  # fmt: skip
"""Why the misprint of Alg. 3.3 changes nothing in Alg. 3.4."""

PEAKS = figure(
    "peaks", "'we need to track a B(i, j, m)': only for what has failed; Alg. 3.4 states the same compute on 600 drawn "
    "pairs of a chain and a budget if no peak is compared, since C(i, j, m) fits m already", "§3.1.4",
    printed=100.0, measured=f"{MEASURED}:peaks_unneeded", unit="% of the pairs", tolerance=0.0,
)  # fmt: skip
"""What §3.1.4 asks for and the solver here leaves out."""

UNNEEDED = (FALLBACK, PEAKS)
"""What the thesis asks for and its solver can do without."""
