"""Bytes of whole sweeps of the paper by the compilers' buffer assignments: Table 6's ladder and Table 1's sweep.

Each function returns a curve, a dict of lists; ``paper.text_figures`` takes single numbers from it. What a compiler
answered is kept on disk, so that an interrupted sweep resumes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gradgate.references.bilevel.inner.transformer import SIZES, Size
from gradgate.references.bilevel.paper import scale
from gradgate.references.bilevel.paper.buffers import Assignment, assignment
from gradgate.references.bilevel.paper.scale import DEFAULT, MIXFLOW, GiB
from gradgate.references.bilevel.problem import BilevelSpec
from gradgate.references.errors import UsageError

DEVICE = {"nvidia-h100": 80, "tpu-v5p": 96}
"""Profile -> GiB of the paper's device (§5.2)."""
TABLE_1 = {
    57: Size(57, 576, 2304, 64, 9, 9),
    106: Size(106, 640, 2560, 64, 10, 16),
    163: Size(163, 768, 3072, 64, 12, 18),
    217: Size(217, 896, 3584, 64, 14, 18),
    306: Size(306, 1024, 4096, 64, 16, 20),
}
"""The models of Table 1, by Hoffmann et al. (2022), Table A9."""
STEPS, BATCHES, CONTEXTS = (2, 4, 8), (2, 4, 8), (2048, 4096, 8192)
"""T, B and S of Table 1."""
COVERING = tuple(
    (millions, STEPS[j], BATCHES[(j + i) % 3], CONTEXTS[(j + 2 * i) % 3])
    for i, millions in enumerate(TABLE_1)
    for j in range(3)
)
"""15 of the 135 configurations of Table 1: every pair of values of two parameters occurs in at least one of them."""
NAMES = (
    "arguments and results",
    "kept of every step",
    "like θ",
    "scores",
    "logits",
    "inputs of layers",
    "kept of every layer",
    "others",
)
"""The kinds of buffers; see `kind`."""
STATIC = NAMES[:3]
"""What Fig. 2 calls static, "checkpoints, inputs, parameters, states": every array that is like θ. All others are
dynamic, "activations for backpropagation"."""
DEPTHS = (4, 8, 16, 32, 64)
COMPONENTS = {
    "d_model": [{"width": 8 * k, "ffw": 1024, "key_size": k, "heads": 8, "layers": 16} for k in (16, 64, 256)],
    "ffw_size": [{"width": 384, "ffw": f, "key_size": 32, "heads": 8, "layers": 16} for f in (512, 2048, 8192)],
    "n_heads": [{"width": 768, "ffw": 1024, "key_size": 768 // h, "heads": h, "layers": 16} for h in (2, 8, 32)],
    "n_layers": [{"width": 256, "ffw": 1024, "key_size": 32, "heads": 8, "layers": n} for n in DEPTHS],
}
"""Table 5, some values of each row."""


@functools.lru_cache(maxsize=1024)
def assigned(spec: BilevelSpec, optimisations: str, profile: str) -> Mapping[str, Any]:
    """Bytes of a meta step: ``total``, ``instructions``, and ``named``, kind -> bytes live at the peak.

    On a TPU the total is that of the bytes live at the peak, which is the peak that the compiler reports, to 1%
    (`reported`). What it reports as temporaries is a quarter to a half more, and takes ten times as long.

    Raises:
        LookupError: the compiler gives no assignment; the message says why.
    """
    from gradgate.references.draws import shapes

    return _kept(scale.program(optimisations), (shapes(spec),), spec, profile)


def _kept(program: Callable[..., Any], arguments: tuple[Any, ...], spec: BilevelSpec, profile: str) -> dict[str, Any]:
    """What `assigned` returns, of any program for a problem; kept on disk."""
    from gradgate.hw_profiles import cache as caching
    from gradgate.hw_profiles.compile import PLATFORMS
    from gradgate.hw_profiles.compiler_process import FLAGS
    from gradgate.hw_profiles.fingerprint import compile_fingerprint
    from gradgate.hw_profiles.profile import load
    from gradgate.hw_profiles.traced import trace

    known = load(profile)
    if known.compiler is None:
        raise LookupError(f"{profile} has no compiler")
    text = trace(program, arguments).text(PLATFORMS[known.compiler])
    facts = compile_fingerprint(known, FLAGS[known.compiler]) | {"what": "buffer assignment by kind, 2"}
    cache, entry = caching.Cache(), caching.key(text, facts)
    stored: dict[str, Any] | None = cache.get(entry)
    if stored is None:
        found = assignment(program, arguments, profile)
        named = dict.fromkeys(NAMES, 0)
        for one in found.live(found.peak):
            named[NAMES[0] if one.persistent else kind(one.shape, spec)] += one.bytes
        total = sum(named.values()) if known.compiler == "tpu" else found.total
        stored = {"total": total, "instructions": found.instructions, "named": named}
        cache.put(entry, stored)
    return stored


def kind(shape: str, spec: BilevelSpec) -> str:
    """The kind of a temporary by its shape, one of `NAMES`.

    An array with T in front of the shape of a leaf of θ is kept of every step. With the shape of a leaf it is a
    parameter, a state, a gradient, a tangent or a cotangent. Scores end in S × S, logits in the vocabulary. Inputs of
    layers, and their tangents, are (L, B, S, d); any other array with L in front is kept of every layer.
    """
    if shape.startswith("("):  # a tuple holds addresses
        return "others"
    inside = shape.partition("[")[2].partition("]")[0]
    dims = tuple(int(part) for part in inside.split(",") if part.isdigit())
    leaves, T, L = _leaves(spec), spec.steps, spec.layers
    bare = dims[1:] if dims[:1] == (1,) else dims
    if dims[:1] == (T,) and dims[1:] in leaves:
        return "kept of every step"
    if dims in leaves or bare in leaves:
        return "like θ"
    if dims[:1] == (L,) and dims[1:] == (spec.batch, spec.sequence, spec.width):
        return "inputs of layers"
    if dims[:1] == (L,) and len(dims) > 2:
        return "kept of every layer"
    if spec.vocabulary in dims:
        return "logits"
    if dims[-2:] == (spec.sequence, spec.sequence):
        return "scores"
    return "others"


@functools.lru_cache(maxsize=64)
def _leaves(spec: BilevelSpec) -> frozenset[tuple[int, ...]]:
    import jax

    from gradgate.references.draws import shapes

    problem: Any = shapes(spec)
    theta, _ = jax.eval_shape(problem.init, problem.params)
    return frozenset(tuple(leaf.shape) for leaf in jax.tree.leaves(theta))


def ladder(profile: str, models: list[int], sequence: int = 2048, kinds: bool = False) -> dict[str, list[float]]:
    """Bytes of the models of Table 6, B = 4 and T = 2, by default and in mixed mode (Fig. 7 and 8).

    Args:
        profile: the profile whose compiler assigns the buffers.
        models: rows of Table 6, by their millions of parameters.
        sequence: the context, which the paper does not name.
        kinds: static bytes are those of `STATIC` that are live at the peak; else those of A.2's formula.

    Returns:
        ``millions``; GiB in all and static GiB of both programs; and what Fig. 7 and 8 show of them.
    """
    found: dict[str, list[float]] = {"millions": [float(millions) for millions in models]}

    def add(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for millions in models:
        spec = scale.configuration(millions, sequence=sequence)
        parts = {signs: assigned(spec, signs, profile) for signs in (DEFAULT, MIXFLOW)}
        total = {signs: one["total"] for signs, one in parts.items()}
        static = {signs: scale.static(spec, signs) for signs in total}
        if kinds:
            static = {signs: sum(one["named"][name] for name in STATIC) for signs, one in parts.items()}
        for signs in total:
            add(f"total GiB of {signs}", total[signs] / GiB)
            add(f"static GiB of {signs}", static[signs] / GiB)
            add(f"total of {signs} over the device", total[signs] / GiB / DEVICE[profile])
        dynamic = {signs: total[signs] - static[signs] for signs in total}
        add("total of -+- over +++", total[DEFAULT] / total[MIXFLOW])
        add("dynamic of -+- over +++", dynamic[DEFAULT] / dynamic[MIXFLOW])
        add("static over dynamic of +++", static[MIXFLOW] / dynamic[MIXFLOW])
        add("dynamic over static of -+-", dynamic[DEFAULT] / static[DEFAULT])
        one = scale.static(scale.configuration(millions, steps=1, sequence=sequence), DEFAULT)
        add("one inner step of -+- over the device", (dynamic[DEFAULT] + one) / GiB / DEVICE[profile])
    return found


def table_1(profile: str, task: str, configurations: list[list[int]]) -> dict[str, list[Any]]:
    """Bytes of configurations of Table 1, by default and in mixed mode (Fig. 4).

    Args:
        profile: the profile whose compiler assigns the buffers.
        task: ``maml``, ``learning_lr`` or ``loss_weighting``.
        configurations: millions of parameters, T, B and S of each.

    Returns:
        ``configuration``, in words; ``gain``, the gain in dynamic bytes; and GiB in all of both programs.
    """
    found: dict[str, list[Any]] = {"configuration": [], "gain": [], "total GiB of -+-": [], "total GiB of +++": []}
    for millions, steps, batch, sequence in configurations:
        spec = of_size(TABLE_1[millions], task=task, steps=steps, batch=batch, sequence=sequence)
        found["configuration"].append(f"{millions}M, T = {steps}, B = {batch}, S = {sequence}")
        found["gain"].append(gain_of(spec, profile))
        for signs in (DEFAULT, MIXFLOW):
            found[f"total GiB of {signs}"].append(assigned(spec, signs, profile)["total"] / GiB)
    return found


def of_size(size: Size, **fields: Any) -> BilevelSpec:
    """The problem of a model that need not be in Table 6; `fields` as for `scale.configuration`."""
    return scale.configuration(
        44, width=size.width, ffw=size.ffw, heads=size.heads, key_size=size.key_size, layers=size.layers, **fields
    )


def gain_of(spec: BilevelSpec, profile: str) -> float:
    """Dynamic bytes of the default over those of mixed mode (Eq. 10), by the assignments."""
    default, mixed = (
        assigned(spec, signs, profile)["total"] - scale.static(spec, signs) for signs in (DEFAULT, MIXFLOW)
    )
    return float(default / mixed)


def reported(profile: str, optimisations: str, millions: int) -> float:
    """The peak that a compiler reports of a meta step, over the bytes that are live at the peak of its assignment.

    Args:
        profile, optimisations, millions: as for `rows.hbm`.

    Raises:
        LookupError: the compiler reports no peak; the message says why.
    """
    from gradgate.hw_profiles.compile import measure
    from gradgate.references.draws import shapes

    spec = scale.configuration(millions)
    found = measure(scale.program(optimisations), (shapes(spec),), profile, limit=scale.LIMIT)
    if found.peak_bytes is None:
        raise LookupError(f"{profile}: {found.reason or 'the compiler reports no peak'}")
    return float(found.peak_bytes / sum(assigned(spec, optimisations, profile)["named"].values()))


def live(profile: str, optimisations: str, millions: int, **fields: Any) -> float:
    """GiB of a meta step by `assigned`: on a TPU the bytes live at the peak. Arguments as for `rows.hbm`."""
    return float(assigned(scale.configuration(millions, **fields), optimisations, profile)["total"]) / GiB


def live_otherwise(profile: str, optimisations: str, millions: int, how: str, **fields: Any) -> float:
    """`live` of a model that is written otherwise.

    Args:
        profile, optimisations, millions, fields: as for `rows.hbm`.
        how: ``unrolled``: layers run in a Python loop; ``library``: attention is `listings.library_attention`.

    Raises:
        UsageError: layers are unrolled and rematerialised. The methods' rematerialisation is for layers in a scan: in a
            loop a compiler merges what runs again with what ran before. `by_listings` measures this.

    Cost: one to four minutes of a core with layers unrolled.
    """
    from unittest import mock

    import jax

    from gradgate.references.bilevel.inner import transformer
    from gradgate.references.bilevel.paper import listings

    if how == "unrolled" and optimisations[1] == "+":
        raise UsageError("rematerialised layers in a loop are measured by by_listings, where no compiler merges them")
    name, other = {"unrolled": ("scan", listings._loop), "library": ("attention", listings.library_attention)}[how]
    spec = scale.configuration(millions, **fields)
    jax.clear_caches()  # JAX keeps what it traced by the function, which looks the same
    try:
        with mock.patch.object(transformer, name, other):
            found = _assignment.__wrapped__(spec, optimisations, profile)
    finally:
        jax.clear_caches()
    return float(sum(one.bytes for one in found.live(found.peak))) / GiB


def by_listings(profile: str, optimisations: str, millions: int, batch: int, sequence: int) -> float:
    """GiB of a meta step by Listings 1 and 3 with the layers in a Python loop, as `live` counts them.

    Args:
        profile, optimisations, millions: as for `rows.hbm`.
        batch, sequence: B and S, which Tables 2 and 3 do not name.

    Raises:
        LookupError: the compiler gives no assignment; the message says why.

    Cost: half a minute to two minutes of a core.
    """
    from unittest import mock

    import jax

    from gradgate.references.bilevel.inner import transformer
    from gradgate.references.bilevel.paper import listings

    mixed, remat, save = (sign == "+" for sign in optimisations)
    spec = scale.configuration(millions, batch=batch, sequence=sequence)
    given = listings.arguments(millions, spec.layers, sequence, batch)
    jax.clear_caches()  # JAX keeps what it traced by the function, which looks the same
    try:
        with mock.patch.object(transformer, "scan", listings._loop):
            found = _kept(listings.program(save, mixed, remat), given, spec, profile)
    finally:
        jax.clear_caches()
    return float(found["total"]) / GiB


def gain_at(profile: str, millions: int, **fields: Any) -> float:
    """`gain_of` for a model of Table 6, with some fields replaced."""
    return gain_of(scale.configuration(millions, **fields), profile)


def total_gain_at(profile: str, millions: int, **fields: Any) -> float:
    """All bytes of the default over those of mixed mode, by the assignments; arguments as for `gain_at`."""
    spec = scale.configuration(millions, **fields)
    default, mixed = (assigned(spec, signs, profile)["total"] for signs in (DEFAULT, MIXFLOW))
    return float(default / mixed)


def named(profile: str, optimisations: str, name: str, millions: int, **fields: Any) -> float:
    """GiB of one kind of buffers that are live at the peak of a meta step.

    Args:
        profile, optimisations, millions, fields: as for `rows.hbm`.
        name: one of `NAMES`.
    """
    spec = scale.configuration(millions, **fields)
    return float(assigned(spec, optimisations, profile)["named"][name]) / GiB


def lives(profile: str, static: bool, millions: int, optimisations: str = MIXFLOW) -> float:
    """The share of a program's instructions during which its buffers are live, the mean by bytes.

    Args:
        profile, optimisations, millions: as for `rows.hbm`.
        static: of arguments, results and what is kept of every step; else of all others.
    """
    spec = scale.configuration(millions)
    found = _assignment(spec, optimisations, profile)
    spans: dict[tuple[int, int], tuple[int, set[int]]] = {}
    for one in found.buffers:
        if (one.persistent or kind(one.shape, spec) == NAMES[1]) == static:
            spans.setdefault(one.place, (one.bytes, set()))[1].update(range(one.first, one.last + 1))
    every = sum(bytes_ for bytes_, _ in spans.values())
    return sum(bytes_ * len(at) for bytes_, at in spans.values()) / every / (found.instructions + 1)


def updates(profile: str, millions: int, optimisations: str = MIXFLOW) -> float:
    """How many instructions write to a stack that is kept of every step, the mean by bytes.

    A loop's update writes one slice per step, so one such instruction writes every number once. The instruction that
    fills the stack with zeros before the loop is not counted.

    Args:
        profile, optimisations, millions: as for `rows.hbm`.
    """
    spec = scale.configuration(millions)
    found = _assignment(spec, optimisations, profile)
    writers: dict[tuple[int, int], tuple[int, set[str]]] = {}
    for one in found.buffers:
        if kind(one.shape, spec) == NAMES[1]:
            told = writers.setdefault(one.place, (one.bytes, set()))[1]
            told |= {one.writer} - {""} if "broadcast" not in one.writer else set()
    every = sum(bytes_ for bytes_, _ in writers.values())
    return sum(bytes_ * len(names) for bytes_, names in writers.values()) / every


@functools.lru_cache(maxsize=2)
def _assignment(spec: BilevelSpec, optimisations: str, profile: str) -> Assignment:
    from gradgate.references.draws import shapes

    return assignment(scale.program(optimisations), (shapes(spec),), profile)


LADDER = tuple(SIZES)
"""All rows of Table 6."""
