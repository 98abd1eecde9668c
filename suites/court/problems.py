"""The problems on which a stranger is judged: the task's sizes and some between them, under seeds that nobody knows.

Seeds come from the system's source of random numbers and have 62 bits. No problem is used for two candidates, so what
one learns, or what a verdict shows, helps no other.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, cast

from gradgate.references import registry
from gradgate.references.backends import precision
from gradgate.references.contract import Backend, Claim, Method, Spec, UsageError
from gradgate.suites.checks import CHECKS
from gradgate.suites.court.proxy import Judged
from gradgate.suites.engine import strategies
from gradgate.suites.pairs.lowering import legal

JUDGED = (
    "tree",
    "outputs",
    "outputs_together",
    "gradient",
    "cotangents",
    "upstream",
    "deterministic",
    "pure",
    "not_finite",
    "stability",
    "options",
    "each_leaf_alone",
    "layouts",
)
"""Checks that judge a candidate from outside."""
COUNTS = {
    "torch": {
        "tree": 2,
        "outputs": 4,
        "gradient": 8,
        "cotangents": 3,
        "upstream": 2,
        "deterministic": 2,
        "pure": 2,
        "not_finite": 2,
        "stability": 4,
        "options": 3,
        "each_leaf_alone": 2,
        "layouts": 2,
    },
    "jax": {
        "tree": 2,
        "outputs": 1,
        "gradient": 6,
        "cotangents": 2,
        "upstream": 1,
        "deterministic": 1,
        "pure": 1,
        "not_finite": 1,
        "stability": 3,
        "options": 3,
    },
}
"""Framework -> check -> how many problems judge a claim with it; one is the largest."""
NARROW = 12
"""Problems for a gradient in bfloat16 or float16, where only many together refute."""
SMALL = 1 << 21
"""Most numbers in the inputs of a workload in bfloat16 or float16 that is judged on so many problems."""
BETWEEN = {"torch": 2, "jax": 1}
"""How many sizes that the task does not list are tried, drawn anew for every court."""
LARGEST = 40
"""The largest of these."""
TRIES = 20
"""How many are drawn until the reference takes enough of them; it may refuse what is no multiple of a size."""
EVERY = 24
"""Most listed shapes of a gradient in float64 in PyTorch; they hold every pair of values of dims and shared options."""
SIZES = {"torch": 8, "jax": 3}
"""Most listed combinations of sizes; in JAX each is several programs to compile, so all claims share few."""


def judged(method: Method) -> tuple[list[Claim], dict[str, str]]:
    """(claims that a court judges, claim -> why it is not judged) of a task's method."""
    claims = [claim for claim in method.claims if claim.check in JUDGED]
    why = "it looks into the function, which only its own process can do; what it says is worth nothing here"
    return claims, {claim.name: why for claim in method.claims if claim.check not in JUDGED}


def between(pair: Judged) -> list[Mapping[str, Any]]:
    """Shapes with sizes that the task does not list: the reference runs at them, in this process."""
    found: list[Mapping[str, Any]] = []
    for _ in range(TRIES):
        if len(found) == BETWEEN[pair.where] or not pair.dims:
            break
        shape: dict[str, Any] = dict(secrets.choice(pair.family.shapes))
        for name, sizes in pair.dims.items():
            unlisted = set(range(1, min(max(sizes), LARGEST) + 1)) - set(sizes)
            if unlisted:
                shape[name] = secrets.choice(sorted(unlisted))
        if shape in found or shape in [dict(one) for one in pair.family.shapes] or not legal(pair, shape):
            continue
        spec = pair.spec(**shape)
        try:
            problem = dataclasses.replace(spec, dtype=spec.widest).build(cast(Backend, pair.where))
            with precision(pair.where, problem.dtype):
                pair.gradient("reference", problem, {})
        except Exception:  # the reference refuses these sizes, so nobody has to take them
            continue
        found.append(shape)
    return found


class Docket:
    """The shapes of one court, and problems of them that were never used."""

    def __init__(self, pair: Judged, method: Method) -> None:
        self.pair, self.method = pair, method
        self.family = registry.family(method.family)
        if pair.benchmark is not None and pair.benchmark.workloads:
            return  # every claim names its sizes
        self.more = between(pair)
        covering = strategies.covering(self.family, {})
        short = [shape for shape in covering if not strategies.is_long(shape)] or list(covering)
        self.shapes = sorted(self._with_every_option(_spread(short, SIZES[pair.where])), key=self._numbers)
        if pair.where == "torch":
            self.every = _spread([one for one in self.family.shapes if not strategies.is_long(one)] or short, EVERY)
        else:
            self.every = self._with_every_order(self.shapes)
        same = [{**shape, "regime": regime} for shape in self.shapes for regime in pair.regimes]
        self.stress = [shape for shape in same if legal(pair, {**self._usual(), **shape})]

    def _numbers(self, shape: Mapping[str, Any]) -> int:
        return self.pair.numbers({**self._usual(), **shape})

    def _with_every_option(self, shapes: list[Any]) -> list[Any]:
        """These shapes, and more, until every value of a shared option is tried where no dim is 0 or 1."""
        wide = [one for one in self._pool() if all(one[dim] > 1 for dim in self.pair.dims)]
        found = list(shapes)
        for name, labels in self.pair.shared.items():
            for label in labels:
                if not any(one[name] == label and all(one[dim] > 1 for dim in self.pair.dims) for one in found):
                    fitting = ({**one, name: label} for one in wide)
                    found += [one for one in fitting if legal(self.pair, {**self._usual(), **one})][:1]
        return found

    def _with_every_order(self, shapes: list[Any]) -> list[Any]:
        """These shapes, and more, until of any two dims above 1 either one is the smaller in some shape.

        A sequence may be shorter than a window, or a batch than its groups; what fails there fails at no other size.
        """
        found = list(shapes)
        for less, more in itertools.permutations(self.pair.dims, 2):
            if not any(1 < one[less] < one[more] for one in found):
                fitting = (one for one in self._pool() if 1 < one[less] < one[more])
                found += [one for one in fitting if legal(self.pair, {**self._usual(), **one})][:1]
        return found

    def _pool(self) -> list[Any]:
        """The listed shapes without a regime, the smallest first."""
        every = [one for one in self.family.shapes if not strategies.is_long(one) and not one["regime"]]
        return sorted(every, key=self._numbers)

    def problems(self, claim: Claim) -> Iterator[tuple[Spec, dict[str, Any]]]:
        """(Spec, options) for a claim, the smallest first, each under a new seed."""
        if "fields" in claim.settings:
            fields = claim.settings["fields"]
            many = claim.settings["widest"] in ("bfloat16", "float16") and self._numbers(fields) <= SMALL
            for _ in range(NARROW if many else 1):
                yield self.pair.spec(**fields, seed=secrets.randbits(62)), {}
            return
        narrow = claim.settings.get("dtype") in ("bfloat16", "float16")
        shapes = list(self.stress if CHECKS[claim.check].draws == "stress" else self.shapes)
        shapes = shapes[-2:] if narrow else shapes
        count = NARROW if narrow else COUNTS[self.pair.where][claim.check]
        if claim.check == "gradient":
            if claim.settings.get("dtype") == "float64":
                shapes = self.every
            shapes = shapes if narrow else [*shapes, *self.more]
            count = max(count, len(shapes))
        elif claim.check == "outputs" and self.pair.shared:
            count = max(count, len(shapes))  # a value of an option may be wrong in the outputs alone
        elif CHECKS[claim.check].draws == "stress":
            count = max(count, len(self.pair.regimes))
        picked = [shapes[i % len(shapes)] for i in range(count)] if count > len(shapes) else _spread(shapes, count)
        for shape in sorted(picked, key=self._numbers):
            try:
                spec = self.pair.spec(**{**shape, "seed": secrets.randbits(62)})
            except UsageError:
                continue
            options = strategies.pick_options(self.method, spec, claim.settings.get("covering", ""))
            yield spec, options | dict(claim.settings.get("options", {}))

    def smaller(self, spec: Any, options: Mapping[str, Any]) -> Iterator[tuple[Spec, dict[str, Any]]]:
        """Problems with fewer numbers than one that refutes, the smallest first."""
        size = self.pair.numbers(spec.fields)
        listed = sorted(self.family.shapes, key=lambda shape: self.pair.numbers({**self._usual(), **shape}))
        for shape in listed:
            if self.pair.numbers({**self._usual(), **shape}) >= size:
                return
            if shape.get("regime", "") == spec.regime:
                yield self.pair.spec(**{**shape, "seed": secrets.randbits(62)}), dict(options)

    def _usual(self) -> dict[str, Any]:
        return {name: getattr(self.pair.spec(), name) for name in (*self.pair.dims, *self.pair.shared)}


def _spread(items: list[Any], wanted: int) -> list[Any]:
    if wanted >= len(items):
        return items
    if wanted == 1:
        return [items[-1]]
    return [items[round(i * (len(items) - 1) / max(1, wanted - 1))] for i in range(wanted)]
