"""Fig. 7 and 8, and what the paper says of large models: bytes of all 22 models of Table 6 on both devices.

Ours is at a context of 2048; the paper names none. Bytes of the TPU are those that are live at the peak (see `sizes`).
"""

from __future__ import annotations

from typing import Any

from gradgate.references.bilevel.paper import sizes as sizes
from gradgate.references.bilevel.paper.scale import DEFAULT, MIXFLOW, PROFILES
from gradgate.references.published import Expectation, Published, at_least, equal, unexplained, upheld

HERE, DERIVED = "gradgate.references.bilevel.paper.ladder", "gradgate.references.derived"
CONTEXT = "ours is at a context of 2048, the paper names none"
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

    return largest(MIXFLOW) / largest(DEFAULT)


PINNED: dict[str, dict[str, float]] = {
    "GPU": {"fits": 5.194, "1B": 1.96, "total": 3.695, "44M": 18.07, "16B": 2.306, "16B total": 1.607},
    "TPU": {"fits": 2.741, "1B": 1.305, "total": 3.787, "44M": 12.36, "16B": 1.626, "16B total": 1.548},
}
"""Device -> our value of each figure that is not explained."""
FITS = {
    "GPU": "the default fits up to 196M, mixed mode up to 1018M",
    "TPU": "the default fits up to 587M, mixed mode up to 1609M",
}
"""Device -> the largest models that fit it."""
TENFOLD = {
    "GPU": "by default 9293M is the first model that needs ten devices, 11.6 of them",
    "TPU": "by default 13735M is the first model that needs ten devices, 10.6 of them",
}
"""Device -> the least model that outgrows it by an order of magnitude."""


def _ladder(device: str) -> list[Published]:
    sweep, profile, pinned = f"Table 6, {device}", PROFILES[device], PINNED[device]
    curve, told = f"{sweep} / bytes / 44M to 16183M", {"profile": profile, "models": list(sizes.LADDER)}
    memory = f"{sizes.DEVICE[profile]} GiB"

    def row(series: str, x: str, unit: str, printed: float, expects: Expectation, of: str, reason: str = "",
            **given: Any) -> Published:  # fmt: skip
        asked = {"of": f"{curve} / {of}", **given}
        return Published(
            f"{sweep}, in words", series, x, unit, f"{DERIVED}:value", asked, printed, reason, expects=expects
        )

    return [
        Published(sweep, "bytes", "44M to 16183M", "", f"{sizes.__name__}:ladder", told),
        Published(
            f"{sweep}, in words", "largest model that fits, -+- to +++", "parameters", "times", f"{HERE}:fitting", told,
            10.0, f"{CONTEXT}; {FITS[device]}", expects=unexplained(
                at_least('"scale bilevel gradient setups by more than an order of magnitude"'), pinned["fits"]
            ),
        ),
        row(
            f"-+- over {memory}", "least from 1018M on", "times", 10.0,
            unexplained(
                at_least('"starting from 1B … outgrow any available memory by more than one order"'), pinned["1B"]
            ),
            "total of -+- over the device", f"{CONTEXT}; {TENFOLD[device]}", take="least", between=[1018, 16183],
        ),
        row(
            f"one inner step of -+- over {memory}", "1609M, in the middle of 22 models", "times", 1.0,
            upheld(at_least('"typically, one inner step already uses all … memory": a model in the middle')),
            "one inner step of -+- over the device", take="first", between=[1609, 1609],
        ),
        row(
            "total of -+- over +++", "largest", "times", 10.0,
            unexplained(at_least('§6: "up to 10x total memory reductions"'), pinned["total"]), "total of -+- over +++",
            f"{CONTEXT}; A.2 itself prints 4 to 6 for all bytes, and Fig. 7 more than 10 for dynamic ones alone",
            take="largest",
        ),
        row(
            "static over dynamic of +++", "16183M", "times", 1.0,
            upheld(at_least('"turning static memory into the dominating part"')), "static over dynamic of +++",
            take="last",
        ),
        row(
            "dynamic over static of -+-", "44M", "times", 75.0,
            unexplained(equal(1 / 3, '"shrinks from 50-100"'), pinned["44M"]), "dynamic over static of -+-",
            f"{STATIC}; {CONTEXT}", take="first",
        ),
        row(
            "dynamic over static of -+-", "16183M", "times", 7.5,
            unexplained(equal(1 / 3, '"to 5-10 for default implementation"'), pinned["16B"]),
            "dynamic over static of -+-", f"{STATIC}; {CONTEXT}", take="last",
        ),
        row(
            "total of -+- over +++", "16183M", "times", 5.0,
            unexplained(equal(0.2, '"peak HBM memory gains to reduce … to 4-6x"'), pinned["16B total"]),
            "total of -+- over +++", f"{STATIC}; {CONTEXT}", take="last",
        ),
    ]  # fmt: skip


LADDERS: tuple[Published, ...] = (*_ladder("GPU"), *_ladder("TPU"))
