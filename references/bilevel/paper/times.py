"""The paper's step times, each next to a roofline of the same program, and what their quotients show.

A roofline is the least time that a device can take. If one efficiency per device explained the paper's seconds, printed
over ours would be the same in every row. So its mean and its spread over the rows are listed too, by traffic, by FLOPs,
and at other contexts.
"""

from __future__ import annotations

import statistics
from typing import Any

from gradgate.references.bilevel.paper import scale as scale
from gradgate.references.bilevel.paper.scale import PROFILES
from gradgate.references.published import Published, equal, upheld

PAPER, HERE = "gradgate.references.bilevel.paper.rows", "gradgate.references.bilevel.paper.times"
SECONDS: dict[int, dict[str, dict[str, float]]] = {
    44: {
        "GPU": {"-+-": 1.33, "-++": 1.30, "++-": 1.51, "+++": 1.19},
        "TPU": {"---": 0.75, "--+": 0.70, "-+-": 1.05, "-++": 1.03, "+--": 0.88, "+-+": 0.70, "++-": 1.17, "+++": 0.94},
    },
    489: {"GPU": {"+++": 5.45}, "TPU": {"++-": 5.13, "+++": 4.12}},
}
"""Millions of parameters -> device -> signs -> seconds of Tables 2 and 3; programs that do not fit have none."""
SIGNS = tuple(SECONDS[44]["TPU"])


def slowness(device: str, statistic: str, millions: int = 44, rate: str | None = None, sequence: int = 2048) -> float:
    """The mean or spread of printed seconds over ours, over the rows of a model on a device.

    Args:
        device: ``GPU`` or ``TPU``.
        statistic: ``mean``, or ``spread``, the standard deviation in percent of the mean.
        millions: millions of parameters, which identify the table.
        rate: None: over the roofline; a dtype: over the FLOPs at the device's peak rate for it, whatever the traffic.
        sequence: tokens of a data point in our programs.
    """
    found = list(quotients(device, millions, rate, sequence).values())
    mean = statistics.mean(found)
    return mean if statistic == "mean" else 100 * statistics.stdev(found) / mean


def quotients(device: str, millions: int, rate: str | None, sequence: int) -> dict[str, float]:
    """Signs -> printed seconds over ours; arguments as for `slowness`."""
    from gradgate.hw_profiles.profile import load

    spec, profile = scale.configuration(millions, sequence=sequence), PROFILES[device]

    def ours(signs: str) -> float:
        if rate is None:
            return scale.seconds(spec, signs, profile)
        return scale.nominal_flops(spec, signs) / load(profile).peak[rate]

    return {signs: printed / ours(signs) for signs, printed in SECONDS[millions][device].items()}


def times_flops(millions: int, signs: str, batch: int, sequence: int) -> float:
    """FLOPs of a meta step over those of +++ at the same sizes."""
    spec = scale.configuration(millions, batch=batch, sequence=sequence)
    return scale.flops(spec, signs) / scale.flops(spec, "+++")


def _steps() -> list[Published]:
    rows = []
    for millions, place in ((44, "Table 3, step time"), (489, "Table 2, step time")):
        for device, profile in PROFILES.items():
            for signs in SIGNS if millions == 44 else SECONDS[millions][device]:
                told = {"profile": profile, "optimisations": signs, "millions": millions}
                rows.append(Published(place, f"roofline, {device}", signs, "s", f"{PAPER}:step_seconds", told))
    return rows


def _quotients() -> list[Published]:
    """Each printed step time over that of +++, beside the quotient of FLOPs: a bound on seconds could not fail."""
    follows = equal(0.1, "two or three digits are printed; what moves bytes and takes no FLOPs is left out")
    return [
        Published(
            f"Table {3 if millions == 44 else 2}, step time",
            f"{signs} over +++, {device}",
            "FLOPs",
            "times",
            f"{HERE}:times_flops",
            {"millions": millions, "signs": signs, **scale.FITTING},
            seconds / SECONDS[millions][device]["+++"],
            "a roofline, which follows the traffic, is up to 27% off (Tables 2 and 3, step time, tested)",
            unlike="printed are seconds, ours are FLOPs",
            expects=upheld(follows),
        )
        for millions in SECONDS
        for device, printed in SECONDS[millions].items()
        for signs, seconds in printed.items()
        if signs != "+++"
    ]


def _gains() -> list[Published]:
    place, rows = "Table 3, step time", []
    for device, profile in PROFILES.items():
        asked: dict[str, Any] = {"profile": profile, "millions": 44}
        rows.append(Published(place, f"-+- over +++, roofline, {device}", "44M", "times", f"{PAPER}:time_gain", asked))
    rows.append(Published(place, "-+- over +++, FLOPs", "44M", "times", f"{PAPER}:flops_gain", {"millions": 44}))
    return rows


def _tested() -> list[Published]:
    place, rows = "Tables 2 and 3, step time, tested: printed over ours", []
    rates = {"GPU": {"TF32": "tensorfloat32", "float32": "float32"}, "TPU": {"bfloat16": "bfloat16"}}
    for device in PROFILES:
        bounds: list[tuple[str, dict[str, Any]]] = [("roofline", {})]
        bounds += [(f"FLOPs at the {name} rate", {"rate": rate}) for name, rate in rates[device].items()]
        contexts = [(f"roofline, context {n}", {"sequence": n}) for n in (3072, 4096)]
        for bound, told in bounds + contexts:
            for statistic, unit in (("mean", "times"), ("spread", "%")):
                given = {"device": device, "statistic": statistic, **told}
                series = f"44M, {bound}, {device}"
                rows.append(Published(place, series, statistic, unit, f"{HERE}:slowness", given))
        for bound, told in bounds:
            given = {"device": device, "statistic": "mean", "millions": 489, **told}
            rows.append(Published(place, f"489M, {bound}, {device}", "mean", "times", f"{HERE}:slowness", given))
    return rows


TIMES = (*_steps(), *_quotients(), *_gains(), *_tested())
