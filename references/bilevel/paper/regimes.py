"""Fig. 5 and 11: the gain in dynamic bytes over batch, context and inner steps, at the settings of Table 4.

A sweep varies one axis and holds the other two at their largest values, as Table 4 says. By Eq. 12 the gain does not
depend on B or T, and it grows with S toward a limit.
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

from gradgate.references.bilevel.inner.transformer import SIZES
from gradgate.references.bilevel.paper import scale as scale
from gradgate.references.bilevel.paper import sizes as sizes
from gradgate.references.bilevel.paper.scale import PROFILES
from gradgate.references.errors import unknown
from gradgate.references.published import Agreement, Published, equal, less_than, more_than, unexplained, upheld

HERE, DERIVED = "gradgate.references.bilevel.paper.regimes", "gradgate.references.derived"
AXES: dict[str, tuple[int, ...]] = {"batch": (2, 4, 6, 8), "steps": (2, 4, 6, 8), "sequence": (1024, 2048, 4096, 8192)}
"""Table 4: a Spec field -> its values."""
MODELS = (106, 278, 587, 1018, 2639, 4516)
"""Table 4: the models, by their millions of parameters."""
FIGURE = {"GPU": "Fig. 5", "TPU": "Fig. 11"}


def sweep(profile: str, axis: str) -> dict[str, list[float]]:
    """The gains of all models over one axis of Table 4.

    Args:
        profile: the profile whose compiler assigns the buffers.
        axis: ``batch``, ``steps`` or ``sequence``.

    Returns:
        The values of the axis, and for each model, such as ``278M``, the gains (Eq. 10).

    Cost: 10 to 20 s per program, two programs for each gain, and ten gains for each model; three are in every sweep.
    """
    return {
        axis: [float(at) for at in AXES[axis]],
        **{f"{millions}M": [gain(profile, millions, axis, at) for at in AXES[axis]] for millions in MODELS},
    }


def gain(profile: str, millions: int, axis: str, at: int) -> float:
    """The gain where `axis` is `at`, and the other two axes have their largest values."""
    size = SIZES.get(millions) or sizes.TABLE_1[millions]
    setting = {name: values[-1] for name, values in AXES.items()} | {axis: at}
    return sizes.gain_of(sizes.of_size(size, **setting), profile)


def exponents(profile: str, take: str) -> float:
    """An exponent of the gain between two neighbouring contexts.

    Args:
        profile: as for `sweep`.
        take: ``last over first``: between the two longest contexts, over that between the two shortest; of the model
            where this is most.

    Raises:
        UsageError: `take` is another.
    """
    if take != "last over first":
        raise unknown("exponent", take, ["last over first"])
    found = [
        [math.log2(after / before) for before, after in itertools.pairwise(gains)]
        for gains in _gains(profile, "sequence")
    ]
    return max(each[-1] / each[0] for each in found)


def scatter(profile: str) -> float:
    """The standard deviation in percent of the gains over B and over T, about the mean of a model and axis."""
    return 100 * math.sqrt(
        statistics.mean(
            (one / statistics.mean(gains) - 1) ** 2
            for axis in ("batch", "steps")
            for gains in _gains(profile, axis)
            for one in gains
        )
    )


def noisier() -> float:
    """`scatter` on the TPU over that on the GPU."""
    return scatter(PROFILES["TPU"]) / scatter(PROFILES["GPU"])


def _gains(profile: str, axis: str) -> list[list[float]]:
    found = sweep(profile, axis)
    return [found[f"{millions}M"] for millions in MODELS]


FOUND: dict[tuple[str, str], tuple[float | None, str]] = {
    ("GPU", "batch"): (
        1.402,
        "it is 1.04 for 106M, 1.05 for 278M, and 1.31 to 1.59 for the four larger models. Arrays like θ do not depend "
        "on B, but without them it is still 1.37 for 1018M (tested by kinds of buffers)",
    ),
    ("GPU", "last over first"): (
        1.306,
        "at 8192 587M, 1018M and 2639M are not near the limit: their gains grow at least as fast from 4096 to 8192 as "
        "from 1024 to 2048",
    ),
    ("GPU", "steps"): (
        None,
        "five models are constant to 0.2%; 4516M has 1.27, as the compiler has 432 GiB of scores live at the peak of "
        "mixed mode at T = 8, and 336 GiB at T = 6",
    ),
    ("TPU", "batch"): (
        None,
        "it is 1.15 for 1018M, which has 8.75 at B = 2 and 10.03 at B = 8, and 1.11 or less for five",
    ),
    ("TPU", "least"): (
        -0.004956,
        "the gain of 4516M is at its limit from 1024 on, 13.2 to 12.9; those of the other five grow, with exponents of "
        "0.03 to 0.14",
    ),
}
"""Device and figure -> our value where the two do not agree, or None; and what was found."""


def _words(device: str) -> list[Published]:
    place = f"{FIGURE[device]}, in words, {device}"

    def row(
        series: str,
        x: str,
        unit: str,
        measured: str,
        asked: dict[str, Any],
        found: str,
        printed: float,
        said: Agreement,
    ) -> Published:
        pinned, reason = FOUND.get((device, found), (None, ""))
        expects = upheld(said) if pinned is None else unexplained(said, pinned)
        return Published(place, series, x, unit, measured, asked, printed, reason, expects=expects)

    def of(axis: str) -> str:
        return f"{FIGURE[device]}, Table 4, {device} / gain / over {axis}"

    constant = equal(0.1, '"discounting minor compilation effects, the gains are constant across B and T"')
    grows, falls = '"sub-linearly increase"', '"towards kL/k̂ for larger S": a limit, so the exponent falls'
    exponent = "exponent of the gain over S"
    highest = "steps" if device == "GPU" else "batch"
    return [
        Published(
            f"Abstract, over 10x, {device}",
            "gain in dynamic bytes",
            f"4516M, context 8192, largest over {highest} of Table 4",
            "times",
            f"{DERIVED}:value",
            {"of": f"{FIGURE[device]}, Table 4, {device} / gain / over {highest} / 4516M", "take": "largest"},
            10.0,
            expects=upheld(more_than('"over 10x memory"')),
        ),
        *(
            row(
                "largest gain over the least",
                f"over {axis}, in the middle",
                "times",
                f"{DERIVED}:spans",
                {"of": of(axis), "take": "middle"},
                axis,
                1.0,
                constant,
            )
            for axis in ("batch", "steps")
        ),
        *(
            row(
                exponent,
                f"all contexts, {take}",
                "",
                f"{DERIVED}:growths",
                {"of": of("sequence"), "take": take},
                take,
                printed,
                said,
            )
            for take, printed, said in (("largest", 1.0, less_than(grows)), ("least", 0.0, more_than(grows)))
        ),
        row(
            exponent,
            "4096 to 8192 over 1024 to 2048",
            "times",
            f"{HERE}:exponents",
            {"profile": PROFILES[device], "take": "last over first"},
            "last over first",
            1.0,
            less_than(falls),
        ),
    ]


def _rows() -> list[Published]:
    curves = [
        Published(
            f"{FIGURE[device]}, Table 4, {device}",
            "gain",
            f"over {axis}",
            "",
            f"{HERE}:sweep",
            {"profile": PROFILES[device], "axis": axis},
        )
        for device in PROFILES
        for axis in AXES
    ]
    return [
        *curves,
        *_words("GPU"),
        *_words("TPU"),
        Published(
            "Fig. 11, in words, TPU",
            "scatter over B and T",
            "over that of Fig. 5",
            "times",
            f"{HERE}:noisier",
            {},
            1.0,
            "today's compilers scatter less on the TPU: 3% about the mean of a model and axis, and 9% on the GPU, "
            "where most of it is the growth with B (see Fig. 5)",
            expects=unexplained(more_than('"the results are more noisy due to TPU-specific optimisations"'), 0.3473),
        ),
    ]


REGIMES: tuple[Published, ...] = tuple(_rows())
