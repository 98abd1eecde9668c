"""The paper's tables and figures, each next to the result of today's compilers for the same devices and programs."""

from __future__ import annotations

from typing import Any

from gradgate.references.bilevel.inner.transformer import Size
from gradgate.references.bilevel.paper import reasons as reasons
from gradgate.references.bilevel.paper import scale as scale
from gradgate.references.bilevel.paper import sizes as sizes
from gradgate.references.bilevel.paper.background import ROWS as BACKGROUND
from gradgate.references.bilevel.paper.combined import COMBINED
from gradgate.references.bilevel.paper.expected import declared
from gradgate.references.bilevel.paper.ladder import LADDERS
from gradgate.references.bilevel.paper.regimes import REGIMES
from gradgate.references.bilevel.paper.sample import FIGURE_4
from gradgate.references.bilevel.paper.scale import DEFAULT, MIXFLOW, PROFILES, GiB
from gradgate.references.bilevel.paper.text_figures import SAID
from gradgate.references.bilevel.paper.times import TIMES
from gradgate.references.published import Published


def hbm(profile: str, optimisations: str, millions: int, **fields: Any) -> float:
    """GiB in all of a meta step; see `paper_scale.total`."""
    return scale.total(scale.configuration(millions, **fields), optimisations, profile) / GiB


def hbm_dynamic(profile: str, optimisations: str, millions: int, **fields: Any) -> float:
    """GiB of dynamic memory of a meta step (Eq. 10)."""
    return scale.dynamic(scale.configuration(millions, **fields), optimisations, profile) / GiB


def gain(profile: str, millions: int, default: str = DEFAULT, **fields: Any) -> float:
    """Dynamic bytes of the default over those of mixed mode with all optimisations (Eq. 10)."""
    spec = scale.configuration(millions, **fields)
    return scale.dynamic(spec, default, profile) / scale.dynamic(spec, MIXFLOW, profile)


def gain_total(profile: str, millions: int, default: str = DEFAULT, ours: str = MIXFLOW, **fields: Any) -> float:
    """`gain` for all bytes; or the default's bytes over those of another program."""
    spec = scale.configuration(millions, **fields)
    return scale.total(spec, default, profile) / scale.total(spec, ours, profile)


def gain_activation(profile: str, millions: int, default: str = DEFAULT, **fields: Any) -> float:
    """`gain` for the bytes beyond those for one data point of 8 tokens (`paper_scale.activation`)."""
    spec = scale.configuration(millions, **fields)
    return scale.activation(spec, default, profile) / scale.activation(spec, MIXFLOW, profile)


def toy_gain(profile: str, transformations: int) -> float:
    """Percent of bytes that mixed mode saves compared with the default in the motivating example."""
    spec = scale.toy(transformations)
    return 100 * (1 - scale.total(spec, "+--", profile) / scale.total(spec, "---", profile))


def toy_bytes(profile: str, optimisations: str, transformations: int) -> float:
    """GiB in all of the motivating example."""
    return scale.total(scale.toy(transformations), optimisations, profile) / GiB


def flops_gain(millions: int, default: str = DEFAULT, **fields: Any) -> float:
    """FLOPs of the default over those of mixed mode with all optimisations."""
    spec = scale.configuration(millions, **fields)
    return scale.flops(spec, default) / scale.flops(spec, MIXFLOW)


def time_gain(profile: str, millions: int, default: str = DEFAULT, **fields: Any) -> float:
    """Roofline time of the default over that of mixed mode with all optimisations (Eq. 11)."""
    spec = scale.configuration(millions, **fields)
    return scale.seconds(spec, default, profile) / scale.seconds(spec, MIXFLOW, profile)


def step_seconds(profile: str, optimisations: str, millions: int) -> float:
    """Roofline time of a meta step."""
    return scale.seconds(scale.configuration(millions), optimisations, profile)


def growth(profile: str, variable: str, values: list[int], millions: int, **fields: Any) -> float:
    """Exponent with which the gain in dynamic bytes grows over a Spec field, by `hw_profiles.fit`."""
    from gradgate.hw_profiles.fit import fit

    gains = [gain(profile, millions, **fields | {variable: value}) for value in values]
    return fit(values, gains, "times").exponent


HERE = "gradgate.references.bilevel.paper.rows"
TABLE_2 = {
    "---": (371.2, 273.9),
    "--+": (363.7, 176.6),
    "-+-": (180.1, 123.7),
    "-++": (182.4, 130.8),
    "+--": (286.0, 168.1),
    "+-+": (289.2, 176.8),
    "++-": (174.8, 43.8),
    "+++": (54.8, 46.9),
}
"""Signs as in `paper_scale` -> HBM in G on GPU and TPU, 489M."""
TABLE_3 = {
    "---": (94.2, 70.2),
    "--+": (76.6, 45.8),
    "-+-": (54.2, 32.8),
    "-++": (54.5, 34.1),
    "+--": (76.4, 45.1),
    "+-+": (76.6, 45.5),
    "++-": (45.2, 12.7),
    "+++": (16.4, 12.9),
}
"""The same of 44M."""
FIT: dict[int, set[tuple[str, str]]] = {
    44: {("GPU", "-+-"), ("GPU", "-++"), ("GPU", "+++"), ("GPU", "+--"), ("GPU", "+-+"), ("TPU", "-++")},
    489: {("GPU", "-+-"), ("GPU", "-++"), ("GPU", "+--"), ("GPU", "+-+")},
}
"""Millions of parameters -> device and signs of the figures that come out with B = 3 and S = 4096."""
IN_A_LOOP: dict[int, set[tuple[str, str]]] = {44: {("TPU", "-++"), ("TPU", "-+-"), ("TPU", "+--"), ("TPU", "+-+")}}
"""Millions of parameters -> device and signs of the programs that are those of Listings 1 and 3 with layers in a Python
loop, which come nearer; the paper does not say how its layers run. All others run them in a scan."""
SWEPT_FIELD = {"d_model": "width", "ffw_size": "ffw", "n_heads": "heads", "n_layers": "layers"}
LADDER = (44, 140, 278, 489, 1018, 2639, 6796, 16183)
TABLE_1 = (Size(57, 576, 2304, 64, 9, 9), Size(163, 768, 3072, 64, 12, 18), Size(306, 1024, 4096, 64, 16, 20))
"""Three of Table 1's five models. Table 6 does not have them; they are rows of Hoffmann et al. (2022), Table A9."""
SAMPLE = ((2, 2, 2048), (4, 4, 4096), (8, 8, 8192))
"""T, B and S of Table 1 that go with these."""


def _ablation(place: str, millions: int, printed: dict[str, tuple[float, float]]) -> list[Published]:
    rows = []
    for column, (device, profile) in enumerate(PROFILES.items()):
        for signs, figures in printed.items():
            told = {"profile": profile, "optimisations": signs, "millions": millions}
            asked = told | scale.FITTING
            measured = f"{HERE}:hbm" if device == "GPU" else f"{sizes.__name__}:live"
            if (device, signs) in IN_A_LOOP.get(millions, ()):
                measured = f"{sizes.__name__}:by_listings"
            reason = "" if (device, signs) in FIT[millions] else reasons.SIZE.get((device, signs), reasons.SIZE[device])
            rows.append(Published(place, f"HBM, {device}", signs, "GiB", measured, asked, figures[column], reason))
            rows.append(Published(place, f"dynamic, {device}", signs, "GiB", f"{HERE}:hbm_dynamic", told))
        for default in ("-++", "-+-"):
            what, asked = (
                f"{default} over +++, {device}",
                {"profile": profile, "millions": millions, "default": default},
            )
            rows.append(Published(place, what, "HBM", "times", f"{HERE}:gain_total", asked))
            rows.append(Published(place, what, "dynamic (Eq. 10)", "times", f"{HERE}:gain", asked))
            if device == "GPU":
                rows.append(Published(place, what, "activations", "times", f"{HERE}:gain_activation", asked))
    return rows


def _ladder() -> list[Published]:
    rows = []
    readings = (("Eq. 10 to the letter", "gain", ("GPU", "TPU")), ("activations", "gain_activation", ("GPU",)))
    for how, name, devices in readings:
        place = f"Fig. 7, dynamic bytes of -+- over those of +++, {how}"
        for device in devices:
            profile = PROFILES[device]
            for millions in LADDER:
                told = {"profile": profile, "millions": millions}
                rows.append(Published(place, device, millions, "times", f"{HERE}:{name}", told))
    return rows


def _sweeps() -> list[Published]:
    rows = []
    for device, measured in {"GPU": f"{HERE}:gain", "TPU": f"{sizes.__name__}:gain_at"}.items():
        for name, settings in sizes.COMPONENTS.items():
            place = f"Fig. 6, {device}, over {name}"
            for fields in settings:
                told = {"profile": PROFILES[device], "millions": 44, **fields}
                rows.append(Published(place, "gain", fields[SWEPT_FIELD[name]], "times", measured, told))
    fixed = {key: value for key, value in sizes.COMPONENTS["n_layers"][0].items() if key != "layers"}
    told = {"profile": PROFILES["GPU"], "variable": "layers", "values": list(sizes.DEPTHS), "millions": 44, **fixed}
    rows.append(
        Published(
            "Fig. 6, GPU, over n_layers", "growth", "exponent of L", "", f"{HERE}:growth", told, 1.0, reasons.KEPT
        )
    )
    return rows


def _figure_4() -> list[Published]:
    rows = []
    for task in ("maml", "learning_lr", "loss_weighting"):
        for size, (steps, batch, sequence) in zip(TABLE_1, SAMPLE, strict=True):
            x = f"{size.millions}M, T = {steps}, B = {batch}, S = {sequence}"
            told = {
                "millions": 44,
                "task": task,
                "steps": steps,
                "batch": batch,
                "sequence": sequence,
                "width": size.width,
                "ffw": size.ffw,
                "key_size": size.key_size,
                "heads": size.heads,
                "layers": size.layers,
            }
            on = {"profile": PROFILES["GPU"], **told}
            rows.append(Published("Fig. 4, dynamic bytes, GPU", task, x, "times", f"{HERE}:gain", on))
            rows.append(Published("Fig. 4, step time as FLOPs", task, x, "times", f"{HERE}:flops_gain", told))
            rows.append(Published("Fig. 4, step time as roofline, GPU", task, x, "times", f"{HERE}:time_gain", on))
    return rows


def _figure_1() -> list[Published]:
    rows = []
    for transformations in (4, 16, 64, 256):
        told = {"profile": PROFILES["GPU"], "transformations": transformations}
        for signs in ("---", "+--"):
            rows.append(
                Published(
                    "Fig. 1, toy, GPU",
                    signs,
                    transformations,
                    "GiB",
                    f"{HERE}:toy_bytes",
                    told | {"optimisations": signs},
                )
            )
        rows.append(
            Published(
                "Fig. 1, toy, GPU: bytes saved",
                "+-- for ---",
                transformations,
                "%",
                f"{HERE}:toy_gain",
                told,
                None,
                reasons.TOY if transformations == 256 else "",
            )
        )
    place, measured = "Fig. 1, tested: Listing 4, GPU: bytes saved", f"{LISTINGS}:toy_saved"
    for words, remat, transformations in (("not ", False, 256), ("not ", False, 4096), ("", True, 256)):
        told = {"profile": PROFILES["GPU"], "transformations": transformations, "remat": remat}
        printed = 85.0 if transformations == 256 and not remat else None  # Listing 4 rematerialises no inner step
        reason = reasons.LISTING[remat] if transformations == 256 else ""
        series = f"inner steps {words}rematerialised"
        rows.append(Published(place, series, transformations, "%", measured, told, printed, reason))
    return rows


LISTINGS = "gradgate.references.bilevel.paper.listings"


def _tested() -> list[Published]:
    scan, loop, context = "layers in a scan", "layers unrolled", "context 3072"
    on: dict[str, Any] = {"save": True, "unrolled": False}
    plain = {"mixed": False, "remat": False}
    gpu: list[tuple[str, str, dict[str, Any]]] = [
        (loop, "++-", {"unrolled": True, "save": False}),
        (loop, "+++", {"unrolled": True}),
        (scan, "++-", {"save": False}),
        (scan, "+++", {}),
        (context, "+++", {"context": 3072}),
        (loop, "-++", {"mixed": False, "unrolled": True}),
        (scan, "-++", {"mixed": False}),
        (context, "-++", {"mixed": False, "context": 3072}),
        ("jax.nn.softmax", "-++", {"mixed": False, "library": True}),
        (loop, "---", plain | {"save": False, "unrolled": True}),
        (loop, "--+", plain | {"unrolled": True}),
    ]
    tpu: list[tuple[str, str, dict[str, Any]]] = [
        (scan, "---", plain | {"save": False}),
        (loop, "---", plain | {"save": False, "unrolled": True}),
        (loop, "--+", plain | {"unrolled": True}),
        ("2 layers unrolled", "---", plain | {"save": False, "unrolled": True, "layers": 2}),
        ("2 layers unrolled", "--+", plain | {"unrolled": True, "layers": 2}),
    ]
    rows = [
        Published(
            f"Table 2, tested: Listings 1 and 3, 44M with 4 layers, {device}, temporaries",
            series,
            x,
            "GiB",
            f"{LISTINGS}:temporary",
            {"profile": PROFILES[device], **on, **told},
        )
        for device, asked in (("GPU", gpu), ("TPU", tpu))
        for series, x, told in asked
    ]
    rows += [
        Published(
            f"Table 3, tested: 44M, B = 3, S = 4096, {device}",
            how,
            signs,
            "GiB",
            f"{sizes.__name__}:live_otherwise",
            {"profile": PROFILES[device], "optimisations": signs, "millions": 44, "how": how, **scale.FITTING},
        )
        for device, how, signs in (
            ("GPU", "unrolled", "---"),
            ("GPU", "library", "---"),
        )
    ]
    rows += [
        Published(
            f"Table 3, tested: Listings 1 and 3, 44M, B = 3, S = 4096, {device}",
            loop,
            signs,
            "GiB",
            f"{sizes.__name__}:by_listings",
            {"profile": PROFILES[device], "optimisations": signs, "millions": 44, **scale.FITTING},
        )
        for device, signs in (("GPU", "++-"), ("GPU", "+++"))
    ]
    told = {"profile": PROFILES["TPU"], "optimisations": "-++", "millions": 44, "sequence": 3072}
    rows.append(Published("Table 3, tested: 44M, TPU", context, "-++", "GiB", f"{HERE}:hbm", told))
    rows += [
        Published(
            f"Tables 2 and 3, tested: {millions}M, {device}",
            "peak reported over bytes live in the assignment",
            signs,
            "times",
            f"{sizes.__name__}:reported",
            {"profile": PROFILES[device], "optimisations": signs, "millions": millions},
        )
        for device, millions, signs in (
            ("GPU", 44, "+++"),
            ("GPU", 44, "-+-"),
            ("TPU", 44, "+++"),
            ("TPU", 44, "-+-"),
            ("TPU", 489, "+++"),
        )
    ]
    return rows


def _beyond() -> list[Published]:
    place = "Beyond the paper: only inner gradients kept of every step, 489M"
    rows = []
    for device, profile in PROFILES.items():
        told: dict[str, Any] = {"profile": profile, "millions": 489}
        on = told | {"optimisations": scale.REPLAY}
        rows.append(Published(place, f"HBM, {device}", scale.REPLAY, "GiB", f"{HERE}:hbm", on))
        asked = told | {"default": "-++", "ours": scale.REPLAY}
        rows.append(Published(place, f"-++ over replay, {device}", "HBM", "times", f"{HERE}:gain_total", asked))
    rows.append(
        Published(
            place,
            "FLOPs over those of +++",
            scale.REPLAY,
            "times",
            f"{HERE}:flops_gain",
            {"millions": 489, "default": scale.REPLAY},
            1.0,
        )
    )
    return rows


PUBLISHED = (
    tuple(
        declared(row)
        for row in (
            *_ablation("Table 2, 489M", 489, TABLE_2),
            *_beyond(),
            *_tested(),
            *_ladder(),
            *_ablation("Table 3, 44M", 44, TABLE_3),
            *TIMES,
            *_sweeps(),
            *_figure_4(),
            *_figure_1(),
        )
    )
    + BACKGROUND
    + SAID
    + LADDERS
    + REGIMES
    + FIGURE_4
    + COMBINED
)
