"""Statements about the layers of real networks, about the solver's tables, and about small cases, as figures.

The measurements are in `layers` and `small_cases`.
"""

from __future__ import annotations

from gradgate.references.published import (
    Expectation,
    Published,
    at_least,
    at_most,
    equal,
    figures_of,
    less_than,
    more_than,
    refuted,
    upheld,
)

LAYERS, SMALL = "gradgate.references.chain.paper.layers", "gradgate.references.chain.paper.small_cases"
VALUE = "gradgate.references.derived:value"
NETWORKS = {"resnet50": "ResNet-50", "densenet121": "DenseNet-121"}
EXACT = equal(0.0, "the sentence says so of every case")
PIXELS = "224 pixels, batch 32"


def _of_networks(
    place: str, series: str, unit: str, measured: str, printed: float, expects: dict[str, Expectation], reason: str = ""
) -> list[Published]:
    return [
        Published(
            place,
            series,
            f"{name}, {PIXELS}",
            unit,
            f"{LAYERS}:{measured}",
            {"network": network},
            printed,
            reason,
            expects=expects[network],
        )
        for network, name in NETWORKS.items()
    ]


def _both(expects: Expectation) -> dict[str, Expectation]:
    return dict.fromkeys(NETWORKS, expects)


def _networks() -> list[Published]:
    uneven = upheld(more_than("'just how not uniform the layers are': uniform layers give 1"))
    fewer = upheld(at_most("'will always choose to recompute … once rather than … twice': no more stages run again"))
    costlier = upheld(
        more_than("'a uniform cost policy solver does not know this': what it runs again costs more each")
    )
    little = upheld(less_than("'very small', without a number: less than the tensors of the stages"))
    worse = upheld(more_than("'suboptimal'"))
    scheme = "what a backward makes beyond its input's cotangent are the gradients of its parameters"
    once = upheld(equal(0.0, "'restricted to one recomputation': no stage runs forward more than twice"))
    hardly = upheld(less_than("'hardly use fully-connected layers. Instead, … the convolutional layer': fewer"))
    hundreds = upheld(at_least("'could be in the hundreds or thousands', in slots of 1 MB"))
    longer = upheld(more_than("'at times more compute intensive than any of the other layers'"))
    return [
        *_of_networks(
            "Fig. 1.4, layers",
            "longest convolution / longest other layer, by the roofline of nvidia-p100",
            "times",
            "longest_convolution",
            1.0,
            _both(longer),
        ),
        *_of_networks(
            "§2.4.3, fully-connected layers", "over convolutions", "times", "dense_layers", 1.0, _both(hardly)
        ),
        *_of_networks("§3.1.10, m_min", "least budget", "slots of 1 MB", "least_slots", 100.0, _both(hundreds)),
        *_of_networks(
            "§2.5.3, Chen's heuristic with its search",
            "most forwards of a stage",
            "forwards",
            "greedy_runs",
            2.0,
            _both(once),
        ),
        *_of_networks("Fig. 1.4, layers", "FLOPs, largest / mean", "times", "flops_spread", 1.0, _both(uneven)),
        *_of_networks("Fig. 1.4, layers", "bytes, largest / mean", "times", "bytes_spread", 1.0, _both(uneven)),
        *_of_networks(
            "Ch. 1, p. 4, uniform compute",
            "stages that run again, uniform / measured",
            "times",
            "uniform_runs",
            1.0,
            _both(fewer),
        ),
        *_of_networks(
            "Ch. 1, p. 4, uniform compute",
            "FLOPs of each, uniform / measured",
            "times",
            "uniform_price",
            1.0,
            _both(costlier),
        ),
        *_of_networks(
            "Fig. 2.16, weights", "over the peak of the stages' tensors", "times", "weights_share", 1.0, _both(little)
        ),
        *_of_networks(
            "§3.2.2, values and recordings as one",
            "least budget",
            "times that of both apart",
            "as_one_budget",
            1.0,
            _both(worse),
        ),
        *_of_networks(
            "§3.2.2, values and recordings as one",
            "FLOPs within that budget",
            "times",
            "as_one_flops",
            1.0,
            _both(worse),
        ),
        *_of_networks(
            "§2.5.3, Chen's heuristic with its search",
            "peak",
            "times the solver's least budget",
            "greedy_peak",
            1.0,
            _both(upheld(more_than("'does not give the provably optimal memory cost'"))),
        ),
        *_of_networks(
            "§2.5.3, Chen's heuristic with its search",
            "FLOPs",
            "times the solver's within its peak",
            "greedy_flops",
            1.0,
            _both(upheld(more_than("'makes no attempt to optimise for computational cost'"))),
        ),
        *_of_networks(
            "§5.2, backward tensors",
            "largest over its stage's output",
            "times",
            "backward_over_forward",
            10.0,
            _both(upheld(at_least("'sometimes they were even ten times as large'"))),
            scheme,
        ),
    ]


def _quadratic() -> list[Published]:
    place = "§4.3, quadratic segments of ResNet-50, 12 GiB"
    return [
        Published(place, "longest", "batch", "stages", f"{LAYERS}:quadratic_curve"),
        Published(
            place,
            "longest of any batch",
            "",
            "stages",
            VALUE,
            {"of": f"{place} / longest / batch / stages", "take": "largest"},
            1.0,
            expects=upheld(more_than("'starting to employ the quadratic strategy': a segment of one stage is none")),
        ),
        Published(
            "§4.3, ResNet-50, 12 GiB, the batch",
            "peak at batch 80",
            "over batch 40",
            "times",
            f"{LAYERS}:peak_growth",
            {},
            2.0,
            expects=upheld(equal(0.1, "'memory will scale with batch size': what does not scale is small")),
        ),
        Published(
            "§4.3, ResNet-50, 12 GiB, the batch",
            "FLOPs of an image more, batch 240 to 480",
            "over batch 40 to 80",
            "times",
            f"{LAYERS}:later_rate",
            {},
            1.0,
            expects=upheld(more_than("'increases at a faster rate'")),
        ),
        Published(
            "§4.3, ResNet-50, 12 GiB, the batch",
            "peak where quadratic segments begin",
            "over the batch before",
            "times",
            f"{LAYERS}:peak_at_quadratic",
            {},
            1.0,
            "of the batches of Fig. 4.3 it is 480 after 320; the thesis does not say its budget",
            expects=upheld(less_than("'memory dropped at this point despite the increased batch size'")),
        ),
    ]


_row = figures_of(SMALL)


def _tables() -> list[Published]:
    place = "The solver's tables, ResNet-50, slots of one byte"
    less = equal(0.05, "the input's bytes are held throughout, and no m is needed for them")
    return [
        _row(
            f"§3.1.4: {place}",
            "budgets m per pair (i, j)",
            "10 GB",
            "",
            "states",
            {"gigabytes": 10},
            1e10,
            upheld(less),
        ),
        _row(
            f"§5.3: {place}", "budgets m per pair (i, j)", "16 GB", "", "states", {"gigabytes": 16}, 16e9, upheld(less)
        ),
        _row(
            f"§5.3: {place}",
            "bytes of the tables",
            "16 GB",
            "times the budget",
            "tables_over_budget",
            {"gigabytes": 16},
            1.0,
            upheld(more_than("'totally intractable': more than the memory that they are to plan")),
        ),
        _row(
            "§3.1.4: The solver's tables, ResNet-50",
            "growth with the number of slots",
            "10 GB, 1 MB to 1 kB",
            "power of M",
            "table_growth",
            {},
            1.0,
            upheld(equal(0.05, "'iterate from m = 1 all the way': one state more for each m")),
        ),
    ]


def _small() -> list[Published]:
    early = (
        "torch.Tensor, the older constructor, makes tensors of the CPU only: it refuses another device, and the "
        "program ends at line 5"
    )
    leaf = "b is what .cuda() returns, a result and no leaf, so its grad is None; torch.tensor in line 5 mends the rest"
    kept = "the same tensor is saved at each depth, and takes its bytes once"
    one = "the policy of (i, j) is chosen for the whole budget, and within a longer segment less of it is left"
    return [
        _row(
            "§2.2.1, finite differences",
            "evaluations beyond the first",
            "20 drawn networks",
            "per parameter",
            "difference_evaluations",
            {},
            1.0,
            upheld(EXACT),
        ),
        _row(
            "Listing 2.1",
            "as printed",
            "on another device than the CPU",
            "% of its comments",
            "listing_2_1",
            {"constructor": "Tensor"},
            100.0,
            refuted(EXACT, instead=0.0),
            early,
        ),
        _row(
            "Listing 2.1",
            "with torch.tensor",
            "on another device than the CPU",
            "% of its comments",
            "listing_2_1",
            {"constructor": "tensor"},
            100.0,
            refuted(EXACT, instead=80.0),
            leaf,
        ),
        _row(
            "§3.1.6, b_j outside m",
            "least memory stated too high",
            "drawn chains, large targets",
            "%",
            "targets_held",
            {"quantity": "percent"},
            100.0,
            upheld(equal(0.1, "'totally broken'; a chain whose peak is the first backward shows nothing")),
        ),
        _row(
            "§3.1.6, b_j outside m",
            "least memory stated",
            "drawn chains, large targets",
            "times the least",
            "targets_held",
            {"quantity": "times"},
            1.0,
            upheld(more_than("'the targets b_{N+1} will be kept allocated until the entire call has finished'")),
        ),
        _row(
            "§3.2.1, the caller's targets",
            "bytes more at the peak",
            "7 layers, every stage run again",
            "of the targets'",
            "targets_kept",
            {},
            1.0,
            upheld(equal(0.01, "'the targets will not be freed': all of their bytes")),
        ),
        _row(
            "§3.2.3, nested checkpoints",
            "bytes kept at depth 4 / depth 1",
            "torch.utils.checkpoint",
            "times",
            "nested_bytes",
            {},
            4.0,
            refuted(equal(0.1, "'avoids the input being checkpointed repeatedly': 4 copies"), instead=1.0),
            kept,
        ),
        _row(
            "Fig. 5.1, checkpoints",
            "squares",
            "two residual blocks",
            "% that all that follows can be made from",
            "separators",
            {"kind": "squares"},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "Fig. 5.1, checkpoints",
            "circles",
            "two residual blocks",
            "% that all that follows can be made from",
            "separators",
            {"kind": "circles"},
            0.0,
            upheld(EXACT),
        ),
        *(
            _row(
                f"Fig. {figure}, checkpoints",
                kind,
                what,
                "% that all that follows can be made from",
                "separators",
                {"kind": kind},
                printed,
                upheld(EXACT),
            )
            for figure, kind, what, printed in (
                ("5.2", "ends of branches", "a split and a merge", 100.0),
                ("5.2", "single nodes of branches", "a split and a merge", 0.0),
                ("5.3", "one node of each branch", "a split and a merge", 100.0),
            )
        ),
        _row(
            "Fig. 5.4, checkpoints",
            "nodes of a tree",
            "7 nodes",
            "% that subsume their subtree",
            "subsumed",
            {},
            100.0,
            upheld(EXACT),
        ),
        *(
            _row(
                "§5.2, largest bag that nodes are merged into",
                series,
                f"{what}, bags in a {shape}",
                "nodes",
                "largest_bag",
                {"kind": kind, "shape": shape},
                printed,
                upheld(equal(0.0, "nodes are whole")),
            )
            for kind, series, what, printed in (
                ("skip", "skip connection", "two blocks", 3.0),
                ("merge", "split and merge", "two branches of two", 2.0),
            )
            for shape in ("sequence", "tree")
        ),
        _row(
            "§5.3, m not in the state",
            "a policy within the budget is found",
            "drawn pairs that have one",
            "%",
            "constrained",
            {"quantity": "solved"},
            100.0,
            upheld(EXACT),
        ),
        _row(
            "§5.3, m not in the state",
            "it computes least",
            "drawn pairs that have one",
            "%",
            "constrained",
            {"quantity": "least"},
            100.0,
            refuted(equal(0.0, "'we still minimise Q(i, j, k)'"), instead=90.06, spread=0.01),
            one,
        ),
        Published(
            "§3.1.11, memoised over j",
            "lines that carry 'recompute everything' along",
            "16 stages, 60 slots",
            "times the rest of the loop over j",
            "gradgate.references.chain.paper.memoised:quadratic_share",
            {},
            1.0,
            expects=upheld(less_than("'very little compared to the size of the j loop', without a number: less")),
        ),
    ]


ROWS = (*_networks(), *_quadratic(), *_tables(), *_small())
