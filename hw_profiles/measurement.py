"""The result of measuring one cell: a plain record that can be stored as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

# The possible results of a cell. Only "measured" has bytes; "too_large" has the bytes that the compiler requested.
STATUSES = ("measured", "too_large", "unavailable", "refused", "crashed", "timeout", "failed")
ANSWERS = ("measured", "too_large")


@dataclass(frozen=True)
class Measurement:
    """Bytes and work of one program on one profile.

    Attributes:
        profile: name of the profile.
        status: ``measured``; ``too_large`` (the compiler refused because the memory is too small); ``unavailable`` (the
            compiler is not installed, or does not exist); ``refused`` (any other refusal of the compiler); ``crashed``;
            ``timeout``; ``failed`` (the program itself could not be traced or lowered, or its worker died).
        reason: a sentence for every status except ``measured``; for ``measured`` it says what is not exact about
            ``flops``.
        devices: number of devices that the program runs on; all bytes are those of one device.
        temp_bytes: temporaries. argument_bytes, output_bytes: as laid out on the device, padding included.
        alias_bytes: outputs that reuse the memory of donated arguments.
        peak_bytes: the peak that the compiler reports; None if it is not reliable (host).
        required_bytes: temporaries + arguments + outputs − aliases. For ``too_large``, the bytes that the compiler
            reports, exact to about three digits, or None if it reports none.
        fits: whether required_bytes is at most the device's memory; None if either is unknown.
        flops: arithmetic operations of the whole program, on all devices together (see ``work.count``); None if they
            cannot be counted.
        nominal_flops: the same operations, counted as papers and peak rates do (see ``work.Work``), for times; None for
            PyTorch.
        transcendentals: calls of exp, log, tanh and the like, which ``flops`` leaves out.
        bytes_moved: memory traffic of the whole program if fusion were perfect (see ``work.count``).
        residual_bytes: bytes that the function of a pair keeps between its passes (`hw_profiles.residuals`); None for
            everything else.
        compiled_residual_bytes: the same under torch.compile; None if nothing is claimed about torch.compile.
        compiled_peak_bytes: Inductor's estimate of the peak of the larger pass; None as above.
        alive: the largest arrays that are alive at the peak (PyTorch), or that fill the temporary memory (the host's
            compiler), such as ``f32[16,64,64] 262,144 bytes (fusion.3)``; () if the compiler does not tell.
        x64: whether the program was traced with 64-bit types enabled.
        cached: whether the bytes came from the cache.
        fingerprint: versions, profile hash and flags.
        record: everything that the process which measured had read; it is no part of the JSON.
    """

    profile: str
    status: str
    reason: str = ""
    devices: int = 1
    temp_bytes: int | None = None
    argument_bytes: int | None = None
    output_bytes: int | None = None
    alias_bytes: int | None = None
    peak_bytes: int | None = None
    required_bytes: int | None = None
    fits: bool | None = None
    flops: int | None = None
    nominal_flops: int | None = None
    transcendentals: int | None = None
    bytes_moved: int | None = None
    residual_bytes: int | None = None
    compiled_residual_bytes: int | None = None
    compiled_peak_bytes: int | None = None
    alive: tuple[str, ...] = ()
    x64: bool = False
    cached: bool = False
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether the compiler gave an answer: the bytes, or that the program is too large."""
        return self.status in ANSWERS

    def to_json(self) -> dict[str, Any]:
        """Return a dict of plain JSON types; ``from_json`` is the inverse."""
        return {name: value for name, value in asdict(self).items() if name != "record"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Rebuild the measurement that ``to_json`` wrote. Keys that this version does not know are ignored.

        Raises:
            ValueError: ``profile`` or ``status`` is missing, or the status is unknown.
        """
        known = {key: value for key, value in data.items() if key in {each.name for each in fields(cls)}}
        if "profile" not in known or known.get("status") not in STATUSES:
            raise ValueError(f"not a measurement: it needs 'profile' and a 'status' among {', '.join(STATUSES)}")
        return cls(**known | {"alive": tuple(known.get("alive", ()))})
