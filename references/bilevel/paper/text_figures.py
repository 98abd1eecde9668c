"""What the paper says in words about its curves, as figures that can fail, and bytes by kind of buffer.

Most come from figures that are measured anyway (`references.derived`); none is measured twice.
"""

from __future__ import annotations

import math
from typing import Any

from gradgate.references.bilevel.inner.transformer import SIZES
from gradgate.references.bilevel.paper import sizes as sizes
from gradgate.references.bilevel.paper.scale import MIXFLOW, PROFILES
from gradgate.references.published import (
    Published,
    equal,
    figures_of,
    less_than,
    more_than,
    refuted,
    unexplained,
    upheld,
)

HERE, SIZES_OF = "gradgate.references.bilevel.paper.text_figures", "gradgate.references.bilevel.paper.sizes"
DERIVED = "gradgate.references.derived"
GPU = PROFILES["GPU"]
NAMED = "Table 2, 489M, bytes live at the peak by kind"
SECONDS = "printed are seconds, ours are FLOPs or rooflines"


def small_models(name: str) -> float:
    """How much the gain differs between the two smallest models of a sweep of Table 5: on the GPU over on the TPU."""

    def differs(profile: str) -> float:
        first, second = (sizes.gain_at(profile, 44, **fields) for fields in sizes.COMPONENTS[name][:2])
        return abs(math.log(first / second))

    return differs(PROFILES["GPU"]) / differs(PROFILES["TPU"])


def device(profile: str) -> float:
    """GiB of a device of the paper."""
    return float(sizes.DEVICE[profile])


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


def changed_lines(rule: bool) -> float:
    """Lines of code that mixed mode changes or adds in a user's own loop over steps (§3.2; Listing 1).

    Args:
        rule: whether the lines of Listing 1, which a user copies once, are counted; else those of the loop alone.
    """
    import ast
    import inspect

    from gradgate.references.bilevel.in_jax import drop_in
    from gradgate.references.bilevel.paper import listings

    loop = ast.walk(ast.parse(inspect.getsource(drop_in)))
    changed = sum(isinstance(node, ast.alias | ast.Name) and "mixed_mode_grad" in ast.unparse(node) for node in loop)
    if not rule:
        return float(changed)
    [function] = ast.parse(inspect.getsource(listings.fwdrev_grad)).body
    assert isinstance(function, ast.FunctionDef)
    function.body = function.body[1:]  # the docstring
    return float(changed + len(ast.unparse(function).splitlines()))


def toy_work(transformations: int) -> float:
    """Percent of the FLOPs that mixed mode saves compared with the default in the motivating example."""
    from gradgate.references.bilevel.paper import scale

    spec = scale.toy(transformations)
    return 100 * (1 - scale.flops(spec, "+--") / scale.flops(spec, "---"))


def chunk(profile: str, millions: int) -> float:
    """Percent of what mixed mode takes away from -++ that is kept of every layer."""
    names = ("kept of every layer",)
    taken = sum(
        sizes.named(profile, "-++", name, millions) - sizes.named(profile, MIXFLOW, name, millions) for name in names
    )
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


_row = figures_of(HERE)


def _value(of: str, take: str) -> tuple[str, dict[str, Any]]:
    return f"{DERIVED}:value", {"of": of, "take": take}


def _seconds() -> list[Published]:
    place, flops, roofline = (
        "§5.2, points of Fig. 4",
        "Fig. 4, step time as FLOPs",
        "Fig. 4, step time as roofline, GPU",
    )
    apart = "a roofline is a bound, not a time: no kernel reaches it; of two rooflines only the quotient is compared"
    return [
        _row(
            place,
            "step time, largest gain",
            "roofline of 9 of 405 points",
            "times",
            *_value(roofline, "largest"),
            1 / 0.75,
            upheld(equal(0.05, '"reach 25% for GPU", two digits, as the median')),
            apart,
            SECONDS,
        ),
        _row(
            place,
            "step time, middle gain",
            "mean FLOPs of 9 of 405 points",
            "times",
            *_value(flops, "mean"),
            1 / 0.88,
            upheld(equal(0.05, '"a median improvement of 12%", two digits; the mean of nine points in its place')),
            "",
            SECONDS,
        ),
        _row(
            place,
            "step time, spread",
            "FLOPs of 9 of 405 points",
            "times",
            f"{DERIVED}:span",
            {"of": flops},
            1.0,
            upheld(equal(0.1, '"almost uniform across configurations"')),
            "",
            SECONDS,
        ),
        _row(
            place,
            "dynamic bytes, least gain",
            "9 of 405 points",
            "times",
            *_value("Fig. 4, dynamic bytes, GPU", "least"),
            1.0,
            upheld(more_than('"reduced for all hyperparameter combinations"; nine points are measured')),
        ),
        _row(
            place,
            "dynamic bytes, largest gain",
            "9 of 405 points",
            "times",
            *_value("Fig. 4, dynamic bytes, GPU", "largest"),
            10.0,
            unexplained(more_than('"peak reductions exceeding 90% (over 10x less memory)"'), 7.548),
            "the largest configuration of Table 1, 306M at T = B = 8 and a context of 8192, is among the nine points",
        ),
        *(
            _row(
                place,
                f"dynamic bytes, {task} over maml",
                take,
                "times",
                f"{DERIVED}:quotient",
                {
                    "over": f"Fig. 4, dynamic bytes, GPU / {task}",
                    "under": "Fig. 4, dynamic bytes, GPU / maml",
                    "take": take,
                },
                1.0,
                upheld(equal(0.15, '"highly correlated gains between tasks": near-equal gains')),
            )
            for task in ("learning_lr", "loss_weighting")
            for take in ("least", "largest")
        ),
        _row(
            place,
            "dynamic bytes, spread",
            "9 of 405 points",
            "times",
            f"{DERIVED}:span",
            {"of": "Fig. 4, dynamic bytes, GPU"},
            None,
            None,
            '"memory gains vary significantly" names no number',
        ),
        _row(
            "Table 1",
            "configurations per task",
            "5·3·3·3",
            "",
            f"{HERE}:configurations",
            {},
            135.0,
            upheld(equal(0.0, "a number of combinations")),
        ),
    ]


def _sweeps() -> list[Published]:
    differ = more_than(
        '"could be expected to be near-constant", but "the real numbers differ": a constant has a span of 1'
    )
    of = "Fig. 6, {}, over {}"
    return [
        *(
            _row(
                "Fig. 6, in words",
                f"span of the gain, {device}",
                f"over {name}",
                "times",
                f"{DERIVED}:span",
                {"of": of.format(device, name)},
                1.0,
                upheld(differ),
            )
            for device in PROFILES
            for name in ("d_model", "ffw_size", "n_heads")
        ),
        *(
            _row(
                "Fig. 6, in words",
                "difference between the two smallest models",
                f"GPU over TPU, {name}",
                "times",
                f"{HERE}:small_models",
                {"name": name},
                1.0,
                unexplained(more_than('"especially for small models on GPUs"'), pinned),
                "with today's compilers the two smallest models differ more on the TPU. The paper names neither batch "
                "nor context; ours are 4 and 2048",
            )
            for name, pinned in (("d_model", 0.4811), ("ffw_size", 0.7856))
        ),
        _row(
            "Fig. 6, in words",
            "growth of the gain, TPU",
            "exponent of L",
            "",
            f"{DERIVED}:growth",
            {"of": of.format("TPU", "n_layers")},
            1.0,
            unexplained(equal(0.1, '"scale linearly with the number of layers": an exponent of 1'), 0.6454),
            "bytes at the peak are 4.1 GiB + 1.09 GiB·L by default and 3.0 GiB + 55 MiB·L in mixed mode (by the "
            "programs of this sweep): the constants keep the exponent below 1, as on the GPU",
        ),
    ]


def _named() -> list[Published]:
    rows = [
        _row(
            f"{NAMED}, {device}",
            signs,
            name,
            "GiB",
            f"{SIZES_OF}:named",
            {"profile": PROFILES[device], "optimisations": signs, "name": name, "millions": 489},
        )
        for device, chosen in (("GPU", ("-++", "-+-", "+++")), ("TPU", ("-++", "+++")))
        for signs in chosen
        for name in sizes.NAMES
    ]
    place, told = f"{NAMED}, GPU, in words", {"profile": GPU, "millions": 489}
    rows += [
        _row(
            place,
            "what +++ takes away from -++",
            "kept of every layer",
            "%",
            f"{HERE}:chunk",
            told,
            100.0,
            upheld(equal(0.15, '"responsible for reducing a specific chunk": nearly all of it is of one kind')),
        ),
        _row(
            place,
            "static bytes",
            "-++ over +++",
            "times",
            f"{HERE}:static_quotient",
            told,
            1.0,
            upheld(equal(0.01, '"it does not change the static memory allocations"')),
        ),
        _row(
            place,
            "kept of the layers by +++",
            "arrays (L, B, S, d)",
            "",
            f"{HERE}:inputs_kept",
            told,
            1.0,
            refuted(equal(0.1, '"only a single memory buffer for activations"'), 2.0),
            "the reverse pass inside keeps every layer's input, and forward mode its tangent: two arrays of each layer",
        ),
    ]
    return rows


def _numbers() -> list[Published]:
    return [
        _row(
            "Table 6, in words",
            "parameters over the printed number",
            "with relative positions",
            "times",
            f"{HERE}:deviation",
            {"relative": True},
            1.0,
            upheld(equal(0.01, "two to five digits are printed")),
        ),
        _row(
            "Table 6, in words",
            "parameters over the printed number",
            "with RoPE",
            "times",
            f"{HERE}:deviation",
            {"relative": False},
            1.0,
            refuted(equal(0.01, "two to five digits are printed"), 0.9238),
            "the printed numbers count projections of relative positions, L·d·h·k weights; RoPE, named in §5, has none",
        ),
        _row(
            "Table 3, in words",
            "memory of the device",
            "GPU",
            "GiB",
            f"{HERE}:device",
            {"profile": GPU},
            None,
            None,
        ),
        _row(
            "Table 3, in words",
            "44M, --- over the device, GPU",
            "no optimisation",
            "times",
            f"{DERIVED}:quotient",
            {
                "over": "Table 3, 44M / HBM, GPU / ---",
                "under": "Table 3, in words / memory of the device",
                "take": "first",
            },
            1.0,
            upheld(more_than('"to avoid running out of memory even for smallest networks": more than the device has')),
            "with the batch and context of Tables 2 and 3",
        ),
        _row(
            "Fig. 1, in words",
            "step time saved",
            "FLOPs, M = 256",
            "%",
            f"{HERE}:toy_work",
            {"transformations": 256},
            None,
            None,
            "both programs have the same FLOPs to 0.02% at M = 4, 16, 64 and 256, so seconds are saved in "
            "traffic, if they are; the seconds of an H100 are not measured",
        ),
    ]


def _lines() -> list[Published]:
    counted = '"a few lines" and "minor modifications" are no numbers, and a bound of ours would settle nothing: {}'
    return [
        _row(
            "§3.2, lines of code that mixed mode changes",
            series,
            "in JAX",
            "lines",
            f"{HERE}:changed_lines",
            {"rule": rule},
            None,
            None,
            counted.format(what),
        )
        for series, rule, what in (
            ("of a user's loop", False, "here they are the import, and where the gradient of the inner loss is made"),
            ("with those of Listing 1", True, "the rule is copied once"),
        )
    ]


def _listing_4() -> list[Published]:
    place, listings = "Listing 4, loop fusion on, GPU", "gradgate.references.bilevel.paper.listings"
    told: dict[str, Any] = {"profile": GPU, "transformations": 16}
    fewer = less_than('"the mixed-mode version contains far fewer data blocks"')
    return [
        _row(
            place,
            "bytes saved",
            "M = 16",
            "%",
            f"{listings}:toy_saved_fused",
            told | {"fused": True},
            85.0,
            upheld(equal(0.05, '"reductions up to 85%", two digits; the compiler may fuse here')),
        ),
        *(
            _row(
                place,
                f"{what}, mixed mode over default",
                "M = 16",
                "times",
                f"{listings}:toy_graph",
                told | {"what": what},
                1.0,
                upheld(fewer),
            )
            for what in ("buffers", "instructions")
        ),
    ]


def _figure_2() -> list[Published]:
    place, series = "Fig. 2, 44M, +++, GPU", "share of the instructions, mean by bytes"
    told: dict[str, Any] = {"profile": GPU, "millions": 44}
    return [
        _row(
            place,
            series,
            "static",
            "",
            f"{SIZES_OF}:lives",
            told | {"static": True},
            1.0,
            upheld(equal(0.1, '"allocated at the beginning of a program for the whole execution time"')),
        ),
        _row(
            place,
            series,
            "dynamic",
            "",
            f"{SIZES_OF}:lives",
            told | {"static": False},
            None,
            None,
        ),
        _row(
            place,
            series,
            "dynamic over static",
            "times",
            f"{DERIVED}:quotient",
            {"over": f"{place} / {series} / dynamic", "under": f"{place} / {series} / static", "take": "first"},
            1.0,
            upheld(less_than('"re-purposed for new activations", and not allocated "for the whole execution time"')),
        ),
        _row(
            place,
            "instructions that write to a stack of every step",
            "static",
            "",
            f"{SIZES_OF}:updates",
            told,
            1.0,
            upheld(equal(0.0, '"written to only once"')),
        ),
    ]


SAID: tuple[Published, ...] = (
    *_seconds(),
    *_sweeps(),
    *_named(),
    *_numbers(),
    *_lines(),
    *_listing_4(),
    *_figure_2(),
)
