"""What the paper says in words about its curves, as figures that can fail, and bytes by kind of buffer.

Most come from figures that are measured anyway (`references.derived`); none is measured twice.
"""

from __future__ import annotations

from typing import Any

from gradgate.references.bilevel.inner.transformer import SIZES
from gradgate.references.bilevel.paper import sizes as sizes
from gradgate.references.bilevel.paper.scale import MIXFLOW, PROFILES
from gradgate.references.published import (
    Expectation,
    Published,
    at_least,
    at_most,
    equal,
    refuted,
    unexplained,
    upheld,
)

HERE, SIZES_OF = "gradgate.references.bilevel.paper.said", "gradgate.references.bilevel.paper.sizes"
DERIVED = "gradgate.references.derived"
GPU = PROFILES["GPU"]
MODELS = (44, 140, 278, 489, 1018, 2639, 6796, 12295, 16183)
"""Nine of the 22 models of Table 6; the smallest and the largest are among them."""
SWEEP = "Table 6, nine of 22 models, GPU"
CURVE = f"{SWEEP} / bytes / 44M to 16183M"
NAMED = "Table 2, 489M, bytes live at the peak by kind, GPU"
SECONDS = "printed are seconds, ours are FLOPs or rooflines"
STATIC = (
    "beyond what A.2 calls static, mixed mode holds five to six arrays like θ: cotangents of θ and υ, the gradient, a "
    "tangent and a product. They count as dynamic by Eq. 10, and at the large end they are all that is left of it "
    "(Table 2, bytes by kind)"
)
"""Why the ratios of Fig. 8 differ, as tested by the kinds of buffers at 489M."""


def fitting(profile: str, models: list[int]) -> float:
    """Parameters of the largest model that fits the paper's device in mixed mode, over those of the default's."""
    found = sizes.ladder(profile, models)

    def largest(signs: str) -> float:
        shares = found[f"total of {signs} over the device"]
        return max(m for m, share in zip(found["millions"], shares, strict=True) if share <= 1)

    return largest(MIXFLOW) / largest("-+-")


def deviation(relative: bool) -> float:
    """Parameters of the model of Table 6 that is furthest from the printed number, over this number.

    Args:
        relative: whether projections of relative positions, L·d·h·k numbers, are added; a model with RoPE has none.
    """

    def of(size: Any) -> float:
        more = size.layers * size.width * size.heads * size.key_size if relative else 0
        return (size.parameters() + more) / 1e6 / size.millions

    return max((of(size) for size in SIZES.values()), key=lambda quotient: abs(quotient - 1))


def configurations() -> float:
    """The configurations of Table 1, for one task."""
    return float(len(sizes.TABLE_1) * len(sizes.STEPS) * len(sizes.BATCHES) * len(sizes.CONTEXTS))


def without_a_time() -> float:
    """The least bytes in G that Tables 2 and 3 print for the GPU without a step time."""
    from gradgate.references.bilevel.paper.rows import TABLE_2, TABLE_3
    from gradgate.references.bilevel.paper.times import SECONDS as TIMES

    tables = ((489, TABLE_2), (44, TABLE_3))
    return min(table[signs][0] for millions, table in tables for signs in table if signs not in TIMES[millions]["GPU"])


def toy_work(transformations: int) -> float:
    """Percent of the FLOPs that mixed mode saves compared with the default in the motivating example."""
    from gradgate.references.bilevel.paper import scale

    spec = scale.toy(transformations)
    return 100 * (1 - scale.flops(spec, "+--") / scale.flops(spec, "---"))


def chunk(profile: str, millions: int) -> float:
    """Percent of what mixed mode takes away from -++ that is kept of every layer."""
    names = ("kept of every layer",)
    taken = sum(sizes.named(profile, "-++", name, millions) - sizes.named(profile, MIXFLOW, name, millions)
                for name in names)  # fmt: skip
    every = sum(
        sizes.named(profile, "-++", name, millions) - sizes.named(profile, MIXFLOW, name, millions)
        for name in sizes.NAMES
    )
    return 100 * taken / every


def static_quotient(profile: str, millions: int) -> float:
    """Static bytes of -++ over those of +++: arguments, results and what is kept of every step, at the peak."""

    def static(signs: str) -> float:
        return sum(sizes.named(profile, signs, name, millions) for name in sizes.NAMES[:2])

    return static("-++") / static(MIXFLOW)


def inputs_kept(profile: str, millions: int) -> float:
    """How many arrays (L, B, S, d) mixed mode keeps of the layers at its peak, of any kind."""
    from gradgate.references.bilevel.paper import scale

    spec = scale.configuration(millions)
    one = 4 * spec.layers * spec.batch * spec.sequence * spec.width / scale.GiB
    kept = sum(sizes.named(profile, MIXFLOW, name, millions) for name in ("inputs of layers", "kept of every layer"))
    return kept / one


def _row(
    place: str, series: str, x: Any, unit: str, measured: str, told: dict[str, Any], printed: float | None = None,
    expects: Expectation | None = None, reason: str = "", unlike: str = "",
) -> Published:  # fmt: skip
    return Published(place, series, x, unit, measured, told, printed, reason, expects=expects, unlike=unlike)


def _value(of: str, take: str) -> tuple[str, dict[str, Any]]:
    return f"{DERIVED}:value", {"of": of, "take": take}


def _seconds() -> list[Published]:
    place, flops, roofline = (
        "§5.2, points of Fig. 4",
        "Fig. 4, step time as FLOPs",
        "Fig. 4, step time as roofline, GPU",
    )
    apart = "a roofline is a bound, not a time: no kernel reaches it; the seconds of an H100 are not measured"
    return [
        _row(
            place, "step time, largest gain", "roofline of 9 of 405 points", "times", *_value(roofline, "largest"),
            1 / 0.75, unexplained(at_least('"reach 25% for GPU"'), 1.267), apart, SECONDS,
        ),
        _row(
            place, "step time, middle gain", "mean FLOPs of 9 of 405 points", "times", *_value(flops, "mean"), 1 / 0.88,
            upheld(equal(0.05, '"a median improvement of 12%", two digits; the mean of nine points in its place')),
            "", SECONDS,
        ),
        _row(
            place, "step time, spread", "FLOPs of 9 of 405 points", "times", f"{DERIVED}:span", {"of": flops}, 1.0,
            upheld(equal(0.1, '"almost uniform across configurations"')), "", SECONDS,
        ),
        _row(
            place, "dynamic bytes, least gain", "9 of 405 points", "times",
            *_value("Fig. 4, dynamic bytes, GPU", "least"), 1.0,
            upheld(at_least('"reduced for all hyperparameter combinations"; nine points are measured')),
        ),
        _row(
            place, "dynamic bytes, largest gain", "9 of 405 points", "times",
            *_value("Fig. 4, dynamic bytes, GPU", "largest"), 10.0,
            unexplained(at_least('"peak reductions exceeding 90% (over 10x less memory)"'), 7.548),
            "the largest configuration of Table 1, 306M at T = B = 8 and a context of 8192, is among the nine points",
        ),
        *(
            _row(
                place, "dynamic bytes, learning_lr over maml", take, "times", f"{DERIVED}:quotient",
                {"over": "Fig. 4, dynamic bytes, GPU / learning_lr", "under": "Fig. 4, dynamic bytes, GPU / maml",
                 "take": take}, 1.0, upheld(equal(0.15, '"highly correlated gains between tasks": near-equal gains')),
            )
            for take in ("least", "largest")
        ),
        *(
            _row(
                place, "dynamic bytes, loss_weighting over maml", take, "times", f"{DERIVED}:quotient",
                {"over": "Fig. 4, dynamic bytes, GPU / loss_weighting", "under": "Fig. 4, dynamic bytes, GPU / maml",
                 "take": take}, 1.0, upheld(equal(0.15, '"highly correlated gains between tasks": near-equal gains')),
            )
            for take in ("least", "largest")
        ),
        _row(
            place, "dynamic bytes, spread", "9 of 405 points", "times", f"{DERIVED}:span",
            {"of": "Fig. 4, dynamic bytes, GPU"}, 1.1,
            upheld(at_least('"memory gains vary significantly": by more than the tenth that counts as uniform')),
        ),
        _row(
            "Table 1", "configurations per task", "5·3·3·3", "", f"{HERE}:configurations", {}, 135.0,
            upheld(equal(0.0, "a number of combinations")),
        ),
    ]  # fmt: skip


def _sweeps() -> list[Published]:
    shares = (
        "arrays like θ count as dynamic by Eq. 10 and do not depend on B or T: 8.0 of the 18.7 GiB of +++ at 489M, "
        "B = 4 and T = 2 (Table 2, bytes by kind). Ours is at S = 2048, B = 4 and T = 2 on the other axes; at Table "
        "4's 8192, 8 and 8, where activations weigh more, it is not measured"
    )
    constant = equal(0.1, '"the gains are constant across B and T"')
    fig_5 = "Fig. 5, 278M, GPU, over"
    return [
        _row("Fig. 5, in words", "span of the gain", "over B", "times", f"{DERIVED}:span", {"of": f"{fig_5} batch"},
             1.0, unexplained(constant, 1.828), shares),
        _row("Fig. 5, in words", "span of the gain", "over T", "times", f"{DERIVED}:span", {"of": f"{fig_5} steps"},
             1.0, unexplained(constant, 1.26), shares),
        _row(
            "Fig. 5, in words", "exponent of the gain", "over S, 4096 to 8192", "", f"{DERIVED}:growth",
            {"of": f"{fig_5} sequence", "between": [4096, 8192]}, 0.0,
            upheld(at_most('"sub-linearly increase towards" a limit: no growth at the largest contexts')),
        ),
        *(
            _row("Fig. 6, in words", "span of the gain", f"over {name}", "times", f"{DERIVED}:span",
                 {"of": f"Fig. 6, GPU, over {name}"}, 1.1,
                 upheld(at_least('"the real numbers differ in practice": by more than a tenth')))
            for name in ("d_model", "ffw_size", "n_heads")
        ),
    ]  # fmt: skip


def _ladder() -> list[Published]:
    def at(name: str, take: str) -> tuple[str, dict[str, Any]]:
        return _value(f"{CURVE} / {name}", take)

    told = {"profile": GPU, "models": list(MODELS)}
    place = f"{SWEEP}, in words"
    context = "ours is at a context of 2048, the paper names none"
    return [
        _row(SWEEP, "bytes", "44M to 16183M", "", f"{SIZES_OF}:ladder", told),
        _row(
            place, "largest model that fits, -+- to +++", "parameters", "times", f"{HERE}:fitting", told, 10.0,
            unexplained(at_least('"scale bilevel gradient setups by more than an order of magnitude"'), 7.271),
            f"{context}; of nine models the default fits up to 140M, mixed mode up to 1018M",
        ),
        _row(
            place, "-+- over 80 GiB", "least from 1018M on", "times", f"{DERIVED}:value",
            {"of": f"{CURVE} / total of -+- over the device", "take": "least", "between": [1018, 16183]}, 10.0,
            unexplained(at_least('"starting from 1B … outgrow any available memory by more than one order"'), 1.96),
            f"{context}; by default 12295M is the first of nine models that needs ten devices, 14.6 of them",
        ),
        _row(
            place, "one inner step of -+- over 80 GiB", "1018M, the middle of nine", "times", f"{DERIVED}:value",
            {"of": f"{CURVE} / one inner step of -+- over the device", "take": "first", "between": [1018, 1018]}, 1.0,
            upheld(at_least('"typically, one inner step already uses all … memory": the middle model')),
        ),
        _row(
            place, "total of -+- over +++", "largest", "times", *at("total of -+- over +++", "largest"), 10.0,
            unexplained(at_least('§6: "up to 10x total memory reductions"'), 3.695),
            f"{context}; A.2 itself prints 4 to 6 for all bytes, and Fig. 7 more than 10 for dynamic ones alone",
        ),
        _row(
            place, "static over dynamic of +++", "16183M", "times", *at("static over dynamic of +++", "last"), 1.0,
            upheld(at_least('"turning static memory into the dominating part"')),
        ),
        _row(
            place, "dynamic over static of -+-", "44M", "times", *at("dynamic over static of -+-", "first"), 75.0,
            unexplained(equal(1 / 3, '"shrinks from 50-100"'), 18.07), f"{STATIC}; {context}",
        ),
        _row(
            place, "dynamic over static of -+-", "16183M", "times", *at("dynamic over static of -+-", "last"), 7.5,
            unexplained(equal(1 / 3, '"to 5-10 for default implementation"'), 2.306), f"{STATIC}; {context}",
        ),
        _row(
            place, "total of -+- over +++", "16183M", "times", *at("total of -+- over +++", "last"), 5.0,
            unexplained(equal(0.2, '"peak HBM memory gains to reduce … to 4-6x"'), 1.607), f"{STATIC}; {context}",
        ),
    ]  # fmt: skip


def _named() -> list[Published]:
    rows = [
        _row(NAMED, signs, name, "GiB", f"{SIZES_OF}:named",
             {"profile": GPU, "optimisations": signs, "name": name, "millions": 489})
        for signs in ("-++", "-+-", "+++") for name in sizes.NAMES
    ]  # fmt: skip
    place, told = f"{NAMED}, in words", {"profile": GPU, "millions": 489}
    rows += [
        _row(
            place, "what +++ takes away from -++", "kept of every layer", "%", f"{HERE}:chunk", told, 100.0,
            upheld(equal(0.15, '"responsible for reducing a specific chunk": nearly all of it is of one kind')),
        ),
        _row(
            place, "static bytes", "-++ over +++", "times", f"{HERE}:static_quotient", told, 1.0,
            upheld(equal(0.01, '"it does not change the static memory allocations"')),
        ),
        _row(
            place, "kept of the layers by +++", "arrays (L, B, S, d)", "", f"{HERE}:inputs_kept", told, 1.0,
            refuted(equal(0.1, '"only a single memory buffer for activations"'), 2.0),
            "the reverse pass inside keeps every layer's input, and forward mode its tangent: two arrays of each layer",
        ),
    ]  # fmt: skip
    return rows


def _numbers() -> list[Published]:
    return [
        _row(
            "Table 6, in words", "parameters over the printed number", "with relative positions", "times",
            f"{HERE}:deviation", {"relative": True}, 1.0, upheld(equal(0.01, "two to five digits are printed")),
        ),
        _row(
            "Table 6, in words", "parameters over the printed number", "with RoPE", "times", f"{HERE}:deviation",
            {"relative": False}, 1.0, refuted(equal(0.01, "two to five digits are printed"), 0.9238),
            "the printed numbers count projections of relative positions, L·d·h·k weights; RoPE, named in §5, has none",
        ),
        _row(
            "Tables 2 and 3, in words", "least bytes without a step time, GPU", "as printed", "G",
            f"{HERE}:without_a_time", {}, 80.0,
            refuted(at_least('"44M model, which fits into single-core device memory": N/A is more than 80 GiB'), 76.4),
            "by the paper's own numbers: 76.4 G have no time and 54.5 G have one. JAX takes 75% of a GPU by default, "
            "60 GiB, which lies between them",
        ),
        _row(
            "Table 3, in words", "44M, --- on GPU", "no optimisation", "GiB",
            *_value("Table 3, 44M / HBM, GPU / ---", "first"), 80.0,
            unexplained(at_least('"to avoid running out of memory even for smallest networks"'), 53.62),
            "ours is at a context of 2048, the paper names none; printed are 94.2 G",
        ),
        _row(
            "Fig. 1, in words", "step time saved", "FLOPs, M = 256", "%", f"{HERE}:toy_work", {"transformations": 256},
            85.0, unexplained(at_least('"wall-clock reductions up to 85%"'), -0.0143, 0.5),
            "both programs have the same FLOPs to 0.02% at M = 4, 16, 64 and 256, so what was saved is traffic; the "
            "seconds of an H100 are not measured", SECONDS,
        ),
    ]  # fmt: skip


def _listing_4() -> list[Published]:
    place, listings = "Listing 4, loop fusion on, GPU", "gradgate.references.bilevel.paper.listings"
    told: dict[str, Any] = {"profile": GPU, "transformations": 16}
    fewer = at_most('"the mixed-mode version contains far fewer data blocks"')
    return [
        _row(
            place, "bytes saved", "M = 16", "%", f"{listings}:toy_saved_fused", told | {"fused": True}, 85.0,
            upheld(equal(0.05, '"reductions up to 85%", two digits; the compiler may fuse here')),
        ),
        *(
            _row(
                place, f"{what}, mixed mode over default", "M = 16", "times", f"{listings}:toy_graph",
                told | {"what": what}, 1.0, upheld(fewer),
            )
            for what in ("buffers", "instructions")
        ),
    ]  # fmt: skip


def _graphs() -> list[Published]:
    place, listings = "§3.2, Listing 4 with M in the text, GPU", "gradgate.references.bilevel.paper.listings"
    kinds = (("default", False), ("mixed mode", True))
    longer = upheld(at_least('"gets longer as … M increases": by a tenth, which with M in a scan it does not'))
    return [
        *(
            _row(
                place, f"instructions, {name}", transformations, "", f"{listings}:toy_instructions",
                {"profile": GPU, "transformations": transformations, "mixed": mixed},
            )
            for name, mixed in kinds for transformations in (2, 4, 8)
        ),
        _row(
            f"{place}, in words", "instructions, default", "M = 8 / M = 2", "times", f"{DERIVED}:quotient",
            {"over": f"{place} / instructions, default / 8", "under": f"{place} / instructions, default / 2",
             "take": "last"}, 1.1, longer,
        ),
        *(
            _row("§3.2, Listing 4 before it is compiled", f"operations, {name}", "M = 8 / M = 2", "times",
                 f"{listings}:toy_longer", {"mixed": mixed}, 1.1, longer)
            for name, mixed in kinds
        ),
    ]  # fmt: skip


def _figure_2() -> list[Published]:
    place, series = "Fig. 2, 44M, +++, GPU", "share of the instructions, mean by bytes"
    told: dict[str, Any] = {"profile": GPU, "millions": 44}
    return [
        _row(
            place, series, "static", "", f"{SIZES_OF}:lives", told | {"static": True}, 1.0,
            upheld(equal(0.1, '"allocated at the beginning of a program for the whole execution time"')),
        ),
        _row(
            place, series, "dynamic", "", f"{SIZES_OF}:lives", told | {"static": False}, 0.5,
            upheld(at_most('"re-purposed for new activations": each is live for less than half of the program')),
        ),
    ]  # fmt: skip


SAID: tuple[Published, ...] = (
    *_seconds(), *_sweeps(), *_ladder(), *_named(), *_numbers(), *_listing_4(), *_graphs(), *_figure_2(),
)  # fmt: skip
