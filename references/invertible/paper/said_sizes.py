"""Statements about n, d, the largest layer, seconds and directions, as figures that can fail.

The measurements are in `sizes`, `timings`, `directions` and `digits`.
"""

from __future__ import annotations

from gradgate.references.invertible.paper import directions
from gradgate.references.published import Published, at_most, equal, figures_of, less_than, more_than, refuted, upheld

PAPER = "gradgate.references.invertible.paper"


_row = figures_of(PAPER)


def _outperform() -> list[Published]:
    place, net = "§1, both time and memory", "64 couplings, n = 2, 32 hidden, 4096 samples"
    both = upheld(less_than('"can outperform Backprop in both time and memory requirements": here it does'))
    fewer = "it runs more FLOPs than backprop, but reads and writes far fewer bytes"
    columns = (
        "layers of two products with d hidden numbers, whose JVP costs n·d and not n²: what forward takes grows with d"
    )
    law = "by Table 1 the factor is n·d·L/(n + d), between a half of min(n, d)·L and all of it, and grows 1.127 times"
    small = upheld(less_than('"particularly when the dimensionality of the input is small"'))
    wide = equal(0.15, "the factor is n for both d; the parts beyond JVPs weigh a little less in wide layers")
    return [
        _row(
            place,
            "seconds, moonwalk / backprop, on this CPU",
            net,
            "times",
            "timings:over_backprop",
            {"method": "moonwalk"},
            1.0,
            both,
            fewer,
        ),
        _row(
            place,
            "temporary bytes, moonwalk / backprop, nvidia-a4500",
            net,
            "times",
            "sizes:deep_bytes",
            {"method": "moonwalk"},
            1.0,
            both,
        ),
        *(
            _row(
                "§1, work over n",
                f"{method} / backprop",
                "4 layers",
                "times",
                "sizes:work_curve",
                {"method": method},
                None,
                None,
            )
            for method in ("moonwalk", "forward")
        ),
        _row(
            "§1, work over n, small against large",
            "moonwalk / backprop",
            "n = 2 / n = 32",
            "times",
            "sizes:small_over_large",
            {"method": "moonwalk"},
            1.0,
            small,
        ),
        _row(
            "§3.2, min(n, d) where d is above n",
            "work over backprop's, d = 82 / d = 22, n = 4",
            "Table 1's layers, one JVP per column",
            "times",
            "sizes:columns_growth",
            {"few": 22, "many": 82},
            1.0,
            upheld(wide),
            law,
        ),
        _row(
            "§3.2, min(n, d) where d is above n",
            "work over backprop's, d = 82 / d = 22, n = 4",
            "one JVP per column",
            "times",
            "sizes:work_with_wide",
            {"method": "forward"},
            None,
            None,
            columns,
        ),
        _row(
            "§3.2, min(n, d) where d is above n",
            "work over backprop's, d = 82 / d = 22, n = 4",
            "n JVPs from each layer on",
            "times",
            "sizes:work_with_wide",
            {"method": "by_suffixes"},
            1.0,
            upheld(wide),
        ),
    ]


def _memory() -> list[Published]:
    words = '"only depends on the largest layer": seven more of its size add nothing'
    largest, smaller = upheld(equal(0.05, words)), upheld(at_most(f"{words}, and may take something away"))
    every = upheld(more_than('"methods involving Backprop require storing all the activations"'))
    widths = "temporary bytes, 8 wide couplings / 1 of 8"
    kept = equal(0.15, "a float32 per number; the mask of the ReLU takes another eighth")
    values = "the activations of one layer and their tangents take sixty times the bytes of all gradients"
    return [
        *(
            _row(
                "§5, the largest layer",
                widths,
                method,
                "times",
                "sizes:all_wide_over_one",
                {"method": method},
                1.0,
                said,
            )
            for method, said in (("forward", largest), ("reversible", smaller), ("moonwalk", largest))
        ),
        _row(
            "§5, the largest layer",
            widths,
            "backprop",
            "times",
            "sizes:all_wide_over_one",
            {"method": "backprop"},
            1.0,
            every,
        ),
        _row(
            "§4.2, the worst case",
            "peak bytes, moonwalk_mixed / plain autograd",
            "16 couplings, 256 hidden",
            "times",
            "sizes:worst_case",
            {},
            1.0,
            upheld(equal(0.1, '"as high as Backprop’s"')),
        ),
        _row(
            "Fig. 1, caption, 32·32·8 per layer and block",
            "kept by backprop",
            "8 channels",
            "numbers per sample",
            "sizes:kept_by_a_layer",
            {},
            8192.0,
            upheld(kept),
        ),
        _row(
            "§6.3, what forward takes",
            "gradients over gradients and temporaries",
            "8 channels, 10 layers per block",
            "%",
            "sizes:gradient_share",
            {},
            100.0,
            refuted(
                equal(0.1, '"consists only of the memory allocated for the storage of gradient updates"'), instead=1.6
            ),
            values,
        ),
    ]


def _seconds() -> list[Published]:
    joined = "batch norm joins the samples, so h_0 takes a JVP per number of the batch, 512 times the n of §4.1"
    place, grown = "§6.4, least seconds by the A4500's peak", "§6.4, seconds at 60 layers"
    seconds = [
        _row(
            place,
            series,
            layers,
            "s",
            "sizes:least_seconds",
            {"method": method, "layers": layers, "norm": norm},
            None,
            None,
            reason,
        )
        for series, method, norm, reason in (
            ("moonwalk", "moonwalk", "batch", joined),
            ("moonwalk without batch norm", "moonwalk", "none", ""),
            ("forward", "forward", "batch", ""),
        )
        for layers in (6, 60)
    ]
    more = more_than('"more than 80000 seconds"')
    largest = at_most('§6.1: "one of {1, 3, 5, 10}" layers in each of three blocks: no more than the deepest has')
    return [
        *seconds,
        *(
            _row(
                grown,
                f"{method}, printed seconds at 6 layers · growth of FLOPs",
                "60",
                "s",
                "sizes:seconds_by_growth",
                {"method": method},
                printed,
                upheld(said),
            )
            for method, printed, said in (
                ("moonwalk", 700.0, equal(0.1, "printed in two digits; what is no JVP grows less")),
                ("forward", 80_000.0, more),
            )
        ),
        *(
            _row(
                "§6.4, days of Forward",
                "layers at which five days of Moonwalk are 300 of Forward",
                f"by a {scale} through the printed ratios at 6 and 60 layers",
                "times those of the deepest",
                "sizes:layers_of_ratio",
                {"ratio": 60.0, "scale": scale},
                1.0,
                upheld(largest),
            )
            for scale in ("line", "power")
        ),
        _row(
            "§6.2, seconds of forward",
            "256 tangents together / one at a time",
            "8 layers, on this CPU",
            "times",
            "timings:mapped_over_single",
            {},
            1.0,
            upheld(less_than('"accelerates computation"')),
        ),
        _row(
            "§6.2, seconds of compiling forward",
            "JVPs one after the other, written out / mapped",
            "1 layer, on this CPU",
            "times",
            "timings:compile_unrolled_over_mapped",
            {},
            1.0,
            upheld(more_than('"significantly increases compilation time", without a number: longer')),
        ),
    ]


def _directions() -> list[Published]:
    sine = upheld(equal(1e-6, "what a unit direction leaves out of the gradient is the sine of their angle"))
    return [
        *(
            _row(
                "§6.7, a direction that is known",
                "error over the sine of its angle",
                f"{angle:g} radians",
                "times",
                "directions:error_over_sine",
                {"angle": angle},
                1.0,
                sine,
            )
            for angle in directions.ANGLES
        ),
        _row(
            "§3.3, the last step's gradient as u",
            "share of the gradient that is kept",
            "digits, 60 steps",
            "times a normal u's",
            "directions:past_share",
            {},
            1.0,
            upheld(more_than('"predicted based on past gradients": better than at random')),
        ),
    ]


def _training() -> list[Published]:
    near = (
        "behind tanh that is steep enough, as weights of 0.3 leave it, reversing errs by 1e-5 of the gradient, and "
        "both end in one place. The sentence is about Gomez et al. (2017) and Jacobsen et al. (2018)"
    )
    return [
        _row(
            "§6.6, a different local minimum",
            "reversible, from backprop's parameters / backprop's from the start",
            "digits, 200 steps, 2 starts",
            "of the way",
            "digits:apart",
            {"method": "reversible", "steps": 200, "seeds": 2},
            None,
            None,
            near,
        ),
    ]


ROWS = (*_outperform(), *_memory(), *_seconds(), *_directions(), *_training())
