"""Fig. 7 and 8, and what the paper says of large models: bytes of all 22 models of Table 6 on both devices.

The paper names no context; each figure says at which ours is. Ratios of Fig. 7 and 8 are all at 8192.
Bytes of the TPU are those that are live at the peak (see `sizes`).
"""

from __future__ import annotations

from typing import Any

from gradgate.references.bilevel.paper import sizes as sizes
from gradgate.references.bilevel.paper.scale import DEFAULT, MIXFLOW, PROFILES
from gradgate.references.published import Agreement, Published, at_least, equal, more_than, unexplained, upheld

HERE, DERIVED = "gradgate.references.bilevel.paper.ladder", "gradgate.references.derived"
KINDS = (
    'static are all arrays like θ that are live at the peak, dynamic are "activations for backpropagation" (Fig. 2); '
    "one context for all models and both devices, which the paper does not name"
)
"""The reading of Fig. 7 and 8."""
SAMPLES: dict[int, tuple[str, list[int]]] = {
    2048: ("bytes", list(sizes.LADDER)),
    4096: ("bytes, context 4096", [44, 90, 489, 587, 724, 1018, 16183]),
    8192: ("bytes, context 8192", [44, 1018, 4516, 16183]),
}
"""Context -> the series of its curve, and the models that are compiled on both devices."""
ALL = "44M to 16183M"


def fitting(profile: str, models: list[int], sequence: int = 2048) -> float:
    """Parameters of the largest model that fits the paper's device in mixed mode, over those of the default's."""
    found = sizes.ladder(profile, models, sequence)

    def largest(signs: str) -> float:
        shares = found[f"total of {signs} over the device"]
        return max(m for m, share in zip(found["millions"], shares, strict=True) if share <= 1)

    return largest(MIXFLOW) / largest(DEFAULT)


def _told(device: str, sequence: int) -> dict[str, Any]:
    told: dict[str, Any] = {"profile": PROFILES[device], "models": SAMPLES[sequence][1]}
    told |= {} if sequence == 2048 else {"sequence": sequence}
    return told | ({"kinds": True} if sequence == 8192 else {})


FOUND: dict[tuple[str, str], float] = {
    ("TPU", "gain"): 16.09,
    ("GPU", "44M"): 115.6,
    ("TPU", "1B"): 8.274,
}
"""Device and figure -> our value of each figure that is not explained."""


def _ladder(device: str) -> list[Published]:
    sweep, memory = f"Table 6, {device}", f"{sizes.DEVICE[PROFILES[device]]} GiB"

    def row(
        series: str,
        x: str,
        sequence: int,
        printed: float,
        said: Agreement,
        of: str,
        found: str = "",
        reason: str = "",
        place: str = f"{sweep}, in words",
        **given: Any,
    ) -> Published:
        asked = {"of": f"{sweep} / {SAMPLES[sequence][0]} / {ALL} / {of}", **given}
        expects = unexplained(said, FOUND[device, found]) if (device, found) in FOUND else upheld(said)
        return Published(
            place,
            series,
            f"{x}, context {sequence}",
            "times",
            f"{DERIVED}:value",
            asked,
            printed,
            reason,
            expects=expects,
        )

    static = "static over dynamic of +++"
    gains = {
        "GPU": (10.0, at_least('"10x (90%) for GPUs"')),
        "TPU": (24.0, equal(0.05, '"23-25x (96%)", 24 in the middle')),
    }
    printed, said = gains[device]
    return [
        *(
            Published(sweep, series, ALL, "", f"{sizes.__name__}:ladder", _told(device, sequence))
            for sequence, (series, _) in SAMPLES.items()
        ),
        row(
            "dynamic bytes of -+- over those of +++",
            "16183M",
            8192,
            printed,
            said,
            "dynamic of -+- over +++",
            "gain",
            KINDS if device == "GPU" else f"{KINDS}. By A.2's formula it is 10.2, and 3.8 at a context of 2048",
            f"Fig. 7, {device}",
            take="last",
        ),
        Published(
            f"{sweep}, in words",
            "largest model that fits, -+- to +++",
            "parameters, context 4096",
            "times",
            f"{HERE}:fitting",
            _told(device, 4096),
            10.0,
            "",
            expects=upheld(more_than('"scale bilevel gradient setups by more than an order of magnitude"')),
        ),
        row(
            f"-+- over {memory}",
            "least from 1018M on",
            8192,
            10.0,
            more_than('"starting from 1B … outgrow any available memory by more than one order"'),
            "total of -+- over the device",
            "1B",
            "on the TPU 1018M needs 8.3 devices, and 4516M is the next that was compiled; on the GPU 13",
            take="least",
            between=[1018, 16183],
        ),
        row(
            f"one inner step of -+- over {memory}",
            "1609M, in the middle of 22 models",
            2048,
            1.0,
            at_least('"typically, one inner step already uses all … memory": a model in the middle'),
            "one inner step of -+- over the device",
            take="first",
            between=[1609, 1609],
        ),
        row(
            static,
            "16183M",
            8192,
            1.0,
            more_than('"turning static memory into the dominating part"'),
            static,
            reason=KINDS,
            take="last",
        ),
        row(
            "dynamic over static of -+-",
            "44M",
            8192,
            75.0,
            equal(1 / 3, '"shrinks from 50-100"'),
            "dynamic over static of -+-",
            "44M",
            KINDS,
            take="first",
        ),
        row(
            "dynamic over static of -+-",
            "16183M",
            8192,
            7.5,
            equal(1 / 3, '"to 5-10 for default implementation"'),
            "dynamic over static of -+-",
            reason=KINDS,
            take="last",
        ),
        row(
            "total of -+- over +++",
            "16183M",
            8192,
            5.0,
            equal(0.2, '"peak HBM memory gains to reduce … to 4-6x"'),
            "total of -+- over +++",
            take="last",
        ),
    ]


DEEPEST = Published(
    "Table 5, GPU, in words",
    "total of -+- over +++",
    "64 layers, context 2048",
    "times",
    f"{sizes.__name__}:total_gain_at",
    {"profile": PROFILES["GPU"], "millions": 44, "width": 256, "ffw": 1024, "key_size": 32, "heads": 8, "layers": 64},
    10.0,
    "the deepest model of Table 5; of Table 6's it is 6.5 at most, and A.2 prints 4 to 6 of the largest",
    expects=upheld(at_least('§6: "up to 10x total memory reductions"')),
)
LADDERS: tuple[Published, ...] = (*_ladder("GPU"), *_ladder("TPU"), DEEPEST)
