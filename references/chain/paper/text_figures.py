"""Single statements of chapters 2 to 4, as figures that can fail.

The measurements are in `background`, `liveness` and `executor_printed`.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.published import Published, at_most, equal, figures_of, more_than, refuted, upheld

HERE = "gradgate.references.chain.paper.background"
LIVE = "gradgate.references.chain.paper.liveness"
EXACT = equal(0.0, "the sentence says so of every case")
PEBBLES = equal(0.0, "'this will find the Θ(1) strategy from Figure 2.13', which has 3 pebbles")


_row = figures_of(HERE)


def _learning() -> list[Published]:
    climbs = "a misprint of the sign: the printed update follows the gradient up"
    bias = "a misprint: b_m^{l+1} is meant, the bias of the layer that is computed; b_m^l has another length"
    factor = "a misprint: the factor ∂L/∂y_j^N is left out; the text below the equation requires it"
    return [
        _row(
            "§2.1.1, gradient descent",
            "θ − η∇L",
            "x² + (y² − 1)², η = 0.05",
            "% of steps that do not rise",
            "falling",
            {"sign": -1.0},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§2.1.1, gradient descent",
            "θ + η∇L, as printed",
            "x² + (y² − 1)², η = 0.05",
            "% of steps that do not rise",
            "falling",
            {"sign": 1.0},
            100.0,
            refuted(EXACT, instead=0.0),
            climbs,
        ),
        _row(
            "§2.1.1, gradient descent",
            "loss at the end",
            "from (1, 0.3)",
            "above the local minimum's",
            "limit_loss",
            {"y": 0.3},
            0.0,
            upheld(EXACT),
        ),
        _row(
            "§2.1.1, gradient descent",
            "loss at the end",
            "from (1, 0)",
            "above the local minimum's",
            "limit_loss",
            {"y": 0.0},
            0.0,
            refuted(EXACT, instead=1.0),
            "it converges to a saddle, which is no local minimum, however small η is",
        ),
        _row(
            "§2.1.2, loss above the chord",
            "a linear function",
            "200 drawn pairs",
            "%",
            "above_chord",
            {"hidden": False},
            0.0,
            upheld(EXACT),
        ),
        _row(
            "§2.1.2, loss above the chord",
            "with a layer of tanh",
            "200 drawn pairs",
            "%",
            "above_chord",
            {"hidden": True},
            0.0,
            upheld(more_than("'leading to a non-convex loss': there is such a pair")),
        ),
        _row(
            "§2.1.5, backprop by hand",
            "Eqs. 2.11 and 2.13 to 2.18, corrected",
            "20 drawn networks",
            "% with right derivatives",
            "backprop_by_hand",
            {"misprint": ""},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§2.1.5, backprop by hand",
            "Eq. 2.18, by the weights",
            "20 drawn networks",
            "% with right derivatives",
            "weights_by_hand",
            {},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§2.1.5, backprop by hand",
            "a batch of 5 and its inputs one by one",
            "20 drawn networks",
            "% with equal outputs and the sum of derivatives",
            "batch_by_hand",
            {},
            100.0,
            upheld(EXACT),
        ),
        *(
            _row(
                "§2.1.5, weights updated in place",
                when,
                "20 drawn networks",
                "% with right deltas",
                "updated_in_place",
                {"early": early},
                printed,
                upheld(EXACT),
            )
            for when, early, printed in (
                ("before the next delta is computed", True, 0.0),
                ("after that", False, 100.0),
            )
        ),
        _row(
            "§2.1.5, backprop by hand",
            "Eq. 2.5 as printed",
            "20 drawn networks",
            "% with the loss of Eq. 2.1",
            "backprop_by_hand",
            {"misprint": "2.5"},
            100.0,
            refuted(EXACT, instead=0.0),
            bias,
        ),
        _row(
            "§2.1.5, backprop by hand",
            "Eq. 2.14 as printed",
            "20 drawn networks",
            "% with right derivatives",
            "backprop_by_hand",
            {"misprint": "2.14"},
            100.0,
            refuted(EXACT, instead=0.0),
            factor,
        ),
        _row(
            "§2.2.1, finite differences",
            "best error over backprop's",
            "float32, 20 drawn networks",
            "times",
            "difference_error",
            {},
            reason="'highly inaccurate' is no number; a bound of ours would uphold it",
        ),
        *(
            _row(
                "§2.2.1, finite differences",
                f"exponent of the step in the error, {series}",
                "float32, 20 drawn networks",
                "",
                "difference_slope",
                {"rounding": rounding},
                printed,
                upheld(equal(0.15, f"'due to round-off and truncation errors': {why}; a step is rounded too")),
            )
            for series, rounding, printed, why in (
                ("steps below the best", True, -1.0, "rounding is divided by the step"),
                ("steps above the best", False, 1.0, "what the series leaves out has the step as a factor"),
            )
        ),
    ]


def _memory() -> list[Published]:
    digits = equal(5e-4, "four digits are printed")
    trace = [
        _row(
            "Fig. 2.9",
            "ln x_1 + x_1 x_2 − sin x_2 at (2, 5)",
            what,
            "",
            "trace",
            {"what": what},
            printed,
            upheld(equal(2e-3, "three digits are printed") if what == "v_0 by v_3" else digits),
        )
        for what, printed in (
            ("y", 11.652),
            ("x_1", 5.5),
            ("x_2", 1.716),
            ("v_4", 10.693),
            ("v_-1 by v_2", 5.0),
            ("v_0 by v_3", -0.284),
        )
    ]
    pebbles = [
        _row(
            "Figs. 2.12 and 2.13, pebbles",
            "leaves first" if not lazy else "leaves as late as possible",
            f"{leaves} leaves",
            "pebbles",
            "pebbles",
            {"leaves": leaves, "lazy": lazy},
            printed,
            upheld(equal(0.0, "a number of pebbles is whole")),
        )
        for leaves, lazy, printed in ((4, False, 5.0), (4, True, 3.0), (100, True, 3.0))
    ]
    counted = [
        _row(
            "§2.4.2, reference counting",
            f"most pebbles, leaves {order}",
            "100 leaves",
            "pebbles",
            f"{LIVE}:counted_pebbles",
            {"leaves": 100, "lazy": lazy},
            3.0,
            expects,
            reason,
        )
        for order, lazy, expects, reason in (
            ("as late as possible", True, upheld(PEBBLES), ""),
            (
                "first",
                False,
                refuted(PEBBLES, instead=101.0),
                "counts say when to free, and not when to place: the order is given",
            ),
        )
    ]
    values = "numbers per parameter"
    return [
        *trace,
        *pebbles,
        *counted,
        _row(
            "§2.4.2, reference counting",
            "saved in place, leaves as late as possible",
            "100 leaves",
            "pebbles",
            f"{LIVE}:saved_in_place",
            {"leaves": 100},
            1.0,
            upheld(equal(0.0, "'on the already allocated memory': one fewer")),
        ),
        _row(
            "§2.4.2, reference counting",
            "growth of the operations",
            "100 to 1,000 leaves",
            "power of n",
            f"{LIVE}:counted_growth",
            {"leaves": 100},
            1.0,
            upheld(equal(0.01, "'in only Θ(n) time'")),
        ),
        *(
            _row(
                "§2.4.3, optimisers",
                "kept after a step",
                name,
                values,
                f"{LIVE}:optimiser_values",
                {"name": name},
                printed,
                upheld(equal(0.0, "'usually … one or two extra values per parameter'")),
            )
            for name, printed in (("SGD", 1.0), ("Adam", 2.0))
        ),
        _row(
            "§2.4.3, the peak moves back",
            "steps on which it rises if and only if the text says so",
            "600 drawn chains",
            "% of the backward steps",
            f"{LIVE}:rises",
            {},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§2.4.3, weights of a dense layer",
            "rise of the logarithm from 2w to 4w over that from w to 2w",
            "w = 1000",
            "times",
            "weights_growth",
            {"width": 1000},
            2.0,
            refuted(equal(0.05, "'an exponential growth' doubles the rise"), instead=1.0),
            "the weights of w inputs and w outputs are w²: the growth is quadratic",
        ),
        _row(
            "Eq. 2.19",
            "peak of saving everything",
            "600 drawn chains",
            "% equal to the walk's",
            "saving_all",
            {},
            100.0,
            upheld(EXACT),
        ),
    ]


def _checkpointing() -> list[Published]:
    division = "a misprint: n/(k + 1) is meant, with which the solution holds for every n and k tried"
    solution = "% of 9 pairs of n and k that k·log n to the base k + 1 solves"
    return [
        _row(
            "§2.5.1, √N segments",
            "peak",
            "400 uniform stages",
            "√N",
            "segments_peak",
            {"stages": 400},
            2.0,
            upheld(equal(0.1, "'approximately': the current step takes three more slots")),
        ),
        _row(
            "§2.5.1, √N segments",
            "overhead, a backward twice a forward",
            "100 stages",
            "%",
            "segments_overhead",
            {"stages": 100},
            30.0,
            upheld(equal(0.05, "'around 30%'")),
        ),
        _row(
            "§2.5.2, recursion",
            "g(n) = k + g(n/k + 1), as printed",
            "k = 1, 2, 3",
            solution,
            "recurrence",
            {"printed": True},
            100.0,
            refuted(EXACT, instead=0.0),
            division,
        ),
        _row(
            "§2.5.2, recursion",
            "g(n) = k + g(n/(k + 1))",
            "k = 1, 2, 3",
            solution,
            "recurrence",
            {"printed": False},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§2.5.3, REVOLVE",
            "no stage runs more often than the least depth",
            "n ≤ 40, s ≤ 6",
            "% of the pairs",
            "recursion_depth",
            {},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§3.2.1, Listing 3.4",
            "as printed",
            "a module and a function as loss",
            "% that run",
            "listing_3_4",
            {},
            100.0,
            refuted(EXACT, instead=0.0),
            "__init__ does not call super().__init__(), and a module without it cannot hold or call one",
        ),
        _row(
            "§3.2.3, Drop nested r times",
            "torch.utils.checkpoint",
            "r = 1 … 4",
            "% of r with r + 1 forwards",
            "nested_drops",
            {"deepest": 4},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§4.1, the solver beside √N segments",
            "compute at their peak",
            "100 uniform stages",
            "times the solver's",
            "segments_over_solver",
            {"stages": 100},
            1.0,
            upheld(equal(0.05, "'finds Chen's theoretical optimal policy': one as cheap, to a twentieth")),
        ),
        _row(
            "§4.3, the uniform solver",
            "longest segment on which it recomputes everything",
            "100 stages, 12 slots",
            "stages",
            "longest_quadratic",
            {"stages": 100, "slots": 12},
            1.0,
            refuted(at_most("'only … when there is no other way': never here"), instead=4.0),
            "its base case C(t, 1) is that strategy, and its optimum uses it wherever one slot is left",
        ),
    ]


def _executor() -> list[Published]:
    place, unit, here = "Alg. 3.5", "% of 12 drawn chains", "gradgate.references.chain.paper.executor_printed"

    def tried(series: str, x: str, told: dict[str, bool], printed: float, **more: Any) -> Published:
        return Published(place, series, x, unit, f"{here}:right", told, printed, **more)

    return [
        tried(
            "gradient of plain backprop",
            "base case as printed",
            {"base_printed": True},
            0.0,
            expects=upheld(equal(0.0, "§3.2.4: 'the base case as written does not work'")),
        ),
        tried(
            "gradient of plain backprop",
            "f_{i+1} computed before its backward",
            {},
            100.0,
            expects=upheld(equal(0.0, "§3.2.4 says how the base case is mended")),
        ),
        tried(
            "gradient of plain backprop",
            "line 12 as printed, Layer_i for every l",
            {"layer_printed": True},
            100.0,
            reason="a misprint: Layer_l is meant; right only where a sweep has one layer",
            expects=refuted(EXACT, instead=25.0),
        ),
        tried(
            "gradient of plain backprop",
            "cotangents handed over, as no frame may keep them",
            {"handed": True},
            100.0,
            expects=upheld(EXACT),
        ),
        Published(
            place,
            "peak",
            "strong references on stack frames, 7 layers, least budget",
            "% more bytes",
            f"{here}:kept_by_frames",
            {},
            0.0,
            expects=upheld(more_than("§3.2.4: a frame's reference 'will prevent' that b_j is freed")),
        ),
    ]


def _solver() -> list[Published]:
    return [
        Published(
            "Alg. 3.4, corrected",
            "least compute, and the peak of its policy",
            "600 drawn pairs",
            "% of the pairs",
            "gradgate.references.chain.paper.errata:solver",
            {},
            100.0,
            expects=upheld(equal(0.0, "§3.1.12: 'the final policy solver algorithm', its misprints corrected")),
        ),
        Published(
            "§3.1.4, budgets",
            "least compute needs less than all of m",
            "600 drawn pairs",
            "% of those with a policy",
            "gradgate.references.chain.paper.errata:unused_memory",
            {},
            0.0,
            expects=upheld(more_than("'may not use all of the m permitted memory': there is such a pair")),
        ),
    ]


ROWS = (*_learning(), *_memory(), *_checkpointing(), *_solver(), *_executor())
