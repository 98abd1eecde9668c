"""How much one method takes on one problem: bytes, FLOPs, and bytes kept for the backward pass.

FLOPs and bytes are measured only once in a process, even if several claims need them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from gradgate.hw_profiles import torch_memory, work
from gradgate.hw_profiles.measurement import Measurement
from gradgate.hw_profiles.sweep import Cell, measure_cell
from gradgate.hw_profiles.torch_memory import Refusal
from gradgate.references.contract import Method, Spec
from gradgate.suites.judging.frames import last_frames
from gradgate.suites.judging.outcomes import NO_PEAK
from gradgate.suites.judging.subject import Fault, Inapplicable, first_line
from gradgate.suites.measuring import cells

KERNEL_COMPILERS = ("Mosaic", "Pallas", "Triton", "interpret mode")
"""If a failed lowering names one of these, a kernel failed; another profile may compile this kernel."""
KNOWN: dict[tuple[str, ...], Any] = {}
"""Measured results of this worker, for all claims that share a sweep or compare two methods."""


def residual_bytes(declared: Method, function: Any, spec: Spec, options: Mapping[str, Any]) -> float:
    """Bytes that a pair's function keeps between its forward and its backward pass.

    Raises:
        Inapplicable: the function does not belong to a pair, or the bytes cannot be counted.
        Fault: the method raises.
    """
    if not hasattr(function, "residual_bytes"):
        raise Inapplicable("residual bytes can be counted only for pairs: their forward pass is a separate function")
    try:
        return float(function.residual_bytes(spec, options))
    except Inapplicable:
        raise
    except Refusal as error:
        raise Inapplicable(f"residual bytes cannot be counted: {error}") from None
    except (Exception, SystemExit) as error:
        raise Fault(
            f"the method raised {type(error).__name__} in its forward pass: {first_line(error)}",
            last_frames(error, declared.implementation),
        ) from error


def compiled_bytes(declared: Method, function: Any, spec: Spec, options: Mapping[str, Any], quantity: str) -> float:
    """``compiled_residual_bytes`` or ``compiled_peak_bytes`` of a pair.

    Raises:
        Inapplicable: the function does not belong to a pair in PyTorch, or cannot be traced; the message says why.
    """
    pair = getattr(function, "pair", function)
    if not hasattr(pair, "residual_bytes") or declared.framework != "torch":
        raise Inapplicable("bytes under torch.compile can be counted only for pairs in PyTorch")
    from gradgate.suites.measuring import compiled

    try:
        count = compiled.residual_bytes if quantity == "compiled_residual_bytes" else compiled.peak_bytes
        return float(count(pair, spec, options, "function" if pair is function else "reference"))
    except Refusal as error:
        raise Inapplicable(f"bytes under torch.compile cannot be told: {error}") from None


def flops(declared: Method, function: Callable[..., Any], spec: Spec, options: Mapping[str, Any]) -> float:
    """Arithmetic of a method on one Spec.

    Raises:
        Inapplicable: it cannot be counted.
        Fault: the method raises.
    """
    key = (
        declared.key,
        declared.implementation,
        "",
        spec.to_json(),
        json.dumps(dict(options), sort_keys=True),
        "flops",
    )
    if key not in KNOWN:
        try:
            run, arguments, further = cells.of_method(declared, function, spec, options)
            if declared.framework == "torch":
                with further["around"]:
                    run(*arguments)  # FLOPs of a first call include what the program computes once and keeps
                    KNOWN[key] = work.torch_flops(run, *arguments)
            else:
                KNOWN[key] = work.of(run, arguments, x64=spec.dtype == "float64").flops
        except (work.WorkError, Refusal) as error:
            raise Inapplicable(f"work cannot be counted: {error}") from None
        except (Exception, SystemExit) as error:
            raise Fault(
                f"the method raised {type(error).__name__} while its work was counted: {first_line(error)}",
                last_frames(error, declared.implementation),
            ) from error
    return float(KNOWN[key])


def _bytes_alone(declared: Method, function: Any, spec: Spec, options: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """The factory of a cell of which only bytes are needed: a PyTorch program runs once, and no FLOPs are counted."""
    run, arguments, more = cells.of_method(declared, function, spec, options)
    more = {name: value for name, value in more.items() if name != "further"}
    if declared.framework == "torch":
        more |= {"count": torch_memory.bytes_alone}
    return run, arguments, more


def _no_kernel(found: Measurement) -> bool:
    """Whether the compiler of a profile cannot lower a kernel: the reason, in the compiler's words, says so."""
    return "could not be lowered" in found.reason and any(name in found.reason for name in KERNEL_COMPILERS)


def device_bytes(
    declared: Method,
    function: Callable[..., Any],
    profile: str,
    spec: Spec,
    options: Mapping[str, Any],
    limit: float,
    quantity: str,
) -> float | None:
    """A field of the Measurement of a method on one Spec and one profile; None: too large for the device.

    Args:
        limit: seconds that the compilation may take.
        quantity: name of the field.

    Raises:
        Inapplicable: the compiler is missing or refuses the program, or the quantity is not known on this profile.
        Fault: the method cannot be traced or run, or the compiler crashed or took too long.
    """
    key = (
        declared.key,
        declared.implementation,
        profile,
        spec.to_json(),
        json.dumps(dict(options), sort_keys=True),
        "",
    )
    if key not in KNOWN:
        factory = functools.partial(_bytes_alone, declared, function, spec, options)
        x64 = {"x64": spec.dtype == "float64"} if declared.framework == "jax" else {}
        cell = Cell(factory, profile, None, options={"limit": limit, **x64}, framework=declared.framework)
        KNOWN[key] = measure_cell(cell)
    found: Measurement = KNOWN[key]
    if found.status in ("unavailable", "refused") or _no_kernel(found):
        raise Inapplicable(f"{profile}: {found.reason}")
    if found.status == "too_large":
        return None
    if not found.ok:
        raise Fault(f"{profile}: {found.reason}")
    value = getattr(found, quantity)
    if value is None and quantity == "peak_bytes":
        raise Inapplicable(
            f"{profile}: {NO_PEAK}; temp_bytes are judged there, and peak_bytes with --profile nvidia-h100 or tpu-v5p"
        )
    if value is None:
        raise Inapplicable(f"{profile}: {quantity} is not known there")
    return float(value)
