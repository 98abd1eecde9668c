"""Cells of methods: profile × method × options × Spec, measured on any executor.

A JAX method is traced with its Problem's params and data as arguments. Only their shapes exist, so a cell at the scale
of a paper allocates nothing. A PyTorch method is run once for bytes and once for work, on real tensors or, if they
would be large, on fake ones (`gradgate.suites.measuring.fakes`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

from gradgate.hw_profiles import sweep
from gradgate.hw_profiles.compile import LIMIT
from gradgate.hw_profiles.fingerprint import fingerprint
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.profile import load
from gradgate.hw_profiles.work import roofline
from gradgate.references import registry
from gradgate.references.backends import leaves
from gradgate.references.contract import Method, Spec
from gradgate.references.draws import shapes

OF_PASSES = ("residual_bytes", "compiled_residual_bytes", "compiled_peak_bytes")
"""Fields of a measurement that only pairs have: their forward and backward passes are known. The compiled ones are of
PyTorch."""
PROGRAM = f"{__name__}:program"


@dataclass(frozen=True)
class MethodCell:
    """One measurement of one method.

    Attributes:
        declared: the method; only its names are sent to a worker.
        profile: the name of a profile, or the path of its TOML file.
        spec: the problem; its dtype and sizes decide bytes and work, its seed does not.
        options: the options of the method.
        target: the name of a plugged-in callable; "" for a reference method.
        setting: the name of the `Setting` that is measured, if the class of problems has several; "" otherwise.
    """

    declared: Method
    profile: str
    spec: Spec
    options: Mapping[str, Any] = field(default_factory=dict)
    target: str = ""
    setting: str = ""

    def at(self, **fields: Any) -> MethodCell:
        """The same cell with some Spec fields replaced; options stay."""
        return replace(self, spec=dataclasses.replace(self.spec, **fields))

    def to_dict(self) -> dict[str, Any]:
        """The cell as plain JSON types."""
        return {
            "family": self.declared.family,
            "method": self.declared.name,
            "framework": self.declared.framework,
            "target": self.target,
            "origin": registry.origin(self.declared.family),
            "profile": self.profile,
            "spec": dataclasses.asdict(self.spec),
            "options": dict(self.options),
        } | ({"setting": self.setting} if self.setting else {})

    def to_cell(self, limit: float = LIMIT, label: Any = None) -> sweep.Cell:
        """The cell as `hw_profiles.sweep` takes it: small and picklable, with x64 on for float64 only."""
        named = {
            "family": registry.origin(self.declared.family) or self.declared.family,
            "method": self.declared.name,
            "framework": self.declared.framework,
            "target": self.target,
            "spec": self.spec.to_json(),
            "options": dict(self.options),
        }
        options = {"limit": limit} | ({"x64": self.spec.dtype == "float64"} if self.declared.framework == "jax" else {})
        return sweep.Cell(PROGRAM, self.profile, None, named, options, self.declared.framework, label)


def usual_options(declared: Method, spec: Spec) -> dict[str, Any]:
    """The options at which a method's bytes and work are measured by default."""
    return {option.name: option.usual(spec) if option.usual else option.values(spec)[0] for option in declared.options}


def program(
    family: str, method: str, framework: str, target: str, spec: str, options: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The factory of a cell, run by the worker: the program, its arguments, and further arguments of the measurement.

    Raises:
        UsageError: a name is unknown, or the Spec is impossible.
        ValueError: the method's bytes cannot be measured; says why.
    """
    if target:
        declared = registry.plugged_in(target, family, framework)
    else:
        [declared] = registry.methods(family, method, framework)
    return of_method(
        declared, registry.load(declared.implementation), registry.spec_class(family).from_json(spec), options
    )


def of_method(
    declared: Method, function: Callable[..., Any], spec: Spec, options: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The program of a loaded method on one Spec, its arguments, and further arguments of the measurement.

    Raises:
        ValueError: the method's bytes cannot be measured; says why.
    """
    if declared.unmeasured:
        raise ValueError(declared.unmeasured)
    run: Callable[..., Any] = functools.partial(function, **options)
    further = functools.partial(of_passes, function, spec, options)
    if declared.framework == "torch":
        from gradgate.suites.measuring import fakes

        around, run, problem = fakes.around(function, run, spec)
        track = leaves([problem.params, problem.data])
        return run, (problem,), {"track": track, "around": around, "further": further}
    if declared.sharded:
        program, arguments, placed = registry.load(declared.sharded)(shapes(spec), **options)
        return program, arguments, placed
    return run, (shapes(spec),), {"further": further}


def of_passes(function: Any, spec: Spec, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a pair's function keeps between its passes.

    If it claims to compose with ``compile``, also what it keeps and its peak under torch.compile.

    Returns:
        Names of `OF_PASSES` -> bytes, as far as they can be counted, and a ``reason`` if one cannot or if the pair
        leaves it out; {} for any other method.
    """
    if not hasattr(function, "residual_bytes"):
        return {}
    from gradgate.hw_profiles.torch_memory import Refusal

    asked = {"residual_bytes": functools.partial(function.residual_bytes, spec, options)}
    if "compile" in getattr(function, "composes", ()):
        from gradgate.suites.measuring import compiled

        asked["compiled_residual_bytes"] = functools.partial(compiled.residual_bytes, function, spec, options)
        asked["compiled_peak_bytes"] = functools.partial(compiled.peak_bytes, function, spec, options)
    found, refused = {}, []
    for name, count in asked.items():
        if name in getattr(function, "unmeasured", {}):
            refused.append(f"{name} is left out: {function.unmeasured[name]}")
            continue
        try:
            found[name] = count()
        except Refusal as error:
            refused.append(
                f'{name} cannot be counted: {error}; unmeasured={{"{name}": "the reason"}} in the pair leaves it out'
            )
    return found | ({"reason": "; ".join(refused)} if refused else {})


def measure(
    cells: Iterable[MethodCell], executor: Executor | None = None, *, workers: int | None = None, limit: float = LIMIT
) -> Iterator[tuple[MethodCell, Measurement]]:
    """Measure cells on an executor or on local processes, and yield each as soon as it is measured, in any order.

    If a cell fails, the status and reason of its measurement say so; the other cells are not affected.
    """
    asked = list(cells)
    sent = [cell.to_cell(limit, place) for place, cell in enumerate(asked)]  # a declaration need not be picklable
    for cell, found in sweep.run(sent, executor, workers=workers):
        yield asked[cell.label], found


def row(cell: MethodCell, found: Measurement) -> dict[str, Any]:
    """A measured cell as in ``gradgate memory --json``: bytes of one device, work of all devices together."""
    declared = cell.declared
    seconds, reason = None, found.reason
    if not found.ok and getattr(cell.spec, "pair", None) is not None:
        reason += '; in the pair, measured=[{…}] sets another problem, and unmeasured={"temp_bytes": "…"} leaves it out'
    if found.nominal_flops is not None and found.bytes_moved is not None:
        shares = found.nominal_flops / found.devices, found.bytes_moved / found.devices
        seconds = roofline(load(cell.profile), *shares, cell.spec.dtype)
    return (
        {
            "family": declared.family,
            "method": declared.name,
            "framework": declared.framework,
            "profile": found.profile,
            "options": dict(cell.options),
            "spec": json.loads(cell.spec.to_json()),
            "status": found.status,
            "reason": reason,
            "devices": found.devices,
            "temp_bytes": found.temp_bytes,
            "argument_bytes": found.argument_bytes,
            "output_bytes": found.output_bytes,
            "alias_bytes": found.alias_bytes,
            "peak_bytes": found.peak_bytes,
            "alive": list(found.alive),
            "required_bytes": found.required_bytes,
            "fits": found.fits,
            "memory_bytes": load(cell.profile).device_memory_bytes,
            "flops": found.flops,
            "transcendentals": found.transcendentals,
            "bytes_moved": found.bytes_moved,
            "roofline_seconds": seconds,
            "cached": found.cached,
            "fingerprint": dict(found.fingerprint) or fingerprint(load(cell.profile)),
        }
        | {name: text for name, text in (("target", cell.target), ("setting", cell.setting)) if text}
        | measured_passes(found)
    )


def measured_passes(found: Measurement) -> dict[str, int]:
    """The bytes that are kept between the passes, if they were measured."""
    named = {name: getattr(found, name) for name in OF_PASSES}
    return {name: size for name, size in named.items() if size is not None}
